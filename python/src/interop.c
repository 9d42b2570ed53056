/* interop.c - the same data for others: NumPy arrays, buffers, files; and the
 * keys of the process.
 *
 * A buffer that is given away keeps the engine's tensor, not the object: that
 * may be given another value. */
#include "interop.h"

#include <nabla/io.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

nb_tensor *nb_py_fresh(nb_dtype d, int rank, const int64_t *size, char **data)
{
    size_t bytes = nb_dtype_size(d);
    for (int i = 0; i < rank; i++)
        if (__builtin_mul_overflow(bytes, (size_t)size[i], &bytes) ||
            bytes > PTRDIFF_MAX)
            return nb_error_raise(NB_EOVERFLOW, "more bytes than an address "
                                                "counts");
    size_t room = (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    *data = aligned_alloc(ALIGNMENT, room);
    if (!*data)
        return nb_error_raise(NB_EMEMORY, "no memory for %zu bytes", room);
    nb_tensor *x = nb_borrow(d, rank, size, NULL, *data, free, *data);
    if (!x) free(*data);
    return x;
}

bool nb_py_is_packed(int rank, const int64_t *size, const int64_t *stride)
{
    int64_t step = 1;
    bool packed = true;
    for (int d = 0; d < rank; d++)
        if (size[d] == 0) return true;
    for (int d = rank - 1; stride && d >= 0; d--) {
        packed = packed && (size[d] == 1 || stride[d] == step);
        step *= size[d];
    }
    return packed;
}

static bool most_is_1(nb_tensor *bytes)
{
    unsigned char most = 0;
    if (bytes && !nb_elements(bytes)) return true;
    nb_tensor *x = nb_reduce_max(bytes, -1, NULL, false);
    return x && nb_py_realize(1, &x) && nb_read(x, NB_U8, &most) == NB_OK &&
           most <= 1;
}

/* What cannot be told is not taken for settled: the copy says what is wrong. */
bool nb_py_card_bools_are_settled(int device, int rank, const int64_t *size,
                                  void *data)
{
    if (nb_scope_open() != NB_OK) return nb_error_clear(), false;
    bool yes = most_is_1(
        nb_borrow_on(device, NB_U8, rank, size, NULL, data, NULL, NULL));
    LEAVE;
    if (!yes) nb_error_clear(), PyErr_Clear();
    return yes;
}

nb_tensor *nb_py_card_bools(nb_tensor *bytes)
{
    nb_tensor *x = bytes ? nb_not_equal(bytes, nb_count(0)) : NULL;
    return x && nb_py_realize(1, &x) ? x : NULL;
}

/* NumPy. */

static PyObject *shape_of(nb_tensor *x)
{
    PyObject *shape = PyTuple_New(nb_rank(x));
    for (int d = 0; shape && d < nb_rank(x); d++)
        PyTuple_SetItem(shape, d, PyLong_FromLongLong(nb_size(x, d)));
    return shape;
}

/* An array of NumPy, not filled. */
static PyObject *array_new(nb_tensor *x, const char *dtype)
{
    PyObject *numpy = PyImport_ImportModule("numpy");
    PyObject *shape = numpy ? shape_of(x) : NULL;
    PyObject *a =
        shape ? PyObject_CallMethod(numpy, "empty", "Os", shape, dtype) : NULL;
    Py_XDECREF(numpy);
    Py_XDECREF(shape);
    return a;
}

static bool fill(PyObject *array, nb_tensor *x)
{
    Py_buffer view;
    nb_status s;
    if (PyObject_GetBuffer(array, &view, PyBUF_WRITABLE) < 0) return false;
    Py_BEGIN_ALLOW_THREADS s = nb_read(x, NB_NOTYPE, view.buf);
    Py_END_ALLOW_THREADS PyBuffer_Release(&view);
    if (s != NB_OK) nb_py_raise();
    return s == NB_OK;
}

static PyObject *bfloat16(void)
{
    PyObject *module = PyImport_ImportModule("ml_dtypes");
    PyObject *type = module ? PyObject_GetAttrString(module, "bfloat16") : NULL;
    Py_XDECREF(module);
    if (!type && PyErr_ExceptionMatches(PyExc_ImportError))
        PyErr_SetString(PyExc_TypeError,
                        "NumPy has no bfloat16 without the package ml_dtypes: "
                        "cast first");
    return type;
}

/* NumPy has bfloat16 as a view of 16-bit words alone. */
static PyObject *numpy_of(PyObject *o)
{
    PyObject *whole = nb_py_shown(o);
    if (!whole) return NULL;
    nb_tensor *x = nb_py_get(whole);
    bool brief = nb_dtype_of(x) == NB_BF16;
    PyObject *type = brief ? bfloat16() : NULL, *a = NULL;
    if ((brief && !type) || !nb_py_realize(1, &x)) goto done;
    a = array_new(x, brief ? "uint16" : nb_dtype_name(nb_dtype_of(x)));
    if (a && !fill(a, x)) Py_CLEAR(a);
    if (a && brief) {
        PyObject *words = a;
        a = PyObject_CallMethod(words, "view", "O", type);
        Py_DECREF(words);
    }
done:
    Py_XDECREF(type);
    Py_DECREF(whole);
    return a;
}

static PyObject *numpy(PyObject *o, PyObject *unused)
{
    (void)unused;
    return numpy_of(o);
}

/* An array over the same memory, which cannot be written to. */
static PyObject *shared_array(PyObject *o)
{
    if (nb_device_of(nb_py_get(o)))
        return PyErr_Format(PyExc_ValueError,
                            "__array__: a copy is needed from the card, but "
                            "copy=False");
    PyObject *module = PyImport_ImportModule("numpy"), *a = NULL;
    PyObject *view = module ? PyMemoryView_FromObject(o) : NULL;
    if (view) a = PyObject_CallMethod(module, "asarray", "O", view);
    Py_XDECREF(module);
    Py_XDECREF(view);
    if (a || !PyErr_ExceptionMatches(PyExc_BufferError)) return a;
    PyErr_SetString(PyExc_ValueError,
                    "__array__: a copy is needed, but copy=False");
    return NULL;
}

static PyObject *in_dtype(PyObject *a, PyObject *dtype, bool share)
{
    PyObject *none = PyTuple_New(0), *y = NULL;
    PyObject *how =
        Py_BuildValue("{s:O,s:O}", "dtype", dtype, "copy", Py_False);
    PyObject *cast = PyObject_GetAttrString(a, "astype");
    if (none && how && cast) y = PyObject_Call(cast, none, how);
    Py_XDECREF(none);
    Py_XDECREF(how);
    Py_XDECREF(cast);
    if (y && y != a && share) {
        Py_CLEAR(y);
        PyErr_Format(PyExc_ValueError,
                     "__array__: a copy is needed for dtype %R, but "
                     "copy=False",
                     dtype);
    }
    Py_DECREF(a);
    return y;
}

static PyObject *array(PyObject *o, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"dtype", "copy", NULL};
    PyObject *dtype = Py_None, *copy = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|OO:__array__", names,
                                     &dtype, &copy))
        return NULL;
    int yes = copy == Py_None ? 1 : PyObject_IsTrue(copy);
    if (yes < 0) return NULL;
    PyObject *a = yes ? numpy_of(o) : shared_array(o);
    return a && dtype != Py_None ? in_dtype(a, dtype, !yes) : a;
}

