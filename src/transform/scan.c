/* scan.c - a loop over a leading axis, as one op.
 *
 * Its derivatives are scans again: forward, the carry and its tangent go
 * together; backward, a scan the other way over the states that a first scan
 * saved.  Both are made by recording the body once more with a tape around it,
 * so they differentiate and map in turn. */
#include "transform/derive.h"
#include "transform/region.h"

#include "core/lanes.h"
#include "ops/ops.h"

#include <string.h>

typedef struct scan {
    nb_op op; /* first: a node points to it */
    nb_graph *body;
    int nc, nx, nk, ny; /* carry, xs, closed over; ys */
    int64_t length;
    bool reverse;
} scan;

static const scan *scan_of(const nb_call *c)
{
    return (const scan *)c->op;
}

static void release(nb_op *op)
{
    scan *s = (scan *)op;
    nb_graph_free(s->body);
    nb_free(s);
}

/* x without its leading visible axis. */
static nb_shape slice_shape(const nb_tensor *x)
{
    nb_shape s = nb_tensor_shape(x);
    memmove(s.size, s.size + 1, (size_t)--s.rank * sizeof s.size[0]);
    return s;
}

static nb_shape actual(const nb_line *l, const int *id)
{
    nb_shape s = {.rank = l->shape.rank};
    memcpy(s.size, l->shape.size, sizeof s.size);
    for (int k = 0; k < l->shape.nlanes; k++) {
        nb_lane lane = l->shape.lane[k];
        lane.id = id[lane.id];
        nb_shape_add_lane(&s, lane);
    }
    return s;
}

static bool result(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    const scan *s = scan_of(c);
    int id[NB_MAX_GRAPH_LANES + 1];
    nb_graph_match(s->body, c->in, id);
    const nb_line *l =
        k < s->nc ? &s->body->line[k] : nb_region_result(s->body, k);
    *out = actual(l, id);
    *dtype = l->dtype;
    if (k < s->nc) return true;
    if (out->rank == NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "scan: a stacked result has rank above %d",
                       NB_MAX_RANK);
    memmove(out->size + 1, out->size, (size_t)out->rank++ * sizeof *out->size);
    out->size[0] = nb_extent_of(s->length);
    return nb_shape_check(out, *dtype, "scan");
}

/* Running */

/* A leaf that looks at step t of x. */
static nb_tensor *step_of(nb_tensor *x, int64_t t)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    nb_shape s = slice_shape(x);
    int n = nb_tensor_strides(x, size, stride), axis = x->nlanes;
    char *at =
        x->data + t * stride[axis] * (int64_t)nb_dtype_size((nb_dtype)x->dtype);
    memmove(stride + axis, stride + axis + 1,
            (size_t)(n - axis - 1) * sizeof *stride);
    nb_buffer *b = x->buffer ? nb_buffer_keep(x->buffer) : nb_buffer_new(8);
    nb_tensor *y = nb_leaf_new((nb_dtype)x->dtype, &s, b, at, stride);
    nb_buffer_drop(b);
    return y;
}

/* A leaf of that shape with x in it. */
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

static bool same_layout(const nb_tensor *x, const nb_shape *s)
{
    bool same = x->nlanes == s->nlanes && nb_tensor_is_packed(x);
    for (int l = 0; same && l < s->nlanes; l++)
        same = nb_tensor_lane(x)[l].thin == s->lane[l].thin;
    return same;
}

/* Where step t of a stacked result goes: its visible axis 0 lies behind the
 * lanes, so with lanes the steps are apart. */
static bool put_step(char *to, const nb_shape *whole, nb_tensor *y, int64_t t)
{
    nb_shape one = *whole;
    int64_t lanes = 1, inner, item = (int64_t)nb_dtype_size(y->dtype);
    memmove(one.size, one.size + 1, (size_t)--one.rank * sizeof one.size[0]);
    for (int l = 0; l < one.nlanes; l++)
        lanes *= nb_extent_get(nb_lane_stored(one.lane[l]));
    nb_shape_count(&one, &inner);
    if (inner == 0) return true;
    inner /= lanes;
    if (lanes == 1) return nb_copy_into(to + t * inner * item, &one, y);
    char *packed = nb_alloc((size_t)(lanes * inner * item));
    if (!packed) return false;
    nb_copy_into(packed, &one, y);
    int64_t length = nb_extent_get(whole->size[0]);
    for (int64_t l = 0; l < lanes; l++)
        memcpy(to + (l * length + t) * inner * item, packed + l * inner * item,
               (size_t)(inner * item));
    nb_free(packed);
    return true;
}

