/* linalg.h - what the files of linear algebra share.
 *
 * Kernels work on one matrix of float32 or float64; the executor calls them at
 * every batch point.  A result's view is row-major, an argument's may have any
 * strides, and is packed if it is not so already. */
#ifndef NB_OPS_LINALG_H
#define NB_OPS_LINALG_H

#include "ops/contract.h"

/* Checks: inputs are of float32 or float64; and the first is square, or at
 * least a matrix. */
bool nb_check_square(nb_call *c);
bool nb_check_matrix(nb_call *c);

/* The elements of a view, row-major: in place, or in `own`, to be freed. */
typedef struct nb_packed {
    const void *data;
    void *own;
} nb_packed;
bool nb_packed_open(nb_packed *p, const nb_view *v);
void nb_packed_close(nb_packed *p);

/* (a + a^T) / 2, packed; NULL without memory. */
void *nb_packed_symmetric(const nb_view *v);

/* x^T, of the last two axes. */
static inline nb_tensor *nb_turn(nb_tensor *x)
{
    return nb_swap_axes(x, -2, -1);
}

/* x^T y and x y^T. */
nb_tensor *nb_inner(nb_tensor *x, nb_tensor *y);
nb_tensor *nb_across(nb_tensor *x, nb_tensor *y);

/* The matrix of 1 / (d_j - d_i) off the diagonal, 0 on it. */
nb_tensor *nb_gaps(nb_tensor *d);

/* The smaller of rows and columns of the call's matrix. */
int64_t nb_least(const nb_call *c);

/* Applies an op of several results to x. */
bool nb_apply_parts(nb_op *op, nb_tensor *x, nb_value *v, int n,
                    nb_tensor **out, void *caller);

/* s with an axis of one put before its last, or after it: factors for the
 * columns of a matrix, and for its rows. */
nb_tensor *nb_columns(nb_tensor *s);
nb_tensor *nb_rows(nb_tensor *s);

/* The unit matrix of order n in x's dtype. */
nb_tensor *nb_unit(nb_tensor *x, int64_t n);

/* The inverse of a triangular matrix; only that triangle is read. */
nb_tensor *nb_inv_triangle(nb_tensor *x, bool upper, bool unit);

/* The cofactors of a matrix. */
nb_tensor *nb_cofactor(nb_tensor *x);

/* The triangle of x that is meant, without its diagonal if that is taken for
 * ones. */
nb_tensor *nb_triangle_of(nb_tensor *x, bool upper, bool unit);

#endif
