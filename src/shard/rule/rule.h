/* rule.h - a signature on shapes.
 *
 * Factors are those of the signature in its order, with the same numbers, then
 * lanes by ascending id, then dims behind dots, batch by batch, from the left.
 * A dim behind dots that is broadcast, having size one where others do not, has
 * no factor: it is whole.  So is a lane that is thin.  Members of size one are
 * left out of groups. */
#ifndef NB_SHARD_RULE_H
#define NB_SHARD_RULE_H

#include "core/op.h"
#include "core/tensor.h"
#include "nabla/rule.h"

/* A tensor's stored dims: lanes, then visible ones. */
typedef struct nb_rule_tensor {
    int rank, nlanes;
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

/* That of a recorded call, over stored dims; y are its results.  NULL with an
 * error: also if the op has no signature. */
nb_rule *nb_rule_of_call(const nb_call *c, int nout, nb_tensor *const *y);

#endif
