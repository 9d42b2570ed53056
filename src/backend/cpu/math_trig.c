/* math_trig.c - sines, cosines and tangents.
 *
 * x = n pi/2 + r with |r| <= pi/4, so sin x is one of +-sin r and +-cos r.
 * Arguments too large for that are left to the C library. */
#include "backend/cpu/math_parts.h"

/* pi / 2 in parts whose products with n are exact, but for the last. */
enum { PARTS = 4 };
static const double half_pi[2][PARTS] = {
    {0x1.92p0, 0x1.fb4p-12, 0x1.444p-24, 0x1.68c234p-39},
    {0x1.921fb544p0, 0x1.0b4611a6p-34, 0x1.3198a2ep-69, 0x1.b839a252049c1p-104},
};
/* Up to here r is right however small it is. */
static const double largest[2] = {8192, 32768};

/* (sin r / r - 1) / r^2, of r^2, on +-pi/4; relative to sin r 2^-28, 2^-58. */
static const nb_poly sin_poly[2] = {
    {3, {-0x1.555546p-3, 0x1.11072ep-7, -0x1.993d72p-13}},
    {6,
     {-0x1.5555555555548p-3, 0x1.111111110f74p-7, -0x1.a01a019be89d3p-13,
      0x1.71de3552d3198p-19, -0x1.ae5e48632b1d6p-26, 0x1.5d8a1900fbef8p-33}},
};

/* (cos r - 1 + r^2/2) / r^4, of r^2, on +-pi/4; relative to cos r 2^-33,
 * 2^-64. */
static const nb_poly cos_poly[2] = {
    {3, {0x1.55554ap-5, -0x1.6c0bfcp-10, 0x1.99dba2p-16}},
    {6,
     {0x1.555555555554ap-5, -0x1.6c16c16c14e17p-10, 0x1.a01a019c5e911p-16,
      -0x1.27e4f7ceec7f9p-22, 0x1.1ee9c46837d3p-29, -0x1.8f9a6ced03b36p-37}},
};

/* (tan r / r - 1) / r^2, of r^2, on +-pi/4; relative to tan r 2^-30, 2^-60. */
static const nb_poly tan_poly[2] = {
    {7,
     {0x1.55556p-2, 0x1.110d8p-3, 0x1.bade46p-5, 0x1.5c9642p-6, 0x1.639aacp-7,
      0x1.1e10c2p-14, 0x1.1f82f2p-8}},
    {15,
     {0x1.555555555555ep-2, 0x1.1111111110622p-3, 0x1.ba1ba1babaec2p-5,
      0x1.664f485e10e5p-6, 0x1.226e3a6374cdcp-7, 0x1.d6d2ec99801fdp-9,
      0x1.7db148a058783p-10, 0x1.34bedd3fa292bp-11, 0x1.ff06ec8d9df95p-13,
      0x1.5f44dfedfa7eep-14, 0x1.187fb5a4aa258p-14, -0x1.a6bceb98f709dp-16,
      0x1.94ef69d92e309p-15, -0x1.943af87a9cd86p-16, 0x1.4775ddeb8ff92p-17}},
};

/* r = y + low: the first steps are exact; what the next loses is kept with the
 * rest. */
static nb_v less_half_pis(nb_ir *ir, nb_v x, nb_v h, nb_v *low)
{
    const double *part = half_pi[W(x)];
    int i = 0, exact = W(x) ? 1 : 2;
    nb_v r = x;
    for (; i < exact; i++)
        r = mac(ir, h, k(x, -part[i]), r);
    nb_v t = mul(ir, h, k(x, part[i])), y = sub(ir, r, t);
    nb_v lost = sub(ir, sub(ir, r, y), t);
    while (++i < PARTS)
        lost = mac(ir, h, k(x, -part[i]), lost);
    *low = lost;
    return y;
}

static nb_v sin_near_0(nb_ir *ir, nb_v r, nb_v z)
{
    return mac(ir, mul(ir, nb_math_poly(ir, sin_poly, z), z), r, r);
}

static nb_v cos_near_0(nb_ir *ir, nb_v z)
{
    nb_v y = mac(ir, nb_math_poly(ir, cos_poly, z), z, k(z, -0.5));
    return mac(ir, y, z, k(z, 1));
}

static nb_v far(nb_ir *ir, nb_v x)
{
    return gt(ir, size(ir, x), k(x, largest[W(x)]));
}

static nb_v is_odd(nb_ir *ir, nb_v n)
{
    return nb_ir_compare(ir, "icmp ne", iopk(ir, "and", n, 1),
                         nb_ir_int((nb_irt)n.type, 0));
}

/* sin(x + more pi/2) */
static nb_v sine(nb_ir *ir, nb_v x, int more)
{
    nb_whole w = nb_math_whole(ir, x, 0x1.45f306dc9c883p-1);
    nb_v n = more ? iopk(ir, "add", w.integer, more) : w.integer;
    nb_v low, r = less_half_pis(ir, x, w.real, &low);
    r = add(ir, r, low);
    nb_v z = mul(ir, r, r);
    nb_v y = pick(ir, is_odd(ir, n), cos_near_0(ir, z), sin_near_0(ir, r, z));
    nb_v sign = iopk(ir, "shl", iopk(ir, "lshr", n, 1), W(x) ? 63 : 31);
    return unbits(ir, iop(ir, "xor", bits(ir, y), sign));
}

nb_v nb_math_sin(nb_ir *ir, nb_v x)
{
    nb_v y = pick(ir, eq(ir, x, k(x, 0)), x, sine(ir, x, 0));
    return nb_math_rare(ir, far(ir, x), y, "sin", 1, &x);
}

nb_v nb_math_cos(nb_ir *ir, nb_v x)
{
    return nb_math_rare(ir, far(ir, x), sine(ir, x, 1), "cos", 1, &x);
}

/* tan of the same r, of which nothing may be lost; -1 / tan r where n is odd. */
nb_v nb_math_tan(nb_ir *ir, nb_v x)
{
    nb_whole w = nb_math_whole(ir, x, 0x1.45f306dc9c883p-1);
    nb_v low, y = less_half_pis(ir, x, w.real, &low), r = add(ir, y, low);
    nb_v z = mul(ir, r, r), lost = add(ir, sub(ir, y, r), low);
    nb_v t = mul(ir, nb_math_poly(ir, tan_poly, z), z);
    t = add(ir, mac(ir, t, r, lost), r);
    nb_v odd = is_odd(ir, w.integer);
    y = quo(ir, pick(ir, odd, k(x, -1), t), pick(ir, odd, t, k(x, 1)));
    y = pick(ir, eq(ir, x, k(x, 0)), x, y);
    return nb_math_rare(ir, far(ir, x), y, "tan", 1, &x);
}
