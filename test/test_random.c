/* test_random.c - random numbers: that they are a function of key and index,
 * that they are distributed as they should be, and what is refused.
 *
 * Seeds are fixed, so every test gives one and the same answer.  Bounds of
 * statistics are those that a true sample would break once in ten thousand
 * times or less. */
#include "base/philox.h"
#include "core/apply.h"
#include "core/lanes.h"
#include "nabla/nabla.h"
#include "ops/random.h"
#include "support/faults.h"
#include "support/there.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MANY = 100000 };
static const nb_dtype floats[] = {NB_F16, NB_BF16, NB_F32, NB_F64};

#define SHAPE(...)                                                         \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }
#define KEY(seed) nb_random_key(seed)

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
    nb_caches_clear();
    return nodes_left() != 0;
}

/* The values of x; free. */
static double *values(nb_tensor *x)
{
    double *v = malloc((size_t)(nb_elements(x) + 1) * sizeof *v);
    if (nb_read(x, NB_F64, v) != NB_OK) fail_msg("%s", nb_error_message());
    return v;
}

static bool same(nb_tensor *x, nb_tensor *y)
{
    int64_t n = nb_elements(x);
    if (nb_dtype_of(x) != nb_dtype_of(y) || n != nb_elements(y)) return false;
    double *a = values(x), *b = values(y);
    bool equal = !memcmp(a, b, (size_t)n * sizeof *a);
    free(a);
    free(b);
    return equal;
}

#define REFUSED(call, code, words)                          \
    do {                                                    \
        assert_null(call);                                  \
        assert_int_equal(nb_error_code(), code);            \
        assert_non_null(strstr(nb_error_message(), words)); \
        nb_error_clear();                                   \
    } while (0)

/* Key number i of those in rows. */
static nb_tensor *row(nb_tensor *keys, int64_t i)
{
    nb_tensor *one =
        nb_slice_tensor(keys, (int64_t[]){i, 0}, (int64_t[]){1, 2});
    return nb_reshape(one, SHAPE(2));
}

typedef struct moments {
    double mean, variance, skew, kurtosis, least, greatest;
} moments;

static moments moments_of(nb_tensor *x)
{
    moments m = {.least = INFINITY, .greatest = -INFINITY};
    int64_t n = nb_elements(x);
    double *v = values(x);
    for (int64_t i = 0; i < n; i++) {
        m.mean += v[i] / (double)n;
        m.least = fmin(m.least, v[i]);
        m.greatest = fmax(m.greatest, v[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        double e = v[i] - m.mean;
        m.variance += e * e / (double)n;
        m.skew += e * e * e / (double)n;
        m.kurtosis += e * e * e * e / (double)n;
    }
    m.skew /= pow(m.variance, 1.5);
    m.kurtosis /= m.variance * m.variance;
    free(v);
    return m;
}

/* Chi-square of counts against expectations, in standard deviations. */
static double surprise(int bins, const double *count, const double *expected)
{
    double sum = 0;
    for (int b = 0; b < bins; b++)
        sum +=
            (count[b] - expected[b]) * (count[b] - expected[b]) / expected[b];
    return (sum - (bins - 1)) / sqrt(2.0 * (bins - 1));
}

/* The same for values that should be spread evenly over [0, 1). */
static double unevenness(const double *u, int64_t n)
{
    enum { BINS = 64 };
    double count[BINS] = {0}, expected[BINS];
    for (int64_t i = 0; i < n; i++) {
        assert_true(u[i] >= 0 && u[i] < 1);
        count[(int)(u[i] * BINS)]++;
    }
    for (int b = 0; b < BINS; b++)
        expected[b] = (double)n / BINS;
    return surprise(BINS, count, expected);
}

static double normal_below(double x)
{
    return erfc(-x / sqrt(2)) / 2;
}

static void test_a_key_is_the_two_words_of_a_seed(void **state)
{
    uint32_t word[2];
    (void)state;
    nb_tensor *key = nb_random_key(-2);
    assert_int_equal(nb_dtype_of(key), NB_U32);
    assert_true(nb_is_realized(key));
    nb_read(key, NB_U32, word);
    assert_int_equal(word[0], 0xffffffff);
    assert_int_equal(word[1], 0xfffffffe);
}

static void test_the_same_key_gives_the_same_numbers(void **state)
{
    (void)state;
    nb_tensor *x = nb_random_normal(KEY(1), SHAPE(50), 0, 1, NB_F32);
    assert_true(same(x, nb_random_normal(KEY(1), SHAPE(50), 0, 1, NB_F32)));
    assert_false(same(x, nb_random_normal(KEY(2), SHAPE(50), 0, 1, NB_F32)));
}

/* All draws in a given shape. */
enum { DRAWS = 7 };
static nb_tensor *drawn(int i, nb_tensor *key, int rank, const int64_t *shape)
{
    switch (i) {
    case 0: return nb_random_uniform(key, rank, shape, -1, 2, NB_F16);
    case 1: return nb_random_uniform(key, rank, shape, 0, 1, NB_F64);
    case 2: return nb_random_normal(key, rank, shape, 1, 2, NB_F32);
    case 3: return nb_random_normal(key, rank, shape, 0, 1, NB_F64);
    case 4: return nb_random_truncated_normal(key, -1, 2, rank, shape, NB_F32);
    case 5: return nb_random_bernoulli(key, nb_num(0.3), rank, shape);
    default: return nb_random_randint(key, rank, shape, -9, 9, NB_I16);
    }
}

static void test_an_element_depends_on_key_and_index_alone(void **state)
{
    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        nb_tensor *flat = drawn(i, KEY(7), SHAPE(30));
        nb_tensor *cube = drawn(i, KEY(7), SHAPE(2, 3, 5));
        nb_tensor *few = drawn(i, KEY(7), SHAPE(11));
        assert_true(same(flat, nb_flatten(cube, 0, -1)));
        assert_true(
            same(few, nb_slice_tensor(flat, (int64_t[]){0}, (int64_t[]){11})));
    }
}

static void test_any_rank_and_no_elements_are_fine(void **state)
{
    int64_t ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3};
    (void)state;
    for (int i = 0; i < DRAWS; i++) {
        assert_int_equal(nb_rank(drawn(i, KEY(3), 0, NULL)), 0);
        assert_int_equal(nb_realize(drawn(i, KEY(3), 0, NULL)), NB_OK);
        nb_tensor *none = drawn(i, KEY(3), SHAPE(4, 0, 2));
        assert_int_equal(nb_realize(none), NB_OK);
        assert_int_equal(nb_elements(none), 0);
        assert_true(same(nb_flatten(drawn(i, KEY(3), 16, ones), 0, -1),
                         drawn(i, KEY(3), SHAPE(3))));
    }
}

