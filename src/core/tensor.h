/* tensor.h - the node: what was called on what, what it gives, and the data.
 *
 * A node is one allocation: the struct, then visible extents, lanes, inputs and
 * attribute words.  Everything is fixed when it is recorded, but for the data
 * (set once, by realisation) and the inputs (dropped then, unless traced); both
 * change only under the graph lock.  `data` is read without it: once set it
 * stays.
 *
 * Inputs are older than results, so `serial` is a topological order. */
#ifndef NB_CORE_TENSOR_H
#define NB_CORE_TENSOR_H

#include "core/op.h"

/* Bytes that one or more tensors look into. */
typedef struct nb_buffer {
    atomic_int refs;
    bool small;    /* it is one block with its bytes, and */
    bool has_leaf; /* room for a leaf, which is there */
    char *data;
    size_t room;                  /* of a block of ours, else 0 */
    void (*release)(void *owner); /* how it goes back, or NULL */
    void *owner;
} nb_buffer;

/* NB_DONATED: its data was given away, nothing can be computed from it.
 * NB_BACKWARD and NB_TANGENT: recorded by a differentiation, on its way back or
 * forward.  NB_SILENT: its effect has happened when the program ran first.
 * NB_INSIDE: a leaf that lies in its buffer, and goes with it. */
enum {
    NB_WEAK = 1,
    NB_MULTI = 2,
    NB_REQUIRES = 4,
    NB_DONATED = 8,
    NB_BACKWARD = 16,
    NB_TANGENT = 32,
    NB_SILENT = 64,
    NB_INSIDE = 128
};

/* Bits 0 to 61 belong to open differentiations. */
#define NB_TRACE_KEPT ((uint64_t)1 << 63) /* asked for by the user */

struct nb_tensor {
    atomic_int refs;
    uint8_t dtype, rank, nlanes, flags;
    int32_t nin;
    int16_t nattr;
    uint8_t device;      /* 0: the CPU, 1 + k: card k */
    uint32_t mark, slot; /* of the realisation that visits it; graph lock */
    int32_t line;
    uint32_t pins; /* tapes that will walk through it; graph lock */
    nb_op *op;     /* NULL: a leaf */
    const nb_sig *sig;
    _Atomic uint64_t trace;
    uint64_t serial;
    const void *source; /* a file name; or, if line < 0, a code address */
    _Atomic(char *) data;
    nb_buffer *buffer;
    int64_t *strides; /* lanes then visible, in elements; NULL: row-major */
    /* How it lies over devices, or NULL: a spec; of a node with several results
     * the decision that says theirs (shard/decide/resolve.h).  Once realised, its
     * buffer holds the blocks of the devices (run/shards.h), and `data` is not
     * to be read. */
    const void *sharding;
    int64_t tail[];
};

static inline nb_extent *nb_tensor_size(const nb_tensor *x)
{
    return (nb_extent *)x->tail;
}

static inline nb_lane *nb_tensor_lane(const nb_tensor *x)
{
    return (nb_lane *)(x->tail + x->rank);
}

static inline nb_tensor **nb_tensor_in(const nb_tensor *x)
{
    return (nb_tensor **)(x->tail + x->rank + 2 * x->nlanes);
}

static inline int64_t *nb_tensor_attr(const nb_tensor *x)
{
    return (int64_t *)x->tail + x->rank + 2 * x->nlanes + x->nin;
}

static inline bool nb_tensor_done(const nb_tensor *x)
{
    return atomic_load_explicit(&x->data, memory_order_acquire) != NULL;
}

nb_shape nb_tensor_shape(const nb_tensor *x);
nb_call nb_call_of(nb_tensor *y);

/* A node with room for all its parts, lent by the innermost scope; inputs are
 * kept.  Its trace is what the inputs have. */
nb_tensor *nb_node_new(nb_op *op, const nb_sig *sig, nb_dtype dtype,
                       const nb_shape *shape, int nin, nb_tensor *const *in,
                       int nattr, const int64_t *attr);

/* The error of using one whose data was given away; NULL. */
void *nb_fail_donated(void);

/* Lends an owned reference; of a tensor, or of anything else with a way to drop
 * it. */
nb_tensor *nb_lend(nb_tensor *x);
void *nb_lend_other(void *x, void (*drop)(void *));

nb_buffer *nb_buffer_new(size_t bytes);
nb_buffer *nb_buffer_keep(nb_buffer *b);
void nb_buffer_drop(nb_buffer *b);

/* A realised leaf over a buffer, which it keeps; strides NULL: row-major. */
nb_tensor *nb_leaf_new(nb_dtype dtype, const nb_shape *shape, nb_buffer *b,
                       char *data, const int64_t *strides);

/* The same over all of a buffer that the caller has made, or has alone: a small
 * one has room for it. */
nb_tensor *nb_leaf_first(nb_dtype dtype, const nb_shape *shape, nb_buffer *b);

/* x, a leaf whose buffer is memory of that device; NULL is fine. */
static inline nb_tensor *nb_leaf_on(int device, nb_tensor *x)
{
    if (x) x->device = (uint8_t)device;
    return x;
}

/* Strides as stored, row-major if none are given; lanes that are thin and
 * extents of one get whatever the layout says.  Returns the dim count. */
int nb_tensor_strides(const nb_tensor *x, int64_t *size, int64_t *stride);
bool nb_tensor_is_packed(const nb_tensor *x); /* row-major, no gaps */

/* Sets the data of a node, under the graph lock. */
void nb_tensor_settle(nb_tensor *x, nb_buffer *b, char *data,
                      const int64_t *strides);

