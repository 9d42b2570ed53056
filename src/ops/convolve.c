/* convolve.c - convolutions as users call them: arguments checked and spelt out
 * for the primitive of conv.c.  A transposed convolution is the adjoint in x of
 * a convolution. */
#include "nabla/conv.h"
#include "ops/conv_kernel.h"

#include <string.h>

bool nb_read_each(const nb_call *c, int k, const char *what, int64_t least,
                  int n, int64_t *to)
{
    int given;
    const int64_t *v = nb_arg_list(c, k, &given);
    if (given != 1 && given != n)
        return nb_fail(NB_EVALUE, "%s: %s has %d values, 1 or %d are needed",
                       c->op->name, what, given < 0 ? 0 : given, n);
    for (int d = 0; d < n; d++) {
        to[d] = v[given == 1 ? 0 : d];
        if (to[d] < least)
            return nb_fail(NB_EVALUE, "%s: %s values must be %s, not %lld",
                           c->op->name, what, least ? "> 0" : ">= 0",
                           (long long)to[d]);
    }
    return true;
}

bool nb_read_padding(const nb_call *c, int k, nb_span *s)
{
    int n, r = s->rank;
    const int64_t *v = nb_arg_list(c, k, &n);
    if (n != 1 && n != r && n != 2 * r)
        return nb_fail(NB_EVALUE,
                       "%s: padding has %d values, 1, %d or %d are needed",
                       c->op->name, n < 0 ? 0 : n, r, 2 * r);
    for (int d = 0; d < 2 * r; d++) {
        s->pad[d] = v[n == 1 ? 0 : n == 2 * r ? d : d / 2];
        if (s->pad[d] < 0)
            return nb_fail(NB_EVALUE,
                           "%s: padding values must be >= 0, not %lld",
                           c->op->name, (long long)s->pad[d]);
    }
    return true;
}

static void *no_places(const nb_call *c, int d, int64_t size, int64_t places)
{
    return nb_fail(NB_EVALUE,
                   "%s: spatial axis %d of size %lld gives %lld places: the "
                   "window with its padding does not fit",
                   c->op->name, d, (long long)size, (long long)places);
}

bool nb_places(const nb_call *c, const nb_span *s, int d, int64_t size,
               int64_t taps, int64_t *places)
{
    nb_conv_line l = {.size = size,
                      .taps = taps,
                      .stride = s->stride[d],
                      .dilation = s->dilation[d],
                      .spread = 1,
                      .before = s->pad[2 * d],
                      .after = s->pad[2 * d + 1]};
    if (taps <= 0 || !nb_conv_line_measure(&l) || l.places <= 0)
        return no_places(c, d, size, taps <= 0 ? 0 : l.places);
    *places = l.places;
    return true;
}

static bool check_layout(const nb_call *c, int k, const char *what, int r,
                         const char *const *known)
{
    const char *text = nb_arg_text(c, k);
    return !text || !strcmp(text, known[r - 1]) ||
           nb_fail(NB_EVALUE, "%s: %s \"%s\" is not \"%s\", the only one",
                   c->op->name, what, text, known[r - 1]);
}

static bool check_shapes(const nb_call *c, int r, int64_t groups)
{
    nb_shape x = nb_tensor_shape(c->in[0]), f = nb_tensor_shape(c->in[1]);
    if (RANK(0) != r + 2 || RANK(1) != r + 2)
        return nb_fail(
            NB_EVALUE, "%s: shapes %s and %s: x and filter must have rank %d",
            c->op->name, nb_shape_text(&x), nb_shape_text(&f), r + 2);
    if (groups <= 0)
        return nb_fail(NB_EVALUE, "%s: groups must be > 0, not %lld",
                       c->op->name, (long long)groups);
    int64_t in = SIZE(0, -1), out = SIZE(1, -1);
    if (in % groups || out % groups)
        return nb_fail(NB_EVALUE,
                       "%s: %lld channels of x and %lld of the filter must be "
                       "divisible by groups (%lld)",
                       c->op->name, (long long)in, (long long)out,
                       (long long)groups);
    return true;
}

