/* compile.c - CompiledFunction: calls that find their executable.
 *
 * A call is held against the signatures, the one used last first.  What happens
 * when none fits - recording, compiling, warnings - is up to
 * nabla.transforms.compile, whose functions are in `helpers`.
 *
 * A comparison of static values may run any code of Python, by which the list
 * of signatures may change: it is then gone through again, and a signature is
 * held while it is used. */
#include "compile.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

typedef nb_py_signature signature;
typedef nb_py_call call;

static PyObject *helpers; /* the module nabla.transforms.compile */

static PyObject *help(const char *name, PyObject *args)
{
    PyObject *f = args ? PyObject_GetAttrString(helpers, name) : NULL;
    PyObject *y = f ? PyObject_Call(f, args, NULL) : NULL;
    Py_XDECREF(f);
    Py_XDECREF(args);
    return y;
}

/* CompiledFunction */

typedef struct compiled {
    PyObject_HEAD PyObject *(*call)(PyObject *, PyObject *const *, size_t,
                                    PyObject *);
    PyObject *fn, *dict, *weakrefs;
    struct compiled *before, *after; /* of all there are */
    signature **at;                  /* the one used last first */
    int n, room, max;
    unsigned changes;
    long long hits, misses, fallbacks;
    double compile_ms, run_ms;
} compiled;
static compiled *first;

/* The signature of the call, held; NULL without an exception if it has none. */
static signature *find(compiled *self, call *c)
{
    for (int i = 0; i < self->n; i++) {
        signature *s = self->at[i];
        unsigned changes = self->changes;
        int same = nb_py_call_match(c, nb_py_signature_keep(s));
        if (same == 1 && changes == self->changes && i > 0) {
            memmove(self->at + 1, self->at, (size_t)i * sizeof *self->at);
            self->at[0] = s;
            self->changes++;
        }
        if (same == 1) return s;
        bool changed = changes != self->changes;
        nb_py_signature_drop(s);
        if (same < 0) return NULL;
        if (changed) i = -1;
    }
    return NULL;
}

/* Objects that are donated get another value, and the call has the last
 * reference to what they were. */
static bool take_donors(call *c)
{
    for (int i = 0; i < c->ndonors; i++) {
        nb_py_tensor *o = (nb_py_tensor *)c->donor[i];
        nb_tensor *gone = nb_donated(o->x);
        if (!gone) return false;
        nb_py_set_value(o, nb_keep(gone));
    }
    return true;
}

