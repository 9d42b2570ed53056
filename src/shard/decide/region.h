/* region.h - ops that hold programs, over a mesh.
 *
 * Values inside lie as they follow from those that come in.  What a loop
 * carries lies the same on every turn, nothing pending; what it runs over is
 * not split along that axis; results of branches lie the same in all of them;
 * what decides how a program goes on, a test or a predicate, every device has
 * whole.  Ops that hold no program that could be made anew, or one whose test
 * differs from lane to lane, have all they need whole. */
#ifndef NB_SHARD_DECIDE_REGION_H
#define NB_SHARD_DECIDE_REGION_H

#include "core/joints.h"
#include "shard/decide/layouts.h"

/* A program as it is in one call, in the lanes of that, and how its values
 * lie.  All nodes are lent by the scope it was made in. */
typedef struct nb_inside {
    nb_joints j;
    nb_graph *made;        /* if it had to be: yours */
    const nb_graph *graph; /* that, or the op's own */
    const nb_spec **in;    /* by input */
    nb_tensor **node;      /* by line */
    nb_layouts lay;
} nb_inside;

/* Program `region` of a call for which this was decided, in an open scope.
 * False without an error: there is none, or the call runs on whole values. */
bool nb_inside_of(const nb_call *c, const nb_decision *d, int region,
                  nb_inside *to);
void nb_inside_free(nb_inside *b);

/* How result k of the program has to lie. */
const nb_spec *nb_inside_result(const nb_call *c, const nb_decision *d,
                                const nb_inside *b, int k);

/* inside.c: the same before anything lies anywhere; its nodes, on inputs that
 * lie as b->in says; and layouts of all that follow, as often as it is asked. */
bool nb_inside_open(const nb_call *c, int region, nb_inside *to);
bool nb_inside_nodes(nb_inside *b);
bool nb_inside_lay(nb_inside *b, const nb_mesh *m);

/* The lines that one of its runs needs; yours. */
bool *nb_inside_lines(const nb_inside *b, int run);

/* The layout that s, of something of the shape `of`, is for something of the
 * shape `to`: lanes that both have and visible dims, of which one has more,
 * the first.  Nothing is pending. */
const nb_spec *nb_spec_between(const nb_spec *s, const nb_shape *of,
                               const nb_shape *to);

/* Whether the call is made of values that come in, one by one. */
bool nb_call_hands_on(const nb_call *c);

/* wish: how results might lie, or NULL; what a loop carries does so then. */
bool nb_region_decide(const nb_call *c, int nout, nb_tensor *const *out,
                      const nb_wish *wish, nb_decision *d);

#endif
