/* lazy.h - executables for what is realised without having been compiled. */
#ifndef NB_RUN_LAZY_H
#define NB_RUN_LAZY_H

#include "core/graph.h"

/* Computes the roots by an executable of the nodes, which are in order and hold
 * all that is needed.  *done stays false, without an error, if they had better
 * run one by one: small work, a program that is new, values that are unknown. */
bool nb_lazy_run(int n, nb_tensor **node, int nroots, nb_tensor *const *root,
                 bool *done);

/* The same, in any case and at once: what is on a card runs in no other way. */
bool nb_lazy_run_whole(int n, nb_tensor **node, int nroots,
                       nb_tensor *const *root);

/* What a program runs; lent. */
struct nb_exec *nb_program_exec(const nb_program *p);

/* Gives x the value, which is realised and of its type. */
bool nb_lazy_settle(nb_tensor *x, nb_tensor *value);

/* Drops the executables. */
void nb_lazy_clear(void);

/* Whether it is all there is to it: its hash knows the program. */
bool nb_graph_is_closed(const nb_graph *g);

#endif
