/* propagate.h - how the values of a program might lie, seen from both ends.
 *
 * What is given and what the program says of itself spreads along the factors
 * of its calls, forward and backward, until nothing changes: lists of axes only
 * ever grow, so that it ends. */
#ifndef NB_SHARD_GRAPH_PROPAGATE_H
#define NB_SHARD_GRAPH_PROPAGATE_H

#include "core/graph.h"
#include "shard/layout/spec.h"

/* A layout for each line, of dims alone: open where it spread.  Nodes, one for
 * each line, say how the lines were recorded, which inputs, reshards and
 * results keep.  wish: yours; nb_free. */
bool nb_propagate(const nb_graph *g, nb_tensor *const *node,
                  const nb_mesh *mesh, nb_spec **wish);

#endif
