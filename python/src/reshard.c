/* reshard.c - plans from one spec to another, as plain data. */
#include "shard.h"

static PyObject *step(const nb_reshard_plan *p, int i)
{
    const char *axes = nb_reshard_step_axes(p, i);
    PyObject *spec = axes ? nb_py_spec_to(nb_reshard_step_into(p, i)) : NULL;
    if (!spec) return axes ? NULL : nb_py_raise();
    return Py_BuildValue("(ssLN)", nb_reshard_step_kind(p, i), axes,
                         (long long)nb_reshard_step_bytes(p, i), spec);
}

static PyObject *steps(const nb_reshard_plan *p)
{
    int n = nb_reshard_plan_steps(p);
    PyObject *list = PyList_New(n);
    for (int i = 0; list && i < n; i++) {
        PyObject *one = step(p, i);
        if (!one || PyList_SetItem(list, i, one) < 0) Py_CLEAR(list);
    }
    return list;
}

static PyObject *whole(const nb_reshard_plan *p)
{
    char *text = nb_reshard_plan_text(p);
    PyObject *list = text ? steps(p) : NULL, *made = NULL;
    if (!text) return nb_py_raise();
    if (list)
        made =
            Py_BuildValue("(NLLLds)", list, (long long)nb_reshard_plan_bytes(p),
                          (long long)nb_reshard_plan_bound(p),
                          (long long)nb_reshard_plan_peak(p),
                          nb_reshard_plan_seconds(p), text);
    nb_text_release(text);
    return made;
}

/* reshard_plan(from, into, shape, dtype, exchange, wide, idle_axes, collectives)
 * -> ([(kind, axes, bytes, spec)], bytes, bound, peak, seconds, text) */
static PyObject *reshard_plan(PyObject *self, PyObject *args)
{
    PyObject *a, *b, *shape, *type;
    int exchange, wide, idle, alone, n;
    int64_t size[NB_PY_DIMS];
    nb_dtype dtype;
    (void)self;
    if (!PyArg_ParseTuple(args, "OOOOpppp:reshard_plan", &a, &b, &shape, &type,
                          &exchange, &wide, &idle, &alone))
        return NULL;
    const nb_spec *from = nb_py_spec_from(a, NULL, -1);
    const nb_spec *into = from ? nb_py_spec_from(b, NULL, -1) : NULL;
    if (!into || !nb_py_ints(shape, size, NB_PY_DIMS, &n) ||
        !nb_py_dtype(type, &dtype))
        return NULL;
    if (dtype == NB_NOTYPE) dtype = nb_default_float();
    const nb_reshard_plan *p = nb_reshard_plan_of(
        from, into, n, size, dtype,
        (exchange ? NB_RESHARD_EXCHANGE : 0) | (wide ? NB_RESHARD_WIDE : 0) |
            (idle ? NB_RESHARD_IDLE : 0) |
            (alone ? NB_RESHARD_COLLECTIVES : 0));
    return p ? whole(p) : nb_py_raise();
}

static PyMethodDef functions[] = {
    {"reshard_plan", reshard_plan, METH_VARARGS, NULL}, {0}};

int nb_py_reshard_add(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
