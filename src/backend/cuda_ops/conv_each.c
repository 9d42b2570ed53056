/* conv_each.c - convolution on a card with a thread for every element of the
 * result: integers, whose sums wrap, a channel to a group, and small things.
 *
 * Few results of many terms, as the gradient of a filter with a channel to a
 * group, are cut into parts, whose sums are added in order. */
#include "backend/cuda_ops/conv.h"
#include "backend/cuda_ops/makers.h"
#include "backend/cuda_ops/text.h"
#include "base/memory.h"
#include "lower/passes.h"

static const char text[] =
#include "backend/cuda_ops/conv_each.cu"
    ;

enum { EACH, ADD, KERNELS };
enum { PARTS = 256, LEAST = 16 }; /* the most, and terms that are worth one */

/* As in conv_each.cu. */
typedef struct line {
    int64_t size, taps, places, stride, dilation, spread, before;
} line;

typedef struct args {
    const char *x, *filter;
    char *y, *sums;
    int64_t count, images, groups, in, out, parts, each;
    int64_t xs[5], fs[5];
    line l[3];
    nb_dims lanes;
} args;

typedef struct job {
    nb_card_job base;
    nb_card *card;
    args args;
    nb_card_code *code[KERNELS];
} job;

static bool build(job *j, nb_dtype d, bool large)
{
    nb_text t = {0};
    nb_text_add(&t, "%s%s\n", nb_dims_text, nb_halves_text);
    nb_card_define(&t, "X", d);
    nb_text_add(&t, "typedef %s V;\ntypedef %s I;\n%s",
                d == NB_F64            ? "double"
                : nb_dtype_is_float(d) ? "float"
                                       : "u64",
                large ? "i64" : "i32", text);
    nb_card_source source[KERNELS] = {{nb_text_get(&t), "conv_each"},
                                      {nb_text_get(&t), "conv_add"}};
    if (nb_pass_is_dumped("code")) nb_pass_dump("code", source[EACH].text);
    bool ok =
        !t.failed && nb_card_build(j->card, j->args.parts > 1 ? KERNELS : 1,
                                   source, j->code);
    nb_text_free(&t);
    return ok;
}

static bool run(nb_card_job *base, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    job *j = (job *)base;
    args a = j->args;
    void *list[] = {&a};
    unsigned grid[3] = {nb_card_grid(j->card, a.count * a.parts), 1, 1};
    unsigned block[3] = {NB_CARD_THREADS, 1, 1};
    a.x = in[0], a.filter = in[1], a.y = out[0], a.sums = workspace;
    if (!nb_card_launch(j->card, j->code[EACH], grid, block, 0, list, what))
        return false;
    grid[0] = nb_card_grid(j->card, a.count);
    return a.parts == 1 ||
           nb_card_launch(j->card, j->code[ADD], grid, block, 0, list, what);
}

static void release(nb_card_job *base)
{
    job *j = (job *)base;
    for (int k = 0; k < KERNELS; k++)
        nb_card_code_drop(j->code[k]);
    nb_free(j);
}

static void fill(args *a, const nb_card_conv *c)
{
    const nb_conv_work *w = &c->w;
    *a = (args){.count = c->lanes.count * w->images * w->groups * w->out,
                .images = w->images,
                .groups = w->groups,
                .in = w->in,
                .out = w->out,
                .lanes = c->lanes};
    for (int d = 0; d < 5; d++) {
        a->xs[d] = w->x.stride[d];
        a->fs[d] = w->filter.stride[d];
    }
    for (int d = 0; d < 3; d++) {
        const nb_conv_line *l = &w->line[d];
        a->count *= nb_most(0, l->places);
        a->l[d] = (line){l->size,     l->taps,   l->places, l->stride,
                         l->dilation, l->spread, l->before};
    }
}

/* Parts for as many threads as the card has, if there are terms for them. */
static void cut(args *a, const nb_card *card)
{
    int64_t rows = a->in * a->l[0].taps * a->l[1].taps;
    int64_t threads = (int64_t)card->processors * card->processor_threads;
    int64_t least = nb_most(1, LEAST / nb_most(1, a->l[2].taps));
    a->parts = a->count ? nb_least(PARTS, threads / a->count) : 1;
    a->parts = nb_most(1, nb_least(a->parts, rows / least));
    a->each = nb_most(1, nb_ceil_div(rows, a->parts));
    a->parts = nb_most(1, nb_ceil_div(rows, a->each));
}

/* Whether what the kernel counts needs 64 bits. */
static bool is_large(const args *a, const nb_card *card)
{
    double most = (double)a->count * (double)a->parts +
                  (double)card->processors * card->processor_threads;
    double terms = (double)a->in * (double)a->l[0].taps * (double)a->l[1].taps;
    return most >= INT32_MAX || terms >= INT32_MAX / 2 ||
           a->l[2].taps >= INT32_MAX;
}

bool nb_card_conv_each(nb_card *card, const nb_card_conv *c, nb_card_job **to)
{
    job *j = nb_alloc_zero(sizeof *j);
    nb_dtype d = c->w.y.dtype;
    if (!j) return false;
    j->card = card;
    j->base = (nb_card_job){.run = run, .free = release};
    fill(&j->args, c);
    cut(&j->args, card);
    if (j->args.parts > 1)
        j->base.workspace =
            (size_t)(j->args.parts * j->args.count) *
            (nb_dtype_size(d) == 8 || !nb_dtype_is_float(d) ? 8 : 4);
    if (!build(j, d, is_large(&j->args, card))) return release(&j->base), false;
    *to = &j->base;
    return true;
}
