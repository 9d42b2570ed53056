/* transform.c - tapes, lanes and listings: the pieces that nabla.transforms is
 * made of.
 *
 * A tape belongs to the thread that opened it until it is closed, and lanes to
 * the thread that opened them; both are closed in the reverse order of opening,
 * whatever the function in between did, which is up to the Python code. */
#include "py.h"

/* Lists of tensors */

nb_tensor **nb_py_tensors(PyObject *list, int *n)
{
    Py_ssize_t count = PyList_Size(list);
    if (count < 0) return NULL;
    nb_tensor **x = PyMem_Calloc((size_t)count + 1, sizeof *x);
    if (!x) return (void)PyErr_NoMemory(), NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *o = PyList_GetItem(list, i);
        if (o == Py_None) continue;
        if (!nb_py_is_tensor(o)) {
            PyErr_SetString(PyExc_TypeError, "a list of tensors is needed");
            PyMem_Free(x);
            return NULL;
        }
        x[i] = nb_py_get(o);
    }
    *n = (int)count;
    return x;
}

PyObject *nb_py_list(int n, nb_tensor *const *x)
{
    PyObject *list = PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        PyObject *o = x[i] ? nb_py_wrap(x[i]) : Py_NewRef(Py_None);
        if (!o) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SetItem(list, i, o);
    }
    return list;
}

/* Lanes */

static const char *text_of(PyObject *name)
{
    return name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
}

static PyObject *begin(PyObject *self, PyObject *args)
{
    long long size;
    PyObject *name[2];
    (void)self;
    if (!PyArg_ParseTuple(args, "LOO:lane_begin", &size, &name[0], &name[1]))
        return NULL;
    for (int k = 0; k < 2; k++) {
        if (name[k] == Py_None) name[k] = NULL;
        if (name[k] && !PyUnicode_Check(name[k]))
            return PyErr_Format(PyExc_TypeError,
                                "vmap: the name of an axis is a str");
    }
    const char *text[2] = {text_of(name[0]), text_of(name[1])};
    if (PyErr_Occurred()) return NULL;
    int id = nb_lane_begin(size, text[0]);
    if (id && text[1] && !nb_lane_also(text[1])) {
        nb_lane_end();
        id = 0;
    }
    return id ? PyLong_FromLong(id) : nb_py_raise();
}

static PyObject *end(PyObject *self, PyObject *unused)
{
    nb_open_lane l;
    (void)self, (void)unused;
    if (nb_lane_at(0, &l)) nb_lane_end();
    Py_RETURN_NONE;
}

/* Hidden axes by hand have ids of their own: below those of all vmaps, and
 * above them. */
enum { BEHIND = -64, BEFORE = INT32_MAX - 64, BY_HAND = 2 * NB_PY_RANK };

/* Showing a lane that x lacks spreads it first, so no lane is gone then. */
static bool has_lane(nb_tensor *x, int id)
{
    nb_tensor *y = nb_lane_show(x, 0, id, 1);
    return y && nb_hidden(y) < nb_hidden(x);
}

static bool is_among(int n, const int *id, int one)
{
    for (int k = 0; k < n; k++)
        if (id[k] == one) return true;
    return false;
}

/* A vmap that is open again may be listed twice. */
static int lane_ids(nb_tensor *x, int *id)
{
    int n = 0, all = nb_hidden(x);
    nb_open_lane l;
    for (int k = 0; k < BY_HAND && n < all; k++)
        if (has_lane(x, BEHIND + k)) id[n++] = BEHIND + k;
    for (int k = 0; n < all && nb_lane_at(k, &l); k++)
        if (!is_among(n, id, l.id) && has_lane(x, l.id)) id[n++] = l.id;
    for (int k = 0; k < BY_HAND && n < all; k++)
        if (has_lane(x, BEFORE + k)) id[n++] = BEFORE + k;
    return n;
}