static void test_any_integers_serve_as_a_key(void **state)
{
    int64_t word[2] = {5, 4294967296 + 6};
    uint32_t plain[2] = {5, 6};
    (void)state;
    nb_tensor *wide = given(NB_I64, SHAPE(2), word);
    nb_tensor *key = given(NB_U32, SHAPE(2), plain);
    assert_true(same(drawn(2, wide, SHAPE(9)), drawn(2, key, SHAPE(9))));
    assert_true(same(nb_random_split(wide, 3), nb_random_split(key, 3)));
}

static void test_what_is_not_a_key_is_refused(void **state)
{
    (void)state;
    REFUSED(drawn(0, nb_scalar_int(3, NB_U32), SHAPE(2)), NB_ETYPE,
            "a key is uint32 of shape (2,), not uint32 of shape ()");
    REFUSED(drawn(2, nb_ones(SHAPE(2), NB_F32), SHAPE(2)), NB_ETYPE,
            "not float32 of shape (2,)");
    REFUSED(drawn(5, nb_random_split(KEY(0), 3), SHAPE(2)), NB_EVALUE,
            "use vmap over several keys");
    REFUSED(nb_random_fold_in(KEY(0), nb_num(1.5)), NB_ETYPE,
            "data is float32: integers are needed");
    REFUSED(nb_random_split(KEY(0), -1), NB_EVALUE, "-1 keys");
}

static void test_bad_shapes_and_dtypes_are_refused(void **state)
{
    int64_t ones[17] = {0};
    (void)state;
    REFUSED(drawn(1, KEY(0), SHAPE(2, -3)), NB_EVALUE,
            "axis 1 of shape (2, -3) is negative");
    REFUSED(drawn(3, KEY(0), 17, ones), NB_EVALUE, "rank 17");
    REFUSED(drawn(6, KEY(0), SHAPE(1l << 40, 1l << 40)), NB_EOVERFLOW, "");
    REFUSED(nb_random_uniform(KEY(0), SHAPE(2), 0, 1, NB_I32), NB_ETYPE,
            "dtype is int32: a float is needed");
    REFUSED(nb_random_normal(KEY(0), SHAPE(2), 0, 1, NB_BOOL), NB_ETYPE,
            "dtype is bool");
    REFUSED(nb_random_randint(KEY(0), SHAPE(2), 0, 9, NB_F32), NB_ETYPE,
            "dtype is float32: an integer");
}

