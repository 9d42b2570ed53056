/* scan.c - a loop over a leading axis, as one op.
 *
 * Its derivatives are scans again: forward, the carry and its tangent go
 * together; backward, a scan the other way over the states that a first scan
 * saved.  Both record the body once more with a tape around it, so they
 * differentiate and map in turn.
 *
 * Inputs of the op and of its program: carries, xs (of the program: one step of
 * each), what the body closes over.  Results: carries, ys. */
#include "transform/forms.h"
#include "transform/turns.h"

#include "core/joints.h"
#include "core/lanes.h"
#include "ops/ops.h"

#include <string.h>

enum { CARRIES, XS, LENGTH, REVERSE, NATTR };

static const nb_graph *body_of(const nb_call *c)
{
    return c->op->region[0];
}

static int carries(const nb_call *c)
{
    return (int)c->attr[CARRIES];
}

static int before_captured(const nb_call *c)
{
    return (int)(c->attr[CARRIES] + c->attr[XS]);
}

/* x without its leading visible axis. */
static nb_shape slice_shape(const nb_tensor *x)
{
    nb_shape s = nb_tensor_shape(x);
    memmove(s.size, s.size + 1, (size_t)--s.rank * sizeof s.size[0]);
    return s;
}

static bool result(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    const nb_graph *g = body_of(c);
    const nb_line *l = k < carries(c) ? &g->line[k] : nb_region_result(g, k);
    *out = nb_region_shape(g, c->in, l);
    *dtype = l->dtype;
    if (k < carries(c)) return true;
    if (out->rank == NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "scan: a stacked result has rank above %d",
                       NB_MAX_RANK);
    memmove(out->size + 1, out->size, (size_t)out->rank++ * sizeof *out->size);
    out->size[0] = nb_extent_of(c->attr[LENGTH]);
    return nb_shape_check(out, *dtype, "scan");
}

/* Running */

typedef struct run {
    const nb_call *c;
    nb_shape *shape; /* of the results */
    nb_replay *body;
    nb_tensor **in, **out; /* of the body; carries in `in` are kept */
} run;

/* A leaf that looks at step t of x. */
static nb_tensor *step_of(nb_tensor *x, int64_t t)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    nb_shape s = slice_shape(x);
    int n = nb_tensor_strides(x, size, stride), axis = x->nlanes;
    int64_t item = (int64_t)nb_dtype_size((nb_dtype)x->dtype);
    char *at = x->data + t * stride[axis] * item;
    memmove(stride + axis, stride + axis + 1,
            (size_t)(n - axis - 1) * sizeof *stride);
    return nb_leaf_on(
        x->device, nb_leaf_new((nb_dtype)x->dtype, &s, x->buffer, at, stride));
}

/* Stand-ins for what changes, what does not as it is, and the body on them. */
static bool prepare(run *r)
{
    const nb_call *c = r->c;
    const nb_graph *g = body_of(c);
    bool ok = true;
    for (int i = 0; ok && i < c->nin; i++) {
        nb_shape s = i < carries(c)           ? r->shape[i]
                     : i < before_captured(c) ? slice_shape(c->in[i])
                                              : nb_tensor_shape(c->in[i]);
        r->in[i] = i < before_captured(c)
                       ? nb_stand_in_on(g->line[i].device, g->line[i].dtype, &s)
                       : nb_leaf_of(c->in[i], &s);
        ok = r->in[i];
    }
    ok = ok && nb_graph_run(g, c->nin, r->in, r->out) == NB_OK;
    return ok &&
           (r->body = nb_replay_new(before_captured(c), r->in, g->ny, r->out));
}

static bool step(run *r, int64_t t, char *const *to)
{
    const nb_call *c = r->c;
    int nc = carries(c);
    bool ok = nb_scope_open() == NB_OK;
    if (!ok) return false;
    for (int i = nc; ok && i < before_captured(c); i++)
        ok = (r->in[i] = step_of(c->in[i], t));
    ok = ok && nb_replay_run(r->body, r->in, r->out);
    for (int k = nc; ok && k < c->op->nout; k++)
        ok = nb_copy_step(to[k], &r->shape[k], r->out[k], t);
    for (int k = 0; ok && k < nc; k++)
        ok = (r->out[k] = nb_settled(r->out[k], &r->shape[k]));
    for (int k = 0; ok && k < nc; k++)
        nb_keep(r->out[k]);
    for (int k = 0; ok && k < nc; k++) {
        nb_drop(r->in[k]);
        r->in[k] = r->out[k];
    }
    nb_scope_close(0, NULL);
    return ok;
}

