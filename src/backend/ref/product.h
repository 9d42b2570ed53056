/* product.h - a sum of products as matrix products: what is known before the
 * operands are. */
#ifndef NB_REF_PRODUCT_H
#define NB_REF_PRODUCT_H

#include "lower/loop.h"

/* Axes of the nest belong to one of these kinds each. */
enum { NB_KIND_M, NB_KIND_N, NB_KIND_K, NB_KIND_BATCH, NB_KINDS };

typedef struct nb_product {
    nb_loop l;
    nb_dtype dtype;
    bool in_place;
    int n[NB_KINDS], at[NB_KINDS][NB_MAX_DIMS]; /* axes, outermost first */
} nb_product;

/* Whether the call of y is one, with operands laid out as c's inputs are; if it
 * is, *p is filled.  Integers have none.  False: an error. */
bool nb_product_plan(nb_product *p, const nb_call *c, const nb_tensor *y,
                     bool *fits);

bool nb_product_run(const nb_product *p, const char *a, const char *b, char *c);

#endif
