/* convert.c - Python objects as tensors, dtypes and sizes, and back. */
#include "py.h"

#include <string.h>

static PyObject *dtypes[NB_NDTYPES]; /* members of nabla.DType */

/* Element types of the buffer protocol, native sizes. */
static nb_dtype format_dtype(const char *f, Py_ssize_t item)
{
    bool is_signed;
    if (!f) return NB_U8;
    if (*f == '@' || *f == '=' || *f == '<') f++;
    if (!*f || f[1]) return NB_NOTYPE;
    switch (*f) {
    case '?': return NB_BOOL;
    case 'e': return NB_F16;
    case 'f': return NB_F32;
    case 'd': return NB_F64;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n': is_signed = true; break;
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N': is_signed = false; break;
    default: return NB_NOTYPE;
    }
    switch (item) {
    case 1: return is_signed ? NB_I8 : NB_U8;
    case 2: return is_signed ? NB_I16 : NB_U16;
    case 4: return is_signed ? NB_I32 : NB_U32;
    case 8: return is_signed ? NB_I64 : NB_U64;
    default: return NB_NOTYPE;
    }
}

/* Whatever exports a buffer, copied. */
static nb_tensor *from_buffer(PyObject *o)
{
    Py_buffer view;
    int64_t size[NB_PY_RANK];
    if (PyObject_GetBuffer(o, &view, PyBUF_FULL_RO) < 0) return NULL;
    nb_dtype d = format_dtype(view.format, view.itemsize);
    nb_tensor *x = NULL;
    if (!d) {
        PyErr_Format(PyExc_TypeError,
                     "no dtype of nabla holds elements of format '%s'",
                     view.format);
    } else if (view.ndim > NB_PY_RANK) {
        PyErr_Format(PyExc_ValueError, "rank %d: at most %d", view.ndim,
                     NB_PY_RANK);
    } else {
        char *copy = PyMem_Malloc(view.len ? (size_t)view.len : 1);
        for (int i = 0; i < view.ndim; i++)
            size[i] = view.shape[i];
        if (!copy)
            PyErr_NoMemory();
        else if (PyBuffer_ToContiguous(copy, &view, view.len, 'C') == 0)
            x = nb_constant(d, view.ndim, size, copy);
        PyMem_Free(copy);
    }
    PyBuffer_Release(&view);
    return x;
}

/* NumPy arrays of types that export no buffer (bfloat16) and anything else
 * with __dlpack__ go through Python. */
static nb_tensor *from_python(PyObject *o)
{
    PyObject *module = PyImport_ImportModule("nabla._interop");
    PyObject *y =
        module ? PyObject_CallMethod(module, "as_tensor", "O", o) : NULL;
    Py_XDECREF(module);
    if (!y) return NULL;
    nb_tensor *x = nb_py_is_tensor(y) ? nb_give(nb_keep(nb_py_get(y))) : NULL;
    Py_DECREF(y);
    return x;
}

/* Ints beyond int64: a float has room for them, uint64 for some. */
static nb_tensor *from_wide(PyObject *o, int sign, PyObject *other)
{
    nb_dtype d = other && nb_py_is_tensor(other) ? nb_dtype_of(nb_py_get(other))
                                                 : NB_U64;
    if (nb_dtype_is_float(d)) {
        double f = PyLong_AsDouble(o);
        return PyErr_Occurred() ? NULL : nb_num(f);
    }
    if (d == NB_U64 && sign > 0) {
        unsigned long long u = PyLong_AsUnsignedLongLong(o);
        return PyErr_Occurred() ? NULL : nb_constant(NB_U64, 0, NULL, &u);
    }
    PyErr_Format(PyExc_OverflowError, "%S does not fit %s", o,
                 nb_dtype_name(d));
    return NULL;
}

static nb_tensor *from_int(PyObject *o, PyObject *other)
{
    int over = 0;
    long long v = PyLong_AsLongLongAndOverflow(o, &over);
    return over ? from_wide(o, over, other) : nb_count(v);
}

