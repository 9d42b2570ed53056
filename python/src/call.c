/* call.c - every op of the catalogue as a Python function and a method.
 *
 * Nothing here knows an op: what arguments it takes is asked of the engine
 * once, and a call is bound to them as Python would. */
#include "py.h"

#include <string.h>

enum { MAX_ARGS = 12, MAX_PARTS = 1 << 24 };

typedef struct function {
    nb_op *op;
    PyMethodDef def;
    int n;
    nb_arg arg[MAX_ARGS];
    PyObject *name[MAX_ARGS]; /* interned */
} function;

/* Tensors and values of one call. */
typedef struct bound {
    int nin, nval;
    nb_tensor *few[8], **in;
    nb_value val[MAX_ARGS];
    int64_t list[MAX_ARGS][40];
} bound;

/* In place of an exception that may be set: what is too large stays that. */
static bool wrong_type(const function *f, int i, const char *what)
{
    bool huge = PyErr_ExceptionMatches(PyExc_OverflowError);
    const char *room = f->arg[i].kind == NB_ARG_FLOAT ? "float64" : "int64";
    PyErr_Format(huge ? PyExc_OverflowError : PyExc_TypeError,
                 "%s: %s must be %s%s%s", f->def.ml_name, f->arg[i].name, what,
                 huge ? " within " : "", huge ? room : "");
    return false;
}

static bool bind_tensors(const function *f, PyObject *o, bound *b)
{
    if (nb_py_is_tensor(o) || (!PyList_Check(o) && !PyTuple_Check(o))) {
        PyErr_Format(PyExc_TypeError, "%s: a list or tuple of tensors",
                     f->def.ml_name);
        return false;
    }
    Py_ssize_t n = PySequence_Size(o);
    if (n > MAX_PARTS) {
        PyErr_Format(PyExc_ValueError, "%s: %zd tensors, at most %d",
                     f->def.ml_name, n, MAX_PARTS);
        return false;
    }
    if (n > 8) b->in = PyMem_Malloc((size_t)n * sizeof *b->in);
    if (!b->in) return PyErr_NoMemory(), false;
    for (Py_ssize_t k = 0; k < n; k++) {
        PyObject *item = PySequence_GetItem(o, k);
        nb_tensor *x = item ? nb_py_operand(item) : NULL;
        /* the list keeps a tensor alive, a converted one is lent */
        Py_XDECREF(item);
        if (!x) return false;
        b->in[b->nin++] = x;
    }
    return true;
}

static bool bind_value(const function *f, int i, PyObject *o, nb_value *v,
                       int64_t *room)
{
    nb_dtype d;
    if (o == Py_None) return v->kind = NB_VALUE_NONE, true;
    v->kind = NB_VALUE_INT;
    switch (f->arg[i].kind) {
    case NB_ARG_BOOL: v->i = PyObject_IsTrue(o); return v->i >= 0;
    case NB_ARG_FLOAT:
        v->kind = NB_VALUE_FLOAT;
        v->f = PyFloat_AsDouble(o);
        return !PyErr_Occurred() || wrong_type(f, i, "a number");
    case NB_ARG_DTYPE:
        v->i = nb_py_dtype(o, &d) ? (int64_t)d : -1;
        return v->i >= 0;
    case NB_ARG_TEXT:
        v->kind = NB_VALUE_TEXT;
        v->text = PyUnicode_Check(o) ? PyUnicode_AsUTF8AndSize(o, NULL) : NULL;
        return v->text || wrong_type(f, i, "a string");
    case NB_ARG_AXES:
    case NB_ARG_INTS:
        v->kind = NB_VALUE_LIST;
        v->list = room;
        return nb_py_ints(o, room, 40, &v->n) ||
               (PyErr_ExceptionMatches(PyExc_TypeError) ||
                        PyErr_ExceptionMatches(PyExc_OverflowError)
                    ? wrong_type(f, i, "an int or a sequence of ints")
                    : false);
    default: {
        PyObject *whole = PyNumber_Index(o);
        v->i = whole ? PyLong_AsLongLong(whole) : -1;
        Py_XDECREF(whole);
        return !PyErr_Occurred() || wrong_type(f, i, "an int");
    }
    }
}

/* beside: an argument that is a Tensor, if there is one */
static bool bind_one(const function *f, int i, PyObject *o, PyObject *beside,
                     bound *b)
{
    nb_arg_kind kind = f->arg[i].kind;
    if (kind == NB_ARG_TENSORS) return bind_tensors(f, o, b);
    if (kind == NB_ARG_TENSOR) {
        if (o == Py_None && f->arg[i].optional) return true;
        nb_tensor *x = nb_py_operand_beside(o, beside);
        if (!x) return false;
        b->in[b->nin++] = x;
        return true;
    }
    return bind_value(f, i, o, &b->val[b->nval], b->list[b->nval]);
}

