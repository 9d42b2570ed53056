/* apply.c - calling an op: types, axes, shape, node.
 *
 * Everything that can be wrong with a call is found here, before a node
 * exists.  A composite op is called with inputs of settled types and records
 * its parts; the place in the user's program that made the outermost call is
 * what all of them remember. */
#include "core/apply.h"

#include "core/axes.h"
#include "core/debug.h"

#include <string.h>

static _Thread_local nb_site place = {.line = -1};

void nb_source_set(const char *file, int line)
{
    place.file = file;
    place.line = file ? line : -1;
}

nb_site nb_site_of(const nb_tensor *x)
{
    nb_site was = place;
    if (!x->source) return was;
    place.file = x->line < 0 ? NULL : x->source;
    place.line = x->line;
    place.caller = x->line < 0 ? (void *)x->source : NULL;
    return was;
}

void nb_site_back(nb_site was)
{
    place = was;
}

nb_site nb_site_now(void)
{
    return place;
}

static nb_tensor *located(nb_tensor *y)
{
    if (!y) return NULL;
    y->source = place.file ? (const void *)place.file : place.caller;
    y->line = place.line;
    return y;
}

bool nb_results_add(nb_results *r, nb_tensor *x)
{
    if (!x) return false;
    if (r->n == r->room)
        return nb_fail(NB_EVALUE, "more than %d results", r->room);
    r->out[r->n++] = x;
    return true;
}

/* Kinds in the order in which they win: bool, int, float. */
static int kind_of(nb_dtype d)
{
    return nb_dtype_is_float(d) ? 2 : nb_dtype_is_integer(d) ? 1 : 0;
}

static nb_dtype promote(const char *who, nb_dtype a, nb_dtype b)
{
    bool clash = (a == NB_U64 && kind_of(b) == 1 && !nb_dtype_is_unsigned(b)) ||
                 (b == NB_U64 && kind_of(a) == 1 && !nb_dtype_is_unsigned(a));
    if (!clash) return nb_dtype_promote(a, b);
    nb_fail(NB_ETYPE,
            "%s: %s does not combine with %s: no integer dtype holds both, "
            "cast one side",
            who, nb_dtype_name(a), nb_dtype_name(b));
    return NB_NOTYPE;
}

/* Numbers take the dtype of the tensor they meet unless their kind is above
 * it; then the default dtype of their kind. */
static nb_dtype bend(nb_dtype strong, nb_dtype weak)
{
    if (strong && kind_of(weak) <= kind_of(strong)) return strong;
    return kind_of(weak) == 2 ? nb_default_float() : weak;
}

/* The common dtype; none, and true, if all inputs are indices or masks. */
static bool common_of(const nb_op *op, const char *who, int nin,
                      nb_tensor *const *in, nb_dtype *common)
{
    nb_dtype strong = NB_NOTYPE, weak = NB_NOTYPE;
    for (int i = 0; i < nin; i++) {
        if (op && i < 32 && (op->index | op->mask) >> i & 1) continue;
        nb_dtype d = (nb_dtype)in[i]->dtype;
        if (in[i]->flags & NB_WEAK) {
            if (!weak || kind_of(d) > kind_of(weak)) weak = d;
        } else if (!strong || strong == d)
            strong = d;
        else if (!(strong = promote(who, strong, d)))
            return false;
    }
    *common = weak ? bend(strong, weak) : strong;
    return true;
}

nb_dtype nb_dtype_common(int n, nb_tensor *const *x)
{
    for (int i = 0; i < n; i++)
        if (!x[i]) return NB_NOTYPE;
    nb_dtype common = NB_NOTYPE;
    return common_of(NULL, "result_type", n, x, &common) ? common : NB_NOTYPE;
}

static bool refuse(const nb_op *op, nb_dtype d, const char *needed)
{
    return nb_fail(NB_ETYPE, "%s: does not take %s: %s needed", op->name,
                   nb_dtype_name(d), needed);
}

/* The dtype that input i must have. */
static nb_dtype wanted(const nb_op *op, int i, nb_tensor *x, nb_dtype common)
{
    nb_dtype own = (nb_dtype)x->dtype;
    if (i < 32 && op->mask >> i & 1) return NB_BOOL;
    if (i < 32 && op->index >> i & 1) {
        if (nb_dtype_is_integer(own)) return own;
        refuse(op, own, "an integer index");
        return NB_NOTYPE;
    }
    if (op->in == NB_IN_BOOL) return NB_BOOL;
    if (op->in != NB_IN_ANY) return common;
    return x->flags & NB_WEAK ? bend(NB_NOTYPE, own) : own;
}

