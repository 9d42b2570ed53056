/* need.c - the memory that a computation takes, counted from shapes.
 *
 * The nodes that are not computed yet are gone through in the order in which
 * they will be.  Data is there from the node that makes it until all nodes that
 * read it have forgotten their inputs, which those on a trace or a tape do not.
 * A view has no data of its own, and holds that of its input. */
#include "transform/need.h"

#include "core/graph.h"

#include <string.h>

enum { LANE, OTHER, NSORTS };

typedef struct item {
    nb_tensor *node;
    int owner;   /* of its data: itself, another, -1 if there already */
    int readers; /* of the data, those still to run */
    int parts;   /* of several results, those still to come */
    double bytes[NSORTS];  /* of its data */
    double inside[NSORTS]; /* while it runs */
} item;

typedef struct search {
    int lane;
    uint32_t mark;
    item *item;
    int n, room;
    struct {
        nb_tensor *node;
        int next;
    } * stack;
    int depth, stack_room;
    bool missing; /* a stand-in: nothing will be computed yet */
} search;

static bool is_view(const nb_op *op)
{
    return op->view || op->dim_of || op == &nb_op_part;
}

static double size_of(const nb_shape *s, nb_dtype d)
{
    int64_t n;
    return nb_shape_count(s, &n) ? (double)n * (double)nb_dtype_size(d) : 1e18;
}

static bool varies(const nb_shape *s, int lane)
{
    int l = nb_shape_find_lane(s, lane);
    return l >= 0 && !s->lane[l].thin;
}

/* Programs inside ops */

static bool peak_of(const nb_graph *g, double *most);

/* One run of what the op of a line holds; 0 for most. */
static bool inside_op(const nb_op *op, double *most)
{
    *most = 0;
    for (int r = 0; op && r < 2; r++) {
        double one = 0;
        if (op->region[r] && !peak_of(op->region[r], &one)) return false;
        if (one > *most) *most = one;
    }
    return true;
}

static int owner_of(const nb_graph *g, const int *owner, int k)
{
    const nb_line *l = &g->line[k];
    bool view = l->kind == NB_LINE_CALL && l->op != &nb_op_part && l->nin &&
                is_view(l->op);
    return view ? owner[l->in[0]] : k;
}

static double line_bytes(const nb_line *l)
{
    return l->kind != NB_LINE_CALL || l->multi ? 0
                                               : size_of(&l->shape, l->dtype);
}

static void count_readers(const nb_graph *g, int *owner, int *left)
{
    for (int k = 0; k < g->n; k++) {
        owner[k] = owner_of(g, owner, k);
        for (int i = 0; i < g->line[k].nin; i++)
            left[owner[g->line[k].in[i]]]++;
    }
    for (int k = 0; k < g->ny; k++)
        left[owner[g->result[k]]]++;
}

/* Lines in order, each until its last use. */
static bool peak_of(const nb_graph *g, double *most)
{
    int *owner = nb_alloc((size_t)(g->n + 1) * sizeof *owner);
    int *left = nb_alloc_zero((size_t)(g->n + 1) * sizeof *left);
    double live = 0, inside;
    bool ok = owner && left;
    if (ok) count_readers(g, owner, left);
    *most = 0;
    for (int k = 0; ok && k < g->n; k++) {
        const nb_line *l = &g->line[k];
        if (owner[k] == k) live += line_bytes(l);
        ok = inside_op(l->op, &inside);
        if (live + inside > *most) *most = live + inside;
        for (int i = 0; i < l->nin; i++)
            if (--left[owner[l->in[i]]] == 0)
                live -= line_bytes(&g->line[owner[l->in[i]]]);
    }
    nb_free(owner), nb_free(left);
    return ok;
}

static bool has_lane(const nb_graph *g, int id)
{
    for (int l = 0; g->lane_id && l < g->nlanes; l++)
        if (g->lane_id[l] == id) return true;
    return false;
}

/* Lanes that the programs were not recorded with reach all of them. */
static bool look_inside(const search *s, item *it)
{
    const nb_tensor *x = it->node;
    const nb_graph *g = x->op->region[0];
    double lanes = 1, most;
    bool in_lane = false;
    if (!g) return true;
    for (int i = 0; i < x->nin; i++) {
        nb_shape in = nb_tensor_shape(nb_tensor_in(x)[i]);
        if (!varies(&in, s->lane)) continue;
        int l = nb_shape_find_lane(&in, s->lane);
        lanes = (double)nb_extent_get(in.lane[l].size);
        in_lane = true;
    }
    if (!inside_op(x->op, &most)) return false;
    if (has_lane(g, s->lane)) lanes = 1;
    it->inside[in_lane ? LANE : OTHER] = most * lanes;
    return true;
}

/* Nodes */

