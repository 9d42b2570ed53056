/* walk.c - derivatives of what was recorded between inputs and outputs.
 *
 * A walk differentiates with respect to fresh aliases of its inputs, which
 * carry a trace bit of their own: were the function given x itself, an x that
 * it closes over could not be told from its argument.  Serials are a
 * topological order, so the nodes between, sorted by serial, are walked in one
 * loop. */
#include "transform/derive.h"

#include "core/debug.h"
#include "core/lanes.h"
#include "nabla/nabla.h"
#include "ops/ops.h"

#include <stdlib.h>

typedef struct slot {
    nb_tensor *node;
    nb_tensor **value; /* one, or one a result of a node with several */
} slot;

typedef struct walk {
    uint64_t bit, first; /* trace bit and least serial of the inputs */
    slot *slot;          /* by ascending serial */
    int n, room, nvalues;
    nb_tensor **store;
} walk;

/* What lies between x and y, kept and pinned: walked as often as one likes. */
struct nb_tape {
    uint64_t bit; /* 0 once closed */
    bool inner;   /* within a rule: as they are */
    bool whole;   /* closed, with all that lies between in w */
    int nx, ny;
    nb_tensor **x, **y;
    walk w;
};

/* Arguments and results have every open lane, thin where nothing varies: each
 * lane differentiates its own copy, and what lanes that talk have in common is
 * still a result of each. */
static nb_tensor *everywhere(nb_tensor *x)
{
    int n;
    const nb_lane *lane = nb_lanes_open(&n);
    for (int l = 0; l < n; l++)
        x = nb_spread(x, lane[l]);
    return x;
}

static uint64_t begin(int nx, nb_tensor *const *x, nb_tensor **fresh,
                      bool inner)
{
    uint64_t bit = nb_trace_open();
    if (!bit) return 0;
    for (int i = 0; i < nx; i++) {
        fresh[i] = nb_alias(inner ? x[i] : everywhere(x[i]));
        if (!fresh[i]) {
            nb_trace_close(bit);
            return 0;
        }
        fresh[i]->trace |= bit;
    }
    return bit;
}

uint64_t nb_walk_begin(int nx, nb_tensor *const *x, nb_tensor **fresh)
{
    return begin(nx, x, fresh, false);
}

void nb_walk_end(uint64_t bit)
{
    nb_trace_close(bit);
}

static int by_serial(const void *a, const void *b)
{
    uint64_t x = ((const slot *)a)->node->serial;
    uint64_t y = ((const slot *)b)->node->serial;
    return x < y ? -1 : x > y;
}

static int results_of(const nb_tensor *x)
{
    return x->flags & NB_MULTI ? x->op->nout : 1;
}

static slot *find(const walk *w, const nb_tensor *x)
{
    int lo = 0, hi = w->n;
    if (x->serial < w->first) return NULL;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (w->slot[mid].node->serial < x->serial)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < w->n && w->slot[lo].node == x ? &w->slot[lo] : NULL;
}

static bool is_input(const nb_tensor *x, int nx, nb_tensor *const *in)
{
    for (int i = 0; i < nx; i++)
        if (in[i] == x) return true;
    return false;
}

/* Every node that carries the bit, from y back to x; the graph lock guards the
 * marks. */
static bool add(walk *w, nb_tensor *x, uint32_t mark)
{
    if (!x) return false;
    if (!(x->trace & w->bit) || x->serial < w->first || x->mark == mark)
        return true;
    x->mark = mark;
    if (!nb_grow(&w->slot, &w->room, w->n + 1, sizeof *w->slot)) return false;
    w->slot[w->n++] = (slot){.node = x};
    return true;
}

static bool collect(walk *w, int nx, nb_tensor *const *x, int ny,
                    nb_tensor *const *y)
{
    bool ok = true;
    w->first = nx ? UINT64_MAX : 0;
    for (int i = 0; i < nx; i++)
        if (x[i]->serial < w->first) w->first = x[i]->serial;
    nb_graph_lock();
    uint32_t mark = nb_graph_mark();
    for (int i = 0; ok && i < ny; i++)
        ok = add(w, y[i], mark);
    for (int k = 0; ok && k < w->n; k++) {
        nb_tensor *node = w->slot[k].node;
        if (is_input(node, nx, x)) continue;
        for (int i = 0; ok && i < node->nin; i++)
            ok = add(w, nb_tensor_in(node)[i], mark);
    }
    for (int i = 0; ok && i < nx; i++)
        ok = add(w, x[i], mark);
    nb_graph_unlock();
    if (ok && w->n) qsort(w->slot, (size_t)w->n, sizeof *w->slot, by_serial);
    for (int k = 0; k < w->n; k++)
        w->nvalues += results_of(w->slot[k].node);
    return ok;
}

