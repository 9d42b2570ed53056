/* conv_dnn.c - convolution by cuDNN.
 *
 * The library knows three operations: y of x and w, and the gradients in x and
 * in w.  All three are convolutions here, so which one a call is follows from
 * how it lies: one whose taps lie backwards, or that spreads x, is the
 * gradient in x of another; one with images inside is the gradient in w, places
 * and taps, images and channels exchanged.
 *
 * The library takes images and results with channels inside, as they lie here,
 * but filters as (channels out, taps, channels in): those are copied, and so are
 * gradients of filters.  What it is told of how filters lie it does not check.
 *
 * Operands that begin at odd addresses are left to a kernel of our own. */
#include "backend/cuda/dnn/dnn.h"
#include "backend/cuda/moves.h"
#include "backend/cuda_ops/conv.h"
#include "base/memory.h"
#include "lower/passes.h"

#include <stdlib.h>
#include <string.h>

/* Filters of more taps are what else looks like one. */
enum { ALIGNMENT = 16, TRIES = 6, ROOM = 256, TAPS = 128 };

/* Products that are worth a plan. */
static const double worth_it = 0x1p25;

/* Names of the attributes of the three operations. */
typedef struct names {
    int operation, conv, alpha, beta, x, w, y;
} names;

#define NAMES(op, way, x, w, y)                                  \
    {                                                            \
        NB_DNN_BACKEND_OPERATION_CONVOLUTION_##op##_DESCRIPTOR,  \
            NB_DNN_ATTR_OPERATION_CONVOLUTION_##way##_CONV_DESC, \
            NB_DNN_ATTR_OPERATION_CONVOLUTION_##way##_ALPHA,     \
            NB_DNN_ATTR_OPERATION_CONVOLUTION_##way##_BETA,      \
            NB_DNN_ATTR_OPERATION_CONVOLUTION_##way##_##x,       \
            NB_DNN_ATTR_OPERATION_CONVOLUTION_##way##_##w,       \
            NB_DNN_ATTR_OPERATION_CONVOLUTION_##way##_##y        \
    }

typedef enum kind { FORWARD, IN_X, IN_W } kind;

