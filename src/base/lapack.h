/* lapack.h - dense linear algebra on one matrix of plain numbers.
 *
 * Matrices are row-major and contiguous, of NB_F32 or NB_F64, and may have no
 * rows or columns.  LAPACK does the work where OpenBLAS or LAPACK is installed;
 * our own code does it elsewhere, or always if the environment variable
 * NABLA_LAPACK is "own" (read once).  Which of the valid factorisations comes
 * out (bases of a multiple value) may differ between the two.
 *
 * A function returns false, with the error set, only for another dtype or for
 * want of memory.  That a matrix has no such factorisation is no error: then
 * *info is positive and the results are filled with NaN; otherwise it is 0.
 * info may be NULL.  No result may overlap an argument unless it says so. */
#ifndef NB_BASE_LAPACK_H
#define NB_BASE_LAPACK_H

#include "nabla/dtype.h"

/* a = l l^T with l lower triangular, zero above.  Reads the lower triangle of
 * a.  info: the order of the first leading minor that is not positive. */
bool nb_lapack_cholesky(nb_dtype d, int64_t n, const void *a, void *l,
                        int *info);

/* a = q r for a of m x n.  With k = min(m, n): q is m x k and r is k x n, or,
 * if complete, q is m x m and r is m x n.  q has orthonormal columns, r is zero
 * below the diagonal, which may have any signs. */
bool nb_lapack_qr(nb_dtype d, int64_t m, int64_t n, bool complete,
                  const void *a, void *q, void *r);

/* Of vectors that are determined up to their sign, the first component is
 * positive that is nearly the largest: at least so much of it. */
#define NB_LAPACK_NEARLY 0.55

/* a = u diag(s) vt for a of m x n, s falling and k = min(m, n) long; u is m x k
 * and vt is k x n, or, if full, they are m x m and n x n.  Columns of u have
 * their signs as above, but for those that full adds.  u and vt may both be
 * NULL: only s is wanted.  info: a has an infinity or a NaN. */
bool nb_lapack_svd(nb_dtype d, int64_t m, int64_t n, bool full, const void *a,
                   void *u, void *s, void *vt, int *info);

/* a v = v diag(w) for symmetric a, of which the lower triangle is read; w
 * rises, and the columns of v are orthonormal, with signs as of svd.  v may be NULL.  info: the
 * triangle has an infinity or a NaN. */
bool nb_lapack_eigh(nb_dtype d, int64_t n, const void *a, void *w, void *v,
                    int *info);

/* Row perm[i] of a (m x n) is row i of the product of lu's unit lower and upper
 * trapezoid; perm has m places and *sign (or NULL) is its parity, 1 or -1.  A
 * singular a shows as a zero on the diagonal of lu. */
bool nb_lapack_lu(nb_dtype d, int64_t m, int64_t n, const void *a, void *lu,
                  int32_t *perm, int *sign);

typedef struct nb_triangle {
    bool upper; /* the triangle that is read; the other may hold anything */
    bool transposed; /* a^T x = b is to be solved */
    bool unit;       /* the diagonal is not read but taken for ones */
} nb_triangle;

/* x of a x = b for triangular a of n x n, and b and x of n x columns; x may be
 * b.  A zero on the diagonal gives infinities and NaNs. */
bool nb_lapack_solve(nb_dtype d, nb_triangle t, int64_t n, int64_t columns,
                     const void *a, const void *b, void *x);

/* What is in use: "lapack" or "own". */
const char *nb_lapack_name(void);

#endif
