/* work_share.c - factors of kind scan: what blocks come to, told to those that
 * have the others. */
#include "shard/decide/work.h"

#include <string.h>

/* The stored dim of tensor t that is scanned and split; -1: none. */
static int scanned(const nb_work *w, int t)
{
    const nb_factored *x = &w->f->tensor[t];
    for (int d = 0; d < x->rank; d++) {
        int k = x->dim[d].n == 1 ? x->dim[d].factor[0] : -1;
        if (k >= 0 && w->axes[k].n && nb_work_kind(w, k) == NB_SCAN) return d;
    }
    return -1;
}

bool nb_share_plan(const nb_work *w, int t, const nb_spec *lies,
                   const nb_reshard_plan **plan)
{
    int at = scanned(w, t), item = w->item[t] < 4 ? 4 : w->item[t];
    int64_t size[NB_MAX_DIMS];
    nb_spec draft = {.mesh = w->mesh, .rank = lies->rank};
    *plan = NULL;
    if (at < 0) return true;
    for (int d = 0; d < lies->rank; d++)
        draft.dim[d].axes = lies->dim[d].axes;
    draft.partial = lies->partial;
    draft.kind = lies->kind;
    memcpy(size, w->f->tensor[t].size, (size_t)lies->rank * sizeof *size);
    size[at] = nb_cut_count(&lies->dim[at].axes);
    const nb_spec *from = nb_spec_intern(&draft);
    draft.dim[at].axes.n = 0;
    const nb_spec *into = nb_spec_intern(&draft);
    if (from && into) *plan = nb_reshard_find(from, into, size, item, NULL);
    return *plan;
}
