/* form.c - how a nest is walked: along which axis vectors run, in how many
 * passes over the inner axes, and what one pass keeps for the next.
 *
 * A reduction is known when its pass is over; what needs it belongs to the
 * next pass.  What a later pass needs again is computed again if that is
 * cheap, and kept in scratch, a number a point, if it is not. */
#include "backend/cpu/emit.h"

#include "backend/cpu/cpu.h"
#include "backend/cpu/scalar.h"

enum {
    CHEAP = 6,
    MAX_KEPT = 1 << 16,
    BLOCK = 4096,
    TILED_BLOCK = 64,
    PAST_BYTES = 48 << 20
};

void nb_walk_free(nb_walk *w)
{
    nb_free(w->ready), nb_free(w->level), nb_free(w->kept), nb_free(w->at);
    nb_free(w->past), nb_free(w->inside);
    for (int q = 0; q < NB_MAX_PASSES; q++)
        nb_free(w->needed[q]);
}

/* The last outer axis behind those that lead. */
static int last_outer(const nb_nest *x)
{
    for (int a = x->naxes - 1; a >= x->lead; a--)
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
        n += v->stride[a] == 1 || v->stride[a] == -1 ? 1 : -1;
    }
    return n;
}

/* The inner axis that vectors like best. */
static int best_inner(const nb_nest *x)
{
    int best = -1;
    for (int a = x->naxes - 1; a >= 0; a--)
        if (x->inner >> a & 1 && (best < 0 || liking(x, a) > liking(x, best)))
            best = a;
    return best;
}

static bool carries(const nb_nest *x)
{
    for (int k = 0; k < x->n; k++)
        if (x->value[k].kind == NB_NEST_CARRY) return true;
    return false;
}

/* What is carried goes step by step: no vectors along those. */
static void choose_form(nb_walk *w)
{
    const nb_nest *x = w->nest;
    int outer = last_outer(x), inner = best_inner(x);
    w->form = inner < 0 ? NB_FORM_MAP : NB_FORM_ROW;
    w->vector = inner < 0 ? outer : inner;
    bool pieces = x->cut && outer == 0; /* the last one may be shorter */
    bool columns = inner >= 0 && outer >= 0 && !pieces &&
                   liking(x, outer) > liking(x, inner);
    if (columns || carries(x)) {
        w->form = NB_FORM_COLUMN;
        w->vector = outer;
    }
    if (w->form != NB_FORM_MAP)
        for (int a = 0; a < x->naxes; a++)
            if (x->inner >> a & 1 && a != w->vector) w->loop[w->nloops++] = a;
    if (w->form != NB_FORM_COLUMN && w->vector >= 0)
        w->loop[w->nloops++] = w->vector;
}

/* Where memory runs along another outer axis than vectors do, the two are
 * walked in tiles, so that a line of cache is used up once it is there. */
static void choose_tile(nb_walk *w)
{
    const nb_nest *x = w->nest;
    w->tile = -1;
    if (w->form != NB_FORM_MAP || w->vector < 0) return;
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        if (!nb_nest_in_memory(v) || !v->stride[w->vector] ||
            v->stride[w->vector] == 1)
            continue;
        for (int a = x->lead; a < x->naxes; a++)
            if (v->stride[a] == 1 && x->size[a] > 1) w->tile = a;
    }
    if (w->tile < 0) return;
    w->loop[1] = w->loop[0];
    w->loop[0] = w->tile;
    w->nloops = 2;
}

/* Whether a value is a vector, or what a row's vectors become. */
static bool is_along(const nb_walk *w, const nb_nest_value *v)
{
    bool number = v->kind == NB_NEST_CONST || v->kind == NB_NEST_INDEX ||
                  v->kind == NB_NEST_SCALAR || v->kind == NB_NEST_CONVERT ||
                  nb_nest_reads(v);
    return !number || w->vector < 0 || v->axes >> w->vector & 1;
}

/* Random words are made for two vectors at once. */
static bool draws(const nb_nest *x)
{
    for (int k = 0; k < x->n; k++)
        if (x->value[k].kind == NB_NEST_WORD) return true;
    return false;
}

static void choose_width(nb_walk *w)
{
    const nb_nest *x = w->nest;
    int widest = 4, cost = 0;
    int64_t n = w->vector < 0 ? 1 : x->size[w->vector];
    for (int k = 0; k < x->n; k++) {
        int bytes = (int)nb_dtype_size(x->value[k].dtype);
        if (bytes > widest && is_along(w, &x->value[k])) widest = bytes;
        cost += nb_nest_cost(&x->value[k]);
    }
    w->masks = nb_cpu_target()->masks;
    w->lanes = nb_cpu_target()->vector_bytes / widest;
    if (w->vector < 0) w->lanes = 1;
    while (w->lanes > 1 && !w->masks && n < w->lanes)
        w->lanes /= 2;
    w->copies = cost > 60 ? 1 : cost > 30 ? 2 : 4;
    if (w->copies == 1 && draws(x)) w->copies = 2;
    if (w->form == NB_FORM_COLUMN && cost < 16) w->copies = cost < 8 ? 16 : 8;
    while (w->copies > 1 && n < (int64_t)w->copies * w->lanes)
        w->copies /= 2;
    w->block = w->form == NB_FORM_COLUMN ? (int64_t)w->copies * w->lanes
               : w->tile >= 0            ? TILED_BLOCK
               : w->form == NB_FORM_MAP  ? BLOCK
                                         : n;
}

