/* loop.h - the loop nest of one call: axes with extents, and for every operand
 * the stride along each axis, in elements.
 *
 * Axes of extent one are gone and neighbours that every operand walks through
 * as one are merged, so contiguous work is one long axis.  Axes that do not
 * reach the result are reduced. */
#ifndef NB_LOWER_LOOP_H
#define NB_LOWER_LOOP_H

#include "core/axes.h"

enum { NB_MAX_LOOP_OPERANDS = NB_MAX_SCALAR_IN + 1 };

typedef struct nb_loop {
    int naxes, nops; /* operands: inputs, then the result */
    bool empty;      /* some axis has extent zero */
    int64_t size[NB_MAX_DIMS];
    bool reduced[NB_MAX_DIMS];
    int64_t stride[NB_MAX_LOOP_OPERANDS][NB_MAX_DIMS];
} nb_loop;

/* The loop nest of a call with realised inputs and a packed result of the given
 * shape.  Every dim must run along one axis. */
bool nb_loop_build(nb_loop *l, const nb_call *c, const nb_tensor *y);

#endif