/* One step: carry (owned) is replaced. */
static bool step(const nb_call *c, int64_t t, nb_tensor **carry,
                 const nb_shape *shape, char *const *to)
{
    const scan *s = scan_of(c);
    int n = s->nc + s->nx + s->nk;
    nb_tensor **in = nb_array(n), **out = nb_array(s->nc + s->ny);
    bool ok = in && out && nb_scope_open() == NB_OK;
    if (!ok) return nb_free(in), nb_free(out), false;
    for (int i = 0; ok && i < n; i++) {
        in[i] = i < s->nc           ? carry[i]
                : i < s->nc + s->nx ? step_of(c->in[i], t)
                                    : c->in[i];
        ok = in[i];
    }
    ok = ok && nb_region_run(s->body, n, in, out);
    for (int k = 0; ok && k < s->ny; k++)
        ok = put_step(to[s->nc + k], &shape[s->nc + k], out[s->nc + k], t);
    for (int k = 0; ok && k < s->nc; k++)
        if (!same_layout(out[k], &shape[k]))
            ok = (out[k] = settled(out[k], &shape[k]));
    for (int k = 0; ok && k < s->nc; k++)
        nb_keep(out[k]);
    for (int k = 0; ok && k < s->nc; k++) {
        nb_drop(carry[k]);
        carry[k] = out[k];
    }
    nb_scope_close(0, NULL);
    nb_free(in);
    nb_free(out);
    return ok;
}

static bool execute(const nb_call *c, char *const *to)
{
    const scan *s = scan_of(c);
    int n = s->nc + s->ny;
    nb_shape *shape = nb_alloc((size_t)(n + 1) * sizeof *shape);
    nb_tensor **carry = nb_array(s->nc);
    bool ok = shape && carry && nb_scope_open() == NB_OK;
    bool open = ok;
    for (int k = 0; ok && k < n; k++) {
        nb_dtype d;
        ok = result(c, k, &shape[k], &d);
    }
    for (int k = 0; ok && k < s->nc; k++)
        ok = (carry[k] = nb_keep(settled(c->in[k], &shape[k])));
    if (open) nb_scope_close(0, NULL);
    for (int64_t i = 0; ok && i < s->length; i++)
        ok = step(c, s->reverse ? s->length - 1 - i : i, carry, shape, to);
    for (int k = 0; ok && k < s->nc; k++)
        ok = nb_copy_into(to[k], &shape[k], carry[k]);
    for (int k = 0; carry && k < s->nc; k++)
        nb_drop(carry[k]);
    nb_free(carry);
    nb_free(shape);
    return ok;
}

/* Derivatives */

/* What a differentiated body closes over: the call, and per input of it which
 * moves. */
typedef struct around {
    const nb_call *c;
    const scan *s;
    nb_tensor *const *u; /* tangents of all inputs, NULL where none */
    bool *moves;         /* carries and xs that have a tangent or cotangent */
    nb_tensor **full;    /* room for all inputs of the body */
} around;

static bool is_real(const nb_tensor *x)
{
    return nb_dtype_is_float((nb_dtype)x->dtype);
}

static bool open_tape(const around *a, nb_tensor *const *in, nb_tape **tape,
                      nb_tensor **fresh, nb_tensor **out)
{
    int n = a->s->nc + a->s->nx + a->s->nk, ny = a->s->nc + a->s->ny;
    *tape = nb_tape_open_inner(n, in, fresh);
    return *tape && nb_graph_run(a->s->body, n, fresh, out) == NB_OK &&
           nb_tape_close(*tape, ny, out) == NB_OK;
}

/* (carry, dcarry, x, dx) -> (carry, dcarry, y, dy) */
static nb_status push_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const around *a = ctx;
    const scan *s = a->s;
    int n = s->nc + s->nx + s->nk, m = s->nc + s->ny;
    nb_tensor **in = nb_array(n), **u = nb_array(n), **fresh = nb_array(n);
    nb_tensor **out = nb_array(m), **uy = nb_array(m);
    nb_tape *tape = NULL;
    bool ok = in && u && fresh && out && uy;
    (void)nx;
    for (int i = 0; ok && i < s->nc; i++)
        in[i] = x[i], u[i] = x[s->nc + i];
    for (int i = 0; ok && i < s->nx; i++) {
        in[s->nc + i] = x[2 * s->nc + i];
        u[s->nc + i] = x[2 * s->nc + s->nx + i];
    }
    for (int i = s->nc + s->nx; ok && i < n; i++)
        in[i] = a->c->in[i], u[i] = a->u[i];
    for (int i = 0; ok && i < n; i++)
        if (!is_real(in[i])) u[i] = NULL;
    ok = ok && open_tape(a, in, &tape, fresh, out) &&
         nb_tape_push(tape, u, uy) == NB_OK;
    for (int k = 0; ok && k < m; k++)
        ok = (uy[k] = nb_or_zeros(uy[k], out[k]));
    for (int k = 0; ok && k < s->nc; k++)
        y[k] = out[k], y[s->nc + k] = uy[k];
    for (int k = 0; ok && k < s->ny; k++)
        y[2 * s->nc + k] = out[s->nc + k],
                      y[2 * s->nc + s->ny + k] = uy[s->nc + k];
    *ny = 2 * m;
    nb_tape_drop(tape);
    nb_free(in), nb_free(u), nb_free(fresh), nb_free(out), nb_free(uy);
    return NB_STATUS(ok);
}