/* The buffer protocol. */

typedef struct window {
    nb_tensor *x; /* kept */
    Py_ssize_t size[NB_PY_RANK], stride[NB_PY_RANK];
} window;

static const char *format_of(nb_dtype d)
{
    bool wide = sizeof(long) == 8; /* what NumPy calls int64 */
    switch (d) {
    case NB_BOOL: return "?";
    case NB_I8: return "b";
    case NB_I16: return "h";
    case NB_I32: return "i";
    case NB_I64: return wide ? "l" : "q";
    case NB_U8: return "B";
    case NB_U16: return "H";
    case NB_U32: return "I";
    case NB_U64: return wide ? "L" : "Q";
    case NB_F16: return "e";
    case NB_F32: return "f";
    case NB_F64: return "d";
    default: return NULL;
    }
}

static bool has(int flags, int wanted)
{
    return (flags & wanted) == wanted;
}

/* Whether x can be shown to one who asks like this; a row-major copy always
 * can, but to one who wants columns. */
static bool suits(const window *w, int flags, bool *rows)
{
    int64_t size[NB_PY_RANK], stride[NB_PY_RANK], turned[NB_PY_RANK];
    int rank = nb_rank(w->x);
    nb_data(w->x, stride);
    nb_sizes(w->x, size);
    bool packed = nb_py_is_packed(rank, size, stride);
    for (int d = 0; d < rank / 2; d++) {
        int64_t t = size[d];
        size[d] = size[rank - 1 - d];
        size[rank - 1 - d] = t;
    }
    for (int d = 0; d < rank; d++)
        turned[d] = stride[rank - 1 - d];
    bool columns = nb_py_is_packed(rank, size, turned);
    *rows = !has(flags, PyBUF_F_CONTIGUOUS);
    if (!*rows) return columns;
    if (!has(flags, PyBUF_STRIDES) || has(flags, PyBUF_C_CONTIGUOUS))
        return packed;
    return !has(flags, PyBUF_ANY_CONTIGUOUS) || packed || columns;
}

