/* test_index.c - keys as NumPy reads them, and what the laws do not say of
 * picking and placing: dtypes, ranges, repeats, refusals.
 *
 * Expected values are what NumPy gives for the same key.  A shape is written as
 * a text, "2 3"; COUNTED("2 3") holds 0, 1, 2 ... in it. */
#include "ops/index.h"
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

enum { MOST = 64 };

static int read_shape(const char *text, int64_t *size)
{
    int rank = 0;
    char *end = (char *)text;
    while (*end)
        size[rank++] = strtoll(end, &end, 10);
    return rank;
}

static nb_tensor *array(nb_dtype d, const char *shape, int64_t n,
                        const double *v)
{
    int64_t size[NB_MAX_RANK];
    int rank = read_shape(shape, size);
    for (int k = 0; k < rank; k++)
        n = size[k] ? n / size[k] : 1;
    assert_int_equal(n, 1);
    return nb_cast(given(NB_F64, rank, size, v), d);
}

#define ARRAY(d, shape, ...) array(d, shape, VALUES(__VA_ARGS__))
#define INTS(shape, ...)     ARRAY(NB_I64, shape, __VA_ARGS__)
#define BOOLS(shape, ...)    ARRAY(NB_BOOL, shape, __VA_ARGS__)
#define REALS(shape, ...)    ARRAY(NB_F64, shape, __VA_ARGS__)
#define NONE(shape)          array(NB_I64, shape, 0, NULL)

static nb_tensor *counted(const char *shape)
{
    double v[MOST];
    int64_t size[NB_MAX_RANK];
    for (int i = 0; i < MOST; i++)
        v[i] = i;
    return given(NB_F64, read_shape(shape, size), size, v);
}

static void has(nb_tensor *x, nb_dtype d, const char *shape, int n,
                const double *expected)
{
    int64_t size[NB_MAX_RANK];
    has_shape(x, read_shape(shape, size), size);
    is_near(x, d, 0, n, expected);
}

#define HAS(x, shape, ...) has(x, NB_F64, shape, VALUES(__VA_ARGS__))
#define HAS_NONE(x, shape) has(x, NB_F64, shape, 0, NULL)

#define GET(x, ...)                                             \
    nb_get(x, sizeof((nb_key[]){__VA_ARGS__}) / sizeof(nb_key), \
           (nb_key[]){__VA_ARGS__})
#define SET(x, mode, value, ...)                                \
    nb_set(x, sizeof((nb_key[]){__VA_ARGS__}) / sizeof(nb_key), \
           (nb_key[]){__VA_ARGS__}, value, mode)
#define PICKED(...) NB_PICK(INTS(__VA_ARGS__))

static nb_key checked(nb_tensor *t)
{
    nb_key k = NB_PICK(t);
    k.checked = true;
    return k;
}

/* Reading: ints, slices, new axes, ellipses */

static void ints_take_axes_away(void **state)
{
    nb_tensor *x = counted("2 3 4");
    (void)state;
    HAS(GET(x, NB_AT(1), NB_AT(-1), NB_AT(0)), "", 20);
    HAS(GET(x, NB_AT(0), NB_AT(2)), "4", 8, 9, 10, 11);
    HAS(GET(x, NB_REST, NB_AT(-4)), "2 3", 0, 4, 8, 12, 16, 20);
}

static void slices_clamp_and_step_either_way(void **state)
{
    nb_tensor *x = counted("5");
    (void)state;
    HAS(GET(x, NB_RANGE(1, 99, NB_OPEN)), "4", 1, 2, 3, 4);
    HAS(GET(x, NB_RANGE(NB_OPEN, NB_OPEN, -2)), "3", 4, 2, 0);
    HAS(GET(x, NB_RANGE(-2, -99, -1)), "4", 3, 2, 1, 0);
    HAS(GET(x, NB_RANGE(-99, 2, 1)), "2", 0, 1);
    HAS(GET(x, NB_RANGE(3, 0, -2)), "2", 3, 1);
    HAS(GET(x, NB_RANGE(1, 2, INT64_MAX)), "1", 1);
    HAS_NONE(GET(x, NB_RANGE(3, 3, 1)), "0");
    HAS_NONE(GET(x, NB_RANGE(0, 4, -1)), "0");
    HAS_NONE(GET(x, NB_RANGE(7, 9, 1)), "0");
    refused(GET(x, NB_RANGE(0, 4, 0)), NB_EVALUE, "step 0");
}

