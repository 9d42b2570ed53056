/* tree_parts.h - what the files of pytrees share: nodes, the pile that walks
 * collect on, and structures.
 *
 * A structure is an array of nodes in preorder: a node, then its children, one
 * after the other.  So it is compared and hashed in one loop, and freed without
 * recursion.  It holds the types of registered nodes, not their functions,
 * which are looked up when it is unflattened. */
#ifndef NB_PY_TREE_PARTS_H
#define NB_PY_TREE_PARTS_H

#include "tree.h"

/* tree_pile.c: what a walk makes.  Whoever starts the walk owns its pile and
 * clears it at the end, so a callback that raises leaks nothing, and no
 * half-filled container can be seen from Python. */

typedef struct nb_py_pile {
    PyObject **item;
    Py_ssize_t n, room;
} nb_py_pile;
bool nb_py_pile_reserve(nb_py_pile *p, Py_ssize_t n); /* for n more */

/* Takes the reference, also on failure; NULL is an earlier failure. */
bool nb_py_pile_push(nb_py_pile *p, PyObject *x);
void nb_py_pile_cut(nb_py_pile *p, Py_ssize_t n);
void nb_py_pile_free(nb_py_pile *p);
PyObject *nb_py_list_of(PyObject *const *item, Py_ssize_t n);
PyObject *nb_py_tuple_of(PyObject *const *item, Py_ssize_t n);

/* The array with room for n items, NULL if there is no memory. */
void *nb_py_grown(void *old, Py_ssize_t *room, Py_ssize_t n, size_t item);

/* tree_node.c */

enum { LEAF, NONE, LIST, TUPLE, NAMED, DICT, CUSTOM, KINDS };

typedef struct nb_py_node {
    int kind;
    Py_ssize_t n;   /* children */
    PyObject *head; /* NAMED, CUSTOM: the type; DICT: list of sorted keys */
    PyObject *aux;  /* CUSTOM: what its flatten function said */
} nb_py_node;

/* What counts as a leaf in one walk. */
typedef struct nb_py_rules {
    PyObject *is_leaf; /* a callable, or NULL */
    PyTypeObject *tensor;
    bool full; /* None is a leaf */
} nb_py_rules;
nb_py_rules nb_py_tree_rules(void); /* the usual ones */

/* What x is; -1 on failure.  Asked: with is_leaf, which is not called for what
 * is a leaf anyway. */
int nb_py_kind_of(const nb_py_rules *r, PyObject *x);
int nb_py_kind_asked(const nb_py_rules *r, PyObject *x);

/* Fills the node and returns the source of its children, a list or a tuple; on
 * failure the node must be cleared all the same. */
PyObject *nb_py_node_open(PyObject *x, int kind, nb_py_node *d);

/* The source of the children of x, of the node's kind, if it is one like it;
 * NULL without an exception if not, and then *why may say more than the two
 * show. */
PyObject *nb_py_node_match(const nb_py_node *d, PyObject *x, const char **why);

/* From the source.  A callback may have changed a list since it was opened. */
PyObject *nb_py_node_child(const nb_py_node *d, PyObject *source, Py_ssize_t i);

/* The container with these children.  A dict is made in the given one, which
 * is taken and decides the order of the keys. */
PyObject *nb_py_node_build(const nb_py_node *d, PyObject *dict,
                           PyObject *const *item);
void nb_py_node_clear(nb_py_node *d);
void nb_py_nodes_free(nb_py_node *d, Py_ssize_t n);

/* The node without its children, the name of a type in a format, and plain
 * text; PyUnicode_AppendAndDel takes NULL for an earlier failure. */
PyObject *nb_py_node_text(const nb_py_node *d);
PyObject *nb_py_type_text(const char *format, PyObject *type);
PyObject *nb_py_text(const char *s);

/* The fields of a namedtuple type: NULL without an exception if it is none. */
PyObject *nb_py_fields_of(PyObject *type);

/* Once per process; the registry outlives a second import. */
bool nb_py_nodes_set_up(void);

/* tree.c */

typedef struct nb_py_walk {
    nb_py_rules rules;
    nb_py_pile leaf;
    nb_py_node *node;
    Py_ssize_t n, room;
} nb_py_walk;

/* Takes the node's references, also on failure. */
bool nb_py_node_push(nb_py_walk *w, nb_py_node d);

/* The list of leaves; *def becomes the structure, if def is given. */
PyObject *nb_py_flatten_by(const nb_py_rules *r, PyObject *tree,
                           PyObject **def);

/* tree_def.c */

/* Immutable, once it can be seen from Python.  It takes part in garbage
 * collection, but like a tuple has nothing to clear: a cycle through it runs
 * through something mutable that was there before it. */
typedef struct nb_py_treedef {
    PyObject base;
    Py_ssize_t n, leaves; /* nodes, and how many of them are leaves */
    Py_hash_t hash;       /* -1: not computed yet */
    nb_py_node *node;
} nb_py_treedef;

/* Takes the nodes, also on failure. */
PyObject *nb_py_treedef_new(nb_py_node *d, Py_ssize_t n, Py_ssize_t leaves);
PyTypeObject *nb_py_treedef_type(void); /* lent; NULL on failure */

/* Of Python, with names. */
#define NB_PY_FUNCTION(f) \
    (PyCFunction)(void (*)(void)) f, METH_VARARGS | METH_KEYWORDS

#endif
