/* interop.h - what the files of interop share: dlpack.c, card_array.c
 * and interop.c. */
#ifndef NB_PY_INTEROP_H
#define NB_PY_INTEROP_H

#include "py.h"

/* A tensor, lent, over a fresh block that *data points to: it is row-major, and
 * to be filled before anyone else sees it.  NULL with the engine's error. */
nb_tensor *nb_py_fresh(nb_dtype d, int rank, const int64_t *size, char **data);

/* Whether elements with these strides (NULL: row-major) lie in row-major order
 * without gaps. */
bool nb_py_is_packed(int rank, const int64_t *size, const int64_t *stride);

/* Bools of others on a card, of which bytes other than 0 and 1 are true, too.
 * Whether none is there, which the card is asked and what is not contiguous is
 * not; and a copy in which none is, of a tensor over them as uint8. */
bool nb_py_card_bools_are_settled(int device, int rank, const int64_t *size,
                                  void *data);
nb_tensor *nb_py_card_bools(nb_tensor *bytes);

/* The methods __dlpack__ and __dlpack_device__, and the function import_dlpack
 * of an object or capsule, of copy, which is None, True or False, and of the
 * dtype that its elements have if the producer does not say, or None. */
PyObject *nb_py_dlpack(PyObject *o, PyObject *args, PyObject *kwargs);
PyObject *nb_py_dlpack_device(PyObject *o, PyObject *unused);
PyObject *nb_py_from_dlpack(PyObject *self, PyObject *const *args,
                            Py_ssize_t n);

/* The attribute __cuda_array_interface__, and the function import_card_array of
 * an object that has it, and of copy. */
PyObject *nb_py_card_array(PyObject *o, void *unused);
PyObject *nb_py_from_card_array(PyObject *self, PyObject *args);

#endif