static void new_axes_and_ellipses_stand_where_they_are_put(void **state)
{
    nb_tensor *x = counted("2 3");
    (void)state;
    HAS(GET(x, NB_NEWAXIS, NB_AT(1), NB_NEWAXIS), "1 1 3", 3, 4, 5);
    HAS(GET(x, NB_REST, NB_NEWAXIS, NB_RANGE(1, 3, 1)), "2 1 2", 1, 2, 4, 5);
    HAS(GET(x, NB_REST), "2 3", 0, 1, 2, 3, 4, 5);
    HAS(nb_get(x, 0, NULL), "2 3", 0, 1, 2, 3, 4, 5);
    HAS(GET(counted(""), NB_NEWAXIS, NB_REST, NB_NEWAXIS), "1 1", 0);
}

static void a_key_without_tensors_gives_a_view(void **state)
{
    nb_tensor *x = counted("3 4");
    int64_t stride[2];
    nb_tensor *y = GET(x, NB_RANGE(2, NB_OPEN, -2), NB_NEWAXIS, NB_AT(1));
    (void)state;
    assert_false(nb_is_realized(y));
    const char *from = nb_device_data(x, NULL), *at = nb_device_data(y, stride);
    assert_ptr_equal(at, from + 9 * sizeof(double));
    assert_int_equal(stride[0], -8);
}

static void keys_that_do_not_fit_are_refused(void **state)
{
    nb_tensor *x = counted("2 3");
    (void)state;
    refused(GET(x, NB_AT(2)), NB_EINDEX, "2 is out of range for axis 0");
    refused(GET(x, NB_ALL, NB_AT(-4)), NB_EINDEX, "-4 is out of range");
    refused(GET(x, NB_AT(0), NB_AT(0), NB_AT(0)), NB_EINDEX, "3 axes");
    refused(GET(x, NB_REST, NB_REST), NB_EINDEX, "2 ellipses");
    refused(GET(x, NB_PICK(REALS("1", 0))), NB_ETYPE, "float64 is no index");
    refused(GET(x, NB_PICK(BOOLS("3", 1, 0, 1))), NB_EINDEX,
            "a mask of size 3 along axis 0 of size 2");
    refused(GET(x, PICKED("2", 0, 1), PICKED("3", 0, 1, 2)), NB_EINDEX,
            "do not broadcast");
    refused(GET(x, NB_PICK(BOOLS("2 3", 0, 0, 0, 0, 0, 0)), NB_AT(0)),
            NB_EINDEX, "3 axes");
    assert_null(GET(NULL, NB_AT(0)));
    assert_null(GET(x, NB_PICK(NULL)));
}

/* Reading: index tensors */

static void the_axes_of_an_index_replace_the_picked_one(void **state)
{
    nb_tensor *x = counted("2 3");
    (void)state;
    HAS(GET(x, PICKED("3", 1, 0, -1)), "3 3", 3, 4, 5, 0, 1, 2, 3, 4, 5);
    HAS(GET(x, NB_ALL, PICKED("2 2", 2, 0, 0, -1)), "2 2 2", 2, 0, 0, 2, 5, 3,
        3, 5);
    HAS(GET(x, PICKED("2 1", 0, 1), PICKED("2", 2, 0)), "2 2", 2, 0, 5, 3);
    HAS(GET(x, NB_PICK(ARRAY(NB_U8, "", 1))), "3", 3, 4, 5);
    HAS_NONE(GET(x, NB_PICK(NONE("0"))), "0 3");
    HAS_NONE(GET(counted("0 3"), NB_PICK(NONE("2 0"))), "2 0 3");
}

/* x[:, [0, 1], [1, 2]] but x[[0, 1], :, [1, 2]]: the axis of the indices goes
 * to the front where a slice parts them.  An int counts as one of them. */
static void index_axes_stay_unless_something_parts_them(void **state)
{
    nb_tensor *x = counted("2 3 4");
    (void)state;
    HAS(GET(x, NB_ALL, PICKED("2", 0, 1), PICKED("2", 1, 2)), "2 2", 1, 6, 13,
        18);
    HAS(GET(x, PICKED("2", 0, 1), NB_RANGE(0, 2, 1), PICKED("2", 1, 2)), "2 2",
        1, 5, 14, 18);
    HAS(GET(x, NB_RANGE(0, 1, 1), NB_AT(2), PICKED("2", 3, 0)), "1 2", 11, 8);
    HAS(GET(x, NB_AT(0), NB_ALL, PICKED("2", 3, 0)), "2 3", 3, 7, 11, 0, 4, 8);
    HAS(GET(x, NB_ALL, PICKED("1", 0), NB_NEWAXIS, PICKED("1", 1)), "1 2 1", 1,
        13);
    HAS(GET(x, NB_NEWAXIS, PICKED("2", 1, 0), NB_AT(0), NB_REST, NB_AT(3)),
        "2 1", 15, 3);
}

