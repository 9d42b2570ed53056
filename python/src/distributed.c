/* distributed.c - programs of more than one process.  Whoever waits for others
 * lets other threads of Python run. */
#include "py.h"

static PyObject *waited(nb_status (*what)(void))
{
    nb_status s;
    Py_BEGIN_ALLOW_THREADS;
    s = what();
    Py_END_ALLOW_THREADS;
    if (s != NB_OK) return nb_py_raise();
    Py_RETURN_NONE;
}

static PyObject *init(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return waited(nb_distributed_init);
}

static PyObject *barrier(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return waited(nb_distributed_barrier);
}

static PyObject *finish(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS;
    nb_distributed_finish();
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *rank(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromLong(nb_distributed_rank());
}

static PyObject *size(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyLong_FromLong(nb_distributed_size());
}

static PyObject *timeout(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyFloat_FromDouble(nb_distributed_timeout());
}

static PyObject *set_timeout(PyObject *self, PyObject *args)
{
    double seconds;
    (void)self;
    if (!PyArg_ParseTuple(args, "d:set_timeout", &seconds)) return NULL;
    if (nb_distributed_set_timeout(seconds) != NB_OK) return nb_py_raise();
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"distributed_init", init, METH_NOARGS, NULL},
    {"distributed_rank", rank, METH_NOARGS, NULL},
    {"distributed_size", size, METH_NOARGS, NULL},
    {"distributed_barrier", barrier, METH_NOARGS, NULL},
    {"distributed_finish", finish, METH_NOARGS, NULL},
    {"distributed_timeout", timeout, METH_NOARGS, NULL},
    {"distributed_set_timeout", set_timeout, METH_VARARGS, NULL},
    {0}};

int nb_py_distributed_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
