/* view.c - results that are another look into an input's buffer. */
#include "backend/ref/ref.h"

#include <string.h>

/* A number sits in its node; a view needs a buffer that outlives it. */
static nb_buffer *buffer_of(nb_tensor *x, char **data)
{
    *data = x->data;
    if (x->buffer) return nb_buffer_keep(x->buffer);
    nb_buffer *b = nb_buffer_new(8);
    if (!b) return NULL;
    memcpy(b->data, x->data, nb_dtype_size((nb_dtype)x->dtype));
    *data = b->data;
    return b;
}

static bool place(nb_tensor *x, int64_t offset, int ndims,
                  const int64_t *stride, nb_placed *out)
{
    size_t bytes = (size_t)(ndims + 1) * sizeof *out->strides;
    out->buffer = buffer_of(x, &out->data);
    if (!out->buffer || !(out->strides = nb_alloc(bytes))) return false;
    memcpy(out->strides, stride, (size_t)ndims * sizeof *stride);
    out->data += offset * (int64_t)nb_dtype_size((nb_dtype)x->dtype);
    return true;
}

static bool moved_lanes(const nb_call *c, nb_tensor *y, nb_placed *out)
{
    int64_t size[NB_MAX_DIMS], from[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    int n = y->nlanes + y->rank;
    nb_tensor_strides(c->in[0], size, from);
    for (int d = 0; d < n; d++) {
        int k = c->op->dim_of(c, y, d);
        stride[d] = k < 0 ? 0 : from[k];
    }
    return place(c->in[0], 0, n, stride, out);
}

/* Lanes pass a view op by: the result has the input's. */
bool nb_ref_view(const nb_call *c, nb_tensor *y, nb_placed *out, bool *done)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    int64_t to_size[NB_MAX_DIMS], to_stride[NB_MAX_DIMS];
    if (c->op->dim_of) return *done = true, moved_lanes(c, y, out);
    if (!c->op->view) return true;
    nb_tensor *x = c->in[0];
    nb_tensor_strides(x, size, stride);
    nb_tensor_strides(y, to_size, to_stride);
    nb_layout from = {.rank = x->rank, .size = size + x->nlanes};
    nb_layout to = {.rank = y->rank, .size = to_size + y->nlanes};
    memcpy(from.stride, stride + x->nlanes, x->rank * sizeof *stride);
    if (!c->op->view(c, &from, &to)) return true;
    *done = true;
    memcpy(stride + y->nlanes, to.stride, y->rank * sizeof *stride);
    return place(x, to.offset, y->nlanes + y->rank, stride, out);
}

bool nb_ref_part(const nb_call *c, nb_tensor *y, nb_placed *out)
{
    nb_tensor *all = c->in[0];
    nb_call of = nb_call_of(all);
    int64_t total, *offset;
    (void)y;
    offset = nb_alloc((size_t)of.op->nout * sizeof *offset);
    bool ok = offset && nb_ref_parts(&of, offset, &total);
    if (ok) {
        out->buffer = nb_buffer_keep(all->buffer);
        out->data = all->data + offset[c->attr[0]];
    }
    nb_free(offset);
    return ok;
}
