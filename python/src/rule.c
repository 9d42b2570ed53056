/* rule.c - templates and rules of sharding, for nabla.core.sharding.  A template
 * is its text; a rule is given as its parts. */
#include "py.h"

/* An engine's text as a str; NULL raises its error. */
static PyObject *text_of(char *text)
{
    PyObject *o = text ? PyUnicode_FromString(text) : nb_py_raise();
    nb_text_release(text);
    return o;
}

/* rule_parse(text) -> the text in its one form */
static PyObject *rule_parse(PyObject *self, PyObject *o)
{
    const char *text = PyUnicode_AsUTF8AndSize(o, NULL);
    (void)self;
    if (!text) return NULL;
    const nb_rule_template *t = nb_rule_parse(text);
    return t ? text_of(nb_rule_template_text(t)) : nb_py_raise();
}

/* Mappings: for each tensor a list with, for each dim, a list of names. */

typedef struct mappings {
    int n;
    nb_rule_mapping *of;
} mappings;

static void free_mappings(mappings *m)
{
    for (int t = 0; t < m->n; t++) {
        for (int d = 0; d < m->of[t].rank; d++)
            PyMem_Free((void *)m->of[t].dim[d].name);
        PyMem_Free((void *)m->of[t].dim);
    }
    PyMem_Free(m->of);
}

static bool read_names(PyObject *list, nb_rule_names *to)
{
    Py_ssize_t n = PyList_Size(list);
    if (n < 0) return false;
    const char **name = PyMem_Calloc((size_t)n + 1, sizeof *name);
    to->n = (int)n;
    to->name = name;
    if (!name) return PyErr_NoMemory(), false;
    for (Py_ssize_t k = 0; k < n; k++)
        if (!(name[k] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, k), NULL)))
            return false;
    return true;
}

static bool read_mapping(PyObject *list, nb_rule_mapping *to)
{
    Py_ssize_t n = PyList_Size(list);
    if (n < 0) return false;
    nb_rule_names *dim = PyMem_Calloc((size_t)n + 1, sizeof *dim);
    if (!dim) return PyErr_NoMemory(), false;
    to->rank = (int)n;
    to->dim = dim;
    for (Py_ssize_t d = 0; d < n; d++)
        if (!read_names(PyList_GetItem(list, d), &dim[d])) return false;
    return true;
}

static bool read_mappings(PyObject *list, mappings *to)
{
    Py_ssize_t n = PyList_Size(list);
    to->of = n < 0 ? NULL : PyMem_Calloc((size_t)n + 1, sizeof *to->of);
    if (n >= 0 && !to->of) PyErr_NoMemory();
    if (!to->of) return false;
    to->n = (int)n;
    for (Py_ssize_t t = 0; t < n; t++)
        if (!read_mapping(PyList_GetItem(list, t), &to->of[t])) return false;
    return true;
}

/* rule_map(inputs, results) -> text */
static PyObject *rule_map(PyObject *self, PyObject *args)
{
    PyObject *in, *out, *text = NULL;
    mappings x = {0}, y = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "OO:rule_map", &in, &out)) return NULL;
    if (read_mappings(in, &x) && read_mappings(out, &y)) {
        const nb_rule_template *t = nb_rule_map(x.n, x.of, y.n, y.of);
        text = t ? text_of(nb_rule_template_text(t)) : nb_py_raise();
    }
    free_mappings(&x);
    free_mappings(&y);
    return text;
}

/* Shapes: a list of tuples, -1 for a size that is not known. */

typedef struct shapes {
    int n;
    nb_rule_shape *of;
    int64_t (*size)[NB_PY_RANK];
} shapes;

static void free_shapes(shapes *s)
{
    PyMem_Free(s->of);
    PyMem_Free(s->size);
}

static bool read_shapes(PyObject *list, shapes *to)
{
    Py_ssize_t n = list == Py_None ? 0 : PyList_Size(list);
    if (n < 0) return false;
    to->n = (int)n;
    to->of = PyMem_Calloc((size_t)n + 1, sizeof *to->of);
    to->size = PyMem_Calloc((size_t)n + 1, sizeof *to->size);
    if (!to->of || !to->size) return PyErr_NoMemory(), false;
    for (Py_ssize_t k = 0; k < n; k++) {
        to->of[k].size = to->size[k];
        if (!nb_py_ints(PyList_GetItem(list, k), to->size[k], NB_PY_RANK,
                        &to->of[k].rank))
            return false;
    }
    return true;
}

