/* lapack_own.c - linear algebra without a library.
 *
 * Everything is computed in double, whatever the dtype, from a widened copy:
 * one text serves both types, and single precision loses nothing on the way.
 * The algorithms are the textbook ones, arranged so that inner loops run along
 * rows. */
#include "base/lapack_parts.h"
#include "base/memory.h"

#include <float.h>
#include <math.h>
#include <string.h>

static void widen(nb_dtype d, int64_t n, const void *from, double *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] =
            d == NB_F32 ? ((const float *)from)[i] : ((const double *)from)[i];
}

static void put(nb_dtype d, void *to, int64_t at, double x)
{
    if (d == NB_F32)
        ((float *)to)[at] = (float)x;
    else
        ((double *)to)[at] = x;
}

static void narrow(nb_dtype d, int64_t n, const double *from, void *to)
{
    for (int64_t i = 0; i < n; i++)
        put(d, to, i, from[i]);
}

/* to (cols x rows) = from (rows x cols) transposed. */
static void narrow_transposed(nb_dtype d, int64_t rows, int64_t cols,
                              const double *from, void *to)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            put(d, to, j * rows + i, from[i * cols + j]);
}

static void identity(int64_t rows, int64_t cols, double *a)
{
    memset(a, 0, (size_t)(rows * cols) * sizeof *a);
    for (int64_t i = 0; i < rows && i < cols; i++)
        a[i * cols + i] = 1;
}

static double *scratch(int64_t numbers, size_t *room)
{
    return nb_block_new((size_t)numbers * sizeof(double), room);
}

/* The power of two that brings the largest of n numbers near one, so that
 * squares neither overflow nor vanish, and its inverse. */
static double scale_of(int64_t n, const double *a, double *back)
{
    int power = 0;
    double top = 0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, fabs(a[i]));
    if (top > 0) frexp(top, &power);
    if (power < -1000) power = -1000;
    if (power > 1000) power = 1000;
    *back = ldexp(1, power);
    return ldexp(1, -power);
}

/* Row i of l: l[i][j] = (a[i][j] - l[i][:j] . l[j][:j]) / l[j][j] for j < i,
 * and the diagonal is the root of what is left of a[i][i]. */
static int64_t factor_cholesky(int64_t n, double *a)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j <= i; j++) {
            const double *x = a + i * n, *y = a + j * n;
            double s = x[j];
            for (int64_t k = 0; k < j; k++)
                s -= x[k] * y[k];
            if (i == j && !(s > 0)) return i + 1;
            a[i * n + j] = i == j ? sqrt(s) : s / y[j];
        }
    return 0;
}

bool nb_own_cholesky(nb_dtype d, int64_t n, void *l, int *info)
{
    size_t room;
    double *a = scratch(n * n, &room);
    if (!a) return false;
    widen(d, n * n, l, a);
    *info = (int)factor_cholesky(n, a);
    narrow(d, n * n, a, l);
    nb_block_free(a, room);
    return true;
}

/* The larger of the two, or NaN if one is. */
static double larger(double x, double y)
{
    return y > x || y != y ? y : x;
}

/* The reflection I - tau v v^T with v[0] = 1 that sends column x (m numbers,
 * step apart) to a multiple of the first unit vector, which takes the place of
 * x[0]; v[1:] takes the place of the rest.  Returns tau. */
static double reflection_of(int64_t m, double *x, int64_t step)
{
    double top = 0, sum = 0;
    for (int64_t i = 1; i < m; i++)
        top = larger(top, fabs(x[i * step]));
    if (top == 0) return 0;
    top = larger(top, fabs(x[0]));
    for (int64_t i = 0; i < m; i++) {
        double z = x[i * step] / top;
        sum += z * z;
    }
    double norm = -copysign(top * sqrt(sum), x[0]);
    double tau = (norm - x[0]) / norm;
    for (int64_t i = 1; i < m; i++)
        x[i * step] /= x[0] - norm;
    x[0] = norm;
    return tau;
}

/* a (m x n, rows a_step apart) -= tau v (v^T a), v (1, then step apart). */
static void reflect(double tau, int64_t m, const double *v, int64_t step,
                    int64_t n, double *a, int64_t a_step, double *work)
{
    for (int64_t j = 0; j < n; j++)
        work[j] = a[j];
    for (int64_t i = 1; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            work[j] += v[i * step] * a[i * a_step + j];
    for (int64_t i = 0; i < m; i++) {
        double s = tau * (i ? v[i * step] : 1);
        for (int64_t j = 0; j < n; j++)
            a[i * a_step + j] -= s * work[j];
    }
}

void nb_reflect(int64_t m, int64_t n, double *a, int64_t cols, double *q,
                double *work)
{
    int64_t k = m < n ? m : n;
    double *tau = work;
    work += k;
    for (int64_t j = 0; j < k; j++) {
        double *x = a + j * n + j;
        tau[j] = reflection_of(m - j, x, n);
        reflect(tau[j], m - j, x, n, n - j - 1, x + 1, n, work);
    }
    identity(m, cols, q);
    for (int64_t j = k; j-- > 0;)
        if (j < cols)
            reflect(tau[j], m - j, a + j * n + j, n, cols - j, q + j * cols + j,
                    cols, work);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < i && j < n; j++)
            a[i * n + j] = 0;
}

