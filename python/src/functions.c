/* functions.c - functions of the module that are not ops. */
#include "py.h"

#include <string.h>

static PyObject *constant(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    nb_dtype d = NB_NOTYPE;
    PyObject *y = NULL;
    (void)self;
    if (n < 1 || n > 2 || (n == 2 && !nb_py_dtype(args[1], &d)))
        return PyErr_Occurred()
                   ? NULL
                   : PyErr_Format(PyExc_TypeError, "constant(value, dtype)");
    ENTER;
    nb_tensor *x = nb_py_placed(nb_py_constant(args[0], d), args[0], -1);
    x = nb_py_made(x, nb_py_is_tensor(args[0]));
    y = x ? nb_py_wrap(x) : nb_py_raise();
    LEAVE;
    return y;
}

static PyObject *ensure_tensor(PyObject *self, PyObject *o)
{
    PyObject *y = NULL;
    (void)self;
    if (nb_py_is_tensor(o)) {
        Py_INCREF(o);
        return o;
    }
    ENTER;
    nb_tensor *x = nb_py_operand(o);
    if (x && nb_is_weak(x))
        x = nb_py_placed(nb_py_constant(o, NB_NOTYPE), o, -1);
    y = x ? nb_py_wrap(x) : nb_py_raise();
    LEAVE;
    return y;
}

static PyObject *realize_all(PyObject *self, PyObject *const *args,
                             Py_ssize_t n)
{
    nb_tensor **x = PyMem_Malloc((size_t)(n + 1) * sizeof *x);
    int count = 0;
    (void)self;
    if (!x) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++)
        if (nb_py_is_tensor(args[i])) x[count++] = nb_py_get(args[i]);
    bool ok = nb_py_compiling() || nb_py_realize(count, x);
    PyMem_Free(x);
    PyObject *all = ok ? PyTuple_New(n) : NULL;
    for (Py_ssize_t i = 0; all && i < n; i++) {
        Py_INCREF(args[i]);
        PyTuple_SetItem(all, i, args[i]);
    }
    return all;
}

static PyObject *is_recording(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyBool_FromLong(nb_is_recording());
}

static PyObject *result_type(PyObject *self, PyObject *const *args,
                             Py_ssize_t n)
{
    nb_tensor *x[64];
    PyObject *y = NULL;
    (void)self;
    if (n < 1 || n > 64)
        return PyErr_Format(PyExc_ValueError, "result_type of 1 to 64 values");
    ENTER;
    Py_ssize_t i = 0;
    for (; i < n; i++) {
        nb_dtype d;
        if (nb_py_is_tensor(args[i]) || PyLong_Check(args[i]) ||
            PyFloat_Check(args[i]) || PyObject_CheckBuffer(args[i]))
            x[i] = nb_py_operand(args[i]);
        else
            x[i] = nb_py_dtype(args[i], &d) ? nb_scalar_int(0, d) : NULL;
        if (!x[i]) break;
    }
    nb_dtype d = i == n ? nb_dtype_common((int)n, x) : NB_NOTYPE;
    y = d ? nb_py_dtype_object(d) : nb_py_raise();
    LEAVE;
    return y;
}

static PyObject *can_cast(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    nb_dtype from, to;
    (void)self;
    if (n != 2)
        return PyErr_Format(PyExc_TypeError, "can_cast takes two arguments");
    if (nb_py_is_tensor(args[0]))
        from = nb_dtype_of(nb_py_get(args[0]));
    else if (!nb_py_dtype(args[0], &from))
        return NULL;
    if (!nb_py_dtype(args[1], &to)) return NULL;
    return PyBool_FromLong(nb_dtype_can_cast(from, to));
}

/* The DType that a dtype argument means. */
static PyObject *as_dtype(PyObject *self, PyObject *o)
{
    nb_dtype d;
    (void)self;
    return nb_py_dtype(o, &d) ? nb_py_dtype_object(d) : NULL;
}

