/* walk.c - lanes, teams and passes, from the extents and strides of a nest. */
#include "backend/cuda/print/walk.h"

#include "base/error.h"
#include "base/half.h"

enum {
    MAP_THREADS = 256,
    ROW_THREADS = 64, /* of a block with many teams */
    MOST_THREADS = 1024,
    KEPT_BYTES = 256, /* of registers, that a thread keeps between passes */
    RAW_BYTES = 224,  /* the same, if that is all it keeps */
    BLOCK_THREADS = 512,
    MOST_TURNS = 32, /* that are unrolled */
    MOST_COLUMNS = 64,
    SIDE_BY_SIDE = 32,
    MANY_UNITS = 1 << 16
};

void nb_cuda_walk_free(nb_cuda_walk *w)
{
    nb_free(w->ready), nb_free(w->inside), nb_free(w->kept), nb_free(w->raw);
    for (int q = 0; q < NB_CUDA_PASSES; q++)
        nb_free(w->needed[q]);
}

static int last_outer(const nb_nest *x)
{
    for (int a = x->naxes - 1; a >= 0; a--)
        if (!(x->inner >> a & 1)) return a;
    return -1;
}

/* Accesses that run along the axis without gaps, and those that jump. */
static int liking(const nb_nest *x, int a)
{
    int n = 0;
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        if (!nb_nest_in_memory(v) || !v->stride[a]) continue;
        n += v->stride[a] == 1 ? 1 : -1;
    }
    return n;
}

static int best(const nb_nest *x, bool inner)
{
    int found = -1;
    for (int a = x->naxes - 1; a >= 0; a--)
        if ((x->inner >> a & 1) == inner &&
            (found < 0 || liking(x, a) > liking(x, found)))
            found = a;
    return found;
}

static bool goes_in_order(const nb_nest *x)
{
    for (int k = 0; k < x->n; k++)
        if (x->value[k].kind == NB_NEST_CARRY ||
            x->value[k].kind == NB_NEST_SCAN)
            return true;
    return false;
}

static int64_t power_above(int64_t n)
{
    int64_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

static int64_t between(int64_t low, int64_t n, int64_t high)
{
    return n < low ? low : n > high ? high : n;
}

/* Units and turns of one thread, in vectors. */
static void count(nb_cuda_walk *w)
{
    const nb_nest *x = w->nest;
    w->inner = 1;
    w->total = 1;
    for (int a = 0; a < x->naxes; a++) {
        int64_t n = a == w->vector ? nb_cuda_vectors(w) : x->size[a];
        *(x->inner >> a & 1 ? &w->inner : &w->total) *= n;
    }
}

/* A few vectors to a thread; rows of more than a warp has get a block. */
static void choose_team(nb_cuda_walk *w)
{
    int64_t vectors = w->inner;
    if (w->across) {
        w->team = (int)between(1, power_above(vectors / 4), NB_CUDA_WARP);
        w->units = SIDE_BY_SIDE;
        return;
    }
    if (vectors <= 8 * NB_CUDA_WARP) {
        w->team = (int)between(1, power_above((vectors + 1) / 2), NB_CUDA_WARP);
        w->units = ROW_THREADS / w->team;
        return;
    }
    bool fits = vectors * NB_CUDA_VECTOR <= (int64_t)RAW_BYTES * BLOCK_THREADS;
    w->team = (int)between(2 * NB_CUDA_WARP, power_above(vectors / 4),
                           fits ? BLOCK_THREADS : MOST_THREADS);
    w->units = 1;
}

static void choose_form(nb_cuda_walk *w)
{
    const nb_nest *x = w->nest;
    int outer = last_outer(x), inner = best(x, true);
    w->vector = x->inner ? inner : best(x, false);
    w->team = 1;
    w->units = x->inner ? ROW_THREADS : MAP_THREADS;
    w->ahead = 1;
    w->lanes = 1;
    w->tile = w->head = -1;
    if (goes_in_order(x)) {
        w->vector = -1;
        w->units = NB_CUDA_WARP;
        return;
    }
    w->across = x->inner && outer >= 0 && liking(x, outer) > liking(x, inner);
    if (w->across) w->vector = -1;
    if (w->across && nb_cuda_choose_columns(w, outer)) {
        count(w);
        choose_team(w);
        return;
    }
    if (!x->inner && nb_cuda_choose_tile(w)) {
        w->units = MAP_THREADS;
        return;
    }
    nb_cuda_choose_lanes(w);
    count(w);
    if (x->inner) choose_team(w);
}

/* By one block: teams so large that all threads have something to do. */
static void choose_in_block(nb_cuda_walk *w, int threads, unsigned how)
{
    const nb_nest *x = w->nest;
    bool shared = x->inner && !goes_in_order(x);
    w->vector = shared ? best(x, true) : -1;
    w->team = w->ahead = w->lanes = 1;
    w->tile = w->head = -1;
    w->plain = true;
    if (how & NB_WALK_VECTORS) nb_cuda_choose_exact_lanes(w);
    if (w->lanes == 1) w->vector = -1;
    count(w);
    int64_t vectors = w->inner;
    while (shared && w->team < NB_CUDA_WARP && w->team < vectors &&
           (how & NB_WALK_WARPS || w->total * w->team * 2 <= threads))
        w->team *= 2;
    if (shared && w->total == 1 && vectors >= 4 * NB_CUDA_WARP &&
        threads > NB_CUDA_WARP)
        w->team = threads;
    w->units = threads / w->team;
}

/* Whether a place in memory, or a number of points, is more than 31 bits. */
static bool is_wide(const nb_nest *x)
{
    double points = 1;
    if (x->param) return true;
    for (int a = 0; a < x->naxes; a++)
        points *= (double)x->size[a];
    if (points > INT32_MAX / 2) return true;
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        double far = v->offset < 0 ? -(double)v->offset : (double)v->offset;
        if (!nb_nest_strides(v)) continue;
        for (int a = 0; a < x->naxes; a++)
            far += (double)(v->stride[a] < 0 ? -v->stride[a] : v->stride[a]) *
                   (double)x->size[a];
        if (far > INT32_MAX / 2) return true;
    }
    return false;
}

