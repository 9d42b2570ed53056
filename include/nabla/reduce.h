/* nabla/reduce.h - reductions, scans, sorting, searching, and sets of values.
 *
 * Most are declared by their form in nabla/ops.h.  REDUCE: nb_reduce_sum,
 * nb_prod, nb_reduce_max, nb_reduce_min, nb_mean, nb_all, nb_any,
 * nb_count_nonzero, nb_logsumexp.  ARG: nb_argmax, nb_argmin.  AXIS:
 * nb_softmax, nb_logsoftmax.  SCAN: nb_cumsum, nb_cumprod.  SORT: nb_sort,
 * nb_argsort.  UNARY: nb_unique_values.
 *
 * Functions of several results store them, lent, in out[0], out[1], ... */
#ifndef NABLA_REDUCE_H
#define NABLA_REDUCE_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As the axis of nb_argmax and nb_argmin: all of x as one row. */
#define NB_FLAT ((int64_t)0x7ff8deadbeef0001)

/* Variance over n axes (n < 0: all), the sum of squares divided by the count
 * less correction; and its square root. */
NB_API nb_tensor *nb_var(nb_tensor *x, int n, const int64_t *axes,
                         double correction, bool keepdims);
NB_API nb_tensor *nb_std(nb_tensor *x, int n, const int64_t *axes,
                         double correction, bool keepdims);

/* The norm *ord, a vector norm over one axis and a matrix norm over two; ord
 * NULL: the root of the sum of squares over any number of axes (n < 0: all).*/
NB_API nb_tensor *nb_norm(nb_tensor *x, const double *ord, int n,
                          const int64_t *axes, bool keepdims);

/* The smallest and the largest element of x. */
NB_API nb_status nb_minmax(nb_tensor *x, nb_tensor **out);

/* Differences of neighbours along an axis, n times over. */
NB_API nb_tensor *nb_diff(nb_tensor *x, int64_t axis, int64_t n);

/* The k largest (or smallest) elements along an axis, sorted, and their
 * indices. */
NB_API nb_status nb_topk(nb_tensor *x, int64_t k, int64_t axis, bool largest,
                         nb_tensor **out);

/* Where the elements of x2 belong in the row x1, which is sorted, or which
 * `sorter` (may be NULL) sorts: before their equals if side is "left", behind
 * them if it is "right". */
NB_API nb_tensor *nb_searchsorted(nb_tensor *x1, nb_tensor *x2,
                                  const char *side, nb_tensor *sorter);

/* What follows computes x at once, as the shapes depend on the data. */

/* Coordinates of the elements that are not zero: one tensor for each axis. */
NB_API nb_status nb_nonzero(nb_tensor *x, nb_tensor **out);

/* The values in x, each once, sorted, with how often each occurs; with the
 * index of its value for each element of x; or with the index of the first
 * element of each, that inverse, and the counts: 2, 2 and 4 results. */
NB_API nb_status nb_unique_counts(nb_tensor *x, nb_tensor **out);
NB_API nb_status nb_unique_inverse(nb_tensor *x, nb_tensor **out);
NB_API nb_status nb_unique_all(nb_tensor *x, nb_tensor **out);

#ifdef __cplusplus
}
#endif
#endif