static nb_tensor *no_operand(PyObject *o)
{
    PyObject *name = PyType_GetName(Py_TYPE(o));
    bool list = PyList_Check(o) || PyTuple_Check(o);
    if (name)
        PyErr_Format(PyExc_TypeError,
                     "expected a tensor, an array or a number, not %U%s", name,
                     list ? " (nabla.constant takes nested lists)" : "");
    Py_XDECREF(name);
    return NULL;
}

/* On the CPU unless it is a Tensor, or an array on a card. */
static nb_tensor *converted(PyObject *o, PyObject *other)
{
    if (nb_py_is_tensor(o)) return nb_py_get(o);
    if (PyFloat_Check(o)) return nb_num(PyFloat_AsDouble(o));
    if (PyBool_Check(o)) return nb_truth(o == Py_True);
    if (PyLong_Check(o)) return from_int(o, other);
    bool text = PyBytes_Check(o) || PyByteArray_Check(o);
    bool known = PyObject_HasAttrString(o, "__dlpack__") ||
                 PyObject_HasAttrString(o, "__array__") ||
                 PyObject_HasAttrString(o, "__cuda_array_interface__");
    if (PyObject_CheckBuffer(o) && !text) {
        nb_tensor *x = from_buffer(o);
        if (x || !PyErr_Occurred() || !known) return x;
        PyErr_Clear(); /* of a type without a format */
    }
    return known ? from_python(o) : no_operand(o);
}

/* At once: programs that are being recorded have it as it is there.  A single
 * element waits for whoever needs it, as kernels may be given it. */
static nb_tensor *moved(nb_tensor *x, int device)
{
    nb_tensor *y = nb_to_device(x, device);
    return !y || y == x || !nb_rank(y) || nb_py_realize(1, &y) ? y : NULL;
}

/* Arrays of the CPU go to the tensor that they stand beside. */
nb_tensor *nb_py_operand_beside(PyObject *o, PyObject *other)
{
    nb_tensor *x = converted(o, other);
    if (!x || nb_py_is_tensor(o) || nb_rank(x) == 0 || nb_device_of(x))
        return x;
    bool beside = other && nb_py_is_tensor(other);
    int device = beside ? nb_device_of(nb_py_get(other)) : nb_default_device();
    return moved(x, device);
}

nb_tensor *nb_py_operand(PyObject *o)
{
    return nb_py_operand_beside(o, NULL);
}

/* Nested lists, and ints as lists of no depth: first the shape and the widest kind, then the numbers. */

typedef struct nest {
    int rank, kind; /* 0 bool, 1 int, 2 float */
    int64_t size[NB_PY_RANK];
    bool known[NB_PY_RANK + 1], leaf[NB_PY_RANK + 1];
    int64_t n;
    double *f;
    int64_t *i;
    int64_t least; /* of the ints */
    uint64_t most;
} nest;

static bool ragged(void)
{
    PyErr_SetString(PyExc_ValueError,
                    "nested lists must have one length at each depth");
    return false;
}

static bool no_number(PyObject *o)
{
    PyObject *name = PyType_GetName(Py_TYPE(o));
    if (name)
        PyErr_Format(PyExc_TypeError, "a number was expected, not %U", name);
    Py_XDECREF(name);
    return false;
}

/* Numbers of NumPy say of what kind they are. */
static bool array_kind(PyObject *o, int *kind)
{
    PyObject *dtype = PyObject_GetAttrString(o, "dtype");
    PyObject *ndim = dtype ? PyObject_GetAttrString(o, "ndim") : NULL;
    bool number = ndim && PyLong_AsLong(ndim) == 0;
    nb_dtype d = NB_NOTYPE;
    bool ok = number && nb_py_dtype(dtype, &d);
    Py_XDECREF(dtype);
    Py_XDECREF(ndim);
    if (ok) *kind = d == NB_BOOL ? 0 : nb_dtype_is_integer(d) ? 1 : 2;
    PyErr_Clear();
    return ok;
}

