/* kernel.c - calling an op's kernel at every batch point.
 *
 * Batch axes are the lanes and what stands behind "..."; the dims that the
 * signature names are handed to the kernel with their strides. */
#include "backend/ref/ref.h"

#include "core/apply.h"

#include <string.h>

typedef struct batch {
    int n, nops;
    int64_t size[NB_MAX_DIMS];
    int64_t (*step)[NB_MAX_DIMS]; /* bytes, by operand */
    nb_view *view;
    int64_t (*dims)[2 * NB_MAX_RANK]; /* sizes, strides of the named dims */
} batch;

static bool room(batch *b, int nops)
{
    b->nops = nops;
    b->step = nb_alloc_zero((size_t)nops * sizeof *b->step);
    b->view = nb_alloc_zero((size_t)nops * sizeof *b->view);
    b->dims = nb_alloc_zero((size_t)nops * sizeof *b->dims);
    return b->step && b->view && b->dims;
}

static void release(batch *b)
{
    nb_free(b->step);
    nb_free(b->view);
    nb_free(b->dims);
}

/* Operand t: stored sizes and strides split into batch steps and named dims.*/
static void add_operand(batch *b, const nb_axes *a, int t, nb_dtype d,
                        char *data, const int64_t *size, const int64_t *stride)
{
    const nb_operand *o = &a->operand[t];
    int64_t item = (int64_t)nb_dtype_size(d);
    int core = o->ndims - o->ncore;
    for (int k = 0; k < core; k++)
        if (size[k] != 1) b->step[t][o->axis[k]] = stride[k] * item;
    memcpy(b->dims[t], size + core, (size_t)o->ncore * sizeof *size);
    memcpy(b->dims[t] + NB_MAX_RANK, stride + core,
           (size_t)o->ncore * sizeof *stride);
    b->view[t] = (nb_view){.data = data,
                           .dtype = d,
                           .rank = o->ncore,
                           .size = b->dims[t],
                           .stride = b->dims[t] + NB_MAX_RANK};
}

static bool add_result(batch *b, const nb_axes *a, const nb_call *c, int k,
                       char *data)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], step = 1;
    nb_shape s;
    nb_dtype d;
    if (!nb_call_infer(c, k, &s, &d)) return false;
    for (int i = s.nlanes + s.rank - 1; i >= 0; i--) {
        size[i] = nb_extent_get(i < s.nlanes ? nb_lane_stored(s.lane[i])
                                             : s.size[i - s.nlanes]);
        stride[i] = step;
        step *= size[i];
    }
    add_operand(b, a, c->nin + k, d, data, size, stride);
    return true;
}

static bool each(batch *b, const nb_call *c, int nout)
{
    int64_t at[NB_MAX_DIMS] = {0};
    nb_kernel k = {.call = c, .nin = c->nin, .nout = nout, .view = b->view};
    for (int i = 0; i < b->n; i++)
        if (b->size[i] == 0) return true;
    for (;;) {
        if (!c->op->kernel(&k)) return false;
        int i = b->n - 1;
        for (; i >= 0; i--) {
            bool on = ++at[i] < b->size[i];
            int64_t by = on ? 1 : 1 - b->size[i];
            for (int t = 0; t < b->nops; t++)
                b->view[t].data += b->step[t][i] * by;
            if (on) break;
            at[i] = 0;
        }
        if (i < 0) return true;
    }
}

bool nb_ref_kernel(const nb_call *c, nb_tensor *y, char *const *to)
{
    nb_axes a;
    batch b = {0};
    int nout = c->op->nout > 1 ? c->op->nout : 1;
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    (void)y;
    if (!nb_axes_align(&a, c->op, c->sig, c->nin, c->in)) return false;
    bool ok = room(&b, c->nin + nout);
    for (int i = 0; ok && i < c->nin; i++) {
        nb_tensor_strides(c->in[i], size, stride);
        add_operand(&b, &a, i, (nb_dtype)c->in[i]->dtype, c->in[i]->data, size,
                    stride);
    }
    for (int k = 0; ok && k < nout; k++)
        ok = add_result(&b, &a, c, k, to[k]);
    b.n = a.nlanes + a.ndots;
    for (int i = 0; i < b.n; i++)
        b.size[i] = nb_extent_get(a.size[i]);
    ok = ok && each(&b, c, nout);
    release(&b);
    nb_axes_free(&a);
    return ok;
}
