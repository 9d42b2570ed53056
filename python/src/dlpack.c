/* dlpack.c - memory shared with other libraries through DLPack, both ways.
 *
 * A capsule holds a managed tensor.  Whoever consumes it renames it and then
 * owns the managed tensor, to be deleted once; while it has its first name,
 * its own destructor deletes it.  So a capsule that is refused is left as it
 * was.  The layout of the structs is that of DLPack 1.1; unversioned ones are
 * those of DLPack before 1.0. */
#include "interop.h"

#include <stdlib.h>
#include <string.h>

typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape, *strides; /* strides in elements; NULL: row-major */
    uint64_t byte_offset;
} dl_tensor;

typedef struct dl_plain {
    dl_tensor t;
    void *manager;
    void (*deleter)(struct dl_plain *self);
} dl_plain;

typedef struct dl_versioned {
    struct {
        uint32_t major, minor;
    } version;
    void *manager;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    dl_tensor t;
} dl_versioned;

enum { DL_CPU = 1, DL_CUDA = 2, DL_PINNED = 3, DL_MANAGED = 13 };
enum { DL_MAJOR = 1, DL_READ_ONLY = 1, DL_COPIED = 2 };
enum { DL_INT, DL_UINT, DL_FLOAT, DL_BFLOAT = 4, DL_BOOL = 6 };

static const char PLAIN[] = "dltensor", PLAIN_USED[] = "used_dltensor",
                  VERSIONED[] = "dltensor_versioned",
                  VERSIONED_USED[] = "used_dltensor_versioned";

static const struct {
    nb_dtype dtype;
    uint8_t code, bits;
} dtypes[] = {
    {NB_BOOL, DL_BOOL, 8},    {NB_I8, DL_INT, 8},     {NB_I16, DL_INT, 16},
    {NB_I32, DL_INT, 32},     {NB_I64, DL_INT, 64},   {NB_U8, DL_UINT, 8},
    {NB_U16, DL_UINT, 16},    {NB_U32, DL_UINT, 32},  {NB_U64, DL_UINT, 64},
    {NB_F16, DL_FLOAT, 16},   {NB_F32, DL_FLOAT, 32}, {NB_F64, DL_FLOAT, 64},
    {NB_BF16, DL_BFLOAT, 16},
};
enum { NDTYPES = sizeof dtypes / sizeof *dtypes };

/* Export.  What is managed, the tensor that has the memory, and the arrays that
 * the struct points to are one allocation. */

typedef struct exported {
    union {
        dl_plain plain;
        dl_versioned versioned;
    } managed; /* first */
    nb_tensor *x;
    int64_t size[NB_PY_RANK], stride[NB_PY_RANK];
} exported;

/* Consumers call it on any thread, with the GIL or without.  What they did with
 * memory of a card on the default stream is done before it is used again. */
static void forget(exported *e)
{
    int device = nb_device_of(e->x);
    if (device && nb_device_after(device, NULL) != NB_OK) nb_error_clear();
    nb_drop(e->x);
    free(e);
}

static void delete_plain(dl_plain *m)
{
    forget((exported *)m);
}

static void delete_versioned(dl_versioned *m)
{
    forget((exported *)m);
}

static void destroy(PyObject *capsule)
{
    const char *name = PyCapsule_IsValid(capsule, PLAIN)       ? PLAIN
                       : PyCapsule_IsValid(capsule, VERSIONED) ? VERSIONED
                                                               : NULL;
    if (name) forget(PyCapsule_GetPointer(capsule, name));
}

static void describe(exported *e, dl_tensor *t)
{
    int k = 0;
    nb_dtype d = nb_dtype_of(e->x);
    while (dtypes[k].dtype != d)
        k++;
    int device = nb_device_of(e->x);
    *t = (dl_tensor){
        .data = nb_device_data(e->x, e->stride),
        .device = {device ? DL_CUDA : DL_CPU, device ? device - 1 : 0},
        .ndim = nb_rank(e->x),
        .dtype = {dtypes[k].code, dtypes[k].bits, 1},
        .shape = e->size,
        .strides = e->stride};
    nb_sizes(e->x, e->size);
}

