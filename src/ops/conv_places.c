/* conv_places.c - convolution by places.
 *
 * Work is cut into blocks of places of one image.  A block reads x where it
 * lies if no tap of the last line falls outside and channels are next to each
 * other; otherwise the part of x that it needs is copied, with zeros beside.
 * Nothing is copied for every tap: rows of a tile are a stride apart, and the
 * taps of the last line with their channels are one run of terms.
 *
 * The filter is packed into panels as wide as a tile.  A panel, or so many of
 * its terms as stay in the second cache, goes over all places of a block.
 *
 * The cut follows from shapes, never from the number of threads. */
#include "ops/conv_work.h"

#include "base/memory.h"
#include "base/pool.h"
#include "core/convert.h"

#include <stdatomic.h>
#include <string.h>

/* Bytes of x to a block; terms of a panel; places of a line to a block; the
 * places that a panel is worth being loaded for; chunks wanted, and the
 * multiplications that are worth one. */
enum {
    BLOCK_BYTES = 192 << 10,
    DEPTH = 2304,
    WIDE = 512,
    FEW_PLACES = 56,
    CHUNKS = 16,
    CHUNK_WORK = 1 << 18
};

/* How a copy holds a line: the taps of neighbouring places shared, as in x, or
 * if that is less (taps or places far apart) those of every place by
 * themselves. */
typedef struct layout {
    bool shared;
    int64_t stride, dilation, count;
} layout;

typedef struct places {
    const nb_conv_work *w;
    const nb_conv_tiler *tiler;
    bool in_place, deep;
    int64_t all_in, all_out, depth, padded; /* channels out, whole vectors */
    int64_t high, wide;                     /* places of the largest block */
    int64_t down, across;                   /* blocks along two lines */
    int64_t panels, splits;                 /* of all groups; shares of them */
    char *filter;
    atomic_bool failed;
} places;

/* A block: where it starts, how many places it has, where x and y lie and by
 * how many elements places and taps are apart there. */
typedef struct block {
    const places *p;
    int64_t at[4], high, wide;
    layout layout[3];
    char *x, *y;
    int64_t origin, step[3], tap[3], y_line, y_place;
    nb_conv_terms *run;
    int64_t runs;
} block;

static layout layout_of(const nb_conv_line *l, int64_t n)
{
    __int128 shared = (__int128)(n - 1) * l->stride +
                      (__int128)(l->taps - 1) * l->dilation + 1;
    if (shared <= n * l->taps)
        return (layout){true, l->stride, l->dilation, (int64_t)shared};
    return (layout){false, l->taps, 1, n * l->taps};
}

/* Where slot s of a copied line comes from in x. */
static int64_t source_of(const layout *y, const nb_conv_line *l, int64_t first,
                         int64_t s)
{
    if (y->shared) return nb_conv_line_at(l, first, 0) + s;
    return nb_conv_line_at(l, first + s / l->taps, s % l->taps);
}

/* Copies n neighbours of the last line with all their channels. */
static void copy_some(const places *p, const char *from, int64_t n, char *to)
{
    const nb_conv_side *x = &p->w->x;
    int64_t line = x->stride[3], channel = x->stride[4], all = p->all_in;
    int64_t from_item = (int64_t)nb_dtype_size(x->dtype), item = p->w->item;
    nb_dtype type = p->w->type;
    if (channel == 1 && line == all)
        nb_convert(to, type, 1, from, x->dtype, 1, n * all);
    else if (n < all || channel == 1)
        for (int64_t i = 0; i < n; i++)
            nb_convert(to + i * all * item, type, 1,
                       from + i * line * from_item, x->dtype, channel, all);
    else
        for (int64_t i = 0; i < all; i++)
            nb_convert(to + i * item, type, all, from + i * channel * from_item,
                       x->dtype, line, n);
}

