/* operation_rules.c - derivatives of described ops.
 *
 * A rule is a linear map between the tangents or cotangents of inputs and those
 * of results.  The mode that has no rule is the other's map walked back: run on
 * fresh zeros, and pulled through. */
#include "transform/operation.h"

#include "core/lanes.h"
#include "ops/ops.h"
#include "ops/rows.h"
#include "transform/derive.h"

#include <stdio.h>

static const nb_operation *operation_of(const nb_usage *u)
{
    return (const nb_operation *)u->c.op;
}

static bool is_single(unsigned mask)
{
    return mask && !(mask & (mask - 1));
}

bool nb_operation_varies(const nb_operation *o)
{
    unsigned linear = o->spec.linear;
    return o->spec.vjp || o->spec.jvp || linear == NB_LINEAR_ALL ||
           is_single(linear);
}

static bool is_real(const nb_tensor *x)
{
    return nb_dtype_is_float((nb_dtype)x->dtype);
}

/* x with zeros where nothing is given, in the lanes of what it belongs to. */
static nb_tensor *or_zeros(nb_tensor *x, nb_tensor *like)
{
    if (x) return x;
    nb_shape s = nb_tensor_shape(like);
    return nb_spread_over(nb_fill_like(like, 0), &s);
}

static bool same_shape(const nb_tensor *a, const nb_tensor *b)
{
    bool same = a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = nb_extent_same(nb_tensor_size(a)[d], nb_tensor_size(b)[d]);
    return same;
}

/* What belongs to x, in its shape and dtype; NULL stays. */
static bool fit(const char *what, int k, const nb_tensor *x, nb_tensor **g)
{
    if (!*g || !is_real(x)) return *g = NULL, true;
    if (!same_shape(*g, x)) {
        nb_shape is = nb_tensor_shape(*g), be = nb_tensor_shape(x);
        return nb_fail(NB_EVALUE, "%s %d has shape %s, not %s", what, k,
                       nb_shape_text(&is), nb_shape_text(&be));
    }
    return (*g = nb_as(*g, (nb_dtype)x->dtype));
}

/* Whether g broadcasts from x: has as many axes or more, and its sizes. */
static bool is_spread(const nb_tensor *g, const nb_tensor *x)
{
    int lead = g->rank - x->rank;
    bool spread = lead >= 0;
    for (int d = 0; spread && d < x->rank; d++)
        spread =
            nb_extent_is(nb_tensor_size(x)[d], 1) ||
            nb_extent_same(nb_tensor_size(x)[d], nb_tensor_size(g)[d + lead]);
    return spread;
}

/* Summed over lanes that some result has and x lacks, and over visible axes
 * along which x was broadcast. */
static nb_tensor *summed(const nb_usage *u, const nb_tensor *x, nb_tensor *g)
{
    nb_shape lanes = {0};
    for (int k = 0; k < u->c.nout; k++) {
        nb_shape s = nb_tensor_shape(u->c.out[k]);
        nb_lanes_widen(&lanes, &s);
    }
    if (!is_spread(g, x)) return g; /* fit says what is wrong */
    return nb_spread_back(x, &lanes, &g) ? nb_unbroadcast(x, x, g) : NULL;
}

/* Calls a rule outside the signature of any body. */
static bool call(nb_op_rule *rule, const nb_usage *u, int n,
                 nb_tensor *const *from, nb_tensor *const *like, nb_tensor **to)
{
    nb_tensor **all = nb_array(n);
    bool ok = all;
    for (int i = 0; ok && i < n; i++)
        ok = (all[i] = or_zeros(from[i], like[i]));
    const nb_sig *was = nb_rows_within(NULL);
    ok = ok && rule(&u->c, all, to) == NB_OK;
    nb_rows_within(was);
    nb_free(all);
    return ok && !nb_failed();
}

static bool by_jvp(const nb_usage *u, nb_tensor *const *ux, nb_tensor **uy)
{
    const nb_op_spec *s = &operation_of(u)->spec;
    bool ok = call(s->jvp, u, u->c.nin, ux, u->c.in, uy);
    for (int k = 0; ok && k < u->c.nout; k++)
        ok = fit("tangent of result", k, u->c.out[k], &uy[k]);
    return ok;
}

static bool by_vjp(const nb_usage *u, nb_tensor *const *ct, nb_tensor **cx)
{
    const nb_op_spec *s = &operation_of(u)->spec;
    bool ok = call(s->vjp, u, u->c.nout, ct, u->c.out, cx);
    for (int i = 0; ok && i < u->c.nin; i++) {
        nb_tensor *x = u->c.in[i];
        if (cx[i] && is_real(x)) ok = (cx[i] = summed(u, x, cx[i]));
        ok = ok && fit("cotangent of input", i, x, &cx[i]);
    }
    return ok;
}

