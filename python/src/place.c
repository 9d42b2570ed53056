/* place.c - tensors on meshes: how they lie, their blocks, and moving them.
 *
 * Specs that Python sees speak of hidden axes too, the newest first; the engine
 * has the newest last. */
#include "shard.h"

static PyObject *bad_index(long i, int n)
{
    return PyErr_Format(PyExc_IndexError, "shard %ld of %d", i, n);
}

static int devices_of(const nb_tensor *x)
{
    const nb_spec *s = nb_sharding(x);
    return s ? nb_mesh_devices(nb_spec_mesh(s)) : 1;
}

/* Turns the first n items of a list around. */
static bool turn(PyObject *list, int n)
{
    PyObject *head = PyList_GetSlice(list, 0, n);
    bool ok = head && PyList_Reverse(head) == 0 &&
              PyList_SetSlice(list, 0, n, head) == 0;
    Py_XDECREF(head);
    return ok;
}

static PyObject *spec_of(const nb_tensor *x)
{
    PyObject *spec = nb_py_spec_to(nb_sharding(x));
    PyObject *dims = spec ? PyObject_GetAttrString(spec, "dim_specs") : NULL;
    if (spec && (!dims || !turn(dims, nb_hidden(x)))) Py_CLEAR(spec);
    Py_XDECREF(dims);
    return spec;
}

/* A spec of all dims has hidden ones first, which the engine wants turned. */
static const nb_spec *spec_for(const nb_tensor *x, PyObject *o)
{
    int rank = nb_rank(x), hidden = nb_hidden(x);
    PyObject *dims = PyObject_GetAttrString(o, "dim_specs"), *copy = NULL;
    Py_ssize_t n = dims ? PySequence_Size(dims) : -1;
    bool all = hidden && n == hidden + rank;
    Py_XDECREF(dims);
    if (n < 0) return NULL;
    if (all && hidden > 1) {
        o = copy = PyObject_CallMethod(o, "clone", NULL);
        dims = copy ? PyObject_GetAttrString(copy, "dim_specs") : NULL;
        bool ok = dims && turn(dims, hidden);
        Py_XDECREF(dims);
        if (!ok) o = NULL;
    }
    const nb_spec *s =
        o ? nb_py_spec_from(o, NULL, all ? hidden + rank : rank) : NULL;
    Py_XDECREF(copy);
    return s;
}

static bool is_spec(PyObject *o)
{
    int yes = nb_py_is_sharding(o, "ShardingSpec");
    if (!yes)
        PyErr_Format(PyExc_TypeError, "sharding must be a ShardingSpec, not %R",
                     o);
    return yes == 1;
}

/* reshard(x, spec): spec is a ShardingSpec */
static PyObject *reshard(PyObject *self, PyObject *args)
{
    PyObject *o, *spec, *y = NULL;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO:reshard", &o, &spec) || !is_spec(spec))
        return NULL;
    ENTER;
    nb_py_locate();
    nb_tensor *x = nb_py_operand(o);
    if (x && nb_is_weak(x)) x = nb_py_constant(o, NB_NOTYPE);
    const nb_spec *s = x ? spec_for(x, spec) : NULL;
    y = s ? nb_py_wrap(nb_reshard(x, s)) : nb_py_raise();
    LEAVE;
    return y;
}

/* The value of x on no mesh, without history. */
static nb_tensor *taken_off(nb_tensor *x)
{
    int64_t size[NB_PY_RANK];
    if (nb_is_traced(x) || nb_hidden(x)) {
        nb_error_raise(NB_EVALUE,
                       "sharding: a traced or mapped tensor stays on its mesh");
        return NULL;
    }
    const void *data = nb_data(x, NULL);
    nb_sizes(x, size);
    return data ? nb_constant(nb_dtype_of(x), nb_rank(x), size, data) : NULL;
}

#define X ((void)unused, nb_py_get(o))

static PyObject *get_sharding(PyObject *o, void *unused)
{
    if (!nb_sharding(X)) Py_RETURN_NONE;
    return spec_of(nb_py_get(o));
}

