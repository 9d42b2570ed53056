/* while.c - a loop until a test fails, as one op.
 *
 * Forward mode is a loop over states and their tangents.  For reverse mode the
 * steps are counted by running the loop, and so many steps of a scan are walked
 * back.  A test that differs from lane to lane is masked: the loop goes on
 * while any lane does, and lanes that are done keep their state. */
#include "transform/derive.h"
#include "transform/region.h"

#include "core/lanes.h"
#include "ops/ops.h"

#include <string.h>

/* Inputs: the states, what the test closes over, what the body does.  region 0
 * is the test, region 1 the body. */
typedef struct repeat {
    nb_op op; /* first: a node points to it */
    int n, captured[2];
} repeat;

static const repeat *repeat_of(const nb_call *c)
{
    return (const repeat *)c->op;
}

static void release(nb_op *op)
{
    nb_graph_free(op->region[0]);
    nb_graph_free(op->region[1]);
    nb_free(op);
}

static void side_inputs(const repeat *r, int side, nb_tensor *const *state,
                        nb_tensor *const *in, nb_tensor **to)
{
    int from = r->n + (side ? r->captured[0] : 0);
    for (int i = 0; i < r->n; i++)
        to[i] = state[i];
    for (int i = 0; i < r->captured[side]; i++)
        to[r->n + i] = in[from + i];
}

/* States have the type of the body's stand-ins. */
static bool result(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    const repeat *r = repeat_of(c);
    const nb_graph *g = r->op.region[1];
    int id[NB_MAX_GRAPH_LANES + 1];
    nb_tensor **in = nb_array(c->nin);
    if (!in) return false;
    side_inputs(r, 1, c->in, c->in, in);
    nb_graph_match(g, in, id);
    nb_free(in);
    *out = (nb_shape){.rank = g->line[k].shape.rank};
    memcpy(out->size, g->line[k].shape.size, sizeof out->size);
    for (int d = 0; d < g->line[k].shape.nlanes; d++) {
        nb_lane lane = g->line[k].shape.lane[d];
        lane.id = id[lane.id];
        nb_shape_add_lane(out, lane);
    }
    *dtype = g->line[k].dtype;
    return true;
}

static nb_tensor *settled(nb_tensor *x, const nb_shape *s)
{
    int64_t n;
    nb_shape_count(s, &n);
    nb_buffer *b = nb_buffer_new((size_t)n * nb_dtype_size((nb_dtype)x->dtype));
    nb_tensor *y =
        b ? nb_leaf_new((nb_dtype)x->dtype, s, b, b->data, NULL) : NULL;
    nb_buffer_drop(b);
    return y && nb_copy_into(y->data, s, x) ? y : NULL;
}

/* One turn: *on says whether the test held; the states (owned) are replaced. */
static bool turn(const nb_call *c, nb_tensor **state, const nb_shape *shape,
                 nb_tensor **room, bool *on)
{
    const repeat *r = repeat_of(c);
    nb_tensor **y = room + c->nin;
    if (nb_scope_open() != NB_OK) return false;
    side_inputs(r, 0, state, c->in, room);
    bool ok = nb_region_run(r->op.region[0], r->n + r->captured[0], room, y);
    *on = ok && *y[0]->data;
    if (*on) {
        side_inputs(r, 1, state, c->in, room);
        ok = nb_region_run(r->op.region[1], r->n + r->captured[1], room, y);
        for (int k = 0; ok && k < r->n; k++)
            ok = (y[k] = nb_keep(settled(y[k], &shape[k])));
        for (int k = 0; ok && k < r->n; k++) {
            nb_drop(state[k]);
            state[k] = y[k];
        }
    }
    nb_scope_close(0, NULL);
    return ok;
}

