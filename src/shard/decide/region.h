/* region.h - ops that hold programs, over a mesh.
 *
 * Values inside lie as they follow from those that come in.  A loop's carries
 * lie the same on every turn, nothing pending; what a loop runs over is not
 * split along that axis.  Ops that are neither loops of known length nor
 * programs that run once have all they need whole. */
#ifndef NB_SHARD_DECIDE_REGION_H
#define NB_SHARD_DECIDE_REGION_H

#include "shard/decide/layouts.h"

/* A program with its inputs laid out. */
typedef struct nb_inside {
    nb_graph *graph;
    nb_tensor **node; /* lent by the scope it was made in */
    nb_layouts lay;
} nb_inside;

/* Of program g on inputs that lie so (NULL: on no mesh), in an open scope. */
bool nb_inside_lay(const nb_graph *g, const nb_mesh *m,
                   const nb_spec *const *in, nb_inside *to);
void nb_inside_free(nb_inside *b);

/* What the program inside a call is given, once operands lie as they should;
 * in has room for all its inputs.  False: it runs on whole values. */
bool nb_inside_inputs(const nb_call *c, const nb_decision *d,
                      const nb_spec **in);

/* How result k of the program has to lie for result k of the call. */
const nb_spec *nb_inside_result(const nb_call *c, const nb_decision *d, int k);

/* Whether the call is made of values that come in, one by one. */
bool nb_call_hands_on(const nb_call *c);

bool nb_region_decide(const nb_call *c, int nout, nb_tensor *const *out,
                      nb_decision *d);

/* The spec without what is pending; of x[i] where s is of x, along the axis that
 * a loop runs over; and the other way. */
const nb_spec *nb_spec_settled(const nb_spec *s);
const nb_spec *nb_spec_of_step(const nb_spec *s);
const nb_spec *nb_spec_of_steps(const nb_spec *s);

#endif