/* {dim: [names]} of a tensor. */
static PyObject *mapping_of(const nb_rule *r, int t)
{
    PyObject *all = PyDict_New();
    for (int d = 0; all && d < nb_rule_rank(r, t); d++) {
        int n = nb_rule_dim_factors(r, t, d);
        PyObject *names = PyList_New(0), *key = PyLong_FromLong(d);
        bool ok = names && key && PyDict_SetItem(all, key, names) == 0;
        for (int k = 0; ok && k < n; k++) {
            nb_rule_factor_info f;
            PyObject *name = NULL;
            if (nb_rule_factor(r, nb_rule_dim_factor(r, t, d, k), &f))
                name = PyUnicode_FromString(f.name);
            else
                nb_py_raise();
            ok = name && PyList_Append(names, name) == 0;
            Py_XDECREF(name);
        }
        Py_XDECREF(names);
        Py_XDECREF(key);
        if (!ok) Py_CLEAR(all);
    }
    return all;
}

static PyObject *mappings_of(const nb_rule *r, int from, int n)
{
    PyObject *list = PyList_New(n);
    for (int k = 0; list && k < n; k++) {
        PyObject *one = mapping_of(r, from + k);
        if (one)
            PyList_SetItem(list, k, one);
        else
            Py_CLEAR(list);
    }
    return list;
}

