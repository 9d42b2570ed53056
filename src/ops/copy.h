/* copy.h - elements from one layout to another, for kernels that only move. */
#ifndef NB_OPS_COPY_H
#define NB_OPS_COPY_H

#include "core/op.h"

/* One side of a copy: its first element and its strides, in elements. */
typedef struct nb_side {
    char *data;
    const int64_t *stride;
} nb_side;

/* Copies an array of `item` bytes an element.  The sides do not overlap, and
 * no element of `to` is written twice. */
void nb_copy(size_t item, int rank, const int64_t *size, nb_side to,
             nb_side from);

/* Strides of a row-major array. */
void nb_row_major(int rank, const int64_t *size, int64_t *stride);

#endif
