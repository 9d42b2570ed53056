/* index.c - picking elements by index tensors, and placing them.
 *
 * "a b c, A B -> a A B c; mask{b}" reads from table a b c: small letters are
 * the table's axes, capitals those of the indices.  Reading with indices that
 * drop what is out of range and adding with the same are each other's
 * transposes, and so are both with indices held in range. */
#include "ops/index.h"

#include "ops/view.h"

#include <string.h>

/* Indices begin after the table, or after table and list. */
nb_pick nb_pick_of(const nb_call *c)
{
    int first = c->op == &nb_op_index ? 1 : 2;
    nb_pick p = {.index = c->in + first};
    p.axes = nb_arg_list(c, 0, &p.n);
    p.at = nb_arg_int(c, 1);
    p.clamp = nb_arg_int(c, 2);
    return p;
}

bool nb_index_check(nb_call *c)
{
    int first = c->op == &nb_op_index ? 1 : 2;
    nb_pick p = nb_pick_of(c);
    const char *who = c->op->name;
    if (c->nin <= first || p.n != c->nin - first)
        return nb_fail(NB_EVALUE, "%s: %d axes for %d index tensors", who, p.n,
                       c->nin - first);
    if (p.at < 0 || p.at > RANK(0) - p.n)
        return nb_fail(NB_EVALUE, "%s: place %lld among %d axes", who,
                       (long long)p.at, RANK(0) - p.n);
    for (int k = 0; p.clamp && k < p.n; k++)
        if (SIZE(0, p.axes[k]) == 0 && nb_elements(p.index[k]) > 0)
            return nb_fail(NB_EINDEX,
                           "%s: axis %lld has no elements to pick from", who,
                           (long long)p.axes[k]);
    return true;
}

static bool is_picked(const nb_pick *p, int axis)
{
    bool is = false;
    for (int k = 0; k < p->n; k++)
        is = is || p->axes[k] == axis;
    return is;
}

static void sign_table(nb_text *t, int rank)
{
    for (int d = 0; d < rank; d++)
        nb_text_add(t, " %c", 'a' + d);
}

void nb_sign_points(nb_text *t, const nb_tensor *index)
{
    for (int d = 0; d < index->rank; d++)
        nb_text_add(t, " %c", 'A' + d);
}

static void sign_list(nb_text *t, const nb_pick *p, int rank)
{
    int kept = 0;
    for (int d = 0; d < rank; d++) {
        if (is_picked(p, d)) continue;
        if (kept++ == p->at) nb_sign_points(t, p->index[0]);
        nb_text_add(t, " %c", 'a' + d);
    }
    if (kept == p->at) nb_sign_points(t, p->index[0]);
}

static void sign_indices(nb_text *t, const nb_pick *p)
{
    for (int k = 0; k < p->n; k++) {
        nb_text_add(t, ",");
        nb_sign_points(t, p->index[0]);
    }
}

static bool sign_mask(nb_text *t, const nb_pick *p)
{
    nb_text_add(t, "; mask{");
    for (int k = 0; k < p->n; k++)
        nb_text_add(t, " %c", 'a' + (int)p->axes[k]);
    return nb_text_add(t, "}");
}

static bool index_sign(const nb_call *c, nb_text *t)
{
    nb_pick p = nb_pick_of(c);
    sign_table(t, RANK(0));
    sign_indices(t, &p);
    nb_text_add(t, " ->");
    sign_list(t, &p, RANK(0));
    return sign_mask(t, &p);
}

/* Points are needed whole: each may write anywhere, and the last one stays.
 * Those that add up may be added in parts. */
bool nb_place_sign(const nb_call *c, nb_text *t)
{
    nb_pick p = nb_pick_of(c);
    sign_table(t, RANK(0));
    nb_text_add(t, ",");
    sign_list(t, &p, RANK(0));
    sign_indices(t, &p);
    nb_text_add(t, " ->");
    sign_table(t, RANK(0));
    sign_mask(t, &p);
    if (p.index[0]->rank == 0 || c->op == &nb_op_index_add) return true;
    nb_text_add(t, ", replicate{");
    nb_sign_points(t, p.index[0]);
    return nb_text_add(t, "}");
}

