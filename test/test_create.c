/* test_create.c - what the laws do not say of tensors made from numbers: exact
 * counts, dtypes, lengths at the edges, refusals. */
#include "core/lanes.h"
#include "nabla/nabla.h"
#include "support/there.h"
#include "transform/derive.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 32 };

static int open_scope(void **state)
{
    (void)state;
    return nb_scope_open();
}

static int close_scope(void **state)
{
    (void)state;
    nb_scope_close(0, NULL);
    nb_error_clear();
    nb_default_float_set(NB_F32);
    return nodes_left() != 0;
}

#define L(...)     ((int64_t[]){__VA_ARGS__})
#define LEN(...)   ((int)(sizeof(L(__VA_ARGS__)) / sizeof(int64_t)))
#define SHAPE(...) LEN(__VA_ARGS__), L(__VA_ARGS__)

/* x has that dtype and these elements, of double or of int64. */
static void is(nb_tensor *x, nb_dtype d, int n, const double *v)
{
    double got[MOST];
    if (!x) fail_msg("%s", nb_error_message());
    assert_int_equal(nb_dtype_of(x), d);
    assert_int_equal(nb_elements(x), n);
    if (nb_read(x, NB_F64, got) != NB_OK) fail_msg("%s", nb_error_message());
    for (int i = 0; i < n; i++)
        if (got[i] != v[i])
            fail_msg("element %d is %.17g, not %.17g", i, got[i], v[i]);
}

static void counts(nb_tensor *x, int n, const int64_t *v)
{
    int64_t got[MOST];
    if (!x) fail_msg("%s", nb_error_message());
    assert_int_equal(nb_elements(x), n);
    if (nb_read(x, NB_I64, got) != NB_OK) fail_msg("%s", nb_error_message());
    assert_memory_equal(got, v, (size_t)n * sizeof *v);
}

#define NUMBERS(...)                                                    \
    (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)), (double[]) \
    {                                                                   \
        __VA_ARGS__                                                     \
    }
#define IS(x, d, ...)   is(x, d, NUMBERS(__VA_ARGS__))
#define COUNTS(x, ...)  counts(x, SHAPE(__VA_ARGS__))
#define EMPTY(x, dtype) is(x, dtype, 0, NULL)

static void refused(nb_tensor *x, nb_status code, const char *why)
{
    assert_null(x);
    assert_int_equal(nb_error_code(), code);
    if (!strstr(nb_error_message(), why))
        fail_msg("\"%s\" is not in \"%s\"", why, nb_error_message());
    nb_error_clear();
}

static void test_iota_counts_in_every_dtype(void **s)
{
    (void)s;
    for (int d = NB_NOTYPE + 1; d < NB_NDTYPES; d++)
        if (d == NB_BOOL)
            IS(nb_iota(3, NB_BOOL), NB_BOOL, 0, 1, 1);
        else
            IS(nb_iota(4, (nb_dtype)d), (nb_dtype)d, 0, 1, 2, 3);
    EMPTY(nb_iota(0, NB_NOTYPE), NB_I64);
    refused(nb_iota(-1, NB_I64), NB_EVALUE, "iota: a size of -1");
}

static void test_iota_is_long(void **s)
{
    enum { LONG = 5000 };
    int32_t got[LONG];
    (void)s;
    assert_int_equal(nb_read(nb_iota(LONG, NB_I32), NB_I32, got), NB_OK);
    for (int i = 0; i < LONG; i++)
        assert_int_equal(got[i], i);
}

static void test_full_follows_its_value(void **s)
{
    (void)s;
    IS(nb_full(SHAPE(2), nb_count(3), NB_NOTYPE), NB_I64, 3, 3);
    IS(nb_full(SHAPE(2), nb_truth(true), NB_NOTYPE), NB_BOOL, 1, 1);
    IS(nb_full(SHAPE(2), nb_num(0.5), NB_NOTYPE), NB_F32, 0.5, 0.5);
    IS(nb_full(SHAPE(1), nb_num(0.1), NB_F64), NB_F64, 0.1);
    IS(nb_full(0, NULL, nb_num(7), NB_I8), NB_I8, 7);
    COUNTS(nb_full(SHAPE(1), nb_count(INT64_MAX), NB_I64), INT64_MAX);
    nb_tensor *row = nb_arange_int(1, 4, 1, NB_NOTYPE);
    IS(nb_full(SHAPE(2, 3), row, NB_F16), NB_F16, 1, 2, 3, 1, 2, 3);
    EMPTY(nb_full(SHAPE(3, 0), nb_count(1), NB_NOTYPE), NB_I64);
    refused(nb_full(SHAPE(2), row, NB_NOTYPE), NB_EVALUE, "(3,)");
    refused(nb_full(SHAPE(2, -3), nb_num(1), NB_NOTYPE), NB_EVALUE,
            "full: axis 1 of (2, -3) is negative");
    refused(nb_full(SHAPE(1), nb_count(300), NB_U8), NB_EOVERFLOW, "300");
}

