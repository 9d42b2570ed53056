/* lapack.c - the front of linear algebra: what both ways have in common.
 *
 * Each function tries the library and, if there is none or it gives up, our
 * own code.  Iterations are not started on numbers that are not finite, so that
 * neither way can be sent astray by them. */
#include "base/lapack.h"

#include "base/error.h"
#include "base/lapack_parts.h"

#include <assert.h>
#include <math.h>
#include <string.h>

static bool check(nb_dtype d, const char *what)
{
    if (d == NB_F32 || d == NB_F64) return true;
    return nb_fail(NB_ETYPE, "%s: dtype %d is not float32 or float64", what,
                   (int)d);
}

static size_t bytes_of(nb_dtype d, int64_t n)
{
    return (size_t)n * (d == NB_F32 ? 4 : 8);
}

static void fill_nan(nb_dtype d, int64_t n, void *to)
{
    for (int64_t i = 0; to && i < n; i++)
        if (d == NB_F32)
            ((float *)to)[i] = NAN;
        else
            ((double *)to)[i] = NAN;
}

static bool all_finite(nb_dtype d, int64_t n, const void *a)
{
    for (int64_t i = 0; i < n; i++)
        if (d == NB_F32 ? !isfinite(((const float *)a)[i])
                        : !isfinite(((const double *)a)[i]))
            return false;
    return true;
}

static double value(nb_dtype d, const void *a, int64_t i)
{
    return d == NB_F32 ? ((const float *)a)[i] : ((const double *)a)[i];
}

/* n numbers, from `first` on and `step` apart: whether they are to be negated.*/
static bool faces_away(nb_dtype d, const void *a, int64_t first, int64_t step,
                       int64_t n)
{
    double top = 0;
    for (int64_t i = 0; i < n; i++)
        top = fmax(top, fabs(value(d, a, first + i * step)));
    for (int64_t i = 0; i < n; i++) {
        double x = value(d, a, first + i * step);
        if (fabs(x) >= NB_LAPACK_NEARLY * top) return x < 0;
    }
    return false;
}

static void negate(nb_dtype d, void *a, int64_t first, int64_t step, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (d == NB_F32)
            ((float *)a)[first + i * step] *= -1;
        else
            ((double *)a)[first + i * step] *= -1;
}

static const void *at(nb_dtype d, const void *a, int64_t i)
{
    return (const char *)a + bytes_of(d, i);
}

bool nb_lapack_cholesky(nb_dtype d, int64_t n, const void *a, void *l,
                        int *info)
{
    int none, *found = info ? info : &none;
    assert(n >= 0);
    *found = 0;
    if (!check(d, "cholesky")) return false;
    if (n == 0) return true;
    memset(l, 0, bytes_of(d, n * n));
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)l + bytes_of(d, i * n), at(d, a, i * n),
               bytes_of(d, i + 1));
    nb_outcome o = nb_lib_cholesky(d, n, l, found);
    if (o == NB_UNDONE)
        o = nb_own_cholesky(d, n, l, found) ? NB_DONE : NB_FAILED;
    for (int64_t i = 0; i < n && *found == 0; i++)
        if (!all_finite(d, 1, at(d, l, i * n + i))) *found = (int)i + 1;
    if (*found) fill_nan(d, n * n, l);
    return o == NB_DONE;
}

bool nb_lapack_qr(nb_dtype d, int64_t m, int64_t n, bool complete,
                  const void *a, void *q, void *r)
{
    assert(m >= 0 && n >= 0);
    if (!check(d, "qr")) return false;
    nb_outcome o = nb_lib_qr(d, m, n, complete, a, q, r);
    if (o == NB_UNDONE) return nb_own_qr(d, m, n, complete, a, q, r);
    return o == NB_DONE;
}

bool nb_lapack_svd(nb_dtype d, int64_t m, int64_t n, bool full, const void *a,
                   void *u, void *s, void *vt, int *info)
{
    int none, *found = info ? info : &none;
    int64_t k = m < n ? m : n;
    assert(m >= 0 && n >= 0 && !u == !vt);
    *found = 0;
    if (!check(d, "svd")) return false;
    nb_outcome o = NB_DONE;
    if (all_finite(d, m * n, a))
        o = nb_lib_svd(d, m, n, full, a, u, s, vt);
    else
        *found = 1;
    if (o == NB_UNDONE)
        o = nb_own_svd(d, m, n, full, a, u, s, vt, found) ? NB_DONE : NB_FAILED;
    int64_t across = full ? m : k; /* columns of u */
    bool faces = u && o == NB_DONE && !*found;
    for (int64_t i = 0; faces && i < k; i++) {
        if (!faces_away(d, u, i, across, m)) continue;
        negate(d, u, i, across, m);
        negate(d, vt, i * n, 1, n);
    }
    if (*found) {
        fill_nan(d, m * (full ? m : k), u);
        fill_nan(d, k, s);
        fill_nan(d, n * (full ? n : k), vt);
    }
    return o == NB_DONE;
}

bool nb_lapack_eigh(nb_dtype d, int64_t n, const void *a, void *w, void *v,
                    int *info)
{
    int none, *found = info ? info : &none;
    assert(n >= 0);
    *found = 0;
    if (!check(d, "eigh")) return false;
    nb_outcome o = NB_DONE;
    for (int64_t i = 0; i < n && !*found; i++)
        *found = !all_finite(d, i + 1, at(d, a, i * n));
    if (!*found) o = nb_lib_eigh(d, n, a, w, v);
    if (o == NB_UNDONE)
        o = nb_own_eigh(d, n, a, w, v, found) ? NB_DONE : NB_FAILED;
    bool faces = v && o == NB_DONE && !*found;
    for (int64_t i = 0; faces && i < n; i++)
        if (faces_away(d, v, i, n, n)) negate(d, v, i, n, n);
    if (*found) {
        fill_nan(d, n, w);
        fill_nan(d, n * n, v);
    }
    return o == NB_DONE;
}

bool nb_lapack_lu(nb_dtype d, int64_t m, int64_t n, const void *a, void *lu,
                  int32_t *perm, int *sign)
{
    int none;
    if (!sign) sign = &none;
    assert(m >= 0 && m <= INT32_MAX && n >= 0);
    if (!check(d, "lu")) return false;
    nb_outcome o = nb_lib_lu(d, m, n, a, lu, perm, sign);
    if (o == NB_UNDONE) return nb_own_lu(d, m, n, a, lu, perm, sign);
    return o == NB_DONE;
}

bool nb_lapack_solve(nb_dtype d, nb_triangle t, int64_t n, int64_t columns,
                     const void *a, const void *b, void *x)
{
    assert(n >= 0 && columns >= 0);
    if (!check(d, "solve_triangular")) return false;
    if (n == 0 || columns == 0) return true;
    if (b != x) memcpy(x, b, bytes_of(d, n * columns));
    nb_outcome o = nb_lib_solve(d, t, n, columns, a, x);
    if (o == NB_UNDONE) return nb_own_solve(d, t, n, columns, a, x);
    return o == NB_DONE;
}

const char *nb_lapack_name(void)
{
    return nb_lib_found() ? "lapack" : "own";
}
