/* leaf.c - tensors that come from outside, numbers in expressions, and what
 * can be asked of a tensor. */
#define _GNU_SOURCE
#include "base/bool.h"
#include "core/convert.h"
#include "core/lanes.h"
#include "nabla/nabla.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is_dtype(nb_dtype d, const char *who)
{
    return (d > NB_NOTYPE && d < NB_NDTYPES) ||
           nb_fail(NB_ETYPE, "%s: %d is not a dtype", who, (int)d);
}

static bool shape_of(nb_shape *s, const char *who, nb_dtype d, int rank,
                     const int64_t *size)
{
    s->nlanes = 0;
    s->rank = rank;
    if (rank < 0 || rank > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "%s: rank %d is not in 0 to %d", who, rank,
                       NB_MAX_RANK);
    if (!is_dtype(d, who)) return false;
    for (int k = 0; k < rank; k++) {
        if (size[k] < 0)
            return nb_fail(NB_EVALUE, "%s: axis %d has size %lld", who, k,
                           (long long)size[k]);
        s->size[k] = nb_extent_of(size[k]);
    }
    return nb_shape_check(s, d, who);
}

/* Only what has no elements may do without memory. */
static bool has_data(const nb_shape *s, const char *who, const void *data)
{
    int64_t n;
    return data || (nb_shape_count(s, &n) && n == 0) ||
           nb_fail(NB_EVALUE, "%s: the data of shape %s is NULL", who,
                   nb_shape_text(s));
}

nb_tensor *nb_constant(nb_dtype dtype, int rank, const int64_t *shape,
                       const void *data)
{
    nb_shape s;
    int64_t n;
    if (!shape_of(&s, "constant", dtype, rank, shape) ||
        !has_data(&s, "constant", data))
        return NULL;
    nb_shape_count(&s, &n);
    size_t bytes = (size_t)n * nb_dtype_size(dtype);
    nb_buffer *b = nb_buffer_new(bytes);
    if (!b) return NULL;
    if (bytes) memcpy(b->data, data, bytes);
    if (dtype == NB_BOOL) nb_bool_settle(b->data, bytes);
    nb_tensor *x = nb_leaf_first(dtype, &s, b);
    nb_buffer_drop(b);
    return x;
}

/* On failure the owner still has its memory: release is not called. */
nb_tensor *nb_borrow(nb_dtype dtype, int rank, const int64_t *shape,
                     const int64_t *strides, void *data,
                     void (*release)(void *owner), void *owner)
{
    nb_shape s;
    if (!shape_of(&s, "borrow", dtype, rank, shape) ||
        !has_data(&s, "borrow", data))
        return NULL;
    nb_buffer *b = nb_alloc(sizeof *b);
    if (!b) return NULL;
    *b = (nb_buffer){.refs = 1, .data = data, .owner = owner};
    nb_tensor *x = nb_leaf_new(dtype, &s, b, data ? data : (char *)b, strides);
    if (!x) {
        nb_free(b);
        return NULL;
    }
    b->release = release; /* from here on the buffer calls it */
    nb_buffer_drop(b);
    return x;
}

/* The value sits in the node itself, in one attribute word. */
static nb_tensor *number(nb_dtype d, uint8_t flags)
{
    static const nb_shape none;
    static const int64_t zero;
    nb_tensor *x = nb_node_new(NULL, NULL, d, &none, 0, NULL, 1, &zero);
    if (!x) return NULL;
    x->flags = flags;
    x->data = (char *)nb_tensor_attr(x);
    return x;
}

nb_tensor *nb_num(double value)
{
    nb_tensor *x = number(NB_F64, NB_WEAK);
    if (x) memcpy(x->data, &value, sizeof value);
    return x;
}

nb_tensor *nb_count(int64_t value)
{
    nb_tensor *x = number(NB_I64, NB_WEAK);
    if (x) memcpy(x->data, &value, sizeof value);
    return x;
}

nb_tensor *nb_truth(bool value)
{
    nb_tensor *x = number(NB_BOOL, NB_WEAK);
    if (x) *x->data = value;
    return x;
}

nb_tensor *nb_scalar_float(double value, nb_dtype dtype)
{
    nb_tensor *x = number(dtype ? dtype : nb_default_float(), 0);
    if (x) nb_convert(x->data, (nb_dtype)x->dtype, 1, &value, NB_F64, 1, 1);
    return x;
}

