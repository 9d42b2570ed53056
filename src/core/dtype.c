/* dtype.c - facts about element types and how they combine. */
#include "nabla/dtype.h"

#include "base/error.h"

#include <stdatomic.h>
#include <string.h>

enum { B, I, U, F, NONE };
static const struct {
    const char *name, *brief;
    unsigned char bytes, class;
} facts[NB_NDTYPES] = {
    {"", "", 0, NONE},
#define DTYPE(NAME, name, brief, type, bytes, class) \
    {#name, #brief, bytes, class},
#include "nabla/dtypes.def"
};

static _Thread_local nb_dtype default_float = NB_F32;
static nb_dtype (*_Atomic asked)(void);

static bool known(nb_dtype d)
{
    return d > NB_NOTYPE && d < NB_NDTYPES;
}

static int class_of(nb_dtype d)
{
    return known(d) ? facts[d].class : NONE;
}

const char *nb_dtype_name(nb_dtype d)
{
    return known(d) ? facts[d].name : "";
}

const char *nb_dtype_brief(nb_dtype d)
{
    return known(d) ? facts[d].brief : "";
}

size_t nb_dtype_size(nb_dtype d)
{
    return known(d) ? facts[d].bytes : 0;
}

nb_dtype nb_dtype_find(const char *name)
{
    for (int d = NB_NOTYPE + 1; name && d < NB_NDTYPES; d++)
        if (!strcmp(facts[d].name, name) || !strcmp(facts[d].brief, name))
            return (nb_dtype)d;
    return NB_NOTYPE;
}

bool nb_dtype_is_float(nb_dtype d)
{
    return class_of(d) == F;
}

bool nb_dtype_is_integer(nb_dtype d)
{
    return class_of(d) == I || class_of(d) == U;
}

bool nb_dtype_is_unsigned(nb_dtype d)
{
    return class_of(d) == U;
}

/* The smallest signed dtype wider than an unsigned one. */
static nb_dtype signed_above(nb_dtype u)
{
    return u == NB_U8 ? NB_I16 : u == NB_U16 ? NB_I32 : NB_I64;
}

static nb_dtype wider(nb_dtype a, nb_dtype b)
{
    return nb_dtype_size(a) >= nb_dtype_size(b) ? a : b;
}

nb_dtype nb_dtype_promote(nb_dtype a, nb_dtype b)
{
    int ca = class_of(a), cb = class_of(b);
    if (a == b && known(a)) return a;
    if (ca == NONE || cb == NONE)
        return nb_fail(NB_ETYPE, "promotion needs two dtypes"), NB_NOTYPE;
    if (ca == B) return b;
    if (cb == B) return a;
    if (ca == F && cb == F)
        return nb_dtype_size(a) == nb_dtype_size(b) ? NB_F32 : wider(a, b);
    if (ca == F || cb == F) return ca == F ? a : b;
    if (ca == cb) return wider(a, b);
    if (a == NB_U64 || b == NB_U64)
        return nb_fail(NB_ETYPE,
                       "%s does not combine with %s: no integer dtype holds "
                       "both, cast one side",
                       nb_dtype_name(a), nb_dtype_name(b)),
               NB_NOTYPE;
    return ca == U ? wider(b, signed_above(a)) : wider(a, signed_above(b));
}

bool nb_dtype_can_cast(nb_dtype from, nb_dtype to)
{
    if (!known(from) || !known(to)) return false;
    bool mixed = (from == NB_U64 && class_of(to) == I) ||
                 (to == NB_U64 && class_of(from) == I);
    return !mixed && nb_dtype_promote(from, to) == to;
}

nb_dtype nb_default_float(void)
{
    nb_dtype (*ask)(void) = atomic_load(&asked);
    return ask ? ask() : default_float;
}

void nb_default_float_ask(nb_dtype (*ask)(void))
{
    atomic_store(&asked, ask);
}

nb_status nb_default_float_set(nb_dtype d)
{
    if (!nb_dtype_is_float(d))
        return nb_fail(NB_ETYPE, "the default dtype must be floating, not %s",
                       nb_dtype_name(d)),
               NB_ETYPE;
    default_float = d;
    return NB_OK;
}