static void test_splitting_gives_keys_that_differ(void **state)
{
    (void)state;
    nb_tensor *keys = nb_random_split(KEY(11), 100);
    double *v = values(keys);
    for (int i = 0; i < 100; i++)
        for (int j = 0; j < i; j++)
            assert_false(v[2 * i] == v[2 * j] && v[2 * i + 1] == v[2 * j + 1]);
    free(v);
    nb_tensor *two = nb_random_split(KEY(11), 2);
    assert_true(same(row(keys, 1), row(two, 1)));
    assert_int_equal(nb_size(nb_random_split(KEY(11), 0), 0), 0);
}

/* Neighbouring seeds, keys split from one, folded into one, the key itself: of
 * no two are the draws correlated. */
/* The integer is a counter of 64 bits, all of which count. */
static void test_any_integer_is_folded_in_whole(void **state)
{
    int64_t data[] = {
        0,          -1, INT64_MIN, INT64_MAX, (int64_t)1 << 61, INT64_MIN / 4,
        12345678901};
    enum { N = sizeof data / sizeof *data };
    uint32_t key[2] = {0, 5}, got[2 * N];
    (void)state;
    nb_tensor *x = given(NB_I64, SHAPE(N), data);
    nb_tensor *y = nb_random_fold_in(KEY(5), x);
    assert_int_equal(nb_read(y, NB_U32, got), NB_OK);
    for (int i = 0; i < N; i++) {
        uint64_t at = (uint64_t)data[i];
        uint32_t want[4];
        nb_philox(want, key, (uint32_t[]){(uint32_t)at, at >> 32, 0, 1});
        assert_memory_equal(got + 2 * i, want, 8);
    }
}

static void test_draws_of_related_keys_are_independent(void **state)
{
    enum { KEYS = 8 };
    double *v[KEYS];
    (void)state;
    nb_tensor *two = nb_random_split(KEY(5), 2);
    nb_tensor *key[KEYS] = {KEY(5),
                            KEY(6),
                            KEY(5 + (1ll << 32)),
                            row(two, 0),
                            row(two, 1),
                            nb_random_fold_in(KEY(5), nb_count(0)),
                            nb_random_fold_in(KEY(5), nb_count(1)),
                            row(nb_random_split(row(two, 0), 2), 0)};
    for (int i = 0; i < KEYS; i++)
        v[i] = values(nb_random_normal(key[i], SHAPE(MANY), 0, 1, NB_F32));
    for (int i = 0; i < KEYS; i++)
        for (int j = 0; j < i; j++) {
            double sum = 0, squares = 0;
            for (int k = 0; k < MANY; k++) {
                sum += v[i][k] * v[j][k];
                squares += (v[i][k] * v[i][k] - 1) * (v[j][k] * v[j][k] - 1);
            }
            assert_true(fabs(sum) < 4.5 * sqrt(MANY));
            assert_true(fabs(squares) < 4.5 * 2 * sqrt(MANY));
        }
    for (int i = 0; i < KEYS; i++)
        free(v[i]);
}

static void test_neighbours_in_a_draw_are_independent(void **state)
{
    enum { SIDE = 16 };
    double count[SIDE * SIDE] = {0}, expected[SIDE * SIDE];
    (void)state;
    double *v = values(nb_random_uniform(KEY(8), SHAPE(MANY), 0, 1, NB_F32));
    for (int i = 0; i + 1 < MANY; i += 2)
        count[(int)(v[i] * SIDE) * SIDE + (int)(v[i + 1] * SIDE)]++;
    for (int b = 0; b < SIDE * SIDE; b++)
        expected[b] = MANY / 2.0 / (SIDE * SIDE);
    assert_true(fabs(surprise(SIDE * SIDE, count, expected)) < 4);
    free(v);
}

static void test_uniform_numbers_are_spread_evenly(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        nb_tensor *x =
            nb_random_uniform(KEY(20 + i), SHAPE(MANY), -3, 5, floats[i]);
        assert_int_equal(nb_dtype_of(x), floats[i]);
        moments m = moments_of(x);
        assert_true(fabs(m.mean - 1) < 4 * 8 / sqrt(12.0 * MANY));
        assert_true(fabs(m.variance - 64 / 12.0) < 0.06);
        assert_true(m.least >= -3 && m.least < -2.9 && m.greatest < 5);
    }
    for (int i = 2; i < 4; i++) { /* narrow ones have few values a bin */
        double *v =
            values(nb_random_uniform(KEY(30), SHAPE(MANY), 0, 1, floats[i]));
        assert_true(fabs(unevenness(v, MANY)) < 4);
        free(v);
    }
}

