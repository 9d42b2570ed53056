/* need.h - how much memory it takes to compute what is recorded. */
#ifndef NB_TRANSFORM_NEED_H
#define NB_TRANSFORM_NEED_H

#include "core/tensor.h"

/* Bytes at once beyond those in use now: of data in a certain lane, and other.
 * None is known where values are missing, while a loop or branch is recorded. */
typedef struct nb_need {
    double lane, other;
    bool known;
} nb_need;

bool nb_need_find(nb_need *need, int lane, int n, nb_tensor *const *y);

#endif