static bool loop(run *r, char *const *to)
{
    const nb_call *c = r->c;
    int64_t length = c->attr[LENGTH];
    bool ok = nb_scope_open() == NB_OK;
    if (!ok) return false;
    ok = prepare(r);
    for (int k = 0; k < carries(c); k++)
        r->in[k] = ok ? nb_keep(nb_leaf_of(c->in[k], &r->shape[k])) : NULL;
    for (int k = 0; ok && k < carries(c); k++)
        ok = r->in[k];
    nb_scope_close(0, NULL);
    for (int64_t i = 0; ok && i < length; i++)
        ok = step(r, c->attr[REVERSE] ? length - 1 - i : i, to);
    for (int k = 0; ok && k < carries(c); k++)
        ok = nb_copy_into(to[k], &r->shape[k], r->in[k]);
    for (int k = 0; k < carries(c); k++)
        nb_drop(r->in[k]);
    return ok;
}

static bool execute(const nb_call *c, char *const *to)
{
    run r = {.c = c, .shape = nb_call_shapes(c)};
    bool done = false, ok = r.shape && nb_scan_turns(c, r.shape, to, &done);
    if (ok && !done)
        ok = (r.in = nb_array(c->nin)) && (r.out = nb_array(c->op->nout)) &&
             loop(&r, to);
    nb_replay_free(r.body);
    nb_free(r.shape), nb_free(r.in), nb_free(r.out);
    return ok;
}

/* Derivatives */

/* What a differentiated body closes over: the call, tangents of its inputs or
 * cotangents of its results (NULL: none), which lines of its program move. */
typedef struct around {
    const nb_call *c;
    nb_tensor *const *u, *const *ct;
    const nb_shape *shape; /* of the results */
    const bool *moves;
} around;

static bool moves_result(const around *a, int k)
{
    const nb_graph *g = body_of(a->c);
    return k < carries(a->c) ? a->moves[k] : a->moves[g->result[k]];
}

/* The lines that move if those inputs do. */
static bool *moving(const nb_call *c, const bool *on)
{
    const nb_graph *g = body_of(c);
    int *feeds = nb_alloc((size_t)(g->ny + 1) * sizeof *feeds);
    for (int k = 0; feeds && k < g->ny; k++)
        feeds[k] = k < carries(c) ? k : -1;
    bool *moves = feeds ? nb_region_moves(g, on, feeds) : NULL;
    nb_free(feeds);
    return moves;
}

/* Values of some inputs, then tangents of those among them that move. */
static nb_tensor *const *take(const around *a, int from, int to,
                              nb_tensor *const *x, nb_tensor **in,
                              nb_tensor **u)
{
    for (int i = from; i < to; i++)
        in[i] = *x++;
    for (int i = from; i < to; i++)
        if (a->moves[i]) u[i] = *x++;
    return x;
}

/* The same of results; tangents that are nothing after all are zeros. */
static bool give(const around *a, int from, int to, nb_tensor *const *out,
                 nb_tensor *const *uy, nb_results *y)
{
    bool ok = true;
    for (int k = from; ok && k < to; k++)
        ok = nb_results_add(y, out[k]);
    for (int k = from; ok && k < to; k++)
        if (moves_result(a, k))
            ok = nb_results_add(y, nb_or_zeros(uy[k], out[k]));
    return ok;
}

