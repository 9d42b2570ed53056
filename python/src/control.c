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

nb_status nb_py_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                     nb_tensor **y)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *list = nb_py_list(nx, x);
    PyObject *out = list ? PyObject_CallFunctionObjArgs(ctx, list, NULL) : NULL;
    bool ok = out && results(out, ny, y);
    Py_XDECREF(list);
    Py_XDECREF(out);
    nb_status s = ok ? NB_OK : nb_py_failed();
    PyGILState_Release(state);
    return s;
}

/* The tensor of an object, which a body may give another value meanwhile. */
static nb_tensor *lent(PyObject *o)
{
    return nb_give(nb_keep(nb_py_get(o)));
}

/* A call of the engine: its tensors, lent, and room for its results. */
typedef struct job {
    int nx, ny;
    nb_tensor **x, **y;
    bool open;
} job;

static bool job_begin(job *j, PyObject *list)
{
    *j = (job){0};
    j->x = nb_py_tensors(list, &j->nx);
    if (!j->x) return false;
    j->ny = j->nx + MAX_RESULTS;
    j->y = PyMem_Malloc((size_t)j->ny * sizeof *j->y);
    if (!j->y) PyErr_NoMemory();
    j->open = j->y && nb_scope_open() == NB_OK;
    bool ok = j->open;
    for (int i = 0; ok && i < j->nx; i++)
        ok = nb_give(nb_keep(j->x[i]));
    if (ok) nb_py_locate();
    return ok;
}

static PyObject *job_end(job *j, bool ok)
{
    PyObject *out = ok ? nb_py_list(j->ny, j->y) : NULL;
    if (j->open) LEAVE;
    if (!out) nb_py_raise();
    PyMem_Free(j->x);
    PyMem_Free(j->y);
    return out;
}

/* cond(pred, yes, no, operands) */
static PyObject *cond(PyObject *self, PyObject *args)
{
    PyObject *pred, *yes, *no, *list;
    job j;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!OOO!:cond", nb_py_Tensor, &pred, &yes, &no,
                          &PyList_Type, &list))
        return NULL;
    bool ok =
        job_begin(&j, list) &&
        nb_cond(lent(pred), nb_func_new(nb_py_body, yes),
                nb_func_new(nb_py_body, no), j.nx, j.x, &j.ny, j.y) == NB_OK;
    return job_end(&j, ok);
}

/* switch(index, branches, operands) */
static PyObject *choose(PyObject *self, PyObject *args)
{
    PyObject *index, *branches, *list;
    job j;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!O!:switch", nb_py_Tensor, &index,
                          &PyList_Type, &branches, &PyList_Type, &list))
        return NULL;
    int n = (int)PyList_Size(branches);
    nb_func **f = PyMem_Calloc((size_t)n + 1, sizeof *f);
    bool ok = job_begin(&j, list) && f;
    for (int i = 0; ok && i < n; i++)
        f[i] = nb_func_new(nb_py_body, PyList_GetItem(branches, i));
    ok = ok && nb_switch(lent(index), n, f, j.nx, j.x, &j.ny, j.y) == NB_OK;
    PyMem_Free(f);
    return job_end(&j, ok);
}

/* while_loop(test, body, states) */
static PyObject *while_loop(PyObject *self, PyObject *args)
{
    PyObject *test, *step, *list;
    job j;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOO!:while_loop", &test, &step, &PyList_Type,
                          &list))
        return NULL;
    bool ok = job_begin(&j, list) &&
              nb_while(nb_func_new(nb_py_body, test),
                       nb_func_new(nb_py_body, step), j.nx, j.x, j.y) == NB_OK;
    j.ny = j.nx;
    return job_end(&j, ok);
}

static nb_tensor *bound(PyObject *o)
{
    return nb_py_is_tensor(o) ? lent(o) : nb_py_operand(o);
}

/* fori_loop(lower, upper, body, states); a bound may be a number */
static PyObject *fori_loop(PyObject *self, PyObject *args)
{
    PyObject *lower, *upper, *step, *list;
    job j;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOO!:fori_loop", &lower, &upper, &step,
                          &PyList_Type, &list))
        return NULL;
    bool ok = job_begin(&j, list) &&
              nb_fori(bound(lower), bound(upper), nb_func_new(nb_py_body, step),
                      j.nx, j.x, j.y) == NB_OK;
    j.ny = j.nx;
    return job_end(&j, ok);
}

