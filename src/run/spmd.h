/* spmd.h - one program over a mesh: a program for each device.
 *
 * What was recorded on whole tensors becomes, for a device, the same ops on its
 * blocks, with moves between them where an op wants its operands to lie
 * otherwise.  Devices whose programs are equal share one. */
#ifndef NB_RUN_SPMD_H
#define NB_RUN_SPMD_H

#include "core/graph.h"
#include "run/exec.h"
#include "shard/decide/layouts.h"

typedef struct nb_spmd nb_spmd;

/* How the values of such a program lie, for as long as it is looked at: all who
 * make or explain one ask here.  whole: it is laid out as a whole, otherwise
 * from call to call as it was recorded. */
typedef bool nb_layouts_use(void *ctx, const nb_graph *g,
                            nb_tensor *const *node, const nb_layouts *lay);
bool nb_spmd_layouts(const nb_graph *g, bool whole, nb_layouts_use *use,
                     void *ctx);

/* Takes the graph, some of whose inputs or lines lie on a mesh. */
nb_spmd *nb_spmd_new(nb_graph *g, bool whole);
/* The same program with other lines as its results, laid out as they are in
 * it. */
nb_spmd *nb_spmd_inside(const nb_graph *g, bool whole, int n, int *line);
void nb_spmd_drop(nb_spmd *s);

/* Inputs are realised, results realised and lent.  It is compiled when it is
 * to be, or runs for the second time; on cards, where everything is, at once, so
 * that devices that do the same compile it once. */
bool nb_spmd_run(nb_spmd *s, nb_tensor *const *x, nb_tensor **y);
bool nb_spmd_compile(nb_spmd *s);

/* Of one that is compiled: inputs whose blocks results may take, where nobody
 * else holds them. */
bool nb_spmd_donate(nb_spmd *s, int n, const int *inputs);

/* What the first device of this process runs, of one that is compiled; and how
 * many programs there are for all of its devices. */
nb_exec *nb_spmd_exec(const nb_spmd *s);
int nb_spmd_programs(const nb_spmd *s);

/* Whether a program needs one: a line of it lies on a mesh. */
bool nb_graph_is_sharded(const nb_graph *g);

#endif
