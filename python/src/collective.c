/* collective.c - collectives, and the pieces of vmaps and shard_maps that lie
 * on a mesh: what nabla._collective and nabla.transforms are made of. */
#include "shard.h"

#include <string.h>

enum { AXES = NB_PY_DIMS };

/* Arguments: a mesh or None, a name or None. */

static int to_mesh(PyObject *o, void *at)
{
    const nb_mesh **m = at;
    *m = NULL;
    return o == Py_None || (*m = nb_py_mesh_from(o));
}

/* Texts, which `held` keeps. */
typedef struct names {
    int n; /* < 0: not given */
    const char *at[AXES];
    PyObject *held;
} names;

/* An axis, any iterable of axes, or None. */
static bool read_names(PyObject *o, names *a)
{
    a->n = -1;
    a->held = PyList_New(0);
    if (!a->held) return false;
    if (o == Py_None) return true;
    PyObject *all =
        PyUnicode_Check(o) ? Py_BuildValue("[O]", o) : PySequence_List(o);
    if (all) a->n = nb_py_axes(all, a->held, a->at, AXES);
    Py_XDECREF(all);
    return a->n >= 0;
}

/* A Tensor of what an op made in a scope, which is closed. */
static PyObject *made(nb_tensor *y)
{
    PyObject *o = nb_py_wrap(y);
    LEAVE;
    return o;
}

static bool opened(void)
{
    if (nb_scope_open() != NB_OK) return nb_py_raise();
    nb_py_locate();
    return true;
}

#define X nb_py_get(x)

/* all_gather(x, axis or None, name or None, tiled) */
static PyObject *all_gather(PyObject *self, PyObject *args)
{
    PyObject *x, *axis;
    const char *name;
    int tiled;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!Ozp:all_gather", nb_py_Tensor, &x, &axis,
                          &name, &tiled))
        return NULL;
    long at = axis == Py_None ? NB_ALL_DIMS : PyLong_AsLong(axis);
    if (PyErr_Occurred()) return NULL;
    return opened() ? made(nb_all_gather(X, (int)at, name, tiled)) : NULL;
}

static PyObject *gather_all_axes(PyObject *self, PyObject *x)
{
    (void)self;
    if (!nb_py_is_tensor(x))
        return PyErr_Format(PyExc_TypeError, "gather_all_axes of a tensor");
    return opened() ? made(nb_gather_all_axes(X)) : NULL;
}

/* all_reduce(x, kind, names) */
static PyObject *all_reduce(PyObject *self, PyObject *args)
{
    PyObject *x, *given, *y = NULL;
    const char *kind;
    names a;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!sO:all_reduce", nb_py_Tensor, &x, &kind,
                          &given))
        return NULL;
    if (read_names(given, &a) && opened())
        y = made(nb_all_reduce(X, kind, a.n, a.at));
    Py_XDECREF(a.held);
    return y;
}

typedef nb_tensor *over(nb_tensor *, int, const char *const *);

/* (x, names) */
static PyObject *over_names(PyObject *args, over *f)
{
    PyObject *x, *given, *y = NULL;
    names a;
    if (!PyArg_ParseTuple(args, "O!O:axes", nb_py_Tensor, &x, &given))
        return NULL;
    if (read_names(given, &a) && opened()) y = made(f(X, a.n, a.at));
    Py_XDECREF(a.held);
    return y;
}

static PyObject *pmean(PyObject *self, PyObject *args)
{
    (void)self;
    return over_names(args, nb_pmean);
}

static PyObject *pvary(PyObject *self, PyObject *args)
{
    (void)self;
    return over_names(args, nb_pvary);
}

/* reduce_scatter(x, axis, name or None) */
static PyObject *reduce_scatter(PyObject *self, PyObject *args)
{
    PyObject *x;
    const char *name;
    int axis;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!iz:reduce_scatter", nb_py_Tensor, &x, &axis,
                          &name))
        return NULL;
    return opened() ? made(nb_reduce_scatter(X, axis, name)) : NULL;
}

/* pscatter(x, axis, name) */
static PyObject *pscatter(PyObject *self, PyObject *args)
{
    PyObject *x;
    const char *name;
    int axis;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!is:pscatter", nb_py_Tensor, &x, &axis,
                          &name))
        return NULL;
    return opened() ? made(nb_pscatter(X, axis, name)) : NULL;
}

