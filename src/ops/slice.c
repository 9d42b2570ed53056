/* slice.c - windows into a tensor.
 *
 * slice takes a window out, embed puts one into zeros; each is the other's
 * transpose.  Attributes of both: start, size and step by axis, start counted
 * from the front, step not zero, size that of the result. */
#include "ops/view.h"

#include "ops/copy.h"

#include <string.h>

nb_window nb_window_of(const nb_tensor *x)
{
    nb_window w = {0};
    nb_sizes(x, w.size);
    for (int d = 0; d < nb_rank(x); d++)
        w.step[d] = 1;
    return w;
}

/* Whether a window of n places fits an axis; its words made canonical where
 * they do not matter. */
static bool fits(int64_t outer, int64_t n, int64_t *start, int64_t *step)
{
    int64_t last;
    if (*step == 0 || n < 0 || outer < 0) return false;
    if (n == 0) *start = 0;
    if (n <= 1) *step = 1;
    if (n == 0) return true;
    return !__builtin_mul_overflow(n - 1, *step, &last) &&
           !__builtin_add_overflow(last, *start, &last) && *start >= 0 &&
           *start < outer && last >= 0 && last < outer;
}

static bool window_check(nb_call *c)
{
    bool embeds = c->op == &nb_op_embed;
    int n[3];
    int64_t *list[3];
    for (int k = 0; k < 3; k++) {
        list[k] = nb_arg_words(c, k) + 1;
        nb_arg_list(c, k, &n[k]);
        if (n[k] != RANK(0))
            return nb_fail(NB_EVALUE,
                           "%s: start, size and step need a value for each of "
                           "%d axes",
                           c->op->name, RANK(0));
    }
    for (int d = 0; d < RANK(0); d++) {
        int64_t *start = &list[0][d], size = list[1][d], *step = &list[2][d];
        int64_t outer = embeds ? size : SIZE(0, d);
        int64_t inner = embeds ? SIZE(0, d) : size;
        if (!fits(outer, inner, start, step))
            return nb_fail(NB_EVALUE,
                           "%s: %lld places from %lld on, %lld apart, are not "
                           "within axis %d of size %lld",
                           c->op->name, (long long)inner, (long long)*start,
                           (long long)*step, d, (long long)outer);
    }
    return true;
}

/* A dim that is taken whole is a factor; one that is not has a size of its own
 * on each side. */
static bool window_sign(const nb_call *c, nb_text *t)
{
    int n;
    const int64_t *start = nb_arg_list(c, 0, &n);
    const int64_t *size = nb_arg_list(c, 1, &n);
    const int64_t *step = nb_arg_list(c, 2, &n);
    bool any = false;
    for (int side = 0; side < 2; side++) {
        for (int d = 0; d < n; d++)
            nb_text_add(t, " %c", 'a' + d);
        if (side == 0) nb_text_add(t, " ->");
    }
    for (int d = 0; d < n; d++) {
        if (start[d] == 0 && step[d] == 1 && size[d] == SIZE(0, d)) continue;
        nb_text_add(t, any ? " %c" : "; permute{%c", 'a' + d);
        any = true;
    }
    if (any) nb_text_add(t, "}");
    return true;
}

static bool window_infer(const nb_call *c, int k, nb_shape *out,
                         nb_dtype *dtype)
{
    int n;
    const int64_t *size = nb_arg_list(c, 1, &n);
    (void)k, (void)dtype;
    for (int d = 0; d < n; d++)
        out->size[d] = nb_extent_of(size[d]);
    return true;
}

/* slice */

static bool slice_view(const nb_call *c, const nb_layout *in, nb_layout *out)
{
    int n;
    const int64_t *start = nb_arg_list(c, 0, &n);
    const int64_t *step = nb_arg_list(c, 2, &n);
    bool empty = false;
    for (int d = 0; d < n; d++) {
        out->stride[d] = in->stride[d] * step[d];
        out->offset += in->stride[d] * start[d];
        empty = empty || out->size[d] == 0;
    }
    if (empty) out->offset = 0;
    return true;
}

static nb_tensor *slice_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    int n;
    int64_t size[NB_MAX_RANK];
    (void)i;
    nb_sizes(c->in[0], size);
    return nb_embed(ct, nb_arg_list(c, 0, &n), size, nb_arg_list(c, 2, &n));
}

/* On blocks: where the part to make begins in the part there is. */
static void local_window(nb_tensor *x, const nb_box *to, int lanes,
                         nb_window *w)
{
    for (int d = 0; d < x->rank; d++) {
        w->size[d] = to->size[lanes + d];
        if (w->size[d] <= 1) w->step[d] = 1;
        if (!w->size[d]) w->start[d] = 0;
    }
}

