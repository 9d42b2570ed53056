/* test_pointwise.c - what the laws do not say of pointwise ops: dtypes, kinks,
 * extremes, refusals.
 *
 * Values are compared exactly where arithmetic is exact; a derivative is that
 * of the sum of the result. */
#include "ops/ops.h"
#include "support/sentence.h"
#include "support/there.h"
#include "transform/derive.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const double inf = INFINITY, nan_ = NAN;

/* Op `name` of one or two tensors; attributes as by default. */
static nb_tensor *call(const char *name, int n, nb_tensor *const *x)
{
    int nout = 1;
    nb_tensor *y = NULL;
    nb_op *op = nb_op_find(name);
    assert_non_null(op);
    nb_op_call(op, n, x, 0, NULL, &nout, &y);
    return y;
}

/* The derivative of the sum of y(x) in all x; NULL where none flows. */
static void slopes(const char *name, int n, nb_tensor *const *x, nb_tensor **g)
{
    nb_tensor *fresh[2];
    uint64_t bit = nb_walk_begin(n, x, fresh);
    assert_true(bit != 0);
    nb_tensor *y = call(name, n, fresh);
    assert_non_null(y);
    nb_tensor *one = nb_fill_like(y, 1);
    assert_true(nb_walk_pull(bit, n, fresh, 1, &y, &one, g));
    nb_walk_end(bit);
}

static nb_tensor *slope(const char *name, nb_tensor *x)
{
    nb_tensor *g;
    slopes(name, 1, &x, &g);
    return g;
}

/* In x (i = 0) or y (i = 1). */
static nb_tensor *slope_of(const char *name, int i, nb_tensor *x, nb_tensor *y)
{
    nb_tensor *in[] = {x, y}, *g[2];
    slopes(name, 2, in, g);
    return g[i];
}

/* Derivatives at kinks and steps */

static void relu_and_abs_have_slope_zero_at_zero(void **state)
{
    nb_tensor *x = VECTOR(NB_F32, -2, -0.0, 0, 3);
    (void)state;
    IS(slope("relu", x), NB_F32, 0, 0, 0, 1);
    IS(slope("abs", x), NB_F32, -1, 0, 0, 1);
}

static void steps_have_no_slope(void **state)
{
    static const char *const names[] = {"floor", "ceil", "trunc", "round",
                                        "sign"};
    (void)state;
    for (int k = 0; k < 5; k++)
        assert_null(slope(names[k], VECTOR(NB_F32, 0.25, 2)));
}

static void equal_operands_of_an_extremum_get_all(void **state)
{
    nb_tensor *x = VECTOR(NB_F64, 1, 2, 3), *y = VECTOR(NB_F64, 2, 2, 2);
    (void)state;
    IS(slope_of("maximum", 0, x, y), NB_F64, 0, 1, 1);
    IS(slope_of("maximum", 1, x, y), NB_F64, 1, 1, 0);
    IS(slope_of("minimum", 0, x, y), NB_F64, 1, 1, 0);
    IS(slope_of("minimum", 1, x, y), NB_F64, 0, 1, 1);
}

static void mod_falls_with_the_floor_of_the_quotient(void **state)
{
    nb_tensor *x = VECTOR(NB_F64, 7, -7, 7, 1);
    nb_tensor *y = VECTOR(NB_F64, 2, 2, -2, 2);
    (void)state;
    IS(slope_of("mod", 0, x, y), NB_F64, 1, 1, 1, 1);
    IS(slope_of("mod", 1, x, y), NB_F64, -3, 4, 4, 0);
}

static void powers_of_zero_have_slopes(void **state)
{
    nb_tensor *x = VECTOR(NB_F64, 0, 0, 0, 0, 2);
    nb_tensor *y = VECTOR(NB_F64, 0, 1, 2, 0.5, 3);
    (void)state;
    IS(slope_of("pow", 0, x, y), NB_F64, 0, 1, 0, inf, 12);
    NEAR(slope_of("pow", 1, x, y), NB_F64, 1e-15, 0, 0, 0, 0, 8 * M_LN2);
    IS(slope_of("pow", 0, x, nb_count(0)), NB_F64, 0, 0, 0, 0, 0);
    IS(slope_of("pow", 0, x, nb_num(2)), NB_F64, 0, 0, 0, 0, 4);
}

