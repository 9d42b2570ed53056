/* test_blas.c - matrix products and linear algebra, by every way of doing them.
 *
 * The way is chosen by the environment and kept for the process, so main runs
 * the tests once per way, each time in a process of its own.  Products are of
 * small integers, hence exact whatever the order of summation; factorisations
 * are multiplied out again. */
#include "base/blas.h"
#include "base/blas_own.h"
#include "base/dl.h"
#include "base/half.h"
#include "base/lapack.h"
#include "base/memory.h"

#include <float.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* The first two are those of linear algebra. */
static const nb_dtype types[] = {NB_F32, NB_F64, NB_BF16, NB_F16};

static size_t size_of(nb_dtype d)
{
    return nb_float_size(d);
}

static double get(nb_dtype d, const void *p, int64_t i)
{
    return d == NB_F32    ? (double)((const float *)p)[i]
           : d == NB_F64  ? ((const double *)p)[i]
           : d == NB_BF16 ? nb_bf16_to_f32(((const uint16_t *)p)[i])
                          : nb_f16_to_f32(((const uint16_t *)p)[i]);
}

static void put(nb_dtype d, void *p, int64_t i, double x)
{
    if (d == NB_F32)
        ((float *)p)[i] = (float)x;
    else if (d == NB_F64)
        ((double *)p)[i] = x;
    else if (d == NB_BF16)
        ((uint16_t *)p)[i] = nb_f64_to_bf16(x);
    else
        ((uint16_t *)p)[i] = nb_f64_to_f16(x);
}

/* x as d holds it. */
static double rounded(nb_dtype d, double x)
{
    double at;
    put(d, &at, 0, x);
    return get(d, &at, 0);
}

static uint32_t seed = 1;

static double random_in(double low, double high)
{
    seed = seed * 1664525u + 1013904223u;
    return low + (high - low) * (double)(seed >> 8) / (double)(1 << 24);
}

/* Room for n numbers, all x. */
static void *numbers(nb_dtype d, int64_t n, double x)
{
    void *p = malloc((size_t)(n ? n : 1) * size_of(d));
    assert_non_null(p);
    for (int64_t i = 0; i < n; i++)
        put(d, p, i, x);
    return p;
}

static void *random_numbers(nb_dtype d, int64_t n)
{
    void *p = numbers(d, n, 0);
    for (int64_t i = 0; i < n; i++)
        put(d, p, i, random_in(-1, 1));
    return p;
}

static void *random_integers(nb_dtype d, int64_t n)
{
    void *p = numbers(d, n, 0);
    for (int64_t i = 0; i < n; i++)
        put(d, p, i, floor(random_in(-3, 4)));
    return p;
}

/* The ways in which a matrix may lie in memory. */
enum {
    PLAIN,
    TRANSPOSED,
    PADDED,
    TRANSPOSED_PADDED,
    ROWS_BACK,
    COLS_BACK,
    BOTH_BACK,
    SAME_ROW,
    SAME_COL,
    SAME_NUMBER,
    SPREAD,
    OVERLAPPING,
    NLAYOUTS
};

typedef struct matrix {
    void *data;
    int64_t rows, cols, first, row, col;
} matrix;

static matrix matrix_new(nb_dtype d, int64_t rows, int64_t cols, int layout)
{
    const int64_t strides[NLAYOUTS][2] = {
        [PLAIN] = {cols, 1},          [TRANSPOSED] = {1, rows},
        [PADDED] = {cols + 3, 1},     [TRANSPOSED_PADDED] = {1, rows + 5},
        [ROWS_BACK] = {-cols, 1},     [COLS_BACK] = {cols, -1},
        [BOTH_BACK] = {-1, -rows},    [SAME_ROW] = {0, 1},
        [SAME_COL] = {1, 0},          [SAME_NUMBER] = {0, 0},
        [SPREAD] = {2 * cols + 1, 2}, [OVERLAPPING] = {1, 1},
    };
    matrix x = {.rows = rows,
                .cols = cols,
                .row = strides[layout][0],
                .col = strides[layout][1]};
    if (x.row < 0) x.first -= (rows - 1) * x.row;
    if (x.col < 0) x.first -= (cols - 1) * x.col;
    if (x.first < 0) x.first = 0;
    x.data = random_integers(d, rows && cols ? (rows - 1) * llabs(x.row) +
                                                   (cols - 1) * llabs(x.col) + 1
                                             : 0);
    return x;
}

static const void *matrix_start(nb_dtype d, const matrix *x)
{
    return (const char *)x->data + (size_t)x->first * size_of(d);
}

static double matrix_get(nb_dtype d, const matrix *x, int64_t i, int64_t j)
{
    return get(d, x->data, x->first + i * x->row + j * x->col);
}

static bool multiply(nb_dtype d, const matrix *a, const matrix *b, void *c,
                     int64_t c_row)
{
    return nb_gemm(d, a->rows, b->cols, a->cols, matrix_start(d, a), a->row,
                   a->col, matrix_start(d, b), b->row, b->col, c, c_row);
}

/* c (prefilled with NaN, rows 2 further apart than need be) must be so many
 * times a b and nothing else may have been written. */
