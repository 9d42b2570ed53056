/* lapack_jacobi.c - singular and eigenvalues by plane rotations.
 *
 * Both iterations visit all pairs in turn, sweep after sweep, until a sweep
 * finds nothing to do.  They converge quadratically, in some ten sweeps; the
 * bound on sweeps keeps a surprise from becoming a hang. */
#include "base/lapack_parts.h"

#include <float.h>
#include <math.h>

enum { SWEEPS = 60 };

typedef struct rotation {
    double c, s, t; /* cosine, sine, tangent */
} rotation;

/* The smaller rotation that makes [[p, g], [g, q]] diagonal:
 * t = tan of the angle solves t^2 + 2 z t - 1 = 0 with z = (q - p) / (2 g). */
static rotation rotation_of(double p, double q, double g)
{
    double z = (q - p) / (2 * g);
    double t = copysign(1, z) / (fabs(z) + hypot(1, z));
    double c = 1 / sqrt(1 + t * t);
    return (rotation){c, c * t, t};
}

static void rotate(rotation r, int64_t n, double *x, double *y)
{
    for (int64_t i = 0; i < n; i++) {
        double u = x[i], v = y[i];
        x[i] = r.c * u - r.s * v;
        y[i] = r.s * u + r.c * v;
    }
}

static double dot(int64_t n, const double *x, const double *y)
{
    double s[4] = {0};
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            s[j] += x[i + j] * y[i + j];
    for (; i < n; i++)
        s[0] += x[i] * y[i];
    return (s[0] + s[1]) + (s[2] + s[3]);
}

/* A row that is nothing but rounding errors of the longest cannot be made
 * orthogonal to it and is left alone. */
static bool sweep_rows(int64_t rows, int64_t cols, double *w, double *turn)
{
    bool turned = false;
    double longest = 0, close = DBL_EPSILON * sqrt((double)cols);
    for (int64_t i = 0; i < rows; i++)
        longest = fmax(longest, dot(cols, w + i * cols, w + i * cols));
    double noise = DBL_EPSILON * DBL_EPSILON * longest;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = i + 1; j < rows; j++) {
            double *x = w + i * cols, *y = w + j * cols;
            double p = dot(cols, x, x), q = dot(cols, y, y);
            double g = dot(cols, x, y);
            if (p <= noise || q <= noise) continue;
            if (!(fabs(g) > close * sqrt(p) * sqrt(q))) continue;
            rotation r = rotation_of(p, q, g);
            rotate(r, cols, x, y);
            rotate(r, rows, turn + i * rows, turn + j * rows);
            turned = true;
        }
    return turned;
}

bool nb_jacobi_rows(int64_t rows, int64_t cols, double *w, double *turn)
{
    for (int i = 0; i < SWEEPS; i++)
        if (!sweep_rows(rows, cols, w, turn)) return true;
    return false;
}

/* a' = J a J^T: rows i and j are rotated; by symmetry the columns are copies of
 * them, but where the four meet. */
static rotation rotate_both(int64_t n, double *a, int64_t i, int64_t j)
{
    double p = a[i * n + i], q = a[j * n + j], g = a[i * n + j];
    rotation r = rotation_of(p, q, g);
    rotate(r, n, a + i * n, a + j * n);
    for (int64_t k = 0; k < n; k++) {
        a[k * n + i] = a[i * n + k];
        a[k * n + j] = a[j * n + k];
    }
    a[i * n + i] = p - r.t * g;
    a[j * n + j] = q + r.t * g;
    a[i * n + j] = a[j * n + i] = 0;
    return r;
}

static bool sweep_diagonal(int64_t n, double *a, double *turn)
{
    bool turned = false;
    double close = DBL_EPSILON / (double)n * sqrt(dot(n * n, a, a));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++) {
            if (!(fabs(a[i * n + j]) > close)) continue;
            rotation r = rotate_both(n, a, i, j);
            rotate(r, n, turn + i * n, turn + j * n);
            turned = true;
        }
    return turned;
}

bool nb_jacobi_diagonal(int64_t n, double *a, double *turn)
{
    for (int i = 0; i < SWEEPS; i++)
        if (!sweep_diagonal(n, a, turn)) return true;
    return false;
}
