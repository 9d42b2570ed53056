/* conv_tiles.c - convolution on a card as a product of matrices of which the
 * first is nowhere: its rows are read where they lie in the images.
 *
 * Where x is spread out there is a product for each phase.  Results that are too
 * few to fill the card, as gradients of filters, have their terms cut into
 * parts, which are summed by themselves and added in order. */
#include "backend/cuda/product/tiles.h"
#include "backend/cuda_ops/conv.h"
#include "backend/cuda_ops/makers.h"
#include "backend/cuda_ops/text.h"
#include "base/half.h"
#include "base/memory.h"
#include "lower/passes.h"

static const char rows[] =
#include "backend/cuda_ops/conv_tiles.cu"
    ;
static const char halves[] =
#include "backend/cuda_ops/conv_halves.cu"
    ;
static const char floats[] =
#include "backend/cuda_ops/conv_floats.cu"
    ;
static const char add[] =
#include "backend/cuda_ops/conv_add.cu"
    ;

/* Rows, columns and terms that are worth tiles; phases and parts at most, steps
 * of a part at least, bytes of all parts. */
enum { LEAST = 16, PHASES = 64, PARTS = 256, STEPS = 8, ROOM = 128 << 20 };
enum { MULTIPLY, ADD, KERNELS };

/* As in conv_tiles.cu. */
typedef struct digit {
    uint32_t size, mul, shift;
} digit;

typedef struct line {
    int size, stride, dilation, before;
} line;

typedef struct args {
    const char *a, *b;
    char *c, *sums;
    int64_t a_stride[5], b_stride[5], c_stride[4];
    int m, n, k, parts, each, a_wide, b_wide, c_wide;
    digit row[3], term[3];
    line l[3];
    nb_dims outside;
} args;

typedef struct phase {
    args args;
    int64_t b_offset, c_offset; /* elements */
    unsigned grid[3];
} phase;

typedef struct job {
    nb_card_job base;
    nb_card *card;
    nb_tiles tile;
    bool in_runs, parts; /* of some phase */
    int first;
    size_t item;
    nb_card_code *code[KERNELS];
    int nphases;
    phase phase[];
} job;

/* Code */

static void begin(nb_text *t, const job *j)
{
    nb_text_add(t, "%s\n", nb_dims_text);
    nb_tiles_begin(t, &j->tile);
    nb_text_add(t, "enum { IN_RUNS = %d, FIRST = %d, PARTS = %d };\n%s\n",
                j->in_runs, j->first, j->parts, rows);
}

static bool build(job *j)
{
    nb_text t = {0}, u = {0};
    begin(&t, j);
    nb_tiles_loop(&t, &j->tile);
    nb_text_add(&t, "%s\n", nb_dtype_is_half(j->tile.a) ? halves : floats);
    begin(&u, j);
    nb_text_add(&u, "%s\n", add);
    nb_card_source source[KERNELS] = {{nb_text_get(&t), "multiply"},
                                      {nb_text_get(&u), "add_parts"}};
    if (nb_pass_is_dumped("code")) nb_pass_dump("code", source[MULTIPLY].text);
    bool ok = !t.failed && !u.failed &&
              nb_card_build(j->card, j->parts ? KERNELS : 1, source, j->code);
    nb_text_free(&t), nb_text_free(&u);
    return ok;
}

/* Running */

static bool begins_well(const char *at, size_t bytes)
{
    return (uintptr_t)at % bytes == 0;
}

