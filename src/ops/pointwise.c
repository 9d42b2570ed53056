/* pointwise.c - ops that act on each element alone. */
#include "ops/ops.h"

TRANSPOSE(neg, nb_neg(ct))

nb_op nb_op_neg = {
    .name = "neg",
    .doc = "Negative of x.",
    .example = "neg([1, -2]) = [-1, 2]",
    .sig = "... -> ...",
    .kind = NB_LINEAR,
    .in = NB_IN_NUMBER,
    .scalar = NB_S_neg,
    .transpose = neg_transpose,
};

/* y = e^x gives y' = y. */
PARTIAL(exp, c->out)

nb_op nb_op_exp = {
    .name = "exp",
    .doc = "Exponential function e^x.",
    .example = "exp([0.0, 1.0]) = [1.0, 2.718281828459045]",
    .sig = "... -> ...",
    .kind = NB_POINTWISE,
    .in = NB_IN_FLOAT,
    .scalar = NB_S_exp,
    .partial = exp_partial,
};

PARTIAL(sin, nb_cos(c->in[0]))

nb_op nb_op_sin = {
    .name = "sin",
    .doc = "Sine of x in radians.",
    .example = "sin([0.0, 1.0]) = [0.0, 0.8414709848078965]",
    .sig = "... -> ...",
    .kind = NB_POINTWISE,
    .in = NB_IN_FLOAT,
    .scalar = NB_S_sin,
    .partial = sin_partial,
};

PARTIAL(cos, nb_neg(nb_sin(c->in[0])))

nb_op nb_op_cos = {
    .name = "cos",
    .doc = "Cosine of x in radians.",
    .example = "cos([0.0, 1.0]) = [1.0, 0.5403023058681398]",
    .sig = "... -> ...",
    .kind = NB_POINTWISE,
    .in = NB_IN_FLOAT,
    .scalar = NB_S_cos,
    .partial = cos_partial,
};

/* y = tanh x gives y' = 1 - y^2: the result is at hand, x is not needed. */
PARTIAL(tanh, nb_sub(nb_num(1), nb_mul(c->out, c->out)))

nb_op nb_op_tanh = {
    .name = "tanh",
    .doc = "Hyperbolic tangent.",
    .example = "tanh([0.0, 0.5]) = [0.0, 0.46211715726000975]",
    .sig = "... -> ...",
    .kind = NB_POINTWISE,
    .in = NB_IN_FLOAT,
    .scalar = NB_S_tanh,
    .partial = tanh_partial,
};

/* From e^-|x|, which never overflows: 1 / (1 + e) on the right, e / (1 + e) on
 * the left. */
static nb_val sigmoid_body(nb_gen *g, const nb_val *x, const nb_call *c)
{
    nb_val zero = nb_s_const(g, 0), one = nb_s_const(g, 1);
    nb_val e = nb_s_exp(g, nb_s_neg(g, nb_s_abs(g, x[0])));
    nb_val top = nb_s_select(g, nb_s_lt(g, x[0], zero), e, one);
    (void)c;
    return nb_s_div(g, top, nb_s_add(g, one, e));
}

/* y = 1 / (1 + e^-x) gives y' = y (1 - y). */
PARTIAL(sigmoid, nb_mul(c->out, nb_sub(nb_num(1), c->out)))

nb_op nb_op_sigmoid = {
    .name = "sigmoid",
    .doc = "Logistic function 1 / (1 + exp(-x)).",
    .example = "sigmoid([0.0, 2.0]) = [0.5, 0.8807970779778823]",
    .sig = "... -> ...",
    .kind = NB_POINTWISE,
    .in = NB_IN_FLOAT,
    .body = sigmoid_body,
    .partial = sigmoid_partial,
};

TRANSPOSE(add, ct)

nb_op nb_op_add = {
    .name = "add",
    .doc = "Sum of two tensors; of bools, logical or.",
    .example = "add([1, 2], 3) = [4, 5]",
    .sig = "..., ... -> ...",
    .kind = NB_LINEAR,
    .in = NB_IN_COMMON,
    .scalar = NB_S_add,
    .transpose = add_transpose,
};

TRANSPOSE(sub, i == 0 ? ct : nb_neg(ct))

nb_op nb_op_sub = {
    .name = "sub",
    .doc = "Difference of two tensors.",
    .example = "sub([1, 2], 3) = [-2, -1]",
    .sig = "..., ... -> ...",
    .kind = NB_LINEAR,
    .in = NB_IN_NUMBER,
    .scalar = NB_S_sub,
    .transpose = sub_transpose,
};

TRANSPOSE(mul, nb_mul(ct, c->in[1 - i]))

nb_op nb_op_mul = {
    .name = "mul",
    .doc = "Product of two tensors, element by element; of bools, logical "
           "and.",
    .example = "mul([1, 2], 3) = [3, 6]",
    .sig = "..., ... -> ...",
    .kind = NB_MULTILINEAR,
    .in = NB_IN_COMMON,
    .scalar = NB_S_mul,
    .transpose = mul_transpose,
};

/* y = a / b gives dy/da = 1 / b and dy/db = -y / b. */
PARTIAL(div, i == 0 ? nb_div(nb_num(1), c->in[1])
                    : nb_neg(nb_div(c->out, c->in[1])))

nb_op nb_op_div = {
    .name = "div",
    .doc = "Quotient of two tensors; of integers, in the default float.",
    .example = "div([1.0, 2.0], 4.0) = [0.25, 0.5]",
    .sig = "..., ... -> ...",
    .kind = NB_POINTWISE,
    .in = NB_IN_FLOAT,
    .scalar = NB_S_div,
    .partial = div_partial,
    .domain = {0.5, 2},
};

nb_op nb_op_equal = {
    .name = "equal",
    .doc = "Whether elements are equal; NaN equals nothing.",
    .example = "equal([1, 2], 2) = [False, True]",
    .sig = "..., ... -> ...",
    .kind = NB_CONSTANT,
    .in = NB_IN_COMMON,
    .out = NB_OUT_BOOL,
    .scalar = NB_S_eq,
};

TRANSPOSE(where, i == 1 ? nb_where(c->in[0], ct, nb_num(0))
                        : nb_where(c->in[0], nb_num(0), ct))

nb_op nb_op_where = {
    .name = "where",
    .doc = "x where condition is true, y elsewhere.",
    .example = "where([True, False], [1, 2], [3, 4]) = [1, 4]",
    .params = "condition, x, y",
    .sig = "..., ..., ... -> ...",
    .kind = NB_LINEAR,
    .in = NB_IN_COMMON,
    .mask = 1,
    .scalar = NB_S_select,
    .transpose = where_transpose,
};

nb_tensor *nb_where(nb_tensor *condition, nb_tensor *x, nb_tensor *y)
{
    nb_tensor *in[] = {condition, x, y};
    return nb_apply(&nb_op_where, 3, in, 0, NULL, NB_CALLER);
}
