/* blas.c - which library computes a product, and the calls.
 *
 * The libraries are opened at the first product that is worth one.  Both want
 * operands of which one stride is one and the other no less than the extent;
 * others are copied.  Our own kernel takes any strides, and what does not fit
 * a 32-bit integer. */
#include "base/blas.h"

#include "base/blas_own.h"
#include "base/dl.h"
#include "base/memory.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of multiplications, as measured: up to TINY a loop costs less than
 * the call, up to LITTLE less than any call but that of OpenBLAS, and up to
 * SMALL OpenBLAS is quicker than oneDNN.  For up to FEW_ROWS rows of a large
 * product it is slower than our own kernel. */
enum { TINY = 64, LITTLE = 512, SMALL = 1 << 17, FEW_ROWS = 4, WIDEST = 64 };

enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

typedef int onednn_gemm(char ta, char tb, int64_t m, int64_t n, int64_t k,
                        float alpha, const float *a, int64_t lda,
                        const float *b, int64_t ldb, float beta, float *c,
                        int64_t ldc);
typedef void cblas_f32(int order, int ta, int tb, int m, int n, int k,
                       float alpha, const float *a, int lda, const float *b,
                       int ldb, float beta, float *c, int ldc);
typedef void cblas_f64(int order, int ta, int tb, int m, int n, int k,
                       double alpha, const double *a, int lda, const double *b,
                       int ldb, double beta, double *c, int ldc);
typedef void cblas_v32(int order, int t, int m, int n, float alpha,
                       const float *a, int lda, const float *x, int incx,
                       float beta, float *y, int incy);
typedef void cblas_v64(int order, int t, int m, int n, double alpha,
                       const double *a, int lda, const double *x, int incx,
                       double beta, double *y, int incy);

typedef void set_threads(int n);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    onednn_gemm *onednn;
    set_threads *omp_threads; /* of OpenMP, if one of them runs on it */
    bool openblas;            /* all four are there */
    cblas_f32 *sgemm;
    cblas_f64 *dgemm;
    cblas_v32 *sgemv;
    cblas_v64 *dgemv;
    set_threads *openblas_threads;
} lib;

/* A forked process has one thread, but OpenMP in it waits for the team of its
 * parent unless told to work alone.  OpenBLAS sees to its own threads. */
static void after_fork(void)
{
    if (lib.omp_threads)
        lib.omp_threads(1);
    else
        lib.onednn = NULL;
}

static void load_onednn(void)
{
    const char *names[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so", NULL};
    void *from = nb_dl_open(names);
    lib.onednn = (onednn_gemm *)nb_dl_symbol(from, "dnnl_sgemm");
    lib.omp_threads = (set_threads *)nb_dl_symbol(from, "omp_set_num_threads");
}

static void load_openblas(void)
{
    const char *names[] = {"libopenblas.so.0", "libopenblas.so", NULL};
    void *from = nb_dl_open(names);
    lib.sgemm = (cblas_f32 *)nb_dl_symbol(from, "cblas_sgemm");
    lib.dgemm = (cblas_f64 *)nb_dl_symbol(from, "cblas_dgemm");
    lib.sgemv = (cblas_v32 *)nb_dl_symbol(from, "cblas_sgemv");
    lib.dgemv = (cblas_v64 *)nb_dl_symbol(from, "cblas_dgemv");
    lib.openblas_threads =
        (set_threads *)nb_dl_symbol(from, "openblas_set_num_threads");
    if (!lib.omp_threads)
        lib.omp_threads =
            (set_threads *)nb_dl_symbol(from, "omp_set_num_threads");
    lib.openblas = lib.sgemm && lib.dgemm && lib.sgemv && lib.dgemv;
}

static void load(void)
{
    const char *want = getenv("NABLA_BLAS");
    if (!want) want = "auto";
    if (!strcmp(want, "own")) return;
    if (strcmp(want, "openblas") != 0) load_onednn();
    if (strcmp(want, "onednn") != 0) load_openblas();
    pthread_atfork(NULL, NULL, after_fork);
}

const char *nb_blas_name(void)
{
    pthread_once(&once, load);
    if (lib.onednn) return lib.openblas ? "onednn+openblas" : "onednn";
    return lib.openblas ? "openblas" : "own";
}

void nb_blas_threads(int n)
{
    pthread_once(&once, load);
    if (lib.omp_threads) lib.omp_threads(n);
    if (lib.openblas_threads) lib.openblas_threads(n);
}

/* An operand as the libraries want it. */
typedef struct operand {
    const void *data;
    int64_t step; /* from row to row, or column to column if transposed */
    bool transposed;
    void *copy; /* what data points to, if it had to be copied */
    size_t room;
} operand;

static void gather(void *to, const void *from, size_t size, int64_t rows,
                   int64_t cols, int64_t row, int64_t col)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) {
            int64_t at = i * row + j * col;
            if (size == 4)
                ((float *)to)[i * cols + j] = ((const float *)from)[at];
            else
                ((double *)to)[i * cols + j] = ((const double *)from)[at];
        }
}

/* The stride along an axis of one element means nothing and may be chosen. */
static bool lay(operand *o, nb_dtype d, const void *data, int64_t rows,
                int64_t cols, int64_t row, int64_t col)
{
    *o = (operand){.data = data};
    if (cols == 1) col = 1;
    if (rows == 1) row = col == 1 ? cols : 1;
    if (col == 1 && row >= cols) return o->step = row, true;
    if (row == 1 && col >= rows) {
        o->step = col;
        return o->transposed = true;
    }
    size_t size = d == NB_F32 ? 4 : 8;
    o->copy = nb_block_new((size_t)rows * (size_t)cols * size, &o->room);
    if (!o->copy) return false;
    gather(o->copy, data, size, rows, cols, row, col);
    o->data = o->copy;
    o->step = cols;
    return true;
}