/* d2/dx2 and d2/dxdy of log(e^x + e^y) at x = y are 1/4 and -1/4. */
static void logaddexp_curves_where_operands_are_equal(void **state)
{
    nb_tensor *x[] = {VECTOR(NB_F64, 1), VECTOR(NB_F64, 1)};
    nb_tensor *in[2], *g[2], *h[2];
    (void)state;
    uint64_t bit = nb_walk_begin(2, x, in);
    slopes("logaddexp", 2, in, g);
    nb_tensor *one = nb_fill_like(g[0], 1);
    assert_true(nb_walk_pull(bit, 2, in, 1, g, &one, h));
    nb_walk_end(bit);
    NEAR(h[0], NB_F64, 1e-15, 0.25);
    NEAR(h[1], NB_F64, 1e-15, -0.25);
}

/* Only x moves, y has the longer shape. */
static void a_tangent_has_the_shape_of_the_result(void **state)
{
    static const char *const names[] = {
        "mod", "nextafter", "copysign", "maximum", "pow", "div", "sub"};
    (void)state;
    for (int k = 0; k < 7; k++) {
        nb_tensor *x = VECTOR(NB_F64, 7), *u = VECTOR(NB_F64, 1), *in[2], *uy;
        uint64_t bit = nb_walk_begin(1, &x, in);
        in[1] = VECTOR(NB_F64, 2, 3, 5);
        nb_tensor *y = call(names[k], 2, in);
        assert_true(nb_walk_push(bit, 1, in, &u, 1, &y, &uy));
        nb_walk_end(bit);
        assert_int_equal(nb_elements(uy), 3);
    }
}

/* Extremes */

static void activations_hold_at_the_extremes(void **state)
{
    static const nb_dtype types[] = {NB_F16, NB_BF16, NB_F32, NB_F64};
    static const char *const names[] = {"silu", "gelu"};
    (void)state;
    for (int k = 0; k < 4; k++) {
        nb_dtype d = types[k];
        nb_tensor *x = VECTOR(d, -inf, -16384, 0, 16384, inf, nan_);
        IS(nb_sigmoid(x), d, 0, 0, 0.5, 1, 1, nan_);
        IS(slope("sigmoid", x), d, 0, 0, 0.25, 0, 0, nan_);
        IS(nb_gelu(x, "tanh"), d, 0, 0, 0, 16384, inf, nan_);
        for (int f = 0; f < 2; f++) {
            IS(call(names[f], 1, &x), d, 0, 0, 0, 16384, inf, nan_);
            IS(slope(names[f], x), d, 0, 0, 0.5, 1, 1, nan_);
        }
    }
}

static void gelu_is_exact_or_by_tanh(void **state)
{
    nb_tensor *x = VECTOR(NB_F64, 1, -3, -12);
    (void)state;
    NEAR(nb_gelu(x, NULL), NB_F64, 1e-13, 0.8413447460685429,
         -0.00404969409489028, -2.1317785344931838e-32);
    NEAR(nb_gelu(VECTOR(NB_F64, 1, -3), "tanh"), NB_F64, 1e-13,
         0.8411919906082768, -0.003637392081773019);
    NEAR(slope("gelu", VECTOR(NB_F64, 1, -3)), NB_F64, 1e-13,
         1.0833154705876864, -0.011945647204183929);
    refused(nb_gelu(x, "erf"), NB_EVALUE, "\"none\" or \"tanh\"");
}

static void logaddexp_holds_at_the_extremes(void **state)
{
    nb_tensor *x = VECTOR(NB_F32, inf, -inf, -inf, 1e38, -1e38, nan_);
    nb_tensor *y = VECTOR(NB_F32, inf, -inf, 1, 1e38, 3, 0);
    (void)state;
    IS(nb_logaddexp(x, y), NB_F32, inf, -inf, 1, (float)1e38, 3, nan_);
    IS(slope_of("logaddexp", 0, x, y), NB_F32, 0.5, 0.5, 0, 0.5, 0, nan_);
    IS(slope_of("logaddexp", 1, x, y), NB_F32, 0.5, 0.5, 1, 0.5, 1, nan_);
}

static void radii_neither_overflow_nor_divide_by_zero(void **state)
{
    nb_tensor *x = VECTOR(NB_F64, 3e300, 3e-300, 0);
    nb_tensor *y = VECTOR(NB_F64, 4e300, 4e-300, 0);
    (void)state;
    NEAR(nb_hypot(x, y), NB_F64, 1e-15, 5e300, 5e-300, 0);
    NEAR(slope_of("hypot", 0, x, y), NB_F64, 1e-15, 0.6, 0.6, 0);
    NEAR(slope_of("atan2", 1, x, y), NB_F64, 1e-15, -0.12e-300, -0.12e300, 0);
}

