/* conv_kernel.c - a convolution as its work: types, phases, and which way.
 *
 * Where x is spread out with zeros between its elements, places that are
 * `spread` apart, or less, meet the same taps, and the others only zeros.  Each
 * such phase of the places is a convolution by itself, with some of the taps,
 * in which nothing is spread.
 *
 * 16-bit floats are multiplied in float32, integers modulo 2^64. */
#include "ops/conv_work.h"

#include "base/half.h"
#include "base/memory.h"

#include <string.h>

enum { WIDEST = 64 };

int64_t nb_spread_size(int64_t n, int64_t step)
{
    return n > 0 ? (n - 1) * step + 1 : 0;
}

bool nb_conv_line_measure(nb_conv_line *l)
{
    __int128 whole = l->size ? (__int128)(l->size - 1) * l->spread + 1 : 0;
    __int128 reach = (__int128)(l->taps - 1) * l->dilation + 1;
    __int128 padded = whole + l->before + l->after;
    __int128 room = padded - reach;
    if (whole > INT64_MAX || reach > INT64_MAX || padded > INT64_MAX)
        return false;
    l->places = room < 0 ? (int64_t)(-((-room - 1) / l->stride + 1)) + 1
                         : (int64_t)(room / l->stride) + 1;
    return true;
}

double nb_conv_products(const nb_conv_work *w)
{
    double n =
        (double)w->images * (double)w->groups * (double)w->in * (double)w->out;
    for (int d = 0; d < 3; d++)
        n *= (double)w->line[d].places * (double)w->line[d].taps;
    return n;
}

double nb_conv_cost(const nb_conv_work *w)
{
    return nb_conv_products(w) * (double)w->item / 200;
}

static void clear(const nb_conv_work *w)
{
    const nb_conv_line *l = w->line;
    const int64_t *stride = w->y.stride;
    size_t item = nb_dtype_size(w->y.dtype);
    int64_t places = l[0].places * l[1].places * l[2].places;
    for (int64_t i = 0; i < w->images * places; i++) {
        int64_t k = i % l[2].places, j = i / l[2].places % l[1].places;
        int64_t n = i % places / (l[1].places * l[2].places);
        int64_t at = i / places * stride[0] + n * stride[1] + j * stride[2] +
                     k * stride[3];
        memset(w->y.data + at * (int64_t)item, 0,
               (size_t)(w->groups * w->out) * item);
    }
}

/* Whether a line reads one element at one place, the only one. */
static bool is_trivial(const nb_conv_line *l)
{
    return l->size == 1 && l->taps == 1 && l->places == 1 && l->before == 0;
}

/* Drops line d: those before it move up. */
static void drop_line(nb_conv_work *w, int d)
{
    for (; d > 0; d--) {
        w->line[d] = w->line[d - 1];
        w->x.stride[1 + d] = w->x.stride[d];
        w->y.stride[1 + d] = w->y.stride[d];
        w->filter.stride[d] = w->filter.stride[d - 1];
    }
    w->line[0] = (nb_conv_line){.size = 1,
                                .taps = 1,
                                .places = 1,
                                .stride = 1,
                                .dilation = 1,
                                .spread = 1};
}

/* Whether a line only has places, one for each element. */
static bool is_plain(const nb_conv_line *l)
{
    return l->taps == 1 && l->stride == 1 && l->before == 0 &&
           l->places == l->size;
}

/* Lines that can be one are made one, so that tiles find long lines. */
static void join_lines(nb_conv_work *w)
{
    for (int d = 2; d > 0; d--) {
        nb_conv_line *l = &w->line[d];
        while (d == 2 && is_trivial(l) && !is_trivial(l - 1))
            drop_line(w, d);
        bool chained = is_plain(l - 1) && is_plain(l) &&
                       w->x.stride[d] == w->x.stride[1 + d] * l->size &&
                       w->y.stride[d] == w->y.stride[1 + d] * l->size;
        if (!chained) continue;
        nb_conv_line both = *l;
        both.size = both.places = l->size * l[-1].size;
        int64_t x = w->x.stride[1 + d], y = w->y.stride[1 + d];
        drop_line(w, d);
        *l = both;
        w->x.stride[1 + d] = x;
        w->y.stride[1 + d] = y;
    }
}

/* Tiles are as high as there are places in a line, or images; where both will
 * do, as x lies.  Of many groups with one image and channel out, as in the
 * gradient of a filter with a channel to a group, tiles would be all but empty
 * either way; by images they go over the groups. */
static bool is_by_images(const nb_conv_work *w)
{
    int64_t rows = w->tiler->rows, images = nb_least(w->images, rows);
    int64_t places = nb_least(w->line[2].places, rows);
    if (w->images == 1 && w->out == 1 && w->in > 1 &&
        w->groups >= w->tiler->lanes)
        return true;
    if (images == places)
        return w->x.stride[0] == 1 && w->x.stride[4] != 1 && w->in > 1;
    return images > places;
}