/* The default float of a context lives in Python; the engine asks for it. */
static PyObject *asked;

static nb_dtype ask(void)
{
    PyGILState_STATE state = PyGILState_Ensure();
    nb_dtype d = NB_F32;
    PyObject *v = PyObject_CallNoArgs(asked);
    if (!v || !nb_py_dtype(v, &d)) PyErr_Clear();
    Py_XDECREF(v);
    PyGILState_Release(state);
    return d ? d : NB_F32;
}

static PyObject *ask_default(PyObject *self, PyObject *callable)
{
    (void)self;
    Py_INCREF(callable);
    PyObject *old = asked;
    asked = callable;
    Py_XDECREF(old);
    nb_default_float_ask(ask);
    Py_RETURN_NONE;
}

/* The same of the default device, its number; from the first time on that it is
 * not the CPU. */
static PyObject *device_asked;

static int ask_device(void)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyObject *v = PyObject_CallNoArgs(device_asked);
    long d = v ? PyLong_AsLong(v) : -1;
    Py_XDECREF(v);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(state);
    return d < 0 ? 0 : (int)d;
}

static PyObject *ask_default_device(PyObject *self, PyObject *callable)
{
    (void)self;
    Py_INCREF(callable);
    PyObject *old = device_asked;
    device_asked = callable;
    Py_XDECREF(old);
    nb_default_device_ask(ask_device);
    Py_RETURN_NONE;
}

/* How many there are, and why there is no card. */
static PyObject *devices(PyObject *self, PyObject *unused)
{
    int n;
    (void)self, (void)unused;
    Py_BEGIN_ALLOW_THREADS n = nb_devices();
    Py_END_ALLOW_THREADS return Py_BuildValue("(is)", n, nb_devices_trouble());
}

static PyObject *device_of(PyObject *self, PyObject *o)
{
    (void)self;
    if (!nb_py_is_tensor(o))
        return PyErr_Format(PyExc_TypeError, "device_of takes a Tensor");
    return PyLong_FromLong(nb_device_of(nb_py_get(o)));
}

static PyObject *to_device(PyObject *self, PyObject *args)
{
    PyObject *o;
    int device;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!i:to_device", nb_py_Tensor, &o, &device))
        return NULL;
    if (nb_device_of(nb_py_get(o)) == device) {
        Py_INCREF(o);
        return o;
    }
    ENTER;
    nb_py_locate();
    PyObject *y = nb_py_wrap(nb_to_device(nb_py_get(o), device));
    LEAVE;
    return y;
}

static PyObject *device_wait(PyObject *self, PyObject *o)
{
    nb_status s = NB_OK;
    int device = (int)PyLong_AsLong(o);
    (void)self;
    if (PyErr_Occurred()) return NULL;
    Py_BEGIN_ALLOW_THREADS s = nb_device_wait(device);
    Py_END_ALLOW_THREADS if (s != NB_OK) return nb_py_raise();
    Py_RETURN_NONE;
}

static PyObject *device_memory(PyObject *self, PyObject *o)
{
    nb_device_memory m;
    int device = (int)PyLong_AsLong(o);
    (void)self;
    if (PyErr_Occurred()) return NULL;
    if (nb_device_memory_of(device, &m) != NB_OK) return nb_py_raise();
    return Py_BuildValue("LLLL", (long long)m.used, (long long)m.most,
                         (long long)m.kept, (long long)m.all);
}

/* Does something to a device that takes no time. */
static PyObject *done_to(PyObject *o, nb_status (*f)(int device))
{
    int device = (int)PyLong_AsLong(o);
    if (PyErr_Occurred()) return NULL;
    if (f(device) != NB_OK) return nb_py_raise();
    Py_RETURN_NONE;
}

static PyObject *device_peak_reset(PyObject *self, PyObject *o)
{
    (void)self;
    return done_to(o, nb_device_peak_reset);
}

