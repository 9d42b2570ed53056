/* passes.h - a loop of as many turns as its test allows, walked over several
 * times.
 *
 * The first pass goes on until the test fails, which is asked before each turn.
 * Further passes have as many turns and go to and fro: the second back, the
 * third forward again.  A pass carries states of its own; besides, each turn
 * may keep values, which later passes are given when they come to that turn.
 *
 * A loop of one pass is an ordinary while.  Its derivative by reverse mode is
 * one of two, the states of the first pass kept for the second, and so on: the
 * number of turns need not be known to anyone but the op while it runs.
 *
 * Inputs of the program: the states of all passes, the values kept by all
 * passes, what is closed over; of the op: the same without the kept.  Results
 * of the program: states, the test, values kept; of the op: the last states. */
#ifndef NB_TRANSFORM_PASSES_H
#define NB_TRANSFORM_PASSES_H

#include "transform/region.h"

enum { NB_MAX_PASSES = 32 };

/* body(states..., kept so far...) -> (states..., kept...).  The last pass keeps
 * nothing. */
typedef struct nb_pass {
    nb_func *body;
    nb_list init;
} nb_pass;

/* test(states of the first pass...).  Results: the last states of all. */
bool nb_passes_record(nb_func *test, int n, nb_pass *pass, nb_results *r);

/* The same as a scan, *done, if the turns of the program of one pass can be
 * counted. */
bool nb_counted_record(const nb_region *region, int states,
                       nb_tensor *const *init, nb_results *r, bool *done);

/* The value of an integer scalar that is at hand; and a number in the place of
 * x: of its dtype, and where it is. */
bool nb_known_whole(nb_tensor *x, int64_t *value);
nb_tensor *nb_number_like(int64_t value, nb_tensor *x);

/* How many passes a call has, and of all and of each the states and what is
 * kept: numbers, and where they begin. */
typedef struct nb_passes {
    int n, states, kept;
    struct {
        int states, kept, state, keep;
    } pass[NB_MAX_PASSES];
} nb_passes;
nb_passes nb_passes_of(const nb_call *c);

/* Shapes of states and of what is kept; allocated. */
nb_shape *nb_passes_shapes(const nb_call *c);

/* The rules of the op. */
bool nb_passes_push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy);
bool nb_passes_pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx);

#endif
