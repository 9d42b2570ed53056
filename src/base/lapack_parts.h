/* lapack_parts.h - what lapack.c is put together from.
 *
 * nb_lib_* call LAPACK, nb_own_* are our own; arguments mean what they mean in
 * lapack.h, but *info must be given and results need not be filled when it is
 * positive.  nb_jacobi_* are the iterations behind nb_own_*. */
#ifndef NB_BASE_LAPACK_PARTS_H
#define NB_BASE_LAPACK_PARTS_H

#include "base/lapack.h"

/* UNDONE: there is no library, or it cannot do this one; no error is set. */
typedef enum nb_outcome { NB_UNDONE, NB_DONE, NB_FAILED } nb_outcome;

bool nb_lib_found(void);
nb_outcome nb_lib_cholesky(nb_dtype d, int64_t n, void *l, int *info);
nb_outcome nb_lib_qr(nb_dtype d, int64_t m, int64_t n, bool complete,
                     const void *a, void *q, void *r);
nb_outcome nb_lib_svd(nb_dtype d, int64_t m, int64_t n, bool full,
                      const void *a, void *u, void *s, void *vt);
nb_outcome nb_lib_eigh(nb_dtype d, int64_t n, const void *a, void *w, void *v);
nb_outcome nb_lib_lu(nb_dtype d, int64_t m, int64_t n, const void *a, void *lu,
                     int32_t *perm, int *sign);
nb_outcome nb_lib_solve(nb_dtype d, nb_triangle t, int64_t n, int64_t columns,
                        const void *a, void *x);

/* In cholesky the lower triangle of a is already in l, zeros above, and in
 * solve b is already in x: both work in place. */
bool nb_own_cholesky(nb_dtype d, int64_t n, void *l, int *info);
bool nb_own_qr(nb_dtype d, int64_t m, int64_t n, bool complete, const void *a,
               void *q, void *r);
bool nb_own_svd(nb_dtype d, int64_t m, int64_t n, bool full, const void *a,
                void *u, void *s, void *vt, int *info);
bool nb_own_eigh(nb_dtype d, int64_t n, const void *a, void *w, void *v,
                 int *info);
bool nb_own_lu(nb_dtype d, int64_t m, int64_t n, const void *a, void *lu,
               int32_t *perm, int *sign);
bool nb_own_solve(nb_dtype d, nb_triangle t, int64_t n, int64_t columns,
                  const void *a, void *x);

/* Turns the rows of w (rows x cols) until they are orthogonal, and the rows of
 * turn (rows x rows) with them.  False if they would not become so. */
bool nb_jacobi_rows(int64_t rows, int64_t cols, double *w, double *turn);

/* Turns symmetric a (n x n) until it is diagonal, and the rows of turn with
 * it.  False if it would not become so. */
bool nb_jacobi_diagonal(int64_t n, double *a, double *turn);

/* Reflects a (m x n) into r, upper trapezoidal, and writes the first `cols`
 * columns of the orthogonal matrix q with a = q r (cols <= m).  work has room
 * for 2 n + cols numbers. */
void nb_reflect(int64_t m, int64_t n, double *a, int64_t cols, double *q,
                double *work);

#endif