/* Clears the values: a walk begins with none. */
static bool start(walk *w)
{
    nb_free(w->store);
    w->store = nb_alloc_zero((size_t)(w->nvalues + 1) * sizeof(nb_tensor *));
    if (!w->store) return false;
    for (int k = 0, at = 0; k < w->n; k++) {
        w->slot[k].value = w->store + at;
        at += results_of(w->slot[k].node);
    }
    return true;
}

static void leave(walk *w)
{
    nb_free(w->slot);
    nb_free(w->store);
}

static nb_tensor *part_of(const nb_tensor *x)
{
    bool part = x->nin == 1 && nb_tensor_in(x)[0]->flags & NB_MULTI;
    return part ? nb_tensor_in(x)[0] : NULL;
}

/* Results of one node.  A node with several is pushed as a whole if its op can,
 * by each of its parts otherwise. */
static bool push_through(walk *w, slot *s)
{
    nb_tensor *node = s->node, *all = part_of(node), *few[8], **u = few;
    bool whole = node->flags & NB_MULTI, any = false, ok = true;
    if (whole && !node->op->push) return true;
    if (all && all->op->push) {
        slot *from = find(w, all);
        s->value[0] = from ? from->value[nb_tensor_attr(node)[0]] : NULL;
        return true;
    }
    nb_tensor *from = all ? all : node;
    if (from->nin > 8 && !(u = nb_alloc((size_t)from->nin * sizeof *u)))
        return false;
    for (int i = 0; i < from->nin; i++) {
        slot *in = find(w, nb_tensor_in(from)[i]);
        u[i] = in ? in->value[0] : NULL;
        any = any || u[i];
    }
    nb_call c = nb_call_of(node);
    if (any)
        ok = !all && node->op->push ? node->op->push(&c, u, s->value)
                                    : nb_push(node, u, &s->value[0]);
    if (u != few) nb_free(u);
    return ok;
}

/* What a rule records is from where the op was called. */
static bool push_node(walk *w, slot *s)
{
    nb_site was = nb_site_of(s->node);
    bool ok = push_through(w, s);
    nb_site_back(was);
    return ok;
}

/* Where x is, as operands are: numbers and tensors without axes on the CPU go
 * there, and what lies on a mesh is met there. */
static nb_tensor *beside(const char *what, nb_tensor *u, const nb_tensor *x)
{
    bool free = nb_tensor_is_number(u) || nb_tensor_is_number(x);
    if (u->device == x->device || free || u->sharding || x->sharding) return u;
    if (!u->device && !u->rank) return nb_to_device(u, x->device);
    return nb_fail(NB_EVALUE,
                   "%s must be on the same device as its value, not on %s and "
                   "%s (to_device moves one)",
                   what, nb_device_name(u->device), nb_device_name(x->device));
}

/* What moves along with x, in its dtype: nothing if x is of integers, an error
 * if it has another shape or is elsewhere. */
static bool fit(const char *what, nb_tensor *u, const nb_tensor *x,
                nb_tensor **to)
{
    *to = NULL;
    if (!u || !nb_dtype_is_float((nb_dtype)x->dtype)) return true;
    nb_shape a = nb_tensor_shape(u), b = nb_tensor_shape(x);
    bool same = a.rank == b.rank;
    for (int d = 0; same && d < a.rank; d++)
        same = nb_extent_same(a.size[d], b.size[d]);
    if (!same)
        return nb_fail(NB_EVALUE, "%s of shape %s for a value of shape %s",
                       what, nb_shape_text(&a), nb_shape_text(&b));
    u = beside(what, u, x);
    return u && (*to = nb_cast(u, (nb_dtype)x->dtype));
}

static bool push(walk *w, int nx, nb_tensor *const *x, nb_tensor *const *u,
                 int ny, nb_tensor *const *y, nb_tensor **uy)
{
    bool ok = start(w);
    for (int i = 0; ok && i < nx; i++)
        ok = fit("jvp: a tangent", u[i], x[i], &find(w, x[i])->value[0]);
    unsigned was = nb_direction_set(NB_TANGENT);
    for (int k = 0; ok && k < w->n; k++)
        if (!is_input(w->slot[k].node, nx, x)) ok = push_node(w, &w->slot[k]);
    nb_direction_set(was);
    for (int i = 0; ok && i < ny; i++) {
        slot *s = find(w, y[i]);
        uy[i] = s ? s->value[0] : NULL;
    }
    return ok;
}