static bool settle_types(const nb_op *op, int nin, nb_tensor *const *in,
                         nb_tensor **to)
{
    nb_dtype common = NB_NOTYPE;
    bool together = op->in >= NB_IN_COMMON && op->in <= NB_IN_INTEGER && nin;
    if (op->in == NB_IN_FIRST && !common_of(op, op->name, 1, in, &common))
        return false;
    if (together && !common_of(op, op->name, nin, in, &common)) return false;
    if (op->in == NB_IN_FLOAT && !nb_dtype_is_float(common))
        common = nb_default_float();
    if (op->in == NB_IN_INTEGER && nb_dtype_is_float(common))
        return refuse(op, common, "integers or bool");
    if (op->in == NB_IN_NUMBER && common == NB_BOOL)
        return refuse(op, common, "numbers");
    for (int i = 0; i < nin; i++) {
        nb_dtype d = wanted(op, i, in[i], common);
        if (!d) return false;
        bool same = in[i]->dtype == d && !(in[i]->flags & NB_WEAK);
        to[i] = same ? in[i] : nb_as(in[i], d);
        if (!to[i]) return false;
    }
    return true;
}

static nb_dtype result_dtype(const nb_op *op, int nin, nb_tensor *const *in)
{
    int i = 0;
    while (i < nin - 1 && i < 31 && (op->index | op->mask) >> i & 1)
        i++;
    nb_dtype d = nin ? (nb_dtype)in[i]->dtype : NB_NOTYPE;
    switch (op->out) {
    case NB_OUT_BOOL: return NB_BOOL;
    case NB_OUT_I64: return NB_I64;
    case NB_OUT_SUM:
        return nb_dtype_is_float(d)      ? d
               : nb_dtype_is_unsigned(d) ? NB_U64
                                         : NB_I64;
    default: return d;
    }
}

/* The common case without lanes and equal or broadcast shapes, read straight
 * off the operands. */
static bool broadcast(int nin, nb_tensor *const *in, nb_shape *out)
{
    out->rank = out->nlanes = 0;
    for (int i = 0; i < nin; i++) {
        if (in[i]->nlanes) return false;
        if (in[i]->rank > out->rank) out->rank = in[i]->rank;
    }
    for (int d = 0; d < out->rank; d++)
        out->size[d] = nb_extent_of(1);
    for (int i = 0; i < nin; i++) {
        nb_extent *to = out->size + out->rank - in[i]->rank;
        const nb_extent *e = nb_tensor_size(in[i]);
        for (int d = 0; d < in[i]->rank; d++) {
            if (nb_extent_is(to[d], 1)) to[d] = e[d];
            if (!nb_extent_same(to[d], e[d]) && !nb_extent_is(e[d], 1))
                return false; /* the general way says what is wrong */
        }
    }
    return true;
}

static const nb_sig *signature(const nb_call *c)
{
    nb_text t = {0};
    if (c->op->static_sig) return c->op->static_sig;
    if (!c->op->sign) {
        nb_fail(NB_ERUNTIME, "%s: has no signature", c->op->name);
        return NULL;
    }
    const nb_sig *sig =
        c->op->sign(c, &t) && !t.failed ? nb_sig_parse(nb_text_get(&t)) : NULL;
    nb_text_free(&t);
    return sig;
}

/* Result k: shape and dtype, complete. */
static bool complete(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    *dtype = result_dtype(c->op, c->nin, c->in);
    if (c->op->infer && !c->op->infer(c, k, out, dtype)) return false;
    return nb_shape_check(out, *dtype, c->op->name);
}

bool nb_call_infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    nb_axes a;
    if (c->op->result) return c->op->result(c, k, out, dtype);
    if (!nb_axes_align(&a, c->op, c->sig, c->nin, c->in)) return false;
    bool ok = nb_axes_result(&a, c->sig, k, out) && complete(c, k, out, dtype);
    nb_axes_free(&a);
    return ok;
}