static int find_name(const function *f, PyObject *name)
{
    for (int i = 0; i < f->n; i++)
        if (f->name[i] == name) return i;
    for (int i = 0; i < f->n; i++)
        if (PyUnicode_Compare(f->name[i], name) == 0) return i;
    return -1;
}

/* Arguments by place, as Python binds them. */
static bool place(const function *f, PyObject *const *args, Py_ssize_t n,
                  PyObject *names, PyObject **at)
{
    Py_ssize_t nnames = names ? PyTuple_Size(names) : 0;
    int positional = 0;
    while (positional < f->n && !f->arg[positional].keyword_only)
        positional++;
    memset(at, 0, MAX_ARGS * sizeof *at);
    if (n > positional) {
        PyErr_Format(PyExc_TypeError,
                     "%s takes %d positional arguments but %zd were given",
                     f->def.ml_name, positional, n);
        return false;
    }
    for (Py_ssize_t i = 0; i < n; i++)
        at[i] = args[i];
    for (Py_ssize_t k = 0; k < nnames; k++) {
        PyObject *name = PyTuple_GetItem(names, k);
        int i = find_name(f, name);
        if (i < 0 || at[i]) {
            PyErr_Format(
                PyExc_TypeError, "%s got %s argument '%U'", f->def.ml_name,
                i < 0 ? "an unexpected keyword" : "several values for", name);
            return false;
        }
        at[i] = args[n + k];
    }
    return true;
}

static bool bind(const function *f, PyObject *const *at, bound *b)
{
    PyObject *beside = NULL;
    for (int i = 0; i < f->n && !beside; i++)
        if (at[i] && nb_py_is_tensor(at[i])) beside = at[i];
    for (int i = 0; i < f->n; i++) {
        nb_arg_kind kind = f->arg[i].kind;
        bool tensor = kind == NB_ARG_TENSOR || kind == NB_ARG_TENSORS;
        if (!at[i] && !f->arg[i].optional) {
            PyErr_Format(PyExc_TypeError, "%s is missing argument '%s'",
                         f->def.ml_name, f->arg[i].name);
            return false;
        }
        if (at[i] && !bind_one(f, i, at[i], beside, b)) return false;
        if (!at[i] && !tensor) b->val[b->nval].kind = NB_VALUE_DEFAULT;
        if (!tensor) b->nval++;
    }
    return true;
}

/* One tensor, a tuple, or a list, as the op says. */
static PyObject *results(nb_op *op, int n, nb_tensor **out)
{
    int fixed = nb_op_results(op);
    if (fixed == 1) return nb_py_wrap(out[0]);
    PyObject *all = fixed ? PyTuple_New(n) : PyList_New(n);
    for (int k = 0; all && k < n; k++) {
        PyObject *y = nb_py_wrap(out[k]);
        if (!y) {
            Py_DECREF(all);
            return NULL;
        }
        if (fixed)
            PyTuple_SetItem(all, k, y);
        else
            PyList_SetItem(all, k, y);
    }
    return all;
}

/* Room for the results of an op that gives a list: as many as it has inputs,
 * or axes, or as an axis has elements, or as an argument asks for. */
static int room_for(const bound *b)
{
    int64_t n = 16 + b->nin;
    for (int i = 0; i < b->nin; i++)
        for (int d = 0; d < nb_rank(b->in[i]); d++)
            if (nb_size(b->in[i], d) > n) n = nb_size(b->in[i], d);
    for (int i = 0; i < b->nval; i++)
        if (b->val[i].kind == NB_VALUE_INT && b->val[i].i > n) n = b->val[i].i;
    return n > MAX_PARTS ? MAX_PARTS : (int)n;
}

static PyObject *run(const function *f, bound *b)
{
    nb_tensor *few[8], **out = few;
    int n = 8;
    PyObject *y = NULL;
    if (nb_op_results(f->op) == 0) {
        n = room_for(b);
        out = PyMem_Malloc((size_t)n * sizeof *out);
        if (!out) return PyErr_NoMemory();
    }
    nb_py_locate();
    if (nb_op_call(f->op, b->nin, b->in, b->nval, b->val, &n, out) == NB_OK)
        y = results(f->op, n, out);
    else
        nb_py_raise();
    if (out != few) PyMem_Free(out);
    return y;
}

static PyObject *apply(const function *f, PyObject *const *args, Py_ssize_t n,
                       PyObject *names)
{
    PyObject *at[MAX_ARGS], *y = NULL;
    bound b;
    b.nin = b.nval = 0;
    b.in = b.few;
    if (!place(f, args, n, names, at)) return NULL;
    ENTER;
    if (bind(f, at, &b))
        y = run(f, &b);
    else
        nb_py_raise();
    LEAVE;
    if (b.in != b.few) PyMem_Free(b.in);
    return y;
}

