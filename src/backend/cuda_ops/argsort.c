/* argsort.c - argsort on a card. */
#include "backend/cuda_ops/makers.h"

#include "backend/cuda_ops/dims.h"
#include "backend/cuda_ops/sort.h"
#include "backend/cuda_ops/text.h"

static const char text[] =
#include "backend/cuda_ops/argsort.cu"
    ;

enum { KEYS, WRITE, KERNELS };

typedef struct argsort {
    nb_card_job job;
    nb_card *card;
    nb_card_sort sort;
    nb_dims lines; /* of x, of y */
    int64_t n, step[2];
    int descending;
    nb_card_code *code[KERNELS];
} argsort;

static bool build(argsort *s, nb_dtype d)
{
    nb_text t = {0};
    nb_card_keys_text(&t, d);
    nb_text_add(&t, "%s", text);
    nb_card_source source[KERNELS] = {{nb_text_get(&t), "order_keys"},
                                      {nb_text_get(&t), "order_write"}};
    bool ok = nb_card_build(s->card, KERNELS, source, s->code);
    nb_text_free(&t);
    return ok;
}

static bool run(nb_card_job *j, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    argsort *s = (argsort *)j;
    char *x = in[0], *y = out[0], *keys = workspace, *numbers;
    unsigned grid[3] = {nb_card_grid(s->card, s->lines.count * s->n), 1, 1};
    unsigned block[3] = {NB_CARD_THREADS, 1, 1};
    void *load[] = {&x, &keys, &s->lines, &s->n, &s->step[0], &s->descending};
    if (!nb_card_launch(s->card, s->code[KEYS], grid, block, 0, load, what) ||
        !nb_card_sort_run(&s->sort, workspace, &keys, &numbers, what))
        return false;
    void *store[] = {&numbers, &y, &s->lines, &s->n, &s->step[1]};
    return nb_card_launch(s->card, s->code[WRITE], grid, block, 0, store, what);
}

static void release(nb_card_job *j)
{
    argsort *s = (argsort *)j;
    nb_card_sort_free(&s->sort);
    for (int k = 0; k < KERNELS; k++)
        nb_card_code_drop(s->code[k]);
    nb_free(s);
}

/* Lines of the batch and of the dims behind the axis, which comes first. */
static bool find_lines(argsort *s, const nb_batch *b)
{
    const nb_view *x = &b->view[0], *y = &b->view[1];
    s->lines = nb_dims_none();
    s->n = x->size[0];
    s->step[0] = x->stride[0];
    s->step[1] = y->stride[0];
    bool ok = nb_dims_add_batch(&s->lines, b, 2, (int[]){0, 1});
    for (int d = 1; ok && d < x->rank; d++)
        ok = nb_dims_add(&s->lines, x->size[d], 2,
                         (int64_t[]){x->stride[d], y->stride[d]});
    return ok && nb_card_sort_takes(s->lines.count, s->n);
}

static bool make(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **job)
{
    nb_batch b;
    argsort *s = nb_alloc_zero(sizeof *s);
    nb_dtype d = (nb_dtype)c->in[0]->dtype;
    (void)y;
    if (!s || !nb_batch_open(&b, c, NULL)) return nb_free(s), false;
    bool takes = find_lines(s, &b);
    nb_batch_close(&b);
    if (!takes) return nb_free(s), true;
    s->job = (nb_card_job){.run = run, .free = release};
    s->card = card;
    s->descending = (int)nb_arg_int(c, 1);
    bool ok = nb_card_sort_new(&s->sort, card, s->lines.count, s->n,
                               (int)nb_dtype_size(d) * 8) &&
              build(s, d);
    s->job.workspace = nb_card_sort_bytes(&s->sort);
    if (ok)
        *job = &s->job;
    else
        release(&s->job);
    return ok;
}

const nb_card_maker nb_card_argsort = {"argsort", make};
