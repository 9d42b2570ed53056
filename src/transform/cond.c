/* cond.c - a branch as one op: one of two recorded programs runs.
 *
 * Its derivatives are branches again, on the same predicate: each side puts a
 * tape around its own program.  A predicate that differs from lane to lane
 * makes no branch: both sides run and are selected from.
 *
 * Inputs: the predicate, operands, what the first side closes over, what the
 * second does. */
#include "transform/branch.h"
#include "transform/forms.h"
#include "transform/kept.h"

#include "core/joints.h"
#include "ops/ops.h"

#include <string.h>

enum { OPERANDS, CAPTURED, NATTR }; /* of the first side */

/* Where input i of one side's program stands among the inputs of the op. */
static int place(const nb_call *c, int side, int i)
{
    bool captured = i >= c->attr[OPERANDS];
    return 1 + i + (captured && side ? (int)c->attr[CAPTURED] : 0);
}

static void side_inputs(const nb_call *c, int side, nb_tensor *const *all,
                        nb_tensor **in)
{
    for (int i = 0; i < c->op->region[side]->nx; i++)
        in[i] = all[place(c, side, i)];
}

static bool result(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    nb_tensor **in = nb_array(c->nin);
    nb_shape side[2];
    if (!in) return false;
    for (int s = 0; s < 2; s++) {
        const nb_graph *g = c->op->region[s];
        side_inputs(c, s, c->in, in);
        side[s] = nb_region_shape(g, in, nb_region_result(g, k));
    }
    *out = side[0];
    nb_lanes_widen(out, &side[1]);
    *dtype = nb_region_result(c->op->region[0], k)->dtype;
    nb_free(in);
    return true;
}

/* Each side has a program of its own. */
static bool prepare(const nb_call *c)
{
    bool ok = true;
    for (int side = 0; ok && side < 2; side++)
        ok = nb_kept_make(
            c, side, (nb_turn_of){.graph = c->op->region[side], .once = true});
    return ok;
}

static int64_t needs(const nb_call *c)
{
    int64_t yes = nb_kept_bytes(nb_kept_peek(c->op, 0));
    int64_t no = nb_kept_bytes(nb_kept_peek(c->op, 1));
    return yes > no ? yes : no;
}

static bool run_kept(const nb_kept *k, nb_tensor *const *in, char *const *to)
{
    nb_turning t;
    bool ok = nb_turning_begin(&t, k, in) && nb_turning_run(&t, to);
    nb_turning_end(&t);
    return ok;
}

static bool run_side(const nb_call *c, int side, const nb_shape *shape,
                     char *const *to)
{
    const nb_graph *g = c->op->region[side];
    const nb_kept *kept = nb_kept_find(c, side);
    nb_tensor **in = nb_array(g->nx), **y = nb_array(g->ny);
    bool ok = in && y;
    if (ok) side_inputs(c, side, c->in, in);
    if (ok && kept) ok = run_kept(kept, in, to);
    if (ok && !kept) ok = nb_region_run(g, g->nx, in, y);
    for (int k = 0; ok && !kept && k < g->ny; k++)
        ok = nb_copy_into(to[k], &shape[k], y[k]);
    nb_free(in), nb_free(y);
    return ok;
}

static bool execute(const nb_call *c, char *const *to)
{
    if (nb_differs(c->in[0]))
        return nb_fail(NB_ERUNTIME, "cond: the predicate differs from lane to "
                                    "lane, which it did not when recorded");
    char yes = 0;
    if (!nb_bytes_read(c->in[0]->device, &yes, c->in[0]->data, 1)) return false;
    nb_shape *shape = nb_call_shapes(c);
    bool open = shape && nb_scope_open() == NB_OK;
    bool ok = open && run_side(c, yes ? 0 : 1, shape, to);
    if (open) nb_scope_close(0, NULL);
    nb_free(shape);
    return ok;
}

/* Derivatives */

