/* custom.c - functions with derivatives of their own.
 *
 * The function runs on arguments without history; its results y0 and the
 * arguments x become inputs of one op, which is y0 by value and knows how to
 * push and pull through x.  What y0 itself descends from, values that the
 * function closes over, is ignored.
 *
 * A rule runs in the vmaps in which the function was called, open again, and
 * what it closes over is what it was there (closed.h): stand-ins of the
 * recordings around are further inputs. */
#include "transform/closed.h"

#include "core/lanes.h"
#include "ops/ops.h"

#include <string.h>

typedef enum custom_kind { BY_VJP, BY_JVP } custom_kind;

typedef struct vmap {
    nb_lane lane;
    const char *name[2];
} vmap;

typedef struct custom {
    nb_op op; /* first: a node points to it */
    custom_kind kind;
    int nx, ny;
    nb_func *first, *second; /* fwd and bwd; the rule */
    int nclosed;
    nb_tensor **was; /* kept: what the inputs after x stood for */
    int nlanes;
    vmap lane[]; /* the outermost first */
} custom;

static const custom *custom_of(const nb_call *c)
{
    return (const custom *)c->op;
}

static void release(nb_op *op)
{
    custom *u = (custom *)op;
    nb_func_drop(u->first);
    nb_func_drop(u->second);
    for (int i = 0; i < u->nclosed; i++)
        nb_drop(u->was[i]);
    nb_free(u->was);
    nb_free(u);
}

static bool result(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    *out = nb_tensor_shape(c->in[k]);
    *dtype = (nb_dtype)c->in[k]->dtype;
    return true;
}

static bool execute(const nb_call *c, char *const *to)
{
    for (int k = 0; k < c->op->nout; k++) {
        nb_shape s = nb_tensor_shape(c->in[k]);
        if (!nb_copy_into(to[k], &s, c->in[k])) return false;
    }
    return true;
}

static bool is_real(const nb_tensor *x)
{
    return nb_dtype_is_float((nb_dtype)x->dtype);
}

/* Calls f on some arguments and more; room for all results. */
static bool call(nb_func *f, int n, nb_tensor *const *x, int m,
                 nb_tensor *const *more, int *ny, nb_tensor ***y)
{
    nb_tensor **in = nb_array(n + m);
    *ny = NB_MAX_RESULTS;
    *y = nb_array(*ny);
    bool ok = in && *y;
    for (int i = 0; ok && i < n + m; i++)
        in[i] = i < n ? x[i] : more[i - n];
    ok = ok && nb_run(f, n + m, in, ny, *y);
    nb_free(in);
    return ok;
}

static bool count(int found, int wanted, const char *what)
{
    return found == wanted ||
           nb_fail(NB_EVALUE, "%s: %d results, not %d", what, found, wanted);
}

/* What a rule gives in the place of tensor k, x, has its visible sizes. */
static bool same_shape(const char *what, int k, const nb_tensor *x,
                       const nb_tensor *g)
{
    bool same = g->rank == x->rank;
    for (int d = 0; same && d < x->rank; d++)
        same = nb_extent_same(nb_tensor_size(g)[d], nb_tensor_size(x)[d]);
    if (same) return true;
    nb_shape is = nb_tensor_shape(g), be = nb_tensor_shape(x);
    return nb_fail(NB_EVALUE, "%s %d has shape %s, not %s", what, k,
                   nb_shape_text(&is), nb_shape_text(&be));
}

/* A tangent or cotangent of x, in its dtype; none of one that cannot move. */
static bool fit(const char *what, int k, const nb_tensor *x, nb_tensor *g,
                nb_tensor **to)
{
    *to = NULL;
    if (!is_real(x)) return true;
    return same_shape(what, k, x, g) && (*to = nb_as(g, (nb_dtype)x->dtype));
}

/* Results of the function once more, for those that it gave. */
static bool same_results(const char *what, const custom *u, nb_tensor *const *y,
                         nb_tensor *const *again)
{
    bool ok = true;
    for (int k = 0; ok && k < u->ny; k++)
        ok = same_shape(what, k, y[k], again[k]);
    return ok;
}

