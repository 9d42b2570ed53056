/* build.c - from the call of a loop or branch to a list of things to do. */
#include "backend/cuda/loop/build.h"

#include "core/graph.h"

enum {
    AHEAD_BYTES = 1 << 15, /* of a step, that is read ahead; and of a half */
    RING_BYTES = 1 << 13,
    RING_TURNS = 64
};

static nb_solo_at as_next(nb_solo_at at)
{
    at.next = true;
    return at;
}

/* A loop in the making: its call, and what its program is given and gives. */
typedef struct turns {
    nb_solo *s;
    const nb_call *c;
    nb_joints j;
    const nb_solo_value *in, *out; /* of the call */
    nb_solo_value *x, *y;          /* of a turn */
    nb_solo_item item;
    nb_solo_list *to;
} turns;

/* What is carried begins as the call has it. */
static bool begin_carry(turns *t, int i)
{
    const nb_line *l = &t->c->op->region[0]->line[i];
    const nb_tensor *x = t->c->in[t->j.from[i]];
    nb_solo_value first =
        nb_solo_spread(t->in[t->j.from[i]], x, &t->j.shape[i]);
    t->x[i] = nb_solo_packed((nb_solo_at){0}, l->dtype, &t->j.shape[i]);
    if (!nb_solo_memory(t->s, nb_solo_bytes(&t->x[i]), t->item.loop,
                        &t->x[i].at))
        return false;
    if (!t->item.loop && !t->s->rows && t->x[i].n) {
        t->s->rows = t->x[i].size[0];
        t->s->rows_slot = t->x[i].at.slot;
    }
    return nb_solo_add_copy(t->s, t->to, &first, &t->x[i]);
}

int nb_solo_ring_turns(int64_t bytes, int64_t length)
{
    int n = 1;
    while (n < RING_TURNS && n < length && 2 * n * bytes <= RING_BYTES)
        n *= 2;
    return n;
}

/* A ring of steps, read ahead from the memory of the call. */
static bool read_ahead(turns *t, nb_solo_value *x, int64_t step)
{
    int64_t bytes = nb_solo_bytes(x);
    nb_solo_ahead a = {.from = x->at, .bytes = bytes, .step = step};
    a.turns = nb_solo_ring_turns(bytes, t->item.length);
    if (!nb_solo_memory(t->s, 2 * a.turns * bytes, -1, &a.to)) return false;
    t->s->slot[a.to.slot].constant = true; /* but between chunks */
    t->s->slot[a.to.slot].ring = true;
    x->at = nb_solo_moving(t->s, a.to, &t->item, bytes, 2 * a.turns);
    t->item.ahead[t->item.naheads++] = a;
    return true;
}

/* One step of an input: where it lies, or ahead, or copied each turn. */
static bool begin_step(turns *t, int i)
{
    const nb_tensor *x = t->c->in[t->j.from[i]];
    nb_solo_value v = t->in[t->j.from[i]];
    int axis = x->nlanes;
    int64_t step = v.stride[axis] * nb_solo_item_bytes(&v);
    nb_solo_value one = nb_solo_without(v, axis);
    int64_t bytes = nb_solo_bytes(&one);
    bool far = t->s->slot[one.at.slot].space == NB_SOLO_GIVEN;
    t->x[i] = one;
    if (far && nb_solo_is_packed(&one) && bytes && bytes <= AHEAD_BYTES)
        return read_ahead(t, &t->x[i], step);
    one.at = nb_solo_moving(t->s, one.at, &t->item, step, 0);
    return nb_solo_settle_value(t->s, &t->item.second, one, &t->x[i]);
}

/* All that a loop reads ahead it reads at the same turns. */
static void even_rings(turns *t)
{
    int least = RING_TURNS;
    for (int k = 0; k < t->item.naheads; k++)
        if (t->item.ahead[k].turns < least) least = t->item.ahead[k].turns;
    for (int k = 0; k < t->item.naheads; k++)
        t->item.ahead[k].turns = least;
    for (int i = 0; i < t->j.nx; i++) {
        nb_solo_at *at = &t->x[i].at;
        if (t->j.step[i] && at->nmoves && at->move[at->nmoves - 1].ring)
            at->move[at->nmoves - 1].ring = 2 * least;
    }
}

