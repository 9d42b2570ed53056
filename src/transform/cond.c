/* cond.c - a branch as one op: one of two recorded programs runs.
 *
 * Its derivatives are branches again, on the same predicate: each side puts a
 * tape around its own program.  A predicate that differs from lane to lane
 * makes no branch: both sides run and are selected from. */
#include "transform/derive.h"
#include "transform/region.h"

#include "ops/ops.h"

#include <string.h>

/* Inputs: the predicate, operands, what `yes` closes over, what `no` does. */
typedef struct branch {
    nb_op op; /* first: a node points to it */
    int nx, captured[2];
} branch;

static const branch *branch_of(const nb_call *c)
{
    return (const branch *)c->op;
}

static void release(nb_op *op)
{
    nb_graph_free(op->region[0]);
    nb_graph_free(op->region[1]);
    nb_free(op);
}

/* The inputs of one side's program, and where among the op's they stand. */
static int side_inputs(const branch *b, int side, nb_tensor *const *in,
                       nb_tensor **to, int *place)
{
    int n = 0, from = 1 + b->nx + (side ? b->captured[0] : 0);
    for (int i = 0; i < b->nx; i++, n++) {
        to[n] = in[1 + i];
        if (place) place[n] = 1 + i;
    }
    for (int i = 0; i < b->captured[side]; i++, n++) {
        to[n] = in[from + i];
        if (place) place[n] = from + i;
    }
    return n;
}

static nb_shape side_shape(const nb_call *c, int side, int k, nb_tensor **room)
{
    int id[NB_MAX_GRAPH_LANES + 1];
    const nb_graph *g = c->op->region[side];
    const nb_line *l = nb_region_result(g, k);
    nb_shape s = {.rank = l->shape.rank};
    side_inputs(branch_of(c), side, c->in, room, NULL);
    nb_graph_match(g, room, id);
    memcpy(s.size, l->shape.size, sizeof s.size);
    for (int d = 0; d < l->shape.nlanes; d++) {
        nb_lane lane = l->shape.lane[d];
        lane.id = id[lane.id];
        nb_shape_add_lane(&s, lane);
    }
    return s;
}

static bool result(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    nb_tensor **room = nb_array(c->nin);
    if (!room) return false;
    *out = side_shape(c, 0, k, room);
    nb_shape other = side_shape(c, 1, k, room);
    nb_lanes_widen(out, &other);
    *dtype = nb_region_result(c->op->region[0], k)->dtype;
    nb_free(room);
    return true;
}

static bool execute(const nb_call *c, char *const *to)
{
    int side = *c->in[0]->data ? 0 : 1, ny = c->op->nout;
    nb_tensor **in = nb_array(c->nin), **y = nb_array(ny);
    bool ok = in && y && nb_scope_open() == NB_OK;
    if (!ok) return nb_free(in), nb_free(y), false;
    int n = side_inputs(branch_of(c), side, c->in, in, NULL);
    ok = nb_region_run(c->op->region[side], n, in, y);
    for (int k = 0; ok && k < ny; k++) {
        nb_shape s;
        nb_dtype d;
        ok = result(c, k, &s, &d) && nb_copy_into(to[k], &s, y[k]);
    }
    nb_scope_close(0, NULL);
    nb_free(in), nb_free(y);
    return ok;
}

/* Derivatives */

typedef struct around {
    const nb_call *c;
    int side;
    nb_tensor *const *u;  /* tangents of all inputs, or */
    nb_tensor *const *ct; /* cotangents of all results */
} around;

static bool is_real(nb_dtype d)
{
    return nb_dtype_is_float(d);
}