static void check_times(nb_dtype d, const matrix *a, const matrix *b,
                        const void *c, int times)
{
    int64_t step = b->cols + 2;
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t j = 0; j < step; j++) {
            double sum = 0, found = get(d, c, i * step + j);
            for (int64_t p = 0; j < b->cols && p < a->cols; p++)
                sum += matrix_get(d, a, i, p) * matrix_get(d, b, p, j);
            bool right =
                j < b->cols ? found == rounded(d, sum * times) : isnan(found);
            if (!right)
                fail_msg("dtype %d %dx%dx%d at %d, %d: %g is not %g", (int)d,
                         (int)a->rows, (int)b->cols, (int)a->cols, (int)i,
                         (int)j, found, sum);
        }
}

static void check_product(nb_dtype d, const matrix *a, const matrix *b,
                          const void *c)
{
    check_times(d, a, b, c, 1);
}

/* Round every threshold: of tiny, little and small products, of the blocks of
 * our own kernel (512 rows, 480 columns, 384 units deep) and of its tiles; at
 * the end products that are cut for several threads, by rows, by columns, by
 * both, and because their sums are long. */
static const int64_t shapes[][3] = {
    {0, 0, 0},     {0, 3, 2},      {3, 0, 2},      {3, 2, 0},
    {1, 1, 1},     {2, 3, 4},      {4, 4, 4},      {5, 5, 5},
    {7, 9, 8},     {1, 20, 30},    {20, 1, 30},    {17, 33, 65},
    {12, 32, 16},  {6, 16, 40},    {200, 40, 20},  {1, 300, 500},
    {300, 1, 500}, {1, 1, 2000},   {3, 80, 700},   {70, 60, 520},
    {4, 3080, 12}, {20, 3080, 5},  {80, 3, 700},   {16, 90, 100},
    {130, 70, 90}, {2, 2100, 130}, {600, 1100, 3}, {40, 40, 1400},
    {16, 48, 385}, {33, 500, 31},  {521, 49, 17},  {24, 24, 769},
    {21, 400, 65}, {47, 193, 40},  {2, 1100, 200}, {1, 1600, 301},
};
enum { NSHAPES = sizeof shapes / sizeof *shapes };

static void a_product_is_the_sum_of_products_in_any_layout(void **state)
{
    (void)state;
    for (int s = 0; s < NSHAPES; s++)
        for (int way = 0; way < 4 * NLAYOUTS * NLAYOUTS; way++) {
            int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
            nb_dtype d = types[way % 4];
            bool large = m * n * k > 60000;
            if (large && (way / 4) % 17) continue;
            matrix a = matrix_new(d, m, k, way / 4 % NLAYOUTS);
            matrix b = matrix_new(d, k, n, way / 4 / NLAYOUTS);
            void *c = numbers(d, m * (n + 2), NAN);
            assert_true(multiply(d, &a, &b, c, n + 2));
            check_product(d, &a, &b, c);
            bool half = d == NB_F16 || d == NB_BF16;
            assert_int_equal(nb_gemm_add(d, m, n, k, matrix_start(d, &a), a.row,
                                         a.col, matrix_start(d, &b), b.row,
                                         b.col, c, n + 2),
                             !half);
            nb_error_clear();
            check_times(d, &a, &b, c, half ? 1 : 2);
            free(a.data);
            free(b.data);
            free(c);
        }
    assert_int_equal(nb_memory_live(), 0);
}

static void rows_of_the_result_may_run_backwards(void **state)
{
    (void)state;
    enum { N = 60 };
    static float a[N * N], b[N * N], c[N * N];
    for (int i = 0; i < N * N; i++) {
        a[i] = (float)(i % 7 - 3);
        b[i] = i % N == i / N;
    }
    assert_true(
        nb_gemm(NB_F32, N, N, N, a, N, 1, b, N, 1, c + (N - 1) * N, -N));
    for (int i = 0; i < N; i++)
        assert_memory_equal(a + i * N, c + (N - 1 - i) * N, N * sizeof *a);
}

/* 0 * infinity is NaN: no way may leave out products with zero. */
static void nan_and_infinity_spread_along_rows_and_columns(void **state)
{
    (void)state;
    const int64_t sizes[][3] = {{3, 3, 3},     {9, 9, 9},     {60, 60, 60},
                                {1, 300, 500}, {300, 1, 500}, {3, 300, 300}};
    for (int s = 0; s < 24; s++) {
        int64_t m = sizes[s / 4][0], n = sizes[s / 4][1], k = sizes[s / 4][2];
        nb_dtype d = types[s % 4];
        matrix a = matrix_new(d, m, k, PLAIN), b = matrix_new(d, k, n, PLAIN);
        void *c = numbers(d, m * n, NAN);
        memset(a.data, 0, (size_t)(m * k) * size_of(d));
        put(d, b.data, k / 2 * n, INFINITY);
        put(d, a.data, k / 2, NAN);
        assert_true(multiply(d, &a, &b, c, n));
        for (int64_t i = 0; i < m * n; i++) {
            bool nan = i < n || i % n == 0;
            assert_int_equal(isnan(get(d, c, i)), nan);
        }
        free(a.data);
        free(b.data);
        free(c);
    }
}

