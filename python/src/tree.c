/* tree.c - pytrees: flatten, unflatten, map, and PyTreeDef.
 *
 * A structure is an array of nodes in preorder: a node, then its children, one
 * after the other.  So it is compared and hashed in one loop, and freed without
 * recursion.  It holds the types of registered nodes, not their functions,
 * which are looked up when it is unflattened.
 *
 * All walks collect what they make on a pile of references.  Whoever starts a
 * walk owns its pile and clears it at the end, so a callback that raises leaks
 * nothing, and no half-filled container can be seen from Python. */
#include "tree.h"

enum { LEAF, NONE, LIST, TUPLE, NAMED, DICT, CUSTOM, KINDS };

typedef struct node {
    int kind;
    Py_ssize_t n;   /* children */
    PyObject *head; /* NAMED, CUSTOM: the type; DICT: list of sorted keys */
    PyObject *aux;  /* CUSTOM: what its flatten function said */
} node;

/* Immutable, once it can be seen from Python.  It takes part in garbage
 * collection, but like a tuple has nothing to clear: a cycle through it runs
 * through something mutable that was there before it. */
typedef struct treedef {
    PyObject base;
    Py_ssize_t n, leaves; /* nodes, and how many of them are leaves */
    Py_hash_t hash;       /* -1: not computed yet */
    node *node;
} treedef;

/* Set up once per process; the registry outlives a second import. */
static struct {
    PyTypeObject *def;
    PyObject *types;  /* dict: registered type -> (flatten, unflatten) */
    PyObject *fields; /* the text "_fields" */
} state;

/* What counts as a leaf in one walk. */
typedef struct rules {
    PyObject *is_leaf; /* a callable, or NULL */
    PyTypeObject *tensor;
    bool full; /* None is a leaf */
} rules;

typedef struct pile {
    PyObject **item;
    Py_ssize_t n, room;
} pile;

static rules plain_rules(void)
{
    return (rules){.tensor = (PyTypeObject *)nb_py_tensor_type()};
}

/* The array with room for n items, NULL if there is no memory. */
static void *grown(void *old, Py_ssize_t *room, Py_ssize_t n, size_t item)
{
    if (n <= *room && old) return old;
    Py_ssize_t more = *room > n / 2 ? 2 * *room : n;
    if (more < 8) more = 8;
    void *p = PyMem_Realloc(old, (size_t)more * item);
    if (!p) return PyErr_NoMemory();
    *room = more;
    return p;
}

static bool pile_reserve(pile *p, Py_ssize_t n)
{
    PyObject **item = grown(p->item, &p->room, p->n + n, sizeof *item);
    if (item) p->item = item;
    return item;
}

/* Takes the reference, also on failure; NULL is an earlier failure. */
static bool pile_push(pile *p, PyObject *x)
{
    if (x && (p->n < p->room || pile_reserve(p, 1))) {
        p->item[p->n++] = x;
        return true;
    }
    Py_XDECREF(x);
    return false;
}

static void pile_cut(pile *p, Py_ssize_t n)
{
    while (p->n > n)
        Py_DECREF(p->item[--p->n]);
}

static void pile_free(pile *p)
{
    pile_cut(p, 0);
    PyMem_Free(p->item);
}

static PyObject *list_of(PyObject *const *item, Py_ssize_t n)
{
    PyObject *list = PyList_New(n);
    for (Py_ssize_t i = 0; list && i < n; i++)
        PyList_SetItem(list, i, Py_NewRef(item[i]));
    return list;
}

static PyObject *tuple_of(PyObject *const *item, Py_ssize_t n)
{
    PyObject *tuple = PyTuple_New(n);
    for (Py_ssize_t i = 0; tuple && i < n; i++)
        PyTuple_SetItem(tuple, i, Py_NewRef(item[i]));
    return tuple;
}

static void node_clear(node *d)
{
    Py_CLEAR(d->head);
    Py_CLEAR(d->aux);
}

static void nodes_free(node *d, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        node_clear(&d[i]);
    PyMem_Free(d);
}

/* The fields of a namedtuple type: NULL without an exception if it is none. */
static PyObject *fields_of(PyObject *type)
{
    PyObject *fields = PyObject_GetAttr(type, state.fields);
    if (!fields && PyErr_ExceptionMatches(PyExc_AttributeError)) PyErr_Clear();
    if (fields && !PyTuple_Check(fields)) Py_CLEAR(fields);
    return fields;
}

/* Of an object whose type is neither built in nor a tensor; -1 on failure.  A
 * type without a hash (its metaclass may define ==) cannot be registered.  A
 * kind of dict whose flatten_fn is dict is one: it fits where a dict does. */
static int kind_of_other(PyObject *x)
{
    PyObject *type = (PyObject *)Py_TYPE(x);
    PyObject *pair = PyDict_GetItemWithError(state.types, type);
    if (pair && PyDict_Check(x) &&
        PyTuple_GetItem(pair, 0) == (PyObject *)&PyDict_Type)
        return DICT;
    if (pair) return CUSTOM;
    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) return -1;
        PyErr_Clear();
    }
    if (!PyTuple_Check(x)) return LEAF;
    PyObject *fields = fields_of(type);
    if (!fields) return PyErr_Occurred() ? -1 : LEAF;
    Py_DECREF(fields);
    return NAMED;
}

