/* py.h - what the files of the extension share.
 *
 * The extension knows the engine through its public header alone.  Functions
 * return new references, or NULL with a Python exception set.  Around every
 * call into the engine a scope is open (ENTER, LEAVE), so what the engine lends
 * goes when the call is over. */
#ifndef NB_PY_H
#define NB_PY_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>

#include <nabla/nabla.h>
#include <stdbool.h>

enum { NB_PY_RANK = 16 };

/* nabla.Tensor.  The data is the engine's; what only Python programs see, grad
 * and requires_grad, is here. */
typedef struct nb_py_tensor {
    PyObject_HEAD nb_tensor *x; /* kept */
    PyObject *grad, *constraint;
    PyObject *weakrefs;
    struct nb_py_tensor *next; /* in the table of those that require grad */
    bool requires_grad;
    bool cut;        /* its history is not recorded: it counts as a leaf */
    char buffer_ops; /* whether it was assigned to: none, NO or YES */
} nb_py_tensor;
enum { NB_PY_NO = 1, NB_PY_YES };

extern PyTypeObject *nb_py_Tensor;

static inline bool nb_py_is_tensor(PyObject *o)
{
    return Py_TYPE(o) == nb_py_Tensor || PyObject_TypeCheck(o, nb_py_Tensor);
}

static inline nb_tensor *nb_py_get(PyObject *o)
{
    return ((nb_py_tensor *)o)->x;
}

static inline bool nb_py_is_leaf(const nb_py_tensor *self)
{
    return self->cut || nb_is_leaf(self->x);
}

/* A Tensor around x, which it keeps; NULL raises the engine's error. */
PyObject *nb_py_wrap(nb_tensor *x);

/* Gives it a reference of the caller's, or NULL, in a slot of its own, grad or
 * constraint.  From then on the collector looks for cycles through it. */
void nb_py_refer(nb_py_tensor *self, PyObject **slot, PyObject *to);

/* Gives the object another value, which is traced if the old one was. */
void nb_py_replace(nb_py_tensor *self, nb_tensor *x);

/* The engine's pending error as an exception; returns NULL. */
PyObject *nb_py_raise(void);

/* The other way: the exception that is set is also an error of the engine. */
nb_status nb_py_failed(void);

#define ENTER \
    if (nb_scope_open() != NB_OK) return nb_py_raise()
#define LEAVE nb_scope_close(0, NULL)

/* Tells the engine which line of Python is calling: the innermost that is not
 * in the package, whose folder is `home`. */
void nb_py_locate(void);
PyObject *nb_py_set_home(PyObject *self, PyObject *home);

/* convert.c: objects to tensors and back.  An operand is a Tensor, an array, or
 * a number, which stays weak; lent.  An int beyond int64 goes by the tensor
 * that it stands beside (NULL: none), and an array goes to where that is.  A
 * constant is made on the CPU. */
nb_tensor *nb_py_operand(PyObject *o);
nb_tensor *nb_py_operand_beside(PyObject *o, PyObject *other);
nb_tensor *nb_py_constant(PyObject *o, nb_dtype dtype); /* also nested lists */
bool nb_py_dtype(PyObject *o, nb_dtype *dtype);         /* None: NB_NOTYPE */
bool nb_py_device(PyObject *o, int *device);            /* None: -1 */

/* x, made of o, on a device; -1: where a Tensor is, all else by default. */
nb_tensor *nb_py_placed(nb_tensor *x, PyObject *o, int device);

/* x with its value; but a single element on a card may wait for whoever needs
 * it, unless it has to be there now. */
nb_tensor *nb_py_made(nb_tensor *x, bool now);
PyObject *nb_py_dtype_object(nb_dtype d);
PyObject *nb_py_set_dtypes(PyObject *self, PyObject *list);
PyObject *nb_py_element(const void *at, nb_dtype d);
PyObject *nb_py_tuple(int n, const int64_t *v);
bool nb_py_ints(PyObject *o, int64_t *to, int room, int *n);
bool nb_py_realize(int n, nb_tensor *const *x); /* without the GIL */

/* The value of a Tensor, realised and kept: another thread may give the object
 * a new one meanwhile. */
nb_tensor *nb_py_realized(PyObject *o);

/* backward.c: whether backward sets grad here.  nb_py_set_value gives the
 * object a reference of the caller's; NULL: for good. */
