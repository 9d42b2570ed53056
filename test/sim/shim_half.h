/* shim_half.h - half and bfloat16 by their bits, rounded to nearest even. */
#ifndef SIM_SHIM_HALF_H
#define SIM_SHIM_HALF_H

static inline float sim_half_to_float(unsigned short h)
{
    unsigned sign = (unsigned)(h & 0x8000) << 16, exponent = h >> 10 & 31;
    unsigned fraction = h & 1023;
    if (exponent == 31)
        return __uint_as_float(sign | 0x7f800000 | fraction << 13);
    if (exponent)
        return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
    float small = (float)fraction * 0x1p-24f;
    return sign ? -small : small;
}

/* The shifted-out part decides, its last kept bit on a tie. */
static inline unsigned sim_round_shift(unsigned long long x, int n)
{
    unsigned long long half = 1ull << (n - 1), rest = x & (2 * half - 1);
    unsigned long long y = x >> n;
    return (unsigned)(y + (rest > half || (rest == half && (y & 1))));
}

static inline unsigned short sim_float_to_half(float x)
{
    unsigned bits = __float_as_uint(x), sign = bits >> 16 & 0x8000;
    int exponent = (int)(bits >> 23 & 255) - 112;
    unsigned fraction = bits & 0x7fffff;
    if (exponent == 143)
        return (unsigned short)(fraction ? 0x7fff : sign | 0x7c00);
    if (exponent >= 31) return (unsigned short)(sign | 0x7c00);
    if (exponent < -10) return (unsigned short)sign;
    if (exponent <= 0)
        return (unsigned short)(sign | sim_round_shift(fraction | 0x800000,
                                                       14 - exponent));
    unsigned whole = (unsigned)exponent << 23 | fraction;
    return (unsigned short)(sign | sim_round_shift(whole, 13));
}

static inline float sim_bfloat_to_float(unsigned short h)
{
    return __uint_as_float((unsigned)h << 16);
}

static inline unsigned short sim_float_to_bfloat(float x)
{
    unsigned bits = __float_as_uint(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (unsigned short)sim_round_shift(bits, 16);
}

#endif
