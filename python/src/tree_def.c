/* tree_def.c - PyTreeDef: a structure that Python sees, prints, compares, hashes
 * and pickles. */
#include "tree_parts.h"

static void write_node(PyObject **t, const nb_py_node **at);

/* dict['a': *, 'b': list[2]] */
static void write_dict(PyObject **t, const nb_py_node *d, const nb_py_node **at)
{
    PyUnicode_AppendAndDel(t, nb_py_text("dict["));
    for (Py_ssize_t i = 0; *t && i < d->n; i++) {
        PyObject *key = PyList_GetItem(d->head, i);
        PyUnicode_AppendAndDel(
            t, PyUnicode_FromFormat(i ? ", %R: " : "%R: ", key));
        if (*t) write_node(t, at);
    }
    if (*t) PyUnicode_AppendAndDel(t, nb_py_text("]"));
}

/* list[2], and list[2](*, tuple[3]) if not all children are leaves */
static void write_other(PyObject **t, const nb_py_node *d,
                        const nb_py_node **at)
{
    bool flat = true;
    for (Py_ssize_t i = 0; flat && i < d->n; i++)
        flat = d[1 + i].kind == LEAF;
    PyUnicode_AppendAndDel(t, nb_py_node_text(d));
    if (flat) {
        *at += d->n;
        return;
    }
    for (Py_ssize_t i = 0; *t && i < d->n; i++) {
        PyUnicode_AppendAndDel(t, nb_py_text(i ? ", " : "("));
        if (*t) write_node(t, at);
    }
    if (*t) PyUnicode_AppendAndDel(t, nb_py_text(")"));
}

/* Appends the node at *at with its children and steps over them; *t, which is
 * not NULL, becomes NULL on failure. */
static void write_node(PyObject **t, const nb_py_node **at)
{
    const nb_py_node *d = (*at)++;
    if (Py_EnterRecursiveCall(" while printing a pytree")) {
        Py_CLEAR(*t);
        return;
    }
    if (d->kind == DICT)
        write_dict(t, d, at);
    else
        write_other(t, d, at);
    Py_LeaveRecursiveCall();
}

static PyObject *treedef_text(PyObject *self)
{
    const nb_py_node *at = ((nb_py_treedef *)self)->node;
    PyObject *t = nb_py_text("");
    if (t) write_node(&t, &at);
    return t;
}

/* 1 if the nodes are equal, without their children, 0 if not, -1 on failure. */
static int node_equal(const nb_py_node *a, const nb_py_node *b)
{
    if (a->kind != b->kind || a->n != b->n) return 0;
    if (a->kind == DICT)
        return PyObject_RichCompareBool(a->head, b->head, Py_EQ);
    if (a->head != b->head) return 0;
    return a->kind != CUSTOM ? 1
                             : PyObject_RichCompareBool(a->aux, b->aux, Py_EQ);
}

static PyObject *treedef_compare(PyObject *self, PyObject *other, int op)
{
    const nb_py_treedef *a = (nb_py_treedef *)self, *b = (nb_py_treedef *)other;
    if (Py_TYPE(other) != nb_py_treedef_type() || (op != Py_EQ && op != Py_NE))
        return Py_NewRef(Py_NotImplemented);
    int same = a->n == b->n && a->leaves == b->leaves;
    for (Py_ssize_t i = 0; same == 1 && a != b && i < a->n; i++)
        same = node_equal(&a->node[i], &b->node[i]);
    return same < 0 ? NULL : PyBool_FromLong((same == 1) == (op == Py_EQ));
}

static size_t mixed(size_t h, size_t x)
{
    h = (h ^ x) * (size_t)0x9e3779b97f4a7c15u;
    return h ^ h >> (sizeof h * 4);
}

/* Mixes in the hash of x.  What has no hash adds nothing: so structures with
 * unhashable aux data can still be keys, and are told apart by ==. */
static bool mix_object(size_t *h, PyObject *x)
{
    Py_hash_t own = PyObject_Hash(x);
    if (own == -1) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return false;
        PyErr_Clear();
    }
    *h = mixed(*h, (size_t)own);
    return true;
}

static bool mix_node(size_t *h, const nb_py_node *d)
{
    bool ok = true;
    *h = mixed(*h, (size_t)d->n * KINDS + (size_t)d->kind);
    if (d->kind == DICT)
        for (Py_ssize_t i = 0; ok && i < d->n; i++)
            ok = mix_object(h, PyList_GetItem(d->head, i));
    else if (d->head)
        *h = mixed(*h, (size_t)d->head);
    return ok && (!d->aux || mix_object(h, d->aux));
}

static Py_hash_t treedef_hash(PyObject *self)
{
    nb_py_treedef *t = (nb_py_treedef *)self;
    if (t->hash != -1) return t->hash;
    size_t h = 0;
    for (Py_ssize_t i = 0; i < t->n; i++)
        if (!mix_node(&h, &t->node[i])) return -1;
    t->hash = (Py_hash_t)h == -1 ? -2 : (Py_hash_t)h;
    return t->hash;
}

static int treedef_traverse(PyObject *self, visitproc visit, void *arg)
{
    nb_py_treedef *t = (nb_py_treedef *)self;
    Py_VISIT(Py_TYPE(self));
    for (Py_ssize_t i = 0; i < t->n; i++) {
        Py_VISIT(t->node[i].head);
        Py_VISIT(t->node[i].aux);
    }
    return 0;
}