static nb_tensor *call(nb_op *op, int nin, nb_tensor **in, const nb_pick *p)
{
    nb_value v[] = {NB_V_LIST(p->n, p->axes), NB_V_INT(p->at),
                    NB_V_INT(p->clamp)};
    memcpy(in + nin, p->index, (size_t)p->n * sizeof *in);
    return nb_apply(op, nin + p->n, in, 3, v, NB_CALLER);
}

nb_tensor *nb_index(nb_tensor *x, const nb_pick *p)
{
    nb_tensor *in[NB_MAX_RANK + 1] = {x};
    return call(&nb_op_index, 1, in, p);
}

nb_tensor *nb_place(nb_op *op, nb_tensor *x, nb_tensor *u, const nb_pick *p)
{
    nb_tensor *in[NB_MAX_RANK + 2] = {x, u};
    return call(op, 2, in, p);
}

/* y = table picked: what was read from one element comes back to it, added up.
 */
static nb_tensor *index_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    nb_pick p = nb_pick_of(c);
    (void)i;
    return nb_place(&nb_op_index_add, nb_fill_like(c->in[0], 0), ct, &p);
}

/* An unsigned index beyond int64 is out of range, not negative. */
static nb_val read_index(nb_point *p, int i)
{
    nb_dtype d = (nb_dtype)p->call->in[i]->dtype;
    nb_val x = nb_p_read(p, i, d);
    if (d == NB_U64)
        x = nb_p_two(p, NB_S_min, x, nb_p_number(p, NB_U64, INT64_MAX));
    return nb_p_convert(p, x, NB_I64);
}

nb_val nb_index_at(nb_point *p, int i, int64_t n, bool clamp, nb_val *when)
{
    nb_val zero = nb_p_number(p, NB_I64, 0),
           last = nb_p_number(p, NB_I64, n - 1);
    nb_val x = read_index(p, i);
    nb_val end = nb_p_two(p, NB_S_add, x, nb_p_number(p, NB_I64, n));
    x = nb_p_scalar(p, NB_S_select, nb_p_two(p, NB_S_lt, x, zero), end, x);
    nb_val near = nb_p_two(p, NB_S_min, x, last);
    near = nb_p_two(p, NB_S_max, near, zero);
    if (!clamp) *when = nb_p_both(p, *when, nb_p_two(p, NB_S_eq, x, near));
    return near;
}

static bool index_point(nb_point *p, const nb_call *c, nb_val *y)
{
    nb_pick pick = nb_pick_of(c);
    nb_val at[NB_MAX_RANK], when = NB_NO_VAL;
    int points = pick.index[0]->rank, kept = 0;
    bool empty = false;
    for (int d = 0; d < RANK(0); d++)
        if (!is_picked(&pick, d)) {
            int to = kept < pick.at ? kept : kept + points;
            at[d] = nb_p_along(p, to, 0, 1);
            kept++;
        }
    for (int k = 0; k < pick.n; k++)
        empty = empty || SIZE(0, pick.axes[k]) == 0;
    if (empty) {
        *y = nb_p_number(p, (nb_dtype)c->in[0]->dtype, 0);
        return true;
    }
    for (int k = 0; k < pick.n; k++)
        at[pick.axes[k]] =
            nb_index_at(p, 1 + k, SIZE(0, pick.axes[k]), pick.clamp, &when);
    *y = nb_p_read_at(p, 0, (nb_dtype)c->in[0]->dtype, at, when);
    return true;
}

static bool index_kernel(const nb_kernel *k)
{
    nb_pick p = nb_pick_of(k->call);
    return nb_index_read(k, &p);
}

nb_op nb_op_index = {
    .name = "index",
    .doc = "Elements of the first tensor picked along `axes` by the others, "
           "which are indices of one shape, one for each of those axes; their "
           "axes stand together before axis `at` of those that are left.  "
           "Out of range, the nearest element is read if `clamp`, else zero.",
    .example = "index(([[1, 2, 3], [4, 5, 6]], [[2, -3], [7, 2]]), axes=(1,), "
               "at=1, clamp=True) = [[[3, 1], [3, 3]], [[6, 4], [6, 6]]]",
    .params = P_INDEX,
    .check = nb_index_check,
    .sign = index_sign,
    .kind = NB_LINEAR,
    .index = ~1u,
    .kernel = index_kernel,
    .point = index_point,
    .transpose = index_transpose,
    .splits = 1u << NB_MASK,
    .local = nb_index_local,
};