/* (carry, its tangent, x, its tangent) -> (carry, tangent, y, tangent) */
static nb_status push_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const around *a = ctx;
    const nb_graph *g = body_of(a->c);
    int nc = carries(a->c), n = before_captured(a->c);
    nb_tensor **in = nb_array(g->nx), **u = nb_array(g->nx);
    nb_tensor **out = nb_array(g->ny), **uy = nb_array(g->ny);
    nb_results all = {.room = *ny, .out = y};
    bool ok = in && u && out && uy;
    (void)nx;
    if (ok) take(a, nc, n, take(a, 0, nc, x, in, u), in, u);
    for (int i = n; ok && i < g->nx; i++)
        in[i] = a->c->in[i], u[i] = a->u[i];
    ok = ok && nb_region_push(g, in, u, g->ny, NULL, out, uy) &&
         give(a, 0, nc, out, uy, &all) && give(a, nc, g->ny, out, uy, &all);
    *ny = all.n;
    nb_free(in), nb_free(u), nb_free(out), nb_free(uy);
    return NB_STATUS(ok);
}

/* Values and tangents of some inputs; tangents that there are not are zeros. */
static bool values(const around *a, int from, int to, nb_list *all)
{
    bool ok = true;
    for (int i = from; ok && i < to; i++)
        ok = nb_list_add(all, a->c->in[i]);
    for (int i = from; ok && i < to; i++)
        if (a->moves[i])
            ok = nb_list_add(all, nb_or_zeros(a->u[i], a->c->in[i]));
    return ok;
}

static bool push_all(around *a, nb_tensor **uy)
{
    const nb_call *c = a->c;
    int nc = carries(c), m = c->op->nout, ny = 2 * m;
    nb_tensor **y = nb_array(ny), *const *at = y;
    nb_list init = {0}, xs = {0};
    bool ok = y && values(a, 0, nc, &init) &&
              values(a, nc, before_captured(c), &xs) &&
              nb_scan(nb_func_new(push_body, a), init.n, init.at, xs.n, xs.at,
                      c->attr[LENGTH], c->attr[REVERSE], &ny, y) == NB_OK;
    at += nc;
    for (int k = 0; ok && k < nc; k++)
        uy[k] = moves_result(a, k) ? *at++ : NULL;
    at += m - nc;
    for (int k = nc; ok && k < m; k++)
        uy[k] = moves_result(a, k) ? *at++ : NULL;
    nb_free(y);
    nb_list_free(&init), nb_list_free(&xs);
    return ok;
}

static bool push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    bool any, *on = nb_call_moved(c, u, &any), *moves = NULL;
    bool ok = on && (moves = moving(c, on));
    around a = {.c = c, .u = u, .moves = moves};
    ok = ok && (!any || push_all(&a, uy));
    nb_free(on), nb_free(moves);
    return ok;
}

/* (carry, x) -> (carry, carry as it came): the states of the loop. */
static nb_status states_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    const around *a = ctx;
    const nb_graph *g = body_of(a->c);
    int nc = carries(a->c);
    nb_tensor **in = nb_array(g->nx), **out = nb_array(g->ny);
    bool ok = in && out;
    for (int i = 0; ok && i < g->nx; i++)
        in[i] = i < nx ? x[i] : a->c->in[i];
    ok = ok && nb_graph_run(g, g->nx, in, out) == NB_OK;
    for (int k = 0; ok && k < nc; k++)
        y[k] = out[k], y[nc + k] = x[k];
    *ny = 2 * nc;
    nb_free(in), nb_free(out);
    return NB_STATUS(ok);
}

/* Carried: cotangents of the carry, and of what is closed over, summed up.
 * Steps: states, xs, cotangents of ys.  Gives: cotangents of xs. */
static nb_status pull_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const around *a = ctx;
    const nb_graph *g = body_of(a->c);
    int nc = carries(a->c), n = before_captured(a->c), at = 0;
    nb_tensor **in = nb_array(g->nx), **cx = nb_array(g->nx);
    nb_tensor **ct = nb_array(g->ny), **sum = nb_array(g->nx);
    nb_results all = {.room = *ny, .out = y};
    bool ok = in && cx && ct && sum;
    (void)nx;
    for (int k = 0; ok && k < nc; k++)
        ct[k] = a->moves[k] ? x[at++] : NULL;
    for (int i = n; ok && i < g->nx; i++)
        sum[i] = a->moves[i] ? x[at++] : NULL;
    for (int i = 0; ok && i < g->nx; i++)
        in[i] = i < n ? x[at++] : a->c->in[i];
    for (int k = nc; ok && k < g->ny; k++)
        ct[k] = a->ct[k] && moves_result(a, k) ? x[at++] : NULL;
    ok = ok && nb_region_pull(g, in, a->moves, g->ny, NULL, a->shape, ct, cx);
    for (int k = 0; ok && k < nc; k++)
        if (a->moves[k]) ok = nb_results_add(&all, nb_or_zeros(cx[k], in[k]));
    for (int i = n; ok && i < g->nx; i++)
        if (sum[i])
            ok = nb_results_add(&all, cx[i] ? nb_add(sum[i], cx[i]) : sum[i]);
    for (int i = nc; ok && i < n; i++)
        if (a->moves[i]) ok = nb_results_add(&all, nb_or_zeros(cx[i], in[i]));
    *ny = all.n;
    nb_free(in), nb_free(cx), nb_free(ct), nb_free(sum);
    return NB_STATUS(ok);
}