static int kind_of(const rules *r, PyObject *x)
{
    PyTypeObject *type = Py_TYPE(x);
    if (type == r->tensor) return LEAF;
    if (type == &PyDict_Type) return DICT;
    if (type == &PyList_Type) return LIST;
    if (type == &PyTuple_Type) return TUPLE;
    if (x == Py_None) return r->full ? LEAF : NONE;
    return kind_of_other(x);
}

/* The same with is_leaf, which is not asked about what is a leaf anyway. */
static int kind_asked(const rules *r, PyObject *x)
{
    int kind = kind_of(r, x);
    if (kind <= LEAF || !r->is_leaf) return kind;
    PyObject *answer = PyObject_CallFunctionObjArgs(r->is_leaf, x, NULL);
    int leaf = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    return leaf < 0 ? -1 : leaf ? LEAF : kind;
}

/* Text: PyUnicode_AppendAndDel takes NULL for an earlier failure. */

static PyObject *text(const char *s)
{
    return PyUnicode_FromString(s);
}

static PyObject *type_text(const char *format, PyObject *type)
{
    PyObject *name = PyType_GetName((PyTypeObject *)type);
    PyObject *t = name ? PyUnicode_FromFormat(format, name) : NULL;
    Py_XDECREF(name);
    return t;
}

/* 'a', 'b', ... with at most so many keys of the list. */
static PyObject *keys_text(PyObject *keys, Py_ssize_t most)
{
    PyObject *t = text("");
    Py_ssize_t n = PyList_Size(keys);
    for (Py_ssize_t i = 0; t && i < n && i < most; i++) {
        PyObject *key = PyList_GetItem(keys, i);
        PyUnicode_AppendAndDel(&t,
                               PyUnicode_FromFormat(i ? ", %R" : "%R", key));
    }
    if (t && n > most)
        PyUnicode_AppendAndDel(
            &t, PyUnicode_FromFormat(", ... %zd more", n - most));
    return t;
}

static PyObject *dict_text(PyObject *keys)
{
    PyObject *inside = keys_text(keys, 8);
    PyObject *t = inside ? PyUnicode_FromFormat("dict[%U]", inside) : NULL;
    Py_XDECREF(inside);
    return t;
}

/* The node without its children. */
static PyObject *node_text(const node *d)
{
    switch (d->kind) {
    case NONE: return text("None");
    case LIST: return PyUnicode_FromFormat("list[%zd]", d->n);
    case TUPLE: return PyUnicode_FromFormat("tuple[%zd]", d->n);
    case NAMED: return type_text("tuple[%U]", d->head);
    case DICT: return dict_text(d->head);
    case CUSTOM: return type_text("custom[%U]", d->head);
    default: return text("*");
    }
}

/* Opening a node: what it is, and where its children are. */

/* The keys must sort, for equal dicts must have equal structures. */
static PyObject *sorted_keys(PyObject *dict)
{
    PyObject *keys = PyDict_Keys(dict);
    if (!keys || PyList_Sort(keys) == 0) return keys;
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyObject *t = keys_text(keys, 16);
        if (t)
            PyErr_Format(PyExc_TypeError,
                         "pytree: the keys of a dict must sort, but these do "
                         "not compare: %U",
                         t);
        Py_XDECREF(t);
    }
    Py_DECREF(keys);
    return NULL;
}

/* The values of those keys, as a list; NULL without an exception if there are
 * not just those keys.  Many dicts are sorted as they are, so keys are looked
 * up only from the first one out of order on. */
static PyObject *values_of(PyObject *dict, PyObject *keys)
{
    Py_ssize_t i = 0, at = 0, n = PyList_Size(keys);
    PyObject *values = PyDict_Values(dict), *key;
    if (!values) return NULL;
    bool ok = PyList_Size(values) == n;
    while (ok && i < n && PyDict_Next(dict, &at, &key, NULL) &&
           key == PyList_GetItem(keys, i))
        i++;
    for (; ok && i < n; i++) {
        PyObject *x = PyDict_GetItemWithError(dict, PyList_GetItem(keys, i));
        ok = x && PyList_SetItem(values, i, Py_NewRef(x)) == 0;
    }
    if (!ok) Py_CLEAR(values);
    return values;
}

static PyObject *open_dict(PyObject *x, node *d)
{
    d->head = sorted_keys(x);
    if (!d->head) return NULL;
    d->n = PyList_Size(d->head);
    PyObject *source = values_of(x, d->head);
    if (!source && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError,
                        "pytree: a dict changed while it was walked");
    return source;
}

/* One of the two functions of a registered type: 0 flatten, 1 unflatten. */
static PyObject *function_of(PyObject *type, int which)
{
    PyObject *pair = PyDict_GetItemWithError(state.types, type);
    if (pair) return Py_NewRef(PyTuple_GetItem(pair, which));
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError,
                     "tree_unflatten: %R is not registered as a pytree node",
                     type);
    return NULL;
}

/* The children as a tuple. */
static PyObject *open_custom(PyObject *x, node *d)
{
    PyObject *type = (PyObject *)Py_TYPE(x), *source = NULL;
    PyObject *flatten = function_of(type, 0);
    if (!flatten) return NULL;
    PyObject *pair = PyObject_CallFunctionObjArgs(flatten, x, NULL);
    Py_DECREF(flatten);
    if (!pair) return NULL;
    if (PyTuple_Check(pair) && PyTuple_Size(pair) == 2)
        source = PySequence_Tuple(PyTuple_GetItem(pair, 0));
    else
        PyErr_Format(PyExc_TypeError,
                     "pytree: the flatten function of %R must return a tuple "
                     "(children, aux), not %R",
                     type, Py_TYPE(pair));
    if (source) {
        d->n = PyTuple_Size(source);
        d->head = Py_NewRef(type);
        d->aux = Py_NewRef(PyTuple_GetItem(pair, 1));
    }
    Py_DECREF(pair);
    return source;
}

