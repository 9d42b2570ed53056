/* seen.h - the layout of the visible dims of a tensor, and changes of it. */
#ifndef NB_SHARD_TALK_SEEN_H
#define NB_SHARD_TALK_SEEN_H

#include "core/tensor.h"
#include "shard/layout/spec.h"

/* A draft of how the visible dims lie; false if x lies on no mesh. */
bool nb_seen(const nb_tensor *x, nb_spec *draft);

/* x laid out as a draft says. */
nb_tensor *nb_lay_as(nb_tensor *x, const nb_spec *draft);

/* Axes that overlap one of `what` taken off a list. */
void nb_cut_take(nb_cut *l, const nb_cut *what);

/* x, dim d of which is split on these axes and on no others, and nothing else
 * on them.  As it is if the list is empty and x lies on no mesh. */
nb_tensor *nb_lay_dim(nb_tensor *x, int d, const nb_cut *axes);

/* x with no reduction pending on these axes. */
nb_tensor *nb_lay_settled(nb_tensor *x, const nb_cut *axes);

/* Dim d as two, the first of n; dims d and d + 1 as one. */
nb_tensor *nb_dim_cut(nb_tensor *x, int d, int64_t n);
nb_tensor *nb_dim_fold(nb_tensor *x, int d);

/* A dim of so many, counted from the front; -1 with an error. */
int nb_dim_find(const char *who, int rank, int axis);

/* That n divides a dim. */
bool nb_dim_check(const char *who, const nb_tensor *x, int d, int64_t n);

#endif
