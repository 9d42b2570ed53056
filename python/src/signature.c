/* signature.c - what one executable serves, and whether a call is that.
 *
 * A signature is the structures of the arguments, the types and layouts of the
 * tensors among their leaves and the values of all other leaves.  A call that
 * is held against it makes nothing but the list of its tensors. */
#include "compile.h"

#include "tree.h"

#include <string.h>

bool nb_py_is_array(PyObject *o)
{
    static PyObject *type;
    if (!type) {
        PyObject *name = PyUnicode_FromString("numpy");
        PyObject *module = name ? PyImport_GetModule(name) : NULL;
        Py_XDECREF(name);
        if (module) type = PyObject_GetAttrString(module, "ndarray");
        Py_XDECREF(module);
        PyErr_Clear();
        if (!type) return false;
    }
    return Py_TYPE(o) == (PyTypeObject *)type ||
           PyType_IsSubtype(Py_TYPE(o), (PyTypeObject *)type);
}

/* STEP: an input that may come as a number; ARRAY: one that was no tensor. */
enum { INPUT, STEP, STATIC, ARRAY };

typedef struct leaf {
    int kind, rank;
    nb_dtype dtype;
    int device;
    bool donated;
    int64_t size[NB_PY_RANK]; /* -1: any */
    const nb_spec *sharding;  /* NULL: on no mesh */
    PyObject *value;          /* STATIC */
    nb_tensor *node;          /* what it was, if it is a tensor; kept */
} leaf;

enum { ONE, FLAT, TREE }; /* a tensor, a tuple of leaves, anything */

typedef struct nb_py_signature signature;
typedef struct nb_py_call call;

struct nb_py_signature {
    int uses;
    int npositional, nargs, nleaves, ninputs, nresults;
    PyObject *names; /* of the arguments after the positional ones, sorted */
    PyObject *defs;  /* list: the structure of each argument */
    bool *bare;      /* of each argument: whether it is one leaf */
    leaf *leaf;
    PyObject *executable; /* NULL: runs uncompiled */
    PyObject *out;        /* the structure of the result */
    PyObject *fixed;      /* list: leaves of the result, an int for a tensor */
    int *result;          /* by leaf of the result: which tensor, or -1 */
    int form;
    nb_dtype real; /* the default float when it was recorded */
};

signature *nb_py_signature_keep(signature *s)
{
    s->uses++;
    return s;
}

void nb_py_signature_drop(signature *s)
{
    if (!s || --s->uses) return;
    for (int i = 0; s->leaf && i < s->nleaves; i++) {
        Py_XDECREF(s->leaf[i].value);
        nb_drop(s->leaf[i].node);
    }
    Py_XDECREF(s->names);
    Py_XDECREF(s->defs);
    Py_XDECREF(s->executable);
    Py_XDECREF(s->out);
    Py_XDECREF(s->fixed);
    PyMem_Free(s->bare);
    PyMem_Free(s->leaf);
    PyMem_Free(s->result);
    PyMem_Free(s);
}

/* (kind, value, donated) */
static bool read_leaf(leaf *l, PyObject *row)
{
    PyObject *value;
    int donated;
    if (!PyArg_ParseTuple(row, "iOp", &l->kind, &value, &donated)) return false;
    l->donated = donated;
    bool tensor = nb_py_is_tensor(value);
    if (l->kind == STATIC) {
        l->value = Py_NewRef(value);
        if (tensor) l->node = nb_keep(nb_py_get(value));
        return true;
    }
    if (!tensor) return PyErr_BadArgument();
    l->dtype = nb_dtype_of(nb_py_get(value));
    l->rank = nb_rank(nb_py_get(value));
    l->sharding = nb_sharding(nb_py_get(value));
    l->device = nb_device_of(nb_py_get(value));
    nb_sizes(nb_py_get(value), l->size);
    return true;
}