/* As if the object had been assigned to. */
static int set_sharding(PyObject *o, PyObject *spec, void *unused)
{
    nb_tensor *x = X, *y = x;
    bool off = !spec || spec == Py_None;
    if ((!off && !is_spec(spec))) return -1;
    if (nb_scope_open() != NB_OK) return nb_py_raise(), -1;
    nb_py_locate();
    const nb_spec *s = off ? NULL : spec_for(x, spec);
    if (s)
        y = nb_reshard(x, s);
    else if (!off)
        y = NULL;
    else if (nb_sharding(x))
        y = taken_off(x);
    if (!y)
        nb_py_raise();
    else if (y != x)
        nb_py_replace((nb_py_tensor *)o, y);
    LEAVE;
    return y ? 0 : -1;
}

static PyObject *get_is_sharded(PyObject *o, void *unused)
{
    return PyBool_FromLong(nb_sharding(X) != NULL);
}

static PyObject *get_num_shards(PyObject *o, void *unused)
{
    return PyLong_FromLong(devices_of(X));
}

/* Of what the device at a position has, hidden axes first. */
static PyObject *local_shape(const nb_tensor *x, long position)
{
    int64_t size[NB_PY_DIMS], local[NB_PY_DIMS];
    const nb_spec *s = nb_sharding(x);
    int hidden = nb_hidden(x), n = hidden + nb_rank(x);
    if (position < 0 || position >= devices_of(x))
        return bad_index(position, devices_of(x));
    nb_hidden_sizes(x, size);
    nb_sizes(x, size + hidden);
    if (s && nb_spec_local_sizes(s, size, (int)position, NULL, local) != NB_OK)
        return nb_py_raise();
    int64_t *from = s ? local : size;
    for (int i = 0; i < hidden / 2; i++) {
        int64_t swap = from[i];
        from[i] = from[hidden - 1 - i];
        from[hidden - 1 - i] = swap;
    }
    return nb_py_tuple(n, from);
}

static PyObject *get_local_shape(PyObject *o, void *unused)
{
    return local_shape(X, 0);
}

/* What a solver is to be told; a ShardingSpec or None. */
static PyObject *get_constraint(PyObject *o, void *unused)
{
    PyObject *spec = ((nb_py_tensor *)o)->constraint;
    (void)unused;
    return Py_NewRef(spec ? spec : Py_None);
}

/* The object has a value of which it is said, the same one; but a leaf that
 * requires grad stays what it is. */
static bool constrain(nb_py_tensor *self, nb_tensor *x, PyObject *spec)
{
    nb_tensor *y = NULL;
    if (!is_spec(spec)) return false;
    if (nb_scope_open() != NB_OK) return nb_py_raise(), false;
    nb_py_locate();
    const nb_spec *s = spec_for(x, spec);
    if (s) y = self->requires_grad ? x : nb_constrain(x, s);
    if (!y)
        nb_py_raise();
    else if (y != x)
        nb_py_replace(self, y);
    LEAVE;
    return y;
}

static int set_constraint(PyObject *o, PyObject *spec, void *unused)
{
    nb_py_tensor *self = (nb_py_tensor *)o;
    bool none = !spec || spec == Py_None;
    if (!none && !constrain(self, X, spec)) return -1;
    nb_py_refer(self, &self->constraint, none ? NULL : Py_NewRef(spec));
    return 0;
}

PyGetSetDef nb_py_place_getset[] = {
    {"sharding", get_sharding, set_sharding,
     "The layout over devices, or None.", NULL},
    {"is_sharded", get_is_sharded, NULL, "Whether it has a sharding.", NULL},
    {"num_shards", get_num_shards, NULL, "Number of shard buffers.", NULL},
    {"local_shape", get_local_shape, NULL, "Of shard 0, with hidden axes.",
     NULL},
    {"physical_shape", get_local_shape, NULL, "Of shard 0, with hidden axes.",
     NULL},
    {"_constraint", get_constraint, set_constraint, NULL, NULL},
    {0}};

static PyObject *shard_shape(PyObject *o, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"shard_idx", NULL};
    long i = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|l:shard_shape", names, &i))
        return NULL;
    return local_shape(nb_py_get(o), i);
}

/* The block of the device at a position, hidden axes shown. */
static nb_tensor *block_at(nb_tensor *x, int position)
{
    int64_t order[NB_PY_DIMS];
    nb_tensor *y = nb_shard_at(x, position);
    int hidden = nb_hidden(x), n = y ? nb_rank(y) : 0;
    if (hidden < 2 || !y) return y;
    for (int d = 0; d < n; d++)
        order[d] = d < hidden ? hidden - 1 - d : d;
    return nb_permute(y, n, order);
}

