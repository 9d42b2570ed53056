/* fold.c - the adjoint of windows on a card: a thread for every element of the
 * image, which adds up what windows hold of it, in the order of their places. */
#include "backend/cuda_ops/dims.h"
#include "backend/cuda_ops/makers.h"
#include "backend/cuda_ops/text.h"
#include "base/half.h"
#include "base/memory.h"
#include "ops/conv.h"

static const char text[] =
#include "backend/cuda_ops/fold.cu"
    ;

/* As in fold.cu. */
typedef struct axis {
    int64_t size, windows, taps, stride, dilation, step, tap_step;
} axis;

typedef struct args {
    const char *x;
    char *y;
    int64_t count, channels, channel_step;
    axis a[NB_MAX_SPATIAL];
    nb_dims lanes;
} args;

typedef struct job {
    nb_card_job base;
    nb_card *card;
    args args;
    nb_card_code *code;
} job;

static bool build(job *j, nb_dtype d)
{
    nb_text t = {0};
    bool half = nb_dtype_is_half(d);
    nb_text_add(&t, "%s%s\ntypedef %s X;\ntypedef %s V;\n", nb_dims_text,
                nb_halves_text, nb_card_type(d),
                d == NB_F64 ? "double" : "float");
    nb_text_add(&t, "#define LOAD %s\n#define STORE %s\n%s",
                !half         ? ""
                : d == NB_F16 ? "load_f16"
                              : "load_bf16",
                !half         ? ""
                : d == NB_F16 ? "store_f16"
                              : "store_bf16",
                text);
    nb_card_source source = {nb_text_get(&t), "fold_each"};
    bool ok = !t.failed && nb_card_build(j->card, 1, &source, &j->code);
    nb_text_free(&t);
    return ok;
}

static bool run(nb_card_job *base, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    job *j = (job *)base;
    args a = j->args;
    void *list[] = {&a};
    unsigned grid[3] = {nb_card_grid(j->card, a.count), 1, 1};
    unsigned block[3] = {NB_CARD_THREADS, 1, 1};
    (void)workspace;
    a.x = in[0], a.y = out[0];
    return nb_card_launch(j->card, j->code, grid, block, 0, list, what);
}

static void release(nb_card_job *base)
{
    job *j = (job *)base;
    nb_card_code_drop(j->code);
    nb_free(j);
}

/* Axes before the last are trivial where there are fewer than three. */
static bool fill(args *a, const nb_call *c, const nb_batch *b)
{
    const nb_view *x = &b->view[0], *y = &b->view[1];
    int r, n;
    const int64_t *stride = nb_arg_list(c, 1, &r);
    const int64_t *dilation = nb_arg_list(c, 2, &n);
    *a = (args){.channels = y->size[r],
                .channel_step = x->stride[2 * r],
                .lanes = nb_dims_none()};
    bool ok = nb_dims_add_batch(&a->lanes, b, 1, (int[]){0});
    a->count = a->lanes.count * a->channels;
    for (int k = 0; k < NB_MAX_SPATIAL; k++) {
        int d = k - (NB_MAX_SPATIAL - r);
        a->a[k] = (axis){1, 1, 1, 1, 1, 0, 0};
        if (d >= 0)
            a->a[k] =
                (axis){y->size[d],  x->size[d],   x->size[r + d],  stride[d],
                       dilation[d], x->stride[d], x->stride[r + d]};
        a->count *= a->a[k].size;
    }
    return ok;
}

static bool make(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **to)
{
    nb_batch b;
    job *j = nb_alloc_zero(sizeof *j);
    (void)y;
    if (!j || !nb_batch_open(&b, c, NULL)) return nb_free(j), false;
    j->base = (nb_card_job){.run = run, .free = release};
    j->card = card;
    nb_dtype d = (nb_dtype)b.view[0].dtype;
    bool takes = fill(&j->args, c, &b);
    nb_batch_close(&b);
    bool ok = !takes || build(j, d);
    if (takes && ok)
        *to = &j->base;
    else
        release(&j->base);
    return ok;
}

const nb_card_maker nb_card_fold = {"fold", make};
