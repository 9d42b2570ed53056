/* check.h - compiled code beside its ops run one by one. */
#ifndef NB_RUN_CHECK_H
#define NB_RUN_CHECK_H

#include "nabla/debug.h"
#include "run/exec.h"

/* Whether ops are to run one by one in this thread: somebody watches them, or
 * they are what code is compared with. */
bool nb_runs_plainly(void);

/* Runs a graph op by op, effects and all; results are lent. */
bool nb_graph_run_plainly(const nb_graph *g, nb_tensor *const *x,
                          nb_tensor **y);

/* Runs the executable and compares.  `recorded` is what its graph was before
 * the passes, or NULL. */
bool nb_check_run(nb_exec *e, const nb_graph *recorded, nb_tensor *const *x,
                  nb_tensor **y);

#endif
