/* tree.c - pytrees: leaves out of trees, and trees made of leaves. */
#include "tree_parts.h"

/* Flattening */

static bool nodes_reserve(nb_py_walk *w, Py_ssize_t n)
{
    nb_py_node *more = nb_py_grown(w->node, &w->room, w->n + n, sizeof *more);
    if (more) w->node = more;
    return more;
}

bool nb_py_node_push(nb_py_walk *w, nb_py_node d)
{
    if (w->n < w->room || nodes_reserve(w, 1)) {
        w->node[w->n++] = d;
        return true;
    }
    nb_py_node_clear(&d);
    return false;
}

static bool flatten(nb_py_walk *w, PyObject *x);

static bool flatten_node(nb_py_walk *w, PyObject *x, int kind)
{
    nb_py_node d;
    PyObject *source = nb_py_node_open(x, kind, &d);
    if (!source) {
        nb_py_node_clear(&d);
        return false;
    }
    bool ok = nb_py_node_push(w, d) && nodes_reserve(w, d.n) &&
              nb_py_pile_reserve(&w->leaf, d.n);
    for (Py_ssize_t i = 0; ok && i < d.n; i++)
        ok = flatten(w, nb_py_node_child(&d, source, i));
    Py_DECREF(source);
    return ok;
}

/* Takes x; NULL is an earlier failure. */
static bool flatten(nb_py_walk *w, PyObject *x)
{
    int kind = x ? nb_py_kind_asked(&w->rules, x) : -1;
    if (kind == LEAF)
        return nb_py_pile_push(&w->leaf, x) &&
               nb_py_node_push(w, (nb_py_node){.kind = LEAF});
    bool ok = kind >= 0 && !Py_EnterRecursiveCall(" while walking a pytree");
    if (ok) {
        ok = flatten_node(w, x, kind);
        Py_LeaveRecursiveCall();
    }
    Py_XDECREF(x);
    return ok;
}

PyObject *nb_py_flatten_by(const nb_py_rules *r, PyObject *tree, PyObject **def)
{
    nb_py_walk w = {.rules = *r};
    PyObject *leaves = NULL;
    if (flatten(&w, Py_NewRef(tree)))
        leaves = nb_py_list_of(w.leaf.item, w.leaf.n);
    if (leaves && def) {
        *def = nb_py_treedef_new(w.node, w.n, w.leaf.n);
        if (!*def) Py_CLEAR(leaves);
    } else {
        nb_py_nodes_free(w.node, w.n);
    }
    nb_py_pile_free(&w.leaf);
    return leaves;
}

/* Building */

typedef struct making {
    const nb_py_node *at;
    PyObject *leaves; /* a tuple of as many as there are leaf nodes */
    Py_ssize_t next;
    nb_py_pile done;
} making;

/* Pushes what the nodes from m->at on describe. */
static bool unflatten(making *m)
{
    const nb_py_node *d = m->at++;
    Py_ssize_t base = m->done.n;
    if (d->kind == LEAF)
        return nb_py_pile_push(
            &m->done, Py_XNewRef(PyTuple_GetItem(m->leaves, m->next++)));
    if (Py_EnterRecursiveCall(" while building a pytree")) return false;
    bool ok = nb_py_pile_reserve(&m->done, d->n + 1);
    for (Py_ssize_t i = 0; ok && i < d->n; i++)
        ok = unflatten(m);
    PyObject *dict = ok && d->kind == DICT ? PyDict_New() : NULL;
    PyObject *whole =
        ok ? nb_py_node_build(d, dict, m->done.item + base) : NULL;
    nb_py_pile_cut(&m->done, base);
    Py_LeaveRecursiveCall();
    return nb_py_pile_push(&m->done, whole);
}

static PyObject *unflatten_by(const nb_py_treedef *t, PyObject *leaves)
{
    making m = {.at = t->node, .leaves = PySequence_Tuple(leaves)};
    if (!m.leaves) return NULL;
    PyObject *tree = NULL;
    Py_ssize_t n = PyTuple_Size(m.leaves);
    if (n != t->leaves)
        PyErr_Format(PyExc_ValueError,
                     "tree_unflatten: %zd leaves for a structure of %zd", n,
                     t->leaves);
    else if (unflatten(&m))
        tree = Py_NewRef(m.done.item[0]);
    nb_py_pile_free(&m.done);
    Py_DECREF(m.leaves);
    return tree;
}

/* For the rest of the extension */

PyObject *nb_py_tree_flatten(PyObject *tree, PyObject **def)
{
    nb_py_rules r = nb_py_tree_rules();
    return nb_py_flatten_by(&r, tree, def);
}

PyObject *nb_py_tree_unflatten(PyObject *def, PyObject *leaves)
{
    if (Py_TYPE(def) == nb_py_treedef_type())
        return unflatten_by((nb_py_treedef *)def, leaves);
    return PyErr_Format(PyExc_TypeError,
                        "tree_unflatten: the structure must be a PyTreeDef, "
                        "not %R",
                        Py_TYPE(def));
}

PyObject *nb_py_tensor_leaves(PyObject *tree)
{
    nb_py_walk w = {.rules = nb_py_tree_rules()};
    PyObject *list = NULL;
    if (flatten(&w, Py_NewRef(tree))) list = PyList_New(0);
    for (Py_ssize_t i = 0; list && i < w.leaf.n; i++) {
        PyObject *x = w.leaf.item[i];
        if (!w.rules.tensor || !PyObject_TypeCheck(x, w.rules.tensor)) continue;
        if (PyList_Append(list, x) < 0) Py_CLEAR(list);
    }
    nb_py_nodes_free(w.node, w.n);
    nb_py_pile_free(&w.leaf);
    return list;
}
