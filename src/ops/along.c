/* along.c - one element for each index, along one axis.
 *
 * The primitives work on the last axis, so that all others broadcast behind
 * "...".  Indices out of range name the nearest element in both, which makes
 * them each other's transposes. */
#include "ops/index.h"

static const nb_pick last = {.n = 1, .axes = (int64_t[]){0}, .clamp = true};

static bool some_check(nb_call *c)
{
    if (nb_size(c->in[0], -1) != 0 || nb_elements(c->in[1]) == 0) return true;
    return nb_fail(NB_EINDEX, "%s: the axis has no elements to pick from",
                   c->op->name);
}

static nb_tensor *take(nb_tensor *x, nb_tensor *indices)
{
    nb_tensor *in[] = {x, indices};
    return nb_apply(&nb_op_take_along, 2, in, 0, NULL, NB_CALLER);
}

static nb_tensor *put(nb_tensor *x, nb_tensor *indices, nb_tensor *updates)
{
    nb_tensor *in[] = {x, updates, indices};
    return nb_apply(&nb_op_put_along, 3, in, 0, NULL, NB_CALLER);
}

static bool take_kernel(const nb_kernel *k)
{
    return nb_index_read(k, &last);
}

/* Axes before the last stand under those of the result, from the right. */
static bool take_point(nb_point *p, const nb_call *c, nb_val *y)
{
    nb_val at[NB_MAX_RANK], when = NB_NO_VAL;
    int last_axis = RANK(0) - 1, more = p->rank - RANK(0);
    for (int d = 0; d < last_axis; d++)
        at[d] = SIZE(0, d) == 1 ? nb_p_number(p, NB_I64, 0)
                                : nb_p_along(p, d + more, 0, 1);
    at[last_axis] = nb_index_at(p, 1, SIZE(0, last_axis), true, &when);
    *y = nb_p_read_at(p, 0, (nb_dtype)c->in[0]->dtype, at, when);
    return true;
}

TRANSPOSE(take_along, put(nb_fill_like(c->in[0], 0), c->in[1], ct))

static nb_tensor *here_or_zero(nb_tensor *x, nb_tensor *at,
                               const nb_index_axis *a)
{
    if (!x) return NULL;
    return nb_where(nb_less(at, nb_count(a->size)), x,
                    nb_scalar_float(0, nb_dtype_of(x)));
}

/* Of a block: zero for elements that other devices have. */
static nb_tensor *take_local(const nb_call *c, const nb_blocks *b)
{
    nb_index_axis a = nb_index_axis_of(c, b, RANK(0) - 1);
    if (a.size == a.whole) return take(b->in[0], b->in[1]);
    nb_tensor *at = nb_index_into(b, b->in[1], &a, true);
    return here_or_zero(take(b->in[0], at), at, &a);
}

nb_op nb_op_take_along = {
    .name = "take_along",
    .doc = "take_along_axis of the last axis.",
    .example = "take_along([[1, 2, 3], [4, 5, 6]], [[2, -3, 7, 2]]) = "
               "[[3, 1, 3, 3], [6, 4, 6, 6]]",
    .params = "x, indices",
    .sig = "... v, ... i -> ... i; mask{v}",
    .check = some_check,
    .kind = NB_LINEAR,
    .index = 2,
    .picks = true,
    .kernel = take_kernel,
    .point = take_point,
    .transpose = take_along_transpose,
    .splits = 1u << NB_MASK,
    .local = take_local,
};

static bool put_kernel(const nb_kernel *k)
{
    return nb_index_write(k, &last, NB_PUT_ADD);
}

/* Of one update a row, each element asks whether it is meant. */
static bool put_point(nb_point *p, const nb_call *c, nb_val *y)
{
    nb_dtype d = (nb_dtype)c->in[0]->dtype;
    int64_t n = nb_size(c->in[0], -1);
    nb_val when = NB_NO_VAL, zero = nb_p_number(p, d, 0);
    if (nb_size(c->in[2], -1) != 1 || n == 0) return false;
    nb_val at = nb_index_at(p, 2, n, true, &when);
    nb_val here = nb_p_along(p, p->rank - 1, 0, 1);
    if (n <= INT32_MAX) {
        at = nb_p_convert(p, at, NB_I32);
        here = nb_p_convert(p, here, NB_I32);
    }
    nb_val u = nb_p_scalar(p, NB_S_select, nb_p_two(p, NB_S_eq, at, here),
                           nb_p_read(p, 1, d), zero);
    *y = nb_p_two(p, NB_S_add, nb_p_read(p, 0, d), u);
    return true;
}