static void outside_a_domain_there_is_no_number(void **state)
{
    (void)state;
    IS(nb_acos(VECTOR(NB_F32, 2)), NB_F32, nan_);
    IS(nb_log(VECTOR(NB_F32, 0, -1)), NB_F32, -inf, nan_);
    IS(nb_sqrt(VECTOR(NB_F32, -1)), NB_F32, nan_);
    IS(nb_rsqrt(VECTOR(NB_F32, 0)), NB_F32, inf);
    IS(nb_atanh(VECTOR(NB_F32, 1, 2)), NB_F32, inf, nan_);
    IS(nb_div(VECTOR(NB_F32, 1, 0), nb_num(0)), NB_F32, inf, nan_);
}

static void nan_wins(void **state)
{
    nb_tensor *x = VECTOR(NB_F32, nan_, 1, nan_);
    nb_tensor *y = VECTOR(NB_F32, 1, nan_, nan_);
    (void)state;
    IS(nb_maximum(x, y), NB_F32, nan_, nan_, nan_);
    IS(nb_minimum(x, y), NB_F32, nan_, nan_, nan_);
    IS(nb_relu(x), NB_F32, nan_, 1, nan_);
}

static void nan_equals_nothing(void **state)
{
    nb_tensor *x = VECTOR(NB_F32, nan_);
    (void)state;
    IS(nb_equal(x, x), NB_BOOL, 0);
    IS(nb_not_equal(x, x), NB_BOOL, 1);
    IS(nb_less_equal(x, x), NB_BOOL, 0);
    IS(nb_greater_equal(x, x), NB_BOOL, 0);
    IS(nb_logical_and(x, nb_num(2)), NB_BOOL, 1);
}

/* Rounding and integers */

static void halves_round_to_even(void **state)
{
    (void)state;
    IS(nb_round(VECTOR(NB_F32, 0.5, 1.5, 2.5, -0.5, -1.5)), NB_F32, 0, 2, 2, 0,
       -2);
}

static void whole_numbers_stay_what_they_are(void **state)
{
    nb_tensor *x = VECTOR(NB_I8, -3, 4), *t = VECTOR(NB_BOOL, 0, 1);
    (void)state;
    IS(nb_floor(x), NB_I8, -3, 4);
    IS(nb_ceil(x), NB_I8, -3, 4);
    IS(nb_trunc(x), NB_I8, -3, 4);
    IS(nb_round(t), NB_BOOL, 0, 1);
    IS(nb_abs(t), NB_BOOL, 0, 1);
    IS(nb_is_nan(x), NB_BOOL, 0, 0);
    IS(nb_isfinite(x), NB_BOOL, 1, 1);
    IS(nb_nan_to_num(x, 7, nan_, nan_), NB_I8, -3, 4);
}

static void functions_of_integers_are_of_the_default_float(void **state)
{
    (void)state;
    IS(nb_sqrt(VECTOR(NB_I64, 4, 9)), NB_F32, 2, 3);
    IS(nb_div(VECTOR(NB_I8, 1), VECTOR(NB_U8, 4)), NB_F32, 0.25);
    IS(nb_exp(VECTOR(NB_BOOL, 0)), NB_F32, 1);
    IS(nb_reciprocal(VECTOR(NB_I32, 4)), NB_F32, 0.25);
}

static void division_rounds_down_and_never_traps(void **state)
{
    nb_tensor *x = VECTOR(NB_I8, 7, -7, 7, -128, 5);
    nb_tensor *y = VECTOR(NB_I8, 2, 2, -2, -1, 0);
    (void)state;
    IS(nb_floor_divide(x, y), NB_I8, 3, -4, -4, -128, 0);
    IS(nb_mod(x, y), NB_I8, 1, 1, -1, 0, 0);
    x = VECTOR(NB_F64, 7, -7, -5, inf, 5, 1);
    y = VECTOR(NB_F64, -2, 2, inf, 2, 0, 0.1);
    IS(nb_floor_divide(x, y), NB_F64, -4, -4, -1, nan_, inf, 9);
    NEAR(nb_mod(x, y), NB_F64, 1e-14, -1, 1, inf, nan_, nan_,
         0.09999999999999995);
}

static void integers_wrap(void **state)
{
    (void)state;
    IS(nb_neg(VECTOR(NB_U8, 1)), NB_U8, 255);
    IS(nb_abs(VECTOR(NB_I8, -128)), NB_I8, -128);
    IS(nb_pow(VECTOR(NB_I8, 2, -2, 3), VECTOR(NB_I8, 7, 7, 5)), NB_I8, -128,
       -128, -13);
    IS(nb_pow(VECTOR(NB_I32, 1, -1, -1, 2), VECTOR(NB_I32, -3, -3, -2, -1)),
       NB_I32, 1, -1, 1, 0);
}

