/* autoshard.c - plans of layouts for functions. */
#include "shard.h"

static const char capsule[] = "nabla.plan";

static void drop(PyObject *o)
{
    nb_auto_plan_drop(PyCapsule_GetPointer(o, capsule));
}

static PyObject *specs(const nb_auto_plan *p, int n,
                       const nb_spec *(*of)(const nb_auto_plan *p, int i))
{
    PyObject *list = PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        PyObject *s = nb_py_spec_to(of(p, i));
        if (!s || PyList_SetItem(list, i, s) < 0) Py_CLEAR(list);
    }
    return list;
}

static nb_auto_alias *read_aliases(PyObject *list, int *n)
{
    *n = (int)PyList_Size(list);
    nb_auto_alias *a = PyMem_Calloc((size_t)*n + 1, sizeof *a);
    bool ok = a || PyErr_NoMemory();
    for (int i = 0; ok && i < *n; i++)
        ok = PyArg_ParseTuple(PyList_GetItem(list, i), "ii", &a[i].result,
                              &a[i].argument);
    if (ok) return a;
    PyMem_Free(a);
    return NULL;
}

/* (plan, specs of arguments, of results, cost, bound, memory, text) */
static PyObject *plan_to(nb_auto_plan *p)
{
    PyObject *o = PyCapsule_New(p, capsule, drop);
    if (!o) return nb_auto_plan_drop(p), NULL;
    PyObject *in = specs(p, nb_auto_plan_arguments(p), nb_auto_plan_argument);
    PyObject *out =
        in ? specs(p, nb_auto_plan_results(p), nb_auto_plan_result) : NULL;
    char *text = out ? nb_auto_plan_text(p) : NULL;
    PyObject *made = NULL;
    if (text)
        made = Py_BuildValue("(OOOddLs)", o, in, out, nb_auto_plan_cost(p),
                             nb_auto_plan_bound(p),
                             (long long)nb_auto_plan_memory(p), text);
    else if (out)
        nb_py_raise();
    nb_text_release(text);
    Py_DECREF(o);
    Py_XDECREF(in);
    Py_XDECREF(out);
    return made;
}

/* auto_plan(body, tensors, mesh, budget, aliases) */
static PyObject *auto_plan(PyObject *self, PyObject *args)
{
    PyObject *body, *list, *on, *pairs;
    nb_auto_options o = {0};
    nb_auto_plan *p = NULL;
    nb_status s = NB_ERUNTIME;
    long long budget;
    int n;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!OLO!:auto_plan", &body, &PyList_Type, &list,
                          &on, &budget, &PyList_Type, &pairs))
        return NULL;
    const nb_mesh *mesh = nb_py_mesh_from(on);
    nb_auto_alias *alias = mesh ? read_aliases(pairs, &o.naliases) : NULL;
    nb_tensor **x = alias ? nb_py_tensors(list, &n) : NULL;
    o.memory_budget = budget;
    o.alias = alias;
    if (x && nb_scope_open() == NB_OK) {
        nb_func *f = nb_py_lasting(body);
        nb_py_locate();
        Py_BEGIN_ALLOW_THREADS;
        if (f) s = nb_auto_shard(f, mesh, n, x, &o, &p);
        Py_END_ALLOW_THREADS;
        LEAVE;
    }
    PyMem_Free(alias);
    PyMem_Free(x);
    if (!x) return NULL;
    return s == NB_OK ? plan_to(p) : nb_py_raise();
}

/* auto_follow(plan, tensors) -> tensors */
static PyObject *auto_follow(PyObject *self, PyObject *args)
{
    PyObject *o, *list, *out = NULL;
    int n, ny;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!:auto_follow", &o, &PyList_Type, &list))
        return NULL;
    nb_auto_plan *p = PyCapsule_GetPointer(o, capsule);
    nb_tensor **x = p ? nb_py_tensors(list, &n) : NULL;
    if (!x) return NULL;
    ny = nb_auto_plan_results(p);
    nb_tensor **y = PyMem_Calloc((size_t)ny + 1, sizeof *y);
    if (!y) PyErr_NoMemory();
    if (y && nb_scope_open() == NB_OK) {
        nb_func *f = nb_auto_plan_apply(p);
        nb_py_locate();
        if (f && nb_func_call(f, n, x, &ny, y) == NB_OK)
            out = nb_py_list(ny, y);
        LEAVE;
    }
    PyMem_Free(y);
    PyMem_Free(x);
    return out ? out : nb_py_raise();
}

static PyMethodDef functions[] = {
    {"auto_plan", auto_plan, METH_VARARGS, NULL},
    {"auto_follow", auto_follow, METH_VARARGS, NULL},
    {0}};

int nb_py_autoshard_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
