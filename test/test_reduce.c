/* test_reduce.c - what the laws do not say of reductions and scans: dtypes,
 * emptiness, zeros and infinities, layouts, refusals, lack of memory.
 *
 * A derivative is that of the sum of the result. */
#include "ops/reduce.h"
#include "support/faults.h"
#include "support/sentence.h"
#include "support/there.h"
#include "transform/derive.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 64 };
static const double inf = INFINITY, nan_ = NAN;

#define SHAPE(...)                                                         \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }
#define AXIS(a)    \
    1, (int64_t[]) \
    {              \
        a          \
    }
#define ALL -1, NULL

/* 0, 1, 2, ... of some shape. */
static nb_tensor *counting(nb_dtype d, int rank, const int64_t *shape)
{
    double v[MOST];
    for (int i = 0; i < MOST; i++)
        v[i] = i;
    return nb_cast(given(NB_F64, rank, shape, v), d);
}

/* Calls with a dtype, which the C functions do not take. */
static nb_tensor *total(nb_op *op, nb_tensor *x, nb_dtype d)
{
    nb_value v[] = {NB_V_NONE, NB_V_INT(false), NB_V_INT(d)};
    return nb_apply(op, 1, &x, 3, v, NULL);
}

typedef nb_tensor *function(nb_tensor *x);

/* The derivative of the sum of f(x). */
static nb_tensor *slope(function *f, nb_tensor *x)
{
    nb_tensor *fresh, *g = NULL;
    uint64_t bit = nb_walk_begin(1, &x, &fresh);
    assert_true(bit != 0);
    nb_tensor *y = f(fresh), *one = nb_fill_like(y, 1);
    assert_true(nb_walk_pull(bit, 1, &fresh, 1, &y, &one, &g));
    nb_walk_end(bit);
    return g;
}

static nb_tensor *prod_all(nb_tensor *x)
{
    return nb_prod(x, ALL, false);
}

static nb_tensor *prod_slope(nb_tensor *x)
{
    return slope(prod_all, x);
}

static nb_tensor *running(nb_tensor *x)
{
    return nb_cumprod(x, 0, false, false);
}

static nb_tensor *running_slope(nb_tensor *x)
{
    return slope(running, x);
}

static nb_tensor *largest(nb_tensor *x)
{
    return nb_reduce_max(x, ALL, false);
}

static nb_tensor *length(nb_tensor *x)
{
    return nb_norm(x, NULL, ALL, false);
}

static nb_tensor *cubic_length(nb_tensor *x)
{
    return nb_norm(x, &(double){3}, ALL, false);
}

static nb_tensor *log_sum(nb_tensor *x)
{
    return nb_logsumexp(x, ALL, false);
}

static nb_tensor *wide_sum(nb_tensor *x)
{
    return total(&nb_op_reduce_sum, x, NB_F64);
}

static nb_tensor *wide_prod(nb_tensor *x)
{
    return total(&nb_op_prod, x, NB_F64);
}

/* Dtypes */

static void narrow_integers_add_up_in_64_bits(void **state)
{
    nb_tensor *x = VECTOR(NB_I8, 100, 100, -1), *u = VECTOR(NB_U8, 200, 200);
    (void)state;
    IS(nb_reduce_sum(x, ALL, false), NB_I64, 199);
    IS(nb_reduce_sum(u, ALL, false), NB_U64, 400);
    IS(nb_prod(x, ALL, false), NB_I64, -10000);
    IS(nb_cumsum(u, 0, false, false), NB_U64, 200, 400);
    IS(nb_cumprod(x, 0, false, false), NB_I64, 100, 10000, -10000);
    IS(nb_reduce_sum(VECTOR(NB_BOOL, 1, 1, 0), ALL, false), NB_I64, 2);
}

