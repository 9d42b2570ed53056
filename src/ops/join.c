/* join.c - several tensors, or parts of one, made one.
 *
 * concatenate is the primitive.  With axis None it joins the elements of all
 * tensors, each in row-major order. */
#include "ops/view.h"

#include "ops/copy.h"

/* concatenate */

static bool concatenate_check(nb_call *c)
{
    int64_t axis = nb_arg_int(c, 0);
    for (int i = 1; axis != NB_NONE && i < c->nin; i++) {
        bool same = RANK(i) == RANK(0);
        for (int d = 0; same && d < RANK(0); d++)
            same = d == axis || SIZE(i, d) == SIZE(0, d);
        if (same) continue;
        nb_shape x = nb_tensor_shape(c->in[0]), y = nb_tensor_shape(c->in[i]);
        return nb_fail(NB_EVALUE,
                       "concatenate: shapes %s and %s differ in more than "
                       "axis %lld",
                       nb_shape_text(&x), nb_shape_text(&y), (long long)axis);
    }
    return true;
}

static bool concatenate_sign(const nb_call *c, nb_text *t)
{
    int64_t axis = nb_arg_int(c, 0);
    bool flat = axis == NB_NONE;
    for (int i = 0; i < c->nin; i++) {
        if (i > 0) nb_text_add(t, ",");
        for (int d = 0; d < RANK(i); d++)
            nb_text_add(t, flat ? " 1" : " %c", 'a' + d);
    }
    if (flat) return nb_text_add(t, " -> 1");
    nb_text_add(t, " ->");
    for (int d = 0; d < RANK(0); d++)
        nb_text_add(t, " %c", 'a' + d);
    return nb_text_add(t, "; permute{%c}", 'a' + (int)axis);
}

/* How many places input i takes along the joined axis. */
static int64_t share(const nb_call *c, int i)
{
    int64_t axis = nb_arg_int(c, 0);
    return axis == NB_NONE ? nb_elements(c->in[i]) : SIZE(i, axis);
}

static bool concatenate_infer(const nb_call *c, int k, nb_shape *out,
                              nb_dtype *dtype)
{
    int64_t axis = nb_arg_int(c, 0), n = 0;
    (void)k, (void)dtype;
    for (int i = 0; i < c->nin; i++)
        if (__builtin_add_overflow(n, share(c, i), &n))
            return nb_fail(NB_EOVERFLOW, "concatenate: the joined axis is "
                                         "longer than an int64 counts");
    out->size[axis == NB_NONE ? 0 : axis] = nb_extent_of(n);
    return true;
}

static bool concatenate_kernel(const nb_kernel *k)
{
    const nb_view *y = &k->view[k->nin];
    int64_t axis = nb_arg_int(k->call, 0), row[NB_MAX_RANK];
    bool flat = axis == NB_NONE;
    int64_t item = (int64_t)nb_dtype_size(y->dtype);
    char *to = y->data;
    for (int i = 0; i < k->nin; i++) {
        const nb_view *x = &k->view[i];
        nb_row_major(x->rank, x->size, row);
        nb_copy((size_t)item, x->rank, x->size,
                (nb_side){to, flat ? row : y->stride},
                (nb_side){x->data, x->stride});
        to += item * share(k->call, i) * y->stride[flat ? 0 : axis];
    }
    return true;
}

/* Every input is asked at every point, so that many are better copied. */
static bool concatenate_point(nb_point *p, const nb_call *c, nb_val *y)
{
    enum { FEW = 8 };
    int64_t axis = nb_arg_int(c, 0), start[NB_MAX_RANK] = {0};
    int64_t size[NB_MAX_RANK], step[NB_MAX_RANK];
    nb_dtype d = (nb_dtype)c->in[0]->dtype;
    if (axis == NB_NONE || c->nin > FEW) return false;
    nb_sizes(c->in[0], size);
    for (int i = 1; i < c->nin; i++)
        size[axis] += share(c, i);
    for (int a = 0; a < RANK(0); a++)
        step[a] = 1;
    *y = nb_p_number(p, d, 0);
    for (int i = 0; i < c->nin; start[axis] += share(c, i++)) {
        nb_val at[NB_MAX_RANK];
        if (nb_elements(c->in[i]) == 0) continue;
        nb_val is = nb_window_at(p, i, start, size, step, at);
        nb_val x = nb_p_read_at(p, i, d, at, is);
        *y = is.id < 0 ? x : nb_p_scalar(p, NB_S_select, is, x, *y);
    }
    return true;
}

/* Each input gets its share of the cotangent. */
static nb_tensor *concatenate_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    int64_t axis = nb_arg_int(c, 0), at = 0, size[NB_MAX_RANK];
    for (int j = 0; j < i; j++)
        at += share(c, j);
    if (axis != NB_NONE) return nb_narrow(ct, (int)axis, at, share(c, i));
    nb_sizes(c->in[i], size);
    return nb_reshape(nb_narrow(ct, 0, at, share(c, i)), RANK(i), size);
}

/* Of the range of the result, what comes from input i. */
static bool concatenate_reach(const nb_call *c, int i, int d, const int64_t *to,
                              int64_t *from)
{
    int64_t before = 0, n = SIZE(i, d);
    for (int k = 0; k < i; k++)
        before += SIZE(k, d);
    for (int k = 0; k < 2; k++) {
        from[k] = to[k] - before;
        if (from[k] < 0) from[k] = 0;
        if (from[k] > n) from[k] = n;
    }
    return true;
}

