/* kept.h - the programs that the turns of a loop or branch run, kept with its op.
 *
 * They are made once, when a program is compiled that calls the op, and run on
 * memory alone: a turn makes no tensors, and writes its results where the caller
 * wants them.  What does not change from turn to turn is computed before the
 * first. */
#ifndef NB_TRANSFORM_KEPT_H
#define NB_TRANSFORM_KEPT_H

#include "transform/region.h"

typedef struct nb_kept nb_kept;

/* What a program of an op computes: results of a graph of the op (n of them, or
 * all if which is NULL), whose first `varying` inputs change; or that runs once,
 * so that nothing is computed before. */
typedef struct nb_turn_of {
    const nb_graph *graph;
    int varying, n;
    const int *which;
    bool once;
} nb_turn_of;

/* The programs of turns: of one, and of what does not change, whose results are
 * further inputs of it (NULL if there are none). */
typedef struct nb_turn_programs {
    nb_program *turn, *before;
    int nbefore;
    size_t *bytes; /* of each of these */
} nb_turn_programs;

/* From nodes, one by line of the graph, on stand-ins; y: the n results, or NULL
 * for those nodes that are.  turn stays NULL without an error where turns had
 * better run on tensors. */
bool nb_turn_make(nb_turn_programs *t, nb_turn_of of, nb_tensor *const *node,
                  nb_tensor *const *y);
void nb_turn_free(nb_turn_programs *t);

/* Makes it, in one of the op's slots.  Nothing is made, and nothing fails, where
 * turns had better run on tensors: in lanes, or if ops call functions. */
bool nb_kept_make(const nb_call *c, int slot, nb_turn_of of);

/* What is in a slot, NULL if nothing is or this call cannot run it. */
const nb_kept *nb_kept_find(const nb_call *c, int slot);

/* The same whether it can run or not, for those who plan. */
const nb_kept *nb_kept_peek(const nb_op *op, int slot);

/* Bytes that its turns need besides their inputs and results. */
int64_t nb_kept_bytes(const nb_kept *k);

/* A run of turns.  Inputs, of which the varying ones do not count, are realised
 * and outlive it; turns read and write packed memory. */
typedef struct nb_turning {
    const nb_kept *kept;
    char **in; /* varying inputs first */
    int nheld;
    nb_buffer **held;
} nb_turning;
bool nb_turning_begin(nb_turning *t, const nb_kept *k, nb_tensor *const *x);
bool nb_turning_run(nb_turning *t, char *const *out);
void nb_turning_end(nb_turning *t);

#endif