bool nb_walk_push(uint64_t bit, int nx, nb_tensor *const *x,
                  nb_tensor *const *u, int ny, nb_tensor *const *y,
                  nb_tensor **uy)
{
    walk w = {.bit = bit};
    bool ok = collect(&w, nx, x, ny, y) && push(&w, nx, x, u, ny, y, uy);
    leave(&w);
    return ok;
}

static bool receive(slot *s, int k, nb_tensor *g)
{
    if (!g) return false;
    s->value[k] = s->value[k] ? nb_add(s->value[k], g) : g;
    return s->value[k];
}

/* All inputs at once, for an op that says so. */
static bool pull_whole(walk *w, slot *s)
{
    nb_tensor *node = s->node;
    nb_tensor **cx = nb_alloc_zero((size_t)(node->nin + 1) * sizeof *cx);
    nb_call c = nb_call_of(node);
    bool ok = cx && node->op->pull(&c, s->value, cx);
    for (int i = 0; ok && i < node->nin; i++) {
        slot *in = find(w, nb_tensor_in(node)[i]);
        if (in && cx[i]) ok = receive(in, 0, cx[i]);
    }
    nb_free(cx);
    return ok;
}

static bool pull_through(walk *w, slot *s)
{
    nb_tensor *node = s->node, *all = part_of(node);
    bool any = false;
    for (int k = 0; k < results_of(node); k++)
        any = any || s->value[k];
    if (!any) return true;
    if (all) {
        slot *to = find(w, all);
        return !to || receive(to, (int)nb_tensor_attr(node)[0], s->value[0]);
    }
    if (node->op && node->op->pull) return pull_whole(w, s);
    for (int i = 0; i < node->nin; i++) {
        slot *in = find(w, nb_tensor_in(node)[i]);
        nb_tensor *g;
        if (!in) continue;
        if (!nb_pull(node, i, s->value, &g)) return false;
        if (g && !receive(in, 0, g)) return false;
    }
    return true;
}

static bool pull_node(walk *w, slot *s)
{
    nb_site was = nb_site_of(s->node);
    bool ok = pull_through(w, s);
    nb_site_back(was);
    return ok;
}

static bool pull(walk *w, int nx, nb_tensor *const *x, int ny,
                 nb_tensor *const *y, nb_tensor *const *ct, nb_tensor **cx)
{
    bool ok = start(w);
    for (int i = 0; ok && i < ny; i++) {
        slot *s = find(w, y[i]);
        nb_tensor *g;
        ok = fit("vjp: a cotangent", ct[i], y[i], &g);
        if (ok && s && g) ok = receive(s, 0, g);
    }
    unsigned was = nb_direction_set(NB_BACKWARD);
    for (int k = w->n - 1; ok && k >= 0; k--)
        if (!is_input(w->slot[k].node, nx, x)) ok = pull_node(w, &w->slot[k]);
    nb_direction_set(was);
    for (int i = 0; ok && i < nx; i++)
        cx[i] = find(w, x[i])->value[0];
    return ok;
}

bool nb_walk_pull(uint64_t bit, int nx, nb_tensor *const *x, int ny,
                  nb_tensor *const *y, nb_tensor *const *ct, nb_tensor **cx)
{
    walk w = {.bit = bit};
    bool ok = collect(&w, nx, x, ny, y) && pull(&w, nx, x, ny, y, ct, cx);
    leave(&w);
    return ok;
}

bool nb_walk_back(uint64_t bit, int ny, nb_tensor *const *y,
                  nb_tensor *const *ct, nb_grad_found *found, void *ctx)
{
    walk w = {.bit = bit};
    bool ok = collect(&w, 0, NULL, ny, y) && pull(&w, 0, NULL, ny, y, ct, NULL);
    for (int k = 0; ok && k < w.n; k++)
        if (w.slot[k].node->flags & NB_REQUIRES && w.slot[k].value[0])
            found(ctx, w.slot[k].node, w.slot[k].value[0]);
    leave(&w);
    return ok;
}

/* Tapes */

static nb_tensor **kept(int n, nb_tensor *const *x, bool inner)
{
    nb_tensor **all = nb_alloc((size_t)(n + 1) * sizeof *all);
    for (int i = 0; all && i < n; i++)
        all[i] = nb_keep(inner ? x[i] : everywhere(x[i]));
    return all;
}

