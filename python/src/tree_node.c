/* tree_node.c - nodes of pytrees: which objects are nodes, where their children
 * are, how they are made again and what they are called. */
#include "tree_parts.h"

static struct {
    PyObject *types;  /* dict: registered type -> (flatten, unflatten) */
    PyObject *fields; /* the text "_fields" */
} state;

nb_py_rules nb_py_tree_rules(void)
{
    return (nb_py_rules){.tensor = (PyTypeObject *)nb_py_tensor_type()};
}

void nb_py_node_clear(nb_py_node *d)
{
    Py_CLEAR(d->head);
    Py_CLEAR(d->aux);
}

void nb_py_nodes_free(nb_py_node *d, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        nb_py_node_clear(&d[i]);
    PyMem_Free(d);
}

PyObject *nb_py_fields_of(PyObject *type)
{
    PyObject *fields = PyObject_GetAttr(type, state.fields);
    if (!fields && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    if (fields && !PyTuple_Check(fields)) Py_CLEAR(fields);
    return fields;
}

/* Of an object whose type is neither built in nor a tensor; -1 on failure.  A
 * type without a hash (its metaclass may define ==) cannot be registered.  A
 * kind of dict whose flatten_fn is dict is one: it fits where a dict does. */
static int kind_of_other(PyObject *x)
{
    PyObject *type = (PyObject *)Py_TYPE(x);
    PyObject *pair = PyDict_GetItemWithError(state.types, type);
    if (pair && PyDict_Check(x) &&
        PyTuple_GetItem(pair, 0) == (PyObject *)&PyDict_Type)
        return DICT;
    if (pair) return CUSTOM;
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
        PyErr_Clear();
    }
    if (!PyTuple_Check(x)) return LEAF;
    PyObject *fields = nb_py_fields_of(type);
    if (!fields) return PyErr_Occurred() ? -1 : LEAF;
    Py_DECREF(fields);
    return NAMED;
}

int nb_py_kind_of(const nb_py_rules *r, PyObject *x)
{
    PyTypeObject *type = Py_TYPE(x);
    if (type == r->tensor) return LEAF;
    if (type == &PyDict_Type) return DICT;
    if (type == &PyList_Type) return LIST;
    if (type == &PyTuple_Type) return TUPLE;
    if (x == Py_None) return r->full ? LEAF : NONE;
    return kind_of_other(x);
}

int nb_py_kind_asked(const nb_py_rules *r, PyObject *x)
{
    int kind = nb_py_kind_of(r, x);
    if (kind <= LEAF || !r->is_leaf) return kind;
    PyObject *answer = PyObject_CallFunctionObjArgs(r->is_leaf, x, NULL);
    int leaf = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return leaf < 0 ? -1 : leaf ? LEAF : kind;
}

/* Text */

PyObject *nb_py_text(const char *s)
{
    return PyUnicode_FromString(s);
}

PyObject *nb_py_type_text(const char *format, PyObject *type)
{
    PyObject *name = PyType_GetName((PyTypeObject *)type);
    PyObject *t = name ? PyUnicode_FromFormat(format, name) : NULL;
    Py_XDECREF(name);
    return t;
}

/* 'a', 'b', ... with at most so many keys of the list. */
static PyObject *keys_text(PyObject *keys, Py_ssize_t most)
{
    PyObject *t = nb_py_text("");
    Py_ssize_t n = PyList_Size(keys);
    for (Py_ssize_t i = 0; t && i < n && i < most; i++) {
        PyObject *key = PyList_GetItem(keys, i);
        PyUnicode_AppendAndDel(&t,
                               PyUnicode_FromFormat(i ? ", %R" : "%R", key));
    }
    if (t && n > most)
        PyUnicode_AppendAndDel(
            &t, PyUnicode_FromFormat(", ... %zd more", n - most));
    return t;
}

static PyObject *dict_text(PyObject *keys)
{
    PyObject *inside = keys_text(keys, 8);
    PyObject *t = inside ? PyUnicode_FromFormat("dict[%U]", inside) : NULL;
    Py_XDECREF(inside);
    return t;
}