static void a_product_of_integers_is_refused(void **state)
{
    (void)state;
    int32_t x = 1;
    assert_false(nb_gemm(NB_I32, 1, 1, 1, &x, 1, 1, &x, 1, 1, &x, 1));
    assert_int_equal(nb_error_code(), NB_ETYPE);
    nb_error_clear();
}

/* A small product and one that is cut into blocks. */
static void a_product_that_finds_no_memory_says_so_and_leaks_none(void **state)
{
    (void)state;
    for (int way = 0; way < 16 * NLAYOUTS; way++) {
        nb_dtype d = types[way % 4];
        int64_t m = way < 8 * NLAYOUTS ? 60 : 400, n = 65, k = 70, nth = 1;
        matrix a = matrix_new(d, m, k, way / 8 % NLAYOUTS);
        matrix b = matrix_new(d, k, n, way / 4 % 2 ? TRANSPOSED : SPREAD);
        void *c = numbers(d, m * (n + 2), NAN);
        for (bool ok = false; !ok; nth++) {
            nb_fault_set(nth);
            ok = multiply(d, &a, &b, c, n + 2);
            nb_fault_set(0);
            assert_int_equal(nb_error_code(), ok ? NB_OK : NB_EMEMORY);
            assert_int_equal(nb_memory_live(), 0);
            nb_error_clear();
        }
        assert_in_range(nth, way / 4 % 2 ? 2 : 3, 10);
        check_product(d, &a, &b, c);
        free(a.data);
        free(b.data);
        free(c);
    }
}

static void *multiply_often(void *wrong)
{
    enum { N = 70 };
    double *x = malloc(3 * N * N * sizeof *x), *y = x + N * N, *z = y + N * N;
    for (int i = 0; i < N * N; i++) {
        x[i] = i % 5;
        y[i] = i / N == i % N;
    }
    for (int i = 0; i < 50; i++) {
        memset(z, 0, N * N * sizeof *z);
        bool ok = nb_gemm(NB_F64, N, N, N, x, N, 1, y, N, 1, z, N);
        if (!ok || memcmp(x, z, N * N * sizeof *x)) *(bool *)wrong = true;
    }
    free(x);
    return NULL;
}

static void threads_may_multiply_at_once(void **state)
{
    (void)state;
    pthread_t thread[4];
    bool wrong[4] = {0};
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            pthread_create(&thread[i], NULL, multiply_often, &wrong[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], NULL);
        assert_false(wrong[i]);
    }
}

static void multiply_large(void)
{
    enum { N = 256 };
    static float a[N * N], b[N * N], c[N * N];
    for (int i = 0; i < N * N; i++) {
        a[i] = 1;
        b[i] = 2;
    }
    assert_true(nb_gemm(NB_F32, N, N, N, a, N, 1, b, N, 1, c, N));
    assert_true(c[N] == 2 * N);
}

