/* lapack_lib.c - calls of LAPACK, as found in OpenBLAS or in LAPACK itself.
 *
 * LAPACK is column-major: what it is shown of a row-major matrix is the
 * transpose.  Where that is as good a question (cholesky, svd, eigh, solve) it
 * is asked about the transpose; for qr and lu the matrix is turned over.
 *
 * The Fortran routines of both types have the same arguments but for what the
 * pointers point to, so one set of prototypes with void pointers serves both.
 * Texts bring their lengths along, at the end. */
#include "base/dl.h"
#include "base/lapack_parts.h"
#include "base/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef const int *count;
typedef const char *text;

typedef struct routines {
    void (*potrf)(text uplo, count n, void *a, count lda, int *info, size_t);
    void (*geqrf)(count m, count n, void *a, count lda, void *tau, void *work,
                  count lwork, int *info);
    void (*orgqr)(count m, count n, count k, void *a, count lda,
                  const void *tau, void *work, count lwork, int *info);
    void (*gesdd)(text job, count m, count n, void *a, count lda, void *s,
                  void *u, count ldu, void *vt, count ldvt, void *work,
                  count lwork, int *iwork, int *info, size_t);
    void (*syevd)(text job, text uplo, count n, void *a, count lda, void *w,
                  void *work, count lwork, int *iwork, count liwork, int *info,
                  size_t, size_t);
    void (*getrf)(count m, count n, void *a, count lda, int *ipiv, int *info);
    void (*trsm)(text side, text uplo, text trans, text diag, count m, count n,
                 const void *alpha, const void *a, count lda, void *b,
                 count ldb, size_t, size_t, size_t, size_t);
} routines;

/* gesdd and syevd want 4 n^2 numbers to work in, counted in 32 bits. */
enum { LARGEST = INT32_MAX, LARGEST_SQUARE = 23000 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static routines table[2]; /* for NB_F32 and NB_F64 */
static bool found;

static bool get(void *lib, const char *name, void *to)
{
    void *symbol = nb_dl_symbol(lib, name);
    memcpy(to, &symbol, sizeof symbol);
    return symbol;
}

static bool load_from(const char *name)
{
    void *lib = nb_dl_open((const char *[]){name, NULL});
    routines *s = &table[0], *d = &table[1];
    return get(lib, "spotrf_", &s->potrf) && get(lib, "dpotrf_", &d->potrf) &&
           get(lib, "sgeqrf_", &s->geqrf) && get(lib, "dgeqrf_", &d->geqrf) &&
           get(lib, "sorgqr_", &s->orgqr) && get(lib, "dorgqr_", &d->orgqr) &&
           get(lib, "sgesdd_", &s->gesdd) && get(lib, "dgesdd_", &d->gesdd) &&
           get(lib, "ssyevd_", &s->syevd) && get(lib, "dsyevd_", &d->syevd) &&
           get(lib, "sgetrf_", &s->getrf) && get(lib, "dgetrf_", &d->getrf) &&
           get(lib, "strsm_", &s->trsm) && get(lib, "dtrsm_", &d->trsm);
}

static void load(void)
{
    const char *want = getenv("NABLA_LAPACK");
    if (want && !strcmp(want, "own")) return;
    found = load_from("libopenblas.so.0") || load_from("libopenblas.so") ||
            load_from("liblapack.so.3");
}

bool nb_lib_found(void)
{
    pthread_once(&once, load);
    return found;
}

/* The routines for a matrix with m and n from 1 to the limit, or NULL. */
static const routines *find(nb_dtype d, int64_t m, int64_t n, int64_t limit)
{
    if (m < 1 || m > limit || n < 1 || n > limit) return NULL;
    return nb_lib_found() ? &table[d == NB_F64] : NULL;
}

static size_t size_of(nb_dtype d)
{
    return d == NB_F32 ? 4 : 8;
}

/* Copies numbers: to (cols x rows) = from (rows x cols) transposed, where the
 * rows of either may lie further apart. */
static void transpose(nb_dtype d, int64_t rows, int64_t cols, const void *from,
                      int64_t from_step, void *to, int64_t to_step)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            if (d == NB_F32)
                ((float *)to)[j * to_step + i] =
                    ((const float *)from)[i * from_step + j];
            else
                ((double *)to)[j * to_step + i] =
                    ((const double *)from)[i * from_step + j];
}