static bool number_kind(PyObject *o, int *kind)
{
    if (PyBool_Check(o))
        *kind = 0;
    else if (PyLong_Check(o))
        *kind = 1;
    else if (PyFloat_Check(o))
        *kind = 2;
    else if (PyObject_HasAttrString(o, "dtype"))
        return array_kind(o, kind) || no_number(o);
    else if (PyIndex_Check(o))
        *kind = 1;
    else if (PyObject_HasAttrString(o, "__float__"))
        *kind = 2;
    else
        return no_number(o);
    return true;
}

static bool measure_number(PyObject *o, int depth, nest *t)
{
    int kind = 0;
    if (nb_py_is_tensor(o)) {
        PyErr_SetString(PyExc_TypeError, "a list of tensors: use nabla.stack");
        return false;
    }
    if (!number_kind(o, &kind)) return false;
    if (kind > t->kind) t->kind = kind;
    if ((t->known[depth] && !t->leaf[depth]) ||
        (t->rank >= 0 && t->rank != depth))
        return ragged();
    t->leaf[depth] = t->known[depth] = true;
    t->rank = depth;
    t->n++;
    return true;
}

static bool measure(PyObject *o, int depth, nest *t)
{
    if (!PyList_Check(o) && !PyTuple_Check(o))
        return measure_number(o, depth, t);
    Py_ssize_t n = PySequence_Size(o);
    if (depth == NB_PY_RANK) {
        PyErr_SetString(PyExc_ValueError, "more than 16 nested lists");
        return false;
    }
    if (t->known[depth] && (t->leaf[depth] || t->size[depth] != n))
        return ragged();
    t->known[depth] = true;
    t->size[depth] = n;
    if (n == 0) {
        if (t->rank >= 0 && t->rank != depth + 1) return ragged();
        t->rank = depth + 1;
        t->leaf[depth + 1] = t->known[depth + 1] = true;
    }
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *item = PySequence_GetItem(o, k);
        bool ok = item && measure(item, depth + 1, t);
        Py_XDECREF(item);
        if (!ok) return false;
    }
    return true;
}

static bool fill_int(PyObject *o, nest *t)
{
    PyObject *whole = PyIndex_Check(o) ? PyNumber_Index(o)
                                       : PyLong_FromLong(PyObject_IsTrue(o));
    int over = 0;
    long long v = whole ? PyLong_AsLongLongAndOverflow(whole, &over) : -1;
    unsigned long long u = (unsigned long long)v;
    if (over > 0) u = PyLong_AsUnsignedLongLong(whole);
    if (over < 0)
        PyErr_Format(PyExc_OverflowError, "%S does not fit int64", whole);
    Py_XDECREF(whole);
    if (PyErr_Occurred()) return false;
    if (v < t->least && !over) t->least = v;
    if ((over || v > 0) && u > t->most) t->most = u;
    t->i[t->n++] = (int64_t)u;
    return true;
}

static bool fill(PyObject *o, int depth, nest *t)
{
    if (depth == t->rank && t->kind < 2) return fill_int(o, t);
    if (depth == t->rank) {
        double v = PyFloat_AsDouble(o);
        if (v == -1 && PyErr_Occurred()) return false;
        t->f[t->n++] = v;
        return true;
    }
    for (Py_ssize_t k = 0; k < t->size[depth]; k++) {
        PyObject *item = PySequence_GetItem(o, k);
        bool ok = item && fill(item, depth + 1, t);
        Py_XDECREF(item);
        if (!ok) return false;
    }
    return true;
}

/* Whether ints from least to most fit d; if not, raises. */
static bool fits(const nest *t, nb_dtype d)
{
    int bits = 8 * (int)nb_dtype_size(d) - !nb_dtype_is_unsigned(d);
    bool low =
        !nb_dtype_is_integer(d) ||
        t->least >= (nb_dtype_is_unsigned(d) ? 0 : INT64_MIN >> (63 - bits));
    bool high = !nb_dtype_is_integer(d) || bits == 64 || t->most >> bits == 0;
    if (!low)
        PyErr_Format(PyExc_OverflowError, "%lld does not fit %s",
                     (long long)t->least, nb_dtype_name(d));
    else if (!high)
        PyErr_Format(PyExc_OverflowError, "%llu does not fit %s",
                     (unsigned long long)t->most, nb_dtype_name(d));
    return low && high;
}

