/* batch.c - the operands of a call, split into batch and named dims. */
#include "core/batch.h"

#include "core/apply.h"

#include <string.h>

static bool room(nb_batch *b, int nops)
{
    b->nops = nops;
    b->step = nb_alloc_zero((size_t)nops * sizeof *b->step);
    b->view = nb_alloc_zero((size_t)nops * sizeof *b->view);
    b->dims = nb_alloc_zero((size_t)nops * sizeof *b->dims);
    return b->step && b->view && b->dims;
}

void nb_batch_close(nb_batch *b)
{
    nb_free(b->step);
    nb_free(b->view);
    nb_free(b->dims);
}

/* Operand t: stored sizes and strides split into batch steps and named dims.*/
static void add_operand(nb_batch *b, const nb_axes *a, int t, nb_dtype d,
                        char *data, const int64_t *size, const int64_t *stride)
{
    const nb_operand *o = &a->operand[t];
    int core = o->ndims - o->ncore;
    for (int k = 0; k < core; k++)
        if (size[k] != 1) b->step[t][o->axis[k]] = stride[k];
    memcpy(b->dims[t], size + core, (size_t)o->ncore * sizeof *size);
    memcpy(b->dims[t] + NB_MAX_RANK, stride + core,
           (size_t)o->ncore * sizeof *stride);
    b->view[t] = (nb_view){.data = data,
                           .dtype = d,
                           .rank = o->ncore,
                           .size = b->dims[t],
                           .stride = b->dims[t] + NB_MAX_RANK};
}

static bool add_result(nb_batch *b, const nb_axes *a, const nb_call *c, int k,
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

bool nb_batch_open(nb_batch *b, const nb_call *c, char *const *to)
{
    nb_axes a;
    int nout = c->op->nout > 1 ? c->op->nout : 1;
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    *b = (nb_batch){0};
    if (!nb_axes_align(&a, c->op, c->sig, c->nin, c->in)) return false;
    bool ok = room(b, c->nin + nout);
    for (int i = 0; ok && i < c->nin; i++) {
        nb_tensor_strides(c->in[i], size, stride);
        add_operand(b, &a, i, (nb_dtype)c->in[i]->dtype, c->in[i]->data, size,
                    stride);
    }
    for (int k = 0; ok && k < nout; k++)
        ok = add_result(b, &a, c, k, to ? to[k] : NULL);
    b->n = a.nlanes + a.ndots;
    for (int i = 0; i < b->n; i++)
        b->size[i] = nb_extent_get(a.size[i]);
    nb_axes_free(&a);
    if (!ok) nb_batch_close(b);
    return ok;
}

int64_t nb_batch_points(const nb_batch *b)
{
    int64_t n = 1;
    for (int i = 0; i < b->n; i++)
        n *= b->size[i];
    return n;
}