static void an_index_out_of_range_reads_the_nearest(void **state)
{
    nb_tensor *x = counted("4");
    uint64_t huge[] = {UINT64_MAX, 1};
    (void)state;
    HAS(GET(x, PICKED("4", 4, 99, -4, -99)), "4", 3, 3, 0, 0);
    nb_tensor *u = given(NB_U64, 1, (int64_t[]){2}, huge);
    HAS(GET(x, NB_PICK(u)), "2", 3, 1);
    refused(GET(counted("0"), PICKED("1", 0)), NB_EINDEX, "no elements");
}

static void an_index_from_the_host_is_checked(void **state)
{
    nb_tensor *x = counted("2 3");
    uint64_t huge[] = {UINT64_MAX};
    (void)state;
    HAS(GET(x, checked(INTS("2", -2, 1)), NB_AT(0)), "2", 0, 3);
    refused(GET(x, checked(INTS("2", 0, 2))), NB_EINDEX,
            "2 is out of range for an axis of size 2");
    refused(GET(x, NB_ALL, checked(INTS("1", -4))), NB_EINDEX, "-4 is out");
    nb_tensor *u = given(NB_U64, 1, (int64_t[]){1}, huge);
    refused(GET(x, checked(u)), NB_EINDEX, "out of range");
    refused(SET(x, NULL, nb_num(0), checked(INTS("1", 2))), NB_EINDEX, "out");
    /* None is looked at where there is no point to look for. */
    HAS_NONE(GET(x, NB_PICK(NONE("0")), checked(INTS("1", 9))), "0");
    refused(GET(x, NB_PICK(NONE("0")), checked(INTS("", 9))), NB_EINDEX, "9");
}

/* Reading: masks */

static void a_mask_picks_where_it_is_true(void **state)
{
    nb_tensor *x = counted("2 3");
    (void)state;
    HAS(GET(x, NB_PICK(BOOLS("2 3", 1, 0, 1, 0, 0, 1))), "3", 0, 2, 5);
    HAS(GET(x, NB_PICK(BOOLS("2", 0, 1))), "1 3", 3, 4, 5);
    HAS(GET(x, NB_ALL, NB_PICK(BOOLS("3", 1, 0, 1))), "2 2", 0, 2, 3, 5);
    HAS(GET(x, NB_PICK(BOOLS("2", 1, 1)), PICKED("2", 2, 0)), "2", 2, 3);
    HAS(GET(x, NB_PICK(BOOLS("2", 1, 1)), NB_PICK(BOOLS("3", 0, 1, 0))), "2", 1,
        4);
    HAS_NONE(GET(x, NB_PICK(BOOLS("2", 0, 0))), "0 3");
}

static void a_mask_without_axes_adds_one(void **state)
{
    nb_tensor *x = counted("3"), *yes = BOOLS("", 1), *no = BOOLS("", 0);
    (void)state;
    HAS(GET(x, NB_PICK(yes)), "1 3", 0, 1, 2);
    HAS(GET(x, NB_ALL, NB_PICK(yes)), "3 1", 0, 1, 2);
    HAS(GET(x, NB_PICK(yes), PICKED("2", 2, 0)), "2", 2, 0);
    HAS_NONE(GET(x, NB_PICK(no)), "0 3");
    HAS_NONE(GET(x, NB_PICK(no), NB_AT(1)), "0");
    HAS(SET(x, NULL, nb_num(7), NB_PICK(yes)), "3", 7, 7, 7);
    HAS(SET(x, NULL, nb_num(7), NB_PICK(no)), "3", 0, 1, 2);
}

/* Writing */

static void slices_are_written_in_any_step(void **state)
{
    nb_tensor *x = counted("2 3");
    (void)state;
    HAS(SET(x, NULL, REALS("3", 7, 8, 9), NB_ALL,
            NB_RANGE(NB_OPEN, NB_OPEN, -1)),
        "2 3", 9, 8, 7, 9, 8, 7);
    HAS(SET(x, "set", nb_num(7), NB_AT(1), NB_RANGE(0, 3, 2)), "2 3", 0, 1, 2,
        7, 4, 7);
    HAS(SET(x, "set", REALS("1 2", 7, 8), NB_NEWAXIS, NB_REST, NB_AT(0)), "2 3",
        7, 1, 2, 8, 4, 5);
    HAS(SET(x, "add", nb_num(10), NB_AT(0)), "2 3", 10, 11, 12, 3, 4, 5);
    HAS(SET(x, "mul", REALS("2 1", 2, 3), NB_RANGE(0, 2, 1)), "2 3", 0, 2, 4, 9,
        12, 15);
    HAS(SET(x, "min", nb_num(3), NB_REST), "2 3", 0, 1, 2, 3, 3, 3);
    HAS(SET(x, "max", nb_num(3), NB_REST, NB_AT(1)), "2 3", 0, 3, 2, 3, 4, 5);
    HAS(x, "2 3", 0, 1, 2, 3, 4, 5);
}

