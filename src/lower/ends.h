/* ends.h - products of matrices take in what follows them. */
#ifndef NB_LOWER_ENDS_H
#define NB_LOWER_ENDS_H

#include "lower/plan.h"

/* On the steps of a plan for a card, whose nests are whole. */
bool nb_plan_ends(nb_plan *p);

#endif
