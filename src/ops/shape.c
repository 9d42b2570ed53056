/* shape.c - reshape and permute under the names of their uses. */
#include "ops/view.h"

#include <string.h>

/* flatten */

/* A scalar counts as one axis, which is what it becomes. */
static bool flatten_axis(const nb_call *c, int k, const char *name, int *axis)
{
    int rank = RANK(0) ? RANK(0) : 1;
    int64_t d = nb_arg_int(c, k);
    if (d < -rank || d >= rank)
        return nb_fail(NB_EAXIS, "flatten: %s %lld is out of range for rank %d",
                       name, (long long)d, RANK(0));
    *axis = (int)(d < 0 ? d + rank : d);
    return true;
}

static bool flatten_compose(const nb_call *c, nb_results *r)
{
    int from = 0, to = 0, rank = RANK(0);
    int64_t size[NB_MAX_RANK] = {1};
    if (!flatten_axis(c, 0, "start_dim", &from) ||
        !flatten_axis(c, 1, "end_dim", &to))
        return false;
    if (from > to)
        return nb_fail(NB_EVALUE,
                       "flatten: start_dim %d comes after end_dim %d", from,
                       to);
    nb_sizes(c->in[0], size);
    for (int d = from + 1; d <= to; d++)
        size[from] *= size[d];
    for (int d = to + 1; d < rank; d++)
        size[d - to + from] = size[d];
    return nb_results_add(
        r, nb_reshape(c->in[0], (rank ? rank : 1) - (to - from), size));
}

nb_op nb_op_flatten = {
    .name = "flatten",
    .doc = "The axes from start_dim to end_dim made one; a scalar becomes a "
           "vector of one element.",
    .example = "flatten([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], start_dim=1) = "
               "[[1, 2, 3, 4], [5, 6, 7, 8]]",
    .params = "x, start_dim:int=0, end_dim:int=-1",
    .kind = NB_COMPOSITE,
    .compose = flatten_compose,
};

nb_tensor *nb_flatten(nb_tensor *x, int64_t start_dim, int64_t end_dim)
{
    nb_value v[] = {NB_V_INT(start_dim), NB_V_INT(end_dim)};
    return nb_apply(&nb_op_flatten, 1, &x, 2, v, NB_CALLER);
}

/* rebind */

static bool rebind_check(nb_call *c)
{
    int n;
    const int64_t *shape = nb_arg_list(c, 0, &n);
    nb_shape s = nb_tensor_shape(c->in[0]);
    bool same = n == s.rank;
    for (int d = 0; same && d < n; d++)
        same = nb_extent_is(s.size[d], shape[d]);
    return same || nb_fail(NB_EVALUE, "rebind: shape is %s, not %s",
                           nb_shape_text(&s), nb_sizes_text(n, shape));
}

COMPOSE(rebind, nb_same(c->in[0]))

nb_op nb_op_rebind = {
    .name = "rebind",
    .doc = "x itself, after a check that it has the given shape.",
    .example = "rebind([[1, 2, 3]], shape=(1, 3)) = [[1, 2, 3]]",
    .params = "x, shape:ints",
    .check = rebind_check,
    .kind = NB_COMPOSITE,
    .compose = rebind_compose,
};

nb_tensor *nb_rebind(nb_tensor *x, int rank, const int64_t *shape)
{
    nb_value v[] = {NB_V_LIST(rank, shape)};
    return nb_apply(&nb_op_rebind, 1, &x, 1, v, NB_CALLER);
}

/* unsqueeze, squeeze */

static bool unsqueeze_compose(const nb_call *c, nb_results *r)
{
    int64_t size[NB_MAX_RANK + 1], axis = nb_arg_int(c, 0);
    nb_sizes(c->in[0], size);
    memmove(size + axis + 1, size + axis,
            (size_t)(RANK(0) - axis) * sizeof *size);
    size[axis] = 1;
    return nb_results_add(r, nb_reshape(c->in[0], RANK(0) + 1, size));
}

