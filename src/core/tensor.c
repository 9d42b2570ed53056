/* tensor.c - nodes and buffers: making, counting, settling, forgetting. */
#include "core/tensor.h"

#include "core/debug.h"

#include <pthread.h>
#include <stddef.h>
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

/* A small buffer is one block: itself, room for the first leaf that looks into
 * it, its bytes.  A leaf there holds the buffer as long as it lives, and flag
 * NB_INSIDE says that this is where it is. */
typedef struct small {
    nb_buffer buffer;
    int64_t leaf[19];
    char data[];
} small;
enum { SMALL = 1024 };
_Static_assert(sizeof(small) % 64 == 0, "data is aligned");

static nb_buffer *small_new(size_t bytes)
{
    size_t room;
    small *s = nb_block_new(sizeof *s + bytes, &room);
    if (!s) return NULL;
    s->buffer =
        (nb_buffer){.refs = 1, .data = s->data, .room = room, .small = true};
    return &s->buffer;
}

nb_buffer *nb_buffer_new(size_t bytes)
{
    if (bytes <= SMALL) return small_new(bytes);
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
    if (b->small) {
        nb_block_free(b, b->room);
        return;
    }
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

static void begin(nb_tensor *x, nb_dtype dtype, const nb_shape *shape)
{
    *x = (nb_tensor){.refs = 1,
                     .dtype = (uint8_t)dtype,
                     .rank = (uint8_t)shape->rank,
                     .nlanes = (uint8_t)shape->nlanes,
                     .flags = (uint8_t)direction,
                     .serial = atomic_fetch_add_explicit(&last_serial, 1,
                                                         memory_order_relaxed)};
    for (int d = 0; d < shape->rank; d++)
        nb_tensor_size(x)[d] = shape->size[d];
    for (int l = 0; l < shape->nlanes; l++)
        nb_tensor_lane(x)[l] = shape->lane[l];
    atomic_fetch_add_explicit(&live, 1, memory_order_relaxed);
}

static size_t node_bytes(const nb_shape *shape, int more)
{
    return sizeof(nb_tensor) +
           8 * (size_t)(shape->rank + 2 * shape->nlanes + more);
}

/* Where the inputs are; what has none but numbers is where such things are made
 * now, and some ops say it themselves. */
static uint8_t device_of(const nb_op *op, int nin, nb_tensor *const *in,
                         const int64_t *attr)
{
    bool data = !op;
    if (op && op->lands) return (uint8_t)attr[op->lands - 1];
    for (int i = 0; i < nin; i++) {
        if (in[i]->device) return in[i]->device;
        data = data || !nb_tensor_is_number(in[i]);
    }
    return data ? 0 : (uint8_t)nb_device_in_force();
}

nb_tensor *nb_node_new(nb_op *op, const nb_sig *sig, nb_dtype dtype,
                       const nb_shape *shape, int nin, nb_tensor *const *in,
                       int nattr, const int64_t *attr)
{
    if (any_donated(nin, in)) return nb_fail_donated();
    nb_tensor *x = nb_alloc(node_bytes(shape, nin + nattr));
    uint64_t trace = 0;
    if (!x) return NULL;
    begin(x, dtype, shape);
    x->op = op;
    x->sig = sig;
    x->nin = nin;
    x->nattr = (int16_t)nattr;
    x->device = device_of(op, nin, in, attr);
    for (int i = 0; i < nin; i++) {
        nb_tensor_in(x)[i] = nb_keep(in[i]);
        trace |= in[i]->trace;
    }
    if (nattr) memcpy(nb_tensor_attr(x), attr, (size_t)nattr * sizeof *attr);
    if (trace) x->trace = trace & (nb_traces_open() | NB_TRACE_KEPT);
    nb_op_use(op);
    return nb_lend(x);
}

/* The buffer that a leaf is in. */
static nb_buffer *around(nb_tensor *x)
{
    return (nb_buffer *)((char *)x - offsetof(small, leaf));
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
        nb_free(x->strides);
        if (x->flags & NB_INSIDE) {
            nb_buffer_drop(around(x));
        } else {
            nb_buffer_drop(x->buffer);
            nb_free(x);
        }
        atomic_fetch_sub_explicit(&live, 1, memory_order_relaxed);
    }
}

static nb_tensor *leaf(nb_tensor *x, nb_dtype dtype, const nb_shape *shape,
                       nb_buffer *b, char *data)
{
    begin(x, dtype, shape);
    x->buffer = nb_buffer_keep(b);
    atomic_store_explicit(&x->data, data, memory_order_release);
    return x;
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
    nb_tensor *x = nb_alloc(node_bytes(shape, 0));
    if (!x) {
        nb_free(own);
        return NULL;
    }
    leaf(x, dtype, shape, b, data)->strides = own;
    return nb_lend(x);
}

nb_tensor *nb_leaf_first(nb_dtype dtype, const nb_shape *shape, nb_buffer *b)
{
    bool fits = b->small && !b->has_leaf &&
                node_bytes(shape, 0) <= sizeof((small *)b)->leaf;
    if (!fits) return nb_leaf_new(dtype, shape, b, b->data, NULL);
    nb_tensor *x = (nb_tensor *)((small *)b)->leaf;
    b->has_leaf = true;
    leaf(x, dtype, shape, b, b->data)->flags |= NB_INSIDE;
    return nb_lend(x);
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
