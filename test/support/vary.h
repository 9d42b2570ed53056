/* vary.h - calls of catalogue ops in shapes and with arguments that their
 * examples do not have. */
#ifndef NB_TEST_VARY_H
#define NB_TEST_VARY_H

#include "support/sample.h"

/* A call of op that works: sizes, leading dims, axes, flags and dtypes drawn by
 * uniform, no size above cap.  Real values are multiples of a fraction that is
 * coarse enough for sums of a few of them to be exact. */
bool sample_vary(sample *s, nb_op *op, int cap);

/* That fraction. */
double dtype_grain(nb_dtype d);

#endif
