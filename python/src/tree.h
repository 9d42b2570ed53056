/* tree.h - pytrees: containers of leaves, and their structure.
 *
 * A node is a list, a tuple, a namedtuple, a dict, None (which has no leaves)
 * or an object of a type that was registered, exactly.  All else is a leaf.
 * The leaves of a dict come in the order of its sorted keys.
 *
 * As everywhere in the extension, functions that return an object return a new
 * reference, or NULL with a Python exception set. */
#ifndef NB_PY_TREE_H
#define NB_PY_TREE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>
#include <stdbool.h>

/* The type nabla.Tensor, borrowed; NULL (and no exception) before it exists.
 * The module defines it.  A tensor is always a leaf. */
PyObject *nb_py_tensor_type(void);

/* Adds the tree functions and PyTreeDef to the module; -1 on failure. */
int nb_py_tree_add(PyObject *module);

/* Makes cls a node: flatten(x) is (children, aux), unflatten(aux, children)
 * an object like x.  Registering a type again replaces its functions. */
bool nb_py_tree_register(PyObject *cls, PyObject *flatten, PyObject *unflatten);

/* The leaves as a list; *def becomes the PyTreeDef, if def is given. */
PyObject *nb_py_tree_flatten(PyObject *tree, PyObject **def);

/* The tree of that structure with these leaves, from any iterable. */
PyObject *nb_py_tree_unflatten(PyObject *def, PyObject *leaves);

/* Whether a tree has that structure: 1 if it has, and fn(data, leaf) is 1 for
 * every leaf, in order; 0 if not, -1 on failure. */
typedef int nb_py_match_fn(void *data, PyObject *leaf);
int nb_py_tree_match(PyObject *def, PyObject *tree, nb_py_match_fn *fn,
                     void *data);

/* The leaves of the tree that are tensors, as a list. */
PyObject *nb_py_tensor_leaves(PyObject *tree);

/* What a map does at a leaf: x[0] is the leaf of the first tree, x[1] and on
 * what the other n - 1 trees have in its place. */
typedef PyObject *nb_py_leaf_fn(void *data, PyObject *const *x, Py_ssize_t n);

/* The first tree with each leaf replaced by fn(data, ...), called in the order
 * in which tree_flatten lists the leaves.  n is at least 1.  is_leaf is a
 * callable or NULL. */
PyObject *nb_py_tree_map(nb_py_leaf_fn *fn, void *data, PyObject *const *tree,
                         Py_ssize_t n, PyObject *is_leaf);

#endif