/* hidden_lanes(x): (id, size) of its lanes, the newest first. */
static PyObject *hidden_lanes(PyObject *self, PyObject *o)
{
    int id[64];
    int64_t size[64];
    (void)self;
    if (!nb_py_is_tensor(o))
        return PyErr_Format(PyExc_TypeError, "hidden_lanes of a tensor");
    nb_tensor *x = nb_py_get(o);
    ENTER;
    int n = lane_ids(x, id);
    LEAVE;
    nb_error_clear();
    if (n < nb_hidden(x))
        return PyErr_Format(PyExc_ValueError,
                            "a hidden axis belongs to a vmap that is over");
    nb_hidden_sizes(x, size);
    PyObject *list = PyList_New(n);
    for (int k = 0; list && k < n; k++)
        PyList_SetItem(list, n - 1 - k,
                       Py_BuildValue("(iL)", id[k], (long long)size[k]));
    return list;
}

PyObject *nb_py_shown(PyObject *o)
{
    int id[64];
    int64_t size[64];
    nb_tensor *x = nb_py_get(o);
    int all = nb_hidden(x);
    if (all == 0) return Py_NewRef(o);
    ENTER;
    int n = lane_ids(x, id);
    bool hand = n == all;
    for (int k = 0; hand && k < n; k++)
        hand = id[k] < 0 || id[k] >= BEFORE;
    nb_error_clear();
    nb_hidden_sizes(x, size);
    for (int k = 0; hand && k < n; k++)
        x = nb_lane_show(x, 0, id[k], size[k]);
    PyObject *y = hand ? nb_py_wrap(x) : Py_NewRef(o);
    LEAVE;
    return y;
}

/* Whether a trace is being made in this thread.  Where a transform hides and
 * shows axes matters to its listing alone; finding out costs more than they do.
 */
static _Thread_local int watched;

static PyObject *watch(PyObject *self, PyObject *yes)
{
    (void)self;
    watched += PyObject_IsTrue(yes) == 1 ? 1 : -1;
    Py_RETURN_NONE;
}

static PyObject *hide(PyObject *self, PyObject *args)
{
    PyObject *x;
    int axis, id;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!ii:hide", nb_py_Tensor, &x, &axis, &id))
        return NULL;
    ENTER;
    if (watched) nb_py_locate();
    PyObject *y = nb_py_wrap(nb_lane_hide(nb_py_get(x), axis, id));
    LEAVE;
    return y;
}

/* show(x, axis or None, lane, size) */
static PyObject *show(PyObject *self, PyObject *args)
{
    PyObject *x, *axis;
    int id;
    long long size;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!OiL:show", nb_py_Tensor, &x, &axis, &id,
                          &size))
        return NULL;
    long at = axis == Py_None ? NB_UNMAPPED : PyLong_AsLong(axis);
    if (PyErr_Occurred()) return NULL;
    ENTER;
    if (watched) nb_py_locate();
    PyObject *y = nb_py_wrap(nb_lane_show(nb_py_get(x), (int)at, id, size));
    LEAVE;
    return y;
}

/* Whether x differs along a lane. */
static PyObject *varies(PyObject *self, PyObject *args)
{
    PyObject *x;
    int id;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!i:varies", nb_py_Tensor, &x, &id))
        return NULL;
    return PyBool_FromLong(nb_lane_has(nb_py_get(x), id));
}

/* Tapes */

static _Thread_local int tapes_open;

int nb_py_tapes_open(void)
{
    return tapes_open;
}

typedef struct tape {
    PyObject_HEAD nb_tape *tape; /* NULL: dropped */
    bool open;
    PyObject *x, *y; /* lists: its arguments, then its results */
} tape;

static PyTypeObject *Tape;

static PyObject *tape_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *list;
    int n;
    if (kwargs && PyDict_Size(kwargs))
        return PyErr_Format(PyExc_TypeError, "Tape takes no keywords");
    if (!PyArg_ParseTuple(args, "O!:Tape", &PyList_Type, &list)) return NULL;
    nb_tensor **x = nb_py_tensors(list, &n);
    nb_tensor **fresh = x ? PyMem_Calloc((size_t)n + 1, sizeof *fresh) : NULL;
    tape *self = fresh ? PyObject_New(tape, type) : NULL;
    if (self) {
        self->tape = NULL;
        self->open = false;
        self->x = self->y = NULL;
        if (nb_scope_open() == NB_OK) {
            self->tape = nb_tape_open(n, x, fresh);
            if (self->tape) self->x = nb_py_list(n, fresh);
            LEAVE;
        }
        self->open = self->tape;
        tapes_open += self->open;
        if (!self->x) {
            nb_py_raise();
            Py_CLEAR(self);
        }
    }
    PyMem_Free(x);
    PyMem_Free(fresh);
    return (PyObject *)self;
}