typedef struct around {
    const nb_call *c;
    int side;
    nb_tensor *const *u;  /* tangents of all inputs, or */
    nb_tensor *const *ct; /* cotangents of all results */
    const nb_shape *shape;
    const bool *moves; /* results (push) or inputs (pull) that come out */
} around;

static nb_status push_side(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const around *a = ctx;
    const nb_graph *g = a->c->op->region[a->side];
    nb_tensor **in = nb_array(g->nx), **u = nb_array(g->nx);
    nb_tensor **out = nb_array(g->ny), **uy = nb_array(g->ny);
    nb_results all = {.room = *ny, .out = y};
    bool ok = in && u && out && uy;
    (void)nx, (void)x;
    if (ok) side_inputs(a->c, a->side, a->c->in, in);
    if (ok) side_inputs(a->c, a->side, a->u, u);
    ok = ok && nb_region_push(g, in, u, g->ny, NULL, out, uy);
    for (int k = 0; ok && k < g->ny; k++)
        if (a->moves[k]) ok = nb_results_add(&all, nb_or_zeros(uy[k], out[k]));
    *ny = all.n;
    nb_free(in), nb_free(u), nb_free(out), nb_free(uy);
    return NB_STATUS(ok);
}

static nb_status pull_side(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const around *a = ctx;
    const nb_call *c = a->c;
    const nb_graph *g = c->op->region[a->side];
    nb_tensor **in = nb_array(g->nx), **some = nb_array(g->nx);
    nb_tensor **cx = nb_array(c->nin);
    bool *on = nb_alloc((size_t)(g->nx + 1));
    nb_results all = {.room = *ny, .out = y};
    bool ok = in && some && cx && on;
    (void)nx, (void)x;
    if (ok) side_inputs(c, a->side, c->in, in);
    for (int i = 0; ok && i < g->nx; i++)
        on[i] = a->moves[place(c, a->side, i)];
    ok = ok && nb_region_pull(g, in, on, g->ny, NULL, a->shape, a->ct, some);
    for (int i = 0; ok && i < g->nx; i++)
        cx[place(c, a->side, i)] = some[i];
    for (int i = 1; ok && i < c->nin; i++)
        if (a->moves[i])
            ok = nb_results_add(&all, nb_or_zeros(cx[i], c->in[i]));
    *ny = all.n;
    nb_free(in), nb_free(some), nb_free(cx), nb_free(on);
    return NB_STATUS(ok);
}

/* The branch of two such sides, results put where they belong. */
static bool both(around *a, nb_body *body, int n, nb_tensor **to)
{
    around other = *a;
    int ny = n;
    nb_tensor **y = nb_array(n), *const *at = y;
    other.side = 1;
    bool ok = y && nb_cond(a->c->in[0], nb_func_new(body, a),
                           nb_func_new(body, &other), 0, NULL, &ny, y) == NB_OK;
    for (int k = 0; ok && k < n; k++)
        if (a->moves[k]) to[k] = *at++;
    nb_free(y);
    return ok;
}

/* Results that move on either side. */
static bool *moving_results(const nb_call *c, nb_tensor *const *u)
{
    bool *all = nb_alloc_zero((size_t)(c->op->nout + 1));
    bool ok = all;
    for (int side = 0; ok && side < 2; side++) {
        const nb_graph *g = c->op->region[side];
        bool *on = nb_alloc((size_t)(g->nx + 1)), *moves = NULL;
        for (int i = 0; on && i < g->nx; i++)
            on[i] = u[place(c, side, i)];
        ok = on && (moves = nb_region_moves(g, on, NULL));
        for (int k = 0; ok && k < g->ny; k++)
            all[k] = all[k] || moves[g->result[k]];
        nb_free(on), nb_free(moves);
    }
    if (!ok) nb_free(all);
    return ok ? all : NULL;
}