static bool push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    const scan *s = scan_of(c);
    around a = {.c = c, .s = s, .u = u};
    int n = 2 * s->nc, m = 2 * s->nx, ny = 2 * (s->nc + s->ny);
    nb_tensor **init = nb_array(n), **xs = nb_array(m), **y = nb_array(ny);
    bool ok = init && xs && y;
    for (int i = 0; ok && i < s->nc; i++) {
        init[i] = c->in[i];
        ok = (init[s->nc + i] = nb_or_zeros(u[i], c->in[i]));
    }
    for (int i = 0; ok && i < s->nx; i++) {
        xs[i] = c->in[s->nc + i];
        ok = (xs[s->nx + i] = nb_or_zeros(u[s->nc + i], xs[i]));
    }
    nb_func *body = ok ? nb_func_new(push_body, &a) : NULL;
    ok = ok &&
         nb_scan(body, n, init, m, xs, s->length, s->reverse, &ny, y) == NB_OK;
    for (int k = 0; ok && k < s->nc; k++)
        uy[k] = is_real(y[k]) ? y[s->nc + k] : NULL;
    for (int k = 0; ok && k < s->ny; k++)
        uy[s->nc + k] = is_real(y[n + k]) ? y[n + s->ny + k] : NULL;
    nb_free(init), nb_free(xs), nb_free(y);
    return ok;
}

/* (carry, x) -> (carry, carry as it came): the states of the loop. */
static nb_status states_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    const around *a = ctx;
    const scan *s = a->s;
    int n = nx + s->nk;
    nb_tensor **in = nb_array(n), **out = nb_array(s->nc + s->ny);
    bool ok = in && out;
    for (int i = 0; ok && i < n; i++)
        in[i] = i < nx ? x[i] : a->c->in[i];
    ok = ok && nb_graph_run(s->body, n, in, out) == NB_OK;
    for (int k = 0; ok && k < s->nc; k++)
        y[k] = out[k], y[s->nc + k] = x[k];
    *ny = 2 * s->nc;
    nb_free(in), nb_free(out);
    return NB_STATUS(ok);
}

/* Carry: cotangents of the carry, then of what is closed over, summed up.
 * Steps: states, xs, cotangents of ys.  Gives: cotangents of xs. */
static nb_status pull_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const around *a = ctx;
    const scan *s = a->s;
    int n = s->nc + s->nx + s->nk, m = s->nc + s->ny, at = 0;
    nb_tensor *const *ct = x, *const *sum = ct + s->nc;
    nb_tensor *const *state = sum + s->nk, *const *steps = state + s->nc;
    nb_tensor *const *cy = steps + s->nx;
    nb_tensor **in = nb_array(n), **fresh = nb_array(n), **cx = nb_array(n);
    nb_tensor **out = nb_array(m), **cout = nb_array(m);
    nb_tape *tape = NULL;
    bool ok = in && fresh && cx && out && cout;
    (void)nx;
    for (int i = 0; ok && i < n; i++)
        in[i] = i < s->nc           ? state[i]
                : i < s->nc + s->nx ? steps[i - s->nc]
                                    : a->c->in[i];
    ok = ok && open_tape(a, in, &tape, fresh, out);
    for (int k = 0; ok && k < m; k++)
        cout[k] = !is_real(out[k]) ? NULL : k < s->nc ? ct[k] : cy[k - s->nc];
    ok = ok && nb_tape_pull(tape, cout, cx) == NB_OK;
    for (int i = 0; ok && i < s->nc; i++)
        ok = (y[at++] = nb_or_zeros(cx[i], in[i]));
    for (int i = s->nc + s->nx; ok && i < n; i++) {
        nb_tensor *old = sum[i - s->nc - s->nx];
        ok = (y[at++] = cx[i] ? nb_add(old, cx[i]) : old);
    }
    for (int i = s->nc; ok && i < s->nc + s->nx; i++)
        ok = (y[at++] = nb_or_zeros(cx[i], in[i]));
    *ny = at;
    nb_tape_drop(tape);
    nb_free(in), nb_free(fresh), nb_free(cx), nb_free(out), nb_free(cout);
    return NB_STATUS(ok);
}