/* Fills the node and returns the source of its children, a list or a tuple; on
 * failure the node must be cleared all the same. */
static PyObject *node_open(PyObject *x, int kind, node *d)
{
    *d = (node){.kind = kind};
    switch (kind) {
    case LIST: d->n = PyList_Size(x); break;
    case TUPLE: d->n = PyTuple_Size(x); break;
    case NAMED:
        d->n = PyTuple_Size(x);
        d->head = Py_NewRef((PyObject *)Py_TYPE(x));
        break;
    case DICT: return open_dict(x, d);
    case CUSTOM: return open_custom(x, d);
    default: break;
    }
    return Py_NewRef(x);
}

/* A callback may have changed a list since it was opened. */
static PyObject *child(const node *d, PyObject *source, Py_ssize_t i)
{
    if (d->kind != LIST && d->kind != DICT)
        return Py_XNewRef(PyTuple_GetItem(source, i));
    if (i < PyList_Size(source)) return Py_NewRef(PyList_GetItem(source, i));
    PyErr_SetString(PyExc_RuntimeError,
                    "pytree: a list became shorter while it was walked");
    return NULL;
}

/* Flattening */

typedef struct walk {
    rules rules;
    pile leaf;
    node *node;
    Py_ssize_t n, room;
} walk;

static bool nodes_reserve(walk *w, Py_ssize_t n)
{
    node *more = grown(w->node, &w->room, w->n + n, sizeof *more);
    if (more) w->node = more;
    return more;
}

/* Takes the node's references, also on failure. */
static bool node_push(walk *w, node d)
{
    if (w->n < w->room || nodes_reserve(w, 1)) {
        w->node[w->n++] = d;
        return true;
    }
    node_clear(&d);
    return false;
}

static bool flatten(walk *w, PyObject *x);

static bool flatten_node(walk *w, PyObject *x, int kind)
{
    node d;
    PyObject *source = node_open(x, kind, &d);
    if (!source) {
        node_clear(&d);
        return false;
    }
    bool ok =
        node_push(w, d) && nodes_reserve(w, d.n) && pile_reserve(&w->leaf, d.n);
    for (Py_ssize_t i = 0; ok && i < d.n; i++)
        ok = flatten(w, child(&d, source, i));
    Py_DECREF(source);
    return ok;
}

/* Takes x; NULL is an earlier failure. */
static bool flatten(walk *w, PyObject *x)
{
    int kind = x ? kind_asked(&w->rules, x) : -1;
    if (kind == LEAF)
        return pile_push(&w->leaf, x) && node_push(w, (node){.kind = LEAF});
    bool ok = kind >= 0 && !Py_EnterRecursiveCall(" while walking a pytree");
    if (ok) {
        ok = flatten_node(w, x, kind);
        Py_LeaveRecursiveCall();
    }
    Py_XDECREF(x);
    return ok;
}

/* Takes the nodes, also on failure. */
static PyObject *treedef_new(node *d, Py_ssize_t n, Py_ssize_t leaves)
{
    treedef *t = PyObject_GC_New(treedef, state.def);
    if (!t) {
        nodes_free(d, n);
        return NULL;
    }
    t->n = n;
    t->leaves = leaves;
    t->hash = -1;
    t->node = d;
    PyObject_GC_Track(t);
    return (PyObject *)t;
}

/* The list of leaves; *def becomes the structure, if def is given. */
static PyObject *flatten_by(const rules *r, PyObject *tree, PyObject **def)
{
    walk w = {.rules = *r};
    PyObject *leaves = NULL;
    if (flatten(&w, Py_NewRef(tree))) leaves = list_of(w.leaf.item, w.leaf.n);
    if (leaves && def) {
        *def = treedef_new(w.node, w.n, w.leaf.n);
        if (!*def) Py_CLEAR(leaves);
    } else {
        nodes_free(w.node, w.n);
    }
    pile_free(&w.leaf);
    return leaves;
}

/* Building */

static PyObject *fill_dict(const node *d, PyObject *dict, PyObject *const *item)
{
    for (Py_ssize_t i = 0; dict && i < d->n; i++)
        if (PyDict_SetItem(dict, PyList_GetItem(d->head, i), item[i]) < 0)
            Py_CLEAR(dict);
    return dict;
}

static PyObject *build_custom(const node *d, PyObject *children)
{
    PyObject *unflatten = function_of(d->head, 1);
    if (!unflatten) return NULL;
    PyObject *whole =
        PyObject_CallFunctionObjArgs(unflatten, d->aux, children, NULL);
    Py_DECREF(unflatten);
    return whole;
}

/* The container with these children.  A dict is made in the given one, which
 * is taken and decides the order of the keys. */
static PyObject *build(const node *d, PyObject *dict, PyObject *const *item)
{
    if (d->kind == DICT) return fill_dict(d, dict, item);
    if (d->kind == NONE) return Py_NewRef(Py_None);
    if (d->kind == LIST) return list_of(item, d->n);
    PyObject *whole, *children = tuple_of(item, d->n);
    if (!children || d->kind == TUPLE) return children;
    if (d->kind == NAMED)
        whole = PyObject_Call(d->head, children, NULL);
    else
        whole = build_custom(d, children);
    Py_DECREF(children);
    return whole;
}