static bool execute(const nb_call *c, char *const *to)
{
    const repeat *r = repeat_of(c);
    nb_shape *shape = nb_alloc((size_t)(r->n + 1) * sizeof *shape);
    nb_tensor **state = nb_array(r->n), **room = nb_array(c->nin + r->n + 1);
    bool ok = shape && state && room && nb_scope_open() == NB_OK, on = true;
    bool open = ok;
    for (int k = 0; ok && k < r->n; k++) {
        nb_dtype d;
        ok = result(c, k, &shape[k], &d) &&
             (state[k] = nb_keep(settled(c->in[k], &shape[k])));
    }
    if (open) nb_scope_close(0, NULL);
    while (ok && on)
        ok = turn(c, state, shape, room, &on);
    for (int k = 0; ok && k < r->n; k++)
        ok = nb_copy_into(to[k], &shape[k], state[k]);
    for (int k = 0; state && k < r->n; k++)
        nb_drop(state[k]);
    nb_free(state), nb_free(shape), nb_free(room);
    return ok;
}

/* Derivatives */

typedef struct around {
    const nb_call *c;
    nb_tensor *const *u;
} around;

static bool is_real(const nb_tensor *x)
{
    return nb_dtype_is_float((nb_dtype)x->dtype);
}

static nb_status test_again(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    const around *a = ctx;
    const repeat *r = repeat_of(a->c);
    nb_tensor **in = nb_array(a->c->nin);
    (void)nx;
    if (!in) return NB_STATUS(false);
    side_inputs(r, 0, x, a->c->in, in);
    *ny = 1;
    nb_status s = nb_graph_run(r->op.region[0], r->n + r->captured[0], in, y);
    nb_free(in);
    return s;
}

/* (state, tangent) -> (state, tangent) */
static nb_status push_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const around *a = ctx;
    const repeat *r = repeat_of(a->c);
    int n = r->n + r->captured[1], from = r->n + r->captured[0];
    nb_tensor **in = nb_array(n), **fresh = nb_array(n), **u = nb_array(n);
    nb_tape *tape = NULL;
    bool ok = in && fresh && u;
    (void)nx;
    if (ok) side_inputs(r, 1, x, a->c->in, in);
    for (int i = 0; ok && i < n; i++)
        u[i] = !is_real(in[i]) ? NULL
               : i < r->n      ? x[r->n + i]
                               : a->u[from + i - r->n];
    ok = ok && (tape = nb_tape_open_inner(n, in, fresh)) &&
         nb_graph_run(r->op.region[1], n, fresh, y) == NB_OK &&
         nb_tape_close(tape, r->n, y) == NB_OK &&
         nb_tape_push(tape, u, y + r->n) == NB_OK;
    for (int k = 0; ok && k < r->n; k++)
        ok = (y[r->n + k] = nb_or_zeros(y[r->n + k], y[k]));
    *ny = 2 * r->n;
    nb_tape_drop(tape);
    nb_free(in), nb_free(fresh), nb_free(u);
    return NB_STATUS(ok);
}

static bool push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    const repeat *r = repeat_of(c);
    around a = {c, u};
    nb_tensor **init = nb_array(2 * r->n), **y = nb_array(2 * r->n);
    bool ok = init && y;
    for (int k = 0; ok && k < r->n; k++) {
        init[k] = c->in[k];
        ok = (init[r->n + k] = nb_or_zeros(u[k], c->in[k]));
    }
    ok = ok && nb_while(nb_func_new(test_again, &a), nb_func_new(push_body, &a),
                        2 * r->n, init, y) == NB_OK;
    for (int k = 0; ok && k < r->n; k++)
        uy[k] = is_real(y[k]) ? y[r->n + k] : NULL;
    nb_free(init), nb_free(y);
    return ok;
}

static nb_status plain_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    const around *a = ctx;
    const repeat *r = repeat_of(a->c);
    nb_tensor **in = nb_array(a->c->nin);
    (void)nx;
    if (!in) return NB_STATUS(false);
    side_inputs(r, 1, x, a->u ? a->u : a->c->in, in);
    nb_status s = nb_graph_run(r->op.region[1], r->n + r->captured[1], in, y);
    *ny = r->n;
    nb_free(in);
    return s;
}

