/* rows.c - calling a function over rows.
 *
 * Batch axes, the lanes and what stands behind "...", become one axis in front;
 * an input that cannot be seen so without moving data is copied first.  Results
 * are packed, so they always can. */
#include "ops/rows.h"

#include "base/pool.h"
#include "core/axes.h"
#include "core/convert.h"

#include <string.h>

/* core's operand of a kernel has the name of the public one. */
#define nb_view nb_row_view
#include "nabla/kernel.h"
#undef nb_view

enum { CHUNK = 1 << 15, MAX_CHUNKS = 64 }; /* elements a chunk has at least */

/* One operand: sizes and strides of all axes, batch axes first, then its own.
 * A batch axis that it does not have has stride 0. */
typedef struct operand {
    nb_dtype dtype;
    int n; /* axes */
    int64_t size[NB_MAX_AXES], stride[NB_MAX_AXES];
    char *data, *copy; /* copy: a block of `room` bytes, or NULL */
    size_t room;
} operand;

typedef struct work {
    const nb_call *c;
    int nout, nbatch;
    int64_t rows, row; /* row: elements of all operands in one */
    bool by_lane;      /* a call for each */
    nb_kernel_args args;
    operand *operand;
    int64_t per_chunk;
    _Atomic int32_t status;
} work;

static int64_t product(const int64_t *size, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= size[d];
    return n;
}

/* Whether axes from..to lie one behind the other, the last `step` apart. */
static bool is_dense(const operand *o, int from, int to, int64_t step)
{
    for (int d = to - 1; d >= from; d--) {
        if (o->size[d] != 1 && o->stride[d] != step) return false;
        step *= o->size[d];
    }
    return true;
}

static bool is_shared(const operand *o, int nbatch)
{
    for (int d = 0; d < nbatch; d++)
        if (o->size[d] != 1 && o->stride[d]) return false;
    return true;
}

/* The axes from `first` on, copied to where they lie one behind the other. */
static bool pack(operand *o, int first)
{
    int64_t at[NB_MAX_AXES] = {0}, item = (int64_t)nb_dtype_size(o->dtype);
    int64_t n = product(o->size, first, o->n);
    int last = o->n - 1;
    bool line = last >= first;
    int64_t run = line ? o->size[last] : 1, step = line ? o->stride[last] : 1;
    o->copy = nb_block_new((size_t)(n * item), &o->room);
    if (!o->copy) return false;
    for (int64_t done = 0; done < n; done += run) {
        const char *from = o->data;
        for (int d = first; d < last; d++)
            from += at[d] * o->stride[d] * item;
        nb_convert(o->copy + done * item, o->dtype, 1, from, o->dtype, step,
                   run);
        for (int d = last - 1; d >= first && ++at[d] == o->size[d]; d--)
            at[d] = 0;
    }
    o->data = o->copy;
    return true;
}

/* The operand as the function sees it, and how far a row is from the next. */
static bool show(work *w, int t)
{
    operand *o = &w->operand[t];
    nb_row_view *v = &w->args.view[t];
    int own = o->n - w->nbatch;
    int64_t size = product(o->size, w->nbatch, o->n);
    bool shared = is_shared(o, w->nbatch) && w->rows != 1;
    bool packed = is_dense(o, w->nbatch, o->n, 1) &&
                  (shared || is_dense(o, 0, w->nbatch, size));
    if (t < w->c->nin && !packed && w->rows * size > 0 &&
        !pack(o, shared ? w->nbatch : 0))
        return false;
    *v = (nb_row_view){.data = o->data, .dtype = (int32_t)o->dtype};
    v->rank = 1 + own;
    v->shape[0] = w->by_lane ? 1 : w->rows;
    v->stride[0] = shared ? 0 : size;
    for (int d = own; d > 0; d--) {
        v->shape[d] = o->size[w->nbatch + d - 1];
        v->stride[d] = d == own ? 1 : v->stride[d + 1] * v->shape[d + 1];
    }
    w->row += size;
    return true;
}

static void add_axes(work *w, const nb_axes *a, int t, const int64_t *size,
                     const int64_t *stride)
{
    const nb_operand *from = &a->operand[t];
    operand *o = &w->operand[t];
    int batch = from->ndims - from->ncore;
    o->n = w->nbatch + from->ncore;
    for (int d = 0; d < w->nbatch; d++)
        o->size[d] = nb_extent_get(a->size[d]);
    for (int d = 0; d < batch; d++)
        if (size[d] != 1) o->stride[from->axis[d]] = stride[d];
    for (int d = 0; d < from->ncore; d++) {
        o->size[w->nbatch + d] = size[batch + d];
        o->stride[w->nbatch + d] = stride[batch + d];
    }
}

static bool add_result(work *w, const nb_axes *a, int k, char *data)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], step = 1;
    operand *o = &w->operand[w->c->nin + k];
    nb_shape s;
    if (!nb_call_infer(w->c, k, &s, &o->dtype)) return false;
    for (int d = s.nlanes + s.rank - 1; d >= 0; d--) {
        size[d] = nb_extent_get(d < s.nlanes ? nb_lane_stored(s.lane[d])
                                             : s.size[d - s.nlanes]);
        stride[d] = step;
        step *= size[d];
    }
    o->data = data;
    add_axes(w, a, w->c->nin + k, size, stride);
    return true;
}