/* A capsule of x, which is realised and has no hidden axes. */
static PyObject *capsule_of(nb_tensor *x, bool versioned, bool copied)
{
    exported *e = calloc(1, sizeof *e);
    if (!e) return PyErr_NoMemory();
    e->x = nb_keep(x);
    if (versioned) {
        dl_versioned *m = &e->managed.versioned;
        m->version.major = DL_MAJOR;
        m->deleter = delete_versioned;
        m->flags = copied ? DL_COPIED : DL_READ_ONLY;
        describe(e, &m->t);
    } else {
        e->managed.plain.deleter = delete_plain;
        describe(e, &e->managed.plain.t);
    }
    PyObject *capsule =
        PyCapsule_New(e, versioned ? VERSIONED : PLAIN, destroy);
    if (!capsule) forget(e);
    return capsule;
}

/* Two ints. */
static bool read_pair(PyObject *o, const char *what, long pair[2])
{
    bool ok = PySequence_Check(o) && PySequence_Size(o) == 2;
    for (int i = 0; ok && i < 2; i++) {
        PyObject *item = PySequence_GetItem(o, i);
        pair[i] = item ? PyLong_AsLong(item) : -1;
        Py_XDECREF(item);
        ok = !PyErr_Occurred();
    }
    if (ok) return true;
    PyErr_Clear();
    PyErr_Format(PyExc_TypeError, "__dlpack__: %s is None or two ints, not %R",
                 what, o);
    return false;
}

/* None, True or False as -1, 1 or 0; -2 with an exception. */
static int read_copy(PyObject *o)
{
    int yes = o == Py_None ? -1 : PyObject_IsTrue(o);
    return o != Py_None && yes < 0 ? -2 : yes;
}

/* The stream of the consumer, which waits for what is to be in the memory; 0
 * could be one or the other of two. */
static bool order(int device, PyObject *stream)
{
    long long handle = 1;
    if (!device && stream != Py_None) {
        PyErr_SetString(PyExc_BufferError,
                        "__dlpack__: memory of the CPU has no stream");
        return false;
    }
    if (!device) return true;
    if (stream != Py_None) handle = PyLong_AsLongLong(stream);
    if (handle == -1) return !PyErr_Occurred();
    if (handle < 1) {
        PyErr_Format(PyExc_ValueError,
                     "__dlpack__: stream is None, -1, 1, 2 or the handle of a "
                     "stream, not %R",
                     stream);
        return false;
    }
    if (nb_device_before(device, (void *)(uintptr_t)handle) == NB_OK)
        return true;
    nb_py_raise();
    return false;
}

/* Where it is to be exported from. */
static bool find_target(nb_tensor *x, PyObject *where, int copy, int *device)
{
    long to[2];
    *device = nb_device_of(x);
    if (where == Py_None) return true;
    if (!read_pair(where, "dl_device", to)) return false;
    bool cpu = to[0] == DL_CPU && to[1] == 0;
    bool card = to[0] == DL_CUDA && to[1] >= 0 && to[1] < 255;
    int wanted = cpu ? 0 : (int)to[1] + 1;
    bool there = cpu || (card && nb_device_name(wanted));
    if (there && (wanted == *device || copy)) {
        *device = wanted;
        return true;
    }
    PyErr_Format(PyExc_BufferError, "__dlpack__: dl_device is (%ld, %ld): %s",
                 to[0], to[1],
                 there  ? "that needs a copy, but copy=False"
                 : card ? nb_error_message()
                        : "neither the CPU, (1, 0), nor CUDA, (2, i)");
    nb_error_clear();
    return false;
}

/* Few consumers follow strides backwards. */
static bool runs_backwards(nb_tensor *x, const int64_t *stride)
{
    bool does = false;
    for (int d = 0; d < nb_rank(x); d++)
        does = does || (stride[d] < 0 && nb_size(x, d) > 1);
    return does;
}

static PyObject *give(nb_tensor *x, bool versioned, int copy, int device)
{
    int64_t stride[NB_PY_RANK];
    bool moved = nb_device_of(x) != device;
    bool copied = copy == 1 && !moved;
    PyObject *capsule = NULL;
    ENTER;
    x = nb_to_device(x, device);
    if (x && nb_py_realize(1, &x) && nb_device_data(x, stride)) {
        if (copy < 0 && runs_backwards(x, stride)) copied = true;
        nb_tensor *y = copied ? nb_device_copy(x) : x;
        if (y) capsule = capsule_of(y, versioned, copied || moved);
    }
    if (!capsule) nb_py_raise();
    LEAVE;
    return capsule;
}