TRANSPOSE(put_along, i == 0 ? ct : take(ct, c->in[2]))

static nb_tensor *put_local(const nb_call *c, const nb_blocks *b)
{
    nb_index_axis a = nb_index_axis_of(c, b, RANK(0) - 1);
    if (a.size == a.whole) return put(b->in[0], b->in[2], b->in[1]);
    nb_tensor *at = nb_index_into(b, b->in[2], &a, true);
    return put(b->in[0], at, here_or_zero(b->in[1], at, &a));
}

nb_op nb_op_put_along = {
    .name = "put_along",
    .doc = "x with updates added along the last axis, each where its index "
           "says: take_along transposed.",
    .example = "put_along([1, 2, 3], [[10, 20, 30, 40], [50, 60, 70, 80]], "
               "[[2, -3, 7, 2]]) = [[21, 2, 83], [61, 2, 203]]",
    .params = "x, updates, indices",
    .sig = "... v, ... i, ... i -> ... v; mask{v}",
    .check = some_check,
    .kind = NB_LINEAR,
    .in = NB_IN_COMMON,
    .index = 4,
    .kernel = put_kernel,
    .point = put_point,
    .transpose = put_along_transpose,
    .splits = 1u << NB_MASK,
    .local = put_local,
};

static nb_tensor *move_axis(nb_tensor *x, int from, int to)
{
    int64_t order[NB_MAX_RANK];
    int rank = nb_rank(x), n = 0;
    for (int d = 0; d < rank; d++) {
        if (n == from) n++;
        order[d] = d == to ? from : n++;
    }
    return from == to ? x : nb_permute(x, rank, order);
}

static bool rank_check(nb_call *c)
{
    if (RANK(0) == RANK(1)) return true;
    return nb_fail(NB_EVALUE,
                   "take_along_axis: indices of rank %d for x of rank %d: the "
                   "same rank is needed",
                   RANK(1), RANK(0));
}

static nb_tensor *take_along_axis(const nb_call *c)
{
    int axis = (int)nb_arg_int(c, 0), end = RANK(0) - 1;
    return move_axis(
        take(move_axis(c->in[0], axis, end), move_axis(c->in[1], axis, end)),
        end, axis);
}

COMPOSE(take_along_axis, take_along_axis(c))

nb_op nb_op_take_along_axis = {
    .name = "take_along_axis",
    .doc = "One element for each of the indices, which say where along the "
           "axis; along the others x and indices broadcast.  Negative indices "
           "count from the end, those out of range read the nearest.",
    .example = "take_along_axis([[1, 2, 3], [4, 5, 6]], "
               "[[0, 1, 1], [-1, 0, 0], [1, 1, 1]], axis=0) = "
               "[[1, 5, 6], [4, 2, 3], [4, 5, 6]]",
    .params = "x, indices, axis:axis=-1",
    .check = rank_check,
    .kind = NB_COMPOSITE,
    .index = 2,
    .compose = take_along_axis_compose,
};

nb_tensor *nb_take_along_axis(nb_tensor *x, nb_tensor *indices, int64_t axis)
{
    nb_tensor *in[] = {x, indices};
    return nb_apply(&nb_op_take_along_axis, 2, in, 1, &(nb_value)NB_V_INT(axis),
                    NB_CALLER);
}

nb_tensor *nb_put_along_axis_add(nb_tensor *x, nb_tensor *indices,
                                 nb_tensor *updates, int64_t axis)
{
    int end = nb_rank(x) - 1, from = (int)(axis < 0 ? axis + end + 1 : axis);
    if (!x || !indices || !updates) return NULL;
    return move_axis(put(move_axis(x, from, end), move_axis(indices, from, end),
                         move_axis(updates, from, end)),
                     end, from);
}