/* One side on tape; real results (push) or all real inputs (pull) come out. */
static nb_status taped_side(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    const around *a = ctx;
    const nb_call *c = a->c;
    nb_tensor **in = nb_array(c->nin), **fresh = nb_array(c->nin);
    nb_tensor **u = nb_array(c->nin), **out = nb_array(c->op->nout);
    nb_tensor **uy = nb_array(c->op->nout), **cx = nb_array(c->nin);
    int *place = nb_alloc((size_t)(c->nin + 1) * sizeof *place), at = 0;
    nb_tape *tape = NULL;
    bool ok = in && fresh && u && out && uy && cx && place;
    int n = ok ? side_inputs(branch_of(c), a->side, c->in, in, place) : 0;
    (void)nx, (void)x;
    ok = ok && (tape = nb_tape_open_inner(n, in, fresh)) &&
         nb_graph_run(c->op->region[a->side], n, fresh, out) == NB_OK &&
         nb_tape_close(tape, c->op->nout, out) == NB_OK;
    for (int i = 0; ok && a->u && i < n; i++)
        u[i] = a->u[place[i]];
    if (ok && a->u) ok = nb_tape_push(tape, u, uy) == NB_OK;
    for (int k = 0; ok && a->u && k < c->op->nout; k++)
        if (is_real((nb_dtype)out[k]->dtype))
            ok = (y[at++] = nb_or_zeros(uy[k], out[k]));
    if (ok && a->ct) ok = nb_tape_pull(tape, a->ct, fresh) == NB_OK;
    for (int i = 0; ok && a->ct && i < n; i++)
        cx[place[i]] = fresh[i];
    for (int i = 1; ok && a->ct && i < c->nin; i++)
        if (is_real((nb_dtype)c->in[i]->dtype))
            ok = (y[at++] = nb_or_zeros(cx[i], c->in[i]));
    *ny = at;
    nb_tape_drop(tape);
    nb_free(in), nb_free(fresh), nb_free(u), nb_free(out), nb_free(uy);
    nb_free(cx), nb_free(place);
    return NB_STATUS(ok);
}

static bool both_sides(const nb_call *c, nb_tensor *const *u,
                       nb_tensor *const *ct, int *n, nb_tensor **y)
{
    around yes = {c, 0, u, ct}, no = {c, 1, u, ct};
    return nb_cond(c->in[0], nb_func_new(taped_side, &yes),
                   nb_func_new(taped_side, &no), 0, NULL, n, y) == NB_OK;
}

static bool push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    int n = c->op->nout, at = 0;
    nb_tensor **y = nb_array(n);
    bool ok = y && both_sides(c, u, NULL, &n, y);
    for (int k = 0; ok && k < c->op->nout; k++)
        if (is_real(nb_region_result(c->op->region[0], k)->dtype))
            uy[k] = y[at++];
    nb_free(y);
    return ok;
}

static bool pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    int n = c->nin, at = 0;
    nb_tensor **y = nb_array(n);
    bool ok = y && both_sides(c, NULL, ct, &n, y);
    for (int i = 1; ok && i < c->nin; i++)
        if (is_real((nb_dtype)c->in[i]->dtype)) cx[i] = y[at++];
    nb_free(y);
    return ok;
}

/* Recording */

static bool alike(const nb_graph *a, const nb_graph *b)
{
    bool same = a->ny == b->ny;
    for (int k = 0; same && k < a->ny; k++) {
        const nb_line *x = nb_region_result(a, k), *y = nb_region_result(b, k);
        same = x->dtype == y->dtype && x->shape.rank == y->shape.rank;
        for (int d = 0; same && d < x->shape.rank; d++)
            same = nb_extent_same(x->shape.size[d], y->shape.size[d]);
        if (!same)
            return nb_fail(NB_EVALUE,
                           "cond: result %d is %s%s in one branch and %s%s in "
                           "the other",
                           k, nb_dtype_brief(x->dtype),
                           nb_shape_text(&x->shape), nb_dtype_brief(y->dtype),
                           nb_shape_text(&y->shape));
    }
    return same ||
           nb_fail(NB_EVALUE, "cond: one branch has %d results, the other %d",
                   a->ny, b->ny);
}

