/* arena.c - where blocks lie in the arena.
 *
 * A span is a stretch of it from the step that writes the first of its blocks
 * to the last that reads the last of them: a nest may write a block over one
 * that it reads for the last time.  Spans take the lowest gap that is free as
 * long as they need it, in the order of time.  If that leaves more than a few
 * gaps when the arena is fullest, the largest go first, which is better where
 * large blocks come late; how large those are is tried out. */
#include "lower/passes.h"
#include "lower/plan.h"

#include <stdlib.h>

enum { ALIGN = 64, MANY_SPANS = 4096 };

typedef struct span {
    int first, last; /* steps */
    int64_t bytes, at;
} span;

typedef struct arena {
    nb_plan *plan;
    const nb_life *life;
    bool reuse;
    int n;
    span *span;
    int *of;           /* by block: its span */
    int *alive, *tail; /* spans, and by span the block that is in it */
    int nalive;
    int64_t bytes; /* of the whole */
} arena;

static int64_t rounded(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void drop_dead(arena *a, int step)
{
    int n = 0;
    for (int i = 0; i < a->nalive; i++)
        if (a->span[a->alive[i]].last >= step) a->alive[n++] = a->alive[i];
    a->nalive = n;
}

/* A span whose block ends with this step, and that k may take the place of. */
static int taken(const arena *a, int s, int k)
{
    const nb_plan *p = a->plan;
    int last = nb_plan_with(p, s).last;
    if (!a->reuse) return -1;
    for (int i = 0; i < a->nalive; i++) {
        int old = a->tail[a->alive[i]];
        if (a->life[old].last == last && p->bytes[old] == p->bytes[k] &&
            nb_plan_in_place(p, s, old, k) >= 0)
            return a->alive[i];
    }
    return -1;
}

static void put(arena *a, int s, int k)
{
    int to = taken(a, s, k);
    if (to < 0) {
        to = a->n++;
        a->span[to] = (span){.first = a->reuse ? s : 0,
                             .bytes = rounded(a->plan->bytes[k])};
        a->alive[a->nalive++] = to;
    }
    a->of[k] = to;
    a->tail[to] = k;
    a->span[to].last = a->reuse ? a->life[k].last : a->plan->nsteps;
}

/* Spans in the order of the steps that begin them. */
static bool make_spans(arena *a)
{
    nb_plan *p = a->plan;
    int n = nb_plan_blocks(p);
    int *first = nb_alloc((size_t)(p->nsteps + 1) * sizeof *first);
    int *next = nb_alloc((size_t)(n + 1) * sizeof *next);
    bool ok = first && next;
    for (int s = 0; ok && s < p->nsteps; s++)
        first[s] = -1;
    for (int k = n - 1; ok && k >= 0; k--) {
        if (p->home[k] != NB_HOME_ARENA) continue;
        next[k] = first[a->life[k].first];
        first[a->life[k].first] = k;
    }
    for (int s = 0; ok && s < p->nsteps; s++) {
        drop_dead(a, s);
        for (int k = first[s]; k >= 0; k = next[k])
            put(a, s, k);
    }
    nb_free(first);
    nb_free(next);
    return ok;
}

static bool meet(const span *x, const span *y)
{
    return x->first <= y->last && y->first <= x->last;
}

/* Puts span x into the lowest gap between those that lie in the list by their
 * places and that it meets, and into the list. */
static void insert(arena *a, int x)
{
    span *s = &a->span[x];
    int i = a->nalive++;
    s->at = 0;
    for (int j = 0; j < i; j++) {
        const span *other = &a->span[a->alive[j]];
        if (!meet(s, other)) continue;
        if (other->at >= s->at + s->bytes) break;
        int64_t end = other->at + other->bytes;
        if (end > s->at) s->at = end;
    }
    for (; i > 0 && a->span[a->alive[i - 1]].at > s->at; i--)
        a->alive[i] = a->alive[i - 1];
    a->alive[i] = x;
    if (s->at + s->bytes > a->bytes) a->bytes = s->at + s->bytes;
}

static void place_by_time(arena *a)
{
    a->nalive = 0;
    a->bytes = 0;
    for (int x = 0; x < a->n; x++) {
        if (a->reuse) drop_dead(a, a->span[x].first);
        insert(a, x);
    }
}

/* Large spans by size, then the others by time. */
typedef struct rank {
    int64_t size;
    int span;
} rank;

static int before(const void *p, const void *q)
{
    const rank *x = p, *y = q;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return x->span - y->span;
}

/* Places all with those of so many bytes and more first; where that is not
 * better than what was, that stays. */
static void place_by_size(arena *a, int64_t large, rank *order, int64_t *was)
{
    int64_t bytes = a->bytes;
    for (int x = 0; x < a->n; x++) {
        int64_t size = a->span[x].bytes;
        order[x] = (rank){size < large ? 0 : size, x};
        was[x] = a->span[x].at;
    }
    qsort(order, (size_t)a->n, sizeof *order, before);
    a->nalive = 0;
    a->bytes = 0;
    for (int x = 0; x < a->n; x++)
        insert(a, order[x].span);
    if (a->bytes < bytes) return;
    a->bytes = bytes;
    for (int x = 0; x < a->n; x++)
        a->span[x].at = was[x];
}

/* Bytes of the spans that are alive at one step, at most. */
static bool most_alive(const arena *a, int64_t *most)
{
    size_t n = (size_t)a->plan->nsteps + 2;
    int64_t *change = nb_alloc_zero(n * sizeof *change), now = 0;
    *most = 0;
    for (int x = 0; change && x < a->n; x++) {
        change[a->span[x].first] += a->span[x].bytes;
        change[a->span[x].last + 1] -= a->span[x].bytes;
    }
    for (int s = 0; change && s < a->plan->nsteps; s++) {
        now += change[s];
        if (now > *most) *most = now;
    }
    nb_free(change);
    return change;
}

static bool place(arena *a)
{
    int64_t most;
    size_t n = (size_t)a->n + 1;
    place_by_time(a);
    if (!most_alive(a, &most)) return false;
    int64_t enough = most + most / 64;
    if (a->bytes <= enough || a->n > MANY_SPANS) return true;
    rank *order = nb_alloc(n * sizeof *order);
    int64_t *was = nb_alloc(n * sizeof *was);
    bool ok = order && was;
    for (int part = 4; ok && part <= 4096 && a->bytes > enough; part *= 4)
        place_by_size(a, most / part, order, was);
    nb_free(order);
    nb_free(was);
    return ok;
}

bool nb_plan_arena(nb_plan *p, const nb_life *l)
{
    size_t n = (size_t)nb_plan_blocks(p) + 1;
    arena a = {.plan = p, .life = l, .reuse = nb_pass_is_on("memory")};
    a.span = nb_alloc(n * sizeof *a.span);
    a.of = nb_alloc(n * sizeof *a.of);
    a.alive = nb_alloc(n * sizeof *a.alive);
    a.tail = nb_alloc(n * sizeof *a.tail);
    bool ok =
        a.span && a.of && a.alive && a.tail && make_spans(&a) && place(&a);
    for (int k = 0; ok && k < nb_plan_blocks(p); k++)
        if (p->home[k] == NB_HOME_ARENA) p->at[k] = a.span[a.of[k]].at;
    p->arena = a.bytes;
    nb_free(a.span), nb_free(a.of), nb_free(a.alive), nb_free(a.tail);
    return ok;
}