static PyObject *run(const call *c, const signature *s, PyObject *e)
{
    nb_tensor *few[NB_PY_FEW], **y = few;
    int ny = nb_py_executable_results(e);
    if (ny > NB_PY_FEW && !(y = PyMem_Malloc((size_t)ny * sizeof *y)))
        return PyErr_NoMemory();
    bool ok = nb_py_executable_run(e, c->nx, c->x, &ny, y) == NB_OK;
    PyObject *value = ok ? nb_py_signature_result(s, y) : nb_py_raise();
    if (y != few) PyMem_Free(y);
    return value;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static PyObject *positional(const call *c)
{
    PyObject *args = PyTuple_New(c->n);
    for (Py_ssize_t i = 0; args && i < c->n; i++)
        PyTuple_SetItem(args, i, Py_NewRef(c->args[i]));
    return args;
}

static PyObject *named(const call *c)
{
    PyObject *all = PyDict_New();
    Py_ssize_t n = c->names ? PyTuple_Size(c->names) : 0;
    for (Py_ssize_t i = 0; all && i < n; i++)
        if (PyDict_SetItem(all, PyTuple_GetItem(c->names, i),
                           c->args[c->n + i]) < 0)
            Py_CLEAR(all);
    return all;
}

/* One of the helpers on (self, args, kwargs). */
static PyObject *help_call(const char *name, compiled *self, const call *c)
{
    PyObject *args = positional(c), *kwargs = args ? named(c) : NULL;
    PyObject *all = kwargs ? PyTuple_Pack(3, self, args, kwargs) : NULL;
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    return help(name, all);
}

static PyObject *run_known(compiled *self, call *c, const signature *s,
                           bool hit)
{
    PyObject *e = nb_py_signature_executable(s);
    if (nb_is_watched(c->nx, c->x)) return help_call("plain", self, c);
    if (!e) {
        self->fallbacks += hit;
        return help_call("fall_back", self, c);
    }
    double from = now_ms();
    if (!take_donors(c)) return nb_py_raise();
    PyObject *value = run(c, s, e);
    self->hits += hit;
    if (hit) self->run_ms += now_ms() - from;
    return value;
}

static PyObject *add(PyObject *o, PyObject *args);

/* None of the signatures fits: a helper gives (value,), or the parts of one,
 * which is added unless another thread was quicker. */
static PyObject *run_fresh(compiled *self, call *c)
{
    PyObject *said = help_call("miss", self, c), *value = NULL;
    if (!said) return NULL;
    bool done = PyTuple_Size(said) == 1;
    signature *s = done ? NULL : find(self, c);
    if (!s && !done && !PyErr_Occurred()) {
        PyObject *none = add((PyObject *)self, said);
        s = none ? find(self, c) : NULL;
        Py_XDECREF(none);
    }
    if (done) value = Py_XNewRef(PyTuple_GetItem(said, 0));
    Py_DECREF(said);
    if (done) return value;
    if (s)
        value = run_known(self, c, s, false);
    else if (!PyErr_Occurred()) /* it differs from itself, or was dropped */
        value = help_call("plain", self, c);
    nb_py_signature_drop(s);
    return value;
}

static PyObject *fast_call(PyObject *o, PyObject *const *args, size_t n,
                           PyObject *names)
{
    const size_t offset = (size_t)1 << (8 * sizeof n - 1);
    compiled *self = (compiled *)o;
    PyObject *value = NULL;
    call c;
    nb_py_call_begin(&c, args, (Py_ssize_t)(n & ~offset), names);
    if (nb_is_watched(0, NULL)) return help_call("plain", self, &c);
    ENTER;
    signature *s = find(self, &c);
    if (s)
        value = run_known(self, &c, s, true);
    else if (!PyErr_Occurred())
        value = run_fresh(self, &c);
    LEAVE;
    nb_py_call_end(&c);
    nb_py_signature_drop(s);
    return value;
}

static PyObject *slow_call(PyObject *o, PyObject *args, PyObject *kwargs)
{
    Py_ssize_t n = PyTuple_Size(args), at = 0, k = 0;
    Py_ssize_t more = kwargs ? PyDict_Size(kwargs) : 0;
    PyObject **all = PyMem_Malloc((size_t)(n + more + 1) * sizeof *all);
    PyObject *names = more ? PyTuple_New(more) : NULL, *key, *value, *y = NULL;
    if (!all) PyErr_NoMemory();
    for (Py_ssize_t i = 0; all && i < n; i++)
        all[i] = PyTuple_GetItem(args, i);
    while (all && names && PyDict_Next(kwargs, &at, &key, &value)) {
        PyTuple_SetItem(names, k, Py_NewRef(key));
        all[n + k++] = value;
    }
    if (all && (names || !more)) y = fast_call(o, all, (size_t)n, names);
    Py_XDECREF(names);
    PyMem_Free(all);
    return y;
}

static PyObject *compiled_new(PyTypeObject *type, PyObject *args,
                              PyObject *kwargs)
{
    compiled *self = (compiled *)PyType_GenericAlloc(type, 0);
    if (!self) return NULL;
    self->call = fast_call;
    self->max = 64;
    self->after = first;
    if (first) first->before = self;
    first = self;
    PyObject *set = PyObject_GetAttrString(helpers, "set_up");
    PyObject *all = PyTuple_New(PyTuple_Size(args) + 1);
    for (Py_ssize_t i = 0; all && i < PyTuple_Size(args); i++)
        PyTuple_SetItem(all, i + 1, Py_NewRef(PyTuple_GetItem(args, i)));
    if (all) PyTuple_SetItem(all, 0, Py_NewRef((PyObject *)self));
    PyObject *done = set && all ? PyObject_Call(set, all, kwargs) : NULL;
    Py_XDECREF(set);
    Py_XDECREF(all);
    if (!done) Py_CLEAR(self);
    Py_XDECREF(done);
    return (PyObject *)self;
}

/* Takes the signatures away before it drops them, which may run any code. */
static void drop_signatures(compiled *self, int from)
{
    signature **at = self->at;
    int n = self->n;
    self->changes++;
    if (from) {
        for (int i = from; i < n; i++) {
            signature *s = at[--self->n];
            nb_py_signature_drop(s);
        }
        return;
    }
    self->at = NULL;
    self->n = self->room = 0;
    for (int i = 0; i < n; i++)
        nb_py_signature_drop(at[i]);
    PyMem_Free(at);
}

static int traverse(PyObject *o, visitproc visit, void *arg)
{
    compiled *self = (compiled *)o;
    Py_VISIT(Py_TYPE(o));
    Py_VISIT(self->fn);
    Py_VISIT(self->dict);
    int stop = 0;
    for (int i = 0; !stop && i < self->n; i++)
        stop = nb_py_signature_visit(self->at[i], visit, arg);
    return stop;
}

static int clear(PyObject *o)
{
    compiled *self = (compiled *)o;
    drop_signatures(self, 0);
    Py_CLEAR(self->fn);
    Py_CLEAR(self->dict);
    return 0;
}

static void dealloc(PyObject *o)
{
    compiled *self = (compiled *)o;
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    if (self->weakrefs) PyObject_ClearWeakRefs(o);
    if (self->after) self->after->before = self->before;
    if (self->before) self->before->after = self->after;
    if (first == self) first = self->after;
    clear(o);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(o);
    Py_DECREF(type);
}

/* As a function in a class it is a method. */
static PyObject *bind(PyObject *o, PyObject *self, PyObject *type)
{
    (void)type;
    if (!self || self == Py_None) return Py_NewRef(o);
    return help("bind", PyTuple_Pack(2, o, self));
}

/* _add(...): a signature, as nb_py_signature_new takes it, in front. */
static PyObject *add(PyObject *o, PyObject *args)
{
    compiled *self = (compiled *)o;
    signature *s = nb_py_signature_new(args);
    if (!s) return NULL;
    if (self->n == self->room) {
        int room = self->room ? 2 * self->room : 4;
        void *more = PyMem_Realloc(self->at, (size_t)room * sizeof *self->at);
        if (!more) {
            nb_py_signature_drop(s);
            return PyErr_NoMemory();
        }
        self->at = more;
        self->room = room;
    }
    memmove(self->at + 1, self->at, (size_t)self->n * sizeof *self->at);
    self->at[0] = s;
    self->n++;
    self->changes++;
    if (self->n > self->max) drop_signatures(self, self->max);
    Py_RETURN_NONE;
}

/* _count(misses, fallbacks, milliseconds) */
static PyObject *count(PyObject *o, PyObject *args)
{
    compiled *self = (compiled *)o;
    int misses, fallbacks;
    double ms;
    if (!PyArg_ParseTuple(args, "iid:_count", &misses, &fallbacks, &ms))
        return NULL;
    self->misses += misses;
    self->fallbacks += fallbacks;
    self->compile_ms += ms;
    Py_RETURN_NONE;
}

/* (hits, misses, fallbacks, ms of compiling, ms of running, signatures) */
static PyObject *counts(PyObject *o, PyObject *unused)
{
    const compiled *self = (const compiled *)o;
    (void)unused;
    return Py_BuildValue("(LLLddi)", self->hits, self->misses, self->fallbacks,
                         self->compile_ms, self->run_ms, self->n);
}

/* _set(fn, max_cache_size) */
static PyObject *set(PyObject *o, PyObject *args)
{
    compiled *self = (compiled *)o;
    PyObject *fn, *old = self->fn;
    int max;
    if (!PyArg_ParseTuple(args, "Oi:_set", &fn, &max)) return NULL;
    self->max = max;
    self->fn = Py_NewRef(fn);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

/* The executable used last, None if that ran uncompiled. */
static PyObject *latest(PyObject *o, PyObject *unused)
{
    const compiled *self = (const compiled *)o;
    (void)unused;
    if (!self->n)
        return PyErr_Format(PyExc_RuntimeError,
                            "compile: nothing is compiled yet: call the "
                            "function first, or lower it");
    PyObject *e = nb_py_signature_executable(self->at[0]);
    return Py_NewRef(e ? e : Py_None);
}

static PyObject *clear_cache(PyObject *o, PyObject *unused)
{
    (void)unused;
    drop_signatures((compiled *)o, 0);
    Py_RETURN_NONE;
}

static PyObject *get_fn(PyObject *o, void *unused)
{
    PyObject *fn = ((compiled *)o)->fn;
    (void)unused;
    return Py_NewRef(fn ? fn : Py_None);
}

static PyMethodDef compiled_methods[] = {
    {"_add", add, METH_VARARGS, NULL},
    {"_count", count, METH_VARARGS, NULL},
    {"_counts", counts, METH_NOARGS, NULL},
    {"_set", set, METH_VARARGS, NULL},
    {"_latest", latest, METH_NOARGS, NULL},
    {"clear_cache", clear_cache, METH_NOARGS,
     "clear_cache($self)\n--\n\n"
     "Drops what was compiled; the counters go on."},
    {0}};
static PyGetSetDef compiled_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"_fn", get_fn, NULL, NULL, NULL},
    {0}};
