/* shards.h - the data of a tensor that lies on many devices. */
#ifndef NB_RUN_SHARDS_H
#define NB_RUN_SHARDS_H

#include "core/tensor.h"
#include "shard/layout/spec.h"

/* What the devices of this process have: packed leaves whose visible dims are
 * the stored dims of the tensor, by position; NULL: another process has it. */
typedef struct nb_shards {
    int n;
    nb_tensor *whole; /* the value, once somebody asked for it; graph lock */
    nb_tensor *at[];
} nb_shards;

/* A buffer that holds n shards, kept; NULL with an error. */
nb_buffer *nb_shards_new(int n, nb_tensor *const *at);

/* Of a tensor that is realised and lies on devices. */
nb_shards *nb_shards_of(const nb_tensor *x);

/* x, realised, as a leaf whose visible dims are its stored ones. */
nb_tensor *nb_stored_leaf(nb_tensor *x);

#endif
