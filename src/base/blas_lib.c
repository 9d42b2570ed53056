/* blas_lib.c - opening oneDNN and OpenBLAS, and calling them.
 *
 * Threads are ours: OpenBLAS is told once to use none of its own, and OpenMP,
 * which keeps the number for every thread, at each call. */
#include "base/blas_lib.h"

#include "base/dl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Above so many multiplications OpenBLAS does vectors by a call of their own,
 * as measured. */
enum { SMALL_VECTOR = 1 << 17 };

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
typedef int get_threads(void);

/* OpenMP, if a library runs on it: both or neither. */
typedef struct openmp {
    set_threads *set;
    get_threads *get;
} openmp;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    onednn_gemm *onednn;
    openmp onednn_omp;
    bool openblas; /* all four are there */
    openmp openblas_omp;
    cblas_f32 *sgemm;
    cblas_f64 *dgemm;
    cblas_v32 *sgemv;
    cblas_v64 *dgemv;
} lib;

static openmp openmp_of(void *from)
{
    openmp o = {(set_threads *)nb_dl_symbol(from, "omp_set_num_threads"),
                (get_threads *)nb_dl_symbol(from, "omp_get_max_threads")};
    return o.set && o.get ? o : (openmp){0};
}

/* A forked process has one thread, but a oneDNN whose threads we do not govern
 * waits in it for those of the parent.  OpenBLAS sees to its own. */
static void after_fork(void)
{
    if (!lib.onednn_omp.set) lib.onednn = NULL;
}

static void load_onednn(void)
{
    const char *names[] = {"libdnnl.so.3", "libdnnl.so.2", "libdnnl.so", NULL};
    void *from = nb_dl_open(names);
    lib.onednn = (onednn_gemm *)nb_dl_symbol(from, "dnnl_sgemm");
    lib.onednn_omp = openmp_of(from);
}

static void load_openblas(void)
{
    const char *names[] = {"libopenblas.so.0", "libopenblas.so", NULL};
    void *from = nb_dl_open(names);
    lib.sgemm = (cblas_f32 *)nb_dl_symbol(from, "cblas_sgemm");
    lib.dgemm = (cblas_f64 *)nb_dl_symbol(from, "cblas_dgemm");
    lib.sgemv = (cblas_v32 *)nb_dl_symbol(from, "cblas_sgemv");
    lib.dgemv = (cblas_v64 *)nb_dl_symbol(from, "cblas_dgemv");
    lib.openblas_omp = openmp_of(from);
    lib.openblas = lib.sgemm && lib.dgemm && lib.sgemv && lib.dgemv;
    set_threads *set =
        (set_threads *)nb_dl_symbol(from, "openblas_set_num_threads");
    if (set && !lib.openblas_omp.set) set(1);
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

bool nb_onednn_found(void)
{
    pthread_once(&once, load);
    return lib.onednn;
}

bool nb_openblas_found(void)
{
    pthread_once(&once, load);
    return lib.openblas;
}

/* OpenMP works alone until given back the number that this returns. */
static int alone(openmp o)
{
    int n = o.get ? o.get() : 1;
    if (n != 1) o.set(1);
    return n;
}

static void give_back(openmp o, int n)
{
    if (n != 1) o.set(n);
}

/* An operand as the libraries want it. */
typedef struct operand {
    const void *data;
    int64_t step; /* from row to row, or column to column if transposed */
    bool transposed;
} operand;

/* The stride along an axis of one element means nothing and may be chosen. */
static bool lay(operand *o, const void *data, int64_t rows, int64_t cols,
                int64_t row, int64_t col)
{
    *o = (operand){.data = data};
    if (cols == 1) col = 1;
    if (rows == 1) row = col == 1 ? cols : 1;
    if (col == 1 && row >= cols) return o->step = row, true;
    if (row != 1 || col < rows) return false;
    o->step = col;
    return o->transposed = true;
}

bool nb_operand_fits(int64_t rows, int64_t cols, int64_t row, int64_t col)
{
    operand o;
    return lay(&o, NULL, rows, cols, row, col);
}

static void lay_both(const nb_product *x, operand *a, operand *b)
{
    lay(a, x->a, x->m, x->k, x->a_row, x->a_col);
    lay(b, x->b, x->k, x->n, x->b_row, x->b_col);
}

bool nb_product_onednn(const nb_product *x)
{
    operand a, b;
    lay_both(x, &a, &b);
    int threads = alone(lib.onednn_omp);
    int status = lib.onednn(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N',
                            x->m, x->n, x->k, 1, a.data, a.step, b.data, b.step,
                            x->add, x->c, x->m == 1 ? x->n : x->c_row);
    give_back(lib.onednn_omp, threads);
    return status == 0;
}

/* The product when a vector v meets A or B (`mat`): `in` numbers, v_step apart,
 * give `out` numbers, c_step apart.  by_rows: a stored row of mat makes one of
 * them.  Unless added to they are cleared first, because some versions
 * multiply what was there, be it infinite, by zero. */
static void run_vector(const nb_product *x, const operand *mat, bool by_rows,
                       int in, int out, const void *v, int v_step, int c_step)
{
    int t = by_rows ? PLAIN : TRANSPOSED;
    int rows = by_rows ? out : in, cols = by_rows ? in : out;
    int step = (int)mat->step;
    if (x->dtype == NB_F32) {
        for (int64_t i = 0; !x->add && i < out; i++)
            ((float *)x->c)[i * c_step] = 0;
        lib.sgemv(ROW_MAJOR, t, rows, cols, 1, mat->data, step, v, v_step,
                  x->add, x->c, c_step);
    } else {
        for (int64_t i = 0; !x->add && i < out; i++)
            ((double *)x->c)[i * c_step] = 0;
        lib.dgemv(ROW_MAJOR, t, rows, cols, 1, mat->data, step, v, v_step,
                  x->add, x->c, c_step);
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
    bool large = (double)m * n * k > SMALL_VECTOR;
    if (large && m == 1)
        run_vector(x, b, b->transposed, k, n, a->data, a->transposed ? lda : 1,
                   1);
    else if (large && n == 1)
        run_vector(x, a, !a->transposed, k, m, b->data, ldb, ldc);
    else if (x->dtype == NB_F32)
        lib.sgemm(ROW_MAJOR, ta, tb, m, n, k, 1, a->data, lda, b->data, ldb,
                  x->add, x->c, ldc);
    else
        lib.dgemm(ROW_MAJOR, ta, tb, m, n, k, 1, a->data, lda, b->data, ldb,
                  x->add, x->c, ldc);
}

void nb_product_openblas(const nb_product *x)
{
    operand a, b;
    lay_both(x, &a, &b);
    int threads = alone(lib.openblas_omp);
    run_openblas(x, &a, &b);
    give_back(lib.openblas_omp, threads);
}
