/* arrange.c - the layouts of a program as a whole.
 *
 * How values might lie comes from both ends (propagate.h); calls then decide in
 * their order, with that as the layout that their results might have.  Where
 * this moves more than layouts that follow from call to call, those are taken.
 *
 * Nodes stand for values while it is done: their shardings are those of the
 * table in the making, and in the end what they were. */
#include "shard/decide/layouts.h"

#include "shard/decide/factors.h"
#include "shard/decide/region.h"
#include "shard/graph/cut.h"
#include "shard/graph/propagate.h"

#include <string.h>

typedef struct arranger {
    const nb_graph *g;
    nb_tensor *const *node;
    const nb_mesh *mesh;
    const void **recorded; /* how nodes lay, by line */
    nb_spec *wish;         /* by line */
    bool *result;
    const nb_sums *sums; /* where they are taken; NULL: where they must be */
    nb_layouts *lay;
} arranger;

static void restore(const arranger *a)
{
    for (int k = 0; k < a->g->n; k++)
        a->node[k]->sharding = a->recorded[k];
}

/* Whether all that lies on a mesh lies on this one. */
static bool is_one_mesh(const arranger *a)
{
    for (int k = 0; k < a->g->n; k++) {
        const nb_spec *s = a->node[k]->sharding;
        if (s && !a->g->line[k].multi && s->mesh != a->mesh) return false;
    }
    return true;
}

/* A value that some call had to have reduced is there reduced. */
static void note_reduced(const arranger *a, const nb_call *c,
                         const nb_decision *d)
{
    for (int i = 0; i < c->nin; i++) {
        const nb_spec *was = c->in[i]->sharding, *is = d->need[i];
        bool planned = a->sums && was && was->kind == NB_SUM;
        if (was && was->partial.n && !is->partial.n && !planned)
            c->in[i]->sharding = is;
    }
}

/* Uses of a line get it with the sums taken that are taken there. */
static bool take_sums(const arranger *a, int k)
{
    const nb_spec *is = a->node[k]->sharding;
    nb_cut *take = a->sums ? &a->sums->reduce[k] : NULL;
    nb_spec s;
    if (!take || !take->n || !is || !is->partial.n || is->kind != NB_SUM)
        return true;
    s = nb_spec_draft(is);
    s.partial.n = 0;
    for (int i = 0; i < is->partial.n; i++)
        if (!nb_cut_has(take, is->partial.at[i]))
            s.partial.at[s.partial.n++] = is->partial.at[i];
    return (a->node[k]->sharding = nb_spec_intern(&s)) != NULL;
}

static bool is_laid(const nb_call *c)
{
    for (int i = 0; i < c->nin; i++)
        if (c->in[i]->sharding) return true;
    return false;
}

/* The wish for a line, as a spec; *to is NULL where there is none. */
static bool wish_of(const arranger *a, int k, const nb_spec **to)
{
    const nb_line *l = &a->g->line[k];
    nb_spec s = a->wish[k];
    bool any = false;
    for (int d = 0; d < s.rank; d++)
        any = any || s.dim[d].axes.n;
    *to = NULL;
    if (!any || l->op->release || l->op->effect) return true;
    s.partial.n = 0;
    s.kind = NB_SUM;
    return (*to = nb_spec_intern(&s)) != NULL;
}

static bool one(arranger *a, int k)
{
    nb_tensor *y = a->node[k];
    nb_call c = nb_call_of(y);
    const nb_spec *wish;
    if (!wish_of(a, k, &wish)) return false;
    y->sharding = NULL;
    if (!wish && !is_laid(&c)) {
        a->lay->spec[k] = nb_spec_on(y, a->mesh);
        return a->lay->spec[k];
    }
    nb_wish w = {.mesh = a->mesh, .results = &wish};
    if (a->sums) w.pending = a->sums->carry[k];
    const nb_decision *d = nb_decide_with(&c, 1, &y, &w);
    if (!d) return false;
    a->lay->decision[k] = d;
    note_reduced(a, &c, d);
    y->sharding = a->lay->spec[k] = d->give[0];
    return true;
}

/* How the results of a call with several might lie. */
static bool wishes_of(const arranger *a, int k, const nb_spec **to)
{
    bool ok = true;
    for (int j = k + 1; ok && j < a->g->n; j++) {
        const nb_line *l = &a->g->line[j];
        if (l->op == &nb_op_part && l->in[0] == k)
            ok = wish_of(a, j, &to[l->attr[0]]);
    }
    return ok;
}

static bool many(arranger *a, int k)
{
    nb_tensor *all = a->node[k];
    nb_call c = nb_call_of(all);
    int n = c.op->nout;
    all->sharding = NULL;
    if (!is_laid(&c)) return true;
    nb_tensor **part = nb_alloc((size_t)(n + 1) * sizeof *part);
    const nb_spec **wish = nb_alloc_zero((size_t)(n + 1) * sizeof *wish);
    nb_wish w = {.mesh = a->mesh, .results = wish};
    bool ok = part && wish && wishes_of(a, k, wish);
    for (int64_t i = 0; ok && i < n; i++) {
        nb_shape shape;
        nb_dtype dtype;
        ok = nb_call_infer(&c, (int)i, &shape, &dtype) &&
             (part[i] = nb_node_new(&nb_op_part, NULL, dtype, &shape, 1, &all,
                                    1, &i));
    }
    if (ok) {
        nb_call with = c;
        with.out = n ? part[0] : NULL;
        all->sharding = a->lay->decision[k] =
            nb_decide_with(&with, n, part, &w);
        ok = all->sharding;
        if (ok) note_reduced(a, &c, all->sharding);
    }
    nb_free(part);
    nb_free(wish);
    return ok;
}