/* bwd at x: from cotangents of y to those of x. */
static bool backward(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    const custom *u = custom_of(c);
    nb_tensor *const *y = c->in, *const *x = c->in + u->ny;
    nb_tensor **out = NULL, **back = NULL;
    int n, m;
    bool ok = call(u->first, u->nx, x, 0, NULL, &n, &out) &&
              (n >= u->ny || count(n, u->ny, "custom_vjp: fwd")) &&
              same_results("custom_vjp: of fwd, result", u, y, out) &&
              call(u->second, n - u->ny, out + u->ny, u->ny, ct, &m, &back) &&
              count(m, u->nx, "custom_vjp: bwd");
    for (int i = 0; ok && i < u->nx; i++)
        ok = fit("custom_vjp: of bwd, the cotangent of tensor argument", i,
                 x[i], back[i], &cx[i]);
    nb_free(out), nb_free(back);
    return ok;
}

/* The rule at x: how y moves with u. */
static bool forward(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    const custom *r = custom_of(c);
    nb_tensor *const *y = c->in, *const *x = c->in + r->ny;
    nb_tensor **out = NULL;
    int n;
    bool ok = call(r->first, r->nx, x, r->nx, u, &n, &out) &&
              count(n, 2 * r->ny, "custom_jvp: the rule") &&
              same_results("custom_jvp: of the rule, result", r, y, out);
    for (int k = 0; ok && k < r->ny; k++)
        ok = fit("custom_jvp: of the rule, the tangent of result", k, y[k],
                 out[r->ny + k], &uy[k]);
    nb_free(out);
    return ok;
}

/* A linear map applied to fresh zeros, and walked the other way. */
typedef bool linear_map(const nb_call *c, nb_tensor *const *from,
                        nb_tensor **to);

static bool transposed(const nb_call *c, linear_map *map, int n,
                       nb_tensor *const *like, int m, nb_tensor *const *given,
                       nb_tensor **out)
{
    nb_tensor **zero = nb_array(n), **fresh = nb_array(n);
    nb_tensor **to = nb_array(m), **ct = nb_array(m);
    nb_tape *tape = NULL;
    int real = 0;
    bool ok = zero && fresh && to && ct;
    for (int i = 0; ok && i < n; i++) {
        zero[i] = nb_fill_like(like[i], 0);
        for (int l = 0; l < like[i]->nlanes; l++)
            zero[i] = nb_spread(zero[i], nb_tensor_lane(like[i])[l]);
        ok = zero[i];
    }
    ok = ok && (tape = nb_tape_open(n, zero, fresh)) && map(c, fresh, to);
    for (int k = 0; ok && k < m; k++)
        if (to[k]) {
            ct[real] = given[k];
            to[real++] = to[k];
        }
    ok = ok && nb_tape_close(tape, real, to) == NB_OK &&
         nb_tape_pull(tape, ct, out) == NB_OK;
    nb_tape_drop(tape);
    nb_free(zero), nb_free(fresh), nb_free(to), nb_free(ct);
    return ok;
}

static nb_tensor **filled(int n, nb_tensor *const *u, nb_tensor *const *like)
{
    nb_tensor **all = nb_array(n);
    for (int i = 0; all && i < n; i++)
        if (!(all[i] = nb_or_zeros(u[i], like[i]))) return nb_free(all), NULL;
    return all;
}

/* Where a rule runs: the vmaps, the nodes it is given, what it closed over. */
typedef struct place {
    const nb_call *c;
    int nlanes;
    nb_closed closed;
} place;

static bool was_open(const custom *u, int id)
{
    for (int l = 0; l < u->nlanes; l++)
        if (u->lane[l].lane.id == id) return true;
    return false;
}

/* The lane of x that vmap k was: itself; or, if x has other lanes by now, the
 * next of those, of which *next have been taken. */
