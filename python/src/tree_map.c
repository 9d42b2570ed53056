/* tree_map.c - trees held against a structure, and against each other: whether
 * one matches, and maps of several, with an error that says where they differ. */
#include "tree_parts.h"

/* Matching.  It goes no deeper than the structure, whose depth was bounded when
 * it was made. */

typedef struct matching {
    nb_py_rules rules;
    const nb_py_node *at;
    nb_py_match_fn *fn;
    void *data;
} matching;

static int match_at(matching *m, PyObject *x)
{
    const nb_py_node *d = m->at++;
    int kind = nb_py_kind_of(&m->rules, x);
    const char *why;
    if (kind != d->kind) return kind < 0 ? -1 : 0;
    if (kind == LEAF) return m->fn(m->data, x);
    PyObject *source = nb_py_node_match(d, x, &why);
    int same = source ? 1 : PyErr_Occurred() ? -1 : 0;
    for (Py_ssize_t i = 0; same == 1 && i < d->n; i++) {
        PyObject *one = nb_py_node_child(d, source, i);
        same = one ? match_at(m, one) : -1;
        Py_XDECREF(one);
    }
    Py_XDECREF(source);
    return same;
}

int nb_py_tree_match(PyObject *def, PyObject *tree, nb_py_match_fn *fn,
                     void *data)
{
    matching m = {.rules = nb_py_tree_rules(),
                  .at = ((nb_py_treedef *)def)->node,
                  .fn = fn,
                  .data = data};
    return match_at(&m, tree);
}

/* Mapping.  The n trees lie on the pile; where they have nodes, the sources of
 * their children take their place, then the results are piled up above them,
 * and the result of the whole ends where the first tree was. */

typedef struct mapping {
    nb_py_rules rules;
    nb_py_leaf_fn *fn;
    void *data;
    Py_ssize_t n;
    nb_py_pile pile;
} mapping;

/* Where a walk is: child i of a node, which is reached by the steps above. */
typedef struct step {
    const struct step *up;
    const nb_py_node *node;
    Py_ssize_t i;
} step;

static PyObject *named_step(const step *s)
{
    PyObject *fields = nb_py_fields_of(s->node->head);
    if (!fields) return PyErr_Occurred() ? NULL : nb_py_text(".?");
    PyObject *t =
        s->i < PyTuple_Size(fields)
            ? PyUnicode_FromFormat(".%S", PyTuple_GetItem(fields, s->i))
            : PyUnicode_FromFormat("[%zd]", s->i);
    Py_DECREF(fields);
    return t;
}

static PyObject *step_text(const step *s)
{
    const nb_py_node *d = s->node;
    if (d->kind == NAMED) return named_step(s);
    if (d->kind == DICT)
        return PyUnicode_FromFormat("[%R]", PyList_GetItem(d->head, s->i));
    PyObject *t =
        d->kind == CUSTOM ? nb_py_type_text("<%U>", d->head) : nb_py_text("");
    if (t) PyUnicode_AppendAndDel(&t, PyUnicode_FromFormat("[%zd]", s->i));
    return t;
}

/* The steps from the root: ['w'][0], .field, <Linear>[1]. */
static PyObject *path_text(const step *s)
{
    if (!s) return nb_py_text("");
    PyObject *t = path_text(s->up);
    if (t) PyUnicode_AppendAndDel(&t, step_text(s));
    return t;
}

/* What stands in another tree, whose children need not be asked for. */
static PyObject *object_text(PyObject *x, int kind)
{
    if (kind == LEAF) return nb_py_type_text("* (%U)", (PyObject *)Py_TYPE(x));
    nb_py_node d = {.kind = kind};
    if (kind == LIST) d.n = PyList_Size(x);
    if (kind == TUPLE) d.n = PyTuple_Size(x);
    if (kind == NAMED || kind == CUSTOM)
        d.head = Py_NewRef((PyObject *)Py_TYPE(x));
    if (kind == DICT) d.head = PyDict_Keys(x);
    PyObject *t = kind == DICT && !d.head ? NULL : nb_py_node_text(&d);
    nb_py_node_clear(&d);
    return t;
}

