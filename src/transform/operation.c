/* operation.c - ops from descriptions.
 *
 * One with a kernel is a primitive with rules; one with a body is composed, see
 * operation_body.c. */
#include "transform/operation.h"

#include "ops/registry.h"
#include "ops/rows.h"

#include <ctype.h>
#include <string.h>

static const nb_operation *operation_of(const nb_call *c)
{
    return (const nb_operation *)c->op;
}

static nb_value value_of(const nb_param *p, const int64_t *at)
{
    nb_value v = {.kind = NB_VALUE_INT, .i = *at};
    if (*at == NB_NONE) return (nb_value){.kind = NB_VALUE_NONE};
    switch (p->kind) {
    case NB_P_FLOAT:
        v.kind = NB_VALUE_FLOAT;
        memcpy(&v.f, at, sizeof v.f);
        return v;
    case NB_P_TEXT:
        v.kind = NB_VALUE_TEXT;
        v.text = (const char *)(intptr_t)*at;
        return v;
    case NB_P_AXES:
    case NB_P_INTS:
        return (nb_value){.kind = NB_VALUE_LIST, .n = (int)*at, .list = at + 1};
    default: return v;
    }
}

void nb_usage_of(nb_usage *u, const nb_operation *o, const nb_call *c, int nin,
                 nb_tensor *const *in, int nout, nb_tensor *const *out)
{
    const nb_param *p;
    const int64_t *at;
    nb_call as = *c;
    as.op = &o->op;
    u->c = (nb_applied){.op = (nb_op *)&o->op,
                        .ctx = o->spec.ctx,
                        .nin = nin,
                        .in = in,
                        .nout = nout,
                        .out = out,
                        .val = u->val};
    while (c->nattr && (at = nb_arg_find(&as, u->c.nval, &p)))
        u->val[u->c.nval++] = value_of(p, at);
}

/* Kernels */

static int results(const nb_op *op)
{
    return op->nout > 1 ? op->nout : 1;
}

/* What is known of a result before `infer`. */
static void type_of(const nb_shape *s, nb_dtype d, nb_type *t)
{
    t->dtype = d;
    t->rank = s->rank;
    for (int k = 0; k < s->rank; k++)
        t->shape[k] = nb_extent_get(s->size[k]);
}

static bool ask(const nb_call *c, int k, nb_type *t)
{
    const nb_operation *o = operation_of(c);
    nb_usage u;
    nb_usage_of(&u, o, c, c->nin, c->in, results(c->op), NULL);
    if (o->spec.infer(&u.c, k, t) != NB_OK) return false;
    bool ok = t->rank >= 0 && t->rank <= NB_MAX_RANK && t->dtype > NB_NOTYPE &&
              t->dtype < NB_NDTYPES;
    for (int d = 0; ok && d < t->rank; d++)
        ok = t->shape[d] >= 0;
    return ok || nb_fail(NB_EVALUE, "%s: infer leaves result %d open",
                         c->op->name, k);
}

static bool sign(const nb_call *c, nb_text *t)
{
    int n = results(c->op);
    nb_type *type = nb_alloc_zero((size_t)n * sizeof *type);
    bool ok = type;
    for (int k = 0; ok && k < n; k++) {
        if (c->nin) type[k].dtype = (nb_dtype)c->in[0]->dtype;
        ok = ask(c, k, &type[k]);
    }
    ok = ok && nb_rows_sign(c, n, type, t);
    nb_free(type);
    return ok;
}

static bool infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    nb_type t;
    type_of(out, *dtype, &t);
    return ask(c, k, &t) && nb_rows_type(c, k, &t, out, dtype);
}

/* A size that the signature leaves open is nobody's to say. */
static bool infer_known(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    (void)dtype;
    for (int d = 0; d < out->rank; d++)
        if (nb_extent_is(out->size[d], -1))
            return nb_fail(NB_EVALUE,
                           "%s: the signature does not say how long axis %d "
                           "of result %d is, and there is no infer (%s)",
                           c->op->name, d, k, c->sig->text);
    return true;
}

static double cost(const nb_call *c)
{
    const nb_operation *o = operation_of(c);
    nb_usage u;
    nb_usage_of(&u, o, c, c->nin, c->in, results(c->op), NULL);
    return o->spec.cost(&u.c);
}