static void a_dtype_is_that_of_the_total(void **state)
{
    nb_tensor *x = VECTOR(NB_I32, 3, 4, 5);
    (void)state;
    IS(total(&nb_op_reduce_sum, x, NB_F32), NB_F32, 12);
    IS(total(&nb_op_prod, x, NB_I8), NB_I8, 60);
    IS(total(&nb_op_reduce_sum, VECTOR(NB_F32, 1.5, 1.5), NB_I64), NB_I64, 2);
    refused(total(&nb_op_reduce_sum, x, NB_NDTYPES), NB_ETYPE,
            "reduce_sum: 14 is not a dtype");
}

static void a_dtype_is_what_totals_are_made_in(void **state)
{
    nb_tensor *x = VECTOR(NB_F32, 16777216, 1, 1);
    (void)state;
    IS(nb_reduce_sum(x, ALL, false), NB_F32, 16777216);
    IS(total(&nb_op_reduce_sum, x, NB_F64), NB_F64, 16777218);
}

static void a_derivative_has_the_dtype_of_the_input(void **state)
{
    nb_tensor *x = VECTOR(NB_F16, 2, 3, 4);
    (void)state;
    IS(slope(wide_sum, x), NB_F16, 1, 1, 1);
    IS(slope(wide_prod, x), NB_F16, 12, 8, 6);
}

static void halves_round_once_at_the_end(void **state)
{
    static const nb_dtype half[] = {NB_F16, NB_BF16};
    (void)state;
    for (int k = 0; k < 2; k++) {
        nb_tensor *x = VECTOR(half[k], 49152, 49152, 49152, 49152);
        nb_tensor *one = nb_broadcast_to(VECTOR(half[k], 1), SHAPE(4096));
        IS(nb_mean(x, ALL, false), half[k], 49152);
        IS(nb_var(x, ALL, 0, false), half[k], 0);
        IS(nb_reduce_sum(one, ALL, false), half[k], 4096);
        IS(nb_logsumexp(nb_sub(one, nb_num(1)), ALL, false), half[k],
           k ? 8.3125 : 8.3203125);
    }
    IS(nb_cumsum(VECTOR(NB_F16, 2048, 1, 1), 0, false, false), NB_F16, 2048,
       2048, 2050);
    IS(nb_cumsum(VECTOR(NB_BF16, 256, 1, 1), 0, false, false), NB_BF16, 256,
       256, 258);
}

static void integers_average_in_the_default_float(void **state)
{
    nb_tensor *x = VECTOR(NB_I64, 1, 2);
    (void)state;
    IS(nb_mean(x, ALL, false), NB_F32, 1.5);
    IS(nb_std(VECTOR(NB_BOOL, 0, 1), ALL, 0, false), NB_F32, 0.5);
    IS(nb_softmax(nb_sub(x, x), 0), NB_F32, 0.5, 0.5);
}

static void counts_are_int64(void **state)
{
    (void)state;
    IS(nb_count_nonzero(VECTOR(NB_F16, 0, -0.0, nan_, 3), ALL, false), NB_I64,
       2);
    IS(nb_count_nonzero(VECTOR(NB_U8, 0, 1, 2), ALL, false), NB_I64, 2);
}

/* Emptiness and rank 0 */

static void nothing_adds_up_to_nothing(void **state)
{
    nb_tensor *x = counting(NB_F32, SHAPE(2, 0));
    (void)state;
    IS(nb_reduce_sum(x, AXIS(1), false), NB_F32, 0, 0);
    IS(nb_prod(x, AXIS(1), false), NB_F32, 1, 1);
    IS(nb_mean(x, AXIS(1), false), NB_F32, nan_, nan_);
    IS(nb_var(x, AXIS(1), 0, false), NB_F32, nan_, nan_);
    IS(nb_all(x, AXIS(1), false), NB_BOOL, 1, 1);
    IS(nb_any(x, AXIS(1), false), NB_BOOL, 0, 0);
    IS(nb_logsumexp(x, AXIS(1), false), NB_F32, -inf, -inf);
    has_shape(nb_softmax(x, 1), SHAPE(2, 0));
    has_shape(nb_cumsum(x, 1, true, true), SHAPE(2, 0));
    has_shape(nb_reduce_max(x, AXIS(0), true), SHAPE(1, 0));
    assert_int_equal(nb_realize(nb_cumprod(x, 0, true, false)), NB_OK);
}