bool nb_own_qr(nb_dtype d, int64_t m, int64_t n, bool complete, const void *a,
               void *q, void *r)
{
    int64_t cols = complete || m < n ? m : n;
    size_t room;
    double *x = scratch(m * n + m * cols + 2 * n + cols, &room);
    if (!x) return false;
    double *y = x + m * n;
    widen(d, m * n, a, x);
    nb_reflect(m, n, x, cols, y, y + m * cols);
    narrow(d, m * cols, y, q);
    narrow(d, cols * n, x, r);
    nb_block_free(x, room);
    return true;
}

/* Moves rows x and y past each other. */
static void swap_rows(int64_t n, double *x, double *y)
{
    for (int64_t i = 0; i < n; i++) {
        double z = x[i];
        x[i] = y[i];
        y[i] = z;
    }
}

/* The singular value decomposition of `rows` vectors of length cols >= rows:
 * w = turn^T diag(s) w', where the rows of w' are orthonormal. */
typedef struct vectors {
    int64_t rows, cols, all;  /* of the `all` rows of w the first are used */
    double *w;                /* all x cols */
    double *turn;             /* rows x rows */
    double *s;                /* rows */
    double *q, *basis, *work; /* to complete w with */
} vectors;

static void sort_rows(vectors *x)
{
    for (int64_t i = 0; i < x->rows; i++) {
        int64_t top = i;
        for (int64_t j = i + 1; j < x->rows; j++)
            if (x->s[j] > x->s[top]) top = j;
        if (top == i) continue;
        swap_rows(1, x->s + i, x->s + top);
        swap_rows(x->cols, x->w + i * x->cols, x->w + top * x->cols);
        swap_rows(x->rows, x->turn + i * x->rows, x->turn + top * x->rows);
    }
}

/* The first `rank` rows of w are orthonormal; the others become an orthonormal
 * basis of what is orthogonal to them: the other columns of q in w^T = q r. */
static void complete_rows(vectors *x, int64_t rank)
{
    int64_t n = x->cols;
    if (rank == x->all) return;
    for (int64_t i = 0; i < rank; i++)
        for (int64_t j = 0; j < n; j++)
            x->basis[j * rank + i] = x->w[i * n + j];
    nb_reflect(n, rank, x->basis, x->all, x->q, x->work);
    for (int64_t i = rank; i < x->all; i++)
        for (int64_t j = 0; j < n; j++)
            x->w[i * n + j] = x->q[j * x->all + i];
}

static bool decompose(vectors *x)
{
    int64_t rank = 0;
    identity(x->rows, x->rows, x->turn);
    if (!nb_jacobi_rows(x->rows, x->cols, x->w, x->turn)) return false;
    for (int64_t i = 0; i < x->rows; i++) {
        const double *row = x->w + i * x->cols;
        x->s[i] = 0;
        for (int64_t j = 0; j < x->cols; j++)
            x->s[i] += row[j] * row[j];
        x->s[i] = sqrt(x->s[i]);
    }
    sort_rows(x);
    for (; rank < x->rows && x->s[rank] > 2 * DBL_EPSILON * x->s[0]; rank++)
        for (int64_t j = 0; j < x->cols; j++)
            x->w[rank * x->cols + j] /= x->s[rank];
    complete_rows(x, rank);
    return true;
}

/* With the columns of a as vectors if it is tall, its rows if it is wide. */
static void load_vectors(vectors *x, nb_dtype d, bool tall, const void *a)
{
    if (!tall) {
        widen(d, x->rows * x->cols, a, x->w);
        return;
    }
    for (int64_t i = 0; i < x->cols; i++)
        for (int64_t j = 0; j < x->rows; j++)
            widen(d, 1,
                  (const char *)a + (i * x->rows + j) * (d == NB_F32 ? 4 : 8),
                  x->w + j * x->cols + i);
}