static int refuse(const char *why)
{
    PyErr_SetString(PyExc_BufferError, why);
    return -1;
}

/* Takes a reference to what is shown, which is on the CPU. */
static int choose(window *w, nb_tensor *x, int flags)
{
    bool rows = true;
    if (nb_scope_open() != NB_OK) return nb_py_raise(), -1;
    w->x = nb_to_device(x, 0);
    if (w->x && !nb_py_realize(1, &w->x)) w->x = NULL;
    if (w->x && !suits(w, flags, &rows))
        w->x = rows ? nb_device_copy(w->x) : NULL;
    nb_keep(w->x);
    if (!rows && !w->x)
        refuse("the tensor is not in column-major order");
    else if (!w->x)
        nb_py_raise();
    LEAVE;
    return w->x ? 0 : -1;
}

static void show(Py_buffer *view, window *w, PyObject *o, int flags)
{
    nb_dtype d = nb_dtype_of(w->x);
    int64_t stride[NB_PY_RANK];
    Py_ssize_t item = (Py_ssize_t)nb_dtype_size(d);
    void *data = (void *)nb_data(w->x, stride);
    for (int k = 0; k < nb_rank(w->x); k++) {
        w->size[k] = (Py_ssize_t)nb_size(w->x, k);
        w->stride[k] = (Py_ssize_t)stride[k] * item;
    }
    *view = (Py_buffer){.buf = data,
                        .len = (Py_ssize_t)nb_elements(w->x) * item,
                        .readonly = 1,
                        .itemsize = item,
                        .ndim = nb_rank(w->x),
                        .internal = w};
    if (has(flags, PyBUF_FORMAT)) view->format = (char *)format_of(d);
    if (has(flags, PyBUF_ND))
        view->shape = w->size;
    else
        view->ndim = 1;
    if (has(flags, PyBUF_STRIDES)) view->strides = w->stride;
    Py_INCREF(o);
    view->obj = o;
}

