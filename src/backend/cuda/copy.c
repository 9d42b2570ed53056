/* copy.c - between host and card, through pinned memory.
 *
 * The card reads and writes memory of the host by itself only where it is
 * pinned, which takes long to set up; so there is a ring of pinned chunks for
 * each direction.  On the way up, data is copied into the ring, side by side
 * with what is still there, and the ring waits only for a chunk that it wants
 * to fill again.  On the way down all chunks are under way at once, and each
 * is emptied as it arrives. */
#include "backend/cuda/memory.h"

#include "backend/cuda/custom.h"
#include "backend/cuda/parts.h"
#include "base/memory.h"
#include "base/pool.h"

#include <string.h>

enum { CHUNKS = 8, CHUNK = 4 << 20, SLICE = 256 << 10, ALIGN = 64 };

typedef struct chunk {
    char *host;  /* CHUNK bytes, from the first use on */
    void *event; /* its copies have ended */
    size_t used;
} chunk;

struct nb_card_ring {
    pthread_mutex_t lock;
    int at;
    chunk chunk[CHUNKS];
};

static struct nb_card_ring *ring_new(void)
{
    struct nb_card_ring *r = nb_alloc_forever(sizeof *r);
    if (r) pthread_mutex_init(&r->lock, NULL);
    return r;
}

bool nb_card_rings_make(nb_card *c)
{
    if (!c->up) c->up = ring_new();
    if (!c->down) c->down = ring_new();
    return c->up && c->down;
}

static nb_address address(const void *p)
{
    return (uintptr_t)p;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

typedef struct span {
    char *to;
    const char *from;
    size_t n;
} span;

static void move_slice(void *ctx, int64_t i)
{
    span s = *(span *)ctx;
    size_t at = (size_t)i * SLICE;
    memcpy(s.to + at, s.from + at, least(SLICE, s.n - at));
}

/* A core copies some ten bytes a nanosecond. */
static void move(void *to, const void *from, size_t n)
{
    span s = {to, from, n};
    nb_parallel_if((double)n / 10, (int64_t)(n + SLICE - 1) / SLICE, move_slice,
                   &s);
}

static bool chunk_make(nb_card *c, chunk *k)
{
    const nb_cuda *api = c->api;
    void *host;
    if (!k->event &&
        !nb_card_check(
            c, api->EventCreate(&k->event, NB_CUDA_EVENT_DISABLE_TIMING),
            "an event cannot be made"))
        return false;
    if (k->host) return true;
    if (!nb_card_check(c,
                       api->MemHostAlloc(&host, CHUNK, NB_CUDA_HOST_PORTABLE),
                       "pinned memory cannot be allocated"))
        return false;
    k->host = host;
    return true;
}

static bool record(nb_card *c, chunk *k)
{
    return nb_card_check(c, c->api->EventRecord(k->event, c->stream),
                         "recording an event");
}

static bool await(nb_card *c, chunk *k)
{
    return nb_card_check(c, c->api->EventSynchronize(k->event), "waiting");
}

/* A chunk that is not full: the one at hand, or the next once the card has
 * read it. */
static chunk *chunk_to_fill(nb_card *c, struct nb_card_ring *r)
{
    chunk *k = &r->chunk[r->at];
    if (k->used == CHUNK) {
        int next = (r->at + 1) % CHUNKS;
        if (!record(c, k)) return NULL;
        k = &r->chunk[next];
        if (k->used && !await(c, k)) return NULL;
        r->at = next;
        k->used = 0;
    }
    return chunk_make(c, k) ? k : NULL;
}

static bool put(nb_card *c, nb_address to, const char *host, size_t n)
{
    while (n > 0) {
        chunk *k = chunk_to_fill(c, c->up);
        if (!k) return false;
        char *at = k->host + k->used;
        size_t m = least(n, CHUNK - k->used);
        move(at, host, m);
        if (!nb_card_check(c, c->api->MemcpyHtoDAsync(to, at, m, c->stream),
                           "copying to it"))
            return false;
        k->used += (m + ALIGN - 1) / ALIGN * ALIGN;
        to += m;
        host += m;
        n -= m;
    }
    return true;
}

bool nb_card_put(nb_card *c, void *to, const void *host, size_t n)
{
    if (!nb_card_enter(c) || !nb_card_is_free(c, "copying to it")) return false;
    pthread_mutex_lock(&c->up->lock);
    bool ok = put(c, address(to), host, n);
    pthread_mutex_unlock(&c->up->lock);
    return ok;
}

/* Chunk i of what is fetched. */
static bool fetch(nb_card *c, chunk *k, nb_address from, size_t n)
{
    return chunk_make(c, k) &&
           nb_card_check(c,
                         c->api->MemcpyDtoHAsync(k->host, from, n, c->stream),
                         "copying from it") &&
           record(c, k);
}

static bool get(nb_card *c, char *host, nb_address from, size_t n)
{
    chunk *ring = c->down->chunk;
    size_t asked = 0;
    for (size_t got = 0; got < n; got += CHUNK) {
        for (; asked < n && asked < got + (size_t)CHUNKS * CHUNK;
             asked += CHUNK)
            if (!fetch(c, &ring[asked / CHUNK % CHUNKS], from + asked,
                       least(CHUNK, n - asked)))
                return false;
        chunk *k = &ring[got / CHUNK % CHUNKS];
        if (!await(c, k)) return false;
        move(host + got, k->host, least(CHUNK, n - got));
    }
    return true;
}

bool nb_card_get(nb_card *c, void *host, const void *from, size_t n)
{
    if (!nb_card_enter(c) || !nb_card_is_free(c, "copying from it"))
        return false;
    if (n == 0) return true;
    pthread_mutex_lock(&c->down->lock);
    uint64_t launches = nb_card_launches(c);
    bool ok = get(c, host, address(from), n);
    pthread_mutex_unlock(&c->down->lock);
    if (ok) nb_card_ended(c, launches);
    return ok && nb_card_words_check(c);
}

bool nb_card_copy(nb_card *c, void *to, const void *from, size_t n)
{
    if (!nb_card_enter(c)) return false;
    return n == 0 ||
           nb_card_check(c,
                         c->api->MemcpyDtoDAsync(address(to), address(from), n,
                                                 nb_card_stream(c)),
                         "copying within it");
}

/* What the first card's stream is given next waits for the other's so far. */
static bool follow(nb_card *c, nb_card *other)
{
    if (!nb_card_enter(other)) return false;
    pthread_mutex_lock(&other->lock);
    bool ok =
        nb_card_check(other,
                      other->api->EventRecord(other->event, other->stream),
                      "recording an event") &&
        nb_card_enter(c) &&
        nb_card_check(c, c->api->StreamWaitEvent(c->stream, other->event, 0),
                      "waiting for another card");
    pthread_mutex_unlock(&other->lock);
    return ok;
}

bool nb_card_copy_from(nb_card *c, void *to, nb_card *other, const void *from,
                       size_t n)
{
    if (!nb_card_enter(c) || !nb_card_is_free(c, "copying to it")) return false;
    if (n == 0) return true;
    return follow(c, other) &&
           nb_card_check(c,
                         c->api->MemcpyPeerAsync(address(to), c->context,
                                                 address(from), other->context,
                                                 n, c->stream),
                         "copying from another card") &&
           follow(other, c);
}

bool nb_card_zero(nb_card *c, void *to, size_t n)
{
    if (!nb_card_enter(c)) return false;
    return n == 0 ||
           nb_card_check(
               c, c->api->MemsetD8Async(address(to), 0, n, nb_card_stream(c)),
               "clearing");
}