/* The results of a node, as nodes: itself, or its parts. */
static bool nodes_of(const nb_call *c, nb_tensor **y)
{
    int n = results(c->op);
    if (!(c->out->flags & NB_MULTI)) return y[0] = c->out, true;
    for (int k = 0; k < n; k++) {
        nb_shape s;
        nb_dtype d;
        if (!nb_call_infer(c, k, &s, &d) ||
            !(y[k] = nb_part_new(c->out, k, d, &s)))
            return false;
    }
    return true;
}

typedef bool rule(const nb_usage *u, nb_tensor *const *from, nb_tensor **to);

static bool by(rule *r, const nb_call *c, nb_tensor *const *from,
               nb_tensor **to)
{
    nb_usage u;
    nb_tensor **y = nb_array(results(c->op));
    bool ok = y && nodes_of(c, y);
    if (ok) {
        nb_usage_of(&u, operation_of(c), c, c->nin, c->in, results(c->op), y);
        ok = r(&u, from, to);
    }
    nb_free(y);
    return ok;
}

static bool push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    return by(nb_operation_push, c, u, uy);
}

static bool pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    return by(nb_operation_pull, c, ct, cx);
}

/* Descriptions */

static bool is_name(const char *s)
{
    if (!s || (!isalpha((unsigned char)*s) && *s != '_')) return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_') return false;
    return true;
}

/* An op of Python may be called anything; texts need a name. */
static bool check_work(const nb_op_spec *s)
{
    if (!s->name || !*s->name) return nb_fail(NB_EVALUE, "an op needs a name");
    if (!s->kernel == !s->body)
        return nb_fail(NB_EVALUE, "%s: an op has a kernel or a body, %s",
                       s->name, s->kernel ? "not both" : "this has neither");
    if (s->nin < 0 || s->nout < (s->body ? -1 : 0) || s->nout > 64)
        return nb_fail(NB_EVALUE, "%s: %d inputs and %d results", s->name,
                       s->nin, s->nout);
    if (s->in < NB_IN_ANY || s->in > NB_IN_FIRST || s->out < NB_OUT_SAME ||
        s->out > NB_OUT_ATTR)
        return nb_fail(NB_EVALUE, "%s: no such rule for dtypes", s->name);
    if (s->kernel && !s->signature && !s->infer)
        return nb_fail(NB_EVALUE,
                       "%s: a kernel needs a signature, or infer to say what "
                       "the results are",
                       s->name);
    if (s->kernel && s->out == NB_OUT_ATTR && !s->infer)
        return nb_fail(NB_EVALUE, "%s: infer has to say the dtype", s->name);
    return true;
}

static bool kernel_takes(nb_param_kind k)
{
    return k == NB_P_TENSOR || k == NB_P_INT || k == NB_P_BOOL ||
           k == NB_P_FLOAT || k == NB_P_AXIS || k == NB_P_DTYPE;
}

/* Arguments: as declared, or as many tensors as there are. */
static bool read_params(nb_operation *o)
{
    nb_text t = {0};
    const nb_op_spec *s = &o->spec;
    const nb_sig *sig = o->op.static_sig;
    int n = sig && s->nin == 0 ? sig->nin : s->nin;
    bool scalar = sig && sig->nin == 1 && !sig->term[0].n && !sig->term[0].dots;
    if (scalar && s->nin == 0) n = 0; /* "-> n": no inputs */
    for (int i = 0; !s->params && i < n; i++)
        nb_text_add(&t, "%sx%d", i ? ", " : "", i);
    o->op.params =
        s->params ? s->params : nb_intern(nb_text_get(&t), (size_t)t.n);
    nb_text_free(&t);
    if (!o->op.params || t.failed) return false;
    return nb_params_parse(&o->params, s->name, o->op.params);
}

static bool check_params(const nb_operation *o)
{
    const nb_params *p = &o->params;
    const nb_sig *sig = o->op.static_sig;
    const nb_op_spec *s = &o->spec;
    bool none = sig && sig->nin == 1 && !sig->term[0].n && !sig->term[0].dots;
    if (sig && !p->list && p->ntensors != sig->nin &&
        !(none && p->ntensors == 0))
        return nb_fail(NB_EVALUE, "%s: takes %d tensors, its signature %d (%s)",
                       s->name, p->ntensors, sig->nin, sig->text);
    int nout = s->nout ? s->nout : 1;
    if (sig && nout > 0 && nout != sig->nout)
        return nb_fail(NB_EVALUE, "%s: has %d results, its signature %d (%s)",
                       s->name, nout, sig->nout, sig->text);
    for (int k = 0; s->kernel && k < p->n; k++)
        if (!kernel_takes(p->param[k].kind) || p->param[k].nullable)
            return nb_fail(NB_EVALUE,
                           "%s: a kernel takes tensors, ints, bools and "
                           "floats, so %s cannot be an argument",
                           s->name, p->param[k].name);
    if (s->linear != NB_LINEAR_ALL && p->ntensors < 32 &&
        s->linear >> p->ntensors)
        return nb_fail(NB_EVALUE, "%s: is linear in inputs it does not have",
                       s->name);
    return true;
}