static void copy_line(const block *b, const char *from, char *to)
{
    const nb_conv_line *l = &b->p->w->line[2];
    const layout *y = &b->layout[2];
    int64_t step =
        b->p->w->x.stride[3] * (int64_t)nb_dtype_size(b->p->w->x.dtype);
    int64_t bytes = b->p->all_in * b->p->w->item;
    for (int64_t s = 0, n; s < y->count; s += n, to += n * bytes) {
        int64_t at = source_of(y, l, b->at[3], s), rest = y->count - s;
        bool inside = 0 <= at && at < l->size;
        n = 1;
        if (y->shared && inside)
            n = nb_least(rest, l->size - at);
        else if (y->shared)
            n = at < 0 ? nb_least(rest, -at) : rest;
        if (inside)
            copy_some(b->p, from + at * step, n, to);
        else
            memset(to, 0, (size_t)(n * bytes));
    }
}

/* Lines outside of x are left alone: no run reads them. */
static void copy_block(const block *b)
{
    const nb_conv_work *w = b->p->w;
    int64_t item = (int64_t)nb_dtype_size(w->x.dtype);
    int64_t bytes = b->layout[2].count * b->p->all_in * w->item;
    const int64_t *stride = w->x.stride;
    char *to = b->x;
    for (int64_t i = 0; i < b->layout[0].count; i++)
        for (int64_t j = 0; j < b->layout[1].count; j++, to += bytes) {
            int64_t d = source_of(&b->layout[0], &w->line[0], b->at[1], i);
            int64_t h = source_of(&b->layout[1], &w->line[1], b->at[2], j);
            if (d < 0 || d >= w->line[0].size) continue;
            if (h < 0 || h >= w->line[1].size) continue;
            int64_t from = b->at[0] * stride[0] + d * stride[1] + h * stride[2];
            copy_line(b, w->x.data + from * item, to);
        }
}

static void point_into_x(block *b)
{
    const nb_conv_work *w = b->p->w;
    b->x = w->x.data;
    b->origin = b->at[0] * w->x.stride[0];
    for (int d = 0; d < 3; d++) {
        int64_t stride = w->x.stride[1 + d];
        b->origin += nb_conv_line_at(&w->line[d], b->at[1 + d], 0) * stride;
        b->step[d] = w->line[d].stride * stride;
        b->tap[d] = w->line[d].dilation * stride;
    }
}

static void point_into_copy(block *b)
{
    int64_t stride = b->p->all_in;
    b->origin = 0;
    for (int d = 2; d >= 0; d--) {
        b->step[d] = b->layout[d].stride * stride;
        b->tap[d] = b->layout[d].dilation * stride;
        stride *= b->layout[d].count;
    }
}

/* Adds a run of n terms, the first of them number `first` of all, as far as
 * they are in [from, to). */
static void add_run(block *b, int64_t a, int64_t first, int64_t n, int64_t from,
                    int64_t to, int64_t width)
{
    int64_t low = nb_most(first, from), high = nb_least(first + n, to);
    if (low < high)
        b->run[b->runs++] =
            (nb_conv_terms){a + low - first, low * width, high - low};
}

/* The terms of [from, to) for places of line t of the block. */
static void find_runs(block *b, int64_t t, int64_t from, int64_t to,
                      int64_t width)
{
    const nb_conv_line *l = b->p->w->line;
    int64_t in = b->p->w->in, last = l[2].taps;
    bool joined = b->tap[2] == in;
    b->runs = 0;
    for (int64_t n = 0; n < l[0].taps * l[1].taps; n++) {
        int64_t i = n / l[1].taps, j = n % l[1].taps;
        if (!nb_conv_line_has(&l[0], b->at[1], i)) continue;
        if (!nb_conv_line_has(&l[1], b->at[2] + t, j)) continue;
        int64_t a = b->origin + i * b->tap[0] + t * b->step[1] + j * b->tap[1];
        if (joined) add_run(b, a, n * last * in, last * in, from, to, width);
        for (int64_t k = 0; !joined && k < last; k++)
            add_run(b, a + k * b->tap[2], (n * last + k) * in, in, from, to,
                    width);
    }
}