static nb_op *branch_new(nb_region *r, int nx)
{
    branch *b = nb_alloc_zero(sizeof *b);
    if (!b) return NULL;
    b->op.name = "cond";
    b->op.kind = NB_RULE;
    b->op.nout = r[0].ny;
    b->op.result = result;
    b->op.execute = execute;
    b->op.push = push;
    b->op.pull = pull;
    b->op.release = release;
    nb_op_without_params(&b->op);
    b->nx = nx;
    for (int side = 0; side < 2; side++) {
        b->op.region[side] = r[side].graph;
        b->captured[side] = r[side].ncaptured;
        r[side].graph = NULL;
    }
    return &b->op;
}

static bool apply(nb_tensor *pred, nb_region *r, int nx, nb_tensor *const *x,
                  int *ny, nb_tensor **y)
{
    int n = 1 + nx + r[0].ncaptured + r[1].ncaptured, at = 0;
    nb_tensor **in = nb_array(n);
    nb_results results = {.room = *ny, .out = y};
    if (!in) return false;
    in[at++] = pred;
    for (int i = 0; i < nx; i++)
        in[at++] = x[i];
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < r[side].ncaptured; i++)
            in[at++] = r[side].captured[i];
    nb_op *op = branch_new(r, nx);
    bool ok = op && nb_record_many(op, n, in, 0, NULL, &results);
    *ny = results.n;
    nb_op_leave(op);
    nb_free(in);
    return ok;
}

static bool record(nb_tensor *pred, nb_func *const *side, int nx,
                   nb_tensor *const *x, int *ny, nb_tensor **y)
{
    nb_region r[2] = {{0}, {0}};
    nb_tensor **in = nb_array(nx);
    bool ok = in;
    for (int s = 0; ok && s < 2; s++) {
        for (int i = 0; ok && i < nx; i++) {
            nb_shape shape = nb_tensor_shape(x[i]);
            ok = (in[i] = nb_stand_in((nb_dtype)x[i]->dtype, &shape));
        }
        ok = ok && nb_region_record(&r[s], side[s], nx, in);
    }
    ok = ok && alike(r[0].graph, r[1].graph) && apply(pred, r, nx, x, ny, y);
    nb_region_free(&r[0]);
    nb_region_free(&r[1]);
    nb_free(in);
    return ok;
}

static bool select_both(nb_tensor *pred, nb_func *const *side, int nx,
                        nb_tensor *const *x, int *ny, nb_tensor **y)
{
    int other = *ny;
    nb_tensor **z = nb_array(other);
    bool ok =
        z && nb_run(side[0], nx, x, ny, y) && nb_run(side[1], nx, x, &other, z);
    if (ok && *ny != other)
        ok = nb_fail(NB_EVALUE, "cond: one branch has %d results, the other %d",
                     *ny, other);
    for (int k = 0; ok && k < *ny; k++)
        ok = (y[k] = nb_where(pred, y[k], z[k]));
    nb_free(z);
    return ok;
}

static bool differs(const nb_tensor *x)
{
    for (int l = 0; l < x->nlanes; l++)
        if (!nb_tensor_lane(x)[l].thin) return true;
    return false;
}

nb_status nb_cond(nb_tensor *pred, nb_func *yes, nb_func *no, int nx,
                  nb_tensor *const *x, int *ny, nb_tensor **y)
{
    nb_func *side[] = {yes, no};
    bool ok = pred && yes && no;
    for (int i = 0; ok && i < nx; i++)
        ok = x[i];
    if (ok && (pred->rank != 0 && nb_elements(pred) != 1))
        ok = nb_fail(NB_EVALUE,
                     "cond: the predicate is a scalar, not of rank "
                     "%d",
                     pred->rank);
    ok = ok && nb_scope_open() == NB_OK;
    if (!ok) return NB_STATUS(false);
    nb_tensor *p = nb_cast(nb_reshape(pred, 0, NULL), NB_BOOL);
    ok = p && (differs(p) ? select_both(p, side, nx, x, ny, y)
                          : record(p, side, nx, x, ny, y));
    if (!ok) *ny = 0;
    nb_scope_close(*ny, y);
    return NB_STATUS(ok);
}