static bool begin_input(turns *t, int i)
{
    for (int k = 0; k < t->j.ny; k++)
        if (t->j.feeds[k] == i) return begin_carry(t, i);
    if (t->j.from[i] < 0) return nb_solo_unfit(t->s);
    if (t->j.step[i]) return begin_step(t, i);
    return nb_solo_settle_value(t->s, t->to, t->in[t->j.from[i]], &t->x[i]);
}

static void begin_result(turns *t, int k)
{
    if (t->j.feeds[k] >= 0) {
        t->y[k] = t->x[t->j.feeds[k]];
        t->y[k].at = as_next(t->y[k].at);
    } else if (t->j.stacked[k]) {
        const nb_solo_value *all = &t->out[t->j.to[k]];
        int axis = all->n - 1 -
                   t->c->op->region[0]
                       ->line[t->c->op->region[0]->result[k]]
                       .shape.rank;
        t->y[k] = nb_solo_without(*all, axis);
        t->y[k].at =
            nb_solo_moving(t->s, all->at, &t->item,
                           all->stride[axis] * nb_solo_item_bytes(all), 0);
    }
}

/* The test of a while: a flag of its own. */
static bool build_test(turns *t)
{
    nb_solo_value flag = {.dtype = NB_BOOL};
    bool ok = nb_solo_memory(t->s, 1, -1, &flag.at) &&
              nb_solo_add_plan(t->s, nb_solo_plan(t->s, t->c, 0, &t->j, 0),
                               t->x, &flag, &t->item.first);
    t->item.flag = flag.at;
    return ok;
}

static bool build_body(turns *t)
{
    bool open = t->item.length < 0;
    for (int k = 0; k < t->j.ny; k++)
        begin_result(t, k);
    bool ok = !open || build_test(t);
    return ok &&
           nb_solo_add_plan(t->s, nb_solo_plan(t->s, t->c, 0, &t->j, open),
                            t->x, t->y, &t->item.second);
}

static bool end_carries(turns *t)
{
    bool ok = true;
    for (int k = 0; ok && k < t->j.ny; k++)
        if (t->j.feeds[k] >= 0)
            ok = nb_solo_add_copy(t->s, t->to, &t->x[t->j.feeds[k]],
                                  &t->out[t->j.to[k]]);
    return ok;
}

static bool build_turns(turns *t)
{
    bool ok = true;
    for (int i = 0; ok && t->s->fits && i < t->j.nx; i++)
        ok = begin_input(t, i);
    even_rings(t);
    if (ok && t->s->fits) ok = build_body(t);
    if (ok && nb_solo_add(t->to, t->item)) return !t->s->fits || end_carries(t);
    nb_solo_list_free(&t->item.first), nb_solo_list_free(&t->item.second);
    nb_free(t->item.ahead);
    return false;
}

/* Loops of known length, and those of one pass that have a test. */
static bool build_loop(nb_solo *s, const nb_call *c, const nb_solo_value *in,
                       const nb_solo_value *out, nb_solo_list *to)
{
    nb_turns r = {.length = -1};
    turns t = {.s = s, .c = c, .in = in, .out = out, .to = to};
    bool known = c->op->repeats && c->op->repeats(c, &r);
    if (!nb_solo_joints(s, c, 0, &t.j)) return !nb_failed();
    size_t n = (size_t)(t.j.nx + t.j.ny) + 1;
    if (known ? t.j.turns != r.length : t.j.turns >= 0 || t.j.nruns != 2)
        nb_solo_unfit(s);
    t.item = (nb_solo_item){.kind = NB_SOLO_LOOP,
                            .loop = s->nloops++,
                            .length = r.length,
                            .reverse = r.reverse};
    t.item.ahead = nb_alloc_zero(n * sizeof *t.item.ahead);
    t.x = nb_alloc_zero(n * sizeof *t.x);
    t.y = t.x ? t.x + t.j.nx : NULL;
    bool ok = t.item.ahead && t.x;
    if (ok && s->fits)
        ok = build_turns(&t);
    else
        nb_free(t.item.ahead);
    nb_free(t.x);
    nb_joints_free(&t.j);
    return ok;
}