static void nothing_has_no_extremum(void **state)
{
    nb_tensor *x = counting(NB_F32, SHAPE(2, 0));
    nb_tensor *out[2];
    (void)state;
    refused(nb_reduce_max(x, AXIS(1), false), NB_EVALUE,
            "reduce_max: axis 1 has no elements");
    refused(nb_reduce_min(x, ALL, false), NB_EVALUE, "reduce_min: axis 1");
    assert_int_equal(nb_minmax(x, out), NB_EVALUE);
    nb_error_clear();
    refused(nb_norm(x, &inf, AXIS(1), false), NB_EVALUE, "no elements");
}

static void a_scalar_stays_what_it_is(void **state)
{
    nb_tensor *x = nb_scalar_float(3, NB_F64);
    (void)state;
    has_shape(nb_reduce_sum(x, ALL, true), 0, NULL);
    IS(nb_reduce_sum(x, ALL, true), NB_F64, 3);
    IS(nb_prod(x, ALL, false), NB_F64, 3);
    IS(nb_reduce_max(x, ALL, false), NB_F64, 3);
    IS(nb_mean(x, ALL, false), NB_F64, 3);
    IS(nb_norm(x, NULL, ALL, false), NB_F64, 3);
    IS(slope(prod_all, x), NB_F64, 1);
    refused(nb_reduce_sum(x, AXIS(0), false), NB_EAXIS, "axis 0");
}

static void no_axes_reduce_nothing(void **state)
{
    nb_tensor *x = counting(NB_I8, SHAPE(2, 2));
    (void)state;
    IS(nb_reduce_sum(x, 0, (int64_t[]){0}, false), NB_I64, 0, 1, 2, 3);
    IS(nb_reduce_max(x, 0, (int64_t[]){0}, false), NB_I8, 0, 1, 2, 3);
    IS(nb_any(x, 0, (int64_t[]){0}, false), NB_BOOL, 0, 1, 1, 1);
}

static void axes_may_be_negative_and_not_twice(void **state)
{
    nb_tensor *x = counting(NB_I64, SHAPE(2, 3, 2));
    (void)state;
    IS(nb_reduce_sum(x, 2, (int64_t[]){-1, 0}, false), NB_I64, 14, 22, 30);
    has_shape(nb_reduce_sum(x, 2, (int64_t[]){-1, 0}, true), SHAPE(1, 3, 1));
    refused(nb_reduce_sum(x, 2, (int64_t[]){-1, 2}, false), NB_EVALUE, "twice");
    refused(nb_reduce_sum(x, AXIS(3), false), NB_EAXIS, "rank 3");
}

static void sixteen_axes_are_reduced(void **state)
{
    int64_t shape[16] = {2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1, 3};
    nb_tensor *x = counting(NB_F32, 16, shape);
    (void)state;
    IS(nb_reduce_sum(x, ALL, false), NB_F32, 66);
    IS(nb_prod(x, AXIS(15), false), NB_F32, 0, 60, 336, 990);
    IS(nb_cumsum(x, 7, false, false), NB_F32, 0, 1, 2, 3, 5, 7, 6, 7, 8, 15, 17,
       19);
}

/* Derivatives where division would fail */

static void zeros_do_not_spoil_the_slope_of_a_product(void **state)
{
    (void)state;
    IS(slope(prod_all, VECTOR(NB_F64, 2, 3, 4)), NB_F64, 12, 8, 6);
    IS(slope(prod_all, VECTOR(NB_F64, 2, 0, 4)), NB_F64, 0, 8, 0);
    IS(slope(prod_all, VECTOR(NB_F64, 0, 0, 4)), NB_F64, 0, 0, 0);
    IS(slope(prod_all, nb_reshape(VECTOR(NB_F64, 2, 0, 4, 5), SHAPE(2, 2))),
       NB_F64, 0, 40, 0, 0);
}