nb_tensor *nb_scalar_int(int64_t value, nb_dtype dtype)
{
    nb_dtype d = dtype ? dtype : NB_I64;
    int bits = 8 * (int)nb_dtype_size(d);
    bool u = nb_dtype_is_unsigned(d);
    bool fits = !nb_dtype_is_integer(d) || bits == 64 ||
                (u ? value >= 0 && value >> bits == 0
                   : value >> (bits - 1) == 0 || value >> (bits - 1) == -1);
    if (d == NB_U64 && value < 0) fits = false;
    if (!fits)
        return nb_fail(NB_EOVERFLOW, "%lld does not fit %s", (long long)value,
                       nb_dtype_name(d));
    nb_tensor *x = number(d, 0);
    if (x) nb_convert(x->data, d, 1, &value, NB_I64, 1, 1);
    return x;
}

nb_tensor *nb_as(nb_tensor *x, nb_dtype d)
{
    if (!x) return NULL;
    if (!(x->flags & NB_WEAK))
        return x->dtype == d ? x
                             : nb_apply(&nb_op_cast, 1, &x, 1,
                                        &(nb_value)NB_V_INT(d), NB_CALLER);
    double f;
    int64_t i;
    if (x->dtype == NB_F64) {
        memcpy(&f, x->data, sizeof f);
        return nb_scalar_float(f, d);
    }
    if (x->dtype == NB_BOOL) return nb_scalar_int(*x->data, d);
    memcpy(&i, x->data, sizeof i);
    return nb_scalar_int(i, d);
}

int nb_rank(const nb_tensor *x)
{
    return x ? x->rank : 0;
}

nb_dtype nb_dtype_of(const nb_tensor *x)
{
    return x ? (nb_dtype)x->dtype : NB_NOTYPE;
}

int64_t nb_size(const nb_tensor *x, int axis)
{
    int rank = nb_rank(x);
    if (axis < 0) axis += rank;
    return axis < 0 || axis >= rank ? -1
                                    : nb_extent_get(nb_tensor_size(x)[axis]);
}

int64_t nb_elements(const nb_tensor *x)
{
    int64_t n = 1;
    for (int d = 0; d < nb_rank(x); d++)
        n *= nb_size(x, d);
    return x ? n : 0;
}

void nb_sizes(const nb_tensor *x, int64_t *sizes)
{
    for (int d = 0; d < nb_rank(x); d++)
        sizes[d] = nb_size(x, d);
}

int nb_hidden(const nb_tensor *x)
{
    return x ? x->nlanes : 0;
}

void nb_hidden_sizes(const nb_tensor *x, int64_t *sizes)
{
    for (int l = 0; l < nb_hidden(x); l++)
        sizes[l] = nb_extent_get(nb_tensor_lane(x)[l].size);
}

bool nb_is_realized(const nb_tensor *x)
{
    return x && nb_tensor_done(x);
}

bool nb_is_leaf(const nb_tensor *x)
{
    return x && !x->op;
}

bool nb_is_weak(const nb_tensor *x)
{
    return x && x->flags & NB_WEAK;
}

bool nb_is_traced(const nb_tensor *x)
{
    return x && x->trace & NB_TRACE_KEPT;
}

void nb_set_traced(nb_tensor *x, bool traced)
{
    if (!x) return;
    if (traced)
        atomic_fetch_or(&x->trace, NB_TRACE_KEPT);
    else
        atomic_fetch_and(&x->trace, ~NB_TRACE_KEPT);
}

nb_status nb_realize_all(int n, nb_tensor *const *x)
{
    return NB_STATUS(nb_realize_now(n, x));
}

nb_status nb_realize(nb_tensor *x)
{
    return NB_STATUS(nb_realize_now(1, &x));
}

static bool differs(const nb_tensor *x)
{
    for (int l = 0; l < x->nlanes; l++)
        if (!nb_tensor_lane(x)[l].thin) return true;
    return false;
}

/* x, or the whole of it, realised, with a value of its own. */
static nb_tensor *whole(nb_tensor *x)
{
    if (!x) return NULL;
    if (differs(x))
        return nb_fail(NB_EVALUE, "a mapped value differs from lane to lane: "
                                  "it cannot be read inside its vmap");
    if (!nb_realize_now(1, &x)) return NULL;
    return x->sharding ? nb_gatherer(x) : x;
}

const void *nb_data_there(nb_tensor *x, int64_t *strides)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    if (!(x = whole(x))) return NULL;
    nb_tensor_strides(x, size, stride);
    if (strides) memcpy(strides, stride + x->nlanes, x->rank * sizeof *strides);
    return x->data;
}

