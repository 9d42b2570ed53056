/* derive.c - one step of differentiation, forward or back, through one node.
 *
 * Everything here follows from a node's kind and signature; the only ops named
 * are those that calculus itself needs: mul, add, sum and its inverse image. */
#include "transform/derive.h"

#include "core/axes.h"
#include "ops/ops.h"

static bool fixed(const nb_op *op, int i)
{
    return i < 32 && (op->fixed | op->index | op->mask) >> i & 1;
}

/* The call again, with x in place of input i. */
static nb_tensor *replace(const nb_call *c, int i, nb_tensor *x)
{
    nb_tensor *few[8] = {0}, **in = few;
    if (c->nin > 8 && !(in = nb_alloc((size_t)c->nin * sizeof *in)))
        return NULL;
    for (int k = 0; k < c->nin; k++)
        in[k] = k == i ? x : c->in[k];
    nb_tensor *y = nb_record((nb_op *)c->op, c->nin, in, c->nattr, c->attr);
    if (in != few) nb_free(in);
    return y;
}

/* A linear op of all moving inputs together; the others move by zero. */
static nb_tensor *jointly(const nb_call *c, nb_tensor *const *u)
{
    nb_tensor *few[8] = {0}, **in = few;
    if (c->nin > 8 && !(in = nb_alloc((size_t)c->nin * sizeof *in)))
        return NULL;
    for (int k = 0; k < c->nin; k++)
        in[k] = fixed(c->op, k) ? c->in[k]
                : u[k]          ? u[k]
                                : nb_fill_like(c->in[k], 0);
    nb_tensor *y = nb_record((nb_op *)c->op, c->nin, in, c->nattr, c->attr);
    if (in != few) nb_free(in);
    return y;
}

/* Between the points of a call and its result: a reduction that is not linear,
 * such as max, is a sum once it is weighted by its partial. */
static nb_tensor *gather_points(const nb_call *c, nb_tensor *t)
{
    int n;
    if (c->op->reduce == NB_SUM) return t;
    const int64_t *axes = nb_arg_list(c, 0, &n);
    return nb_reduce_sum(t, n, axes, nb_arg_int(c, 1));
}

static bool linear_in(const nb_op *op, int i)
{
    return i < 32 && op->linear >> i & 1;
}

static nb_tensor *term(const nb_call *c, int k, int i, nb_tensor *u)
{
    if (linear_in(c->op, i)) return replace(c, i, u);
    switch (c->op->kind) {
    case NB_POINTWISE: return gather_points(c, nb_mul(c->op->partial(c, i), u));
    case NB_MULTILINEAR: return replace(c, i, u);
    case NB_RULE: return c->op->jvp(c, k, i, u);
    default: return nb_fail(NB_ERUNTIME, "%s: has no derivative", c->op->name);
    }
}

/* A tangent may lack a lane that its value has, and is the same in it then. */
static nb_tensor *shown(const nb_call *c, nb_tensor *u)
{
    return nb_show(
        u, (int)c->attr[0],
        (nb_lane){.id = (int32_t)c->attr[1], .size = nb_extent_of(c->attr[2])});
}

static bool push(nb_tensor *y, nb_tensor *const *u, nb_tensor **uy)
{
    int k = 0;
    nb_tensor *node = y;
    if (y->op == &nb_op_part) {
        k = (int)nb_tensor_attr(y)[0];
        node = nb_tensor_in(y)[0];
    }
    nb_call c = nb_call_of(node);
    c.out = y; /* what rules call the result */
    *uy = NULL;
    if (c.op->kind == NB_CONSTANT || !nb_dtype_is_float((nb_dtype)y->dtype))
        return true;
    for (int i = 0; i < c.nin; i++) {
        if (!u[i] || fixed(c.op, i)) continue;
        if (c.op == &nb_op_show) return (*uy = shown(&c, u[0]));
        if (c.op->kind == NB_LINEAR) return (*uy = jointly(&c, u));
        nb_tensor *t = term(&c, k, i, u[i]);
        *uy = *uy ? nb_add(*uy, t) : t;
        if (!*uy) return false;
    }
    return true;
}

/* What rules make of nothing is where the value is. */
bool nb_push(nb_tensor *y, nb_tensor *const *u, nb_tensor **uy)
{
    int was = nb_device_enter(y->device);
    bool ok = push(y, u, uy);
    nb_device_enter(was);
    return ok;
}

