/* tree_pile.c - references that a walk has collected. */
#include "tree_parts.h"

void *nb_py_grown(void *old, Py_ssize_t *room, Py_ssize_t n, size_t item)
{
    if (n <= *room && old) return old;
    Py_ssize_t more = *room > n / 2 ? 2 * *room : n;
    if (more < 8) more = 8;
    void *p = PyMem_Realloc(old, (size_t)more * item);
    if (!p) return PyErr_NoMemory();
    *room = more;
    return p;
}

bool nb_py_pile_reserve(nb_py_pile *p, Py_ssize_t n)
{
    PyObject **item = nb_py_grown(p->item, &p->room, p->n + n, sizeof *item);
    if (item) p->item = item;
    return item;
}

bool nb_py_pile_push(nb_py_pile *p, PyObject *x)
{
    if (x && (p->n < p->room || nb_py_pile_reserve(p, 1))) {
        p->item[p->n++] = x;
        return true;
    }
    Py_XDECREF(x);
    return false;
}

void nb_py_pile_cut(nb_py_pile *p, Py_ssize_t n)
{
    while (p->n > n)
        Py_DECREF(p->item[--p->n]);
}

void nb_py_pile_free(nb_py_pile *p)
{
    nb_py_pile_cut(p, 0);
    PyMem_Free(p->item);
}

PyObject *nb_py_list_of(PyObject *const *item, Py_ssize_t n)
{
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++)
        PyList_SetItem(list, i, Py_NewRef(item[i]));
    return list;
}

PyObject *nb_py_tuple_of(PyObject *const *item, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple && i < n; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(item[i]));
    return tuple;
}