static bool run_phase(job *j, phase *p, char *const *in, char *const *out,
                      char *workspace, const char *what)
{
    args a = p->args;
    void *list[] = {&a};
    unsigned threads[3] = {nb_tiles_threads(&j->tile), 1, 1};
    unsigned grid[3] = {1, 1, 1}, block[3] = {NB_CARD_THREADS, 1, 1};
    int64_t item = (int64_t)j->item;
    a.a = in[0], a.b = in[1] + p->b_offset * item;
    a.c = out[0] + p->c_offset * item, a.sums = workspace;
    a.a_wide = a.a_wide && begins_well(a.a, 16);
    a.b_wide = a.b_wide && begins_well(a.b, 16);
    a.c_wide = a.c_wide && begins_well(a.c, 2 * j->item);
    if (!nb_card_launch(j->card, j->code[MULTIPLY], p->grid, threads,
                        (unsigned)nb_tiles_shared(&j->tile), list, what))
        return false;
    grid[0] = nb_card_grid(j->card, a.outside.count * a.m * a.n);
    return !j->parts ||
           nb_card_launch(j->card, j->code[ADD], grid, block, 0, list, what);
}

static bool run(nb_card_job *base, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    job *j = (job *)base;
    bool ok = true;
    for (int i = 0; ok && i < j->nphases; i++)
        ok = run_phase(j, &j->phase[i], in, out, workspace, what);
    return ok;
}

static void release(nb_card_job *base)
{
    job *j = (job *)base;
    for (int k = 0; k < KERNELS; k++)
        nb_card_code_drop(j->code[k]);
    nb_free(j);
}

/* Making */

/* x / size = x mul >> 32 + shift, for x below 2^31; mul 0: x itself. */
static digit digit_of(int64_t size)
{
    digit d = {.size = (uint32_t)size};
    int log = 0;
    if (size == 1) return d;
    while ((int64_t)1 << log < size)
        log++;
    d.mul = (uint32_t)((((uint64_t)1 << (31 + log)) + (uint64_t)size - 1) /
                       (uint64_t)size);
    d.shift = (uint32_t)(log - 1);
    return d;
}

/* The digits of a number, the one that runs first; the last needs none. */
static void find_digits(digit *d, bool other_runs, int64_t other,
                        const int64_t *size, int first)
{
    int n = 0;
    if (other_runs) d[n++] = digit_of(other);
    for (int k = 2; k >= first + other_runs; k--)
        d[n++] = digit_of(size[k]);
}

/* Whether vectors of elements begin at multiples of it: along the axis that
 * runs, of that step and size, and along all others. */
static bool is_wide(int64_t vector, int64_t step, int64_t size, int n,
                    const int64_t *others)
{
    bool wide = step == 1 && size % vector == 0;
    for (int i = 0; i < n; i++)
        wide = wide && others[i] % vector == 0;
    return wide;
}

/* The steps of an operand outside of its matrix, with one more. */
static int steps_outside(const nb_dims *o, int operand, int64_t *to)
{
    for (int i = 0; i < o->n; i++)
        to[i] = o->stride[operand][i];
    return (int)o->n;
}

static void find_wide(args *a, const nb_conv_work *w, const nb_tiles *t,
                      int64_t b_offset)
{
    int64_t v = 16 / (int64_t)nb_dtype_size(t->a);
    int64_t of[NB_DIMS_MOST + 6];
    const int64_t *x = w->x.stride, *f = w->filter.stride;
    int n = steps_outside(&a->outside, 0, of);
    for (int d = 0; d < 3; d++)
        of[n++] = w->line[d].size > 1 ? x[1 + d] : 0;
    of[n++] = t->a_turned ? w->in > 1 ? x[4] : 0 : w->images > 1 ? x[0] : 0;
    a->a_wide = t->a_turned ? is_wide(v, x[0], w->images, n, of)
                            : is_wide(v, x[4], w->in, n, of);
    n = steps_outside(&a->outside, 1, of);
    for (int d = 0; d < 3; d++)
        of[n++] = w->line[d].taps > 1 ? f[d] : 0;
    of[n++] = t->b_turned ? f[4] : w->in > 1 ? f[3] : 0;
    of[n++] = b_offset;
    a->b_wide = t->b_turned ? is_wide(v, f[3], w->in, n, of)
                            : is_wide(v, f[4], w->out, n, of);
    a->c_wide = w->out % 2 == 0;
}