static nb_window window_of(const nb_call *c)
{
    int n;
    nb_window w;
    memcpy(w.start, nb_arg_list(c, 0, &n), (size_t)RANK(0) * sizeof w.start[0]);
    memcpy(w.step, nb_arg_list(c, 2, &n), (size_t)RANK(0) * sizeof w.step[0]);
    return w;
}

static nb_tensor *slice_local(const nb_call *c, const nb_blocks *b)
{
    nb_window w = window_of(c);
    int in = c->in[0]->nlanes, out = c->out->nlanes;
    for (int d = 0; d < RANK(0); d++)
        w.start[d] +=
            w.step[d] * b->to->start[out + d] - b->from->start[in + d];
    local_window(b->in[0], b->to, out, &w);
    return nb_slice(b->in[0], w.start, w.size, w.step);
}

static bool slice_reach(const nb_call *c, int i, int d, const int64_t *to,
                        int64_t *from)
{
    nb_window w = window_of(c);
    int64_t a = w.start[d] + w.step[d] * to[0];
    int64_t z = w.start[d] + w.step[d] * (to[1] - 1);
    (void)i;
    from[0] = to[1] > to[0] ? a < z ? a : z : 0;
    from[1] = to[1] > to[0] ? (a < z ? z : a) + 1 : 0;
    return true;
}

nb_op nb_op_slice = {
    .name = "slice",
    .doc = "A window into x: along each axis, size elements from start on, "
           "step apart.  Steps may be negative.",
    .example = "slice([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]], start=(0, 4), "
               "size=(1, 3), step=(1, -2)) = [[5, 3, 1]]",
    .params = "x, start:ints, size:ints, step:ints",
    .check = window_check,
    .sign = window_sign,
    .infer = window_infer,
    .kind = NB_LINEAR,
    .view = slice_view,
    .transpose = slice_transpose,
    .local = slice_local,
    .reach = slice_reach,
};

nb_tensor *nb_slice(nb_tensor *x, const int64_t *start, const int64_t *size,
                    const int64_t *step)
{
    int n = nb_rank(x);
    nb_value v[] = {NB_V_LIST(n, start), NB_V_LIST(n, size),
                    NB_V_LIST(n, step)};
    return nb_apply(&nb_op_slice, 1, &x, 3, v, NB_CALLER);
}

nb_tensor *nb_narrow(nb_tensor *x, int axis, int64_t start, int64_t size)
{
    if (!x) return NULL;
    nb_window w = nb_window_of(x);
    if (start == 0 && size == w.size[axis]) return nb_same(x);
    w.start[axis] = start;
    w.size[axis] = size;
    return nb_slice(x, w.start, w.size, w.step);
}

/* embed */

static bool embed_kernel(const nb_kernel *k)
{
    const nb_view *x = &k->view[0], *y = &k->view[1];
    int64_t stride[NB_MAX_RANK], count = 1;
    int n, item = (int)nb_dtype_size(x->dtype);
    const int64_t *start = nb_arg_list(k->call, 0, &n);
    const int64_t *step = nb_arg_list(k->call, 2, &n);
    nb_side to = {y->data, stride};
    for (int d = 0; d < n; d++) {
        count *= y->size[d];
        stride[d] = y->stride[d] * step[d];
        to.data += y->stride[d] * start[d] * item;
    }
    if (count) memset(y->data, 0, (size_t)(count * item));
    nb_copy((size_t)item, n, x->size, to, (nb_side){x->data, x->stride});
    return true;
}

static bool embed_point(nb_point *p, const nb_call *c, nb_val *y)
{
    int n;
    const int64_t *start = nb_arg_list(c, 0, &n);
    const int64_t *size = nb_arg_list(c, 1, &n);
    const int64_t *step = nb_arg_list(c, 2, &n);
    nb_dtype d = (nb_dtype)c->in[0]->dtype;
    nb_val at[NB_MAX_RANK];
    if (nb_elements(c->in[0]) == 0) {
        *y = nb_p_number(p, d, 0);
        return true;
    }
    nb_val is = nb_window_at(p, 0, start, size, step, at);
    *y = nb_p_read_at(p, 0, d, at, is);
    return true;
}

static nb_tensor *embed_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    int n;
    int64_t size[NB_MAX_RANK];
    (void)i;
    nb_sizes(c->in[0], size);
    return nb_slice(ct, nb_arg_list(c, 0, &n), size, nb_arg_list(c, 2, &n));
}

