/* memory.c - the heap of a card: segments from the driver, and what is said
 * when there are no more. */
#include "backend/cuda/memory.h"

#include "backend/cuda/heap.h"
#include "backend/cuda/parts.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

struct nb_card_pool {
    pthread_mutex_t lock;
    nb_heap *heap;
};

bool nb_card_pool_make(nb_card *c)
{
    struct nb_card_pool *pool = c->pool;
    if (!pool && !(pool = nb_alloc_forever(sizeof *pool))) return false;
    if (!c->pool) pthread_mutex_init(&pool->lock, NULL);
    c->pool = pool;
    if (!pool->heap) pool->heap = nb_heap_new();
    return pool->heap;
}

static nb_heap *lock(nb_card *c)
{
    pthread_mutex_lock(&c->pool->lock);
    return c->pool->heap;
}

static void unlock(nb_card *c)
{
    pthread_mutex_unlock(&c->pool->lock);
}

/* "1.5 GiB" */
static const char *size_text(char text[16], size_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)bytes;
    int u = 0;
    for (; x >= 1023.95 && u < 4; u++)
        x /= 1024;
    snprintf(text, 16, u ? "%.1f %s" : "%.0f %s", x, units[u]);
    return text;
}

/* "; the largest: 3 of 1.0 GiB, 2.0 MiB" */
static void largest_text(const nb_heap *h, char *text, size_t room)
{
    enum { SHOWN = 8 };
    char size[16];
    size_t below = SIZE_MAX, at = 0;
    *text = '\0';
    for (int i = 0, n; i < SHOWN; i++) {
        below = nb_heap_largest(h, below, &n);
        if (below == 0 || at >= room) return;
        at += (size_t)snprintf(text + at, room - at, "%s",
                               i ? ", " : "; the largest: ");
        if (at < room && n > 1)
            at += (size_t)snprintf(text + at, room - at, "%d of ", n);
        if (at < room)
            at += (size_t)snprintf(text + at, room - at, "%s",
                                   size_text(size, below));
    }
}

static bool fail_full(nb_card *c, nb_heap *h, size_t bytes)
{
    char wanted[16], left[16], all[16], live[16], cached[16], list[400];
    size_t available = 0, total = c->memory;
    nb_card_memory m = *nb_heap_stats(h);
    c->api->MemGetInfo(&available, &total);
    largest_text(h, list, sizeof list);
    return nb_fail(
        NB_EMEMORY,
        "out of memory on GPU %d: %s wanted, %s of %s free, %s alive in %zu "
        "blocks, %s between them%s",
        c->id, size_text(wanted, bytes), size_text(left, available),
        size_text(all, total), size_text(live, m.live), m.blocks,
        size_text(cached, m.cached), list);
}

/* With the lock held. */
static bool trim(nb_card *c, nb_heap *h)
{
    nb_address at;
    size_t segment;
    if (!nb_card_check(c, c->api->CtxSynchronize(), "waiting")) return false;
    nb_heap_settle(h, NULL);
    while (nb_heap_cut(h, &at, &segment))
        c->api->MemFree(at);
    return true;
}

/* One call of the driver; *at is 0 where it has not so much. */
static bool segment_new(nb_card *c, size_t bytes, nb_address *at)
{
    int result = c->api->MemAlloc(at, bytes);
    if (result == 0) return true;
    *at = 0;
    return result == NB_CUDA_OUT_OF_MEMORY ||
           nb_card_check(c, result, "memory cannot be allocated");
}

/* More memory for such a request: a good deal, or just enough, or that after
 * everything that is not in use was given back. */
static bool grow(nb_card *c, nb_heap *h, size_t bytes)
{
    size_t segment = nb_heap_segment(bytes);
    nb_address at = 0;
    for (int attempt = 0; attempt < 3 && !at; attempt++) {
        if (attempt > 0) segment = nb_heap_least(bytes);
        if (attempt > 1 && !trim(c, h)) return false;
        if (!segment_new(c, segment, &at)) return false;
    }
    if (!at) return fail_full(c, h, bytes);
    if (nb_heap_add(h, at, segment, bytes)) return true;
    c->api->MemFree(at);
    return false;
}

static bool take(nb_card *c, nb_heap *h, size_t bytes, void *stream,
                 nb_part **p)
{
    if (nb_fault_strikes() || bytes > c->memory) return fail_full(c, h, bytes);
    if (!nb_heap_take(h, bytes, stream, p)) return false;
    if (*p) return true;
    return grow(c, h, bytes) && nb_heap_take(h, bytes, stream, p) && *p;
}

static void *alloc(nb_card *c, void *stream, size_t bytes, size_t *room)
{
    nb_part *p = NULL;
    void *at = NULL;
    if (!nb_card_is_free(c, "memory is wanted")) return NULL;
    nb_heap *h = lock(c);
    if (take(c, h, bytes, stream, &p)) {
        if (p->stream && !nb_card_stream_after(c, stream, p->stream)) {
            nb_heap_give(h, p, p->stream);
        } else {
            p->stream = stream;
            at = (void *)(uintptr_t)p->at;
            *room = p->bytes;
        }
    }
    unlock(c);
    return at;
}

/* In a forked child the lock may be held for ever, and nothing is ours. */
void nb_card_free_on(nb_card *c, void *stream, void *p)
{
    if (!p || nb_cuda_forked()) return;
    nb_heap *h = lock(c);
    nb_part *part = nb_heap_find(h, (uintptr_t)p);
    if (part) nb_heap_give(h, part, stream);
    unlock(c);
}

void *nb_card_alloc_on(nb_card *c, void *stream, size_t bytes, size_t *room)
{
    return nb_card_enter(c) ? alloc(c, stream, bytes, room) : NULL;
}

void *nb_card_alloc(nb_card *c, size_t bytes, size_t *room)
{
    return nb_card_enter(c) ? alloc(c, c->stream, bytes, room) : NULL;
}

void nb_card_free(nb_card *c, void *p, size_t room)
{
    (void)room;
    nb_card_free_on(c, c->stream, p);
}

void nb_card_trim(nb_card *c)
{
    if (!nb_card_reenter(c)) return;
    bool failed = nb_failed();
    trim(c, lock(c));
    unlock(c);
    if (!failed) nb_error_clear(); /* a fault stays with the card */
}

bool nb_card_reaches(nb_card *c, const void *data)
{
    enum { CONTEXT = 1, KIND = 2, MANAGED = 8, CARD = 9, OF_A_CARD = 2 };
    int wanted[] = {CONTEXT, KIND, MANAGED, CARD}, card = -1;
    void *context = NULL;
    unsigned kind = 0;
    bool managed = false;
    void *found[] = {&context, &kind, &managed, &card};
    if (!nb_card_enter(c) ||
        !nb_card_check(c,
                       c->api->PointerGetAttributes(
                           4, wanted, found, (nb_address)(uintptr_t)data),
                       "asking for memory"))
        return false;
    bool ours = !context || context == c->context;
    return managed || (kind == OF_A_CARD && card == c->device && ours);
}

void nb_card_memory_get(nb_card *c, nb_card_memory *m)
{
    *m = (nb_card_memory){0};
    if (!c->started || nb_cuda_forked()) return;
    *m = *nb_heap_stats(lock(c));
    unlock(c);
}

void nb_card_peak_reset(nb_card *c)
{
    if (!c->started || nb_cuda_forked()) return;
    nb_card_memory *m = nb_heap_stats(lock(c));
    m->peak = m->live;
    unlock(c);
}

void nb_card_pool_forget(nb_card *c, void *stream)
{
    nb_heap_settle(lock(c), stream);
    unlock(c);
}
