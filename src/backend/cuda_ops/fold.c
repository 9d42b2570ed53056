/* fold.c - the adjoint of windows on a card: a thread for every element of the
 * image, which adds up what windows hold of it, in the order of their places. */
#include "backend/cuda_ops/dims.h"
#include "backend/cuda_ops/one.h"
#include "backend/cuda_ops/text.h"
#include "ops/conv.h"

static const char text[] =
#include "backend/cuda_ops/fold.cu"
    ;

/* As in fold.cu. */
typedef struct axis {
    int64_t size, windows, taps, stride, dilation, step, tap_step;
} axis;

typedef struct fold {
    int64_t count, channels, channel_step;
    axis a[NB_MAX_SPATIAL];
    nb_dims lanes;
} fold;

/* Axes before the last are trivial where there are fewer than three. */
static bool find(fold *f, const nb_call *c, const nb_batch *b)
{
    const nb_view *x = &b->view[0], *y = &b->view[1];
    int r, n;
    const int64_t *stride = nb_arg_list(c, 1, &r);
    const int64_t *dilation = nb_arg_list(c, 2, &n);
    *f = (fold){.channels = y->size[r],
                .channel_step = x->stride[2 * r],
                .lanes = nb_dims_none()};
    bool ok = nb_dims_add_batch(&f->lanes, b, 1, (int[]){0});
    f->count = f->lanes.count * f->channels;
    for (int k = 0; k < NB_MAX_SPATIAL; k++) {
        int d = k - (NB_MAX_SPATIAL - r);
        f->a[k] = (axis){1, 1, 1, 1, 1, 0, 0};
        if (d >= 0)
            f->a[k] =
                (axis){y->size[d],  x->size[d],   x->size[r + d],  stride[d],
                       dilation[d], x->stride[d], x->stride[r + d]};
        f->count *= f->a[k].size;
    }
    return ok;
}

static bool make(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **job)
{
    nb_batch b;
    nb_text t = {0};
    nb_dtype d = (nb_dtype)c->in[0]->dtype;
    fold f;
    (void)y;
    if (!nb_batch_open(&b, c, NULL)) return false;
    bool takes = find(&f, c, &b);
    nb_batch_close(&b);
    if (!takes) return true;
    nb_text_add(&t, "%s%s%s\n", nb_dims_text, nb_halves_text, nb_one_text);
    nb_card_define(&t, "X", d);
    bool single = nb_dtype_is_float(d) && d != NB_F64;
    nb_text_add(&t, "#define V %s\n%s", single ? "float" : "double", text);
    return nb_card_one_make(card, &t, "fold_each", 1, &f, sizeof f, f.count,
                            job);
}

const nb_card_maker nb_card_fold = {"fold", make};