/* Lanes, then groups. */
static bool find_outside(nb_dims *to, const nb_card_conv *c)
{
    const nb_conv_work *w = &c->w;
    int64_t group[] = {w->in * w->x.stride[4], w->out * w->filter.stride[4],
                       w->out};
    *to = c->lanes;
    return nb_dims_add(to, w->groups, 3, group);
}

static void fill(phase *p, const nb_conv_work *w, const job *j)
{
    args *a = &p->args;
    int64_t places[3], taps[3];
    int64_t m = w->images, k = w->in;
    for (int d = 0; d < 3; d++) {
        const nb_conv_line *l = &w->line[d];
        m *= places[d] = nb_most(0, l->places);
        k *= taps[d] = l->taps;
        a->l[d] = (line){(int)l->size, (int)l->stride, (int)l->dilation,
                         (int)l->before};
    }
    a->m = (int)m, a->n = (int)w->out, a->k = (int)k;
    p->b_offset = w->filter.offset, p->c_offset = w->y.offset;
    for (int d = 0; d < 5; d++) {
        a->a_stride[d] = w->x.stride[d];
        a->b_stride[d] = w->filter.stride[d];
        if (d < 4) a->c_stride[d] = w->y.stride[d];
    }
    find_wide(a, w, &j->tile, p->b_offset);
    if (m) find_digits(a->row, j->tile.a_turned, w->images, places, j->first);
    if (k) find_digits(a->term, j->in_runs, w->in, taps, j->first);
}

static int64_t tiles_of(const args *a, const nb_tiles *t)
{
    return a->outside.count * nb_ceil_div(a->m, t->bm) *
           nb_ceil_div(a->n, t->bn);
}

/* Parts for twice as many tiles as the card has processors. */
static int parts_of(const args *a, const nb_tiles *t, const nb_card *card)
{
    int64_t tiles = tiles_of(a, t), steps = nb_ceil_div(a->k, t->bk);
    double sums = (double)a->outside.count * a->m * a->n * 8;
    int64_t parts = tiles ? 2 * card->processors / tiles : 1;
    parts = nb_least(nb_least(parts, PARTS), steps / STEPS);
    if (sums > 0 && (double)parts > ROOM / sums) parts = (int64_t)(ROOM / sums);
    return (int)nb_most(1, parts);
}

/* What a phase costs in tiles of a size: the steps of the processor that has
 * most of them, by how long one takes; small tiles read more for what they
 * multiply. */
static double cost_of(const args *a, const nb_tiles *t, const nb_card *card)
{
    int parts = parts_of(a, t, card);
    int64_t turns = nb_ceil_div(tiles_of(a, t) * parts, card->processors);
    int64_t steps = nb_ceil_div(nb_ceil_div(a->k, t->bk), parts);
    double reads = 1.0 / t->bm + 1.0 / t->bn;
    return (double)(turns * (steps + 4)) * t->bm * t->bn * t->bk *
           (1 + 32 * reads);
}

static void choose_tile(job *j)
{
    const nb_tiles *list;
    int n = nb_tiles_all(j->tile.a, &list);
    double best = 0;
    nb_tiles was = j->tile;
    for (int i = 0; i < n; i++) {
        nb_tiles t = nb_tiles_sized(&was, &list[i]);
        double cost = 0;
        for (int p = 0; p < j->nphases; p++)
            cost += cost_of(&j->phase[p].args, &t, j->card);
        if (nb_tiles_shared(&t) > j->card->shared_most) continue;
        if (j->tile.bm && cost >= best) continue;
        best = cost;
        j->tile = t;
    }
}

