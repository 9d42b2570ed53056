/* placed.h - realising what is on several devices, or on a card. */
#ifndef NB_RUN_PLACED_H
#define NB_RUN_PLACED_H

#include "core/tensor.h"

/* Whether some of these nodes are on a card, or move. */
bool nb_placed_any(int n, nb_tensor *const *node);

/* Realises the roots, which need these nodes, all of them; or moves what has to
 * be moved first: then *again, for the roots need less. */
bool nb_placed_run(int n, nb_tensor **node, int nroots, nb_tensor *const *root,
                   bool *again);

#endif