/* The numbers of a list, in the widest type of their kind. */
static nb_tensor *from_nest(const nest *t, nb_dtype dtype)
{
    nb_dtype wide = t->kind == 2          ? NB_F64
                    : t->most > INT64_MAX ? NB_U64
                                          : NB_I64;
    nb_dtype own = t->kind == 2   ? nb_default_float()
                   : t->kind == 1 ? wide
                                  : NB_BOOL;
    if (t->kind == 1 && !fits(t, wide)) return NULL;
    if (t->kind == 1 && dtype && !fits(t, dtype)) return NULL;
    return nb_cast(nb_constant(wide, t->rank, t->size, t->i),
                   dtype ? dtype : own);
}

static nb_tensor *from_list(PyObject *o, nb_dtype dtype)
{
    nest t = {.rank = -1};
    nb_tensor *x = NULL;
    if (!measure(o, 0, &t)) return NULL;
    if (t.n == 0) t.kind = 2;
    void *data = PyMem_Malloc((size_t)(t.n + 1) * 8);
    if (!data) return (nb_tensor *)PyErr_NoMemory();
    t.f = data;
    t.i = data;
    t.n = 0;
    if (fill(o, 0, &t)) x = from_nest(&t, dtype);
    PyMem_Free(data);
    return x;
}

/* A number by itself: its dtype is the default of its kind. */
static nb_tensor *from_number(PyObject *o, nb_dtype kind, nb_dtype dtype)
{
    if (!dtype) dtype = kind == NB_F64 ? nb_default_float() : kind;
    if (kind == NB_F64) return nb_scalar_float(PyFloat_AsDouble(o), dtype);
    if (kind == NB_BOOL) return nb_scalar_int(o == Py_True, dtype);
    return nb_scalar_int(PyLong_AsLongLong(o), dtype);
}

nb_tensor *nb_py_constant(PyObject *o, nb_dtype dtype)
{
    if (PyList_Check(o) || PyTuple_Check(o)) return from_list(o, dtype);
    nb_tensor *x = converted(o, NULL);
    if (x && PyLong_Check(o) && !nb_is_weak(x)) return from_list(o, dtype);
    if (!x || !nb_is_weak(x)) return nb_cast(x, dtype);
    return from_number(o, nb_dtype_of(x), dtype);
}

/* dtypes: members of DType, names, NumPy dtypes and scalar types. */

PyObject *nb_py_dtype_object(nb_dtype d)
{
    PyObject *o = dtypes[d] ? dtypes[d] : Py_None;
    Py_INCREF(o);
    return o;
}

static bool unknown_dtype(PyObject *o)
{
    PyErr_Format(PyExc_TypeError, "not a dtype: %R", o);
    return false;
}

bool nb_py_dtype(PyObject *o, nb_dtype *dtype)
{
    *dtype = NB_NOTYPE;
    if (o == Py_None) return true;
    for (int d = 1; d < NB_NDTYPES; d++)
        if (dtypes[d] == o) return *dtype = (nb_dtype)d, true;
    if (o == (PyObject *)&PyFloat_Type)
        return *dtype = nb_default_float(), true;
    if (o == (PyObject *)&PyLong_Type) return *dtype = NB_I64, true;
    if (o == (PyObject *)&PyBool_Type) return *dtype = NB_BOOL, true;
    PyObject *name = NULL;
    if (PyUnicode_Check(o)) {
        name = o;
        Py_INCREF(name);
    } else {
        name = PyObject_GetAttrString(o, "name");
        if (!name) {
            PyErr_Clear();
            name = PyObject_GetAttrString(o, "__name__");
        }
        PyErr_Clear();
    }
    const char *text = name && PyUnicode_Check(name)
                           ? PyUnicode_AsUTF8AndSize(name, NULL)
                           : NULL;
    if (text) *dtype = nb_dtype_find(strcmp(text, "bool_") ? text : "bool");
    Py_XDECREF(name);
    return *dtype || unknown_dtype(o);
}