static void find_passes(nb_cuda_walk *w)
{
    const nb_nest *x = w->nest;
    w->npasses = nb_nest_ready(x, w->ready);
    for (int k = 0; k < x->n; k++) {
        w->inside[k] = nb_nest_axes(x, k) & x->inner;
        w->kept[k] = -1;
    }
}

bool nb_cuda_is_quotient(const nb_cuda_walk *w, int k)
{
    const nb_nest_value *v = &w->nest->value[k];
    return v->kind == NB_NEST_SCALAR && v->scalar == NB_S_div &&
           v->compute == NB_F32 && w->inside[k] && !w->inside[v->arg[1]] &&
           w->nest->value[v->arg[1]].kind != NB_NEST_CONST;
}

bool nb_cuda_is_divisor(const nb_cuda_walk *w, int k)
{
    for (int i = k + 1; i < w->nest->n; i++)
        if (nb_cuda_is_quotient(w, i) && w->nest->value[i].arg[1] == k)
            return true;
    return false;
}

bool nb_cuda_is_paired(const nb_cuda_walk *w, int k)
{
    const nb_nest_value *v = &w->nest->value[k];
    bool most = v->reduce == NB_MAX, least = v->reduce == NB_MIN;
    if (w->plain || v->kind != NB_NEST_REDUCE || v->dtype != NB_F32)
        return false;
    if (!most && (!least || w->ragged)) return false;
    const nb_nest_value *of = &w->nest->value[v->arg[0]];
    bool half = !w->columns && nb_dtype_is_half(of->stored);
    return half && of->kind == NB_NEST_LOAD && nb_cuda_is_vector(w, of);
}

bool nb_cuda_is_below_one(const nb_cuda_walk *w, int k)
{
    const nb_nest_value *v = &w->nest->value[k];
    if (v->kind != NB_NEST_SCALAR || v->scalar != NB_S_exp ||
        v->compute != NB_F32)
        return false;
    const nb_nest_value *d = &w->nest->value[v->arg[0]];
    if (d->kind != NB_NEST_SCALAR || d->scalar != NB_S_sub ||
        d->compute != NB_F32)
        return false;
    const nb_nest_value *most = &w->nest->value[d->arg[1]];
    if (most->kind == NB_NEST_SCALAR && most->scalar == NB_S_select) {
        const nb_nest_value *test = &w->nest->value[most->arg[0]];
        most = &w->nest->value[most->arg[2]];
        if (test->kind != NB_NEST_SCALAR || test->scalar != NB_S_isinf ||
            &w->nest->value[test->arg[0]] != most)
            return false;
    }
    return most->kind == NB_NEST_REDUCE && most->reduce == NB_MAX &&
           most->arg[0] == d->arg[0];
}

static bool converts(const nb_nest_value *v, nb_dtype from, nb_dtype to)
{
    return v->kind == NB_NEST_CONVERT && v->compute == from && v->dtype == to;
}

int nb_cuda_unrounded(const nb_cuda_walk *w, int k)
{
    const nb_nest_value *all = w->nest->value;
    int x = all[k].arg[0], half = all[x].arg[0];
    if (!converts(&all[x], all[k].stored, NB_F32) || w->kept[x] >= 0) return x;
    if (!converts(&all[half], NB_F32, all[k].stored) || w->kept[half] >= 0)
        return x;
    return all[half].arg[0];
}