/* The one place in which two trees differ. */
typedef struct clash {
    const step *path;
    const nb_py_node *node; /* of the first tree */
    PyObject *x;            /* what tree number `tree` has there */
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
    return t || PyErr_Occurred() ? t : nb_py_text("");
}

static PyObject *why_text(const clash *c)
{
    if (c->why) return nb_py_text(c->why);
    if (c->kind != DICT || c->node->kind != DICT) return nb_py_text("");
    return key_text(c->node->head, c->x);
}

/* Raises, and returns NULL. */
static PyObject *mismatch(const clash *c)
{
    PyObject *path = path_text(c->path);
    PyObject *a = path ? nb_py_node_text(c->node) : NULL;
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

/* The source of the children of c->x, if it is a node like that of the first
 * tree; otherwise raises. */
static PyObject *match(const nb_py_rules *r, clash *c)
{
    c->kind = nb_py_kind_of(r, c->x);
    if (c->kind < 0) return NULL;
    if (c->kind != c->node->kind) return mismatch(c);
    PyObject *source = nb_py_node_match(c->node, c->x, &c->why);
    return source || PyErr_Occurred() ? source : mismatch(c);
}

static void replace(PyObject **at, PyObject *x)
{
    PyObject *old = *at;
    *at = x;
    Py_DECREF(old);
}

static bool open_others(mapping *m, const step *path, PyObject **tree,
                        const nb_py_node *d)
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
        ok = nb_py_pile_push(
            &m->pile, nb_py_node_child(s->node, m->pile.item[at + k], s->i));
    return ok && map_at(m, s, base);
}

/* The result for the trees from pile item `at` on.  It has the order of the
 * first tree's dicts, because it is made in copies of them. */
static PyObject *map_node(mapping *m, const step *path, Py_ssize_t at, int kind)
{
    nb_py_node d;
    PyObject **tree = m->pile.item + at, *dict = NULL, *whole = NULL;
    if (kind == DICT && !(dict = PyDict_Copy(*tree))) return NULL;
    PyObject *source = nb_py_node_open(dict ? dict : *tree, kind, &d);
    if (source) replace(tree, source);
    bool ok = source && open_others(m, path, tree, &d);
    Py_ssize_t base = m->pile.n;
    for (Py_ssize_t i = 0; ok && i < d.n; i++)
        ok = map_child(m, &(step){path, &d, i}, at);
    if (ok)
        whole = nb_py_node_build(&d, dict, m->pile.item + base);
    else
        Py_XDECREF(dict);
    nb_py_node_clear(&d);
    return whole;
}

/* Replaces the trees from pile item `at` on, the topmost, by their result. */
static bool map_at(mapping *m, const step *path, Py_ssize_t at)
{
    PyObject *y = NULL;
    int kind = nb_py_kind_asked(&m->rules, m->pile.item[at]);
    if (kind == LEAF) {
        y = m->fn(m->data, m->pile.item + at, m->n);
    } else if (kind >= 0 && !Py_EnterRecursiveCall(" while mapping a pytree")) {
        y = map_node(m, path, at, kind);
        Py_LeaveRecursiveCall();
    }
    nb_py_pile_cut(&m->pile, at);
    return nb_py_pile_push(&m->pile, y);
}

PyObject *nb_py_tree_map(nb_py_leaf_fn *fn, void *data, PyObject *const *tree,
                         Py_ssize_t n, PyObject *is_leaf)
{
    mapping m = {.rules = nb_py_tree_rules(), .fn = fn, .data = data, .n = n};
    PyObject *result = NULL;
    m.rules.is_leaf = is_leaf;
    bool ok = nb_py_pile_reserve(&m.pile, n);
    for (Py_ssize_t k = 0; ok && k < n; k++)
        ok = nb_py_pile_push(&m.pile, Py_NewRef(tree[k]));
    if (ok && map_at(&m, NULL, 0)) result = Py_NewRef(m.pile.item[0]);
    nb_py_pile_free(&m.pile);
    return result;
}
