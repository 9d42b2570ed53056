/* rows_view.c - the operands of a call as a function over rows sees them.
 *
 * Batch axes, the lanes and what stands behind "...", become one axis in front;
 * an input that cannot be seen so without moving data has to be copied.
 * Results are packed, so they always can. */
#include "ops/rows.h"

#include "core/row_args.h"

static int64_t product(const int64_t *size, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= size[d];
    return n;
}

/* Whether axes from..to lie one behind the other, the last `step` apart. */
static bool is_dense(const nb_row_operand *o, int from, int to, int64_t step)
{
    for (int d = to - 1; d >= from; d--) {
        if (o->size[d] != 1 && o->stride[d] != step) return false;
        step *= o->size[d];
    }
    return true;
}

static bool is_shared(const nb_row_operand *o, int nbatch)
{
    for (int d = 0; d < nbatch; d++)
        if (o->size[d] != 1 && o->stride[d]) return false;
    return true;
}

/* The operand as the function sees it, and how far a row is from the next. */
static void show(nb_row_call *r, int t)
{
    nb_row_operand *o = &r->operand[t];
    nb_row_view *v = &r->args->view[t];
    int own = o->n - r->nbatch;
    int64_t size = product(o->size, r->nbatch, o->n);
    bool shared = is_shared(o, r->nbatch) && r->rows != 1;
    bool packed = is_dense(o, r->nbatch, o->n, 1) &&
                  (shared || is_dense(o, 0, r->nbatch, size));
    o->first = shared ? r->nbatch : 0;
    o->count = product(o->size, o->first, o->n);
    o->is_apart = t < r->args->nin && !packed && r->rows * size > 0;
    *v = (nb_row_view){.dtype = (int32_t)o->dtype, .rank = 1 + own};
    v->shape[0] = r->by_lane ? 1 : r->rows;
    v->stride[0] = shared ? 0 : size;
    for (int d = own; d > 0; d--) {
        v->shape[d] = o->size[r->nbatch + d - 1];
        v->stride[d] = d == own ? 1 : v->stride[d + 1] * v->shape[d + 1];
    }
    r->row += size;
}

static void add_axes(nb_row_call *r, const nb_axes *a, int t,
                     const int64_t *size, const int64_t *stride)
{
    const nb_operand *from = &a->operand[t];
    nb_row_operand *o = &r->operand[t];
    int batch = from->ndims - from->ncore;
    o->n = r->nbatch + from->ncore;
    for (int d = 0; d < r->nbatch; d++)
        o->size[d] = nb_extent_get(a->size[d]);
    for (int d = 0; d < batch; d++)
        if (size[d] != 1) o->stride[from->axis[d]] = stride[d];
    for (int d = 0; d < from->ncore; d++) {
        o->size[r->nbatch + d] = size[batch + d];
        o->stride[r->nbatch + d] = stride[batch + d];
    }
}

static void add_input(nb_row_call *r, const nb_axes *a, const nb_call *c, int i)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    nb_tensor_strides(c->in[i], size, stride);
    r->operand[i].dtype = (nb_dtype)c->in[i]->dtype;
    add_axes(r, a, i, size, stride);
}

static bool add_result(nb_row_call *r, const nb_axes *a, const nb_call *c,
                       int k)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], step = 1;
    nb_shape s;
    if (!nb_call_infer(c, k, &s, &r->operand[c->nin + k].dtype)) return false;
    for (int d = s.nlanes + s.rank - 1; d >= 0; d--) {
        size[d] = nb_extent_get(d < s.nlanes ? nb_lane_stored(s.lane[d])
                                             : s.size[d - s.nlanes]);
        stride[d] = step;
        step *= size[d];
    }
    add_axes(r, a, c->nin + k, size, stride);
    return true;
}

static bool fill(nb_row_call *r, const nb_axes *a, const nb_call *c)
{
    struct nb_kernel_args *args = r->args;
    r->nbatch = a->nlanes + a->ndots;
    r->rows = 1;
    for (int d = 0; d < r->nbatch; d++)
        r->rows *= nb_extent_get(a->size[d]);
    for (int i = 0; i < c->nin; i++)
        add_input(r, a, c, i);
    for (int k = 0; k < args->nout; k++)
        if (!add_result(r, a, c, k)) return false;
    for (int t = 0; t < r->n; t++)
        show(r, t);
    args->begin = 0;
    args->end = r->by_lane ? 1 : r->rows;
    for (int k = 0; k < c->nattr; k++) /* a float is its bits */
        args->attr[k].i = c->attr[k];
    return true;
}

bool nb_row_call_open(nb_row_call *r, const nb_call *c)
{
    nb_axes a;
    int nout = c->op->nout > 1 ? c->op->nout : 1;
    *r = (nb_row_call){.n = c->nin + nout, .by_lane = !c->op->static_sig};
    if (r->n > NB_KERNEL_VIEWS || c->nattr > NB_KERNEL_ATTRS)
        return nb_fail(NB_EVALUE,
                       "%s: a kernel takes %d operands and %d attributes at "
                       "most",
                       c->op->name, NB_KERNEL_VIEWS, NB_KERNEL_ATTRS);
    if (!nb_axes_align(&a, c->op, c->sig, c->nin, c->in)) return false;
    r->args = nb_alloc_zero(sizeof *r->args);
    r->operand = nb_alloc_zero((size_t)r->n * sizeof *r->operand);
    bool ok = r->args && r->operand;
    if (ok) {
        r->args->nin = c->nin;
        r->args->nout = nout;
        r->args->nattr = c->nattr;
        r->args->abi = NB_KERNEL_ABI;
        ok = fill(r, &a, c);
    }
    nb_axes_free(&a);
    if (!ok) nb_row_call_close(r);
    return ok;
}

void nb_row_call_close(nb_row_call *r)
{
    nb_free(r->operand);
    nb_free(r->args);
    *r = (nb_row_call){0};
}

void nb_row_call_lane(const nb_row_call *r, const struct nb_kernel_args *all,
                      int64_t lane, struct nb_kernel_args *to)
{
    *to = *all;
    for (int t = 0; t < r->n; t++) {
        nb_row_view *v = &to->view[t];
        int64_t item = (int64_t)nb_dtype_size((nb_dtype)v->dtype);
        v->data = (char *)v->data + lane * v->stride[0] * item;
    }
}
