/* compile.h - what the files of compiled functions share: executables, the
 * signatures that they serve, and calls that are held against these. */
#ifndef NB_PY_COMPILE_H
#define NB_PY_COMPILE_H

#include "py.h"

/* executable.c */

/* Runs an Executable; other threads of Python go on unless it is small. */
int nb_py_executable_results(PyObject *o);
nb_status nb_py_executable_run(PyObject *o, int nx, nb_tensor *const *x,
                               int *ny, nb_tensor **y);
int nb_py_executable_add(PyObject *module);

/* A list of (tensor, axis, name), to PyMem_Free. */
nb_dynamic_dim *nb_py_dynamic_dims(PyObject *list, int *n);

/* signature.c */

/* Arrays of NumPy, if it was imported. */
bool nb_py_is_array(PyObject *o);

/* From (positional arguments, names, structures, leaves, executable or None,
 * structure of the result, leaves of the result, dims of any size). */
typedef struct nb_py_signature nb_py_signature;
nb_py_signature *nb_py_signature_new(PyObject *args);
nb_py_signature *nb_py_signature_keep(nb_py_signature *s);
void nb_py_signature_drop(nb_py_signature *s);
int nb_py_signature_visit(const nb_py_signature *s, visitproc visit, void *arg);

/* Borrowed; NULL if it runs uncompiled. */
PyObject *nb_py_signature_executable(const nb_py_signature *s);

/* What the function returns if its executable returned y. */
PyObject *nb_py_signature_result(const nb_py_signature *s, nb_tensor *const *y);

enum { NB_PY_FEW = 16 };
typedef struct nb_py_call {
    PyObject *const *args;
    Py_ssize_t n;
    PyObject *names; /* NULL: none */
    const nb_py_signature *s;
    int at;        /* the next leaf */
    nb_tensor **x; /* lent */
    int nx;
    PyObject **donor; /* objects that give their tensors away, ours */
    int ndonors, room;
    PyObject *array[4]; /* arrays that were converted, borrowed */
    nb_tensor *converted[4];
    int narrays;
    nb_tensor *few[NB_PY_FEW];
    PyObject *few_donors[NB_PY_FEW];
} nb_py_call;
void nb_py_call_begin(nb_py_call *c, PyObject *const *args, Py_ssize_t n,
                      PyObject *names);
void nb_py_call_end(nb_py_call *c);

/* 1 if the call has that signature, and then c->x are its tensors; 0 if not, -1
 * with an exception. */
int nb_py_call_match(nb_py_call *c, const nb_py_signature *s);

#endif
