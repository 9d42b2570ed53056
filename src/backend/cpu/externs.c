/* externs.c - names of functions and where they are: what LLVM makes calls to
 * by itself, and the mathematics of the C library. */
#define _GNU_SOURCE
#include "backend/cpu/externs.h"

#include "base/half.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* Conversions LLVM calls where the processor has no instructions for them.  A
 * 16-bit float is passed in the low bits of a vector register, and so is a
 * float: these speak of the one and have the calling sequence of the other. */
static float half_to_float(float x)
{
    return nb_f16_to_f32((uint16_t)nb_f32_bits(x));
}

static float float_to_half(float x)
{
    return nb_f32_from_bits(nb_f32_to_f16(x));
}

static float double_to_half(double x)
{
    return nb_f32_from_bits(nb_f64_to_f16(x));
}

static float float_to_bfloat(float x)
{
    return nb_f32_from_bits(nb_f32_to_bf16(x));
}

static float double_to_bfloat(double x)
{
    return nb_f32_from_bits(nb_f64_to_bf16(x));
}

#define BOTH(name)                 \
    {#name, (void *)name},         \
    {                              \
#name "f", (void *)name##f \
    }

static const struct {
    const char *name;
    void *at;
} table[] = {
    {"memcpy", (void *)memcpy},
    {"memmove", (void *)memmove},
    {"memset", (void *)memset},
    {"__extendhfsf2", (void *)half_to_float},
    {"__truncsfhf2", (void *)float_to_half},
    {"__truncdfhf2", (void *)double_to_half},
    {"__truncsfbf2", (void *)float_to_bfloat},
    {"__truncdfbf2", (void *)double_to_bfloat},
    BOTH(acos),
    BOTH(acosh),
    BOTH(asin),
    BOTH(asinh),
    BOTH(atan),
    BOTH(atan2),
    BOTH(atanh),
    BOTH(cbrt),
    BOTH(ceil),
    BOTH(copysign),
    BOTH(cos),
    BOTH(cosh),
    BOTH(erf),
    BOTH(erfc),
    BOTH(exp),
    BOTH(exp2),
    BOTH(expm1),
    BOTH(fabs),
    BOTH(floor),
    BOTH(fma),
    BOTH(fmax),
    BOTH(fmin),
    BOTH(fmod),
    BOTH(hypot),
    BOTH(ldexp),
    BOTH(lgamma),
    BOTH(log),
    BOTH(log10),
    BOTH(log1p),
    BOTH(log2),
    BOTH(nearbyint),
    BOTH(nextafter),
    BOTH(pow),
    BOTH(remainder),
    BOTH(rint),
    BOTH(round),
    BOTH(roundeven),
    BOTH(sin),
    BOTH(sincos),
    BOTH(sinh),
    BOTH(sqrt),
    BOTH(tan),
    BOTH(tanh),
    BOTH(tgamma),
    BOTH(trunc),
};

void *nb_extern_find(const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name)) return table[i].at;
    return NULL;
}
