/* lazy.h - executables for what is realised without having been compiled. */
#ifndef NB_RUN_LAZY_H
#define NB_RUN_LAZY_H

#include "core/graph.h"

/* Computes the roots by an executable of the nodes, which are in order and hold
 * all that is needed.  *done stays false, without an error, if they had better
 * run one by one: small work, a program that is new, values that are unknown. */
bool nb_lazy_run(int n, nb_tensor **node, int nroots, nb_tensor *const *root,
                 bool *done);

/* Drops the executables. */
void nb_lazy_clear(void);

/* Whether it is all there is to it: its hash knows the program. */
bool nb_graph_is_closed(const nb_graph *g);

#endif