static const names all_names[] = {
    NAMES(FORWARD, FORWARD, X, W, Y),
    NAMES(BACKWARD_DATA, BWD_DATA, DX, W, DY),
    NAMES(BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
};

/* What the library is told: x (images, channels, lines...), w (channels out,
 * channels in, taps...) and y of a convolution, two or three lines. */
typedef struct form {
    kind kind;
    int lines;
    nb_dnn_tensor x, w, y;
    int64_t stride[3], dilation[3], before[3], after[3];
    nb_move filter; /* between here and the library */
    int64_t offset; /* elements from where it begins to its first tap */
} form;

typedef struct job {
    nb_card_job base, *odd; /* odd: for odd addresses */
    nb_card *card;
    nb_dnn_plan *plan;
    nb_card_code *moves;
    kind kind;
    nb_move filter;
    int64_t offset; /* bytes */
    size_t room;    /* of the filter, at the start of the workspace */
} job;

static bool lay(job *j, const char *from, char *to, const char *what)
{
    nb_move m = j->filter;
    m.from = from, m.to = to;
    return nb_moves_launch(j->card, j->moves, 1, &m, NULL, what);
}

static bool run(nb_card_job *base, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    job *j = (job *)base;
    char *rest = workspace + j->room, *y = out[0] + j->offset;
    void *forward[] = {in[0], workspace, out[0]};
    void *in_x[] = {out[0], workspace, in[0]};
    void *in_w[] = {in[0], workspace, in[1]};
    uintptr_t all = (uintptr_t)in[0] | (uintptr_t)out[0];
    if (j->kind == IN_W) all |= (uintptr_t)in[1];
    if (all % ALIGNMENT) return j->odd->run(j->odd, in, out, workspace, what);
    if (j->kind == IN_W)
        return nb_dnn_plan_run(j->plan, in_w, rest, what) &&
               lay(j, workspace, y, what);
    return lay(j, in[1] + j->offset, workspace, what) &&
           nb_dnn_plan_run(j->plan, j->kind == FORWARD ? forward : in_x, rest,
                           what);
}

static void release(nb_card_job *base)
{
    job *j = (job *)base;
    nb_dnn_plan_drop(j->plan);
    nb_card_code_drop(j->moves);
    nb_card_job_free(j->odd);
    nb_free(j);
}

/* Forms */

/* Padding after, so that there are so many places: of those that do, as before,
 * or the least.  -1: none. */
static int64_t after_of(const nb_conv_line *l)
{
    int64_t least = (l->places - 1) * l->stride + (l->taps - 1) * l->dilation +
                    1 - l->size - l->before;
    int64_t most = least + l->stride - 1;
    if (least <= l->before && l->before <= most) return l->before;
    return least >= 0 ? least : most >= 0 ? 0 : -1;
}

/* The line of the convolution whose gradient in x this is: exchanged are what is
 * read and what is written, and taps are counted from the other end. */
static nb_conv_line line_in_x(const nb_conv_line *l)
{
    return (nb_conv_line){.size = l->places,
                          .taps = l->taps,
                          .places = l->size,
                          .stride = l->spread,
                          .dilation = l->dilation,
                          .before = (l->taps - 1) * l->dilation - l->before};
}

static nb_conv_line line_in_w(const nb_conv_line *l)
{
    return (nb_conv_line){.size = l->size,
                          .taps = l->places,
                          .places = l->taps,
                          .stride = l->dilation,
                          .dilation = l->stride,
                          .before = l->before};
}

/* The lines that the library is told of are at most the last three. */
static bool set_lines(form *f, const nb_conv_work *w)
{
    bool fits = true;
    for (int d = 0; d < f->lines; d++) {
        const nb_conv_line *from = &w->line[3 - f->lines + d];
        nb_conv_line l = f->kind == FORWARD ? *from
                         : f->kind == IN_X  ? line_in_x(from)
                                            : line_in_w(from);
        f->stride[d] = l.stride;
        f->dilation[d] = l.dilation;
        f->before[d] = l.before;
        f->after[d] = after_of(&l);
        fits = fits && l.before >= 0 && f->after[d] >= 0;
    }
    return fits;
}

/* A tensor of two dims and lines that is packed, with channels inside. */
static nb_dnn_tensor tensor_of(const form *f, nb_dtype dtype,
                               const int64_t *size)
{
    nb_dnn_tensor t = {.dtype = dtype, .rank = 2 + f->lines};
    int64_t step = size[1];
    memcpy(t.size, size, (size_t)t.rank * sizeof *size);
    t.step[1] = 1;
    for (int d = t.rank - 1; d >= 0; d = d == 2 ? 0 : d - 1) {
        t.step[d] = step;
        step *= size[d];
        if (d == 0) break;
    }
    return t;
}

/* Images or channels out, channels, and what runs along lines; with steps. */
typedef struct side {
    int64_t size[5], step[5];
} side;

static side side_of(int64_t n, int64_t n_step, int64_t c, int64_t c_step)
{
    return (side){{n, c}, {n_step, c_step}};
}

static bool is_packed(const nb_dnn_tensor *t, const side *s)
{
    bool ok = true;
    for (int d = 0; d < t->rank; d++)
        ok = ok && t->size[d] > 0 &&
             (t->size[d] == 1 || t->step[d] == s->step[d]);
    return ok;
}

/* x, w and y; false where x or y do not lie as the library wants them. */
static bool set_tensors(form *f, const nb_conv_work *w)
{
    const int64_t *xs = w->x.stride, *fs = w->filter.stride;
    const int64_t *ys = w->y.stride;
    int64_t in = w->groups * w->in, out = w->groups * w->out;
    side x = side_of(w->images, xs[0], in, xs[4]);
    side k = side_of(out, fs[4], w->in, fs[3]);
    side y = side_of(w->images, ys[0], out, 1);
    if (f->kind == IN_X) k = side_of(in, 0, w->out, fs[4]);
    if (f->kind == IN_W) {
        x = side_of(w->in, xs[4], w->images, xs[0]);
        k = side_of(w->in, fs[3], w->out, fs[4]);
        y = side_of(w->out, 1, w->images, ys[0]);
    }
    for (int d = 0; d < f->lines; d++) {
        int from = 3 - f->lines + d;
        const nb_conv_line *l = &w->line[from];
        x.size[2 + d] = l->size, x.step[2 + d] = xs[1 + from];
        y.size[2 + d] = l->places, y.step[2 + d] = ys[1 + from];
        k.size[2 + d] = l->taps, k.step[2 + d] = fs[from];
    }
    nb_dtype d = w->y.dtype;
    nb_dnn_tensor of_x = tensor_of(f, d, x.size),
                  of_k = tensor_of(f, d, k.size);
    nb_dnn_tensor of_y = tensor_of(f, d, y.size);
    f->x = f->kind == IN_X ? of_y : of_x;
    f->w = f->kind == IN_W ? of_y : of_k;
    f->y = f->kind == FORWARD ? of_y : f->kind == IN_X ? of_x : of_k;
    return is_packed(&of_x, &x) &&
           (f->kind == IN_W ? is_packed(&of_k, &k) : is_packed(&of_y, &y));
}

/* How the filter lies here and there; of gradients in x taps are counted from
 * the other end. */
static bool set_filter(form *f, const nb_conv_work *w)
{
    const int64_t *fs = w->filter.stride, *ys = w->y.stride;
    bool in_x = f->kind == IN_X, in_w = f->kind == IN_W;
    int64_t groups = in_x ? w->groups : 1, outs = f->w.size[0] / groups;
    int64_t size[6] = {groups, outs},
            there[6] = {outs * f->w.step[0], f->w.step[0]};
    int64_t here[6] = {w->out * fs[4], in_x ? fs[3] : in_w ? 1 : fs[4]};
    int n = 2;
    for (int d = 0; d < f->lines; d++, n++) {
        int from = 3 - f->lines + d;
        size[n] = f->w.size[2 + d];
        there[n] = f->w.step[2 + d];
        here[n] = in_w ? ys[1 + from] : in_x ? -fs[from] : fs[from];
        if (in_x) f->offset += (size[n] - 1) * fs[from];
    }
    size[n] = f->w.size[1];
    there[n] = 1;
    here[n] = in_x ? fs[4] : in_w ? ys[0] : fs[3];
    return nb_move_over(&f->filter, nb_dtype_size(w->y.dtype), n + 1, size,
                        in_w ? here : there, in_w ? there : here);
}

/* Which of the three it is; false if none. */
static bool find_kind(form *f, const nb_conv_work *w)
{
    bool back = false, spread = false, strided = false;
    double taps = 1, places = 1;
    for (int d = 0; d < 3; d++) {
        const nb_conv_line *l = &w->line[d];
        back = back || (l->taps > 1 && w->filter.stride[d] < 0);
        spread = spread || l->spread > 1;
        strided = strided || l->stride > 1;
        taps *= (double)l->taps, places *= (double)l->places;
    }
    const int64_t *xs = w->x.stride;
    bool turned = w->images > 1 ? xs[0] == 1 && xs[4] != 1 : taps > places;
    f->kind = spread || (back && !strided) ? IN_X : turned ? IN_W : FORWARD;
    if (f->kind == IN_W) return w->groups == 1;
    return taps <= TAPS && (f->kind == FORWARD || !strided);
}

static bool form_of(form *f, const nb_card_conv *c)
{
    const nb_conv_work *w = &c->w;
    const nb_conv_line *first = &w->line[0];
    nb_dtype d = w->y.dtype;
    bool flat = first->size == 1 && first->taps == 1 && first->places == 1 &&
                first->before == 0;
    *f = (form){.lines = flat ? 2 : 3};
    if (d != NB_F16 && d != NB_BF16 && d != NB_F32) return false;
    if (c->lanes.count != 1 || !find_kind(f, w) || !set_lines(f, w))
        return false;
    return set_tensors(f, w) && set_filter(f, w);
}

/* Graphs */

static void *describe(nb_dnn_graph *g, const form *f)
{
    int type = NB_DNN_DATA_FLOAT, mode = NB_DNN_CROSS_CORRELATION;
    int64_t lines = f->lines;
    return nb_dnn_describe(
        g, NB_DNN_BACKEND_CONVOLUTION_DESCRIPTOR, 7,
        (nb_dnn_attribute[]){{NB_DNN_ATTR_CONVOLUTION_COMP_TYPE,
                              NB_DNN_TYPE_DATA_TYPE, 1, &type},
                             {NB_DNN_ATTR_CONVOLUTION_CONV_MODE,
                              NB_DNN_TYPE_CONVOLUTION_MODE, 1, &mode},
                             {NB_DNN_ATTR_CONVOLUTION_SPATIAL_DIMS,
                              NB_DNN_TYPE_INT64, 1, &lines},
                             {NB_DNN_ATTR_CONVOLUTION_DILATIONS,
                              NB_DNN_TYPE_INT64, lines, f->dilation},
                             {NB_DNN_ATTR_CONVOLUTION_FILTER_STRIDES,
                              NB_DNN_TYPE_INT64, lines, f->stride},
                             {NB_DNN_ATTR_CONVOLUTION_PRE_PADDINGS,
                              NB_DNN_TYPE_INT64, lines, f->before},
                             {NB_DNN_ATTR_CONVOLUTION_POST_PADDINGS,
                              NB_DNN_TYPE_INT64, lines, f->after}});
}

static void add_operation(nb_dnn_graph *g, const form *f)
{
    const names *n = &all_names[f->kind];
    float one = 1, zero = 0;
    void *x = nb_dnn_tensor_at(g, nb_dnn_tensor_add(g, &f->x));
    void *w = nb_dnn_tensor_at(g, nb_dnn_tensor_add(g, &f->w));
    void *y = nb_dnn_tensor_at(g, nb_dnn_tensor_add(g, &f->y));
    void *conv = describe(g, f);
    nb_dnn_operation_add(
        g, n->operation, 6,
        (nb_dnn_attribute[]){
            {n->conv, NB_DNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv},
            {n->x, NB_DNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
            {n->w, NB_DNN_TYPE_BACKEND_DESCRIPTOR, 1, &w},
            {n->y, NB_DNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
            {n->alpha, NB_DNN_TYPE_FLOAT, 1, &one},
            {n->beta, NB_DNN_TYPE_FLOAT, 1, &zero}});
}

/* Products of float32 are those of float32, unless NABLA_TF32=1. */
static bool is_exact(const form *f)
{
    const char *tf32 = getenv("NABLA_TF32");
    return f->x.dtype == NB_F32 && !(tf32 && !strcmp(tf32, "1"));
}

static bool plan(nb_card *card, const form *f, nb_dnn_plan **to)
{
    nb_dnn_wish wish = {.tries = TRIES, .same = true, .exact = is_exact(f)};
    nb_dnn_graph *g = nb_dnn_graph_new(card);
    if (!g) return nb_error_clear(), true;
    add_operation(g, f);
    bool ok = nb_dnn_plan_find(g, &wish, to);
    if (ok && !*to && nb_pass_is_dumped("code"))
        nb_pass_dump("code", nb_dnn_graph_trouble(g));
    nb_dnn_graph_free(g);
    return ok;
}

/* Making a plan takes as long as making kernels: small ones do without, unless
 * NABLA_TUNE=all. */
static bool is_worth_it(const nb_card_conv *c)
{
    const char *tune = getenv("NABLA_TUNE");
    return nb_conv_products(&c->w) >= worth_it ||
           (tune && !strcmp(tune, "all"));
}

static job *job_of(nb_card *card, const form *f, nb_dnn_plan *p, size_t item)
{
    job *j = nb_alloc_zero(sizeof *j);
    if (!j) return nb_dnn_plan_drop(p), NULL;
    size_t bytes = (size_t)f->filter.count * item;
    *j = (job){.base = {.run = run, .free = release},
               .card = card,
               .plan = p,
               .kind = f->kind,
               .filter = f->filter,
               .offset = f->offset * (int64_t)item,
               .room = (bytes + ROOM - 1) / ROOM * ROOM};
    j->base.workspace = j->room + nb_dnn_plan_workspace(p);
    return j;
}

bool nb_card_conv_dnn(nb_card *card, const nb_card_conv *c, nb_card_job **to)
{
    form f;
    nb_dnn_plan *p = NULL;
    nb_dtype d = c->w.y.dtype;
    if (!is_worth_it(c) || !form_of(&f, c) || !nb_dnn_there()) return true;
    if (!plan(card, &f, &p)) return false;
    if (!p) return true;
    job *j = job_of(card, &f, p, nb_dtype_size(d));
    if (!j) return false;
    j->moves = nb_moves_code(card, false);
    if (!j->moves || !nb_card_conv_each(card, c, &j->odd))
        return release(&j->base), false;
    if (j->odd->workspace > j->base.workspace)
        j->base.workspace = j->odd->workspace;
    *to = &j->base;
    return true;
}