static nb_lane lane_now(const custom *u, int k, const nb_tensor *x, int *next)
{
    nb_lane found = u->lane[k].lane;
    int n = 0;
    for (int l = 0; l < x->nlanes; l++)
        if (nb_tensor_lane(x)[l].id == found.id) return nb_tensor_lane(x)[l];
    for (int l = 0; l < x->nlanes; l++)
        if (!was_open(u, nb_tensor_lane(x)[l].id) && n++ == *next) {
            ++*next;
            return nb_tensor_lane(x)[l];
        }
    return found;
}

static bool enter(place *p, const nb_call *c)
{
    const custom *u = custom_of(c);
    int next = 0;
    bool ok = true;
    *p = (place){.c = c};
    for (int k = 0; ok && u->nx && k < u->nlanes; k++) {
        nb_lane lane = lane_now(u, k, c->in[u->ny], &next);
        ok = nb_lane_open_again(lane, u->lane[k].name);
        p->nlanes += ok;
    }
    nb_closed_open(&p->closed, u->nclosed, u->was, c->in + u->ny + u->nx);
    return ok;
}

/* What the rule gave, in terms of what it was given: n tensors. */
static bool leave(place *p, bool ok, int n, nb_tensor *const *given, int ny,
                  nb_tensor **y)
{
    const nb_call *c = p->c;
    nb_list all = {0};
    nb_swap swap = {p->closed.n, p->closed.was, p->closed.now, 0, NULL};
    nb_closed_close(&p->closed);
    for (int k = 0; k < p->nlanes; k++)
        nb_lane_close();
    for (int i = 0; ok && i < c->nin + n; i++)
        ok = nb_list_add(&all, i < c->nin ? c->in[i] : given[i - c->nin]);
    swap.ngiven = all.n;
    swap.given = all.at;
    ok = ok && nb_closed_swap(&swap, ny, y);
    nb_list_free(&all);
    return ok;
}

/* Whether the arguments move: other inputs do not count. */
static bool any_moves(const nb_call *c, nb_tensor *const *u)
{
    const custom *r = custom_of(c);
    bool any = false;
    for (int i = r->ny; i < r->ny + r->nx; i++)
        any = any || u[i];
    return any;
}

static bool any_wanted(const nb_call *c)
{
    const custom *r = custom_of(c);
    bool any = false;
    for (int i = r->ny; i < r->ny + r->nx; i++)
        any = any || c->in[i]->trace;
    return any;
}

static bool push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    const custom *r = custom_of(c);
    nb_tensor *const *x = c->in + r->ny;
    if (!any_moves(c, u)) return true;
    nb_tensor **all = filled(r->nx, u + r->ny, x);
    if (!all) return false;
    place p;
    bool ok = enter(&p, c);
    if (ok && r->kind == BY_JVP) ok = forward(c, all, uy);
    if (ok && r->kind == BY_VJP)
        ok = transposed(c, backward, r->ny, c->in, r->nx, all, uy);
    ok = leave(&p, ok, r->nx, all, r->ny, uy);
    nb_free(all);
    return ok;
}

static bool pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    const custom *r = custom_of(c);
    nb_tensor *const *x = c->in + r->ny;
    if (!any_wanted(c)) return true;
    nb_tensor **all = filled(r->ny, ct, c->in);
    if (!all) return false;
    place p;
    bool ok = enter(&p, c);
    if (ok && r->kind == BY_VJP) ok = backward(c, all, cx + r->ny);
    if (ok && r->kind == BY_JVP)
        ok = transposed(c, forward, r->nx, x, r->ny, all, cx + r->ny);
    ok = leave(&p, ok, r->ny, all, r->nx, cx + r->ny);
    nb_free(all);
    return ok;
}

