/* combine.h - the elements of several devices made one.
 *
 * Members are combined in their order, ((x0 + x1) + x2) + ..., so a result does
 * not depend on who computes it.  float16 and bfloat16 are combined in float32
 * and rounded once; a NaN wins every max and min; integers wrap.  Of bools, sum
 * and max are or, prod and min are and; `and` and `or` of numbers ask whether
 * they are zero. */
#ifndef NB_COMM_COMBINE_H
#define NB_COMM_COMBINE_H

#include "core/signature.h"
#include "nabla/dtype.h"

/* out[i] from x[0][i], x[1][i], ..., for count elements; n is 1 or more.  They
 * go past the caches, for it is others who read them, or nobody for a while. */
void nb_combine(nb_dtype dtype, nb_reduce kind, int n, const void *const *x,
                int64_t count, void *out);

/* What changes nothing it is combined with, count times. */
void nb_identity_fill(nb_dtype dtype, nb_reduce kind, int64_t count, void *out);

#endif
