/* op.h - what an operation is.
 *
 * An op is five facts: which axes it relates (sig), which element types it
 * takes, what it does (a scalar body at one point, a view, a kernel, or a
 * composition of other ops), how it varies (kind and one derivative) and what
 * it means (doc and example).  Shapes, loops, jvp, vjp, batching, the C and
 * Python functions, documentation and tests follow from these.
 *
 * A primitive op records a node; a composite one (`compose`) is a function of
 * other ops and inherits all their rules. */
#ifndef NB_CORE_OP_H
#define NB_CORE_OP_H

#include "core/signature.h"
#include "nabla/op.h"

#include <stdatomic.h>

/* Arguments.  `params` declares them as Python would, with kinds after a colon
 * for what is not a tensor: "x, axis:axis=-1, keepdims:bool=False".  None may be
 * given where it is the default, or where ? follows the kind.  Values of
 * all but tensors are packed into words: one for int bool float axis newaxis
 * dtype text; a count and that many for ints axes newaxes.  NB_NONE stands for
 * None, as a value or as a count. */
#define NB_NONE ((int64_t)0x7ff8deadbeef0001) /* no axis, size or number */

typedef enum nb_param_kind {
    NB_P_TENSOR,  /* "x" */
    NB_P_TENSORS, /* "tensors:tensors", a list, the only tensors */
    NB_P_INT,
    NB_P_BOOL,
    NB_P_FLOAT,
    NB_P_AXIS,    /* of input 0; stored counted from the front */
    NB_P_AXES,    /* several, or None */
    NB_P_NEWAXIS, /* a place in the result, which has one more */
    NB_P_DTYPE,
    NB_P_TEXT, /* interned */
    NB_P_INTS
} nb_param_kind;

typedef struct nb_param {
    const char *name;
    nb_param_kind kind;
    bool has_default, keyword_only, nullable; /* None may be given */
    int ndefault;                             /* words */
    int64_t value[8];
} nb_param;

enum { NB_MAX_PARAMS = 16, NB_MAX_WORDS = 96 };

typedef struct nb_params {
    int n, ntensors, nrequired; /* tensors declared; of them without default */
    bool list;                  /* the tensors are one list */
    nb_param param[NB_MAX_PARAMS];
} nb_params;

struct nb_kernel_args;            /* nabla/kernel.h */
typedef struct nb_point nb_point; /* core/point.h */

/* One application of an op: what every rule is given.  `out` is the node, NULL
 * while the call is still being checked. */
typedef struct nb_call {
    const nb_op *op;
    int nin;
    nb_tensor *const *in;
    int64_t *attr;
    int nattr; /* words */
    const nb_sig *sig;
    nb_tensor *out;
} nb_call;

/* Attribute k, counted among the parameters that are not tensors. */
int64_t nb_arg_int(const nb_call *c, int k); /* also bool, axis, dtype */
double nb_arg_float(const nb_call *c, int k);
const char *nb_arg_text(const nb_call *c, int k);
const int64_t *nb_arg_list(const nb_call *c, int k, int *n); /* None: n < 0 */

/* Scalar code is built in a generator; a value is named by its number. */
typedef struct nb_gen nb_gen;
typedef struct nb_val {
    int id;
} nb_val;

typedef enum nb_scalar {
    NB_S_none,
#define SCALAR(name, form, types, cost, f, i) NB_S_##name,
#include "core/scalars.def"
    NB_S_count
} nb_scalar;

typedef enum nb_kind {
    NB_NOKIND,
    NB_POINTWISE,   /* scaled at each point by its partial */
    NB_LINEAR,      /* linear in all inputs that are not fixed, together */
    NB_MULTILINEAR, /* linear in each input, the others held */
    NB_CONSTANT,    /* derivative zero wherever it exists */
    NB_RULE,        /* none of these: says how the result moves (jvp) */
    NB_COMPOSITE    /* made of other ops */
} nb_kind;

/* An operand as a kernel sees it at one batch point: the dims that its
 * signature names, strides in elements. */
typedef struct nb_view {
    char *data;
    nb_dtype dtype;
    int rank;
    const int64_t *size, *stride;
} nb_view;

typedef struct nb_kernel {
    const nb_call *call;
    int nin, nout;
    const nb_view *view; /* inputs, then results (contiguous) */
} nb_kernel;

/* Strides of a view op's visible axes, in elements. */
typedef struct nb_layout {
    int rank;
    const int64_t *size;
    int64_t stride[NB_MAX_RANK];
    int64_t offset; /* elements from the start of the input */
} nb_layout;

/* A loop of known length over the program of an op: its inputs are carries,
 * then xs, one step of which the program gets, then what it closes over; its
 * results are carries, then ys, stacked. */
typedef struct nb_turns {
    int carries, xs;
    int64_t length;
    bool reverse;
} nb_turns;

/* A call on a device's blocks: what it has of each input, as tensors, and the
 * part of the result that it is to make; boxes are those of the whole tensors.
 */
