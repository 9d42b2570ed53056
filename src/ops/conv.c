/* conv.c - convolution.
 *
 * One primitive, `conv`, in any number of spatial axes.  At place t of the
 * result it sums, over the taps k of the filter, filter[k] times the image at
 *     t * stride + k * dilation - padding before,
 * where the image is first spread out with input_dilation - 1 zeros between its
 * elements; padding may be negative and crops then.  That makes it closed under
 * transposition: both adjoints are convolutions again, with stride, dilation
 * and input_dilation in exchanged roles. */
#include "ops/conv.h"

#include "ops/conv_work.h"

#include <string.h>

/* The primitive */

static const int64_t *list_of(const nb_call *c, int k)
{
    int n;
    return nb_arg_list(c, k, &n);
}

nb_geometry nb_conv_geometry(const nb_call *c)
{
    nb_geometry g = {.rank = RANK(0) - 2, .groups = nb_arg_int(c, 4)};
    const int64_t *stride = list_of(c, 0), *dilation = list_of(c, 1);
    const int64_t *pad = list_of(c, 2), *spread = list_of(c, 3);
    g.images = SIZE(0, 0);
    g.in = SIZE(1, -2);
    g.out = SIZE(1, -1) / g.groups;
    for (int d = 0; d < g.rank; d++) {
        nb_conv_line *l = &g.line[d];
        *l = (nb_conv_line){.size = SIZE(0, 1 + d),
                            .taps = SIZE(1, d),
                            .stride = stride[d],
                            .dilation = dilation[d],
                            .spread = spread[d],
                            .before = pad[2 * d],
                            .after = pad[2 * d + 1]};
        nb_conv_line_measure(l);
    }
    return g;
}

static bool lengths_fit(const nb_call *c, int r)
{
    int n[4];
    bool positive = nb_arg_int(c, 4) > 0;
    for (int k = 0; k < 4; k++) {
        const int64_t *v = nb_arg_list(c, k, &n[k]);
        for (int i = 0; k != 2 && i < n[k]; i++)
            positive = positive && v[i] > 0;
    }
    return positive && n[0] == r && n[1] == r && n[2] == 2 * r && n[3] == r;
}

static bool conv_check(nb_call *c)
{
    int r = RANK(0) - 2;
    nb_shape x = nb_tensor_shape(c->in[0]), f = nb_tensor_shape(c->in[1]);
    int64_t groups = nb_arg_int(c, 4);
    bool fits = r >= 1 && r <= NB_MAX_SPATIAL && RANK(1) == r + 2 &&
                lengths_fit(c, r) && SIZE(0, -1) == groups * SIZE(1, -2) &&
                SIZE(1, -1) % groups == 0;
    return fits || nb_fail(NB_EVALUE,
                           "conv: shapes %s and %s do not fit, or its "
                           "arguments are not one a spatial axis and positive",
                           nb_shape_text(&x), nb_shape_text(&f));
}

static bool conv_sign(const nb_call *c, nb_text *t)
{
    int r = RANK(0) - 2;
    int64_t groups = nb_arg_int(c, 4);
    const char *in = groups > 1 ? "(g i)" : "i";
    const char *out = groups > 1 ? "(g o)" : "o";
    nb_text places = {0};
    for (int d = 0; d < r; d++)
        nb_text_add(&places, " s%d", d);
    nb_text_add(t, "n%s %s,", nb_text_get(&places), in);
    for (int d = 0; d < r; d++)
        nb_text_add(t, " 1");
    nb_text_add(t, " i %s -> n%s %s; permute{%s }", out, nb_text_get(&places),
                out, nb_text_get(&places));
    if (groups > 1) nb_text_add(t, ", g=%lld", (long long)groups);
    bool ok = !places.failed;
    nb_text_free(&places);
    return ok;
}

static bool conv_infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    nb_geometry g = nb_conv_geometry(c);
    (void)k, (void)dtype;
    for (int d = 0; d < g.rank; d++)
        out->size[1 + d] = nb_extent_of(g.line[d].places);
    out->size[1 + g.rank] = nb_extent_of(SIZE(1, -1));
    return true;
}

