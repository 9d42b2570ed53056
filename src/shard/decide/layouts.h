/* layouts.h - how every value of a program lies, and what its calls want. */
#ifndef NB_SHARD_DECIDE_LAYOUTS_H
#define NB_SHARD_DECIDE_LAYOUTS_H

#include "core/graph.h"
#include "shard/decide/resolve.h"

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

/* As is best for the program as a whole: values that are neither inputs nor
 * results nor resharded may lie in any way.  Moves at most as many bytes as the
 * other. */
bool nb_layouts_solve(const nb_graph *g, nb_tensor *const *node,
                      nb_layouts *to);

/* Whether devices that do so compute the program: every call is looked at again,
 * by its factors.  NB_ERUNTIME with the line otherwise. */
bool nb_layouts_verify(const nb_graph *g, nb_tensor *const *node,
                       const nb_layouts *l);

/* A reshard whose uses all need one other layout has that one. */
bool nb_layouts_pass(const nb_graph *g, nb_tensor *const *node, nb_layouts *l);

/* What a device receives in a run, at most: bytes of all plans, and how many
 * steps they have that communicate.  Loops of which nobody knows how long they
 * run are taken to have some turns, and branches are all taken. */
typedef struct nb_traffic {
    int64_t bytes;
    int steps;
    double seconds;
} nb_traffic;
bool nb_layouts_traffic(const nb_graph *g, nb_tensor *const *node,
                        const nb_layouts *l, nb_traffic *to);

#endif
