/* nabla/control.h - loops and branches as ops.
 *
 * Bodies are recorded once, on stand-ins for their arguments, into a small
 * program of their own; what they close over becomes inputs of the op.  All of
 * them differentiate, in both modes, and map like any other op.  A body cannot
 * look at values: its arguments have none yet. */
#ifndef NABLA_CONTROL_H
#define NABLA_CONTROL_H

#include "nabla/transform.h"

#ifdef __cplusplus
extern "C" {
#endif

/* body(carry..., x...) -> (carry..., y...), over the leading axis of xs, from
 * the front or, if reverse, from the end; length counts if there are no xs (else
 * it may be 0).  Into y: the last carry (as many as init), then each y stacked;
 * *ny as in nb_body. */
NB_API nb_status nb_scan(nb_func *body, int ninit, nb_tensor *const *init,
                         int nxs, nb_tensor *const *xs, int64_t length,
                         bool reverse, int *ny, nb_tensor **y);

/* yes(operands...) where pred is true, no(operands...) where it is not.  pred is
 * a scalar; mapped over, both branches run and are selected from. */
NB_API nb_status nb_cond(nb_tensor *pred, nb_func *yes, nb_func *no, int nx,
                         nb_tensor *const *x, int *ny, nb_tensor **y);

/* state = body(state...) while test(state...) is true: n states in, n out.
 * Mapped over, each lane stops by itself. */
NB_API nb_status nb_while(nb_func *test, nb_func *body, int n,
                          nb_tensor *const *init, nb_tensor **y);

#ifdef __cplusplus
}
#endif
#endif