static bool conv_kernel(const nb_kernel *k)
{
    nb_geometry g = nb_conv_geometry(k->call);
    return nb_conv_run(&g, &k->view[0], &k->view[1], &k->view[2]);
}

nb_tensor *nb_conv_apply(nb_tensor *x, nb_tensor *filter, const nb_geometry *g)
{
    int64_t stride[NB_MAX_SPATIAL], dilation[NB_MAX_SPATIAL];
    int64_t spread[NB_MAX_SPATIAL], pad[2 * NB_MAX_SPATIAL];
    nb_tensor *in[] = {x, filter};
    for (int d = 0; d < g->rank; d++) {
        const nb_conv_line *l = &g->line[d];
        stride[d] = l->stride;
        dilation[d] = l->dilation;
        spread[d] = l->spread;
        pad[2 * d] = l->before;
        pad[2 * d + 1] = l->after;
    }
    nb_value v[] = {NB_V_LIST(g->rank, stride), NB_V_LIST(g->rank, dilation),
                    NB_V_LIST(2 * g->rank, pad), NB_V_LIST(g->rank, spread),
                    NB_V_INT(g->groups)};
    return nb_apply(&nb_op_conv, 2, in, 5, v, NB_CALLER);
}

/* The last axis of x, of groups times n, and axis `with` exchange what they
 * have inside the groups: the last becomes groups times size(with). */
static nb_tensor *exchange(nb_tensor *x, int with, int64_t groups)
{
    int64_t size[NB_MAX_RANK], order[NB_MAX_RANK];
    int rank = x ? nb_rank(x) : 0;
    if (!x) return NULL;
    nb_sizes(x, size);
    size[rank] = size[rank - 1] / groups;
    size[rank - 1] = groups;
    for (int d = 0; d <= rank; d++)
        order[d] = d;
    order[with] = rank;
    order[rank] = with;
    x = nb_permute(nb_reshape(x, rank + 1, size), rank + 1, order);
    if (!x) return NULL;
    nb_sizes(x, size);
    size[rank - 1] *= size[rank];
    return nb_reshape(x, rank, size);
}

/* x at i meets filter at k in the result at t where i spread = t stride +
 * k dilation - before.  Read for i, with the taps counted from the other end:
 * a convolution of the result, spread by the stride. */
nb_geometry nb_conv_adjoint(const nb_geometry *g)
{
    nb_geometry a = {.rank = g->rank, .groups = g->groups};
    for (int d = 0; d < g->rank; d++) {
        const nb_conv_line *l = &g->line[d];
        int64_t reach = l->dilation * (l->taps - 1);
        int64_t whole = nb_spread_size(l->places, l->stride);
        nb_conv_line *to = &a.line[d];
        *to = (nb_conv_line){.stride = l->spread,
                             .dilation = l->dilation,
                             .spread = l->stride,
                             .before = reach - l->before};
        to->after = (l->size - 1) * l->spread + 1 + reach - whole - to->before;
    }
    return a;
}

nb_tensor *nb_conv_turn(nb_tensor *filter, const nb_geometry *g)
{
    static const int64_t axes[] = {0, 1, 2};
    return exchange(nb_flip(filter, g->rank, axes), g->rank, g->groups);
}

/* Read for k: images are summed as channels are elsewhere, the result's places
 * are the taps.  x becomes (in, places..., groups images), the result a filter
 * of (places..., images, out). */
static nb_geometry adjoint_in_filter(const nb_geometry *g)
{
    nb_geometry a = {.rank = g->rank, .groups = g->groups};
    for (int d = 0; d < g->rank; d++) {
        const nb_conv_line *l = &g->line[d];
        int64_t whole = nb_spread_size(l->size, l->spread);
        nb_conv_line *to = &a.line[d];
        *to = (nb_conv_line){.stride = l->dilation,
                             .dilation = l->stride,
                             .spread = l->spread,
                             .before = l->before};
        to->after = (l->taps - 1) * l->dilation + (l->places - 1) * l->stride +
                    1 - whole - to->before;
    }
    return a;
}