/* The op again, on tangents: of the one input in which it is linear, or of all
 * inputs together. */
static bool by_itself(const nb_usage *u, nb_tensor *const *ux, nb_tensor **uy)
{
    unsigned linear = operation_of(u)->spec.linear;
    nb_tensor **in = nb_array(u->c.nin);
    int n = u->c.nout;
    bool ok = in;
    for (int i = 0; ok && i < u->c.nin; i++) {
        bool moves = i < 32 && linear >> i & 1;
        if (!moves && ux[i] && is_real(u->c.in[i]))
            ok = nb_fail(NB_ERUNTIME, "no rule says how it moves with input %d",
                         i);
        else
            ok = (in[i] = moves ? or_zeros(ux[i], u->c.in[i]) : u->c.in[i]);
    }
    ok = ok && nb_op_call(u->c.op, u->c.nin, in, u->c.nval, u->c.val, &n, uy) ==
                   NB_OK;
    for (int k = 0; ok && k < n; k++)
        ok = fit("tangent of result", k, u->c.out[k], &uy[k]);
    nb_free(in);
    return ok;
}

typedef bool linear_map(const nb_usage *u, nb_tensor *const *from,
                        nb_tensor **to);

/* map takes n values like `like` to m like `into`; what `given`, as many, pulls
 * back to the n. */
static bool transposed(const nb_usage *u, linear_map *map, int n,
                       nb_tensor *const *like, int m, nb_tensor *const *into,
                       nb_tensor *const *given, nb_tensor **out)
{
    nb_tensor **zero = nb_array(n), **fresh = nb_array(n);
    nb_tensor **to = nb_array(m), **ct = nb_array(m);
    nb_tape *tape = NULL;
    int used = 0;
    bool ok = zero && fresh && to && ct;
    for (int i = 0; ok && i < n; i++)
        ok = (zero[i] = or_zeros(NULL, like[i]));
    ok = ok && (tape = nb_tape_open_inner(n, zero, fresh)) && map(u, fresh, to);
    for (int k = 0; ok && k < m; k++) {
        nb_shape s = nb_tensor_shape(into[k]);
        if (!to[k] || !given[k]) continue;
        ct[used] = given[k];
        ok = (to[used++] = nb_spread_over(to[k], &s));
    }
    ok = ok && nb_tape_close(tape, used, to) == NB_OK &&
         nb_tape_pull(tape, ct, out) == NB_OK;
    nb_tape_drop(tape);
    nb_free(zero), nb_free(fresh), nb_free(to), nb_free(ct);
    return ok;
}

/* A failing rule is the op's failure. */
static bool told(bool ok, const char *mode, const nb_usage *u)
{
    char cause[512];
    if (ok || nb_error_code() == NB_EMEMORY) return ok;
    snprintf(cause, sizeof cause, "%s", nb_error_message());
    nb_error_clear();
    return nb_fail(NB_ERUNTIME, "%s rule failed for operation '%s': %s", mode,
                   operation_of(u)->spec.name,
                   *cause ? cause : "it gave no reason");
}

static bool no_rule(const nb_usage *u, const char *mode)
{
    return nb_fail(NB_ERUNTIME,
                   "%s: has no derivative: %s mode needs a vjp or jvp rule",
                   operation_of(u)->spec.name, mode);
}

bool nb_operation_push(const nb_usage *u, nb_tensor *const *ux, nb_tensor **uy)
{
    const nb_operation *o = operation_of(u);
    bool ok;
    if (!nb_operation_varies(o)) return no_rule(u, "forward");
    if (o->spec.jvp)
        ok = by_jvp(u, ux, uy);
    else if (o->spec.vjp)
        return told(transposed(u, by_vjp, u->c.nout, u->c.out, u->c.nin,
                               u->c.in, ux, uy),
                    "VJP", u);
    else
        ok = by_itself(u, ux, uy);
    return told(ok, "JVP", u);
}

bool nb_operation_pull(const nb_usage *u, nb_tensor *const *ct, nb_tensor **cx)
{
    const nb_operation *o = operation_of(u);
    if (o->spec.vjp) return told(by_vjp(u, ct, cx), "VJP", u);
    if (o->spec.jvp)
        return told(transposed(u, by_jvp, u->c.nin, u->c.in, u->c.nout,
                               u->c.out, ct, cx),
                    "JVP", u);
    return no_rule(u, "reverse");
}
