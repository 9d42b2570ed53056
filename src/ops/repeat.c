/* repeat.c - tensors repeated: by element, as a whole, or to a common shape.
 */
#include "ops/view.h"

#include <string.h>

/* repeat, tile */

static int64_t product(const int64_t *size, int from, int to)
{
    int64_t n = 1;
    for (int d = from; d < to; d++)
        n *= size[d];
    return n;
}

/* x n times along an axis: every element (a a b b), or all of them (a b a b).
 * A new axis is made beside it and merged with it; a tensor that has no rank
 * left for one is first seen as of rank three. */
static nb_tensor *times(nb_tensor *x, int axis, int64_t n, bool each)
{
    int64_t final[NB_MAX_RANK], size[NB_MAX_RANK + 1];
    int rank = nb_rank(x), mid = axis;
    if (!x || n == 1) return x;
    nb_sizes(x, final);
    nb_sizes(x, size);
    if (__builtin_mul_overflow(n, final[axis], &final[axis]))
        return nb_fail(NB_EOVERFLOW,
                       "an axis of size %lld repeated %lld "
                       "times is too long",
                       (long long)size[axis], (long long)n);
    int wide = rank;
    if (rank == NB_MAX_RANK) {
        size[0] = product(size, 0, axis);
        size[1] = nb_size(x, axis);
        size[2] = product(final, axis + 1, rank);
        mid = 1;
        wide = 3;
        x = nb_reshape(x, wide, size);
    }
    int at = mid + each;
    memmove(size + at + 1, size + at, (size_t)(wide - at) * sizeof *size);
    size[at] = n;
    x = nb_broadcast_to(nb_unsqueeze(x, at), wide + 1, size);
    return nb_reshape(x, rank, final);
}

static bool repeat_compose(const nb_call *c, nb_results *r)
{
    int64_t n = nb_arg_int(c, 0), axis = nb_arg_int(c, 1);
    nb_tensor *x = c->in[0];
    if (n < 0)
        return nb_fail(NB_EVALUE, "repeat: %lld repeats: at least 0 is needed",
                       (long long)n);
    if (axis == NB_NONE) x = nb_flatten(x, 0, -1);
    x = times(x, axis == NB_NONE ? 0 : (int)axis, n, true);
    return nb_results_add(r, x == c->in[0] ? nb_same(x) : x);
}

nb_op nb_op_repeat = {
    .name = "repeat",
    .doc = "Every element of x repeats times in a row along an axis; without "
           "one, x is flat first.",
    .example = "repeat([[1, 2], [3, 4]], repeats=2, axis=1) = "
               "[[1, 1, 2, 2], [3, 3, 4, 4]]",
    .params = "x, repeats:int, axis:axis=None",
    .kind = NB_COMPOSITE,
    .compose = repeat_compose,
};

nb_tensor *nb_repeat(nb_tensor *x, int64_t repeats, int64_t axis)
{
    nb_value v[] = {NB_V_INT(repeats), NB_V_INT(axis)};
    return nb_apply(&nb_op_repeat, 1, &x, 2, v, NB_CALLER);
}

static bool tile_check(nb_call *c)
{
    int n;
    const int64_t *times_of = nb_arg_list(c, 0, &n);
    if (n < 0 || n > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "tile: %d repetitions: 0 to %d are needed", n,
                       NB_MAX_RANK);
    for (int d = 0; d < n; d++)
        if (times_of[d] < 0)
            return nb_fail(NB_EVALUE, "tile: repetition %lld is negative",
                           (long long)times_of[d]);
    return true;
}

/* Where one of shape and repetitions is shorter, ones stand in front of it. */
static bool tile_compose(const nb_call *c, nb_results *r)
{
    int n, rank = RANK(0);
    const int64_t *times_of = nb_arg_list(c, 0, &n);
    int64_t size[2 * NB_MAX_RANK];
    int lead = n > rank ? n - rank : 0;
    for (int d = 0; d < lead; d++)
        size[d] = 1;
    nb_sizes(c->in[0], size + lead);
    nb_tensor *x = nb_reshape(c->in[0], lead + rank, size);
    for (int d = 0; d < n; d++)
        x = times(x, lead + rank - n + d, times_of[d], false);
    return nb_results_add(r, x);
}

nb_op nb_op_tile = {
    .name = "tile",
    .doc = "x as a whole repeated along each axis; repetitions count for the "
           "last axes, and make new ones if there are more.",
    .example = "tile([[1, 2], [3, 4]], repetitions=(2, 1, 2)) = "
               "[[[1, 2, 1, 2], [3, 4, 3, 4]], [[1, 2, 1, 2], [3, 4, 3, 4]]]",
    .params = "x, repetitions:ints",
    .check = tile_check,
    .kind = NB_COMPOSITE,
    .compose = tile_compose,
};

