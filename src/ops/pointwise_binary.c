/* pointwise_binary.c - arithmetic and functions of two numbers.
 *
 * A partial has the broadcast shape of both inputs even where its value
 * depends on one, or on none. */
#include "ops/pointwise.h"

#include "base/half.h"

#define BINARY .sig = "..., ... -> ..."

TRANSPOSE(add, ct)

nb_op nb_op_add = {
    .name = "add",
    .doc = "Sum of two tensors; of bools, logical or.",
    .example = "add([1, 2], 3) = [4, 5]",
    BINARY,
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
    BINARY,
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
    BINARY,
    .kind = NB_MULTILINEAR,
    .in = NB_IN_COMMON,
    .scalar = NB_S_mul,
    .transpose = mul_transpose,
};

/* z = x / y, dz/dx = 1 / y, dz/dy = -z / y. */
PARTIAL(div, i == 0 ? nb_reciprocal(Y) : nb_neg(nb_div(c->out, Y)))

nb_op nb_op_div = {
    .name = "div",
    .doc = "Quotient of two tensors; of integers, in the default float.",
    .example = "div([1.0, 2.0], 4.0) = [0.25, 0.5]",
    BINARY,
    .kind = NB_POINTWISE,
    .carries = 1,
    .in = NB_IN_FLOAT,
    .scalar = NB_S_div,
    .partial = div_partial,
    .domain = {0.5, 2},
};

nb_op nb_op_floor_divide = {
    .name = "floor_divide",
    .doc = "Quotient rounded down; of integers by zero, 0.",
    .example = "floor_divide([7, -7], [[2], [-3]]) = [[3, -4], [-3, 2]]",
    BINARY,
    .kind = NB_CONSTANT,
    .in = NB_IN_NUMBER,
    .scalar = NB_S_quot,
    .domain = {0.6, 0.65}, /* x about 0.05 and 1.05: not near a jump */
    .shapes = "d.",
};

/* z = x - y floor(x / y), dz/dx = 1, dz/dy = -floor(x / y). */
PARTIAL(mod, i == 0 ? nb_fill_like(c->out, 1) : nb_neg(nb_floor_divide(X, Y)))

nb_op nb_op_mod = {
    .name = "mod",
    .doc = "Remainder with the sign of the divisor; of integers by zero, 0.",
    .example = "mod([[7, -7], [6, -4]], [3, -3]) = [[1, -1], [0, -1]]",
    BINARY,
    .kind = NB_POINTWISE,
    .in = NB_IN_NUMBER,
    .scalar = NB_S_mod,
    .partial = mod_partial,
    .domain = {2.4, 2.8}, /* x about 0.2, 1.2, 2.2, 3.2: not near a jump */
    .shapes = "d.",
};

/* A number that stands in the call itself. */
static bool is_number(const nb_tensor *x)
{
    return !x->op && x->nattr == 1;
}

static bool pow_check(nb_call *c)
{
    bool whole = !nb_dtype_is_float(nb_dtype_of(Y));
    if (!whole || !is_number(Y) || nb_item(Y) >= 0) return true;
    return nb_fail(NB_EVALUE,
                   "pow: integers of %s to the power %.0f are not integers: "
                   "the exponent must not be negative, or the base a float",
                   nb_dtype_name(nb_dtype_of(X)), nb_item(Y));
}

/* y x^(y - 1); but 0 where both are zero, as 0 * 0^-1 would not be. */
static nb_tensor *pow_by_base(nb_tensor *x, nb_tensor *y)
{
    nb_tensor *zero = nb_num(0), *less, *none;
    if (is_number(y) && nb_item(y) != 0) {
        less = nb_scalar_float(nb_item(y) - 1, nb_dtype_of(y));
    } else {
        none = nb_logical_and(nb_equal(x, zero), nb_equal(y, zero));
        less = nb_where(none, zero, nb_sub(y, nb_num(1)));
    }
    return nb_mul(y, nb_pow(x, less));
}

/* z log x; but 0 where z is 0^y with y not negative. */
static nb_tensor *pow_by_exponent(nb_tensor *x, nb_tensor *y, nb_tensor *z)
{
    nb_tensor *zero = nb_num(0);
    nb_tensor *flat =
        nb_logical_and(nb_equal(x, zero), nb_greater_equal(y, zero));
    return nb_mul(z, nb_log(nb_where(flat, nb_num(1), x)));
}

