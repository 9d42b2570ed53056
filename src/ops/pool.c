/* pool.c - pooling.
 *
 * `windows` lays out what every window over an image sees, as a view; pools are
 * reductions of it.  Its adjoint, `fold`, adds what windows hold back to where
 * they took it from. */
#include "core/convert.h"
#include "nabla/conv.h"
#include "ops/conv.h"
#include "ops/view.h"

#include <math.h>
#include <string.h>

/* Attributes of both: the sizes of the windows or of the image, then stride and
 * dilation; as many as there are spatial axes. */
static int spatial(const nb_call *c)
{
    int n;
    nb_arg_list(c, 0, &n);
    return n;
}

static int64_t attr(const nb_call *c, int k, int d)
{
    int n;
    return nb_arg_list(c, k, &n)[d];
}

static bool check_attributes(const nb_call *c, int behind)
{
    int n[3];
    bool fits = true;
    for (int k = 0; k < 3; k++) {
        const int64_t *v = nb_arg_list(c, k, &n[k]);
        for (int d = 0; d < n[k]; d++)
            fits = fits && v[d] >= (k > 0);
    }
    fits = fits && n[0] >= 1 && n[0] <= NB_MAX_SPATIAL && n[1] == n[0] &&
           n[2] == n[0] && RANK(0) >= n[0] * behind + 1;
    return fits || nb_fail(NB_EVALUE,
                           "%s: sizes, stride and dilation are needed for "
                           "each spatial axis",
                           c->op->name);
}

/* windows */

/* Places of a window of so many taps along a spatial axis of a size. */
static int64_t places_in(const nb_call *c, int d, int64_t size, int64_t taps)
{
    int64_t room = size - (taps - 1) * attr(c, 2, d) - 1;
    return room < 0 ? 0 : room / attr(c, 1, d) + 1;
}

static bool windows_check(nb_call *c)
{
    return check_attributes(c, 1);
}

static void write_axes(nb_text *t, char name, int r)
{
    for (int d = 0; d < r; d++)
        nb_text_add(t, " %c%d", name, d);
}

/* Windows reach into their neighbours, and each is whole. */
static bool write_kinds(nb_text *t, int r)
{
    nb_text_add(t, "; permute{");
    write_axes(t, 's', r);
    nb_text_add(t, " }, replicate{");
    write_axes(t, 'k', r);
    return nb_text_add(t, " }");
}

static bool windows_sign(const nb_call *c, nb_text *t)
{
    int r = spatial(c);
    nb_text_add(t, "...");
    write_axes(t, 's', r);
    nb_text_add(t, " c -> ...");
    write_axes(t, 's', r);
    write_axes(t, 'k', r);
    nb_text_add(t, " c");
    write_kinds(t, r);
    for (int d = 0; d < r; d++)
        nb_text_add(t, ", k%d=%lld", d, (long long)attr(c, 0, d));
    return true;
}

static bool windows_infer(const nb_call *c, int k, nb_shape *out,
                          nb_dtype *dtype)
{
    int r = spatial(c), at = out->rank - 1 - 2 * r;
    (void)k, (void)dtype;
    for (int d = 0; d < r; d++) {
        int64_t taps = attr(c, 0, d), size = SIZE(0, at + d);
        out->size[at + d] = nb_extent_of(places_in(c, d, size, taps));
        out->size[at + r + d] = nb_extent_of(taps);
    }
    return true;
}

static bool windows_view(const nb_call *c, const nb_layout *in, nb_layout *out)
{
    int r = spatial(c), lead = in->rank - 1 - r;
    for (int d = 0; d < lead; d++)
        out->stride[d] = in->stride[d];
    for (int d = 0; d < r; d++) {
        out->stride[lead + d] = in->stride[lead + d] * attr(c, 1, d);
        out->stride[lead + r + d] = in->stride[lead + d] * attr(c, 2, d);
    }
    out->stride[out->rank - 1] = in->stride[in->rank - 1];
    return true;
}

static nb_tensor *call(nb_op *op, nb_tensor *x, int r, const int64_t *size,
                       const int64_t *stride, const int64_t *dilation)
{
    nb_value v[] = {NB_V_LIST(r, size), NB_V_LIST(r, stride),
                    NB_V_LIST(r, dilation)};
    return nb_apply(op, 1, &x, 3, v, NB_CALLER);
}

static nb_tensor *windows_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    int r, n;
    const int64_t *stride = nb_arg_list(c, 1, &r);
    int64_t size[NB_MAX_RANK];
    (void)i;
    nb_sizes(c->in[0], size);
    return call(&nb_op_fold, ct, r, size + RANK(0) - 1 - r, stride,
                nb_arg_list(c, 2, &n));
}