/* x y z has the second derivatives 0 z y, z 0 x, y x 0; summed by rows. */
static void nor_its_second_derivative(void **state)
{
    (void)state;
    IS(slope(prod_slope, VECTOR(NB_F64, 2, 3, 4)), NB_F64, 7, 6, 5);
    IS(slope(prod_slope, VECTOR(NB_F64, 0, 0, 4)), NB_F64, 4, 4, 0);
}

/* y = x, xy, xyz: slopes 1 + y + yz, x + xz, xy. */
static void zeros_do_not_spoil_the_slope_of_a_running_product(void **state)
{
    (void)state;
    IS(slope(running, VECTOR(NB_F64, 2, 3, 4)), NB_F64, 16, 10, 6);
    IS(slope(running, VECTOR(NB_F64, 2, 0, 4)), NB_F64, 1, 10, 0);
    IS(slope(running, VECTOR(NB_F64, 0, 0, 4)), NB_F64, 1, 0, 0);
    IS(slope(running_slope, VECTOR(NB_F64, 2, 0, 4)), NB_F64, 5, 7, 2);
}

static void all_equal_maxima_get_the_whole_slope(void **state)
{
    (void)state;
    IS(slope(largest, VECTOR(NB_F32, 1, 5, 5, 2)), NB_F32, 0, 1, 1, 0);
}

static void a_norm_has_slope_zero_at_the_origin(void **state)
{
    (void)state;
    IS(slope(length, VECTOR(NB_F64, 0, 0)), NB_F64, 0, 0);
    IS(slope(cubic_length, VECTOR(NB_F64, 0, 0)), NB_F64, 0, 0);
    NEAR(slope(length, VECTOR(NB_F64, 3, 4)), NB_F64, 1e-15, 0.6, 0.8);
}

/* Numbers at the ends of the range */

static void exponentials_do_not_overflow(void **state)
{
    nb_tensor *x = VECTOR(NB_F32, 1000, 1000);
    (void)state;
    NEAR(nb_logsumexp(x, ALL, false), NB_F32, 1e-7, 1000.693147);
    IS(nb_softmax(x, 0), NB_F32, 0.5, 0.5);
    NEAR(nb_logsoftmax(x, 0), NB_F32, 1e-6, -0.69314718, -0.69314718);
    IS(nb_softmax(VECTOR(NB_F32, 0, -inf), 0), NB_F32, 1, 0);
}

static void infinities_pass_through_logsumexp(void **state)
{
    (void)state;
    IS(nb_logsumexp(VECTOR(NB_F64, -inf, -inf), ALL, false), NB_F64, -inf);
    IS(nb_logsumexp(VECTOR(NB_F64, 1, inf), ALL, false), NB_F64, inf);
    IS(nb_logsumexp(VECTOR(NB_F64, 1, nan_), ALL, false), NB_F64, nan_);
    IS(slope(log_sum, VECTOR(NB_F64, -inf, 0)), NB_F64, 0, 1);
}

static void nan_wins_an_extremum(void **state)
{
    nb_tensor *x = VECTOR(NB_F32, 1, nan_, 3), *out[2];
    (void)state;
    assert_int_equal(nb_minmax(x, out), NB_OK);
    IS(out[0], NB_F32, nan_);
    IS(out[1], NB_F32, nan_);
}

static void an_infinite_factor_stays_in_its_place(void **state)
{
    nb_tensor *a = VECTOR(NB_F64, inf, 2, 3), *b = VECTOR(NB_F64, 1, 1, 1);
    (void)state;
    IS(nb_linear_scan(a, b, 0, false, false), NB_F64, 1, 3, 10);
    IS(nb_linear_scan(a, b, 0, true, false), NB_F64, 0, 1, 3);
    IS(nb_linear_scan(b, a, 0, false, true), NB_F64, inf, 5, 3);
}