static PyMemberDef compiled_members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(compiled, call), READONLY,
     NULL},
    {"__dictoffset__", T_PYSSIZET, offsetof(compiled, dict), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(compiled, weakrefs), READONLY,
     NULL},
    {0}};
static PyType_Slot compiled_slots[] = {
    {Py_tp_new, compiled_new},         {Py_tp_dealloc, dealloc},
    {Py_tp_traverse, traverse},        {Py_tp_clear, clear},
    {Py_tp_call, slow_call},           {Py_tp_descr_get, bind},
    {Py_tp_methods, compiled_methods}, {Py_tp_getset, compiled_getset},
    {Py_tp_members, compiled_members}, {0, NULL}};

/* Its calls take no tuple.  The flag has its name in the limited API from 3.12
 * on, and this value in 3.11 too. */
enum { HAVE_VECTORCALL = 1 << 11 };
static PyType_Spec compiled_spec = {
    .name = "nabla.CompiledFunction",
    .basicsize = sizeof(compiled),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | HAVE_VECTORCALL,
    .slots = compiled_slots,
};

/* The module's functions */

static PyObject *set_helpers(PyObject *self, PyObject *module)
{
    PyObject *old = helpers;
    (void)self;
    helpers = Py_NewRef(module);
    Py_XDECREF(old);
    Py_RETURN_NONE;
}

