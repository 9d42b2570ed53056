/* test_view.c - what the laws do not say of views, slices and joins: whose
 * memory it is, every dtype, no elements, sixteen axes, hidden axes, refusals.
 *
 * Whole numbers are compared, so that equality is exact. */
#include "ops/copy.h"
#include "ops/view.h"
#include "support/faults.h"
#include "support/sample.h"
#include "support/there.h"
#include "transform/derive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
    return nodes_left() != 0;
}

/* Lists on the page. */
#define L(...)     ((int64_t[]){__VA_ARGS__})
#define LEN(...)   ((int)(sizeof(L(__VA_ARGS__)) / sizeof(int64_t)))
#define SHAPE(...) LEN(__VA_ARGS__), L(__VA_ARGS__)
#define SCALAR     0, NULL

/* 1, 2, 3 and so on. */
static nb_tensor *counting(nb_dtype d, int rank, const int64_t *size)
{
    int64_t n = 1;
    for (int k = 0; k < rank; k++)
        n *= size[k];
    int64_t *v = malloc((size_t)(n + 1) * sizeof *v);
    for (int64_t i = 0; i < n; i++)
        v[i] = i + 1;
    nb_tensor *x = nb_cast(given(NB_I64, rank, size, v), d);
    free(v);
    return x;
}

#define COUNTING(...) counting(NB_I64, SHAPE(__VA_ARGS__))

static void has_shape(nb_tensor *x, int rank, const int64_t *size)
{
    if (!x) fail_msg("%s", nb_error_message());
    assert_int_equal(nb_rank(x), rank);
    for (int d = 0; d < rank; d++)
        assert_int_equal(nb_size(x, d), size[d]);
}

static void has_values(nb_tensor *x, int n, const int64_t *v)
{
    int64_t got[64];
    assert_int_equal(nb_elements(x), n);
    if (nb_read(x, NB_I64, got) != NB_OK) fail_msg("%s", nb_error_message());
    for (int i = 0; i < n; i++)
        if (got[i] != v[i])
            fail_msg("element %d is %lld, not %lld", i, (long long)got[i],
                     (long long)v[i]);
}

#define IS(x, shape, ...)                                  \
    do {                                                   \
        nb_tensor *is_ = x;                                \
        has_shape(is_, shape);                             \
        has_values(is_, LEN(__VA_ARGS__), L(__VA_ARGS__)); \
    } while (0)

/* That failed, for this reason. */
static void refused(bool failed, nb_status code, const char *why)
{
    assert_true(failed);
    assert_int_equal(nb_error_code(), code);
    if (!strstr(nb_error_message(), why))
        fail_msg("\"%s\" is not in \"%s\"", why, nb_error_message());
    nb_error_clear();
}

#define REFUSED(x, code, why) refused(!(x), code, why)

/* Calls by name, as bindings do. */
static nb_tensor *call(const char *name, nb_tensor *x, int n, const nb_value *v)
{
    nb_tensor *out[1];
    int room = 1;
    nb_status s = nb_op_call(nb_op_find(name), 1, &x, n, v, &room, out);
    return s == NB_OK ? out[0] : NULL;
}

#define CALL(name, x, ...)                                              \
    call(name, x, sizeof((nb_value[]){__VA_ARGS__}) / sizeof(nb_value), \
         (nb_value[]){__VA_ARGS__})

/* Copying */

static void copy_case(size_t item, int64_t n, int64_t m, int64_t from0,
                      int64_t from1)
{
    static char x[1 << 20], y[1 << 20];
    int64_t size[] = {n, m}, row[2], from[] = {from0, from1};
    int64_t first =
        (from0 < 0 ? -from0 * (n - 1) : 0) + (from1 < 0 ? -from1 * (m - 1) : 0);
    nb_row_major(2, size, row);
    for (size_t i = 0; i < sizeof x; i++)
        x[i] = (char)(i * 31 + i / 251);
    memset(y, 0, sizeof y);
    char *start = x + first * (int64_t)item;
    nb_copy(item, 2, size, (nb_side){y, row}, (nb_side){start, from});
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < m; j++)
            assert_memory_equal(y + (i * m + j) * (int64_t)item,
                                start + (i * from0 + j * from1) * (int64_t)item,
                                item);
    assert_int_equal(y[n * m * (int64_t)item], 0);
}

static void test_a_copy_moves_every_element(void **s)
{
    static const int64_t sizes[] = {1, 2, 7, 8, 15, 16, 17, 31, 64, 65, 100};
    enum { N = sizeof sizes / sizeof sizes[0] };
    (void)s;
    for (size_t item = 1; item <= 8; item *= 2)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                int64_t n = sizes[i], m = sizes[j];
                copy_case(item, n, m, m, 1);
                copy_case(item, n, m, 1, n);
                copy_case(item, n, m, m, -1);
                copy_case(item, n, m, -1, n);
                copy_case(item, n, m, 2, 3 * n);
                copy_case(item, n, m, 0, 1);
                copy_case(item, n, m, 1, 0);
            }
}

/* Memory */