PyObject *nb_py_dlpack(PyObject *o, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"stream", "max_version", "dl_device", "copy", NULL};
    PyObject *stream = Py_None, *version = Py_None, *where = Py_None;
    PyObject *copy = Py_None;
    long most[2] = {0, 0};
    int device;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__", names,
                                     &stream, &version, &where, &copy) ||
        (version != Py_None && !read_pair(version, "max_version", most)))
        return NULL;
    int how = read_copy(copy);
    if (how == -2 || !find_target(nb_py_get(o), where, how, &device))
        return NULL;
    PyObject *capsule = give(nb_py_get(o), most[0] >= DL_MAJOR, how, device);
    if (capsule && !order(device, stream)) Py_CLEAR(capsule);
    return capsule;
}

PyObject *nb_py_dlpack_device(PyObject *o, PyObject *unused)
{
    int device = nb_device_of(nb_py_get(o));
    (void)unused;
    return device ? Py_BuildValue("(ii)", DL_CUDA, device - 1)
                  : Py_BuildValue("(ii)", DL_CPU, 0);
}

/* Import. */

/* A capsule, looked into: what it holds, and what is true of its memory. */
typedef struct imported {
    PyObject *capsule;
    void *managed;
    bool versioned, read_only;
    const dl_tensor *t;
    nb_dtype dtype;
    char *data;
    int device;
} imported;

static void discard(void *managed, bool versioned)
{
    dl_plain *p = managed;
    dl_versioned *v = managed;
    if (versioned) {
        if (v->deleter) v->deleter(v);
    } else if (p->deleter)
        p->deleter(p);
}

/* A producer written in Python may run anything here.  After the interpreter
 * has gone nothing can, and the memory goes with the process. */
static void release(void *managed, bool versioned)
{
    PyObject *type, *value, *trace;
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyErr_Fetch(&type, &value, &trace);
    discard(managed, versioned);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(state);
}

static void release_plain(void *managed)
{
    release(managed, false);
}

static void release_versioned(void *managed)
{
    release(managed, true);
}

static bool open_capsule(PyObject *capsule, imported *m)
{
    const char *name = PyCapsule_GetName(capsule);
    m->capsule = capsule;
    m->versioned = name && !strcmp(name, VERSIONED);
    if (!name || (!m->versioned && strcmp(name, PLAIN) != 0)) {
        bool used = name && (!strcmp(name, PLAIN_USED) ||
                             !strcmp(name, VERSIONED_USED));
        PyErr_Format(PyExc_ValueError,
                     used ? "from_dlpack: this capsule, now %s, has been "
                            "consumed already"
                          : "from_dlpack: a capsule named %s is not one of "
                            "DLPack",
                     name ? name : "nothing");
        return false;
    }
    m->managed = PyCapsule_GetPointer(capsule, name);
    if (!m->managed) return false;
    if (!m->versioned) {
        m->t = &((dl_plain *)m->managed)->t;
        return true;
    }
    const dl_versioned *v = m->managed;
    if (v->version.major != DL_MAJOR) { /* nothing else may be looked at */
        PyErr_Format(PyExc_BufferError,
                     "from_dlpack: version %u.%u of DLPack, %d.x is needed",
                     v->version.major, v->version.minor, DL_MAJOR);
        return false;
    }
    m->read_only = v->flags & DL_READ_ONLY;
    m->t = &v->t;
    return true;
}

/* The number of a device of DLPack. */
static bool find_device(long type, long id, int *device)
{
    bool card = (type == DL_CUDA || type == DL_MANAGED) && id >= 0 && id < 255;
    *device = card ? (int)id + 1 : 0;
    if (type == DL_CPU || type == DL_PINNED) return true;
    if (card && nb_device_name(*device)) return true;
    PyErr_Format(PyExc_RuntimeError,
                 "from_dlpack: the memory is on device (%ld, %ld): %s", type,
                 id,
                 card ? nb_error_message()
                      : "only that of the CPU, (1, 0), and of CUDA, (2, i), "
                        "can be reached");
    nb_error_clear();
    return false;
}

static bool check_dtype(imported *m)
{
    for (int k = 0; k < NDTYPES && m->t->dtype.lanes == 1; k++)
        if (dtypes[k].code == m->t->dtype.code &&
            dtypes[k].bits == m->t->dtype.bits)
            return m->dtype = dtypes[k].dtype, true;
    PyErr_Format(PyExc_TypeError,
                 "from_dlpack: no dtype of nabla has code %d, %d bits and %d "
                 "lanes",
                 m->t->dtype.code, m->t->dtype.bits, m->t->dtype.lanes);
    return false;
}

