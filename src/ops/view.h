/* view.h - what the families of views share, and rules of others may use. */
#ifndef NB_OPS_VIEW_H
#define NB_OPS_VIEW_H

#include "core/point.h"
#include "ops/ops.h"

/* x itself, lent once more. */
nb_tensor *nb_same(nb_tensor *x);

/* Attribute k as a dtype, `none` if it is None; false if there is no such. */
bool nb_arg_dtype(const nb_call *c, int k, nb_dtype none, nb_dtype *d);

/* Calls an op whose results are a list; r->n is 0 on failure. */
nb_status nb_apply_list(nb_op *op, int nin, nb_tensor *const *in, int nval,
                        const nb_value *val, nb_results *r, void *caller);

/* Every step-th element along each axis: `size` of them from `start` on. */
typedef struct nb_window {
    int64_t start[NB_MAX_RANK], size[NB_MAX_RANK], step[NB_MAX_RANK];
} nb_window;

/* All of x. */
nb_window nb_window_of(const nb_tensor *x);

/* Zeros of shape size with x in the window start, step: nb_slice transposed.*/
nb_tensor *nb_embed(nb_tensor *x, const int64_t *start, const int64_t *size,
                    const int64_t *step);

/* Input i as it lies in a window of the result, at a point: at[] is the place in
 * the input; returns whether there is one, NB_NO_VAL if always.  The input has
 * elements. */
nb_val nb_window_at(nb_point *p, int i, const int64_t *start,
                    const int64_t *size, const int64_t *step, nb_val *at);

/* Along the axis, from the front, the n places that `from` names, or zero where
 * it names a negative one.  If they are few and no two the same it is one op
 * that knows them, whose derivatives are of its kind. */
enum { NB_MAX_SELECT = 88 };
nb_tensor *nb_select(nb_tensor *x, int axis, int n, const int64_t *from);

/* `size` places of one axis, from `start` on. */
nb_tensor *nb_narrow(nb_tensor *x, int axis, int64_t start, int64_t size);

/* Visible sizes as messages quote them: "(2, 3)". */
const char *nb_sizes_text(int rank, const int64_t *size);

/* Of n places start + step * i, those i, a range, that lie in a range. */
void nb_places_within(int64_t start, int64_t step, int64_t n,
                      const int64_t *range, int64_t *i);

#endif