/* y = x + sum over what is placed. */
static nb_tensor *add_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    nb_pick p = nb_pick_of(c);
    return i == 0 ? ct : nb_index(ct, &p);
}

PLACE_KERNEL(add_kernel, NB_PUT_ADD)

nb_op nb_op_index_add = {
    .name = "index_add",
    .doc = "The first tensor with the second added where the indices, as in "
           "index, say; repeated indices add up.",
    .example = "index_add(([[1, 2, 3], [4, 5, 6]], [10, 20, 30, 40], "
               "[0, 1, 0, 5], [2, 0, -1, 0]), axes=(0, 1)) = "
               "[[1, 2, 43], [24, 5, 6]]",
    PLACES,
    .kind = NB_LINEAR,
    .kernel = add_kernel,
    .transpose = add_transpose,
};

/* gather and scatter: one axis. */

static nb_tensor *gather(const nb_call *c)
{
    int64_t axis = nb_arg_int(c, 0);
    nb_pick p = {1, c->in + 1, &axis, axis, true};
    return c->nin == 1 ? nb_same(c->in[0]) : nb_index(c->in[0], &p);
}

COMPOSE(gather, gather(c))

nb_op nb_op_gather = {
    .name = "gather",
    .doc = "The slices of x along an axis that the indices name: the shape of "
           "x with that axis replaced by the shape of indices.  Negative "
           "indices count from the end; those out of range read the nearest.  "
           "Without indices, x with all its shards joined.",
    .example = "gather([[1, 2, 3], [4, 5, 6]], [[2, 0], [-1, 1]], axis=1) = "
               "[[[3, 1], [3, 2]], [[6, 4], [6, 5]]]",
    .params = "x, indices=None, axis:axis=0",
    .kind = NB_COMPOSITE,
    .index = 2,
    .compose = gather_compose,
};

nb_tensor *nb_gather(nb_tensor *x, nb_tensor *indices, int64_t axis)
{
    nb_tensor *in[] = {x, indices};
    return nb_apply(&nb_op_gather, 2, in, 1, &(nb_value)NB_V_INT(axis),
                    NB_CALLER);
}

static nb_tensor *scatter(const nb_call *c)
{
    int64_t axis = nb_arg_int(c, 0), size[NB_MAX_RANK];
    int rank = RANK(1);
    nb_pick p = {1, c->in + 1, &axis, axis, false};
    if (RANK(0) - 1 + rank > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "scatter: updates of rank %d: at most %d",
                       RANK(0) - 1 + rank, NB_MAX_RANK);
    for (int d = 0; d < RANK(0) - 1; d++)
        size[d < axis ? d : d + rank] = SIZE(0, d < axis ? d : d + 1);
    for (int d = 0; d < rank; d++)
        size[axis + d] = SIZE(1, d);
    nb_tensor *u = nb_cast(c->in[2], nb_dtype_of(c->in[0]));
    return nb_place(&nb_op_index_set, c->in[0],
                    nb_broadcast_to(u, RANK(0) - 1 + rank, size), &p);
}

COMPOSE(scatter, scatter(c))

nb_op nb_op_scatter = {
    .name = "scatter",
    .doc = "x with updates in the places along an axis that the indices name: "
           "what gather reads from there.  Of several for one place the last "
           "in row-major order stays; indices out of range write nothing.",
    .example = "scatter([[1, 2, 3], [4, 5, 6]], [2, -3, 2], "
               "[[10, 20, 30], [40, 50, 60]], axis=1) = "
               "[[20, 2, 30], [50, 5, 60]]",
    .params = "x, indices, updates, axis:axis=0",
    .kind = NB_COMPOSITE,
    .in = NB_IN_FIRST,
    .index = 2,
    .compose = scatter_compose,
};

nb_tensor *nb_scatter(nb_tensor *x, nb_tensor *indices, nb_tensor *updates,
                      int64_t axis)
{
    nb_tensor *u = x ? nb_cast(updates, nb_dtype_of(x)) : NULL;
    nb_tensor *in[] = {x, indices, u};
    return nb_apply(&nb_op_scatter, 3, in, 1, &(nb_value)NB_V_INT(axis),
                    NB_CALLER);
}
