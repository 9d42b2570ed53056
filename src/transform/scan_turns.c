/* scan_turns.c - a scan on the program of its body.
 *
 * A turn reads its step of each xs where it lies, if that is packed, and writes
 * its ys where they belong, if that is aligned as buffers are; else both pass
 * through a place of their own. */
#include "transform/turns.h"

#include <string.h>

enum { CARRIES, XS, LENGTH, REVERSE };

/* Making a program takes as long as running some thousand ops. */
enum { MANY = 4000 };

static int carries(const nb_call *c)
{
    return (int)c->attr[CARRIES];
}

static int varying(const nb_call *c)
{
    return (int)(c->attr[CARRIES] + c->attr[XS]);
}

static int device_of(const nb_call *c)
{
    return c->out ? c->out->device : 0;
}

bool nb_scan_prepare(const nb_call *c)
{
    nb_turn_of body = {.graph = c->op->region[0], .varying = varying(c)};
    return nb_kept_make(c, 0, body);
}

/* A row of xs or ys: one step of a tensor. */
typedef struct row {
    char *data;
    int64_t step; /* bytes from one to the next */
    size_t bytes;
    nb_buffer *own;  /* where it passes through, or NULL */
    nb_tensor *view; /* of xs that are not packed: kept, data is moved along */
} row;

typedef struct run {
    const nb_call *c;
    nb_turning turning;
    nb_states state;
    row *row;   /* by input, then by result: xs, ys */
    char **out; /* of the body */
} run;

static bool begin_ys(row *r, const nb_shape *shape, nb_dtype d, int device,
                     char *to)
{
    int64_t n = 1;
    for (int a = 1; a < shape->rank; a++)
        n *= nb_extent_get(shape->size[a]);
    r->data = to;
    r->bytes = (size_t)n * nb_dtype_size(d);
    r->step = (int64_t)r->bytes;
    bool aligned = (uintptr_t)to % 64 == 0 && r->bytes % 64 == 0;
    return aligned || (r->own = nb_buffer_on(device, r->bytes));
}

/* x at its first step, as a leaf of our own. */
static nb_tensor *first_step(nb_tensor *x, const int64_t *stride)
{
    nb_shape s = nb_tensor_shape(x);
    memmove(s.size, s.size + 1, (size_t)--s.rank * sizeof s.size[0]);
    return nb_keep(
        nb_leaf_on(x->device, nb_leaf_new((nb_dtype)x->dtype, &s, x->buffer,
                                          x->data, stride + 1)));
}

static bool begin_xs(row *r, nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], n = 1;
    size_t item = nb_dtype_size((nb_dtype)x->dtype);
    int rank = nb_tensor_strides(x, size, stride);
    for (int a = 1; a < rank; a++)
        n *= size[a];
    r->data = x->data;
    r->step = stride[0] * (int64_t)item;
    r->bytes = (size_t)n * item;
    if (!(r->view = first_step(x, stride))) return false;
    return nb_tensor_is_packed(r->view) ||
           (r->own = nb_buffer_on(x->device, r->bytes));
}

static char *read_step(row *r, int64_t t)
{
    char *at = r->data + t * r->step;
    if (!r->own) return at;
    nb_shape s = nb_tensor_shape(r->view);
    r->view->data = at;
    return nb_copy_into(r->own->data, &s, r->view) ? r->own->data : NULL;
}

static bool turn(run *r, int64_t t)
{
    const nb_call *c = r->c;
    int nc = carries(c);
    row *ys = r->row + c->nin;
    for (int k = 0; k < nc; k++) {
        r->turning.in[k] = r->state.place[k]->data;
        r->out[k] = r->state.place[nc + k]->data;
    }
    for (int i = nc; i < varying(c); i++)
        if (!(r->turning.in[i] = read_step(&r->row[i], t))) return false;
    for (int k = nc; k < c->op->nout; k++)
        r->out[k] = ys[k].own ? ys[k].own->data : ys[k].data + t * ys[k].step;
    if (!nb_turning_run(&r->turning, r->out)) return false;
    for (int k = nc; k < c->op->nout; k++)
        if (ys[k].own &&
            !nb_bytes_copy(device_of(c), ys[k].data + t * ys[k].step, r->out[k],
                           ys[k].bytes))
            return false;
    nb_states_turn(&r->state, 0, nc);
    return true;
}

static bool begin(run *r, const nb_kept *body, const nb_shape *shape,
                  char *const *to)
{
    const nb_call *c = r->c;
    const nb_graph *g = c->op->region[0];
    int nout = c->op->nout;
    r->row = nb_alloc_zero((size_t)(c->nin + nout + 1) * sizeof *r->row);
    r->out = nb_alloc_zero((size_t)(nout + 1) * sizeof *r->out);
    bool ok = nb_turning_begin(&r->turning, body, c->in) &&
              nb_states_begin(&r->state, carries(c), shape, c->in) && r->row &&
              r->out;
    for (int i = carries(c); ok && i < varying(c); i++)
        ok = begin_xs(&r->row[i], c->in[i]);
    for (int k = carries(c); ok && k < nout; k++)
        ok = begin_ys(&r->row[c->nin + k], &shape[k],
                      nb_region_result(g, k)->dtype, device_of(c), to[k]);
    return ok;
}

static void end(run *r)
{
    for (int i = 0; r->row && i < r->c->nin + r->c->op->nout; i++) {
        nb_drop(r->row[i].view);
        nb_buffer_drop(r->row[i].own);
    }
    nb_turning_end(&r->turning);
    nb_states_end(&r->state);
    nb_free(r->row), nb_free(r->out);
}

bool nb_scan_turns(const nb_call *c, const nb_shape *shape, char *const *to,
                   bool *done)
{
    run r = {.c = c};
    int64_t length = c->attr[LENGTH];
    if (length > MANY / (c->op->region[0]->n + 1) && !nb_scan_prepare(c))
        return false;
    const nb_kept *body = nb_kept_find(c, 0);
    *done = body;
    if (!body) return true;
    bool ok = begin(&r, body, shape, to);
    for (int64_t i = 0; ok && i < length; i++)
        ok = turn(&r, c->attr[REVERSE] ? length - 1 - i : i);
    for (int k = 0; ok && k < carries(c); k++)
        ok = nb_bytes_copy(device_of(c), to[k], r.state.place[k]->data,
                           r.state.bytes[k]);
    end(&r);
    return ok;
}

int64_t nb_scan_needs(const nb_call *c)
{
    const nb_kept *body = nb_kept_peek(c->op, 0);
    nb_shape *shape = nb_call_shapes(c);
    int64_t bytes = nb_kept_bytes(body);
    if (shape) bytes += nb_states_bytes(carries(c), shape, c->in);
    nb_free(shape);
    return bytes;
}
