/* tensor.c - the type nabla.Tensor: life, metadata, reading. */
#include "interop.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

PyTypeObject *nb_py_Tensor;

/* The collector of cycles is not told of it: most tensors refer to no object. */
static nb_py_tensor *bare(PyTypeObject *type)
{
    nb_py_tensor *self = type == nb_py_Tensor
                             ? PyObject_GC_New(nb_py_tensor, type)
                             : (nb_py_tensor *)PyType_GenericAlloc(type, 0);
    if (!self) return NULL;
    self->x = NULL;
    self->grad = self->constraint = self->weakrefs = NULL;
    self->next = NULL;
    self->requires_grad = self->cut = false;
    self->buffer_ops = 0;
    return self;
}

/* A number that comes out of an op as it went in becomes a tensor here. */
static nb_tensor *strong(nb_tensor *x)
{
    nb_dtype d = nb_dtype_of(x);
    return nb_cast(x, d == NB_F64 ? nb_default_float() : d);
}

PyObject *nb_py_wrap(nb_tensor *x)
{
    if (nb_is_weak(x)) x = strong(x);
    if (!x) return nb_py_raise();
    nb_keep(x); /* first: the collector may run, and let go of its owner */
    nb_py_tensor *self = bare(nb_py_Tensor);
    if (self)
        self->x = x;
    else
        nb_drop(x);
    return (PyObject *)self;
}

void nb_py_replace(nb_py_tensor *self, nb_tensor *x)
{
    bool traced = nb_is_traced(self->x);
    nb_py_set_value(self, nb_keep(x));
    self->cut = false;
    if (traced) nb_set_traced(self->x, true);
}

static int traverse(PyObject *o, visitproc visit, void *arg)
{
    nb_py_tensor *self = (nb_py_tensor *)o;
    Py_VISIT(Py_TYPE(o));
    Py_VISIT(self->grad);
    Py_VISIT(self->constraint);
    return 0;
}

/* The value stays: whoever still has the object may ask for it. */
static int clear(PyObject *o)
{
    nb_py_tensor *self = (nb_py_tensor *)o;
    Py_CLEAR(self->grad);
    Py_CLEAR(self->constraint);
    return 0;
}

void nb_py_refer(nb_py_tensor *self, PyObject **slot, PyObject *to)
{
    PyObject *old = *slot;
    *slot = to;
    if (to && !PyObject_GC_IsTracked((PyObject *)self))
        PyObject_GC_Track((PyObject *)self);
    Py_XDECREF(old);
}

static void dealloc(PyObject *o)
{
    nb_py_tensor *self = (nb_py_tensor *)o;
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    if (self->weakrefs) PyObject_ClearWeakRefs(o);
    nb_py_set_value(self, NULL);
    clear(o);
    if (type == nb_py_Tensor)
        PyObject_GC_Del(o);
    else /* a subclass may have come from elsewhere */
        ((freefunc)PyType_GetSlot(type, Py_tp_free))(o);
    Py_DECREF(type);
}

static PyObject *new (PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"data", "dtype", "device", "requires_grad", NULL};
    PyObject *data, *dtype = Py_None, *device = Py_None;
    int requires_grad = 0, where;
    nb_dtype d;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$OOp:Tensor", names,
                                     &data, &dtype, &device, &requires_grad) ||
        !nb_py_dtype(dtype, &d) || !nb_py_device(device, &where))
        return NULL;
    nb_py_tensor *self = bare(type);
    if (!self) return NULL;
    if (nb_scope_open() != NB_OK) {
        Py_DECREF(self);
        return nb_py_raise();
    }
    nb_tensor *x = nb_py_placed(nb_py_constant(data, d), data, where);
    if (x && requires_grad) x = nb_detach(x);
    self->x = nb_keep(nb_py_made(x, requires_grad || nb_py_is_tensor(data)));
    if (!self->x) nb_py_raise();
    LEAVE;
    if (!self->x || (requires_grad && !nb_py_require(self, true)))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *repr(PyObject *o)
{
    nb_tensor *x = nb_py_realized(o);
    PyObject *text = NULL;
    if (!x) return NULL;
    char *s = nb_tensor_text(x);
    nb_drop(x);
    if (!s) return nb_py_raise();
    text = PyUnicode_FromString(s);
    nb_text_release(s);
    return text;
}

static Py_hash_t hash(PyObject *o)
{
    Py_hash_t h = (Py_hash_t)((size_t)o >> 4);
    return h == -1 ? -2 : h;
}

