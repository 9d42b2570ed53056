/* nabla/dtype.h - element types.
 *
 * NB_BOOL (one byte, 0 or 1), NB_I8 .. NB_I64, NB_U8 .. NB_U64, NB_F16,
 * NB_BF16, NB_F32, NB_F64.  Codes are stable within a major version. */
#ifndef NABLA_DTYPE_H
#define NABLA_DTYPE_H

#include "nabla/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef NB_KERNEL_DTYPES /* nabla/kernel.h has been here and has the codes */
typedef int nb_dtype;
#else
typedef enum nb_dtype {
    NB_NOTYPE = 0, /* none given: the default applies */
#define DTYPE(NAME, name, brief, type, bytes, class) NB_##NAME,
#include "nabla/dtypes.def"
    NB_NDTYPES
} nb_dtype;
#endif

/* "float32"; "" for a code that is none. */
NB_API const char *nb_dtype_name(nb_dtype d);

/* "f32", as in listings. */
NB_API const char *nb_dtype_brief(nb_dtype d);

/* Bytes of one element. */
NB_API size_t nb_dtype_size(nb_dtype d);

/* The dtype of that name, long or short; NB_NOTYPE if there is none. */
NB_API nb_dtype nb_dtype_find(const char *name);

NB_API bool nb_dtype_is_float(nb_dtype d);
NB_API bool nb_dtype_is_integer(nb_dtype d);  /* signed or unsigned, not bool */
NB_API bool nb_dtype_is_unsigned(nb_dtype d); /* an unsigned integer */

/* The dtype in which a and b combine; NB_NOTYPE with NB_ETYPE set where they
 * do not (uint64 with a signed integer). */
NB_API nb_dtype nb_dtype_promote(nb_dtype a, nb_dtype b);

/* True if every value of `from` is represented in kind by `to`: promotion of
 * the two gives `to`. */
NB_API bool nb_dtype_can_cast(nb_dtype from, nb_dtype to);

/* The floating dtype that factories and scalars take when none is given;
 * float32 unless set.  One per thread. */
NB_API nb_dtype nb_default_float(void);
NB_API nb_status nb_default_float_set(nb_dtype d);

/* For bindings whose defaults follow something else than threads: from now on
 * the default float is what `ask` says (NULL: each thread's own again). */
NB_API void nb_default_float_ask(nb_dtype (*ask)(void));

#ifdef __cplusplus
}
#endif
#endif
