/* branch.h - a branch by whoever asks for it: cond, switch. */
#ifndef NB_TRANSFORM_BRANCH_H
#define NB_TRANSFORM_BRANCH_H

#include "transform/func.h"

typedef struct nb_branch {
    const char *who; /* begins messages */
    nb_tensor *pred;
    nb_func *yes, *no;
    int nx;
    nb_tensor *const *x;
} nb_branch;

nb_status nb_branch_record(nb_branch b, int *ny, nb_tensor **y);

#endif
