/* test_sort.c - what the laws do not say of sorting, searching and sets: dtypes
 * and their ends, NaN, equals, layouts, refusals, lack of memory. */
#include "ops/reduce.h"
#include "support/faults.h"
#include "support/sentence.h"
#include "support/there.h"
#include "transform/derive.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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

static nb_tensor *matrix(nb_dtype d, int64_t m, int64_t n, const double *v)
{
    return nb_cast(given(NB_F64, 2, (int64_t[]){m, n}, v), d);
}

/* Order */

static void every_dtype_is_sorted(void **state)
{
    (void)state;
    for (int d = NB_I8; d < NB_NDTYPES; d++) {
        nb_tensor *x = VECTOR((nb_dtype)d, 3, 1, 120, 2, 0);
        IS(nb_sort(x, 0, false, true), (nb_dtype)d, 0, 1, 2, 3, 120);
        IS(nb_argsort(x, 0, true, true), NB_I64, 2, 0, 3, 1, 4);
    }
    IS(nb_argsort(VECTOR(NB_BOOL, 1, 0, 1, 0), 0, false, true), NB_I64, 1, 3, 0,
       2);
    IS(nb_sort(VECTOR(NB_I8, 5, -128, 127, -1), 0, false, true), NB_I8, -128,
       -1, 5, 127);
    IS(nb_sort(VECTOR(NB_BF16, 1, -inf, -2, inf), 0, false, true), NB_BF16,
       -inf, -2, 1, inf);
}

static void the_ends_of_64_bits_are_in_order(void **state)
{
    int64_t v[] = {0, INT64_MAX, INT64_MIN, -1};
    uint64_t u[] = {1, UINT64_MAX, 0, (uint64_t)1 << 63};
    nb_tensor *x = given(NB_I64, 1, (int64_t[]){4}, v);
    nb_tensor *y = given(NB_U64, 1, (int64_t[]){4}, u);
    (void)state;
    IS(nb_argsort(x, 0, false, true), NB_I64, 2, 3, 0, 1);
    IS(nb_argsort(y, 0, false, true), NB_I64, 2, 0, 3, 1);
    IS(nb_argmax(x, 0, false), NB_I64, 1);
    IS(nb_argmin(x, 0, false), NB_I64, 2);
    IS(nb_argmax(y, 0, false), NB_I64, 1);
    IS(nb_argmin(y, 0, false), NB_I64, 2);
}

static void nan_is_the_greatest(void **state)
{
    nb_tensor *x = VECTOR(NB_F32, nan_, 1, inf, nan_, -inf), *out[2];
    (void)state;
    IS(nb_argsort(x, 0, false, true), NB_I64, 4, 1, 2, 0, 3);
    IS(nb_argsort(x, 0, true, true), NB_I64, 0, 3, 2, 1, 4);
    assert_int_equal(nb_topk(x, 3, 0, true, out), NB_OK);
    IS(out[0], NB_F32, nan_, nan_, inf);
    IS(out[1], NB_I64, 0, 3, 2);
}

static void equals_stay_in_order_both_ways(void **state)
{
    nb_tensor *x = VECTOR(NB_F64, 1, 0.0, -0.0, 1, 0.0);
    (void)state;
    IS(nb_argsort(x, 0, false, true), NB_I64, 1, 2, 4, 0, 3);
    IS(nb_argsort(x, 0, true, true), NB_I64, 0, 3, 1, 2, 4);
}

