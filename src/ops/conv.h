/* conv.h - windows over images, as convolution and pooling read them from their
 * arguments. */
#ifndef NB_OPS_CONV_H
#define NB_OPS_CONV_H

#include "ops/ops.h"

enum { NB_MAX_SPATIAL = 3 };

typedef struct nb_span {
    int rank; /* spatial axes */
    int64_t stride[NB_MAX_SPATIAL], dilation[NB_MAX_SPATIAL];
    int64_t pad[2 * NB_MAX_SPATIAL]; /* before and after, by axis */
} nb_span;

/* Attribute k as one number for each of n axes; a single one serves all.
 * `what` names it in messages, and it must be at least `least`. */
bool nb_read_each(const nb_call *c, int k, const char *what, int64_t least,
                  int n, int64_t *to);

/* Attribute k as paddings: one number, one an axis, or two an axis. */
bool nb_read_padding(const nb_call *c, int k, nb_span *s);

/* How many places a window of `taps` has along spatial axis d of an image of
 * that size; false with an error if none, or if taps is not positive. */
bool nb_places(const nb_call *c, const nb_span *s, int d, int64_t size,
               int64_t taps, int64_t *places);

#endif