/* The spatial axis that visible axis d of input 0 is, behind which `behind`
 * times as many and the channels stand; -1: none.  Windows of no taps reach
 * nowhere: false. */
static bool spatial_axis(const nb_call *c, int d, int behind, int *axis)
{
    int r = spatial(c), at = RANK(0) - 1 - behind * r;
    *axis = d >= at && d < at + r ? d - at : -1;
    for (int k = 0; k < r; k++)
        if ((behind == 1 ? attr(c, 0, k) : SIZE(0, at + r + k)) == 0)
            return false;
    return true;
}

/* From where the first window begins to where the last one ends. */
static bool windows_reach(const nb_call *c, int i, int d, const int64_t *to,
                          int64_t *from)
{
    int k;
    (void)i;
    from[0] = from[1] = 0;
    if (!spatial_axis(c, d, 1, &k)) return false;
    if (k < 0 || to[0] == to[1]) return true;
    from[0] = to[0] * attr(c, 1, k);
    from[1] =
        (to[1] - 1) * attr(c, 1, k) + (attr(c, 0, k) - 1) * attr(c, 2, k) + 1;
    return true;
}

nb_op nb_op_windows = {
    .name = "windows",
    .doc = "What windows over the spatial axes of x (..., places..., channels) "
           "see: (..., windows..., places in one..., channels).",
    .example = "windows([[[1, 10], [2, 20], [3, 30], [4, 40], [5, 50]]], "
               "size=(2,), stride=(1,), dilation=(3,)) = "
               "[[[[1, 10], [4, 40]], [[2, 20], [5, 50]]]]",
    .params = "x, size:ints, stride:ints, dilation:ints",
    .check = windows_check,
    .sign = windows_sign,
    .infer = windows_infer,
    .kind = NB_LINEAR,
    .view = windows_view,
    .transpose = windows_transpose,
    .reach = windows_reach,
};

/* fold */

/* There are as many windows as fit, or windows would not lead back. */
static bool fold_check(nb_call *c)
{
    if (!check_attributes(c, 2)) return false;
    int r = spatial(c), at = RANK(0) - 1 - 2 * r;
    for (int d = 0; d < r; d++) {
        int64_t taps = SIZE(0, at + r + d), size = attr(c, 0, d);
        if (SIZE(0, at + d) != places_in(c, d, size, taps))
            return nb_fail(NB_EVALUE,
                           "fold: %lld windows of %lld do not make an image "
                           "of size %lld",
                           (long long)SIZE(0, at + d), (long long)taps,
                           (long long)size);
    }
    return true;
}

static bool fold_sign(const nb_call *c, nb_text *t)
{
    int r = spatial(c);
    nb_text_add(t, "...");
    write_axes(t, 's', r);
    write_axes(t, 'k', r);
    nb_text_add(t, " c -> ...");
    write_axes(t, 's', r);
    nb_text_add(t, " c");
    return write_kinds(t, r);
}

static bool fold_infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    int r = spatial(c);
    (void)k, (void)dtype;
    for (int d = 0; d < r; d++)
        out->size[out->rank - 1 - r + d] = nb_extent_of(attr(c, 0, d));
    return true;
}

/* Adds n numbers of v's dtype to a sum in double. */
static void add_up(double *sum, const nb_view *v, int64_t at, int64_t n)
{
    int64_t step = v->stride[v->rank - 1];
    int64_t item = (int64_t)nb_dtype_size(v->dtype);
    double run[128];
    for (int64_t from = 0; from < n; from += 128) {
        int64_t k = n - from < 128 ? n - from : 128;
        nb_convert(run, NB_F64, 1, v->data + (at + from * step) * item,
                   v->dtype, step, k);
        for (int64_t i = 0; i < k; i++)
            sum[from + i] += run[i];
    }
}

/* Every place of every window, all channels at once. */
static void fold_into(const nb_kernel *k, double *sum)
{
    const nb_view *x = &k->view[0], *y = &k->view[1];
    int r = spatial(k->call), n = 2 * r;
    int64_t at[2 * NB_MAX_SPATIAL] = {0};
    for (int d = 0; d <= n; d++)
        if (x->size[d] == 0) return;
    for (;;) {
        int64_t from = 0, to = 0;
        for (int d = 0; d < n; d++)
            from += at[d] * x->stride[d];
        for (int d = 0; d < r; d++)
            to += (at[d] * attr(k->call, 1, d) +
                   at[r + d] * attr(k->call, 2, d)) *
                  y->stride[d];
        add_up(sum + to, x, from, x->size[n]);
        int d = n - 1;
        while (d >= 0 && ++at[d] == x->size[d])
            at[d--] = 0;
        if (d < 0) return;
    }
}