/* all_to_all(x, split, concat, name or None, tiled) */
static PyObject *all_to_all(PyObject *self, PyObject *args)
{
    PyObject *x;
    const char *name;
    int split, concat, tiled;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!iizp:all_to_all", nb_py_Tensor, &x, &split,
                          &concat, &name, &tiled))
        return NULL;
    return opened() ? made(nb_all_to_all(X, split, concat, name, tiled)) : NULL;
}

/* ppermute(x, [src0, dst0, src1, ...], name or None) */
static PyObject *ppermute(PyObject *self, PyObject *args)
{
    PyObject *x, *list, *y = NULL;
    const char *name;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O!z:ppermute", nb_py_Tensor, &x,
                          &PyList_Type, &list, &name))
        return NULL;
    int n = (int)PyList_Size(list);
    int64_t *ends = PyMem_Calloc((size_t)n + 1, sizeof *ends);
    if (!ends) return PyErr_NoMemory();
    for (int i = 0; i < n; i++)
        ends[i] = PyLong_AsLongLong(PyList_GetItem(list, i));
    if (!PyErr_Occurred() && opened())
        y = made(nb_ppermute(X, n / 2, (const int64_t(*)[2])ends, name));
    PyMem_Free(ends);
    return y;
}

/* pbroadcast(x, root, name) */
static PyObject *pbroadcast(PyObject *self, PyObject *args)
{
    PyObject *x;
    const char *name;
    long long root;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!Ls:pbroadcast", nb_py_Tensor, &x, &root,
                          &name))
        return NULL;
    return opened() ? made(nb_pbroadcast(X, root, name)) : NULL;
}

/* axis_index(mesh or None, name or None) */
static PyObject *axis_index(PyObject *self, PyObject *args)
{
    const nb_mesh *m;
    const char *name;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&z:axis_index", to_mesh, &m, &name))
        return NULL;
    return opened() ? made(nb_axis_index(m, name)) : NULL;
}

/* distributed_broadcast(x, mesh or None) */
static PyObject *distributed_broadcast(PyObject *self, PyObject *args)
{
    PyObject *x;
    const nb_mesh *m;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O&:distributed_broadcast", nb_py_Tensor, &x,
                          to_mesh, &m))
        return NULL;
    return opened() ? made(nb_distributed_broadcast(X, m)) : NULL;
}

/* broadcast(x, mesh or None, root) */
static PyObject *broadcast(PyObject *self, PyObject *args)
{
    PyObject *x;
    const nb_mesh *m;
    int root;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!O&i:broadcast", nb_py_Tensor, &x, to_mesh,
                          &m, &root))
        return NULL;
    return opened() ? made(nb_broadcast_on_mesh(X, m, root)) : NULL;
}

/* vmap */

/* lane_named(name): whether an open vmap or shard_map has that name */
static PyObject *lane_named(PyObject *self, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8AndSize(name, NULL);
    nb_open_lane l;
    bool found = false;
    (void)self;
    if (!text) return NULL;
    for (int k = 0; !found && nb_lane_at(k, &l); k++)
        for (int i = 0; i < 2; i++)
            found = found || (l.name[i] && !strcmp(l.name[i], text));
    return PyBool_FromLong(found);
}

/* spmd_mesh(mesh or None, name, leaves): the mesh that lanes lie on, or None. */
static PyObject *spmd_mesh(PyObject *self, PyObject *args)
{
    PyObject *list;
    const nb_mesh *m, *found;
    const char *name;
    int n;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&sO!:vmap", to_mesh, &m, &name, &PyList_Type,
                          &list))
        return NULL;
    nb_tensor **x = nb_py_tensors(list, &n);
    if (!x) return NULL;
    bool ok = nb_spmd_mesh(m, name, n, x, &found);
    PyMem_Free(x);
    if (!ok) return nb_py_raise();
    return found ? nb_py_mesh_to(found) : Py_NewRef(Py_None);
}

/* reshard_dim(x, axis, mesh, name) */
static PyObject *reshard_dim(PyObject *self, PyObject *args)
{
    PyObject *x;
    const nb_mesh *m;
    const char *name;
    int axis;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!iO&s:vmap", nb_py_Tensor, &x, &axis, to_mesh,
                          &m, &name))
        return NULL;
    return opened() ? made(nb_reshard_dim(X, axis, m, name)) : NULL;
}