static bool push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    bool *moves = moving_results(c, u);
    around a = {.c = c, .u = u, .moves = moves};
    bool ok = moves && both(&a, push_side, c->op->nout, uy);
    nb_free(moves);
    return ok;
}

static bool pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    bool any, *moves = nb_call_wanted(c, &any);
    nb_shape *shape = nb_call_shapes(c);
    around a = {.c = c, .ct = ct, .shape = shape, .moves = moves};
    bool ok = moves && shape && (!any || both(&a, pull_side, c->nin, cx));
    nb_free(moves), nb_free(shape);
    return ok;
}

/* What a text may get wrong: the types of both programs. */
static bool check(nb_call *c)
{
    const nb_graph *yes = c->op->region[0], *no = c->op->region[1];
    int64_t n = c->attr[OPERANDS], m = c->attr[CAPTURED];
    bool ok = n >= 0 && m >= 0 && n < c->nin && m < c->nin - n &&
              yes->nx == n + m && no->nx == c->nin - 1 - m &&
              yes->ny == no->ny && c->op->nout == yes->ny &&
              c->in[0]->dtype == NB_BOOL && c->in[0]->rank == 0;
    for (int side = 0; ok && side < 2; side++) {
        const nb_graph *g = c->op->region[side];
        for (int i = 0; ok && i < g->nx; i++)
            ok = nb_line_takes(&g->line[i], c->in[place(c, side, i)], 0);
    }
    for (int k = 0; ok && k < yes->ny; k++)
        ok = nb_line_same(nb_region_result(yes, k), nb_region_result(no, k));
    return ok || nb_fail(NB_EVALUE, "cond: the branches do not fit the inputs "
                                    "or each other");
}

static bool join(const nb_call *c, int region, nb_joints *j)
{
    int operands = (int)c->attr[OPERANDS];
    for (int i = 0; i < j->nx; i++)
        j->from[i] = place(c, region, i);
    j->nstrands = 1;
    j->strand[0] = (nb_strand){operands, j->ny, 1 + operands, c->op->nout};
    if (!region) j->more = 1 + operands + (int)c->attr[CAPTURED];
    return true;
}

static void widen(const nb_call *c, const int *more, int64_t *attr)
{
    (void)c;
    attr[OPERANDS]++;
    attr[CAPTURED] += more[0];
}

/* Recording */

nb_op nb_form_cond = {
    .name = "cond",
    .params = "inputs:tensors, operands:int, captured:int",
    .region_name = {"true", "false"},
    .check = check,
    .result = result,
    .execute = execute,
    .anywhere = true,
    .prepare = prepare,
    .needs = needs,
    .join = join,
    .widen = widen,
    .push = push,
    .pull = pull,
};

static bool alike(const char *who, int k, nb_dtype a, const nb_shape *x,
                  nb_dtype b, const nb_shape *y)
{
    bool same = a == b && x->rank == y->rank;
    for (int d = 0; same && d < x->rank; d++)
        same = nb_extent_same(x->size[d], y->size[d]);
    return same || nb_fail(NB_EVALUE,
                           "%s: result %d is %s%s in one branch and %s%s in "
                           "another",
                           who, k, nb_dtype_brief(a), nb_shape_text(x),
                           nb_dtype_brief(b), nb_shape_text(y));
}

static bool as_many(const char *who, int a, int b)
{
    return a == b ||
           nb_fail(NB_EVALUE, "%s: one branch has %d results, another %d", who,
                   a, b);
}

static bool fits(const char *who, const nb_graph *a, const nb_graph *b,
                 int room)
{
    bool ok = as_many(who, a->ny, b->ny);
    for (int k = 0; ok && k < a->ny; k++) {
        const nb_line *x = nb_region_result(a, k), *y = nb_region_result(b, k);
        ok = alike(who, k, x->dtype, &x->shape, y->dtype, &y->shape);
    }
    if (ok && a->ny > room)
        ok =
            nb_fail(NB_EVALUE, "%s: %d results, room for %d", who, a->ny, room);
    return ok;
}