static nb_tensor *embed_local(const nb_call *c, const nb_blocks *b)
{
    nb_window w = window_of(c);
    int in = c->in[0]->nlanes, out = c->out->nlanes;
    bool same = true;
    for (int d = 0; d < RANK(0); d++) {
        int64_t n = b->from->size[in + d];
        w.start[d] +=
            w.step[d] * b->from->start[in + d] - b->to->start[out + d];
        w.size[d] = b->to->size[out + d];
        if (n <= 1) w.step[d] = 1;
        if (!n) w.start[d] = 0;
        same = same && n == w.size[d] && w.step[d] == 1;
    }
    return same ? b->in[0] : nb_embed(b->in[0], w.start, w.size, w.step);
}

/* Of n places start + step * i, those i that lie in a range. */
void nb_places_within(int64_t start, int64_t step, int64_t n,
                      const int64_t *range, int64_t *i)
{
    int64_t by = step < 0 ? -step : step;
    int64_t a = range[0] - start, z = range[1] - start; /* a <= step i < z */
    if (step < 0) {
        int64_t was = a;
        a = 1 - z; /* -z < by i' <= -a, where i' counts down */
        z = 1 - was;
    }
    i[0] = a <= 0 ? 0 : (a + by - 1) / by;
    i[1] = z <= 0 ? 0 : (z + by - 1) / by;
    if (i[1] > n) i[1] = n;
    if (i[0] > i[1]) i[0] = i[1];
}

/* Zeros around x are as good as x where places follow each other. */
static bool embed_reach(const nb_call *c, int i, int d, const int64_t *to,
                        int64_t *from)
{
    nb_window w = window_of(c);
    (void)i;
    nb_places_within(w.start[d], w.step[d], SIZE(0, d), to, from);
    if (w.step[d] != 1) return true;
    from[0] = to[0] - w.start[d];
    from[1] = to[1] - w.start[d];
    return true;
}

nb_op nb_op_embed = {
    .name = "embed",
    .doc = "Zeros of the given size with x in the window that begins at start "
           "and takes every step-th place.",
    .example = "embed([[1, 2], [3, 4]], start=(0, 3), size=(2, 4), "
               "step=(1, -2)) = [[0, 2, 0, 1], [0, 4, 0, 3]]",
    .params = "x, start:ints, size:ints, step:ints",
    .check = window_check,
    .sign = window_sign,
    .infer = window_infer,
    .kind = NB_LINEAR,
    .kernel = embed_kernel,
    .point = embed_point,
    .transpose = embed_transpose,
    .local = embed_local,
    .reach = embed_reach,
};

nb_tensor *nb_embed(nb_tensor *x, const int64_t *start, const int64_t *size,
                    const int64_t *step)
{
    int n = nb_rank(x);
    nb_value v[] = {NB_V_LIST(n, start), NB_V_LIST(n, size),
                    NB_V_LIST(n, step)};
    return nb_apply(&nb_op_embed, 1, &x, 3, v, NB_CALLER);
}

/* slice_tensor */

static bool slice_tensor_compose(const nb_call *c, nb_results *r)
{
    int n, m;
    const int64_t *start = nb_arg_list(c, 0, &n);
    const int64_t *size = nb_arg_list(c, 1, &m);
    nb_window w = nb_window_of(c->in[0]);
    if (n != RANK(0) || m != RANK(0))
        return nb_fail(NB_EVALUE,
                       "slice_tensor: %d starts and %d sizes for %d axes",
                       n < 0 ? 0 : n, m < 0 ? 0 : m, RANK(0));
    for (int d = 0; d < n; d++) {
        int64_t whole = w.size[d];
        w.start[d] = start[d] < 0 ? start[d] + whole : start[d];
        w.size[d] = size[d];
        if (size[d] < 0 || w.start[d] < 0 || w.start[d] > whole - size[d])
            return nb_fail(NB_EVALUE,
                           "slice_tensor: %lld places from %lld on are not "
                           "within axis %d of size %lld",
                           (long long)size[d], (long long)start[d], d,
                           (long long)whole);
    }
    return nb_results_add(r, nb_slice(c->in[0], w.start, w.size, w.step));
}

nb_op nb_op_slice_tensor = {
    .name = "slice_tensor",
    .doc = "The part of x that begins at start and has the given size; a "
           "negative start counts from the end.",
    .example = "slice_tensor([[1, 2, 3], [4, 5, 6]], start=(0, -2), "
               "size=(2, 2)) = [[2, 3], [5, 6]]",
    .params = "x, start:ints, size:ints",
    .kind = NB_COMPOSITE,
    .compose = slice_tensor_compose,
};

nb_tensor *nb_slice_tensor(nb_tensor *x, const int64_t *start,
                           const int64_t *size)
{
    int n = nb_rank(x);
    nb_value v[] = {NB_V_LIST(n, start), NB_V_LIST(n, size)};
    return nb_apply(&nb_op_slice_tensor, 1, &x, 2, v, NB_CALLER);
}

