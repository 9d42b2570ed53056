/* attrs.c - the static arguments of the op that made a tensor, as Python
 * values.  The engine tells them as text; their kinds say how to read it. */
#include "py.h"

#include <stdlib.h>
#include <string.h>

/* Argument i of an op, not counting tensors. */
static bool find_arg(nb_op *op, int i, nb_arg *arg)
{
    for (int k = 0; op && nb_op_arg(op, k, arg); k++)
        if (arg->kind != NB_ARG_TENSOR && arg->kind != NB_ARG_TENSORS &&
            i-- == 0)
            return true;
    return false;
}

/* "(2, 3)" */
static PyObject *read_tuple(const char *text)
{
    PyObject *list = PyList_New(0), *all;
    char *at = (char *)text + 1;
    while (list && *at && *at != ')') {
        PyObject *v = PyLong_FromLongLong(strtoll(at, &at, 10));
        if (!v || PyList_Append(list, v) < 0) Py_CLEAR(list);
        Py_XDECREF(v);
        at += strspn(at, ", ");
    }
    all = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return all;
}

static PyObject *read_value(nb_arg_kind kind, const char *text)
{
    if (!strcmp(text, "None")) Py_RETURN_NONE;
    switch (kind) {
    case NB_ARG_BOOL: return PyBool_FromLong(!strcmp(text, "True"));
    case NB_ARG_FLOAT: {
        double f = PyOS_string_to_double(text, NULL, NULL);
        return PyErr_Occurred() ? NULL : PyFloat_FromDouble(f);
    }
    case NB_ARG_DTYPE: return nb_py_dtype_object(nb_dtype_find(text + 1));
    case NB_ARG_TEXT: /* in quotes */
        return PyUnicode_FromStringAndSize(text + 1,
                                           (Py_ssize_t)strlen(text) - 2);
    default:
        return *text == '(' ? read_tuple(text)
                            : PyLong_FromString(text, NULL, 10);
    }
}

static bool add(PyObject *to, const char *name, PyObject *v)
{
    bool ok = v && PyDict_SetItemString(to, name, v) == 0;
    Py_XDECREF(v);
    return ok;
}

static bool add_text(PyObject *to, const nb_arg *arg, const char *text)
{
    const char *equals = strchr(text, '=');
    return equals && add(to, arg->name, read_value(arg->kind, equals + 1));
}

PyObject *nb_py_op_kwargs(PyObject *o)
{
    nb_tensor *x = nb_py_get(o);
    nb_op *op = nb_op_find(nb_op_name_of(x));
    char how = ((nb_py_tensor *)o)->buffer_ops;
    PyObject *d = PyDict_New();
    const nb_spec *to = nb_target_of(x);
    nb_arg arg;
    if (d && to && !nb_py_add_target(d, to)) Py_CLEAR(d);
    for (int i = 0; d && !to && find_arg(op, i, &arg); i++) {
        char *text = nb_attr_text(x, i);
        if (!text) break;
        if (!add_text(d, &arg, text)) Py_CLEAR(d);
        nb_text_release(text);
    }
    if (d && how &&
        !add(d, "use_buffer_ops", PyBool_FromLong(how == NB_PY_YES)))
        Py_CLEAR(d);
    return d;
}