/* Manual axes: a capsule of what nb_manual_begin gives. */

static const char MANUAL[] = "nabla.manual";

static void drop(PyObject *o)
{
    nb_manual_drop(PyCapsule_GetPointer(o, MANUAL));
}

static int to_manual(PyObject *o, void *at)
{
    return (*(nb_manual **)at = PyCapsule_GetPointer(o, MANUAL)) != NULL;
}

/* manual_begin(mesh, names, unsafe) */
static PyObject *manual_begin(PyObject *self, PyObject *args)
{
    PyObject *given, *o = NULL;
    const nb_mesh *mesh;
    nb_manual *m = NULL;
    names a;
    int unsafe;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&Op:shard_map", to_mesh, &mesh, &given,
                          &unsafe))
        return NULL;
    if (read_names(given, &a)) {
        m = nb_manual_begin(mesh, a.n, a.at);
        if (m && unsafe) nb_manual_trust(m);
        o = m ? PyCapsule_New(m, MANUAL, drop) : nb_py_raise();
    }
    Py_XDECREF(a.held);
    if (o || !m) return o;
    nb_manual_end(m);
    nb_manual_drop(m);
    return NULL;
}

static PyObject *manual_end(PyObject *self, PyObject *o)
{
    nb_manual *m;
    (void)self;
    if (!to_manual(o, &m)) return NULL;
    nb_manual_end(m);
    Py_RETURN_NONE;
}

typedef nb_tensor *crossing(nb_manual *, nb_tensor *, const nb_spec *);

/* (manual, x, mesh, spec or None); the spec is of what x is inside or out */
static PyObject *cross(PyObject *args, crossing *f)
{
    PyObject *x, *mesh, *spec;
    nb_manual *m;
    const nb_spec *s = NULL;
    if (!PyArg_ParseTuple(args, "O&O!OO:shard_map", to_manual, &m, nb_py_Tensor,
                          &x, &mesh, &spec))
        return NULL;
    if (spec != Py_None && !(s = nb_py_spec_from(spec, mesh, nb_rank(X))))
        return NULL;
    return opened() ? made(f(m, X, s)) : NULL;
}

static PyObject *manual_in(PyObject *self, PyObject *args)
{
    (void)self;
    return cross(args, nb_manual_in);
}

static PyObject *manual_out(PyObject *self, PyObject *args)
{
    (void)self;
    return cross(args, nb_manual_out);
}

static PyMethodDef functions[] = {
    {"all_gather", all_gather, METH_VARARGS, NULL},
    {"gather_all_axes", gather_all_axes, METH_O, NULL},
    {"all_reduce", all_reduce, METH_VARARGS, NULL},
    {"pmean", pmean, METH_VARARGS, NULL},
    {"pvary", pvary, METH_VARARGS, NULL},
    {"reduce_scatter", reduce_scatter, METH_VARARGS, NULL},
    {"pscatter", pscatter, METH_VARARGS, NULL},
    {"all_to_all", all_to_all, METH_VARARGS, NULL},
    {"ppermute", ppermute, METH_VARARGS, NULL},
    {"pbroadcast", pbroadcast, METH_VARARGS, NULL},
    {"axis_index", axis_index, METH_VARARGS, NULL},
    {"distributed_broadcast", distributed_broadcast, METH_VARARGS, NULL},
    {"broadcast", broadcast, METH_VARARGS, NULL},
    {"lane_named", lane_named, METH_O, NULL},
    {"spmd_mesh", spmd_mesh, METH_VARARGS, NULL},
    {"reshard_dim", reshard_dim, METH_VARARGS, NULL},
    {"manual_begin", manual_begin, METH_VARARGS, NULL},
    {"manual_end", manual_end, METH_O, NULL},
    {"manual_in", manual_in, METH_VARARGS, NULL},
    {"manual_out", manual_out, METH_VARARGS, NULL},
    {0}};

/* As warnings of Python, at the line that called a function of nabla. */
static bool warn(void *ctx, const char *text)
{
    (void)ctx;
    PyGILState_STATE state = PyGILState_Ensure();
    bool ok = PyErr_WarnEx(PyExc_RuntimeWarning, text, 2) == 0;
    PyGILState_Release(state);
    return ok;
}

int nb_py_collective_add(PyObject *module)
{
    nb_warning_set(warn, NULL);
    return PyModule_AddFunctions(module, functions);
}
