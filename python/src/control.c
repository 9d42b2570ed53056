/* control.c - loops, branches and custom derivatives whose functions are
 * Python's.
 *
 * A function is called with a list of tensors while something is recorded, and
 * returns a list of tensors; trees are taken apart and put together in Python.
 * What it raises stays set while the engine unwinds, and comes out as it is. */
#include "py.h"

enum { MAX_RESULTS = 4096 };

/* The results outlive the list: each is lent by the scope of the call. */
static bool results(PyObject *list, int *ny, nb_tensor **y)
{
    int n;
    nb_tensor **x = PyList_Check(list) ? nb_py_tensors(list, &n) : NULL;
    if (!x) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a body returns a list");
        return false;
    }
    bool ok = n <= *ny;
    if (!ok)
        PyErr_Format(PyExc_ValueError, "a body has %d results, at most %d", n,
                     *ny);
    for (int k = 0; ok && k < n; k++)
        ok = (y[k] = nb_give(nb_keep(x[k])));
    *ny = n;
    PyMem_Free(x);
    return ok;
}

static nb_status body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *list = nb_py_list(nx, x);
    PyObject *out = list ? PyObject_CallFunctionObjArgs(ctx, list, NULL) : NULL;
    bool ok = out && results(out, ny, y);
    Py_XDECREF(list);
    Py_XDECREF(out);
    PyGILState_Release(state);
    if (ok) return NB_OK;
    if (!nb_error_code())
        nb_error_raise(NB_ERUNTIME, "a function of Python failed");
    return nb_error_code();
}

/* Room for the results of a call, which n says in and out. */
static nb_tensor **room(int *n)
{
    *n = MAX_RESULTS;
    nb_tensor **y = PyMem_Malloc(MAX_RESULTS * sizeof *y);
    if (!y) PyErr_NoMemory();
    return y;
}

/* cond(pred, yes, no, operands) */
static PyObject *cond(PyObject *self, PyObject *args)
{
    PyObject *pred, *yes, *no, *list, *out = NULL;
    int nx, ny;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!OOO!:cond", nb_py_Tensor, &pred, &yes, &no,
                          &PyList_Type, &list))
        return NULL;
    nb_tensor **x = nb_py_tensors(list, &nx), **y = x ? room(&ny) : NULL;
    if (y && nb_scope_open() == NB_OK) {
        nb_py_locate();
        if (nb_cond(nb_py_get(pred), nb_func_new(body, yes),
                    nb_func_new(body, no), nx, x, &ny, y) == NB_OK)
            out = nb_py_list(ny, y);
        LEAVE;
    }
    if (!out) nb_py_raise();
    PyMem_Free(x);
    PyMem_Free(y);
    return out;
}

/* while_loop(test, body, states) */
static PyObject *while_loop(PyObject *self, PyObject *args)
{
    PyObject *test, *step, *list, *out = NULL;
    int n, ny;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO!:while_loop", &test, &step, &PyList_Type,
                          &list))
        return NULL;
    nb_tensor **x = nb_py_tensors(list, &n), **y = x ? room(&ny) : NULL;
    if (y && nb_scope_open() == NB_OK) {
        nb_py_locate();
        if (nb_while(nb_func_new(body, test), nb_func_new(body, step), n, x,
                     y) == NB_OK)
            out = nb_py_list(n, y);
        LEAVE;
    }
    if (!out) nb_py_raise();
    PyMem_Free(x);
    PyMem_Free(y);
    return out;
}

/* scan(f, init, xs, length, reverse) */
static PyObject *scan(PyObject *self, PyObject *args)
{
    PyObject *f, *init, *xs, *out = NULL;
    long long length;
    int reverse, ninit, nxs, ny;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!O!Lp:scan", &f, &PyList_Type, &init,
                          &PyList_Type, &xs, &length, &reverse))
        return NULL;
    nb_tensor **a = nb_py_tensors(init, &ninit);
    nb_tensor **b = a ? nb_py_tensors(xs, &nxs) : NULL;
    nb_tensor **y = b ? room(&ny) : NULL;
    if (y && nb_scope_open() == NB_OK) {
        nb_py_locate();
        if (nb_scan(nb_func_new(body, f), ninit, a, nxs, b, length, reverse,
                    &ny, y) == NB_OK)
            out = nb_py_list(ny, y);
        LEAVE;
    }
    if (!out) nb_py_raise();
    PyMem_Free(a);
    PyMem_Free(b);
    PyMem_Free(y);
    return out;
}

/* Custom derivatives: the engine calls the rules when it walks, which may be
 * long after, and lets go of them in whichever thread drops the last node. */

static void release(void *f)
{
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)f);
    PyGILState_Release(state);
}

static nb_func *lasting(PyObject *f)
{
    return nb_func_owning(body, Py_NewRef(f), release);
}

/* The engine's name for what nabla.transforms calls by the same. */
static nb_func *customized(const char *kind, PyObject *const *f)
{
    switch (*kind) {
    case 'v': return nb_custom_vjp(lasting(f[0]), lasting(f[1]), lasting(f[2]));
    case 'j': return nb_custom_jvp(lasting(f[0]), lasting(f[1]));
    default: return nb_checkpoint(lasting(f[0]));
    }
}

/* custom(kind, f, first, second, arguments): "vjp" has fwd and bwd, "jvp" a
 * rule and None, "checkpoint" neither. */
static PyObject *custom(PyObject *self, PyObject *args)
{
    PyObject *f[3], *list, *out = NULL;
    const char *kind;
    int nx, ny;
    (void)self;
    if (!PyArg_ParseTuple(args, "sOOOO!:custom", &kind, &f[0], &f[1], &f[2],
                          &PyList_Type, &list))
        return NULL;
    nb_tensor **x = nb_py_tensors(list, &nx), **y = x ? room(&ny) : NULL;
    if (y && nb_scope_open() == NB_OK) {
        nb_py_locate();
        nb_func *g = customized(kind, f);
        if (g && nb_func_call(g, nx, x, &ny, y) == NB_OK)
            out = nb_py_list(ny, y);
        LEAVE;
    }
    if (!out) nb_py_raise();
    PyMem_Free(x);
    PyMem_Free(y);
    return out;
}

PyMethodDef nb_py_control_functions[] = {
    {"cond", cond, METH_VARARGS, NULL},
    {"while_loop", while_loop, METH_VARARGS, NULL},
    {"scan", scan, METH_VARARGS, NULL},
    {"custom", custom, METH_VARARGS, NULL},
    {0}};