/* scan(f, init and xs, how many are init, length, reverse) */
static PyObject *scan(PyObject *self, PyObject *args)
{
    PyObject *f, *list;
    long long length;
    int reverse, n;
    job j;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!iLp:scan", &f, &PyList_Type, &list, &n,
                          &length, &reverse))
        return NULL;
    bool ok = job_begin(&j, list) && n >= 0 && n <= j.nx &&
              nb_scan(nb_func_new(nb_py_body, f), n, j.x, j.nx - n, j.x + n,
                      length, reverse, &j.ny, j.y) == NB_OK;
    return job_end(&j, ok);
}

/* map(f, xs) */
static PyObject *map(PyObject *self, PyObject *args)
{
    PyObject *f, *list;
    job j;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!:map", &f, &PyList_Type, &list))
        return NULL;
    bool ok = job_begin(&j, list) && nb_map(nb_func_new(nb_py_body, f), j.nx,
                                            j.x, &j.ny, j.y) == NB_OK;
    return job_end(&j, ok);
}

/* associative_scan(combine, elements, axis, reverse) */
static PyObject *associative_scan(PyObject *self, PyObject *args)
{
    PyObject *f, *list;
    long long axis;
    int reverse;
    job j;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!Lp:associative_scan", &f, &PyList_Type,
                          &list, &axis, &reverse))
        return NULL;
    bool ok = job_begin(&j, list) &&
              nb_associative_scan(nb_func_new(nb_py_body, f), j.nx, j.x, axis,
                                  reverse, j.y) == NB_OK;
    j.ny = j.nx;
    return job_end(&j, ok);
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

nb_func *nb_py_lasting(PyObject *f)
{
    return nb_func_owning(nb_py_body, Py_NewRef(f), release);
}

/* Asks a policy of Python: save(name, contraction, tensor).  Once it has raised
 * nothing more is asked, and the call fails in the end. */
static bool save(void *ctx, const nb_op_info *info)
{
    PyGILState_STATE state = PyGILState_Ensure();
    bool asked = !PyErr_Occurred();
    PyObject *x = asked ? nb_py_wrap((nb_tensor *)info->value) : NULL;
    PyObject *said =
        x ? PyObject_CallFunction(ctx, "sNO", info->name,
                                  PyBool_FromLong(info->contraction), x)
          : NULL;
    bool yes = said && PyObject_IsTrue(said) == 1;
    Py_XDECREF(x);
    Py_XDECREF(said);
    PyGILState_Release(state);
    return yes;
}

/* policy: None, "dots" or a function, which the call outlives. */
static nb_func *checkpoint(PyObject *f, PyObject *policy)
{
    nb_checkpoint_options o = {.ctx = policy};
    if (PyUnicode_Check(policy))
        o.save = nb_save_contractions;
    else if (policy != Py_None)
        o.save = save;
    return nb_checkpoint(nb_py_lasting(f), &o);
}

/* The engine's name for what nabla.transforms calls by the same. */
static nb_func *customized(const char *kind, PyObject *const *f)
{
    switch (*kind) {
    case 'v':
        return nb_custom_vjp(nb_py_lasting(f[0]), nb_py_lasting(f[1]),
                             nb_py_lasting(f[2]));
    case 'j': return nb_custom_jvp(nb_py_lasting(f[0]), nb_py_lasting(f[1]));
    default: return checkpoint(f[0], f[1]);
    }
}

/* custom(kind, f, first, second, arguments): "vjp" has fwd and bwd, "jvp" a
 * rule and None, "checkpoint" a policy and None. */
static PyObject *custom(PyObject *self, PyObject *args)
{
    PyObject *f[3], *list;
    const char *kind;
    job j;
    (void)self;
    if (!PyArg_ParseTuple(args, "sOOOO!:custom", &kind, &f[0], &f[1], &f[2],
                          &PyList_Type, &list))
        return NULL;
    bool ok = job_begin(&j, list) &&
              nb_func_call(customized(kind, f), j.nx, j.x, &j.ny, j.y) == NB_OK;
    return job_end(&j, ok && !PyErr_Occurred());
}

PyMethodDef nb_py_control_functions[] = {
    {"cond", cond, METH_VARARGS, NULL},
    {"switch", choose, METH_VARARGS, NULL},
    {"while_loop", while_loop, METH_VARARGS, NULL},
    {"fori_loop", fori_loop, METH_VARARGS, NULL},
    {"scan", scan, METH_VARARGS, NULL},
    {"map", map, METH_VARARGS, NULL},
    {"associative_scan", associative_scan, METH_VARARGS, NULL},
    {"custom", custom, METH_VARARGS, NULL},
    {0}};