bool nb_cuda_is_packed(const nb_cuda_walk *w, int k)
{
    const nb_nest_value *v = &w->nest->value[k];
    bool half = nb_dtype_is_half(v->stored);
    return v->kind == NB_NEST_STORE && half && nb_cuda_is_vector(w, v) &&
           (w->inside[k] || !w->columns) &&
           w->nest->value[v->arg[0]].dtype == NB_F32;
}

/* Whether v, a load, is kept as it lies in memory. */
static bool is_narrow(const nb_cuda_walk *w, const nb_nest_value *v)
{
    return v->kind == NB_NEST_LOAD && nb_cuda_is_vector(w, v) &&
           nb_dtype_size(v->stored) * (size_t)w->lanes % NB_CUDA_WORD == 0;
}

/* Keeps the last value that two passes need, raw ones only if it is said; how
 * many bytes that is. */
static int keep_one(nb_cuda_walk *w, bool raw)
{
    const nb_nest *x = w->nest;
    for (int k = x->n - 1; k >= 0; k--) {
        const nb_nest_value *v = &x->value[k];
        int first = -1, times = 0;
        if (!nb_nest_computes(v) && !nb_nest_reads(v) &&
            v->kind != NB_NEST_CONVERT)
            continue;
        if (raw && !is_narrow(w, v)) continue;
        for (int q = w->npasses - 1; q >= 0 && w->kept[k] < 0; q--)
            if (w->needed[q][k]) first = q, times++;
        if (times < 2) continue;
        w->kept[k] = first;
        w->raw[k] = raw;
        int bytes = (int)nb_dtype_size(raw ? v->stored : v->dtype);
        return (bytes < NB_CUDA_WORD && !raw ? NB_CUDA_WORD : bytes) *
               w->turns * w->lanes;
    }
    return 0;
}

/* How many bytes are kept; those of the last value may be too many. */
static int keep(nb_cuda_walk *w, bool raw, int most)
{
    int bytes = 1, all = 0;
    for (int k = 0; k < w->nest->n; k++)
        w->kept[k] = -1, w->raw[k] = false;
    while (bytes) {
        for (int q = 0; q < w->npasses; q++)
            nb_nest_needed(w->nest, q, w->ready, w->inside, w->kept,
                           w->needed[q]);
        bytes = w->turns && all < most ? keep_one(w, raw) : 0;
        all += bytes;
    }
    return all;
}

/* In registers; where these would not do, only what is read, as it lies in
 * memory; where that is too much, nothing is kept. */
static void find_kept(nb_cuda_walk *w)
{
    w->blocks = 1;
    if (keep(w, false, KEPT_BYTES) <= KEPT_BYTES) return;
    int bytes = w->plain ? RAW_BYTES + 1 : keep(w, true, RAW_BYTES);
    if (bytes > RAW_BYTES) keep(w, false, 0);
    if (bytes <= RAW_BYTES) w->blocks = MOST_THREADS / nb_cuda_threads(w);
}

static void choose_turns(nb_cuda_walk *w)
{
    int64_t turns = (w->inner + w->team - 1) / w->team;
    bool known = w->nest->inner && !w->nest->param && !goes_in_order(w->nest) &&
                 turns <= MOST_TURNS;
    if (w->columns && turns * w->lanes > MOST_COLUMNS) known = false;
    w->turns = known ? (int)turns : 0;
}

static bool plan(nb_cuda_walk *w, const nb_nest *x, int threads, unsigned how)
{
    size_t n = (size_t)x->n + 1;
    *w = (nb_cuda_walk){.nest = x};
    w->ready = nb_alloc(n * sizeof *w->ready);
    w->inside = nb_alloc_zero(n);
    w->kept = nb_alloc(n * sizeof *w->kept);
    w->raw = nb_alloc_zero(n);
    if (!w->ready || !w->inside || !w->kept || !w->raw) return false;
    if (threads)
        choose_in_block(w, threads, how);
    else
        choose_form(w);
    count(w);
    bool many = w->total >= MANY_UNITS * 8;
    if (!threads && !x->inner && w->tile < 0 && many) w->ahead = 4;
    choose_turns(w);
    w->wide = is_wide(x);
    find_passes(w);
    if (w->npasses > NB_CUDA_PASSES)
        return nb_fail(NB_ERUNTIME, "a nest of %d passes", w->npasses);
    for (int q = 0; q < w->npasses; q++)
        if (!(w->needed[q] = nb_alloc_zero(n))) return false;
    find_kept(w);
    return true;
}

bool nb_cuda_walk_plan(nb_cuda_walk *w, const nb_nest *x)
{
    return plan(w, x, 0, 0);
}

bool nb_cuda_walk_block(nb_cuda_walk *w, const nb_nest *x, int threads,
                        unsigned how)
{
    return plan(w, x, threads, how);
}
