/* box.h - copies between parts of tensors.  The data of a box is packed,
 * row-major. */
#ifndef NB_COMM_BOX_H
#define NB_COMM_BOX_H

#include "shard/layout/spec.h"

/* Whether `part`, which lies within b, lies in its data without gaps; *at is
 * then the element at which it begins. */
bool nb_box_is_run(int rank, const nb_box *part, const nb_box *b, int64_t *at);

/* Copies `part`, which lies within both, from the data of a to that of b;
 * elements of `item` bytes. */
void nb_box_copy(int rank, const nb_box *part, const nb_box *a,
                 const void *from, const nb_box *b, void *to, size_t item);

#endif
