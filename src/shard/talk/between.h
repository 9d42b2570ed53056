/* between.h - what the lanes of a vmap have to say to each other. */
#ifndef NB_SHARD_TALK_BETWEEN_H
#define NB_SHARD_TALK_BETWEEN_H

#include "core/tensor.h"

/* A kind of reduction over dim d, in the dtype of x; and over the lanes. */
nb_tensor *nb_dim_reduce(nb_tensor *x, int d, nb_reduce kind);
nb_tensor *nb_lanes_reduce(nb_tensor *x, nb_lane lane, nb_reduce kind);

nb_tensor *nb_lanes_gather(nb_tensor *x, nb_lane lane, int axis, bool tiled);

/* Each its block along the axis: of x, which is the same for all, or of the
 * sum. */
nb_tensor *nb_lanes_scatter(nb_tensor *x, nb_lane lane, int axis, bool sum);

nb_tensor *nb_lanes_exchange(nb_tensor *x, nb_lane lane, int split, int concat,
                             bool tiled);

/* Lane i gets the value of lane from[i], or zero if that is negative. */
nb_tensor *nb_lanes_permute(nb_tensor *x, nb_lane lane, const int64_t *from);

nb_tensor *nb_lanes_get(nb_tensor *x, nb_lane lane, int64_t which);

/* from[dst] = src, -1 where there is none, of pairs (src, dst) of `size` things
 * called `noun`; allocated, NULL if a pair is wrong. */
int64_t *nb_pairs_from(const char *who, const char *noun, int n,
                       const int64_t (*pairs)[2], int64_t size);

#endif
