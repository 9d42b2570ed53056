/* split.h - long reductions in two nests. */
#ifndef NB_LOWER_SPLIT_H
#define NB_LOWER_SPLIT_H

#include "lower/nest.h"

enum { NB_MAX_SPLIT_VALUES = 256 };

/* Whether a nest should be split. */
bool nb_nest_splits(const nb_nest *x);

/* The two nests.  They hand on one buffer a reduction, numbered after those of
 * x; bytes[i] is what it needs. */
bool nb_nest_split(const nb_nest *x, nb_nest **first, nb_nest **second,
                   int64_t *bytes);

#endif