static bool fold_kernel(const nb_kernel *k)
{
    const nb_view *y = &k->view[1];
    int64_t n = 1;
    for (int d = 0; d < y->rank; d++)
        n *= y->size[d];
    double *sum = nb_alloc_zero((size_t)n * sizeof *sum);
    if (!sum) return false;
    fold_into(k, sum);
    nb_convert(y->data, y->dtype, 1, sum, NB_F64, 1, n);
    nb_free(sum);
    return true;
}

static nb_tensor *fold_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    int r, n;
    const int64_t *stride = nb_arg_list(c, 1, &r);
    int64_t size[NB_MAX_RANK];
    (void)i;
    nb_sizes(c->in[0], size);
    return call(&nb_op_windows, ct, r, size + RANK(0) - 1 - r, stride,
                nb_arg_list(c, 2, &n));
}

/* Windows that begin before the range ends and end behind its beginning; those
 * beyond the ends hold zeros. */
static bool fold_reach(const nb_call *c, int i, int d, const int64_t *to,
                       int64_t *from)
{
    int k;
    (void)i;
    from[0] = from[1] = 0;
    if (!spatial_axis(c, d, 2, &k)) return false;
    if (k < 0 || to[0] == to[1]) return true;
    int64_t stride = attr(c, 1, k);
    int64_t low = to[0] - (SIZE(0, d + spatial(c)) - 1) * attr(c, 2, k);
    from[1] = (to[1] - 1) / stride + 1;
    from[0] = low > 0 ? (low - 1) / stride + 1 : -(-low / stride);
    if (from[0] > from[1]) from[0] = from[1];
    return true;
}

/* One axis of a block: the image that its windows make, which begins at place
 * `at` of the whole one, and what of it is the block's. */
typedef struct folded {
    int64_t at, size, cut, n;
} folded;

static folded fold_axis(const nb_call *c, int k, const nb_box *x,
                        const nb_box *y)
{
    int r = spatial(c), d = RANK(0) - 1 - 2 * r + k;
    int from = c->in[0]->nlanes + d, to = c->out->nlanes + d;
    int64_t first = y->start[to], end = first + y->size[to], m = x->size[from];
    folded f = {.at = x->start[from] * attr(c, 1, k)};
    if (m == SIZE(0, d) && y->size[to] == attr(c, 0, k))
        return (folded){0, end, 0, end};
    if (!m) return (folded){.at = first};
    f.size = (m - 1) * attr(c, 1, k) + (SIZE(0, d + r) - 1) * attr(c, 2, k) + 1;
    f.cut = first > f.at ? first - f.at : 0;
    f.n = (end < f.at + f.size ? end : f.at + f.size) - f.at - f.cut;
    if (f.n < 0) f.n = f.cut = 0;
    return f;
}

/* The image that the windows of a block make, of which it has a part. */
static nb_tensor *fold_local(const nb_call *c, const nb_blocks *b)
{
    int r, n, rank = c->out->rank;
    const int64_t *stride = nb_arg_list(c, 1, &r);
    int64_t image[NB_MAX_SPATIAL];
    nb_window cut, put = {0};
    for (int k = 0; k < r; k++)
        image[k] = fold_axis(c, k, &b->from[0], b->to).size;
    nb_tensor *y =
        call(&nb_op_fold, b->in[0], r, image, stride, nb_arg_list(c, 2, &n));
    if (!y) return NULL;
    cut = nb_window_of(y);
    for (int d = 0; d < rank; d++) {
        put.step[d] = 1;
        put.size[d] = b->to->size[c->out->nlanes + d];
    }
    for (int k = 0; k < r; k++) {
        int d = rank - 1 - r + k;
        folded f = fold_axis(c, k, &b->from[0], b->to);
        cut.start[d] = f.cut;
        cut.size[d] = f.n;
        put.start[d] =
            f.n ? f.at + f.cut - b->to->start[c->out->nlanes + d] : 0;
    }
    bool all = true; /* of the block is made */
    for (int d = 0; d < rank; d++)
        all = all && cut.size[d] == put.size[d];
    y = nb_slice(y, cut.start, cut.size, cut.step);
    return all ? y : nb_embed(y, put.start, put.size, put.step);
}

nb_op nb_op_fold = {
    .name = "fold",
    .doc = "The image of a size in which every element is the sum of what "
           "windows hold of it: the adjoint of windows.",
    .example = "fold([[[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]], "
               "size=(6,), stride=(2,), dilation=(1,)) = "
               "[[[1.0], [2.0], [7.0], [5.0], [6.0], [0.0]]]",
    .params = "x, size:ints, stride:ints, dilation:ints",
    .check = fold_check,
    .sign = fold_sign,
    .infer = fold_infer,
    .kind = NB_LINEAR,
    .in = NB_IN_FLOAT,
    .kernel = fold_kernel,
    .transpose = fold_transpose,
    .local = fold_local,
    .reach = fold_reach,
};

