/* traffic.c - what a graph of calls must move, from its decisions alone: an
 * operand that does not lie as the call needs it follows the cheapest plan from
 * where it is by then, once for each layout that somebody needs. */
#include "support/laid.h"

#include "ops/ops.h"
#include "shard/decide/factors.h"
#include "shard/decide/region.h"
#include "support/steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct version {
    int line;
    const nb_spec *spec;
} version;

typedef struct walk {
    traffic *t;
    int n, room;
    version *seen;
    bool failed;
    int64_t times; /* that what is walked through happens */
} walk;

static bool is_seen(walk *w, int line, const nb_spec *s)
{
    for (int i = 0; i < w->n; i++)
        if (w->seen[i].line == line && nb_spec_same_layout(w->seen[i].spec, s))
            return true;
    if (w->n == w->room) {
        w->room = 2 * w->room + 64;
        w->seen = realloc(w->seen, (size_t)w->room * sizeof *w->seen);
    }
    w->seen[w->n++] = (version){line, s};
    return false;
}

static void add_steps(walk *w, const nb_reshard_plan *p)
{
    w->failed = w->failed || !p;
    for (int k = 0; p && k < p->n; k++) {
        const nb_hop *h = &p->step[k];
        w->t->calls[h->kind] += w->times;
        w->t->empty[h->kind] += h->bytes ? 0 : w->times;
        for (int q = 0; q < h->from->mesh->ndevices; q++)
            w->t->bytes[h->kind][q] +=
                hop_bytes(h, p->size, p->item, q) * w->times;
    }
}

/* What line k is made as, before anybody asks for another layout. */
static const nb_spec *made(const nb_graph *g, const nb_layouts *l, int k)
{
    const nb_line *line = &g->line[k];
    if (line->kind == NB_LINE_CALL && line->op == &nb_op_part &&
        l->decision[line->in[0]])
        return l->decision[line->in[0]]->give[line->attr[0]];
    return l->decision[k] ? l->decision[k]->give[0] : l->spec[k];
}

static const nb_reshard_plan *plan_of(const nb_tensor *x, const nb_spec *from,
                                      const nb_spec *into)
{
    int64_t size[NB_MAX_DIMS];
    nb_stored_sizes(x, size);
    return nb_reshard_find(from, into, size,
                           (int)nb_dtype_size((nb_dtype)x->dtype), NULL);
}

/* From the layout that it is made in, or from one that it has been moved to and
 * that is cheaper to leave. */
static void need(walk *w, const nb_graph *g, const nb_layouts *l,
                 nb_tensor *const *node, int k, const nb_spec *s)
{
    const nb_spec *own = made(g, l, k);
    if (nb_spec_same_layout(own, s)) return;
    int before = w->n;
    if (is_seen(w, k, s)) return;
    const nb_reshard_plan *best = plan_of(node[k], own, s);
    for (int i = 0; best && i < before; i++) {
        if (w->seen[i].line != k) continue;
        const nb_reshard_plan *p = plan_of(node[k], w->seen[i].spec, s);
        double gain = p ? best->seconds - p->seconds : 0;
        if (gain == 0 && p) gain = (double)(best->bytes - p->bytes);
        if (gain == 0 && p) gain = best->n - p->n;
        if (gain > 0) best = p;
    }
    add_steps(w, best);
}

static void walk_lines(walk *w, const nb_graph *g, const nb_layouts *l,
                       nb_tensor *const *node);

/* The program inside a call, as often as it runs. */
static void enter(walk *w, const nb_call *c, const nb_decision *d)
{
    walk sub = {.t = w->t, .times = w->times};
    nb_inside b;
    for (int r = 0; d->opens && r < 2 && c->op->region[r]; r++) {
        sub.n = 0;
        sub.failed = !nb_inside_of(c, d, r, &b);
        if (!sub.failed) {
            sub.times = w->times * (b.j.turns < 0 ? 1 : b.j.turns);
            walk_lines(&sub, b.graph, &b.lay, b.node);
            for (int i = 0; i < b.graph->ny; i++)
                need(&sub, b.graph, &b.lay, b.node, b.graph->result[i],
                     nb_inside_result(c, d, &b, i));
            nb_inside_free(&b);
        }
        w->failed = w->failed || sub.failed;
    }
    free(sub.seen);
}

static void visit(walk *w, const nb_graph *g, const nb_layouts *l,
                  nb_tensor *const *node, int k)
{
    const nb_line *line = &g->line[k];
    const nb_decision *d = l->decision[k];
    if (line->kind != NB_LINE_CALL) return;
    if (line->op->places) need(w, g, l, node, line->in[0], l->spec[k]);
    for (int i = 0; d && i < line->nin; i++) {
        need(w, g, l, node, line->in[i], d->need[i]);
        if (d->reach[i]) add_steps(w, d->reach[i]);
    }
    for (int t = 0; d && t < d->nin + d->nout; t++)
        if (d->share[t]) add_steps(w, d->share[t]);
    nb_call c = nb_call_of(node[k]);
    if (d && line->multi) enter(w, &c, d);
}

static void walk_lines(walk *w, const nb_graph *g, const nb_layouts *l,
                       nb_tensor *const *node)
{
    for (int k = 0; k < g->n; k++)
        visit(w, g, l, node, k);
}

