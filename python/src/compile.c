/* compile.c - CompiledFunction: calls that find their executable.
 *
 * A signature is what one executable serves: the structures of the arguments,
 * the types and layouts of the tensors among their leaves and the values of all
 * other leaves.  A call is held against the signatures, the one used last
 * first, and nothing is made but the list of its tensors.  What happens when
 * none fits - recording, compiling, warnings - is up to
 * nabla.transforms.compile, whose functions are in `helpers`.
 *
 * A comparison of static values may run any code of Python, by which the list
 * of signatures may change: it is then gone through again, and a signature is
 * held while it is used. */
#include "py.h"

#include "tree.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

static PyObject *helpers; /* the module nabla.transforms.compile */
static _Thread_local int compiling;

bool nb_py_compiling(void)
{
    return compiling > 0;
}

static PyObject *help(const char *name, PyObject *args)
{
    PyObject *f = args ? PyObject_GetAttrString(helpers, name) : NULL;
    PyObject *y = f ? PyObject_Call(f, args, NULL) : NULL;
    Py_XDECREF(f);
    Py_XDECREF(args);
    return y;
}

/* Arrays of NumPy, if it was imported. */
static bool is_array(PyObject *o)
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

/* Executable */

typedef struct executable {
    PyObject_HEAD nb_executable *e;
    bool small, open; /* of any size: a run may have to record */
} executable;
static PyTypeObject *Executable;

static bool donate(nb_executable *e, PyObject *list)
{
    int few[64], *at = few, n = (int)PyList_Size(list);
    if (n > 64 && !(at = PyMem_Malloc((size_t)n * sizeof *at)))
        return PyErr_NoMemory();
    for (int i = 0; i < n; i++)
        at[i] = (int)PyLong_AsLong(PyList_GetItem(list, i));
    bool ok =
        !PyErr_Occurred() && (!n || nb_executable_donate(e, n, at) == NB_OK);
    if (at != few) PyMem_Free(at);
    return ok;
}

/* A list of (tensor, axis, name). */
static nb_dynamic_dim *read_dims(PyObject *list, int *n)
{
    *n = (int)PyList_Size(list);
    nb_dynamic_dim *d = PyMem_Calloc((size_t)*n + 1, sizeof *d);
    bool ok = d || PyErr_NoMemory();
    for (int i = 0; ok && i < *n; i++)
        ok = PyArg_ParseTuple(PyList_GetItem(list, i), "iis", &d[i].argument,
                              &d[i].axis, &d[i].name);
    if (ok) return d;
    PyMem_Free(d);
    return NULL;
}

/* Executable(body, tensors, donated, dims): the body takes and returns lists of
 * tensors; donated lists places of tensors; dims are those of any size.  It has
 * no code before load(). */
static PyObject *executable_new(PyTypeObject *type, PyObject *args,
                                PyObject *kwargs)
{
    PyObject *body, *list, *donated, *open;
    nb_executable *e = NULL;
    nb_status s = NB_ERUNTIME;
    int n, ndims;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OO!O!O!:Executable", &body, &PyList_Type,
                          &list, &PyList_Type, &donated, &PyList_Type, &open))
        return NULL;
    nb_dynamic_dim *dims = read_dims(open, &ndims);
    nb_tensor **x = dims ? nb_py_tensors(list, &n) : NULL;
    if (x && nb_scope_open() == NB_OK) {
        nb_func *f = nb_py_lasting(body);
        nb_py_locate();
        compiling++;
        Py_BEGIN_ALLOW_THREADS;
        if (f) s = nb_executable_lower(f, n, x, ndims, dims, &e);
        Py_END_ALLOW_THREADS;
        compiling--;
        LEAVE;
    }
    PyMem_Free(dims);
    PyMem_Free(x);
    if (!x) return NULL;
    if (s == NB_OK) PyErr_Clear(); /* raised at a size that was only tried */
    executable *self = NULL;
    if (s == NB_OK && donate(e, donated)) self = PyObject_New(executable, type);
    if (!self) {
        nb_executable_drop(e);
        return nb_py_raise();
    }
    self->e = e;
    self->small = false;
    self->open = ndims && !*nb_executable_fixed(e);
    return (PyObject *)self;
}