static bool check_channels(const nb_call *c, int64_t needed, int64_t groups)
{
    nb_shape f = nb_tensor_shape(c->in[1]);
    return SIZE(0, -1) == needed ||
           nb_fail(NB_EVALUE,
                   "%s: Input channels: x has %lld, a filter of shape %s in "
                   "%lld groups takes %lld",
                   c->op->name, (long long)SIZE(0, -1), nb_shape_text(&f),
                   (long long)groups, (long long)needed);
}

static nb_tensor *with_bias(const nb_call *c, nb_tensor *y)
{
    if (!y || c->nin < 3) return y;
    nb_shape b = nb_tensor_shape(c->in[2]);
    if (RANK(2) != 1 || SIZE(2, 0) != nb_size(y, -1))
        return nb_fail(NB_EVALUE,
                       "%s: bias size: shape %s for %lld channels of the "
                       "result",
                       c->op->name, nb_shape_text(&b),
                       (long long)nb_size(y, -1));
    return nb_add(y, c->in[2]);
}

/* Words of the attributes that convolutions share. */
typedef struct places_of {
    int stride, dilation, padding, input_layout, filter_layout;
} places_of;

static bool read_span(const nb_call *c, int r, places_of at, nb_span *s)
{
    static const char *const images[] = {"NWC", "NHWC", "NDHWC"};
    static const char *const filters[] = {"WIO", "HWIO", "DHWIO"};
    s->rank = r;
    return nb_read_each(c, at.stride, "stride", 1, r, s->stride) &&
           nb_read_each(c, at.dilation, "dilation", 1, r, s->dilation) &&
           nb_read_padding(c, at.padding, s) &&
           check_layout(c, at.input_layout, "input_layout", r, images) &&
           check_layout(c, at.filter_layout, "filter_layout", r, filters);
}

/* Convolution */

static nb_tensor *convolve(const nb_call *c, int r)
{
    nb_span s;
    int64_t groups = nb_arg_int(c, 3), places;
    if (!read_span(c, r, (places_of){0, 1, 2, 4, 5}, &s) ||
        !check_shapes(c, r, groups) ||
        !check_channels(c, SIZE(1, -2) * groups, groups))
        return NULL;
    nb_geometry g = {.rank = r, .groups = groups};
    for (int d = 0; d < r; d++) {
        if (!nb_places(c, &s, d, SIZE(0, 1 + d), SIZE(1, d), &places))
            return NULL;
        g.line[d] = (nb_conv_line){.stride = s.stride[d],
                                   .dilation = s.dilation[d],
                                   .spread = 1,
                                   .before = s.pad[2 * d],
                                   .after = s.pad[2 * d + 1]};
    }
    return with_bias(c, nb_conv_apply(c->in[0], c->in[1], &g));
}

COMPOSE(conv1d, convolve(c, 1))
COMPOSE(conv2d, convolve(c, 2))
COMPOSE(conv3d, convolve(c, 3))

#define D_CONV                                                                \
    "of images (channels last) with a filter (taps..., channels in a group, " \
    "channels out): at every place the sum of filter times image over the "   \
    "taps and channels.  padding is one number, one an axis, or two an axis."

nb_op nb_op_conv1d = {
    .name = "conv1d",
    .doc = "One-dimensional convolution " D_CONV,
    .example = "conv1d([[[1], [2], [3], [4], [5]]], [[[1, 0]], [[0, 2]]], "
               "[10, 20], stride=(2,), dilation=(2,), padding=(1, 0)) = "
               "[[[10, 24], [12, 28]]]",
    .params = "x, filter, *, stride:ints=1, dilation:ints=1, padding:ints=0, "
              "groups:int=1, bias=None, input_layout:text=None, "
              "filter_layout:text=None",
    .kind = NB_COMPOSITE,
    .in = NB_IN_NUMBER,
    .compose = conv1d_compose,
};