static bool read_leaves(signature *s, PyObject *rows)
{
    s->nleaves = (int)PyList_Size(rows);
    s->leaf = PyMem_Calloc((size_t)s->nleaves + 1, sizeof *s->leaf);
    if (!s->leaf) return PyErr_NoMemory();
    for (int i = 0; i < s->nleaves; i++) {
        if (!read_leaf(&s->leaf[i], PyList_GetItem(rows, i))) return false;
        s->ninputs += s->leaf[i].kind != STATIC;
    }
    return true;
}

/* Marks the sizes that are open: a list of (tensor, axis, name). */
static bool read_open(signature *s, PyObject *list)
{
    int n, input = -1;
    nb_dynamic_dim *d = nb_py_dynamic_dims(list, &n);
    if (!d) return false;
    for (int i = 0; i < s->nleaves; i++) {
        leaf *l = &s->leaf[i];
        if (l->kind == STATIC) continue;
        input++;
        for (int k = 0; k < n; k++)
            if (d[k].argument == input)
                l->size[d[k].axis < 0 ? d[k].axis + l->rank : d[k].axis] = -1;
    }
    PyMem_Free(d);
    return true;
}

static bool read_structures(signature *s, PyObject *one)
{
    s->nargs = (int)PyList_Size(s->defs);
    s->bare = PyMem_Calloc((size_t)s->nargs + 1, sizeof *s->bare);
    if (!s->bare) return PyErr_NoMemory();
    for (int i = 0; i < s->nargs; i++) {
        int same =
            PyObject_RichCompareBool(PyList_GetItem(s->defs, i), one, Py_EQ);
        if (same < 0) return false;
        s->bare[i] = same;
    }
    return true;
}

/* results: list of (which tensor or -1, value) */
static bool read_result(signature *s, PyObject *results, PyObject *one)
{
    Py_ssize_t n = PyList_Size(results);
    s->nresults = (int)n;
    s->result = PyMem_Calloc((size_t)n + 1, sizeof *s->result);
    s->fixed = PyList_New(n);
    if (!s->result || !s->fixed) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *value;
        if (!PyArg_ParseTuple(PyList_GetItem(results, i), "iO", &s->result[i],
                              &value))
            return false;
        PyList_SetItem(s->fixed, i, Py_NewRef(value));
    }
    int bare = PyObject_RichCompareBool(s->out, one, Py_EQ);
    s->form = bare == 1 && s->result[0] >= 0 ? ONE : TREE;
    return bare >= 0;
}

static bool is_flat(PyObject *def, Py_ssize_t n)
{
    PyObject *flat = PyTuple_New(n), *like = NULL;
    for (Py_ssize_t i = 0; flat && i < n; i++)
        PyTuple_SetItem(flat, i, PyLong_FromLong(0));
    PyObject *leaves = flat ? nb_py_tree_flatten(flat, &like) : NULL;
    bool same = leaves && PyObject_RichCompareBool(like, def, Py_EQ) == 1;
    Py_XDECREF(flat);
    Py_XDECREF(leaves);
    Py_XDECREF(like);
    PyErr_Clear();
    return same;
}

signature *nb_py_signature_new(PyObject *args)
{
    PyObject *names, *defs, *rows, *exe, *out, *results, *one = NULL, *list;
    PyObject *open;
    int npositional;
    if (!PyArg_ParseTuple(args, "iO!O!O!OOO!O!:add", &npositional,
                          &PyTuple_Type, &names, &PyList_Type, &defs,
                          &PyList_Type, &rows, &exe, &out, &PyList_Type,
                          &results, &PyList_Type, &open))
        return NULL;
    signature *s = PyMem_Calloc(1, sizeof *s);
    if (!s) return (void)PyErr_NoMemory(), NULL;
    s->uses = 1;
    s->npositional = npositional;
    s->real = nb_default_float();
    s->names = Py_NewRef(names);
    s->defs = Py_NewRef(defs);
    s->out = Py_NewRef(out);
    if (exe != Py_None) s->executable = Py_NewRef(exe);
    list = nb_py_tree_flatten(Py_True, &one); /* the structure of a leaf */
    bool ok = list && read_leaves(s, rows) && read_open(s, open) &&
              read_structures(s, one) &&
              (exe == Py_None || read_result(s, results, one));
    if (ok && s->executable && s->form == TREE && is_flat(out, s->nresults))
        s->form = FLAT;
    Py_XDECREF(list);
    Py_XDECREF(one);
    if (ok) return s;
    nb_py_signature_drop(s);
    return NULL;
}