/* What a function of the module is bound to: its op.  A function is pickled as
 * an attribute of this, which stands for the whole catalogue. */

typedef struct home {
    PyObject_HEAD const function *f;
} home;
static PyTypeObject *Home;
static PyObject *functions; /* name to function */

static PyObject *call_function(PyObject *self, PyObject *const *args,
                               Py_ssize_t n, PyObject *names)
{
    return apply(((const home *)self)->f, args, n, names);
}

static void home_dealloc(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    PyObject_Free(o);
    Py_DECREF(type);
}

static PyObject *home_get(PyObject *o, PyObject *name)
{
    PyObject *f = PyDict_GetItemWithError(functions, name);
    Py_XINCREF(f);
    return f || PyErr_Occurred() ? f : PyObject_GenericGetAttr(o, name);
}

static PyObject *home_reduce(PyObject *o, PyObject *unused)
{
    (void)o, (void)unused;
    PyObject *module = PyImport_ImportModule("nabla._nabla");
    PyObject *make = module ? PyObject_GetAttrString(module, "_home") : NULL;
    Py_XDECREF(module);
    return make ? Py_BuildValue("N()", make) : NULL;
}

static PyMethodDef home_methods[] = {
    {"__reduce__", home_reduce, METH_NOARGS, NULL}, {0}};
static PyType_Slot home_slots[] = {{Py_tp_dealloc, home_dealloc},
                                   {Py_tp_getattro, home_get},
                                   {Py_tp_methods, home_methods},
                                   {0, NULL}};
static PyType_Spec home_spec = {
    .name = "nabla.op",
    .basicsize = sizeof(home),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = home_slots,
};

static PyObject *home_new(const function *f)
{
    home *h = PyObject_New(home, Home);
    if (h) h->f = f;
    return (PyObject *)h;
}

PyObject *nb_py_home(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return home_new(NULL);
}

/* Methods: a descriptor that binds the tensor as the first argument. */

typedef struct method {
    PyObject_HEAD const function *f;
    PyObject *self; /* NULL while unbound */
} method;
static PyTypeObject *Method;

static PyObject *method_new(const function *f, PyObject *self)
{
    method *m = PyObject_New(method, Method);
    if (!m) return NULL;
    m->f = f;
    Py_XINCREF(self);
    m->self = self;
    return (PyObject *)m;
}

static void method_dealloc(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    Py_XDECREF(((method *)o)->self);
    PyObject_Free(o);
    Py_DECREF(type);
}

static PyObject *method_get(PyObject *o, PyObject *self, PyObject *type)
{
    (void)type;
    if (!self || self == Py_None) {
        Py_INCREF(o);
        return o;
    }
    return method_new(((method *)o)->f, self);
}

static PyObject *method_call(PyObject *o, PyObject *args, PyObject *kwargs)
{
    const method *m = (const method *)o;
    PyObject *flat[2 * MAX_ARGS], *names = NULL, *key, *value, *y;
    Py_ssize_t n = 0, given = PyTuple_Size(args), at = 0, k = 0;
    Py_ssize_t extra = kwargs ? PyDict_Size(kwargs) : 0;
    if (given + 1 > MAX_ARGS || extra > MAX_ARGS)
        return PyErr_Format(PyExc_TypeError, "%s got too many arguments",
                            m->f->def.ml_name);
    if (m->self) flat[n++] = m->self;
    for (Py_ssize_t i = 0; i < given; i++)
        flat[n++] = PyTuple_GetItem(args, i);
    if (extra && !(names = PyTuple_New(extra))) return NULL;
    while (extra && PyDict_Next(kwargs, &at, &key, &value)) {
        Py_INCREF(key);
        PyTuple_SetItem(names, k, key);
        flat[n + k++] = value;
    }
    y = apply(m->f, flat, n, names);
    Py_XDECREF(names);
    return y;
}

static PyObject *method_repr(PyObject *o)
{
    return PyUnicode_FromFormat("<method '%s' of 'nabla.Tensor'>",
                                ((method *)o)->f->def.ml_name);
}

static PyObject *method_name(PyObject *o, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(((method *)o)->f->def.ml_name);
}

static PyObject *method_doc(PyObject *o, void *unused)
{
    const char *text = ((method *)o)->f->def.ml_doc;
    const char *body = strstr(text, "--\n\n");
    (void)unused;
    return PyUnicode_FromString(body ? body + 4 : text);
}

/* "($self, axis=-1)", for inspect. */
static PyObject *method_signature(PyObject *o, void *unused)
{
    const char *text = strchr(((method *)o)->f->def.ml_doc, '(');
    const char *rest = text + strcspn(text, ",)");
    Py_ssize_t n = strstr(text, ")\n--\n\n") + 1 - rest;
    PyObject *tail = PyUnicode_FromStringAndSize(rest, n), *all;
    (void)unused;
    all = tail ? PyUnicode_FromFormat("($self%U", tail) : NULL;
    Py_XDECREF(tail);
    return all;
}

