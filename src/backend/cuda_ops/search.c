/* search.c - the place of an extreme along an axis, on a card. */
#include "backend/cuda_ops/makers.h"

#include "backend/cuda_ops/dims.h"
#include "backend/cuda_ops/text.h"

static const char text[] =
#include "backend/cuda_ops/search.cu"
    ;

typedef struct search {
    nb_card_job job;
    nb_card *card;
    nb_dims lines; /* of x, of y */
    int64_t n, step;
    int least, team; /* threads of a line */
    nb_card_code *code;
} search;

static bool build(search *s, nb_dtype d)
{
    nb_text t = {0};
    nb_card_keys_text(&t, d);
    nb_text_add(&t, "%s", text);
    nb_card_source source = {nb_text_get(&t), "search_extreme"};
    bool ok = nb_card_build(s->card, 1, &source, &s->code);
    nb_text_free(&t);
    return ok;
}

static bool run(nb_card_job *j, char *const *in, char *const *out,
                char *workspace, const char *what)
{
    search *s = (search *)j;
    char *x = in[0], *y = out[0];
    int64_t per = NB_CARD_THREADS / s->team;
    unsigned grid[3] = {(unsigned)((s->lines.count + per - 1) / per), 1, 1};
    unsigned block[3] = {NB_CARD_THREADS, 1, 1};
    void *args[] = {&x, &y, &s->lines, &s->n, &s->step, &s->least, &s->team};
    (void)workspace;
    return nb_card_launch(s->card, s->code, grid, block, 0, args, what);
}

static void release(nb_card_job *j)
{
    search *s = (search *)j;
    nb_card_code_drop(s->code);
    nb_free(s);
}

static bool find_lines(search *s, const nb_batch *b)
{
    const nb_view *x = &b->view[0], *y = &b->view[1];
    s->lines = nb_dims_none();
    s->n = x->size[0];
    s->step = x->stride[0];
    s->team = s->n <= 8 ? 1 : s->n <= 1024 ? 32 : NB_CARD_THREADS;
    bool ok = nb_dims_add_batch(&s->lines, b, 2, (int[]){0, 1});
    for (int d = 1; ok && d < x->rank; d++)
        ok = nb_dims_add(&s->lines, x->size[d], 2,
                         (int64_t[]){x->stride[d], y->stride[d - 1]});
    return ok && s->lines.count < INT32_MAX;
}

static bool make(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **job)
{
    nb_batch b;
    search *s = nb_alloc_zero(sizeof *s);
    (void)y;
    if (!s || !nb_batch_open(&b, c, NULL)) return nb_free(s), false;
    s->card = card;
    s->job = (nb_card_job){.run = run, .free = release};
    s->least = (int)nb_arg_int(c, 1);
    bool takes = find_lines(s, &b);
    nb_batch_close(&b);
    bool ok = !takes || build(s, (nb_dtype)c->in[0]->dtype);
    if (takes && ok)
        *job = &s->job;
    else
        release(&s->job);
    return ok;
}

const nb_card_maker nb_card_arg_extreme = {"arg_extreme", make};
