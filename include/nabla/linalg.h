/* nabla/linalg.h - linear algebra on the matrices of the last two axes.
 *
 * Declared by form (nabla/ops.h): nb_solve(a, b), nb_inv(x), nb_det(x),
 * nb_eigvalsh(x), nb_svdvals(x).  Leading axes are batches and broadcast.
 *
 * Everything takes float32 and float64, and integers as the default float;
 * float16 and bfloat16 are refused.  A matrix for which a function is not
 * defined is no error: it gives NaNs or infinities, as division does. */
#ifndef NABLA_LINALG_H
#define NABLA_LINALG_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The x of a x = b, or a^T x = b, for a lower triangular, or upper; nothing
 * else of a is read, nor its diagonal if unit: it is ones then. */
NB_API nb_tensor *nb_triangular_solve(nb_tensor *a, nb_tensor *b, bool upper,
                                      bool transpose, bool unit);

/* out[0] the sign of the determinant, out[1] the log of its absolute value. */
NB_API nb_status nb_slogdet(nb_tensor *x, nb_tensor **out);

/* l with l l^T = (x + x^T) / 2, or its transpose if upper; NaN unless that is
 * positive definite. */
NB_API nb_tensor *nb_cholesky(nb_tensor *x, bool upper);

/* out[0] q with orthonormal columns, out[1] upper triangular r, x = q r; mode
 * is "reduced" or "complete". */
NB_API nb_status nb_qr(nb_tensor *x, const char *mode, nb_tensor **out);

/* out[0] rising eigenvalues, out[1] eigenvectors, as columns, of (x + x^T) / 2.
 */
NB_API nb_status nb_eigh(nb_tensor *x, nb_tensor **out);

/* out[0] u, out[1] falling s, out[2] vh with x = u diag(s) vh; u and vh are
 * square if full_matrices. */
NB_API nb_status nb_svd(nb_tensor *x, bool full_matrices, nb_tensor **out);

/* The pseudo-inverse, and the rank: singular values up to *rtol times the
 * largest are zero; by default the larger extent times the dtype's epsilon. */
NB_API nb_tensor *nb_pinv(nb_tensor *x, const double *rtol);
NB_API nb_tensor *nb_matrix_rank(nb_tensor *x, const double *rtol);

/* x to the n; its inverse to the -n for n < 0. */
NB_API nb_tensor *nb_matrix_power(nb_tensor *x, int64_t n);

/* (sum |x|^ord)^(1/ord) over n axes, all for n < 0; ord may be infinite. */
NB_API nb_tensor *nb_vector_norm(nb_tensor *x, int n, const int64_t *axes,
                                 bool keepdims, double ord);

/* ord is "fro", "nuc", "1", "-1", "2", "-2", "inf" or "-inf". */
NB_API nb_tensor *nb_matrix_norm(nb_tensor *x, bool keepdims, const char *ord);

/* The vector product along an axis of three. */
NB_API nb_tensor *nb_cross(nb_tensor *x, nb_tensor *y, int64_t axis);

#ifdef __cplusplus
}
#endif
#endif
