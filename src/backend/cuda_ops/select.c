/* select.c - places of an axis in an order that is known at the call, on a
 * card; and elements in order, where a reshape cannot be a view. */
#include "backend/cuda_ops/dims.h"
#include "backend/cuda_ops/one.h"
#include "backend/cuda_ops/text.h"
#include "ops/copy.h"
#include "ops/view.h"

static const char text[] =
#include "backend/cuda_ops/select.cu"
    ;

/* As in select.cu; the axis is the last of `at`. */
typedef struct chosen {
    nb_dims at; /* x, without the axis; y */
    int64_t n, step, to_step;
    int8_t from[NB_MAX_SELECT];
} chosen;

static bool find(chosen *s, const nb_batch *b)
{
    const nb_view *x = &b->view[0], *y = &b->view[1];
    s->at = nb_dims_none();
    s->step = x->stride[0];
    s->to_step = y->stride[0];
    bool ok = nb_dims_add_batch(&s->at, b, 2, (int[]){0, 1});
    for (int d = 1; ok && d < y->rank; d++)
        ok = nb_dims_add(&s->at, y->size[d], 2,
                         (int64_t[]){x->stride[d], y->stride[d]});
    return ok;
}

/* All of x: no axis, of which the one place is taken. */
static bool find_all(chosen *s, const nb_batch *b)
{
    const nb_view *x = &b->view[0];
    int64_t row[NB_MAX_RANK];
    nb_row_major(x->rank, x->size, row);
    s->at = nb_dims_none();
    s->n = 1;
    bool ok = nb_dims_add_batch(&s->at, b, 2, (int[]){0, 1});
    for (int d = 0; ok && d < x->rank; d++)
        ok = nb_dims_add(&s->at, x->size[d], 2,
                         (int64_t[]){x->stride[d], row[d]});
    return ok;
}

static bool make(nb_card *card, const nb_call *c, bool all, nb_card_job **job)
{
    static const char *const bits[] = {
        [1] = "u8", [2] = "u16", [4] = "u32", [8] = "u64"};
    int n = 0;
    const int64_t *from = all ? NULL : nb_arg_list(c, 1, &n);
    nb_batch b;
    nb_text t = {0};
    chosen s = {.n = n};
    if (!nb_batch_open(&b, c, NULL)) return false;
    bool takes = all ? find_all(&s, &b) : find(&s, &b);
    nb_batch_close(&b);
    if (!takes) return true;
    for (int i = 0; i < n; i++)
        s.from[i] = (int8_t)from[i];
    nb_text_add(&t, "%s%s\n#define T %s\n%s", nb_dims_text, nb_one_text,
                bits[nb_dtype_size((nb_dtype)c->in[0]->dtype)], text);
    return nb_card_one_make(card, &t, "select_places", 1, &s, sizeof s,
                            s.at.count * s.n, job);
}

static bool make_select(nb_card *card, const nb_call *c, nb_tensor *y,
                        nb_card_job **job)
{
    (void)y;
    return make(card, c, false, job);
}

static bool make_reshape(nb_card *card, const nb_call *c, nb_tensor *y,
                         nb_card_job **job)
{
    (void)y;
    return make(card, c, true, job);
}

const nb_card_maker nb_card_select = {"select", make_select};
const nb_card_maker nb_card_reshape = {"reshape", make_reshape};
