/* cut.h - where the pending sums of a program are best taken. */
#ifndef NB_SHARD_GRAPH_CUT_H
#define NB_SHARD_GRAPH_CUT_H

#include "shard/decide/layouts.h"

/* By line: sums over `reduce` are taken where the value is made, for all uses;
 * over `carry` they are left pending in it, whichever operands bring them. */
typedef struct nb_sums {
    nb_cut *reduce, *carry;
} nb_sums;

/* For a program laid out so, dims as they are: a least cut between where sums
 * come to be pending and where they must be taken, for each axis by itself.
 * Yours, nb_sums_free. */
bool nb_sums_place(const nb_graph *g, nb_tensor *const *node,
                   const nb_layouts *l, nb_sums *to);
void nb_sums_free(nb_sums *s);

#endif
