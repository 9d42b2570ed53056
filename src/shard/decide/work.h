/* work.h - a decision while it is being made. */
#ifndef NB_SHARD_DECIDE_WORK_H
#define NB_SHARD_DECIDE_WORK_H

#include "shard/decide/factors.h"
#include "shard/decide/resolve.h"

typedef struct nb_work {
    const nb_call *call;
    const nb_mesh *mesh;
    const nb_factors *f;
    const nb_spec **spec; /* candidates: of operands, then of results; NULL */
    const nb_spec **from; /* what operands lie as */
    nb_cut pending;       /* sums to be left so: see nb_wish */
    int *item;            /* bytes of an element, by tensor */
    nb_cut *cand;         /* by tensor and factor */
    nb_cut axes[NB_MAX_AXES];
    int priority[NB_MAX_AXES];
    char reason[NB_MAX_REASON];
} nb_work;

/* How the op treats a factor that is split: kinds that it has no way to do in
 * parts are whole. */
nb_factor_kind nb_work_kind(const nb_work *w, int factor);
const char *nb_work_factor_name(const nb_work *w, int factor);

bool nb_work_resolve(nb_work *w);

/* Dims of tensor t as the factors say, into a draft with nothing pending. */
void nb_work_dims(const nb_work *w, int t, nb_spec *draft);

/* The same as a spec, for prices. */
const nb_spec *nb_work_need(const nb_work *w, int t);

/* What the blocks of a result that lies as `give` reach for in operand t, which
 * lies as `need`; NULL: their own. */
bool nb_reach_plan(const nb_work *w, int t, const nb_spec *need,
                   const nb_spec *give, const nb_reshard_plan **plan);

/* How the devices tell each other what their blocks of tensor t come to along
 * a factor of kind scan, one place each: in no fewer than four bytes.  NULL: it
 * is not split. */
bool nb_share_plan(const nb_work *w, int t, const nb_spec *lies,
                   const nb_reshard_plan **plan);

/* The least that reducing the results over these axes costs. */
double nb_work_debt(const nb_work *w, const nb_cut *axes);

#endif
