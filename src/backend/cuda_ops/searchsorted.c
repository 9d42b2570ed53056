/* searchsorted.c - where values belong in a sorted row, on a card: a thread a
 * value, which halves the row. */
#include "backend/cuda_ops/dims.h"
#include "backend/cuda_ops/one.h"
#include "backend/cuda_ops/text.h"

static const char text[] =
#include "backend/cuda_ops/searchsorted.cu"
    ;

/* As in searchsorted.cu. */
typedef struct search {
    nb_dims at; /* row, values, sorter, result */
    int64_t n, step, sorter_step, right;
} search;

static bool find(search *s, const nb_batch *b)
{
    bool sorted = b->nops < 4;
    int sorter = sorted ? 0 : 2, last = b->nops - 1;
    const nb_view *row = &b->view[0], *v = &b->view[1], *y = &b->view[last];
    s->at = nb_dims_none();
    s->n = row->size[0];
    s->step = row->stride[0];
    s->sorter_step = b->view[sorter].stride[0];
    bool ok = nb_dims_add_batch(&s->at, b, 4, (int[]){0, 1, sorter, last});
    for (int d = 0; ok && d < v->rank; d++)
        ok = nb_dims_add(&s->at, v->size[d], 4,
                         (int64_t[]){0, v->stride[d], 0, y->stride[d]});
    return ok;
}

static bool make(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **job)
{
    nb_batch b;
    nb_text t = {0};
    search s = {.right = *nb_arg_text(c, 0) == 'r'};
    (void)y;
    if (!nb_batch_open(&b, c, NULL)) return false;
    bool takes = find(&s, &b);
    nb_batch_close(&b);
    if (!takes) return true;
    nb_card_keys_text(&t, (nb_dtype)c->in[0]->dtype);
    nb_text_add(&t, "#define SORTED %d\n#define I %s\n%s%s", c->nin < 3,
                c->nin < 3 ? "i64" : nb_card_type((nb_dtype)c->in[2]->dtype),
                nb_one_text, text);
    return nb_card_one_make(card, &t, "search_sorted", c->nin, &s, sizeof s,
                            s.at.count, job);
}

const nb_card_maker nb_card_searchsorted = {"searchsorted", make};
