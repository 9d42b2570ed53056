/* debug.h - what is watched while ops are recorded and run, and effects.
 *
 * An op with an effect (nb_op.effect) does something besides computing: it is
 * run though nobody needs its result, once, and in the order of the program;
 * where a derivative goes through a program again, it is silent there.
 * While a function is recorded its effects are pending, and what it returns is
 * tied to them by `after`, so that they belong to what was recorded. */
#ifndef NB_CORE_DEBUG_H
#define NB_CORE_DEBUG_H

#include "core/tensor.h"
#include "nabla/debug.h"

/* What nb_debug_set says, of this thread. */
extern _Thread_local unsigned nb_debug_flags;

/* Computes a node that was just recorded, where it can be: watched ops fail at
 * the line that calls them. */
bool nb_debug_settle(nb_tensor *x);

/* Whether x is computed from a stand-in, whose value does not exist. */
bool nb_is_waiting(nb_tensor *x);

/* Whether a value of x, realised, is NaN. */
bool nb_has_nan(const nb_tensor *x);

/* " at model.py:12, in the backward pass" of the node, as far as it is known;
 * valid until the next question of this thread. */
const char *nb_debug_place(const nb_tensor *x);

/* What nodes recorded from now on are: 0, NB_BACKWARD or NB_TANGENT.  Gives
 * what they were. */
unsigned nb_direction_set(unsigned direction);
unsigned nb_direction(void);

typedef struct nb_effects {
    struct nb_effects *around;
    nb_tensor **pending; /* kept */
    int n, room;
} nb_effects;

/* Around the recording of a function. */
void nb_effects_open(nb_effects *e);
void nb_effects_close(nb_effects *e);

/* Those of the innermost recording; NULL if nothing is recorded. */
const nb_effects *nb_effects_pending(void);

/* y is what all that follow come after. */
bool nb_effects_are(nb_tensor *y);

/* x, after what is pending. */
nb_tensor *nb_effects_tie(nb_tensor *x);

#endif