nb_tensor *nb_tile(nb_tensor *x, int n, const int64_t *repetitions)
{
    nb_value v[] = {NB_V_LIST(n, repetitions)};
    return nb_apply(&nb_op_tile, 1, &x, 1, v, NB_CALLER);
}

/* meshgrid */

static bool meshgrid_check(nb_call *c)
{
    const char *how = nb_arg_text(c, 0);
    if (!how || (strcmp(how, "xy") != 0 && strcmp(how, "ij") != 0))
        return nb_fail(NB_EVALUE,
                       "meshgrid: indexing \"%s\" is neither \"xy\" nor "
                       "\"ij\"",
                       how ? how : "None");
    if (c->nin > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "meshgrid: %d arrays: at most %d make a grid",
                       c->nin, NB_MAX_RANK);
    for (int i = 0; i < c->nin; i++)
        if (RANK(i) > 1)
            return nb_fail(NB_EVALUE,
                           "meshgrid: array %d has rank %d: vectors are "
                           "needed",
                           i, RANK(i));
    return true;
}

static bool meshgrid_compose(const nb_call *c, nb_results *r)
{
    int64_t grid[NB_MAX_RANK], one[NB_MAX_RANK];
    bool turned = nb_arg_text(c, 0)[0] == 'x' && c->nin > 1;
    for (int i = 0; i < c->nin; i++)
        grid[turned && i < 2 ? 1 - i : i] = nb_elements(c->in[i]);
    for (int i = 0; i < c->nin; i++) {
        int d = turned && i < 2 ? 1 - i : i;
        for (int k = 0; k < c->nin; k++)
            one[k] = k == d ? grid[d] : 1;
        nb_tensor *line = nb_reshape(c->in[i], c->nin, one);
        if (!nb_results_add(r, nb_broadcast_to(line, c->nin, grid)))
            return false;
    }
    return true;
}

nb_op nb_op_meshgrid = {
    .name = "meshgrid",
    .doc = "The coordinates of a grid, from vectors: as many tensors, each of "
           "the shape of the grid.  With indexing \"ij\" vector k runs along "
           "axis k; with \"xy\" the first two are in each other's place.",
    .example = "meshgrid(([1, 2], [3, 4, 5]), indexing=\"xy\") = "
               "[[1, 2], [1, 2], [1, 2]], [[3, 3], [4, 4], [5, 5]]",
    .params = "arrays:tensors, indexing:text=\"xy\"",
    .check = meshgrid_check,
    .nout = -1,
    .kind = NB_COMPOSITE,
    .compose = meshgrid_compose,
};

nb_status nb_meshgrid(int n, nb_tensor *const *arrays, const char *indexing,
                      nb_tensor **out)
{
    nb_value v[] = {NB_V_TEXT(indexing)};
    nb_results r = {.room = n, .out = out};
    return nb_apply_list(&nb_op_meshgrid, n, arrays, 1, v, &r, NB_CALLER);
}

/* broadcast_arrays */

static bool widen(const nb_call *c, int i, int rank, int64_t *size)
{
    int lead = rank - RANK(i);
    for (int d = lead; d < rank; d++) {
        int64_t n = SIZE(i, d - lead);
        if (size[d] == 1) size[d] = n;
        if (size[d] == n || n == 1) continue;
        nb_shape s = nb_tensor_shape(c->in[i]);
        return nb_fail(NB_EVALUE,
                       "broadcast_arrays: shape %s does not broadcast with "
                       "%s of the others",
                       nb_shape_text(&s), nb_sizes_text(rank, size));
    }
    return true;
}

static bool broadcast_arrays_compose(const nb_call *c, nb_results *r)
{
    int64_t size[NB_MAX_RANK];
    int rank = 0;
    for (int i = 0; i < c->nin; i++)
        if (RANK(i) > rank) rank = RANK(i);
    for (int d = 0; d < rank; d++)
        size[d] = 1;
    for (int i = 0; i < c->nin; i++)
        if (!widen(c, i, rank, size)) return false;
    for (int i = 0; i < c->nin; i++)
        if (!nb_results_add(r, nb_broadcast_to(c->in[i], rank, size)))
            return false;
    return true;
}

nb_op nb_op_broadcast_arrays = {
    .name = "broadcast_arrays",
    .doc = "Each tensor repeated to the shape that all of them broadcast to.",
    .example = "broadcast_arrays(([[1], [2]], [3, 4, 5])) = "
               "[[1, 1, 1], [2, 2, 2]], [[3, 4, 5], [3, 4, 5]]",
    .params = "arrays:tensors",
    .nout = -1,
    .kind = NB_COMPOSITE,
    .compose = broadcast_arrays_compose,
};

nb_status nb_broadcast_arrays(int n, nb_tensor *const *arrays, nb_tensor **out)
{
    nb_results r = {.room = n, .out = out};
    return nb_apply_list(&nb_op_broadcast_arrays, n, arrays, 0, NULL, &r,
                         NB_CALLER);
}