static bool pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    const scan *s = scan_of(c);
    around a = {.c = c, .s = s};
    int n = s->nc + s->nk, m = s->nc + s->nx + s->ny;
    int ns = 2 * s->nc, ny = n + s->nx;
    nb_tensor **saved = nb_array(ns), **init = nb_array(n);
    nb_tensor **xs = nb_array(m), **y = nb_array(ny);
    bool ok = saved && init && xs && y;
    ok = ok &&
         nb_scan(nb_func_new(states_body, &a), s->nc, c->in, s->nx,
                 c->in + s->nc, s->length, s->reverse, &ns, saved) == NB_OK;
    for (int i = 0; ok && i < s->nc; i++)
        ok = (init[i] = nb_or_zeros(ct[i], c->in[i]));
    for (int i = 0; ok && i < s->nk; i++)
        ok = (init[s->nc + i] = nb_or_zeros(NULL, c->in[s->nc + s->nx + i]));
    for (int i = 0; ok && i < s->nc; i++)
        xs[i] = saved[s->nc + i];
    for (int i = 0; ok && i < s->nx; i++)
        xs[s->nc + i] = c->in[s->nc + i];
    for (int k = 0; ok && k < s->ny; k++) {
        nb_shape shape;
        nb_dtype d;
        ok = result(c, s->nc + k, &shape, &d);
        nb_tensor *like = ok && !ct[s->nc + k] ? nb_stand_in(d, &shape) : NULL;
        xs[s->nc + s->nx + k] = nb_or_zeros(ct[s->nc + k], like);
        ok = ok && xs[s->nc + s->nx + k];
    }
    ok = ok && nb_scan(nb_func_new(pull_body, &a), n, init, m, xs, s->length,
                       !s->reverse, &ny, y) == NB_OK;
    for (int i = 0; ok && i < s->nc + s->nx + s->nk; i++) {
        int at = i < s->nc ? i : i >= s->nc + s->nx ? i - s->nx : n + i - s->nc;
        cx[i] = is_real(c->in[i]) ? y[at] : NULL;
    }
    nb_free(saved), nb_free(init), nb_free(xs), nb_free(y);
    return ok;
}

/* Recording */

static bool carries_fit(const nb_region *r, int nc, nb_tensor *const *x)
{
    for (int k = 0; k < nc; k++) {
        const nb_line *out = nb_region_result(r->graph, k);
        nb_shape in = nb_tensor_shape(x[k]);
        bool same = out->dtype == x[k]->dtype && out->shape.rank == in.rank;
        for (int d = 0; same && d < in.rank; d++)
            same = nb_extent_same(out->shape.size[d], in.size[d]);
        if (!same)
            return nb_fail(
                NB_EVALUE, "scan: carry %d is %s%s and comes back as %s%s", k,
                nb_dtype_brief((nb_dtype)x[k]->dtype), nb_shape_text(&in),
                nb_dtype_brief(out->dtype), nb_shape_text(&out->shape));
    }
    return true;
}

static nb_shape widened(const nb_region *r, int k)
{
    int id[NB_MAX_GRAPH_LANES + 1];
    for (int n = 1; n <= r->graph->nlanes; n++)
        id[n] = r->graph->lane_id[n - 1];
    return actual(nb_region_result(r->graph, k), id);
}

/* A carry has the lanes of a fixed point: as it comes in, and as the body
 * returns it. */
static bool record_body(nb_region *r, nb_func *body, int nc,
                        nb_tensor *const *init, int nx, nb_tensor *const *xs)
{
    nb_shape *shape = nb_alloc((size_t)(nc + 1) * sizeof *shape);
    nb_tensor **x = nb_array(nc + nx);
    bool ok = shape && x, again = true;
    for (int k = 0; ok && k < nc; k++)
        shape[k] = nb_tensor_shape(init[k]);
    while (ok && again) {
        again = false;
        for (int i = 0; ok && i < nc + nx; i++) {
            nb_tensor *like = i < nc ? init[i] : xs[i - nc];
            nb_shape s = i < nc ? shape[i] : slice_shape(like);
            ok = (x[i] = nb_stand_in((nb_dtype)like->dtype, &s));
        }
        ok = ok && nb_region_record(r, body, nc + nx, x);
        if (ok && r->ny < nc)
            ok = nb_fail(NB_EVALUE, "scan: the body returns %d of %d carries",
                         r->ny, nc);
        ok = ok && carries_fit(r, nc, x);
        for (int k = 0; ok && k < nc; k++) {
            nb_shape out = widened(r, k);
            again = nb_lanes_widen(&shape[k], &out) || again;
        }
        if (ok && again) nb_region_free(r);
    }
    if (!ok) nb_region_free(r);
    nb_free(shape);
    nb_free(x);
    return ok;
}

