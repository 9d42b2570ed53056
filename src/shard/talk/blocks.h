/* blocks.h - what the blocks of a tensor on a mesh have to say to each other. */
#ifndef NB_SHARD_TALK_BLOCKS_H
#define NB_SHARD_TALK_BLOCKS_H

#include "core/tensor.h"
#include "shard/layout/spec.h"

/* Whether blocks along these axes of the mesh are of one size, to be combined.
 */
bool nb_blocks_check(const char *who, const nb_tensor *x, const nb_cut *axes);

/* The blocks along full axes of the mesh combined; what is pending there is
 * settled, and a tensor that is not split there counts once a device.  The
 * result may leave the combining pending. */
nb_tensor *nb_blocks_reduce(nb_tensor *x, const nb_cut *axes, nb_reduce kind);

/* The device at position i gets the block of that at from[i], or zeros. */
nb_tensor *nb_blocks_permute(nb_tensor *x, const int64_t *from);

#endif