PyObject *nb_py_tuple(int n, const int64_t *v)
{
    PyObject *t = PyTuple_New(n);
    for (int i = 0; t && i < n; i++)
        PyTuple_SetItem(t, i, PyLong_FromLongLong(v[i]));
    return t;
}

#define GET(name) static PyObject *get_##name(PyObject *o, void *unused)
#define X         ((void)unused, nb_py_get(o))

GET(shape)
{
    int64_t size[NB_PY_RANK];
    nb_sizes(X, size);
    return nb_py_tuple(nb_rank(nb_py_get(o)), size);
}

GET(ndim)
{
    return PyLong_FromLong(nb_rank(X));
}

GET(dtype)
{
    return nb_py_dtype_object(nb_dtype_of(X));
}

GET(real)
{
    return PyBool_FromLong(nb_is_realized(X));
}

GET(is_leaf)
{
    (void)unused;
    return PyBool_FromLong(nb_py_is_leaf((nb_py_tensor *)o));
}

GET(is_traced)
{
    return PyBool_FromLong(nb_is_traced(X));
}

GET(requires_grad)
{
    (void)unused;
    return PyBool_FromLong(((nb_py_tensor *)o)->requires_grad);
}

GET(batch_dims)
{
    return PyLong_FromLong(nb_hidden(X));
}

int nb_py_hidden_sizes(const nb_tensor *x, int64_t *size)
{
    int n = nb_hidden(x);
    nb_hidden_sizes(x, size);
    for (int i = 0; i < n / 2; i++) {
        int64_t swap = size[i];
        size[i] = size[n - 1 - i];
        size[n - 1 - i] = swap;
    }
    return n;
}

GET(batch_shape)
{
    int64_t size[NB_PY_RANK];
    int n = nb_py_hidden_sizes(X, size);
    if (n == 0) Py_RETURN_NONE;
    return nb_py_tuple(n, size);
}

/* Hidden axes, then visible ones. */
GET(global_shape)
{
    int64_t size[2 * NB_PY_RANK];
    int n = nb_py_hidden_sizes(X, size);
    nb_sizes(nb_py_get(o), size + n);
    return nb_py_tuple(n + nb_rank(nb_py_get(o)), size);
}

GET(grad)
{
    PyObject *g = ((nb_py_tensor *)o)->grad;
    (void)unused;
    g = g ? g : Py_None;
    Py_INCREF(g);
    return g;
}

GET(op_kwargs)
{
    (void)unused;
    return nb_py_op_kwargs(o);
}

GET(op)
{
    return PyUnicode_FromString(nb_op_name_of(X));
}

GET(source)
{
    return PyUnicode_FromString(nb_source_of(X));
}

static int set_traced(PyObject *o, PyObject *v, void *unused)
{
    int yes = v ? PyObject_IsTrue(v) : 0;
    if (yes >= 0) nb_set_traced(X, yes);
    return yes < 0 ? -1 : 0;
}

static int set_batch_dims(PyObject *o, PyObject *v, void *unused)
{
    PyObject *module = PyImport_ImportModule("nabla.transforms._hidden");
    (void)unused;
    PyObject *y = module ? PyObject_CallMethod(module, "rebatched", "OO", o,
                                               v ? v : Py_None)
                         : NULL;
    Py_XDECREF(module);
    if (!y) return -1;
    nb_py_replace((nb_py_tensor *)o, nb_py_get(y));
    Py_DECREF(y);
    return 0;
}

static int set_requires_grad(PyObject *o, PyObject *v, void *unused)
{
    int yes = v ? PyObject_IsTrue(v) : 0;
    (void)unused;
    return yes >= 0 && nb_py_require((nb_py_tensor *)o, yes) ? 0 : -1;
}

static int set_grad(PyObject *o, PyObject *v, void *unused)
{
    nb_py_tensor *self = (nb_py_tensor *)o;
    (void)unused;
    if (v == Py_None) v = NULL;
    if (v && !nb_py_is_tensor(v)) {
        PyErr_SetString(PyExc_TypeError, "grad is a Tensor or None");
        return -1;
    }
    Py_XINCREF(v);
    nb_py_refer(self, &self->grad, v);
    return 0;
}

