/* reduce.h - what reductions, scans and sorting share.
 *
 * Kernels along one axis name it and all dims behind it, so that their views
 * have that axis as dim 0; a line runs along it. */
#ifndef NB_OPS_REDUCE_H
#define NB_OPS_REDUCE_H

#include "ops/ops.h"

/* 16-bit floats in float32, anything else as it is: what takes several steps
 * rounds once, at its end. */
nb_tensor *nb_widen(nb_tensor *x);

/* Whether the dims of a view lie row-major without gaps, how many elements it
 * has, and all of them, so laid out, in dtype d. */
bool nb_view_is_packed(const nb_view *v);
int64_t nb_view_count(const nb_view *v);
void nb_view_pack(const nb_view *v, nb_dtype d, void *to);

/* Visits the lines of a kernel's first n views, which agree in the dims behind
 * dim 0 (a result of a reduction may lack that one). */
typedef struct nb_lines {
    int n;
    const nb_view *view;
    char *at[4]; /* where the line begins in each view */
    int64_t index[NB_MAX_RANK];
} nb_lines;
bool nb_lines_start(nb_lines *l, const nb_view *view, int n); /* any at all? */
bool nb_lines_next(nb_lines *l);

/* y_i = a_i y_(i-1) + b_i along an axis, from the end if reverse; exclusive:
 * y_(i-1) in the place of y_i. */
nb_tensor *nb_linear_scan(nb_tensor *a, nb_tensor *b, int64_t axis,
                          bool exclusive, bool reverse);

/* Order as unsigned numbers: x < y as keys are; NaN is the greatest, all NaN
 * and both zeros are equal.  n elements, a stride of elements apart. */
void nb_order_keys(uint64_t *key, const void *x, nb_dtype d, int64_t stride,
                   int64_t n);

void nb_view_keys(const nb_view *v, uint64_t *key); /* of all, row-major */

/* Stable sort of n records by key, with room for as many.  The result is in
 * one of the two, which is returned. */
typedef struct nb_ranked {
    uint64_t key;
    int64_t index;
} nb_ranked;
nb_ranked *nb_order_sort(nb_ranked *x, nb_ranked *room, int64_t n);

#endif