nb_op nb_op_conv2d = {
    .name = "conv2d",
    .doc = "Two-dimensional convolution " D_CONV,
    .example = "conv2d([[[[1, 1], [2, 1], [0, 1]], [[0, 2], [1, 0], [3, 1]], "
               "[[2, 0], [1, 1], [0, 1]]]], "
               "[[[[1, 2]], [[0, 1]]], [[[2, 0]], [[1, 1]]]], "
               "stride=(1, 2), padding=(1, 0, 0, 1), dilation=(1, 1), "
               "groups=2) = [[[[4, 1], [0, 0]], [[2, 3], [6, 2]], "
               "[[5, 5], [3, 2]]]]",
    .params = "x, filter, *, stride:ints=(1, 1), dilation:ints=(1, 1), "
              "padding:ints=(0, 0, 0, 0), groups:int=1, bias=None, "
              "input_layout:text=None, filter_layout:text=None",
    .kind = NB_COMPOSITE,
    .in = NB_IN_NUMBER,
    .compose = conv2d_compose,
};

nb_op nb_op_conv3d = {
    .name = "conv3d",
    .doc = "Three-dimensional convolution " D_CONV,
    .example = "conv3d([[[[[1], [2]], [[3], [4]]], [[[5], [6]], [[7], [8]]]]],"
               " [[[[[1]], [[2]]]], [[[[0]], [[1]]]]], padding=(0, 1, 0), "
               "stride=(1, 3, 1)) = [[[[[0]], [[0]]]]]",
    .params = "x, filter, *, stride:ints=(1, 1, 1), dilation:ints=(1, 1, 1), "
              "padding:ints=(0, 0, 0, 0, 0, 0), groups:int=1, bias=None, "
              "input_layout:text=None, filter_layout:text=None",
    .kind = NB_COMPOSITE,
    .in = NB_IN_NUMBER,
    .compose = conv3d_compose,
};

/* Transposed convolution */

static bool read_extra(const nb_call *c, const nb_span *s, int64_t *extra)
{
    if (!nb_read_each(c, 3, "output_paddings", 0, s->rank, extra)) return false;
    for (int d = 0; d < s->rank; d++)
        if (extra[d] >= s->stride[d])
            return nb_fail(NB_EVALUE,
                           "%s: output_paddings must be below the stride: "
                           "%lld against %lld",
                           c->op->name, (long long)extra[d],
                           (long long)s->stride[d]);
    return true;
}

/* Places that x spreads over; 0 if they are more than an int64 counts. */
static int64_t spread_over(const nb_conv_line *l, int64_t after, int64_t extra)
{
    __int128 n = (__int128)(l->places - 1) * l->stride + 1 +
                 (__int128)(l->taps - 1) * l->dilation - l->before - after +
                 extra;
    return n > INT64_MAX ? 0 : (int64_t)n;
}

/* The convolution whose adjoint is asked for has a result like x and an input
 * like the result here. */
static nb_tensor *deconvolve(const nb_call *c, int r)
{
    nb_span s;
    int64_t groups = nb_arg_int(c, 6), extra[NB_MAX_SPATIAL];
    if (!read_span(c, r, (places_of){0, 1, 2, 4, 5}, &s) ||
        !read_extra(c, &s, extra) || !check_shapes(c, r, groups) ||
        !check_channels(c, SIZE(1, -1), groups))
        return NULL;
    nb_geometry g = {.rank = r, .groups = groups};
    for (int d = 0; d < r; d++) {
        nb_conv_line *l = &g.line[d];
        *l = (nb_conv_line){.places = SIZE(0, 1 + d),
                            .taps = SIZE(1, d),
                            .stride = s.stride[d],
                            .dilation = s.dilation[d],
                            .spread = 1,
                            .before = s.pad[2 * d]};
        l->size = spread_over(l, s.pad[2 * d + 1], extra[d]);
        if (l->places == 0 || l->taps == 0 || l->size <= 0)
            return no_places(c, d, l->places, l->size);
    }
    nb_geometry a = nb_conv_adjoint(&g);
    return with_bias(c,
                     nb_conv_apply(c->in[0], nb_conv_turn(c->in[1], &g), &a));
}

COMPOSE(conv1d_transpose, deconvolve(c, 1))
COMPOSE(conv2d_transpose, deconvolve(c, 2))
COMPOSE(conv3d_transpose, deconvolve(c, 3))

#define D_DECONV                                                             \
    "convolution, the adjoint in its images of a convolution with the same " \
    "filter (taps..., channels out in a group, channels of x): every "       \
    "element of x spreads the filter over the places around it."