static void test_views_share_memory(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(4, 6);
    const char *data = nb_device_data(x, NULL);
    int64_t stride[NB_MAX_RANK];
    assert_ptr_equal(nb_device_data(nb_flip(x, -1, NULL), stride),
                     data + 23 * 8);
    assert_int_equal(stride[0], -6);
    assert_int_equal(stride[1], -1);
    nb_tensor *part = nb_slice(x, L(3, 1), L(2, 3), L(-2, 2));
    assert_ptr_equal(nb_device_data(part, stride), data + 19 * 8);
    assert_int_equal(stride[0], -12);
    assert_int_equal(stride[1], 2);
    assert_ptr_equal(nb_device_data(nb_diagonal(x, 2, 0, 1), stride),
                     data + 2 * 8);
    assert_int_equal(stride[0], 7);
    assert_ptr_equal(nb_device_data(nb_reshape(x, SHAPE(2, 12)), NULL), data);
    nb_tensor *halves = nb_reshape(nb_swap_axes(x, 0, 1), SHAPE(2, 3, 4));
    assert_ptr_equal(nb_device_data(halves, stride), data);
    assert_int_equal(stride[2], 6);
}

static void test_constants_take_no_memory(void **s)
{
    (void)s;
    size_t before = nb_memory_in_use();
    nb_tensor *x = nb_zeros(SHAPE(1 << 20, 1 << 20, 4), NB_F64);
    nb_tensor *y = nb_flatten(nb_flip(x, -1, NULL), 0, -1);
    assert_int_equal(nb_realize(y), NB_OK);
    assert_true(nb_memory_in_use() - before <= 4096);
}

/* reshape */

static void test_reshape_copies_what_no_view_shows(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(2, 3);
    IS(nb_flatten(nb_swap_axes(x, 0, 1), 0, -1), SHAPE(6), 1, 4, 2, 5, 3, 6);
    IS(nb_reshape(nb_flip(x, 1, L(1)), SHAPE(3, 2)), SHAPE(3, 2), 3, 2, 1, 6, 5,
       4);
}

static void test_reshape_says_which_axes_stay(void **s)
{
    (void)s;
    static const struct {
        int64_t from[4], to[4];
        const char *sig;
    } is[] = {
        {{2, 4, 32}, {8, 32}, "i j k -> (i j) k"},
        {{8, 32}, {2, 4, 32}, "(i j) k -> i j k"},
        {{5, 6, 4},
         {5, 4, 6},
         "i (j a) b -> i (j c) d; "
         "replicate{a b c d}, j=2, c=2, d=6"},
        {{1, 6}, {6, 1, 1}, "1 i -> i 1 1"},
        {{4, 6}, {2, 12}, "(i j) k -> i (j k)"},
    };
    for (size_t k = 0; k < sizeof is / sizeof is[0]; k++) {
        int n = 0, m = 0;
        while (n < 4 && is[k].from[n])
            n++;
        while (m < 4 && is[k].to[m])
            m++;
        nb_tensor *x = nb_zeros(n, is[k].from, NB_NOTYPE);
        nb_tensor *y = nb_reshape(x, m, is[k].to);
        assert_string_equal(y->sig->text, is[k].sig);
    }
}

static void test_reshape_refuses_what_does_not_fit(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(2, 3), *none = nb_zeros(SHAPE(0, 3), NB_I64);
    REFUSED(nb_reshape(x, SHAPE(4, 2)), NB_EVALUE,
            "reshape: shape (2, 3) of 6 elements does not fit (4, 2)");
    REFUSED(nb_reshape(x, SHAPE(4, -1)), NB_EVALUE, "does not fit (4, -1)");
    REFUSED(nb_reshape(x, SHAPE(-1, -1)), NB_EVALUE, "-1 stands twice");
    REFUSED(nb_reshape(x, SHAPE(-2, 3)), NB_EVALUE, "axis 0 of (-2, 3)");
    REFUSED(nb_reshape(none, SHAPE(0, -1)), NB_EVALUE, "any size could stand");
    has_shape(nb_reshape(none, SHAPE(-1, 3)), SHAPE(0, 3));
    has_shape(nb_reshape(none, SHAPE(5, 0, 2)), SHAPE(5, 0, 2));
    int64_t many[17] = {0};
    REFUSED(nb_reshape(none, 17, many), NB_EVALUE, "rank 17");
    int64_t large[] = {INT64_MAX, 3};
    REFUSED(nb_reshape(x, 2, large), NB_EVALUE, "reshape");
}