static void dropped(int n, nb_tensor **x)
{
    for (int i = 0; x && i < n; i++)
        nb_drop(x[i]);
    nb_free(x);
}

static nb_tape *open_tape(int nx, nb_tensor *const *x, nb_tensor **fresh,
                          bool inner)
{
    nb_tape *t = nb_alloc_zero(sizeof *t);
    if (!t) return NULL;
    t->inner = inner;
    t->bit = begin(nx, x, fresh, inner);
    t->nx = nx;
    t->x = t->bit ? kept(nx, fresh, inner) : NULL;
    if (t->x) return t;
    nb_tape_drop(t);
    return NULL;
}

nb_tape *nb_tape_open(int nx, nb_tensor *const *x, nb_tensor **fresh)
{
    return open_tape(nx, x, fresh, false);
}

nb_tape *nb_tape_open_inner(int nx, nb_tensor *const *x, nb_tensor **fresh)
{
    return open_tape(nx, x, fresh, true);
}

nb_status nb_tape_close(nb_tape *t, int ny, nb_tensor *const *y)
{
    if (!t) return NB_STATUS(false);
    if (!t->bit)
        return NB_STATUS(nb_fail(NB_EVALUE, "the tape is closed already"));
    t->y = kept(ny, y, t->inner);
    t->ny = t->y ? ny : 0;
    t->w.bit = t->bit;
    bool ok = t->y && collect(&t->w, t->nx, t->x, ny, t->y);
    nb_graph_lock();
    for (int k = 0; k < t->w.n; k++) {
        nb_keep(t->w.slot[k].node);
        t->w.slot[k].node->pins++;
    }
    nb_graph_unlock();
    nb_trace_close(t->bit);
    t->bit = 0;
    t->whole = ok;
    return NB_STATUS(ok);
}

bool nb_tape_is_closed(const nb_tape *t)
{
    return t && (t->whole || nb_fail(NB_EVALUE, "the tape is not closed"));
}

/* Derivatives that are numbers, which are nowhere, go where their tensors
 * are. */
static bool place(int n, nb_tensor *const *x, nb_tensor **g)
{
    bool ok = true;
    for (int i = 0; ok && i < n; i++)
        if (g[i] && x[i]->device && nb_tensor_is_number(g[i]))
            ok = (g[i] = nb_on_at_once(g[i], x[i]->device));
    return ok;
}

nb_status nb_tape_push(nb_tape *t, nb_tensor *const *u, nb_tensor **uy)
{
    return NB_STATUS(nb_tape_is_closed(t) &&
                     push(&t->w, t->nx, t->x, u, t->ny, t->y, uy) &&
                     place(t->ny, t->y, uy));
}

static bool pull_ones(nb_tape *t, nb_tensor **cx)
{
    nb_tensor **one = nb_alloc((size_t)(t->ny + 1) * sizeof *one);
    bool ok = one;
    for (int k = 0; ok && k < t->ny; k++)
        ok = (one[k] = nb_fill_like(t->y[k], 1));
    ok = ok && pull(&t->w, t->nx, t->x, t->ny, t->y, one, cx);
    nb_free(one);
    return ok;
}

nb_status nb_tape_pull(nb_tape *t, nb_tensor *const *ct, nb_tensor **cx)
{
    return NB_STATUS(nb_tape_is_closed(t) &&
                     (ct ? pull(&t->w, t->nx, t->x, t->ny, t->y, ct, cx)
                         : pull_ones(t, cx)) &&
                     place(t->nx, t->x, cx));
}

int nb_tape_inputs(const nb_tape *t, nb_tensor *const **x)
{
    *x = t->x;
    return t->nx;
}

int nb_tape_results(const nb_tape *t, nb_tensor *const **y)
{
    *y = t->y;
    return t->ny;
}

/* Nodes that were realised meanwhile forget their inputs now. */
static void unpin(nb_tensor *x)
{
    nb_tensor **old = NULL;
    nb_graph_lock();
    x->pins--;
    int n = nb_tensor_done(x) && !(x->flags & NB_MULTI)
                ? nb_tensor_forget(x, &old)
                : 0;
    nb_graph_unlock();
    for (int i = 0; i < n; i++)
        nb_drop(old[i]);
    nb_drop(x);
}

void nb_tape_drop(nb_tape *t)
{
    if (!t) return;
    if (t->bit) nb_trace_close(t->bit);
    for (int k = t->w.n - 1; k >= 0; k--)
        unpin(t->w.slot[k].node);
    dropped(t->nx, t->x);
    dropped(t->ny, t->y);
    leave(&t->w);
    nb_free(t);
}
