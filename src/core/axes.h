/* axes.h - a call's signature with its axes sized and its operands aligned:
 * where vmap happens.
 *
 * Every stored dim of every operand runs along an axis or along none.  Axes are
 * numbered: first the lanes of the result by ascending id, then those behind
 * "..." from the left, then the factors of the signature in its order. */
#ifndef NB_CORE_AXES_H
#define NB_CORE_AXES_H

#include "core/tensor.h"

enum { NB_MAX_AXES = NB_MAX_DIMS + NB_MAX_FACTORS };

/* The operand's stored dims: its lanes, then its visible ones.  axis -1: it
 * runs along none (a `1`, or a group of factors). */
typedef struct nb_operand {
    int ndims, ncore; /* the last ncore dims are named by the signature */
    int16_t axis[NB_MAX_DIMS];
} nb_operand;

typedef struct nb_axes {
    int nlanes, ndots, naxes, nin, nout;
    nb_extent size[NB_MAX_AXES]; /* -1: every operand has its own */
    nb_lane lane[NB_MAX_LANES];
    nb_operand *operand; /* inputs, then results */
    nb_operand few[5];
} nb_axes;

/* Aligns inputs; the results' visible extents follow from the axes where the
 * signature fixes them.  False with an error if they do not fit. */
bool nb_axes_align(nb_axes *a, const nb_op *op, const nb_sig *sig, int nin,
                   nb_tensor *const *in);
void nb_axes_free(nb_axes *a);

/* The shape of result k: lanes and what is known of the visible extents (-1
 * where the signature leaves it to the op). */
bool nb_axes_result(const nb_axes *a, const nb_sig *sig, int k, nb_shape *out);

#endif