typedef struct nb_blocks {
    nb_tensor *const *in;
    const nb_box *from; /* by input */
    const nb_box *to;
    /* A 0-d int64 that differs from device to device. */
    nb_tensor *(*number)(const struct nb_blocks *b, int64_t value);
    /* Into how many blocks a dim of kind scan is split, of which the device has
     * this one; and with several, what all of them come to, of which it says
     * x: tensor t (inputs, then the result) but one place long there. */
    int64_t parts, part;
    nb_tensor *(*beside)(const struct nb_blocks *b, int t, nb_tensor *x);
    void *ctx;
} nb_blocks;

typedef struct nb_results {
    int n, room;
    nb_tensor **out;
} nb_results;
bool nb_results_add(nb_results *r, nb_tensor *x); /* false if x is NULL */

struct nb_joints; /* core/joints.h */

struct nb_op {
    /* nb_<name> in C, nb.<name> in Python, the mnemonic in listings. */
    const char *name;

    /* One paragraph; the Python docstring and the entry in docs/ops.md. */
    const char *doc;

    /* A call and its value: "add([1, 2], 3) = [4, 5]"; shown and run.  Its
     * argument shapes and attributes are also what the laws sample. */
    const char *example;

    const char *params; /* left out if the form of the row implies them */

    /* Axes, or a function that writes them where attributes decide. */
    const char *sig;
    bool (*sign)(const nb_call *c, nb_text *sig);

    nb_kind kind;
    nb_in_types in;
    nb_out_type out;
    unsigned index; /* bit i: input i is an integer index */
    unsigned mask;  /* bit i: input i is a bool mask */
    unsigned fixed; /* bit i: no derivative in input i (index and mask imply) */
    unsigned linear; /* bit i: kind NB_RULE, but linear in input i: transpose */
    unsigned carries; /* bit i: neither, but linear in input i all the same */
    int rises; /* 1: of two inputs the greater never gives less; -1: never more;
                * of all inputs, or it is 0 */
    unsigned splits; /* bit k: does factors of that nb_factor_kind in parts;
                       * NB_PASS: dims that no operand has */
    unsigned shares; /* bit t: what blocks of that tensor come to is told */
    int sized;      /* attribute k, 1 + k, is the visible shape of the result */
    int nout;       /* 0 means one */
    bool view_only; /* never computes: always a view */
    bool absorbs;   /* f(f(x, a), b) is f(x, b) */
    bool totals;    /* running ones by `reduce`: axis, exclusive, reverse */
    bool in_order;  /* gives the elements of its input, in row-major order */
    bool picks;     /* elements of input 0, along its last axis by input 1 */
    int lands;      /* attribute k, 1 + k, is the device of the result */
    bool anywhere;  /* execute takes memory of any device */
    bool places;    /* attribute 0 says how the result lies over devices */
    bool asks;      /* only where all of a program is laid out at once; else the
                     * result lies as the operand does */
    bool effect;    /* does something besides: see core/debug.h */

    /* Checks arguments and may normalise attr in place; then, with result k's
     * shape filled in from the signature, completes what it leaves open (an
     * extent of -1) and the dtype. */
    bool (*check)(nb_call *c);
    bool (*infer)(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype);

    /* For the few ops that move lanes, which signatures do not mention: the
     * whole shape of the result, and the stored dim of the input that stored
     * dim d of the result runs along (-1: none, it is repeated). */
    bool (*shape)(const nb_call *c, nb_shape *out);
    int (*dim_of)(const nb_call *c, const nb_tensor *y, int d);

    /* The work: one instruction, or a body of several, at each point, reduced
     * along what does not reach the result; */
    nb_scalar scalar;
    nb_val (*body)(nb_gen *g, const nb_val *x, const nb_call *c);
    nb_reduce reduce;
    /* or strides of the result in the input's buffer (false: must copy); */
    bool (*view)(const nb_call *c, const nb_layout *in, nb_layout *out);
    /* or a function of the named dims, called at each batch point; */
    bool (*kernel)(const nb_kernel *k);
    /* which may also say what it does at each point (core/point.h; false,
     * without an error: not this call), so that loops can hold it; */
    bool (*point)(nb_point *p, const nb_call *c, nb_val *y);
    /* or a function of rows, as in nabla/kernel.h, which `execute` calls; */
    void (*rows)(const struct nb_kernel_args *a);
    /* and its text for cards (backend/cuda/custom.h), or NULL; */
    const struct nb_card_text *rows_there;
    /* or other ops. */
    bool (*compose)(const nb_call *c, nb_results *r);

    /* Over many devices.  The call on blocks, where it is not the same call on
     * them; and for factors of kind permute the range [from[0], from[1]) of
     * visible dim d of input i that the range [to[0], to[1]) of the result
     * needs (false, without an error: this call has to have it whole).  Places
     * beyond the ends are zeros there: with them devices at the ends do what
     * all others do. */
    nb_tensor *(*local)(const nb_call *c, const nb_blocks *b);
    bool (*reach)(const nb_call *c, int i, int d, const int64_t *to,
                  int64_t *from);

