/* sharded.h - realising tensors that lie on devices. */
#ifndef NB_RUN_SHARDED_H
#define NB_RUN_SHARDED_H

#include "core/tensor.h"

/* Whether one of the nodes lies on devices. */
bool nb_sharded_any(int n, nb_tensor *const *node);

/* Computes the roots from the nodes that they need, inputs first. */
bool nb_sharded_run(int n, nb_tensor *const *node, int nroots,
                    nb_tensor *const *root);
void nb_sharded_clear(void);

#endif
