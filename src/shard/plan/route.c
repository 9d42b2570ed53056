/* route.c - the steps of a plan: by search, or, where that is not possible or
 * would take too long, by reducing, gathering and slicing. */
#include "shard/plan/deal.h"

#include "base/error.h"
#include "base/memory.h"

#include <string.h>

bool nb_route_add(nb_route *r, const nb_hop *move, const nb_spec *from,
                  const nb_spec *into)
{
    nb_hop *last = r->n ? &r->step[r->n - 1] : NULL;
    if (last && move->kind == NB_HOP_SLICE && last->kind == NB_HOP_SLICE &&
        last->dim == move->dim) {
        nb_cut axes = last->axes;
        bool fits = true;
        for (int i = 0; i < move->axes.n; i++)
            fits &= nb_cut_add(&axes, move->axes.at[i]);
        if (fits) {
            last->axes = axes;
            last->into = into;
            return true;
        }
    }
    if (!nb_grow(&r->step, &r->room, r->n + 1, sizeof *r->step)) return false;
    nb_hop *next = &r->step[r->n++];
    *next = *move;
    next->from = from;
    next->into = into;
    return true;
}

/* What l has after its beginning c. */
static nb_cut rest(const nb_cut *l, const nb_cut *c)
{
    nb_cut r = {0};
    for (int i = 0; i < l->n; i++) {
        nb_axis a = l->at[i];
        int done = i < c->n ? c->at[i].size : 1;
        nb_axis left = {a.axis, (uint16_t)(a.pre * done),
                        (uint16_t)(a.size / done)};
        nb_cut_add(&r, left);
    }
    return r;
}

static bool go(nb_route *r, nb_hop_kind kind, int dim, const nb_cut *axes,
               const nb_spec **at, const nb_spec *next)
{
    nb_hop move = {.kind = kind, .dim = dim, .to = -1, .axes = *axes};
    if (!next || !nb_route_add(r, &move, *at, next)) return false;
    *at = next;
    return true;
}

/* Dim by dim gathers what is not wanted, then slices what is. */
static bool gather_and_slice(nb_route *r, const nb_spec **at,
                             const nb_spec *into)
{
    nb_spec draft = nb_spec_bare(*at);
    for (int turn = 0; turn < 2; turn++)
        for (int d = 0; d < into->rank; d++) {
            const nb_cut *a = &draft.dim[d].axes, *b = &into->dim[d].axes;
            nb_cut c = nb_cut_common(a, b), axes = rest(turn ? b : a, &c);
            if (!axes.n) continue;
            draft.dim[d].axes = turn ? *b : c;
            if (!go(r, turn ? NB_HOP_SLICE : NB_HOP_ALL_GATHER, d, &axes, at,
                    nb_spec_intern(&draft)))
                return false;
        }
    return true;
}

static bool exchange(nb_route *r, const nb_spec **at, const nb_spec *into)
{
    nb_cut all = {0};
    const nb_mesh *m = (*at)->mesh;
    for (int k = 0; k < m->naxes; k++)
        nb_cut_add(&all, nb_axis_full(m, k));
    return go(r, NB_HOP_EXCHANGE, -1, &all, at, into);
}

/* A plan without a search: reduces, moves, makes pending. */
static bool plain_route(const nb_reshard_task *t, nb_route *r)
{
    const nb_spec *at = t->from, *into = nb_spec_settled(t->into);
    bool across = at->mesh != t->into->mesh;
    bool kept = !across && at->kind == t->into->kind &&
                nb_cut_equal(&at->partial, &t->into->partial);
    if (!into) return false;
    if (at->partial.n && !kept &&
        !go(r, NB_HOP_ALL_REDUCE, -1, &at->partial, &at, nb_spec_settled(at)))
        return false;
    if (across || (t->options.exchange && !at->partial.n)) {
        if (!exchange(r, &at, into)) return false;
    } else if (!gather_and_slice(r, &at, into)) {
        return false;
    }
    return at == t->into ||
           go(r, NB_HOP_UNREDUCE, -1, &t->into->partial, &at, t->into);
}

static bool no_plan(const nb_reshard_task *t)
{
    return nb_fail(NB_EVALUE,
                   "reshard: no plan keeps its steps within %lld bytes a "
                   "device",
                   (long long)t->options.memory);
}

/* Steps that were found without a search have not been measured. */
static bool check_memory(const nb_reshard_task *t, const nb_route *r)
{
    for (int i = 0; t->options.memory && i < r->n; i++)
        if (nb_hop_memory(&r->step[i], t->size, t->item) > t->options.memory)
            return no_plan(t);
    return true;
}

bool nb_route_find(const nb_reshard_task *t, nb_route *r)
{
    nb_search_end end = NB_SEARCH_CROWDED;
    for (int directed = 0; directed < 2 && t->fits; directed++) {
        if (end != NB_SEARCH_CROWDED) break;
        end = nb_reshard_search(t, directed, r);
    }
    if (end == NB_SEARCH_CROWDED)
        return plain_route(t, r) && check_memory(t, r);
    return end == NB_SEARCH_NONE ? no_plan(t) : end == NB_SEARCH_FOUND;
}
