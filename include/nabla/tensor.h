/* nabla/tensor.h - tensors: making them, asking about them, reading them.
 *
 * A tensor is immutable and lazy.  Calling an op checks its arguments and
 * fixes shape and dtype at once; the data is computed when somebody asks
 * (nb_realize, nb_read, nb_item).  Tensors are reference counted:
 *
 *   - A tensor that a function returns is lent by the innermost open scope of
 *     the thread: use it in expressions and forget it, it goes when the scope
 *     closes.
 *   - What you want longer you nb_keep, and later nb_drop.
 *
 * NULL as an argument means that an earlier step failed (see nabla/base.h). */
#ifndef NABLA_TENSOR_H
#define NABLA_TENSOR_H

#include "nabla/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nb_tensor nb_tensor;

/* Scopes nest.  Closing one drops what it lent; the `n` results, if any, are
 * lent on by the scope around it (or kept for you if there is none: drop them
 * yourself).  The innermost must be closed first. */
NB_API nb_status nb_scope_open(void);
NB_API void nb_scope_close(int n, nb_tensor **results);

/* One more reference; returns x.  NULL is fine. */
NB_API nb_tensor *nb_keep(nb_tensor *x);

/* One reference less; the last frees it.  NULL is fine. */
NB_API void nb_drop(nb_tensor *x);

/* Gives a reference of yours to the innermost scope, which lends it back: x. */
NB_API nb_tensor *nb_give(nb_tensor *x);

/* A tensor with a copy of the data, row-major; any byte but 0 is a true bool. */
NB_API nb_tensor *nb_constant(nb_dtype dtype, int rank, const int64_t *shape,
                              const void *data);

/* A tensor over memory of the caller, strides in elements (NULL: row-major).
 * `release(owner)` is called, on any thread, when no tensor needs it any
 * more; the memory must not change until then.  Each bool in it is 0 or 1. */
NB_API nb_tensor *nb_borrow(nb_dtype dtype, int rank, const int64_t *shape,
                            const int64_t *strides, void *data,
                            void (*release)(void *owner), void *owner);

/* 0-d tensors of a given dtype. */
NB_API nb_tensor *nb_scalar_float(double value, nb_dtype dtype);
NB_API nb_tensor *nb_scalar_int(int64_t value, nb_dtype dtype);

/* Numbers in an expression: they take the dtype of the tensor they meet, so
 * that nb_mul(x, nb_num(2)) has x's dtype.  nb_num counts as a float, nb_count
 * as an int, nb_truth as a bool. */
NB_API nb_tensor *nb_num(double value);
NB_API nb_tensor *nb_count(int64_t value);
NB_API nb_tensor *nb_truth(bool value);

/* The dtype in which n operands of an op would combine; NB_NOTYPE with an error
 * if they do not. */
NB_API nb_dtype nb_dtype_common(int n, nb_tensor *const *x);

NB_API int nb_rank(const nb_tensor *x);
NB_API nb_dtype nb_dtype_of(const nb_tensor *x);
NB_API int64_t nb_size(const nb_tensor *x,
                       int axis);               /* negative from the end */
NB_API int64_t nb_elements(const nb_tensor *x); /* visible ones */
NB_API void nb_sizes(const nb_tensor *x, int64_t *sizes); /* rank of them */

/* Hidden axes, outermost vmap first: how many, and their sizes. */
NB_API int nb_hidden(const nb_tensor *x);
NB_API void nb_hidden_sizes(const nb_tensor *x, int64_t *sizes);

NB_API bool nb_is_realized(const nb_tensor *x);
NB_API bool nb_is_leaf(const nb_tensor *x); /* no recorded op made it */
NB_API bool nb_is_weak(const nb_tensor *x); /* nb_num, nb_count, nb_truth */

/* Traced tensors keep how they were made after they are realised, and so does
 * everything computed from them. */
NB_API bool nb_is_traced(const nb_tensor *x);
NB_API void nb_set_traced(nb_tensor *x, bool traced);

/* Computes x, or all of them in one go.  Blocks. */
NB_API nb_status nb_realize(nb_tensor *x);
NB_API nb_status nb_realize_all(int n, nb_tensor *const *x);

/* The data of x, realised: a pointer to its first element and the strides of
 * its visible axes in elements (strides may be NULL).  Valid while x is; of a
 * tensor on a card it is a copy, valid while the scope is open.
 * NULL with an error if x cannot be computed or has hidden axes. */
NB_API const void *nb_data(nb_tensor *x, int64_t *strides);

/* Copies x, realised, to `to` in row-major order: nb_elements(x) elements of
 * dtype `as` (NB_NOTYPE: x's own). */
NB_API nb_status nb_read(nb_tensor *x, nb_dtype as, void *to);

/* The value of a tensor of one element; NaN with an error otherwise. */
NB_API double nb_item(nb_tensor *x);

/* The same data without history. */
NB_API nb_tensor *nb_detach(nb_tensor *x);

/* The name of the op that made x and the user's place that called it, "" and
 * "" for leaves: "file.py:12" from Python, a function name from C. */
NB_API const char *nb_op_name_of(const nb_tensor *x);
NB_API const char *nb_source_of(const nb_tensor *x);

/* What nodes recorded by this thread name as their source from now on; file
 * must live on.  NULL: back to the calling C function. */
NB_API void nb_source_set(const char *file, int line);

/* This line of C, from here on: (NB_HERE, nb_sin(x)). */
#define NB_HERE nb_source_set(__FILE__, __LINE__)

/* x as it prints: "Tensor([1. 2. 3.] : f32[3])".  Realises x.  The text is
 * yours: nb_text_release.  NULL on failure. */
NB_API char *nb_tensor_text(nb_tensor *x);
NB_API void nb_text_release(char *text);

/* Bytes of tensor data in use, the most since the last reset, and what the cache
 * of blocks gives back. */
NB_API size_t nb_memory_in_use(void);
NB_API size_t nb_memory_peak(void);
NB_API void nb_memory_peak_reset(void);
NB_API void nb_memory_trim(void);

#ifdef __cplusplus
}
#endif
#endif