bool nb_py_require(nb_py_tensor *self, bool yes);
void nb_py_set_value(nb_py_tensor *self, nb_tensor *x);
PyObject *nb_py_backward_all(PyObject *self, PyObject *args);
extern PyMethodDef nb_py_backward_methods[];

/* transform.c: lists of tensors, NULL for None; an array to PyMem_Free whose
 * tensors the list holds, a list of new objects. */
nb_tensor **nb_py_tensors(PyObject *list, int *n);
PyObject *nb_py_list(int n, nb_tensor *const *x);
int nb_py_tapes_open(void); /* in this thread */

/* A Tensor whose hidden axes were made by hand, with all of them visible, the
 * newest first; any other Tensor is itself. */
PyObject *nb_py_shown(PyObject *o);
int nb_py_transform_add(PyObject *module);
extern PyMethodDef nb_py_control_functions[]; /* control.c */
int nb_py_trace_add(PyObject *module);        /* trace.c */

/* control.c: the body of a function of Python, which is its ctx: called with a
 * list of tensors, returns one. */
nb_body nb_py_body;

/* A function of the engine that calls f, a body, and keeps it as long as anyone
 * may. */
nb_func *nb_py_lasting(PyObject *f);

/* executable.c: whether this thread is recording a function to be compiled; and
 * the error of what cannot be done then. */
bool nb_py_compiling(void);
int nb_py_compile_add(PyObject *module); /* compile.c */
int nb_py_custom_add(PyObject *module);  /* custom.c */
int nb_py_debug_add(PyObject *module);   /* debug.c */
int nb_py_rule_add(PyObject *module);    /* rule.c */

/* explain.c: what an executable communicates: its table, and a list of rows. */
PyObject *nb_py_explanation(const nb_executable *e);
int nb_py_explain_add(PyObject *module);
int nb_py_distributed_add(PyObject *module); /* distributed.c */

/* shard.c: specs.  From takes a ShardingSpec, whose rank must be `rank`, if that
 * is not negative; or a P, a list of what DimSpec.from_raw takes or None, over
 * `mesh`, a DeviceMesh, with `rank` dims.  To gives a ShardingSpec whose mesh is
 * the DeviceMesh last made or used of those that are the same to the engine. */
const nb_spec *nb_py_spec_from(PyObject *o, PyObject *mesh, int rank);
PyObject *nb_py_spec_to(const nb_spec *s);
const nb_mesh *nb_py_mesh_from(PyObject *o); /* a DeviceMesh */
PyObject *nb_py_mesh_to(const nb_mesh *m);
int nb_py_shard_add(PyObject *module);

/* place.c: tensors on meshes. */
extern PyGetSetDef nb_py_place_getset[];
extern PyMethodDef nb_py_place_methods[], nb_py_place_functions[];

/* mesh= and spec= of a call that places. */
bool nb_py_add_target(PyObject *kwargs, const nb_spec *s);

/* Hidden sizes, the newest first, while the engine has it last; how many. */
int nb_py_hidden_sizes(const nb_tensor *x, int64_t *size);

/* Of the engine, which does not say so in its header: a function that lets go
 * of what it closes over when it goes. */
nb_func *nb_func_owning(nb_body *body, void *ctx, void (*release)(void *));

/* Likewise: whether this thread records something: a function to be compiled,
 * or the body of a loop or branch. */
bool nb_is_recording(void);

/* Likewise: whether bytes that others call bools are 0 or 1, and how they get
 * so. */
bool nb_bool_is_settled(const void *data, size_t n);
void nb_bool_settle(void *data, size_t n);

/* attrs.c: static arguments of the op that made a tensor. */
PyObject *nb_py_op_kwargs(PyObject *o);

/* call.c: ops as Python functions and methods. */
int nb_py_ops_add(PyObject *module);
PyObject *nb_py_home(PyObject *self, PyObject *unused); /* of pickled ops */

/* Slots and methods of Tensor, by file. */
extern PyType_Slot nb_py_number_slots[];
extern PyType_Slot nb_py_index_slots[];
extern PyType_Slot nb_py_interop_slots[];
extern PyMethodDef nb_py_interop_methods[];
extern PyMethodDef nb_py_copy_methods[];
extern PyMethodDef nb_py_module_methods[];
PyObject *nb_py_load(PyObject *self, PyObject *args); /* the end of a pickle */
int nb_py_interop_add(PyObject *module);
int nb_py_index_add(PyObject *module);

#endif
