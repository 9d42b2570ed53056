/* nabla/control.h - loops and branches as ops.
 *
 * Bodies are recorded once, on stand-ins for their arguments, into a small
 * program of their own; what they close over becomes inputs of the op.  All of
 * them differentiate in both modes, over and over, and map like any other op.
 * A body cannot look at values: its arguments have none yet.
 *
 * What a loop carries has the same shape and dtype all the time.  Results are
 * lent; *ny comes in as the room in y and goes out as their number. */
#ifndef NABLA_CONTROL_H
#define NABLA_CONTROL_H

#include "nabla/transform.h"

#ifdef __cplusplus
extern "C" {
#endif

/* body(carry..., x...) -> (carry..., y...), over the leading axis of xs, from
 * the front or, if reverse, from the end; length counts if there are no xs
 * (else it may be 0).  Into y: the last carry (as many as init), then each y
 * stacked in the order of xs. */
NB_API nb_status nb_scan(nb_func *body, int ninit, nb_tensor *const *init,
                         int nxs, nb_tensor *const *xs, int64_t length,
                         bool reverse, int *ny, nb_tensor **y);

/* f(x...) for each step along the leading axis of xs, one after the other,
 * results stacked: a scan that carries nothing.  Where memory allows, nb_vmap
 * does them at once. */
NB_API nb_status nb_map(nb_func *f, int nxs, nb_tensor *const *xs, int *ny,
                        nb_tensor **y);

/* state = body(i, state...) for i from lower to before upper: n states in, n
 * out.  The bounds are integer scalars: nb_count(10).  Where both have their
 * values this is a scan, else a while. */
NB_API nb_status nb_fori(nb_tensor *lower, nb_tensor *upper, nb_func *body,
                         int n, nb_tensor *const *init, nb_tensor **y);

/* state = body(state...) while test(state...) is true: n states in, n out.
 * Mapped over, each lane stops by itself.  Reverse mode keeps the states that
 * were visited, and goes five times over.  Where the turns can be counted (an
 * integer state with a known beginning, to which each turn adds the same, is
 * compared with a number) this is a scan. */
NB_API nb_status nb_while(nb_func *test, nb_func *body, int n,
                          nb_tensor *const *init, nb_tensor **y);

/* yes(operands...) if pred is true, no(operands...) if it is not.  pred is a
 * scalar; mapped over, both branches run and are selected from. */
NB_API nb_status nb_cond(nb_tensor *pred, nb_func *yes, nb_func *no, int nx,
                         nb_tensor *const *x, int *ny, nb_tensor **y);

/* branch[index](operands...), of n; an index out of range is moved to the
 * nearest.  index is an integer scalar; mapped over, all branches run. */
NB_API nb_status nb_switch(nb_tensor *index, int n, nb_func *const *branch,
                           int nx, nb_tensor *const *x, int *ny, nb_tensor **y);

/* Along an axis of n tensors x the first element, the first two combined, the
 * first three...; or, if reverse, from the end.  combine(a..., b...) -> (c...)
 * takes and returns n tensors with any number of elements along that axis,
 * pairs them one by one, and is associative.  It is called twice for each time
 * that the length can be halved. */
NB_API nb_status nb_associative_scan(nb_func *combine, int n,
                                     nb_tensor *const *x, int64_t axis,
                                     bool reverse, nb_tensor **y);

#ifdef __cplusplus
}
#endif
#endif
