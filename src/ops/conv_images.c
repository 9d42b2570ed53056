/* conv_images.c - convolution by images.
 *
 * A unit of the result is one place, for one panel of channels out and a band
 * of images.  Its terms are all taps and channels; they go by blocks of taps
 * that stay in the second cache, and what a tap reads outside of x is left out.
 * Neither operand is copied unless it is of another dtype or, in the filter,
 * channels out are not next to each other or no whole vectors.  For groups of
 * one image and one channel out, vectors go over the groups.
 *
 * A small result is shared by cutting its terms into parts, each summed by
 * itself, a large one by its units.  The cut follows from shapes, never from
 * the number of threads. */
#include "ops/conv_work.h"

#include "base/memory.h"
#include "base/pool.h"
#include "core/convert.h"

#include <stdatomic.h>
#include <string.h>

/* Bytes of operands to a block, its least taps and most images; bytes of all
 * parts; the most parts, chunks, and multiplications that are worth a chunk;
 * numbers added up at a time. */
enum {
    BLOCK_BYTES = 256 << 10,
    LEAST_TAPS = 16,
    BAND = 256,
    PART_BYTES = 4 << 20,
    PARTS = 16,
    CHUNKS = 64,
    CHUNK_WORK = 1 << 18,
    SLICE = 1 << 14
};

typedef struct images {
    nb_conv_work w; /* with operands that may be copies */
    int64_t group;  /* elements from group to group of the filter */
    bool along_in;  /* runs go over channels, not over taps of the last line */
    bool deep;      /* groups of one image and channel out stand for channels */
    int64_t high, wide; /* blocks along two lines */
    int64_t blocks, parts;
    int64_t panels, bands, units, shares;
    char *sums; /* of the parts, or NULL if there is one, in y */
    int64_t size, y_stride[4];
    atomic_bool failed;
} images;

/* A block of terms: taps [from, to) of two lines, one tap of the first, and
 * channels. */
typedef struct block {
    int64_t first, from[2], to[2], in, channels;
} block;

/* One place of the result, for a band of images and a panel of channels. */
typedef struct unit {
    int64_t group, image, images, at[3], col, cols;
} unit;

static block block_of(const images *p, int64_t i)
{
    const nb_conv_line *l = p->w.line;
    block b = {.channels = p->along_in ? p->w.in : 1};
    int64_t wide = i % p->wide, high = i / p->wide % p->high;
    i /= p->wide * p->high;
    b.first = i % l[0].taps;
    b.in = i / l[0].taps;
    b.from[0] = nb_part_start(l[1].taps, p->high, high);
    b.to[0] = nb_part_start(l[1].taps, p->high, high + 1);
    b.from[1] = nb_part_start(l[2].taps, p->wide, wide);
    b.to[1] = nb_part_start(l[2].taps, p->wide, wide + 1);
    return b;
}

static unit unit_of(const images *p, int64_t i)
{
    const nb_conv_line *l = p->w.line;
    unit u = {.col = i % p->panels * p->w.tiler->cols};
    u.cols = nb_least(p->w.tiler->cols, p->w.out - u.col);
    i /= p->panels;
    for (int d = 2; d >= 0; d--) {
        u.at[d] = i % l[d].places;
        i /= l[d].places;
    }
    int64_t band = i % p->bands;
    u.image = nb_part_start(p->w.images, p->bands, band);
    u.images = nb_part_start(p->w.images, p->bands, band + 1) - u.image;
    u.group = i / p->bands;
    return u;
}

/* Clips [*from, *to) to the taps that read inside of x at place t. */
static void clip(const nb_conv_line *l, int64_t t, int64_t *from, int64_t *to)
{
    int64_t start = nb_conv_line_at(l, t, 0), step = l->dilation;
    int64_t first = start < 0 ? nb_ceil_div(-start, step) : 0;
    int64_t end = start < l->size ? nb_ceil_div(l->size - start, step) : 0;
    *from = nb_most(*from, first);
    *to = nb_most(*from, nb_least(*to, end));
}

