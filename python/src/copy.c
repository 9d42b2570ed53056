/* copy.c - copies of a tensor: clone, copy, deepcopy, pickle.
 *
 * Data is immutable, so copies share it; what is copied is the object.  A copy
 * of a leaf is a leaf of its own. */
#include "py.h"

/* The same value as a node of its own, with history. */
static nb_tensor *alias(nb_tensor *x)
{
    nb_tensor *y = NULL;
    int n = 1;
    nb_op_call(nb_op_find("alias"), 1, &x, 0, NULL, &n, &y);
    return y;
}

static PyObject *clone(PyObject *o, PyObject *unused)
{
    (void)unused;
    ENTER;
    nb_py_locate();
    PyObject *y = nb_py_wrap(alias(nb_py_get(o)));
    LEAVE;
    return y;
}

static PyObject *copy(PyObject *o, PyObject *unused)
{
    const nb_py_tensor *from = (nb_py_tensor *)o;
    bool leaf = nb_py_is_leaf(from);
    (void)unused;
    ENTER;
    PyObject *y = nb_py_wrap(leaf ? nb_detach(from->x) : alias(from->x));
    LEAVE;
    if (!y) return NULL;
    nb_py_tensor *to = (nb_py_tensor *)y;
    to->buffer_ops = from->buffer_ops;
    to->cut = leaf;
    nb_set_traced(to->x, nb_is_traced(from->x));
    if (!nb_py_require(to, from->requires_grad)) Py_CLEAR(y);
    return y;
}

static PyObject *deepcopy(PyObject *o, PyObject *memo)
{
    PyObject *grad = ((nb_py_tensor *)o)->grad;
    PyObject *y = copy(o, NULL);
    (void)memo; /* which the module copy keeps itself */
    if (y && grad) {
        nb_py_tensor *to = (nb_py_tensor *)y;
        nb_py_refer(to, &to->grad, copy(grad, NULL));
        if (!to->grad) Py_CLEAR(y);
    }
    return y;
}

static PyObject *bytes_of(nb_tensor *x)
{
    size_t n = (size_t)nb_elements(x) * nb_dtype_size(nb_dtype_of(x));
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n);
    if (bytes && nb_read(x, NB_NOTYPE, PyBytes_AsString(bytes)) != NB_OK) {
        Py_CLEAR(bytes);
        nb_py_raise();
    }
    return bytes;
}

static PyObject *reduce(PyObject *o, PyObject *unused)
{
    nb_tensor *x = nb_py_realized(o);
    int requires_grad = ((nb_py_tensor *)o)->requires_grad;
    int64_t size[NB_PY_RANK];
    (void)unused;
    if (!x) return NULL;
    PyObject *module = PyImport_ImportModule("nabla._nabla");
    PyObject *load = module ? PyObject_GetAttrString(module, "_load") : NULL;
    PyObject *bytes = load ? bytes_of(x) : NULL;
    nb_sizes(x, size);
    PyObject *shape = bytes ? nb_py_tuple(nb_rank(x), size) : NULL;
    PyObject *y = NULL;
    if (shape)
        y = Py_BuildValue("O(sOOi)", load, nb_dtype_name(nb_dtype_of(x)), shape,
                          bytes, requires_grad);
    Py_XDECREF(module);
    Py_XDECREF(load);
    Py_XDECREF(bytes);
    Py_XDECREF(shape);
    nb_drop(x);
    return y;
}

/* How many bytes the data must have; -1 if no data could be right. */
static Py_ssize_t length_of(nb_dtype d, int rank, const int64_t *size)
{
    int64_t n = d ? (int64_t)nb_dtype_size(d) : -1;
    for (int i = 0; i < rank; i++)
        if (size[i] < 0 || __builtin_mul_overflow(n, size[i], &n)) return -1;
    return (Py_ssize_t)n;
}

PyObject *nb_py_load(PyObject *self, PyObject *args)
{
    PyObject *shape, *y;
    const char *name, *data;
    Py_ssize_t length;
    int64_t size[NB_PY_RANK];
    int rank, requires_grad;
    (void)self;
    if (!PyArg_ParseTuple(args, "sOy#p:_load", &name, &shape, &data, &length,
                          &requires_grad) ||
        !nb_py_ints(shape, size, NB_PY_RANK, &rank))
        return NULL;
    nb_dtype d = nb_dtype_find(name);
    if (length_of(d, rank, size) != length)
        return PyErr_Format(PyExc_ValueError,
                            "a pickled tensor of dtype %s has %zd bytes that "
                            "do not fit its shape",
                            name, length);
    ENTER;
    y = nb_py_wrap(nb_constant(d, rank, size, data));
    LEAVE;
    if (y && requires_grad && !nb_py_require((nb_py_tensor *)y, true))
        Py_CLEAR(y);
    return y;
}

PyMethodDef nb_py_copy_methods[] = {
    {"clone", clone, METH_NOARGS, "clone($self)\n--\n\nA copy with history."},
    {"__copy__", copy, METH_NOARGS, NULL},
    {"__deepcopy__", deepcopy, METH_O, NULL},
    {"__reduce__", reduce, METH_NOARGS, NULL},
    {0}};