static void a_value_broadcasts_and_takes_the_dtype(void **state)
{
    nb_tensor *x = nb_cast(counted("2 2"), NB_I32);
    (void)state;
    nb_tensor *y = SET(x, NULL, REALS("", 7.9), NB_AT(0));
    has(y, NB_I32, "2 2", 4, (double[]){7, 7, 2, 3});
    y = SET(x, NULL, REALS("1 1 2", 7, 8), NB_AT(0));
    has(y, NB_I32, "2 2", 4, (double[]){7, 8, 2, 3});
    y = SET(x, "add", nb_num(1.5), PICKED("3", 0, 0, 1), NB_AT(1));
    has(y, NB_I32, "2 2", 4, (double[]){0, 3, 2, 4});
    refused(SET(x, NULL, REALS("3", 1, 2, 3), NB_AT(0)), NB_EVALUE,
            "a value of shape (3,) does not broadcast to (2,)");
    refused(SET(x, NULL, nb_count((int64_t)1 << 40), NB_AT(0)), NB_EOVERFLOW,
            "does not fit int32");
    refused(SET(x, "sub", nb_num(1), NB_AT(0)), NB_EVALUE, "mode \"sub\"");
}

static void of_repeated_indices_the_last_stays_or_all_combine(void **state)
{
    nb_tensor *x = REALS("3", 10, 20, 30), *i = INTS("2 2", 2, 0, 2, 2);
    nb_tensor *v = REALS("2 2", 1, 2, 3, 4);
    (void)state;
    HAS(SET(x, "set", v, NB_PICK(i)), "3", 2, 20, 4);
    HAS(SET(x, "add", v, NB_PICK(i)), "3", 12, 20, 38);
    HAS(SET(x, "mul", v, NB_PICK(i)), "3", 20, 20, 360);
    HAS(SET(x, "min", v, NB_PICK(i)), "3", 2, 20, 1);
    HAS(SET(x, "max", nb_mul(v, nb_num(10)), NB_PICK(i)), "3", 20, 20, 40);
}

static void an_index_out_of_range_writes_nothing(void **state)
{
    nb_tensor *x = counted("3");
    (void)state;
    HAS(SET(x, NULL, REALS("4", 7, 8, 9, 6), PICKED("4", 3, -3, -4, 99)), "3",
        8, 1, 2);
    HAS(SET(x, "add", nb_num(5), PICKED("2", -4, 1)), "3", 0, 6, 2);
    HAS(SET(counted("2 2"), "mul", nb_num(5), PICKED("2", 0, 1),
            PICKED("2", 0, 2)),
        "2 2", 0, 1, 2, 3);
}

static void tensors_and_slices_write_together(void **state)
{
    nb_tensor *x = counted("2 3 2");
    (void)state;
    HAS(SET(x, NULL, REALS("2 2", 70, 71, 80, 81), NB_AT(1),
            NB_RANGE(2, NB_OPEN, -2), PICKED("2", 1, 0)),
        "2 3 2", 0, 1, 2, 3, 4, 5, 81, 71, 8, 9, 80, 70);
    /* Here the picked axis stands in front: (2, 3). */
    HAS(SET(x, NULL, REALS("2 1", 50, 60), PICKED("2", 1, 0), NB_ALL, NB_AT(0)),
        "2 3 2", 60, 1, 60, 3, 60, 5, 50, 7, 50, 9, 50, 11);
}

static void a_mask_set_to_a_number_stays_lazy(void **state)
{
    nb_tensor *x = counted("2 3");
    nb_tensor *mask = nb_equal(nb_mod(x, nb_num(2)), nb_num(0));
    (void)state;
    nb_tensor *y = SET(x, NULL, nb_num(-1), NB_PICK(mask));
    nb_tensor *z = SET(x, "add", REALS("", 10), NB_PICK(mask));
    assert_false(nb_is_realized(mask));
    HAS(y, "2 3", -1, 1, -1, 3, -1, 5);
    HAS(z, "2 3", 10, 1, 12, 3, 14, 5);
}