static void test_the_same_shape_is_the_same_tensor(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(2, 3);
    assert_ptr_equal(nb_reshape(x, SHAPE(2, 3)), x);
    assert_ptr_equal(nb_broadcast_to(x, SHAPE(2, 3)), x);
    assert_ptr_equal(nb_rebind(x, SHAPE(2, 3)), x);
    nb_keep(x);
    nb_scope_open();
    nb_tensor *same = nb_rebind(x, SHAPE(2, 3));
    nb_drop(x);
    IS(same, SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    nb_scope_close(0, NULL);
}

static void test_shapes_that_are_not_so_are_refused(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(2, 3);
    REFUSED(nb_rebind(x, SHAPE(3, 2)), NB_EVALUE,
            "rebind: shape is (2, 3), not (3, 2)");
    REFUSED(nb_rebind(x, 1, L(6)), NB_EVALUE, "not (6,)");
    REFUSED(nb_broadcast_to(x, SHAPE(2, 2)), NB_EVALUE,
            "shape (2, 3) does not broadcast to (2, 2)");
    REFUSED(nb_broadcast_to(x, 1, L(3)), NB_EVALUE, "does not broadcast");
}

/* Axes */

static void test_flatten_takes_a_range_of_axes(void **s)
{
    (void)s;
    nb_tensor *x = nb_zeros(SHAPE(2, 3, 4, 5), NB_I64);
    has_shape(nb_flatten(x, 1, 2), SHAPE(2, 12, 5));
    has_shape(nb_flatten(x, -2, -1), SHAPE(2, 3, 20));
    has_shape(nb_flatten(x, 3, 3), SHAPE(2, 3, 4, 5));
    has_shape(nb_flatten(nb_scalar_int(7, NB_I64), 0, -1), SHAPE(1));
    REFUSED(nb_flatten(x, 2, 1), NB_EVALUE, "start_dim 2 comes after");
    REFUSED(nb_flatten(x, 4, -1), NB_EAXIS, "start_dim 4");
    REFUSED(nb_flatten(nb_scalar_int(7, NB_I64), 0, 1), NB_EAXIS, "end_dim 1");
}

static void test_squeeze_takes_one_some_or_all(void **s)
{
    (void)s;
    nb_tensor *x = nb_zeros(SHAPE(1, 3, 1, 5, 1), NB_I64);
    has_shape(nb_squeeze(x, 1, L(-1)), SHAPE(1, 3, 1, 5));
    has_shape(nb_squeeze(x, 2, L(0, 2)), SHAPE(3, 5, 1));
    has_shape(nb_squeeze(x, -1, NULL), SHAPE(3, 5));
    has_shape(nb_squeeze(x, 0, NULL), SHAPE(1, 3, 1, 5, 1));
    has_shape(CALL("squeeze", x, {.kind = NB_VALUE_DEFAULT}),
              SHAPE(3, 1, 5, 1));
    REFUSED(nb_squeeze(x, 1, L(1)), NB_EVALUE, "axis 1 has size 3");
    REFUSED(nb_squeeze(x, 1, L(5)), NB_EAXIS, "axis 5");
    has_shape(nb_unsqueeze(x, -1), SHAPE(1, 3, 1, 5, 1, 1));
    has_shape(nb_unsqueeze(x, -6), SHAPE(1, 1, 3, 1, 5, 1));
    REFUSED(nb_unsqueeze(x, 6), NB_EAXIS, "axis 6");
}

static void test_axes_move(void **s)
{
    (void)s;
    nb_tensor *x = nb_zeros(SHAPE(2, 3, 4, 5), NB_I64);
    has_shape(nb_moveaxis(x, 1, L(0), L(-1)), SHAPE(3, 4, 5, 2));
    has_shape(nb_moveaxis(x, 2, L(3, 0), L(0, 1)), SHAPE(5, 2, 3, 4));
    has_shape(nb_swap_axes(x, 0, -1), SHAPE(5, 3, 4, 2));
    has_shape(nb_swap_axes(x, 1, 1), SHAPE(2, 3, 4, 5));
    REFUSED(CALL("moveaxis", x, NB_V_LIST(2, L(0, 1)), NB_V_LIST(1, L(0))),
            NB_EVALUE, "2 axes to 1 places");
    REFUSED(nb_moveaxis(x, 2, L(0, 0), L(0, 1)), NB_EVALUE, "twice");
    REFUSED(nb_permute(x, 3, L(0, 1, 2)), NB_EVALUE, "3 axes for rank 4");
    REFUSED(nb_permute(x, 4, L(0, 1, 2, -2)), NB_EVALUE, "twice");
    REFUSED(nb_swap_axes(x, 4, 0), NB_EAXIS, "axis 4");
}

static void test_pairs_are_interleaved(void **s)
{
    (void)s;
    nb_tensor *x = nb_zeros(SHAPE(3, 4, 2), NB_F32);
    has_shape(nb_as_interleaved_complex(x), SHAPE(3, 8));
    has_shape(nb_as_interleaved_complex(nb_zeros(SHAPE(2), NB_F32)), SHAPE(2));
    has_shape(nb_view_as_real_interleaved(x), SHAPE(3, 4, 1, 2));
    REFUSED(nb_as_interleaved_complex(nb_zeros(SHAPE(2, 3), NB_F32)), NB_EVALUE,
            "(2, 3) does not end in 2");
    REFUSED(nb_view_as_real_interleaved(nb_zeros(SHAPE(2, 3), NB_F32)),
            NB_EVALUE, "even size");
    REFUSED(nb_as_interleaved_complex(nb_scalar_float(1, NB_F32)), NB_EVALUE,
            "does not end in 2");
}

/* Slices */

static void test_slices_step_both_ways(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(10);
    IS(nb_slice(x, L(1), L(3), L(3)), SHAPE(3), 2, 5, 8);
    IS(nb_slice(x, L(9), L(4), L(-3)), SHAPE(4), 10, 7, 4, 1);
    IS(nb_slice(x, L(4), L(1), L(-100)), SHAPE(1), 5);
    has_shape(nb_slice(x, L(10), L(0), L(1)), SHAPE(0));
    nb_tensor *twice =
        nb_slice(nb_slice(x, L(9), L(5), L(-2)), L(4), L(3), L(-1));
    IS(twice, SHAPE(3), 2, 4, 6);
    IS(nb_slice_tensor(x, L(-3), L(2)), SHAPE(2), 8, 9);
}

static void test_slices_stay_inside(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(2, 10);
    REFUSED(nb_slice(x, L(0, 8), L(2, 3), L(1, 1)), NB_EVALUE,
            "slice: 3 places from 8 on, 1 apart, are not within axis 1 of "
            "size 10");
    REFUSED(nb_slice(x, L(0, 1), L(2, 3), L(1, -1)), NB_EVALUE, "axis 1");
    REFUSED(nb_slice(x, L(-1, 0), L(1, 1), L(1, 1)), NB_EVALUE, "axis 0");
    REFUSED(nb_slice(x, L(0, 0), L(1, -1), L(1, 1)), NB_EVALUE, "axis 1");
    REFUSED(nb_slice(x, L(0, 0), L(1, 1), L(1, 0)), NB_EVALUE, "0 apart");
    REFUSED(nb_slice(x, L(0, 1), L(1, INT64_MAX), L(1, INT64_MAX)), NB_EVALUE,
            "axis 1");
    REFUSED(nb_slice_tensor(x, L(0, -11), L(1, 1)), NB_EVALUE, "from -11");
    REFUSED(nb_slice_tensor(x, L(0, 9), L(1, 2)), NB_EVALUE, "2 places");
    REFUSED(CALL("slice_tensor", x, NB_V_LIST(1, L(0)), NB_V_LIST(1, L(1))),
            NB_EVALUE, "1 starts and 1 sizes for 2 axes");
    REFUSED(nb_embed(x, L(0, 0), L(-1, 20), L(1, 1)), NB_EVALUE, "axis 0");
    REFUSED(nb_embed(x, L(0, 2), L(2, 11), L(1, 1)), NB_EVALUE, "size 11");
}

static void test_embed_takes_every_other_place(void **s)
{
    (void)s;
    IS(nb_embed(COUNTING(3), L(1), L(7), L(2)), SHAPE(7), 0, 1, 0, 2, 0, 3, 0);
    nb_tensor *none = nb_zeros(SHAPE(0, 2), NB_I64);
    IS(nb_embed(none, L(0, 0), L(1, 2), L(1, 1)), SHAPE(1, 2), 0, 0);
}

static void test_flip_is_its_own_inverse(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(2, 3);
    IS(nb_flip(x, -1, NULL), SHAPE(2, 3), 6, 5, 4, 3, 2, 1);
    IS(nb_flip(x, 1, L(0)), SHAPE(2, 3), 4, 5, 6, 1, 2, 3);
    IS(nb_flip(nb_flip(x, 1, L(-1)), 1, L(1)), SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    IS(nb_flip(nb_scalar_int(3, NB_I64), -1, NULL), SCALAR, 3);
    has_shape(nb_flip(nb_zeros(SHAPE(0, 3), NB_I64), -1, NULL), SHAPE(0, 3));
}

static void test_a_backward_view_multiplies(void **s)
{
    (void)s;
    nb_tensor *x = nb_cast(COUNTING(2, 3), NB_F32);
    nb_tensor *y = nb_matmul(nb_flip(x, -1, NULL), nb_swap_axes(x, 0, 1));
    IS(y, SHAPE(2, 2), 28, 73, 10, 28);
}

static void test_pad_surrounds_with_a_value(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(2, 1);
    IS(nb_pad(x, L(0, 1, 1, 1), 0), SHAPE(3, 3), 0, 1, 0, 0, 2, 0, 0, 0, 0);
    IS(nb_pad(x, L(1, 0, 0, 1), 7), SHAPE(3, 2), 7, 7, 1, 7, 2, 7);
    IS(nb_pad(nb_zeros(SHAPE(0), NB_I64), L(1, 1), 5), SHAPE(2), 5, 5);
    IS(nb_pad(nb_scalar_int(3, NB_I64), NULL, 5), SCALAR, 3);
    nb_tensor *low = nb_pad(nb_zeros(SHAPE(1), NB_F16), L(0, 1), -1.0 / 0.0);
    assert_true(nb_item(nb_slice(low, L(1), L(1), L(1))) < -1e30);
    REFUSED(nb_pad(x, L(0, 0, -1, 0), 0), NB_EVALUE, "padding -1 of axis 1");
    REFUSED(nb_pad(x, L(0, 0, 0, INT64_MAX), 0), NB_EOVERFLOW, "axis 1");
    REFUSED(CALL("pad", x, NB_V_LIST(2, L(1, 1))), NB_EVALUE,
            "2 paddings for 2 axes");
    REFUSED(CALL("pad", x, NB_V_NONE), NB_EVALUE, "pad_width");
    REFUSED(CALL("pad", x, NB_V_LIST(4, L(0, 0, 0, 0)), NB_V_TEXT("edge")),
            NB_ELATER, "mode \"edge\"");
}

/* Parts */

static void test_split_needs_equal_parts(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(2, 6), *out[6];
    assert_int_equal(nb_split(x, 3, -1, out), NB_OK);
    IS(out[2], SHAPE(2, 2), 5, 6, 11, 12);
    refused(nb_split(x, 4, 1, out), NB_EVALUE,
            "axis 1 of size 6 does not split into 4 equal parts");
    refused(nb_split(x, 0, 1, out), NB_EVALUE, "num_splits is 0");
    refused(nb_split(x, 2, 2, out), NB_EAXIS, "axis 2");
    nb_tensor *none = nb_zeros(SHAPE(0), NB_I64);
    assert_int_equal(nb_split(none, 2, 0, out), NB_OK);
    has_shape(out[1], SHAPE(0));
}

static void test_chunk_leaves_empty_parts_out(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(7), *out[9];
    int n;
    assert_int_equal(nb_chunk(x, 3, 0, &n, out), NB_OK);
    assert_int_equal(n, 3);
    IS(out[0], SHAPE(3), 1, 2, 3);
    IS(out[1], SHAPE(2), 4, 5);
    IS(out[2], SHAPE(2), 6, 7);
    assert_int_equal(nb_chunk(x, 9, 0, &n, out), NB_OK);
    assert_int_equal(n, 7);
    IS(out[6], SHAPE(1), 7);
    assert_int_equal(nb_chunk(nb_zeros(SHAPE(0), NB_I64), 2, 0, &n, out),
                     NB_OK);
    assert_int_equal(n, 0);
    refused(nb_chunk(x, -1, 0, &n, out), NB_EVALUE, "chunks is -1");
}

static void test_unbind_gives_rows_or_columns(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(2, 3), *out[3];
    assert_int_equal(nb_unbind(x, 0, out), NB_OK);
    IS(out[1], SHAPE(3), 4, 5, 6);
    assert_int_equal(nb_unbind(x, -1, out), NB_OK);
    IS(out[2], SHAPE(2), 3, 6);
    refused(nb_unbind(nb_scalar_int(1, NB_I64), 0, out), NB_EAXIS, "axis 0");
    refused(nb_unbind(NULL, 0, out), NB_EVALUE, "");
}

/* Joins */

static void test_joined_tensors_take_one_dtype(void **s)
{
    (void)s;
    nb_tensor *x[] = {counting(NB_I8, SHAPE(2)), counting(NB_U8, SHAPE(1)),
                      counting(NB_BOOL, SHAPE(1))};
    nb_tensor *y = nb_concatenate(3, x, 0);
    assert_int_equal(nb_dtype_of(y), NB_I16);
    IS(y, SHAPE(4), 1, 2, 1, 1);
    x[1] = nb_zeros(SHAPE(0), NB_F32);
    y = nb_concatenate(3, x, -1);
    assert_int_equal(nb_dtype_of(y), NB_F32);
    IS(y, SHAPE(3), 1, 2, 1);
    x[0] = nb_zeros(SHAPE(1), NB_U64);
    x[1] = nb_zeros(SHAPE(1), NB_I64);
    REFUSED(nb_concatenate(2, x, 0), NB_ETYPE, "uint64");
}

static void test_many_tensors_join(void **s)
{
    enum { MANY = 300 };
    nb_tensor *x[MANY];
    int64_t got[2 * MANY];
    (void)s;
    for (int i = 0; i < MANY; i++)
        x[i] = nb_full(SHAPE(2, 1), nb_count(i), NB_NOTYPE);
    assert_int_equal(nb_read(nb_concatenate(MANY, x, 1), NB_I64, got), NB_OK);
    for (int i = 0; i < 2 * MANY; i++)
        assert_int_equal(got[i], i % MANY);
    has_shape(nb_stack(MANY, x, 1), SHAPE(2, MANY, 1));
}

static void test_joins_refuse_what_does_not_fit(void **s)
{
    (void)s;
    nb_tensor *x[] = {COUNTING(2, 3), COUNTING(3, 2)};
    REFUSED(nb_concatenate(2, x, 0), NB_EVALUE,
            "shapes (2, 3) and (3, 2) differ in more than axis 0");
    REFUSED(nb_stack(2, x, 0), NB_EVALUE, "(2, 3) and (3, 2) differ");
    REFUSED(nb_concatenate(0, x, 0), NB_EVALUE, "concatenate");
    REFUSED(nb_stack(0, x, 0), NB_EVALUE, "stack");
    REFUSED(nb_concatenate(1, x, 2), NB_EAXIS, "axis 2");
    REFUSED(nb_stack(1, x, 3), NB_EAXIS, "axis 3");
    nb_tensor *ranks[] = {COUNTING(2), COUNTING(2, 1)};
    REFUSED(nb_concatenate(2, ranks, 0), NB_EVALUE, "(2,) and (2, 1)");
    int64_t long_[] = {INT64_MAX / 2 + 1, 0};
    nb_tensor *large[] = {nb_zeros(2, long_, NB_BOOL),
                          nb_zeros(2, long_, NB_BOOL)};
    REFUSED(nb_concatenate(2, large, 0), NB_EOVERFLOW, "concatenate");
}

static void test_without_axis_all_elements_join(void **s)
{
    (void)s;
    nb_tensor *x[] = {nb_swap_axes(COUNTING(2, 2), 0, 1),
                      nb_scalar_int(9, NB_I64)},
              *out[1];
    nb_value none = NB_V_NONE;
    int n = 1;
    assert_int_equal(
        nb_op_call(nb_op_find("concatenate"), 2, x, 1, &none, &n, out), NB_OK);
    IS(out[0], SHAPE(5), 1, 3, 2, 4, 9);
}

static void test_roll_goes_round(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(2, 3);
    IS(nb_roll(x, 1, L(1), NULL), SHAPE(2, 3), 6, 1, 2, 3, 4, 5);
    IS(nb_roll(x, 1, L(-4), L(1)), SHAPE(2, 3), 2, 3, 1, 5, 6, 4);
    IS(nb_roll(x, 2, L(1, 1), L(1, -1)), SHAPE(2, 3), 2, 3, 1, 5, 6, 4);
    IS(nb_roll(x, 1, L(6), L(1)), SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    IS(CALL("roll", x, NB_V_INT(1), NB_V_LIST(2, L(0, 1))), SHAPE(2, 3), 6, 4,
       5, 3, 1, 2);
    has_shape(nb_roll(nb_zeros(SHAPE(0, 3), NB_I64), 1, L(2), L(0)),
              SHAPE(0, 3));
    REFUSED(nb_roll(x, 1, L(1), L(2)), NB_EAXIS, "axis 2");
    REFUSED(nb_roll(x, 2, L(1, 2), NULL), NB_EVALUE, "2 shifts for 1 axes");
    REFUSED(CALL("roll", x, NB_V_LIST(2, L(1, 2)), NB_V_LIST(3, L(0, 1, 0))),
            NB_EVALUE, "2 shifts for 3 axes");
}

static void test_repeat_and_tile(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(2, 2);
    IS(nb_repeat(x, 2, 0), SHAPE(4, 2), 1, 2, 1, 2, 3, 4, 3, 4);
    IS(CALL("repeat", x, NB_V_INT(2)), SHAPE(8), 1, 1, 2, 2, 3, 3, 4, 4);
    has_shape(nb_repeat(x, 0, 1), SHAPE(2, 0));
    IS(nb_tile(x, 1, L(2)), SHAPE(2, 4), 1, 2, 1, 2, 3, 4, 3, 4);
    IS(nb_tile(x, 2, L(2, 1)), SHAPE(4, 2), 1, 2, 3, 4, 1, 2, 3, 4);
    has_shape(nb_tile(x, 3, L(5, 0, 2)), SHAPE(5, 0, 4));
    IS(nb_tile(x, 0, NULL), SHAPE(2, 2), 1, 2, 3, 4);
    IS(nb_tile(nb_scalar_int(3, NB_I64), 1, L(2)), SHAPE(2), 3, 3);
    REFUSED(nb_repeat(x, -1, 0), NB_EVALUE, "-1 repeats");
    REFUSED(nb_tile(x, 1, L(-2)), NB_EVALUE, "repetition -2");
    REFUSED(nb_repeat(x, INT64_MAX, 0), NB_EOVERFLOW, "too long");
}

static void test_grids(void **s)
{
    (void)s;
    nb_tensor *x[] = {COUNTING(2), COUNTING(3), COUNTING(4)}, *out[3];
    assert_int_equal(nb_meshgrid(3, x, "xy", out), NB_OK);
    has_shape(out[0], SHAPE(3, 2, 4));
    assert_int_equal(nb_meshgrid(3, x, "ij", out), NB_OK);
    has_shape(out[2], SHAPE(2, 3, 4));
    assert_int_equal(nb_meshgrid(1, x, "xy", out), NB_OK);
    IS(out[0], SHAPE(2), 1, 2);
    refused(nb_meshgrid(2, x, "yx", out), NB_EVALUE, "\"yx\" is neither");
    x[1] = COUNTING(2, 2);
    refused(nb_meshgrid(2, x, "ij", out), NB_EVALUE, "array 1 has rank 2");
}

static void test_arrays_broadcast_together(void **s)
{
    (void)s;
    nb_tensor *x[] = {COUNTING(2, 1), COUNTING(3), nb_scalar_int(5, NB_I64)};
    nb_tensor *out[3];
    assert_int_equal(nb_broadcast_arrays(3, x, out), NB_OK);
    IS(out[0], SHAPE(2, 3), 1, 1, 1, 2, 2, 2);
    IS(out[2], SHAPE(2, 3), 5, 5, 5, 5, 5, 5);
    x[2] = COUNTING(2);
    refused(nb_broadcast_arrays(3, x, out), NB_EVALUE,
            "shape (2,) does not broadcast");
}

/* Diagonals */

static void test_diagonals(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(3, 4);
    IS(nb_diagonal(x, 0, 0, 1), SHAPE(3), 1, 6, 11);
    IS(nb_diagonal(x, -1, 0, 1), SHAPE(2), 5, 10);
    IS(nb_diagonal(x, -1, 1, 0), SHAPE(3), 2, 7, 12);
    has_shape(nb_diagonal(x, 4, 0, 1), SHAPE(0));
    has_shape(nb_diagonal(x, INT64_MAX, 0, 1), SHAPE(0));
    has_shape(nb_diagonal(nb_zeros(SHAPE(2, 3, 4, 5), NB_I64), 1, 0, -1),
              SHAPE(3, 4, 2));
    REFUSED(nb_diagonal(x, 0, 1, -1), NB_EVALUE, "both 1");
    REFUSED(nb_diagonal(COUNTING(3), 0, -2, -1), NB_EAXIS, "axis -2");
}

static void test_the_gradient_of_a_diagonal_is_a_diagonal(void **s)
{
    (void)s;
    nb_tensor *x = nb_cast(COUNTING(2, 3), NB_F32), *in, *ct, *cx;
    for (int64_t k = -2; k <= 3; k++) {
        uint64_t bit = nb_walk_begin(1, &x, &in);
        nb_tensor *y = nb_diagonal(in, k, 0, 1);
        ct = nb_fill_like(y, 2);
        assert_true(nb_walk_pull(bit, 1, &in, 1, &y, &ct, &cx));
        nb_walk_end(bit);
        int64_t want[6];
        for (int i = 0; i < 6; i++)
            want[i] = i % 3 - i / 3 == k ? 2 : 0;
        has_shape(cx, SHAPE(2, 3));
        has_values(cx, 6, want);
    }
}

static void test_triangles(void **s)
{
    (void)s;
    nb_tensor *x = COUNTING(2, 3);
    IS(nb_triu(x, 0), SHAPE(2, 3), 1, 2, 3, 0, 5, 6);
    IS(nb_tril(x, 0), SHAPE(2, 3), 1, 0, 0, 4, 5, 0);
    IS(nb_triu(x, -5), SHAPE(2, 3), 1, 2, 3, 4, 5, 6);
    IS(nb_tril(x, INT64_MIN + 1), SHAPE(2, 3), 0, 0, 0, 0, 0, 0);
    nb_tensor *truth = nb_tril(nb_ones(SHAPE(2, 2), NB_BOOL), 0);
    assert_int_equal(nb_dtype_of(truth), NB_BOOL);
    IS(truth, SHAPE(2, 2), 1, 0, 1, 1);
    REFUSED(nb_tril(COUNTING(3), 0), NB_EVALUE, "tril: rank 1");
}

/* Everything */

static void test_every_dtype_moves(void **s)
{
    (void)s;
    for (int d = NB_NOTYPE + 1; d < NB_NDTYPES; d++) {
        nb_tensor *x = counting((nb_dtype)d, SHAPE(2, 3)), *two[] = {x, x};
        int64_t t = d == NB_BOOL ? 1 : 0; /* all that counts is true */
        nb_tensor *y =
            nb_flatten(nb_swap_axes(nb_flip(x, 1, L(1)), 0, 1), 0, -1);
        assert_int_equal(nb_dtype_of(y), d);
        IS(y, SHAPE(6), t ? 1 : 3, t ? 1 : 6, t ? 1 : 2, t ? 1 : 5, 1,
           t ? 1 : 4);
        IS(nb_slice(nb_concatenate(2, two, 0), L(1, 0), L(2, 2), L(1, 2)),
           SHAPE(2, 2), t ? 1 : 4, t ? 1 : 6, 1, t ? 1 : 3);
        y = nb_pad(x, L(0, 0, 1, 0), 1);
        assert_int_equal(nb_dtype_of(y), d);
        IS(nb_slice(y, L(1, 0), L(1, 2), L(1, 1)), SHAPE(1, 2), 1, t ? 1 : 4);
        IS(nb_triu(x, 1), SHAPE(2, 3), 0, t ? 1 : 2, t ? 1 : 3, 0, 0,
           t ? 1 : 6);
    }
}

static void test_sixteen_axes_are_enough(void **s)
{
    int64_t size[NB_MAX_RANK], order[NB_MAX_RANK], ones[NB_MAX_RANK];
    (void)s;
    for (int d = 0; d < NB_MAX_RANK; d++) {
        size[d] = d % 4 == 0 ? 2 : 1;
        order[d] = NB_MAX_RANK - 1 - d;
        ones[d] = 1;
    }
    nb_tensor *x = counting(NB_I64, NB_MAX_RANK, size), *two[] = {x, x};
    nb_tensor *y = nb_permute(x, NB_MAX_RANK, order);
    IS(nb_flatten(y, 0, -1), SHAPE(16), 1, 9, 5, 13, 3, 11, 7, 15, 2, 10, 6, 14,
       4, 12, 8, 16);
    y = nb_flip(x, -1, NULL);
    IS(nb_reshape(y, SHAPE(4, 4)), SHAPE(4, 4), 16, 15, 14, 13, 12, 11, 10, 9,
       8, 7, 6, 5, 4, 3, 2, 1);
    IS(nb_flatten(nb_diagonal(x, 0, 0, 4), 0, -1), SHAPE(8), 1, 13, 2, 14, 3,
       15, 4, 16);
    size[15] = 2;
    has_shape(nb_concatenate(2, two, 15), NB_MAX_RANK, size);
    has_shape(nb_repeat(x, 2, 15), NB_MAX_RANK, size);
    ones[15] = 2;
    IS(nb_slice(nb_reshape(nb_tile(x, NB_MAX_RANK, ones), SHAPE(32)), L(0),
                L(4), L(1)),
       SHAPE(4), 1, 1, 2, 2);
    has_shape(nb_roll(x, 1, L(1), L(0)), NB_MAX_RANK, (size[15] = 1, size));
    for (int d = 0; d < NB_MAX_RANK; d++)
        size[d] = 2;
    y = nb_zeros(NB_MAX_RANK, size, NB_F32);
    assert_int_equal(nb_elements(nb_flatten(y, 0, -1)), 65536);
    has_shape(nb_reshape(nb_flatten(y, 0, -1), NB_MAX_RANK, size), NB_MAX_RANK,
              size);
    REFUSED(nb_unsqueeze(x, 0), NB_EVALUE, "rank 17");
    REFUSED(nb_stack(2, two, 0), NB_EVALUE, "rank 17");
}

static void test_views_see_visible_axes_only(void **s)
{
    nb_extent three = nb_extent_of(3);
    (void)s;
    int id = nb_lane_open(three, NULL);
    nb_lane lane = {.size = three, .id = id};
    nb_tensor *x = nb_hide(COUNTING(3, 2, 2), 0, id);
    nb_tensor *y = nb_flatten(nb_swap_axes(x, 0, -1), 0, -1);
    nb_tensor *two[] = {nb_flip(x, 1, L(0)), COUNTING(1, 2)};
    nb_tensor *z = nb_concatenate(2, two, 0);
    nb_tensor *zero = nb_zeros_like(x), *flat[2];
    assert_int_equal(nb_hidden(zero), 1);
    assert_true(nb_tensor_lane(zero)[0].thin);
    assert_int_equal(nb_split(x, 2, 1, flat), NB_OK);
    nb_lane_close();
    IS(nb_show(y, 0, lane), SHAPE(3, 4), 1, 3, 2, 4, 5, 7, 6, 8, 9, 11, 10, 12);
    IS(nb_show(z, 0, lane), SHAPE(3, 3, 2), 3, 4, 1, 2, 1, 2, 7, 8, 5, 6, 1, 2,
       11, 12, 9, 10, 1, 2);
    IS(nb_show(flat[1], 0, lane), SHAPE(3, 2, 1), 2, 4, 6, 8, 10, 12);
    has_shape(nb_show(zero, 0, lane), SHAPE(3, 2, 2));
}

static void test_failure_is_passed_on(void **s)
{
    nb_tensor *x[] = {NULL, NULL}, *out[2];
    (void)s;
    nb_error_raise(NB_EKEY, "first");
    assert_null(nb_reshape(NULL, SHAPE(1)));
    assert_null(nb_flip(nb_slice(NULL, NULL, NULL, NULL), -1, NULL));
    assert_null(nb_concatenate(2, x, 0));
    assert_null(nb_pad(nb_squeeze(NULL, -1, NULL), NULL, 1));
    assert_null(nb_full_like(NULL, nb_num(1)));
    assert_null(nb_full(SHAPE(2), NULL, NB_F32));
    assert_null(nb_one_hot(NULL, 3, NB_F32, 0));
    assert_int_equal(nb_split(NULL, 2, 0, out), NB_EKEY);
    assert_string_equal(nb_error_message(), "first");
}

static void test_none_is_not_an_axis(void **s)
{
    static const char *const names[] = {"swap_axes", "unsqueeze", "stack",
                                        "unbind"};
    nb_value none[] = {NB_V_NONE, NB_V_NONE};
    nb_tensor *x = COUNTING(2, 2);
    (void)s;
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        REFUSED(call(names[k], x, 2, none), NB_ETYPE, "must be an integer");
    REFUSED(CALL("diagonal", x, NB_V_INT(0), NB_V_NONE), NB_ETYPE, "axis");
    REFUSED(CALL("split", x, NB_V_INT(2), NB_V_NONE), NB_ETYPE, "axis");
    REFUSED(CALL("chunk", x, NB_V_INT(2), NB_V_NONE), NB_ETYPE, "axis");
    REFUSED(CALL("permute", x, NB_V_NONE), NB_ETYPE, "permute");
    REFUSED(CALL("moveaxis", x, NB_V_NONE, NB_V_NONE), NB_ETYPE, "moveaxis");
    REFUSED(CALL("reshape", x, NB_V_NONE), NB_ETYPE, "reshape");
    REFUSED(CALL("roll", x, NB_V_NONE), NB_ETYPE, "roll");
}

/* The example of an op and its cotangents, computed. */
static bool example_and_back(void *ctx)
{
    const sample *x = ctx;
    nb_tensor *in[MAX_IN], *out[MAX_OUT], *ct[MAX_OUT], *cx[MAX_IN];
    uint64_t bit = nb_walk_begin(x->nin, x->in, in);
    if (!bit) return false;
    int n = sample_call(x, in, out);
    bool ok = n > 0;
    for (int k = 0; ok && k < n; k++)
        ok = (ct[k] = nb_fill_like(out[k], 1));
    if (x->nin > 0) ok = ok && nb_walk_pull(bit, x->nin, in, n, out, ct, cx);
    nb_walk_end(bit);
    for (int k = 0; ok && k < n; k++)
        ok = nb_realize(out[k]) == NB_OK;
    for (int i = 0; ok && i < x->nin; i++)
        ok = !cx[i] || nb_realize(cx[i]) == NB_OK;
    return ok;
}

static void test_running_out_of_memory_is_an_error(void **s)
{
    int i = 0;
    (void)s;
    while (nb_op_at(i) != &nb_op_permute)
        i++;
    for (; nb_op_at(i - 1) != &nb_op_one_hot; i++) {
        sample x;
        assert_true(sample_random(&x, nb_op_at(i)));
        faults f = {.run = example_and_back, .ctx = &x};
        if (!faults_survived(&f)) fail_msg("%s", x.op->name);
    }
}

#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, open_scope, close_scope)

int main(void)
{
    there_open();
    const struct CMUnitTest tests[] = {
        TEST(test_a_copy_moves_every_element),
        TEST(test_views_share_memory),
        TEST(test_constants_take_no_memory),
        TEST(test_reshape_copies_what_no_view_shows),
        TEST(test_reshape_says_which_axes_stay),
        TEST(test_reshape_refuses_what_does_not_fit),
        TEST(test_the_same_shape_is_the_same_tensor),
        TEST(test_shapes_that_are_not_so_are_refused),
        TEST(test_flatten_takes_a_range_of_axes),
        TEST(test_squeeze_takes_one_some_or_all),
        TEST(test_axes_move),
        TEST(test_pairs_are_interleaved),
        TEST(test_slices_step_both_ways),
        TEST(test_slices_stay_inside),
        TEST(test_embed_takes_every_other_place),
        TEST(test_flip_is_its_own_inverse),
        TEST(test_a_backward_view_multiplies),
        TEST(test_pad_surrounds_with_a_value),
        TEST(test_split_needs_equal_parts),
        TEST(test_chunk_leaves_empty_parts_out),
        TEST(test_unbind_gives_rows_or_columns),
        TEST(test_joined_tensors_take_one_dtype),
        TEST(test_many_tensors_join),
        TEST(test_joins_refuse_what_does_not_fit),
        TEST(test_without_axis_all_elements_join),
        TEST(test_roll_goes_round),
        TEST(test_repeat_and_tile),
        TEST(test_grids),
        TEST(test_arrays_broadcast_together),
        TEST(test_diagonals),
        TEST(test_the_gradient_of_a_diagonal_is_a_diagonal),
        TEST(test_triangles),
        TEST(test_every_dtype_moves),
        TEST(test_sixteen_axes_are_enough),
        TEST(test_views_see_visible_axes_only),
        TEST(test_failure_is_passed_on),
        TEST(test_none_is_not_an_axis),
        TEST(test_running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