static void tape_drop(tape *self)
{
    nb_tape *t = self->tape;
    tapes_open -= self->open;
    self->open = false;
    self->tape = NULL;
    nb_tape_drop(t);
}

static void tape_dealloc(PyObject *o)
{
    tape *self = (tape *)o;
    PyTypeObject *type = Py_TYPE(o);
    tape_drop(self);
    Py_XDECREF(self->x);
    Py_XDECREF(self->y);
    PyObject_Free(o);
    Py_DECREF(type);
}

/* For a finally: drops a tape that was not closed. */
static PyObject *tape_end(PyObject *o, PyObject *unused)
{
    tape *self = (tape *)o;
    (void)unused;
    if (self->open) tape_drop(self);
    Py_RETURN_NONE;
}

static PyObject *tape_close(PyObject *o, PyObject *list)
{
    tape *self = (tape *)o;
    int n;
    if (!PyList_Check(list) || !self->open)
        return PyErr_Format(PyExc_TypeError, "a list, for an open tape");
    nb_tensor **y = nb_py_tensors(list, &n);
    if (!y) return NULL;
    nb_status s = nb_scope_open();
    if (s == NB_OK) {
        s = nb_tape_close(self->tape, n, y);
        LEAVE;
    }
    PyMem_Free(y);
    tapes_open -= self->open;
    self->open = false;
    if (s != NB_OK) return nb_py_raise();
    Py_INCREF(list);
    self->y = list;
    Py_RETURN_NONE;
}

typedef nb_status walk(nb_tape *t, nb_tensor *const *in, nb_tensor **out);

/* Gradients lie over devices as what they belong to. */
static bool lay(PyObject *x, nb_tensor **cx)
{
    for (Py_ssize_t i = 0; i < PyList_Size(x); i++)
        if (cx[i]) {
            cx[i] = nb_reshard_like(cx[i], nb_py_get(PyList_GetItem(x, i)));
            if (!cx[i]) return false;
        }
    return true;
}

/* Back, None is a list of ones. */
static PyObject *tape_walk(PyObject *o, PyObject *list, bool back)
{
    tape *self = (tape *)o;
    bool ones = back && list == Py_None;
    if ((!ones && !PyList_Check(list)) || !self->tape || !self->y)
        return PyErr_Format(PyExc_TypeError, "a list, for a closed tape");
    int nx = (int)PyList_Size(self->x), ny = (int)PyList_Size(self->y);
    int there = back ? ny : nx, n = there;
    nb_tensor **in = ones ? NULL : nb_py_tensors(list, &n), **out = NULL;
    PyObject *y = NULL;
    if (in && n != there)
        PyErr_Format(PyExc_ValueError, "%d values, the tape has %d", n, there);
    else if (in || ones)
        out = PyMem_Calloc((size_t)(nx + ny) + 1, sizeof *out);
    if (out && nb_scope_open() == NB_OK) {
        nb_py_locate();
        walk *f = back ? nb_tape_pull : nb_tape_push;
        if (f(self->tape, in, out) == NB_OK && (!back || lay(self->x, out)))
            y = nb_py_list(back ? nx : ny, out);
        LEAVE;
    }
    if (!y) nb_py_raise();
    PyMem_Free(in);
    PyMem_Free(out);
    return y;
}

static PyObject *tape_push(PyObject *o, PyObject *list)
{
    return tape_walk(o, list, false);
}

static PyObject *tape_pull(PyObject *o, PyObject *list)
{
    return tape_walk(o, list, true);
}

/* jacobian(back, k, rows): of result k by every argument, or of every result by
 * argument k.  Pieces are computed without the GIL. */
