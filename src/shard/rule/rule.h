/* rule.h - a signature on shapes.
 *
 * Factors are those of the signature in its order, with the same numbers, then
 * dims behind dots, batch by batch, from the left.  A dim behind dots that is
 * broadcast, having size one where others do not, has no factor: it is whole.
 * Members of size one are left out of groups.  What layouts follow by at a call
 * are its nb_factors, which know lanes too (shard/decide/factors.h). */
#ifndef NB_SHARD_RULE_H
#define NB_SHARD_RULE_H

#include "core/op.h"
#include "core/tensor.h"
#include "nabla/rule.h"

typedef struct nb_rule_tensor {
    int rank;
    int64_t *size; /* -1: not known */
    nb_dim *dim;
} nb_rule_tensor;

struct nb_rule {
    const nb_sig *sig;
    int nin, nout, nfactors;
    nb_factor *factor; /* sizes filled in; that of a permute factor is its first
                        * one, as dims along it may differ */
    bool *in_input;    /* of each factor */
    nb_rule_tensor *tensor;
    char *note;
};

/* Whether a split of the factor leaves a reduction pending: an index that masks
 * does too, by a sum. */
bool nb_rule_is_reduced(const nb_rule *r, int factor);

#endif
