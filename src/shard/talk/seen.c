/* seen.c - layouts of visible dims: lanes keep theirs. */
#include "shard/talk/seen.h"

#include "nabla/view.h"
#include "shard/decide/place.h"

#include <string.h>

bool nb_seen(const nb_tensor *x, nb_spec *draft)
{
    const nb_spec *s = x->sharding;
    if (!s) return false;
    memset(draft, 0, sizeof *draft);
    draft->mesh = s->mesh;
    draft->rank = x->rank;
    draft->kind = s->kind;
    draft->partial = s->partial;
    draft->replicated = s->replicated;
    for (int d = 0; d < x->rank; d++)
        draft->dim[d] = s->dim[x->nlanes + d];
    return true;
}

nb_tensor *nb_lay_as(nb_tensor *x, const nb_spec *draft)
{
    int64_t size[NB_MAX_RANK];
    if (!x) return NULL;
    nb_sizes(x, size);
    return nb_lay(x, nb_spec_fit(nb_spec_intern(draft), x->rank, size));
}

void nb_cut_take(nb_cut *l, const nb_cut *what)
{
    int n = 0;
    for (int i = 0; i < l->n; i++)
        if (!nb_cut_has(what, l->at[i])) l->at[n++] = l->at[i];
    l->n = (uint8_t)n;
}

nb_tensor *nb_lay_dim(nb_tensor *x, int d, const nb_cut *axes)
{
    nb_spec s;
    if (!x || !nb_seen(x, &s)) return x;
    for (int k = 0; k < s.rank; k++)
        nb_cut_take(&s.dim[k].axes, axes);
    nb_cut_take(&s.partial, axes);
    nb_cut_take(&s.replicated, axes);
    s.dim[d].axes = *axes;
    return nb_lay_as(x, &s);
}

nb_tensor *nb_lay_settled(nb_tensor *x, const nb_cut *axes)
{
    nb_spec s;
    if (!x || !nb_seen(x, &s)) return x;
    int n = s.partial.n;
    nb_cut_take(&s.partial, axes);
    return s.partial.n == n ? x : nb_lay_as(x, &s);
}

nb_tensor *nb_dim_cut(nb_tensor *x, int d, int64_t n)
{
    int64_t size[NB_MAX_RANK + 1], whole;
    if (!x) return NULL;
    if (x->rank == NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "a tensor has at most %d dims", NB_MAX_RANK);
    nb_sizes(x, size);
    whole = size[d];
    memmove(size + d + 1, size + d, (size_t)(x->rank - d) * sizeof size[0]);
    size[d] = n;
    size[d + 1] = whole / n;
    return nb_reshape(x, x->rank + 1, size);
}

nb_tensor *nb_dim_fold(nb_tensor *x, int d)
{
    return x ? nb_flatten(x, d, d + 1) : NULL;
}

int nb_dim_find(const char *who, int rank, int axis)
{
    int d = axis < 0 ? axis + rank : axis;
    if (d >= 0 && d < rank) return d;
    nb_fail(NB_EAXIS, "%s: axis %d is out of range for rank %d", who, axis,
            rank);
    return -1;
}

bool nb_dim_check(const char *who, const nb_tensor *x, int d, int64_t n)
{
    int64_t size = nb_size(x, d);
    return size % n == 0 ||
           nb_fail(NB_EVALUE,
                   "%s: dim %d of size %lld is not divisible by %lld", who, d,
                   (long long)size, (long long)n);
}