static void a_forked_process_may_multiply_too(void **state)
{
    (void)state;
    int status;
    multiply_large();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        multiply_large();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* To the last bit: the numbers are such that every order of summation rounds
 * differently. */
static void the_number_of_threads_changes_no_result(void **state)
{
    (void)state;
    const int64_t sizes[][3] = {
        {1, 3072, 500},  {2100, 1, 300}, {300, 300, 300},  {96, 1100, 70},
        {600, 1100, 40}, {50, 50, 3000}, {1100, 100, 100}, {3, 3000, 300},
        {20, 700, 300},  {2, 3000, 200}};
    int before = nb_threads();
    for (int s = 0; s < 80; s++) {
        const int64_t *size = sizes[s / 8], m = size[0], n = size[1];
        int64_t k = size[2];
        nb_dtype d = types[s % 4];
        bool by_cols = s / 4 % 2;
        matrix a = {random_numbers(d, m * k), m, k, 0, k, 1};
        matrix b = {random_numbers(d, k * n), k, n, 0, n, 1};
        if (by_cols) b.row = 1, b.col = k;
        void *one = numbers(d, m * n, NAN), *many = numbers(d, m * n, NAN);
        assert_int_equal(nb_set_threads(1), NB_OK);
        assert_true(multiply(d, &a, &b, one, n));
        for (int threads = 2; threads < 6; threads++) {
            assert_int_equal(nb_set_threads(threads), NB_OK);
            assert_true(multiply(d, &a, &b, many, n));
            assert_memory_equal(one, many, (size_t)(m * n) * size_of(d));
        }
        free(a.data);
        free(b.data);
        free(one);
        free(many);
    }
    assert_int_equal(nb_set_threads(before), NB_OK);
}

static void own_kernels_of_every_width_agree(void **state)
{
    (void)state;
    for (int s = 0; s < NSHAPES; s++)
        for (int way = 0; way < 12 * 9; way++) {
            const int layouts[] = {PLAIN, TRANSPOSED, SPREAD};
            int64_t m = shapes[s][0], n = shapes[s][1], k = shapes[s][2];
            nb_dtype d = types[way % 4];
            bool large = m * n * k > 60000;
            if (!m || !n || !k || (large && way % 7)) continue;
            matrix a = matrix_new(d, m, k, layouts[way / 12 % 3]);
            matrix b = matrix_new(d, k, n, layouts[way / 36]);
            void *c = numbers(d, m * (n + 2), NAN);
            nb_product x = {d,      m,     n,     k, a.data, a.row, a.col,
                            b.data, b.row, b.col, c, n + 2,  false};
            assert_true(nb_product_own(&x, 16 << way / 4 % 3));
            check_product(d, &a, &b, c);
            x.add = d == NB_F32 || d == NB_F64;
            assert_true(nb_product_own(&x, 16 << way / 4 % 3));
            check_times(d, &a, &b, c, x.add ? 2 : 1);
            free(a.data);
            free(b.data);
            free(c);
        }
}

static void the_environment_names_the_library(void **state)
{
    (void)state;
    const char *want = getenv("NABLA_BLAS"), *name = nb_blas_name();
    if (!strcmp(want, "own")) assert_string_equal(name, "own");
    if (!strcmp(want, "openblas")) assert_null(strstr(name, "onednn"));
    if (!strcmp(want, "onednn")) assert_null(strstr(name, "openblas"));
    if (!strcmp(getenv("NABLA_LAPACK"), "own"))
        assert_string_equal(nb_lapack_name(), "own");
}

static void what_cannot_be_opened_is_null(void **state)
{
    (void)state;
    const char *none[] = {"libno-such-thing.so.9", NULL};
    const char *second[] = {"libno-such-thing.so.9", "libc.so.6", NULL};
    assert_null(nb_dl_open(none));
    assert_null(nb_dl_symbol(NULL, "malloc"));
    void *libc = nb_dl_open(second);
    assert_non_null(libc);
    assert_non_null(nb_dl_symbol(libc, "malloc"));
    assert_null(nb_dl_symbol(libc, "no_such_symbol"));
    assert_false(nb_failed());
}

/* out (m x n) = a (m x k) b (k x n), each transposed if asked, in double. */
typedef struct term {
    const void *data;
    bool transposed;
} term;

static double *times(nb_dtype d, int64_t m, int64_t k, int64_t n, term a,
                     term b)
{
    double *out = numbers(NB_F64, m * n, 0);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t p = 0; p < k; p++)
                out[i * n + j] +=
                    get(d, a.data, a.transposed ? p * m + i : i * k + p) *
                    get(d, b.data, b.transposed ? j * k + p : p * n + j);
    return out;
}

static double largest(nb_dtype d, int64_t n, const void *a)
{
    double top = 0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, fabs(get(d, a, i)));
    return top;
}

static double tolerance(nb_dtype d, int64_t n)
{
    return (d == NB_F32 ? FLT_EPSILON : DBL_EPSILON) * 8 * (double)(n + 4);
}

/* Frees the product it is given. */
static void expect_near(nb_dtype d, int64_t n, double *found, const void *want,
                        double close)
{
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(found[i] - get(d, want, i)) <= close))
            fail_msg("number %d of %d is %g, not %g", (int)i, (int)n, found[i],
                     get(d, want, i));
    free(found);
}

static void expect_orthonormal_columns(nb_dtype d, int64_t m, int64_t n,
                                       const void *q)
{
    double *one = numbers(NB_F64, n * n, 0);
    for (int64_t i = 0; i < n; i++)
        one[i * n + i] = 1;
    expect_near(NB_F64, n * n,
                times(d, n, m, n, (term){q, true}, (term){q, false}), one,
                tolerance(d, m));
    free(one);
}

static bool all_nan(nb_dtype d, int64_t n, const void *a)
{
    for (int64_t i = 0; i < n; i++)
        if (!isnan(get(d, a, i))) return false;
    return true;
}

static bool any_nan(nb_dtype d, int64_t n, const void *a)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(get(d, a, i))) return true;
    return false;
}

static const int64_t orders[] = {0, 1, 2, 5, 33, 100};
enum { NORDERS = sizeof orders / sizeof *orders };

/* a = b b^T + 1: positive. */
static void *positive(nb_dtype d, int64_t n)
{
    void *b = random_numbers(d, n * n), *a = numbers(d, n * n, 0);
    double *x = times(d, n, n, n, (term){b, false}, (term){b, true});
    for (int64_t i = 0; i < n * n; i++)
        put(d, a, i, x[i] + (i % (n + 1) == 0));
    free(b);
    free(x);
    return a;
}

static void cholesky_multiplies_out(void **state)
{
    (void)state;
    for (int s = 0; s < 2 * NORDERS; s++) {
        nb_dtype d = types[s % 2];
        int64_t n = orders[s / 2];
        int info = 7;
        void *a = positive(d, n), *b = numbers(d, n * n, NAN);
        void *l = numbers(d, n * n, NAN);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++)
                put(d, b, i * n + j, get(d, a, i * n + j));
        assert_true(nb_lapack_cholesky(d, n, b, l, &info));
        assert_int_equal(info, 0);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = i + 1; j < n; j++)
                assert_true(get(d, l, i * n + j) == 0);
        expect_near(d, n * n,
                    times(d, n, n, n, (term){l, false}, (term){l, true}), a,
                    tolerance(d, n) * (largest(d, n * n, a) + 1));
        free(a);
        free(b);
        free(l);
    }
}

