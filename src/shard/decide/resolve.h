/* resolve.h - which layouts a call wants its operands in, and which it gives.
 *
 * COLLECT the axes of the operands' dims into the factors of the call, RESOLVE
 * each factor and the conflicts between them, UPDATE operands and results.  A
 * decision follows from the call and the layouts of its operands alone. */
#ifndef NB_SHARD_DECIDE_RESOLVE_H
#define NB_SHARD_DECIDE_RESOLVE_H

#include "core/tensor.h"
#include "shard/plan/plan.h"

enum { NB_MAX_REASON = 160 };

typedef struct nb_decision {
    const struct nb_decision *next; /* of all there are */
    const nb_mesh *mesh;
    int nin, nout;
    const nb_spec **need; /* of each operand */
    const nb_spec **give; /* of each result */
    /* Of each operand: which parts of it, once it lies so, the blocks of the
     * result reach for; NULL: its own block. */
    const nb_reshard_plan **reach;
    /* Of each operand, then of each result: how devices that have blocks of a
     * scanned dim tell each other what these come to; NULL: they do not. */
    const nb_reshard_plan **share;
    /* Of a call of an op that holds programs: whether these run on parts, and
     * how values lie there that turns keep for later ones. */
    bool opens;
    const nb_spec **kept;
    const char *reason; /* what was decided between axes, or "" */
} nb_decision;

/* The decision for a call with these results; remembered for the process.
 * NULL with an error; also, without one, if no operand lies on a mesh. */
const nb_decision *nb_decide(const nb_call *c, int nout, nb_tensor *const *out);

/* What is wanted of a call besides what its operands say, by a program that is
 * laid out as a whole. */
typedef struct nb_wish {
    const nb_mesh *mesh;           /* where no operand lies on one */
    const nb_spec *const *results; /* how they might lie; any NULL: anyhow */
    nb_cut pending; /* a sum over these that one operand carries is left so,
                     * others are made to carry a part of it each */
} nb_wish;

/* The decision with that in mind; w may be NULL. */
const nb_decision *nb_decide_with(const nb_call *c, int nout,
                                  nb_tensor *const *out, const nb_wish *w);

/* For tests: changes decisions, none of which are remembered then; NULL:
 * nothing does. */
extern void (*nb_decide_spoil)(const nb_call *c, nb_decision *d);

/* The layout of x: its own, or that of a value that every device has. */
const nb_spec *nb_spec_on(const nb_tensor *x, const nb_mesh *m);

#endif