nb_op nb_op_conv1d_transpose = {
    .name = "conv1d_transpose",
    .doc = "One-dimensional transposed " D_DECONV,
    .example = "conv1d_transpose([[[1], [2]]], [[[1]], [[3]]], [10], "
               "stride=(3,), padding=(0, 1), output_paddings=(2,), "
               "dilation=(2,)) = [[[11], [10], [13], [12], [10], [16], [10]]]",
    .params = "x, filter, *, stride:ints=1, dilation:ints=1, padding:ints=0, "
              "output_paddings:ints=0, bias=None, input_layout:text=None, "
              "filter_layout:text=None, groups:int=1",
    .kind = NB_COMPOSITE,
    .in = NB_IN_NUMBER,
    .compose = conv1d_transpose_compose,
};

nb_op nb_op_conv2d_transpose = {
    .name = "conv2d_transpose",
    .doc = "Two-dimensional transposed " D_DECONV,
    .example = "conv2d_transpose([[[[1, 2], [0, 1]]]], [[[[1, 0]], [[2, 1]]], "
               "[[[0, 1]], [[1, 1]]]], stride=(2, 2), padding=(0, 1, 1, 0), "
               "output_paddings=(1, 0), groups=2) = [[[[2, 2], [0, 0], "
               "[0, 1]], [[1, 2], [0, 1], [0, 1]]]]",
    .params = "x, filter, *, stride:ints=(1, 1), dilation:ints=(1, 1), "
              "padding:ints=(0, 0, 0, 0), output_paddings:ints=(0, 0), "
              "bias=None, input_layout:text=None, filter_layout:text=None, "
              "groups:int=1",
    .kind = NB_COMPOSITE,
    .in = NB_IN_NUMBER,
    .compose = conv2d_transpose_compose,
};

nb_op nb_op_conv3d_transpose = {
    .name = "conv3d_transpose",
    .doc = "Three-dimensional transposed " D_DECONV,
    .example = "conv3d_transpose([[[[[1], [2]]]]], [[[[[1]], [[3]]]]], "
               "stride=(1, 1, 2)) = [[[[[1], [3], [2], [6]]]]]",
    .params = "x, filter, *, stride:ints=(1, 1, 1), dilation:ints=(1, 1, 1), "
              "padding:ints=(0, 0, 0, 0, 0, 0), "
              "output_paddings:ints=(0, 0, 0), bias=None, "
              "input_layout:text=None, filter_layout:text=None, groups:int=1",
    .kind = NB_COMPOSITE,
    .in = NB_IN_NUMBER,
    .compose = conv3d_transpose_compose,
};

/* From C */

static nb_tensor *call(nb_op *op, int r, nb_tensor *x, nb_tensor *filter,
                       const nb_conv *how, bool transposed, void *caller)
{
    nb_conv plain = {0}, h = how ? *how : plain;
    nb_tensor *in[] = {x, filter};
    for (int d = 0; d < r; d++) {
        if (h.stride[d] == 0) h.stride[d] = 1;
        if (h.dilation[d] == 0) h.dilation[d] = 1;
    }
    nb_value groups = NB_V_INT(h.groups ? h.groups : 1), none = NB_V_NONE;
    nb_value extra = NB_V_LIST(r, h.output_padding);
    nb_value v[] = {NB_V_LIST(r, h.stride),
                    NB_V_LIST(r, h.dilation),
                    NB_V_LIST(2 * r, h.padding[0]),
                    transposed ? extra : groups,
                    none,
                    none,
                    groups};
    return nb_apply(op, 2, in, transposed ? 7 : 6, v, caller);
}

#define FROM_C(name, r, transposed)                                           \
    nb_tensor *nb_##name(nb_tensor *x, nb_tensor *filter, const nb_conv *how) \
    {                                                                         \
        return call(&nb_op_##name, r, x, filter, how, transposed, NB_CALLER); \
    }
FROM_C(conv1d, 1, false)
FROM_C(conv2d, 2, false)
FROM_C(conv3d, 3, false)
FROM_C(conv1d_transpose, 1, true)
FROM_C(conv2d_transpose, 2, true)
FROM_C(conv3d_transpose, 3, true)