static void cholesky_of_what_is_not_positive_is_nan_with_the_minor(void **state)
{
    (void)state;
    for (int s = 0; s < 8; s++) {
        nb_dtype d = types[s % 2];
        int info = 0;
        void *a = numbers(d, 9, 0), *l = numbers(d, 9, 0);
        for (int i = 0; i < 3; i++)
            put(d, a, 4 * i, 4);
        if (s / 2 == 0) put(d, a, 4, -1);  /* negative */
        if (s / 2 == 1) put(d, a, 3, 4);   /* singular */
        if (s / 2 == 2) put(d, a, 4, NAN); /* no number */
        if (s / 2 == 3) put(d, a, 3, INFINITY);
        assert_true(nb_lapack_cholesky(d, 3, a, l, &info));
        assert_int_equal(info, 2);
        assert_true(all_nan(d, 9, l));
        assert_true(nb_lapack_cholesky(d, 3, a, l, NULL));
        free(a);
        free(l);
    }
    assert_false(nb_failed());
}

static const int64_t extents[][2] = {
    {0, 0}, {0, 3}, {3, 0},   {1, 1},   {1, 4},   {4, 1},   {2, 2},   {5, 5},
    {7, 3}, {3, 7}, {40, 40}, {60, 25}, {25, 60}, {120, 5}, {90, 90},
};
enum { NEXTENTS = sizeof extents / sizeof *extents };

/* Matrices that are unlike each other: without structure, of rank one, zero,
 * the identity, with columns of very different lengths, huge, tiny. */
enum { ANY, RANK_ONE, ZERO, ONE, GRADED, HUGE_ONE, TINY_ONE, NKINDS };

static void *matrix_of_kind(nb_dtype d, int64_t m, int64_t n, int kind)
{
    void *a = random_numbers(d, m * n);
    double top = d == NB_F32 ? 1e37 : 1e306;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double x = get(d, a, i * n + j);
            const double value[NKINDS] = {
                [ANY] = x,
                [RANK_ONE] = (double)(i + 1) * (double)(j - 2),
                [ZERO] = 0,
                [ONE] = i == j,
                [GRADED] = x * pow(10, -(double)(j % 13)),
                [HUGE_ONE] = x * top,
                [TINY_ONE] = x / top,
            };
            put(d, a, i * n + j, value[kind]);
        }
    return a;
}

static void check_qr(nb_dtype d, int64_t m, int64_t n, bool complete,
                     const void *a)
{
    int64_t k = complete || m < n ? m : n;
    void *q = numbers(d, m * k, NAN), *r = numbers(d, k * n, NAN);
    assert_true(nb_lapack_qr(d, m, n, complete, a, q, r));
    expect_orthonormal_columns(d, m, k, q);
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < i && j < n; j++)
            assert_true(get(d, r, i * n + j) == 0);
    expect_near(d, m * n, times(d, m, k, n, (term){q, false}, (term){r, false}),
                a, tolerance(d, m + n) * largest(d, m * n, a));
    free(q);
    free(r);
}

static void qr_multiplies_out_and_q_is_orthonormal(void **state)
{
    (void)state;
    for (int s = 0; s < 2 * NEXTENTS; s++)
        for (int kind = 0; kind < NKINDS; kind++) {
            nb_dtype d = types[s % 2];
            int64_t m = extents[s / 2][0], n = extents[s / 2][1];
            if (kind == HUGE_ONE && m > 50) continue; /* may overflow */
            void *a = matrix_of_kind(d, m, n, kind);
            check_qr(d, m, n, false, a);
            check_qr(d, m, n, true, a);
            free(a);
        }
}

static void check_svd(nb_dtype d, int64_t m, int64_t n, bool full,
                      const void *a)
{
    int64_t k = m < n ? m : n, uc = full ? m : k, vr = full ? n : k;
    int info = 7;
    void *u = numbers(d, m * uc, NAN), *vt = numbers(d, vr * n, NAN);
    void *s = numbers(d, k, NAN), *only = numbers(d, k, NAN);
    void *us = numbers(d, m * vr, 0), *v = numbers(d, n * vr, 0);
    assert_true(nb_lapack_svd(d, m, n, full, a, u, s, vt, &info));
    assert_int_equal(info, 0);
    double top = k ? get(d, s, 0) : 0;
    for (int64_t i = 0; i < k; i++) {
        assert_true(get(d, s, i) >= 0);
        assert_true(i == 0 || get(d, s, i) <= get(d, s, i - 1));
        for (int64_t j = 0; j < m; j++)
            put(d, us, j * vr + i, get(d, u, j * uc + i) * get(d, s, i));
    }
    for (int64_t i = 0; i < vr; i++)
        for (int64_t j = 0; j < n; j++)
            put(d, v, j * vr + i, get(d, vt, i * n + j));
    expect_orthonormal_columns(d, m, uc, u);
    expect_orthonormal_columns(d, n, vr, v);
    expect_near(d, m * n,
                times(d, m, vr, n, (term){us, false}, (term){vt, false}), a,
                tolerance(d, m + n) * top);
    assert_true(nb_lapack_svd(d, m, n, full, a, NULL, only, NULL, NULL));
    double *copy = numbers(NB_F64, k, 0);
    for (int64_t i = 0; i < k; i++)
        copy[i] = get(d, only, i);
    expect_near(d, k, copy, s, tolerance(d, m + n) * top);
    free(u);
    free(s);
    free(vt);
    free(only);
    free(us);
    free(v);
}