static bool record_side(nb_region *r, nb_func *f, int nx, nb_tensor *const *x)
{
    nb_list in = {0};
    bool ok = true;
    for (int i = 0; ok && i < nx; i++) {
        nb_shape s = nb_tensor_shape(x[i]);
        ok = nb_list_add(
            &in, nb_stand_in_on(x[i]->device, (nb_dtype)x[i]->dtype, &s));
    }
    ok = ok && nb_region_record(r, f, &in);
    nb_list_free(&in);
    return ok;
}

static bool record(const nb_branch *b, int *ny, nb_tensor **y)
{
    nb_region r[2] = {{0}, {0}};
    nb_list in = {0};
    bool ok = nb_list_add(&in, b->pred) &&
              record_side(&r[0], b->yes, b->nx, b->x) &&
              record_side(&r[1], b->no, b->nx, b->x) &&
              fits(b->who, r[0].graph, r[1].graph, *ny);
    for (int i = 0; ok && i < b->nx; i++)
        ok = nb_list_add(&in, b->x[i]);
    int64_t attr[NATTR] = {b->nx, r[0].ncaptured};
    nb_results results = {.room = ok ? r[0].graph->ny : 0, .out = y};
    ok = ok && nb_region_apply(&nb_form_cond, &r[0], &r[1], &in, NATTR, attr,
                               &results);
    *ny = results.n;
    nb_region_free(&r[0]);
    nb_region_free(&r[1]);
    nb_list_free(&in);
    return ok;
}

static bool select_both(const nb_branch *b, int *ny, nb_tensor **y)
{
    int other = *ny;
    nb_tensor **z = nb_array(other);
    bool ok = z && nb_run(b->yes, b->nx, b->x, ny, y) &&
              nb_run(b->no, b->nx, b->x, &other, z) &&
              as_many(b->who, *ny, other);
    for (int k = 0; ok && k < *ny; k++) {
        ok = (y[k] = nb_strong(y[k], NULL)) && (z[k] = nb_strong(z[k], NULL));
        if (!ok) break;
        nb_shape p = nb_tensor_shape(y[k]), q = nb_tensor_shape(z[k]);
        ok = alike(b->who, k, (nb_dtype)y[k]->dtype, &p, (nb_dtype)z[k]->dtype,
                   &q) &&
             (y[k] = nb_where(b->pred, y[k], z[k]));
    }
    nb_free(z);
    return ok;
}

nb_status nb_branch_record(nb_branch b, int *ny, nb_tensor **y)
{
    nb_tensor **x = nb_array(b.nx);
    bool ok = x && b.pred && b.yes && b.no;
    if (ok && nb_elements(b.pred) != 1)
        ok = nb_fail(NB_EVALUE,
                     "%s: the predicate is a scalar, not of %lld elements",
                     b.who, (long long)nb_elements(b.pred));
    bool open = ok && nb_scope_open() == NB_OK;
    ok = open && (b.pred = nb_cast(nb_reshape(b.pred, 0, NULL), NB_BOOL)) &&
         (b.yes = nb_func_inside(b.yes, b.who)) &&
         (b.no = nb_func_inside(b.no, b.who));
    for (int i = 0; ok && i < b.nx; i++)
        ok = (x[i] = nb_strong(b.x[i], NULL));
    b.x = x;
    ok =
        ok && (nb_differs(b.pred) ? select_both(&b, ny, y) : record(&b, ny, y));
    if (!ok) *ny = 0;
    if (open) nb_scope_close(*ny, y);
    nb_free(x);
    return NB_STATUS(ok);
}

nb_status nb_cond(nb_tensor *pred, nb_func *yes, nb_func *no, int nx,
                  nb_tensor *const *x, int *ny, nb_tensor **y)
{
    return nb_branch_record((nb_branch){"cond", pred, yes, no, nx, x}, ny, y);
}