/* One line of places with one panel, or a part of its terms. */
static void run_line(const block *b, int64_t t, nb_conv_tile tile)
{
    int64_t tiles = nb_ceil_div(b->wide, b->p->tiler->rows);
    int64_t item = b->p->w->item;
    const char *a = tile.a;
    char *c = (char *)tile.c + t * b->y_line * item;
    tile.run = b->run;
    tile.runs = b->runs;
    for (int64_t i = 0; i < tiles; i++) {
        int64_t first = nb_part_start(b->wide, tiles, i);
        tile.rows = nb_part_start(b->wide, tiles, i + 1) - first;
        tile.a = a + first * tile.a_row * item;
        tile.c = c + first * tile.c_row * item;
        b->p->tiler->tile(&tile);
    }
}

static void run_panel(block *b, int64_t panel)
{
    const places *p = b->p;
    const nb_conv_work *w = p->w;
    int64_t beside = nb_ceil_div(w->out, p->tiler->cols);
    int64_t group = panel / beside, col = panel % beside * p->tiler->cols;
    int64_t cols = nb_least(p->tiler->cols, w->out - col);
    int64_t width = nb_ceil_div(cols, p->tiler->lanes) * p->tiler->lanes;
    int64_t parts = nb_ceil_div(p->depth, DEPTH);
    int64_t packed = (group * p->padded + col) * p->depth;
    nb_conv_tile tile = {.a = b->x + group * w->in * w->item,
                         .a_row = b->step[2],
                         .a_step = 1,
                         .b = p->filter + packed * w->item,
                         .b_step = width,
                         .c = b->y + (group * w->out + col) * w->item,
                         .c_row = b->y_place,
                         .cols = cols};
    for (int64_t i = 0; i < parts; i++)
        for (int64_t t = 0; t < b->high; t++) {
            tile.add = i > 0;
            find_runs(b, t, nb_part_start(p->depth, parts, i),
                      nb_part_start(p->depth, parts, i + 1), width);
            run_line(b, t, tile);
        }
}

/* Groups of one channel in and out: a product by channel, summed over taps. */
static void run_deep(block *b)
{
    const nb_conv_work *w = b->p->w;
    for (int64_t t = 0; t < b->high; t++) {
        find_runs(b, t, 0, b->p->depth, b->p->all_out);
        nb_conv_tile tile = {.run = b->run,
                             .runs = b->runs,
                             .a = b->x,
                             .a_row = b->step[2],
                             .b = b->p->filter,
                             .c = b->y + t * b->y_line * w->item,
                             .c_row = b->y_place,
                             .rows = b->wide,
                             .cols = b->p->all_out};
        b->p->tiler->weigh(&tile);
    }
}

static char *y_at(const block *b)
{
    const nb_conv_side *y = &b->p->w->y;
    int64_t at = 0;
    for (int d = 0; d < 4; d++)
        at += b->at[d] * y->stride[d];
    return y->data + at * (int64_t)nb_dtype_size(y->dtype);
}

static void convert_result(const block *b, int64_t col, int64_t cols)
{
    const nb_conv_work *w = b->p->w;
    int64_t item = (int64_t)nb_dtype_size(w->y.dtype);
    for (int64_t t = 0; t < b->high; t++)
        for (int64_t i = 0; i < b->wide; i++) {
            int64_t to = t * w->y.stride[2] + i * w->y.stride[3] + col;
            int64_t from = t * b->y_line + i * b->y_place + col;
            nb_convert(y_at(b) + to * item, w->y.dtype, 1,
                       b->y + from * w->item, w->type, 1, cols);
        }
}

/* The column at which a panel begins, or the one before it ends. */
static int64_t col_of(const places *p, int64_t panel)
{
    int64_t beside = nb_ceil_div(p->w->out, p->tiler->cols);
    return panel / beside * p->w->out + panel % beside * p->tiler->cols;
}

