/* interop.c - the same data for others: buffers, DLPack, files. */
#include "py.h"

PyType_Slot nb_py_interop_slots[] = {{0, NULL}};
PyMethodDef nb_py_interop_methods[] = {{0}};

int nb_py_interop_add(PyObject *module)
{
    (void)module;
    return 0;
}
