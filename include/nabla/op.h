/* nabla/op.h - ops as data: finding them by name, asking what they take,
 * calling them generically.  For bindings, tools and tests; programs call the
 * functions of nabla/ops.h. */
#ifndef NABLA_OP_H
#define NABLA_OP_H

#include "nabla/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nb_op nb_op;

/* The catalogue: op number i, in the order of ops.def; NULL past the end. */
NB_API nb_op *nb_op_at(int i);

/* The op of that name, of the catalogue or registered (nabla/custom.h); NULL if
 * there is none. */
NB_API nb_op *nb_op_find(const char *name);

/* False for the few ops that only derivative rules call. */
NB_API bool nb_op_is_public(const nb_op *op);

NB_API const char *nb_op_name(const nb_op *op);
NB_API const char *nb_op_doc(const nb_op *op);
NB_API const char *nb_op_example(const nb_op *op);

/* Its signature, "... m k, ... k n -> ... m n"; "" where arguments decide. */
NB_API const char *nb_op_signature(const nb_op *op);

/* Its arguments, tensors first: "x, axis:axis=-1, keepdims:bool=False". */
NB_API const char *nb_op_params(nb_op *op);

/* Results of a call: 1 for a tensor, n for a fixed tuple, 0 for a list. */
NB_API int nb_op_results(const nb_op *op);

/* Element types of the inputs that are not index or mask... */
typedef enum nb_in_types {
    NB_IN_ANY,     /* as they are */
    NB_IN_COMMON,  /* promoted to one dtype */
    NB_IN_NUMBER,  /* the same, bool refused */
    NB_IN_FLOAT,   /* the same, integers become the default float */
    NB_IN_INTEGER, /* the same, floats refused, bool allowed */
    NB_IN_BOOL,    /* cast to bool */
    NB_IN_FIRST    /* cast to the dtype of input 0 */
} nb_in_types;

/* ... and of the result. */
typedef enum nb_out_type {
    NB_OUT_SAME, /* as the first of those inputs */
    NB_OUT_BOOL,
    NB_OUT_I64,
    NB_OUT_SUM, /* bool and narrow integers become 64 bits wide */
    NB_OUT_ATTR /* `infer` decides */
} nb_out_type;

/* What kind of argument number i is. */
typedef enum nb_arg_kind {
    NB_ARG_TENSOR,
    NB_ARG_TENSORS, /* a list of tensors */
    NB_ARG_INT,
    NB_ARG_BOOL,
    NB_ARG_FLOAT,
    NB_ARG_AXIS,
    NB_ARG_AXES,
    NB_ARG_NEWAXIS,
    NB_ARG_DTYPE,
    NB_ARG_TEXT,
    NB_ARG_INTS
} nb_arg_kind;

typedef struct nb_arg {
    const char *name;
    nb_arg_kind kind;
    bool optional;     /* has a default */
    bool keyword_only; /* in Python */
} nb_arg;

/* Argument i of op; false past the last. */
NB_API bool nb_op_arg(nb_op *op, int i, nb_arg *arg);

/* A value for an argument that is not a tensor. */
typedef enum nb_value_kind {
    NB_VALUE_DEFAULT,
    NB_VALUE_NONE,
    NB_VALUE_INT, /* also bool, axis, dtype */
    NB_VALUE_FLOAT,
    NB_VALUE_TEXT,
    NB_VALUE_LIST
} nb_value_kind;

typedef struct nb_value {
    nb_value_kind kind;
    int n;
    int64_t i;
    double f;
    const char *text;
    const int64_t *list;
} nb_value;

/* Calls op with nin tensors and values for the other arguments, in order;
 * those left out take their defaults.  The results, lent, are stored in out;
 * *nout is how many there is room for, then how many there are. */
NB_API nb_status nb_op_call(nb_op *op, int nin, nb_tensor *const *in, int nval,
                            const nb_value *val, int *nout, nb_tensor **out);

/* Static arguments of the op that made x, as text: argument i (not counting
 * tensors) as "name=value"; NULL past the last.  Yours: nb_text_release. */
NB_API char *nb_attr_text(const nb_tensor *x, int i);

/* Counts what has been recorded and executed by this process: for figures. */
typedef struct nb_stats {
    int64_t nodes_live;
    int64_t steps_run; /* ops executed */
    int64_t allocations_live;
    size_t bytes_allocated; /* of nodes and all else but tensor data */
    size_t bytes_in_use;    /* of tensor data */
} nb_stats;
NB_API nb_stats nb_stats_get(void);

#ifdef __cplusplus
}
#endif
#endif
