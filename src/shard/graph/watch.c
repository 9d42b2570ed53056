/* watch.c - what a program moves, in the order in which its devices do. */
#include "shard/decide/factors.h"
#include "shard/decide/region.h"
#include "shard/decide/variants.h"
#include "shard/graph/reason.h"

/* A program that is walked through. */
typedef struct walk {
    nb_occasion at; /* the program, and what it is inside of */
    nb_variants there;
    const nb_watcher *watcher;
    const bool *needed; /* lines that are; NULL: all */
} walk;

static bool tell(walk *w, int line, int user, int operand,
                 const nb_reshard_plan *p, bool reach)
{
    nb_occasion o = w->at;
    o.line = line;
    o.user = user;
    o.operand = operand;
    o.plan = p;
    o.reach = reach;
    return w->watcher->moved(w->watcher->ctx, &o);
}

static bool need(walk *w, int line, const nb_spec *spec, int user, int operand)
{
    const nb_variant *from;
    if (nb_variants_find(&w->there, line, spec)) return true;
    const nb_reshard_plan *p =
        nb_variants_plan(&w->there, line, w->at.node[line], spec, &from);
    return p && tell(w, line, user, operand, p, false) &&
           nb_variants_add(&w->there, line, spec, NULL);
}

static bool walk_all(walk *w);

/* One run of a program inside a call. */
static bool walk_run(walk *w, const nb_call *c, const nb_decision *d,
                     const nb_inside *b, int run)
{
    walk sub = {.at = w->at, .watcher = w->watcher};
    bool *needed = nb_inside_lines(b, run);
    sub.needed = needed;
    sub.at.g = b->graph;
    sub.at.node = b->node;
    sub.at.lay = &b->lay;
    sub.at.within = c->op;
    sub.at.times *= b->j.turns < 0 ? w->watcher->turns : b->j.turns;
    bool ok = needed && walk_all(&sub);
    for (int k = 0; ok && k < b->graph->ny; k++)
        if (b->j.run[k] == run)
            ok = need(&sub, b->graph->result[k], nb_inside_result(c, d, b, k),
                      -1, k);
    nb_variants_free(&sub.there);
    nb_free(needed);
    return ok;
}

/* Programs inside a call, if values inside them are split. */
static bool enter(walk *w, const nb_call *c, const nb_decision *d)
{
    bool ok = true;
    for (int r = 0; ok && d->opens && r < 2 && c->op->region[r]; r++) {
        nb_inside b;
        ok = nb_inside_of(c, d, r, &b);
        if (!ok) break;
        for (int run = 0; ok && run < b.j.nruns; run++)
            ok = walk_run(w, c, d, &b, run);
        nb_inside_free(&b);
    }
    return ok;
}

static bool walk_operands(walk *w, int k, const nb_decision *d)
{
    const nb_line *l = &w->at.g->line[k];
    bool ok = true;
    for (int i = 0; ok && i < l->nin; i++)
        ok = need(w, l->in[i], d->need[i], k, i) &&
             (!d->reach[i] || tell(w, l->in[i], k, i, d->reach[i], true));
    for (int t = 0; ok && t < d->nin + d->nout; t++)
        if (d->share[t])
            ok = tell(w, t < l->nin ? l->in[t] : k, k, t, d->share[t], true);
    return ok;
}

/* How a line lies where it is made. */
static const nb_spec *made_as(const walk *w, int k)
{
    const nb_line *l = &w->at.g->line[k];
    const nb_layouts *lay = w->at.lay;
    if (l->op == &nb_op_part && lay->decision[l->in[0]])
        return lay->decision[l->in[0]]->give[l->attr[0]];
    return lay->decision[k] ? lay->decision[k]->give[0] : lay->spec[k];
}

static bool walk_line(walk *w, int k)
{
    const nb_line *l = &w->at.g->line[k];
    const nb_decision *d = w->at.lay->decision[k];
    bool ok = true;
    if (l->op && (l->op->places || l->op->lands))
        ok = need(w, l->in[0], w->at.lay->spec[k], k, 0);
    else if (l->kind == NB_LINE_CALL && l->op != &nb_op_part && d)
        ok = walk_operands(w, k, d);
    if (ok && l->multi && d) {
        nb_call c = nb_call_of(w->at.node[k]);
        ok = enter(w, &c, d);
    }
    return ok &&
           (l->multi || nb_variants_add(&w->there, k, made_as(w, k), NULL));
}

static bool walk_all(walk *w)
{
    bool ok = nb_variants_init(&w->there, w->at.g->n);
    for (int k = 0; ok && k < w->at.g->n; k++)
        if (!w->needed || w->needed[k]) ok = walk_line(w, k);
    return ok;
}

bool nb_layouts_watch(const nb_graph *g, nb_tensor *const *node,
                      const nb_layouts *l, const nb_watcher *watcher)
{
    walk w = {.watcher = watcher};
    w.at = (nb_occasion){.g = g, .node = node, .lay = l, .times = 1};
    bool ok = walk_all(&w);
    for (int i = 0; ok && i < g->ny; i++)
        ok = need(&w, g->result[i], l->spec[g->result[i]], -1, i);
    nb_variants_free(&w.there);
    return ok;
}