static bool run_plain(nb_conv_work w, nb_conv_way way)
{
    bool none = w.in == 0;
    for (int d = 0; d < 3; d++) {
        if (w.line[d].places <= 0) return true;
        none = none || w.line[d].taps == 0;
    }
    if (w.images == 0 || w.out == 0) return true;
    w.y.data += w.y.offset * (int64_t)nb_dtype_size(w.y.dtype);
    w.filter.data += w.filter.offset * (int64_t)nb_dtype_size(w.filter.dtype);
    if (none) return clear(&w), true;
    join_lines(&w);
    bool images = way.rows == NB_CONV_EITHER ? is_by_images(&w)
                                             : way.rows == NB_CONV_BY_IMAGES;
    return images ? nb_conv_by_images(&w) : nb_conv_by_places(&w);
}

static int64_t divisor(int64_t a, int64_t b)
{
    return b ? divisor(b, a % b) : a;
}

/* Phase r of line d: places r, r + by, ... and, of the taps, those that find an
 * element there.  With p and q the greatest common divisors of the spread with
 * stride and dilation, by is spread / p; taps are spread / q apart. */
static void take_phase(nb_conv_work *w, int d, int64_t r, int64_t by)
{
    nb_conv_line *l = &w->line[d];
    int64_t apart = l->spread / divisor(l->spread, l->dilation), k = 0;
    while (k < l->taps && k < apart && nb_conv_line_at(l, r, k) % l->spread)
        k++;
    bool any = k < l->taps && k < apart;
    int64_t start = any ? nb_conv_line_at(l, r, k) / l->spread : 0;
    w->y.offset += r * w->y.stride[1 + d];
    w->y.stride[1 + d] *= by;
    w->filter.offset += (any ? k : 0) * w->filter.stride[d];
    w->filter.stride[d] *= apart;
    *l = (nb_conv_line){.size = l->size,
                        .taps = any ? nb_ceil_div(l->taps - k, apart) : 0,
                        .places = nb_ceil_div(l->places - r, by),
                        .stride = l->stride / divisor(l->spread, l->stride),
                        .dilation =
                            l->dilation / divisor(l->spread, l->dilation),
                        .spread = 1,
                        .before = -start};
}

/* How many phases line d has, but no more than places. */
static int64_t phases_along(const nb_conv_work *w, int d)
{
    const nb_conv_line *l = &w->line[d];
    int64_t by = l->spread / divisor(l->spread, l->stride);
    return nb_most(1, nb_least(by, l->places));
}

int64_t nb_conv_phases(const nb_conv_work *w)
{
    return phases_along(w, 0) * phases_along(w, 1) * phases_along(w, 2);
}

nb_conv_work nb_conv_phase(const nb_conv_work *w, int64_t i)
{
    nb_conv_work phase = *w;
    for (int d = 2; d >= 0; d--) {
        const nb_conv_line *l = &w->line[d];
        int64_t n = phases_along(w, d), r = i % n;
        i /= n;
        if (l->spread > 1)
            take_phase(&phase, d, r, l->spread / divisor(l->spread, l->stride));
    }
    return phase;
}

static nb_dtype type_of(nb_dtype d)
{
    if (nb_dtype_is_half(d)) return NB_F32;
    return nb_dtype_is_float(d) ? d : NB_I64;
}

/* A view of lines and other axes, `first` of them before the lines. */
static nb_conv_side side_of(const nb_view *v, int first, int rank)
{
    nb_conv_side s = {.data = v->data, .dtype = v->dtype};
    for (int i = 0; i < v->rank; i++) {
        int lead = i < first ? 0 : 3 - rank;
        s.stride[i + lead] = v->stride[i];
    }
    return s;
}

nb_conv_work nb_conv_work_of(const nb_geometry *g, const nb_view *x,
                             const nb_view *filter, const nb_view *y)
{
    nb_dtype type = type_of(x->dtype);
    nb_conv_work w = {.type = type,
                      .item = (int64_t)nb_dtype_size(type),
                      .images = g->images,
                      .groups = g->groups,
                      .in = g->in,
                      .out = g->out,
                      .x = side_of(x, 1, g->rank),
                      .filter = side_of(filter, 0, g->rank),
                      .y = side_of(y, 1, g->rank)};
    w.line[0] = w.line[1] = (nb_conv_line){.size = 1,
                                           .taps = 1,
                                           .places = 1,
                                           .stride = 1,
                                           .dilation = 1,
                                           .spread = 1};
    for (int d = 0; d < g->rank; d++)
        w.line[3 - g->rank + d] = g->line[d];
    return w;
}

bool nb_conv_run_as(const nb_geometry *g, const nb_view *x,
                    const nb_view *filter, const nb_view *y, nb_conv_way way)
{
    nb_conv_work w = nb_conv_work_of(g, x, filter, y);
    int64_t phases = nb_conv_phases(&w);
    bool ok = true;
    w.tiler = nb_conv_tiler_of(w.type, way.bytes);
    for (int64_t i = 0; ok && i < phases; i++)
        ok = run_plain(nb_conv_phase(&w, i), way);
    return ok;
}

bool nb_conv_run(const nb_geometry *g, const nb_view *x, const nb_view *filter,
                 const nb_view *y)
{
    return nb_conv_run_as(g, x, filter, y,
                          (nb_conv_way){NB_CONV_EITHER, WIDEST});
}