static void a_mask_set_to_rows_stays_lazy(void **state)
{
    nb_tensor *x = counted("3 2"), *row = REALS("2", 7, 8);
    nb_tensor *mask = nb_equal(REALS("3", 1, 0, 1), nb_num(1));
    (void)state;
    nb_tensor *y = SET(x, NULL, row, NB_PICK(mask));
    nb_tensor *z = SET(x, "mul", row, NB_AT(1), NB_PICK(BOOLS("2", 0, 1)));
    nb_tensor *w = SET(x, NULL, nb_num(9), NB_PICK(mask), NB_AT(1));
    assert_false(nb_is_realized(mask));
    HAS(y, "3 2", 7, 8, 2, 3, 7, 8);
    refused(z, NB_EVALUE, "does not broadcast to (1,)");
    HAS(w, "3 2", 0, 9, 2, 3, 4, 9);
}

static void a_mask_set_to_an_array_goes_in_order(void **state)
{
    nb_tensor *x = counted("2 3"), *m = BOOLS("2 3", 0, 1, 1, 1, 0, 0);
    (void)state;
    HAS(SET(x, NULL, REALS("3", 7, 8, 9), NB_PICK(m)), "2 3", 0, 7, 8, 9, 4, 5);
    HAS(SET(x, "max", REALS("3", 0, 8, 0), NB_PICK(m)), "2 3", 0, 1, 8, 3, 4,
        5);
    HAS(SET(x, NULL, REALS("2 1", 7, 8), NB_ALL, NB_PICK(BOOLS("3", 1, 0, 1))),
        "2 3", 7, 1, 7, 8, 4, 8);
    refused(SET(x, NULL, REALS("2", 7, 8), NB_PICK(m)), NB_EVALUE, "(3,)");
}

/* Dtypes */

static void every_dtype_is_picked_and_placed(void **state)
{
    (void)state;
    for (nb_dtype d = NB_BOOL; d < NB_NDTYPES; d++) {
        bool b = d == NB_BOOL;
        nb_tensor *x = nb_cast(REALS("3", 0, 1, 1), d);
        nb_tensor *v = nb_cast(REALS("3", 1, 0, 1), d);
        nb_key i = PICKED("3", 0, 1, 1);
        has(GET(x, i), d, "3", 3, (double[]){0, 1, 1});
        has(SET(x, "set", v, i), d, "3", 3, (double[]){1, 1, 1});
        has(SET(x, "add", v, i), d, "3", 3, (double[]){1, b ? 1 : 2, 1});
        has(SET(x, "mul", v, i), d, "3", 3, (double[]){0, 0, 1});
        has(SET(x, "min", v, i), d, "3", 3, (double[]){0, 0, 1});
        has(SET(x, "max", v, i), d, "3", 3, (double[]){1, 1, 1});
        has(SET(x, "set", v, NB_RANGE(2, NB_OPEN, -1)), d, "3", 3,
            (double[]){1, 0, 1});
    }
}

static void integers_wrap_and_halves_round_once(void **state)
{
    nb_key five = PICKED("5", 0, 0, 0, 0, 0);
    nb_tensor *byte = ARRAY(NB_U8, "1", 200);
    (void)state;
    has(SET(byte, "add", nb_count(20), five), NB_U8, "1", 1, (double[]){44});
    has(SET(byte, "mul", nb_count(3), five), NB_U8, "1", 1, (double[]){216});
    /* One by one, 2048 + 1 would stay 2048 each time. */
    nb_tensor *half = ARRAY(NB_F16, "1", 2048);
    has(SET(half, "add", nb_num(1), five), NB_F16, "1", 1, (double[]){2052});
    nb_tensor *brain = ARRAY(NB_BF16, "1", 256);
    has(SET(brain, "add", nb_num(1), five), NB_BF16, "1", 1, (double[]){260});
}

static void nan_wins_an_extremum(void **state)
{
    nb_tensor *x = REALS("3", 1, NAN, 3), *v = REALS("3", NAN, 5, 2);
    nb_key all = PICKED("3", 0, 1, 2);
    (void)state;
    HAS(SET(x, "min", v, all), "3", NAN, NAN, 2);
    HAS(SET(x, "max", v, all), "3", NAN, NAN, 3);
}