int nb_py_signature_visit(const signature *s, visitproc visit, void *arg)
{
    Py_VISIT(s->names);
    Py_VISIT(s->defs);
    Py_VISIT(s->out);
    Py_VISIT(s->fixed);
    for (int k = 0; k < s->nleaves; k++)
        Py_VISIT(s->leaf[k].value);
    return 0;
}

PyObject *nb_py_signature_executable(const signature *s)
{
    return s->executable;
}

static PyObject *leaf_of(const signature *s, int i, nb_tensor *const *y)
{
    int k = s->result[i];
    return k >= 0 ? nb_py_wrap(y[k]) : Py_NewRef(PyList_GetItem(s->fixed, i));
}

PyObject *nb_py_signature_result(const signature *s, nb_tensor *const *y)
{
    if (s->form == ONE) return nb_py_wrap(y[s->result[0]]);
    PyObject *leaves = PyTuple_New(s->nresults), *tree;
    for (int i = 0; leaves && i < s->nresults; i++) {
        PyObject *one = leaf_of(s, i, y);
        if (!one) Py_CLEAR(leaves);
        if (one) PyTuple_SetItem(leaves, i, one);
    }
    if (!leaves || s->form == FLAT) return leaves;
    tree = nb_py_tree_unflatten(s->out, leaves);
    Py_DECREF(leaves);
    return tree;
}

/* A call */

void nb_py_call_begin(call *c, PyObject *const *args, Py_ssize_t n,
                      PyObject *names)
{
    c->args = args;
    c->n = n;
    c->names = names;
    c->x = c->few;
    c->donor = c->few_donors;
    c->room = NB_PY_FEW;
    c->narrays = c->ndonors = 0;
}

static void let_donors_go(call *c)
{
    while (c->ndonors)
        Py_DECREF(c->donor[--c->ndonors]);
}

void nb_py_call_end(call *c)
{
    let_donors_go(c);
    if (c->x != c->few) PyMem_Free(c->x);
    if (c->donor != c->few_donors) PyMem_Free(c->donor);
}

static bool make_room(call *c, int n)
{
    if (n <= c->room) return true;
    nb_tensor **x = PyMem_Malloc((size_t)n * sizeof *x);
    PyObject **donor = PyMem_Malloc((size_t)n * sizeof *donor);
    if (!x || !donor) {
        PyMem_Free(x);
        PyMem_Free(donor);
        return PyErr_NoMemory();
    }
    nb_py_call_end(c);
    c->x = x;
    c->donor = donor;
    c->room = n;
    return true;
}

static nb_tensor *from_array(call *c, PyObject *o)
{
    for (int i = 0; i < c->narrays; i++)
        if (c->array[i] == o) return c->converted[i];
    nb_tensor *x = nb_py_operand(o);
    if (x && c->narrays < 4) {
        c->array[c->narrays] = o;
        c->converted[c->narrays++] = x;
    }
    return x;
}

static bool is_number(PyObject *o)
{
    return PyFloat_Check(o) || (PyLong_Check(o) && !PyBool_Check(o));
}

