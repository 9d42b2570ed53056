/* tree_functions.c - the functions of Python on pytrees. */
#include "tree_parts.h"

/* The arguments (tree, is_leaf=None) of most of them. */
static bool parse(PyObject *args, PyObject *kwargs, const char *format,
                  PyObject **tree, nb_py_rules *r)
{
    char *names[] = {"tree", "is_leaf", NULL};
    PyObject *is_leaf = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, names, tree,
                                     &is_leaf))
        return false;
    *r = nb_py_tree_rules();
    if (is_leaf != Py_None) r->is_leaf = is_leaf;
    return true;
}

/* (leaves, structure) */
static PyObject *both(const nb_py_rules *r, PyObject *tree)
{
    PyObject *def, *leaves = nb_py_flatten_by(r, tree, &def);
    if (!leaves) return NULL;
    PyObject *pair = PyTuple_Pack(2, leaves, def);
    Py_DECREF(leaves);
    Py_DECREF(def);
    return pair;
}

static PyObject *py_flatten(PyObject *self, PyObject *args, PyObject *kwargs)
{
    nb_py_rules r;
    PyObject *tree;
    (void)self;
    if (!parse(args, kwargs, "O|O:tree_flatten", &tree, &r)) return NULL;
    return both(&r, tree);
}

static PyObject *py_flatten_full(PyObject *self, PyObject *args,
                                 PyObject *kwargs)
{
    nb_py_rules r;
    PyObject *tree;
    (void)self;
    if (!parse(args, kwargs, "O|O:tree_flatten_full", &tree, &r)) return NULL;
    r.full = true;
    return both(&r, tree);
}

static PyObject *py_leaves(PyObject *self, PyObject *args, PyObject *kwargs)
{
    nb_py_rules r;
    PyObject *tree;
    (void)self;
    if (!parse(args, kwargs, "O|O:tree_leaves", &tree, &r)) return NULL;
    return nb_py_flatten_by(&r, tree, NULL);
}

static PyObject *py_structure(PyObject *self, PyObject *args, PyObject *kwargs)
{
    nb_py_rules r;
    PyObject *tree, *def;
    (void)self;
    if (!parse(args, kwargs, "O|O:tree_structure", &tree, &r)) return NULL;
    PyObject *leaves = nb_py_flatten_by(&r, tree, &def);
    if (!leaves) return NULL;
    Py_DECREF(leaves);
    return def;
}

static PyObject *py_unflatten(PyObject *self, PyObject *args, PyObject *kwargs)
{
    char *names[] = {"treedef", "leaves", NULL};
    PyObject *def, *leaves;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:tree_unflatten", names,
                                     &def, &leaves))
        return NULL;
    return nb_py_tree_unflatten(def, leaves);
}

static PyObject *call_leaf(void *fn, PyObject *const *x, Py_ssize_t n)
{
    if (n == 1) return PyObject_CallFunctionObjArgs(fn, x[0], NULL);
    PyObject *args = nb_py_tuple_of(x, n);
    PyObject *y = args ? PyObject_Call(fn, args, NULL) : NULL;
    Py_XDECREF(args);
    return y;
}

/* The trees are `first` and the positional arguments after the second. */
static PyObject *map_all(PyObject *fn, PyObject *first, PyObject *args,
                         PyObject *is_leaf)
{
    nb_py_pile trees = {.n = 0};
    Py_ssize_t n = PyTuple_Size(args);
    bool ok = nb_py_pile_push(&trees, Py_NewRef(first));
    for (Py_ssize_t i = 2; ok && i < n; i++)
        ok = nb_py_pile_push(&trees, Py_NewRef(PyTuple_GetItem(args, i)));
    PyObject *y = NULL;
    if (ok) y = nb_py_tree_map(call_leaf, fn, trees.item, trees.n, is_leaf);
    nb_py_pile_free(&trees);
    return y;
}

static PyObject *py_map(PyObject *self, PyObject *args, PyObject *kwargs)
{
    char *names[] = {"fn", "tree", "is_leaf", NULL};
    PyObject *fn, *tree, *is_leaf = Py_None;
    PyObject *two = PyTuple_GetSlice(args, 0, 2);
    (void)self;
    if (!two) return NULL;
    bool ok = PyArg_ParseTupleAndKeywords(two, kwargs, "OO|$O:tree_map", names,
                                          &fn, &tree, &is_leaf);
    Py_DECREF(two);
    if (!ok) return NULL;
    return map_all(fn, tree, args, is_leaf == Py_None ? NULL : is_leaf);
}

static PyObject *py_register(PyObject *self, PyObject *args, PyObject *kwargs)
{
    char *names[] = {"cls", "flatten_fn", "unflatten_fn", NULL};
    PyObject *cls, *flatten_fn, *unflatten_fn;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:register_pytree_node",
                                     names, &cls, &flatten_fn, &unflatten_fn) ||
        !nb_py_tree_register(cls, flatten_fn, unflatten_fn))
        return NULL;
    return Py_NewRef(Py_None);
}

