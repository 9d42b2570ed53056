/* nabla/ops.h - the operations.
 *
 * Every op takes tensors, checks them, and returns a lent, lazy tensor (NULL
 * with an error set if something does not fit).  Dtypes combine as in
 * nabla/dtype.h; numbers made by nb_num and nb_count take the dtype of what
 * they meet; shapes broadcast as in NumPy.  Axes may be negative, counting
 * from the end.  docs/ops.md says what each op does, with an example.
 *
 * Ops of one form are declared by their row in nabla/ops.def:
 *
 *   UNARY   nb_tensor *nb_tanh(nb_tensor *x)
 *   BINARY  nb_tensor *nb_add(nb_tensor *x, nb_tensor *y)
 *   REDUCE  nb_tensor *nb_mean(nb_tensor *x, int n, const int64_t *axes,
 *                              bool keepdims)          n < 0: all axes
 *   ARG     nb_tensor *nb_argmax(nb_tensor *x, int64_t axis, bool keepdims)
 *   AXIS    nb_tensor *nb_softmax(nb_tensor *x, int64_t axis)
 *   SCAN    nb_tensor *nb_cumsum(nb_tensor *x, int64_t axis, bool exclusive,
 *                                bool reverse)
 *   SORT    nb_tensor *nb_sort(nb_tensor *x, int64_t axis, bool descending,
 *                              bool stable)
 *   DIAG    nb_tensor *nb_tril(nb_tensor *x, int64_t k)
 *
 * The others follow below. */
#ifndef NABLA_OPS_H
#define NABLA_OPS_H

#include "nabla/op.h"

#ifdef __cplusplus
extern "C" {
#endif

#define NB_FORM_UNARY(name) NB_API nb_tensor *nb_##name(nb_tensor *x);
#define NB_FORM_BINARY(name) \
    NB_API nb_tensor *nb_##name(nb_tensor *x, nb_tensor *y);
#define NB_FORM_REDUCE(name)                                              \
    NB_API nb_tensor *nb_##name(nb_tensor *x, int n, const int64_t *axes, \
                                bool keepdims);
#define NB_FORM_ARG(name) \
    NB_API nb_tensor *nb_##name(nb_tensor *x, int64_t axis, bool keepdims);
#define NB_FORM_AXIS(name) \
    NB_API nb_tensor *nb_##name(nb_tensor *x, int64_t axis);
#define NB_FORM_SCAN(name)                                                  \
    NB_API nb_tensor *nb_##name(nb_tensor *x, int64_t axis, bool exclusive, \
                                bool reverse);
#define NB_FORM_SORT(name)                                                   \
    NB_API nb_tensor *nb_##name(nb_tensor *x, int64_t axis, bool descending, \
                                bool stable);
#define NB_FORM_DIAG(name) NB_API nb_tensor *nb_##name(nb_tensor *x, int64_t k);
#define NB_FORM_OWN(name)
#define NB_FORM_RULE(name)
#define OP(name, form) NB_FORM_##form(name)
#include "nabla/ops.def"

/* x in another dtype; x itself if it has it or dtype is NB_NOTYPE. */
NB_API nb_tensor *nb_cast(nb_tensor *x, nb_dtype dtype);

/* x where condition is true, y elsewhere. */
NB_API nb_tensor *nb_where(nb_tensor *condition, nb_tensor *x, nb_tensor *y);

/* x held between two bounds; max where the bounds are crossed. */
NB_API nb_tensor *nb_clip(nb_tensor *x, nb_tensor *min, nb_tensor *max);

/* x with NaN, inf and -inf replaced; NaN for posinf or neginf stands for the
 * largest and the least finite number of x's dtype. */
NB_API nb_tensor *nb_nan_to_num(nb_tensor *x, double nan, double posinf,
                                double neginf);

/* x times the normal distribution function at x; approximate is "none" (as is
 * NULL) or "tanh". */
NB_API nb_tensor *nb_gelu(nb_tensor *x, const char *approximate);

#ifdef __cplusplus
}
#endif
#endif