static PyObject *executable_load(PyObject *o, PyObject *unused)
{
    executable *self = (executable *)o;
    nb_status s;
    (void)unused;
    Py_BEGIN_ALLOW_THREADS;
    s = nb_executable_load(self->e);
    Py_END_ALLOW_THREADS;
    if (s != NB_OK) return nb_py_raise();
    self->small = nb_executable_is_small(self->e);
    Py_RETURN_NONE;
}

static void executable_dealloc(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    nb_executable_drop(((executable *)o)->e);
    PyObject_Free(o);
    Py_DECREF(type);
}

static PyObject *executable_text(PyObject *o, PyObject *stage)
{
    const char *name = NULL;
    if (stage != Py_None && !(name = PyUnicode_AsUTF8AndSize(stage, NULL)))
        return NULL;
    char *text = nb_executable_text(((executable *)o)->e, name);
    if (!text) return nb_py_raise();
    PyObject *y = PyUnicode_FromString(text);
    nb_text_release(text);
    return y;
}

static PyObject *executable_memory(PyObject *o, PyObject *unused)
{
    nb_memory_plan m = nb_executable_memory(((executable *)o)->e);
    (void)unused;
    return Py_BuildValue("(LLLLLL)", (long long)m.peak, (long long)m.arguments,
                         (long long)m.results, (long long)m.temporaries,
                         (long long)m.constants, (long long)m.donated);
}

/* (flops, steps, how many of them are loops) */
static PyObject *executable_cost(PyObject *o, PyObject *unused)
{
    const nb_executable *e = ((executable *)o)->e;
    int loops, steps = nb_executable_steps(e, &loops);
    (void)unused;
    return Py_BuildValue("(dii)", nb_executable_flops(e), steps, loops);
}

static PyObject *executable_explain(PyObject *o, PyObject *unused)
{
    (void)unused;
    return nb_py_explanation(((executable *)o)->e);
}

/* budget(bytes): an error if collectives take more; negative: if there are
 * any. */
static PyObject *executable_budget(PyObject *o, PyObject *bytes)
{
    int64_t most = PyLong_AsLongLong(bytes);
    if (PyErr_Occurred()) return NULL;
    if (nb_executable_budget(((executable *)o)->e, most) != NB_OK)
        return nb_py_raise();
    Py_RETURN_NONE;
}

static PyObject *executable_trouble(PyObject *o, PyObject *unused)
{
    (void)unused;
    return PyUnicode_FromString(nb_executable_trouble(((executable *)o)->e));
}

static PyObject *executable_fixed(PyObject *o, PyObject *unused)
{
    (void)unused;
    return PyUnicode_FromString(nb_executable_fixed(((executable *)o)->e));
}

static PyMethodDef executable_methods[] = {
    {"load", executable_load, METH_NOARGS, NULL},
    {"text", executable_text, METH_O, NULL},
    {"memory", executable_memory, METH_NOARGS, NULL},
    {"cost", executable_cost, METH_NOARGS, NULL},
    {"explain", executable_explain, METH_NOARGS, NULL},
    {"budget", executable_budget, METH_O, NULL},
    {"trouble", executable_trouble, METH_NOARGS, NULL},
    {"fixed", executable_fixed, METH_NOARGS, NULL},
    {0}};
static PyType_Slot executable_slots[] = {{Py_tp_new, executable_new},
                                         {Py_tp_dealloc, executable_dealloc},
                                         {Py_tp_methods, executable_methods},
                                         {0, NULL}};
static PyType_Spec executable_spec = {
    .name = "nabla._nabla.Executable",
    .basicsize = sizeof(executable),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = executable_slots,
};

/* Signatures */

enum { INPUT, STEP, STATIC }; /* STEP: an input that may come as a number */

typedef struct leaf {
    int kind, rank;
    nb_dtype dtype;
    bool donated;
    int64_t size[NB_PY_RANK]; /* -1: any */
    const nb_spec *sharding;  /* NULL: on no mesh */
    PyObject *value;          /* STATIC */
    nb_tensor *node;          /* what it was, if it is a tensor; kept */
} leaf;

enum { ONE, FLAT, TREE }; /* a tensor, a tuple of leaves, anything */

typedef struct signature {
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
} signature;

static void signature_drop(signature *s)
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
    nb_dynamic_dim *d = read_dims(list, &n);
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