typedef struct making {
    const node *at;
    PyObject *leaves; /* a tuple of as many as there are leaf nodes */
    Py_ssize_t next;
    pile done;
} making;

/* Pushes what the nodes from m->at on describe. */
static bool unflatten(making *m)
{
    const node *d = m->at++;
    Py_ssize_t base = m->done.n;
    if (d->kind == LEAF)
        return pile_push(&m->done,
                         Py_XNewRef(PyTuple_GetItem(m->leaves, m->next++)));
    if (Py_EnterRecursiveCall(" while building a pytree")) return false;
    bool ok = pile_reserve(&m->done, d->n + 1);
    for (Py_ssize_t i = 0; ok && i < d->n; i++)
        ok = unflatten(m);
    PyObject *dict = ok && d->kind == DICT ? PyDict_New() : NULL;
    PyObject *whole = ok ? build(d, dict, m->done.item + base) : NULL;
    pile_cut(&m->done, base);
    Py_LeaveRecursiveCall();
    return pile_push(&m->done, whole);
}

static PyObject *unflatten_by(const treedef *t, PyObject *leaves)
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
    pile_free(&m.done);
    Py_DECREF(m.leaves);
    return tree;
}

/* Matching.  It goes no deeper than the structure, whose depth was bounded when
 * it was made. */

typedef struct matching {
    rules rules;
    const node *at;
    nb_py_match_fn *fn;
    void *data;
} matching;

/* The source of the children of x, if it is a node like d; NULL without an
 * exception if not. */
static PyObject *match_node(const node *d, PyObject *x)
{
    node own;
    switch (d->kind) {
    case LIST: return PyList_Size(x) == d->n ? Py_NewRef(x) : NULL;
    case TUPLE: return PyTuple_Size(x) == d->n ? Py_NewRef(x) : NULL;
    case DICT: return values_of(x, d->head);
    case NAMED:
        if ((PyObject *)Py_TYPE(x) != d->head) return NULL;
        return PyTuple_Size(x) == d->n ? Py_NewRef(x) : NULL;
    default: break;
    }
    if ((PyObject *)Py_TYPE(x) != d->head) return NULL;
    PyObject *source = node_open(x, CUSTOM, &own);
    if (!source) return NULL; /* and own holds nothing */
    int same =
        own.n == d->n ? PyObject_RichCompareBool(d->aux, own.aux, Py_EQ) : 0;
    node_clear(&own);
    if (same != 1) Py_CLEAR(source);
    return source;
}

static int match_at(matching *m, PyObject *x)
{
    const node *d = m->at++;
    int kind = kind_of(&m->rules, x);
    if (kind != d->kind) return kind < 0 ? -1 : 0;
    if (kind == LEAF) return m->fn(m->data, x);
    if (kind == NONE) return 1;
    PyObject *source = match_node(d, x);
    int same = source ? 1 : PyErr_Occurred() ? -1 : 0;
    for (Py_ssize_t i = 0; same == 1 && i < d->n; i++) {
        PyObject *one = child(d, source, i);
        same = one ? match_at(m, one) : -1;
        Py_XDECREF(one);
    }
    Py_XDECREF(source);
    return same;
}

int nb_py_tree_match(PyObject *def, PyObject *tree, nb_py_match_fn *fn,
                     void *data)
{
    matching m = {.rules = plain_rules(),
                  .at = ((treedef *)def)->node,
                  .fn = fn,
                  .data = data};
    return match_at(&m, tree);
}

/* Mapping.  The n trees lie on the pile; where they have nodes, the sources of
 * their children take their place, then the results are piled up above them,
 * and the result of the whole ends where the first tree was. */

typedef struct mapping {
    rules rules;
    nb_py_leaf_fn *fn;
    void *data;
    Py_ssize_t n;
    pile pile;
} mapping;

/* Where a walk is: child i of a node, which is reached by the steps above. */
typedef struct step {
    const struct step *up;
    const node *node;
    Py_ssize_t i;
} step;

static PyObject *named_step(const step *s)
{
    PyObject *fields = fields_of(s->node->head);
    if (!fields) return PyErr_Occurred() ? NULL : text(".?");
    PyObject *t =
        s->i < PyTuple_Size(fields)
            ? PyUnicode_FromFormat(".%S", PyTuple_GetItem(fields, s->i))
            : PyUnicode_FromFormat("[%zd]", s->i);
    Py_DECREF(fields);
    return t;
}

static PyObject *step_text(const step *s)
{
    const node *d = s->node;
    if (d->kind == NAMED) return named_step(s);
    if (d->kind == DICT)
        return PyUnicode_FromFormat("[%R]", PyList_GetItem(d->head, s->i));
    PyObject *t = d->kind == CUSTOM ? type_text("<%U>", d->head) : text("");
    if (t) PyUnicode_AppendAndDel(&t, PyUnicode_FromFormat("[%zd]", s->i));
    return t;
}

/* The steps from the root: ['w'][0], .field, <Linear>[1]. */
static PyObject *path_text(const step *s)
{
    if (!s) return text("");
    PyObject *t = path_text(s->up);
    if (t) PyUnicode_AppendAndDel(&t, step_text(s));
    return t;
}