static void treedef_free(PyObject *self)
{
    nb_py_treedef *t = (nb_py_treedef *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    nb_py_nodes_free(t->node, t->n);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* Pickled, a structure is a tuple of nodes (kind, n, head, aux). */
static PyObject *treedef_reduce(PyObject *self, PyObject *unused)
{
    const nb_py_treedef *t = (nb_py_treedef *)self;
    (void)unused;
    PyObject *load =
        PyObject_GetAttrString((PyObject *)nb_py_treedef_type(), "_load");
    PyObject *all = load ? PyTuple_New(t->n) : NULL;
    bool ok = all;
    for (Py_ssize_t i = 0; ok && i < t->n; i++) {
        const nb_py_node *d = &t->node[i];
        PyObject *one =
            Py_BuildValue("(inOO)", d->kind, d->n, d->head ? d->head : Py_None,
                          d->aux ? d->aux : Py_None);
        ok = one && PyTuple_SetItem(all, i, one) == 0;
    }
    PyObject *result = ok ? Py_BuildValue("(O(O))", load, all) : NULL;
    Py_XDECREF(load);
    Py_XDECREF(all);
    return result;
}

static bool is_type_of(int kind, PyObject *head)
{
    return PyType_Check(head) &&
           (kind == CUSTOM ||
            PyType_IsSubtype((PyTypeObject *)head, &PyTuple_Type));
}

/* Reads one node of at most `most` children; a pickle may hold anything. */
static bool load_node(PyObject *one, Py_ssize_t most, nb_py_node *d)
{
    PyObject *head, *aux;
    *d = (nb_py_node){.kind = LEAF};
    if (!PyTuple_Check(one) ||
        !PyArg_ParseTuple(one, "inOO", &d->kind, &d->n, &head, &aux)) {
        PyErr_Clear();
        return false;
    }
    if (d->kind < LEAF || d->kind >= KINDS || d->n < 0 || d->n > most)
        return false;
    if (d->kind <= NONE && d->n > 0) return false;
    if (d->kind == DICT) {
        if (!PyList_Check(head) || PyList_Size(head) != d->n) return false;
        d->head = PyList_GetSlice(head, 0, d->n);
    } else if (d->kind == NAMED || d->kind == CUSTOM) {
        if (!is_type_of(d->kind, head)) return false;
        d->head = Py_NewRef(head);
    }
    if (d->kind == CUSTOM) d->aux = Py_NewRef(aux);
    return d->kind != DICT || d->head;
}

/* Reads all nodes.  `open` counts the children still to come: it must reach 0
 * with the last node and not before. */
static bool load_nodes(PyObject *all, nb_py_walk *w)
{
    Py_ssize_t n = PyTuple_Size(all), open = 1;
    for (Py_ssize_t i = 0; i < n && open > 0; i++) {
        nb_py_node d;
        if (!load_node(PyTuple_GetItem(all, i), n, &d)) return false;
        open += d.n - 1;
        if (d.kind == LEAF) w->leaf.n++;
        if (!nb_py_node_push(w, d)) return false;
    }
    return open == 0 && w->n == n;
}

static PyObject *treedef_load(PyObject *cls, PyObject *all)
{
    nb_py_walk w = {.n = 0};
    (void)cls;
    if (PyTuple_Check(all) && load_nodes(all, &w))
        return nb_py_treedef_new(w.node, w.n, w.leaf.n);
    nb_py_nodes_free(w.node, w.n);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError,
                        "PyTreeDef: the pickled nodes form no tree");
    return NULL;
}

static PyObject *treedef_leaves(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSsize_t(((nb_py_treedef *)self)->leaves);
}

static PyObject *treedef_unflatten(PyObject *self, PyObject *args,
                                   PyObject *kwargs)
{
    char *names[] = {"leaves", NULL};
    PyObject *leaves;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:unflatten", names,
                                     &leaves))
        return NULL;
    return nb_py_tree_unflatten(self, leaves);
}

static PyMethodDef treedef_methods[] = {
    {"unflatten", NB_PY_FUNCTION(treedef_unflatten),
     "unflatten($self, leaves)\n--\n\n"
     "The tree of this structure with these leaves."},
    {"__reduce__", treedef_reduce, METH_NOARGS, NULL},
    {"_load", treedef_load, METH_O | METH_CLASS, NULL},
    {0},
};

static PyGetSetDef treedef_getset[] = {
    {.name = "num_leaves", .get = treedef_leaves, .doc = "How many leaves."},
    {0},
};

static PyType_Slot treedef_slots[] = {
    {Py_tp_doc, "The structure of a pytree: everything but its leaves.\n\n"
                ">>> nabla.tree_structure({\"b\": [1, 2], \"a\": None})\n"
                "dict['a': None, 'b': list[2]]"},
    {Py_tp_repr, treedef_text},
    {Py_tp_richcompare, treedef_compare},
    {Py_tp_hash, treedef_hash},
    {Py_tp_traverse, treedef_traverse},
    {Py_tp_dealloc, treedef_free},
    {Py_tp_methods, treedef_methods},
    {Py_tp_getset, treedef_getset},
    {0, NULL},
};

static PyType_Spec treedef_spec = {
    .name = "nabla.PyTreeDef",
    .basicsize = sizeof(nb_py_treedef),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = treedef_slots,
};

PyTypeObject *nb_py_treedef_type(void)
{
    static PyTypeObject *type; /* for the process */
    if (!type) type = (PyTypeObject *)PyType_FromSpec(&treedef_spec);
    return type;
}

PyObject *nb_py_treedef_new(nb_py_node *d, Py_ssize_t n, Py_ssize_t leaves)
{
    nb_py_treedef *t = PyObject_GC_New(nb_py_treedef, nb_py_treedef_type());
    if (!t) {
        nb_py_nodes_free(d, n);
        return NULL;
    }
    t->n = n;
    t->leaves = leaves;
    t->hash = -1;
    t->node = d;
    PyObject_GC_Track(t);
    return (PyObject *)t;
}