static nb_op *scan_new(nb_region *r, int nc, int nx, int64_t length,
                       bool reverse)
{
    scan *s = nb_alloc_zero(sizeof *s);
    if (!s) return NULL;
    s->op.name = reverse ? "scan_reverse" : "scan";
    s->op.kind = NB_RULE;
    s->op.nout = r->ny;
    s->op.result = result;
    s->op.execute = execute;
    s->op.push = push;
    s->op.pull = pull;
    s->op.release = release;
    s->op.region[0] = s->body = r->graph;
    nb_op_without_params(&s->op);
    s->nc = nc;
    s->nx = nx;
    s->nk = r->ncaptured;
    s->ny = r->ny - nc;
    s->length = length;
    s->reverse = reverse;
    r->graph = NULL;
    return &s->op;
}

/* All inputs; carries are spread over the lanes that their stand-ins have. */
static nb_tensor **inputs(const nb_region *r, int nc, nb_tensor *const *init,
                          int nx, nb_tensor *const *xs)
{
    nb_tensor **in = nb_array(nc + nx + r->ncaptured);
    for (int k = 0; in && k < nc; k++) {
        const nb_shape *s = &r->graph->line[k].shape;
        in[k] = init[k];
        for (int l = 0; l < s->nlanes; l++) {
            nb_lane lane = s->lane[l];
            lane.id = r->graph->lane_id[lane.id - 1];
            in[k] = nb_spread(in[k], lane);
        }
    }
    for (int i = 0; in && i < nx; i++)
        in[nc + i] = xs[i];
    for (int i = 0; in && i < r->ncaptured; i++)
        in[nc + nx + i] = r->captured[i];
    return in;
}

static bool check_xs(int nx, nb_tensor *const *xs, int64_t *length)
{
    if (nx == 0 && *length < 0)
        return nb_fail(NB_EVALUE, "scan: length %lld", (long long)*length);
    for (int i = 0; i < nx; i++) {
        if (!xs[i]) return false;
        if (xs[i]->rank == 0)
            return nb_fail(NB_EVALUE, "scan: xs %d is 0-d, no axis to scan", i);
        if ((i > 0 || *length > 0) && nb_size(xs[i], 0) != *length)
            return nb_fail(NB_EVALUE, "scan: xs %d has length %lld, not %lld",
                           i, (long long)nb_size(xs[i], 0), (long long)*length);
        *length = nb_size(xs[i], 0);
    }
    return true;
}

static bool apply(nb_region *r, int ninit, nb_tensor *const *init, int nxs,
                  nb_tensor *const *xs, int64_t length, bool reverse, int *ny,
                  nb_tensor **y)
{
    nb_tensor **in = inputs(r, ninit, init, nxs, xs);
    int n = ninit + nxs + r->ncaptured;
    nb_results results = {.room = *ny, .out = y};
    nb_op *op = in ? scan_new(r, ninit, nxs, length, reverse) : NULL;
    bool ok = op && nb_record_many(op, n, in, 0, NULL, &results);
    *ny = results.n;
    nb_op_leave(op);
    nb_free(in);
    return ok;
}

nb_status nb_scan(nb_func *body, int ninit, nb_tensor *const *init, int nxs,
                  nb_tensor *const *xs, int64_t length, bool reverse, int *ny,
                  nb_tensor **y)
{
    nb_region r = {0};
    bool ok = check_xs(nxs, xs, &length);
    for (int k = 0; ok && k < ninit; k++)
        ok = init[k];
    ok = ok && nb_scope_open() == NB_OK;
    if (!ok) return NB_STATUS(false);
    ok = record_body(&r, body, ninit, init, nxs, xs) &&
         apply(&r, ninit, init, nxs, xs, length, reverse, ny, y);
    nb_region_free(&r);
    if (!ok) *ny = 0;
    nb_scope_close(*ny, y);
    return NB_STATUS(ok);
}
