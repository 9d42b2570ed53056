/* work_reach.c - factors of kind permute: which parts of an operand the blocks
 * of a result need. */
#include "shard/decide/work.h"

/* The stored dim of tensor t that is this factor alone; -1: none. */
static int dim_of(const nb_factors *f, int t, int factor)
{
    const nb_factored *x = &f->tensor[t];
    for (int d = 0; d < x->rank; d++)
        if (x->dim[d].n == 1 && x->dim[d].factor[0] == factor) return d;
    return -1;
}

/* What each block of dim `to` of the result needs of dim d of operand t; *own:
 * that is just what it has. */
static bool find_ranges(const nb_work *w, int t, int d, int to,
                        const nb_cut *cut, const nb_cut *has, int64_t *range,
                        bool *own)
{
    const nb_factors *f = w->f;
    int64_t n = nb_cut_count(cut), size = f->tensor[f->nin].size[to];
    int64_t extent = f->tensor[t].size[d];
    bool ok = true;
    *own = *own && nb_cut_equal(cut, has);
    for (int64_t k = 0; ok && k < n; k++) {
        int64_t part[] = {nb_block_start(size, n, k),
                          nb_block_start(size, n, k + 1)};
        int64_t *r = range + 2 * k;
        ok =
            w->call->op->reach(w->call, t, d - w->call->in[t]->nlanes, part, r);
        *own = *own && r[0] == nb_block_start(extent, n, k) &&
               r[1] == nb_block_start(extent, n, k + 1);
    }
    return ok;
}

bool nb_reach_plan(const nb_work *w, int t, const nb_spec *need,
                   const nb_spec *give, const nb_reshard_plan **plan)
{
    const nb_factors *f = w->f;
    nb_spec into = {.mesh = w->mesh, .rank = need->rank};
    nb_reach reach = {0};
    int64_t *range[NB_MAX_DIMS] = {0};
    bool ok = true, any = false, own = true;
    for (int d = 0; d < into.rank; d++)
        into.dim[d].axes = need->dim[d].axes;
    into.partial = need->partial;
    into.kind = need->kind;
    for (int k = 0; ok && k < f->n; k++) {
        int at = dim_of(f, t, k), to = dim_of(f, f->nin, k);
        if (f->kind[k] != NB_PERMUTE || at < 0 || to < 0) continue;
        const nb_cut *cut = &give->dim[to].axes;
        if (!cut->n && !need->dim[at].axes.n) continue; /* all is there */
        range[at] = nb_alloc((size_t)(2 * nb_cut_count(cut)) * sizeof(int64_t));
        ok = range[at] && find_ranges(w, t, at, to, cut, &need->dim[at].axes,
                                      range[at], &own);
        into.dim[at].axes = *cut;
        reach.range[at] = range[at];
        any = true;
    }
    *plan = NULL;
    if (ok && any && !own) {
        const nb_spec *by = nb_spec_intern(&into);
        if (by)
            *plan =
                nb_reach_find(need, by, f->tensor[t].size, w->item[t], &reach);
        ok = *plan;
    }
    for (int d = 0; d < into.rank; d++)
        nb_free(range[d]);
    return ok;
}
