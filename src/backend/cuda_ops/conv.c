/* conv.c - convolutions on a card: a call, and which way it is computed. */
#include "backend/cuda_ops/conv.h"

#include "backend/cuda_ops/makers.h"

/* Whether the innermost points of the batch are like more images. */
static bool is_images(const nb_card_conv *c, int64_t size, const int64_t *step)
{
    const nb_conv_work *w = &c->w;
    return step[1] == 0 && size > 1 &&
           (w->images == 1 || (step[0] == w->images * w->x.stride[0] &&
                               step[2] == w->images * w->y.stride[0]));
}

static bool find_lanes(nb_card_conv *c, const nb_batch *b)
{
    int n = b->n;
    c->lanes = nb_dims_none();
    for (; n > 0; n--) {
        int64_t step[] = {b->step[0][n - 1], b->step[1][n - 1],
                          b->step[2][n - 1]};
        if (b->size[n - 1] == 1) continue;
        if (!is_images(c, b->size[n - 1], step)) break;
        if (c->w.images == 1) {
            c->w.x.stride[0] = step[0];
            c->w.y.stride[0] = step[2];
        }
        c->w.images *= b->size[n - 1];
    }
    for (int i = 0; i < n; i++)
        if (!nb_dims_add(
                &c->lanes, b->size[i], 3,
                (int64_t[]){b->step[0][i], b->step[1][i], b->step[2][i]}))
            return false;
    return true;
}

static bool read_call(nb_card_conv *c, const nb_call *call, bool *takes)
{
    nb_batch b;
    if (!nb_batch_open(&b, call, NULL)) return false;
    nb_geometry g = nb_conv_geometry(call);
    c->w = nb_conv_work_of(&g, &b.view[0], &b.view[1], &b.view[2]);
    *takes = c->w.x.dtype == c->w.filter.dtype &&
             c->w.x.dtype == c->w.y.dtype && find_lanes(c, &b);
    nb_batch_close(&b);
    return true;
}

static bool make(nb_card *card, const nb_call *call, nb_tensor *y,
                 nb_card_job **job)
{
    nb_card_conv c;
    bool takes;
    (void)y;
    if (!read_call(&c, call, &takes)) return false;
    if (!takes) return true;
    return nb_card_conv_dnn(card, &c, job) &&
           (*job || nb_card_conv_tiles(card, &c, job)) &&
           (*job || nb_card_conv_each(card, &c, job));
}

const nb_card_maker nb_card_conv_maker = {"conv", make};
