/* nabla/transform.h - functions to functions, and the imperative style.
 *
 * A function takes tensors and returns tensors.  It is a value: made from C
 * code and what that closes over, or from another function by a transform.
 * Transforms compose to any depth and in any order, since their results are
 * ordinary recorded ops:
 *
 *     static nb_status energy(void *ctx, int nx, nb_tensor *const *x, int *ny,
 *                             nb_tensor **y)
 *     {
 *         y[0] = nb_reduce_sum(nb_sin(x[0]), -1, NULL, false);
 *         return *ny = 1, NB_OK;
 *     }
 *     ...
 *     nb_func *f = nb_func_new(energy, NULL);
 *     nb_tensor *h = nb_func_call1(nb_hessian(f, 0), 1, &x);
 *
 * Functions are lent by the innermost scope, like tensors; a transform keeps
 * what it transforms.  Inputs are concrete, so a body may look at values. */
#ifndef NABLA_TRANSFORM_H
#define NABLA_TRANSFORM_H

#include "nabla/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nb_func nb_func;

/* A body: nx arguments; *ny comes in as the room in y and goes out as the
 * number of results, which are lent.  A result of NULL is a failure whose
 * error is set. */
typedef nb_status nb_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y);

/* ctx must outlive the function and, where derivatives call the body again
 * (custom rules), what is computed with it. */
NB_API nb_func *nb_func_new(nb_body *body, void *ctx);

/* A function that lets go of what it closes over, by release(ctx), when it goes
 * itself; on failure at once. */
NB_API nb_func *nb_func_owning(nb_body *body, void *ctx,
                               void (*release)(void *ctx));

NB_API nb_func *nb_func_keep(nb_func *f);
NB_API void nb_func_drop(nb_func *f);

/* Calls f; *ny as in a body.  What f recorded and did not return goes. */
NB_API nb_status nb_func_call(nb_func *f, int nx, nb_tensor *const *x, int *ny,
                              nb_tensor **y);

/* The first result of f, NULL on failure. */
NB_API nb_tensor *nb_func_call1(nb_func *f, int nx, nb_tensor *const *x);

/* Gradients of the first result (summed, if it is not a scalar) with respect
 * to the n arguments listed: as many results.  value_and_grad has the results
 * of f before them. */
NB_API nb_func *nb_grad(nb_func *f, int n, const int *arguments);
NB_API nb_func *nb_value_and_grad(nb_func *f, int n, const int *arguments);

/* (x..., u...) -> (y..., how y moves when x moves by u). */
NB_API nb_func *nb_jvp(nb_func *f);

/* (x..., ct...) -> (y..., ct pulled back to each x), for nx arguments. */
NB_API nb_func *nb_vjp(nb_func *f, int nx);

/* All partial derivatives of the first result by one argument: a tensor of
 * shape result + argument.  jacrev walks back, jacfwd forward; both map over a
 * basis: at once if the result and all that is needed on the way to it fit
 * nb_jacobian_budget bytes (a GiB), else in pieces that do, computed at once. */
NB_API nb_func *nb_jacrev(nb_func *f, int argument);
NB_API nb_func *nb_jacfwd(nb_func *f, int argument);
NB_API nb_func *nb_hessian(nb_func *f, int argument);
NB_API void nb_jacobian_budget_set(size_t bytes);
NB_API size_t nb_jacobian_budget(void);

/* f with derivatives of its own.  custom_vjp: fwd(x...) -> (results of f...,
 * whatever bwd needs...), bwd(that..., ct...) -> one cotangent an x; forward
 * mode is bwd transposed.  custom_jvp: rule(x..., u...) -> (results..., how they
 * move...); reverse mode is the rule transposed.  What f closes over is not
 * differentiated through these. */
NB_API nb_func *nb_custom_vjp(nb_func *f, nb_func *fwd, nb_func *bwd);
NB_API nb_func *nb_custom_jvp(nb_func *f, nb_func *rule);

/* f, with nothing of its inside kept for derivatives: it runs again then.  What
 * it closes over is differentiated through.  options may be NULL. */
typedef struct nb_checkpoint_options nb_checkpoint_options;
NB_API nb_func *nb_checkpoint(nb_func *f, const nb_checkpoint_options *options);

/* A policy says which values inside are kept after all; it is asked once, when
 * f is called, about all that is computed and is not just a view. */
typedef struct nb_op_info {
    const char *name;       /* of the op that makes the value */
    bool contraction;       /* a sum of products of its operands */
    const nb_tensor *value; /* not to be kept or computed */
} nb_op_info;
struct nb_checkpoint_options {
    bool (*save)(void *ctx, const nb_op_info *info); /* NULL: nothing */
    void *ctx;                                       /* outlives the function */
};
NB_API bool nb_save_contractions(void *ctx, const nb_op_info *info);
NB_API bool nb_save_everything(void *ctx, const nb_op_info *info);

