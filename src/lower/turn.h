/* turn.h - products that are written in the order in which they are read. */
#ifndef NB_LOWER_TURN_H
#define NB_LOWER_TURN_H

#include "lower/plan.h"

/* By line: the one that uses it, negative if there is none, or several, or it
 * is a result. */
int *nb_lines_only(const nb_graph *g);

/* Where line k, that only `only` uses, is a product to be turned: its strides.
 * False: an error. */
bool nb_line_turn(const nb_plan *p, int k, int only, int64_t *stride);

#endif