/* Pools */

typedef struct window {
    int64_t kernel[2];
    nb_span span;
} window;

static bool read_window(const nb_call *c, window *w)
{
    int n;
    nb_shape x = nb_tensor_shape(c->in[0]);
    int64_t places;
    w->span.rank = 2;
    if (!nb_read_each(c, 0, "kernel_size", 1, 2, w->kernel)) return false;
    nb_arg_list(c, 1, &n);
    if (n < 0) memcpy(w->span.stride, w->kernel, sizeof w->kernel);
    if (n >= 0 && !nb_read_each(c, 1, "stride", 1, 2, w->span.stride))
        return false;
    if (!nb_read_padding(c, 2, &w->span) ||
        !nb_read_each(c, 3, "dilation", 1, 2, w->span.dilation))
        return false;
    if (RANK(0) != 4)
        return nb_fail(NB_EVALUE,
                       "%s: shape %s: x must have rank 4 (N, H, W, "
                       "C)",
                       c->op->name, nb_shape_text(&x));
    for (int d = 0; d < 2; d++)
        if (!nb_places(c, &w->span, d, SIZE(0, 1 + d), w->kernel[d], &places))
            return false;
    return true;
}

/* The windows of x, padded with a value. */
static nb_tensor *windows_of(const nb_call *c, double padding)
{
    window w;
    if (!read_window(c, &w)) return NULL;
    const int64_t *p = w.span.pad;
    int64_t pad[] = {0, 0, p[0], p[1], p[2], p[3], 0, 0};
    nb_tensor *x = c->in[0];
    if (p[0] || p[1] || p[2] || p[3]) x = nb_pad(x, pad, padding);
    return call(&nb_op_windows, x, 2, w.kernel, w.span.stride, w.span.dilation);
}

static const int64_t inside[] = {3, 4};

COMPOSE(avg_pool2d, nb_mean(windows_of(c, 0), 2, inside, false))
COMPOSE(max_pool2d, nb_reduce_max(windows_of(c, -INFINITY), 2, inside, false))

#define P_POOL                                                   \
    "x, *, kernel_size:ints, stride:ints=None, padding:ints=0, " \
    "dilation:ints=(1, 1)"

nb_op nb_op_avg_pool2d = {
    .name = "avg_pool2d",
    .doc = "Mean over windows of images (N, H, W, C); padding counts as zeros. "
           " The stride is the kernel's size unless given.",
    .example = "avg_pool2d([[[[1.0], [2.0], [3.0]], [[5.0], [6.0], [7.0]]]], "
               "kernel_size=(2, 2), stride=(1, 2), padding=(0, 1, 1, 0)) = "
               "[[[[1.5], [4.5]], [[1.25], [3.25]]]]",
    .params = P_POOL,
    .kind = NB_COMPOSITE,
    .in = NB_IN_FLOAT,
    .compose = avg_pool2d_compose,
};

nb_op nb_op_max_pool2d = {
    .name = "max_pool2d",
    .doc =
        "Largest element of windows of images (N, H, W, C); padding does not "
        "count, and a window of nothing else gives -inf.  Every element "
        "that equals the maximum gets the whole derivative.  The stride is "
        "the kernel's size unless given.",
    .example = "max_pool2d([[[[1.0], [2.0], [3.0]], [[5.0], [-6.0], [-7.0]]]],"
               " kernel_size=(2, 2), stride=(1, 2), padding=(0, 1, 1, 0)) = "
               "[[[[5.0], [3.0]], [[5.0], [-6.0]]]]",
    .params = P_POOL,
    .kind = NB_COMPOSITE,
    .in = NB_IN_NUMBER,
    .compose = max_pool2d_compose,
    .shapes = "d",
};

static nb_tensor *pool(nb_op *op, nb_tensor *x, const nb_pool *how,
                       void *caller)
{
    nb_pool h = *how;
    for (int d = 0; d < 2; d++) {
        if (h.stride[d] == 0) h.stride[d] = h.kernel_size[d];
        if (h.dilation[d] == 0) h.dilation[d] = 1;
    }
    nb_value v[] = {NB_V_LIST(2, h.kernel_size), NB_V_LIST(2, h.stride),
                    NB_V_LIST(4, h.padding[0]), NB_V_LIST(2, h.dilation)};
    return nb_apply(op, 1, &x, 4, v, caller);
}

nb_tensor *nb_avg_pool2d(nb_tensor *x, const nb_pool *how)
{
    return pool(&nb_op_avg_pool2d, x, how, NB_CALLER);
}

nb_tensor *nb_max_pool2d(nb_tensor *x, const nb_pool *how)
{
    return pool(&nb_op_max_pool2d, x, how, NB_CALLER);
}
