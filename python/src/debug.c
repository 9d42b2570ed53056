/* debug.c - watching, printing and timing, for nabla.debug. */
#include "py.h"

/* Lines go to sys.stdout, whichever thread computes.  One that cannot be
 * written is not an error of the computation. */
static void put(void *ctx, const char *line)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    (void)ctx;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *to = PySys_GetObject("stdout");
    if (to && to != Py_None && PyFile_WriteString(line, to) < 0)
        PyErr_WriteUnraisable(to);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(gil);
}

static nb_tensor **operands(PyObject *args, Py_ssize_t n)
{
    nb_tensor **x = PyMem_Malloc((size_t)(n + 1) * sizeof *x);
    if (!x) return PyErr_NoMemory(), NULL;
    for (Py_ssize_t i = 0; i < n; i++)
        if (!(x[i] = nb_py_operand(PyTuple_GetItem(args, i + 1)))) {
            PyMem_Free(x);
            return NULL;
        }
    return x;
}

/* debug_print(format, *tensors) */
static PyObject *debug_print(PyObject *self, PyObject *args)
{
    Py_ssize_t n = PyTuple_Size(args) - 1;
    const char *format =
        n < 0 ? NULL : PyUnicode_AsUTF8AndSize(PyTuple_GetItem(args, 0), NULL);
    nb_status s = NB_ERUNTIME;
    (void)self;
    if (!format) return NULL;
    ENTER;
    nb_tensor **x = operands(args, n);
    if (x) {
        nb_py_locate();
        Py_BEGIN_ALLOW_THREADS;
        s = nb_debug_print(format, (int)n, x);
        Py_END_ALLOW_THREADS;
    }
    PyMem_Free(x);
    LEAVE;
    if (s != NB_OK) return nb_py_raise();
    Py_RETURN_NONE;
}

/* debug_watch(what, on) -> whether it was on */
static PyObject *debug_watch(PyObject *self, PyObject *args)
{
    unsigned what;
    int on;
    (void)self;
    if (!PyArg_ParseTuple(args, "Ip:debug_watch", &what, &on)) return NULL;
    unsigned was = nb_debug_get();
    nb_debug_set(on ? was | what : was & ~what);
    return PyBool_FromLong((was & what) != 0);
}

static PyObject *set_check(PyObject *self, PyObject *on)
{
    int yes = PyObject_IsTrue(on);
    (void)self;
    if (yes < 0) return NULL;
    nb_check_set(yes);
    Py_RETURN_NONE;
}

static PyObject *profile_start(PyObject *self, PyObject *args)
{
    const char *path;
    (void)self;
    if (!PyArg_ParseTuple(args, "s:profile", &path)) return NULL;
    if (nb_profile_start(path) != NB_OK) return nb_py_raise();
    Py_RETURN_NONE;
}

static PyObject *profile_stop(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    if (nb_profile_stop() != NB_OK) return nb_py_raise();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"debug_print", debug_print, METH_VARARGS, NULL},
    {"debug_watch", debug_watch, METH_VARARGS, NULL},
    {"set_check", set_check, METH_O, NULL},
    {"profile_start", profile_start, METH_VARARGS, NULL},
    {"profile_stop", profile_stop, METH_NOARGS, NULL},
    {0}};

int nb_py_debug_add(PyObject *module)
{
    nb_print_to(put, NULL);
    return PyModule_AddFunctions(module, functions);
}