static void an_axis_in_any_layout_is_sorted(void **state)
{
    nb_tensor *x = matrix(NB_I32, 2, 3, (double[]){3, 1, 2, 0, 5, 4});
    nb_tensor *t = nb_permute(x, 2, (int64_t[]){1, 0});
    (void)state;
    IS(nb_sort(x, 0, false, true), NB_I32, 0, 1, 2, 3, 5, 4);
    IS(nb_sort(x, 1, false, true), NB_I32, 1, 2, 3, 0, 4, 5);
    IS(nb_sort(t, 0, false, true), NB_I32, 1, 0, 2, 4, 3, 5);
    IS(nb_argmax(t, 0, false), NB_I64, 0, 1);
    has_shape(nb_argsort(nb_reshape(x, SHAPE(3, 1, 2)), 1, true, true),
              SHAPE(3, 1, 2));
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

/* Long enough for many merges, and for a last run that is short. */
static void a_long_row_is_sorted(void **state)
{
    enum { N = 5003 };
    float *v = malloc(N * sizeof *v), *got = malloc(N * sizeof *got);
    uint32_t s = 1;
    (void)state;
    for (int i = 0; i < N; i++) {
        s = s * 1664525u + 1013904223u;
        v[i] = (float)(s >> 20);
    }
    nb_tensor *x = given(NB_F32, 1, (int64_t[]){N}, v);
    nb_tensor *y = nb_sort(x, 0, false, true);
    assert_int_equal(nb_read(y, NB_F32, got), NB_OK);
    qsort(v, N, sizeof *v, by_value);
    assert_memory_equal(got, v, N * sizeof *v);
    free(v);
    free(got);
}

static void slopes_follow_the_order(void **state)
{
    nb_tensor *x = VECTOR(NB_F32, 3, 1, 2), *fresh, *g = NULL, *out[2];
    nb_tensor *ct[] = {VECTOR(NB_F32, 10, 20), NULL};
    (void)state;
    uint64_t bit = nb_walk_begin(1, &x, &fresh);
    assert_int_equal(nb_topk(fresh, 2, 0, true, out), NB_OK);
    assert_true(nb_walk_pull(bit, 1, &fresh, 2, out, ct, &g));
    nb_walk_end(bit);
    IS(g, NB_F32, 10, 0, 20);
}

static void topk_takes_what_there_is(void **state)
{
    nb_tensor *x = VECTOR(NB_I8, 3, 1, 2), *out[2];
    (void)state;
    assert_int_equal(nb_topk(x, 2, -1, false, out), NB_OK);
    IS(out[0], NB_I8, 1, 2);
    IS(out[1], NB_I64, 1, 2);
    assert_int_equal(nb_topk(x, 0, 0, true, out), NB_OK);
    has_shape(out[0], SHAPE(0));
    assert_int_equal(nb_topk(x, 4, 0, true, out), NB_EVALUE);
    refused(NULL, NB_EVALUE, "topk: k is 4, axis 0 has 3 elements");
    assert_int_equal(nb_topk(x, -1, 0, true, out), NB_EVALUE);
    nb_error_clear();
    refused(nb_sort(nb_scalar_int(1, NB_I64), -1, false, true), NB_EAXIS,
            "sort");
}

/* Places */

static void the_first_extreme_is_found(void **state)
{
    nb_tensor *x = matrix(NB_F16, 2, 3, (double[]){1, 7, 0, 7, 2, 0});
    (void)state;
    IS(nb_argmax(x, NB_FLAT, false), NB_I64, 1);
    IS(nb_argmin(x, NB_FLAT, false), NB_I64, 2);
    has_shape(nb_argmin(x, NB_FLAT, true), SHAPE(1, 1));
    IS(nb_argmax(x, 0, false), NB_I64, 1, 0, 0);
    has_shape(nb_argmax(x, 0, true), SHAPE(1, 3));
    IS(nb_argmax(nb_scalar_float(4, NB_F32), NB_FLAT, false), NB_I64, 0);
    IS(nb_argmin(VECTOR(NB_BOOL, 1, 0), 0, false), NB_I64, 1);
}

static void nan_is_an_extreme_of_both_kinds(void **state)
{
    nb_tensor *x = VECTOR(NB_F64, -inf, nan_, inf, nan_);
    (void)state;
    IS(nb_argmax(x, 0, false), NB_I64, 1);
    IS(nb_argmin(x, 0, false), NB_I64, 1);
    IS(nb_argmin(VECTOR(NB_F64, inf, inf), 0, false), NB_I64, 0);
    IS(nb_argmax(VECTOR(NB_F64, -inf, -inf), 0, false), NB_I64, 0);
}

static void nothing_has_no_place(void **state)
{
    nb_tensor *x = matrix(NB_F32, 0, 2, (double[]){0});
    (void)state;
    refused(nb_argmax(x, 0, false), NB_EVALUE, "argmax: no elements");
    refused(nb_argmin(x, NB_FLAT, false), NB_EVALUE, "argmin: no elements");
    has_shape(nb_argsort(x, 0, false, true), SHAPE(0, 2));
    assert_int_equal(nb_realize(nb_sort(x, 0, false, true)), NB_OK);
}

static void equals_are_found_from_both_sides(void **state)
{
    nb_tensor *row = VECTOR(NB_I32, 1, 3, 3, 5);
    nb_tensor *x = matrix(NB_I32, 2, 2, (double[]){3, 0, 6, 5});
    (void)state;
    IS(nb_searchsorted(row, x, "left", NULL), NB_I64, 1, 0, 4, 3);
    IS(nb_searchsorted(row, x, "right", NULL), NB_I64, 3, 0, 4, 4);
    IS(nb_searchsorted(row, nb_num(3.5), "left", NULL), NB_I64, 3);
    IS(nb_searchsorted(VECTOR(NB_F32, 1, nan_), VECTOR(NB_F32, nan_, inf),
                       "left", NULL),
       NB_I64, 1, 1);
}

static void a_row_may_be_sorted_by_indices(void **state)
{
    nb_tensor *row = VECTOR(NB_F32, 5, 1, 3), *x = VECTOR(NB_F32, 2, 4);
    (void)state;
    IS(nb_searchsorted(row, x, "left", VECTOR(NB_U8, 1, 2, 0)), NB_I64, 1, 2);
    IS(nb_searchsorted(row, x, "left", VECTOR(NB_I8, -2, -1, 0)), NB_I64, 1, 2);
    refused(nb_searchsorted(row, x, "left", VECTOR(NB_F32, 1, 2, 0)), NB_ETYPE,
            "integer index");
    refused(nb_searchsorted(row, x, "left", VECTOR(NB_U8, 1, 2)), NB_EVALUE,
            "size 3");
}

static void a_long_row_is_searched_for_few(void **state)
{
    nb_tensor *row = nb_cumsum(nb_broadcast_to(VECTOR(NB_I16, 2), SHAPE(1000)),
                               0, true, false);
    (void)state;
    IS(nb_searchsorted(row, VECTOR(NB_I64, 999, 2000), "left", NULL), NB_I64,
       500, 1000);
}

static void searching_asks_for_a_row_and_a_side(void **state)
{
    nb_tensor *x = VECTOR(NB_F32, 1, 2);
    (void)state;
    refused(nb_searchsorted(nb_reshape(x, SHAPE(2, 1)), x, "left", NULL),
            NB_EVALUE, "exactly 1 is needed");
    refused(nb_searchsorted(x, x, "middle", NULL), NB_EVALUE,
            "side is \"middle\", not \"left\" or \"right\"");
}

/* Sets */

static void nonzero_lists_coordinates(void **state)
{
    nb_tensor *x = matrix(NB_F32, 2, 3, (double[]){0, nan_, 2, -0.0, 0, -1});
    nb_tensor *out[2];
    (void)state;
    assert_int_equal(nb_nonzero(nb_permute(x, 2, (int64_t[]){1, 0}), out),
                     NB_OK);
    IS(out[0], NB_I64, 1, 2, 2);
    IS(out[1], NB_I64, 0, 0, 1);
    assert_int_equal(nb_nonzero(nb_sub(x, x), out), NB_OK);
    IS(out[1], NB_I64, 1); /* NaN - NaN is not zero */
    assert_int_equal(nb_nonzero(nb_equal(x, nb_num(9)), out), NB_OK);
    has_shape(out[0], SHAPE(0));
    assert_int_equal(nb_nonzero(nb_scalar_float(1, NB_F32), out), NB_EVALUE);
    refused(NULL, NB_EVALUE, "nonzero: x has rank 0");
}

static void every_value_is_named_once(void **state)
{
    nb_tensor *x = matrix(NB_U8, 2, 3, (double[]){7, 2, 7, 0, 2, 7}), *out[4];
    (void)state;
    assert_int_equal(nb_unique_all(x, out), NB_OK);
    IS(out[0], NB_U8, 0, 2, 7);
    IS(out[1], NB_I64, 3, 1, 0);
    IS(out[2], NB_I64, 2, 1, 2, 0, 1, 2);
    has_shape(out[2], SHAPE(2, 3));
    IS(out[3], NB_I64, 1, 2, 3);
    assert_int_equal(nb_unique_inverse(nb_scalar_int(4, NB_I32), out), NB_OK);
    IS(out[0], NB_I32, 4);
    has_shape(out[1], 0, NULL);
    has_shape(nb_unique_values(matrix(NB_F64, 0, 3, NULL)), SHAPE(0));
}

static void zeros_are_one_value_and_every_nan_its_own(void **state)
{
    nb_tensor *x = VECTOR(NB_F32, nan_, -0.0, 0.0, nan_, inf), *out[2];
    (void)state;
    assert_int_equal(nb_unique_counts(x, out), NB_OK);
    IS(out[0], NB_F32, 0, inf, nan_, nan_);
    IS(out[1], NB_I64, 2, 1, 1, 1);
}

static void what_depends_on_data_is_not_mapped(void **state)
{
    nb_tensor *x = matrix(NB_F32, 2, 3, (double[6]){0}), *out[2];
    (void)state;
    int id = nb_lane_open(nb_extent_of(2), NULL);
    nb_tensor *lane = nb_hide(x, 0, id);
    refused(nb_unique_values(lane), NB_EVALUE, "unique_values: x is mapped");
    assert_int_equal(nb_nonzero(lane, out), NB_EVALUE);
    nb_error_clear();
    nb_lane_close();
}

/* Memory */

static bool everything(void *unused)
{
    nb_tensor *x = VECTOR(NB_F16, 3, 1, 2, 1), *out[4];
    nb_tensor *m = nb_reshape(x, SHAPE(2, 2));
    (void)unused;
    return nb_realize(nb_sort(m, 0, true, true)) == NB_OK &&
           nb_realize(nb_argmax(m, NB_FLAT, true)) == NB_OK &&
           nb_realize(nb_searchsorted(x, m, "left", NULL)) == NB_OK &&
           nb_topk(m, 1, 0, true, out) == NB_OK &&
           nb_unique_all(m, out) == NB_OK && nb_nonzero(m, out) == NB_OK;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(faults_survived(&(faults){.run = everything}));
}

#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, open_scope, close_scope)

int main(void)
{
    there_open();
    const struct CMUnitTest tests[] = {
        TEST(every_dtype_is_sorted),
        TEST(the_ends_of_64_bits_are_in_order),
        TEST(nan_is_the_greatest),
        TEST(equals_stay_in_order_both_ways),
        TEST(an_axis_in_any_layout_is_sorted),
        TEST(a_long_row_is_sorted),
        TEST(slopes_follow_the_order),
        TEST(topk_takes_what_there_is),
        TEST(the_first_extreme_is_found),
        TEST(nan_is_an_extreme_of_both_kinds),
        TEST(nothing_has_no_place),
        TEST(equals_are_found_from_both_sides),
        TEST(a_row_may_be_sorted_by_indices),
        TEST(a_long_row_is_searched_for_few),
        TEST(searching_asks_for_a_row_and_a_side),
        TEST(nonzero_lists_coordinates),
        TEST(every_value_is_named_once),
        TEST(zeros_are_one_value_and_every_nan_its_own),
        TEST(what_depends_on_data_is_not_mapped),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
