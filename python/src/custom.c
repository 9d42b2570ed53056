/* custom.c - ops and kernels of the user's own, whose functions are Python's.
 *
 * An op is made for every call and goes with what the call recorded; its ctx is
 * a tuple of functions on lists of tensors: the kernel, the vjp rule and the jvp
 * rule, None for one that is not there. */
#include "py.h"

enum { KERNEL, VJP, JVP, MAX_OUT = 64, MAX_ATTRS = 64 };

static nb_status body(const nb_applied *c, int *n, nb_tensor **out)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *f = PyTuple_GetItem(c->ctx, KERNEL);
    nb_status s = nb_py_body(f, c->nin, c->in, n, out);
    PyGILState_Release(state);
    return s;
}

/* What a rule gives: a list as long as it has to be, None for zero. */
static bool take(PyObject *list, int n, nb_tensor **to)
{
    int found;
    nb_tensor **x = nb_py_tensors(list, &found);
    bool ok = x && found == n;
    if (x && !ok)
        PyErr_Format(PyExc_ValueError, "%d entries, not %d", found, n);
    for (int k = 0; ok && k < n; k++)
        to[k] = x[k] ? nb_give(nb_keep(x[k])) : NULL;
    PyMem_Free(x);
    return ok;
}

static nb_status rule(const nb_applied *c, int which, int nfrom,
                      nb_tensor *const *from, int nto, nb_tensor **to)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *list[] = {nb_py_list(c->nin, c->in), nb_py_list(nfrom, from),
                        nb_py_list(c->nout, c->out)};
    PyObject *out = NULL;
    if (list[0] && list[1] && list[2])
        out = PyObject_CallFunctionObjArgs(PyTuple_GetItem(c->ctx, which),
                                           list[0], list[1], list[2], NULL);
    bool ok = out && take(out, nto, to);
    for (int k = 0; k < 3; k++)
        Py_XDECREF(list[k]);
    Py_XDECREF(out);
    nb_status s = ok ? NB_OK : nb_py_failed();
    PyGILState_Release(state);
    return s;
}

static nb_status vjp(const nb_applied *c, nb_tensor *const *ct, nb_tensor **cx)
{
    return rule(c, VJP, c->nout, ct, c->nin, cx);
}

static nb_status jvp(const nb_applied *c, nb_tensor *const *u, nb_tensor **uy)
{
    return rule(c, JVP, c->nin, u, c->nout, uy);
}

/* Whichever thread drops the last node. */
static void release(void *ctx)
{
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)ctx);
    PyGILState_Release(state);
}

/* Operands of a list, lent; to PyMem_Free. */
static nb_tensor **operands(PyObject *list, int *n)
{
    PyObject *beside = NULL;
    *n = (int)PyList_Size(list);
    nb_tensor **x = PyMem_Calloc((size_t)*n + 1, sizeof *x);
    if (!x) return (void)PyErr_NoMemory(), NULL;
    for (int i = 0; i < *n && !beside; i++)
        if (nb_py_is_tensor(PyList_GetItem(list, i)))
            beside = PyList_GetItem(list, i);
    for (int i = 0; i < *n; i++)
        if (!(x[i] = nb_py_operand_beside(PyList_GetItem(list, i), beside))) {
            PyMem_Free(x);
            return NULL;
        }
    return x;
}

static PyObject *apply(const nb_op_spec *spec, PyObject *list)
{
    nb_tensor *out[MAX_OUT], **x = NULL;
    int nin, nout = MAX_OUT;
    PyObject *y = NULL;
    ENTER;
    nb_op *op = (x = operands(list, &nin)) ? nb_op_new(spec) : NULL;
    if (op) Py_INCREF((PyObject *)spec->ctx); /* the op's */
    if (op) nb_py_locate();
    if (op && nb_op_call(op, nin, x, 0, NULL, &nout, out) == NB_OK)
        y = nb_py_list(nout, out);
    nb_op_drop(op);
    LEAVE;
    PyMem_Free(x);
    return y ? y : nb_py_raise();
}

/* operation(name, signature or None, together, linear, functions, tensors):
 * together if inputs are promoted and broadcast to one type; linear is a mask
 * of inputs, -1 for all of them together. */