static PyObject *py_is_array(PyObject *self, PyObject *o)
{
    (void)self;
    return PyBool_FromLong(nb_py_is_array(o));
}

/* is_watched(tensors): whether ops on them are being recorded. */
static PyObject *is_watched(PyObject *self, PyObject *list)
{
    int n;
    (void)self;
    nb_tensor **x = PyList_Check(list) ? nb_py_tensors(list, &n) : NULL;
    if (!x)
        return PyErr_Occurred() ? NULL
                                : PyErr_Format(PyExc_TypeError, "a list");
    bool yes = nb_is_watched(n, x);
    PyMem_Free(x);
    return PyBool_FromLong(yes);
}

static PyObject *value_asked(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyBool_FromLong(nb_value_asked());
}

/* Takes the value of a tensor away. */
static PyObject *py_donate(PyObject *self, PyObject *o)
{
    (void)self;
    if (!nb_py_is_tensor(o)) Py_RETURN_NONE;
    ENTER;
    nb_tensor *gone = nb_donated(nb_py_get(o));
    if (gone) nb_py_set_value((nb_py_tensor *)o, nb_keep(gone));
    LEAVE;
    if (!gone) return nb_py_raise();
    Py_RETURN_NONE;
}

/* Whatever is cached and can be made again. */
static PyObject *clear_caches(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    PyObject *all = PyList_New(0);
    bool ok = all;
    for (compiled *c = first; ok && c; c = c->after)
        ok = PyList_Append(all, (PyObject *)c) == 0;
    for (Py_ssize_t i = 0; ok && i < PyList_Size(all); i++)
        drop_signatures((compiled *)PyList_GetItem(all, i), 0);
    Py_XDECREF(all);
    if (!ok) return NULL;
    nb_caches_clear();
    nb_memory_trim();
    Py_RETURN_NONE;
}

/* (hits in this process, hits on disk, misses, bytes) */
static PyObject *cache_stats(PyObject *self, PyObject *unused)
{
    nb_cache_stats s = nb_cache_stats_get();
    (void)self, (void)unused;
    return Py_BuildValue("(LLLL)", (long long)s.hits, (long long)s.disk_hits,
                         (long long)s.misses, (long long)s.bytes);
}

/* Why nothing is kept on disk, "" if it is. */
static PyObject *cache_trouble(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return PyUnicode_DecodeFSDefault(nb_cache_stats_get().trouble);
}

static PyObject *set_cache_dir(PyObject *self, PyObject *path)
{
    const char *text = NULL;
    (void)self;
    if (path != Py_None && !(text = PyUnicode_AsUTF8AndSize(path, NULL)))
        return NULL;
    if (nb_cache_folder_set(text) != NB_OK) return nb_py_raise();
    Py_RETURN_NONE;
}

/* threads(n or None): how many there are, set first if a number is given. */
static PyObject *threads(PyObject *self, PyObject *n)
{
    (void)self;
    if (n != Py_None) {
        long count = PyLong_AsLong(n);
        if (PyErr_Occurred()) return NULL;
        if (count > INT32_MAX) count = INT32_MAX;
        if (nb_set_threads((int)count) != NB_OK) return nb_py_raise();
    }
    return PyLong_FromLong(nb_threads());
}

static PyMethodDef functions[] = {
    {"set_helpers", set_helpers, METH_O, NULL},
    {"is_array", py_is_array, METH_O, NULL},
    {"is_watched", is_watched, METH_O, NULL},
    {"value_asked", value_asked, METH_NOARGS, NULL},
    {"donate", py_donate, METH_O, NULL},
    {"clear_caches", clear_caches, METH_NOARGS, NULL},
    {"cache_stats", cache_stats, METH_NOARGS, NULL},
    {"cache_trouble", cache_trouble, METH_NOARGS, NULL},
    {"set_cache_dir", set_cache_dir, METH_O, NULL},
    {"threads", threads, METH_O, NULL},
    {0}};

int nb_py_compile_add(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&compiled_spec);
    int done = type ? nb_py_executable_add(module) : -1;
    if (done == 0) done = PyModule_AddFunctions(module, functions);
    if (done == 0)
        done = PyModule_AddObjectRef(module, "CompiledFunction", type);
    Py_XDECREF(type);
    return done;
}
