/* kernel.c - calling an op's kernel at every batch point.
 *
 * Batch axes are the lanes and what stands behind "..."; the dims that the
 * signature names are handed to the kernel with their strides. */
#include "backend/ref/ref.h"

#include "base/pool.h"
#include "core/apply.h"
#include "core/debug.h"

#include <string.h>

typedef struct batch {
    int n, nops;
    int64_t size[NB_MAX_DIMS];
    int64_t (*step)[NB_MAX_DIMS]; /* bytes, by operand */
    nb_view *view;
    int64_t (*dims)[2 * NB_MAX_RANK]; /* sizes, strides of the named dims */
} batch;

static bool room(batch *b, int nops)
{
    b->nops = nops;
    b->step = nb_alloc_zero((size_t)nops * sizeof *b->step);
    b->view = nb_alloc_zero((size_t)nops * sizeof *b->view);
    b->dims = nb_alloc_zero((size_t)nops * sizeof *b->dims);
    return b->step && b->view && b->dims;
}

static void release(batch *b)
{
    nb_free(b->step);
    nb_free(b->view);
    nb_free(b->dims);
}

/* Operand t: stored sizes and strides split into batch steps and named dims.*/
static void add_operand(batch *b, const nb_axes *a, int t, nb_dtype d,
                        char *data, const int64_t *size, const int64_t *stride)
{
    const nb_operand *o = &a->operand[t];
    int64_t item = (int64_t)nb_dtype_size(d);
    int core = o->ndims - o->ncore;
    for (int k = 0; k < core; k++)
        if (size[k] != 1) b->step[t][o->axis[k]] = stride[k] * item;
    memcpy(b->dims[t], size + core, (size_t)o->ncore * sizeof *size);
    memcpy(b->dims[t] + NB_MAX_RANK, stride + core,
           (size_t)o->ncore * sizeof *stride);
    b->view[t] = (nb_view){.data = data,
                           .dtype = d,
                           .rank = o->ncore,
                           .size = b->dims[t],
                           .stride = b->dims[t] + NB_MAX_RANK};
}

static bool add_result(batch *b, const nb_axes *a, const nb_call *c, int k,
                       char *data)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], step = 1;
    nb_shape s;
    nb_dtype d;
    if (!nb_call_infer(c, k, &s, &d)) return false;
    for (int i = s.nlanes + s.rank - 1; i >= 0; i--) {
        size[i] = nb_extent_get(i < s.nlanes ? nb_lane_stored(s.lane[i])
                                             : s.size[i - s.nlanes]);
        stride[i] = step;
        step *= size[i];
    }
    add_operand(b, a, c->nin + k, d, data, size, stride);
    return true;
}

/* Points of one chunk; each is by itself, so several go at a time. */
typedef struct job {
    const batch *b;
    const nb_call *c;
    int nout;
    int64_t points, per_chunk;
    atomic_bool failed;
} job;

/* The operands' views at batch point p, and its place. */
static void go_to(const batch *b, int64_t p, int64_t *at, nb_view *view)
{
    memcpy(view, b->view, (size_t)b->nops * sizeof *view);
    for (int i = b->n - 1; i >= 0; i--) {
        at[i] = p % b->size[i];
        p /= b->size[i];
        for (int t = 0; t < b->nops; t++)
            view[t].data += b->step[t][i] * at[i];
    }
}

static void go_on(const batch *b, int64_t *at, nb_view *view)
{
    for (int i = b->n - 1; i >= 0; i--) {
        bool on = ++at[i] < b->size[i];
        int64_t by = on ? 1 : 1 - b->size[i];
        for (int t = 0; t < b->nops; t++)
            view[t].data += b->step[t][i] * by;
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
static double elements(const batch *b)
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

static bool each(const batch *b, const nb_call *c, int nout)
{
    enum { CHUNK = 1 << 14 };
    job j = {.b = b, .c = c, .nout = nout, .points = 1};
    for (int i = 0; i < b->n; i++)
        j.points *= b->size[i];
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
    nb_axes a;
    batch b = {0};
    int nout = c->op->nout > 1 ? c->op->nout : 1;
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    (void)y;
    if (!nb_axes_align(&a, c->op, c->sig, c->nin, c->in)) return false;
    bool ok = room(&b, c->nin + nout);
    for (int i = 0; ok && i < c->nin; i++) {
        nb_tensor_strides(c->in[i], size, stride);
        add_operand(&b, &a, i, (nb_dtype)c->in[i]->dtype, c->in[i]->data, size,
                    stride);
    }
    for (int k = 0; ok && k < nout; k++)
        ok = add_result(&b, &a, c, k, to[k]);
    b.n = a.nlanes + a.ndots;
    for (int i = 0; i < b.n; i++)
        b.size[i] = nb_extent_get(a.size[i]);
    ok = ok && each(&b, c, nout);
    release(&b);
    nb_axes_free(&a);
    return ok;
}
