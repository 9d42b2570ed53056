/* index.c - x[key] and x[key] = v.
 *
 * A key of Python becomes items of the engine: numbers stay numbers, lists and
 * arrays become tensors whose values are at hand and are checked, tensors stay
 * lazy. */
#include "py.h"

enum { MAX_ITEMS = 48 };

typedef struct keys {
    int n;
    nb_key at[MAX_ITEMS];
} keys;

static bool no_index(PyObject *o)
{
    PyObject *name = PyType_GetName(Py_TYPE(o));
    if (name)
        PyErr_Format(PyExc_TypeError,
                     "an index is an int, a slice, None, ..., an integer or "
                     "bool array, or a tuple of these, not %U",
                     name);
    Py_XDECREF(name);
    return false;
}

/* One end of a slice: what is too large for an int64 is beyond any axis. */
static bool read_end(PyObject *slice, const char *part, int64_t *to)
{
    PyObject *o = PyObject_GetAttrString(slice, part);
    bool ok = o;
    *to = NB_OPEN;
    if (o && o != Py_None) {
        Py_ssize_t v = PyIndex_Check(o) ? PyNumber_AsSsize_t(o, NULL) : -1;
        ok = PyIndex_Check(o) ? v != -1 || !PyErr_Occurred() : no_index(o);
        *to = v == NB_OPEN ? NB_OPEN + 1 : v;
    }
    Py_XDECREF(o);
    return ok;
}

static bool read_slice(PyObject *o, nb_key *k)
{
    k->kind = NB_KEY_SLICE;
    return read_end(o, "start", &k->start) && read_end(o, "stop", &k->stop) &&
           read_end(o, "step", &k->step);
}

static bool read_int(PyObject *o, nb_key *k)
{
    PyObject *whole = PyNumber_Index(o);
    int over = 0;
    k->kind = NB_KEY_INT;
    k->at = whole ? PyLong_AsLongLongAndOverflow(whole, &over) : -1;
    Py_XDECREF(whole);
    if (over) k->at = over > 0 ? INT64_MAX : INT64_MIN; /* out of any range */
    return !PyErr_Occurred();
}

/* An array that is not ours: of no axes and integers it counts as an int. */
static bool read_values(PyObject *o, nb_key *k)
{
    bool list = PyList_Check(o) || PyTuple_Check(o);
    nb_tensor *x =
        PyBool_Check(o) ? nb_py_operand(o) : nb_py_constant(o, NB_NOTYPE);
    if (!x) return false;
    nb_dtype d = nb_dtype_of(x);
    if (list && nb_elements(x) == 0) x = nb_cast(x, d = NB_I64);
    if (d != NB_BOOL && !nb_dtype_is_integer(d)) return no_index(o);
    if (nb_rank(x) == 0 && d != NB_BOOL) {
        k->kind = NB_KEY_INT;
        return nb_read(x, NB_I64, &k->at) == NB_OK;
    }
    k->kind = NB_KEY_TENSOR;
    k->tensor = nb_cast(x, d); /* no number: a tensor */
    k->checked = true;
    return true;
}

static bool read_item(PyObject *o, nb_key *k)
{
    *k = (nb_key){0};
    if (PyLong_Check(o) && !PyBool_Check(o)) return read_int(o, k);
    if (PySlice_Check(o)) return read_slice(o, k);
    if (o == Py_None) return k->kind = NB_KEY_NEWAXIS, true;
    if (o == Py_Ellipsis) return k->kind = NB_KEY_ELLIPSIS, true;
    if (nb_py_is_tensor(o)) {
        *k = NB_PICK(nb_py_get(o));
        return true;
    }
    if (PyFloat_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o))
        return no_index(o);
    bool values = PyBool_Check(o) || PyList_Check(o) || PyTuple_Check(o) ||
                  PyObject_CheckBuffer(o) ||
                  PyObject_HasAttrString(o, "__dlpack__") ||
                  PyObject_HasAttrString(o, "__array__");
    if (values) return read_values(o, k);
    return PyIndex_Check(o) ? read_int(o, k) : no_index(o);
}

static bool read_key(PyObject *o, keys *k)
{
    bool tuple = PyTuple_Check(o);
    Py_ssize_t n = tuple ? PyTuple_Size(o) : 1;
    k->n = (int)n;
    if (n > MAX_ITEMS) {
        PyErr_Format(PyExc_IndexError, "index: %zd items: at most %d", n,
                     MAX_ITEMS);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        if (!read_item(tuple ? PyTuple_GetItem(o, i) : o, &k->at[i]))
            return false;
    return true;
}

static PyObject *get(PyObject *o, PyObject *key)
{
    keys k;
    PyObject *y;
    ENTER;
    nb_py_locate();
    y = read_key(key, &k) ? nb_py_wrap(nb_get(nb_py_get(o), k.n, k.at))
                          : nb_py_raise();
    LEAVE;
    return y;
}

/* What is written to x: also nested lists. */
static nb_tensor *value_of(PyObject *o, PyObject *x)
{
    bool list = PyList_Check(o) || PyTuple_Check(o);
    if (!list) return nb_py_operand_beside(o, x);
    return nb_py_placed(nb_py_constant(o, NB_NOTYPE), o,
                        nb_device_of(nb_py_get(x)));
}

/* x with v at key, lent. */
static nb_tensor *placed(PyObject *o, PyObject *key, PyObject *v,
                         const char *mode)
{
    keys k;
    nb_tensor *value = value_of(v, o);
    if (!value || !read_key(key, &k)) return NULL;
    nb_py_locate();
    return nb_set(nb_py_get(o), k.n, k.at, value, mode);
}

static int set(PyObject *o, PyObject *key, PyObject *v)
{
    nb_py_tensor *self = (nb_py_tensor *)o;
    if (!v) {
        PyErr_SetString(PyExc_TypeError, "elements cannot be deleted");
        return -1;
    }
    if (nb_scope_open() != NB_OK) return nb_py_raise(), -1;
    nb_tensor *y = placed(o, key, v, "set");
    if (y) {
        nb_py_replace(self, y);
        self->buffer_ops = NB_PY_YES;
    } else
        nb_py_raise();
    LEAVE;
    return y ? 0 : -1;
}

/* _place(x, key, value, mode): what x.at[key] does. */
static PyObject *place(PyObject *module, PyObject *args)
{
    PyObject *o, *key, *v, *y;
    const char *mode;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!OOs:_place", nb_py_Tensor, &o, &key, &v,
                          &mode))
        return NULL;
    ENTER;
    y = nb_py_wrap(placed(o, key, v, mode));
    LEAVE;
    if (y) ((nb_py_tensor *)y)->buffer_ops = NB_PY_NO;
    return y;
}

PyType_Slot nb_py_index_slots[] = {
    {Py_mp_subscript, get}, {Py_mp_ass_subscript, set}, {0, NULL}};

static PyMethodDef functions[] = {{"_place", place, METH_VARARGS, NULL}, {0}};

int nb_py_index_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