/* (state, i) -> (state, i + 1) */
static nb_status count_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    nb_status s = plain_body(ctx, nx - 1, x, ny, y);
    y[nx - 1] = nb_add(x[nx - 1], nb_count(1));
    *ny = nx;
    return s;
}

static bool count_turns(const nb_call *c, int64_t *turns)
{
    const repeat *r = repeat_of(c);
    around a = {c, NULL};
    nb_tensor **init = nb_array(r->n + 1), **y = nb_array(r->n + 1);
    bool ok = init && y;
    for (int k = 0; ok && k < r->n; k++)
        init[k] = c->in[k];
    if (ok) init[r->n] = nb_scalar_int(0, NB_I64);
    ok =
        ok && nb_while(nb_func_new(test_again, &a), nb_func_new(count_body, &a),
                       r->n + 1, init, y) == NB_OK;
    ok = ok && nb_realize_now(1, &y[r->n]) &&
         nb_read(y[r->n], NB_I64, turns) == NB_OK;
    nb_free(init), nb_free(y);
    return ok;
}

static bool pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    const repeat *r = repeat_of(c);
    int64_t turns;
    nb_tensor **fresh = nb_array(c->nin), **y = nb_array(r->n);
    nb_tape *tape = NULL;
    int ny = r->n;
    bool ok = fresh && y && count_turns(c, &turns) &&
              (tape = nb_tape_open_inner(c->nin, c->in, fresh));
    around a = {c, fresh};
    ok = ok &&
         nb_scan(nb_func_new(plain_body, &a), r->n, fresh, 0, NULL, turns,
                 false, &ny, y) == NB_OK &&
         nb_tape_close(tape, r->n, y) == NB_OK &&
         nb_tape_pull(tape, ct, cx) == NB_OK;
    nb_tape_drop(tape);
    nb_free(fresh), nb_free(y);
    return ok;
}

/* Recording */

/* A loop whose test has lanes: on while any lane is, where its own is. */
typedef struct masked {
    nb_func *test, *body;
} masked;

static nb_tensor *test_of(nb_func *f, int n, nb_tensor *const *x)
{
    nb_tensor *p = nb_func_call1(f, n, x);
    if (p && nb_elements(p) != 1)
        return nb_fail(NB_EVALUE,
                       "while: the test gives a scalar, not %lld "
                       "elements",
                       (long long)nb_elements(p));
    return nb_cast(nb_reshape(p, 0, NULL), NB_BOOL);
}

static nb_status any_lane(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    const masked *m = ctx;
    nb_tensor *p = test_of(m->test, nx, x);
    while (p && p->nlanes) {
        nb_lane lane = nb_tensor_lane(p)[0];
        p = nb_any(nb_show(p, 0, lane), 1, (int64_t[]){0}, false);
    }
    y[0] = p;
    *ny = 1;
    return NB_STATUS(p);
}

static nb_status masked_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    const masked *m = ctx;
    nb_tensor *p = test_of(m->test, nx, x);
    bool ok = p && nb_run(m->body, nx, x, ny, y);
    bool mask = false;
    for (int l = 0; ok && l < p->nlanes; l++)
        mask = mask || !nb_tensor_lane(p)[l].thin;
    for (int k = 0; ok && mask && k < *ny && k < nx; k++)
        ok = (y[k] = nb_where(p, y[k], x[k]));
    return NB_STATUS(ok);
}

static bool fits(const nb_region *r, int n, nb_tensor *const *x)
{
    if (r->ny != n)
        return nb_fail(NB_EVALUE, "while: %d states, the body returns %d", n,
                       r->ny);
    for (int k = 0; k < n; k++) {
        const nb_line *out = nb_region_result(r->graph, k);
        nb_shape in = nb_tensor_shape(x[k]);
        bool same = out->dtype == x[k]->dtype && out->shape.rank == in.rank;
        for (int d = 0; same && d < in.rank; d++)
            same = nb_extent_same(out->shape.size[d], in.size[d]);
        if (!same)
            return nb_fail(
                NB_EVALUE, "while: state %d is %s%s and comes back as %s%s", k,
                nb_dtype_brief((nb_dtype)x[k]->dtype), nb_shape_text(&in),
                nb_dtype_brief(out->dtype), nb_shape_text(&out->shape));
    }
    return true;
}