static PyObject *tape_jacobian(PyObject *o, PyObject *args)
{
    tape *self = (tape *)o;
    int back, k;
    long long rows;
    PyObject *list = NULL;
    if (!PyArg_ParseTuple(args, "piL:jacobian", &back, &k, &rows)) return NULL;
    if (!self->tape || !self->y)
        return PyErr_Format(PyExc_TypeError, "the tape is not closed");
    int n = (int)PyList_Size(back ? self->x : self->y);
    nb_tensor **block = PyMem_Calloc((size_t)n + 1, sizeof *block);
    if (!block) return PyErr_NoMemory();
    if (nb_scope_open() == NB_OK) {
        nb_status s;
        nb_py_locate();
        Py_BEGIN_ALLOW_THREADS;
        s = nb_tape_jacobian(self->tape, back, k, rows, block);
        Py_END_ALLOW_THREADS;
        if (s == NB_OK) list = nb_py_list(n, block);
        LEAVE;
    }
    if (!list) nb_py_raise();
    PyMem_Free(block);
    return list;
}

static PyObject *tape_fresh(PyObject *o, void *unused)
{
    (void)unused;
    return Py_NewRef(((tape *)o)->x);
}

static PyMethodDef tape_methods[] = {
    {"close", tape_close, METH_O, NULL},
    {"end", tape_end, METH_NOARGS, NULL},
    {"push", tape_push, METH_O, NULL},
    {"pull", tape_pull, METH_O, NULL},
    {"jacobian", tape_jacobian, METH_VARARGS, NULL},
    {0}};
static PyGetSetDef tape_getset[] = {{"fresh", tape_fresh, NULL, NULL, NULL},
                                    {0}};
static PyType_Slot tape_slots[] = {{Py_tp_new, tape_new},
                                   {Py_tp_dealloc, tape_dealloc},
                                   {Py_tp_methods, tape_methods},
                                   {Py_tp_getset, tape_getset},
                                   {0, NULL}};
static PyType_Spec tape_spec = {
    .name = "nabla._nabla.Tape",
    .basicsize = sizeof(tape),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = tape_slots,
};

/* Places of the floating tensors in a list of leaves. */
static PyObject *real_leaves(PyObject *self, PyObject *list)
{
    PyObject *at = PyList_New(0);
    Py_ssize_t n = at ? PyList_Size(list) : 0;
    (void)self;
    for (Py_ssize_t i = 0; at && i < n; i++) {
        PyObject *o = PyList_GetItem(list, i), *place;
        if (!nb_py_is_tensor(o)) continue;
        if (!nb_dtype_is_float(nb_dtype_of(nb_py_get(o)))) continue;
        place = PyLong_FromSsize_t(i);
        if (!place || PyList_Append(at, place) < 0) Py_CLEAR(at);
        Py_XDECREF(place);
    }
    if (n < 0) Py_CLEAR(at);
    return at;
}

static PyObject *jacobian_budget(PyObject *self, PyObject *bytes)
{
    (void)self;
    if (bytes != Py_None) {
        size_t n = PyLong_AsSize_t(bytes);
        if (PyErr_Occurred()) return NULL;
        nb_jacobian_budget_set(n);
    }
    return PyLong_FromSize_t(nb_jacobian_budget());
}

static PyMethodDef functions[] = {
    {"lane_begin", begin, METH_VARARGS, NULL},
    {"lane_end", end, METH_NOARGS, NULL},
    {"hidden_lanes", hidden_lanes, METH_O, NULL},
    {"watch", watch, METH_O, NULL},
    {"hide", hide, METH_VARARGS, NULL},
    {"show", show, METH_VARARGS, NULL},
    {"varies", varies, METH_VARARGS, NULL},
    {"real_leaves", real_leaves, METH_O, NULL},
    {"jacobian_budget", jacobian_budget, METH_O, NULL},
    {"backward_all", nb_py_backward_all, METH_VARARGS, NULL},
    {0}};

int nb_py_transform_add(PyObject *module)
{
    Tape = (PyTypeObject *)PyType_FromSpec(&tape_spec);
    if (!Tape || PyModule_AddFunctions(module, functions) < 0 ||
        PyModule_AddFunctions(module, nb_py_control_functions) < 0)
        return -1;
    PyObject *by_hand = Py_BuildValue("(ii)", BEHIND, BEFORE);
    int bad = !by_hand ||
              PyModule_AddObjectRef(module, "hand_lanes", by_hand) < 0 ||
              PyModule_AddObjectRef(module, "Tape", (PyObject *)Tape) < 0;
    Py_XDECREF(by_hand);
    return bad ? -1 : 0;
}
