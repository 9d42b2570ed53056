/* nabla/view.h - */
#ifndef NABLA_VIEW_H
#define NABLA_VIEW_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The axes of x in the given order: axis k of the result is axis order[k]. */
NB_API nb_tensor *nb_permute(nb_tensor *x, int n, const int64_t *order);

/* x repeated to a shape that it broadcasts to. */
NB_API nb_tensor *nb_broadcast_to(nb_tensor *x, int rank,
                                  const int64_t *shape);

/* The elements of x in another shape; one size may be -1. */
NB_API nb_tensor *nb_reshape(nb_tensor *x, int rank, const int64_t *shape);

#ifdef __cplusplus
}
#endif
#endif