static void an_integer_has_no_negative_power_by_number(void **state)
{
    nb_tensor *x = VECTOR(NB_I32, 1, 2);
    (void)state;
    refused(nb_pow(x, nb_count(-1)), NB_EVALUE, "int32 to the power -1");
    refused(nb_pow(VECTOR(NB_BOOL, 1), nb_count(-1)), NB_EVALUE, "power -1");
    IS(nb_pow(x, nb_num(-1)), NB_F32, 1, 0.5);
    IS(nb_pow(x, nb_count(2)), NB_I32, 1, 4);
    IS(nb_pow(VECTOR(NB_F64, 2), nb_count(-1)), NB_F64, 0.5);
}

static void shifts_by_the_width_empty_a_number(void **state)
{
    nb_tensor *x = VECTOR(NB_I8, 3, -3, 3, -3, 3);
    nb_tensor *y = VECTOR(NB_I8, 1, 1, 8, 9, -1);
    (void)state;
    IS(nb_bitwise_left_shift(x, y), NB_I8, 6, -6, 0, 0, 0);
    IS(nb_bitwise_right_shift(x, y), NB_I8, 1, -2, 0, -1, 0);
    IS(nb_bitwise_right_shift(VECTOR(NB_U8, 255), nb_count(4)), NB_U8, 15);
}

static void bits_of_bools_are_logic(void **state)
{
    nb_tensor *x = VECTOR(NB_BOOL, 0, 0, 1, 1);
    nb_tensor *y = VECTOR(NB_BOOL, 0, 1, 0, 1);
    (void)state;
    IS(nb_bitwise_and(x, y), NB_BOOL, 0, 0, 0, 1);
    IS(nb_bitwise_or(x, y), NB_BOOL, 0, 1, 1, 1);
    IS(nb_bitwise_xor(x, y), NB_BOOL, 0, 1, 1, 0);
    IS(nb_bitwise_invert(x), NB_BOOL, 1, 1, 0, 0);
    IS(nb_bitwise_invert(VECTOR(NB_U8, 1)), NB_U8, 254);
}

static void what_makes_no_sense_is_refused(void **state)
{
    nb_tensor *t = VECTOR(NB_BOOL, 1), *x = VECTOR(NB_F32, 1);
    (void)state;
    refused(nb_neg(t), NB_ETYPE, "neg: does not take bool");
    refused(nb_sub(t, t), NB_ETYPE, "sub: does not take bool");
    refused(nb_positive(t), NB_ETYPE, "positive: does not take bool");
    refused(nb_bitwise_and(x, x), NB_ETYPE, "bitwise_and: does not take");
    refused(nb_bitwise_invert(x), NB_ETYPE, "bitwise_invert: does not take");
    refused(nb_bitwise_left_shift(nb_count(1), x), NB_ETYPE, "float32");
    refused(nb_bitwise_right_shift(t, t), NB_ETYPE, "does not take bool");
    refused(nb_equal(VECTOR(NB_U8, 1), nb_count(300)), NB_EOVERFLOW, "300");
}

/* Sixteen bits, bounds, replacements */

static void a_neighbour_is_one_of_the_dtype(void **state)
{
    nb_tensor *up = nb_num(INFINITY), *down = nb_num(0);
    nb_tensor *x = VECTOR(NB_F16, 0, 1, 65504, inf);
    nb_tensor *b = VECTOR(NB_BF16, 0, 1, 0x1.fep127, inf);
    (void)state;
    IS(nb_nextafter(x, up), NB_F16, 0x1p-24, 1 + 0x1p-10, inf, inf);
    IS(nb_nextafter(x, down), NB_F16, 0, 1 - 0x1p-11, 65472, 65504);
    IS(nb_nextafter(b, up), NB_BF16, 0x1p-133, 1 + 0x1p-7, inf, inf);
    IS(nb_nextafter(b, down), NB_BF16, 0, 1 - 0x1p-8, 0x1.fcp127, 0x1.fep127);
    IS(nb_nextafter(VECTOR(NB_F32, 1), up), NB_F32, 1 + 0x1p-23);
    IS(nb_nextafter(x, nb_num(NAN)), NB_F16, nan_, nan_, nan_, nan_);
}

