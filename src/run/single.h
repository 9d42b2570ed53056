/* single.h - programs of one call, known again without being recorded.
 *
 * Which program a realisation needs is found by the hash of its graph; to make
 * the graph of `x + 1` only for that takes longer than all the rest. */
#ifndef NB_RUN_SINGLE_H
#define NB_RUN_SINGLE_H

#include "core/graph.h"

/* What tells the call of y apart from others, over these inputs, which are all
 * that it has, some by a move; 0: it has to be recorded.  Under the graph lock.
 */
uint64_t nb_single_key(nb_tensor *y, int nx, nb_tensor *const *x);

/* The hash of the program that was found for it; 0: none yet. */
uint64_t nb_single_find(uint64_t key);
void nb_single_keep(uint64_t key, uint64_t hash);

#endif
