/* pointwise_gate.c - sigmoid and the activations x p(x) with a rising gate p.
 *
 * They hold at the extremes: a gate is computed without overflow, and where it
 * is zero in every dtype x is held at a bound, so that an infinite x meets no
 * zero. */
#include "ops/pointwise.h"

#include <string.h>

/* From e^-|x|, which never overflows: 1 / (1 + e) on the right, e / (1 + e) on
 * the left. */
static nb_val gate(nb_gen *g, nb_val x)
{
    nb_val zero = nb_s_const(g, 0), one = nb_s_const(g, 1);
    nb_val e = nb_s_exp(g, nb_s_neg(g, nb_s_abs(g, x)));
    nb_val top = nb_s_select(g, nb_s_lt(g, x, zero), e, one);
    return nb_s_div(g, top, nb_s_add(g, one, e));
}

BODY(sigmoid, gate(g, x[0]))

/* y = 1 / (1 + e^-x), y' = y (1 - y). */
SMOOTH(sigmoid, nb_mul(c->out, nb_sub(nb_num(1), c->out)),
       "Logistic function 1 / (1 + exp(-x)).",
       "sigmoid([0.0, 2.0]) = [0.5, 0.8807970779778823]", .body = sigmoid_body,
       .rises = 1)

/* Gates are 0 below -1000. */
static nb_val bounded(nb_gen *g, nb_val x)
{
    return nb_s_max(g, x, nb_s_const(g, -1000));
}

/* ... and their derivatives beyond 1000 either way. */
static nb_tensor *between(nb_tensor *x, double bound)
{
    return nb_minimum(nb_maximum(x, nb_num(-bound)), nb_num(bound));
}

BODY(silu, nb_s_mul(g, bounded(g, x[0]), gate(g, x[0])))

/* y = x s, s = sigmoid x, y' = s + x s (1 - s). */
static nb_tensor *silu_slope(nb_tensor *x)
{
    nb_tensor *s = nb_sigmoid(x), *one = nb_num(1);
    return nb_mul(s, nb_add(one, nb_mul(x, nb_sub(one, s))));
}

SMOOTH(silu, silu_slope(between(X, 1000)), "x sigmoid(x), also called swish.",
       "silu([0.0, 2.0]) = [0.0, 1.7615941559557646]", .body = silu_body)

static const double SQRT_2_PI = 0.79788456080286535588; /* sqrt(2 / pi) */
static const double CUBIC = 0.044715;

static bool by_tanh(const nb_call *c)
{
    return !strcmp(nb_arg_text(c, 0), "tanh");
}

static bool gelu_check(nb_call *c)
{
    const char *how = nb_arg_text(c, 0);
    if (how && (by_tanh(c) || !strcmp(how, "none"))) return true;
    return nb_fail(NB_EVALUE,
                   "gelu: approximate is %s, must be \"none\" or \"tanh\"",
                   how ? how : "None");
}

/* The normal distribution function is erfc(-x / sqrt 2) / 2, which unlike
 * 1 + erf does not cancel on the left; for the same reason (1 + tanh u) / 2 is
 * written as the sigmoid of 2 u, u = sqrt(2 / pi) (x + 0.044715 x^3). */
static nb_val gelu_body(nb_gen *g, const nb_val *x, const nb_call *c)
{
    nb_val z = bounded(g, x[0]);
    if (by_tanh(c)) {
        nb_val cube = nb_s_mul(g, nb_s_mul(g, x[0], x[0]), x[0]);
        nb_val u = nb_s_add(g, x[0], nb_s_mul(g, nb_s_const(g, CUBIC), cube));
        u = nb_s_mul(g, nb_s_const(g, 2 * SQRT_2_PI), u);
        return nb_s_mul(g, z, gate(g, u));
    }
    nb_val tail = nb_s_erfc(g, nb_s_mul(g, x[0], nb_s_const(g, -M_SQRT1_2)));
    return nb_s_mul(g, nb_s_mul(g, z, nb_s_const(g, 0.5)), tail);
}

/* y = x P, P' = e^(-x^2 / 2) / sqrt(2 pi), y' = P + x P'. */
static nb_tensor *gelu_slope(nb_tensor *x)
{
    nb_tensor *half = nb_num(0.5);
    nb_tensor *p = nb_mul(half, nb_erfc(nb_mul(x, nb_num(-M_SQRT1_2))));
    nb_tensor *bell = nb_exp(nb_mul(nb_num(-0.5), nb_mul(x, x)));
    return nb_add(p, nb_mul(nb_mul(x, nb_num(SQRT_2_PI / 2)), bell));
}

/* y = x s, s = sigmoid 2 u, y' = s + x s (1 - s) 2 u',
 * u' = sqrt(2 / pi) (1 + 3 * 0.044715 x^2). */
static nb_tensor *gelu_tanh_slope(nb_tensor *x)
{
    nb_tensor *one = nb_num(1), *square = nb_mul(x, x);
    nb_tensor *twice = nb_mul(x, nb_num(2 * SQRT_2_PI));
    nb_tensor *s =
        nb_sigmoid(nb_mul(twice, nb_add(one, nb_mul(square, nb_num(CUBIC)))));
    nb_tensor *rise = nb_add(one, nb_mul(square, nb_num(3 * CUBIC)));
    nb_tensor *moves = nb_mul(nb_mul(s, nb_sub(one, s)), twice);
    return nb_add(s, nb_mul(moves, rise));
}

/* Both slopes are 0 or 1 in every dtype beyond 40, where no power of x
 * overflows yet. */
PARTIAL(gelu, by_tanh(c) ? gelu_tanh_slope(between(X, 40))
                         : gelu_slope(between(X, 40)))

nb_op nb_op_gelu = {
    .name = "gelu",
    .doc = "x times the probability that a standard normal number is below "
           "x; approximate=\"tanh\" computes it by a tanh formula.",
    .example = "gelu([0.0, 2.0], approximate=\"tanh\") = "
               "[0.0, 1.954597694087775]",
    .params = "x, approximate:text=\"none\"",
    .sig = "... -> ...",
    .kind = NB_POINTWISE,
    .in = NB_IN_FLOAT,
    .check = gelu_check,
    .body = gelu_body,
    .partial = gelu_partial,
};

nb_tensor *nb_gelu(nb_tensor *x, const char *approximate)
{
    nb_value v = NB_V_TEXT(approximate), exact = NB_V_DEFAULT;
    return nb_apply(&nb_op_gelu, 1, &x, 1, approximate ? &v : &exact,
                    NB_CALLER);
}