static bool add_block(PyObject *list, nb_tensor *x, int position)
{
    if (nb_scope_open() != NB_OK) return nb_py_raise();
    PyObject *block = nb_py_wrap(block_at(x, position));
    LEAVE;
    bool ok = block && PyList_Append(list, block) == 0;
    Py_XDECREF(block);
    return ok;
}

/* Of the devices that this process has. */
static PyObject *blocks(PyObject *o, PyObject *unused)
{
    nb_tensor *x = nb_sharding(X) ? nb_py_realized(o) : NULL;
    const nb_spec *s = nb_sharding(nb_py_get(o));
    PyObject *list = s && !x ? NULL : PyList_New(0);
    bool ok = list;
    if (ok && !s) ok = PyList_Append(list, o) == 0;
    for (int p = 0; ok && s && p < nb_mesh_devices(nb_spec_mesh(s)); p++)
        if (nb_mesh_is_here(nb_spec_mesh(s), p)) ok = add_block(list, x, p);
    nb_drop(x);
    if (!ok) Py_CLEAR(list);
    return list;
}

static bool is_whole(const nb_spec *s)
{
    return !s || nb_spec_is_whole(s);
}

static const nb_spec *whole(const nb_spec *s)
{
    nb_dim_parts dim[NB_PY_DIMS] = {0};
    nb_spec_parts parts = {.rank = nb_spec_rank(s), .dim = dim};
    return nb_spec_new(nb_spec_mesh(s), &parts);
}

/* Whole on every device, nothing pending. */
static PyObject *gathered(PyObject *o, PyObject *unused)
{
    nb_tensor *x = X;
    if (is_whole(nb_sharding(x))) return Py_NewRef(o);
    ENTER;
    nb_py_locate();
    const nb_spec *s = whole(nb_sharding(x));
    PyObject *y = s ? nb_py_wrap(nb_reshard(x, s)) : nb_py_raise();
    LEAVE;
    return y;
}

#define KEYWORDS(f) \
    (PyCFunction)(void (*)(void)) f, METH_VARARGS | METH_KEYWORDS
#define SHAPE \
    "($self, shard_idx=0)\n--\n\nThe shape of a shard, with hidden axes."
PyMethodDef nb_py_place_methods[] = {
    {"shard_shape", KEYWORDS(shard_shape), "shard_shape" SHAPE},
    {"physical_local_shape", KEYWORDS(shard_shape),
     "physical_local_shape" SHAPE},
    {"physical_local_shape_ints", KEYWORDS(shard_shape),
     "physical_local_shape_ints" SHAPE},
    {"_shards", blocks, METH_NOARGS, NULL},
    {"_gathered", gathered, METH_NOARGS, NULL},
    {0}};

bool nb_py_add_target(PyObject *kwargs, const nb_spec *s)
{
    PyObject *spec = nb_py_spec_to(s);
    PyObject *mesh = spec ? nb_py_mesh_to(nb_spec_mesh(s)) : NULL;
    bool ok = mesh && PyDict_SetItemString(kwargs, "mesh", mesh) == 0 &&
              PyDict_SetItemString(kwargs, "spec", spec) == 0;
    Py_XDECREF(spec);
    Py_XDECREF(mesh);
    return ok;
}

/* sharding_picture(spec, shape, format) */
static PyObject *picture(PyObject *self, PyObject *args)
{
    PyObject *o, *shape;
    const char *format;
    int64_t size[NB_PY_DIMS];
    int n;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOs:visualize_sharding", &o, &shape,
                          &format) ||
        !nb_py_ints(shape, size, NB_PY_DIMS, &n))
        return NULL;
    const nb_spec *s = nb_py_spec_from(o, NULL, -1);
    if (!s) return NULL;
    char *text = nb_sharding_picture(s, n, size, format);
    if (!text) return nb_py_raise();
    PyObject *y = PyUnicode_FromString(text);
    nb_text_release(text);
    return y;
}

PyMethodDef nb_py_place_functions[] = {
    {"reshard", reshard, METH_VARARGS, NULL},
    {"sharding_picture", picture, METH_VARARGS, NULL},
    {0}};
