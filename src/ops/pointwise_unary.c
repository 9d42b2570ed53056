/* pointwise_unary.c - the elementary functions.
 *
 * One entry a function, its derivative above it in mathematics and inside it in
 * ops; y is the result.  Integers become the default float.  Outside the domain
 * a function gives NaN or an infinity, and so does its derivative. */
#include "ops/pointwise.h"

/* y = e^x, y' = y. */
SMOOTH(exp, c->out, "Exponential function e^x.",
       "exp([0.0, 1.0]) = [1.0, 2.718281828459045]", .scalar = NB_S_exp,
       .rises = 1)

/* y = 2^x, y' = y log 2. */
SMOOTH(exp2, nb_mul(c->out, nb_num(M_LN2)), "Two to the power x.",
       "exp2([0.0, 3.0]) = [1.0, 8.0]", .scalar = NB_S_exp2, .rises = 1)

/* y = e^x - 1, y' = e^x; y + 1 would cancel on the left. */
SMOOTH(expm1, nb_exp(X), "exp(x) - 1, accurate near 0.",
       "expm1([0.0, 1e-9]) = [0.0, 1.0000000005e-09]", .scalar = NB_S_expm1,
       .rises = 1)

/* y = log x, y' = 1 / x. */
SMOOTH(log, nb_reciprocal(X), "Natural logarithm.",
       "log([1.0, 2.0]) = [0.0, 0.6931471805599453]", .scalar = NB_S_log,
       .domain = {0.5, 3})

/* y = log x / log 2, y' = 1 / (x log 2). */
SMOOTH(log2, nb_div(nb_num(M_LOG2E), X), "Logarithm to base 2.",
       "log2([1.0, 8.0]) = [0.0, 3.0]", .scalar = NB_S_log2, .domain = {0.5, 3})

/* y = log x / log 10, y' = 1 / (x log 10). */
SMOOTH(log10, nb_div(nb_num(M_LOG10E), X), "Logarithm to base 10.",
       "log10([1.0, 1000.0]) = [0.0, 3.0]", .scalar = NB_S_log10,
       .domain = {0.5, 3})

/* y = log (1 + x), y' = 1 / (1 + x). */
SMOOTH(log1p, nb_reciprocal(nb_add(X, nb_num(1))),
       "log(1 + x), accurate near 0.",
       "log1p([0.0, 1e-9]) = [0.0, 9.999999995e-10]", .scalar = NB_S_log1p,
       .domain = {-0.5, 2})

/* y^2 = x, y' = 1 / (2 y). */
SMOOTH(sqrt, nb_div(nb_num(0.5), c->out), "Square root.",
       "sqrt([4.0, 9.0]) = [2.0, 3.0]", .scalar = NB_S_sqrt, .domain = {0.5, 3})

/* y = x^(-1/2), y' = -y^3 / 2. */
BODY(rsqrt, nb_s_recip(g, nb_s_sqrt(g, x[0])))
SMOOTH(rsqrt, nb_mul(nb_num(-0.5), nb_mul(c->out, nb_mul(c->out, c->out))),
       "One over the square root.", "rsqrt([4.0, 16.0]) = [0.5, 0.25]",
       .body = rsqrt_body, .domain = {0.5, 3})

/* y = 1 / x, y' = -y^2. */
SMOOTH(reciprocal, nb_neg(nb_mul(c->out, c->out)),
       "One over x; of integers, in the default float.",
       "reciprocal([2.0, -4.0]) = [0.5, -0.25]", .scalar = NB_S_recip,
       .domain = {0.5, 3})

SMOOTH(sin, nb_cos(X), "Sine of x in radians.",
       "sin([0.0, 1.0]) = [0.0, 0.8414709848078965]", .scalar = NB_S_sin)

SMOOTH(cos, nb_neg(nb_sin(X)), "Cosine of x in radians.",
       "cos([0.0, 1.0]) = [1.0, 0.5403023058681398]", .scalar = NB_S_cos)

/* y = sin x / cos x, y' = 1 + y^2. */
SMOOTH(tan, nb_add(nb_mul(c->out, c->out), nb_num(1)),
       "Tangent of x in radians.",
       "tan([0.0, 1.0]) = [0.0, 1.5574077246549023]", .scalar = NB_S_tan,
       .domain = {-1, 1})