/* One in 1024 of the draws rounds to 1 in bfloat16. */
static void test_the_upper_end_never_comes(void **state)
{
    (void)state;
    moments m =
        moments_of(nb_random_uniform(KEY(1), SHAPE(MANY), 0, 1, NB_BF16));
    assert_true(m.greatest == 1 - 0x1p-8);
    m = moments_of(nb_random_uniform(KEY(1), SHAPE(MANY), 0, 1, NB_F16));
    assert_true(m.greatest == 1 - 0x1p-11);
    m = moments_of(nb_random_uniform(KEY(1), SHAPE(MANY), -1, 0, NB_F16));
    assert_true(m.greatest < 0 && m.least == -1);
    m = moments_of(nb_random_uniform(KEY(1), SHAPE(MANY), -3, -2, NB_BF16));
    assert_true(m.greatest == -2 - 0x1p-6 && m.least == -3);
    m = moments_of(
        nb_random_uniform(KEY(1), SHAPE(MANY), 1, 1 + 0x1p-23, NB_F32));
    assert_true(m.least == 1 && m.greatest == 1);
    m = moments_of(
        nb_random_uniform(KEY(1), SHAPE(MANY), 1, 1 + 0x1p-52, NB_F64));
    assert_true(m.least == 1 && m.greatest == 1);
}

static void test_an_interval_of_one_number_gives_that_number(void **state)
{
    (void)state;
    moments m = moments_of(nb_random_uniform(KEY(1), SHAPE(50), 2, 2, NB_F32));
    assert_true(m.least == 2 && m.greatest == 2);
    m = moments_of(nb_random_uniform(KEY(1), SHAPE(50), 1, 1.001, NB_BF16));
    assert_true(m.least == 1 && m.greatest == 1);
}

static void test_intervals_that_are_none_are_refused(void **state)
{
    (void)state;
    REFUSED(nb_random_uniform(KEY(0), SHAPE(2), 1, 0, NB_F32), NB_EVALUE,
            "random_uniform: from 1 to 0 in float32");
    REFUSED(nb_random_uniform(KEY(0), SHAPE(2), NAN, 1, NB_F32), NB_EVALUE,
            "from nan");
    REFUSED(nb_random_uniform(KEY(0), SHAPE(2), 0, 1e6, NB_F16), NB_EVALUE,
            "in float16");
    REFUSED(nb_random_uniform(KEY(0), SHAPE(2), -1.5e308, 1.5e308, NB_F64),
            NB_EVALUE, "finite distance");
    REFUSED(nb_random_truncated_normal(KEY(0), 1, 1, SHAPE(2), NB_F32),
            NB_EVALUE, "from 1 to 1: lower is less than upper");
    REFUSED(nb_random_truncated_normal(KEY(0), NAN, 1, SHAPE(2), NB_F32),
            NB_EVALUE, "from nan");
    REFUSED(nb_random_normal(KEY(0), SHAPE(2), 0, -1, NB_F32), NB_EVALUE,
            "std is -1");
}

static void test_normal_numbers_have_the_moments(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        moments m = moments_of(
            nb_random_normal(KEY(40 + i), SHAPE(MANY), 3, 2, floats[i]));
        assert_true(fabs(m.mean - 3) < 4 * 2 / sqrt(MANY));
        assert_true(fabs(m.variance / 4 - 1) < 4 * sqrt(2.0 / MANY));
        assert_true(fabs(m.skew) < 4 * sqrt(6.0 / MANY));
        assert_true(fabs(m.kurtosis - 3) < 4 * sqrt(24.0 / MANY));
        assert_true(m.greatest > 3 + 2 * 3.7 && m.greatest < 3 + 2 * 6);
    }
}

static void test_normal_numbers_have_the_distribution(void **state)
{
    (void)state;
    for (int i = 2; i < 4; i++) {
        double *v =
            values(nb_random_normal(KEY(50), SHAPE(MANY), 0, 1, floats[i]));
        for (int k = 0; k < MANY; k++)
            v[k] = normal_below(v[k]);
        assert_true(fabs(unevenness(v, MANY)) < 4);
        free(v);
    }
    moments m = moments_of(nb_random_normal(KEY(1), SHAPE(9), 7, 0, NB_F32));
    assert_true(m.least == 7 && m.greatest == 7);
}

/* Every draw has the value that its words have in float64, to 5 units in the
 * last place, however near to 0 or far out it is. */