static bool enter(search *s, nb_tensor *x)
{
    if (nb_tensor_done(x) || x->mark == s->mark) return true;
    s->missing = s->missing || !x->op;
    x->mark = s->mark;
    if (!nb_grow(&s->stack, &s->stack_room, s->depth + 1, sizeof *s->stack))
        return false;
    s->stack[s->depth].node = x;
    s->stack[s->depth++].next = 0;
    return true;
}

static item *item_of(const search *s, const nb_tensor *x)
{
    bool here = x->mark == s->mark && x->slot < (uint32_t)s->n &&
                s->item[x->slot].node == x;
    return here ? &s->item[x->slot] : NULL;
}

static bool add_bytes(const search *s, item *it)
{
    nb_tensor *x = it->node;
    nb_call c = nb_call_of(x);
    nb_shape shape = nb_tensor_shape(x);
    nb_dtype d = (nb_dtype)x->dtype;
    bool ok = true;
    int n = x->flags & NB_MULTI ? x->op->nout : 1;
    for (int k = 0; ok && k < n; k++) {
        if (x->flags & NB_MULTI) ok = nb_call_infer(&c, k, &shape, &d);
        if (ok)
            it->bytes[varies(&shape, s->lane) ? LANE : OTHER] +=
                size_of(&shape, d);
    }
    return ok && look_inside(s, it);
}

static bool add(search *s, nb_tensor *x)
{
    if (!nb_grow(&s->item, &s->room, s->n + 1, sizeof *s->item)) return false;
    item *it = &s->item[s->n];
    *it = (item){.node = x, .owner = s->n};
    x->slot = (uint32_t)s->n++;
    if (!x->op) return true;
    for (int i = 0; i < x->nin; i++) {
        item *in = item_of(s, nb_tensor_in(x)[i]);
        if (in && in->owner >= 0) s->item[in->owner].readers++;
    }
    if (!is_view(x->op) || !x->nin) return add_bytes(s, it);
    item *from = item_of(s, nb_tensor_in(x)[0]);
    it->owner = from ? from->owner : -1;
    if (from && x->op == &nb_op_part) from->parts++;
    return true;
}

static bool collect(search *s, int n, nb_tensor *const *y)
{
    bool ok = true;
    for (int k = 0; ok && k < n; k++) {
        ok = enter(s, y[k]);
        while (ok && s->depth) {
            nb_tensor *x = s->stack[s->depth - 1].node;
            int i = s->stack[s->depth - 1].next++;
            if (i < x->nin) {
                ok = enter(s, nb_tensor_in(x)[i]);
                continue;
            }
            s->depth--;
            ok = add(s, x);
        }
        item *it = ok ? item_of(s, y[k]) : NULL;
        if (it && it->owner >= 0) s->item[it->owner].readers++;
    }
    return ok;
}

/* Going through */

static bool forgets(const nb_tensor *x)
{
    return !(x->trace & (nb_traces_open() | NB_TRACE_KEPT)) && !x->pins;
}

static void let_go(search *s, const nb_tensor *x, double *live)
{
    for (int i = 0; i < x->nin; i++) {
        item *in = item_of(s, nb_tensor_in(x)[i]);
        item *o = in && in->owner >= 0 ? &s->item[in->owner] : NULL;
        if (!o || --o->readers || o->node->pins) continue;
        for (int k = 0; k < NSORTS; k++)
            live[k] -= o->bytes[k];
    }
}

/* A node with several results holds its inputs until the last of them is there.
 */
static void leave(search *s, item *it, double *live)
{
    nb_tensor *x = it->node;
    item *all = x->op == &nb_op_part ? item_of(s, nb_tensor_in(x)[0]) : NULL;
    if (x->flags & NB_MULTI || !forgets(x)) return;
    let_go(s, x, live);
    if (all && --all->parts == 0 && forgets(all->node))
        let_go(s, all->node, live);
}

static void go_through(search *s, nb_need *need)
{
    double live[NSORTS] = {0}, most[NSORTS] = {0};
    for (int i = 0; i < s->n; i++) {
        item *it = &s->item[i];
        for (int k = 0; k < NSORTS; k++) {
            live[k] += it->bytes[k];
            double now = live[k] + it->inside[k];
            if (now > most[k]) most[k] = now;
        }
        leave(s, it, live);
    }
    need->lane = most[LANE];
    need->other = most[OTHER];
    need->known = !s->missing;
}

bool nb_need_find(nb_need *need, int lane, int n, nb_tensor *const *y)
{
    search s = {.lane = lane};
    nb_graph_lock();
    s.mark = nb_graph_mark();
    bool ok = collect(&s, n, y);
    if (ok) go_through(&s, need);
    nb_graph_unlock();
    nb_free(s.item), nb_free(s.stack);
    return ok;
}
