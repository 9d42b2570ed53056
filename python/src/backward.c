/* backward.c - the imperative style: objects that require grad, and backward.
 *
 * The engine knows nodes, gradients belong to objects.  Every Tensor that
 * requires grad is in a table by its node; an object in it is alive and holds
 * its node, so neither address can come to mean another. */
#include "py.h"

enum { BUCKETS = 4096 };
static nb_py_tensor *bucket[BUCKETS];

static nb_py_tensor **place(const nb_tensor *x)
{
    return &bucket[((size_t)x >> 5) % BUCKETS];
}

static void leave(nb_py_tensor *self)
{
    nb_py_tensor **at = place(self->x);
    while (*at && *at != self)
        at = &(*at)->next;
    if (*at) *at = self->next;
    self->next = NULL;
}

static void enter(nb_py_tensor *self)
{
    nb_py_tensor **at = place(self->x);
    self->next = *at;
    *at = self;
}

void nb_py_set_value(nb_py_tensor *self, nb_tensor *x)
{
    nb_tensor *old = self->x;
    if (self->requires_grad) leave(self);
    self->x = x;
    if (x && self->requires_grad) {
        nb_require_grad(x);
        enter(self);
    }
    nb_drop(old);
}

/* A tensor without a history that is kept begins one here: it is a leaf. */
static bool begin_history(nb_py_tensor *self)
{
    bool leaf = self->cut || nb_is_leaf(self->x) || nb_is_traced(self->x);
    if (leaf || nb_py_tapes_open()) return true;
    if (nb_scope_open() != NB_OK) return nb_py_raise();
    nb_tensor *x = nb_keep(nb_detach(self->x));
    nb_scope_close(0, NULL);
    if (!x) return nb_py_raise();
    nb_py_set_value(self, x);
    return self->cut = true;
}

bool nb_py_require(nb_py_tensor *self, bool yes)
{
    if (yes == self->requires_grad) return true;
    if (!yes) {
        leave(self);
        self->requires_grad = false;
        return true;
    }
    nb_dtype d = nb_dtype_of(self->x);
    if (!nb_dtype_is_float(d)) {
        PyErr_Format(PyExc_TypeError,
                     "only floating tensors can require grad, not %s",
                     nb_dtype_name(d));
        return false;
    }
    if (!begin_history(self)) return false;
    self->requires_grad = true;
    nb_require_grad(self->x);
    enter(self);
    return true;
}

/* What a walk found: objects and their gradients, both ours. */
typedef struct haul {
    nb_py_tensor **object;
    nb_tensor **grad;
    int n, room;
    bool failed;
} haul;

static bool make_room(haul *h)
{
    if (h->n < h->room) return true;
    int room = h->room ? 2 * h->room : 16;
    void *object = PyMem_Realloc(h->object, (size_t)room * sizeof *h->object);
    if (object) h->object = object;
    void *grad = PyMem_Realloc(h->grad, (size_t)room * sizeof *h->grad);
    if (grad) h->grad = grad;
    if (object && grad) h->room = room;
    return object && grad;
}

static void take(void *ctx, nb_tensor *x, nb_tensor *grad)
{
    haul *h = ctx;
    for (nb_py_tensor *t = *place(x); t; t = t->next) {
        if (t->x != x) continue;
        if (!make_room(h)) {
            h->failed = true;
            return;
        }
        Py_INCREF((PyObject *)t);
        h->object[h->n] = t;
        h->grad[h->n++] = grad;
    }
}

static void let_go(haul *h)
{
    for (int i = 0; i < h->n; i++)
        Py_DECREF((PyObject *)h->object[i]);
    PyMem_Free(h->object);
    PyMem_Free(h->grad);
}

/* As they will be: added to what is there, laid out as their tensors are,
 * without history. */
static bool finish(haul *h, bool create_graph, bool accumulate)
{
    for (int i = 0; i < h->n; i++) {
        PyObject *old = accumulate ? h->object[i]->grad : NULL;
        nb_tensor *g = h->grad[i];
        if (old) g = nb_add(nb_py_get(old), g);
        g = nb_reshard_like(g, h->object[i]->x);
        if (!create_graph) g = nb_detach(g);
        if (!g) return nb_py_raise();
        h->grad[i] = g;
    }
    return nb_py_realize(h->n, h->grad);
}

