/* nabla/contract.h - products that are summed: matrix products and what
 * generalises them.
 *
 * nb_matmul and nb_outer are declared by form (nabla/ops.h).  All of them work
 * for every dtype; float16 and bfloat16 are added up in float32. */
#ifndef NABLA_CONTRACT_H
#define NABLA_CONTRACT_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The sum over axis x_axes[k] of x and y_axes[k] of y together, for all n of
 * k; the result has the other axes of x, then those of y. */
NB_API nb_tensor *nb_tensordot(nb_tensor *x, nb_tensor *y, int n,
                               const int64_t *x_axes, const int64_t *y_axes);

/* The inner product along an axis of x and of y; other axes broadcast. */
NB_API nb_tensor *nb_vecdot(nb_tensor *x, nb_tensor *y, int64_t axis);

/* The sum of a diagonal, column - row = offset, of the last two axes. */
NB_API nb_tensor *nb_trace(nb_tensor *x, int64_t offset);

/* Sums of products of n operands by labels of their axes, as NumPy writes
 * them: "ij,jk->ik", "bij,bj" (result left open), "...ii->...i". */
NB_API nb_tensor *nb_einsum(const char *subscripts, int n,
                            nb_tensor *const *operands);

#ifdef __cplusplus
}
#endif
#endif