/* The runs of a unit in a block; how many. */
static int64_t find_runs(const images *p, const block *b, const unit *u,
                         nb_conv_terms *run)
{
    const nb_conv_line *l = p->w.line;
    const int64_t *x = p->w.x.stride, *f = p->w.filter.stride;
    int64_t n = 0, from[2] = {b->from[0], b->from[1]};
    int64_t to[2] = {b->to[0], b->to[1]};
    if (!nb_conv_line_has(&l[0], u->at[0], b->first)) return 0;
    clip(&l[1], u->at[1], &from[0], &to[0]);
    clip(&l[2], u->at[2], &from[1], &to[1]);
    if (from[1] == to[1]) return 0;
    int64_t channel = u->group * p->w.in + b->in;
    int64_t step = p->along_in ? 1 : to[1] - from[1];
    for (int64_t i = from[0]; i < to[0]; i++)
        for (int64_t j = from[1]; j < to[1]; j += step) {
            int64_t a = nb_conv_line_at(&l[0], u->at[0], b->first) * x[1] +
                        nb_conv_line_at(&l[1], u->at[1], i) * x[2] +
                        nb_conv_line_at(&l[2], u->at[2], j) * x[3] +
                        channel * x[4];
            run[n++] =
                (nb_conv_terms){a,
                                b->first * f[0] + i * f[1] + j * f[2] +
                                    b->in * f[3] + u->group * p->group + u->col,
                                p->along_in ? b->channels : step};
        }
    return n;
}

static void run_unit(const images *p, const block *b, const unit *u, char *to,
                     nb_conv_terms *run, bool add)
{
    const nb_conv_work *w = &p->w;
    int64_t tiles = nb_ceil_div(u->images, w->tiler->rows);
    int64_t at = u->group * w->out + u->col;
    for (int d = 0; d < 3; d++)
        at += u->at[d] * p->y_stride[1 + d];
    nb_conv_tile tile = {
        .run = run,
        .runs = find_runs(p, b, u, run),
        .a_row = w->x.stride[0],
        .a_step =
            p->along_in ? w->x.stride[4] : w->line[2].dilation * w->x.stride[3],
        .b = w->filter.data,
        .b_step = p->along_in ? w->filter.stride[3] : w->filter.stride[2],
        .c_row = p->y_stride[0],
        .cols = u->cols,
        .add = add};
    if (p->deep) {
        tile.rows = 1;
        tile.a = w->x.data + u->col * w->item;
        tile.c = to + at * w->item;
        w->tiler->weigh(&tile);
        return;
    }
    for (int64_t i = 0; i < tiles; i++) {
        int64_t first = u->image + nb_part_start(u->images, tiles, i);
        int64_t end = u->image + nb_part_start(u->images, tiles, i + 1);
        tile.rows = end - first;
        tile.a = w->x.data + first * tile.a_row * w->item;
        tile.c = to + (at + first * tile.c_row) * w->item;
        w->tiler->tile(&tile);
    }
}

static int64_t most_runs(const images *p)
{
    const nb_conv_line *l = p->w.line;
    int64_t high = nb_ceil_div(l[1].taps, p->high);
    return p->along_in ? high * nb_ceil_div(l[2].taps, p->wide) : high;
}

static void run_chunk(void *ctx, int64_t i)
{
    images *p = ctx;
    int64_t part = i / p->shares, share = i % p->shares;
    int64_t first = nb_part_start(p->blocks, p->parts, part);
    int64_t end = nb_part_start(p->blocks, p->parts, part + 1);
    char *to = p->w.y.data;
    if (p->sums) to = p->sums + part * p->size * p->w.item;
    nb_conv_terms *run = nb_alloc((size_t)most_runs(p) * sizeof *run);
    if (!run) p->failed = true;
    for (int64_t k = first; run && k < end; k++) {
        block b = block_of(p, k);
        int64_t last = nb_part_start(p->units, p->shares, share + 1);
        for (int64_t j = nb_part_start(p->units, p->shares, share); j < last;
             j++) {
            unit u = unit_of(p, j);
            run_unit(p, &b, &u, to, run, k > first);
        }
    }
    nb_free(run);
}

/* Adds up the parts, always in the same order, a slice at a time. */
static void add_slice(void *ctx, int64_t i)
{
    const images *p = ctx;
    int64_t n = nb_least(SLICE, p->size - i * SLICE), item = p->w.item;
    char *to = p->sums + i * SLICE * item;
    for (int64_t k = 1; k < p->parts; k++)
        p->w.tiler->add(to, to + k * p->size * item, n);
}