nb_op nb_op_part = {
    .name = "part",
    .doc = "One result of an op that has several.",
    .params = "x, k:int",
    .kind = NB_LINEAR,
};

nb_tensor *nb_part_new(nb_tensor *all, int k, nb_dtype d, const nb_shape *s)
{
    int64_t attr = k;
    nb_tensor *y = nb_node_new(&nb_op_part, NULL, d, s, 1, &all, 1, &attr);
    if (y && all->sharding) y->sharding = nb_part_sharding(all, k);
    return y;
}

/* An op with several results is a node without data of its own and one `part`
 * node a result. */
static bool record_parts(nb_op *op, nb_call *c, nb_results *r)
{
    nb_shape none = {0};
    nb_tensor *all = located(nb_node_new(op, c->sig, NB_NOTYPE, &none, c->nin,
                                         c->in, c->nattr, c->attr));
    if (!all || !nb_op_ready(&nb_op_part)) return false;
    all->flags |= NB_MULTI;
    for (int k = 0; k < op->nout; k++) {
        nb_shape shape;
        nb_dtype dtype;
        int64_t attr = k;
        if (!nb_call_infer(c, k, &shape, &dtype)) return false;
        nb_tensor *y = located(
            nb_node_new(&nb_op_part, NULL, dtype, &shape, 1, &all, 1, &attr));
        if (!nb_results_add(r, y)) return false;
    }
    return true;
}

static bool record_call(nb_op *op, nb_call *c, nb_results *r)
{
    nb_shape shape;
    nb_dtype dtype;
    if (op->shape) {
        dtype = result_dtype(op, c->nin, c->in);
        return op->shape(c, &shape) &&
               nb_results_add(
                   r, located(nb_node_new(op, NULL, dtype, &shape, c->nin,
                                          c->in, c->nattr, c->attr)));
    }
    if (op->result) return record_parts(op, c, r);
    if (!(c->sig = signature(c))) return false;
    if (op->nout > 1) return record_parts(op, c, r);
    bool fast = c->sig->pointwise && !op->infer && c->nin == c->sig->nin &&
                broadcast(c->nin, c->in, &shape);
    if (fast) {
        dtype = result_dtype(op, c->nin, c->in);
        if (shape.rank > 0 && !nb_shape_check(&shape, dtype, op->name))
            return false;
    } else if (!nb_call_infer(c, 0, &shape, &dtype))
        return false;
    return nb_results_add(r,
                          located(nb_node_new(op, c->sig, dtype, &shape, c->nin,
                                              c->in, c->nattr, c->attr)));
}

/* Whether it matters how the operands lie over devices. */
static bool lies_on_devices(const nb_call *c)
{
    for (int i = 0; i < c->nin; i++)
        if (c->in[i]->sharding) return true;
    return c->op->places && !c->op->asks;
}

static bool record(nb_op *op, nb_call *c, nb_results *r);

/* Operands are together, numbers aside. */
static bool are_together(const nb_call *c)
{
    unsigned devices = 0;
    for (int i = 0; i < c->nin; i++)
        devices |= c->in[i]->device;
    for (int i = 0; devices && i < c->nin; i++)
        if (c->in[i]->device != devices && !nb_tensor_is_number(c->in[i]))
            return false;
    return true;
}

static bool record_together(nb_op *op, nb_call *c, nb_results *r)
{
    nb_tensor **in = nb_alloc((size_t)c->nin * sizeof *in);
    bool ok = in;
    if (ok) memcpy(in, c->in, (size_t)c->nin * sizeof *in);
    c->in = in;
    ok = ok && nb_settle_devices(op->name, c->nin, in) && record(op, c, r);
    nb_free(in);
    return ok;
}

static bool record(nb_op *op, nb_call *c, nb_results *r)
{
    int before = r->n;
    if (!are_together(c)) return record_together(op, c, r);
    bool ok = record_call(op, c, r);
    if (ok && lies_on_devices(c))
        ok = nb_sharder(c, r->n - before, r->out + before);
    for (int k = before; ok && nb_debug_flags && k < r->n; k++)
        ok = nb_debug_settle(r->out[k]);
    return ok;
}

static bool count_inputs(const nb_op *op, int nin)
{
    const nb_params *p = op->parsed;
    if (p->list ? nin >= 1 : nin >= p->nrequired && nin <= p->ntensors)
        return true;
    return nb_fail(p->list ? NB_EVALUE : NB_ETYPE,
                   "%s: takes %d tensors, not %d", op->name, p->nrequired, nin);
}