/* More points than are handled at a time, several rows beside each. */
static void many_points_are_as_few(void **state)
{
    enum { N = 3000 };
    static int32_t index[N];
    static double got[2][N];
    double sum = 0, expected = 0;
    (void)state;
    for (int i = 0; i < N; i++)
        index[i] = i * 7 % 5;
    nb_tensor *i = given(NB_I32, 1, (int64_t[]){N}, index);
    nb_tensor *x = counted("2 5"), *y = GET(x, NB_ALL, NB_PICK(i));
    assert_int_equal(nb_read(y, NB_F64, got), NB_OK);
    for (int k = 0; k < N; k++) {
        assert_true(got[0][k] == index[k]);
        assert_true(got[1][k] == 5 + index[k]);
    }
    nb_tensor *z = SET(x, "add", y, NB_ALL, NB_PICK(i));
    assert_int_equal(nb_read(z, NB_F64, got), NB_OK);
    for (int k = 0; k < 10; k++) {
        sum += ((double *)got)[k];
        expected += k * (1 + N / 5);
    }
    assert_true(sum == expected);
}

/* The public ops */

static void gather_takes_any_axis_and_refuses_the_rest(void **state)
{
    nb_tensor *x = counted("2 3");
    (void)state;
    HAS(nb_gather(x, INTS("", -1), 1), "2", 2, 5);
    HAS(nb_gather(x, INTS("1 2", 0, 0), -2), "1 2 3", 0, 1, 2, 0, 1, 2);
    refused(nb_gather(x, INTS("1", 0), 2), NB_EAXIS, "axis 2");
    refused(nb_gather(x, REALS("1", 0), 0), NB_ETYPE, "integer index");
    refused(nb_gather(counted("0 3"), INTS("1", 0), 0), NB_EINDEX, "axis 0");
    HAS_NONE(nb_gather(counted("0 3"), INTS("1", 2), 1), "0 1");
}

static void scatter_broadcasts_and_keeps_the_dtype(void **state)
{
    nb_tensor *x = nb_cast(counted("2 3"), NB_F32), *i = INTS("2", 2, 0);
    (void)state;
    has(nb_scatter(x, i, nb_num(9), 1), NB_F32, "2 3", 6,
        (double[]){9, 1, 9, 9, 4, 9});
    has(nb_scatter(x, i, REALS("2 2", 6, 7, 8, 9), -1), NB_F32, "2 3", 6,
        (double[]){7, 1, 6, 9, 4, 8});
    refused(nb_scatter(x, i, REALS("3", 1, 2, 3), 1), NB_EVALUE, "(2, 2)");
}

static void take_along_axis_broadcasts_the_other_axes(void **state)
{
    nb_tensor *x = counted("2 3");
    (void)state;
    HAS(nb_take_along_axis(x, INTS("1 2", 2, -3), 1), "2 2", 2, 0, 5, 3);
    HAS(nb_take_along_axis(counted("1 3"), INTS("2 1", 2, 9), -1), "2 1", 2, 2);
    HAS(nb_take_along_axis(x, INTS("1 3", 1, 0, 1), 0), "1 3", 3, 1, 5);
    refused(nb_take_along_axis(x, INTS("2", 0, 1), 0), NB_EVALUE, "same rank");
    refused(nb_take_along_axis(x, INTS("3 1", 0, 1, 0), 1), NB_EVALUE, "fit");
    refused(nb_take_along_axis(x, INTS("1 1", 0), 2), NB_EAXIS, "axis 2");
    HAS(nb_put_along_axis_add(x, INTS("1 3", 1, 0, 1), REALS("1 3", 10, 20, 30),
                              0),
        "2 3", 0, 21, 2, 13, 4, 35);
}

static void slice_update_replaces_a_block(void **state)
{
    nb_tensor *x = nb_cast(counted("2 3"), NB_I64);
    int64_t start[] = {0, -2}, size[] = {2, 2}, large[] = {2, 3};
    (void)state;
    has(nb_slice_update(x, nb_num(9.5), start, size), NB_I64, "2 3", 6,
        (double[]){0, 9, 9, 3, 9, 9});
    has(nb_slice_update(counted(""), nb_num(4), NULL, NULL), NB_F64, "", 1,
        (double[]){4});
    refused(nb_slice_update(x, nb_num(9), start, large), NB_EVALUE,
            "3 places from -2 on are not within axis 1 of size 3");
    refused(nb_slice_update(x, REALS("3", 1, 2, 3), start, size), NB_EVALUE,
            "(2, 2)");
}

/* Derivatives: what comes back to the n tensors of f when its result gets ones,
 * or `weights`. */

typedef nb_tensor *program(nb_tensor *const *x);

