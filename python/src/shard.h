/* shard.h - what the files about meshes and specs share. */
#ifndef NB_PY_SHARD_H
#define NB_PY_SHARD_H

#include "py.h"

enum { NB_PY_DIMS = 2 * NB_PY_RANK }; /* hidden and visible */

/* Something of nabla._sharding, which is imported when first needed: it needs
 * dataclasses.  Whether o is one of its objects; -1 with an exception. */
PyObject *nb_py_sharding(const char *name);
int nb_py_is_sharding(PyObject *o, const char *class);

/* Axes of a list or a set: texts that live as long as `held`, a list.  How many,
 * or -1 with an exception. */
int nb_py_axes(PyObject *from, PyObject *held, const char **to, int room);

/* Of a device by its number; -1 with an exception. */
int nb_py_position(const nb_mesh *m, int device);

/* By nb_py_shard_add. */
int nb_py_mesh_add(PyObject *module);
int nb_py_reshard_add(PyObject *module);
int nb_py_autoshard_add(PyObject *module);
int nb_py_collective_add(PyObject *module);

#endif
