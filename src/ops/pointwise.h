/* pointwise.h - what the pointwise files share: the commonest descriptor and
 * short names for the operands of a rule. */
#ifndef NB_OPS_POINTWISE_H
#define NB_OPS_POINTWISE_H

#include "ops/ops.h"

#include <math.h>

#define X c->in[0]
#define Y c->in[1]

/* A smooth function of one float: its derivative, what it is, an example, then
 * the work and what else is to be said. */
#define SMOOTH(op, derivative, what, call, ...)  \
    PARTIAL(op, derivative)                      \
    nb_op nb_op_##op = {.name = #op,             \
                        .doc = what,             \
                        .example = call,         \
                        .sig = "... -> ...",     \
                        .kind = NB_POINTWISE,    \
                        .in = NB_IN_FLOAT,       \
                        .partial = op##_partial, \
                        __VA_ARGS__};

/* 1 where a truth holds and 0 elsewhere, in the dtype of the result. */
static inline nb_tensor *indicator(const nb_call *c, nb_tensor *truth)
{
    return nb_cast(truth, nb_dtype_of(c->out));
}

/* 1 - erf x without cancellation; for the derivative of gelu. */
nb_tensor *nb_erfc(nb_tensor *x);

#endif