static void finish(images *p)
{
    const nb_conv_work *w = &p->w;
    const nb_conv_line *l = w->line;
    int64_t all = w->groups * w->out, rows = p->size / all;
    int64_t item = (int64_t)nb_dtype_size(w->y.dtype);
    nb_parallel_if((double)(p->size * p->parts) / 4,
                   nb_ceil_div(p->size, SLICE), add_slice, p);
    for (int64_t i = 0; i < rows; i++) {
        int64_t at = 0, rest = i;
        for (int d = 2; d >= 0; d--) {
            at += rest % l[d].places * w->y.stride[1 + d];
            rest /= l[d].places;
        }
        at += rest * w->y.stride[0];
        nb_convert(w->y.data + at * item, w->y.dtype, 1,
                   p->sums + i * all * w->item, w->type, 1, all);
    }
}

/* Copies of operands */

/* A matrix for each index below size, dense in the copy. */
typedef struct copy {
    nb_conv_matrix matrix;
    nb_dtype type;
    int64_t size[4], stride[4]; /* of the operand */
    int64_t beyond;             /* zeros after the last matrix */
    char *to;
    size_t room;
} copy;

static void copy_some(void *ctx, int64_t i)
{
    const copy *c = ctx;
    nb_conv_matrix m = c->matrix;
    int64_t bytes = m.rows * m.width * (int64_t)nb_dtype_size(c->type);
    for (int64_t j = 0; j < c->size[3]; j++) {
        int64_t at = 0, rest = i * c->size[3] + j;
        char *to = c->to + rest * bytes;
        for (int d = 3; d >= 0; d--) {
            at += rest % c->size[d] * c->stride[d];
            rest /= c->size[d];
        }
        m.data = c->matrix.data + at * (int64_t)nb_dtype_size(m.dtype);
        nb_conv_pack(to, c->type, &m);
    }
}

/* Copies, and sets the strides in which the copy has the same axes. */
static bool make_copy(copy *c)
{
    int64_t step = c->matrix.rows * c->matrix.width, all = step;
    for (int d = 0; d < 4; d++)
        all *= c->size[d];
    size_t item = nb_dtype_size(c->type);
    size_t bytes = (size_t)all * item, beyond = (size_t)c->beyond * item;
    c->to = nb_block_new(bytes + beyond, &c->room);
    if (!c->to) return false;
    memset(c->to + bytes, 0, beyond);
    nb_parallel_if((double)all / 2, c->size[0] * c->size[1] * c->size[2],
                   copy_some, c);
    for (int d = 3; d >= 0; d--) {
        c->stride[d] = step;
        step *= c->size[d];
    }
    return true;
}

/* x as channels, lines, images. */
static bool copy_x(images *p, copy *c)
{
    nb_conv_side *x = &p->w.x;
    const int64_t *s = x->stride;
    const nb_conv_line *l = p->w.line;
    int64_t n = p->w.images;
    *c = (copy){.matrix = {x->data, x->dtype, s[3], s[0], l[2].size, n, n},
                .type = p->w.type,
                .size = {1, p->w.groups * p->w.in, l[0].size, l[1].size},
                .stride = {0, s[4], s[1], s[2]}};
    if (!make_copy(c)) return false;
    *x = (nb_conv_side){
        .data = c->to,
        .dtype = c->type,
        .stride = {1, c->stride[2], c->stride[3], n, c->stride[1]}};
    return true;
}

/* Groups become channels out of one group, and of x neighbours: x as channels
 * in, lines, groups. */
static bool copy_deep_x(images *p, copy *c)
{
    nb_conv_side *x = &p->w.x;
    const int64_t *s = x->stride;
    const nb_conv_line *l = p->w.line;
    int64_t n = p->w.groups, in = p->w.in;
    *c = (copy){.matrix = {x->data, x->dtype, s[3], in * s[4], l[2].size, n, n},
                .type = p->w.type,
                .size = {1, in, l[0].size, l[1].size},
                .stride = {0, s[4], s[1], s[2]}};
    if (!make_copy(c)) return false;
    *x = (nb_conv_side){
        .data = c->to,
        .dtype = c->type,
        .stride = {0, c->stride[2], c->stride[3], n, c->stride[1]}};
    p->w.out = n;
    p->w.groups = 1;
    return true;
}

/* The filter as groups, channels in, taps, channels out; or, if it lies so, as
 * groups, taps and both channels.  A tile reads whole vectors, of which it
 * keeps what is its own: the last may reach beyond the end. */