/* What stands in another tree, whose children need not be asked for. */
static PyObject *object_text(PyObject *x, int kind)
{
    if (kind == LEAF) return type_text("* (%U)", (PyObject *)Py_TYPE(x));
    node d = {.kind = kind};
    if (kind == LIST) d.n = PyList_Size(x);
    if (kind == TUPLE) d.n = PyTuple_Size(x);
    if (kind == NAMED || kind == CUSTOM)
        d.head = Py_NewRef((PyObject *)Py_TYPE(x));
    if (kind == DICT) d.head = PyDict_Keys(x);
    PyObject *t = kind == DICT && !d.head ? NULL : node_text(&d);
    node_clear(&d);
    return t;
}

/* The one place in which two trees differ. */
typedef struct clash {
    const step *path;
    const node *node; /* of the first tree */
    PyObject *x;      /* what tree number `tree` has there */
    int kind;
    Py_ssize_t tree; /* from 1 */
    const char *why; /* NULL if the two nodes show it */
} clash;

/* The first key of a list that a dict or set has not, borrowed; NULL without
 * an exception if it has them all. */
static PyObject *odd_key(PyObject *keys, PyObject *others)
{
    Py_ssize_t n = PyList_Size(keys);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *key = PyList_GetItem(keys, i);
        int has = PySequence_Contains(others, key);
        if (has < 1) return has == 0 ? key : NULL;
    }
    return NULL;
}

/* Long dicts are not printed in full, so say which key it is about. */
static PyObject *key_text(PyObject *first, PyObject *dict)
{
    PyObject *odd = odd_key(first, dict), *t = NULL;
    if (odd) return PyUnicode_FromFormat(", which has no %R", odd);
    if (PyErr_Occurred()) return NULL;
    PyObject *keys = PyDict_Keys(dict), *set = PyFrozenSet_New(first);
    if (keys && set) odd = odd_key(keys, set);
    if (odd) t = PyUnicode_FromFormat(", which has %R too", odd);
    Py_XDECREF(keys);
    Py_XDECREF(set);
    return t || PyErr_Occurred() ? t : text("");
}

static PyObject *why_text(const clash *c)
{
    if (c->why) return text(c->why);
    if (c->kind != DICT || c->node->kind != DICT) return text("");
    return key_text(c->node->head, c->x);
}

/* Raises, and returns NULL. */
static PyObject *mismatch(const clash *c)
{
    PyObject *path = path_text(c->path);
    PyObject *a = path ? node_text(c->node) : NULL;
    PyObject *b = a ? object_text(c->x, c->kind) : NULL;
    PyObject *why = b ? why_text(c) : NULL;
    if (why)
        PyErr_Format(PyExc_ValueError,
                     "tree_map: Tree structure mismatch at %s%U: %U against "
                     "%U%U (tree 1 against tree %zd)",
                     c->path ? "" : "the root", path, a, b, why, c->tree);
    Py_XDECREF(path);
    Py_XDECREF(a);
    Py_XDECREF(b);
    Py_XDECREF(why);
    return NULL;
}

/* The children of c->x, if it is a registered object like the node. */
static PyObject *match_custom(clash *c)
{
    node d;
    PyObject *source = node_open(c->x, CUSTOM, &d);
    if (!source) return NULL; /* and d holds nothing */
    int same = PyObject_RichCompareBool(c->node->aux, d.aux, Py_EQ);
    bool fits = same == 1 && d.n == c->node->n;
    node_clear(&d);
    if (fits) return source;
    Py_DECREF(source);
    if (same < 0) return NULL;
    c->why = same ? " with another number of children" : " with other aux data";
    return mismatch(c);
}

/* The source of the children of c->x, if it is a node like that of the first
 * tree; otherwise raises. */
static PyObject *match(const rules *r, clash *c)
{
    const node *d = c->node;
    PyObject *x = c->x, *type = (PyObject *)Py_TYPE(x), *values;
    c->kind = kind_of(r, x);
    if (c->kind < 0) return NULL;
    if (c->kind != d->kind) return mismatch(c);
    switch (c->kind) {
    case NONE: return Py_NewRef(x);
    case LIST: return PyList_Size(x) == d->n ? Py_NewRef(x) : mismatch(c);
    case DICT:
        values = values_of(x, d->head);
        return values || PyErr_Occurred() ? values : mismatch(c);
    case CUSTOM: return type == d->head ? match_custom(c) : mismatch(c);
    default:
        if (c->kind == NAMED && type != d->head) return mismatch(c);
        return PyTuple_Size(x) == d->n ? Py_NewRef(x) : mismatch(c);
    }
}

static void replace(PyObject **at, PyObject *x)
{
    PyObject *old = *at;
    *at = x;
    Py_DECREF(old);
}

static bool open_others(mapping *m, const step *path, PyObject **tree,
                        const node *d)
{
    for (Py_ssize_t k = 1; k < m->n; k++) {
        clash c = {.path = path, .node = d, .x = tree[k], .tree = k + 1};
        PyObject *source = match(&m->rules, &c);
        if (!source) return false;
        replace(&tree[k], source);
    }
    return true;
}

static bool map_at(mapping *m, const step *path, Py_ssize_t at);

static bool map_child(mapping *m, const step *s, Py_ssize_t at)
{
    Py_ssize_t base = m->pile.n;
    bool ok = true;
    for (Py_ssize_t k = 0; ok && k < m->n; k++)
        ok = pile_push(&m->pile, child(s->node, m->pile.item[at + k], s->i));
    return ok && map_at(m, s, base);
}

/* The result for the trees from pile item `at` on.  It has the order of the
 * first tree's dicts, because it is made in copies of them. */