PyObject *nb_py_node_text(const nb_py_node *d)
{
    switch (d->kind) {
    case NONE: return nb_py_text("None");
    case LIST: return PyUnicode_FromFormat("list[%zd]", d->n);
    case TUPLE: return PyUnicode_FromFormat("tuple[%zd]", d->n);
    case NAMED: return nb_py_type_text("tuple[%U]", d->head);
    case DICT: return dict_text(d->head);
    case CUSTOM: return nb_py_type_text("custom[%U]", d->head);
    default: return nb_py_text("*");
    }
}

/* Opening a node: what it is, and where its children are. */

/* The keys must sort, for equal dicts must have equal structures. */
static PyObject *sorted_keys(PyObject *dict)
{
    PyObject *keys = PyDict_Keys(dict);
    if (!keys || PyList_Sort(keys) == 0) return keys;
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyObject *t = keys_text(keys, 16);
        if (t)
            PyErr_Format(PyExc_TypeError,
                         "pytree: the keys of a dict must sort, but these do "
                         "not compare: %U",
                         t);
        Py_XDECREF(t);
    }
    Py_DECREF(keys);
    return NULL;
}

/* The values of those keys, as a list; NULL without an exception if there are
 * not just those keys.  Many dicts are sorted as they are, so keys are looked
 * up only from the first one out of order on. */
static PyObject *values_of(PyObject *dict, PyObject *keys)
{
    Py_ssize_t i = 0, at = 0, n = PyList_Size(keys);
    PyObject *values = PyDict_Values(dict), *key;
    if (!values) return NULL;
    bool ok = PyList_Size(values) == n;
    while (ok && i < n && PyDict_Next(dict, &at, &key, NULL) &&
           key == PyList_GetItem(keys, i))
        i++;
    for (; ok && i < n; i++) {
        PyObject *x = PyDict_GetItemWithError(dict, PyList_GetItem(keys, i));
        ok = x && PyList_SetItem(values, i, Py_NewRef(x)) == 0;
    }
    if (!ok) Py_CLEAR(values);
    return values;
}

static PyObject *open_dict(PyObject *x, nb_py_node *d)
{
    d->head = sorted_keys(x);
    if (!d->head) return NULL;
    d->n = PyList_Size(d->head);
    PyObject *source = values_of(x, d->head);
    if (!source && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError,
                        "pytree: a dict changed while it was walked");
    return source;
}

/* One of the two functions of a registered type: 0 flatten, 1 unflatten. */
static PyObject *function_of(PyObject *type, int which)
{
    PyObject *pair = PyDict_GetItemWithError(state.types, type);
    if (pair) return Py_NewRef(PyTuple_GetItem(pair, which));
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError,
                     "tree_unflatten: %R is not registered as a pytree node",
                     type);
    return NULL;
}

/* The children as a tuple. */
static PyObject *open_custom(PyObject *x, nb_py_node *d)
{
    PyObject *type = (PyObject *)Py_TYPE(x), *source = NULL;
    PyObject *flatten = function_of(type, 0);
    if (!flatten) return NULL;
    PyObject *pair = PyObject_CallFunctionObjArgs(flatten, x, NULL);
    Py_DECREF(flatten);
    if (!pair) return NULL;
    if (PyTuple_Check(pair) && PyTuple_Size(pair) == 2)
        source = PySequence_Tuple(PyTuple_GetItem(pair, 0));
    else
        PyErr_Format(PyExc_TypeError,
                     "pytree: the flatten function of %R must return a tuple "
                     "(children, aux), not %R",
                     type, Py_TYPE(pair));
    if (source) {
        d->n = PyTuple_Size(source);
        d->head = Py_NewRef(type);
        d->aux = Py_NewRef(PyTuple_GetItem(pair, 1));
    }
    Py_DECREF(pair);
    return source;
}

PyObject *nb_py_node_open(PyObject *x, int kind, nb_py_node *d)
{
    *d = (nb_py_node){.kind = kind};
    switch (kind) {
    case LIST: d->n = PyList_Size(x); break;
    case TUPLE: d->n = PyTuple_Size(x); break;
    case NAMED:
        d->n = PyTuple_Size(x);
        d->head = Py_NewRef((PyObject *)Py_TYPE(x));
        break;
    case DICT: return open_dict(x, d);
    case CUSTOM: return open_custom(x, d);
    default: break;
    }
    return Py_NewRef(x);
}