typedef union number {
    float f32;
    double f64;
} number;

/* The number of work places a routine asked for.  In single precision it may
 * have been rounded down; 0 if it is more than an int can say. */
static int wish(nb_dtype d, number asked)
{
    double x = d == NB_F32 ? (double)asked.f32 : asked.f64;
    x = x * (1 + 1e-6) + 1;
    return x < INT32_MAX ? (int)x : 0;
}

nb_outcome nb_lib_cholesky(nb_dtype d, int64_t n, void *l, int *info)
{
    const routines *f = find(d, n, n, LARGEST);
    int size = (int)n;
    if (!f) return NB_UNDONE;
    f->potrf("U", &size, l, &size, info, 1);
    return NB_DONE;
}

/* What lies below the diagonal of the reflected matrix are reflections. */
static void take_r(nb_dtype d, int64_t m, int64_t n, int64_t rows,
                   const char *x, char *r)
{
    size_t size = size_of(d);
    memset(r, 0, (size_t)(rows * n) * size);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i <= j && i < rows; i++)
            memcpy(r + (size_t)(i * n + j) * size,
                   x + (size_t)(j * m + i) * size, size);
}

nb_outcome nb_lib_qr(nb_dtype d, int64_t m, int64_t n, bool complete,
                     const void *a, void *q, void *r)
{
    const routines *f = find(d, m, n, LARGEST);
    int64_t k = m < n ? m : n, cols = complete ? m : k;
    int im = (int)m, in = (int)n, ik = (int)k, ic = (int)cols;
    int ask = -1, info, lwork, more;
    number first, second;
    size_t room, size = size_of(d);
    if (!f) return NB_UNDONE;
    f->geqrf(&im, &in, NULL, &im, NULL, &first, &ask, &info);
    f->orgqr(&im, &ic, &ik, NULL, &im, NULL, &second, &ask, &info);
    lwork = wish(d, first);
    more = wish(d, second);
    if (!lwork || !more) return NB_UNDONE;
    if (more > lwork) lwork = more;
    int64_t held = m * (cols > n ? cols : n);
    char *x = nb_block_new((size_t)(held + k + lwork) * size, &room);
    if (!x) return NB_FAILED;
    char *tau = x + (size_t)held * size, *work = tau + (size_t)k * size;
    transpose(d, m, n, a, n, x, m);
    f->geqrf(&im, &in, x, &im, tau, work, &lwork, &info);
    take_r(d, m, n, cols, x, r);
    f->orgqr(&im, &ic, &ik, x, &im, tau, work, &lwork, &info);
    transpose(d, cols, m, x, m, q, cols);
    nb_block_free(x, room);
    return NB_DONE;
}

/* a^T = v s u^T, n x m: LAPACK's left vectors, column by column, are our vt row
 * by row, and its right ones, transposed, our u. */
nb_outcome nb_lib_svd(nb_dtype d, int64_t m, int64_t n, bool full,
                      const void *a, void *u, void *s, void *vt)
{
    const routines *f = find(d, m, n, LARGEST);
    int64_t k = m < n ? m : n;
    int im = (int)m, in = (int)n, ldu = full ? im : (int)k;
    int ask = -1, info = 0, none;
    const char *job = !u ? "N" : full ? "A" : "S";
    number first;
    size_t room, size = size_of(d);
    if (!f || k > LARGEST_SQUARE) return NB_UNDONE;
    f->gesdd(job, &in, &im, NULL, &in, NULL, NULL, &in, NULL, &ldu, &first,
             &ask, &none, &info, 1);
    int lwork = wish(d, first);
    if (info || !lwork) return NB_UNDONE;
    size_t numbers = (size_t)(m * n + lwork) * size;
    char *x = nb_block_new(numbers + (size_t)(8 * k) * sizeof(int), &room);
    if (!x) return NB_FAILED;
    char *work = x + (size_t)(m * n) * size;
    memcpy(x, a, (size_t)(m * n) * size);
    f->gesdd(job, &in, &im, x, &in, s, vt, &in, u, &ldu, work, &lwork,
             (int *)(x + numbers), &info, 1);
    nb_block_free(x, room);
    return info ? NB_UNDONE : NB_DONE;
}

