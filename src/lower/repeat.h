/* repeat.h - a loop over steps as one nest. */
#ifndef NB_LOWER_REPEAT_H
#define NB_LOWER_REPEAT_H

#include "lower/plan.h"

/* The nest of line k, a call that repeats a program whose points do not talk to
 * each other: then every point can go through all steps by itself.  *nest is
 * NULL, without an error, if it is no such program.  buffer gets the lines
 * whose blocks the nest's buffers are, allocated. */
bool nb_repeat_nest(const nb_plan *p, int k, nb_nest **nest, int **buffer);

#endif