/* Norms */

static void vectors_have_many_norms(void **state)
{
    static const double ord[] = {0, 1, 2, 3, INFINITY, -INFINITY, -1};
    static const double norm[] = {2, 7, 5, 4.497941445275415, 4, 0, 0};
    nb_tensor *x = VECTOR(NB_F64, 3, 0, -4);
    (void)state;
    for (int k = 0; k < 7; k++)
        NEAR(nb_norm(x, &ord[k], ALL, false), NB_F64, 1e-15, norm[k]);
}

static void matrices_have_norms_over_two_axes(void **state)
{
    nb_tensor *x = nb_reshape(VECTOR(NB_F64, 1, -2, 3, 4), SHAPE(2, 2));
    (void)state;
    IS(nb_norm(x, &(double){1}, ALL, false), NB_F64, 6);
    IS(nb_norm(x, &(double){-1}, ALL, false), NB_F64, 4);
    IS(nb_norm(x, &inf, ALL, true), NB_F64, 7);
    IS(nb_norm(x, &(double){-INFINITY}, 2, (int64_t[]){1, 0}, false), NB_F64,
       4);
    refused(nb_norm(x, &(double){2}, ALL, false), NB_EVALUE,
            "linalg.matrix_norm");
    refused(nb_norm(x, &(double){3}, ALL, false), NB_EVALUE,
            "not a matrix norm");
    refused(nb_norm(counting(NB_F32, SHAPE(1, 1, 1)), &inf, ALL, false),
            NB_EVALUE, "over 3 axes");
}

static void a_correction_above_the_count_divides_by_zero(void **state)
{
    (void)state;
    IS(nb_var(VECTOR(NB_F64, 1, 3), ALL, 1, false), NB_F64, 2);
    IS(nb_var(VECTOR(NB_F64, 1, 3), ALL, 2, false), NB_F64, inf);
    IS(nb_var(VECTOR(NB_F64, 1), ALL, 1, false), NB_F64, nan_);
}

/* Scans */

static void scans_run_either_way_with_or_without_their_element(void **state)
{
    nb_tensor *x = VECTOR(NB_I32, 1, 2, 3);
    (void)state;
    IS(nb_cumsum(x, 0, false, false), NB_I64, 1, 3, 6);
    IS(nb_cumsum(x, 0, true, false), NB_I64, 0, 1, 3);
    IS(nb_cumsum(x, 0, false, true), NB_I64, 6, 5, 3);
    IS(nb_cumsum(x, 0, true, true), NB_I64, 5, 3, 0);
    IS(nb_cumprod(x, -1, true, false), NB_I64, 1, 1, 2);
    IS(nb_cumprod(x, -1, true, true), NB_I64, 6, 3, 1);
    refused(nb_cumsum(x, 1, false, false), NB_EAXIS, "cumsum");
}

static void scans_follow_any_layout(void **state)
{
    nb_tensor *x = counting(NB_F32, SHAPE(2, 3));
    nb_tensor *t = nb_permute(x, 2, (int64_t[]){1, 0});
    nb_tensor *many = nb_broadcast_to(VECTOR(NB_F32, 1), SHAPE(2, 2));
    (void)state;
    IS(nb_cumsum(t, 0, false, false), NB_F32, 0, 3, 1, 7, 3, 12);
    IS(nb_cumsum(t, 1, false, false), NB_F32, 0, 3, 1, 5, 2, 7);
    IS(nb_cumsum(many, 0, false, false), NB_F32, 1, 1, 2, 2);
    IS(nb_cumsum(nb_cast(t, NB_BF16), 0, false, false), NB_BF16, 0, 3, 1, 7, 3,
       12);
}