static void test_normal_float32_keeps_its_digits(void **state)
{
    enum { N = 1 << 21 };
    (void)state;
    nb_value v[2][4];
    uint32_t *w[2];
    nb_tensor *key = KEY(8);
    for (int i = 0; i < 2; i++) {
        v[i][0] = (nb_value)NB_V_LIST(1, ((int64_t[]){N}));
        v[i][1] = (nb_value)NB_V_INT(NB_U32);
        v[i][2] = (nb_value)NB_V_INT(0);
        v[i][3] = (nb_value)NB_V_INT(i);
        w[i] = malloc(N * sizeof *w[i]);
        nb_tensor *x = nb_apply(&nb_op_random_bits, 1, &key, 4, v[i], NULL);
        assert_int_equal(nb_read(x, NB_U32, w[i]), NB_OK);
    }
    double *z = values(nb_random_normal(key, SHAPE(N), 0, 1, NB_F32));
    double worst = 0;
    for (int k = 0; k < N; k++) {
        double u = (w[0][k] + 0.5) * 0x1p-32, a = (w[1][k] + 0.5) * 0x1p-32;
        double want = sqrt(-2 * log(u)) * cos(2 * M_PI * a);
        double ulp = ldexp(1, ilogb(want) - 23);
        double far = fabs(z[k] - want) / ulp;
        if (far > worst) worst = far;
    }
    if (worst > 5) fail_msg("%g units in the last place", worst);
    free(z);
    free(w[0]);
    free(w[1]);
}

/* Between the bounds, and there in proportion to the normal density: also where
 * the whole interval is far out on one side. */
static void test_truncated_numbers_have_the_distribution(void **state)
{
    const double bounds[][2] = {
        {-1, 2},         {-2, 2},       {0, 10},   {5, 6},
        {-INFINITY, -8}, {9, INFINITY}, {-30, -1}, {-INFINITY, INFINITY}};
    (void)state;
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        double a = bounds[i][0], b = bounds[i][1];
        double *v = values(nb_random_truncated_normal(KEY(60 + (int64_t)i), a,
                                                      b, SHAPE(20000), NB_F64));
        for (int k = 0; k < 20000; k++) {
            assert_true(v[k] >= a && v[k] <= b);
            bool over = a > 0;
            double x = over ? -v[k] : v[k];
            double from = normal_below(over ? -b : a);
            double to = normal_below(over ? -a : b);
            v[k] = fmin((normal_below(x) - from) / (to - from), 1 - 0x1p-53);
        }
        assert_true(fabs(unevenness(v, 20000)) < 4);
        free(v);
    }
}

static void
test_truncation_beyond_all_probability_keeps_the_bounds(void **state)
{
    (void)state;
    moments m = moments_of(
        nb_random_truncated_normal(KEY(1), 50, 60, SHAPE(99), NB_F32));
    assert_true(m.least == 50 && m.greatest == 50);
    m = moments_of(
        nb_random_truncated_normal(KEY(1), -INFINITY, -40, SHAPE(99), NB_F32));
    assert_true(m.least == -40 && m.greatest == -40);
}

static void test_bernoulli_is_true_as_often_as_it_should(void **state)
{
    const double p[] = {0, 0.001, 0.3, 0.5, 1};
    (void)state;
    for (int i = 0; i < 5; i++) {
        nb_tensor *x = nb_random_bernoulli(KEY(70), nb_num(p[i]), SHAPE(MANY));
        assert_int_equal(nb_dtype_of(x), NB_BOOL);
        moments m = moments_of(x);
        assert_true(fabs(m.mean - p[i]) <=
                    1e-9 + 4 * sqrt(p[i] * (1 - p[i]) / MANY));
    }
}

static void test_a_probability_may_differ_from_place_to_place(void **state)
{
    double p[3] = {0, 1, 0.5}, *v;
    (void)state;
    nb_tensor *t = given(NB_F64, SHAPE(3), p);
    assert_int_equal(nb_size(nb_random_bernoulli(KEY(1), t, -1, NULL), 0), 3);
    v = values(nb_random_bernoulli(KEY(1), t, SHAPE(1000, 3)));
    double half = 0;
    for (int i = 0; i < 1000; i++) {
        assert_true(v[3 * i] == 0 && v[3 * i + 1] == 1);
        half += v[3 * i + 2];
    }
    assert_true(fabs(half - 500) < 4 * sqrt(250));
    free(v);
    REFUSED(nb_random_bernoulli(KEY(1), t, SHAPE(3, 2)), NB_EVALUE,
            "(3,) does not broadcast to (3, 2)");
    REFUSED(nb_random_bernoulli(KEY(1), nb_num(1.5), SHAPE(3)), NB_EVALUE,
            "p is 1.5: a probability");
    REFUSED(nb_random_bernoulli(KEY(1), nb_num(NAN), SHAPE(3)), NB_EVALUE,
            "p is nan");
}

