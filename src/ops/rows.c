/* rows.c - recording calls of functions over rows. */
#include "ops/rows.h"

#include "core/row_args.h"

#include <string.h>

static _Thread_local const nb_sig *within;

const nb_sig *nb_rows_within(const nb_sig *sig)
{
    const nb_sig *was = within;
    within = sig;
    return was;
}

bool nb_rows_check(const char *who, const nb_sig *sig)
{
    bool in = false;
    for (int t = 0; t < sig->nin; t++)
        in = in || sig->term[t].dots;
    for (int t = 0; t < sig->nin + sig->nout; t++) {
        if (t >= sig->nin && in && !sig->term[t].dots)
            return nb_fail(NB_EVALUE,
                           "%s: a kernel computes rows, so every result needs "
                           "... (%s)",
                           who, sig->text);
        if (sig->term[t].n >= NB_KERNEL_RANK)
            return nb_fail(NB_EVALUE, "%s: a row of rank %d, at most %d (%s)",
                           who, sig->term[t].n, NB_KERNEL_RANK - 1, sig->text);
    }
    return true;
}

static bool add_term(const nb_call *c, nb_text *t, const char *before, int rank)
{
    nb_text_add(t, "%s", before);
    for (int d = 0; d < rank; d++)
        nb_text_add(t, " 1");
    if (rank < NB_KERNEL_RANK) return true;
    return nb_fail(NB_EVALUE,
                   "%s: an operand of rank %d: a kernel without a signature "
                   "takes at most %d",
                   c->op->name, rank, NB_KERNEL_RANK - 1);
}

bool nb_rows_sign(const nb_call *c, int nout, const nb_type *type, nb_text *t)
{
    for (int i = 0; i < c->nin; i++)
        if (!add_term(c, t, i ? "," : "", c->in[i]->rank)) return false;
    for (int k = 0; k < nout; k++)
        if (!add_term(c, t, k ? "," : " ->", type[k].rank)) return false;
    return true;
}

bool nb_rows_type(const nb_call *c, int k, const nb_type *type, nb_shape *out,
                  nb_dtype *dtype)
{
    bool free = !c->op->static_sig, same = out->rank == type->rank;
    nb_shape given = {.rank = type->rank};
    for (int d = 0; d < type->rank; d++)
        given.size[d] = nb_extent_of(type->shape[d]);
    for (int d = 0; same && !free && d < type->rank; d++)
        same = nb_extent_is(out->size[d], -1) ||
               nb_extent_same(out->size[d], given.size[d]);
    if (!same)
        return nb_fail(NB_EVALUE,
                       "%s: result %d of shape %s is declared as %s (%s)",
                       c->op->name, k, nb_shape_text(out),
                       nb_shape_text(&given), c->sig->text);
    memcpy(out->size, given.size, sizeof out->size);
    *dtype = type->dtype;
    return true;
}

/* A function and the types that its caller gives it. */
typedef struct call_op {
    nb_op op; /* first: nodes point to it */
    nb_params params;
    bool
        settled; /* types are what the signature says: of blocks it says less */
    nb_type type[];
} call_op;

static int results(const nb_call *c)
{
    return c->op->nout > 1 ? c->op->nout : 1;
}

static bool sign(const nb_call *c, nb_text *t)
{
    return nb_rows_sign(c, results(c), ((const call_op *)c->op)->type, t);
}

static bool infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    const call_op *o = (const call_op *)c->op;
    const nb_type *t = &o->type[k];
    if (!o->settled || !c->op->static_sig)
        return nb_rows_type(c, k, t, out, dtype);
    for (int d = 0; d < out->rank; d++)
        if (nb_extent_is(out->size[d], -1))
            out->size[d] = nb_extent_of(t->shape[d]);
    *dtype = t->dtype;
    return true;
}

static bool no_push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    (void)u, (void)uy;
    return nb_fail(NB_ERUNTIME,
                   "%s: a kernel has no derivative: call it in an op with a "
                   "vjp or jvp rule",
                   c->op->name);
}

static bool no_pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    return no_push(c, ct, cx);
}

static void release(nb_op *op)
{
    nb_free(op);
}

/* Attributes by name; their words. */
static bool add_attrs(call_op *o, int nattr, const nb_named *attr,
                      int64_t *word)
{
    o->params.n = nattr;
    for (int k = 0; k < nattr; k++) {
        nb_param *p = &o->params.param[k];
        const nb_value *v = &attr[k].value;
        if (v->kind != NB_VALUE_INT && v->kind != NB_VALUE_FLOAT)
            return nb_fail(NB_ETYPE,
                           "%s: attribute %s is an int, a bool or a float",
                           o->op.name, attr[k].name);
        p->kind = v->kind == NB_VALUE_INT ? NB_P_INT : NB_P_FLOAT;
        p->name = nb_intern(attr[k].name, strlen(attr[k].name));
        if (!p->name) return false;
        memcpy(&word[k],
               v->kind == NB_VALUE_INT ? (void *)&v->i : (void *)&v->f,
               sizeof *word);
    }
    return true;
}

/* The signature of the body around, as it is for a call of so many; *sig NULL
 * for none.  What holds at every element holds for any number of operands. */