static bool has_lane(const nb_tensor *x, int id)
{
    for (int l = 0; l < x->nlanes; l++)
        if (nb_tensor_lane(x)[l].id == id) return true;
    return false;
}

/* Every lane of y that x does not have is shown and summed (lanes that only the
 * cotangent has pass through); leading visible axes are summed, and axes that x
 * has as ones. */
nb_tensor *nb_unbroadcast(const nb_tensor *y, const nb_tensor *x, nb_tensor *g)
{
    int64_t axes[NB_MAX_RANK], size[NB_MAX_RANK];
    int n = 0;
    for (int l = 0; g && l < y->nlanes; l++)
        if (!has_lane(x, nb_tensor_lane(y)[l].id))
            g = nb_show(g, 0, nb_tensor_lane(y)[l]);
    if (!g) return NULL;
    int lead = g->rank - x->rank;
    for (int d = 0; d < g->rank; d++) {
        bool one = d >= lead && nb_extent_is(nb_tensor_size(x)[d - lead], 1);
        if (d < lead || (one && nb_size(g, d) != 1)) axes[n++] = d;
    }
    if (n == 0) return g;
    nb_sizes(x, size);
    return nb_reshape(nb_reduce_sum(g, n, axes, false), x->rank, size);
}

/* A tangent with every lane of the result, also of inputs that it does not
 * depend on. */
static nb_tensor *widened(const nb_call *c, nb_tensor *t)
{
    for (int i = 0; i < c->nin; i++)
        for (int l = 0; l < c->in[i]->nlanes; l++)
            t = nb_spread(t, nb_tensor_lane(c->in[i])[l]);
    return t;
}

/* A rule that says how results move, transposed: it is linear in u, so the
 * cotangent is pulled back through what it records.  u has the lanes of its
 * input, whichever vmaps are still open, so nothing is left to unbroadcast. */
static bool transposed(const nb_call *c, int i, nb_tensor *const *ct,
                       nb_tensor **g)
{
    int n = c->op->nout > 1 ? c->op->nout : 1;
    nb_tensor *x = c->in[i], *u = nb_fill_like(x, 0);
    for (int l = 0; l < x->nlanes; l++)
        u = nb_spread(u, nb_tensor_lane(x)[l]);
    u = nb_alias(u);
    uint64_t bit = u ? nb_trace_open() : 0;
    bool ok = bit;
    if (ok) u->trace |= bit;
    for (int k = 0; ok && k < n; k++) {
        nb_tensor *part = NULL;
        if (!ct[k]) continue;
        nb_tensor *t = widened(c, c->op->jvp(c, k, i, u));
        ok = t && nb_walk_pull(bit, 1, &u, 1, &t, &ct[k], &part);
        if (ok && part) ok = (*g = *g ? nb_add(*g, part) : part);
    }
    if (bit) nb_walk_end(bit);
    return ok;
}

static bool pull(nb_tensor *y, int i, nb_tensor *const *ct, nb_tensor **cx)
{
    nb_call c = nb_call_of(y);
    nb_tensor *x = c.in[i], *g = NULL;
    *cx = NULL;
    if (fixed(c.op, i) || c.op->kind == NB_CONSTANT ||
        !nb_dtype_is_float((nb_dtype)x->dtype))
        return true;
    switch (c.op->kind) {
    case NB_POINTWISE: {
        nb_tensor *points =
            c.op->reduce == NB_SUM ? ct[0] : nb_unreduce(&c, ct[0]);
        g = nb_mul(points, c.op->partial(&c, i));
        break;
    }
    case NB_LINEAR:
    case NB_MULTILINEAR: g = c.op->transpose(&c, i, ct[0]); break;
    case NB_RULE:
        if (!linear_in(c.op, i)) return transposed(&c, i, ct, cx);
        g = c.op->transpose(&c, i, ct[0]);
        break;
    default: return nb_fail(NB_ERUNTIME, "%s: has no derivative", c.op->name);
    }
    /* what hide added is an axis again already */
    *cx = c.op == &nb_op_hide ? g : nb_unbroadcast(y, x, g);
    return *cx;
}

bool nb_pull(nb_tensor *y, int i, nb_tensor *const *ct, nb_tensor **cx)
{
    int was = nb_device_enter(y->device);
    bool ok = pull(y, i, ct, cx);
    nb_device_enter(was);
    return ok;
}
