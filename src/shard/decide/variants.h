/* variants.h - in which layouts the values of a program are there.
 *
 * A value is made in one layout and moved to another when somebody needs that,
 * once, from whichever layout is nearest.  Who makes the program of a device
 * and who says what it moves choose here, and the choice depends on nothing but
 * layouts and prices: all devices make the same. */
#ifndef NB_SHARD_DECIDE_VARIANTS_H
#define NB_SHARD_DECIDE_VARIANTS_H

#include "core/graph.h"
#include "shard/decide/resolve.h"

typedef struct nb_variant {
    struct nb_variant *next;
    const nb_spec *spec;
    nb_tensor *x; /* what a device has of it; NULL if nobody asks */
} nb_variant;

typedef struct nb_variants {
    int n;
    nb_variant **of; /* by line; the first is as the line is made */
} nb_variants;

bool nb_variants_init(nb_variants *v, int lines);
void nb_variants_free(nb_variants *v);

bool nb_variants_add(nb_variants *v, int line, const nb_spec *spec,
                     nb_tensor *x);
/* NULL: it is not there in this layout. */
const nb_variant *nb_variants_find(const nb_variants *v, int line,
                                   const nb_spec *spec);

/* How the value of a line, as it is there, best comes to lie so; *from is where
 * that starts.  node is the line's. */
const nb_reshard_plan *nb_variants_plan(const nb_variants *v, int line,
                                        const nb_tensor *node,
                                        const nb_spec *into,
                                        const nb_variant **from);

#endif