/* [(name, size, kind, reduction or None)] */
static PyObject *factors_of(const nb_rule *r)
{
    int n = nb_rule_factors(r);
    PyObject *list = PyList_New(n);
    for (int k = 0; list && k < n; k++) {
        nb_rule_factor_info f;
        PyObject *one = nb_rule_factor(r, k, &f)
                            ? Py_BuildValue("(sLsz)", f.name, (long long)f.size,
                                            f.kind, f.reduce)
                            : nb_py_raise();
        if (one)
            PyList_SetItem(list, k, one);
        else
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *parts_of(const nb_rule *r)
{
    int nin = nb_rule_inputs(r);
    PyObject *text = text_of(nb_rule_text(r));
    PyObject *in = text ? mappings_of(r, 0, nin) : NULL;
    PyObject *out = in ? mappings_of(r, nin, nb_rule_results(r)) : NULL;
    PyObject *factors = out ? factors_of(r) : NULL;
    PyObject *all = factors ? Py_BuildValue("(OOOOz)", text, in, out, factors,
                                            nb_rule_note(r))
                            : NULL;
    Py_XDECREF(text);
    Py_XDECREF(in);
    Py_XDECREF(out);
    Py_XDECREF(factors);
    return all;
}

static nb_rule *read_rule(const char *text, PyObject *in, PyObject *out)
{
    shapes x = {0}, y = {0};
    nb_rule *r = NULL;
    if (read_shapes(in, &x) && read_shapes(out, &y)) {
        const nb_rule_template *t = nb_rule_parse(text);
        r = t ? nb_rule_new(t, x.n, x.of, y.n, out == Py_None ? NULL : y.of)
              : NULL;
        if (!r) nb_py_raise();
    }
    free_shapes(&x);
    free_shapes(&y);
    return r;
}

/* rule_instantiate(text, input shapes, result shapes or None) -> text, input
 * mappings, result mappings, factors, note */
static PyObject *rule_instantiate(PyObject *self, PyObject *args)
{
    const char *text;
    PyObject *in, *out;
    (void)self;
    if (!PyArg_ParseTuple(args, "sOO:rule_instantiate", &text, &in, &out))
        return NULL;
    nb_rule *r = read_rule(text, in, out);
    PyObject *all = r ? parts_of(r) : NULL;
    nb_rule_free(r);
    return all;
}

/* Specs of operands and results of a rule. */
typedef struct layouts {
    nb_rule *rule;
    const nb_mesh *mesh;
    const nb_spec **spec; /* inputs, then results */
} layouts;

static void free_layouts(layouts *l)
{
    nb_rule_free(l->rule);
    PyMem_Free(l->spec);
}

/* (text, input shapes, result shapes or None), mesh and a list of specs or None. */
static bool read_layouts(layouts *l, PyObject *rule, PyObject *mesh,
                         PyObject *specs)
{
    const char *text;
    PyObject *in, *out;
    if (!PyArg_ParseTuple(rule, "sO!O", &text, &PyList_Type, &in, &out) ||
        !(l->mesh = nb_py_mesh_from(mesh)) ||
        !(l->rule = read_rule(text, in, out)))
        return false;
    int n = nb_rule_inputs(l->rule) + nb_rule_results(l->rule);
    Py_ssize_t given = PyList_Size(specs);
    l->spec = PyMem_Calloc((size_t)n + 1, sizeof *l->spec);
    if (!l->spec) return PyErr_NoMemory();
    for (Py_ssize_t t = 0; t < given && t < n; t++) {
        PyObject *o = PyList_GetItem(specs, t);
        if (o == Py_None) continue;
        l->spec[t] = nb_py_spec_from(o, NULL, nb_rule_rank(l->rule, (int)t));
        if (!l->spec[t]) return false;
    }
    return true;
}

static PyObject *specs_to(int n, const nb_spec *const *s)
{
    PyObject *list = PyList_New(n);
    for (int t = 0; list && t < n; t++) {
        PyObject *o = nb_py_spec_to(s[t]);
        if (!o || PyList_SetItem(list, t, o) < 0) Py_CLEAR(list);
    }
    return list;
}

/* rule_resolve(rule, mesh, specs) -> specs of results */
static PyObject *rule_resolve(PyObject *self, PyObject *args)
{
    PyObject *rule, *mesh, *specs, *y = NULL;
    layouts l = {0};
    (void)self;
    if (!PyArg_ParseTuple(args, "O!OO!:infer_from_rule", &PyTuple_Type, &rule,
                          &mesh, &PyList_Type, &specs))
        return NULL;
    if (read_layouts(&l, rule, mesh, specs)) {
        const nb_spec **give = l.spec + nb_rule_inputs(l.rule);
        y = nb_rule_resolve(l.rule, l.mesh, l.spec, NULL, give) == NB_OK
                ? specs_to(nb_rule_results(l.rule), give)
                : nb_py_raise();
    }
    free_layouts(&l);
    return y;
}

/* rule_propagate(rule, mesh, specs, priority) -> specs of all, or None */
static PyObject *rule_propagate(PyObject *self, PyObject *args)
{
    PyObject *rule, *mesh, *specs, *y = NULL;
    layouts l = {0};
    int priority;
    bool changed;
    (void)self;
    if (!PyArg_ParseTuple(args, "O!OO!i:propagate_sharding", &PyTuple_Type,
                          &rule, &mesh, &PyList_Type, &specs, &priority))
        return NULL;
    if (read_layouts(&l, rule, mesh, specs)) {
        int n = nb_rule_inputs(l.rule) + nb_rule_results(l.rule);
        nb_status s =
            nb_rule_propagate(l.rule, l.mesh, priority, l.spec, &changed);
        y = s != NB_OK ? nb_py_raise()
            : changed  ? specs_to(n, l.spec)
                       : Py_NewRef(Py_None);
    }
    free_layouts(&l);
    return y;
}

/* rule_reshape(from, to) -> text */
static PyObject *rule_reshape(PyObject *self, PyObject *args)
{
    PyObject *from, *to;
    int64_t a[NB_PY_RANK], b[NB_PY_RANK];
    int n, m;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO:rule_reshape", &from, &to) ||
        !nb_py_ints(from, a, NB_PY_RANK, &n) ||
        !nb_py_ints(to, b, NB_PY_RANK, &m))
        return NULL;
    const nb_rule_template *t = nb_rule_reshape(n, a, m, b);
    return t ? text_of(nb_rule_template_text(t)) : nb_py_raise();
}

static PyMethodDef functions[] = {
    {"rule_parse", rule_parse, METH_O, NULL},
    {"rule_map", rule_map, METH_VARARGS, NULL},
    {"rule_instantiate", rule_instantiate, METH_VARARGS, NULL},
    {"rule_reshape", rule_reshape, METH_VARARGS, NULL},
    {"rule_resolve", rule_resolve, METH_VARARGS, NULL},
    {"rule_propagate", rule_propagate, METH_VARARGS, NULL},
    {0}};

int nb_py_rule_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
