/* card_array.c - memory of a card shared through __cuda_array_interface__, both
 * ways: what CuPy, Numba, PyTorch and JAX look for, or have.
 *
 * Who offers memory names the stream whose work it holds, and who takes it
 * waits for that.  Not all do: the default stream waits in any case for what is
 * offered here. */
#include "interop.h"

#include <string.h>

static const struct {
    nb_dtype dtype;
    const char *word;
} words[] = {
    {NB_BOOL, "|b1"}, {NB_I8, "|i1"},  {NB_I16, "<i2"}, {NB_I32, "<i4"},
    {NB_I64, "<i8"},  {NB_U8, "|u1"},  {NB_U16, "<u2"}, {NB_U32, "<u4"},
    {NB_U64, "<u8"},  {NB_F16, "<f2"}, {NB_F32, "<f4"}, {NB_F64, "<f8"},
};
enum { NWORDS = sizeof words / sizeof *words };

static const char *word_of(nb_dtype d)
{
    for (int k = 0; k < NWORDS; k++)
        if (words[k].dtype == d) return words[k].word;
    return NULL;
}

/* Offered. */

static PyObject *offer(nb_tensor *x)
{
    int64_t size[NB_PY_RANK], stride[NB_PY_RANK];
    nb_dtype d = nb_dtype_of(x);
    int device = nb_device_of(x);
    void *data = nb_device_data(x, stride);
    void *stream = data ? nb_device_stream(device) : NULL;
    if (!stream || nb_device_before(device, NULL) != NB_OK)
        return nb_py_raise();
    nb_sizes(x, size);
    for (int k = 0; k < nb_rank(x); k++)
        stride[k] *= (int64_t)nb_dtype_size(d);
    return Py_BuildValue(
        "{s:i,s:N,s:s,s:(KO),s:N,s:K}", "version", 3, "shape",
        nb_py_tuple(nb_rank(x), size), "typestr", word_of(d), "data",
        (unsigned long long)(uintptr_t)(nb_elements(x) ? data : NULL), Py_False,
        "strides", nb_py_tuple(nb_rank(x), stride), "stream",
        (unsigned long long)(uintptr_t)stream);
}

PyObject *nb_py_card_array(PyObject *o, void *unused)
{
    nb_tensor *x = nb_py_get(o);
    (void)unused;
    if (!nb_device_of(x) || !word_of(nb_dtype_of(x)))
        return PyErr_Format(PyExc_AttributeError,
                            "__cuda_array_interface__: the tensor is %s",
                            nb_device_of(x) ? "of bfloat16, for which it has "
                                              "no word"
                                            : "on the CPU");
    if (!(x = nb_py_realized(o))) return NULL;
    PyObject *y = offer(x);
    nb_drop(x);
    return y;
}

/* Taken. */

typedef struct offered {
    PyObject *owner;
    nb_dtype dtype;
    int rank, nstrides;
    int64_t size[NB_PY_RANK], stride[NB_PY_RANK]; /* in elements */
    char *data;
    bool read_only;
    int device;
    unsigned long long
        stream; /* to wait for; 0: the default one, on which those
                                * work that name none */
} offered;

static bool bad(const char *why, PyObject *what)
{
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "__cuda_array_interface__: %s: %R", why,
                     what ? what : Py_None);
    return false;
}

/* Entry `name`, lent; NULL if it is not there, or None. */
static PyObject *entry(PyObject *dict, const char *name)
{
    PyObject *x = PyDict_GetItemString(dict, name);
    return x == Py_None ? NULL : x;
}

static bool read_dtype(PyObject *dict, offered *m)
{
    PyObject *word = entry(dict, "typestr");
    const char *text = word && PyUnicode_Check(word)
                           ? PyUnicode_AsUTF8AndSize(word, NULL)
                           : NULL;
    for (int k = 0; text && k < NWORDS; k++)
        if (!strcmp(words[k].word, text))
            return m->dtype = words[k].dtype, true;
    return bad("no dtype of nabla is", word);
}

static bool read_data(PyObject *dict, offered *m)
{
    PyObject *pair = entry(dict, "data");
    if (!pair || !PyTuple_Check(pair) || PyTuple_Size(pair) != 2)
        return bad("data is an address and a bool, not", pair);
    m->data =
        (char *)(uintptr_t)PyLong_AsUnsignedLongLong(PyTuple_GetItem(pair, 0));
    m->read_only = PyObject_IsTrue(PyTuple_GetItem(pair, 1)) > 0;
    return !PyErr_Occurred();
}

static bool read_strides(PyObject *dict, offered *m)
{
    PyObject *list = entry(dict, "strides");
    int64_t item = (int64_t)nb_dtype_size(m->dtype), step = 1;
    for (int d = m->rank - 1; d >= 0; d--) {
        m->stride[d] = step;
        step *= m->size[d];
    }
    if (!list) return true;
    if (!nb_py_ints(list, m->stride, NB_PY_RANK, &m->nstrides)) return false;
    bool even = m->nstrides == m->rank;
    for (int d = 0; even && d < m->rank; d++) {
        even = m->stride[d] % item == 0;
        m->stride[d] /= item;
    }
    return even || bad("no strides of its elements", list);
}