bool nb_own_svd(nb_dtype d, int64_t m, int64_t n, bool full, const void *a,
                void *u, void *s, void *vt, int *info)
{
    bool tall = m >= n;
    vectors x = {.rows = tall ? n : m, .cols = tall ? m : n};
    x.all = full && u ? x.cols : x.rows;
    size_t room;
    double back;
    double *at = scratch(2 * x.all * x.cols + x.rows * x.rows +
                             x.rows * x.cols + 3 * x.rows + x.all,
                         &room);
    if (!at) return false;
    x.w = at;
    x.q = x.w + x.all * x.cols;
    x.turn = x.q + x.all * x.cols;
    x.basis = x.turn + x.rows * x.rows;
    x.s = x.basis + x.rows * x.cols;
    x.work = x.s + x.rows;
    load_vectors(&x, d, tall, a);
    double scale = scale_of(x.rows * x.cols, x.w, &back);
    for (int64_t i = 0; i < x.rows * x.cols; i++)
        x.w[i] *= scale;
    *info = !decompose(&x);
    for (int64_t i = 0; i < x.rows; i++)
        put(d, s, i, x.s[i] * back);
    if (u && tall) {
        narrow_transposed(d, x.all, x.cols, x.w, u);
        narrow(d, x.rows * x.rows, x.turn, vt);
    } else if (u) {
        narrow_transposed(d, x.rows, x.rows, x.turn, u);
        narrow(d, x.all * x.cols, x.w, vt);
    }
    nb_block_free(at, room);
    return true;
}

bool nb_own_eigh(nb_dtype d, int64_t n, const void *a, void *w, void *v,
                 int *info)
{
    size_t room;
    double back, *x = scratch(2 * n * n + n, &room);
    if (!x) return false;
    double *turn = x + n * n, *value = turn + n * n;
    widen(d, n * n, a, x);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++)
            x[i * n + j] = x[j * n + i];
    double scale = scale_of(n * n, x, &back);
    for (int64_t i = 0; i < n * n; i++)
        x[i] *= scale;
    identity(n, n, turn);
    *info = !nb_jacobi_diagonal(n, x, turn);
    for (int64_t i = 0; i < n; i++)
        value[i] = x[i * n + i];
    for (int64_t i = 0; i < n; i++) {
        int64_t least = i;
        for (int64_t j = i + 1; j < n; j++)
            if (value[j] < value[least]) least = j;
        swap_rows(1, value + i, value + least);
        if (least != i) swap_rows(n, turn + i * n, turn + least * n);
        put(d, w, i, value[i] * back);
    }
    if (v) narrow_transposed(d, n, n, turn, v);
    nb_block_free(x, room);
    return true;
}

static int64_t find_pivot(int64_t m, int64_t n, const double *a, int64_t j)
{
    int64_t top = j;
    for (int64_t i = j + 1; i < m; i++)
        if (fabs(a[i * n + j]) > fabs(a[top * n + j])) top = i;
    return top;
}

static void factor_lu(int64_t m, int64_t n, double *a, int32_t *perm, int *sign)
{
    for (int64_t j = 0; j < m && j < n; j++) {
        int64_t top = find_pivot(m, n, a, j);
        if (top != j) {
            int32_t row = perm[j];
            perm[j] = perm[top];
            perm[top] = row;
            *sign = -*sign;
            swap_rows(n, a + j * n, a + top * n);
        }
        if (a[j * n + j] == 0) continue;
        for (int64_t i = j + 1; i < m; i++) {
            double s = a[i * n + j] /= a[j * n + j];
            for (int64_t k = j + 1; k < n; k++)
                a[i * n + k] -= s * a[j * n + k];
        }
    }
}

bool nb_own_lu(nb_dtype d, int64_t m, int64_t n, const void *a, void *lu,
               int32_t *perm, int *sign)
{
    size_t room;
    double *x = scratch(m * n, &room);
    if (!x) return false;
    widen(d, m * n, a, x);
    for (int64_t i = 0; i < m; i++)
        perm[i] = (int32_t)i;
    *sign = 1;
    factor_lu(m, n, x, perm, sign);
    narrow(d, m * n, x, lu);
    nb_block_free(x, room);
    return true;
}

/* Rows of x from the one that stands alone in its equation to the one that
 * needs all others. */
static void substitute(nb_triangle t, int64_t n, int64_t columns,
                       const double *a, double *x)
{
    bool backwards = t.upper != t.transposed;
    int64_t down = t.transposed ? 1 : n, along = t.transposed ? n : 1;
    for (int64_t step = 0; step < n; step++) {
        int64_t i = backwards ? n - 1 - step : step;
        double *row = x + i * columns;
        int64_t from = backwards ? i + 1 : 0, to = backwards ? n : i;
        for (int64_t k = from; k < to; k++) {
            double s = a[i * down + k * along];
            for (int64_t j = 0; j < columns; j++)
                row[j] -= s * x[k * columns + j];
        }
        for (int64_t j = 0; !t.unit && j < columns; j++)
            row[j] /= a[i * n + i];
    }
}

bool nb_own_solve(nb_dtype d, nb_triangle t, int64_t n, int64_t columns,
                  const void *a, void *x)
{
    size_t room;
    double *m = scratch(n * n + n * columns, &room);
    if (!m) return false;
    double *y = m + n * n;
    widen(d, n * n, a, m);
    widen(d, n * columns, x, y);
    substitute(t, n, columns, m, y);
    narrow(d, n * columns, y, x);
    nb_block_free(m, room);
    return true;
}
