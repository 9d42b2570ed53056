/* mesh.c - meshes: DeviceMesh of nabla._sharding to and from what the engine
 * has, which a DeviceMesh holds in a capsule. */
#include "shard.h"

#include <string.h>

static const char MESH[] = "nabla.mesh";

static PyObject *meshes; /* {address of a mesh: DeviceMesh} */

PyObject *nb_py_sharding(const char *name)
{
    PyObject *home = PyImport_ImportModule("nabla._sharding");
    PyObject *found = home ? PyObject_GetAttrString(home, name) : NULL;
    Py_XDECREF(home);
    return found;
}

int nb_py_is_sharding(PyObject *o, const char *name)
{
    PyObject *class = nb_py_sharding(name);
    int yes = class ? PyObject_IsInstance(o, class) : -1;
    Py_XDECREF(class);
    return yes;
}

static bool remember(const nb_mesh *m, PyObject *o)
{
    PyObject *key = PyLong_FromVoidPtr((void *)m);
    int failed = key ? PyDict_SetItem(meshes, key, o) : -1;
    Py_XDECREF(key);
    return failed == 0;
}

const nb_mesh *nb_py_mesh_from(PyObject *o)
{
    int yes = nb_py_is_sharding(o, "DeviceMesh");
    if (yes < 0) return NULL;
    if (!yes) {
        PyErr_SetString(PyExc_TypeError, "sharding: mesh must be a DeviceMesh");
        return NULL;
    }
    PyObject *capsule = PyObject_GetAttrString(o, "_mesh");
    nb_mesh *m = capsule ? PyCapsule_GetPointer(capsule, MESH) : NULL;
    Py_XDECREF(capsule);
    return m && remember(m, o) ? m : NULL;
}