static PyObject *method_self(PyObject *o, void *unused)
{
    PyObject *self = ((method *)o)->self;
    (void)unused;
    self = self ? self : Py_None;
    Py_INCREF(self);
    return self;
}

static PyGetSetDef method_getset[] = {
    {"__text_signature__", method_signature, NULL, NULL, NULL},
    {"__self__", method_self, NULL, NULL, NULL},
    {"__name__", method_name, NULL, NULL, NULL},
    {"__qualname__", method_name, NULL, NULL, NULL},
    {"__doc__", method_doc, NULL, NULL, NULL},
    {0}};
static PyType_Slot method_slots[] = {
    {Py_tp_dealloc, method_dealloc}, {Py_tp_call, method_call},
    {Py_tp_descr_get, method_get},   {Py_tp_repr, method_repr},
    {Py_tp_getset, method_getset},   {0, NULL}};
static PyType_Spec method_spec = {
    .name = "nabla.method",
    .basicsize = sizeof(method),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = method_slots,
};

/* "softmax(x, axis=-1)": the parameters without kinds, for inspect. */
static PyObject *doc_of(nb_op *op)
{
    char text[512];
    size_t n = 0;
    bool kind = false;
    for (const char *s = nb_op_params(op); *s && n < sizeof text - 1; s++) {
        if (*s == ':') kind = true; /* up to the default */
        if (*s == '=' || *s == ',') kind = false;
        if (!kind) text[n++] = *s;
    }
    text[n] = '\0';
    const char *axes = nb_op_signature(op);
    return PyUnicode_FromFormat("%s(%s)\n--\n\n%s\n\nExample: ``%s``\n%s%s%s",
                                nb_op_name(op), text, nb_op_doc(op),
                                nb_op_example(op), *axes ? "\nAxes: ``" : "",
                                axes, *axes ? "``\n" : "");
}

static const function *function_new(nb_op *op)
{
    function *f = PyMem_Calloc(1, sizeof *f); /* lives as long as the module */
    PyObject *doc = f ? doc_of(op) : NULL;
    const char *text = doc ? PyUnicode_AsUTF8AndSize(doc, NULL) : NULL;
    if (!text) return NULL;
    f->op = op;
    f->def = (PyMethodDef){nb_op_name(op),
                           (PyCFunction)(void (*)(void))call_function,
                           METH_FASTCALL | METH_KEYWORDS, text};
    while (f->n < MAX_ARGS && nb_op_arg(op, f->n, &f->arg[f->n])) {
        f->name[f->n] = PyUnicode_InternFromString(f->arg[f->n].name);
        if (!f->name[f->n]) return NULL;
        f->n++;
    }
    return f;
}

static int add_function(PyObject *ops, PyObject *methods, nb_op *op)
{
    const function *f = function_new(op);
    PyObject *self = f ? home_new(f) : NULL;
    PyObject *module = PyUnicode_InternFromString("nabla");
    PyObject *y =
        self ? PyCFunction_NewEx((PyMethodDef *)&f->def, self, module) : NULL;
    PyObject *m = f ? method_new(f, NULL) : NULL;
    int bad = !y || !m || PyDict_SetItemString(ops, f->def.ml_name, y) < 0 ||
              (f->n && f->arg[0].kind == NB_ARG_TENSOR &&
               PyDict_SetItemString(methods, f->def.ml_name, m) < 0);
    Py_XDECREF(self);
    Py_XDECREF(module);
    Py_XDECREF(y);
    Py_XDECREF(m);
    return bad ? -1 : 0;
}

/* `ops`, name to function, and `methods`, name to descriptor. */
int nb_py_ops_add(PyObject *module)
{
    PyObject *ops = PyDict_New(), *methods = PyDict_New();
    Method = (PyTypeObject *)PyType_FromSpec(&method_spec);
    Home = (PyTypeObject *)PyType_FromSpec(&home_spec);
    int bad = !ops || !methods || !Method || !Home;
    functions = ops; /* kept for good */
    Py_XINCREF(functions);
    for (int i = 0; !bad && nb_op_at(i); i++)
        if (nb_op_is_public(nb_op_at(i)))
            bad = add_function(ops, methods, nb_op_at(i)) < 0;
    if (bad && !PyErr_Occurred()) nb_py_raise();
    bad = bad || PyModule_AddObjectRef(module, "ops", ops) < 0 ||
          PyModule_AddObjectRef(module, "methods", methods) < 0;
    Py_XDECREF(ops);
    Py_XDECREF(methods);
    return bad ? -1 : 0;
}