bool nb_call_check(nb_call *c)
{
    const nb_op *op = c->op;
    nb_tensor *few[8], **settled = few;
    if (!count_inputs(op, c->nin)) return false;
    if (c->nin > 8 && !(settled = nb_alloc((size_t)c->nin * sizeof *settled)))
        return false;
    bool ok = settle_types(op, c->nin, c->in, settled);
    for (int i = 0; ok && i < c->nin; i++)
        if (settled[i] != c->in[i])
            ok = nb_fail(NB_ETYPE, "%s: input %d is %s, not %s", op->name, i,
                         nb_dtype_name((nb_dtype)c->in[i]->dtype),
                         nb_dtype_name((nb_dtype)settled[i]->dtype));
    ok = ok && (!c->nattr || nb_settle_axes(c)) && (!op->check || op->check(c));
    if (settled != few) nb_free(settled);
    return ok;
}

/* What the parts of a composite op make of nothing is where its inputs are, and
 * so is a result that is a number. */
static bool compose(const nb_call *c, nb_results *r)
{
    int device = -1, before = r->n;
    for (int i = 0; i < c->nin && device < 0; i++)
        if (!nb_tensor_is_number(c->in[i])) device = c->in[i]->device;
    if (device < 0) return c->op->compose(c, r);
    int was = nb_device_enter(device);
    bool ok = c->op->compose(c, r);
    nb_device_enter(was);
    for (int k = before; ok && device && k < r->n; k++)
        if (nb_tensor_is_number(r->out[k]))
            ok = (r->out[k] = nb_on_at_once(r->out[k], device));
    return ok;
}

static bool apply(nb_op *op, int nin, nb_tensor *const *in, int nval,
                  const nb_value *val, nb_results *r, nb_tensor **settled)
{
    words w;
    nb_call c = {.op = op, .nin = nin, .in = settled, .attr = w.at};
    if (op->parsed->n > op->parsed->ntensors) {
        if (!nb_pack(op, nval, val, &w)) return false;
        c.nattr = w.n;
    }
    if (!settle_types(op, nin, in, settled)) return false;
    if (!nb_settle_devices(op->name, nin, settled)) return false;
    if (c.nattr && !nb_settle_axes(&c)) return false;
    if (op->check && !op->check(&c)) return false;
    return op->compose ? compose(&c, r) : record(op, &c, r);
}

bool nb_apply_many(nb_op *op, int nin, nb_tensor *const *in, int nval,
                   const nb_value *val, nb_results *r, void *caller)
{
    nb_tensor *few[8], **settled = few;
    for (int i = 0; i < nin; i++)
        if (!in[i]) return false;
    if (!nb_op_ready(op) || !count_inputs(op, nin)) return false;
    if (nin > 8 && !(settled = nb_alloc((size_t)nin * sizeof *settled)))
        return false;
    bool outermost = !place.caller;
    if (outermost) place.caller = caller;
    bool ok = apply(op, nin, in, nval, val, r, settled);
    if (outermost) place.caller = NULL;
    if (settled != few) nb_free(settled);
    return ok;
}

nb_tensor *nb_apply(nb_op *op, int nin, nb_tensor *const *in, int nval,
                    const nb_value *val, void *caller)
{
    nb_tensor *y = NULL;
    nb_results r = {.room = 1, .out = &y};
    return nb_apply_many(op, nin, in, nval, val, &r, caller) ? y : NULL;
}

bool nb_record_many(nb_op *op, int nin, nb_tensor *const *in, int nattr,
                    const int64_t *attr, nb_results *r)
{
    nb_call c = {.op = op,
                 .nin = nin,
                 .in = in,
                 .attr = (int64_t *)attr,
                 .nattr = nattr};
    for (int i = 0; i < nin; i++)
        if (!in[i]) return false;
    return nb_op_ready(op) && record(op, &c, r);
}

nb_tensor *nb_record(nb_op *op, int nin, nb_tensor *const *in, int nattr,
                     const int64_t *attr)
{
    nb_tensor *y = NULL;
    nb_results r = {.room = 1, .out = &y};
    return nb_record_many(op, nin, in, nattr, attr, &r) ? y : NULL;
}
