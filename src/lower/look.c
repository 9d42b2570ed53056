/* look.c - strides of views. */
#include "lower/look.h"

#include "core/apply.h"

#include <string.h>

/* Lanes pass a view op by: the result has the input's. */
bool nb_look(const nb_call *c, const nb_tensor *y, const int64_t *from,
             int64_t *stride, int64_t *offset)
{
    int64_t size[NB_MAX_DIMS], unused[NB_MAX_DIMS], to_size[NB_MAX_DIMS];
    int n = y->nlanes + y->rank;
    *offset = 0;
    if (c->op->dim_of) {
        for (int d = 0; d < n; d++) {
            int k = c->op->dim_of(c, y, d);
            stride[d] = k < 0 ? 0 : from[k];
        }
        return true;
    }
    if (!c->op->view) return false;
    const nb_tensor *x = c->in[0];
    nb_tensor_strides(x, size, unused);
    nb_tensor_strides(y, to_size, unused);
    nb_layout in = {.rank = x->rank, .size = size + x->nlanes};
    nb_layout out = {.rank = y->rank, .size = to_size + y->nlanes};
    memcpy(in.stride, from + x->nlanes, x->rank * sizeof *from);
    if (!c->op->view(c, &in, &out)) return false;
    memcpy(stride, from, x->nlanes * sizeof *from);
    memcpy(stride + y->nlanes, out.stride, y->rank * sizeof *stride);
    *offset = out.offset;
    return true;
}

/* None is a multiple of another, or their sum; products with extents fit. */
void nb_look_tags(int n, int64_t *tag)
{
    for (int d = 0; d < n; d++)
        tag[d] = ((int64_t)1 << 30) + ((int64_t)d << 16);
}

/* Whether none of x's dims is left out but those of one point: y would have
 * but a part of it. */
static bool has_all(int nx, const int64_t *size, int ny, const int *dim)
{
    unsigned seen = 0;
    for (int d = 0; d < ny; d++)
        if (dim[d] >= 0) seen |= 1u << dim[d];
    for (int k = 0; k < nx; k++)
        if (size[k] != 1 && !(seen >> k & 1)) return false;
    return true;
}

/* Strides that tell the dims apart: if y's are among them, they are moved. */
bool nb_look_moves(const nb_call *c, const nb_tensor *y, int *dim)
{
    int64_t tag[NB_MAX_DIMS], stride[NB_MAX_DIMS], offset;
    int64_t size[NB_MAX_DIMS], to_size[NB_MAX_DIMS], unused[NB_MAX_DIMS];
    if (!c->op->view && !c->op->dim_of) return false;
    int nx = nb_tensor_strides(c->in[0], size, unused);
    int ny = nb_tensor_strides(y, to_size, unused);
    nb_look_tags(nx, tag);
    if (!nb_look(c, y, tag, stride, &offset) || offset) return false;
    for (int d = 0; d < ny; d++) {
        dim[d] = -1;
        for (int k = 0; k < nx && to_size[d] != 1; k++)
            if (stride[d] == tag[k] && to_size[d] == size[k]) dim[d] = k;
        if (to_size[d] != 1 && stride[d] && dim[d] < 0) return false;
    }
    return has_all(nx, size, ny, dim);
}

void nb_packed_strides(int n, const int64_t *size, int64_t *stride)
{
    int64_t step = 1;
    for (int d = n - 1; d >= 0; d--) {
        stride[d] = step;
        step *= size[d];
    }
}

/* The size of the widest number among all results, 0 with an error. */
static int64_t widest(const nb_call *c)
{
    int64_t most = 1;
    for (int k = 0; k < c->op->nout; k++) {
        nb_shape shape;
        nb_dtype dtype;
        if (!nb_call_infer(c, k, &shape, &dtype)) return 0;
        int64_t item = (int64_t)nb_dtype_size(dtype);
        if (item > most) most = item;
    }
    return most;
}

/* Results one after the other, at multiples of `align` bytes; `item` bytes a
 * number, 0: what it has. */
static bool parts(const nb_call *c, int64_t item, int64_t align,
                  int64_t *offset, int64_t *total)
{
    *total = 0;
    for (int k = 0; k < c->op->nout; k++) {
        nb_shape shape;
        nb_dtype dtype;
        int64_t n;
        if (!nb_call_infer(c, k, &shape, &dtype)) return false;
        nb_shape_count(&shape, &n);
        offset[k] = *total;
        *total += n * (item ? item : (int64_t)nb_dtype_size(dtype));
        *total = (*total + align - 1) / align * align;
    }
    return true;
}

bool nb_look_parts_any_size(const nb_call *c, int64_t *offset, int64_t *total)
{
    int64_t item = widest(c);
    return item && parts(c, item, 1, offset, total);
}

bool nb_look_parts(const nb_call *c, int64_t *offset, int64_t *total)
{
    enum { ALIGN = 64 };
    return parts(c, 0, ALIGN, offset, total);
}
