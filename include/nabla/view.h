/* nabla/view.h - shapes: other looks at the same elements, parts of tensors and
 * tensors put together, and tensors made from numbers.
 *
 * Views (permute, broadcast_to, reshape where it can, slice, diagonal and what
 * is made of them) share the memory of what they look at.  Constants of any
 * shape (zeros, ones, full) are one number seen everywhere.  A dtype of
 * NB_NOTYPE stands for the default of the function: the default float unless
 * it says otherwise.
 *
 * Functions with several results store them, lent, at `out`, where there must
 * be room for all; they return a status. */
#ifndef NABLA_VIEW_H
#define NABLA_VIEW_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The axes of x in the given order: axis k of the result is axis order[k]. */
NB_API nb_tensor *nb_permute(nb_tensor *x, int n, const int64_t *order);

/* Two axes in each other's place. */
NB_API nb_tensor *nb_swap_axes(nb_tensor *x, int64_t axis1, int64_t axis2);

/* n axes at n places of the result; the others keep their order. */
NB_API nb_tensor *nb_moveaxis(nb_tensor *x, int n, const int64_t *source,
                              const int64_t *destination);

/* x repeated to a shape that it broadcasts to. */
NB_API nb_tensor *nb_broadcast_to(nb_tensor *x, int rank, const int64_t *shape);
NB_API nb_status nb_broadcast_arrays(int n, nb_tensor *const *arrays,
                                     nb_tensor **out);

/* The elements of x in another shape; one size may be -1. */
NB_API nb_tensor *nb_reshape(nb_tensor *x, int rank, const int64_t *shape);

/* The axes start_dim to end_dim made one: nb_flatten(x, 0, -1) is a vector. */
NB_API nb_tensor *nb_flatten(nb_tensor *x, int64_t start_dim, int64_t end_dim);

/* x itself if it has this shape, else an error. */
NB_API nb_tensor *nb_rebind(nb_tensor *x, int rank, const int64_t *shape);

/* Without these axes of size one; n < 0: without all axes of size one.  The
 * other way is nb_unsqueeze(x, axis). */
NB_API nb_tensor *nb_squeeze(nb_tensor *x, int n, const int64_t *axes);

/* Backwards along these axes; n < 0: along all. */
NB_API nb_tensor *nb_flip(nb_tensor *x, int n, const int64_t *axes);

/* The window that begins at start[d] along axis d and has size[d] elements,
 * step[d] apart; steps may be negative, starts not. */
NB_API nb_tensor *nb_slice(nb_tensor *x, const int64_t *start,
                           const int64_t *size, const int64_t *step);

/* The same without steps; a negative start counts from the end. */
NB_API nb_tensor *nb_slice_tensor(nb_tensor *x, const int64_t *start,
                                  const int64_t *size);

/* x with `value` around it: paddings[2 d] places before and paddings[2 d + 1]
 * after it along axis d. */
NB_API nb_tensor *nb_pad(nb_tensor *x, const int64_t *paddings, double value);

/* x cut along an axis: into equal parts; into parts of which the first may be
 * one longer, *n of them because empty ones are left out; into its elements,
 * as many as the axis has. */
NB_API nb_status nb_split(nb_tensor *x, int num_splits, int64_t axis,
                          nb_tensor **out);
NB_API nb_status nb_chunk(nb_tensor *x, int chunks, int64_t axis, int *n,
                          nb_tensor **out);
NB_API nb_status nb_unbind(nb_tensor *x, int64_t axis, nb_tensor **out);

/* Tensors one after the other along an axis, or along a new one. */
NB_API nb_tensor *nb_concatenate(int n, nb_tensor *const *tensors,
                                 int64_t axis);
NB_API nb_tensor *nb_stack(int n, nb_tensor *const *tensors, int64_t axis);

/* x moved on, round the end, by shift[k] along axes[k]; axes NULL: as if flat,
 * by shift[0] (n is 1). */
NB_API nb_tensor *nb_roll(nb_tensor *x, int n, const int64_t *shift,
                          const int64_t *axes);

/* Every element in a row along an axis; x as a whole along the last n axes. */
NB_API nb_tensor *nb_repeat(nb_tensor *x, int64_t repeats, int64_t axis);
NB_API nb_tensor *nb_tile(nb_tensor *x, int n, const int64_t *repetitions);

/* The elements with index2 - index1 = offset along axes 2 and 1, as a new last
 * axis. */
NB_API nb_tensor *nb_diagonal(nb_tensor *x, int64_t offset, int64_t axis1,
                              int64_t axis2);

/* n tensors with the coordinates of a grid, from n vectors; indexing is "xy"
 * or "ij". */
NB_API nb_status nb_meshgrid(int n, nb_tensor *const *arrays,
                             const char *indexing, nb_tensor **out);

/* Constants.  The value of nb_full may be any tensor that broadcasts, and
 * gives the dtype if none is given; nb_full_like has that of x. */
NB_API nb_tensor *nb_full(int rank, const int64_t *shape, nb_tensor *value,
                          nb_dtype dtype);
NB_API nb_tensor *nb_zeros(int rank, const int64_t *shape, nb_dtype dtype);
NB_API nb_tensor *nb_ones(int rank, const int64_t *shape, nb_dtype dtype);
NB_API nb_tensor *nb_empty(int rank, const int64_t *shape, nb_dtype dtype);
NB_API nb_tensor *nb_full_like(nb_tensor *x, nb_tensor *value);

/* 0, 1 .. size - 1; of int64 if no dtype is given. */
NB_API nb_tensor *nb_iota(int64_t size, nb_dtype dtype);

/* From start to before stop, step apart: exact, and of int64 if no dtype is
 * given; or computed in float64. */
NB_API nb_tensor *nb_arange_int(int64_t start, int64_t stop, int64_t step,
                                nb_dtype dtype);
NB_API nb_tensor *nb_arange_float(double start, double stop, double step,
                                  nb_dtype dtype);

/* num numbers evenly apart, with or without stop as the last of them. */
NB_API nb_tensor *nb_linspace(double start, double stop, int64_t num,
                              bool endpoint, nb_dtype dtype);

/* Ones on diagonal k (0 the main one, 1 above it), zeros elsewhere. */
NB_API nb_tensor *nb_eye(int64_t rows, int64_t columns, int64_t k,
                         nb_dtype dtype);

/* The Hann window: one period, or symmetric. */
NB_API nb_tensor *nb_hann_window(int64_t window_length, bool periodic,
                                 nb_dtype dtype);

/* One where the new axis (number axis of the result) equals the index, zero
 * elsewhere. */
NB_API nb_tensor *nb_one_hot(nb_tensor *indices, int64_t num_classes,
                             nb_dtype dtype, int64_t axis);

#ifdef __cplusplus
}
#endif
#endif