static PyObject *map_node(mapping *m, const step *path, Py_ssize_t at, int kind)
{
    node d;
    PyObject **tree = m->pile.item + at, *dict = NULL, *whole = NULL;
    if (kind == DICT && !(dict = PyDict_Copy(*tree))) return NULL;
    PyObject *source = node_open(dict ? dict : *tree, kind, &d);
    if (source) replace(tree, source);
    bool ok = source && open_others(m, path, tree, &d);
    Py_ssize_t base = m->pile.n;
    for (Py_ssize_t i = 0; ok && i < d.n; i++)
        ok = map_child(m, &(step){path, &d, i}, at);
    if (ok)
        whole = build(&d, dict, m->pile.item + base);
    else
        Py_XDECREF(dict);
    node_clear(&d);
    return whole;
}

/* Replaces the trees from pile item `at` on, the topmost, by their result. */
static bool map_at(mapping *m, const step *path, Py_ssize_t at)
{
    PyObject *y = NULL;
    int kind = kind_asked(&m->rules, m->pile.item[at]);
    if (kind == LEAF) {
        y = m->fn(m->data, m->pile.item + at, m->n);
    } else if (kind >= 0 && !Py_EnterRecursiveCall(" while mapping a pytree")) {
        y = map_node(m, path, at, kind);
        Py_LeaveRecursiveCall();
    }
    pile_cut(&m->pile, at);
    return pile_push(&m->pile, y);
}

/* PyTreeDef */

static void write_node(PyObject **t, const node **at);

/* dict['a': *, 'b': list[2]] */
static void write_dict(PyObject **t, const node *d, const node **at)
{
    PyUnicode_AppendAndDel(t, text("dict["));
    for (Py_ssize_t i = 0; *t && i < d->n; i++) {
        PyObject *key = PyList_GetItem(d->head, i);
        PyUnicode_AppendAndDel(
            t, PyUnicode_FromFormat(i ? ", %R: " : "%R: ", key));
        if (*t) write_node(t, at);
    }
    if (*t) PyUnicode_AppendAndDel(t, text("]"));
}

/* list[2], and list[2](*, tuple[3]) if not all children are leaves */
static void write_other(PyObject **t, const node *d, const node **at)
{
    bool flat = true;
    for (Py_ssize_t i = 0; flat && i < d->n; i++)
        flat = d[1 + i].kind == LEAF;
    PyUnicode_AppendAndDel(t, node_text(d));
    if (flat) {
        *at += d->n;
        return;
    }
    for (Py_ssize_t i = 0; *t && i < d->n; i++) {
        PyUnicode_AppendAndDel(t, text(i ? ", " : "("));
        if (*t) write_node(t, at);
    }
    if (*t) PyUnicode_AppendAndDel(t, text(")"));
}

/* Appends the node at *at with its children and steps over them; *t, which is
 * not NULL, becomes NULL on failure. */
static void write_node(PyObject **t, const node **at)
{
    const node *d = (*at)++;
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
    const node *at = ((treedef *)self)->node;
    PyObject *t = text("");
    if (t) write_node(&t, &at);
    return t;
}

/* 1 if the nodes are equal, without their children, 0 if not, -1 on failure. */
static int node_equal(const node *a, const node *b)
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
    const treedef *a = (treedef *)self, *b = (treedef *)other;
    if (Py_TYPE(other) != state.def || (op != Py_EQ && op != Py_NE))
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

static bool mix_node(size_t *h, const node *d)
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
    treedef *t = (treedef *)self;
    if (t->hash != -1) return t->hash;
    size_t h = 0;
    for (Py_ssize_t i = 0; i < t->n; i++)
        if (!mix_node(&h, &t->node[i])) return -1;
    t->hash = (Py_hash_t)h == -1 ? -2 : (Py_hash_t)h;
    return t->hash;
}

static int treedef_traverse(PyObject *self, visitproc visit, void *arg)
{
    treedef *t = (treedef *)self;
    Py_VISIT(Py_TYPE(self));
    for (Py_ssize_t i = 0; i < t->n; i++) {
        Py_VISIT(t->node[i].head);
        Py_VISIT(t->node[i].aux);
    }
    return 0;
}