static void test_integers_come_equally_often(void **state)
{
    const int64_t ends[][2] = {{0, 10}, {-7, 6}, {-128, 128}, {5, 6}};
    const nb_dtype as[] = {NB_I64, NB_I32, NB_I8, NB_U8};
    (void)state;
    for (int i = 0; i < 4; i++) {
        int bins = (int)(ends[i][1] - ends[i][0]);
        double count[256] = {0}, expected[256];
        nb_tensor *x = nb_random_randint(KEY(80), SHAPE(MANY), ends[i][0],
                                         ends[i][1], as[i]);
        assert_int_equal(nb_dtype_of(x), as[i]);
        double *v = values(x);
        for (int k = 0; k < MANY; k++) {
            assert_true(v[k] >= (double)ends[i][0] &&
                        v[k] < (double)ends[i][1]);
            count[(int)v[k] - (int)ends[i][0]]++;
        }
        for (int b = 0; b < bins; b++)
            expected[b] = (double)MANY / bins;
        if (bins > 1) assert_true(fabs(surprise(bins, count, expected)) < 4);
        free(v);
    }
}

/* Three quarters of 2^64: remainders would make half of it twice as likely. */
static void test_wide_ranges_are_not_biased(void **state)
{
    int64_t low = -(3ll << 61), high = 3ll << 61;
    (void)state;
    nb_tensor *x =
        nb_random_randint(KEY(81), SHAPE(MANY), low, high, NB_NOTYPE);
    assert_int_equal(nb_dtype_of(x), NB_I64);
    double *v = values(x);
    for (int k = 0; k < MANY; k++)
        v[k] = v[k] / 0x3p62 + 0.5;
    assert_true(fabs(unevenness(v, MANY)) < 4);
    free(v);
    moments m = moments_of(
        nb_random_randint(KEY(82), SHAPE(999), INT64_MIN, INT64_MAX, NB_I64));
    assert_true(m.least < -0x1.fp62 && m.greatest > 0x1.fp62);
}

static void test_integers_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    REFUSED(nb_random_randint(KEY(0), SHAPE(2), 3, 3, NB_I64), NB_EVALUE,
            "from 3 to below 3 in int64");
    REFUSED(nb_random_randint(KEY(0), SHAPE(2), 0, 129, NB_I8), NB_EVALUE,
            "from 0 to below 129 in int8");
    REFUSED(nb_random_randint(KEY(0), SHAPE(2), -1, 5, NB_U64), NB_EVALUE,
            "in uint64");
    REFUSED(nb_random_randint(KEY(0), SHAPE(2), INT64_MAX, INT64_MIN, NB_I64),
            NB_EVALUE, "low is less than high");
}

static void test_categories_come_by_their_probability(void **state)
{
    float logit[4] = {0, (float)log(2), -INFINITY, (float)log(5)};
    double count[3] = {0},
           expected[3] = {MANY / 8.0, MANY / 4.0, MANY * 5 / 8.0};
    (void)state;
    nb_tensor *x = nb_random_categorical(
        KEY(90), given(NB_F32, SHAPE(4), logit), 0, SHAPE(MANY));
    assert_int_equal(nb_dtype_of(x), NB_I64);
    double *v = values(x);
    for (int k = 0; k < MANY; k++) {
        assert_true(v[k] != 2 && v[k] <= 3);
        count[v[k] == 3 ? 2 : (int)v[k]]++;
    }
    assert_true(surprise(3, count, expected) < 5);
    free(v);
}

/* Each row all but certain of its own category. */
static void test_categories_follow_their_row(void **state)
{
    double logit[6] = {99, 0, 0, 0, 0, 99}, *v;
    (void)state;
    nb_tensor *rows = given(NB_F64, SHAPE(2, 3), logit);
    v = values(nb_random_categorical(KEY(1), rows, -1, -1, NULL));
    assert_true(v[0] == 0 && v[1] == 2);
    free(v);
    nb_tensor *columns = nb_swap_axes(rows, 0, 1);
    nb_tensor *x = nb_random_categorical(KEY(1), columns, 0, SHAPE(5, 4, 2));
    assert_int_equal(nb_rank(x), 3);
    v = values(x);
    for (int i = 0; i < 40; i++)
        assert_true(v[i] == (i % 2 ? 2 : 0));
    free(v);
    REFUSED(nb_random_categorical(KEY(1), rows, 2, -1, NULL), NB_EAXIS,
            "axis 2 is out of range for rank 2");
    REFUSED(nb_random_categorical(KEY(1), rows, 1, SHAPE(3)), NB_EVALUE,
            "does not broadcast");
    REFUSED(nb_random_categorical(KEY(1), rows, 1, 0, NULL), NB_EVALUE,
            "a shape of rank 0 for logits of rank 2");
    REFUSED(nb_random_categorical(KEY(1), nb_zeros(SHAPE(2, 0), NB_F32), 1, -1,
                                  NULL),
            NB_EVALUE, "nothing to choose from");
    REFUSED(nb_random_categorical(KEY(1), nb_num(1), 0, -1, NULL), NB_EAXIS,
            "rank 0");
}

