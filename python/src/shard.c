/* shard.c - specs: ShardingSpec of nabla._sharding to and from what the engine
 * has.  A ShardingSpec is plain data, which may change, so it is read anew
 * whenever it is used; the engine checks it. */
#include "shard.h"

enum { DIMS = NB_PY_DIMS, AXES = 256 };

typedef struct reading {
    nb_spec_parts parts;
    nb_dim_parts dim[DIMS];
    const char *axis[AXES];
    int naxes;
    PyObject *held; /* a list of what owns the texts */
} reading;

static int more_axes(reading *r, PyObject *o, const char *name,
                     const char *const **axis)
{
    PyObject *from = PyObject_GetAttrString(o, name);
    const char **to = r->axis + r->naxes;
    int n = from ? nb_py_axes(from, r->held, to, AXES - r->naxes) : -1;
    Py_XDECREF(from);
    *axis = to;
    r->naxes += n > 0 ? n : 0;
    return n;
}

static bool read_number(PyObject *o, const char *name, int *to)
{
    PyObject *value = PyObject_GetAttrString(o, name);
    long v = value ? PyLong_AsLong(value) : -1;
    Py_XDECREF(value);
    if (PyErr_Occurred()) return false;
    *to = v > INT16_MAX ? INT16_MAX : v < INT16_MIN ? INT16_MIN : (int)v;
    return true;
}

static bool read_dim(reading *r, PyObject *o, nb_dim_parts *d)
{
    PyObject *open = PyObject_GetAttrString(o, "is_open");
    int yes = open ? PyObject_IsTrue(open) : -1;
    Py_XDECREF(open);
    d->naxes = yes < 0 ? -1 : more_axes(r, o, "axes", &d->axis);
    d->open = yes > 0;
    return d->naxes >= 0 && read_number(o, "priority", &d->priority);
}

static bool read_dims(reading *r, PyObject *o)
{
    PyObject *from = PyObject_GetAttrString(o, "dim_specs");
    PyObject *dims = from ? PySequence_List(from) : NULL;
    Py_ssize_t n = dims ? PyList_Size(dims) : 0;
    bool ok = dims && n <= DIMS;
    if (n > DIMS) PyErr_Format(PyExc_ValueError, "sharding: %zd dims", n);
    for (Py_ssize_t d = 0; ok && d < n; d++)
        ok = read_dim(r, PyList_GetItem(dims, d), &r->dim[d]);
    r->parts.rank = (int)n;
    r->parts.dim = r->dim;
    Py_XDECREF(from);
    Py_XDECREF(dims);
    return ok;
}

static bool read_kind(reading *r, PyObject *o)
{
    PyObject *kind = PyObject_GetAttrString(o, "partial_kind");
    bool ok = kind && PyList_Append(r->held, kind) == 0 &&
              (r->parts.kind = PyUnicode_AsUTF8AndSize(kind, NULL));
    Py_XDECREF(kind);
    return ok;
}

static bool read_spec(reading *r, PyObject *o)
{
    nb_spec_parts *p = &r->parts;
    r->held = PyList_New(0);
    if (!r->held || !read_dims(r, o) || !read_kind(r, o)) return false;
    p->nreplicated = more_axes(r, o, "replicated_axes", &p->replicated);
    if (p->nreplicated < 0) return false;
    p->npartial = more_axes(r, o, "partial_sum_axes", &p->partial);
    return p->npartial >= 0;
}

static const nb_spec *spec_from(PyObject *o)
{
    reading r = {0};
    PyObject *mesh = PyObject_GetAttrString(o, "mesh");
    const nb_mesh *m = mesh ? nb_py_mesh_from(mesh) : NULL;
    const nb_spec *s = NULL;
    if (m && read_spec(&r, o)) {
        s = nb_spec_new(m, &r.parts);
        if (!s) nb_py_raise();
    }
    Py_XDECREF(r.held);
    Py_XDECREF(mesh);
    return s;
}