static bool copy_filter(images *p, copy *c)
{
    nb_conv_side *f = &p->w.filter;
    const int64_t *s = f->stride;
    const nb_conv_line *l = p->w.line;
    int64_t in = p->w.in, out = p->w.out;
    bool turned = s[3] == 1;
    *c = (copy){.matrix = {f->data, f->dtype, s[2], s[4], l[2].taps, out, out},
                .type = p->w.type,
                .size = {p->w.groups, in, l[0].taps, l[1].taps},
                .stride = {out * s[4], s[3], s[0], s[1]},
                .beyond = p->w.tiler->lanes};
    if (turned) {
        c->matrix.row = s[3];
        c->matrix.rows = in;
        for (int d = 0; d < 3; d++) {
            c->size[1 + d] = l[d].taps;
            c->stride[1 + d] = s[d];
        }
    }
    if (!make_copy(c)) return false;
    const int64_t *t = c->stride;
    p->group = t[0];
    *f = turned ? (nb_conv_side){.data = c->to,
                                 .dtype = c->type,
                                 .stride = {t[1], t[2], t[3], out, 1}}
                : (nb_conv_side){.data = c->to,
                                 .dtype = c->type,
                                 .stride = {t[2], t[3], out, t[1], 1}};
    return true;
}

/* Blocks of so many taps as fit, whole lines of them if they can be; then parts
 * if all their sums are little, and shares of the units. */
static void cut(images *p)
{
    const nb_conv_work *w = &p->w;
    const nb_conv_line *l = w->line;
    p->bands = nb_ceil_div(w->images, BAND);
    double tap = (double)((nb_least(w->images, BAND) + w->out) * w->item);
    if (p->along_in) tap *= (double)w->in;
    int64_t taps = nb_most(LEAST_TAPS, (int64_t)(BLOCK_BYTES / tap));
    p->wide = nb_ceil_div(l[2].taps, taps);
    p->high = nb_ceil_div(l[1].taps, nb_most(1, taps / l[2].taps));
    p->blocks = (p->along_in ? 1 : w->in) * l[0].taps * p->high * p->wide;
    p->panels = nb_ceil_div(w->out, w->tiler->cols);
    p->units = w->groups * p->bands * p->panels;
    p->size = w->images * w->groups * w->out;
    for (int d = 0; d < 3; d++) {
        p->units *= l[d].places;
        p->size *= l[d].places;
    }
    double work = nb_conv_products(w) / CHUNK_WORK;
    int64_t chunks = work < 1 ? 1 : work < CHUNKS ? (int64_t)work : CHUNKS;
    p->parts = nb_least(nb_least(PARTS, chunks), p->blocks);
    p->parts = nb_most(1, nb_least(p->parts, PART_BYTES / (p->size * w->item)));
    p->shares = nb_least(p->units, chunks / p->parts);
    if (p->parts == PARTS) p->shares = 1;
}

/* Where sums go: to y itself, or to parts in its order. */
static bool make_sums(images *p, size_t *room)
{
    const nb_conv_work *w = &p->w;
    int64_t step = w->groups * w->out;
    memcpy(p->y_stride, w->y.stride, sizeof p->y_stride);
    if (p->parts == 1 && w->type == w->y.dtype) return true;
    for (int d = 3; d >= 0; d--) {
        p->y_stride[d] = step;
        step *= d ? w->line[d - 1].places : 1;
    }
    p->sums = nb_block_new((size_t)(p->parts * p->size * w->item), room);
    return p->sums;
}

static bool run(images *p)
{
    size_t room = 0;
    cut(p);
    if (!make_sums(p, &room)) return false;
    nb_parallel_if(nb_conv_cost(&p->w), p->parts * p->shares, run_chunk, p);
    if (p->sums && !p->failed) finish(p);
    nb_block_free(p->sums, room);
    return !p->failed;
}

/* Operands as the loops can read them. */
static bool adapt(images *p, copy *x, copy *f)
{
    nb_conv_work *w = &p->w;
    p->deep = w->images == 1 && w->out == 1 && w->groups > 1;
    if (p->deep ? !copy_deep_x(p, x) : w->x.dtype != w->type && !copy_x(p, x))
        return false;
    p->group = w->out;
    p->along_in =
        !p->deep && w->in > 1 && w->x.stride[4] == 1 && w->x.stride[0] != 1;
    bool whole = p->deep || w->out % w->tiler->lanes == 0;
    return (whole && w->filter.dtype == w->type && w->filter.stride[4] == 1) ||
           copy_filter(p, f);
}

bool nb_conv_by_images(const nb_conv_work *w)
{
    images p = {.w = *w};
    copy x = {0}, f = {0};
    bool ok = adapt(&p, &x, &f) && run(&p);
    nb_block_free(x.to, x.room);
    nb_block_free(f.to, f.room);
    return ok;
}