static void test_a_permutation_has_every_number_once(void **state)
{
    bool seen[1000] = {false};
    int moved = 0;
    (void)state;
    nb_tensor *x = nb_random_permutation(KEY(2), nb_count(1000), 0);
    assert_int_equal(nb_dtype_of(x), NB_I64);
    double *v = values(x);
    for (int i = 0; i < 1000; i++) {
        assert_false(seen[(int)v[i]]);
        seen[(int)v[i]] = true;
        moved += v[i] != i;
    }
    assert_true(moved > 980);
    free(v);
    assert_int_equal(nb_size(nb_random_permutation(KEY(2), nb_count(0), 0), 0),
                     0);
    REFUSED(nb_random_permutation(KEY(2), nb_count(-1), 0), NB_EVALUE,
            "of -1 numbers");
    REFUSED(nb_random_permutation(KEY(2), nb_num(3), 0), NB_ETYPE,
            "a number of dtype float32");
    REFUSED(nb_random_permutation(KEY(2), x, 1), NB_EAXIS,
            "axis 1 is out of range");
}

static void test_slices_are_permuted_as_wholes(void **state)
{
    (void)state;
    nb_tensor *grid = nb_reshape(nb_iota(20, NB_F32), SHAPE(4, 5));
    double *v = values(nb_random_permutation(KEY(4), grid, -1));
    double *order = values(nb_random_permutation(KEY(4), nb_count(5), 0));
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 5; j++)
            assert_true(v[5 * i + j] == 5 * i + order[j]);
    free(v);
    free(order);
}

static void test_all_orders_are_equally_likely(void **state)
{
    enum { TRIES = 3000 };
    double count[6] = {0}, expected[6];
    (void)state;
    for (int i = 0; i < TRIES; i++) {
        nb_scope_open();
        nb_tensor *key = nb_random_fold_in(KEY(9), nb_count(i));
        double *v = values(nb_random_permutation(key, nb_count(3), 0));
        count[(int)v[0] * 2 + (v[1] > v[2])]++;
        free(v);
        nb_scope_close(0, NULL);
    }
    for (int b = 0; b < 6; b++)
        expected[b] = TRIES / 6.0;
    assert_true(surprise(6, count, expected) < 4.5);
}

/* Under vmap. */

typedef struct lanes {
    nb_lane lane;
    nb_tensor *x; /* differs in them */
} lanes;

static lanes open_lanes(int64_t n)
{
    nb_extent size = nb_extent_of(n);
    lanes l = {.lane = {.size = size, .id = nb_lane_open(size, NULL)}};
    l.x = nb_hide(nb_iota(n, NB_F32), 0, l.lane.id);
    return l;
}

static nb_tensor *shown(lanes l, nb_tensor *y)
{
    return nb_show(y, 0, l.lane);
}

static void test_a_draw_is_shared_by_all_lanes(void **state)
{
    (void)state;
    lanes l = open_lanes(3);
    nb_tensor *y = nb_mul(nb_random_uniform(KEY(1), 0, NULL, 0, 1, NB_F32),
                          nb_ones_like(l.x));
    nb_lane_close();
    double *v = values(shown(l, y));
    assert_true(v[0] == v[1] && v[1] == v[2]);
    free(v);
}

static void test_a_key_like_a_mapped_tensor_differs_in_every_lane(void **state)
{
    (void)state;
    lanes l = open_lanes(50);
    nb_tensor *key = nb_random_key_like(KEY(1), l.x);
    nb_tensor *y = nb_random_normal(key, SHAPE(2000), 0, 1, NB_F32);
    nb_lane_close();
    y = shown(l, y);
    assert_int_equal(nb_rank(y), 2);
    moments m = moments_of(y);
    assert_true(fabs(m.mean) < 4 / sqrt(MANY));
    assert_true(fabs(m.variance - 1) < 4 * sqrt(2.0 / MANY));
    nb_tensor *third = nb_random_fold_in(KEY(1), nb_count(3));
    nb_tensor *alone = nb_random_normal(third, SHAPE(2000), 0, 1, NB_F32);
    nb_tensor *there =
        nb_slice_tensor(y, (int64_t[]){3, 0}, (int64_t[]){1, 2000});
    assert_true(same(nb_flatten(there, 0, -1), alone));
}

static void test_a_key_like_an_unmapped_tensor_is_the_key(void **state)
{
    (void)state;
    nb_tensor *key = KEY(1);
    assert_ptr_equal(nb_random_key_like(key, nb_num(1)), key);
}

/* The generator of the process. */