const void *nb_data(nb_tensor *x, int64_t *strides)
{
    if (!x || !x->device) return nb_data_there(x, strides);
    return (x = whole(x)) ? nb_data_there(nb_on_card.fetch(x), strides) : NULL;
}

/* Rows along the last axis, converted as they are copied. */
static void copy_out(char *to, nb_dtype as, const nb_tensor *x,
                     const char *from, int d, const int64_t *stride)
{
    size_t item = nb_dtype_size((nb_dtype)x->dtype);
    int64_t n = d < x->rank ? nb_size(x, d) : 1, inner = 1;
    if (d >= x->rank - 1) {
        nb_convert(to, as, 1, from, (nb_dtype)x->dtype,
                   d < x->rank ? stride[d] : 1, n);
        return;
    }
    for (int k = d + 1; k < x->rank; k++)
        inner *= nb_size(x, k);
    for (int64_t i = 0; i < n && inner; i++)
        copy_out(to + (size_t)(i * inner) * nb_dtype_size(as), as, x,
                 from + i * stride[d] * (int64_t)item, d + 1, stride);
}

static nb_status read_from_card(nb_tensor *x, nb_dtype as, void *to)
{
    nb_tensor *value = whole(x);
    if (!value || nb_scope_open() != NB_OK) return nb_error_code();
    nb_tensor *here = nb_on_card.fetch(value);
    nb_status s = here ? nb_read(here, as, to) : nb_error_code();
    nb_scope_close(0, NULL);
    return s;
}

nb_status nb_read(nb_tensor *x, nb_dtype as, void *to)
{
    int64_t stride[NB_MAX_RANK];
    if (as && !is_dtype(as, "read")) return NB_STATUS(false);
    if (x && x->device) return read_from_card(x, as, to);
    const char *from = nb_data(x, stride);
    if (!from) return nb_error_code() ? nb_error_code() : NB_ERUNTIME;
    if (x->sharding) x = nb_gatherer(x);
    if (!as) as = (nb_dtype)x->dtype;
    if (nb_tensor_is_packed(x))
        nb_convert(to, as, 1, from, (nb_dtype)x->dtype, 1, nb_elements(x));
    else
        copy_out(to, as, x, from, 0, stride);
    return NB_OK;
}

double nb_item(nb_tensor *x)
{
    double value = NAN;
    if (x && nb_elements(x) != 1) {
        nb_shape s = nb_tensor_shape(x);
        nb_fail(NB_ETYPE, "item: shape %s has not one element",
                nb_shape_text(&s));
        return NAN;
    }
    return nb_read(x, NB_F64, &value) == NB_OK ? value : NAN;
}

nb_tensor *nb_detach(nb_tensor *x)
{
    if (!x) return NULL;
    if (nb_tensor_done(x) && x->buffer) {
        nb_shape s = nb_tensor_shape(x);
        nb_tensor *y =
            nb_leaf_on(x->device, nb_leaf_new((nb_dtype)x->dtype, &s, x->buffer,
                                              x->data, x->strides));
        if (y) y->sharding = x->sharding;
        return y;
    }
    nb_tensor *y = nb_apply(&nb_op_detach, 1, &x, 0, NULL, NB_CALLER);
    if (y) y->trace = 0;
    return y;
}

const char *nb_op_name_of(const nb_tensor *x)
{
    return x && x->op ? x->op->name : "";
}

const char *nb_source_text(const void *source, int line)
{
    static _Thread_local char text[512];
    Dl_info info;
    if (!source) return "";
    if (line >= 0) {
        snprintf(text, sizeof text, "%s:%d", (const char *)source, line);
        return text;
    }
    if (!dladdr(source, &info)) return "";
    if (info.dli_sname) return info.dli_sname;
    snprintf(text, sizeof text, "%s+0x%tx",
             info.dli_fname ? info.dli_fname : "",
             (const char *)source - (const char *)info.dli_fbase);
    return text;
}

const char *nb_source_of(const nb_tensor *x)
{
    return x && x->op ? nb_source_text(x->source, x->line) : "";
}

size_t nb_memory_in_use(void)
{
    return nb_block_bytes();
}

size_t nb_memory_peak(void)
{
    return nb_block_peak();
}

void nb_memory_peak_reset(void)
{
    nb_block_peak_reset();
}

void nb_memory_trim(void)
{
    nb_block_trim();
}

void nb_text_release(char *text)
{
    nb_free(text);
}