static void pull(program *f, int n, nb_tensor *const *x, nb_tensor **g)
{
    nb_tensor *fresh[3];
    uint64_t bit = nb_walk_begin(n, x, fresh);
    assert_true(bit != 0);
    nb_tensor *y = f(fresh);
    if (!y) fail_msg("%s", nb_error_message());
    nb_tensor *one = nb_fill_like(y, 1);
    assert_true(nb_walk_pull(bit, n, fresh, 1, &y, &one, g));
    nb_walk_end(bit);
}

static nb_tensor *reads_twice(nb_tensor *const *x)
{
    return GET(x[0], PICKED("4", 1, 1, 9, 0));
}

static void reads_of_one_element_add_up(void **state)
{
    nb_tensor *x = REALS("3", 1, 2, 3), *g;
    (void)state;
    pull(reads_twice, 1, &x, &g);
    HAS(g, "3", 1, 2, 1);
}

static nb_tensor *writes_twice(nb_tensor *const *x)
{
    nb_tensor *y = SET(x[0], NULL, x[1], PICKED("2 2", 1, 1, 0, 7));
    return nb_mul(y, REALS("3", 10, 20, 30));
}

static void of_writes_the_last_one_is_felt(void **state)
{
    nb_tensor *x[] = {REALS("3", 1, 2, 3), REALS("2 2", 4, 5, 6, 7)}, *g[2];
    (void)state;
    pull(writes_twice, 2, x, g);
    HAS(g[0], "3", 0, 0, 30);
    HAS(g[1], "2 2", 0, 20, 10, 0);
}

static nb_tensor *writes_the_largest(nb_tensor *const *x)
{
    return SET(x[0], "max", x[1], PICKED("4", 0, 0, 1, 5));
}

static void all_that_equal_the_extremum_are_felt_in_full(void **state)
{
    nb_tensor *x[] = {REALS("2", 3, 9), REALS("4", 3, 3, 1, 0)}, *g[2];
    (void)state;
    pull(writes_the_largest, 2, x, g);
    HAS(g[0], "2", 1, 1);
    HAS(g[1], "4", 1, 1, 0, 0);
}

static nb_tensor *multiplies(nb_tensor *const *x)
{
    return SET(x[0], "mul", x[1], PICKED("5", 0, 0, 1, 0, 9));
}

static nb_tensor *slope_of_product(nb_tensor *const *x)
{
    nb_tensor *g[2];
    pull(multiplies, 2, x, g);
    return g[1];
}

/* y0 = x0 u0 u1 u3 with u0 = 0: nothing is divided by.  Second derivatives of
 * y0 in u0, u1, u3 are x0 u3, x0 u1, x0 u0 for the three pairs. */
static void products_have_slopes_at_zero(void **state)
{
    nb_tensor *x[] = {REALS("2", 2, 4), REALS("5", 0, 3, 7, 5, 8)}, *g[2];
    (void)state;
    pull(multiplies, 2, x, g);
    HAS(g[0], "2", 0, 7);
    HAS(g[1], "5", 30, 0, 4, 0, 0);
    pull(slope_of_product, 2, x, g);
    HAS(g[0], "2", 15, 1);
    HAS(g[1], "5", 16, 10, 0, 6, 0);
}

/* Hidden axes */

static nb_lane lane_open(void)
{
    nb_lane lane = {.size = nb_extent_of(2)};
    lane.id = nb_lane_open(lane.size, NULL);
    assert_true(lane.id > 0);
    return lane;
}

static void keys_work_lane_by_lane(void **state)
{
    nb_lane lane = lane_open();
    nb_tensor *x = nb_hide(counted("2 3"), 0, lane.id), *a = counted("3");
    nb_tensor *i = nb_hide(INTS("2 2", 0, 1, 2, 2), 0, lane.id);
    nb_tensor *m = nb_hide(BOOLS("2 3", 1, 0, 0, 0, 1, 1), 0, lane.id);
    (void)state;
    HAS(nb_show(GET(x, NB_RANGE(2, NB_OPEN, -2)), 0, lane), "2 2", 2, 0, 5, 3);
    HAS(nb_show(GET(x, NB_PICK(i)), 0, lane), "2 2", 0, 1, 5, 5);
    HAS(nb_show(GET(a, NB_PICK(i)), 1, lane), "2 2", 0, 2, 1, 2);
    HAS(nb_show(SET(a, "add", nb_num(10), NB_PICK(i)), 0, lane), "2 3", 10, 11,
        2, 0, 1, 22);
    HAS(nb_show(SET(a, NULL, nb_num(9), NB_PICK(m)), 0, lane), "2 3", 9, 1, 2,
        0, 9, 9);
    refused(GET(a, NB_PICK(m)), NB_EVALUE, "lane");
    nb_lane_close();
}