static void test_zeros_and_ones_have_the_default_float(void **s)
{
    (void)s;
    IS(nb_zeros(SHAPE(2), NB_NOTYPE), NB_F32, 0, 0);
    assert_int_equal(nb_default_float_set(NB_F64), NB_OK);
    IS(nb_ones(SHAPE(1, 2), NB_NOTYPE), NB_F64, 1, 1);
    IS(nb_empty(SHAPE(2), NB_U8), NB_U8, 0, 0);
    IS(nb_ones(0, NULL, NB_BF16), NB_BF16, 1);
    int64_t large[] = {INT64_MAX, 2}, many[17] = {0};
    refused(nb_zeros(2, large, NB_I8), NB_EOVERFLOW, "more bytes");
    refused(nb_zeros(SHAPE(-1), NB_I8), NB_EVALUE, "zeros: axis 0");
    refused(nb_ones(17, many, NB_I8), NB_EVALUE, "ones: rank 17");
}

static void test_likes_are_like(void **s)
{
    (void)s;
    nb_tensor *x = nb_zeros(SHAPE(2, 2), NB_I16);
    IS(nb_ones_like(x), NB_I16, 1, 1, 1, 1);
    IS(nb_full_like(x, nb_num(2.5)), NB_I16, 2, 2, 2, 2);
    IS(nb_empty_like(nb_scalar_float(3, NB_F16)), NB_F16, 0);
    nb_tensor *y = nb_zeros(SHAPE(1), NB_F64);
    IS(nb_full_like(y, nb_num(0.1)), NB_F64, 0.1);
    nb_value d = NB_V_INT(NB_BOOL);
    int n = 1;
    assert_int_equal(nb_op_call(nb_op_find("ones_like"), 1, &x, 1, &d, &n, &y),
                     NB_OK);
    IS(y, NB_BOOL, 1, 1, 1, 1);
    refused(nb_full_like(x, nb_iota(3, NB_I64)), NB_EVALUE, "(3,)");
}

static void test_a_constant_like_x_has_its_hidden_axes(void **s)
{
    nb_extent three = nb_extent_of(3);
    int64_t hidden;
    (void)s;
    nb_tensor *x = nb_zeros(SHAPE(3, 2), NB_F32), *v;
    int id = nb_lane_open(three, NULL);
    nb_lane lane = {.size = three, .id = id};
    x = nb_hide(x, 0, id);
    v = nb_hide(nb_iota(3, NB_F32), 0, id);
    nb_tensor *one = nb_ones_like(x), *full = nb_full_like(x, v);
    nb_lane_close();
    assert_int_equal(nb_hidden(one), 1);
    nb_hidden_sizes(one, &hidden);
    assert_int_equal(hidden, 3);
    assert_true(nb_tensor_lane(one)[0].thin);
    IS(nb_show(one, 0, lane), NB_F32, 1, 1, 1, 1, 1, 1);
    IS(nb_show(full, 0, lane), NB_F32, 0, 0, 1, 1, 2, 2);
}

