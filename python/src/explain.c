/* explain.c - what programs over many devices say to themselves, and whether
 * they compute the same.  Rows become objects in nabla.transforms. */
#include "py.h"

static PyObject *row_new(const nb_explain_row *r)
{
    return Py_BuildValue("(ssLLdssssssiLLsO)", r->kind, r->axes,
                         (long long)r->bytes, (long long)r->times, r->seconds,
                         r->op, r->source, r->reason, r->of, r->from, r->to,
                         r->move, (long long)r->bound, (long long)r->cheaper,
                         r->alternative, r->reading ? Py_True : Py_False);
}

/* (table, rows) */
PyObject *nb_py_explanation(const nb_executable *e)
{
    nb_explanation *of = NULL;
    nb_explain_row r;
    if (nb_executable_explain(e, &of) != NB_OK) return nb_py_raise();
    char *text = nb_explanation_text(of);
    PyObject *rows = PyList_New(0);
    bool ok = text && rows;
    for (int k = 0; ok && nb_explanation_row(of, k, &r); k++) {
        PyObject *row = row_new(&r);
        ok = row && PyList_Append(rows, row) == 0;
        Py_XDECREF(row);
    }
    PyObject *y = ok ? Py_BuildValue("(sO)", text, rows) : NULL;
    nb_text_release(text);
    nb_explanation_drop(of);
    Py_XDECREF(rows);
    return y || PyErr_Occurred() ? y : nb_py_raise();
}

/* verify(body, tensors, tolerance): (compared, error), or an exception that
 * names the first op that differs. */
static PyObject *verify(PyObject *self, PyObject *args)
{
    PyObject *body, *list;
    double tolerance;
    int n;
    nb_status s = NB_ERUNTIME;
    nb_verify_report r = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!d:verify", &body, &PyList_Type, &list,
                          &tolerance))
        return NULL;
    nb_tensor **x = nb_py_tensors(list, &n);
    if (!x) return NULL;
    if (nb_scope_open() == NB_OK) {
        nb_func *f = nb_py_lasting(body);
        nb_py_locate();
        Py_BEGIN_ALLOW_THREADS;
        if (f) s = nb_verify(f, n, x, tolerance, &r);
        Py_END_ALLOW_THREADS;
        LEAVE;
    }
    PyMem_Free(x);
    if (s != NB_OK) return nb_py_raise();
    return Py_BuildValue("(id)", r.compared, r.error);
}

static PyMethodDef functions[] = {{"verify", verify, METH_VARARGS, NULL}, {0}};

int nb_py_explain_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
