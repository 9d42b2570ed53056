/* donate.h - results in the memory of arguments that nobody needs any more. */
#ifndef NB_RUN_DONATE_H
#define NB_RUN_DONATE_H

#include "lower/plan.h"

/* By line: the input whose block a result takes, or -1; allocated. */
int *nb_donate_plan(const nb_plan *p, int n, const int *inputs);

/* Whether the block of input i may be that of result k. */
bool nb_donate_fits(const nb_plan *p, int i, int k, bool *fits);

/* Whether the data of x is x's alone. */
bool nb_donate_can(const nb_tensor *x);

/* Takes it away: using x fails from now on. */
void nb_donate_mark(nb_tensor *x);

#endif
