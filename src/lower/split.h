/* split.h - long reductions in two nests. */
#ifndef NB_LOWER_SPLIT_H
#define NB_LOWER_SPLIT_H

#include "lower/nest.h"

enum { NB_MAX_SPLIT_VALUES = 256 };

/* Whether a nest should be split.  For any size there are as many chunks at
 * every size, and shorter reductions are split too. */
bool nb_nest_splits(const nb_nest *x, bool any_size, bool card);

/* The two nests.  They hand on one buffer a reduction, numbered after those of
 * x; bytes[i] is what it needs. */
bool nb_nest_split(const nb_nest *x, bool any_size, bool card, nb_nest **first,
                   nb_nest **second, int64_t *bytes);

/* What follows from the size of an axis that was cut: how long a piece is, and
 * the strides from piece to piece. */
void nb_nest_settle_cut(nb_nest *x);
/* Whether a slot is such a number. */
bool nb_slot_is_cut(const nb_nest *x, int slot);

#endif