nb_op nb_op_unsqueeze = {
    .name = "unsqueeze",
    .doc = "x with a new axis of size one, which has number axis in the "
           "result.",
    .example = "unsqueeze([[1, 2, 3], [4, 5, 6]], axis=1) = "
               "[[[1, 2, 3]], [[4, 5, 6]]]",
    .params = "x, axis:newaxis=0",
    .kind = NB_COMPOSITE,
    .compose = unsqueeze_compose,
};

static bool is_squeezed(const nb_call *c, int axis)
{
    int n;
    const int64_t *axes = nb_arg_list(c, 0, &n);
    bool is = n < 0 && SIZE(0, axis) == 1;
    for (int k = 0; k < n; k++)
        is = is || axes[k] == axis;
    return is;
}

static bool squeeze_compose(const nb_call *c, nb_results *r)
{
    int64_t size[NB_MAX_RANK];
    int n = 0;
    for (int d = 0; d < RANK(0); d++) {
        if (!is_squeezed(c, d))
            size[n++] = SIZE(0, d);
        else if (SIZE(0, d) != 1)
            return nb_fail(NB_EVALUE,
                           "squeeze: axis %d has size %lld: only an axis of "
                           "size 1 can go",
                           d, (long long)SIZE(0, d));
    }
    return nb_results_add(r, nb_reshape(c->in[0], n, size));
}

nb_op nb_op_squeeze = {
    .name = "squeeze",
    .doc = "x without the given axes, which must have size one; None: "
           "without all axes of size one.",
    .example = "squeeze([[[1], [2]]], axis=(0, -1)) = [1, 2]",
    .params = "x, axis:axes?=0",
    .kind = NB_COMPOSITE,
    .compose = squeeze_compose,
};

nb_tensor *nb_squeeze(nb_tensor *x, int n, const int64_t *axes)
{
    nb_value all = NB_V_NONE, some = NB_V_LIST(n, axes);
    return nb_apply(&nb_op_squeeze, 1, &x, 1, n < 0 ? &all : &some, NB_CALLER);
}

/* swap_axes, moveaxis */

static bool swap_axes_compose(const nb_call *c, nb_results *r)
{
    int64_t order[NB_MAX_RANK], a = nb_arg_int(c, 0), b = nb_arg_int(c, 1);
    for (int d = 0; d < RANK(0); d++)
        order[d] = d;
    order[a] = b;
    order[b] = a;
    return nb_results_add(r, nb_permute(c->in[0], RANK(0), order));
}

nb_op nb_op_swap_axes = {
    .name = "swap_axes",
    .doc = "x with two axes in each other's place.",
    .example = "swap_axes([[1, 2, 3], [4, 5, 6]], axis1=0, axis2=1) = "
               "[[1, 4], [2, 5], [3, 6]]",
    .params = "x, axis1:axis, axis2:axis",
    .kind = NB_COMPOSITE,
    .compose = swap_axes_compose,
};

nb_tensor *nb_swap_axes(nb_tensor *x, int64_t axis1, int64_t axis2)
{
    nb_value v[] = {NB_V_INT(axis1), NB_V_INT(axis2)};
    return nb_apply(&nb_op_swap_axes, 1, &x, 2, v, NB_CALLER);
}

static bool moveaxis_check(nb_call *c)
{
    int n, m;
    nb_arg_list(c, 0, &n);
    nb_arg_list(c, 1, &m);
    return (n == m && n >= 0) ||
           nb_fail(NB_EVALUE,
                   "moveaxis: %d axes to %d places: every axis needs a place",
                   n < 0 ? 0 : n, m < 0 ? 0 : m);
}