/* f mapped over an axis of its arguments.  Axes of arguments and results; the
 * last entry also stands for those beyond it.  An argument that is not mapped
 * is the same for all; a result that is not must not depend on the lane. */
#define NB_UNMAPPED INT32_MIN
typedef struct nb_vmap_options {
    int nin, nout;      /* entries; 0: all 0 */
    const int *in_axes; /* NB_UNMAPPED: not mapped */
    const int *out_axes;
    int64_t axis_size;     /* 0: what the arguments say */
    const char *axis_name; /* for collectives over the lanes, or NULL */
    /* Lanes lie on this axis of the mesh, mapped arguments and results split on
     * it; also a name of theirs.  Without a mesh it is that of the arguments,
     * and if they lie on none a name is all it is. */
    const char *spmd_axis_name;
    const struct nb_mesh *mesh;
} nb_vmap_options;
NB_API nb_func *nb_vmap(nb_func *f, const nb_vmap_options *options);

/* Over the lanes of the innermost open vmap of that name (NULL: of any). */
NB_API nb_tensor *nb_lane_sum(nb_tensor *x, const char *axis_name);
NB_API nb_tensor *nb_lane_mean(nb_tensor *x, const char *axis_name);
NB_API nb_tensor *nb_lane_max(nb_tensor *x, const char *axis_name);
NB_API nb_tensor *nb_lane_min(nb_tensor *x, const char *axis_name);
NB_API nb_tensor *nb_lane_index(const char *axis_name); /* int32, 0-d */
NB_API nb_tensor *nb_lane_permute(nb_tensor *x, const char *axis_name, int n,
                                  const int64_t (*pairs)[2]);

/* The pieces, for bindings whose functions are not C functions.
 *
 * A tape is what is recorded from fresh copies of x to y: open it, call the
 * function on the copies, close it with the results; then push tangents and
 * pull cotangents (NULL is zero, in and out; where ct itself is NULL, all are
 * one) as often as needed. */
typedef struct nb_tape nb_tape;
NB_API nb_tape *nb_tape_open(int nx, nb_tensor *const *x, nb_tensor **fresh);
NB_API nb_status nb_tape_close(nb_tape *t, int ny, nb_tensor *const *y);
NB_API nb_status nb_tape_push(nb_tape *t, nb_tensor *const *u, nb_tensor **uy);
NB_API nb_status nb_tape_pull(nb_tape *t, nb_tensor *const *ct, nb_tensor **cx);
NB_API void nb_tape_drop(nb_tape *t);

/* Blocks of a jacobian, each of shape result + argument: those of result k by
 * every argument (back), or of every result by argument k; `rows` of the basis
 * at a time, 0 for as many as the budget allows. */
NB_API nb_status nb_tape_jacobian(nb_tape *t, bool back, int k, int64_t rows,
                                  nb_tensor **blocks);

/* A vmap by hand: open it, hide axes of arguments, call, close, show results.
 * Lanes close in the reverse order of opening; 0 on failure.  A result shown at
 * NB_UNMAPPED loses the lane, and must not depend on it. */
NB_API int nb_lane_begin(int64_t size, const char *name);
NB_API void nb_lane_end(void);
NB_API bool nb_lane_also(const char *name); /* a second one for the innermost */

/* Those that are open in this thread, the outermost first: false if there are
 * no more than k.  While a custom rule runs, the vmaps in which its function was
 * called are open again. */
typedef struct nb_open_lane {
    int id;
    int64_t size;
    const char *name[2]; /* or NULL */
} nb_open_lane;
NB_API bool nb_lane_at(int k, nb_open_lane *out);
NB_API nb_tensor *nb_lane_hide(nb_tensor *x, int axis, int lane);
NB_API nb_tensor *nb_lane_show(nb_tensor *x, int axis, int lane, int64_t size);
NB_API bool nb_lane_has(const nb_tensor *x, int lane);

/* The identity, with a derivative of zero. */
NB_API nb_tensor *nb_stop_gradient(nb_tensor *x);

/* The imperative style.  A tensor that requires grad is traced, and so is all
 * that is computed from it; nb_backward walks back from y and sets the gradient
 * of every tensor that requires one, adding to it if asked.  ct may be NULL for
 * a y of one element. */
NB_API nb_status nb_require_grad(nb_tensor *x);
NB_API bool nb_requires_grad(const nb_tensor *x);
NB_API nb_status nb_backward(nb_tensor *y, nb_tensor *ct, bool accumulate);
NB_API nb_tensor *nb_grad_of(nb_tensor *x); /* lent; NULL, no error: none */
NB_API void nb_grad_clear(nb_tensor *x);

/* The same for bindings: tells of every tensor reached that requires grad. */
typedef void nb_grad_found(void *ctx, nb_tensor *x, nb_tensor *grad);
NB_API nb_status nb_backward_each(int ny, nb_tensor *const *y,
                                  nb_tensor *const *ct, nb_grad_found *found,
                                  void *ctx);

#ifdef __cplusplus
}
#endif
#endif
