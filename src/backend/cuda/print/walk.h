/* walk.h - how the threads of a card walk a nest.
 *
 * A unit, one point of the outer axes, is the work of a team of threads: one,
 * some of a warp, or a whole block.  Its members share the points of the inner
 * axes out in turns, and bring what they have reduced together before the next
 * pass.  Along the vector axis a thread takes several points at once, its
 * lanes: of an inner axis, or, where nothing is reduced, of an outer one; then
 * a unit is as many points as there are lanes.
 *
 * Where memory runs along the last outer axis but sums go across it, the units
 * of a block lie side by side, and the members of a team behind one another; if
 * one pass does, a thread takes as many units as there are lanes.
 *
 * Where nothing is reduced and some memory runs along another axis than what is
 * stored, a block takes a tile of both axes.  What is turned comes by way of
 * shared memory: it is read along its own axis, and used along the other. */
#ifndef NB_CUDA_WALK_H
#define NB_CUDA_WALK_H

#include "lower/nest.h"

enum {
    NB_CUDA_PASSES = 16,
    NB_CUDA_VECTOR = 16, /* bytes */
    NB_CUDA_WORD = 4,    /* of registers, and of banks of shared memory */
    NB_CUDA_WARP = 32
};

typedef struct nb_cuda_walk {
    const nb_nest *nest;
    int vector, lanes;   /* axis, or -1; points at once */
    bool ragged;         /* vectors may reach over the ends of their axis */
    int head;            /* an access that tells where they begin; -1: at 0 */
    int team, units;     /* threads of a unit; units of a block */
    bool across;         /* members behind one another */
    bool columns;        /* and lanes are units side by side */
    int tile;            /* the axis of what is turned, or -1 */
    int side, rise;      /* points of a tile: along the vector axis, that one */
    int ahead;           /* units that a thread takes one after another */
    int64_t total;       /* units */
    int64_t inner;       /* vectors of the inner axes */
    int turns;           /* of a thread in a pass, where they can be unrolled */
    bool wide;           /* places need 64 bits */
    int npasses, *ready; /* by value: the pass that has it */
    bool *inside;        /* by value: differs along the inner axes */
    int *kept;           /* by value: the pass that keeps it for later, or -1 */
    bool *raw;           /* by value: kept as it lies in memory */
    bool plain;          /* nothing is, nor compared in pairs */
    int blocks;          /* of a processor, that registers should allow */
    bool *needed[NB_CUDA_PASSES]; /* by value: at each point of that pass */
} nb_cuda_walk;

bool nb_cuda_walk_plan(nb_cuda_walk *w, const nb_nest *x);
void nb_cuda_walk_free(nb_cuda_walk *w);

/* The same by one block of threads, which takes all units in rounds: of vectors
 * where they lie so, by whole warps where memory is read as it lies. */
enum { NB_WALK_VECTORS = 1, NB_WALK_WARPS = 2 };
bool nb_cuda_walk_block(nb_cuda_walk *w, const nb_nest *x, int threads,
                        unsigned how);

/* The first steps of a plan: lanes along the vector axis; a tile, if some load
 * is turned. */
void nb_cuda_choose_lanes(nb_cuda_walk *w);
void nb_cuda_choose_exact_lanes(nb_cuda_walk *w); /* in rows of whole vectors */
bool nb_cuda_choose_tile(nb_cuda_walk *w);
bool nb_cuda_choose_columns(nb_cuda_walk *w, int axis);

/* Vectors of a row of the vector axis. */
int64_t nb_cuda_vectors(const nb_cuda_walk *w);

/* Whether lanes of an access lie side by side, as one piece of memory. */
bool nb_cuda_is_vector(const nb_cuda_walk *w, const nb_nest_value *v);

/* Whether a load comes by way of shared memory. */
bool nb_cuda_is_turned(const nb_cuda_walk *w, const nb_nest_value *v);
/* Whether lanes of it along the axis of tiles are one piece of memory. */
bool nb_cuda_is_upright(const nb_cuda_walk *w, const nb_nest_value *v);

/* Whether value k is the same all over a unit and points are divided by it; and
 * whether k is such a quotient. */
bool nb_cuda_is_divisor(const nb_cuda_walk *w, int k);
bool nb_cuda_is_quotient(const nb_cuda_walk *w, int k);

/* Whether k is the largest or the smallest of halves in memory: those are
 * compared in pairs, as they lie there. */
bool nb_cuda_is_paired(const nb_cuda_walk *w, int k);
/* Whether k is the exponential of a number that is not above 0, or infinite: one
 * less the largest of its kind, unless that is infinite. */
bool nb_cuda_is_below_one(const nb_cuda_walk *w, int k);
/* Whether k stores vectors of halves, rounded in pairs; the number that it
 * rounds. */
bool nb_cuda_is_packed(const nb_cuda_walk *w, int k);
int nb_cuda_unrounded(const nb_cuda_walk *w, int k);

static inline int nb_cuda_threads(const nb_cuda_walk *w)
{
    return w->team * w->units;
}

#endif