static bool part(arranger *a, int k)
{
    const nb_line *l = &a->g->line[k];
    const nb_decision *d = a->lay->decision[l->in[0]];
    nb_tensor *y = a->node[k];
    y->sharding = d ? d->give[l->attr[0]] : NULL;
    return (a->lay->spec[k] = nb_spec_on(y, a->mesh)) != NULL;
}

/* A value of which something was said lies so; open dims as was found for
 * them. */
static bool said(arranger *a, int k)
{
    nb_tensor *y = a->node[k];
    const nb_spec *is = a->recorded[k];
    if (a->g->line[k].kind == NB_LINE_CALL) {
        nb_spec s = a->wish[k];
        for (int d = 0; d < s.rank; d++)
            if (!s.dim[d].axes.n) s.dim[d].priority = 0;
        if (!(is = nb_spec_intern(&s))) return false;
    }
    y->sharding = is;
    return (a->lay->spec[k] = nb_spec_on(y, a->mesh)) != NULL;
}

/* A result lies as was found, unless it was said; on the mesh only if it was
 * recorded there.  What is pending was pending when it was recorded. */
static bool promise(arranger *a, int k)
{
    const nb_spec *was = a->recorded[k], *is = a->lay->spec[k];
    bool pending = is->partial.n;
    for (int i = 0; i < is->partial.n; i++)
        pending = pending && was && was->kind == is->kind &&
                  nb_cut_has(&was->partial, is->partial.at[i]);
    if (!was)
        is = nb_spec_whole(a->mesh, is->rank, true);
    else if (is->partial.n && !pending)
        is = nb_spec_settled(is);
    return (a->lay->spec[k] = is) != NULL;
}

static bool arrange(arranger *a, int k)
{
    const nb_line *l = &a->g->line[k];
    bool ok = l->multi               ? many(a, k)
              : l->op == &nb_op_part ? part(a, k)
              : l->kind == NB_LINE_CALL && !l->op->places && !l->op->lands
                  ? one(a, k)
                  : said(a, k);
    if (!ok || l->multi || !take_sums(a, k)) return ok && l->multi;
    if (!a->result[k]) return true;
    return promise(a, k);
}

static bool make(arranger *a)
{
    size_t n = (size_t)(a->g->n + 1);
    *a->lay = (nb_layouts){.mesh = a->mesh, .n = a->g->n};
    a->lay->spec = nb_alloc_zero(n * sizeof *a->lay->spec);
    a->lay->decision = nb_alloc_zero(n * sizeof *a->lay->decision);
    bool ok = a->lay->spec && a->lay->decision;
    for (int k = 0; ok && k < a->g->n; k++)
        ok = arrange(a, k);
    restore(a);
    if (!ok) nb_layouts_free(a->lay);
    return ok;
}

static bool open(arranger *a)
{
    size_t n = (size_t)(a->g->n + 1);
    a->recorded = nb_alloc(n * sizeof *a->recorded);
    a->result = nb_alloc_zero(n * sizeof *a->result);
    if (!a->recorded || !a->result) return false;
    for (int k = 0; k < a->g->n; k++)
        a->recorded[k] = a->node[k]->sharding;
    for (int i = 0; i < a->g->ny; i++)
        a->result[a->g->result[i]] = true;
    return true;
}

static void close(arranger *a)
{
    nb_free(a->recorded);
    nb_free(a->result);
    nb_free(a->wish);
}

/* Keeps the lighter of two, in `to`: b if they move as much. */
static bool keep_lighter(const arranger *a, nb_layouts *to, nb_layouts *b)
{
    nb_traffic s, t;
    bool ok = nb_layouts_traffic(a->g, a->node, to, &s) &&
              nb_layouts_traffic(a->g, a->node, b, &t);
    bool better =
        ok && (t.bytes != s.bytes ? t.bytes < s.bytes : t.steps <= s.steps);
    nb_layouts_free(better ? to : b);
    if (better) *to = *b;
    return ok;
}

/* The same with sums taken where that moves least. */
static bool move_sums(arranger *a, nb_layouts *to)
{
    nb_layouts with = {0};
    nb_sums sums = {0};
    if (!nb_sums_place(a->g, a->node, to, &sums)) return false;
    a->sums = &sums;
    a->lay = &with;
    bool ok = make(a) && keep_lighter(a, to, &with);
    a->sums = NULL;
    nb_sums_free(&sums);
    return ok;
}

/* What the program asks for is not heard from call to call. */
static bool is_asked(const arranger *a)
{
    for (int k = 0; k < a->g->n; k++)
        if (a->g->line[k].op && a->g->line[k].op->asks) return true;
    return false;
}

static bool solve(arranger *a, nb_layouts *to)
{
    nb_layouts best = {0};
    a->lay = &best;
    if (!nb_propagate(a->g, a->node, a->mesh, &a->wish) || !make(a))
        return false;
    bool ok = move_sums(a, &best);
    if (ok && is_asked(a)) {
        nb_layouts_free(to);
        *to = best;
        return true;
    }
    if (ok && keep_lighter(a, to, &best)) return true;
    nb_layouts_free(&best);
    return false;
}

bool nb_layouts_solve(const nb_graph *g, nb_tensor *const *node, nb_layouts *to)
{
    arranger a = {.g = g, .node = node};
    bool ok = open(&a) && nb_layouts_of(g, node, to);
    if (ok) {
        restore(&a);
        a.mesh = to->mesh;
        ok = (!is_one_mesh(&a) || solve(&a, to)) &&
             nb_layouts_pass(g, node, to) && nb_layouts_verify(g, node, to);
        if (!ok) nb_layouts_free(to);
    }
    close(&a);
    return ok;
}