static bool run_onednn(const nb_product *x, const operand *a, const operand *b)
{
    int status =
        lib.onednn(a->transposed ? 'T' : 'N', b->transposed ? 'T' : 'N', x->m,
                   x->n, x->k, 1, a->data, a->step, b->data, b->step, 0, x->c,
                   x->m == 1 ? x->n : x->c_row);
    return status == 0 || nb_product_own(x, WIDEST);
}

/* The product when a vector v meets A or B (`mat`): `in` numbers, v_step apart,
 * give `out` numbers, c_step apart.  by_rows: a stored row of mat makes one of
 * them.  They are cleared first because some versions multiply what was there,
 * be it infinite, by zero. */
static void run_vector(const nb_product *x, const operand *mat, bool by_rows,
                       int in, int out, const void *v, int v_step, int c_step)
{
    int t = by_rows ? PLAIN : TRANSPOSED;
    int rows = by_rows ? out : in, cols = by_rows ? in : out;
    int step = (int)mat->step;
    if (x->dtype == NB_F32) {
        for (int64_t i = 0; i < out; i++)
            ((float *)x->c)[i * c_step] = 0;
        lib.sgemv(ROW_MAJOR, t, rows, cols, 1, mat->data, step, v, v_step, 0,
                  x->c, c_step);
    } else {
        for (int64_t i = 0; i < out; i++)
            ((double *)x->c)[i * c_step] = 0;
        lib.dgemv(ROW_MAJOR, t, rows, cols, 1, mat->data, step, v, v_step, 0,
                  x->c, c_step);
    }
}

static void run_openblas(const nb_product *x, const operand *a,
                         const operand *b)
{
    int ta = a->transposed ? TRANSPOSED : PLAIN;
    int tb = b->transposed ? TRANSPOSED : PLAIN;
    int m = (int)x->m, n = (int)x->n, k = (int)x->k;
    int lda = (int)a->step, ldb = (int)b->step;
    int ldc = m == 1 ? n : (int)x->c_row;
    bool large = (double)m * n * k > SMALL;
    if (large && m == 1)
        run_vector(x, b, b->transposed, k, n, a->data, a->transposed ? lda : 1,
                   1);
    else if (large && n == 1)
        run_vector(x, a, !a->transposed, k, m, b->data, ldb, ldc);
    else if (x->dtype == NB_F32)
        lib.sgemm(ROW_MAJOR, ta, tb, m, n, k, 1, a->data, lda, b->data, ldb, 0,
                  x->c, ldc);
    else
        lib.dgemm(ROW_MAJOR, ta, tb, m, n, k, 1, a->data, lda, b->data, ldb, 0,
                  x->c, ldc);
}

static bool fits(int64_t n)
{
    return -INT32_MAX <= n && n <= INT32_MAX;
}

typedef enum way { OWN, OPENBLAS, ONEDNN } way;

static way choose(const nb_product *x)
{
    bool small = (double)x->m * (double)x->n * (double)x->k <= SMALL;
    bool narrow = fits(x->m) && fits(x->n) && fits(x->k) && fits(x->a_row) &&
                  fits(x->a_col) && fits(x->b_row) && fits(x->b_col) &&
                  fits(x->c_row);
    if (!narrow || (x->m > 1 && x->c_row < x->n)) return OWN;
    if (x->dtype == NB_F32 && lib.onednn && !(small && lib.openblas))
        return ONEDNN;
    if (!lib.openblas) return OWN;
    return !small && 1 < x->m && x->m <= FEW_ROWS && x->n > 1 ? OWN : OPENBLAS;
}

static bool run(const nb_product *x, way w)
{
    operand a, b = {0};
    bool ok = lay(&a, x->dtype, x->a, x->m, x->k, x->a_row, x->a_col) &&
              lay(&b, x->dtype, x->b, x->k, x->n, x->b_row, x->b_col);
    if (ok && w == ONEDNN) ok = run_onednn(x, &a, &b);
    if (ok && w == OPENBLAS) run_openblas(x, &a, &b);
    nb_block_free(a.copy, a.room);
    nb_block_free(b.copy, b.room);
    return ok;
}

bool nb_gemm(nb_dtype d, int64_t m, int64_t n, int64_t k, const void *a,
             int64_t a_row, int64_t a_col, const void *b, int64_t b_row,
             int64_t b_col, void *c, int64_t c_row)
{
    const nb_product x = {d,     m, n,     k,     a, a_row,
                          a_col, b, b_row, b_col, c, c_row};
    assert(m >= 0 && n >= 0 && k >= 0);
    if (d != NB_F32 && d != NB_F64)
        return nb_fail(NB_ETYPE,
                       "matmul: dtype %d has no product here "
                       "(float32 or float64)",
                       (int)d);
    if (m == 0 || n == 0) return true;
    double work = (double)m * (double)n * (double)k;
    if (work <= TINY) return nb_product_simple(&x), true;
    pthread_once(&once, load);
    if (work <= LITTLE && !lib.openblas) return nb_product_simple(&x), true;
    way w = choose(&x);
    return w == OWN ? nb_product_own(&x, WIDEST) : run(&x, w);
}
