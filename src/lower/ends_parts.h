/* ends_parts.h - what finding the end of a product and taking it in share. */
#ifndef NB_LOWER_ENDS_PARTS_H
#define NB_LOWER_ENDS_PARTS_H

#include "lower/gemm.h"

/* A product, the nest after it, and how the one reads the other. */
typedef struct nb_ending {
    nb_plan *p;
    int s, t;              /* steps */
    int load;              /* value of the nest */
    int64_t run;           /* elements of memory that a vector is added to */
    int store;             /* of the value that the product is to end as, */
    int kept;              /* and of what a gelu is of, -1: none */
    nb_gemm g;             /* as it becomes, but for its buffers: */
    int bias, add, aux;    /* loads; or -1 */
    nb_gemm_beside vector; /* the bias as it is given, maybe to be cast */
} nb_ending;

static inline const nb_nest *nb_ending_nest(const nb_ending *x)
{
    return x->p->step[x->t].nest;
}

static inline const nb_nest_value *nb_ending_value(const nb_ending *x, int v)
{
    return &nb_ending_nest(x)->value[v];
}

/* Takes the end in, if that is worth it and the card has a way: *done. */
bool nb_ending_take(nb_ending *x, bool *done);

#endif