static bool read_shape(PyObject *dict, offered *m)
{
    PyObject *shape = entry(dict, "shape");
    if (!shape) return bad("no shape", NULL);
    if (!nb_py_ints(shape, m->size, NB_PY_RANK, &m->rank)) return false;
    for (int d = 0; d < m->rank; d++)
        if (m->size[d] < 0) return bad("no shape", shape);
    return true;
}

static bool read_stream(PyObject *dict, offered *m)
{
    PyObject *stream = entry(dict, "stream");
    if (!stream) return true;
    m->stream = PyLong_AsUnsignedLongLong(stream);
    if (PyErr_Occurred() || m->stream) return !PyErr_Occurred();
    return bad("stream is None, 1, 2 or the handle of a stream, not", stream);
}

static bool read_offer(PyObject *dict, offered *m)
{
    if (!PyDict_Check(dict)) return bad("is no dict", dict);
    if (entry(dict, "mask")) return bad("there is a mask", entry(dict, "mask"));
    return read_dtype(dict, m) && read_shape(dict, m) && read_data(dict, m) &&
           read_strides(dict, m) && read_stream(dict, m);
}

static void release(void *owner)
{
    PyObject *type, *value, *trace;
    if (!Py_IsInitialized()) return;
    PyGILState_STATE state = PyGILState_Ensure();
    PyErr_Fetch(&type, &value, &trace);
    Py_DECREF((PyObject *)owner);
    PyErr_Restore(type, value, trace);
    PyGILState_Release(state);
}

static nb_tensor *borrowed_on(offered *m, int device)
{
    nb_tensor *x = nb_borrow_on(device, m->dtype, m->rank, m->size, m->stride,
                                m->data, release, m->owner);
    if (x) Py_INCREF(m->owner);
    return x;
}

static bool is_empty(const offered *m)
{
    for (int d = 0; d < m->rank; d++)
        if (m->size[d] == 0) return true;
    return false;
}

/* Without an address the stream tells, which is of one card.  All cards have
 * those by default: then it is the default device, or the first card. */
static nb_tensor *borrowed_empty(offered *m)
{
    void *stream = (void *)(uintptr_t)m->stream;
    int wanted = nb_default_device();
    m->device = wanted ? wanted : 1;
    for (int d = 1; d < nb_devices(); d++) {
        if (nb_device_after(m->device, stream) == NB_OK) break;
        nb_error_clear();
        m->device = d;
    }
    return borrowed_on(m, m->device);
}

/* Nobody says which card; the address tells. */
static nb_tensor *borrowed(offered *m)
{
    nb_tensor *x = NULL;
    if (!m->data && is_empty(m)) return borrowed_empty(m);
    for (int d = 1; d < nb_devices() && !x; d++) {
        if (d > 1) nb_error_clear();
        x = borrowed_on(m, d);
        m->device = d;
    }
    if (!x && nb_error_code() == NB_OK)
        nb_error_raise(NB_ERUNTIME, "%s", nb_devices_trouble());
    return x;
}

static const char *why_not(const offered *m)
{
    if (m->read_only) return "is read-only";
    if (!nb_py_is_packed(m->rank, m->size, m->stride))
        return "is not contiguous";
    return NULL;
}

static bool may_share(const char *why, PyObject *copy)
{
    if (!why || copy != Py_False) return true;
    PyErr_Format(PyExc_ValueError,
                 "__cuda_array_interface__: a copy is needed, as the memory "
                 "%s, but copy=False",
                 why);
    return false;
}

/* Of what is borrowed by now, and is not copied for another reason. */
static const char *odd_bools(const offered *m)
{
    bool odd = m->dtype == NB_BOOL && !nb_py_card_bools_are_settled(
                                          m->device, m->rank, m->size, m->data);
    return odd ? "holds bools that are neither 0 nor 1" : NULL;
}

static nb_tensor *copied(const offered *m, nb_tensor *x)
{
    offered bytes = *m;
    bytes.dtype = NB_U8;
    return m->dtype == NB_BOOL
               ? nb_py_card_bools(borrowed_on(&bytes, m->device))
               : nb_device_copy(x);
}

static PyObject *take(offered *m, PyObject *copy)
{
    const char *why = why_not(m);
    if (!may_share(why, copy)) return NULL;
    if ((uintptr_t)m->data % nb_dtype_size(m->dtype))
        return bad("an address that is not aligned", NULL), NULL;
    ENTER;
    nb_tensor *x = borrowed(m);
    void *stream = (void *)(uintptr_t)m->stream;
    if (x && nb_device_after(m->device, stream) != NB_OK) x = NULL;
    if (x && !why && copy != Py_True) why = odd_bools(m);
    if (x && (why || copy == Py_True))
        x = may_share(why, copy) ? copied(m, x) : NULL;
    PyObject *y = x ? nb_py_wrap(x) : nb_py_raise();
    LEAVE;
    return y;
}

PyObject *nb_py_from_card_array(PyObject *self, PyObject *args)
{
    PyObject *o, *copy;
    (void)self;
    if (!PyArg_ParseTuple(args, "OO:import_card_array", &o, &copy)) return NULL;
    PyObject *dict = PyObject_GetAttrString(o, "__cuda_array_interface__");
    offered m = {.owner = o};
    PyObject *y = dict && read_offer(dict, &m) ? take(&m, copy) : NULL;
    Py_XDECREF(dict);
    return y;
}
