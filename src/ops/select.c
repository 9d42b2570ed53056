/* select.c - places of one axis in an order that is known at the call.
 *
 * The op names each place of its input at most once, so that its transpose is
 * such a selection too, by the inverse. */
#include "ops/view.h"

#include "ops/copy.h"

#include <string.h>

/* place[j]: where input place j goes, -1 if nowhere; false if it goes to two
 * places or there is no such input place. */
static bool invert(int64_t size, int n, const int64_t *from, int64_t *place)
{
    for (int64_t j = 0; j < size; j++)
        place[j] = -1;
    for (int i = 0; i < n; i++) {
        if (from[i] < 0) continue;
        if (from[i] >= size || place[from[i]] >= 0) return false;
        place[from[i]] = i;
    }
    return true;
}

static bool select_check(nb_call *c)
{
    int n;
    int64_t place[NB_MAX_SELECT], size = SIZE(0, nb_arg_int(c, 0));
    const int64_t *from = nb_arg_list(c, 1, &n);
    if (n < 0 || n > NB_MAX_SELECT || size > NB_MAX_SELECT)
        return nb_fail(NB_EVALUE,
                       "select: %d of %lld places, at most %d are possible", n,
                       (long long)size, NB_MAX_SELECT);
    if (!invert(size, n, from, place))
        return nb_fail(NB_EVALUE,
                       "select: places must be of %lld, or negative, and "
                       "none of them twice",
                       (long long)size);
    for (int i = 0; i < n; i++)
        if (from[i] < 0) nb_arg_words(c, 1)[1 + i] = -1;
    return true;
}

static bool select_sign(const nb_call *c, nb_text *t)
{
    int axis = (int)nb_arg_int(c, 0);
    nb_sign_axes(t, axis, RANK(0));
    nb_text_add(t, " -> ");
    nb_sign_axes(t, axis, RANK(0));
    return nb_text_add(t, "; permute{%c}", 'a' + axis);
}

static bool select_infer(const nb_call *c, int k, nb_shape *out,
                         nb_dtype *dtype)
{
    int n;
    (void)k, (void)dtype;
    nb_arg_list(c, 1, &n);
    out->size[nb_arg_int(c, 0)] = nb_extent_of(n);
    return true;
}

static bool select_kernel(const nb_kernel *k)
{
    const nb_view *x = &k->view[0], *y = &k->view[1];
    int n, item = (int)nb_dtype_size(x->dtype);
    const int64_t *from = nb_arg_list(k->call, 1, &n);
    size_t row = (size_t)(y->stride[0] * item);
    for (int i = 0; i < n; i++) {
        char *to = y->data + y->stride[0] * i * item;
        if (from[i] < 0) {
            memset(to, 0, row);
            continue;
        }
        nb_copy(
            (size_t)item, x->rank - 1, x->size + 1,
            (nb_side){to, y->stride + 1},
            (nb_side){x->data + x->stride[0] * from[i] * item, x->stride + 1});
    }
    return true;
}

/* <ct, select x> = sum over i of ct[i] x[from[i]]: x[j] meets ct[i] where
 * from[i] = j, and nothing if there is none. */
static nb_tensor *select_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    int n;
    int axis = (int)nb_arg_int(c, 0);
    int64_t place[NB_MAX_SELECT], size = SIZE(0, axis);
    const int64_t *from = nb_arg_list(c, 1, &n);
    (void)i;
    invert(size, n, from, place);
    return nb_select(ct, axis, (int)size, place);
}

/* The places from the first to the last that are named. */
static bool select_reach(const nb_call *c, int i, int d, const int64_t *to,
                         int64_t *from)
{
    int n;
    const int64_t *place = nb_arg_list(c, 1, &n);
    (void)i, (void)d;
    from[0] = from[1] = 0;
    for (int64_t k = to[0]; k < to[1]; k++) {
        if (place[k] < 0) continue;
        bool any = from[1] > 0;
        if (!any || place[k] < from[0]) from[0] = place[k];
        if (!any || place[k] >= from[1]) from[1] = place[k] + 1;
    }
    return true;
}

static nb_tensor *select_local(const nb_call *c, const nb_blocks *b)
{
    int m, axis = (int)nb_arg_int(c, 0);
    int64_t place[NB_MAX_SELECT];
    int64_t first = b->from->start[c->in[0]->nlanes + axis];
    int64_t start = b->to->start[c->out->nlanes + axis];
    int n = (int)b->to->size[c->out->nlanes + axis];
    const int64_t *from = nb_arg_list(c, 1, &m);
    bool same = nb_size(b->in[0], axis) == n;
    for (int k = 0; k < n; k++) {
        place[k] = from[start + k] < 0 ? -1 : from[start + k] - first;
        same = same && place[k] == k;
    }
    return same ? b->in[0] : nb_select(b->in[0], axis, n, place);
}

nb_op nb_op_select = {
    .name = "select",
    .doc = "Along the axis, the places of x that `from` names, none of them "
           "twice; zero where it names a negative one.",
    .example = "select([[1, 2, 3], [4, 5, 6]], axis=1, from=(2, -1, 0, -1)) = "
               "[[3, 0, 1, 0], [6, 0, 4, 0]]",
    .params = "x, axis:axis, from:ints",
    .check = select_check,
    .sign = select_sign,
    .infer = select_infer,
    .kind = NB_LINEAR,
    .kernel = select_kernel,
    .transpose = select_transpose,
    .local = select_local,
    .reach = select_reach,
};

/* A row of zeros behind the last is what a negative place means. */
static nb_tensor *by_index(nb_tensor *x, int axis, int n, const int64_t *from)
{
    int64_t padding[2 * NB_MAX_RANK] = {0}, count = n, size = nb_size(x, axis);
    int64_t *at = nb_alloc((size_t)(n + 1) * sizeof *at);
    if (!at) return NULL;
    padding[2 * axis + 1] = 1;
    for (int i = 0; i < n; i++)
        at[i] = from[i] < 0 ? size : from[i];
    nb_tensor *index =
        nb_on_at_once(nb_constant(NB_I64, 1, &count, at), nb_device_of(x));
    nb_free(at);
    return nb_gather(nb_pad(x, padding, 0), index, axis);
}

nb_tensor *nb_select(nb_tensor *x, int axis, int n, const int64_t *from)
{
    int64_t place[NB_MAX_SELECT];
    if (!x) return NULL;
    int64_t size = nb_size(x, axis);
    nb_value v[] = {NB_V_INT(axis), NB_V_LIST(n, from)};
    if (n > NB_MAX_SELECT || size > NB_MAX_SELECT ||
        !invert(size, n, from, place))
        return by_index(x, axis, n, from);
    return nb_apply(&nb_op_select, 1, &x, 2, v, NB_CALLER);
}
