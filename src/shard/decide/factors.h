/* factors.h - a call as factors: what each stored dim of each tensor is made
 * of.
 *
 * Lanes and dims behind "..." are factors like those that the signature names.
 * A dim that runs along none (a `1`, a broadcast one, a thin lane) has none. */
#ifndef NB_SHARD_DECIDE_FACTORS_H
#define NB_SHARD_DECIDE_FACTORS_H

#include "core/axes.h"
#include "shard/layout/spec.h"

typedef struct nb_factored {
    int rank;
    int64_t size[NB_MAX_DIMS];
    nb_dim dim[NB_MAX_DIMS];
} nb_factored;

typedef struct nb_factors {
    int n, nin, nout;
    int64_t size[NB_MAX_AXES];
    uint8_t kind[NB_MAX_AXES];   /* nb_factor_kind */
    uint8_t reduce[NB_MAX_AXES]; /* nb_reduce, of those without a result */
    bool reduced[NB_MAX_AXES];
    nb_factored *tensor; /* inputs, then results */
    nb_factored few[5];
} nb_factors;

/* The factors of the call that made y, or of which y is a part.  Ops that hold
 * programs have none: every dim stands alone, whole. */
bool nb_factors_of(nb_factors *f, const nb_call *c, int nout,
                   nb_tensor *const *out);
void nb_factors_free(nb_factors *f);

/* Whether tensor t has the factor. */
bool nb_factored_has(const nb_factored *t, int factor);

/* Deals the axes of one dim out to its factors, from the major one; size and
 * cand are by factor.  An axis that does not divide a factor with others below
 * it cannot stay, nor can those behind it. */
void nb_factors_deal(const int64_t *size, const nb_dim *dim, const nb_cut *axes,
                     nb_cut *cand);

/* Stored sizes of a tensor; returns how many. */
int nb_stored_sizes(const nb_tensor *x, int64_t *size);

#endif
