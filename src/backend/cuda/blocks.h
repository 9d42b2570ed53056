/* blocks.h - blocks of tensors on a card: parts of them copied, filled, and
 * those of several devices made one.
 *
 * Kernels take sizes as arguments: one for every dtype serves all blocks. */
#ifndef NB_CUDA_BLOCKS_H
#define NB_CUDA_BLOCKS_H

#include "backend/cuda/card.h"
#include "core/signature.h"
#include "nabla/dtype.h"

/* Elements of `item` bytes, from strides to strides, both in elements. */
bool nb_card_box(nb_card *c, size_t item, int rank, const int64_t *size,
                 char *to, const int64_t *to_stride, const char *from,
                 const int64_t *from_stride);

/* An element, count times. */
bool nb_card_fill(nb_card *c, size_t item, int64_t count, const void *value,
                  char *to);

/* As nb_combine (comm/combine.h), on a card, to the same bits. */
bool nb_card_combine(nb_card *c, nb_dtype dtype, nb_reduce kind, int n,
                     const void *const *x, int64_t count, void *out);

#endif