static void test_arange_of_integers_is_exact(void **s)
{
    (void)s;
    const int64_t big = (int64_t)1 << 60;
    COUNTS(nb_arange_int(0, 5, 1, NB_NOTYPE), 0, 1, 2, 3, 4);
    COUNTS(nb_arange_int(-3, 8, 4, NB_NOTYPE), -3, 1, 5);
    COUNTS(nb_arange_int(5, -2, -3, NB_NOTYPE), 5, 2, -1);
    COUNTS(nb_arange_int(big, big + 3, 1, NB_NOTYPE), big, big + 1, big + 2);
    COUNTS(nb_arange_int(INT64_MAX - 1, INT64_MAX, 7, NB_NOTYPE),
           INT64_MAX - 1);
    COUNTS(nb_arange_int(INT64_MIN + 1, INT64_MAX, INT64_MAX, NB_NOTYPE),
           INT64_MIN + 1, 0);
    EMPTY(nb_arange_int(3, 3, 1, NB_NOTYPE), NB_I64);
    EMPTY(nb_arange_int(3, 1, 1, NB_NOTYPE), NB_I64);
    EMPTY(nb_arange_int(1, 3, -1, NB_I8), NB_I8);
    IS(nb_arange_int(0, 3, 1, NB_BF16), NB_BF16, 0, 1, 2);
    refused(nb_arange_int(0, 3, 0, NB_NOTYPE), NB_EVALUE, "step is 0");
    refused(nb_arange_int(-INT64_MAX, INT64_MAX, 1, NB_NOTYPE), NB_EVALUE,
            "more numbers");
}

static void test_arange_of_floats_steps_from_the_start(void **s)
{
    (void)s;
    IS(nb_arange_float(0, 0.5, 0.1, NB_F64), NB_F64, 0, 0.1, 0.2, 3 * 0.1, 0.4);
    IS(nb_arange_float(1, -1, -0.75, NB_NOTYPE), NB_F32, 1, 0.25, -0.5);
    IS(nb_arange_float(0, 2.5, 1, NB_F16), NB_F16, 0, 1, 2);
    EMPTY(nb_arange_float(1, 0, 0.5, NB_NOTYPE), NB_F32);
    refused(nb_arange_float(0, 1, 0, NB_NOTYPE), NB_EVALUE, "step is 0");
    refused(nb_arange_float(0, 1, NAN, NB_NOTYPE), NB_EVALUE, "arange");
    refused(nb_arange_float(0, INFINITY, 1, NB_NOTYPE), NB_EVALUE, "too many");
}

static void test_linspace_ends_where_it_says(void **s)
{
    double got[50];
    (void)s;
    IS(nb_linspace(0, 1, 5, true, NB_F64), NB_F64, 0, 0.25, 0.5, 0.75, 1);
    IS(nb_linspace(0, 1, 4, false, NB_NOTYPE), NB_F32, 0, 0.25, 0.5, 0.75);
    IS(nb_linspace(2, 1, 1, true, NB_NOTYPE), NB_F32, 2);
    IS(nb_linspace(-1, 1, 4, true, NB_I32), NB_I32, -1, -1, 0, 1);
    EMPTY(nb_linspace(0, 1, 0, true, NB_NOTYPE), NB_F32);
    assert_int_equal(
        nb_read(nb_linspace(0, 0.7, 50, true, NB_F64), NB_F64, got), NB_OK);
    assert_true(got[49] == 0.7);
    refused(nb_linspace(0, 1, -1, true, NB_NOTYPE), NB_EVALUE, "num is -1");
}

static void test_eye_has_a_diagonal(void **s)
{
    (void)s;
    IS(nb_eye(2, 3, 0, NB_I8), NB_I8, 1, 0, 0, 0, 1, 0);
    IS(nb_eye(2, 3, -1, NB_NOTYPE), NB_F32, 0, 0, 0, 1, 0, 0);
    IS(nb_eye(2, 2, INT64_MAX, NB_I8), NB_I8, 0, 0, 0, 0);
    IS(nb_eye(2, 2, INT64_MIN + 1, NB_BOOL), NB_BOOL, 0, 0, 0, 0);
    EMPTY(nb_eye(0, 3, 0, NB_F64), NB_F64);
    nb_value three = NB_V_INT(3);
    nb_tensor *x;
    int n = 1;
    assert_int_equal(nb_op_call(nb_op_find("eye"), 0, NULL, 1, &three, &n, &x),
                     NB_OK);
    IS(x, NB_F32, 1, 0, 0, 0, 1, 0, 0, 0, 1);
    refused(nb_eye(-1, 2, 0, NB_NOTYPE), NB_EVALUE, "eye: -1 rows");
}