static int get_buffer(PyObject *o, Py_buffer *view, int flags)
{
    nb_tensor *x = nb_py_get(o);
    view->obj = NULL;
    if (has(flags, PyBUF_WRITABLE)) return refuse("tensors are read-only");
    if (!format_of(nb_dtype_of(x)))
        return refuse("no buffer holds bfloat16: cast first");
    if (nb_hidden(x)) return refuse("a mapped tensor has no values of its own");
    if (!nb_py_realize(1, &x)) return -1;
    window *w = PyMem_Malloc(sizeof *w);
    if (!w) return PyErr_NoMemory(), -1;
    if (choose(w, x, flags) < 0) {
        PyMem_Free(w);
        return -1;
    }
    show(view, w, o, flags);
    return 0;
}

static void release_buffer(PyObject *o, Py_buffer *view)
{
    window *w = view->internal;
    (void)o;
    nb_drop(w->x);
    PyMem_Free(w);
}

/* Files. */

/* Texts of a list of str, lent by it; NULL with an exception. */
static const char **texts_of(PyObject *list)
{
    Py_ssize_t n = PySequence_Size(list);
    const char **text =
        n < 0 ? NULL : PyMem_Malloc((size_t)(n + 1) * sizeof *text);
    if (!text) return n < 0 ? NULL : (const char **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_ssize_t length;
        PyObject *item = PyList_GetItem(list, i);
        text[i] = item ? PyUnicode_AsUTF8AndSize(item, &length) : NULL;
        if (text[i] && strlen(text[i]) == (size_t)length) continue;
        if (text[i])
            PyErr_Format(PyExc_ValueError, "save: a name has a NUL: %R", item);
        PyMem_Free(text);
        return NULL;
    }
    return text;
}

static nb_tensor **tensors_of(PyObject *list)
{
    Py_ssize_t n = PySequence_Size(list);
    nb_tensor **x = n < 0 ? NULL : PyMem_Malloc((size_t)(n + 1) * sizeof *x);
    if (!x) return n < 0 ? NULL : (nb_tensor **)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyList_GetItem(list, i);
        if (item && nb_py_is_tensor(item)) {
            x[i] = nb_py_get(item);
            continue;
        }
        PyErr_SetString(PyExc_TypeError, "save: a Tensor was expected");
        PyMem_Free(x);
        return NULL;
    }
    return x;
}

/* write_file(path, names, tensors, keys, values), all lists but the path. */
static PyObject *save(PyObject *self, PyObject *args)
{
    PyObject *path, *list[4], *y = NULL;
    nb_status s = NB_OK;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O!O!O!O!:write_file", PyUnicode_FSConverter,
                          &path, &PyList_Type, &list[0], &PyList_Type, &list[1],
                          &PyList_Type, &list[2], &PyList_Type, &list[3]))
        return NULL;
    int n = (int)PyList_Size(list[1]), notes = (int)PyList_Size(list[3]);
    const char **names = texts_of(list[0]), **keys = NULL, **values = NULL;
    nb_tensor **x = names ? tensors_of(list[1]) : NULL;
    if (x) keys = texts_of(list[2]);
    if (keys) values = texts_of(list[3]);
    bool even = PyList_Size(list[0]) == n && PyList_Size(list[2]) == notes;
    if (values && !even) {
        PyErr_SetString(PyExc_ValueError, "save: lists of two lengths");
    } else if (values) {
        Py_BEGIN_ALLOW_THREADS s =
            nb_save(PyBytes_AsString(path), n, names, x, notes, keys, values);
        Py_END_ALLOW_THREADS y = s == NB_OK ? Py_None : nb_py_raise();
        Py_XINCREF(y);
    }
    PyMem_Free(names);
    PyMem_Free(x);
    PyMem_Free(keys);
    PyMem_Free(values);
    Py_DECREF(path);
    return y;
}

static PyObject *text_new(const char *text)
{
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text),
                                "surrogateescape");
}

static bool put(PyObject *dict, const char *key, PyObject *value)
{
    PyObject *k = value ? text_new(key) : NULL;
    bool ok = k && PyDict_SetItem(dict, k, value) == 0;
    Py_XDECREF(k);
    Py_XDECREF(value);
    return ok;
}