static bool inherit(const char *who, int nin, int nout, const nb_sig **sig)
{
    nb_text t = {0};
    *sig = within;
    if (!within || (within->nin == nin && within->nout == nout)) return true;
    if (!within->pointwise || !nin)
        return nb_fail(NB_EVALUE,
                       "%s: %d values and %d results where the op it is "
                       "called in has %d and %d (%s)",
                       who, nin, nout, within->nin, within->nout, within->text);
    for (int i = 0; i < nin + nout; i++)
        nb_text_add(&t, "%s...", !i ? "" : i == nin ? " -> " : ", ");
    *sig = t.failed ? NULL : nb_sig_parse(nb_text_get(&t));
    nb_text_free(&t);
    return *sig;
}

static bool count(const char *who, int nin, int nattr, int nout)
{
    if (nin + nout > NB_KERNEL_VIEWS)
        return nb_fail(NB_EVALUE, "%s: %d values and results, at most %d", who,
                       nin + nout, NB_KERNEL_VIEWS);
    if (nattr > NB_KERNEL_ATTRS)
        return nb_fail(NB_EVALUE, "%s: %d attributes, at most %d", who, nattr,
                       NB_KERNEL_ATTRS);
    return nout > 0 || nb_fail(NB_EVALUE, "%s: no result types", who);
}

static bool check_types(const char *who, int nout, const nb_type *type)
{
    for (int k = 0; k < nout; k++) {
        if (type[k].dtype <= NB_NOTYPE || type[k].dtype >= NB_NDTYPES)
            return nb_fail(NB_ETYPE, "%s: result %d has no dtype", who, k);
        if (type[k].rank < 0 || type[k].rank > NB_MAX_RANK)
            return nb_fail(NB_EVALUE, "%s: result %d of rank %d", who, k,
                           type[k].rank);
        for (int d = 0; d < type[k].rank; d++)
            if (type[k].shape[d] < 0)
                return nb_fail(NB_EVALUE,
                               "%s: result %d has an axis of size "
                               "%lld",
                               who, k, (long long)type[k].shape[d]);
    }
    return true;
}

/* Programs with calls of one kernel on a card are shared: all that a call does
 * follows from the text, the types and the axes. */
static uint64_t identity_of(const call_op *o, int nout, const nb_sig *sig)
{
    uint64_t h = nb_hash(17, &o->op.rows_there, sizeof o->op.rows_there);
    if (sig) h = nb_hash(h, sig->text, strlen(sig->text));
    for (int k = 0; k < nout; k++) {
        const nb_type *t = &o->type[k];
        h = nb_hash(h, &t->dtype, sizeof t->dtype);
        h = nb_hash(h, t->shape, (size_t)t->rank * sizeof *t->shape);
    }
    return h | 1;
}

static bool inputs_have(const nb_sig *sig, int factor)
{
    for (int t = 0; t < sig->nin; t++)
        for (int d = 0; d < sig->term[t].n; d++)
            for (int f = 0; f < sig->term[t].dim[d].n; f++)
                if (sig->term[t].dim[d].factor[f] == factor) return true;
    return false;
}

/* Whether inputs say how large dim d of result k is. */
static bool is_found(const nb_sig *sig, int k, int rank, int d)
{
    const nb_term *term = &sig->term[sig->nin + k];
    int among = d - (rank - term->n);
    if (among < 0) return sig->nin > 0; /* one of the dots */
    bool all = term->dim[among].n > 0;
    for (int f = 0; f < term->dim[among].n; f++)
        all = all && inputs_have(sig, term->dim[among].factor[f]);
    return all;
}

static uint64_t told(const call_op *o, int nout, const nb_sig *sig)
{
    uint64_t h = 0;
    for (int k = 0; k < nout; k++)
        for (int d = 0; d < o->type[k].rank; d++)
            if (!sig || !is_found(sig, k, o->type[k].rank, d))
                h = nb_hash(h + 1, &o->type[k].shape[d], sizeof(int64_t));
    return h;
}

bool nb_rows_record(const char *name, const nb_row_work *work, int nin,
                    nb_tensor *const *in, int nattr, const nb_named *attr,
                    int nout, const nb_type *type, nb_results *r)
{
    int64_t word[NB_KERNEL_ATTRS];
    const nb_sig *sig;
    if (!count(name, nin, nattr, nout) || !check_types(name, nout, type) ||
        !inherit(name, nin, nout, &sig) || (sig && !nb_rows_check(name, sig)))
        return false;
    call_op *o = nb_alloc_zero(sizeof *o + (size_t)nout * sizeof *type);
    if (!o) return false;
    memcpy(o->type, type, (size_t)nout * sizeof *type);
    o->op = (nb_op){.name = nb_intern(name, strlen(name)),
                    .kind = NB_RULE,
                    .nout = nout,
                    .sign = sign,
                    .infer = infer,
                    .rows = work->fn,
                    .rows_there = work->there,
                    .execute = nb_rows_execute,
                    .push = no_push,
                    .pull = no_pull,
                    .release = release,
                    .uses = 1,
                    .ready = true,
                    .static_sig = sig,
                    .parsed = &o->params};
    o->op.told = told(o, nout, sig);
    if (work->there) o->op.identity = identity_of(o, nout, sig);
    bool ok = o->op.name && add_attrs(o, nattr, attr, word) &&
              nb_record_many(&o->op, nin, in, nattr, word, r);
    o->settled = true;
    nb_op_leave(&o->op);
    return ok;
}
