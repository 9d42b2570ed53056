/* passes.h - the list of passes from a recorded graph to code.
 *
 * Each changes a graph, or the plan made of it, and none changes what is
 * computed.  NABLA_DISABLE=name,name leaves passes out, NABLA_DUMP=name,name
 * (or all) prints what is there after them on stderr. */
#ifndef NB_LOWER_PASSES_H
#define NB_LOWER_PASSES_H

#include "core/graph.h"

typedef struct nb_pass {
    const char *name;
    bool (*run)(nb_graph *g); /* NULL: works on the plan, in plan.c */
    const char *doc;
} nb_pass;

extern const nb_pass nb_passes[]; /* in order; one without a name ends them */
const nb_pass *nb_pass_find(const char *name); /* NULL if there is none */

/* Runs those on graphs: all, or to the one named.  False with an error set:
 * the graph can only be freed. */
bool nb_lower_graph(nb_graph *g);
bool nb_lower_any_size(nb_graph *g); /* for a plan for any size */
bool nb_lower_until(nb_graph *g, const char *name);

/* What the environment says. */
bool nb_pass_is_on(const char *name);
bool nb_pass_is_dumped(const char *name);
void nb_pass_dump(const char *name, const char *text);

/* One file each: pass_<name>.c. */
bool nb_pass_inline(nb_graph *g);
bool nb_pass_canonicalise(nb_graph *g);
bool nb_pass_fold(nb_graph *g);
bool nb_pass_simplify(nb_graph *g);
bool nb_pass_pick(nb_graph *g);
bool nb_pass_cse(nb_graph *g);
bool nb_pass_again(nb_graph *g);
bool nb_pass_dead(nb_graph *g);
bool nb_pass_attention(nb_graph *g);
bool nb_pass_recompute(nb_graph *g);
bool nb_pass_cheap(nb_graph *g);

#endif