/* Takes the list. */
static nb_op *custom_new(custom_kind kind, int nx, int ny, nb_func *first,
                         nb_func *second, nb_list *was)
{
    static const char *const names[] = {"custom_vjp", "custom_jvp"};
    int n;
    const nb_lane *lane = nb_lanes_open(&n);
    custom *u = nb_alloc_zero(sizeof *u + (size_t)n * sizeof u->lane[0]);
    if (!u) return NULL;
    u->nlanes = n;
    for (int l = 0; l < n; l++)
        u->lane[l] =
            (vmap){lane[l], {nb_lane_names(l)[0], nb_lane_names(l)[1]}};
    u->op.name = names[kind];
    u->op.kind = NB_RULE;
    u->op.nout = ny;
    u->op.result = result;
    u->op.execute = execute;
    u->op.anywhere = true;
    u->op.push = push;
    u->op.pull = pull;
    u->op.inlines = true;
    u->op.release = release;
    nb_op_without_params(&u->op);
    u->kind = kind;
    u->nx = nx;
    u->ny = ny;
    u->first = nb_func_keep(first);
    u->second = nb_func_keep(second);
    u->nclosed = was->n;
    u->was = was->at;
    *was = (nb_list){0};
    for (int i = 0; i < u->nclosed; i++)
        nb_keep(u->was[i]);
    return &u->op;
}

/* ctx of the functions made here: the kind, then the functions. */
typedef struct rules {
    custom_kind kind;
    nb_func *f, *first, *second;
} rules;

/* x with every open lane, so that a rule gives each lane's own cotangent and
 * the sum over lanes is spread's. */
static nb_tensor *in_lanes(nb_tensor *x)
{
    int n;
    const nb_lane *lane = nb_lanes_open(&n);
    for (int l = 0; l < n; l++)
        x = nb_spread(x, lane[l]);
    return x;
}

/* The call as a node: results, arguments, what rules may close over. */
static bool record(const rules *r, int nx, nb_tensor *const *x, int ny,
                   nb_tensor *const *y0, nb_results *results)
{
    nb_list in = {0}, was = {0}, now = {0};
    bool ok = nb_closed_list(&was, &now);
    for (int k = 0; ok && k < ny; k++)
        ok = nb_list_add(&in, y0[k]);
    for (int i = 0; ok && i < nx; i++)
        ok = nb_list_add(&in, in_lanes(x[i]));
    for (int i = 0; ok && i < now.n; i++)
        ok = nb_list_add(&in, now.at[i]);
    nb_op *op =
        ok ? custom_new(r->kind, nx, ny, r->first, r->second, &was) : NULL;
    ok = op && nb_record_many(op, in.n, in.at, 0, NULL, results);
    nb_op_leave(op);
    nb_list_free(&in), nb_list_free(&was), nb_list_free(&now);
    return ok;
}

static bool run(const rules *r, int nx, nb_tensor *const *x, int *ny,
                nb_tensor **y)
{
    nb_tensor **plain = nb_array(nx);
    nb_results results = {.room = *ny, .out = y};
    bool ok = plain;
    for (int i = 0; ok && i < nx; i++)
        ok = (plain[i] = nb_detach(in_lanes(x[i])));
    nb_tensor **y0 = ok ? nb_array(*ny) : NULL;
    ok = y0 && nb_run(r->f, nx, plain, ny, y0) &&
         record(r, nx, x, *ny, y0, &results);
    nb_free(plain), nb_free(y0);
    return ok;
}

static nb_status rules_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    return NB_STATUS(run(ctx, nx, x, ny, y));
}

static void rules_free(void *ctx)
{
    rules *r = ctx;
    nb_func_drop(r->f);
    nb_func_drop(r->first);
    nb_func_drop(r->second);
    nb_free(r);
}

static nb_func *made(custom_kind kind, nb_func *f, nb_func *first,
                     nb_func *second)
{
    if (!f || !first) return NULL;
    rules *r = nb_alloc(sizeof *r);
    if (!r) return NULL;
    *r = (rules){kind, nb_func_keep(f), nb_func_keep(first),
                 nb_func_keep(second)};
    return nb_func_named(nb_func_owning(rules_body, r, rules_free),
                         kind == BY_VJP ? "custom_vjp" : "custom_jvp");
}

nb_func *nb_custom_vjp(nb_func *f, nb_func *fwd, nb_func *bwd)
{
    return bwd ? made(BY_VJP, f, fwd, bwd) : NULL;
}

nb_func *nb_custom_jvp(nb_func *f, nb_func *rule)
{
    return made(BY_JVP, f, rule, NULL);
}