static PyObject *operation(PyObject *self, PyObject *args)
{
    const char *name, *signature;
    PyObject *f, *list;
    int together;
    long linear;
    (void)self;
    if (!PyArg_ParseTuple(args, "szplO!O!:operation", &name, &signature,
                          &together, &linear, &PyTuple_Type, &f, &PyList_Type,
                          &list))
        return NULL;
    nb_op_spec spec = {.name = name,
                       .signature = signature,
                       .nin = (int)PyList_Size(list),
                       .nout = -1,
                       .in = together ? NB_IN_COMMON : NB_IN_ANY,
                       .broadcast = together,
                       .whole = true,
                       .body = body,
                       .linear = (unsigned)linear,
                       .ctx = f,
                       .release = release};
    if (PyTuple_GetItem(f, VJP) != Py_None) spec.vjp = vjp;
    if (PyTuple_GetItem(f, JVP) != Py_None) spec.jvp = jvp;
    return apply(&spec, list);
}

/* Kernels of C sources */

static bool read_type(PyObject *pair, nb_type *t)
{
    PyObject *shape, *dtype;
    return PyArg_ParseTuple(pair, "OO", &shape, &dtype) &&
           nb_py_ints(shape, t->shape, NB_TYPE_RANK, &t->rank) &&
           nb_py_dtype(dtype, &t->dtype);
}

static bool read_attr(PyObject *pair, nb_named *a)
{
    PyObject *v;
    if (!PyArg_ParseTuple(pair, "sO", &a->name, &v)) return false;
    if (PyFloat_Check(v))
        a->value = (nb_value){.kind = NB_VALUE_FLOAT, .f = PyFloat_AsDouble(v)};
    else
        a->value = (nb_value){.kind = NB_VALUE_INT, .i = PyLong_AsLongLong(v)};
    return !PyErr_Occurred();
}

typedef struct call {
    const char *path[64];
    nb_kernel_source source;
    nb_type type[MAX_OUT];
    nb_named attr[MAX_ATTRS];
    int nout, nattr;
} call;

static bool fill(call *c, PyObject *paths, PyObject *types, PyObject *attrs)
{
    bool ok = PyList_Size(paths) <= 64 && PyList_Size(types) <= MAX_OUT &&
              PyList_Size(attrs) <= MAX_ATTRS;
    if (!ok) PyErr_SetString(PyExc_ValueError, "call_custom_kernel: too many");
    c->source.path = c->path;
    for (Py_ssize_t i = 0; ok && i < PyList_Size(paths); i++) {
        PyObject *text = PyList_GetItem(paths, i);
        c->path[c->source.npaths++] = PyUnicode_AsUTF8AndSize(text, NULL);
        ok = c->path[i];
    }
    for (Py_ssize_t i = 0; ok && i < PyList_Size(types); i++)
        ok = read_type(PyList_GetItem(types, i), &c->type[c->nout++]);
    for (Py_ssize_t i = 0; ok && i < PyList_Size(attrs); i++)
        ok = read_attr(PyList_GetItem(attrs, i), &c->attr[c->nattr++]);
    return ok;
}

static PyObject *run(call *c, PyObject *list)
{
    nb_tensor *out[MAX_OUT], **x;
    PyObject *y = NULL;
    int n;
    ENTER;
    x = operands(list, &n);
    if (x) nb_py_locate();
    if (x && nb_kernel_call(&c->source, n, x, c->nattr, c->attr, c->nout,
                            c->type, out) == NB_OK)
        y = nb_py_list(c->nout, out);
    LEAVE;
    PyMem_Free(x);
    return y ? y : nb_py_raise();
}

/* kernel_call(name, paths, values, [(shape, dtype)], [(name, number)]) */
static PyObject *kernel_call(PyObject *self, PyObject *args)
{
    PyObject *paths, *values, *types, *attrs, *y = NULL;
    const char *name;
    (void)self;
    if (!PyArg_ParseTuple(args, "sO!O!O!O!:kernel_call", &name, &PyList_Type,
                          &paths, &PyList_Type, &values, &PyList_Type, &types,
                          &PyList_Type, &attrs))
        return NULL;
    call *c = PyMem_Calloc(1, sizeof *c);
    if (!c) return PyErr_NoMemory();
    c->source.name = name;
    if (fill(c, paths, types, attrs)) y = run(c, values);
    PyMem_Free(c);
    return y;
}

static PyMethodDef functions[] = {
    {"operation", operation, METH_VARARGS, NULL},
    {"kernel_call", kernel_call, METH_VARARGS, NULL},
    {0}};

int nb_py_custom_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