/* z = x^y = e^(y log x), dz/dx = y x^(y - 1), dz/dy = z log x. */
PARTIAL(pow, i == 0 ? pow_by_base(X, Y) : pow_by_exponent(X, Y, c->out))

nb_op nb_op_pow = {
    .name = "pow",
    .doc = "x to the power y.  Integers to a negative power give 0, but for "
           "1 and -1, and are refused if the power is written as a number.",
    .example = "pow([2.0, 3.0], [[2.0], [-1.0]]) = "
               "[[4.0, 9.0], [0.5, 0.3333333333333333]]",
    BINARY,
    .kind = NB_POINTWISE,
    .in = NB_IN_NUMBER,
    .check = pow_check,
    .scalar = NB_S_pow,
    .partial = pow_partial,
    .domain = {0.5, 2},
};

/* The extremum moves with every operand that equals it.  The laws keep the
 * operands apart: x is about 0, 1, 2, ..., y about 0.5. */
PARTIAL(extremum, indicator(c, nb_equal(c->in[i], c->out)))

nb_op nb_op_maximum = {
    .name = "maximum",
    .doc = "The larger of two elements; NaN wins.  Equal ones both get the "
           "whole derivative.",
    .example = "maximum([[1, 5, 3]], [[2], [4]]) = [[2, 5, 3], [4, 5, 4]]",
    BINARY,
    .kind = NB_POINTWISE,
    .in = NB_IN_COMMON,
    .scalar = NB_S_max,
    .partial = extremum_partial,
    .domain = {0.4, 0.6},
    .shapes = "d.",
};

nb_op nb_op_minimum = {
    .name = "minimum",
    .doc = "The smaller of two elements; NaN wins.  Equal ones both get the "
           "whole derivative.",
    .example = "minimum([[1, 5, 3]], [[2], [4]]) = [[1, 2, 2], [1, 4, 3]]",
    BINARY,
    .kind = NB_POINTWISE,
    .in = NB_IN_COMMON,
    .scalar = NB_S_min,
    .partial = extremum_partial,
    .domain = {0.4, 0.6},
    .shapes = "d.",
};

/* a / r for a radius r; 0 at the origin. */
static nb_tensor *over_radius(nb_tensor *a, nb_tensor *r)
{
    return nb_div(a, nb_where(nb_equal(r, nb_num(0)), nb_num(1), r));
}

/* r^2 = x^2 + y^2, dr/dx = x / r, dr/dy = y / r. */
PARTIAL(hypot, over_radius(c->in[i], c->out))

nb_op nb_op_hypot = {
    .name = "hypot",
    .doc = "Square root of x^2 + y^2, without overflow on the way; its "
           "derivative at the origin is 0.",
    .example = "hypot([3.0, 5.0], [[4.0], [12.0]]) = "
               "[[5.0, 6.4031242374328485], [12.36931687685298, 13.0]]",
    BINARY,
    .kind = NB_POINTWISE,
    .in = NB_IN_FLOAT,
    .scalar = NB_S_hypot,
    .partial = hypot_partial,
    .domain = {0.5, 2},
};

/* The angle a of the point (y, x): da/dx = y / r^2, da/dy = -x / r^2. */
static nb_tensor *atan2_partial(const nb_call *c, int i)
{
    nb_tensor *r = nb_hypot(X, Y);
    return over_radius(over_radius(i == 0 ? Y : nb_neg(X), r), r);
}

nb_op nb_op_atan2 = {
    .name = "atan2",
    .doc = "Angle in radians of the point with ordinate x and abscissa y: the "
           "inverse tangent of x / y in the right quadrant.",
    .example = "atan2([1.0, -1.0], [[1.0], [-1.0]]) = "
               "[[0.7853981633974483, -0.7853981633974483], "
               "[2.356194490192345, -2.356194490192345]]",
    BINARY,
    .kind = NB_POINTWISE,
    .in = NB_IN_FLOAT,
    .scalar = NB_S_atan2,
    .partial = atan2_partial,
    .domain = {0.5, 2},
};

/* max + log(1 + e^-|x - y|); equal operands apart, as inf - inf is NaN. */
static nb_val logaddexp_body(nb_gen *g, const nb_val *x, const nb_call *c)
{
    nb_val apart = nb_s_abs(g, nb_s_sub(g, x[0], x[1]));
    nb_val more = nb_s_log1p(g, nb_s_exp(g, nb_s_neg(g, apart)));
    nb_val both = nb_s_add(g, x[0], nb_s_const(g, M_LN2));
    nb_val sum = nb_s_add(g, nb_s_max(g, x[0], x[1]), more);
    (void)c;
    return nb_s_select(g, nb_s_eq(g, x[0], x[1]), both, sum);
}