static void nan_to_num_goes_to_the_ends_of_the_dtype(void **state)
{
    nb_tensor *x = VECTOR(NB_F16, nan_, inf, -inf, 2);
    (void)state;
    IS(nb_nan_to_num(x, 0, nan_, nan_), NB_F16, 0, 65504, -65504, 2);
    IS(nb_nan_to_num(x, 1, 3, 4), NB_F16, 1, 3, 4, 2);
    IS(nb_nan_to_num(VECTOR(NB_BF16, inf), 0, nan_, nan_), NB_BF16, 0x1.fep127);
    IS(nb_nan_to_num(VECTOR(NB_F32, -inf), 0, nan_, nan_), NB_F32, -FLT_MAX);
    IS(slope("nan_to_num", x), NB_F16, 0, 0, 0, 1);
}

static void clip_keeps_integers_and_crossed_bounds_give_max(void **state)
{
    nb_tensor *x = VECTOR(NB_I16, -5, 0, 5);
    (void)state;
    IS(nb_clip(x, nb_count(-1), nb_count(2)), NB_I16, -1, 0, 2);
    IS(nb_clip(x, nb_count(2), nb_count(-1)), NB_I16, -1, -1, -1);
    IS(nb_clip(x, nb_num(-1.5), nb_count(2)), NB_F32, -1.5, 0, 2);
}

static void zeros_keep_their_sign_where_it_is_asked_for(void **state)
{
    nb_tensor *x = VECTOR(NB_F32, -0.0, 0, -1, nan_);
    (void)state;
    IS(nb_signbit(x), NB_BOOL, 1, 0, 1, signbit(nan_) != 0);
    IS(nb_copysign(nb_num(2), VECTOR(NB_F32, -0.0, 0)), NB_F32, -2, 2);
    IS(nb_signbit(VECTOR(NB_I8, -1, 0)), NB_BOOL, 1, 0);
    IS(nb_sign(x), NB_F32, 0, 0, -1, nan_);
}

/* Shapes */

static void every_shape_works(void **state)
{
    int64_t none[] = {2, 0}, ones[NB_MAX_RANK];
    double v = 4;
    (void)state;
    for (int d = 0; d < NB_MAX_RANK; d++)
        ones[d] = 1;
    nb_tensor *empty = given(NB_F64, 2, none, &v);
    nb_tensor *deep = given(NB_F64, NB_MAX_RANK, ones, &v);
    nb_tensor *scalar = given(NB_F64, 0, NULL, &v);
    assert_int_equal(nb_elements(nb_gelu(nb_sqrt(empty), NULL)), 0);
    assert_int_equal(nb_realize(nb_maximum(empty, scalar)), NB_OK);
    IS(nb_sqrt(scalar), NB_F64, 2);
    IS(nb_pow(deep, scalar), NB_F64, 256);
    IS(nb_where(nb_greater(deep, scalar), deep, nb_num(1)), NB_F64, 1);
}

static void where_promotes_its_choices_only(void **state)
{
    nb_tensor *c = VECTOR(NB_F64, 0, 2);
    (void)state;
    IS(nb_where(c, VECTOR(NB_I8, 1, 2), VECTOR(NB_U8, 3, 4)), NB_I16, 3, 2);
    IS(nb_where(c, VECTOR(NB_F16, 1, 2), nb_num(0.5)), NB_F16, 0.5, 2);
}

#define T(name) cmocka_unit_test_setup_teardown(name, open_scope, close_scope)

int main(void)
{
    there_open();
    const struct CMUnitTest tests[] = {
        T(relu_and_abs_have_slope_zero_at_zero),
        T(steps_have_no_slope),
        T(equal_operands_of_an_extremum_get_all),
        T(mod_falls_with_the_floor_of_the_quotient),
        T(powers_of_zero_have_slopes),
        T(logaddexp_curves_where_operands_are_equal),
        T(a_tangent_has_the_shape_of_the_result),
        T(activations_hold_at_the_extremes),
        T(gelu_is_exact_or_by_tanh),
        T(logaddexp_holds_at_the_extremes),
        T(radii_neither_overflow_nor_divide_by_zero),
        T(outside_a_domain_there_is_no_number),
        T(nan_wins),
        T(nan_equals_nothing),
        T(halves_round_to_even),
        T(whole_numbers_stay_what_they_are),
        T(functions_of_integers_are_of_the_default_float),
        T(division_rounds_down_and_never_traps),
        T(integers_wrap),
        T(an_integer_has_no_negative_power_by_number),
        T(shifts_by_the_width_empty_a_number),
        T(bits_of_bools_are_logic),
        T(what_makes_no_sense_is_refused),
        T(a_neighbour_is_one_of_the_dtype),
        T(nan_to_num_goes_to_the_ends_of_the_dtype),
        T(clip_keeps_integers_and_crossed_bounds_give_max),
        T(zeros_keep_their_sign_where_it_is_asked_for),
        T(every_shape_works),
        T(where_promotes_its_choices_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