static nb_tensor *conv_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    nb_geometry g = nb_conv_geometry(c), a;
    int64_t first = 0, place = g.rank;
    if (i == 0) {
        a = nb_conv_adjoint(&g);
        return nb_conv_apply(ct, nb_conv_turn(c->in[1], &g), &a);
    }
    a = adjoint_in_filter(&g);
    nb_tensor *x = exchange(c->in[0], 0, g.groups);
    nb_tensor *y = nb_conv_apply(x, nb_moveaxis(ct, 1, &first, &place), &a);
    return nb_moveaxis(y, 1, &first, &place);
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* Places [to[0], to[1]) read the image, spread out, from to[0] stride - before
 * on, padding like any other place; at least one element, so that no image is
 * empty. */
static bool conv_reach(const nb_call *c, int i, int d, const int64_t *to,
                       int64_t *from)
{
    nb_geometry g = nb_conv_geometry(c);
    from[0] = from[1] = 0;
    for (int k = 0; k < g.rank; k++)
        if (!g.line[k].size || !g.line[k].taps || g.line[k].places < 1)
            return false;
    if (i != 0 || d < 1 || d > g.rank || to[0] == to[1]) return true;
    const nb_conv_line *l = &g.line[d - 1];
    int64_t low = to[0] * l->stride - l->before;
    int64_t high =
        (to[1] - 1) * l->stride - l->before + (l->taps - 1) * l->dilation;
    from[0] = -floor_div(-low, l->spread);
    from[1] = nb_most(floor_div(high, l->spread), from[0]) + 1;
    return true;
}

/* A block has groups of its own, those of its channels; and its own padding,
 * so that its first and last places are those of its part of the result. */
static nb_tensor *conv_local(const nb_call *c, const nb_blocks *b)
{
    nb_geometry g = nb_conv_geometry(c);
    int64_t in = nb_size(b->in[1], -2);
    g.groups = in ? nb_size(b->in[0], -1) / in : 1;
    for (int d = 0; d < g.rank; d++) {
        nb_conv_line *l = &g.line[d];
        int x = c->in[0]->nlanes + 1 + d, y = c->out->nlanes + 1 + d;
        int64_t n = b->from[0].size[x], places = b->to->size[y];
        if (!b->from[0].start[x] && n == l->size && places == l->places)
            continue;
        l->before +=
            b->from[0].start[x] * l->spread - b->to->start[y] * l->stride;
        l->after = (places - 1) * l->stride + (l->taps - 1) * l->dilation + 1 -
                   nb_spread_size(n, l->spread) - l->before;
    }
    return nb_conv_apply(b->in[0], b->in[1], &g);
}

nb_op nb_op_conv = {
    .name = "conv",
    .doc = "Convolution over the middle axes of x (images, places..., "
           "channels) with a filter (taps..., channels in a group, channels "
           "out); input_dilation - 1 zeros stand between elements of x, and "
           "negative padding crops.",
    .example = "conv([[[1, 2], [3, 4], [5, 6]], [[0, 1], [1, 0], [2, 2]]], "
               "[[[1, 0, 1, 2]], [[0, 1, 1, 1]]], stride=(2,), dilation=(3,), "
               "padding=(1, 2), input_dilation=(2,), groups=2) = "
               "[[[0, 3, 4, 4], [0, 5, 6, 6], [0, 0, 0, 0]], "
               "[[0, 1, 0, 0], [0, 2, 2, 2], [0, 0, 0, 0]]]",
    .params = "x, filter, stride:ints, dilation:ints, padding:ints, "
              "input_dilation:ints, groups:int",
    .check = conv_check,
    .sign = conv_sign,
    .infer = conv_infer,
    .kind = NB_MULTILINEAR,
    .in = NB_IN_NUMBER,
    .kernel = conv_kernel,
    .transpose = conv_transpose,
    .local = conv_local,
    .reach = conv_reach,
};
