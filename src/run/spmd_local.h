/* spmd_local.h - the program of one device. */
#ifndef NB_RUN_SPMD_LOCAL_H
#define NB_RUN_SPMD_LOCAL_H

#include "core/graph.h"
#include "shard/decide/layouts.h"

/* What a device does: inputs are those of the graph, then what it captures, each
 * with its stored dims visible, then numbers, which are its own; results
 * likewise, then a token. */
typedef struct nb_local {
    nb_graph *graph;
    int nnumbers;
    int64_t *number;
} nb_local;

/* That of the device at `position`, both yours.  node is the graph recorded on
 * stand-ins that lie on the mesh. */
bool nb_spmd_local(const nb_graph *g, nb_tensor *const *node,
                   const nb_layouts *lay, int position, nb_local *to);

#endif
