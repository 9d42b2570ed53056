/* update.c - a window of a tensor replaced.
 *
 * The window takes every step-th place of each axis from `start` on, as many as
 * the update has; steps may be negative, starts are counted from the front. */
#include "ops/index.h"

#include "ops/copy.h"
#include "ops/view.h"

static bool fits(int64_t whole, int64_t n, int64_t start, int64_t step)
{
    int64_t last;
    if (n == 0) return true;
    return !__builtin_mul_overflow(n - 1, step, &last) &&
           !__builtin_add_overflow(last, start, &last) && start >= 0 &&
           start < whole && last >= 0 && last < whole && step != 0;
}

static bool update_check(nb_call *c)
{
    int n, m;
    const int64_t *start = nb_arg_list(c, 0, &n);
    const int64_t *step = nb_arg_list(c, 1, &m);
    if (n != RANK(0) || m != RANK(0) || RANK(1) != RANK(0))
        return nb_fail(NB_EVALUE,
                       "update: %d starts, %d steps and an update of rank %d "
                       "for x of rank %d",
                       n, m, RANK(1), RANK(0));
    for (int d = 0; d < n; d++)
        if (!fits(SIZE(0, d), SIZE(1, d), start[d], step[d]))
            return nb_fail(NB_EVALUE,
                           "update: %lld places from %lld on, %lld apart, are "
                           "not within axis %d of size %lld",
                           (long long)SIZE(1, d), (long long)start[d],
                           (long long)step[d], d, (long long)SIZE(0, d));
    return true;
}

static bool is_whole(const nb_call *c, int d)
{
    int n;
    return nb_arg_list(c, 0, &n)[d] == 0 && nb_arg_list(c, 1, &n)[d] == 1 &&
           SIZE(1, d) == SIZE(0, d);
}

/* "a b, a b -> a b; permute{a}": who has a part of x writes what falls into
 * it. */
static bool update_sign(const nb_call *c, nb_text *t)
{
    int n;
    bool any = false;
    nb_arg_list(c, 0, &n);
    for (int term = 0; term < 3; term++) {
        for (int d = 0; d < n; d++)
            nb_text_add(t, " %c", 'a' + d);
        nb_text_add(t, "%s", term == 0 ? "," : term == 1 ? " ->" : "");
    }
    for (int d = 0; d < n; d++) {
        if (is_whole(c, d)) continue;
        nb_text_add(t, any ? " %c" : "; permute{%c", 'a' + d);
        any = true;
    }
    if (any) nb_text_add(t, "}");
    return true;
}

static bool update_infer(const nb_call *c, int k, nb_shape *out,
                         nb_dtype *dtype)
{
    (void)k, (void)dtype;
    for (int d = 0; d < RANK(0); d++)
        out->size[d] = nb_tensor_size(c->in[0])[d];
    return true;
}

static bool update_kernel(const nb_kernel *k)
{
    const nb_view *x = &k->view[0], *u = &k->view[1], *y = &k->view[2];
    int n, item = (int)nb_dtype_size(x->dtype);
    const int64_t *start = nb_arg_list(k->call, 0, &n);
    const int64_t *step = nb_arg_list(k->call, 1, &n);
    int64_t stride[NB_MAX_RANK];
    nb_side window = {y->data, stride};
    for (int d = 0; d < n; d++) {
        stride[d] = y->stride[d] * step[d];
        window.data += y->stride[d] * start[d] * item;
    }
    nb_copy((size_t)item, n, y->size, (nb_side){y->data, y->stride},
            (nb_side){x->data, x->stride});
    nb_copy((size_t)item, n, u->size, window, (nb_side){u->data, u->stride});
    return true;
}

static bool update_point(nb_point *p, const nb_call *c, nb_val *y)
{
    int n;
    const int64_t *start = nb_arg_list(c, 0, &n);
    const int64_t *step = nb_arg_list(c, 1, &n);
    int64_t size[NB_MAX_RANK];
    nb_dtype d = (nb_dtype)c->in[0]->dtype;
    nb_val at[NB_MAX_RANK];
    nb_sizes(c->in[0], size);
    *y = nb_p_read(p, 0, d);
    if (nb_elements(c->in[1]) == 0) return true;
    nb_val is = nb_window_at(p, 1, start, size, step, at);
    nb_val u = nb_p_read_at(p, 1, d, at, is);
    *y = is.id < 0 ? u : nb_p_scalar(p, NB_S_select, is, u, *y);
    return true;
}

/* y is u in the window and x around it. */
static nb_tensor *update_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    int n;
    const int64_t *start = nb_arg_list(c, 0, &n);
    const int64_t *step = nb_arg_list(c, 1, &n);
    int64_t size[NB_MAX_RANK];
    nb_sizes(c->in[1], size);
    return i == 0 ? nb_update(ct, nb_fill_like(c->in[1], 0), start, step)
                  : nb_slice(ct, start, size, step);
}