static bool fits(const leaf *l, const nb_tensor *x)
{
    int64_t size[NB_PY_RANK];
    if (nb_dtype_of(x) != l->dtype || nb_rank(x) != l->rank ||
        nb_sharding(x) != l->sharding || nb_device_of(x) != l->device)
        return false;
    nb_sizes(x, size);
    for (int d = 0; d < l->rank; d++)
        if (l->size[d] >= 0 && size[d] != l->size[d]) return false;
    return true;
}

/* Where the first array was, with tensors that are on the same devices now. */
static nb_tensor *beside(nb_tensor *x, int device)
{
    if (nb_rank(x) == 0 || nb_device_of(x) == device) return x;
    nb_tensor *y = nb_to_device(x, device);
    return y && nb_py_realize(1, &y) ? y : NULL;
}

static int match_input(call *c, const leaf *l, PyObject *o)
{
    nb_tensor *x = NULL;
    if (nb_py_is_tensor(o)) {
        x = nb_py_get(o);
        if (!fits(l, x)) return 0;
        x = nb_give(nb_keep(x));
    } else if (l->kind == STEP && is_number(o)) {
        x = nb_to_device(nb_scalar_float(PyFloat_AsDouble(o), l->dtype),
                         l->device);
    } else if (nb_py_is_array(o)) {
        x = from_array(c, o);
        if (x && l->kind == ARRAY) x = beside(x, l->device);
        if (x && !fits(l, x)) return 0;
    } else {
        return 0;
    }
    if (!x || PyErr_Occurred()) return nb_py_raise(), -1;
    if (l->donated && nb_py_is_tensor(o)) c->donor[c->ndonors++] = Py_NewRef(o);
    c->x[c->nx++] = x;
    return 1;
}

/* Numbers are told apart by their bits, tensors by what they are. */
static int match_static(const leaf *l, PyObject *o)
{
    if (Py_TYPE(o) != Py_TYPE(l->value)) return 0;
    if (l->node) return o == l->value && nb_py_get(o) == l->node;
    if (o == l->value) return 1;
    if (Py_TYPE(o) != &PyFloat_Type)
        return PyObject_RichCompareBool(l->value, o, Py_EQ);
    double a = PyFloat_AsDouble(l->value), b = PyFloat_AsDouble(o);
    return !memcmp(&a, &b, sizeof a);
}

static int match_leaf(void *data, PyObject *o)
{
    call *c = data;
    const leaf *l = &c->s->leaf[c->at++];
    return l->kind == STATIC ? match_static(l, o) : match_input(c, l, o);
}

static PyObject *find_named(const call *c, PyObject *name)
{
    Py_ssize_t n = PyTuple_Size(c->names);
    for (Py_ssize_t i = 0; i < n; i++)
        if (PyTuple_GetItem(c->names, i) == name) return c->args[c->n + i];
    for (Py_ssize_t i = 0; i < n; i++)
        if (!PyUnicode_Compare(PyTuple_GetItem(c->names, i), name))
            return c->args[c->n + i];
    return NULL;
}

static int match_argument(call *c, int i)
{
    const signature *s = c->s;
    PyObject *o =
        i < s->npositional
            ? c->args[i]
            : find_named(c, PyTuple_GetItem(s->names, i - s->npositional));
    if (!o) return 0;
    if (s->bare[i] && Py_TYPE(o) == nb_py_Tensor) return match_leaf(c, o);
    return nb_py_tree_match(PyList_GetItem(s->defs, i), o, match_leaf, c);
}

int nb_py_call_match(call *c, const signature *s)
{
    Py_ssize_t named = c->names ? PyTuple_Size(c->names) : 0;
    int same = 1;
    if (c->n != s->npositional || named != s->nargs - s->npositional ||
        nb_default_float() != s->real)
        return 0;
    if (!make_room(c, s->ninputs)) return -1;
    let_donors_go(c);
    c->s = s;
    c->at = c->nx = 0;
    for (int i = 0; same == 1 && i < s->nargs; i++)
        same = match_argument(c, i);
    return same;
}