const nb_spec *nb_py_spec_from(PyObject *o, PyObject *mesh, int rank)
{
    int yes = nb_py_is_sharding(o, "ShardingSpec");
    PyObject *full = NULL;
    if (yes < 0) return NULL;
    if (!yes) {
        PyObject *make = nb_py_sharding("spec_of");
        full = make ? PyObject_CallFunction(make, "OOi", o,
                                            mesh ? mesh : Py_None, rank)
                    : NULL;
        Py_XDECREF(make);
        if (!full) return NULL;
    }
    const nb_spec *s = spec_from(full ? full : o);
    Py_XDECREF(full);
    if (!s || rank < 0 || nb_spec_rank(s) == rank) return s;
    PyErr_Format(PyExc_ValueError,
                 "sharding: a spec of %d dims for a tensor of %d dims",
                 nb_spec_rank(s), rank);
    return NULL;
}

/* The other way. */

static PyObject *axis_object(const nb_mesh *m, nb_axis a)
{
    char small[128];
    int n = nb_axis_text(m, a, small, sizeof small);
    if (n < (int)sizeof small) return PyUnicode_FromString(small);
    char *text = PyMem_Malloc((size_t)n + 1);
    if (!text) return PyErr_NoMemory();
    nb_axis_text(m, a, text, (size_t)n + 1);
    PyObject *o = PyUnicode_FromString(text);
    PyMem_Free(text);
    return o;
}

