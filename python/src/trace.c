/* trace.c - recorded programs as Python objects: Graph holds one, and tells its
 * lines as tuples from which nabla.transforms._trace makes nodes.
 *
 * Names are given as listings give them: counted over the whole, those of a
 * call before those of the programs inside it. */
#include "py.h"

#include <string.h>

typedef struct graph {
    PyObject_HEAD nb_graph *g;
} graph;

/* Names of lines. */
typedef struct book {
    int inputs, calls; /* given so far */
} book;

typedef struct page {
    const nb_graph *g;
    PyObject **name; /* by line, NULL for those that have none */
} page;

static PyObject *text_of(char *text)
{
    PyObject *o = text ? PyUnicode_FromString(text) : nb_py_raise();
    nb_text_release(text);
    return o;
}

static bool put(PyObject *list, PyObject *o)
{
    bool ok = o && PyList_Append(list, o) == 0;
    Py_XDECREF(o);
    return ok;
}

/* What goes into a call: a name, a number, or ? for what was captured. */
static PyObject *reference(const page *p, int k)
{
    nb_line_info info;
    if (p->name[k]) return Py_NewRef(p->name[k]);
    nb_graph_line(p->g, k, &info);
    return info.kind == NB_LINE_NUMBER ? text_of(nb_graph_number_text(p->g, k))
                                       : PyUnicode_FromString("?");
}

static PyObject *references(const page *p, int n, const int *k)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < n; i++)
        if (!put(list, reference(p, k[i]))) Py_CLEAR(list);
    return list;
}

/* Static arguments */

static PyObject *value_of(const nb_arg *arg, const nb_value *v)
{
    if (v->kind == NB_VALUE_NONE) Py_RETURN_NONE;
    switch (arg->kind) {
    case NB_ARG_BOOL: return PyBool_FromLong(v->i != 0);
    case NB_ARG_FLOAT: return PyFloat_FromDouble(v->f);
    case NB_ARG_DTYPE: return nb_py_dtype_object((nb_dtype)v->i);
    case NB_ARG_TEXT: return PyUnicode_FromString(v->text);
    case NB_ARG_AXES:
        if (v->n == 1) return PyLong_FromLongLong(v->list[0]);
        return nb_py_tuple(v->n, v->list);
    case NB_ARG_INTS: return nb_py_tuple(v->n, v->list);
    default: return PyLong_FromLongLong(v->i);
    }
}

static PyObject *kwargs_of(const nb_graph *g, int k)
{
    PyObject *all = PyDict_New();
    nb_arg arg;
    nb_value v;
    const nb_spec *to = nb_graph_target(g, k);
    if (all && to && !nb_py_add_target(all, to)) Py_CLEAR(all);
    for (int i = 0; all && !to && nb_graph_attr(g, k, i, &arg, &v); i++) {
        PyObject *o = value_of(&arg, &v);
        if (!o || PyDict_SetItemString(all, arg.name, o) < 0) Py_CLEAR(all);
        Py_XDECREF(o);
    }
    return all;
}

/* Lines */

static bool name_line(page *p, int k, char kind, int number)
{
    return (p->name[k] = PyUnicode_FromFormat("%%%c%d", kind, number));
}

/* Adds the names and types of the results of call k: None for one that nobody
 * needs. */
static bool add_results(page *p, book *b, int k, const nb_line_info *call,
                        PyObject *names, PyObject *types)
{
    nb_line_info info;
    int at = call->parts ? k + 1 : k;
    for (int i = 0; i < call->nout; i++) {
        bool used = !call->parts || (nb_graph_line(p->g, at, &info) &&
                                     info.kind == NB_LINE_PART &&
                                     info.in[0] == k && info.part == i);
        if (used && !name_line(p, at, 'v', ++b->calls)) return false;
        if (!put(names, Py_NewRef(used ? p->name[at] : Py_None))) return false;
        if (!put(types, used ? text_of(nb_graph_type_text(p->g, at))
                             : Py_NewRef(Py_None)))
            return false;
        at += used;
    }
    return true;
}

static PyObject *program(const nb_graph *g, book *b);

static PyObject *regions_of(const nb_graph *g, int k, book *b)
{
    PyObject *all = PyDict_New();
    const nb_graph *inside;
    for (int i = 0; all && (inside = nb_graph_region(g, k, i)); i++) {
        PyObject *o = program(inside, b);
        const char *name = nb_graph_region_name(g, k, i);
        if (!o || PyDict_SetItemString(all, name, o) < 0) Py_CLEAR(all);
        Py_XDECREF(o);
    }
    return all;
}

