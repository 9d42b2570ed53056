/* nabla/custom.h - ops of your own, and kernels in C source.
 *
 * An op made here behaves as those of the catalogue: it is lazy, batches over
 * hidden axes, differentiates to any order, compiles, and is listed and counted.
 * It is a description: what it is called, which axes it relates, which dtypes
 * it takes, its work (a kernel over rows as in nabla/kernel.h, or a body in
 * other ops) and how it varies (a vjp or a jvp rule; the other follows).
 *
 *     static void cube(const nb_kernel_args *a) { ... }
 *     static nb_status slope(const nb_applied *c, nb_tensor *const *u,
 *                            nb_tensor **uy)
 *     {
 *         uy[0] = nb_mul(u[0], nb_mul(nb_num(3), nb_square(c->in[0])));
 *         return nb_error_code();
 *     }
 *     nb_op *op = nb_op_register(&(nb_op_spec){.name = "cube",
 *                                              .signature = "... -> ...",
 *                                              .kernel = cube,
 *                                              .jvp = slope});
 *     int n = 1;
 *     nb_op_call(op, 1, &x, 0, NULL, &n, &y); */
#ifndef NABLA_CUSTOM_H
#define NABLA_CUSTOM_H

#include "nabla/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nb_kernel_args; /* nabla/kernel.h */
typedef void nb_kernel_fn(const struct nb_kernel_args *a);

enum { NB_TYPE_RANK = 16 };
typedef struct nb_type { /* what a tensor is like */
    nb_dtype dtype;
    int rank;
    int64_t shape[NB_TYPE_RANK];
} nb_type;

/* One use of an op, as its functions see it.  Shapes are visible ones: hidden
 * axes pass by. */
typedef struct nb_applied {
    nb_op *op;
    void *ctx; /* of the description */
    int nin, nout;
    nb_tensor *const *in;
    nb_tensor *const *out; /* NULL where there are no results yet */
    int nval;              /* arguments that are no tensors */
    const nb_value *val;
} nb_applied;

/* Work in other ops: stores at most *n results and says how many in *n. */
typedef nb_status nb_op_body(const nb_applied *c, int *n, nb_tensor **out);

/* The type of result k where the signature and the dtype rules do not say: it
 * comes in with what they do, sizes of -1 open. */
typedef nb_status nb_op_infer(const nb_applied *c, int k, nb_type *type);

/* jvp: from tangents of all inputs to those of all results; vjp: from
 * cotangents of all results to those of all inputs.  Linear in `from`, where
 * zeros are tensors of zeros; NULL in `to` is zero.  A cotangent may have the
 * shape that its input was broadcast to: it is summed. */
typedef nb_status nb_op_rule(const nb_applied *c, nb_tensor *const *from,
                             nb_tensor **to);

/* Bits of inputs in which an op is linear; or in all of them together. */
#define NB_LINEAR_ALL (~0u)

typedef struct nb_op_spec {
    const char *name;      /* of one that is registered: letters, digits, _ */
    const char *doc;       /* or NULL */
    const char *signature; /* "... m k, ... k n -> ... m n"; NULL: none */
    const char *params;    /* "x, y, alpha:float=1"; NULL: the tensors alone */
    int nin;               /* tensors, if there are neither of these */
    int nout;              /* 0 means one; -1: as many as the body gives */
    nb_in_types in;
    nb_out_type out;

    nb_kernel_fn *kernel; /* this */
    nb_op_body *body;     /* or that */
    nb_op_infer *infer;   /* or NULL; needed by a kernel without signature */
    bool broadcast;       /* inputs are brought to one shape first */
    bool whole; /* the body is given hidden axes too, in front, where the
                   signature has ... in every term */

    nb_op_rule *vjp, *jvp; /* one of them, both or none */
    unsigned linear;
    double (*cost)(const nb_applied *c); /* operations of a kernel, or NULL */

    void *ctx; /* handed to all of these; on failure still yours */
    void (*release)(void *ctx);
} nb_op_spec;

/* Makes an op that nb_op_find finds.  The same description again gives the same
 * op; another of that name is an error, and so is a name of the catalogue. */
NB_API nb_op *nb_op_register(const nb_op_spec *spec);

/* Makes one that has a name for messages and listings only. */
NB_API nb_op *nb_op_new(const nb_op_spec *spec);

/* Lets go of either, once for every time it was made; what was recorded with it
 * keeps it as long as needed.  NULL is fine. */
NB_API void nb_op_drop(nb_op *op);

/* Registered op number i, in no particular order; NULL past the last. */
NB_API nb_op *nb_op_registered(int i);

/* An attribute of a kernel: an int (also bool) or a float. */
typedef struct nb_named {
    const char *name;
    nb_value value;
} nb_named;

/* A kernel of C or CUDA C sources: the device of the values, or without any the
 * default one, says which. */
typedef struct nb_kernel_source {
    const char *name; /* of the function that is exported */
    int npaths;
    const char *const *path; /* files and folders of .c and .cu files */
} nb_kernel_source;

/* Calls it: results of the types given, lent.  Sources are compiled at first
 * use and kept in the cache on disk by content: all .c files together by $CC
 * (cc), with the optimiser on and for this processor; of the .cu files the one
 * that has the kernel, by NVRTC.  Inside the body of an op with a signature the
 * rows are the op's; elsewhere the kernel is given one row, each operand as a
 * whole, once for every lane of the hidden axes.
 *
 * NB_ENOFILE: a path that does not exist; NB_EVALUE: no such function for the
 * device; NB_ERUNTIME: what the compiler says.  A status that a kernel stores is
 * NB_ERUNTIME, too: on the CPU where the results are computed, on a card in
 * whatever call waits for it next. */
NB_API nb_status nb_kernel_call(const nb_kernel_source *source, int nin,
                                nb_tensor *const *in, int nattr,
                                const nb_named *attr, int nout,
                                const nb_type *type, nb_tensor **out);

#ifdef __cplusplus
}
#endif
#endif