static void walk_graph(walk *w, const nb_graph *g, nb_tensor **node)
{
    nb_layouts l;
    if (!nb_graph_nodes(g, node) || !nb_layouts_of(g, node, &l)) {
        w->failed = true;
        return;
    }
    walk_lines(w, g, &l, node);
    for (int i = 0; i < g->ny; i++)
        need(w, g, &l, node, g->result[i], l.spec[g->result[i]]);
    nb_layouts_free(&l);
}

/* Nodes that have been met, each once and after those that it needs; leaves are
 * the inputs that they are. */
typedef struct nodes {
    int n, nleaves, room;
    nb_tensor **at, **leaf;
} nodes;

static void meet(nodes *s, nb_tensor *x)
{
    for (int k = 0; k < s->n; k++)
        if (s->at[k] == x) return;
    bool leaf = nb_tensor_done(x) || !x->op;
    for (int i = 0; !leaf && i < x->nin; i++)
        meet(s, nb_tensor_in(x)[i]);
    if (s->n == s->room) {
        s->room = 2 * s->room + 64;
        s->at = realloc(s->at, (size_t)s->room * sizeof *s->at);
        s->leaf = realloc(s->leaf, (size_t)s->room * sizeof *s->leaf);
    }
    s->at[s->n++] = x;
    if (leaf) s->leaf[s->nleaves++] = x;
}

static bool is_one_of(const nb_tensor *x, int n, nb_tensor *const *y)
{
    for (int i = 0; i < n; i++)
        if (y[i] == x) return true;
    return false;
}

/* Whether somebody has x besides the nodes that need it. */
static bool is_held(const nodes *s, const nb_tensor *x)
{
    int uses = 0;
    for (int k = 0; k < s->n; k++)
        for (int i = 0; !nb_tensor_done(s->at[k]) && i < s->at[k]->nin; i++)
            uses += nb_tensor_in(s->at[k])[i] == x;
    return uses < atomic_load(&x->refs);
}

/* What is asked for, and what else is held and so becomes a result too, in the
 * order in which it is computed: in which layouts a value is there depends on
 * who comes first. */
static int in_order(const nodes *s, int n, nb_tensor *const *y, nb_tensor **to)
{
    int count = 0;
    for (int k = 0; k < s->n; k++) {
        nb_tensor *x = s->at[k];
        bool computed = x->op && !nb_tensor_done(x) && x->sharding &&
                        !(x->flags & NB_MULTI);
        if (computed && (is_one_of(x, n, y) || is_held(s, x))) to[count++] = x;
    }
    return count;
}

bool traffic_of_calls(traffic *t, int n, nb_tensor *const *y)
{
    walk w = {.t = t, .times = 1};
    nodes met = {0};
    nb_graph *g = NULL;
    bool on_mesh = false;
    for (int i = 0; i < n; i++)
        on_mesh = on_mesh || (y[i]->sharding && !nb_tensor_done(y[i]));
    if (!on_mesh) return true;
    for (int i = 0; i < n; i++)
        meet(&met, y[i]);
    nb_tensor **root = calloc((size_t)met.n + 1, sizeof *root);
    int nroots = in_order(&met, n, y, root);
    bool ok = nb_graph_of(met.nleaves, met.leaf, nroots, root, &g) == NB_OK;
    free(root);
    free(met.at);
    free(met.leaf);
    if (!ok) return false;
    nb_tensor **node = calloc((size_t)g->n + 1, sizeof *node);
    nb_scope_open();
    walk_graph(&w, g, node);
    nb_scope_close(0, NULL);
    free(node);
    free(w.seen);
    nb_graph_free(g);
    return !w.failed;
}

bool traffic_of_reading(traffic *t, const nb_tensor *y)
{
    walk w = {.t = t, .times = 1};
    const nb_spec *s = y->sharding;
    if (!s) return true;
    const nb_spec *whole = nb_spec_whole(s->mesh, s->rank, false);
    if (whole) add_steps(&w, plan_of(y, s, whole));
    return whole && !w.failed;
}

static int64_t most_here(const traffic *t, const nb_mesh *m, int kind)
{
    int64_t most = 0;
    for (int p = 0; p < m->ndevices; p++)
        if (nb_device_is_here(m, p) && t->bytes[kind][p] > most)
            most = t->bytes[kind][p];
    return most;
}

const char *traffic_check(const traffic *t, const nb_mesh *m)
{
    static char wrong[200];
    for (int k = NB_HOP_SLICE + 1; k < HOPS; k++) {
        nb_comm_stats s = nb_comm_stats_get(m, (nb_hop_kind)k);
        if (k == NB_HOP_UNREDUCE) continue; /* as free as a slice */
        int64_t bytes = most_here(t, m, k);
        if (s.calls <= t->calls[k] && s.calls >= t->calls[k] - t->empty[k] &&
            s.bytes == bytes)
            continue;
        snprintf(wrong, sizeof wrong,
                 "%s: %lld of %lld bytes, but %lld of %lld were planned",
                 nb_hop_name((nb_hop_kind)k), (long long)s.calls,
                 (long long)s.bytes, (long long)t->calls[k], (long long)bytes);
        return wrong;
    }
    return NULL;
}