/* Branches */

static bool build_side(nb_solo *s, const nb_call *c, int side,
                       const nb_solo_value *in, const nb_solo_value *out,
                       nb_solo_item *to)
{
    nb_joints j;
    nb_solo_list *list = side ? &to->second : &to->first;
    if (!nb_solo_joints(s, c, side, &j)) return !nb_failed();
    nb_solo_value *x = nb_alloc((size_t)(j.nx + 1) * sizeof *x);
    bool ok = x;
    for (int i = 0; ok && i < j.nx; i++)
        ok = nb_solo_settle_value(s, list, in[j.from[i]], &x[i]);
    ok = ok &&
         nb_solo_add_plan(s, nb_solo_plan(s, c, side, &j, 0), x, out, list);
    nb_free(x);
    nb_joints_free(&j);
    return ok;
}

static bool build_branch(nb_solo *s, const nb_call *c, const nb_solo_value *in,
                         const nb_solo_value *out, nb_solo_list *to)
{
    nb_solo_item i = {.kind = NB_SOLO_BRANCH, .flag = in[0].at};
    if (nb_solo_bytes(&in[0]) != 1) return nb_solo_unfit(s);
    bool ok =
        build_side(s, c, 0, in, out, &i) && build_side(s, c, 1, in, out, &i);
    if (ok && nb_solo_add(to, i)) return true;
    nb_solo_list_free(&i.first), nb_solo_list_free(&i.second);
    return false;
}

bool nb_solo_add_call(nb_solo *s, const nb_call *c, const nb_solo_value *in,
                      const nb_solo_value *out, nb_solo_list *to)
{
    return (c->op->region[1] ? build_branch : build_loop)(s, c, in, out, to);
}

/* The whole */

/* An input of the call, or a result, given without its lanes. */
static bool take(nb_solo *s, bool constant, nb_solo_value *v)
{
    int64_t item = nb_solo_item_bytes(v);
    if (!nb_solo_given(s, constant, &v->at)) return false;
    nb_solo_slot *slot = &s->slot[v->at.slot];
    slot->dtype = v->dtype;
    for (int l = 0; l < s->nlanes; l++) {
        slot->lane[l] = v->size[0] == 1 ? 0 : v->stride[0] * item;
        *v = nb_solo_without(*v, 0);
    }
    if (nb_solo_is_packed(v)) slot->bytes = nb_solo_bytes(v);
    return true;
}

/* x as the call would have it in all lanes: those it lacks are of one point. */
static nb_solo_value in_lanes(const nb_tensor *x, const nb_shape *lanes)
{
    nb_shape is = nb_tensor_shape(x);
    nb_solo_value v = nb_solo_of_tensor((nb_solo_at){0}, x), y = v;
    y.n = lanes->nlanes + is.rank;
    for (int l = 0; l < lanes->nlanes; l++) {
        int at = nb_shape_find_lane(&is, lanes->lane[l].id);
        y.size[l] = at < 0 ? 1 : v.size[at];
        y.stride[l] = at < 0 ? 0 : v.stride[at];
    }
    for (int a = 0; a < is.rank; a++) {
        y.size[lanes->nlanes + a] = v.size[is.nlanes + a];
        y.stride[lanes->nlanes + a] = v.stride[is.nlanes + a];
    }
    return y;
}

/* The call on stand-ins without lanes; those of x are shared out if the solo
 * says so. */