/* Forgets how x was made unless it is traced; under the graph lock.  The
 * inputs to drop afterwards are moved to *old (owned), their number returned.*/
int nb_tensor_forget(nb_tensor *x, nb_tensor ***old);

void nb_graph_lock(void);
void nb_graph_unlock(void);
uint32_t nb_graph_mark(void); /* one that no node has; under the lock */

/* Differentiations and vmaps that are open in this thread. */
uint64_t nb_traces_open(void);
uint64_t nb_trace_open(void); /* a fresh bit, 0 with an error if none is left */
void nb_trace_close(uint64_t bit);
int nb_lane_open(nb_extent size, const char *name); /* id, or 0 */
bool nb_lane_open_again(nb_lane lane,
                        const char *const *name); /* two of them */
int nb_lane_fresh(void);                          /* an id alone */
void nb_lane_close(void);
const nb_lane *nb_lanes_open(int *n);
const char **nb_lane_names(int k); /* of one that is open: two, or NULL */
const nb_lane *nb_lane_find(const char *name); /* innermost; may be NULL */
const nb_lane *nb_lane_named(const char *name);

/* The device in force in this thread, -1: the default; the one before.  What is
 * made of nothing is made there. */
int nb_device_enter(int device);
int nb_device_in_force(void);

/* x, whose data is at hand, on a device, as data: programs that are being
 * recorded have it as it is there. */
nb_tensor *nb_on_at_once(nb_tensor *x, int device);

/* A number in an expression, which goes everywhere. */
static inline bool nb_tensor_is_number(const nb_tensor *x)
{
    return !x->op && !x->buffer && nb_tensor_done(x);
}

/* Memory of cards, of which core knows nothing: a buffer; elements from strides
 * to strides, and bytes, both on that card; bytes to the CPU, and from it; the
 * value of a realised tensor there, on the CPU, lent. */
typedef struct nb_card_bytes {
    nb_buffer *(*buffer)(int device, size_t bytes);
    bool (*elements)(int device, nb_dtype d, int n, const int64_t *size,
                     char *to, const int64_t *to_stride, const char *from,
                     const int64_t *stride);
    bool (*copy)(int device, char *to, const char *from, size_t n);
    bool (*read)(int device, void *to, const char *from, size_t n);
    bool (*write)(int device, char *to, const void *from, size_t n);
    nb_tensor *(*fetch)(nb_tensor *x);
} nb_card_bytes;
extern const nb_card_bytes nb_on_card; /* run defines it */

/* nb_data of a tensor where it is. */
const void *nb_data_there(nb_tensor *x, int64_t *strides);

/* The same on any device. */
nb_buffer *nb_buffer_on(int device, size_t bytes);
bool nb_bytes_copy(int device, char *to, const char *from, size_t n);
bool nb_bytes_read(int device, void *to, const char *from, size_t n);

/* Realisation: core calls it, run defines it. */
extern bool (*nb_realizer)(int n, nb_tensor *const *x);
bool nb_realize_now(int n, nb_tensor *const *x);

/* Layouts over devices, of which core knows nothing: shard says how the n
 * results of a call lie, some of whose inputs lie on devices or that places
 * them itself; run gives the whole value of a tensor that lies there, kept by
 * x. */
extern bool (*const nb_sharder)(const nb_call *c, int n, nb_tensor *const *y);
extern const void *(*const nb_part_sharding)(const nb_tensor *all, int k);
extern nb_tensor *(*const nb_gatherer)(nb_tensor *x);

/* y, of the visible shape of x, laid out as x is; itself if x is on no device.
 */
extern nb_tensor *(*const nb_layer)(nb_tensor *y, const nb_tensor *x);
static inline nb_tensor *nb_laid_like(nb_tensor *y, const nb_tensor *x)
{
    return y && x->sharding ? nb_layer(y, x) : y;
}

/* How layouts stand in listings: "@dp" behind the size of a stored dim, "{P:tp}"
 * behind a type, the arguments of a call that places, the line of a mesh and
 * its name. */
typedef struct nb_layout_words {
    void (*dim)(nb_text *t, const void *sharding, int dim);
    void (*pending)(nb_text *t, const void *sharding);
    void (*target)(nb_text *t, const void *sharding);
    void (*mesh)(nb_text *t, const void *sharding);
    void (*name)(nb_text *t, const void *sharding);
    bool (*same_mesh)(const void *a, const void *b);
} nb_layout_words;
extern const nb_layout_words nb_layout_print;

/* Programs that run many times, from x to y: core's users ask for them, run
 * makes them, the code at once or when they are ready to run.  NULL without an
 * error: they had better run op by op.  Inputs of a run have the types of x and
 * their values, results are lent; or, of one that is ready, both are packed
 * memory, and results are written there. */
typedef struct nb_program nb_program;
typedef struct nb_programs {
    nb_program *(*make)(int nx, nb_tensor *const *x, int ny,
                        nb_tensor *const *y, bool later);
    bool (*run)(nb_program *p, nb_tensor *const *x, nb_tensor **y);
    bool (*ready)(nb_program *p);
    bool (*run_at)(nb_program *p, char *const *x, char *const *y);
    int64_t (*bytes)(const nb_program *p); /* besides inputs and results */
    void (*drop)(nb_program *p);
} nb_programs;
extern const nb_programs nb_programs_run;

/* Uses of an op that is made at a call; nothing for those of the catalogue. */
void nb_op_use(nb_op *op);
void nb_op_leave(nb_op *op);

/* Number of nodes alive, for leak tests. */
int64_t nb_nodes_live(void);

#endif
