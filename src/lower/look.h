/* look.h - results that are another look into an input's memory. */
#ifndef NB_LOWER_LOOK_H
#define NB_LOWER_LOOK_H

#include "core/tensor.h"

/* Strides of the stored dims of y in the memory of its first input, whose
 * strides are given, and the offset between the two, in elements.  False,
 * without an error, if the call computes, or must copy. */
bool nb_look(const nb_call *c, const nb_tensor *y, const int64_t *from,
             int64_t *stride, int64_t *offset);

/* For each stored dim of y the dim of the first input that it is, -1 if it is
 * repeated or of size one.  False if y is not all of that input with its dims
 * moved, and dims of size one dropped or added. */
bool nb_look_moves(const nb_call *c, const nb_tensor *y, int *dim);

/* Strides that tell n dims apart. */
void nb_look_tags(int n, int64_t *tag);

/* Results of a call with several lie in one block: the offset of each in bytes,
 * and the bytes of all. */
bool nb_look_parts(const nb_call *c, int64_t *offset, int64_t *total);
/* The same without gaps, so that offsets are polynomials of sizes. */
bool nb_look_parts_any_size(const nb_call *c, int64_t *offset, int64_t *total);

/* Row-major strides. */
void nb_packed_strides(int n, const int64_t *size, int64_t *stride);

#endif