    /* Arithmetic operations of a call, where the work does not tell. */
    double (*cost)(const nb_call *c);

    /* d out / d in[i] at each point; the adjoint of in[i] -> out; how result k
     * moves when input i alone moves by u (k is 0 unless nout > 1). */
    nb_tensor *(*partial)(const nb_call *c, int i);
    nb_tensor *(*transpose)(const nb_call *c, int i, nb_tensor *ct);
    nb_tensor *(*jvp)(const nb_call *c, int k, int i, nb_tensor *u);

    /* Ops that hold recorded programs (loops, branches) are made at the call and
     * go with the last node that uses them.  They say everything at once: the
     * shape of result k, lanes included; the whole work on realised inputs,
     * into packed results; and how all results move, or what flows back to all
     * inputs (NULL: nothing). */
    bool (*result)(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype);
    bool (*execute)(const nb_call *c, char *const *to);
    bool (*push)(const nb_call *c, nb_tensor *const *u, nb_tensor **uy);
    bool (*pull)(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx);
    bool (*repeats)(const nb_call *c, nb_turns *r); /* if it is such a loop */
    /* How a program meets the call (core/joints.h); and the attributes of the
     * call once a value goes through all runs of its programs and these have so
     * many more inputs each. */
    bool (*join)(const nb_call *c, int region, struct nb_joints *j);
    void (*widen)(const nb_call *c, const int *more, int64_t *attr);
    /* Makes what execute will run, and keeps it with the op; and the bytes that
     * it will need besides the results. */
    bool (*prepare)(const nb_call *c);
    int64_t (*needs)(const nb_call *c);
    _Atomic(struct nb_kept *) kept;
    void (*forget)(nb_op *op);  /* drops that */
    void (*release)(nb_op *op); /* NULL: the op lives for ever */
    uint64_t identity; /* made at a call: of another with the same, too; 0: it
                        * may not do what others of its name do */
    uint64_t told; /* made at a call: of the sizes that it was told rather than
                    * found in its inputs */
    atomic_int uses;
    struct nb_graph *region[2];
    const char *region_name[2]; /* "body" */
    /* The call is its program on its inputs, once; of an op without one, the
     * results are the first inputs.  Either may stand in its place. */
    bool inlines;

    /* Where the op is smooth: laws draw real inputs here ({0,0}: -2 to 2).
     * `shapes` names inputs of a special kind, one letter an input: '.' any,
     * 'p' positive definite, 's' symmetric, 'd' distinct well apart,
     * 'i' invertible. */
    double domain[2];
    const char *shapes;

    /* Why a law does not apply, "law: reason"; NULL for none. */
    const char *exempt;

    /* Filled by nb_op_ready. */
    atomic_bool ready;
    const nb_sig *static_sig;
    nb_params *parsed;
};

bool nb_op_ready(nb_op *op);
bool nb_params_parse(nb_params *p, const char *who, const char *text);

/* Scalar code: built by bodies, read by backends. */
enum { NB_MAX_CODE = 48, NB_MAX_SCALAR_IN = 4 };
typedef struct nb_instr {
    nb_scalar scalar; /* none: a constant */
    int arg[3];
    double value;
    bool is_bool;
} nb_instr;
struct nb_gen {
    int n; /* value i < NB_MAX_SCALAR_IN is input i, then instructions */
    bool in_bool[NB_MAX_SCALAR_IN];
    nb_instr code[NB_MAX_CODE];
};
/* Whether it gives a bool. */
bool nb_scalar_is_test(nb_scalar s);
/* The instructions of a call's work; returns the result's value. */
nb_val nb_gen_body(nb_gen *g, const nb_call *c);
nb_val nb_s_const(nb_gen *g, double value);
nb_val nb_s_emit(nb_gen *g, nb_scalar s, nb_val a, nb_val b, nb_val c);

#define NB_T1(name)                                       \
    static inline nb_val nb_s_##name(nb_gen *g, nb_val a) \
    {                                                     \
        return nb_s_emit(g, NB_S_##name, a, a, a);        \
    }
#define NB_T2(name)                                                 \
    static inline nb_val nb_s_##name(nb_gen *g, nb_val a, nb_val b) \
    {                                                               \
        return nb_s_emit(g, NB_S_##name, a, b, b);                  \
    }
#define NB_T3(name)                                                           \
    static inline nb_val nb_s_##name(nb_gen *g, nb_val a, nb_val b, nb_val c) \
    {                                                                         \
        return nb_s_emit(g, NB_S_##name, a, b, c);                            \
    }
#define NB_C1                                 NB_T1
#define NB_C2                                 NB_T2
#define NB_B1                                 NB_T1
#define NB_B2                                 NB_T2
#define NB_SEL                                NB_T3
#define SCALAR(name, form, types, cost, f, i) NB_##form(name)
#include "core/scalars.def"
#undef NB_T1
#undef NB_T2
#undef NB_T3
#undef NB_C1
#undef NB_C2
#undef NB_B1
#undef NB_B2
#undef NB_SEL

#endif