static PyObject *device_trim(PyObject *self, PyObject *o)
{
    (void)self;
    return done_to(o, nb_device_trim);
}

static PyObject *stats(PyObject *self, PyObject *unused)
{
    nb_stats s = nb_stats_get();
    (void)self, (void)unused;
    return Py_BuildValue("{s:L,s:L,s:L,s:n}", "nodes_live",
                         (long long)s.nodes_live, "steps_run",
                         (long long)s.steps_run, "allocations_live",
                         (long long)s.allocations_live, "bytes_in_use",
                         (Py_ssize_t)s.bytes_in_use);
}

static PyObject *trim(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    nb_memory_trim();
    Py_RETURN_NONE;
}

/* Rows (name, code, bytes of an element), in the order of the codes. */
static PyObject *dtypes(PyObject *self, PyObject *unused)
{
    PyObject *rows = PyTuple_New(NB_NDTYPES - 1);
    (void)self, (void)unused;
    for (int d = 1; rows && d < NB_NDTYPES; d++) {
        PyObject *row = Py_BuildValue("(sii)", nb_dtype_name((nb_dtype)d), d,
                                      (int)nb_dtype_size((nb_dtype)d));
        if (!row) {
            Py_CLEAR(rows);
            break;
        }
        PyTuple_SetItem(rows, d - 1, row);
    }
    return rows;
}

static PyObject *op_info(PyObject *self, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    nb_op *op = text ? nb_op_find(text) : NULL;
    (void)self;
    if (!text) return NULL;
    if (!op) return PyErr_Format(PyExc_KeyError, "no op named %s", text);
    return Py_BuildValue("{s:s,s:s,s:s,s:s,s:i,s:O}", "params",
                         nb_op_params(op), "doc", nb_op_doc(op), "example",
                         nb_op_example(op), "signature", nb_op_signature(op),
                         "results", nb_op_results(op), "public",
                         nb_op_is_public(op) ? Py_True : Py_False);
}

#define FAST(f) (PyCFunction)(void (*)(void)) f, METH_FASTCALL
PyMethodDef nb_py_module_methods[] = {
    {"constant", FAST(constant), NULL},
    {"ensure_tensor", ensure_tensor, METH_O,
     "ensure_tensor(x)\n--\n\nx as a tensor: the conversion that ops do."},
    {"realize_all", FAST(realize_all),
     "realize_all(*tensors)\n--\n\n"
     "Computes the tensors among its arguments in one go; returns them all."},
    {"is_recording", is_recording, METH_NOARGS, NULL},
    {"result_type", FAST(result_type),
     "result_type(*xs)\n--\n\n"
     "The dtype in which tensors, dtypes and numbers combine."},
    {"can_cast", FAST(can_cast),
     "can_cast(a, b, /)\n--\n\n"
     "Whether promotion of a dtype, or a tensor, with b gives b."},
    {"as_dtype", as_dtype, METH_O, NULL},
    {"set_dtypes", nb_py_set_dtypes, METH_O, NULL},
    {"set_home", nb_py_set_home, METH_O, NULL},
    {"_load", nb_py_load, METH_VARARGS, NULL},
    {"_home", nb_py_home, METH_NOARGS, NULL},
    {"ask_default", ask_default, METH_O, NULL},
    {"ask_default_device", ask_default_device, METH_O, NULL},
    {"devices", devices, METH_NOARGS, NULL},
    {"device_of", device_of, METH_O, NULL},
    {"to_device", to_device, METH_VARARGS, NULL},
    {"device_wait", device_wait, METH_O, NULL},
    {"device_memory", device_memory, METH_O, NULL},
    {"device_peak_reset", device_peak_reset, METH_O, NULL},
    {"device_trim", device_trim, METH_O, NULL},
    {"stats", stats, METH_NOARGS, NULL},
    {"trim", trim, METH_NOARGS, NULL},
    {"dtypes", dtypes, METH_NOARGS, NULL},
    {"op_info", op_info, METH_O, NULL},
    {0}};
