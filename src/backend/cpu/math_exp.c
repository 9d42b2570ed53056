/* math_exp.c - exponentials.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2, so exp x = 2^n exp r. */
#include "backend/cpu/math_parts.h"

/* ln 2 = high + low; a product of `high` with a whole n is exact. */
static const double log2e[2] = {0x1.715476p0, 0x1.71547652b82fep0};
static const double ln2_high[2] = {0x1.62e4p-1, 0x1.62e42feep-1};
static const double ln2_low[2] = {0x1.7f7d1cp-20, 0x1.a39ef35793c76p-33};

/* (exp r - 1 - r) / r^2 on +-ln 2 / 2; relative to exp r 2^-28, 2^-64. */
static const nb_poly exp_poly[2] = {
    {5,
     {0x1.fffffcp-2, 0x1.55549p-3, 0x1.5558f4p-5, 0x1.123a6cp-7,
      0x1.6a2358p-10}},
    {11,
     {0x1.0p-1, 0x1.555555555555bp-3, 0x1.5555555555502p-5,
      0x1.111111110ec19p-7, 0x1.6c16c16c3079p-10, 0x1.a01a01b399244p-13,
      0x1.a01a0135f8a4p-16, 0x1.71ddefdc2f94cp-19, 0x1.27e5b4fa0205fp-22,
      0x1.af6c61ab5631p-26, 0x1.1e3cce8326beep-29}},
};

/* (2^r - 1) / r on +-1/2; relative to 2^r 2^-29, 2^-64. */
static const nb_poly exp2_poly[2] = {
    {6,
     {0x1.62e43p-1, 0x1.ebfbdcp-3, 0x1.c6aee6p-5, 0x1.3b2d52p-7, 0x1.5f400ep-10,
      0x1.41fa8cp-13}},
    {12,
     {0x1.62e42fefa39efp-1, 0x1.ebfbdff82c58fp-3, 0x1.c6b08d704a0cfp-5,
      0x1.3b2ab6fba4e2p-7, 0x1.5d87fe78a25c1p-10, 0x1.430912f8842fdp-13,
      0x1.ffcbfc752ce64p-17, 0x1.62c021e15e56ap-20, 0x1.b524dc9140392p-24,
      0x1.e4d06ebc2b718p-28, 0x1.ea028c021db8dp-32, 0x1.c2cda195eb26cp-36}},
};

/* (exp r - 1 - r) / r^2 on +-ln 2 / 2; relative to exp r - 1 2^-32, 2^-68. */
static const nb_poly expm1_poly[2] = {
    {6,
     {0x1.0p-1, 0x1.555554p-3, 0x1.5554bp-5, 0x1.11118ap-7, 0x1.6d7298p-10,
      0x1.a032eap-13}},
    {12,
     {0x1.0p-1, 0x1.5555555555555p-3, 0x1.5555555555559p-5,
      0x1.1111111111105p-7, 0x1.6c16c16c14e04p-10, 0x1.a01a01a020a04p-13,
      0x1.a01a01ada0beap-16, 0x1.71de3a3d51e47p-19, 0x1.27e4cc51a006ap-22,
      0x1.ae649997a17d4p-26, 0x1.1f8afce533fbep-29, 0x1.612826a39476cp-33}},
};

/* x = n ln 2 + r */
static nb_v reduce(nb_ir *ir, nb_v x, nb_whole *n)
{
    *n = nb_math_whole(ir, x, log2e[W(x)]);
    nb_v r = mac(ir, n->real, k(x, -ln2_high[W(x)]), x);
    return mac(ir, n->real, k(x, -ln2_low[W(x)]), r);
}

static nb_v exp_near_0(nb_ir *ir, nb_v r)
{
    nb_v p = mac(ir, nb_math_poly(ir, exp_poly, r), mul(ir, r, r), r);
    return add(ir, p, k(r, 1));
}

nb_v nb_math_exp_fast(nb_ir *ir, nb_v x)
{
    nb_whole n;
    nb_v y = exp_near_0(ir, reduce(ir, x, &n));
    return mul(ir, y, nb_math_two(ir, n.integer));
}

nb_v nb_math_exp_half(nb_ir *ir, nb_v x)
{
    nb_whole n;
    nb_v y = exp_near_0(ir, reduce(ir, x, &n));
    return nb_math_scale(ir, mul(ir, y, k(x, 0.5)), n);
}

/* Beyond the bounds the result is infinite or rounds to 0. */
nb_v nb_math_exp(nb_ir *ir, nb_v x)
{
    nb_whole n;
    x = at_least(ir, at_most(ir, x, W(x) ? 710 : 89), W(x) ? -746 : -105);
    nb_v y = exp_near_0(ir, reduce(ir, x, &n));
    return nb_math_scale(ir, y, n);
}

nb_v nb_math_exp2(nb_ir *ir, nb_v x)
{
    x = at_least(ir, at_most(ir, x, W(x) ? 1025 : 129), W(x) ? -1076 : -151);
    nb_whole w = nb_math_whole(ir, x, 1);
    nb_v r = sub(ir, x, w.real);
    nb_v y = mac(ir, nb_math_poly(ir, exp2_poly, r), r, k(x, 1));
    return nb_math_scale(ir, y, w);
}

/* exp x - 1 = 2 (s (exp r - 1) + s - 1/2), s = 2^(n-1), which does not
 * overflow before the result does; the product is exact. */
nb_v nb_math_expm1(nb_ir *ir, nb_v x)
{
    nb_whole n;
    nb_v held = at_least(ir, at_most(ir, x, W(x) ? 710 : 89), W(x) ? -60 : -40);
    nb_v r = reduce(ir, held, &n);
    nb_v p = mac(ir, nb_math_poly(ir, expm1_poly, r), mul(ir, r, r), r);
    nb_v s = nb_math_two(ir, iopk(ir, "sub", n.integer, 1));
    nb_v y = mac(ir, s, p, sub(ir, s, k(x, 0.5)));
    y = add(ir, y, y);
    /* Near 0 halves could be subnormal, and signs of zeros count. */
    nb_v tiny = lt(ir, size(ir, x), k(x, W(x) ? 0x1p-54 : 0x1p-25));
    return pick(ir, tiny, x, y);
}
