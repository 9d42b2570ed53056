/* pointwise_piece.c - functions of one number that go by cases: signs, steps,
 * bounds.
 *
 * At a kink the derivative is 0.  The laws draw these inputs well apart and
 * half a step off the kink at 0: -0.5, 0.5, 1.5, ... */
#include "ops/pointwise.h"

#include <float.h>

#define OFF_ZERO .domain = {-8, -6}, .shapes = "d"

TRANSPOSE(neg, nb_neg(ct))

nb_op nb_op_neg = {
    .name = "neg",
    .doc = "Negative of x.",
    .example = "neg([1, -2]) = [-1, 2]",
    .sig = "... -> ...",
    .kind = NB_LINEAR,
    .in = NB_IN_NUMBER,
    .scalar = NB_S_neg,
    .rises = -1,
    .transpose = neg_transpose,
};

COMPOSE(positive, X)

nb_op nb_op_positive = {
    .name = "positive",
    .doc = "x itself, a number.",
    .example = "positive([1, -2]) = [1, -2]",
    .params = "x",
    .kind = NB_COMPOSITE,
    .in = NB_IN_NUMBER,
    .compose = positive_compose,
};

COMPOSE(square, nb_mul(X, X))

nb_op nb_op_square = {
    .name = "square",
    .doc = "x times x.",
    .example = "square([3, -2]) = [9, 4]",
    .params = "x",
    .kind = NB_COMPOSITE,
    .in = NB_IN_NUMBER,
    .compose = square_compose,
};

/* y = x sign x, y' = sign x, which is 0 at 0. */
PARTIAL(abs, nb_sign(X))

nb_op nb_op_abs = {
    .name = "abs",
    .doc = "Absolute value; its derivative at 0 is 0.",
    .example = "abs([[1, -2, 0]]) = [[1, 2, 0]]",
    .sig = "... -> ...",
    .kind = NB_POINTWISE,
    .scalar = NB_S_abs,
    .partial = abs_partial,
    OFF_ZERO,
};

BODY(relu, nb_s_max(g, x[0], nb_s_const(g, 0)))

/* y = x on the right, 0 on the left and at 0. */
PARTIAL(relu, indicator(c, nb_greater(X, nb_num(0))))

nb_op nb_op_relu = {
    .name = "relu",
    .doc = "The positive part of x, max(x, 0); its derivative at 0 is 0.",
    .example = "relu([[1.5, -2.0, 0.0]]) = [[1.5, 0.0, 0.0]]",
    .sig = "... -> ...",
    .kind = NB_POINTWISE,
    .in = NB_IN_NUMBER,
    .body = relu_body,
    .partial = relu_partial,
    OFF_ZERO,
    .rises = 1,
};

/* Steps have derivative 0 and never go down; integers stay as they are. */
#define STEP(op, types, what, call)          \
    nb_op nb_op_##op = {.name = #op,         \
                        .doc = what,         \
                        .example = call,     \
                        .sig = "... -> ...", \
                        .kind = NB_CONSTANT, \
                        .in = types,         \
                        .scalar = NB_S_##op, \
                        .rises = 1};

STEP(sign, NB_IN_NUMBER, "-1, 0 or 1 as x is negative, zero or positive.",
     "sign([-2.5, 0.0, 3.0]) = [-1.0, 0.0, 1.0]")
STEP(floor, NB_IN_ANY, "The largest whole number not above x.",
     "floor([-1.5, 1.5]) = [-2.0, 1.0]")
STEP(ceil, NB_IN_ANY, "The smallest whole number not below x.",
     "ceil([-1.5, 1.5]) = [-1.0, 2.0]")
STEP(trunc, NB_IN_ANY, "The whole number next to x towards zero.",
     "trunc([-1.5, 1.5]) = [-1.0, 1.0]")
STEP(round, NB_IN_ANY,
     "The whole number nearest to x, the even one of two that are.",
     "round([0.5, 1.5, -1.7]) = [0.0, 2.0, -2.0]")

/* Bounds.  Of what equals a bound both x and the bound have the derivative. */
COMPOSE(clip, nb_minimum(nb_maximum(X, Y), c->in[2]))

nb_op nb_op_clip = {
    .name = "clip",
    .doc = "x, or the nearer bound where x is outside; max where the bounds "
           "are crossed.  For one bound alone: maximum, minimum.",
    .example = "clip([[-1.0, 0.25, 0.5, 0.75, 1.0, 2.0]], 0.5, [[1.0]]) = "
               "[[0.5, 0.5, 0.5, 0.75, 1.0, 1.0]]",
    .params = "x, min, max",
    .kind = NB_COMPOSITE,
    .in = NB_IN_COMMON,
    .compose = clip_compose,
    .domain = {0.4, 0.6}, /* bounds about 0.5 and 4.5, x from 0 to 5 */
    .shapes = "d.i",
};

nb_tensor *nb_clip(nb_tensor *x, nb_tensor *min, nb_tensor *max)
{
    nb_tensor *in[] = {x, min, max};
    return nb_apply(&nb_op_clip, 3, in, 0, NULL, NB_CALLER);
}

static double largest(nb_dtype d)
{
    switch (d) {
    case NB_F16: return 0x1.ffcp15;
    case NB_BF16: return 0x1.fep127;
    case NB_F32: return FLT_MAX;
    default: return DBL_MAX;
    }
}

static nb_val nan_to_num_body(nb_gen *g, const nb_val *x, const nb_call *c)
{
    nb_dtype d = nb_dtype_of(X);
    double value[3] = {0, largest(d), -largest(d)};
    if (!nb_dtype_is_float(d)) return x[0];
    for (int k = 0; k < 3; k++)
        if (nb_arg_int(c, k) != NB_NONE) value[k] = nb_arg_float(c, k);
    nb_val inf = nb_s_select(g, nb_s_signbit(g, x[0]), nb_s_const(g, value[2]),
                             nb_s_const(g, value[1]));
    nb_val y = nb_s_select(g, nb_s_isinf(g, x[0]), inf, x[0]);
    return nb_s_select(g, nb_s_isnan(g, x[0]), nb_s_const(g, value[0]), y);
}

/* What is replaced does not move. */
PARTIAL(nan_to_num, indicator(c, nb_isfinite(X)))

nb_op nb_op_nan_to_num = {
    .name = "nan_to_num",
    .doc = "x with NaN and the infinities replaced by numbers; None stands "
           "for the largest and the least finite number.",
    .example = "nan_to_num([nan, 1.5, inf, -inf], nan=2.0, posinf=9.0, "
               "neginf=-9.0) = [2.0, 1.5, 9.0, -9.0]",
    .params = "x, nan:float=0.0, posinf:float=None, neginf:float=None",
    .sig = "... -> ...",
    .kind = NB_POINTWISE,
    .body = nan_to_num_body,
    .partial = nan_to_num_partial,
};

nb_tensor *nb_nan_to_num(nb_tensor *x, double nan, double posinf, double neginf)
{
    nb_value none = NB_V_NONE;
    nb_value v[] = {NB_V_FLOAT(nan), NB_V_FLOAT(posinf), NB_V_FLOAT(neginf)};
    if (isnan(posinf)) v[1] = none;
    if (isnan(neginf)) v[2] = none;
    return nb_apply(&nb_op_nan_to_num, 1, &x, 3, v, NB_CALLER);
}