static void svd_multiplies_out_with_orthonormal_vectors(void **state)
{
    (void)state;
    for (int s = 0; s < 2 * NEXTENTS; s++)
        for (int kind = 0; kind < NKINDS; kind++) {
            nb_dtype d = types[s % 2];
            int64_t m = extents[s / 2][0], n = extents[s / 2][1];
            if (kind == HUGE_ONE && m + n > 20) continue; /* may overflow */
            void *a = matrix_of_kind(d, m, n, kind);
            check_svd(d, m, n, false, a);
            check_svd(d, m, n, true, a);
            free(a);
        }
}

static void svd_of_a_known_matrix_has_its_values(void **state)
{
    (void)state;
    /* [[3, 0], [4, 5]] has the singular values 3 sqrt(5) and sqrt(5). */
    const double a[] = {3, 0, 4, 5};
    double s[2];
    assert_true(nb_lapack_svd(NB_F64, 2, 2, false, a, NULL, s, NULL, NULL));
    assert_true(fabs(s[0] - 3 * sqrt(5)) < 1e-14);
    assert_true(fabs(s[1] - sqrt(5)) < 1e-14);
}

static void check_eigh(nb_dtype d, int64_t n, const void *a)
{
    int info = 7;
    void *w = numbers(d, n, NAN), *v = numbers(d, n * n, NAN);
    void *only = numbers(d, n, NAN), *low = numbers(d, n * n, NAN);
    void *vw = numbers(d, n * n, 0);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++)
            put(d, low, i * n + j, get(d, a, i * n + j));
    assert_true(nb_lapack_eigh(d, n, low, w, v, &info));
    assert_int_equal(info, 0);
    for (int64_t i = 0; i < n * n; i++)
        put(d, vw, i, get(d, v, i) * get(d, w, i % n));
    for (int64_t i = 1; i < n; i++)
        assert_true(get(d, w, i) >= get(d, w, i - 1));
    double top = largest(d, n, w);
    expect_orthonormal_columns(d, n, n, v);
    expect_near(d, n * n, times(d, n, n, n, (term){vw, false}, (term){v, true}),
                a, tolerance(d, n) * top);
    assert_true(nb_lapack_eigh(d, n, low, only, NULL, NULL));
    double *copy = numbers(NB_F64, n, 0);
    for (int64_t i = 0; i < n; i++)
        copy[i] = get(d, only, i);
    expect_near(d, n, copy, w, tolerance(d, n) * top);
    free(w);
    free(v);
    free(only);
    free(low);
    free(vw);
}

static void eigh_multiplies_out_with_orthonormal_vectors(void **state)
{
    (void)state;
    for (int s = 0; s < 2 * NORDERS; s++)
        for (int kind = 0; kind < NKINDS; kind++) {
            nb_dtype d = types[s % 2];
            int64_t n = orders[s / 2];
            if (kind == HUGE_ONE && n > 5) continue; /* may overflow */
            void *a = matrix_of_kind(d, n, n, kind);
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < i; j++)
                    put(d, a, j * n + i, get(d, a, i * n + j));
            check_eigh(d, n, a);
            free(a);
        }
}

static void eigh_of_a_known_matrix_has_its_values(void **state)
{
    (void)state;
    const double a[] = {2, NAN, 1, 2}; /* [[2, 1], [1, 2]] */
    double w[2], v[4];
    assert_true(nb_lapack_eigh(NB_F64, 2, a, w, v, NULL));
    assert_true(fabs(w[0] - 1) < 1e-15 && fabs(w[1] - 3) < 1e-15);
    assert_true(fabs(v[0] + v[2]) < 1e-15); /* (1, -1) first */
    assert_true(fabs(v[1] - v[3]) < 1e-15); /* then (1, 1) */
}

static void check_lu(nb_dtype d, int64_t m, int64_t n, const void *a)
{
    int64_t k = m < n ? m : n;
    int sign = 7, parity = 1;
    void *lu = numbers(d, m * n, NAN), *l = numbers(d, m * k, 0);
    void *u = numbers(d, k * n, 0), *pa = numbers(d, m * n, 0);
    int32_t *perm = malloc((size_t)(m + 1) * sizeof *perm);
    assert_true(nb_lapack_lu(d, m, n, a, lu, perm, &sign));
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double x = get(d, lu, i * n + j);
            if (j < i && j < k) put(d, l, i * k + j, x);
            if (j == i) put(d, l, i * k + j, 1);
            if (j >= i) put(d, u, i * n + j, x);
            if (j < i) assert_true(fabs(x) <= 1);
            assert_in_range(perm[i], 0, m - 1);
            put(d, pa, i * n + j, get(d, a, perm[i] * n + j));
        }
    for (int64_t i = 0; i < m && n; i++)
        for (int64_t j = 0; j < i; j++) {
            assert_int_not_equal(perm[i], perm[j]);
            if (perm[j] > perm[i]) parity = -parity;
        }
    assert_int_equal(sign, parity);
    expect_near(d, m * n, times(d, m, k, n, (term){l, false}, (term){u, false}),
                pa, tolerance(d, m + n) * largest(d, m * n, a));
    assert_true(nb_lapack_lu(d, m, n, a, lu, perm, NULL));
    free(lu);
    free(l);
    free(u);
    free(pa);
    free(perm);
}