static void run_share(block *b, int64_t share)
{
    const places *p = b->p;
    int64_t first = nb_part_start(p->panels, p->splits, share);
    int64_t end = nb_part_start(p->panels, p->splits, share + 1);
    if (p->deep)
        run_deep(b);
    else
        for (int64_t i = first; i < end; i++)
            run_panel(b, i);
    if (p->w->type != p->w->y.dtype)
        convert_result(b, col_of(p, first), col_of(p, end) - col_of(p, first));
}

/* Finds room for the runs, the copy of x and the result, all in one; NULL if
 * there is none. */
static char *make_room(block *b, size_t *room)
{
    const nb_conv_work *w = b->p->w;
    bool converts = w->type != w->y.dtype;
    __int128 runs = sizeof *b->run, x = 0, y = 0;
    for (int d = 0; d < 3; d++)
        runs *= w->line[d].taps;
    runs = (runs + 63) / 64 * 64;
    if (!b->p->in_place)
        x = (__int128)b->layout[0].count * b->layout[1].count *
            b->layout[2].count * b->p->all_in * w->item;
    x = (x + 63) / 64 * 64;
    if (converts) y = (__int128)b->high * b->wide * b->p->all_out * w->item;
    if (runs + x + y > PTRDIFF_MAX)
        return nb_fail(NB_EMEMORY, "conv: taps too far apart to be gathered");
    char *data = nb_block_new((size_t)(runs + x + y), room);
    if (!data) return NULL;
    b->run = (nb_conv_terms *)data;
    b->x = data + runs;
    b->y = converts ? b->x + x : y_at(b);
    b->y_line = converts ? b->wide * b->p->all_out : w->y.stride[2];
    b->y_place = converts ? b->p->all_out : w->y.stride[3];
    return data;
}

static void run_block(void *ctx, int64_t i)
{
    places *p = ctx;
    block b = {.p = p};
    size_t room;
    int64_t share = i % p->splits, at = i / p->splits;
    int64_t across = at % p->across, down = at / p->across % p->down;
    const nb_conv_line *l = p->w->line;
    at /= p->across * p->down;
    b.at[0] = at / l[0].places;
    b.at[1] = at % l[0].places;
    b.at[2] = nb_part_start(l[1].places, p->down, down);
    b.at[3] = nb_part_start(l[2].places, p->across, across);
    b.high = nb_part_start(l[1].places, p->down, down + 1) - b.at[2];
    b.wide = nb_part_start(l[2].places, p->across, across + 1) - b.at[3];
    b.layout[0] = layout_of(&l[0], 1);
    b.layout[1] = layout_of(&l[1], b.high);
    b.layout[2] = layout_of(&l[2], b.wide);
    char *data = make_room(&b, &room);
    if (!data) {
        p->failed = true;
        return;
    }
    if (p->in_place)
        point_into_x(&b);
    else {
        point_into_copy(&b);
        copy_block(&b);
    }
    run_share(&b, share);
    nb_block_free(data, room);
}

/* Packing */

/* Columns [col, col + cols) of the filter, all terms of them. */
static void pack_cols(const places *p, int64_t col, int64_t cols, int64_t width,
                      char *to)
{
    const nb_conv_line *l = p->w->line;
    const nb_conv_side *f = &p->w->filter;
    int64_t item = (int64_t)nb_dtype_size(f->dtype);
    int64_t taps = l[0].taps * l[1].taps * l[2].taps;
    for (int64_t n = 0; n < taps; n++) {
        int64_t k = n % l[2].taps, j = n / l[2].taps % l[1].taps;
        int64_t i = n / l[2].taps / l[1].taps;
        int64_t at = i * f->stride[0] + j * f->stride[1] + k * f->stride[2] +
                     col * f->stride[4];
        nb_conv_matrix m = {.data = f->data + at * item,
                            .dtype = f->dtype,
                            .row = f->stride[3],
                            .col = f->stride[4],
                            .rows = p->w->in,
                            .cols = cols,
                            .width = width};
        nb_conv_pack(to, p->w->type, &m);
        to += p->w->in * width * p->w->item;
    }
}