static void test_hann_windows(void **s)
{
    double w[4];
    (void)s;
    EMPTY(nb_hann_window(0, true, NB_NOTYPE), NB_F32);
    IS(nb_hann_window(1, false, NB_NOTYPE), NB_F32, 1);
    assert_int_equal(nb_read(nb_hann_window(4, true, NB_F64), NB_F64, w),
                     NB_OK);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(w[i] - (double[]){0, 0.5, 1, 0.5}[i]) < 1e-15);
    assert_int_equal(nb_read(nb_hann_window(4, false, NB_F64), NB_F64, w),
                     NB_OK);
    for (int i = 0; i < 4; i++)
        assert_true(fabs(w[i] - (double[]){0, 0.75, 0.75, 0}[i]) < 1e-15);
    refused(nb_hann_window(-2, true, NB_NOTYPE), NB_EVALUE, "is -2");
}

static void test_one_hot_puts_one_where_the_index_says(void **s)
{
    (void)s;
    nb_tensor *i = nb_arange_int(-1, 3, 2, NB_I8);
    IS(nb_one_hot(i, 3, NB_NOTYPE, -1), NB_F32, 0, 0, 0, 0, 1, 0);
    IS(nb_one_hot(i, 3, NB_I32, 0), NB_I32, 0, 0, 0, 1, 0, 0);
    IS(nb_one_hot(nb_scalar_int(1, NB_U64), 2, NB_BOOL, 0), NB_BOOL, 0, 1);
    EMPTY(nb_one_hot(i, 0, NB_F16, -1), NB_F16);
    nb_tensor *wide = nb_one_hot(nb_scalar_int(1, NB_I8), 300, NB_F32, 0);
    assert_true(nb_item(nb_reduce_sum(wide, -1, NULL, false)) == 1);
    refused(nb_one_hot(nb_iota(2, NB_F32), 2, NB_F32, 0), NB_ETYPE, "index");
    refused(nb_one_hot(i, -1, NB_F32, 0), NB_EVALUE, "num_classes is -1");
    refused(nb_one_hot(i, 2, NB_F32, 2), NB_EAXIS, "axis 2");
}

static void test_the_value_of_full_has_a_gradient(void **s)
{
    (void)s;
    nb_tensor *x = nb_scalar_float(3, NB_F32), *in, *ct, *cx;
    uint64_t bit = nb_walk_begin(1, &x, &in);
    nb_tensor *y = nb_full(SHAPE(2, 3), in, NB_F64);
    ct = nb_ones(SHAPE(2, 3), NB_F64);
    assert_true(nb_walk_pull(bit, 1, &in, 1, &y, &ct, &cx));
    nb_walk_end(bit);
    IS(cx, NB_F32, 6);
}

static void test_what_is_no_dtype_is_refused(void **s)
{
    const nb_dtype bad = (nb_dtype)99;
    nb_tensor *x = nb_iota(2, NB_I64);
    (void)s;
    refused(nb_iota(2, bad), NB_ETYPE, "iota: 99 is not a dtype");
    refused(nb_zeros(SHAPE(2), bad), NB_ETYPE, "zeros: 99 is not a dtype");
    refused(nb_full(SHAPE(2), x, bad), NB_ETYPE, "99");
    refused(nb_arange_int(0, 2, 1, bad), NB_ETYPE, "99");
    refused(nb_arange_float(0, 2, 1, bad), NB_ETYPE, "99");
    refused(nb_linspace(0, 2, 1, true, bad), NB_ETYPE, "99");
    refused(nb_eye(2, 2, 0, bad), NB_ETYPE, "99");
    refused(nb_hann_window(2, true, bad), NB_ETYPE, "99");
    refused(nb_one_hot(x, 2, bad, 0), NB_ETYPE, "99");
}

#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, open_scope, close_scope)

int main(void)
{
    there_open();
    const struct CMUnitTest tests[] = {
        TEST(test_iota_counts_in_every_dtype),
        TEST(test_iota_is_long),
        TEST(test_full_follows_its_value),
        TEST(test_zeros_and_ones_have_the_default_float),
        TEST(test_likes_are_like),
        TEST(test_a_constant_like_x_has_its_hidden_axes),
        TEST(test_arange_of_integers_is_exact),
        TEST(test_arange_of_floats_steps_from_the_start),
        TEST(test_linspace_ends_where_it_says),
        TEST(test_eye_has_a_diagonal),
        TEST(test_hann_windows),
        TEST(test_one_hot_puts_one_where_the_index_says),
        TEST(test_the_value_of_full_has_a_gradient),
        TEST(test_what_is_no_dtype_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
