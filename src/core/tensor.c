/* tensor.c - nodes and buffers: making, counting, settling, forgetting. */
#include "core/tensor.h"

#include "core/debug.h"

#include <pthread.h>
#include <string.h>

static _Thread_local unsigned direction;
static atomic_uint_fast64_t last_serial;
static atomic_int_fast64_t live;
static pthread_mutex_t graph = PTHREAD_MUTEX_INITIALIZER;

void nb_graph_lock(void)
{
    pthread_mutex_lock(&graph);
}

void nb_graph_unlock(void)
{
    pthread_mutex_unlock(&graph);
}

/* After four thousand million walks a mark comes again; a node that still had
 * it would have to have been left alone all the while. */
uint32_t nb_graph_mark(void)
{
    static uint32_t last;
    if (++last == 0) ++last;
    return last;
}

int64_t nb_nodes_live(void)
{
    return live;
}

nb_buffer *nb_buffer_new(size_t bytes)
{
    nb_buffer *b = nb_alloc(sizeof *b);
    if (!b) return NULL;
    *b = (nb_buffer){.refs = 1};
    b->data = nb_block_new(bytes, &b->room);
    if (b->data) return b;
    nb_free(b);
    return NULL;
}

nb_buffer *nb_buffer_keep(nb_buffer *b)
{
    if (b) atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void nb_buffer_drop(nb_buffer *b)
{
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (b->release)
        b->release(b->owner);
    else if (b->room)
        nb_block_free(b->data, b->room);
    nb_free(b);
}

nb_shape nb_tensor_shape(const nb_tensor *x)
{
    nb_shape s;
    s.rank = x->rank;
    s.nlanes = x->nlanes;
    memcpy(s.size, nb_tensor_size(x), x->rank * sizeof s.size[0]);
    memcpy(s.lane, nb_tensor_lane(x), x->nlanes * sizeof s.lane[0]);
    return s;
}

nb_call nb_call_of(nb_tensor *y)
{
    return (nb_call){.op = y->op,
                     .nin = y->nin,
                     .in = nb_tensor_in(y),
                     .attr = nb_tensor_attr(y),
                     .nattr = y->nattr,
                     .sig = y->sig,
                     .out = y};
}

void nb_op_use(nb_op *op)
{
    if (op && op->release) atomic_fetch_add(&op->uses, 1);
}

void nb_op_leave(nb_op *op)
{
    if (op && op->release && atomic_fetch_sub(&op->uses, 1) == 1)
        op->release(op);
}

unsigned nb_direction_set(unsigned now)
{
    unsigned was = direction;
    direction = now;
    return was;
}

unsigned nb_direction(void)
{
    return direction;
}

void *nb_fail_donated(void)
{
    return nb_fail(NB_ERUNTIME,
                   "a tensor is used that was donated to a compiled function: "
                   "its memory is gone (donate_argnums)");
}

static bool any_donated(int n, nb_tensor *const *x)
{
    for (int i = 0; i < n; i++)
        if (x[i]->flags & NB_DONATED) return true;
    return false;
}

nb_tensor *nb_node_new(nb_op *op, const nb_sig *sig, nb_dtype dtype,
                       const nb_shape *shape, int nin, nb_tensor *const *in,
                       int nattr, const int64_t *attr)
{
    size_t words = (size_t)(shape->rank + 2 * shape->nlanes + nin + nattr);
    if (any_donated(nin, in)) return nb_fail_donated();
    nb_tensor *x = nb_alloc(sizeof *x + 8 * words);
    uint64_t trace = 0;
    if (!x) return NULL;
    *x = (nb_tensor){.refs = 1,
                     .dtype = (uint8_t)dtype,
                     .rank = (uint8_t)shape->rank,
                     .nlanes = (uint8_t)shape->nlanes,
                     .flags = (uint8_t)direction,
                     .nin = nin,
                     .nattr = nattr,
                     .op = op,
                     .sig = sig,
                     .serial = atomic_fetch_add_explicit(&last_serial, 1,
                                                         memory_order_relaxed)};
    memcpy(nb_tensor_size(x), shape->size, x->rank * sizeof shape->size[0]);
    memcpy(nb_tensor_lane(x), shape->lane, x->nlanes * sizeof shape->lane[0]);
    for (int i = 0; i < nin; i++) {
        nb_tensor_in(x)[i] = nb_keep(in[i]);
        trace |= in[i]->trace;
    }
    if (nattr) memcpy(nb_tensor_attr(x), attr, (size_t)nattr * sizeof *attr);
    x->trace = trace & (nb_traces_open() | NB_TRACE_KEPT);
    atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
    nb_op_use(op);
    return nb_lend(x);
}

nb_tensor *nb_keep(nb_tensor *x)
{
    if (x) atomic_fetch_add_explicit(&x->refs, 1, memory_order_relaxed);
    return x;
}

static bool last_ref(nb_tensor *x)
{
    return atomic_fetch_sub_explicit(&x->refs, 1, memory_order_acq_rel) == 1;
}

/* Not recursive: a chain of nodes may be longer than the stack is deep.  The
 * dead wait in a list through their `source` fields. */
void nb_drop(nb_tensor *x)
{
    if (!x || !last_ref(x)) return;
    x->source = NULL;
    for (nb_tensor *dead = x; dead;) {
        x = dead;
        dead = (nb_tensor *)x->source;
        for (int i = 0; i < x->nin; i++) {
            nb_tensor *in = nb_tensor_in(x)[i];
            if (!last_ref(in)) continue;
            in->source = dead;
            dead = in;
        }
        nb_op_leave(x->op);
        nb_buffer_drop(x->buffer);
        nb_free(x->strides);
        nb_free(x);
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    }
}

nb_tensor *nb_leaf_new(nb_dtype dtype, const nb_shape *shape, nb_buffer *b,
                       char *data, const int64_t *strides)
{
    int64_t *own = NULL;
    int ndims = shape->rank + shape->nlanes;
    if (!b) return NULL;
    if (strides) {
        own = nb_alloc((size_t)(ndims + 1) * sizeof *own);
        if (!own) return NULL;
        memcpy(own, strides, (size_t)ndims * sizeof *own);
    }
    nb_tensor *x = nb_node_new(NULL, NULL, dtype, shape, 0, NULL, 0, NULL);
    if (!x) {
        nb_free(own);
        return NULL;
    }
    x->buffer = nb_buffer_keep(b);
    x->strides = own;
    atomic_store_explicit(&x->data, data, memory_order_release);
    return x;
}

int nb_tensor_strides(const nb_tensor *x, int64_t *size, int64_t *stride)
{
    int n = x->nlanes + x->rank;
    int64_t step = 1;
    for (int d = n - 1; d >= 0; d--) {
        nb_extent e = d < x->nlanes ? nb_lane_stored(nb_tensor_lane(x)[d])
                                    : nb_tensor_size(x)[d - x->nlanes];
        size[d] = nb_extent_get(e);
        stride[d] = x->strides ? x->strides[d] : step;
        step *= size[d];
    }
    return n;
}

bool nb_tensor_is_packed(const nb_tensor *x)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], step = 1;
    if (!x->strides) return true;
    for (int d = nb_tensor_strides(x, size, stride) - 1; d >= 0; d--) {
        if (size[d] == 0) return true;
        if (size[d] != 1 && stride[d] != step) return false;
        step *= size[d];
    }
    return true;
}

void nb_tensor_settle(nb_tensor *x, nb_buffer *b, char *data,
                      const int64_t *strides)
{
    if (nb_tensor_done(x)) return;
    x->buffer = nb_buffer_keep(b);
    x->strides = (int64_t *)strides; /* handed over */
    atomic_store_explicit(&x->data, data, memory_order_release);
}

/* The inputs leave at the end of the node, so attributes that follow them move
 * down; nothing else has to know. */
int nb_tensor_forget(nb_tensor *x, nb_tensor ***old)
{
    int n = x->nin;
    if (x->trace & (nb_traces_open() | NB_TRACE_KEPT) || x->pins || !x->op)
        return 0;
    *old = nb_tensor_in(x);
    nb_op_leave(x->op);
    x->op = NULL;
    x->nin = x->nattr = 0;
    return n;
}

bool nb_realize_now(int n, nb_tensor *const *x)
{
    return nb_realizer(n, x);
}
