/* batch.h - a call as its kernel sees it: points of a batch, the lanes and what
 * stands behind "...", at each of which every operand has the dims that the
 * signature names. */
#ifndef NB_CORE_BATCH_H
#define NB_CORE_BATCH_H

#include "core/axes.h"

typedef struct nb_batch {
    int n, nops;
    int64_t size[NB_MAX_DIMS];
    int64_t (*step)[NB_MAX_DIMS]; /* elements, by operand */
    nb_view *view;                /* at the first point; results are packed */
    int64_t (*dims)[2 * NB_MAX_RANK]; /* sizes, strides of the named dims */
} nb_batch;

/* Inputs are where the call's are, results begin at `to`; that may be NULL. */
bool nb_batch_open(nb_batch *b, const nb_call *c, char *const *to);
void nb_batch_close(nb_batch *b);

int64_t nb_batch_points(const nb_batch *b);

#endif