static nb_lane outer;

static nb_tensor *extremes_in_a_vmap(nb_tensor *const *x)
{
    nb_tensor *table = nb_hide(x[0], 0, outer.id);
    return nb_show(SET(table, "max", x[1], PICKED("2", 0, 2)), 0, outer);
}

/* The vmap is over before the derivative is asked for. */
static void a_gradient_reaches_into_a_vmap(void **state)
{
    nb_tensor *x[] = {counted("2 3"), REALS("2", 1, 3)}, *g[2];
    (void)state;
    outer = lane_open();
    nb_lane_close();
    pull(extremes_in_a_vmap, 2, x, g);
    HAS(g[0], "2 3", 0, 1, 0, 1, 1, 1);
    HAS(g[1], "2", 1, 1);
}

/* Faults */

static bool everything(void *unused)
{
    (void)unused;
    nb_tensor *x[] = {counted("3 2"), REALS("2 2", 1, 2, 3, 4)}, *fresh[2];
    nb_tensor *g[4] = {0}, *one;
    static const char *const modes[] = {"set", "mul", "max"};
    bool ok = x[0] && x[1];
    for (int k = 0; ok && k < 3; k++) {
        uint64_t bit = nb_walk_begin(2, x, fresh);
        if (!bit) return false;
        nb_tensor *i = INTS("2", 2, 0), *m = BOOLS("3", 1, 0, 1);
        nb_tensor *y = SET(fresh[0], modes[k], fresh[1], NB_PICK(i));
        y = GET(SET(y, "add", nb_num(2), NB_PICK(m)), NB_RANGE(0, 2, 1),
                NB_PICK(BOOLS("2", 0, 1)));
        one = nb_fill_like(y, 1);
        ok = y && one && nb_walk_pull(bit, 2, fresh, 1, &y, &one, g + 1);
        nb_walk_end(bit);
        g[0] = y;
        for (int t = 0; ok && t < 3; t++)
            ok = !g[t] || nb_realize(g[t]) == NB_OK;
    }
    nb_tensor *half = nb_cast(x[0], NB_F16);
    return ok &&
           nb_realize(SET(half, "add", nb_num(1), PICKED("1", 0))) == NB_OK;
}

static void every_allocation_may_fail(void **state)
{
    faults f = {.run = everything};
    (void)state;
    assert_true(faults_survived(&f));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_scope, close_scope)

int main(void)
{
    there_open();
    const struct CMUnitTest tests[] = {
        TEST(ints_take_axes_away),
        TEST(slices_clamp_and_step_either_way),
        TEST(new_axes_and_ellipses_stand_where_they_are_put),
        TEST(a_key_without_tensors_gives_a_view),
        TEST(keys_that_do_not_fit_are_refused),
        TEST(the_axes_of_an_index_replace_the_picked_one),
        TEST(index_axes_stay_unless_something_parts_them),
        TEST(an_index_out_of_range_reads_the_nearest),
        TEST(an_index_from_the_host_is_checked),
        TEST(a_mask_picks_where_it_is_true),
        TEST(a_mask_without_axes_adds_one),
        TEST(slices_are_written_in_any_step),
        TEST(a_value_broadcasts_and_takes_the_dtype),
        TEST(of_repeated_indices_the_last_stays_or_all_combine),
        TEST(an_index_out_of_range_writes_nothing),
        TEST(tensors_and_slices_write_together),
        TEST(a_mask_set_to_a_number_stays_lazy),
        TEST(a_mask_set_to_rows_stays_lazy),
        TEST(a_mask_set_to_an_array_goes_in_order),
        TEST(every_dtype_is_picked_and_placed),
        TEST(integers_wrap_and_halves_round_once),
        TEST(nan_wins_an_extremum),
        TEST(many_points_are_as_few),
        TEST(gather_takes_any_axis_and_refuses_the_rest),
        TEST(scatter_broadcasts_and_keeps_the_dtype),
        TEST(take_along_axis_broadcasts_the_other_axes),
        TEST(slice_update_replaces_a_block),
        TEST(reads_of_one_element_add_up),
        TEST(of_writes_the_last_one_is_felt),
        TEST(all_that_equal_the_extremum_are_felt_in_full),
        TEST(products_have_slopes_at_zero),
        TEST(keys_work_lane_by_lane),
        TEST(a_gradient_reaches_into_a_vmap),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("index", tests, NULL, NULL);
}