static bool set_up(work *w, const nb_axes *a, char *const *to)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    const nb_call *c = w->c;
    w->nbatch = a->nlanes + a->ndots;
    w->rows = 1;
    for (int d = 0; d < w->nbatch; d++)
        w->rows *= nb_extent_get(a->size[d]);
    for (int i = 0; i < c->nin; i++) {
        nb_tensor_strides(c->in[i], size, stride);
        w->operand[i].dtype = (nb_dtype)c->in[i]->dtype;
        w->operand[i].data = c->in[i]->data;
        add_axes(w, a, i, size, stride);
    }
    for (int k = 0; k < w->nout; k++)
        if (!add_result(w, a, k, to[k])) return false;
    for (int t = 0; t < c->nin + w->nout; t++)
        if (!show(w, t)) return false;
    w->args.nin = c->nin;
    w->args.nout = w->nout;
    w->args.nattr = c->nattr;
    w->args.abi = NB_KERNEL_ABI;
    for (int k = 0; k < c->nattr; k++) /* a float is its bits */
        w->args.attr[k].i = c->attr[k];
    return true;
}

/* The function sees rows as they are counted, or one lane as row 0. */
static void run(work *w, int64_t from, int64_t to)
{
    nb_kernel_args a = w->args;
    int32_t status = 0;
    a.begin = w->by_lane ? 0 : from;
    a.end = w->by_lane ? 1 : to;
    a.status = &status;
    for (int t = 0; w->by_lane && t < a.nin + a.nout; t++) {
        nb_row_view *v = &a.view[t];
        v->data =
            (char *)v->data +
            from * v->stride[0] * (int64_t)nb_dtype_size((nb_dtype)v->dtype);
    }
    w->c->op->rows(&a);
    if (status) w->status = status;
}

static void run_chunk(void *ctx, int64_t i)
{
    work *w = ctx;
    int64_t from = i * w->per_chunk, to = from + w->per_chunk;
    run(w, from, to < w->rows ? to : w->rows);
}

/* How rows are cut follows from their sizes alone. */
static void run_all(work *w)
{
    double all = (double)w->rows * (double)w->row;
    int64_t n = (int64_t)(all / CHUNK) + 1;
    if (n > MAX_CHUNKS) n = MAX_CHUNKS;
    if (n > w->rows) n = w->rows;
    w->per_chunk = (w->rows + n - 1) / n;
    nb_parallel_if(all, (w->rows + w->per_chunk - 1) / w->per_chunk, run_chunk,
                   w);
}

static bool succeeded(const work *w)
{
    const char *name = w->c->op->name;
    int32_t status = w->status;
    switch (status) {
    case 0: return true;
    case NB_STATUS_DTYPE:
        return nb_fail(NB_ERUNTIME, "%s: the kernel does not take these dtypes",
                       name);
    case NB_STATUS_SHAPE:
        return nb_fail(NB_ERUNTIME,
                       "%s: the kernel's operands have different sizes", name);
    case NB_STATUS_COUNT:
        return nb_fail(NB_ERUNTIME,
                       "%s: the kernel takes another number of operands", name);
    default:
        return nb_fail(NB_ERUNTIME, "%s: the kernel failed with status %d",
                       name, (int)status);
    }
}

bool nb_rows_execute(const nb_call *c, char *const *to)
{
    nb_axes a;
    int nout = c->op->nout > 1 ? c->op->nout : 1, n = c->nin + nout;
    if (!nb_axes_align(&a, c->op, c->sig, c->nin, c->in)) return false;
    work *w = nb_alloc_zero(sizeof *w);
    operand *all = nb_alloc_zero((size_t)n * sizeof *all);
    bool ok = w && all;
    if (ok) {
        w->c = c;
        w->nout = nout;
        w->operand = all;
        w->by_lane = !c->op->static_sig;
        ok = set_up(w, &a, to);
        for (int64_t l = 0; ok && w->by_lane && l < w->rows; l++)
            run(w, l, l + 1);
        if (ok && !w->by_lane && w->rows > 0) run_all(w);
        ok = ok && succeeded(w);
    }
    for (int t = 0; all && t < n; t++)
        if (all[t].copy) nb_block_free(all[t].copy, all[t].room);
    nb_free(all);
    nb_free(w);
    nb_axes_free(&a);
    return ok;
}

/* Recording */

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
    return nb_rows_type(c, k, &((const call_op *)c->op)->type[k], out, dtype);
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

bool nb_rows_record(const char *name, nb_kernel_fn *fn, int nin,
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
                    .rows = fn,
                    .execute = nb_rows_execute,
                    .push = no_push,
                    .pull = no_pull,
                    .release = release,
                    .uses = 1,
                    .ready = true,
                    .static_sig = sig,
                    .parsed = &o->params};
    bool ok = o->op.name && add_attrs(o, nattr, attr, word) &&
              nb_record_many(&o->op, nin, in, nattr, word, r);
    nb_op_leave(&o->op);
    return ok;
}
