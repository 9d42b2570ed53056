/* spmd_local.h - the program of one device. */
#ifndef NB_RUN_SPMD_LOCAL_H
#define NB_RUN_SPMD_LOCAL_H

#include "core/graph.h"
#include "shard/resolve.h"

/* The graph of what a device at `position` does.  node is the graph recorded on
 * stand-ins that lie on the mesh.  Inputs are those of the graph, then what it
 * captures, each with its stored dims visible; results likewise, then a token.
 */
nb_graph *nb_spmd_local(const nb_graph *g, nb_tensor *const *node,
                        const nb_mesh *mesh, int position);

#endif
