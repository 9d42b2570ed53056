/* reshape_rule.h - the signature of a reshape. */
#ifndef NB_CORE_RESHAPE_RULE_H
#define NB_CORE_RESHAPE_RULE_H

#include "core/signature.h"

/* Adds the signature of taking the elements of one shape, in row-major order,
 * to another of as many; at most NB_MAX_RANK sizes each.
 *
 * Both shapes are cut into runs of dims of equal product, and a run into the
 * coarsest factors that make up its dims on both sides: (2, 4, 32) -> (8, 32)
 * is "i j k -> (i j) k".  Where the two sides of a run share no more factors
 * the rest of it is private: needed whole, with sizes where no dim tells them,
 * (6, 4) -> (8, 3) is
 *     "(i a) b -> (i c) d; replicate{a b c d}, i=2, c=4, d=3".
 * Dims of size one are `1`, as are all where there are no elements. */
bool nb_reshape_rule(nb_text *t, int nfrom, const int64_t *from, int nto,
                     const int64_t *to);

#endif