static PyGetSetDef getset[] = {
    {"__cuda_array_interface__", nb_py_card_array, NULL,
     "Memory of a card, for libraries of CUDA.", NULL},
    {"shape", get_shape, NULL, "Visible sizes.", NULL},
    {"ndim", get_ndim, NULL, "Number of visible axes.", NULL},
    {"rank", get_ndim, NULL, "Number of visible axes.", NULL},
    {"dtype", get_dtype, NULL, "Element type.", NULL},
    {"real", get_real, NULL, "Whether the data is there.", NULL},
    {"is_realized", get_real, NULL, "Whether the data is there.", NULL},
    {"is_leaf", get_is_leaf, NULL, "Whether no recorded op made it.", NULL},
    {"is_traced", get_is_traced, set_traced,
     "Whether history is kept past realisation.", NULL},
    {"requires_grad", get_requires_grad, set_requires_grad,
     "Whether backward() sets grad here.", NULL},
    {"grad", get_grad, set_grad, "The gradient, or None.", NULL},
    {"batch_dims", get_batch_dims, set_batch_dims, "Number of hidden axes.",
     NULL},
    {"batch_shape", get_batch_shape, NULL, "Hidden sizes, or None.", NULL},
    {"global_shape", get_global_shape, NULL, "With hidden axes.", NULL},
    {"physical_global_shape", get_global_shape, NULL, "With hidden axes.",
     NULL},
    {"physical_global_shape_ints", get_global_shape, NULL, "With hidden axes.",
     NULL},
    {"global_shape_ints", get_shape, NULL, "Visible sizes.", NULL},
    {"op_kwargs", get_op_kwargs, NULL,
     "Static arguments of the op that made it.", NULL},
    {"_op", get_op, NULL, "Name of the op that made it.", NULL},
    {"_source", get_source, NULL, "Where that op was called.", NULL},
    {0}};

static PyObject *realize(PyObject *o, PyObject *unused)
{
    (void)unused;
    if (nb_py_compiling()) return Py_NewRef(o);
    nb_tensor *x = nb_py_realized(o);
    if (!x) return NULL;
    nb_drop(x);
    Py_INCREF(o);
    return o;
}

/* Numbers as Python has them: ints as int, floats as float. */
static nb_dtype plain(nb_dtype d)
{
    return d == NB_BOOL || d == NB_U64 ? d
           : nb_dtype_is_float(d)      ? NB_F64
                                       : NB_I64;
}

static PyObject *item(PyObject *o, PyObject *unused)
{
    nb_tensor *x = nb_py_get(o);
    nb_dtype as = plain(nb_dtype_of(x));
    uint64_t value = 0;
    (void)unused;
    if (nb_elements(x) != 1)
        return PyErr_Format(PyExc_TypeError,
                            "item: a tensor of %lld elements has not one "
                            "value",
                            (long long)nb_elements(x));
    if (!(x = nb_py_realized(o))) return NULL;
    nb_status s = nb_read(x, as, &value);
    nb_drop(x);
    return s == NB_OK ? nb_py_element(&value, as) : nb_py_raise();
}

static PyObject *nested(const char **at, nb_dtype d, const int64_t *size,
                        int rank)
{
    if (rank == 0) {
        PyObject *v = nb_py_element(*at, d);
        *at += nb_dtype_size(d);
        return v;
    }
    PyObject *list = PyList_New(size[0]);
    for (int64_t i = 0; list && i < size[0]; i++) {
        PyObject *v = nested(at, d, size + 1, rank - 1);
        if (!v) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, i, v);
    }
    return list;
}

static PyObject *tolist(PyObject *o, PyObject *unused)
{
    PyObject *whole = nb_py_shown(o), *list = NULL;
    nb_tensor *x = whole ? nb_py_realized(whole) : NULL;
    int64_t size[NB_PY_RANK];
    (void)unused;
    Py_XDECREF(whole);
    if (!x) return NULL;
    nb_dtype as = plain(nb_dtype_of(x));
    char *data = PyMem_Malloc((size_t)nb_elements(x) * nb_dtype_size(as) + 1);
    const char *at = data;
    nb_sizes(x, size);
    if (!data)
        PyErr_NoMemory();
    else if (nb_read(x, as, data) == NB_OK)
        list = nested(&at, as, size, nb_rank(x));
    else
        nb_py_raise();
    PyMem_Free(data);
    nb_drop(x);
    return list;
}

/* format(x, ".3f"): of the one element; without a spec as it prints. */
static PyObject *format(PyObject *o, PyObject *spec)
{
    PyObject *v = NULL, *text = NULL;
    if (!PyUnicode_Check(spec) || PyUnicode_GetLength(spec) == 0)
        return PyObject_Str(o);
    v = item(o, NULL);
    if (v) text = PyObject_Format(v, spec);
    Py_XDECREF(v);
    return text;
}

static PyObject *as_complex(PyObject *o, PyObject *unused)
{
    PyObject *v = item(o, unused);
    double real = v ? PyFloat_AsDouble(v) : -1;
    Py_XDECREF(v);
    return PyErr_Occurred() ? NULL : PyComplex_FromDoubles(real, 0);
}