PyObject *nb_py_node_child(const nb_py_node *d, PyObject *source, Py_ssize_t i)
{
    if (d->kind != LIST && d->kind != DICT)
        return Py_XNewRef(PyTuple_GetItem(source, i));
    if (i < PyList_Size(source)) return Py_NewRef(PyList_GetItem(source, i));
    PyErr_SetString(PyExc_RuntimeError,
                    "pytree: a list became shorter while it was walked");
    return NULL;
}

static PyObject *fill_dict(const nb_py_node *d, PyObject *dict,
                           PyObject *const *item)
{
    for (Py_ssize_t i = 0; dict && i < d->n; i++)
        if (PyDict_SetItem(dict, PyList_GetItem(d->head, i), item[i]) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *build_custom(const nb_py_node *d, PyObject *children)
{
    PyObject *unflatten = function_of(d->head, 1);
    if (!unflatten) return NULL;
    PyObject *whole =
        PyObject_CallFunctionObjArgs(unflatten, d->aux, children, NULL);
    Py_DECREF(unflatten);
    return whole;
}

PyObject *nb_py_node_build(const nb_py_node *d, PyObject *dict,
                           PyObject *const *item)
{
    if (d->kind == DICT) return fill_dict(d, dict, item);
    if (d->kind == NONE) return Py_NewRef(Py_None);
    if (d->kind == LIST) return nb_py_list_of(item, d->n);
    PyObject *whole, *children = nb_py_tuple_of(item, d->n);
    if (!children || d->kind == TUPLE) return children;
    if (d->kind == NAMED)
        whole = PyObject_Call(d->head, children, NULL);
    else
        whole = build_custom(d, children);
    Py_DECREF(children);
    return whole;
}

/* Of a registered type, and x is of the same. */
static PyObject *match_custom(const nb_py_node *d, PyObject *x,
                              const char **why)
{
    nb_py_node own;
    PyObject *source = nb_py_node_open(x, CUSTOM, &own);
    if (!source) return NULL; /* and own holds nothing */
    int same = own.n == d->n;
    *why = same ? " with other aux data" : " with another number of children";
    if (same) same = PyObject_RichCompareBool(d->aux, own.aux, Py_EQ);
    nb_py_node_clear(&own);
    if (same != 1) Py_CLEAR(source);
    return source;
}

PyObject *nb_py_node_match(const nb_py_node *d, PyObject *x, const char **why)
{
    bool named = d->kind == NAMED || d->kind == CUSTOM;
    if (named && (PyObject *)Py_TYPE(x) != d->head) return NULL;
    switch (d->kind) {
    case NONE: return Py_NewRef(x);
    case LIST: return PyList_Size(x) == d->n ? Py_NewRef(x) : NULL;
    case DICT: return values_of(x, d->head);
    case CUSTOM: return match_custom(d, x, why);
    default: return PyTuple_Size(x) == d->n ? Py_NewRef(x) : NULL;
    }
}

/* Types */

static bool is_builtin(PyObject *cls)
{
    PyTypeObject *t = (PyTypeObject *)cls;
    return t == &PyDict_Type || t == &PyList_Type || t == &PyTuple_Type ||
           t == Py_TYPE(Py_None) || cls == nb_py_tensor_type();
}

bool nb_py_tree_register(PyObject *cls, PyObject *flatten_fn,
                         PyObject *unflatten_fn)
{
    if (!PyType_Check(cls))
        PyErr_Format(PyExc_TypeError, "register_pytree_node: %R is not a type",
                     cls);
    else if (!PyCallable_Check(flatten_fn) || !PyCallable_Check(unflatten_fn))
        PyErr_Format(PyExc_TypeError,
                     "register_pytree_node: the functions for %R must be "
                     "callable, got %R and %R",
                     cls, Py_TYPE(flatten_fn), Py_TYPE(unflatten_fn));
    else if (is_builtin(cls))
        PyErr_Format(PyExc_ValueError,
                     "register_pytree_node: %R has its meaning in pytrees "
                     "already",
                     cls);
    if (PyErr_Occurred()) return false;
    PyObject *pair = PyTuple_Pack(2, flatten_fn, unflatten_fn);
    bool ok = pair && PyDict_SetItem(state.types, cls, pair) == 0;
    Py_XDECREF(pair);
    return ok;
}

bool nb_py_nodes_set_up(void)
{
    if (!state.types) state.types = PyDict_New();
    if (!state.fields) state.fields = PyUnicode_InternFromString("_fields");
    return state.types && state.fields;
}