/* Bytes that all accesses go through. */
static double traffic(const nb_nest *x)
{
    double bytes = 0;
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        double n = (double)nb_dtype_size(v->stored);
        for (int a = 0; a < x->naxes; a++)
            if (v->stride[a]) n *= (double)x->size[a];
        if (nb_nest_in_memory(v)) bytes += n;
    }
    return bytes;
}

/* Stores of more than the caches hold, to whole vectors, need not be read into
 * them first.  Buffers begin at multiples of 64 bytes.  A nest with a lead is
 * run for a few of its points at a time, and is read again from the caches. */
static void find_past(nb_walk *w)
{
    const nb_nest *x = w->nest;
    if (w->form != NB_FORM_MAP || w->tile >= 0 || w->vector < 0) return;
    if (x->lead || x->param) return;
    if (w->lanes < 4 || traffic(x) < PAST_BYTES) return;
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        bool whole = v->kind == NB_NEST_STORE && v->offset % w->lanes == 0 &&
                     v->stride[w->vector] == 1 && nb_dtype_size(v->stored) >= 4;
        for (int a = 0; a < x->naxes; a++)
            if (a != w->vector) whole = whole && v->stride[a] % w->lanes == 0;
        for (int j = 0; whole && j < x->n; j++)
            whole =
                !nb_nest_reads(&x->value[j]) || x->value[j].buffer != v->buffer;
        w->past[k] = whole;
    }
}

static void find_levels(nb_walk *w)
{
    const nb_nest *x = w->nest;
    w->npasses = nb_nest_ready(x, w->ready);
    for (int k = 0; k < x->n; k++) {
        unsigned axes = nb_nest_axes(x, k);
        w->level[k] = 0;
        for (int j = 0; j < w->nloops; j++)
            if (axes >> w->loop[j] & 1) w->level[k] = j + 1;
        w->inside[k] = w->level[k];
        w->kept[k] = -1;
    }
}

/* Cycles to compute value k again in a later pass. */
static int again(const nb_walk *w, int k, int *seen)
{
    const nb_nest_value *v = &w->nest->value[k];
    int cost = 0;
    if (seen[k] || !w->level[k] || v->kind == NB_NEST_REDUCE) return 0;
    seen[k] = 1;
    if (nb_nest_computes(v)) cost = nb_nest_cost(v);
    for (int i = 0; i < nb_nest_args(v); i++)
        cost += again(w, v->arg[i], seen);
    return cost;
}

static bool is_full(const nb_walk *w, int k)
{
    return (w->nest->value[k].axes & w->nest->inner) == w->nest->inner;
}

static int64_t inner_points(const nb_nest *x)
{
    int64_t n = 1;
    for (int a = 0; a < x->naxes; a++)
        if (x->inner >> a & 1) n *= x->size[a];
    return n;
}

/* The last value that two passes need and that is dear: kept by the first. */
static bool keep_one(nb_walk *w, int *seen)
{
    const nb_nest *x = w->nest;
    for (int k = x->n - 1; k >= 0; k--) {
        int first = -1, times = 0;
        if (!nb_nest_computes(&x->value[k]) || w->kept[k] >= 0) continue;
        for (int q = 0; q < w->npasses; q++)
            if (w->needed[q][k]) {
                if (first < 0) first = q;
                times++;
            }
        for (int i = 0; i < x->n; i++)
            seen[i] = 0;
        if (times < 2 || !is_full(w, k) || again(w, k, seen) < CHEAP) continue;
        int bytes = (int)nb_dtype_size(x->value[k].dtype);
        w->kept[k] = first;
        w->at[k] = w->nkept++;
        if (bytes > w->kept_size) w->kept_size = bytes;
        return true;
    }
    return false;
}

static bool find_kept(nb_walk *w)
{
    const nb_nest *x = w->nest;
    int *seen = nb_alloc((size_t)(x->n + 1) * sizeof *seen);
    bool more = seen && w->form == NB_FORM_ROW && inner_points(x) <= MAX_KEPT;
    do {
        for (int q = 0; q < w->npasses; q++)
            nb_nest_needed(x, q, w->ready, w->inside, w->kept, w->needed[q]);
        more = more && w->nkept * inner_points(x) < MAX_KEPT * 4;
    } while (more && keep_one(w, seen));
    nb_free(seen);
    return seen;
}

bool nb_walk_plan(nb_walk *w, const nb_nest *x)
{
    size_t n = (size_t)x->n + 1;
    *w = (nb_walk){.nest = x};
    w->ready = nb_alloc(n * sizeof *w->ready);
    w->level = nb_alloc(n * sizeof *w->level);
    w->kept = nb_alloc(n * sizeof *w->kept);
    w->at = nb_alloc_zero(n * sizeof *w->at);
    w->past = nb_alloc_zero(n);
    w->inside = nb_alloc_zero(n);
    if (!w->ready || !w->level || !w->kept || !w->at || !w->past || !w->inside)
        return false;
    choose_form(w);
    choose_tile(w);
    choose_width(w);
    find_past(w);
    find_levels(w);
    if (w->npasses > NB_MAX_PASSES)
        return nb_fail(NB_ERUNTIME, "a nest of %d passes", w->npasses);
    for (int q = 0; q < w->npasses; q++)
        if (!(w->needed[q] = nb_alloc_zero(n))) return false;
    return find_kept(w);
}
