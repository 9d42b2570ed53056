/* math_hyper.c - hyperbolic functions and their inverses. */
#include "backend/cpu/math_parts.h"

#include <math.h>

/* (tanh x / x - 1) / x^2, of x^2, to 0.625; relative to tanh x 2^-28, 2^-66. */
static const nb_poly tanh_poly[2] = {
    {5,
     {-0x1.555532p-2, 0x1.110726p-3, -0x1.b83c5ap-5, 0x1.522698p-6,
      -0x1.75e1c2p-8}},
    {13,
     {-0x1.5555555555555p-2, 0x1.11111111110d1p-3, -0x1.ba1ba1ba1735bp-5,
      0x1.664f488183d1p-6, -0x1.226e3529dea3fp-7, 0x1.d6d3c5a982551p-9,
      -0x1.7da29488a8963p-10, 0x1.354da50f78526p-11, -0x1.f4bd1c68cec5p-13,
      0x1.919bef90ab7b9p-14, -0x1.333caf79f7c8ep-15, 0x1.8bc28d57b273ap-17,
      -0x1.30e907f02ce2bp-19}},
};

/* (sinh x / x - 1) / x^2, of x^2, to 1; relative to sinh x 2^-34, 2^-63. */
static const nb_poly sinh_poly[2] = {
    {4, {0x1.555556p-3, 0x1.111136p-7, 0x1.9ffe76p-13, 0x1.7a19ecp-19}},
    {7,
     {0x1.5555555555556p-3, 0x1.11111111110a5p-7, 0x1.a01a01a028bf4p-13,
      0x1.71de3a463c342p-19, 0x1.ae646734a830dp-26, 0x1.611a4bce68816p-33,
      0x1.b4ca954ff9fbp-41}},
};

/* Away from 0, 1 - 2 / (exp 2|x| + 1). */
nb_v nb_math_tanh(nb_ir *ir, nb_v x)
{
    nb_v a = size(ir, x), z = mul(ir, x, x), one = k(x, 1), two = k(x, 2);
    nb_v near = mul(ir, nb_math_poly(ir, tanh_poly, z), z);
    near = mac(ir, near, a, a);
    nb_v twice = at_most(ir, add(ir, a, a), W(x) ? 44 : 20);
    nb_v e = nb_math_exp_fast(ir, twice);
    nb_v y = sub(ir, one, quo(ir, two, add(ir, e, one)));
    y = pick(ir, lt(ir, a, k(x, 0.625)), near, y);
    return sign_of(ir, y, x);
}

/* exp(a) / 2, which overflows only where sinh and cosh do. */
static nb_v half_exp(nb_ir *ir, nb_v a)
{
    return nb_math_exp_half(ir, at_most(ir, a, W(a) ? 711 : 90));
}

nb_v nb_math_sinh(nb_ir *ir, nb_v x)
{
    nb_v a = size(ir, x), z = mul(ir, x, x), e = half_exp(ir, a);
    nb_v near = mul(ir, nb_math_poly(ir, sinh_poly, z), z);
    near = mac(ir, near, a, a);
    nb_v y = sub(ir, e, quo(ir, k(x, 0.25), e));
    return sign_of(ir, pick(ir, lt(ir, a, k(x, 1)), near, y), x);
}

nb_v nb_math_cosh(nb_ir *ir, nb_v x)
{
    nb_v e = half_exp(ir, size(ir, x));
    return add(ir, e, quo(ir, k(x, 0.25), e));
}

/* Inverses: of f32 in double, where a few ulps are nothing, of f64 by the C
 * library. */

static nb_v narrow(nb_ir *ir, nb_v x)
{
    return nb_ir_cast(ir, "fptrunc", x, NB_IR_F32);
}

/* log(a + sqrt(a^2 + 1)) = log1p(a + a^2 / (1 + sqrt(a^2 + 1))) */
nb_v nb_math_asinh(nb_ir *ir, nb_v x)
{
    if (W(x)) return nb_math_libm(ir, "asinh", 1, &x);
    nb_v a = nb_ir_cast(ir, "fpext", size(ir, x), NB_IR_F64);
    nb_v z = mul(ir, a, a), one = k(a, 1);
    nb_v r = add(ir, root(ir, add(ir, z, one)), one);
    nb_v y = nb_math_log1p(ir, add(ir, a, quo(ir, z, r)));
    y = pick(ir, eq(ir, a, k(a, INFINITY)), a, y);
    return sign_of(ir, narrow(ir, y), x);
}

/* With t = x - 1, log1p(t + sqrt(t^2 + 2 t)). */
nb_v nb_math_acosh(nb_ir *ir, nb_v x)
{
    if (W(x)) return nb_math_libm(ir, "acosh", 1, &x);
    nb_v a = nb_ir_cast(ir, "fpext", x, NB_IR_F64), one = k(a, 1);
    nb_v t = sub(ir, a, one), z = mul(ir, t, add(ir, t, k(a, 2)));
    nb_v y = nb_math_log1p(ir, add(ir, t, root(ir, z)));
    return narrow(ir, pick(ir, lt(ir, a, one), k(a, NAN), y));
}

/* log((1 + a) / (1 - a)) / 2 = log1p(2 a / (1 - a)) / 2 */
nb_v nb_math_atanh(nb_ir *ir, nb_v x)
{
    if (W(x)) return nb_math_libm(ir, "atanh", 1, &x);
    nb_v a = nb_ir_cast(ir, "fpext", size(ir, x), NB_IR_F64);
    nb_v t = quo(ir, add(ir, a, a), sub(ir, k(a, 1), a));
    nb_v y = mul(ir, nb_math_log1p(ir, t), k(a, 0.5));
    return sign_of(ir, narrow(ir, y), x);
}