static void lu_multiplies_out_to_the_permuted_matrix(void **state)
{
    (void)state;
    for (int s = 0; s < 2 * NEXTENTS; s++)
        for (int kind = 0; kind < NKINDS; kind++) {
            nb_dtype d = types[s % 2];
            int64_t m = extents[s / 2][0], n = extents[s / 2][1];
            void *a = matrix_of_kind(d, m, n, kind);
            check_lu(d, m, n, a);
            free(a);
        }
}

static void a_triangle_with_ones_is_solved(nb_dtype d, nb_triangle t, int64_t n,
                                           int64_t columns)
{
    void *a = random_numbers(d, n * n), *read = numbers(d, n * n, 0);
    void *b = random_numbers(d, n * columns), *x = numbers(d, n * columns, NAN);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            bool inside = t.upper ? j > i : j < i;
            double v = get(d, a, i * n + j) / (double)n;
            if (i == j) v = t.unit ? 1 : 2 + fabs(v);
            if (inside || i == j) put(d, read, i * n + j, v);
            put(d, a, i * n + j, inside || (i == j && !t.unit) ? v : NAN);
        }
    assert_true(nb_lapack_solve(d, t, n, columns, a, b, x));
    expect_near(
        d, n * columns,
        times(d, n, n, columns, (term){read, t.transposed}, (term){x, false}),
        b, tolerance(d, n) * 4);
    assert_true(nb_lapack_solve(d, t, n, columns, a, b, b));
    assert_memory_equal(b, x, (size_t)(n * columns) * size_of(d));
    free(a);
    free(read);
    free(b);
    free(x);
}

static void triangles_of_every_kind_are_solved(void **state)
{
    (void)state;
    const int64_t columns[] = {0, 1, 3, 40};
    for (int kind = 0; kind < 16; kind++)
        for (int s = 0; s < 4 * NORDERS; s++) {
            nb_triangle t = {kind & 1, kind & 2, kind & 4};
            a_triangle_with_ones_is_solved(types[kind / 8], t, orders[s / 4],
                                           columns[s % 4]);
        }
}

static void a_singular_triangle_gives_what_is_not_finite(void **state)
{
    (void)state;
    const double a[] = {1, 0, 1, 0}, b[] = {1, 2};
    double x[2];
    nb_triangle lower = {0};
    assert_true(nb_lapack_solve(NB_F64, lower, 2, 1, a, b, x));
    assert_true(x[0] == 1 && !isfinite(x[1]));
}

static void matrices_of_nan_and_infinity_come_to_an_end(void **state)
{
    (void)state;
    enum { N = 40 };
    for (int s = 0; s < 12; s++) {
        nb_dtype d = types[s % 2];
        double bad = s / 2 % 2 ? NAN : INFINITY;
        void *a = random_numbers(d, N * N), *q = numbers(d, N * N, 0);
        void *r = numbers(d, N * N, 0), *w = numbers(d, N, 0);
        int32_t perm[N];
        int info = 0;
        int64_t first = s / 4 ? 7 * N + 3 : 0;
        int64_t last = s / 4 == 2 ? first + 1 : N * N;
        for (int64_t i = first; i < last; i++)
            put(d, a, i, bad);
        assert_true(nb_lapack_svd(d, N, N, true, a, q, w, r, &info));
        assert_int_equal(info, 1);
        assert_true(all_nan(d, N, w) && all_nan(d, N * N, q) &&
                    all_nan(d, N * N, r));
        assert_true(nb_lapack_eigh(d, N, a, w, q, &info));
        assert_int_equal(info, 1);
        assert_true(all_nan(d, N, w) && all_nan(d, N * N, q));
        assert_true(nb_lapack_cholesky(d, N, a, q, &info));
        assert_true(info > 0);
        assert_true(nb_lapack_qr(d, N, N, true, a, q, r));
        assert_true(any_nan(d, N * N, r));
        assert_true(nb_lapack_lu(d, N, N, a, q, perm, NULL));
        for (int i = 0; i < N; i++)
            assert_in_range(perm[i], 0, N - 1);
        free(a);
        free(q);
        free(r);
        free(w);
    }
}