/* Axes that are not named keep their order in the places that are left. */
static bool moveaxis_compose(const nb_call *c, nb_results *r)
{
    int n, m, rank = RANK(0), next = 0;
    const int64_t *from = nb_arg_list(c, 0, &n), *to = nb_arg_list(c, 1, &m);
    int64_t order[NB_MAX_RANK];
    bool moved[NB_MAX_RANK] = {false}, taken[NB_MAX_RANK] = {false};
    for (int k = 0; k < n; k++) {
        order[to[k]] = from[k];
        taken[to[k]] = moved[from[k]] = true;
    }
    for (int d = 0; d < rank; d++) {
        if (taken[d]) continue;
        while (moved[next])
            next++;
        order[d] = next++;
    }
    return nb_results_add(r, nb_permute(c->in[0], rank, order));
}

nb_op nb_op_moveaxis = {
    .name = "moveaxis",
    .doc = "x with the source axes at the destination places; the others "
           "keep their order.",
    .example = "moveaxis([[[1, 2, 3], [4, 5, 6]]], source=(0,), "
               "destination=(-1,)) = [[[1], [2], [3]], [[4], [5], [6]]]",
    .params = "x, source:axes, destination:axes",
    .check = moveaxis_check,
    .kind = NB_COMPOSITE,
    .compose = moveaxis_compose,
};

nb_tensor *nb_moveaxis(nb_tensor *x, int n, const int64_t *source,
                       const int64_t *destination)
{
    nb_value v[] = {NB_V_LIST(n, source), NB_V_LIST(n, destination)};
    return nb_apply(&nb_op_moveaxis, 1, &x, 2, v, NB_CALLER);
}

/* Complex numbers as pairs of real ones.  (..., n, 2) lists them as pairs,
 * (..., 2 n) writes each real part before its imaginary part. */

static bool as_interleaved_complex_compose(const nb_call *c, nb_results *r)
{
    int64_t size[NB_MAX_RANK];
    int rank = RANK(0);
    nb_shape s = nb_tensor_shape(c->in[0]);
    nb_sizes(c->in[0], size);
    if (rank == 0 || size[rank - 1] != 2)
        return nb_fail(NB_EVALUE,
                       "as_interleaved_complex: shape %s does not end in 2, a "
                       "real and an imaginary part",
                       nb_shape_text(&s));
    if (rank > 1) size[rank - 2] *= 2;
    return nb_results_add(r,
                          nb_reshape(c->in[0], rank > 1 ? rank - 1 : 1, size));
}

nb_op nb_op_as_interleaved_complex = {
    .name = "as_interleaved_complex",
    .doc = "Pairs of real and imaginary parts along the last axis, written "
           "one after the other along the axis before: (..., n, 2) becomes "
           "(..., 2 n), of the same real dtype; one pair alone stays as it "
           "is.",
    .example = "as_interleaved_complex([[[1, 2], [3, 4]]]) = [[1, 2, 3, 4]]",
    .params = "x",
    .kind = NB_COMPOSITE,
    .compose = as_interleaved_complex_compose,
};

static bool view_as_real_interleaved_compose(const nb_call *c, nb_results *r)
{
    int64_t size[NB_MAX_RANK + 1];
    int rank = RANK(0);
    nb_shape s = nb_tensor_shape(c->in[0]);
    nb_sizes(c->in[0], size);
    if (rank == 0 || size[rank - 1] % 2)
        return nb_fail(NB_EVALUE,
                       "view_as_real_interleaved: the last axis of %s does "
                       "not have an even size, for pairs of real and "
                       "imaginary parts",
                       nb_shape_text(&s));
    size[rank - 1] /= 2;
    size[rank] = 2;
    return nb_results_add(r, nb_reshape(c->in[0], rank + 1, size));
}

nb_op nb_op_view_as_real_interleaved = {
    .name = "view_as_real_interleaved",
    .doc = "Real and imaginary parts that are written one after the other "
           "along the last axis, as pairs along a new one: (..., 2 n) becomes "
           "(..., n, 2), of the same dtype.",
    .example = "view_as_real_interleaved([[1, 2, 3, 4]]) = "
               "[[[1, 2], [3, 4]]]",
    .params = "x",
    .kind = NB_COMPOSITE,
    .compose = view_as_real_interleaved_compose,
};