/* Dicts of its tensors and notes. */
static PyObject *contents(nb_file *f)
{
    PyObject *tensors = PyDict_New(), *notes = PyDict_New();
    bool ok = tensors && notes && nb_scope_open() == NB_OK;
    if (ok) {
        for (int i = 0; ok && i < nb_file_tensors(f); i++)
            ok = put(tensors, nb_file_name(f, i),
                     nb_py_wrap(nb_file_tensor(f, i)));
        LEAVE;
    }
    for (int i = 0; ok && i < nb_file_notes(f); i++)
        ok = put(notes, nb_file_note_key(f, i), text_new(nb_file_note(f, i)));
    if (!ok) nb_py_raise();
    PyObject *y = ok ? PyTuple_Pack(2, tensors, notes) : NULL;
    Py_XDECREF(tensors);
    Py_XDECREF(notes);
    return y;
}

static PyObject *load(PyObject *self, PyObject *o)
{
    PyObject *path;
    nb_file *f;
    nb_status s;
    (void)self;
    if (!PyUnicode_FSConverter(o, &path)) return NULL;
    Py_BEGIN_ALLOW_THREADS s = nb_load(PyBytes_AsString(path), &f);
    Py_END_ALLOW_THREADS Py_DECREF(path);
    if (s != NB_OK) return nb_py_raise();
    PyObject *y = contents(f);
    nb_file_free(f);
    return y;
}

/* Keys. */

static PyObject *next_key(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    ENTER;
    PyObject *key = nb_py_wrap(nb_next_key());
    LEAVE;
    return key;
}

static PyObject *manual_seed(PyObject *self, PyObject *o)
{
    PyObject *whole = PyNumber_Index(o);
    (void)self;
    long long seed = whole ? PyLong_AsLongLong(whole) : -1;
    Py_XDECREF(whole);
    if (seed == -1 && PyErr_Occurred()) return NULL;
    nb_manual_seed(seed);
    Py_RETURN_NONE;
}

/* What Tensor and the module get. */

#define FAST(f)  (PyCFunction)(void (*)(void)) f, METH_FASTCALL
#define NAMED(f) (PyCFunction)(void (*)(void)) f, METH_VARARGS | METH_KEYWORDS

PyType_Slot nb_py_interop_slots[] = {{Py_bf_getbuffer, get_buffer},
                                     {Py_bf_releasebuffer, release_buffer},
                                     {0, NULL}};

PyMethodDef nb_py_interop_methods[] = {
    {"numpy", numpy, METH_NOARGS,
     "numpy($self)\n--\n\nThe values as a fresh array of NumPy."},
    {"to_numpy", numpy, METH_NOARGS,
     "to_numpy($self)\n--\n\nThe values as a fresh array of NumPy."},
    {"__array__", NAMED(array),
     "__array__($self, dtype=None, copy=None)\n--\n\nThe values as an array "
     "of NumPy."},
    {"__dlpack__", NAMED(nb_py_dlpack),
     "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, "
     "copy=None)\n--\n\nA capsule of DLPack over the data."},
    {"__dlpack_device__", nb_py_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self)\n--\n\nThe device, as DLPack numbers it."},
    {0}};

static PyMethodDef functions[] = {
    {"import_dlpack", FAST(nb_py_from_dlpack), NULL},
    {"import_card_array", nb_py_from_card_array, METH_VARARGS, NULL},
    {"write_file", save, METH_VARARGS, NULL},
    {"read_file", load, METH_O, NULL},
    {"next_key", next_key, METH_NOARGS,
     "next_key()\n--\n\nThe next key of the process."},
    {"manual_seed", manual_seed, METH_O,
     "manual_seed(seed)\n--\n\nRestarts the keys of the process."},
    {0}};

int nb_py_interop_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