/* z = log(e^x + e^y), dz/dx = e^x / (e^x + e^y) = sigmoid(x - y); infinities
 * that are equal share it. */
static nb_tensor *logaddexp_partial(const nb_call *c, int i)
{
    nb_tensor *same = nb_logical_and(nb_equal(X, Y), nb_is_inf(X));
    nb_tensor *apart = nb_where(same, nb_num(0), nb_sub(X, Y));
    return nb_sigmoid(i == 0 ? apart : nb_neg(apart));
}

nb_op nb_op_logaddexp = {
    .name = "logaddexp",
    .doc = "log(exp(x) + exp(y)), without overflow on the way.",
    .example = "logaddexp([0.0, 1000.0], [[0.0], [1.0]]) = "
               "[[0.6931471805599453, 1000.0], [1.3132616875182228, 1000.0]]",
    BINARY,
    .kind = NB_POINTWISE,
    .in = NB_IN_FLOAT,
    .body = logaddexp_body,
    .partial = logaddexp_partial,
};

/* z = |x| s with s the sign of y, dz/dx = s sign x. */
PARTIAL(copysign, nb_mul(nb_sign(X), nb_copysign(nb_num(1), Y)))

nb_op nb_op_copysign = {
    .name = "copysign",
    .doc = "The magnitude of x with the sign of y.",
    .example = "copysign([1.0, -2.0, 3.0], [[-1.0], [0.0]]) = "
               "[[-1.0, -2.0, -3.0], [1.0, 2.0, 3.0]]",
    BINARY,
    .kind = NB_POINTWISE,
    .in = NB_IN_FLOAT,
    .fixed = 2,
    .scalar = NB_S_copysign,
    .partial = copysign_partial,
    .domain = {-8, -6}, /* x about -0.5, 0.5, 1.5 */
    .shapes = "d.",
};

/* 16-bit floats compute in float32, where their neighbours are many steps away:
 * 5/8 to 5/4 of a 16-bit step is added, at least 3/4 of the smallest, and
 * rounding to 16 bits does the rest.  `top` is the next number above the largest
 * finite one, or the nearest to it in float32. */
static nb_val half_step(nb_gen *g, const nb_val *x, nb_dtype d)
{
    bool bf16 = d == NB_BF16;
    nb_val top = nb_s_const(g, bf16 ? 0x1.fffffep127 : 0x1p16);
    nb_val part = nb_s_const(g, bf16 ? 0x1.4p-8 : 0x1.4p-11);
    nb_val least = nb_s_const(g, bf16 ? 0x1.8p-134 : 0x1.8p-25);
    nb_val a = nb_s_min(g, nb_s_max(g, x[0], nb_s_neg(g, top)), top);
    nb_val step = nb_s_max(g, nb_s_mul(g, nb_s_abs(g, a), part), least);
    nb_val z = nb_s_select(g, nb_s_lt(g, a, x[1]), nb_s_add(g, a, step),
                           nb_s_sub(g, a, step));
    nb_val there = nb_s_either(g, nb_s_eq(g, x[0], x[1]), nb_s_isnan(g, x[1]));
    return nb_s_select(g, there, x[1], z);
}

static nb_val nextafter_body(nb_gen *g, const nb_val *x, const nb_call *c)
{
    nb_dtype d = nb_dtype_of(X);
    return nb_dtype_is_half(d) ? half_step(g, x, d)
                               : nb_s_nextafter(g, x[0], x[1]);
}

/* The neighbour moves as x does. */
PARTIAL(nextafter, nb_fill_like(c->out, 1))

nb_op nb_op_nextafter = {
    .name = "nextafter",
    .doc = "The next number after x towards y that its dtype can represent.",
    .example = "nextafter([1.0, 2.0], [[0.0], [3.0]]) = "
               "[[0.9999999999999999, 1.9999999999999998], "
               "[1.0000000000000002, 2.0000000000000004]]",
    BINARY,
    .kind = NB_POINTWISE,
    .in = NB_IN_FLOAT,
    .fixed = 2,
    .body = nextafter_body,
    .partial = nextafter_partial,
};
