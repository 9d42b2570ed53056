/* view.c - results that are another look into an input's buffer. */
#include "backend/ref/ref.h"

#include "lower/look.h"

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

bool nb_ref_view(const nb_call *c, nb_tensor *y, nb_placed *out, bool *done)
{
    int64_t size[NB_MAX_DIMS], from[NB_MAX_DIMS], stride[NB_MAX_DIMS], offset;
    if (!c->op->view && !c->op->dim_of) return true;
    nb_tensor_strides(c->in[0], size, from);
    *done = nb_look(c, y, from, stride, &offset);
    return !*done || place(c->in[0], offset, y->nlanes + y->rank, stride, out);
}

bool nb_ref_part(const nb_call *c, nb_placed *out)
{
    const nb_tensor *all = c->in[0];
    out->buffer = nb_buffer_keep(all->buffer);
    out->data = all->data + all->strides[c->attr[0]];
    return true;
}
