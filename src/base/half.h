/* half.h - float16 and bfloat16 as bit patterns.
 *
 * Narrowing rounds once, to nearest even, from the value it is given: a double
 * goes to sixteen bits directly, since going through float could round twice.
 * Subnormals and infinities are exact, too large becomes infinite, and a NaN
 * stays a NaN: it keeps its sign and the top of its payload and comes out
 * quiet.
 *
 * The addition in each rounds subnormals: next to a number whose last bit
 * weighs as much as the smallest of them, the low bits of the sum are the
 * pattern wanted.  No operand or sum that matters is subnormal itself, so
 * flush-to-zero modes do no harm.  It is done for every value, and between
 * halves and float all else is integer arithmetic: loops vectorise. */
#ifndef NB_BASE_HALF_H
#define NB_BASE_HALF_H

#include "nabla/dtype.h"

#include <stdint.h>
#include <string.h>

static inline bool nb_dtype_is_half(nb_dtype d)
{
    return d == NB_F16 || d == NB_BF16;
}

static inline uint32_t nb_f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float nb_f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t nb_f64_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double nb_f64_from_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* All ones if a < b, else zero; both below the sign bit.  Written as
 * arithmetic, since compilers make branches of a comparison used twice. */
static inline uint32_t nb_below(uint32_t a, uint32_t b)
{
    return (uint32_t)((int32_t)(a - b) >> 31);
}

static inline float nb_f16_to_f32(uint16_t h)
{
    const uint32_t bias = (127 - 15) << 23, one = 1 << 23, quiet = 1 << 22;
    uint32_t sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t a = (uint32_t)(h & 0x7fff) << 13;
    uint32_t tiny = nb_below(a, one), finite = nb_below(a, 0x0f800000);
    /* 2^-14 (1 + m) - 2^-14 is the subnormal 2^-14 m. */
    uint32_t r = a + bias + (tiny & one) + (~finite & bias);
    float x = nb_f32_from_bits(r | (nb_below(0x7f800000, r) & quiet)) -
              nb_f32_from_bits(tiny & (bias + one));
    return nb_f32_from_bits(sign | nb_f32_bits(x));
}

static inline uint16_t nb_f32_to_f16(float x)
{
    const uint32_t bias = (127 - 15) << 23, one = 1 << 23;
    uint32_t bits = nb_f32_bits(x), a = bits & 0x7fffffff;
    uint32_t tiny = nb_below(a, bias + one), large = ~nb_below(a, 143 << 23);
    /* Beside 0.5 the last bit weighs 2^-24. */
    float sum = nb_f32_from_bits(a & tiny) + 0.5f;
    uint32_t low = nb_f32_bits(sum) - nb_f32_bits(0.5f);
    uint32_t r = (a - bias + 0xfff + (a >> 13 & 1)) >> 13;
    uint32_t nan = nb_below(0x7f800000, a) & (0x200 | (a >> 13 & 0x3ff));
    r = (r & ~tiny & ~large) | low | (large & 0x7c00) | nan;
    return (uint16_t)(bits >> 16 & 0x8000) | (uint16_t)r;
}

static inline uint16_t nb_f64_to_f16(double x)
{
    const uint64_t bias = (uint64_t)(1023 - 15) << 52, one = 1ull << 52;
    const uint64_t half = (1ull << 41) - 1;
    uint64_t bits = nb_f64_bits(x), a = bits & (UINT64_MAX >> 1);
    /* Beside 2^28 the last bit weighs 2^-24. */
    double small = nb_f64_from_bits(a < bias + one ? a : 0);
    uint64_t tiny = nb_f64_bits(small + 0x1p28) - nb_f64_bits(0x1p28);
    uint64_t r = (a - bias + half + (a >> 42 & 1)) >> 42;
    r = a < bias + one ? 0 : r;
    r = a >= 0x40f0000000000000 ? 0x7c00 : r;
    r = a > 0x7ff0000000000000 ? 0x7e00 | (a >> 42 & 0x3ff) : r;
    return (uint16_t)((bits >> 48 & 0x8000) | r | tiny);
}

static inline float nb_bf16_to_f32(uint16_t h)
{
    uint32_t quiet = (h & 0x7fff) > 0x7f80 ? 1 << 22 : 0;
    return nb_f32_from_bits((uint32_t)h << 16 | quiet);
}

static inline uint16_t nb_f32_to_bf16(float x)
{
    uint32_t bits = nb_f32_bits(x), a = bits & 0x7fffffff;
    uint32_t r = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)(a > 0x7f800000 ? bits >> 16 | 0x40 : r);
}

static inline uint16_t nb_f64_to_bf16(double x)
{
    const uint64_t bias = (uint64_t)(1023 - 127) << 52, one = 1ull << 52;
    const uint64_t half = (1ull << 44) - 1;
    uint64_t bits = nb_f64_bits(x), a = bits & (UINT64_MAX >> 1);
    /* Beside 2^-81 the last bit weighs 2^-133. */
    double small = nb_f64_from_bits(a < bias + one ? a : 0);
    uint64_t tiny = nb_f64_bits(small + 0x1p-81) - nb_f64_bits(0x1p-81);
    uint64_t r = (a - bias + half + (a >> 45 & 1)) >> 45;
    r = a < bias + one ? 0 : r;
    r = a >= 0x47f0000000000000 ? 0x7f80 : r;
    r = a > 0x7ff0000000000000 ? 0x7fc0 | (a >> 45 & 0x7f) : r;
    return (uint16_t)((bits >> 48 & 0x8000) | r | tiny);
}

#endif