/* (positional arguments, names, structures, leaves, executable or None,
 * structure of the result, leaves of the result) */
static signature *signature_new(PyObject *args)
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
    signature_drop(s);
    return NULL;
}

/* A call */

enum { FEW = 16 };
typedef struct call {
    PyObject *const *args;
    Py_ssize_t n;
    PyObject *names; /* NULL: none */
    const signature *s;
    int at;        /* the next leaf */
    nb_tensor **x; /* lent */
    int nx;
    PyObject **donor; /* objects that give their tensors away, ours */
    int ndonors, room;
    PyObject *array[4]; /* arrays that were converted, borrowed */
    nb_tensor *converted[4];
    int narrays;
    nb_tensor *few[FEW];
    PyObject *few_donors[FEW];
} call;

static void let_donors_go(call *c)
{
    while (c->ndonors)
        Py_DECREF(c->donor[--c->ndonors]);
}

static void call_end(call *c)
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
    call_end(c);
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
        nb_sharding(x) != l->sharding)
        return false;
    nb_sizes(x, size);
    for (int d = 0; d < l->rank; d++)
        if (l->size[d] >= 0 && size[d] != l->size[d]) return false;
    return true;
}

static int match_input(call *c, const leaf *l, PyObject *o)
{
    nb_tensor *x = NULL;
    if (nb_py_is_tensor(o)) {
        x = nb_py_get(o);
        if (!fits(l, x)) return 0;
        x = nb_give(nb_keep(x));
    } else if (l->kind == STEP && is_number(o)) {
        x = nb_scalar_float(PyFloat_AsDouble(o), l->dtype);
    } else if (is_array(o)) {
        x = from_array(c, o);
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

/* 1 if the call has that signature; then c->x are its tensors. */
static int match(call *c, const signature *s)
{
    Py_ssize_t named = c->names ? PyTuple_Size(c->names) : 0;
    int same = 1;
    if (c->n != s->npositional || named != s->nargs - s->npositional) return 0;
    if (!make_room(c, s->ninputs)) return -1;
    let_donors_go(c);
    c->s = s;
    c->at = c->nx = 0;
    for (int i = 0; same == 1 && i < s->nargs; i++)
        same = match_argument(c, i);
    return same;
}

/* CompiledFunction */

typedef struct compiled {
    PyObject_HEAD PyObject *(*call)(PyObject *, PyObject *const *, size_t,
                                    PyObject *);
    PyObject *fn, *dict, *weakrefs;
    struct compiled *before, *after; /* of all there are */
    signature **at;                  /* the one used last first */
    int n, room, max;
    unsigned changes;
    long long hits, misses, fallbacks;
    double compile_ms, run_ms;
} compiled;
static PyTypeObject *Compiled;
static compiled *first;

/* The signature of the call, held; NULL without an exception if it has none. */
static signature *find(compiled *self, call *c)
{
    for (int i = 0; i < self->n; i++) {
        signature *s = self->at[i];
        unsigned changes = self->changes;
        s->uses++;
        int same = match(c, s);
        if (same == 1 && changes == self->changes && i > 0) {
            memmove(self->at + 1, self->at, (size_t)i * sizeof *self->at);
            self->at[0] = s;
            self->changes++;
        }
        if (same == 1) return s;
        bool changed = changes != self->changes;
        signature_drop(s);
        if (same < 0) return NULL;
        if (changed) i = -1;
    }
    return NULL;
}

/* Objects that are donated get another value, and the call has the last
 * reference to what they were. */
static bool take_donors(call *c)
{
    for (int i = 0; i < c->ndonors; i++) {
        nb_py_tensor *o = (nb_py_tensor *)c->donor[i];
        nb_tensor *gone = nb_donated(o->x);
        if (!gone) return false;
        nb_py_set_value(o, nb_keep(gone));
    }
    return true;
}

static PyObject *leaf_of(const signature *s, int i, nb_tensor *const *y)
{
    int k = s->result[i];
    return k >= 0 ? nb_py_wrap(y[k]) : Py_NewRef(PyList_GetItem(s->fixed, i));
}

static PyObject *result_of(const signature *s, nb_tensor *const *y)
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

static PyObject *run(const call *c, const signature *s)
{
    const executable *e = (const executable *)s->executable;
    nb_tensor *few[FEW], **y = few;
    int ny = nb_executable_results(e->e);
    nb_status status;
    if (ny > FEW && !(y = PyMem_Malloc((size_t)ny * sizeof *y)))
        return PyErr_NoMemory();
    if (e->small) {
        status = nb_executable_run(e->e, c->nx, c->x, &ny, y);
    } else {
        compiling += e->open;
        Py_BEGIN_ALLOW_THREADS;
        status = nb_executable_run(e->e, c->nx, c->x, &ny, y);
        Py_END_ALLOW_THREADS;
        compiling -= e->open;
    }
    PyObject *value = status == NB_OK ? result_of(s, y) : nb_py_raise();
    if (y != few) PyMem_Free(y);
    return value;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static PyObject *positional(const call *c)
{
    PyObject *args = PyTuple_New(c->n);
    for (Py_ssize_t i = 0; args && i < c->n; i++)
        PyTuple_SetItem(args, i, Py_NewRef(c->args[i]));
    return args;
}

static PyObject *named(const call *c)
{
    PyObject *all = PyDict_New();
    Py_ssize_t n = c->names ? PyTuple_Size(c->names) : 0;
    for (Py_ssize_t i = 0; all && i < n; i++)
        if (PyDict_SetItem(all, PyTuple_GetItem(c->names, i),
                           c->args[c->n + i]) < 0)
            Py_CLEAR(all);
    return all;
}

/* One of the helpers on (self, args, kwargs). */
static PyObject *help_call(const char *name, compiled *self, const call *c)
{
    PyObject *args = positional(c), *kwargs = args ? named(c) : NULL;
    PyObject *all = kwargs ? PyTuple_Pack(3, self, args, kwargs) : NULL;
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return help(name, all);
}

static PyObject *run_known(compiled *self, call *c, const signature *s,
                           bool hit)
{
    if (nb_is_watched(c->nx, c->x)) return help_call("plain", self, c);
    if (!s->executable) {
        self->fallbacks += hit;
        return help_call("fall_back", self, c);
    }
    double from = now_ms();
    if (!take_donors(c)) return nb_py_raise();
    PyObject *value = run(c, s);
    self->hits += hit;
    if (hit) self->run_ms += now_ms() - from;
    return value;
}

static PyObject *add(PyObject *o, PyObject *args);

/* None of the signatures fits: a helper gives (value,), or the parts of one,
 * which is added unless another thread was quicker. */
static PyObject *run_fresh(compiled *self, call *c)
{
    PyObject *said = help_call("miss", self, c), *value = NULL;
    if (!said) return NULL;
    bool done = PyTuple_Size(said) == 1;
    signature *s = done ? NULL : find(self, c);
    if (!s && !done && !PyErr_Occurred()) {
        PyObject *none = add((PyObject *)self, said);
        s = none ? find(self, c) : NULL;
        Py_XDECREF(none);
    }
    if (done) value = Py_XNewRef(PyTuple_GetItem(said, 0));
    Py_DECREF(said);
    if (done) return value;
    if (s)
        value = run_known(self, c, s, false);
    else if (!PyErr_Occurred()) /* it differs from itself, or was dropped */
        value = help_call("plain", self, c);
    signature_drop(s);
    return value;
}

static PyObject *fast_call(PyObject *o, PyObject *const *args, size_t n,
                           PyObject *names)
{
    const size_t offset = (size_t)1 << (8 * sizeof n - 1);
    compiled *self = (compiled *)o;
    PyObject *value = NULL;
    call c;
    c.args = args;
    c.n = (Py_ssize_t)(n & ~offset);
    c.names = names;
    c.x = c.few;
    c.donor = c.few_donors;
    c.room = FEW;
    c.narrays = c.ndonors = 0;
    if (nb_is_watched(0, NULL)) return help_call("plain", self, &c);
    ENTER;
    signature *s = find(self, &c);
    if (s)
        value = run_known(self, &c, s, true);
    else if (!PyErr_Occurred())
        value = run_fresh(self, &c);
    LEAVE;
    call_end(&c);
    signature_drop(s);
    return value;
}

static PyObject *slow_call(PyObject *o, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t n = PyTuple_Size(args), at = 0, k = 0;
    Py_ssize_t more = kwargs ? PyDict_Size(kwargs) : 0;
    PyObject **all = PyMem_Malloc((size_t)(n + more + 1) * sizeof *all);
    PyObject *names = more ? PyTuple_New(more) : NULL, *key, *value, *y = NULL;
    if (!all) PyErr_NoMemory();
    for (Py_ssize_t i = 0; all && i < n; i++)
        all[i] = PyTuple_GetItem(args, i);
    while (all && names && PyDict_Next(kwargs, &at, &key, &value)) {
        PyTuple_SetItem(names, k, Py_NewRef(key));
        all[n + k++] = value;
    }
    if (all && (names || !more)) y = fast_call(o, all, (size_t)n, names);
    Py_XDECREF(names);
    PyMem_Free(all);
    return y;
}

static PyObject *compiled_new(PyTypeObject *type, PyObject *args,
                              PyObject *kwargs)
{
    compiled *self = (compiled *)PyType_GenericAlloc(type, 0);
    if (!self) return NULL;
    self->call = fast_call;
    self->max = 64;
    self->after = first;
    if (first) first->before = self;
    first = self;
    PyObject *set = PyObject_GetAttrString(helpers, "set_up");
    PyObject *all = PyTuple_New(PyTuple_Size(args) + 1);
    for (Py_ssize_t i = 0; all && i < PyTuple_Size(args); i++)
        PyTuple_SetItem(all, i + 1, Py_NewRef(PyTuple_GetItem(args, i)));
    if (all) PyTuple_SetItem(all, 0, Py_NewRef((PyObject *)self));
    PyObject *done = set && all ? PyObject_Call(set, all, kwargs) : NULL;
    Py_XDECREF(set);
    Py_XDECREF(all);
    if (!done) Py_CLEAR(self);
    Py_XDECREF(done);
    return (PyObject *)self;
}

/* Takes the signatures away before it drops them, which may run any code. */
static void drop_signatures(compiled *self, int from)
{
    signature **at = self->at;
    int n = self->n;
    self->changes++;
    if (from) {
        for (int i = from; i < n; i++) {
            signature *s = at[--self->n];
            signature_drop(s);
        }
        return;
    }
    self->at = NULL;
    self->n = self->room = 0;
    for (int i = 0; i < n; i++)
        signature_drop(at[i]);
    PyMem_Free(at);
}

static int traverse(PyObject *o, visitproc visit, void *arg)
{
    compiled *self = (compiled *)o;
    Py_VISIT(Py_TYPE(o));
    Py_VISIT(self->fn);
    Py_VISIT(self->dict);
    for (int i = 0; i < self->n; i++) {
        const signature *s = self->at[i];
        Py_VISIT(s->names);
        Py_VISIT(s->defs);
        Py_VISIT(s->out);
        Py_VISIT(s->fixed);
        for (int k = 0; k < s->nleaves; k++)
            Py_VISIT(s->leaf[k].value);
    }
    return 0;
}

static int clear(PyObject *o)
{
    compiled *self = (compiled *)o;
    drop_signatures(self, 0);
    Py_CLEAR(self->fn);
    Py_CLEAR(self->dict);
    return 0;
}

static void dealloc(PyObject *o)
{
    compiled *self = (compiled *)o;
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    if (self->weakrefs) PyObject_ClearWeakRefs(o);
    if (self->after) self->after->before = self->before;
    if (self->before) self->before->after = self->after;
    if (first == self) first = self->after;
    clear(o);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(o);
    Py_DECREF(type);
}

/* As a function in a class it is a method. */
static PyObject *bind(PyObject *o, PyObject *self, PyObject *type)
{
    (void)type;
    if (!self || self == Py_None) return Py_NewRef(o);
    return help("bind", PyTuple_Pack(2, o, self));
}

/* _add(...): a signature, as signature_new takes it, in front. */
static PyObject *add(PyObject *o, PyObject *args)
{
    compiled *self = (compiled *)o;
    signature *s = signature_new(args);
    if (!s) return NULL;
    if (self->n == self->room) {
        int room = self->room ? 2 * self->room : 4;
        void *more = PyMem_Realloc(self->at, (size_t)room * sizeof *self->at);
        if (!more) {
            signature_drop(s);
            return PyErr_NoMemory();
        }
        self->at = more;
        self->room = room;
    }
    memmove(self->at + 1, self->at, (size_t)self->n * sizeof *self->at);
    self->at[0] = s;
    self->n++;
    self->changes++;
    if (self->n > self->max) drop_signatures(self, self->max);
    Py_RETURN_NONE;
}

/* _count(misses, fallbacks, milliseconds) */
static PyObject *count(PyObject *o, PyObject *args)
{
    compiled *self = (compiled *)o;
    int misses, fallbacks;
    double ms;
    if (!PyArg_ParseTuple(args, "iid:_count", &misses, &fallbacks, &ms))
        return NULL;
    self->misses += misses;
    self->fallbacks += fallbacks;
    self->compile_ms += ms;
    Py_RETURN_NONE;
}

/* (hits, misses, fallbacks, ms of compiling, ms of running, signatures) */
static PyObject *counts(PyObject *o, PyObject *unused)
{
    const compiled *self = (const compiled *)o;
    (void)unused;
    return Py_BuildValue("(LLLddi)", self->hits, self->misses, self->fallbacks,
                         self->compile_ms, self->run_ms, self->n);
}

/* _set(fn, max_cache_size) */
static PyObject *set(PyObject *o, PyObject *args)
{
    compiled *self = (compiled *)o;
    PyObject *fn, *old = self->fn;
    int max;
    if (!PyArg_ParseTuple(args, "Oi:_set", &fn, &max)) return NULL;
    self->max = max;
    self->fn = Py_NewRef(fn);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

/* The executable used last, None if that ran uncompiled. */
static PyObject *latest(PyObject *o, PyObject *unused)
{
    const compiled *self = (const compiled *)o;
    (void)unused;
    if (!self->n)
        return PyErr_Format(PyExc_RuntimeError,
                            "compile: nothing is compiled yet: call the "
                            "function first, or lower it");
    PyObject *e = self->at[0]->executable;
    return Py_NewRef(e ? e : Py_None);
}

static PyObject *clear_cache(PyObject *o, PyObject *unused)
{
    (void)unused;
    drop_signatures((compiled *)o, 0);
    Py_RETURN_NONE;
}

static PyObject *get_fn(PyObject *o, void *unused)
{
    PyObject *fn = ((compiled *)o)->fn;
    (void)unused;
    return Py_NewRef(fn ? fn : Py_None);
}

static PyMethodDef compiled_methods[] = {
    {"_add", add, METH_VARARGS, NULL},
    {"_count", count, METH_VARARGS, NULL},
    {"_counts", counts, METH_NOARGS, NULL},
    {"_set", set, METH_VARARGS, NULL},
    {"_latest", latest, METH_NOARGS, NULL},
    {"clear_cache", clear_cache, METH_NOARGS,
     "clear_cache($self)\n--\n\n"
     "Drops what was compiled; the counters go on."},
    {0}};
static PyGetSetDef compiled_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"_fn", get_fn, NULL, NULL, NULL},
    {0}};
static PyMemberDef compiled_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(compiled, call), READONLY,
     NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(compiled, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(compiled, weakrefs), READONLY,
     NULL},
    {0}};
static PyType_Slot compiled_slots[] = {
    {Py_tp_new, compiled_new},         {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},        {Py_tp_clear, clear},
    {Py_tp_call, slow_call},           {Py_tp_descr_get, bind},
    {Py_tp_methods, compiled_methods}, {Py_tp_getset, compiled_getset},
    {Py_tp_members, compiled_members}, {0, NULL}};

/* Its calls take no tuple.  The flag has its name in the limited API from 3.12
 * on, and this value in 3.11 too. */
enum { HAVE_VECTORCALL = 1 << 11 };
static PyType_Spec compiled_spec = {
    .name = "nabla.CompiledFunction",
    .basicsize = sizeof(compiled),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL,
    .slots = compiled_slots,
};

/* The module's functions */

static PyObject *set_helpers(PyObject *self, PyObject *module)
{
    PyObject *old = helpers;
    (void)self;
    helpers = Py_NewRef(module);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *py_is_array(PyObject *self, PyObject *o)
{
    (void)self;
    return PyBool_FromLong(is_array(o));
}

/* is_watched(tensors): whether ops on them are being recorded. */
static PyObject *is_watched(PyObject *self, PyObject *list)
{
    int n;
    (void)self;
    nb_tensor **x = PyList_Check(list) ? nb_py_tensors(list, &n) : NULL;
    if (!x)
        return PyErr_Occurred() ? NULL
                                : PyErr_Format(PyExc_TypeError, "a list");
    bool yes = nb_is_watched(n, x);
    PyMem_Free(x);
    return PyBool_FromLong(yes);
}

static PyObject *value_asked(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyBool_FromLong(nb_value_asked());
}

/* Takes the value of a tensor away. */
static PyObject *py_donate(PyObject *self, PyObject *o)
{
    (void)self;
    if (!nb_py_is_tensor(o)) Py_RETURN_NONE;
    ENTER;
    nb_tensor *gone = nb_donated(nb_py_get(o));
    if (gone) nb_py_set_value((nb_py_tensor *)o, nb_keep(gone));
    LEAVE;
    if (!gone) return nb_py_raise();
    Py_RETURN_NONE;
}

/* Whatever is cached and can be made again. */
static PyObject *clear_caches(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *all = PyList_New(0);
    bool ok = all;
    for (compiled *c = first; ok && c; c = c->after)
        ok = PyList_Append(all, (PyObject *)c) == 0;
    for (Py_ssize_t i = 0; ok && i < PyList_Size(all); i++)
        drop_signatures((compiled *)PyList_GetItem(all, i), 0);
    Py_XDECREF(all);
    if (!ok) return NULL;
    nb_caches_clear();
    nb_memory_trim();
    Py_RETURN_NONE;
}

/* (hits in this process, hits on disk, misses, bytes) */
static PyObject *cache_stats(PyObject *self, PyObject *unused)
{
    nb_cache_stats s = nb_cache_stats_get();
    (void)self, (void)unused;
    return Py_BuildValue("(LLLL)", (long long)s.hits, (long long)s.disk_hits,
                         (long long)s.misses, (long long)s.bytes);
}

/* Why nothing is kept on disk, "" if it is. */
static PyObject *cache_trouble(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyUnicode_DecodeFSDefault(nb_cache_stats_get().trouble);
}

static PyObject *set_cache_dir(PyObject *self, PyObject *path)
{
    const char *text = NULL;
    (void)self;
    if (path != Py_None && !(text = PyUnicode_AsUTF8AndSize(path, NULL)))
        return NULL;
    if (nb_cache_folder_set(text) != NB_OK) return nb_py_raise();
    Py_RETURN_NONE;
}

/* threads(n or None): how many there are, set first if a number is given. */
static PyObject *threads(PyObject *self, PyObject *n)
{
    (void)self;
    if (n != Py_None) {
        long count = PyLong_AsLong(n);
        if (PyErr_Occurred()) return NULL;
        if (count > INT32_MAX) count = INT32_MAX;
        if (nb_set_threads((int)count) != NB_OK) return nb_py_raise();
    }
    return PyLong_FromLong(nb_threads());
}

static PyMethodDef functions[] = {
    {"set_helpers", set_helpers, METH_O, NULL},
    {"is_array", py_is_array, METH_O, NULL},
    {"is_watched", is_watched, METH_O, NULL},
    {"value_asked", value_asked, METH_NOARGS, NULL},
    {"donate", py_donate, METH_O, NULL},
    {"clear_caches", clear_caches, METH_NOARGS, NULL},
    {"cache_stats", cache_stats, METH_NOARGS, NULL},
    {"cache_trouble", cache_trouble, METH_NOARGS, NULL},
    {"set_cache_dir", set_cache_dir, METH_O, NULL},
    {"threads", threads, METH_O, NULL},
    {0}};

int nb_py_compile_add(PyObject *module)
{
    Executable = (PyTypeObject *)PyType_FromSpec(&executable_spec);
    Compiled = (PyTypeObject *)PyType_FromSpec(&compiled_spec);
    if (!Executable || !Compiled ||
        PyModule_AddFunctions(module, functions) < 0 ||
        PyModule_AddObjectRef(module, "Executable", (PyObject *)Executable) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "CompiledFunction",
                                 (PyObject *)Compiled);
}