static void linear_algebra_of_integers_is_refused(void **state)
{
    (void)state;
    int32_t x[4] = {0}, perm[1];
    nb_triangle t = {0};
    for (int i = 0; i < 6; i++) {
        bool done =
            i == 0   ? nb_lapack_cholesky(NB_I32, 1, x, x + 1, NULL)
            : i == 1 ? nb_lapack_qr(NB_I32, 1, 1, false, x, x + 1, x + 2)
            : i == 2
                ? nb_lapack_svd(NB_I32, 1, 1, false, x, NULL, x + 1, NULL, NULL)
            : i == 3 ? nb_lapack_eigh(NB_I32, 1, x, x + 1, NULL, NULL)
            : i == 4 ? nb_lapack_lu(NB_I32, 1, 1, x, x + 1, perm, NULL)
                     : nb_lapack_solve(NB_I32, t, 1, 1, x, x + 1, x + 2);
        assert_false(done);
        assert_int_equal(nb_error_code(), NB_ETYPE);
        nb_error_clear();
    }
}

static bool factor(int which, nb_dtype d, int64_t n, const void *a, void *x,
                   void *y, void *z)
{
    nb_triangle t = {0};
    int32_t perm[64];
    switch (which) {
    case 0: return nb_lapack_cholesky(d, n, a, x, NULL);
    case 1: return nb_lapack_qr(d, n, n, true, a, x, y);
    case 2: return nb_lapack_svd(d, n, n, true, a, x, y, z, NULL);
    case 3: return nb_lapack_eigh(d, n, a, x, y, NULL);
    case 4: return nb_lapack_lu(d, n, n, a, x, perm, NULL);
    default: return nb_lapack_solve(d, t, n, n, a, a, x);
    }
}

static void linear_algebra_without_memory_says_so_and_leaks_none(void **state)
{
    (void)state;
    enum { N = 20 };
    for (int s = 0; s < 12; s++) {
        nb_dtype d = types[s % 2];
        void *a = positive(d, N), *x = numbers(d, N * N, 0);
        void *y = numbers(d, N * N, 0), *z = numbers(d, N * N, 0);
        bool ok = false, failed = false;
        for (int64_t nth = 1; !ok; nth++) {
            assert_in_range(nth, 1, 10);
            nb_fault_set(nth);
            ok = factor(s / 2, d, N, a, x, y, z);
            nb_fault_set(0);
            failed = failed || !ok;
            assert_int_equal(nb_error_code(), ok ? NB_OK : NB_EMEMORY);
            assert_int_equal(nb_memory_live(), 0);
            nb_error_clear();
        }
        bool needs_none = s / 2 == 0 || s / 2 == 5; /* the library, in place */
        assert_true(failed ||
                    (needs_none && !strcmp(nb_lapack_name(), "lapack")));
        free(a);
        free(x);
        free(y);
        free(z);
    }
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_may_multiply_at_once),
        cmocka_unit_test(what_cannot_be_opened_is_null),
        cmocka_unit_test(the_environment_names_the_library),
        cmocka_unit_test(a_product_is_the_sum_of_products_in_any_layout),
        cmocka_unit_test(rows_of_the_result_may_run_backwards),
        cmocka_unit_test(nan_and_infinity_spread_along_rows_and_columns),
        cmocka_unit_test(a_product_of_integers_is_refused),
        cmocka_unit_test(a_product_that_finds_no_memory_says_so_and_leaks_none),
        cmocka_unit_test(a_forked_process_may_multiply_too),
        cmocka_unit_test(the_number_of_threads_changes_no_result),
        cmocka_unit_test(own_kernels_of_every_width_agree),
        cmocka_unit_test(cholesky_multiplies_out),
        cmocka_unit_test(
            cholesky_of_what_is_not_positive_is_nan_with_the_minor),
        cmocka_unit_test(qr_multiplies_out_and_q_is_orthonormal),
        cmocka_unit_test(svd_multiplies_out_with_orthonormal_vectors),
        cmocka_unit_test(svd_of_a_known_matrix_has_its_values),
        cmocka_unit_test(eigh_multiplies_out_with_orthonormal_vectors),
        cmocka_unit_test(eigh_of_a_known_matrix_has_its_values),
        cmocka_unit_test(lu_multiplies_out_to_the_permuted_matrix),
        cmocka_unit_test(triangles_of_every_kind_are_solved),
        cmocka_unit_test(a_singular_triangle_gives_what_is_not_finite),
        cmocka_unit_test(matrices_of_nan_and_infinity_come_to_an_end),
        cmocka_unit_test(linear_algebra_of_integers_is_refused),
        cmocka_unit_test(linear_algebra_without_memory_says_so_and_leaks_none),
    };
    return cmocka_run_group_tests_name(nb_blas_name(), tests, NULL, NULL);
}

int main(void)
{
    const char *ways[][2] = {{"own", "own"},
                             {"openblas", "auto"},
                             {"onednn", "own"},
                             {"auto", "auto"}};
    int bad = 0;
    for (int i = 0; i < 4; i++) {
        int status = 1;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            setenv("NABLA_BLAS", ways[i][0], 1);
            setenv("NABLA_LAPACK", ways[i][1], 1);
            int failed = run_all();
            fflush(stdout);
            exit(failed);
        }
        if (child < 0 || waitpid(child, &status, 0) != child || status) bad++;
    }
    return bad != 0;
}