/* A row-major lower triangle is a column-major upper one. */
nb_outcome nb_lib_eigh(nb_dtype d, int64_t n, const void *a, void *w, void *v)
{
    const routines *f = find(d, n, n, LARGEST_SQUARE);
    int size_n = (int)n, ask = -1, info = 0, liwork = 0;
    const char *job = v ? "V" : "N";
    number first;
    size_t room, size = size_of(d), square = (size_t)(n * n) * size;
    if (!f) return NB_UNDONE;
    f->syevd(job, "U", &size_n, NULL, &size_n, NULL, &first, &ask, &liwork,
             &ask, &info, 1, 1);
    int lwork = wish(d, first);
    if (info || !lwork) return NB_UNDONE;
    size_t numbers = square + (size_t)lwork * size;
    char *x = nb_block_new(numbers + (size_t)liwork * sizeof(int), &room);
    if (!x) return NB_FAILED;
    memcpy(x, a, square);
    f->syevd(job, "U", &size_n, x, &size_n, w, x + square, &lwork,
             (int *)(x + numbers), &liwork, &info, 1, 1);
    if (v && !info) transpose(d, n, n, x, n, v, n);
    nb_block_free(x, room);
    return info ? NB_UNDONE : NB_DONE;
}

/* LAPACK tells which row was swapped with row i, counted from one; a NaN may
 * have led it to name a row that is none. */
static void take_perm(int64_t m, int64_t k, const int *swapped, int32_t *perm,
                      int *sign)
{
    *sign = 1;
    for (int64_t i = 0; i < m; i++)
        perm[i] = (int32_t)i;
    for (int64_t i = 0; i < k; i++) {
        int64_t j = (int64_t)swapped[i] - 1;
        if (j <= i || j >= m) continue;
        int32_t row = perm[i];
        perm[i] = perm[j];
        perm[j] = row;
        *sign = -*sign;
    }
}

nb_outcome nb_lib_lu(nb_dtype d, int64_t m, int64_t n, const void *a, void *lu,
                     int32_t *perm, int *sign)
{
    const routines *f = find(d, m, n, LARGEST);
    int64_t k = m < n ? m : n;
    int im = (int)m, in = (int)n, info;
    size_t room, numbers = (size_t)(m * n) * size_of(d);
    if (!f) return NB_UNDONE;
    char *x = nb_block_new(numbers + (size_t)k * sizeof(int), &room);
    if (!x) return NB_FAILED;
    int *swapped = (int *)(x + numbers);
    transpose(d, m, n, a, n, x, m);
    f->getrf(&im, &in, x, &im, swapped, &info);
    transpose(d, n, m, x, m, lu, n);
    take_perm(m, k, swapped, perm, sign);
    nb_block_free(x, room);
    return NB_DONE;
}

/* a x = b is x^T a^T = b^T, and the transposes are what LAPACK sees. */
nb_outcome nb_lib_solve(nb_dtype d, nb_triangle t, int64_t n, int64_t columns,
                        const void *a, void *x)
{
    const routines *f = find(d, n, columns, LARGEST);
    int size = (int)n, rows = (int)columns;
    number one = {.f64 = 1};
    if (d == NB_F32) one.f32 = 1;
    if (!f) return NB_UNDONE;
    f->trsm("R", t.upper ? "L" : "U", t.transposed ? "T" : "N",
            t.unit ? "U" : "N", &rows, &size, &one, a, &size, x, &rows, 1, 1, 1,
            1);
    return NB_DONE;
}
