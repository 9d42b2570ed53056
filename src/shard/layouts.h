/* layouts.h - how every value of a program lies, and what its calls want. */
#ifndef NB_SHARD_LAYOUTS_H
#define NB_SHARD_LAYOUTS_H

#include "core/graph.h"
#include "shard/resolve.h"

typedef struct nb_layouts {
    const nb_mesh *mesh;
    int n;
    const nb_spec **spec; /* by line; NULL: a call with several results */
    /* By line: of calls; NULL where every device does the same on the same. */
    const nb_decision **decision;
} nb_layouts;

/* As the nodes, one for each line, were laid out when they were recorded. */
bool nb_layouts_of(const nb_graph *g, nb_tensor *const *node, nb_layouts *to);
/* The same on a mesh, also if no line lies there. */
bool nb_layouts_on(const nb_graph *g, nb_tensor *const *node, const nb_mesh *m,
                   nb_layouts *to);
void nb_layouts_free(nb_layouts *l);

#endif