/* What pull_body carries and what it steps over. */
static bool pull_inputs(const around *a, nb_tensor *const *state, nb_list *init,
                        nb_list *xs)
{
    const nb_call *c = a->c;
    int nc = carries(c), n = before_captured(c);
    bool ok = true;
    for (int k = 0; ok && k < nc; k++)
        if (a->moves[k])
            ok = nb_list_add(init, nb_or_zeros(a->ct[k], c->in[k]));
    for (int i = n; ok && i < c->nin; i++)
        if (a->moves[i]) ok = nb_list_add(init, nb_or_zeros(NULL, c->in[i]));
    for (int i = 0; ok && i < n; i++)
        ok = nb_list_add(xs, i < nc ? state[i] : c->in[i]);
    for (int k = nc; ok && k < c->op->nout; k++)
        if (a->ct[k] && moves_result(a, k)) ok = nb_list_add(xs, a->ct[k]);
    return ok;
}

static bool pull_all(around *a, nb_tensor **cx)
{
    const nb_call *c = a->c;
    int nc = carries(c), n = before_captured(c);
    int ns = 2 * nc, ny = c->nin;
    nb_tensor **saved = nb_array(ns), **y = nb_array(ny), *const *at = y;
    nb_list init = {0}, xs = {0};
    bool ok =
        saved && y &&
        nb_scan(nb_func_new(states_body, a), nc, c->in, n - nc, c->in + nc,
                c->attr[LENGTH], c->attr[REVERSE], &ns, saved) == NB_OK;
    ok = ok && pull_inputs(a, saved + nc, &init, &xs) &&
         nb_scan(nb_func_new(pull_body, a), init.n, init.at, xs.n, xs.at,
                 c->attr[LENGTH], !c->attr[REVERSE], &ny, y) == NB_OK;
    for (int k = 0; ok && k < nc; k++) {
        cx[k] = a->moves[k] ? *at++ : NULL;
        ok = nb_spread_back(c->in[k], &a->shape[k], &cx[k]);
    }
    for (int i = n; ok && i < c->nin; i++)
        if (a->moves[i]) cx[i] = *at++;
    for (int i = nc; ok && i < n; i++)
        if (a->moves[i]) cx[i] = *at++;
    nb_free(saved), nb_free(y);
    nb_list_free(&init), nb_list_free(&xs);
    return ok;
}

static bool pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    bool any, *on = nb_call_wanted(c, &any), *moves = NULL;
    nb_shape *shape = nb_call_shapes(c);
    bool ok = on && shape && (moves = moving(c, on));
    around a = {.c = c, .ct = ct, .shape = shape, .moves = moves};
    ok = ok && (!any || pull_all(&a, cx));
    nb_free(on), nb_free(moves), nb_free(shape);
    return ok;
}

/* What a text may get wrong: the program's types against those of the op. */
static bool check(nb_call *c)
{
    const nb_graph *g = body_of(c);
    int64_t nc = c->attr[CARRIES], nx = c->attr[XS], length = c->attr[LENGTH];
    bool ok = nc >= 0 && nx >= 0 && length >= 0 && nc <= c->nin &&
              nx <= c->nin - nc && g->nx == c->nin && g->ny >= nc &&
              c->op->nout == g->ny;
    for (int i = 0; ok && i < c->nin; i++) {
        bool sliced = i >= nc && i < nc + nx;
        ok = nb_line_takes(&g->line[i], c->in[i], sliced) &&
             (!sliced || nb_size(c->in[i], 0) == length);
    }
    for (int k = 0; ok && k < nc; k++)
        ok = nb_line_same(&g->line[k], nb_region_result(g, k));
    return ok || nb_fail(NB_EVALUE, "scan: the body does not fit the inputs: "
                                    "carries, one step of each xs, the rest");
}