static bool settle(nb_operation *o)
{
    const nb_op_spec *s = &o->spec;
    nb_op *op = &o->op;
    if (s->signature && !(op->static_sig = nb_sig_parse(s->signature)))
        return false;
    op->sig = s->signature;
    if (!read_params(o) || !check_params(o)) return false;
    if (s->kernel && op->static_sig && !nb_rows_check(s->name, op->static_sig))
        return false;
    op->parsed = &o->params;
    op->ready = true;
    return true;
}

static void set_work(nb_operation *o)
{
    const nb_op_spec *s = &o->spec;
    nb_op *op = &o->op;
    if (s->body) {
        op->kind = NB_COMPOSITE;
        op->compose = nb_operation_compose;
        return;
    }
    op->kind = NB_RULE;
    op->rows = s->kernel;
    op->execute = nb_rows_execute;
    op->sign = op->static_sig ? NULL : sign;
    op->infer = s->infer ? infer : infer_known;
    op->cost = s->cost ? cost : NULL;
    op->push = push;
    op->pull = pull;
}

static void release(nb_op *op)
{
    nb_operation *o = (nb_operation *)op;
    if (o->spec.release) o->spec.release(o->spec.ctx);
    nb_free(o);
}

static const char *copied(const char *text, bool *ok)
{
    const char *copy = text ? nb_intern(text, strlen(text)) : NULL;
    *ok = *ok && (copy || !text);
    return copy;
}

static nb_operation *make(const nb_op_spec *s)
{
    bool ok = true;
    if (!s) return nb_fail(NB_EVALUE, "an op without a description");
    if (!check_work(s)) return NULL;
    nb_operation *o = nb_alloc_zero(sizeof *o);
    if (!o) return NULL;
    o->spec = *s;
    o->spec.name = o->op.name = copied(s->name, &ok);
    o->spec.doc = o->op.doc = copied(s->doc, &ok);
    o->spec.signature = copied(s->signature, &ok);
    o->spec.params = copied(s->params, &ok);
    o->op.nout = s->nout;
    o->op.in = s->in;
    o->op.out = s->out;
    o->op.uses = 1;
    o->op.release = release;
    if (!ok || !settle(o)) return nb_free(o), NULL;
    set_work(o);
    return o;
}

/* Texts are interned. */
static bool same(const nb_op *a, const nb_op *b)
{
    const nb_op_spec *x = &((const nb_operation *)a)->spec;
    const nb_op_spec *y = &((const nb_operation *)b)->spec;
    return x->name == y->name && x->doc == y->doc &&
           x->signature == y->signature && x->params == y->params &&
           x->nin == y->nin && x->nout == y->nout && x->in == y->in &&
           x->out == y->out && x->kernel == y->kernel && x->body == y->body &&
           x->infer == y->infer && x->broadcast == y->broadcast &&
           x->whole == y->whole && x->vjp == y->vjp && x->jvp == y->jvp &&
           x->linear == y->linear && x->cost == y->cost && x->ctx == y->ctx &&
           x->release == y->release;
}

nb_op *nb_op_new(const nb_op_spec *spec)
{
    nb_operation *o = make(spec);
    return o ? &o->op : NULL;
}

nb_op *nb_op_register(const nb_op_spec *spec)
{
    if (spec && spec->name && !is_name(spec->name))
        return nb_fail(NB_EVALUE, "\"%s\" is no name for an op", spec->name);
    for (int i = 0; spec && spec->name && nb_op_at(i); i++)
        if (!strcmp(nb_op_at(i)->name, spec->name))
            return nb_fail(NB_EVALUE,
                           "%s: the catalogue has an op of that name",
                           spec->name);
    nb_operation *o = make(spec);
    if (!o) return NULL;
    nb_op *listed = nb_registry_add(&o->op, same);
    if (listed != &o->op) nb_free(o); /* ctx is the caller's, or the other's */
    return listed;
}

void nb_op_drop(nb_op *op)
{
    if (!op || !op->release) return;
    nb_registry_remove(op);
    nb_op_leave(op);
}