/* How op_kwargs answers "use_buffer_ops". */
static PyObject *set_buffer_ops(PyObject *o, PyObject *yes)
{
    ((nb_py_tensor *)o)->buffer_ops = yes == Py_True ? NB_PY_YES : NB_PY_NO;
    Py_INCREF(o);
    return o;
}

static PyObject *num_elements(PyObject *o, PyObject *unused)
{
    (void)unused;
    return PyLong_FromLongLong(nb_elements(nb_py_get(o)));
}

static PyObject *detach(PyObject *o, PyObject *unused)
{
    (void)unused;
    ENTER;
    PyObject *y = nb_py_wrap(nb_detach(nb_py_get(o)));
    LEAVE;
    if (y) ((nb_py_tensor *)y)->cut = true;
    return y;
}

static Py_ssize_t length(PyObject *o)
{
    nb_tensor *x = nb_py_get(o);
    if (nb_rank(x) > 0) return (Py_ssize_t)nb_size(x, 0);
    PyErr_SetString(PyExc_TypeError, "len() of a 0-d tensor");
    return -1;
}

static PyMethodDef methods[] = {
    {"realize", realize, METH_NOARGS, "realize($self)\n--\n\nComputes it."},
    {"item", item, METH_NOARGS,
     "item($self)\n--\n\nThe value of a tensor of one element."},
    {"tolist", tolist, METH_NOARGS,
     "tolist($self)\n--\n\nThe values as nested lists."},
    {"detach", detach, METH_NOARGS,
     "detach($self)\n--\n\nThe same data without history."},
    {"num_elements", num_elements, METH_NOARGS,
     "num_elements($self)\n--\n\nHow many elements it has."},
    {"__format__", format, METH_O, NULL},
    {"__complex__", as_complex, METH_NOARGS, NULL},
    {"_set_buffer_ops", set_buffer_ops, METH_O, NULL},
    {0}};

static PyMemberDef members[] = {{"__weaklistoffset__", T_PYSSIZET,
                                 offsetof(nb_py_tensor, weakrefs), READONLY,
                                 NULL},
                                {0}};

static int add_slots(PyType_Slot *to, int n, const PyType_Slot *from)
{
    for (; from->slot; from++)
        to[n++] = *from;
    return n;
}

static int add_getset(PyGetSetDef *to, int n, const PyGetSetDef *from)
{
    for (; from->name; from++)
        to[n++] = *from;
    return n;
}

static int add_methods(PyMethodDef *to, int n, const PyMethodDef *from)
{
    for (; from->ml_name; from++)
        to[n++] = *from;
    return n;
}

int nb_py_tensor_add(PyObject *module);

int nb_py_tensor_add(PyObject *module)
{
    static PyMethodDef all[64];
    static PyGetSetDef looks[64];
    static PyType_Slot slots[96];
    static const PyType_Slot own[] = {
        {Py_tp_doc, "Tensor(data, *, dtype=None, device=None, "
                    "requires_grad=False)\n--\n\nA lazy, immutable tensor."},
        {Py_tp_new, new},
        {Py_tp_dealloc, dealloc},
        {Py_tp_traverse, traverse},
        {Py_tp_clear, clear},
        {Py_tp_repr, repr},
        {Py_tp_str, repr},
        {Py_tp_hash, hash},
        {Py_tp_getset, looks},
        {Py_tp_methods, all},
        {Py_tp_members, members},
        {Py_mp_length, length},
        {0, NULL}};
    static PyType_Spec spec = {
        .name = "nabla.Tensor",
        .basicsize = sizeof(nb_py_tensor),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    int n = 0, m = 0;
    m = add_methods(all, m, methods);
    m = add_methods(all, m, nb_py_copy_methods);
    m = add_methods(all, m, nb_py_backward_methods);
    m = add_methods(all, m, nb_py_place_methods);
    add_methods(all, m, nb_py_interop_methods);
    add_getset(looks, add_getset(looks, 0, getset), nb_py_place_getset);
    n = add_slots(slots, n, own);
    n = add_slots(slots, n, nb_py_number_slots);
    n = add_slots(slots, n, nb_py_index_slots);
    add_slots(slots, n, nb_py_interop_slots);
    nb_py_Tensor = (PyTypeObject *)PyType_FromSpec(&spec);
    if (!nb_py_Tensor) return -1;
    return PyModule_AddObjectRef(module, "Tensor", (PyObject *)nb_py_Tensor);
}