/* flip */

static bool flip_compose(const nb_call *c, nb_results *r)
{
    int n;
    const int64_t *axes = nb_arg_list(c, 0, &n);
    nb_window w = nb_window_of(c->in[0]);
    int count = n < 0 ? RANK(0) : n;
    for (int k = 0; k < count; k++) {
        int64_t d = n < 0 ? k : axes[k];
        w.start[d] = w.size[d] ? w.size[d] - 1 : 0;
        w.step[d] = -1;
    }
    return nb_results_add(r, nb_slice(c->in[0], w.start, w.size, w.step));
}

nb_op nb_op_flip = {
    .name = "flip",
    .doc = "x read backwards along the given axes, all if none are given.",
    .example = "flip([[1, 2, 3], [4, 5, 6]], axis=(1,)) = "
               "[[3, 2, 1], [6, 5, 4]]",
    .params = "x, axis:axes=None",
    .kind = NB_COMPOSITE,
    .compose = flip_compose,
};

nb_tensor *nb_flip(nb_tensor *x, int n, const int64_t *axes)
{
    nb_value all = NB_V_NONE, some = NB_V_LIST(n, axes);
    return nb_apply(&nb_op_flip, 1, &x, 1, n < 0 ? &all : &some, NB_CALLER);
}

/* pad */

static bool pad_check(nb_call *c)
{
    int n;
    const int64_t *p = nb_arg_list(c, 0, &n);
    const char *mode = nb_arg_text(c, 1);
    if (n < 0)
        return nb_fail(NB_EVALUE, "pad: paddings (or pad_width) is missing");
    if (!mode || strcmp(mode, "constant") != 0)
        return nb_fail(NB_ELATER,
                       "pad: mode \"%s\" is not there yet: "
                       "\"constant\" is",
                       mode ? mode : "None");
    if (n != 2 * RANK(0))
        return nb_fail(NB_EVALUE,
                       "pad: %d paddings for %d axes: each needs one before "
                       "and one after",
                       n, RANK(0));
    for (int k = 0; k < n; k++)
        if (p[k] < 0)
            return nb_fail(NB_EVALUE,
                           "pad: padding %lld of axis %d is negative",
                           (long long)p[k], k / 2);
    return true;
}

/* Elsewhere than in the window, the value. */
static nb_tensor *pad_with(const nb_call *c, const nb_window *w, double value)
{
    nb_tensor *x = c->in[0];
    int64_t size[NB_MAX_RANK];
    nb_sizes(x, size);
    nb_tensor *yes = nb_broadcast_to(nb_scalar_int(1, NB_BOOL), RANK(0), size);
    nb_tensor *inside = nb_embed(yes, w->start, w->size, w->step);
    return nb_where(inside, nb_embed(x, w->start, w->size, w->step),
                    nb_scalar_float(value, nb_dtype_of(x)));
}

static bool pad_compose(const nb_call *c, nb_results *r)
{
    int n;
    const int64_t *p = nb_arg_list(c, 0, &n);
    double value = nb_arg_float(c, 2);
    nb_window w = nb_window_of(c->in[0]);
    for (int d = 0; d < RANK(0); d++) {
        w.start[d] = p[2 * d];
        if (__builtin_add_overflow(w.size[d], p[2 * d], &w.size[d]) ||
            __builtin_add_overflow(w.size[d], p[2 * d + 1], &w.size[d]))
            return nb_fail(NB_EOVERFLOW,
                           "pad: axis %d becomes longer than an int64 counts",
                           d);
    }
    return nb_results_add(r, value == 0
                                 ? nb_embed(c->in[0], w.start, w.size, w.step)
                                 : pad_with(c, &w, value));
}

nb_op nb_op_pad = {
    .name = "pad",
    .doc = "x with a value before and after it along each axis: paddings are "
           "two numbers an axis, how many before and how many after.",
    .example = "pad([[1, 2], [3, 4]], paddings=(1, 0, 0, 2), value=9.0) = "
               "[[9, 9, 9, 9], [1, 2, 9, 9], [3, 4, 9, 9]]",
    .params = "x, paddings:ints=None, mode:text=\"constant\", value:float=0.0",
    .check = pad_check,
    .kind = NB_COMPOSITE,
    .compose = pad_compose,
};

nb_tensor *nb_pad(nb_tensor *x, const int64_t *paddings, double value)
{
    nb_value v[] = {NB_V_LIST(2 * nb_rank(x), paddings), NB_V_DEFAULT,
                    NB_V_FLOAT(value)};
    return nb_apply(&nb_op_pad, 1, &x, 3, v, NB_CALLER);
}