/* Sizes whose product overflows are found when the tensor is made. */
static bool check_layout(imported *m)
{
    const dl_tensor *t = m->t;
    bool good = t->ndim >= 0 && t->ndim <= NB_PY_RANK;
    bool some = true;
    if (!good) {
        PyErr_Format(PyExc_ValueError, "from_dlpack: rank %d is not in 0 to %d",
                     (int)t->ndim, NB_PY_RANK);
        return false;
    }
    good = t->ndim == 0 || t->shape;
    for (int d = 0; good && d < t->ndim; d++) {
        good = t->shape[d] >= 0;
        some = some && t->shape[d] > 0;
    }
    m->data = t->data ? (char *)t->data + t->byte_offset : NULL;
    if (good && (m->data || !some)) return true;
    PyErr_SetString(PyExc_ValueError,
                    good ? "from_dlpack: a tensor with elements has no data"
                         : "from_dlpack: a tensor without a shape");
    return false;
}

static bool check_import(PyObject *capsule, imported *m)
{
    *m = (imported){0};
    return open_capsule(capsule, m) &&
           find_device(m->t->device.type, m->t->device.id, &m->device) &&
           check_dtype(m) && check_layout(m);
}

/* Of packed memory.  Sizes whose product overflows are no bytes to look at. */
static bool has_odd_bools(const imported *m)
{
    const dl_tensor *t = m->t;
    int64_t n = 1;
    if (m->dtype != NB_BOOL) return false;
    for (int d = 0; d < t->ndim; d++)
        if (__builtin_mul_overflow(n, t->shape[d], &n)) return false;
    return m->device ? !nb_py_card_bools_are_settled(m->device, t->ndim,
                                                     t->shape, m->data)
                     : !nb_bool_is_settled(m->data, (size_t)n);
}

/* Why the memory cannot be shared, or NULL. */
static const char *why_not(const imported *m)
{
    const dl_tensor *t = m->t;
    if (m->read_only) return "is read-only";
    if (!nb_py_is_packed(t->ndim, t->shape, t->strides))
        return "is not contiguous";
    if ((uintptr_t)m->data % nb_dtype_size(m->dtype)) return "is not aligned";
    if (has_odd_bools(m)) return "holds bools that are neither 0 nor 1";
    return NULL;
}

/* Elements, which may lie anywhere, in row-major order; returns where the next
 * would go. */
static char *gather(char *to, const char *from, size_t item, int rank,
                    const int64_t *size, const int64_t *stride)
{
    if (rank == 0) return (char *)memcpy(to, from, item) + item;
    for (int64_t i = 0; i < size[0]; i++)
        to = gather(to, from + i * stride[0] * (int64_t)item, item, rank - 1,
                    size + 1, stride + 1);
    return to;
}

/* The capsule is ours. */
static void consume(const imported *m)
{
    PyCapsule_SetName(m->capsule, m->versioned ? VERSIONED_USED : PLAIN_USED);
}

static nb_tensor *import_shared(const imported *m, const int64_t *strides)
{
    nb_tensor *x = nb_borrow_on(
        m->device, m->dtype, m->t->ndim, m->t->shape, strides, m->data,
        m->versioned ? release_versioned : release_plain, m->managed);
    if (x) consume(m);
    return x;
}

static nb_tensor *import_copy_there(const imported *m)
{
    imported bytes = *m;
    if (m->dtype != NB_BOOL)
        return nb_device_copy(import_shared(m, m->t->strides));
    bytes.dtype = NB_U8;
    return nb_py_card_bools(import_shared(&bytes, m->t->strides));
}

static nb_tensor *import_copy(const imported *m)
{
    const dl_tensor *t = m->t;
    char *data;
    if (m->device) return import_copy_there(m);
    size_t item = nb_dtype_size(m->dtype);
    nb_tensor *x = nb_py_fresh(m->dtype, t->ndim, t->shape, &data);
    if (!x) return NULL;
    int64_t n = nb_elements(x);
    if (n && nb_py_is_packed(t->ndim, t->shape, t->strides))
        memcpy(data, m->data, (size_t)n * item);
    else if (n)
        gather(data, m->data, item, t->ndim, t->shape, t->strides);
    if (m->dtype == NB_BOOL) nb_bool_settle(data, (size_t)n);
    consume(m);
    discard(m->managed, m->versioned);
    return x;
}

/* Elements of another dtype of the same size, for producers that hide it. */
static bool rename_dtype(imported *m, nb_dtype d)
{
    if (!d || nb_dtype_size(d) == nb_dtype_size(m->dtype)) {
        m->dtype = d ? d : m->dtype;
        return true;
    }
    PyErr_Format(PyExc_TypeError, "from_dlpack: %s is not as wide as %s",
                 nb_dtype_name(m->dtype), nb_dtype_name(d));
    return false;
}