/* (1 - x) (1 + x) keeps the digits that 1 - x^2 loses near 1. */
static nb_tensor *one_minus_square(nb_tensor *x)
{
    return nb_mul(nb_sub(nb_num(1), x), nb_add(nb_num(1), x));
}

/* sin y = x, y' = 1 / cos y = (1 - x^2)^(-1/2). */
SMOOTH(asin, nb_rsqrt(one_minus_square(X)),
       "Inverse sine, in [-pi/2, pi/2]; NaN outside [-1, 1].",
       "asin([0.0, 0.5]) = [0.0, 0.5235987755982989]", .scalar = NB_S_asin,
       .domain = {-0.7, 0.7})

/* cos y = x, y' = -(1 - x^2)^(-1/2). */
SMOOTH(acos, nb_neg(nb_rsqrt(one_minus_square(X))),
       "Inverse cosine, in [0, pi]; NaN outside [-1, 1].",
       "acos([1.0, 0.5]) = [0.0, 1.0471975511965979]", .scalar = NB_S_acos,
       .domain = {-0.7, 0.7})

/* tan y = x, y' = 1 / (1 + x^2). */
SMOOTH(atan, nb_reciprocal(nb_add(nb_mul(X, X), nb_num(1))),
       "Inverse tangent, in [-pi/2, pi/2].",
       "atan([0.0, 1.0]) = [0.0, 0.7853981633974483]", .scalar = NB_S_atan,
       .rises = 1)

SMOOTH(sinh, nb_cosh(X), "Hyperbolic sine.",
       "sinh([0.0, 1.0]) = [0.0, 1.1752011936438014]", .scalar = NB_S_sinh,
       .rises = 1)

SMOOTH(cosh, nb_sinh(X), "Hyperbolic cosine.",
       "cosh([0.0, 1.0]) = [1.0, 1.5430806348152437]", .scalar = NB_S_cosh)

/* y = tanh x, y' = 1 - y^2: the result is at hand, x is not needed. */
SMOOTH(tanh, one_minus_square(c->out), "Hyperbolic tangent.",
       "tanh([0.0, 0.5]) = [0.0, 0.46211715726000975]", .scalar = NB_S_tanh,
       .rises = 1)

/* sinh y = x, y' = (1 + x^2)^(-1/2); hypot does not overflow. */
SMOOTH(asinh, nb_reciprocal(nb_hypot(X, nb_num(1))), "Inverse hyperbolic sine.",
       "asinh([0.0, 1.0]) = [0.0, 0.881373587019543]", .scalar = NB_S_asinh,
       .rises = 1)

/* cosh y = x, y' = (x^2 - 1)^(-1/2) = (x - 1)^(-1/2) (x + 1)^(-1/2). */
SMOOTH(acosh,
       nb_mul(nb_rsqrt(nb_sub(X, nb_num(1))), nb_rsqrt(nb_add(X, nb_num(1)))),
       "Inverse hyperbolic cosine; NaN below 1.",
       "acosh([1.0, 2.0]) = [0.0, 1.3169578969248166]", .scalar = NB_S_acosh,
       .domain = {1.5, 3})

/* tanh y = x, y' = 1 / (1 - x^2). */
SMOOTH(atanh, nb_reciprocal(one_minus_square(X)),
       "Inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond.",
       "atanh([0.0, 0.5]) = [0.0, 0.5493061443340549]", .scalar = NB_S_atanh,
       .domain = {-0.7, 0.7})

/* e^(-x^2) times 2 / sqrt(pi), the derivative of erf. */
static nb_tensor *bell(nb_tensor *x)
{
    return nb_mul(nb_num(M_2_SQRTPI), nb_exp(nb_neg(nb_mul(x, x))));
}

SMOOTH(erf, bell(X),
       "Error function: the integral of 2 exp(-t^2) / sqrt(pi) from 0 to x.",
       "erf([0.0, 1.0]) = [0.0, 0.8427007929497149]", .scalar = NB_S_erf,
       .rises = 1)

SMOOTH(erfc, nb_neg(bell(X)), "1 - erf(x), accurate where erf is near 1.",
       "erfc([0.0, 1.0]) = [1.0, 0.15729920705028513]", .scalar = NB_S_erfc,
       .rises = -1)

nb_tensor *nb_erfc(nb_tensor *x)
{
    return nb_apply(&nb_op_erfc, 1, &x, 0, NULL, NB_CALLER);
}
