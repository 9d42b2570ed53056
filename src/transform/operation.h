/* operation.h - ops made of a description: what the files of them share. */
#ifndef NB_TRANSFORM_OPERATION_H
#define NB_TRANSFORM_OPERATION_H

#include "nabla/custom.h"
#include "transform/region.h"

typedef struct nb_operation {
    nb_op op; /* first: nodes point to it */
    nb_op_spec spec;
    nb_params params;
} nb_operation;

/* One use, with room for the values of its attributes. */
typedef struct nb_usage {
    nb_applied c;
    nb_value val[NB_MAX_PARAMS];
} nb_usage;
void nb_usage_of(nb_usage *u, const nb_operation *o, const nb_call *c, int nin,
                 nb_tensor *const *in, int nout, nb_tensor *const *out);

/* Whether it says how it varies. */
bool nb_operation_varies(const nb_operation *o);

/* How results move, and what flows back, by whichever rule there is; entries
 * may be NULL for zero, coming and going. */
bool nb_operation_push(const nb_usage *u, nb_tensor *const *ux, nb_tensor **uy);
bool nb_operation_pull(const nb_usage *u, nb_tensor *const *ct, nb_tensor **cx);

/* The body of a call: what op->compose does. */
bool nb_operation_compose(const nb_call *c, nb_results *r);

#endif
