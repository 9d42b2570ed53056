/* pointwise_logic.c - questions about numbers, logic, bits, and choice.
 *
 * All but `where` are constant almost everywhere. */
#include "ops/pointwise.h"

#define QUESTION(op, inputs, axes, work, what, call) \
    BODY(op, work)                                   \
    nb_op nb_op_##op = {.name = #op,                 \
                        .doc = what,                 \
                        .example = call,             \
                        .sig = axes,                 \
                        .kind = NB_CONSTANT,         \
                        .in = inputs,                \
                        .out = NB_OUT_BOOL,          \
                        .body = op##_body};

#define UNARY(op, work, what, call) \
    QUESTION(op, NB_IN_ANY, "... -> ...", work, what, call)

UNARY(is_nan, nb_s_isnan(g, x[0]), "Whether elements are NaN.",
      "is_nan([1.0, nan, inf]) = [False, True, False]")
UNARY(is_inf, nb_s_isinf(g, x[0]), "Whether elements are infinite.",
      "is_inf([1.0, nan, -inf]) = [False, False, True]")
UNARY(isfinite,
      nb_s_not(g, nb_s_either(g, nb_s_isnan(g, x[0]), nb_s_isinf(g, x[0]))),
      "Whether elements are neither NaN nor infinite.",
      "isfinite([1.0, nan, -inf]) = [True, False, False]")
UNARY(signbit, nb_s_signbit(g, x[0]),
      "Whether elements carry a minus sign, zeros and NaN included.",
      "signbit([1.0, -0.0, -2.0]) = [False, True, True]")

#define COMPARE(op, work, what, call) \
    QUESTION(op, NB_IN_COMMON, "..., ... -> ...", work, what, call)

COMPARE(equal, nb_s_eq(g, x[0], x[1]),
        "Whether elements are equal; NaN equals nothing.",
        "equal([1, 2], 2) = [False, True]")
COMPARE(not_equal, nb_s_ne(g, x[0], x[1]),
        "Whether elements differ; NaN differs from all.",
        "not_equal([1, 2], 2) = [True, False]")
COMPARE(less, nb_s_lt(g, x[0], x[1]), "Whether x is less than y.",
        "less([1, 2, 3], 2) = [True, False, False]")
COMPARE(less_equal, nb_s_le(g, x[0], x[1]), "Whether x is at most y.",
        "less_equal([1, 2, 3], 2) = [True, True, False]")
COMPARE(greater, nb_s_lt(g, x[1], x[0]), "Whether x is greater than y.",
        "greater([1, 2, 3], 2) = [False, False, True]")
COMPARE(greater_equal, nb_s_le(g, x[1], x[0]), "Whether x is at least y.",
        "greater_equal([1, 2, 3], 2) = [False, True, True]")

#define LOGICAL(op, axes, work, what, call) \
    QUESTION(op, NB_IN_BOOL, axes, work, what, call)

LOGICAL(logical_and, "..., ... -> ...", nb_s_both(g, x[0], x[1]),
        "Whether both elements are true, that is not zero.",
        "logical_and([0, 1], [[True], [False]]) = "
        "[[False, True], [False, False]]")
LOGICAL(logical_or, "..., ... -> ...", nb_s_either(g, x[0], x[1]),
        "Whether one element is true, that is not zero, or both.",
        "logical_or([0, 1], [[True], [False]]) = "
        "[[True, True], [False, True]]")
LOGICAL(logical_xor, "..., ... -> ...", nb_s_differ(g, x[0], x[1]),
        "Whether one element is true, that is not zero, and the other not.",
        "logical_xor([0, 1], [[True], [False]]) = "
        "[[True, False], [False, True]]")
LOGICAL(logical_not, "... -> ...", nb_s_not(g, x[0]),
        "Whether elements are zero.", "logical_not([0, 2]) = [True, False]")

#define BITS(op, axes, instruction, what, call, ...)  \
    nb_op nb_op_##op = {.name = #op,                  \
                        .doc = what,                  \
                        .example = call,              \
                        .sig = axes,                  \
                        .kind = NB_CONSTANT,          \
                        .in = NB_IN_INTEGER,          \
                        .scalar = NB_S_##instruction, \
                        __VA_ARGS__};

BITS(bitwise_and, "..., ... -> ...", and,
     "Bits that both integers have; of bools, logical and.",
     "bitwise_and([12, 10], [[6], [3]]) = [[4, 2], [0, 2]]")
BITS(bitwise_or, "..., ... -> ...", or,
     "Bits that either integer has; of bools, logical or.",
     "bitwise_or([12, 10], [[6], [3]]) = [[14, 14], [15, 11]]")
BITS(bitwise_xor, "..., ... -> ...", xor,
     "Bits that one integer has; of bools, whether they differ.",
     "bitwise_xor([12, 10], [[6], [3]]) = [[10, 12], [15, 9]]")
BITS(bitwise_invert, "... -> ...", inv,
     "All bits the other way; of bools, logical not.",
     "bitwise_invert([0, 5]) = [-1, -6]")

static bool shift_check(nb_call *c)
{
    if (nb_dtype_of(X) != NB_BOOL) return true;
    return nb_fail(NB_ETYPE, "%s: does not take bool: integers needed",
                   c->op->name);
}

BITS(bitwise_left_shift, "..., ... -> ...", shl,
     "x with its bits moved up by y places; 0 if that is the width or more.",
     "bitwise_left_shift([1, -3], [[2], [64]]) = [[4, -12], [0, 0]]",
     .check = shift_check)
BITS(bitwise_right_shift, "..., ... -> ...", shr,
     "x with its bits moved down by y places, keeping the sign.",
     "bitwise_right_shift([9, -9], [[2], [64]]) = [[2, -3], [0, -1]]",
     .check = shift_check)

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