nb_op nb_op_concatenate = {
    .name = "concatenate",
    .doc = "Tensors one after the other along an axis, in which alone their "
           "shapes may differ; None: all elements of all in one vector.",
    .example = "concatenate(([[1], [2]], [[3, 4], [5, 6]]), axis=1) = "
               "[[1, 3, 4], [2, 5, 6]]",
    .params = "tensors:tensors, axis:axis?=0",
    .in = NB_IN_COMMON,
    .check = concatenate_check,
    .sign = concatenate_sign,
    .infer = concatenate_infer,
    .kind = NB_LINEAR,
    .kernel = concatenate_kernel,
    .point = concatenate_point,
    .transpose = concatenate_transpose,
    .reach = concatenate_reach,
};

nb_tensor *nb_concatenate(int n, nb_tensor *const *tensors, int64_t axis)
{
    nb_value v[] = {NB_V_INT(axis)};
    return nb_apply(&nb_op_concatenate, n, tensors, 1, v, NB_CALLER);
}

/* stack */

static bool stack_check(nb_call *c)
{
    nb_shape x = nb_tensor_shape(c->in[0]);
    for (int i = 1; i < c->nin; i++) {
        nb_shape y = nb_tensor_shape(c->in[i]);
        bool same = x.rank == y.rank;
        for (int d = 0; same && d < x.rank; d++)
            same = nb_extent_same(x.size[d], y.size[d]);
        if (!same)
            return nb_fail(NB_EVALUE,
                           "stack: shapes %s and %s differ: all must be the "
                           "same",
                           nb_shape_text(&x), nb_shape_text(&y));
    }
    return true;
}

static bool stack_compose(const nb_call *c, nb_results *r)
{
    int64_t axis = nb_arg_int(c, 0);
    nb_tensor **row = nb_alloc((size_t)c->nin * sizeof *row);
    if (!row) return false;
    for (int i = 0; i < c->nin; i++)
        row[i] = nb_unsqueeze(c->in[i], axis);
    bool ok = nb_results_add(r, nb_concatenate(c->nin, row, axis));
    nb_free(row);
    return ok;
}

nb_op nb_op_stack = {
    .name = "stack",
    .doc = "Tensors of one shape along a new axis, which has number axis in "
           "the result.",
    .example = "stack(([1, 2, 3], [4, 5, 6]), axis=1) = "
               "[[1, 4], [2, 5], [3, 6]]",
    .params = "tensors:tensors, axis:newaxis=0",
    .in = NB_IN_COMMON,
    .check = stack_check,
    .kind = NB_COMPOSITE,
    .compose = stack_compose,
};

nb_tensor *nb_stack(int n, nb_tensor *const *tensors, int64_t axis)
{
    nb_value v[] = {NB_V_INT(axis)};
    return nb_apply(&nb_op_stack, n, tensors, 1, v, NB_CALLER);
}

/* roll */

static nb_tensor *roll_axis(nb_tensor *x, int axis, int64_t shift)
{
    int64_t n = nb_size(x, axis);
    if (!x || n == 0) return x;
    int64_t by = (shift % n + n) % n;
    nb_tensor *part[2] = {nb_narrow(x, axis, n - by, by),
                          nb_narrow(x, axis, 0, n - by)};
    return by ? nb_concatenate(2, part, axis) : x;
}

static bool roll_check(nb_call *c)
{
    int n, m;
    nb_arg_list(c, 0, &n);
    int64_t *axes = nb_arg_words(c, 1) + 1;
    nb_arg_list(c, 1, &m);
    if (n < 1 || (m < 0 ? n != 1 : n != 1 && m != 1 && n != m))
        return nb_fail(NB_EVALUE, "roll: %d shifts for %d axes", n < 0 ? 0 : n,
                       m < 0 ? 1 : m);
    for (int k = 0; k < m; k++) {
        if (axes[k] < -RANK(0) || axes[k] >= RANK(0))
            return nb_fail(NB_EAXIS,
                           "roll: axis %lld is out of range for rank %d",
                           (long long)axes[k], RANK(0));
        if (axes[k] < 0) axes[k] += RANK(0);
    }
    return true;
}

/* One shift serves several axes, several shifts of one axis add up. */
static bool roll_compose(const nb_call *c, nb_results *r)
{
    int n, m;
    const int64_t *shift = nb_arg_list(c, 0, &n);
    const int64_t *axes = nb_arg_list(c, 1, &m);
    int64_t size[NB_MAX_RANK];
    nb_tensor *x = c->in[0];
    if (m < 0) {
        nb_sizes(x, size);
        x = roll_axis(nb_flatten(x, 0, -1), 0, shift[0]);
        return nb_results_add(r, nb_reshape(x, RANK(0), size));
    }
    for (int k = 0; m > 0 && k < (n > m ? n : m); k++)
        x = roll_axis(x, (int)axes[m > 1 ? k : 0], shift[n > 1 ? k : 0]);
    return nb_results_add(r, x == c->in[0] ? nb_same(x) : x);
}

nb_op nb_op_roll = {
    .name = "roll",
    .doc = "x moved on by shift places along each axis, what leaves at the "
           "end coming in at the front; without axes, x is rolled as if flat.",
    .example = "roll([[1, 2, 3], [4, 5, 6]], shift=(1, -1), axis=(0, 1)) = "
               "[[5, 6, 4], [2, 3, 1]]",
    .params = "x, shift:ints, axis:ints=None",
    .check = roll_check,
    .kind = NB_COMPOSITE,
    .compose = roll_compose,
};

nb_tensor *nb_roll(nb_tensor *x, int n, const int64_t *shift,
                   const int64_t *axes)
{
    nb_value flat = NB_V_NONE, along = NB_V_LIST(n, axes);
    nb_value v[] = {NB_V_LIST(n, shift), axes ? along : flat};
    return nb_apply(&nb_op_roll, 1, &x, 2, v, NB_CALLER);
}