static bool build(nb_solo *s, const nb_call *c, const nb_shape *lanes)
{
    int nout = c->op->nout ? c->op->nout : 1;
    nb_call alone = *c;
    nb_solo_value *v = nb_alloc_zero((size_t)(c->nin + nout + 1) * sizeof *v);
    nb_tensor **x = nb_alloc_zero((size_t)(c->nin + 1) * sizeof *x);
    bool ok = v && x;
    s->fits = true;
    for (int i = 0; ok && i < c->nin; i++) {
        nb_shape shape = nb_tensor_shape(c->in[i]);
        v[i] = s->nlanes ? in_lanes(c->in[i], lanes)
                         : nb_solo_of_tensor((nb_solo_at){0}, c->in[i]);
        if (s->nlanes) shape.nlanes = 0;
        ok = take(s, true, &v[i]) &&
             (x[i] = s->nlanes ? nb_node_new(NULL, NULL, v[i].dtype, &shape, 0,
                                             NULL, 0, NULL)
                               : c->in[i]);
    }
    alone.in = x;
    for (int i = 0; ok && i < nout; i++) {
        nb_shape shape;
        nb_dtype d;
        ok = c->op->result(c, i, &shape, &d);
        if (!ok) break;
        v[c->nin + i] = nb_solo_packed((nb_solo_at){0}, d, &shape);
        ok = take(s, false, &v[c->nin + i]);
    }
    ok = ok && nb_solo_add_call(s, &alone, v, v + c->nin, &s->list);
    nb_free(v), nb_free(x);
    return ok;
}

bool nb_solo_build(nb_solo *s, const nb_call *c)
{
    return build(s, c, NULL);
}

static bool moves_lanes(const nb_graph *g)
{
    for (int k = 0; k < g->n; k++) {
        const nb_op *op = g->line[k].op;
        if (nb_op_moves_lanes(op)) return true;
        for (int r = 0; op && r < 2; r++)
            if (op->region[r] && moves_lanes(op->region[r])) return true;
    }
    return false;
}

/* The lanes of all inputs; false if a result lacks one, or programs mix them. */
static bool find_lanes(const nb_call *c, nb_shape *lanes)
{
    int nout = c->op->nout ? c->op->nout : 1;
    *lanes = (nb_shape){0};
    for (int i = 0; i < c->nin; i++) {
        nb_shape is = nb_tensor_shape(c->in[i]);
        for (int l = 0; l < is.nlanes; l++)
            if (!is.lane[l].thin) nb_shape_add_lane(lanes, is.lane[l]);
    }
    bool ok = lanes->nlanes && lanes->nlanes <= NB_SOLO_LANES;
    for (int r = 0; ok && r < 2; r++)
        ok = !c->op->region[r] || !moves_lanes(c->op->region[r]);
    for (int k = 0; ok && k < nout; k++) {
        nb_shape shape;
        nb_dtype d;
        ok = c->op->result(c, k, &shape, &d) && shape.nlanes == lanes->nlanes;
        for (int l = 0; ok && l < shape.nlanes; l++)
            ok = !shape.lane[l].thin && shape.lane[l].id == lanes->lane[l].id;
    }
    return ok;
}

bool nb_solo_build_lanes(nb_solo *s, const nb_call *c)
{
    nb_shape lanes;
    if (!find_lanes(c, &lanes)) return !nb_failed();
    s->nlanes = lanes.nlanes;
    for (int l = 0; l < lanes.nlanes; l++)
        s->lane[l] = nb_extent_get(lanes.lane[l].size);
    if (nb_solo_blocks(s) == 0) return nb_solo_unfit(s);
    return build(s, c, &lanes);
}

int64_t nb_solo_blocks(const nb_solo *s)
{
    int64_t n = 1;
    for (int l = 0; l < s->nlanes; l++)
        n *= s->lane[l];
    return n;
}

void nb_solo_free(nb_solo *s)
{
    nb_solo_list_free(&s->list);
    nb_free(s->slot);
    for (int k = 0; k < s->ncaptured; k++)
        nb_drop(s->captured[k]);
    nb_free(s->captured);
}

bool nb_solo_each(nb_solo_list *l, bool (*f)(void *ctx, nb_solo_item *i),
                  void *ctx)
{
    for (int k = 0; k < l->n; k++) {
        nb_solo_item *i = &l->item[k];
        if (!f(ctx, i) || !nb_solo_each(&i->first, f, ctx) ||
            !nb_solo_each(&i->second, f, ctx))
            return false;
    }
    return true;
}