static bool store(haul *h, bool create_graph)
{
    for (int i = 0; i < h->n; i++) {
        PyObject *g = nb_py_wrap(h->grad[i]);
        if (!g) return false;
        ((nb_py_tensor *)g)->cut = !create_graph;
        nb_py_refer(h->object[i], &h->object[i]->grad, g);
    }
    return true;
}

/* A cotangent may be left out for shapes () and (1,). */
static bool needs_none(const nb_tensor *y)
{
    return nb_rank(y) == 0 || (nb_rank(y) == 1 && nb_size(y, 0) == 1);
}

static bool walk(int n, nb_tensor *const *y, nb_tensor *const *ct, haul *h)
{
    for (int i = 0; i < n; i++) {
        if (ct[i] || needs_none(y[i])) continue;
        int64_t size[NB_PY_RANK];
        nb_sizes(y[i], size);
        PyObject *shape = nb_py_tuple(nb_rank(y[i]), size);
        if (shape)
            PyErr_Format(PyExc_ValueError,
                         "backward: a result of shape %R needs a gradient of "
                         "that shape; only () and (1,) do without",
                         shape);
        Py_XDECREF(shape);
        return false;
    }
    nb_py_locate();
    if (nb_backward_each(n, y, ct, take, h) != NB_OK) return nb_py_raise();
    if (h->failed) PyErr_NoMemory();
    return !h->failed;
}

static bool run(int n, nb_tensor *const *y, nb_tensor *const *ct,
                bool create_graph, bool accumulate)
{
    haul h = {0};
    if (nb_py_compiling()) {
        PyErr_SetString(PyExc_RuntimeError,
                        "backward sets grad on objects, which a compiled "
                        "function cannot: use nabla.grad inside compile");
        return false;
    }
    bool ok = walk(n, y, ct, &h) && finish(&h, create_graph, accumulate) &&
              store(&h, create_graph);
    let_go(&h);
    return ok;
}

static PyObject *method(PyObject *o, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"gradient", "retain_graph", "create_graph",
                            "accumulate", NULL};
    PyObject *gradient = Py_None;
    int retain_graph, create_graph = 0, accumulate = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Opp$p:backward", names,
                                     &gradient, &retain_graph, &create_graph,
                                     &accumulate))
        return NULL;
    ENTER;
    nb_tensor *y = nb_give(nb_keep(nb_py_get(o))), *ct = NULL;
    bool ok = y;
    if (ok && gradient != Py_None)
        ok = (ct = nb_py_operand_beside(gradient, o));
    ok = ok && run(1, &y, &ct, create_graph, accumulate);
    if (!ok) nb_py_raise();
    LEAVE;
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

PyMethodDef nb_py_backward_methods[] = {
    {"backward", (PyCFunction)(void (*)(void))method,
     METH_VARARGS | METH_KEYWORDS,
     "backward($self, gradient=None, retain_graph=False, create_graph=False, "
     "*, accumulate=False)\n--\n\n"
     "Sets grad on every tensor that this one was computed from and that "
     "requires it."},
    {0}};

/* backward_all(outputs, cotangents, create_graph): two lists of tensors, None
 * for a cotangent of one. */
PyObject *nb_py_backward_all(PyObject *self, PyObject *args)
{
    PyObject *outputs, *cotangents;
    nb_tensor **y = NULL, **ct = NULL;
    int n = 0, m = 0, create_graph;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!p:backward_all", &PyList_Type, &outputs,
                          &PyList_Type, &cotangents, &create_graph))
        return NULL;
    ENTER;
    bool ok = (y = nb_py_tensors(outputs, &n)) &&
              (ct = nb_py_tensors(cotangents, &m)) && n == m &&
              run(n, y, ct, create_graph, false);
    if (!ok) nb_py_raise();
    LEAVE;
    PyMem_Free(y);
    PyMem_Free(ct);
    if (!ok) return NULL;
    Py_RETURN_NONE;
}
