/* math_log.c - logarithms.
 *
 * x = 2^e (1 + f) with 1 + f between sqrt 1/2 and sqrt 2, so
 * log x = e log 2 + log(1 + f). */
#include "backend/cpu/math_parts.h"

#include <math.h>

/* (log(1 + f) - f) / f^2 on sqrt 1/2 - 1 to sqrt 2 - 1; relative to
 * log(1 + f) 2^-28. */
static const nb_poly log_f32[1] = {
    {9,
     {-0x1.fffff8p-2, 0x1.55555p-2, -0x1.000426p-2, 0x1.99a3f4p-3,
      -0x1.54276cp-3, 0x1.227192p-3, -0x1.0f3762p-3, 0x1.0848a4p-3,
      -0x1.3830c2p-4}},
};

/* With s = f / (2 + f), log(1 + f) = 2 atanh s = 2 s + s^3 R(s^2): R on the
 * same interval; relative to 2 s 2^-59. */
static const nb_poly log_f64[2] = {
    {0, {0}},
    {7,
     {0x1.5555555555593p-1, 0x1.999999997fb34p-2, 0x1.249249421787dp-2,
      0x1.c71c51e80442cp-3, 0x1.7466462b0f919p-3, 0x1.39a0f5130ff64p-3,
      0x1.2f0d8e947b4f2p-3}},
};

/* A positive number taken apart as above. */
typedef struct split {
    nb_v e, f; /* floats both */
} split;

/* e as an integer, from the bits of a normal x. */
static nb_v exponent(nb_ir *ir, nb_v x)
{
    int64_t middle = W(x) ? 0x3fe6a09e667f3bcd : 0x3f3504f3;
    nb_v i = iopk(ir, "sub", bits(ir, x), middle);
    return iopk(ir, "ashr", i, W(x) ? 52 : 23);
}

static nb_v without(nb_ir *ir, nb_v x, nb_v e)
{
    nb_v i = iopk(ir, "shl", e, W(x) ? 52 : 23);
    return unbits(ir, iop(ir, "sub", bits(ir, x), i));
}

static split take_apart(nb_ir *ir, nb_v x)
{
    double least = W(x) ? 0x1p-1022 : 0x1p-126;
    double up = W(x) ? 0x1p54 : 0x1p25;
    nb_v small = lt(ir, x, k(x, least)), zero = k(x, 0);
    x = pick(ir, small, mul(ir, x, k(x, up)), x);
    nb_v e = exponent(ir, x), m = without(ir, x, e);
    nb_v real = nb_ir_cast(ir, "sitofp", e, (nb_irt)x.type);
    nb_v less = pick(ir, small, k(x, W(x) ? -54 : -25), zero);
    return (split){add(ir, real, less), sub(ir, m, k(x, 1))};
}

/* log(1 + f) = f + the result. */
static nb_v log_rest(nb_ir *ir, nb_v f)
{
    if (!W(f)) return mul(ir, nb_math_poly(ir, log_f32, f), mul(ir, f, f));
    /* 2 s = f - s f, and s f = f^2/2 - s f^2/2. */
    nb_v s = quo(ir, f, add(ir, f, k(f, 2))), z = mul(ir, s, s);
    nb_v half = mul(ir, mul(ir, f, f), k(f, 0.5));
    nb_v r = mul(ir, z, nb_math_poly(ir, log_f64, z));
    return sub(ir, mul(ir, s, add(ir, half, r)), half);
}

/* log of 0 is -infinity, of less nothing, of infinity itself. */
static nb_v specials(nb_ir *ir, nb_v x, nb_v y)
{
    nb_v zero = k(x, 0), inf = k(x, INFINITY);
    nb_v low = pick(ir, eq(ir, x, zero), k(x, -INFINITY), k(x, NAN));
    y = pick(ir, gt(ir, x, zero), y, low);
    return pick(ir, eq(ir, x, inf), inf, y);
}

static const double ln2_high[2] = {0x1.62e4p-1, 0x1.62e42feep-1};
static const double ln2_low[2] = {0x1.7f7d1cp-20, 0x1.a39ef35793c76p-33};

/* e ln 2 + log(1 + f), small terms first. */
static nb_v natural(nb_ir *ir, nb_v e, nb_v f)
{
    nb_v y = mac(ir, e, k(f, ln2_low[W(f)]), log_rest(ir, f));
    return mac(ir, e, k(f, ln2_high[W(f)]), add(ir, y, f));
}

nb_v nb_math_log(nb_ir *ir, nb_v x)
{
    split s = take_apart(ir, x);
    return specials(ir, x, natural(ir, s.e, s.f));
}

/* To another base b: 1 / ln b and log_b 2, each as a short number, whose
 * product with a whole one is exact, and the rest. */
typedef struct base {
    double scale, scale_low, two, two_low;
} base;

static nb_v based(nb_ir *ir, nb_v x, const base *by_type)
{
    const base *b = &by_type[W(x)];
    split s = take_apart(ir, x);
    nb_v rest = log_rest(ir, s.f), l = add(ir, rest, s.f);
    /* What that sum lost. */
    rest = add(ir, sub(ir, s.f, l), rest);
    nb_v y = mac(ir, rest, k(x, b->scale), mul(ir, l, k(x, b->scale_low)));
    if (b->two_low) y = mac(ir, s.e, k(x, b->two_low), y);
    y = mac(ir, l, k(x, b->scale), y);
    return specials(ir, x, mac(ir, s.e, k(x, b->two), y));
}

nb_v nb_math_log2(nb_ir *ir, nb_v x)
{
    static const base by_type[2] = {
        {0x1.715476p0, 0x1.4ae0cp-26, 1, 0},
        {0x1.71547652b82fep0, 0x1.777d0ffda0d24p-56, 1, 0},
    };
    return based(ir, x, by_type);
}

nb_v nb_math_log10(nb_ir *ir, nb_v x)
{
    static const base by_type[2] = {
        {0x1.bcb7b2p-2, -0x1.5b235ep-27, 0x1.344p-2, 0x1.3509f8p-18},
        {0x1.bcb7b1526e50ep-2, 0x1.95355baaafad3p-57, 0x1.34413509f8p-2,
         -0x1.80433b83b532ap-44},
    };
    return based(ir, x, by_type);
}

/* 1 + x = 2^e (1 + f): with e taken from the rounded sum, f = x s + (s - 1),
 * s = 2^-e, loses nothing that counts; near 0 it is x itself.  The least s is
 * not normal, 4 s is. */
nb_v nb_math_log1p(nb_ir *ir, nb_v x)
{
    nb_v one = k(x, 1), quarter = k(x, 0.25);
    nb_v u = add(ir, x, one), e = exponent(ir, u);
    nb_v n = iop(ir, "sub", nb_ir_int((nb_irt)e.type, 2), e);
    nb_v s = nb_math_two(ir, n), less = mac(ir, s, quarter, k(x, -1));
    nb_v f = mac(ir, mul(ir, x, s), quarter, less);
    nb_v real = nb_ir_cast(ir, "sitofp", e, (nb_irt)x.type);
    nb_v y = specials(ir, u, natural(ir, real, f));
    return pick(ir, eq(ir, x, k(x, 0)), x, y);
}
