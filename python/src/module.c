/* module.c - nabla._nabla: errors, places, and putting the parts together. */
#include "py.h"

#include "tree.h"

#include <string.h>

static PyObject *AxisError;

/* The door from the engine's errors to Python's. */
nb_status nb_py_failed(void)
{
    PyObject *type, *value, *trace;
    if (nb_error_code()) return nb_error_code();
    PyErr_Fetch(&type, &value, &trace);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *said = text ? PyUnicode_AsUTF8AndSize(text, NULL) : NULL;
    PyErr_Clear();
    nb_error_raise(NB_ERUNTIME, "%s",
                   said ? said : "a function of Python failed");
    Py_XDECREF(text);
    PyErr_Restore(type, value, trace);
    return NB_ERUNTIME;
}

PyObject *nb_py_raise(void)
{
    PyObject *type = PyExc_RuntimeError;
    if (PyErr_Occurred()) {
        nb_error_clear();
        return NULL;
    }
    switch (nb_error_code()) {
    case NB_EVALUE: type = PyExc_ValueError; break;
    case NB_ETYPE: type = PyExc_TypeError; break;
    case NB_EINDEX: type = PyExc_IndexError; break;
    case NB_EAXIS: type = AxisError; break;
    case NB_EOVERFLOW: type = PyExc_OverflowError; break;
    case NB_EMEMORY: type = PyExc_MemoryError; break;
    case NB_ENOFILE: type = PyExc_FileNotFoundError; break;
    case NB_EKEY: type = PyExc_KeyError; break;
    case NB_ELATER: type = PyExc_NotImplementedError; break;
    case NB_EFLOAT: type = PyExc_FloatingPointError; break;
    default: break;
    }
    const char *message = nb_error_message();
    PyErr_SetString(type, *message ? message : "an earlier step failed");
    nb_error_clear();
    return NULL;
}

/* Places.  The file of a code object is looked up once; the cache holds the
 * code object, so that its address cannot come to mean another. */
enum { PLACES = 256 };
typedef struct place {
    PyObject *code;
    const char *file;
    bool own; /* in the package */
} place;
static place places[PLACES];
static char home[1024]; /* the folder of the package */

PyObject *nb_py_set_home(PyObject *self, PyObject *text)
{
    const char *s = PyUnicode_AsUTF8AndSize(text, NULL);
    (void)self;
    if (!s) return NULL;
    if (strlen(s) < sizeof home) strcpy(home, s);
    Py_RETURN_NONE;
}

static const place *place_of(PyObject *code)
{
    place *p = &places[((size_t)code >> 5) % PLACES];
    if (p->code == code) return p;
    PyObject *name = PyObject_GetAttrString(code, "co_filename");
    if (name) PyUnicode_InternInPlace(&name); /* lives on with the process */
    const char *file = name ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
    if (!file) {
        PyErr_Clear();
        return NULL;
    }
    PyObject *old = p->code;
    Py_INCREF(code);
    *p = (place){code, file, *home && !strncmp(file, home, strlen(home))};
    Py_XDECREF(old);
    return p;
}

/* The frame that called this one, in its place; NULL if there is none. */
static PyObject *caller_of(PyObject *frame)
{
    PyObject *back = PyObject_GetAttrString(frame, "f_back");
    Py_DECREF(frame);
    if (back && back != Py_None) return back;
    PyErr_Clear();
    Py_XDECREF(back);
    return NULL;
}

void nb_py_locate(void)
{
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    const place *p = NULL;
    Py_XINCREF(frame);
    while (frame) {
        PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
        p = place_of(code);
        Py_DECREF(code);
        if (!p || !p->own) break;
        frame = caller_of(frame);
    }
    if (frame && p)
        nb_source_set(p->file, PyFrame_GetLineNumber((PyFrameObject *)frame));
    Py_XDECREF(frame);
}

PyObject *nb_py_tensor_type(void)
{
    return (PyObject *)nb_py_Tensor;
}

int nb_py_tensor_add(PyObject *module);

static int make_axis_error(PyObject *module)
{
    PyObject *bases = PyTuple_Pack(2, PyExc_ValueError, PyExc_IndexError);
    if (!bases) return -1;
    AxisError = PyErr_NewExceptionWithDoc(
        "nabla.AxisError", "An axis that the tensor does not have.", bases,
        NULL);
    Py_DECREF(bases);
    return AxisError ? PyModule_AddObjectRef(module, "AxisError", AxisError)
                     : -1;
}

static int exec(PyObject *module)
{
    if (make_axis_error(module) < 0 || nb_py_tensor_add(module) < 0 ||
        nb_py_ops_add(module) < 0 || nb_py_tree_add(module) < 0 ||
        nb_py_interop_add(module) < 0 || nb_py_index_add(module) < 0 ||
        nb_py_transform_add(module) < 0 || nb_py_trace_add(module) < 0 ||
        nb_py_compile_add(module) < 0 || nb_py_custom_add(module) < 0 ||
        nb_py_debug_add(module) < 0 || nb_py_shard_add(module) < 0 ||
        nb_py_rule_add(module) < 0 || nb_py_explain_add(module) < 0 ||
        nb_py_distributed_add(module) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", nb_version());
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, exec}, {0, NULL}};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "nabla._nabla",
    .m_doc = "The engine of Nabla.",
    .m_methods = nb_py_module_methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__nabla(void);
PyMODINIT_FUNC PyInit__nabla(void)
{
    return PyModuleDef_Init(&definition);
}