/* Of a bare capsule nobody has said when its memory is ready: on the default
 * stream. */
static PyObject *take(PyObject *capsule, int copy, nb_dtype d, bool ordered)
{
    imported m;
    if (!check_import(capsule, &m) || !rename_dtype(&m, d)) return NULL;
    if (m.device && !ordered && nb_device_after(m.device, NULL) != NB_OK)
        return nb_py_raise();
    const char *why = why_not(&m);
    if (why && copy == 0)
        return PyErr_Format(PyExc_ValueError,
                            "from_dlpack: a copy is needed, as the memory %s, "
                            "but copy=False",
                            why);
    ENTER;
    nb_tensor *x = why || copy == 1 ? import_copy(&m) : import_shared(&m, NULL);
    PyObject *y = x ? nb_py_wrap(x) : nb_py_raise();
    LEAVE;
    return y;
}

/* Asked before the capsule is made, since making one may copy or move. */
static bool ask_device(PyObject *o, int *device)
{
    long pair[2] = {DL_CPU, 0};
    *device = 0;
    if (!PyObject_HasAttrString(o, "__dlpack_device__")) return true;
    PyObject *where = PyObject_CallMethod(o, "__dlpack_device__", NULL);
    bool ok = where && read_pair(where, "the device", pair) &&
              find_device(pair[0], pair[1], device);
    Py_XDECREF(where);
    return ok;
}

static bool add(PyObject *dict, const char *name, PyObject *value)
{
    bool ok = value && PyDict_SetItemString(dict, name, value) == 0;
    Py_XDECREF(value);
    return ok;
}

/* Our stream is to wait for what the producer's has to do. */
static PyObject *first_arguments(int device)
{
    PyObject *how = PyDict_New();
    if (!how || !device) return how;
    void *stream = nb_device_stream(device);
    if (!stream) nb_py_raise();
    if (!stream ||
        !add(how, "stream", PyLong_FromSize_t((size_t)(uintptr_t)stream)))
        Py_CLEAR(how);
    return how;
}

/* Producers from before version 1.0 take no max_version. */
static PyObject *ask_capsule(PyObject *o, int copy, int device)
{
    PyObject *method = PyObject_GetAttrString(o, "__dlpack__");
    PyObject *none = method ? PyTuple_New(0) : NULL;
    PyObject *least = none ? first_arguments(device) : NULL;
    PyObject *how = least ? PyDict_Copy(least) : NULL;
    PyObject *capsule = NULL;
    if (how && add(how, "max_version", Py_BuildValue("(ii)", DL_MAJOR, 1)) &&
        (copy != 0 || PyDict_SetItemString(how, "copy", Py_False) == 0))
        capsule = PyObject_Call(method, none, how);
    if (how && !capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        capsule = PyObject_Call(method, none, least);
    }
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(least);
    Py_XDECREF(how);
    return capsule;
}

/* The destructor of one that was refused may run Python, which must not find
 * the exception that says why. */
static void drop_capsule(PyObject *capsule)
{
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Py_DECREF(capsule);
    PyErr_Restore(type, value, trace);
}

PyObject *nb_py_from_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    (void)self;
    nb_dtype d;
    if (n != 3)
        return PyErr_Format(PyExc_TypeError,
                            "import_dlpack(array, copy, dtype)");
    if (!nb_py_dtype(args[2], &d)) return NULL;
    PyObject *o = args[0], *capsule = NULL;
    int copy = read_copy(args[1]), device = 0;
    if (copy == -2) return NULL;
    if (nb_py_is_tensor(o) || PyCapsule_CheckExact(o)) {
        Py_INCREF(o);
        capsule = o;
    } else if (!PyObject_HasAttrString(o, "__dlpack__")) {
        PyErr_Format(PyExc_TypeError, "from_dlpack: %R has no __dlpack__",
                     Py_TYPE(o));
    } else if (ask_device(o, &device))
        capsule = ask_capsule(o, copy, device);
    if (!capsule || nb_py_is_tensor(capsule)) return capsule;
    PyObject *y = PyCapsule_CheckExact(capsule)
                      ? take(capsule, copy, d, device > 0)
                      : PyErr_Format(PyExc_TypeError,
                                     "from_dlpack: __dlpack__ gave a %R, not "
                                     "a capsule",
                                     Py_TYPE(capsule));
    drop_capsule(capsule);
    return y;
}