static void cut(job *j)
{
    size_t room = 0;
    choose_tile(j);
    for (int i = 0; i < j->nphases; i++) {
        phase *p = &j->phase[i];
        args *a = &p->args;
        const nb_tiles *t = &j->tile;
        int64_t steps = nb_ceil_div(a->k, t->bk);
        a->parts = parts_of(a, t, j->card);
        a->each = (int)nb_most(1, nb_ceil_div(steps, a->parts)) * t->bk;
        a->parts = (int)nb_most(1, nb_ceil_div(a->k, a->each));
        p->grid[0] = (unsigned)tiles_of(a, t);
        p->grid[1] = (unsigned)a->parts, p->grid[2] = 1;
        size_t sums = (size_t)(a->outside.count * a->m * a->n) *
                      (size_t)a->parts * (t->a == NB_F64 ? 8 : 4);
        if (sums > room) room = sums;
        j->parts = j->parts || a->parts > 1;
    }
    if (j->parts) j->base.workspace = room;
}

/* Whether what the kernel counts fits 32 bits. */
static bool is_counted(const nb_card_conv *c)
{
    const nb_conv_work *w = &c->w;
    double m = (double)w->images, k = (double)w->in;
    for (int d = 0; d < 3; d++) {
        const nb_conv_line *l = &w->line[d];
        double reach = (double)l->places * (double)l->stride +
                       (double)l->taps * (double)l->dilation +
                       (double)(l->before < 0 ? -l->before : l->before);
        m *= (double)l->places, k *= (double)l->taps;
        if (reach >= INT32_MAX / 2 ||
            (double)l->size * (double)l->spread >= INT32_MAX / 2)
            return false;
    }
    return m < INT32_MAX / 2 && k < INT32_MAX / 2 && w->out < INT32_MAX / 2 &&
           m * (double)c->lanes.count * (double)w->groups < INT32_MAX;
}

static bool takes(const nb_card_conv *c)
{
    const nb_conv_work *w = &c->w;
    double m = (double)w->images, k = (double)w->in;
    for (int d = 0; d < 3; d++) {
        const nb_conv_line *l = &w->line[d];
        if (l->places <= 0) return false;
        m *= (double)l->places, k *= (double)l->taps;
    }
    return nb_dtype_is_float(w->y.dtype) && m >= LEAST && w->out >= LEAST &&
           k >= LEAST && nb_conv_phases(w) <= PHASES && is_counted(c);
}

static bool is_trivial(const nb_conv_line *l)
{
    return l->size == 1 && l->taps == 1 && l->places == 1 && l->before == 0;
}

/* How tiles lie: as A and B do, where vectors of them can be read. */
static void lay(job *j, const nb_conv_work *w)
{
    const int64_t *x = w->x.stride, *f = w->filter.stride;
    j->item = nb_dtype_size(w->y.dtype);
    j->tile.a = j->tile.c = w->y.dtype;
    j->tile.a_turned = x[4] != 1 && x[0] == 1;
    j->tile.b_turned = f[4] != 1 && f[3] == 1;
    j->in_runs = !j->tile.a_turned || j->tile.b_turned;
    while (j->first < 2 && is_trivial(&w->line[j->first]))
        j->first++;
}

bool nb_card_conv_tiles(nb_card *card, const nb_card_conv *c, nb_card_job **to)
{
    nb_dims outside;
    if (!takes(c) || !find_outside(&outside, c)) return true;
    int n = (int)nb_conv_phases(&c->w);
    job *j = nb_alloc_zero(sizeof *j + (size_t)n * sizeof j->phase[0]);
    if (!j) return false;
    j->base = (nb_card_job){.run = run, .free = release};
    j->card = card;
    j->nphases = n;
    lay(j, &c->w);
    for (int i = 0; i < n; i++) {
        nb_conv_work w = nb_conv_phase(&c->w, i);
        j->phase[i].args.outside = outside;
        fill(&j->phase[i], &w, j);
    }
    cut(j);
    if (!build(j)) return release(&j->base), false;
    *to = &j->base;
    return true;
}
