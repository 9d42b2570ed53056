/* executable.c - Executable: a program that was compiled for one signature.
 *
 * It takes and returns tensors; what an argument is made of is the business of
 * whoever calls (signature.c). */
#include "compile.h"

static _Thread_local int compiling;

bool nb_py_compiling(void)
{
    return compiling > 0;
}

typedef struct executable {
    PyObject_HEAD nb_executable *e;
    bool small, open; /* of any size: a run may have to record */
} executable;

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

nb_dynamic_dim *nb_py_dynamic_dims(PyObject *list, int *n)
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
    nb_dynamic_dim *dims = nb_py_dynamic_dims(open, &ndims);
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

int nb_py_executable_results(PyObject *o)
{
    return nb_executable_results(((executable *)o)->e);
}

nb_status nb_py_executable_run(PyObject *o, int nx, nb_tensor *const *x,
                               int *ny, nb_tensor **y)
{
    const executable *self = (const executable *)o;
    nb_status s;
    if (self->small) return nb_executable_run(self->e, nx, x, ny, y);
    compiling += self->open;
    Py_BEGIN_ALLOW_THREADS;
    s = nb_executable_run(self->e, nx, x, ny, y);
    Py_END_ALLOW_THREADS;
    compiling -= self->open;
    return s;
}

int nb_py_executable_add(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&executable_spec);
    int done = type ? PyModule_AddObjectRef(module, "Executable", type) : -1;
    Py_XDECREF(type);
    return done;
}