static void pack_panel(void *ctx, int64_t panel)
{
    const places *p = ctx;
    int64_t beside = nb_ceil_div(p->w->out, p->tiler->cols);
    int64_t group = panel / beside, col = panel % beside * p->tiler->cols;
    int64_t cols = nb_least(p->tiler->cols, p->w->out - col);
    int64_t width = nb_ceil_div(cols, p->tiler->lanes) * p->tiler->lanes;
    pack_cols(p, group * p->w->out + col, cols, width,
              p->filter + (group * p->padded + col) * p->depth * p->w->item);
}

static void pack(places *p)
{
    if (p->deep)
        pack_cols(p, 0, p->all_out, p->all_out, p->filter);
    else
        nb_parallel_if((double)(p->depth * p->all_out) / 2, p->panels,
                       pack_panel, p);
}

/* Whether runs can be read from x as it lies. */
static bool is_in_place(const nb_conv_work *w)
{
    const nb_conv_line *l = &w->line[2];
    return w->x.dtype == w->type && (w->x.stride[4] == 1 || w->in == 1) &&
           nb_conv_line_has(l, 0, 0) && nb_conv_line_has(l, 0, l->taps - 1) &&
           nb_conv_line_has(l, l->places - 1, 0) &&
           nb_conv_line_has(l, l->places - 1, l->taps - 1) &&
           (w->groups == 1 || w->x.stride[4] == 1);
}

/* Blocks as high as their part of x fits; more of them if they are too few to
 * share, but not so many that a panel meets only a few places. */
static void cut(places *p)
{
    const nb_conv_work *w = p->w;
    const nb_conv_line *l = w->line;
    double work = nb_conv_products(w);
    int64_t wanted =
        work < CHUNKS * CHUNK_WORK ? (int64_t)work / CHUNK_WORK : CHUNKS;
    p->across = nb_ceil_div(l[2].places, WIDE);
    p->wide = nb_ceil_div(l[2].places, p->across);
    double line = (double)layout_of(&l[2], p->wide).count *
                  (double)layout_of(&l[0], 1).count *
                  (double)(p->all_in * w->item);
    double lines = BLOCK_BYTES / line;
    lines = (lines - (double)(l[1].taps - 1) * (double)l[1].dilation - 1) /
            (double)l[1].stride;
    int64_t high = lines < 0 ? 1 : nb_least(l[1].places, (int64_t)lines + 1);
    int64_t others = w->images * l[0].places * p->across;
    int64_t floor = nb_least(l[1].places, nb_ceil_div(FEW_PLACES, p->wide));
    high = nb_most(high, floor);
    p->down = nb_ceil_div(l[1].places, high);
    p->down = nb_most(
        p->down, nb_least(nb_ceil_div(wanted, others), l[1].places / floor));
    p->high = nb_ceil_div(l[1].places, p->down);
    p->splits = p->deep ? 1 : nb_ceil_div(wanted, others * p->down);
    p->splits = nb_most(1, nb_least(p->splits, p->panels));
}

bool nb_conv_by_places(const nb_conv_work *w)
{
    places p = {.w = w, .tiler = w->tiler};
    size_t room;
    p.in_place = is_in_place(w);
    p.deep = w->in == 1 && w->out == 1 && w->groups > 1;
    p.all_in = w->groups * w->in;
    p.all_out = w->groups * w->out;
    p.depth = w->in;
    for (int d = 0; d < 3; d++)
        p.depth *= w->line[d].taps;
    p.padded =
        p.deep ? 1 : nb_ceil_div(w->out, p.tiler->lanes) * p.tiler->lanes;
    p.panels = w->groups * nb_ceil_div(w->out, p.tiler->cols);
    cut(&p);
    p.filter =
        nb_block_new((size_t)(w->groups * p.padded * p.depth * w->item), &room);
    if (!p.filter) return false;
    pack(&p);
    nb_parallel_if(nb_conv_cost(w),
                   w->images * w->line[0].places * p.down * p.across * p.splits,
                   run_block, &p);
    nb_block_free(p.filter, room);
    return !p.failed;
}