static PyObject *py_tensor_leaves(PyObject *self, PyObject *args,
                                  PyObject *kwargs)
{
    char *names[] = {"tree", NULL};
    PyObject *tree;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:tensor_leaves", names,
                                     &tree))
        return NULL;
    return nb_py_tensor_leaves(tree);
}

static PyMethodDef functions[] = {
    {"tree_flatten", NB_PY_FUNCTION(py_flatten),
     "tree_flatten(tree, is_leaf=None)\n--\n\n"
     "The leaves of a tree and its structure.\n\n"
     "Lists, tuples, namedtuples, dicts, None and registered types are nodes,\n"
     "all else is a leaf.  The keys of dicts are sorted.  Where is_leaf(x) is\n"
     "true, a node x is taken as a leaf.\n\n"
     ">>> nabla.tree_flatten({\"b\": 2, \"a\": [1, None]})\n"
     "([1, 2], dict['a': list[2](*, None), 'b': *])"},
    {"tree_flatten_full", NB_PY_FUNCTION(py_flatten_full),
     "tree_flatten_full(tree, is_leaf=None)\n--\n\n"
     "tree_flatten in which None is a leaf.\n\n"
     ">>> nabla.core.common.tree_flatten_full([1, None])\n"
     "([1, None], list[2])"},
    {"tree_leaves", NB_PY_FUNCTION(py_leaves),
     "tree_leaves(tree, is_leaf=None)\n--\n\n"
     "The leaves of a tree, as a list.\n\n"
     ">>> nabla.tree_leaves({\"b\": 2, \"a\": [1, None]})\n"
     "[1, 2]"},
    {"tree_structure", NB_PY_FUNCTION(py_structure),
     "tree_structure(tree, is_leaf=None)\n--\n\n"
     "The structure of a tree.\n\n"
     ">>> nabla.tree_structure([1, (2, 3)])\n"
     "list[2](*, tuple[2])"},
    {"tree_unflatten", NB_PY_FUNCTION(py_unflatten),
     "tree_unflatten(treedef, leaves)\n--\n\n"
     "The tree of that structure with these leaves.\n\n"
     ">>> nabla.tree_unflatten(nabla.tree_structure([0, (0, 0)]), \"abc\")\n"
     "['a', ('b', 'c')]"},
    {"tree_unflatten_full", NB_PY_FUNCTION(py_unflatten),
     "tree_unflatten_full(treedef, leaves)\n--\n\n"
     "The inverse of tree_flatten_full.\n\n"
     ">>> from nabla.core.common import tree_flatten_full\n"
     ">>> from nabla.core.common import tree_unflatten_full\n"
     ">>> leaves, structure = tree_flatten_full([1, None])\n"
     ">>> tree_unflatten_full(structure, leaves)\n"
     "[1, None]"},
    {"tree_map", NB_PY_FUNCTION(py_map),
     "tree_map(fn, tree, *rest, is_leaf=None)\n--\n\n"
     "The tree with fn applied to each leaf, and to what stands in its place\n"
     "in the other trees, whose structure must begin like that of the first.\n"
     "Dicts keep their order; fn is called in the order of tree_leaves.\n\n"
     ">>> nabla.tree_map(lambda x, y: x + y, {\"b\": 1, \"a\": 2}, "
     "{\"a\": 20, \"b\": 10})\n"
     "{'b': 11, 'a': 22}"},
    {"register_pytree_node", NB_PY_FUNCTION(py_register),
     "register_pytree_node(cls, flatten_fn, unflatten_fn)\n--\n\n"
     "Makes objects of exactly this type nodes of pytrees.\n\n"
     "flatten_fn(x) is (children, aux) and unflatten_fn(aux, children) an\n"
     "object like x.  Structures are equal only if their aux data are.\n\n"
     ">>> class Pair:\n"
     "...     def __init__(self, a, b):\n"
     "...         self.a, self.b = a, b\n"
     ">>> nabla.register_pytree_node(\n"
     "...     Pair, lambda p: ((p.a, p.b), None), lambda _, ab: Pair(*ab))\n"
     ">>> nabla.tree_leaves([Pair(1, 2), 3])\n"
     "[1, 2, 3]"},
    {"tensor_leaves", NB_PY_FUNCTION(py_tensor_leaves),
     "tensor_leaves(tree)\n--\n\n"
     "The leaves of a tree that are tensors, as a list.\n\n"
     ">>> nabla.tensor_leaves([1, \"a\", None])\n"
     "[]"},
    {0},
};

int nb_py_tree_add(PyObject *module)
{
    PyObject *def = (PyObject *)nb_py_treedef_type();
    if (!def || !nb_py_nodes_set_up()) return -1;
    if (PyModule_AddFunctions(module, functions) < 0) return -1;
    return PyModule_AddObjectRef(module, "PyTreeDef", def);
}