static PyObject *text_list(int n, const char *(*text)(const nb_mesh *, int),
                           const nb_mesh *m)
{
    PyObject *list = PyList_New(n);
    for (int k = 0; list && k < n; k++) {
        PyObject *item = PyUnicode_FromString(text(m, k));
        if (!item || PyList_SetItem(list, k, item) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *number_list(int n, int (*number)(const nb_mesh *, int),
                             const nb_mesh *m)
{
    PyObject *list = PyList_New(n);
    for (int k = 0; list && k < n; k++) {
        PyObject *item = PyLong_FromLong(number(m, k));
        if (!item || PyList_SetItem(list, k, item) < 0) Py_CLEAR(list);
    }
    return list;
}

/* One that no program of Python made; making it is remembered. */
static PyObject *mesh_fresh(const nb_mesh *m)
{
    int n = nb_mesh_axes(m);
    PyObject *class = nb_py_sharding("DeviceMesh"), *o = NULL;
    PyObject *sizes = number_list(n, nb_mesh_axis_size, m);
    PyObject *names = text_list(n, nb_mesh_axis_name, m);
    PyObject *ids = number_list(nb_mesh_devices(m), nb_mesh_device, m);
    if (class && sizes && names && ids)
        o = PyObject_CallFunction(class, "sOOO", nb_mesh_name(m), sizes, names,
                                  ids);
    Py_XDECREF(class);
    Py_XDECREF(sizes);
    Py_XDECREF(names);
    Py_XDECREF(ids);
    return o;
}

PyObject *nb_py_mesh_to(const nb_mesh *m)
{
    PyObject *key = PyLong_FromVoidPtr((void *)m);
    PyObject *found = key ? PyDict_GetItemWithError(meshes, key) : NULL;
    Py_XDECREF(key);
    if (found) return Py_NewRef(found);
    return PyErr_Occurred() ? NULL : mesh_fresh(m);
}

/* Lists of ints that fit an int, into memory to PyMem_Free. */
static int *read_numbers(PyObject *list, Py_ssize_t *n)
{
    *n = PyList_Size(list);
    int *to = *n < 0 ? NULL : PyMem_Malloc((size_t)(*n + 1) * sizeof *to);
    if (*n >= 0 && !to) return PyErr_NoMemory(), NULL;
    for (Py_ssize_t i = 0; i < *n; i++) {
        long v = PyLong_AsLong(PyList_GetItem(list, i));
        if (PyErr_Occurred() || v != (int)v) {
            PyMem_Free(to);
            PyErr_Clear();
            PyErr_SetString(PyExc_ValueError,
                            "mesh: sizes and devices are small ints");
            return NULL;
        }
        to[i] = (int)v;
    }
    return to;
}

int nb_py_axes(PyObject *from, PyObject *held, const char **to, int room)
{
    PyObject *list = PySequence_List(from);
    if (!list || PyList_Append(held, list) < 0) {
        Py_XDECREF(list);
        return -1;
    }
    Py_DECREF(list);
    Py_ssize_t n = PyList_Size(list);
    if (n > room) {
        PyErr_Format(PyExc_ValueError, "sharding: %zd axes", n);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *axis = PyList_GetItem(list, i);
        if (!PyUnicode_Check(axis)) {
            PyErr_Format(PyExc_ValueError, "sharding: axis %R is not a str",
                         axis);
            return -1;
        }
        Py_ssize_t bytes;
        if (!(to[i] = PyUnicode_AsUTF8AndSize(axis, &bytes))) return -1;
        if (strlen(to[i]) == (size_t)bytes) continue;
        PyErr_Format(PyExc_ValueError, "sharding: axis %R has a null", axis);
        return -1;
    }
    return (int)n;
}

static bool set_costs(const nb_mesh *m, double bandwidth)
{
    if (!(bandwidth > 0)) {
        PyErr_Format(PyExc_ValueError, "mesh @%s: bandwidth must be above zero",
                     nb_mesh_name(m));
        return false;
    }
    for (int k = 0; k < nb_mesh_axes(m); k++)
        if (nb_mesh_set_cost(m, k, 0, 1 / bandwidth) != NB_OK)
            return nb_py_raise();
    return true;
}

/* mesh_new(DeviceMesh, name, axes, sizes, devices, places or None, bandwidth,
 * spill, mask) -> capsule */
static PyObject *mesh_new(PyObject *self, PyObject *args)
{
    const char *name, *axis[NB_PY_DIMS];
    PyObject *o, *axes, *sizes, *ids, *places;
    double bandwidth;
    Py_ssize_t nsizes, nids, nplaces;
    int spill, mask;
    (void)self;
    if (!PyArg_ParseTuple(args, "OsO!O!O!Odpp:DeviceMesh", &o, &name,
                          &PyList_Type, &axes, &PyList_Type, &sizes,
                          &PyList_Type, &ids, &places, &bandwidth, &spill,
                          &mask))
        return NULL;
    PyObject *held = PyList_New(0);
    int n = held ? nb_py_axes(axes, held, axis, NB_PY_DIMS) : -1;
    int *size = n < 0 ? NULL : read_numbers(sizes, &nsizes);
    int *device = size ? read_numbers(ids, &nids) : NULL;
    int *on =
        device && places != Py_None ? read_numbers(places, &nplaces) : NULL;
    bool ready = device && (on || places == Py_None);
    const nb_mesh *m = ready ? nb_mesh_new(name, n, axis, size, device) : NULL;
    if (m && on) m = nb_mesh_on(m, on);
    if (m)
        m = nb_mesh_with(m, (spill ? 0 : NB_MESH_GATHER) |
                                (mask ? NB_MESH_MASK : 0));
    if (ready && !m) nb_py_raise();
    PyMem_Free(on);
    PyMem_Free(size);
    PyMem_Free(device);
    Py_XDECREF(held);
    if (!m || !set_costs(m, bandwidth) || !remember(m, o)) return NULL;
    return PyCapsule_New((void *)m, MESH, NULL);
}

/* mesh_axis(mesh, text) -> (number, pre, size) */
static PyObject *mesh_axis(PyObject *self, PyObject *args)
{
    PyObject *o;
    const char *text;
    nb_axis a;
    (void)self;
    if (!PyArg_ParseTuple(args, "Os:mesh_axis", &o, &text)) return NULL;
    const nb_mesh *m = nb_py_mesh_from(o);
    if (!m) return NULL;
    if (nb_axis_parse(m, text, &a) != NB_OK) return nb_py_raise();
    return Py_BuildValue("(iii)", a.axis, a.pre, a.size);
}

int nb_py_position(const nb_mesh *m, int device)
{
    int position = nb_mesh_position(m, device);
    if (position < 0)
        PyErr_Format(PyExc_ValueError, "mesh @%s: has no device %d",
                     nb_mesh_name(m), device);
    return position;
}

/* mesh_coordinate(mesh, device, axis) */
static PyObject *mesh_coordinate(PyObject *self, PyObject *args)
{
    PyObject *o;
    int device;
    const char *text;
    nb_axis a;
    (void)self;
    if (!PyArg_ParseTuple(args, "Ois:mesh_coordinate", &o, &device, &text))
        return NULL;
    const nb_mesh *m = nb_py_mesh_from(o);
    int position = m ? nb_py_position(m, device) : -1;
    if (position < 0) return NULL;
    if (nb_axis_parse(m, text, &a) != NB_OK) return nb_py_raise();
    return PyLong_FromLong(nb_axis_coordinate(m, a, position));
}

static PyObject *taken(char *text)
{
    PyObject *o = text ? PyUnicode_FromString(text) : nb_py_raise();
    nb_text_release(text);
    return o;
}

/* mesh_places(mesh) -> [number of a device, ...] */
static PyObject *mesh_places(PyObject *self, PyObject *o)
{
    const nb_mesh *m = nb_py_mesh_from(o);
    (void)self;
    return m ? number_list(nb_mesh_devices(m), nb_mesh_place, m) : NULL;
}

static PyObject *mesh_text(PyObject *self, PyObject *o)
{
    const nb_mesh *m = nb_py_mesh_from(o);
    (void)self;
    return m ? taken(nb_mesh_text(m)) : NULL;
}

static PyMethodDef functions[] = {
    {"mesh_new", mesh_new, METH_VARARGS, NULL},
    {"mesh_axis", mesh_axis, METH_VARARGS, NULL},
    {"mesh_coordinate", mesh_coordinate, METH_VARARGS, NULL},
    {"mesh_places", mesh_places, METH_O, NULL},
    {"mesh_text", mesh_text, METH_O, NULL},
    {0}};

int nb_py_mesh_add(PyObject *module)
{
    meshes = PyDict_New();
    return meshes ? PyModule_AddFunctions(module, functions) : -1;
}