static bool update_reach(const nb_call *c, int i, int d, const int64_t *to,
                         int64_t *from)
{
    int n;
    from[0] = to[0];
    from[1] = to[1];
    if (i == 1)
        nb_places_within(nb_arg_list(c, 0, &n)[d], nb_arg_list(c, 1, &n)[d],
                         SIZE(1, d), to, from);
    return true;
}

static nb_tensor *update_local(const nb_call *c, const nb_blocks *b)
{
    int n;
    const int64_t *start = nb_arg_list(c, 0, &n);
    const int64_t *step = nb_arg_list(c, 1, &n);
    int64_t at[NB_MAX_RANK];
    if (nb_elements(b->in[1]) == 0) return nb_same(b->in[0]);
    for (int d = 0; d < n; d++)
        at[d] = start[d] + step[d] * b->from[1].start[c->in[1]->nlanes + d] -
                b->to->start[c->out->nlanes + d];
    return nb_update(b->in[0], b->in[1], at, step);
}

nb_op nb_op_update = {
    .name = "update",
    .doc = "x with every step-th element of each axis from start on replaced "
           "by those of the update.",
    .example = "update([[1, 2, 3, 4], [5, 6, 7, 8]], [[10, 20]], "
               "start=(1, 3), step=(1, -2)) = [[1, 2, 3, 4], [5, 20, 7, 10]]",
    .params = "x, u, start:ints, step:ints",
    .check = update_check,
    .sign = update_sign,
    .infer = update_infer,
    .kind = NB_LINEAR,
    .in = NB_IN_COMMON,
    .kernel = update_kernel,
    .point = update_point,
    .transpose = update_transpose,
    .local = update_local,
    .reach = update_reach,
};

nb_tensor *nb_update(nb_tensor *x, nb_tensor *u, const int64_t *start,
                     const int64_t *step)
{
    int n = nb_rank(x);
    nb_value v[] = {NB_V_LIST(n, start), NB_V_LIST(n, step)};
    return nb_apply(&nb_op_update, 2, (nb_tensor *[]){x, u}, 2, v, NB_CALLER);
}

/* slice_update */

static nb_tensor *slice_update(const nb_call *c)
{
    int n, m, rank = RANK(0);
    const int64_t *start = nb_arg_list(c, 0, &n);
    const int64_t *size = nb_arg_list(c, 1, &m);
    nb_window w = nb_window_of(c->in[0]);
    if (n != rank || m != rank)
        return nb_fail(NB_EVALUE,
                       "slice_update: %d starts and %d sizes for %d axes",
                       n < 0 ? 0 : n, m < 0 ? 0 : m, rank);
    for (int d = 0; d < n; d++) {
        int64_t whole = w.size[d];
        w.start[d] = start[d] < 0 ? start[d] + whole : start[d];
        if (size[d] < 0 || w.start[d] < 0 || w.start[d] > whole - size[d])
            return nb_fail(NB_EVALUE,
                           "slice_update: %lld places from %lld on are not "
                           "within axis %d of size %lld",
                           (long long)size[d], (long long)start[d], d,
                           (long long)whole);
    }
    nb_tensor *u = nb_cast(c->in[1], nb_dtype_of(c->in[0]));
    return nb_update(c->in[0], nb_broadcast_to(u, rank, size), w.start, w.step);
}

COMPOSE(slice_update, slice_update(c))

nb_op nb_op_slice_update = {
    .name = "slice_update",
    .doc = "x with the block that begins at start and has the given size "
           "replaced by update, which broadcasts to that size and takes x's "
           "dtype; a negative start counts from the end.",
    .example = "slice_update([[1, 2, 3], [4, 5, 6]], [[7], [8]], "
               "start=(0, -2), size=(2, 2)) = [[1, 7, 7], [4, 8, 8]]",
    .params = "x, update, start:ints, size:ints",
    .kind = NB_COMPOSITE,
    .in = NB_IN_FIRST,
    .compose = slice_update_compose,
};

nb_tensor *nb_slice_update(nb_tensor *x, nb_tensor *update,
                           const int64_t *start, const int64_t *size)
{
    int n = nb_rank(x);
    nb_value v[] = {NB_V_LIST(n, start), NB_V_LIST(n, size)};
    nb_tensor *u = x ? nb_cast(update, nb_dtype_of(x)) : NULL;
    return nb_apply(&nb_op_slice_update, 2, (nb_tensor *[]){x, u}, 2, v,
                    NB_CALLER);
}
