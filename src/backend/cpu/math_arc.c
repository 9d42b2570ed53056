/* math_arc.c - inverse sines and tangents. */
#include "backend/cpu/math_parts.h"

#include <math.h>

/* pi / 2 as a sum. */
static const double high[2] = {0x1.921fb6p0, 0x1.921fb54442d18p0};
static const double low[2] = {-0x1.777a5cp-25, 0x1.1a62633145c07p-54};

/* (asin s / s - 1) / s^2, of s^2, to 1/2; relative to asin s 2^-28, 2^-60. */
static const nb_poly asin_poly[2] = {
    {5,
     {0x1.5555c8p-3, 0x1.3301ccp-4, 0x1.7480dcp-5, 0x1.8c0cc6p-6,
      0x1.59861ep-5}},
    {13,
     {0x1.5555555555577p-3, 0x1.333333332e089p-4, 0x1.6db6db721a113p-5,
      0x1.f1c71a9213e5p-6, 0x1.6e8bdf31ec1e1p-6, 0x1.1c49ea8c924dcp-6,
      0x1.ca201b2f05ff1p-7, 0x1.7580ecd32a488p-7, 0x1.6156e2ffb0549p-7,
      0x1.e4600ba60a6f5p-9, 0x1.641a1babf578ep-6, -0x1.58b2aa91e0936p-6,
      0x1.0b8072c5ce5d6p-5}},
};

/* (atan t / t - 1) / t^2, of t^2, to 1; relative to atan t 2^-28, 2^-60. */
static const nb_poly atan_poly[2] = {
    {9,
     {-0x1.55553ep-2, 0x1.9991e8p-3, -0x1.2420bcp-3, 0x1.c08e9ep-4,
      -0x1.581022p-4, 0x1.da42b6p-5, -0x1.fdafeap-6, 0x1.645a9p-7,
      -0x1.d3b9c6p-10}},
    {21,
     {-0x1.555555555554cp-2,  0x1.9999999998bc8p-3,  -0x1.2492492455233p-3,
      0x1.c71c71b5c230cp-4,   -0x1.745d15c812165p-4, 0x1.3b139b621bbadp-4,
      -0x1.11102e6fb2362p-4,  0x1.e1d450b1d7dbcp-5,  -0x1.aed93a01bea98p-5,
      0x1.84afff2339ef5p-5,   -0x1.5f16e6112fd0bp-5, 0x1.38e480f86b568p-5,
      -0x1.0c57ded9b7d63p-5,  0x1.abc523695c051p-6,  -0x1.3029ac291db82p-6,
      0x1.71660ad40fa85p-7,   -0x1.6dd55370667c6p-8, 0x1.180c306fc71e5p-9,
      -0x1.34287957e3d82p-11, 0x1.af23f6855a1d1p-14, -0x1.1ed8b368697a4p-17}},
};

/* times pi/2 - x */
static nb_v from_half_pi(nb_ir *ir, double times, nb_v x)
{
    nb_v rest = sub(ir, x, k(x, times * low[W(x)]));
    return sub(ir, k(x, times * high[W(x)]), rest);
}

/* Above 1/2, asin a = pi/2 - 2 asin s and acos a = 2 asin s with
 * s = sqrt((1 - a) / 2). */
typedef struct arc {
    nb_v above, s, rest; /* the sum is asin of s, which is a below 1/2 */
} arc;

static arc arc_sine(nb_ir *ir, nb_v a)
{
    nb_v half = k(a, 0.5), above = gt(ir, a, half);
    nb_v rest = mac(ir, a, k(a, -0.5), half);
    nb_v z = pick(ir, above, rest, mul(ir, a, a));
    nb_v s = pick(ir, above, root(ir, rest), a);
    nb_v p = mul(ir, nb_math_poly(ir, asin_poly, z), z);
    return (arc){above, s, mul(ir, p, s)};
}

/* What high - 2 s loses goes with the small terms. */
nb_v nb_math_asin(nb_ir *ir, nb_v x)
{
    arc v = arc_sine(ir, size(ir, x));
    nb_v all = k(x, high[W(x)]), twice = add(ir, v.s, v.s);
    nb_v up = sub(ir, all, twice), lost = sub(ir, sub(ir, all, up), twice);
    nb_v rest = mac(ir, v.rest, k(x, 2), k(x, -low[W(x)]));
    up = sub(ir, up, sub(ir, rest, lost));
    nb_v y = add(ir, v.s, v.rest);
    return sign_of(ir, pick(ir, v.above, up, y), x);
}

/* Of -a, pi less. */
nb_v nb_math_acos(nb_ir *ir, nb_v x)
{
    arc v = arc_sine(ir, size(ir, x));
    nb_v p = add(ir, v.s, v.rest), twice = add(ir, p, p);
    nb_v minus = lt(ir, x, k(x, 0));
    nb_v up = pick(ir, minus, from_half_pi(ir, 2, twice), twice);
    nb_v middle = from_half_pi(ir, 1, sign_of(ir, p, x));
    return pick(ir, v.above, up, middle);
}

/* atan(least / most) of numbers that are not negative, 0 of two zeros. */
static nb_v arc_ratio(nb_ir *ir, nb_v least, nb_v most)
{
    nb_v same = eq(ir, least, most), zero = k(least, 0);
    nb_v t = pick(ir, same, k(least, 1), quo(ir, least, most));
    t = pick(ir, eq(ir, most, zero), zero, t);
    nb_v z = mul(ir, t, t);
    return mac(ir, mul(ir, nb_math_poly(ir, atan_poly, z), z), t, t);
}

nb_v nb_math_atan(nb_ir *ir, nb_v x)
{
    nb_v a = size(ir, x), one = k(x, 1), above = gt(ir, a, one);
    nb_v t = quo(ir, pick(ir, above, one, a), pick(ir, above, a, one));
    nb_v z = mul(ir, t, t);
    nb_v p = mac(ir, mul(ir, nb_math_poly(ir, atan_poly, z), z), t, t);
    return sign_of(ir, pick(ir, above, from_half_pi(ir, 1, p), p), x);
}

/* The angle within an eighth of a turn, then a quarter, a half, all. */
nb_v nb_math_atan2(nb_ir *ir, nb_v y, nb_v x)
{
    nb_v a = size(ir, y), b = size(ir, x), steep = gt(ir, a, b);
    nb_v nan = nb_ir_compare(ir, "fcmp uno", x, y);
    nb_v p = arc_ratio(ir, pick(ir, steep, b, a), pick(ir, steep, a, b));
    nb_v minus =
        nb_ir_compare(ir, "icmp slt", bits(ir, x), nb_ir_int(int_of(x), 0));
    nb_v quarter = from_half_pi(ir, 1, pick(ir, minus, neg(ir, p), p));
    nb_v half = pick(ir, minus, from_half_pi(ir, 2, p), p);
    p = pick(ir, steep, quarter, half);
    return pick(ir, nan, k(x, NAN), sign_of(ir, p, y));
}