PyObject *nb_py_set_dtypes(PyObject *self, PyObject *list)
{
    (void)self;
    for (Py_ssize_t k = 0; k < PySequence_Size(list); k++) {
        PyObject *member = PySequence_GetItem(list, k);
        if (!member) return NULL;
        PyObject *code = PyObject_GetAttrString(member, "value");
        long d = code ? PyLong_AsLong(code) : -1;
        Py_XDECREF(code);
        if (d <= 0 || d >= NB_NDTYPES) {
            Py_DECREF(member);
            return PyErr_Format(PyExc_ValueError, "no such dtype code");
        }
        PyObject *old = dtypes[d];
        dtypes[d] = member;
        Py_XDECREF(old);
    }
    Py_RETURN_NONE;
}

/* Names of devices are a matter of Python, which raises if there is none. */
bool nb_py_device(PyObject *o, int *device)
{
    *device = -1;
    if (o == Py_None) return true;
    PyObject *module = PyImport_ImportModule("nabla._devices");
    PyObject *d = module ? PyObject_CallMethod(module, "number", "O", o) : NULL;
    if (d) *device = (int)PyLong_AsLong(d);
    Py_XDECREF(module);
    Py_XDECREF(d);
    return d && !PyErr_Occurred();
}

nb_tensor *nb_py_placed(nb_tensor *x, PyObject *o, int device)
{
    if (nb_py_is_tensor(o))
        return device < 0 || !x ? x : nb_to_device(x, device);
    return x ? moved(x, device < 0 ? nb_default_device() : device) : NULL;
}

nb_tensor *nb_py_made(nb_tensor *x, bool now)
{
    bool waits = x && nb_device_of(x) && !nb_rank(x) && !now;
    return waits || (x && nb_py_realize(1, &x)) ? x : NULL;
}

bool nb_py_ints(PyObject *o, int64_t *to, int room, int *n)
{
    *n = 0;
    if (PyIndex_Check(o) && !PySequence_Check(o)) {
        to[(*n)++] = PyLong_AsLongLong(o);
        return !PyErr_Occurred();
    }
    PyObject *list = PySequence_Tuple(o);
    if (!list) return false;
    Py_ssize_t count = PyTuple_Size(list);
    bool ok = count <= room;
    if (!ok)
        PyErr_Format(PyExc_ValueError, "%zd values: at most %d", count, room);
    for (Py_ssize_t k = 0; ok && k < count; k++) {
        PyObject *item = PyNumber_Index(PyTuple_GetItem(list, k));
        to[k] = item ? PyLong_AsLongLong(item) : -1;
        Py_XDECREF(item);
        ok = !PyErr_Occurred();
    }
    *n = (int)count;
    Py_DECREF(list);
    return ok;
}

PyObject *nb_py_element(const void *at, nb_dtype d)
{
    double f;
    if (d == NB_BOOL) return PyBool_FromLong(*(const unsigned char *)at);
    if (nb_dtype_is_float(d)) {
        memcpy(&f, at, sizeof f); /* read as float64 */
        return PyFloat_FromDouble(f);
    }
    if (d == NB_U64) {
        uint64_t u;
        memcpy(&u, at, sizeof u);
        return PyLong_FromUnsignedLongLong(u);
    }
    int64_t i;
    memcpy(&i, at, sizeof i); /* read as int64 */
    return PyLong_FromLongLong(i);
}

bool nb_py_realize(int n, nb_tensor *const *x)
{
    bool todo = false;
    nb_status s = NB_OK;
    for (int i = 0; i < n; i++)
        todo = todo || !nb_is_realized(x[i]);
    if (!todo) return true;
    for (int i = 0; i < n; i++)
        nb_keep(x[i]);
    Py_BEGIN_ALLOW_THREADS s = nb_realize_all(n, x);
    Py_END_ALLOW_THREADS for (int i = 0; i < n; i++) nb_drop(x[i]);
    if (s != NB_OK) nb_py_raise();
    return s == NB_OK;
}

nb_tensor *nb_py_realized(PyObject *o)
{
    nb_tensor *x = nb_keep(nb_py_get(o));
    if (nb_py_realize(1, &x)) return x;
    nb_drop(x);
    return NULL;
}