static bool repeats(const nb_call *c, nb_turns *r)
{
    *r = (nb_turns){.carries = (int)c->attr[CARRIES],
                    .xs = (int)c->attr[XS],
                    .length = c->attr[LENGTH],
                    .reverse = c->attr[REVERSE]};
    return true;
}

static bool join(const nb_call *c, int region, nb_joints *j)
{
    int nc = carries(c);
    (void)region;
    j->turns = c->attr[LENGTH];
    for (int i = nc; i < before_captured(c); i++)
        j->step[i] = true;
    for (int k = 0; k < j->ny; k++) {
        j->feeds[k] = k < nc ? k : -1;
        j->stacked[k] = k >= nc;
    }
    j->nstrands = 1;
    j->strand[0] = (nb_strand){nc, nc, nc, nc};
    return nb_region_join(body_of(c), c, j);
}

static void widen(const nb_call *c, const int *more, int64_t *attr)
{
    (void)c, (void)more;
    attr[CARRIES]++;
}

/* Recording */

nb_op nb_form_scan = {
    .name = "scan",
    .params = "inputs:tensors, carries:int, xs:int, length:int, reverse:bool",
    .region_name = {"body"},
    .check = check,
    .result = result,
    .execute = execute,
    .anywhere = true,
    .prepare = nb_scan_prepare,
    .needs = nb_scan_needs,
    .repeats = repeats,
    .join = join,
    .widen = widen,
    .push = push,
    .pull = pull,
};

static bool check_xs(int nx, nb_tensor *const *xs, int64_t *length)
{
    if (*length < 0)
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

static bool record(nb_func *body, int nc, nb_tensor *const *init, int nx,
                   nb_tensor *const *xs, const int64_t *attr, int *ny,
                   nb_tensor **y)
{
    nb_region r = {0};
    nb_list x = {0}, in = {0};
    bool ok = true;
    for (int i = 0; ok && i < nx; i++) {
        nb_shape s = slice_shape(xs[i]);
        ok = nb_list_add(
            &x, nb_stand_in_on(xs[i]->device, (nb_dtype)xs[i]->dtype, &s));
    }
    ok = ok && nb_region_loop(&r, "scan: carry", body, nc, init, &x);
    for (int k = 0; ok && k < nc; k++) {
        nb_shape s = nb_tensor_shape(x.at[k]);
        ok = nb_list_add(&in, nb_spread_over(init[k], &s));
    }
    for (int i = 0; ok && i < nx; i++)
        ok = nb_list_add(&in, xs[i]);
    if (ok && r.graph->ny > *ny)
        ok = nb_fail(NB_EVALUE, "scan: %d results, room for %d", r.graph->ny,
                     *ny);
    nb_results results = {.room = ok ? r.graph->ny : 0, .out = y};
    ok = ok &&
         nb_region_apply(&nb_form_scan, &r, NULL, &in, NATTR, attr, &results);
    *ny = results.n;
    nb_region_free(&r);
    nb_list_free(&x), nb_list_free(&in);
    return ok;
}

nb_status nb_scan(nb_func *body, int ninit, nb_tensor *const *init, int nxs,
                  nb_tensor *const *xs, int64_t length, bool reverse, int *ny,
                  nb_tensor **y)
{
    nb_tensor **carry = nb_array(ninit);
    bool ok = carry && body && check_xs(nxs, xs, &length);
    bool open = ok && nb_scope_open() == NB_OK;
    int64_t attr[NATTR] = {ninit, nxs, length, reverse};
    ok = open && (body = nb_func_inside(body, "scan"));
    for (int k = 0; ok && k < ninit; k++)
        ok = (carry[k] = nb_strong(init[k], NULL));
    ok = ok && record(body, ninit, carry, nxs, xs, attr, ny, y);
    if (!ok) *ny = 0;
    if (open) nb_scope_close(*ny, y);
    nb_free(carry);
    return NB_STATUS(ok);
}