/* (op, inputs, outputs, types, kwargs, source, regions) */
static PyObject *node(page *p, book *b, int k, const nb_line_info *info)
{
    PyObject *in = references(p, info->nin, info->in);
    PyObject *names = PyList_New(0), *types = PyList_New(0), *all = NULL;
    bool ok = in && names && types && add_results(p, b, k, info, names, types);
    PyObject *kwargs = ok ? kwargs_of(p->g, k) : NULL;
    PyObject *inside = kwargs ? regions_of(p->g, k, b) : NULL;
    if (inside)
        all = Py_BuildValue("(sOOOOsO)", info->op, in, names, types, kwargs,
                            nb_graph_source(p->g, k), inside);
    Py_XDECREF(in), Py_XDECREF(names), Py_XDECREF(types);
    Py_XDECREF(kwargs), Py_XDECREF(inside);
    return all;
}

static bool add_lines(page *p, book *b, PyObject *inputs, PyObject *nodes)
{
    nb_line_info info;
    for (int k = 0; nb_graph_line(p->g, k, &info); k++) {
        if (info.kind == NB_LINE_INPUT && (!name_line(p, k, 'a', ++b->inputs) ||
                                           !put(inputs, Py_NewRef(p->name[k]))))
            return false;
        if (info.kind == NB_LINE_CALL && !put(nodes, node(p, b, k, &info)))
            return false;
    }
    return true;
}

static PyObject *results_of(const page *p)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < nb_graph_results(p->g); i++)
        if (!put(list, reference(p, nb_graph_result(p->g, i)))) Py_CLEAR(list);
    return list;
}

/* (inputs, outputs, nodes) */
static PyObject *program(const nb_graph *g, book *b)
{
    int n = nb_graph_lines(g);
    page p = {g, PyMem_Calloc((size_t)n + 1, sizeof(PyObject *))};
    PyObject *in = PyList_New(0), *nodes = PyList_New(0), *all = NULL;
    PyObject *out = NULL;
    if (!p.name) PyErr_NoMemory();
    if (p.name && in && nodes && add_lines(&p, b, in, nodes) &&
        (out = results_of(&p)))
        all = PyTuple_Pack(3, in, out, nodes);
    for (int k = 0; p.name && k < n; k++)
        Py_XDECREF(p.name[k]);
    PyMem_Free(p.name);
    Py_XDECREF(in), Py_XDECREF(out), Py_XDECREF(nodes);
    return all;
}

/* Graph(inputs, outputs) */

static PyObject *graph_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    PyObject *inputs, *outputs;
    nb_tensor **x = NULL, **y = NULL;
    nb_graph *g = NULL;
    graph *self = NULL;
    int nx, ny;
    (void)named;
    if (!PyArg_ParseTuple(args, "O!O!:Graph", &PyList_Type, &inputs,
                          &PyList_Type, &outputs))
        return NULL;
    if ((x = nb_py_tensors(inputs, &nx)) && (y = nb_py_tensors(outputs, &ny)) &&
        nb_graph_of(nx, x, ny, y, &g) == NB_OK)
        self = PyObject_New(graph, type);
    if (self)
        self->g = g;
    else
        nb_graph_free(g);
    if (!self && !PyErr_Occurred()) nb_py_raise();
    PyMem_Free(x);
    PyMem_Free(y);
    return (PyObject *)self;
}

static void graph_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    nb_graph_free(((graph *)self)->g);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *graph_text(PyObject *self, PyObject *args)
{
    int sources = 0, colours = 0;
    if (!PyArg_ParseTuple(args, "|pp:text", &sources, &colours)) return NULL;
    return text_of(nb_graph_text_with(((graph *)self)->g,
                                      (sources ? NB_TEXT_SOURCES : 0) |
                                          (colours ? NB_TEXT_COLOURS : 0)));
}

static PyObject *graph_program(PyObject *self, PyObject *unused)
{
    book b = {0};
    (void)unused;
    return program(((graph *)self)->g, &b);
}

static PyMethodDef methods[] = {
    {"text", graph_text, METH_VARARGS, "The listing."},
    {"program", graph_program, METH_NOARGS, "(inputs, outputs, nodes)"},
    {0}};
static PyType_Slot slots[] = {{Py_tp_new, graph_new},
                              {Py_tp_dealloc, graph_dealloc},
                              {Py_tp_methods, methods},
                              {Py_tp_doc, "What was recorded between tensors."},
                              {0, NULL}};
static PyType_Spec spec = {
    .name = "nabla._nabla.Graph",
    .basicsize = sizeof(graph),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};

int nb_py_trace_add(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    int bad = !type || PyModule_AddObjectRef(module, "Graph", type) < 0;
    Py_XDECREF(type);
    return bad ? -1 : 0;
}