static void test_a_seed_restarts_the_generator(void **state)
{
    (void)state;
    nb_manual_seed(5);
    nb_tensor *a = nb_next_key(), *b = nb_next_key();
    assert_false(same(a, b));
    nb_manual_seed(5);
    assert_true(same(a, nb_next_key()));
    assert_true(same(b, nb_next_key()));
    nb_manual_seed(6);
    assert_false(same(a, nb_next_key()));
    assert_false(same(a, KEY(5)));
}

enum { THREADS = 4, EACH = 500 };

static void *draw_keys(void *to)
{
    uint64_t *word = to;
    nb_scope_open();
    for (int i = 0; i < EACH; i++)
        nb_read(nb_next_key(), NB_NOTYPE, &word[i]);
    nb_scope_close(0, NULL);
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void test_threads_get_the_keys_of_one_sequence(void **state)
{
    uint64_t ours[THREADS * EACH], theirs[THREADS * EACH];
    pthread_t thread[THREADS];
    (void)state;
    nb_manual_seed(3);
    for (int i = 0; i < THREADS; i++)
        draw_keys(ours + (long)i * EACH);
    nb_manual_seed(3);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, draw_keys, theirs + (long)i * EACH);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    qsort(ours, THREADS * EACH, sizeof *ours, ascending);
    qsort(theirs, THREADS * EACH, sizeof *theirs, ascending);
    assert_memory_equal(ours, theirs, sizeof ours);
    for (int i = 1; i < THREADS * EACH; i++)
        assert_true(ours[i - 1] != ours[i]);
}

/* Every draw with the n-th allocation failing, for every n. */
static bool draw_all(void *unused)
{
    (void)unused;
    float logit[3] = {0, 1, 2};
    nb_tensor *key = nb_random_fold_in(nb_next_key(), nb_count(2));
    nb_tensor *y = given(NB_F32, SHAPE(3), logit);
    bool ok = true;
    for (int i = 0; ok && i < DRAWS; i++)
        ok = nb_realize(drawn(i, key, SHAPE(2, 3))) == NB_OK;
    ok = ok && nb_realize(nb_random_categorical(key, y, 0, -1, NULL)) == NB_OK;
    ok = ok && nb_realize(nb_random_permutation(key, y, 0)) == NB_OK;
    return ok && nb_realize(nb_random_split(key, 2)) == NB_OK;
}

static void test_running_out_of_memory_is_an_error(void **state)
{
    faults f = {.run = draw_all};
    (void)state;
    assert_true(faults_survived(&f) && f.n > 100);
}

#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, open_scope, close_scope)

int main(void)
{
    there_open();
    const struct CMUnitTest tests[] = {
        TEST(test_a_key_is_the_two_words_of_a_seed),
        TEST(test_the_same_key_gives_the_same_numbers),
        TEST(test_an_element_depends_on_key_and_index_alone),
        TEST(test_any_rank_and_no_elements_are_fine),
        TEST(test_any_integers_serve_as_a_key),
        TEST(test_what_is_not_a_key_is_refused),
        TEST(test_bad_shapes_and_dtypes_are_refused),
        TEST(test_splitting_gives_keys_that_differ),
        TEST(test_any_integer_is_folded_in_whole),
        TEST(test_draws_of_related_keys_are_independent),
        TEST(test_neighbours_in_a_draw_are_independent),
        TEST(test_uniform_numbers_are_spread_evenly),
        TEST(test_the_upper_end_never_comes),
        TEST(test_an_interval_of_one_number_gives_that_number),
        TEST(test_intervals_that_are_none_are_refused),
        TEST(test_normal_numbers_have_the_moments),
        TEST(test_normal_numbers_have_the_distribution),
        TEST(test_normal_float32_keeps_its_digits),
        TEST(test_truncated_numbers_have_the_distribution),
        TEST(test_truncation_beyond_all_probability_keeps_the_bounds),
        TEST(test_bernoulli_is_true_as_often_as_it_should),
        TEST(test_a_probability_may_differ_from_place_to_place),
        TEST(test_integers_come_equally_often),
        TEST(test_wide_ranges_are_not_biased),
        TEST(test_integers_that_do_not_fit_are_refused),
        TEST(test_categories_come_by_their_probability),
        TEST(test_categories_follow_their_row),
        TEST(test_a_permutation_has_every_number_once),
        TEST(test_slices_are_permuted_as_wholes),
        TEST(test_all_orders_are_equally_likely),
        TEST(test_a_draw_is_shared_by_all_lanes),
        TEST(test_a_key_like_a_mapped_tensor_differs_in_every_lane),
        TEST(test_a_key_like_an_unmapped_tensor_is_the_key),
        TEST(test_a_seed_restarts_the_generator),
        TEST(test_threads_get_the_keys_of_one_sequence),
        TEST(test_running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests_name("random", tests, NULL, NULL);
}