static PyObject *axis_list(const nb_spec *s, int which)
{
    int n = nb_spec_axes(s, which);
    PyObject *list = PyList_New(n);
    for (int k = 0; list && k < n; k++) {
        PyObject *axis =
            axis_object(nb_spec_mesh(s), nb_spec_axis(s, which, k));
        if (!axis || PyList_SetItem(list, k, axis) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *dim_list(const nb_spec *s)
{
    int n = nb_spec_rank(s);
    PyObject *class = nb_py_sharding("DimSpec");
    PyObject *list = class ? PyList_New(n) : NULL;
    for (int d = 0; list && d < n; d++) {
        PyObject *axes = axis_list(s, d), *dim = NULL;
        if (axes)
            dim = PyObject_CallFunction(
                class, "OOi", axes, nb_spec_is_open(s, d) ? Py_True : Py_False,
                nb_spec_priority(s, d));
        Py_XDECREF(axes);
        if (!dim || PyList_SetItem(list, d, dim) < 0) Py_CLEAR(list);
    }
    Py_XDECREF(class);
    return list;
}

PyObject *nb_py_spec_to(const nb_spec *s)
{
    PyObject *class = nb_py_sharding("ShardingSpec"), *o = NULL;
    PyObject *mesh = class ? nb_py_mesh_to(nb_spec_mesh(s)) : NULL;
    PyObject *dims = mesh ? dim_list(s) : NULL;
    PyObject *replicated = dims ? axis_list(s, NB_SPEC_REPLICATED) : NULL;
    PyObject *partial = replicated ? axis_list(s, NB_SPEC_PARTIAL) : NULL;
    if (partial)
        o = PyObject_CallFunction(class, "OOOOs", mesh, dims, replicated,
                                  partial, nb_spec_kind(s));
    Py_XDECREF(class);
    Py_XDECREF(mesh);
    Py_XDECREF(dims);
    Py_XDECREF(replicated);
    Py_XDECREF(partial);
    return o;
}

/* spec_check(spec) */
static PyObject *spec_check(PyObject *self, PyObject *o)
{
    (void)self;
    if (!spec_from(o)) return NULL;
    Py_RETURN_NONE;
}

/* spec_settle(spec, mesh, rank) -> as the engine has it */
static PyObject *spec_settle(PyObject *self, PyObject *args)
{
    PyObject *o, *mesh;
    int rank;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOi:spec_settle", &o, &mesh, &rank))
        return NULL;
    const nb_spec *s = nb_py_spec_from(o, mesh, rank);
    return s ? nb_py_spec_to(s) : NULL;
}

static PyObject *spec_parse(PyObject *self, PyObject *args)
{
    PyObject *o;
    const char *text;
    (void)self;
    if (!PyArg_ParseTuple(args, "Os:ShardingSpec.parse", &o, &text))
        return NULL;
    const nb_mesh *m = nb_py_mesh_from(o);
    if (!m) return NULL;
    const nb_spec *s = nb_spec_parse(m, text);
    return s ? nb_py_spec_to(s) : nb_py_raise();
}

static PyObject *spec_same(PyObject *self, PyObject *args)
{
    PyObject *a, *b;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO:needs_reshard", &a, &b)) return NULL;
    const nb_spec *s = nb_py_spec_from(a, NULL, -1);
    const nb_spec *t = s ? nb_py_spec_from(b, NULL, -1) : NULL;
    return t ? PyBool_FromLong(nb_spec_same_layout(s, t)) : NULL;
}

/* spec_local(spec, shape, device) -> shape */
static PyObject *spec_local(PyObject *self, PyObject *args)
{
    PyObject *o, *shape;
    int device, n;
    int64_t size[DIMS], local[DIMS];
    (void)self;
    if (!PyArg_ParseTuple(args, "OOi:compute_local_shape", &o, &shape, &device))
        return NULL;
    const nb_spec *s = nb_py_spec_from(o, NULL, -1);
    if (!s || !nb_py_ints(shape, size, DIMS, &n)) return NULL;
    int position = nb_py_position(nb_spec_mesh(s), device);
    if (position < 0) return NULL;
    s = nb_spec_fit(s, n, size);
    if (nb_spec_local_sizes(s, size, position, NULL, local) != NB_OK)
        return nb_py_raise();
    return nb_py_tuple(n, local);
}

/* There is room for DIMS sizes at each. */
static bool read_shapes(PyObject *list, int rank, int n, int64_t *to)
{
    for (int p = 0; p < n; p++) {
        int given;
        if (!nb_py_ints(PyList_GetItem(list, p), to, DIMS, &given))
            return false;
        if (given != rank) {
            PyErr_Format(PyExc_ValueError,
                         "sharding: a block of %d dims for a spec of %d dims",
                         given, rank);
            return false;
        }
        to += rank;
    }
    return true;
}

/* spec_global(spec, shapes) -> shape; one for each position */
static PyObject *spec_global(PyObject *self, PyObject *args)
{
    PyObject *o, *list, *made = NULL;
    int64_t size[DIMS];
    (void)self;
    if (!PyArg_ParseTuple(args, "OO!:compute_global_shape", &o, &PyList_Type,
                          &list))
        return NULL;
    const nb_spec *s = nb_py_spec_from(o, NULL, -1);
    if (!s) return NULL;
    int rank = nb_spec_rank(s), n = nb_mesh_devices(nb_spec_mesh(s));
    if (PyList_Size(list) != n)
        return PyErr_Format(PyExc_ValueError,
                            "sharding: %zd blocks for %d devices",
                            PyList_Size(list), n);
    int64_t *locals = PyMem_Malloc((size_t)n * DIMS * sizeof *locals);
    if (!locals) return PyErr_NoMemory();
    if (read_shapes(list, rank, n, locals))
        made = nb_spec_global_sizes(s, locals, size) == NB_OK
                   ? nb_py_tuple(rank, size)
                   : nb_py_raise();
    PyMem_Free(locals);
    return made;
}

static PyMethodDef functions[] = {
    {"spec_check", spec_check, METH_O, NULL},
    {"spec_settle", spec_settle, METH_VARARGS, NULL},
    {"spec_parse", spec_parse, METH_VARARGS, NULL},
    {"spec_same", spec_same, METH_VARARGS, NULL},
    {"spec_local", spec_local, METH_VARARGS, NULL},
    {"spec_global", spec_global, METH_VARARGS, NULL},
    {0}};

int nb_py_shard_add(PyObject *module)
{
    return nb_py_mesh_add(module) < 0 || nb_py_reshard_add(module) < 0 ||
                   nb_py_autoshard_add(module) < 0 ||
                   nb_py_collective_add(module) < 0 ||
                   PyModule_AddFunctions(module, nb_py_place_functions) < 0
               ? -1
               : PyModule_AddFunctions(module, functions);
}
