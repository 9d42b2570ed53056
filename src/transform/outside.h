/* outside.h - what a function brings from another device while it is recorded.
 */
#ifndef NB_TRANSFORM_OUTSIDE_H
#define NB_TRANSFORM_OUTSIDE_H

#include "transform/region.h"

/* Whether x, a node since that serial, is a move of something to which nothing
 * leads from the stand-ins: it moves once, before what is recorded runs, which
 * then has all its inputs on one device. */
bool nb_outside_moved(nb_tensor *x, const nb_list *stand_ins, uint64_t since,
                      bool *moved);

#endif
