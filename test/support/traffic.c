/* traffic.c - what a graph of calls must move, from its decisions alone: an
 * operand that does not lie as the call needs it follows the plan, once for
 * each layout that somebody needs. */
#include "support/laid.h"

#include "ops/ops.h"
#include "shard/factors.h"
#include "shard/resolve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct version {
    const nb_tensor *x;
    const nb_spec *spec;
} version;

typedef struct walk {
    traffic *t;
    int n, room;
    version *seen;
    bool failed;
} walk;

static bool is_seen(walk *w, const nb_tensor *x, const nb_spec *s)
{
    for (int i = 0; i < w->n; i++) {
        const version *v = &w->seen[i];
        if (v->x != x) continue;
        if (s ? v->spec && nb_spec_same_layout(v->spec, s) : !v->spec)
            return true;
    }
    if (w->n == w->room) {
        w->room = 2 * w->room + 64;
        w->seen = realloc(w->seen, (size_t)w->room * sizeof *w->seen);
    }
    w->seen[w->n++] = (version){x, s};
    return false;
}

static void add_steps(walk *w, const nb_reshard_plan *p)
{
    w->failed = w->failed || !p;
    for (int k = 0; p && k < p->n; k++) {
        const nb_hop *h = &p->step[k];
        w->t->calls[h->kind]++;
        w->t->empty[h->kind] += !h->bytes;
        w->t->bytes[h->kind] += h->bytes;
        if (h->bytes > w->t->greatest[h->kind])
            w->t->greatest[h->kind] = h->bytes;
    }
}

static void add_plan(walk *w, const nb_tensor *x, const nb_spec *from,
                     const nb_spec *into)
{
    int64_t size[NB_MAX_DIMS];
    nb_stored_sizes(x, size);
    add_steps(w, nb_reshard_find(from, into, size,
                                 (int)nb_dtype_size((nb_dtype)x->dtype), NULL));
}

static void visit(walk *w, nb_tensor *y);

static void need(walk *w, nb_tensor *x, const nb_spec *s)
{
    visit(w, x);
    const nb_spec *own = nb_spec_on(x, s->mesh);
    if (nb_spec_same_layout(own, s) || is_seen(w, x, s)) return;
    add_plan(w, x, own, s);
}

static void visit(walk *w, nb_tensor *y)
{
    if (!y->sharding || !y->op || nb_tensor_done(y) || is_seen(w, y, NULL))
        return;
    nb_call c = nb_call_of(y);
    if (y->op == &nb_op_part) {
        visit(w, c.in[0]);
        return;
    }
    if (y->op->places) {
        need(w, c.in[0], y->sharding);
        return;
    }
    const nb_decision *d =
        y->flags & NB_MULTI ? y->sharding : nb_decide(&c, 1, &y);
    w->failed = w->failed || !d;
    for (int i = 0; d && i < c.nin; i++) {
        need(w, c.in[i], d->need[i]);
        if (d->reach[i]) add_steps(w, d->reach[i]);
    }
}

bool traffic_of_calls(traffic *t, int n, nb_tensor *const *y)
{
    walk w = {.t = t};
    for (int i = 0; i < n; i++)
        visit(&w, y[i]);
    free(w.seen);
    return !w.failed;
}

bool traffic_of_reading(traffic *t, const nb_tensor *y)
{
    walk w = {.t = t};
    const nb_spec *s = y->sharding;
    if (!s) return true;
    const nb_spec *whole = nb_spec_whole(s->mesh, s->rank, false);
    if (whole) add_plan(&w, y, s, whole);
    return whole && !w.failed;
}

const char *traffic_check(const traffic *t, const nb_mesh *m)
{
    static char wrong[200];
    for (int k = NB_HOP_SLICE + 1; k < HOPS; k++) {
        nb_comm_stats s = nb_comm_stats_get(m, (nb_hop_kind)k);
        if (k == NB_HOP_UNREDUCE) continue; /* as free as a slice */
        if (s.calls <= t->calls[k] && s.calls >= t->calls[k] - t->empty[k] &&
            s.bytes <= t->bytes[k] && s.bytes >= t->greatest[k])
            continue;
        snprintf(wrong, sizeof wrong,
                 "%s: %lld of %lld bytes, but %lld of %lld were planned",
                 nb_hop_name((nb_hop_kind)k), (long long)s.calls,
                 (long long)s.bytes, (long long)t->calls[k],
                 (long long)t->bytes[k]);
        return wrong;
    }
    return NULL;
}
