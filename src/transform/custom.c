/* custom.c - functions with derivatives of their own.
 *
 * The function runs on arguments without history; its results y0 and the
 * arguments x become inputs of one op, which is y0 by value and knows how to
 * push and pull through x.  What y0 itself descends from, values that the
 * function closes over, is ignored. */
#include "transform/region.h"

#include "core/lanes.h"
#include "ops/ops.h"

#include <string.h>

typedef enum custom_kind { BY_VJP, BY_JVP } custom_kind;

typedef struct custom {
    nb_op op; /* first: a node points to it */
    custom_kind kind;
    int nx, ny;
    nb_func *first, *second; /* fwd and bwd; the rule */
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

/* bwd at x: from cotangents of y to those of x. */
static bool backward(const custom *u, nb_tensor *const *x, nb_tensor *const *ct,
                     nb_tensor **cx)
{
    nb_tensor **out = NULL, **back = NULL;
    int n, m;
    bool ok = call(u->first, u->nx, x, 0, NULL, &n, &out) &&
              (n >= u->ny || count(n, u->ny, "custom_vjp: fwd")) &&
              call(u->second, n - u->ny, out + u->ny, u->ny, ct, &m, &back) &&
              count(m, u->nx, "custom_vjp: bwd");
    for (int i = 0; ok && i < u->nx; i++)
        cx[i] = is_real(x[i]) ? back[i] : NULL;
    nb_free(out), nb_free(back);
    return ok;
}

/* The rule at x: how y moves with u. */
static bool forward(const custom *r, nb_tensor *const *x, nb_tensor *const *u,
                    nb_tensor **uy)
{
    nb_tensor **out = NULL;
    int n;
    bool ok = call(r->first, r->nx, x, r->nx, u, &n, &out) &&
              count(n, 2 * r->ny, "custom_jvp: the rule");
    for (int k = 0; ok && k < r->ny; k++)
        uy[k] = out[r->ny + k];
    nb_free(out);
    return ok;
}

/* A linear map applied to fresh zeros, and walked the other way. */
typedef bool linear_map(const custom *u, nb_tensor *const *x,
                        nb_tensor *const *from, nb_tensor **to);

static bool transposed(const custom *u, linear_map *map, nb_tensor *const *x,
                       int n, nb_tensor *const *like, int m,
                       nb_tensor *const *given, nb_tensor **out)
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
    ok = ok && (tape = nb_tape_open(n, zero, fresh)) && map(u, x, fresh, to);
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

static bool push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    const custom *r = custom_of(c);
    nb_tensor *const *x = c->in + r->ny;
    nb_tensor **all = filled(r->nx, u + r->ny, x);
    bool ok = all;
    if (ok && r->kind == BY_JVP) ok = forward(r, x, all, uy);
    if (ok && r->kind == BY_VJP)
        ok = transposed(r, backward, x, r->ny, c->in, r->nx, all, uy);
    nb_free(all);
    return ok;
}

static bool pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    const custom *r = custom_of(c);
    nb_tensor *const *x = c->in + r->ny;
    nb_tensor **all = filled(r->ny, ct, c->in);
    bool ok = all;
    if (ok && r->kind == BY_VJP) ok = backward(r, x, all, cx + r->ny);
    if (ok && r->kind == BY_JVP)
        ok = transposed(r, forward, x, r->nx, x, r->ny, all, cx + r->ny);
    nb_free(all);
    return ok;
}

static nb_op *custom_new(custom_kind kind, int nx, int ny, nb_func *first,
                         nb_func *second)
{
    static const char *const names[] = {"custom_vjp", "custom_jvp"};
    custom *u = nb_alloc_zero(sizeof *u);
    if (!u) return NULL;
    u->op.name = names[kind];
    u->op.kind = NB_RULE;
    u->op.nout = ny;
    u->op.result = result;
    u->op.execute = execute;
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

static bool run(const rules *r, int nx, nb_tensor *const *x, int *ny,
                nb_tensor **y)
{
    nb_tensor **plain = nb_array(nx), **in = NULL;
    nb_results results = {.room = *ny, .out = y};
    bool ok = plain;
    for (int i = 0; ok && i < nx; i++)
        ok = (plain[i] = nb_detach(in_lanes(x[i])));
    nb_tensor **y0 = ok ? nb_array(*ny) : NULL;
    ok = y0 && nb_run(r->f, nx, plain, ny, y0) && (in = nb_array(*ny + nx));
    for (int k = 0; ok && k < *ny; k++)
        in[k] = y0[k];
    for (int i = 0; ok && i < nx; i++)
        ok = (in[*ny + i] = in_lanes(x[i]));
    nb_op *op = ok ? custom_new(r->kind, nx, *ny, r->first, r->second) : NULL;
    ok = op && nb_record_many(op, *ny + nx, in, 0, NULL, &results);
    nb_op_leave(op);
    nb_free(plain), nb_free(in), nb_free(y0);
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