/* Test and body on the same stand-ins, whose lanes are a fixed point. */
static bool record_both(nb_region *r, masked *m, int n, nb_tensor *const *init)
{
    nb_shape *shape = nb_alloc((size_t)(n + 1) * sizeof *shape);
    nb_tensor **x = nb_array(n);
    bool ok = shape && x, again = true;
    for (int k = 0; ok && k < n; k++)
        shape[k] = nb_tensor_shape(init[k]);
    while (ok && again) {
        again = false;
        for (int k = 0; ok && k < n; k++)
            ok = (x[k] = nb_stand_in((nb_dtype)init[k]->dtype, &shape[k]));
        ok = ok && nb_region_record(&r[0], nb_func_new(any_lane, m), n, x) &&
             nb_region_record(&r[1], nb_func_new(masked_body, m), n, x) &&
             fits(&r[1], n, x);
        for (int k = 0; ok && k < n; k++) {
            const nb_line *l = nb_region_result(r[1].graph, k);
            nb_shape out = l->shape;
            for (int d = 0; d < out.nlanes; d++)
                out.lane[d].id = r[1].graph->lane_id[out.lane[d].id - 1];
            again = nb_lanes_widen(&shape[k], &out) || again;
        }
        if (!ok || again) {
            nb_region_free(&r[0]);
            nb_region_free(&r[1]);
        }
    }
    nb_free(shape), nb_free(x);
    return ok;
}

static nb_op *repeat_new(nb_region *r, int n)
{
    repeat *w = nb_alloc_zero(sizeof *w);
    if (!w) return NULL;
    w->op.name = "while_loop";
    w->op.kind = NB_RULE;
    w->op.nout = n;
    w->op.result = result;
    w->op.execute = execute;
    w->op.push = push;
    w->op.pull = pull;
    w->op.release = release;
    nb_op_without_params(&w->op);
    w->n = n;
    for (int side = 0; side < 2; side++) {
        w->op.region[side] = r[side].graph;
        w->captured[side] = r[side].ncaptured;
        r[side].graph = NULL;
    }
    return &w->op;
}

static bool apply(nb_region *r, int n, nb_tensor *const *init, nb_tensor **y)
{
    nb_tensor **in = nb_array(n + r[0].ncaptured + r[1].ncaptured);
    nb_results results = {.room = n, .out = y};
    int at = n;
    if (!in) return false;
    for (int k = 0; k < n; k++) {
        const nb_shape *s = &r[1].graph->line[k].shape;
        in[k] = init[k];
        for (int l = 0; l < s->nlanes; l++) {
            nb_lane lane = s->lane[l];
            lane.id = r[1].graph->lane_id[lane.id - 1];
            in[k] = nb_spread(in[k], lane);
        }
    }
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < r[side].ncaptured; i++)
            in[at++] = r[side].captured[i];
    nb_op *op = repeat_new(r, n);
    bool ok = op && nb_record_many(op, at, in, 0, NULL, &results);
    nb_op_leave(op);
    nb_free(in);
    return ok;
}

nb_status nb_while(nb_func *test, nb_func *body, int n, nb_tensor *const *init,
                   nb_tensor **y)
{
    masked m = {test, body};
    nb_region r[2] = {{0}, {0}};
    bool ok = test && body && n > 0;
    for (int k = 0; ok && k < n; k++)
        ok = init[k];
    ok = ok && nb_scope_open() == NB_OK;
    if (!ok) return NB_STATUS(false);
    ok = record_both(r, &m, n, init) && apply(r, n, init, y);
    nb_region_free(&r[0]);
    nb_region_free(&r[1]);
    nb_scope_close(ok ? n : 0, y);
    return NB_STATUS(ok);
}