static void treedef_free(PyObject *self)
{
    treedef *t = (treedef *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    nodes_free(t->node, t->n);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

/* Pickled, a structure is a tuple of nodes (kind, n, head, aux). */
static PyObject *treedef_reduce(PyObject *self, PyObject *unused)
{
    const treedef *t = (treedef *)self;
    (void)unused;
    PyObject *load = PyObject_GetAttrString((PyObject *)state.def, "_load");
    PyObject *all = load ? PyTuple_New(t->n) : NULL;
    bool ok = all;
    for (Py_ssize_t i = 0; ok && i < t->n; i++) {
        const node *d = &t->node[i];
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
static bool load_node(PyObject *one, Py_ssize_t most, node *d)
{
    PyObject *head, *aux;
    *d = (node){.kind = LEAF};
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
static bool load_nodes(PyObject *all, walk *w)
{
    Py_ssize_t n = PyTuple_Size(all), open = 1;
    for (Py_ssize_t i = 0; i < n && open > 0; i++) {
        node d;
        if (!load_node(PyTuple_GetItem(all, i), n, &d)) return false;
        open += d.n - 1;
        if (d.kind == LEAF) w->leaf.n++;
        if (!node_push(w, d)) return false;
    }
    return open == 0 && w->n == n;
}

static PyObject *treedef_load(PyObject *cls, PyObject *all)
{
    walk w = {.n = 0};
    (void)cls;
    if (PyTuple_Check(all) && load_nodes(all, &w))
        return treedef_new(w.node, w.n, w.leaf.n);
    nodes_free(w.node, w.n);
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError,
                        "PyTreeDef: the pickled nodes form no tree");
    return NULL;
}

static PyObject *treedef_leaves(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromSsize_t(((treedef *)self)->leaves);
}

static PyObject *treedef_unflatten(PyObject *self, PyObject *args,
                                   PyObject *kwargs)
{
    char *names[] = {"leaves", NULL};
    PyObject *leaves;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:unflatten", names,
                                     &leaves))
        return NULL;
    return unflatten_by((treedef *)self, leaves);
}

#define FUNCTION(f) \
    (PyCFunction)(void (*)(void)) f, METH_VARARGS | METH_KEYWORDS

static PyMethodDef treedef_methods[] = {
    {"unflatten", FUNCTION(treedef_unflatten),
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
    .basicsize = sizeof(treedef),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
             Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = treedef_slots,
};

/* For the rest of the extension */

PyObject *nb_py_tree_flatten(PyObject *tree, PyObject **def)
{
    rules r = plain_rules();
    return flatten_by(&r, tree, def);
}

PyObject *nb_py_tree_unflatten(PyObject *def, PyObject *leaves)
{
    if (Py_TYPE(def) == state.def) return unflatten_by((treedef *)def, leaves);
    return PyErr_Format(PyExc_TypeError,
                        "tree_unflatten: the structure must be a PyTreeDef, "
                        "not %R",
                        Py_TYPE(def));
}

PyObject *nb_py_tensor_leaves(PyObject *tree)
{
    walk w = {.rules = plain_rules()};
    PyObject *list = NULL;
    if (flatten(&w, Py_NewRef(tree))) list = PyList_New(0);
    for (Py_ssize_t i = 0; list && i < w.leaf.n; i++) {
        PyObject *x = w.leaf.item[i];
        if (!w.rules.tensor || !PyObject_TypeCheck(x, w.rules.tensor)) continue;
        if (PyList_Append(list, x) < 0) Py_CLEAR(list);
    }
    nodes_free(w.node, w.n);
    pile_free(&w.leaf);
    return list;
}

PyObject *nb_py_tree_map(nb_py_leaf_fn *fn, void *data, PyObject *const *tree,
                         Py_ssize_t n, PyObject *is_leaf)
{
    mapping m = {.rules = plain_rules(), .fn = fn, .data = data, .n = n};
    PyObject *result = NULL;
    m.rules.is_leaf = is_leaf;
    bool ok = pile_reserve(&m.pile, n);
    for (Py_ssize_t k = 0; ok && k < n; k++)
        ok = pile_push(&m.pile, Py_NewRef(tree[k]));
    if (ok && map_at(&m, NULL, 0)) result = Py_NewRef(m.pile.item[0]);
    pile_free(&m.pile);
    return result;
}

static bool is_builtin(PyObject *cls)
{
    PyTypeObject *t = (PyTypeObject *)cls;
    return t == &PyDict_Type || t == &PyList_Type || t == &PyTuple_Type ||
           t == Py_TYPE(Py_None) || cls == nb_py_tensor_type();
}

bool nb_py_tree_register(PyObject *cls, PyObject *flatten_fn,
                         PyObject *unflatten_fn)
{
    if (!PyType_Check(cls))
        PyErr_Format(PyExc_TypeError, "register_pytree_node: %R is not a type",
                     cls);
    else if (!PyCallable_Check(flatten_fn) || !PyCallable_Check(unflatten_fn))
        PyErr_Format(PyExc_TypeError,
                     "register_pytree_node: the functions for %R must be "
                     "callable, got %R and %R",
                     cls, Py_TYPE(flatten_fn), Py_TYPE(unflatten_fn));
    else if (is_builtin(cls))
        PyErr_Format(PyExc_ValueError,
                     "register_pytree_node: %R has its meaning in pytrees "
                     "already",
                     cls);
    if (PyErr_Occurred()) return false;
    PyObject *pair = PyTuple_Pack(2, flatten_fn, unflatten_fn);
    bool ok = pair && PyDict_SetItem(state.types, cls, pair) == 0;
    Py_XDECREF(pair);
    return ok;
}

/* The Python functions */

/* The arguments (tree, is_leaf=None) of most of them. */
static bool parse(PyObject *args, PyObject *kwargs, const char *format,
                  PyObject **tree, rules *r)
{
    char *names[] = {"tree", "is_leaf", NULL};
    PyObject *is_leaf = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, format, names, tree,
                                     &is_leaf))
        return false;
    *r = plain_rules();
    if (is_leaf != Py_None) r->is_leaf = is_leaf;
    return true;
}

/* (leaves, structure) */
static PyObject *both(const rules *r, PyObject *tree)
{
    PyObject *def, *leaves = flatten_by(r, tree, &def);
    if (!leaves) return NULL;
    PyObject *pair = PyTuple_Pack(2, leaves, def);
    Py_DECREF(leaves);
    Py_DECREF(def);
    return pair;
}

static PyObject *py_flatten(PyObject *self, PyObject *args, PyObject *kwargs)
{
    rules r;
    PyObject *tree;
    (void)self;
    if (!parse(args, kwargs, "O|O:tree_flatten", &tree, &r)) return NULL;
    return both(&r, tree);
}

static PyObject *py_flatten_full(PyObject *self, PyObject *args,
                                 PyObject *kwargs)
{
    rules r;
    PyObject *tree;
    (void)self;
    if (!parse(args, kwargs, "O|O:tree_flatten_full", &tree, &r)) return NULL;
    r.full = true;
    return both(&r, tree);
}

static PyObject *py_leaves(PyObject *self, PyObject *args, PyObject *kwargs)
{
    rules r;
    PyObject *tree;
    (void)self;
    if (!parse(args, kwargs, "O|O:tree_leaves", &tree, &r)) return NULL;
    return flatten_by(&r, tree, NULL);
}

static PyObject *py_structure(PyObject *self, PyObject *args, PyObject *kwargs)
{
    rules r;
    PyObject *tree, *def;
    (void)self;
    if (!parse(args, kwargs, "O|O:tree_structure", &tree, &r)) return NULL;
    PyObject *leaves = flatten_by(&r, tree, &def);
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
    PyObject *args = tuple_of(x, n);
    PyObject *y = args ? PyObject_Call(fn, args, NULL) : NULL;
    Py_XDECREF(args);
    return y;
}

/* The trees are `first` and the positional arguments after the second. */
static PyObject *map_all(PyObject *fn, PyObject *first, PyObject *args,
                         PyObject *is_leaf)
{
    pile trees = {.n = 0};
    Py_ssize_t n = PyTuple_Size(args);
    bool ok = pile_push(&trees, Py_NewRef(first));
    for (Py_ssize_t i = 2; ok && i < n; i++)
        ok = pile_push(&trees, Py_NewRef(PyTuple_GetItem(args, i)));
    PyObject *y = NULL;
    if (ok) y = nb_py_tree_map(call_leaf, fn, trees.item, trees.n, is_leaf);
    pile_free(&trees);
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
    {"tree_flatten", FUNCTION(py_flatten),
     "tree_flatten(tree, is_leaf=None)\n--\n\n"
     "The leaves of a tree and its structure.\n\n"
     "Lists, tuples, namedtuples, dicts, None and registered types are nodes,\n"
     "all else is a leaf.  The keys of dicts are sorted.  Where is_leaf(x) is\n"
     "true, a node x is taken as a leaf.\n\n"
     ">>> nabla.tree_flatten({\"b\": 2, \"a\": [1, None]})\n"
     "([1, 2], dict['a': list[2](*, None), 'b': *])"},
    {"tree_flatten_full", FUNCTION(py_flatten_full),
     "tree_flatten_full(tree, is_leaf=None)\n--\n\n"
     "tree_flatten in which None is a leaf.\n\n"
     ">>> nabla.core.common.tree_flatten_full([1, None])\n"
     "([1, None], list[2])"},
    {"tree_leaves", FUNCTION(py_leaves),
     "tree_leaves(tree, is_leaf=None)\n--\n\n"
     "The leaves of a tree, as a list.\n\n"
     ">>> nabla.tree_leaves({\"b\": 2, \"a\": [1, None]})\n"
     "[1, 2]"},
    {"tree_structure", FUNCTION(py_structure),
     "tree_structure(tree, is_leaf=None)\n--\n\n"
     "The structure of a tree.\n\n"
     ">>> nabla.tree_structure([1, (2, 3)])\n"
     "list[2](*, tuple[2])"},
    {"tree_unflatten", FUNCTION(py_unflatten),
     "tree_unflatten(treedef, leaves)\n--\n\n"
     "The tree of that structure with these leaves.\n\n"
     ">>> nabla.tree_unflatten(nabla.tree_structure([0, (0, 0)]), \"abc\")\n"
     "['a', ('b', 'c')]"},
    {"tree_unflatten_full", FUNCTION(py_unflatten),
     "tree_unflatten_full(treedef, leaves)\n--\n\n"
     "The inverse of tree_flatten_full.\n\n"
     ">>> from nabla.core.common import tree_flatten_full\n"
     ">>> from nabla.core.common import tree_unflatten_full\n"
     ">>> leaves, structure = tree_flatten_full([1, None])\n"
     ">>> tree_unflatten_full(structure, leaves)\n"
     "[1, None]"},
    {"tree_map", FUNCTION(py_map),
     "tree_map(fn, tree, *rest, is_leaf=None)\n--\n\n"
     "The tree with fn applied to each leaf, and to what stands in its place\n"
     "in the other trees, whose structure must begin like that of the first.\n"
     "Dicts keep their order; fn is called in the order of tree_leaves.\n\n"
     ">>> nabla.tree_map(lambda x, y: x + y, {\"b\": 1, \"a\": 2}, "
     "{\"a\": 20, \"b\": 10})\n"
     "{'b': 11, 'a': 22}"},
    {"register_pytree_node", FUNCTION(py_register),
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
    {"tensor_leaves", FUNCTION(py_tensor_leaves),
     "tensor_leaves(tree)\n--\n\n"
     "The leaves of a tree that are tensors, as a list.\n\n"
     ">>> nabla.tensor_leaves([1, \"a\", None])\n"
     "[]"},
    {0},
};

static bool set_up(void)
{
    if (!state.types) state.types = PyDict_New();
    if (!state.fields) state.fields = PyUnicode_InternFromString("_fields");
    if (!state.def) state.def = (PyTypeObject *)PyType_FromSpec(&treedef_spec);
    return state.types && state.fields && state.def;
}

int nb_py_tree_add(PyObject *module)
{
    if (!set_up()) return -1;
    if (PyModule_AddFunctions(module, functions) < 0) return -1;
    return PyModule_AddObjectRef(module, "PyTreeDef", (PyObject *)state.def);
}