static void integers_wrap_around(void **state)
{
    int64_t v[] = {INT64_MAX, 1};
    nb_tensor *x = given(NB_I64, 1, (int64_t[]){2}, v);
    (void)state;
    assert_int_equal(nb_read(nb_cumsum(x, 0, false, false), NB_I64, v), NB_OK);
    assert_true(v[0] == INT64_MAX && v[1] == INT64_MIN);
}

static void differences_shrink_the_axis(void **state)
{
    nb_tensor *x = VECTOR(NB_I16, 1, 4, 9);
    (void)state;
    IS(nb_diff(x, 0, 1), NB_I16, 3, 5);
    IS(nb_diff(x, 0, 0), NB_I16, 1, 4, 9);
    has_shape(nb_diff(x, 0, 7), SHAPE(0));
    IS(nb_diff(VECTOR(NB_BOOL, 1, 1, 0), -1, 1), NB_BOOL, 0, 1);
    refused(nb_diff(x, 0, -1), NB_EVALUE, "diff: n is -1");
}

/* Memory */

static bool everything(void *unused)
{
    nb_tensor *x = VECTOR(NB_F16, 1, 2, 0, 4), *out[2], *fresh, *g = NULL;
    (void)unused;
    nb_tensor *y =
        nb_add(nb_var(x, ALL, 1, false), nb_norm(x, &inf, ALL, true));
    bool ok = nb_realize(y) == NB_OK && nb_minmax(x, out) == NB_OK &&
              nb_realize(nb_logsoftmax(x, 0)) == NB_OK;
    nb_tensor *m = nb_reshape(x, SHAPE(2, 2));
    uint64_t bit = ok && m ? nb_walk_begin(1, &m, &fresh) : 0;
    if (bit) {
        y = nb_prod(nb_cumprod(fresh, 1, true, true), ALL, false);
        nb_tensor *one = y ? nb_fill_like(y, 1) : NULL;
        ok = one && nb_walk_pull(bit, 1, &fresh, 1, &y, &one, &g) &&
             nb_realize(g) == NB_OK;
        nb_walk_end(bit);
    }
    return ok && bit;
}

static void every_allocation_may_fail(void **state)
{
    faults f = {.run = everything};
    (void)state;
    assert_true(faults_survived(&f));
}

#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, open_scope, close_scope)

int main(void)
{
    there_open();
    const struct CMUnitTest tests[] = {
        TEST(narrow_integers_add_up_in_64_bits),
        TEST(a_dtype_is_that_of_the_total),
        TEST(a_dtype_is_what_totals_are_made_in),
        TEST(a_derivative_has_the_dtype_of_the_input),
        TEST(halves_round_once_at_the_end),
        TEST(integers_average_in_the_default_float),
        TEST(counts_are_int64),
        TEST(nothing_adds_up_to_nothing),
        TEST(nothing_has_no_extremum),
        TEST(a_scalar_stays_what_it_is),
        TEST(no_axes_reduce_nothing),
        TEST(axes_may_be_negative_and_not_twice),
        TEST(sixteen_axes_are_reduced),
        TEST(zeros_do_not_spoil_the_slope_of_a_product),
        TEST(nor_its_second_derivative),
        TEST(zeros_do_not_spoil_the_slope_of_a_running_product),
        TEST(all_equal_maxima_get_the_whole_slope),
        TEST(a_norm_has_slope_zero_at_the_origin),
        TEST(exponentials_do_not_overflow),
        TEST(infinities_pass_through_logsumexp),
        TEST(nan_wins_an_extremum),
        TEST(an_infinite_factor_stays_in_its_place),
        TEST(vectors_have_many_norms),
        TEST(matrices_have_norms_over_two_axes),
        TEST(a_correction_above_the_count_divides_by_zero),
        TEST(scans_run_either_way_with_or_without_their_element),
        TEST(scans_follow_any_layout),
        TEST(integers_wrap_around),
        TEST(differences_shrink_the_axis),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
