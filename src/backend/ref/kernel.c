/* kernel.c - calling an op's kernel at every batch point.
 *
 * Batch axes are the lanes and what stands behind "..."; the dims that the
 * signature names are handed to the kernel with their strides. */
#include "backend/ref/ref.h"

#include "base/pool.h"
#include "core/batch.h"
#include "core/debug.h"

#include <string.h>

/* Points of one chunk; each is by itself, so several go at a time. */
typedef struct job {
    const nb_batch *b;
    const nb_call *c;
    int nout;
    int64_t points, per_chunk;
    atomic_bool failed;
} job;

static void move(const nb_batch *b, int t, int i, int64_t by, nb_view *view)
{
    int64_t item = (int64_t)nb_dtype_size(view[t].dtype);
    view[t].data += b->step[t][i] * by * item;
}

/* The operands' views at batch point p, and its place. */
static void go_to(const nb_batch *b, int64_t p, int64_t *at, nb_view *view)
{
    memcpy(view, b->view, (size_t)b->nops * sizeof *view);
    for (int i = b->n - 1; i >= 0; i--) {
        at[i] = p % b->size[i];
        p /= b->size[i];
        for (int t = 0; t < b->nops; t++)
            move(b, t, i, at[i], view);
    }
}

static void go_on(const nb_batch *b, int64_t *at, nb_view *view)
{
    for (int i = b->n - 1; i >= 0; i--) {
        bool on = ++at[i] < b->size[i];
        int64_t by = on ? 1 : 1 - b->size[i];
        for (int t = 0; t < b->nops; t++)
            move(b, t, i, by, view);
        if (on) return;
        at[i] = 0;
    }
}

static void run_chunk(void *ctx, int64_t chunk)
{
    job *j = ctx;
    int64_t p = chunk * j->per_chunk, at[NB_MAX_DIMS];
    int64_t end = p + j->per_chunk < j->points ? p + j->per_chunk : j->points;
    nb_view few[4], *view = few;
    if (j->b->nops > 4) view = nb_alloc((size_t)j->b->nops * sizeof *view);
    bool ok = view;
    nb_kernel k = {
        .call = j->c, .nin = j->c->nin, .nout = j->nout, .view = view};
    if (ok) go_to(j->b, p, at, view);
    for (; ok && p < end && !j->failed; p++) {
        ok = j->c->op->kernel(&k);
        go_on(j->b, at, view);
    }
    if (!ok) j->failed = true;
    if (view != few) nb_free(view);
}

/* Elements that a point has to do with. */
static double elements(const nb_batch *b)
{
    double all = 0;
    for (int t = 0; t < b->nops; t++) {
        double n = 1;
        for (int d = 0; d < b->view[t].rank; d++)
            n *= (double)b->view[t].size[d];
        all += n;
    }
    return all;
}

static bool each(const nb_batch *b, const nb_call *c, int nout)
{
    enum { CHUNK = 1 << 14 };
    job j = {.b = b, .c = c, .nout = nout, .points = nb_batch_points(b)};
    double one = elements(b);
    j.per_chunk = one >= CHUNK ? 1 : (int64_t)(CHUNK / (one + 1)) + 1;
    if (nb_debug_flags) j.per_chunk = j.points; /* in order */
    if (j.points == 0) return true;
    nb_parallel_if(one * (double)j.points,
                   (j.points + j.per_chunk - 1) / j.per_chunk, run_chunk, &j);
    return !j.failed;
}

bool nb_ref_kernel(const nb_call *c, nb_tensor *y, char *const *to)
{
    nb_batch b;
    (void)y;
    if (!nb_batch_open(&b, c, to)) return false;
    bool ok = each(&b, c, c->op->nout > 1 ? c->op->nout : 1);
    nb_batch_close(&b);
    return ok;
}
