/* heap.c - parts of segments: best fit in bins of like sizes.
 *
 * Bins hold the sizes of an eighth of a power of two, a bit for each says
 * whether there is anything in it: the search looks through the bin of the
 * request and, if nothing there is large enough, takes the smallest of the
 * next one that is not empty.  Parts in use are found by their address. */
#include "backend/cuda/heap.h"

#include "base/memory.h"

#include <string.h>

enum { GRAIN = 256, STEPS = 8, BINS = 40 * STEPS, WORDS = BINS / 64 };
enum { BUCKETS = 1 << 14, SLAB = 256 };
enum { KINDS = 3, MIB = 1 << 20 };

/* Of each kind: the largest request, the size of a segment (0: as large as the
 * request), what segments and leftovers are multiples of. */
static const struct {
    size_t most, segment, grain;
} kinds[KINDS] = {
    {MIB, 8 * (size_t)MIB, GRAIN},
    {16 * (size_t)MIB, 64 * (size_t)MIB, 64 << 10},
    {SIZE_MAX, 0, 2 * (size_t)MIB},
};

struct nb_heap {
    uint64_t filled[KINDS][WORDS];
    nb_part *bin[KINDS][BINS];
    nb_part *bucket[BUCKETS];
    nb_part *spare;
    nb_card_memory stats;
};

nb_heap *nb_heap_new(void)
{
    return nb_alloc_forever(sizeof(nb_heap));
}

nb_card_memory *nb_heap_stats(nb_heap *h)
{
    return &h->stats;
}

static int kind_of(size_t bytes)
{
    int k = 0;
    while (bytes > kinds[k].most)
        k++;
    return k;
}

static size_t round_up(size_t bytes, size_t grain)
{
    return bytes > SIZE_MAX - grain ? SIZE_MAX / grain * grain
                                    : (bytes + grain - 1) / grain * grain;
}

static size_t rounded(size_t bytes)
{
    return bytes == 0 ? GRAIN : round_up(bytes, GRAIN);
}

size_t nb_heap_least(size_t bytes)
{
    bytes = rounded(bytes);
    return round_up(bytes, kinds[kind_of(bytes)].grain);
}

size_t nb_heap_segment(size_t bytes)
{
    size_t segment = kinds[kind_of(rounded(bytes))].segment;
    return segment ? segment : nb_heap_least(bytes);
}

static int bin_of(size_t bytes)
{
    unsigned long long grains = bytes / GRAIN;
    if (grains < STEPS) return (int)grains;
    int power = 63 - __builtin_clzll(grains);
    int step = (int)(grains >> (power - 3) & (STEPS - 1));
    int bin = (power - 2) * STEPS + step;
    return bin < BINS ? bin : BINS - 1;
}

static void list(nb_heap *h, nb_part *p)
{
    int b = bin_of(p->bytes);
    nb_part **top = &h->bin[p->kind][b];
    p->last = NULL;
    p->next = *top;
    if (*top) (*top)->last = p;
    *top = p;
    h->filled[p->kind][b / 64] |= UINT64_C(1) << b % 64;
    h->stats.cached += p->bytes;
}

static void unlist(nb_heap *h, nb_part *p)
{
    int b = bin_of(p->bytes);
    nb_part **top = &h->bin[p->kind][b];
    if (p->last)
        p->last->next = p->next;
    else
        *top = p->next;
    if (p->next) p->next->last = p->last;
    if (!*top) h->filled[p->kind][b / 64] &= ~(UINT64_C(1) << b % 64);
    h->stats.cached -= p->bytes;
}

static nb_part **bucket_of(const nb_heap *h, nb_address at)
{
    uint64_t x = at / GRAIN * UINT64_C(0x9e3779b97f4a7c15);
    return (nb_part **)&h->bucket[x >> 50];
}
_Static_assert(BUCKETS == 1 << (64 - 50), "the bits of a hash");

nb_part *nb_heap_find(const nb_heap *h, nb_address at)
{
    nb_part *p = *bucket_of(h, at);
    while (p && p->at != at)
        p = p->next;
    return p;
}

static void put_in_use(nb_heap *h, nb_part *p)
{
    nb_part **bucket = bucket_of(h, p->at);
    nb_card_memory *s = &h->stats;
    p->used = true;
    p->next = *bucket;
    *bucket = p;
    s->live += p->bytes;
    s->blocks++;
    if (s->live > s->peak) s->peak = s->live;
}

static void put_out_of_use(nb_heap *h, nb_part *p)
{
    nb_part **at = bucket_of(h, p->at);
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    p->used = false;
    h->stats.live -= p->bytes;
    h->stats.blocks--;
}

/* At least one description is spare afterwards. */
static bool have_spare(nb_heap *h)
{
    if (h->spare) return true;
    nb_part *slab = nb_alloc_forever(SLAB * sizeof *slab);
    if (!slab) return false;
    for (int i = 0; i < SLAB; i++) {
        slab[i].next = h->spare;
        h->spare = &slab[i];
    }
    return true;
}

static nb_part *describe(nb_heap *h, nb_part like)
{
    nb_part *p = h->spare;
    h->spare = p->next;
    *p = like;
    return p;
}

static void undescribe(nb_heap *h, nb_part *p)
{
    p->next = h->spare;
    h->spare = p;
}

bool nb_heap_add(nb_heap *h, nb_address at, size_t segment, size_t bytes)
{
    if (!have_spare(h)) return false;
    int kind = kind_of(rounded(bytes));
    list(h, describe(h, (nb_part){.at = at,
                                  .bytes = segment,
                                  .kind = (unsigned char)kind}));
    return true;
}

/* The smallest of the list that holds so much; of like ones, one that the
 * stream itself, or nobody, used last. */
static nb_part *best(nb_part *p, size_t bytes, const void *stream)
{
    nb_part *found = NULL;
    for (; p; p = p->next) {
        if (p->bytes < bytes || (found && p->bytes > found->bytes)) continue;
        bool free = p->stream == stream || !p->stream;
        if (!found || p->bytes < found->bytes || free) found = p;
        if (free && p->bytes == bytes) break;
    }
    return found;
}

/* The next bin from b on that is not empty, BINS if there is none. */
static int next_filled(const uint64_t *filled, int b)
{
    for (int w = b / 64; w < WORDS; w++) {
        uint64_t bits = filled[w];
        if (w == b / 64) bits &= ~UINT64_C(0) << b % 64;
        if (bits) return w * 64 + __builtin_ctzll(bits);
    }
    return BINS;
}

static nb_part *fitting(nb_heap *h, int kind, size_t bytes, const void *stream)
{
    nb_part *found = NULL;
    int b = bin_of(bytes);
    while (!found && b < BINS && (b = next_filled(h->filled[kind], b)) < BINS)
        found = best(h->bin[kind][b++], bytes, stream);
    return found;
}

/* Cuts off what is over; there is a spare description. */
static void trim(nb_heap *h, nb_part *p, size_t bytes)
{
    size_t keep = round_up(bytes, GRAIN);
    if (p->bytes - keep < kinds[p->kind].grain) return;
    nb_part *rest = describe(h, *p);
    rest->at += keep;
    rest->bytes -= keep;
    rest->below = p;
    if (rest->above) rest->above->below = rest;
    p->above = rest;
    p->bytes = keep;
    list(h, rest);
}

bool nb_heap_take(nb_heap *h, size_t bytes, void *stream, nb_part **part)
{
    *part = NULL;
    if (!have_spare(h)) return false;
    bytes = rounded(bytes);
    nb_part *p = fitting(h, kind_of(bytes), bytes, stream);
    if (!p) return true;
    unlist(h, p);
    trim(h, p, bytes);
    put_in_use(h, p);
    *part = p;
    return true;
}

static bool may_join(const nb_part *a, const nb_part *b)
{
    return a && b && !a->used && !b->used &&
           (a->stream == b->stream || !a->stream || !b->stream);
}

/* The upper one becomes part of the lower; neither is listed. */
static nb_part *join(nb_heap *h, nb_part *below, nb_part *above)
{
    if (!below->stream) below->stream = above->stream;
    below->bytes += above->bytes;
    below->above = above->above;
    if (below->above) below->above->below = below;
    undescribe(h, above);
    return below;
}

/* Lists a free part, joined with its neighbours. */
static void list_joined(nb_heap *h, nb_part *p)
{
    if (may_join(p->below, p)) {
        unlist(h, p->below);
        p = join(h, p->below, p);
    }
    if (may_join(p, p->above)) {
        unlist(h, p->above);
        p = join(h, p, p->above);
    }
    list(h, p);
}

void nb_heap_give(nb_heap *h, nb_part *p, void *stream)
{
    put_out_of_use(h, p);
    p->stream = stream;
    list_joined(h, p);
}

/* Joining takes parts out of any bin, so each bin is read again after it. */
static bool settle_one(nb_heap *h, const void *stream)
{
    for (int b = 0; b < KINDS * BINS; b++)
        for (nb_part *p = h->bin[b / BINS][b % BINS]; p; p = p->next) {
            if (!p->stream || (stream && p->stream != stream)) continue;
            unlist(h, p);
            p->stream = NULL;
            list_joined(h, p);
            return true;
        }
    return false;
}

void nb_heap_settle(nb_heap *h, void *stream)
{
    while (settle_one(h, stream))
        continue;
}

bool nb_heap_cut(nb_heap *h, nb_address *at, size_t *segment)
{
    for (int b = 0; b < KINDS * BINS; b++)
        for (nb_part *p = h->bin[b / BINS][b % BINS]; p; p = p->next) {
            if (p->below || p->above) continue;
            *at = p->at;
            *segment = p->bytes;
            unlist(h, p);
            undescribe(h, p);
            return true;
        }
    return false;
}

size_t nb_heap_largest(const nb_heap *h, size_t below, int *n)
{
    size_t most = 0;
    *n = 0;
    for (int b = 0; b < BUCKETS; b++)
        for (nb_part *p = h->bucket[b]; p; p = p->next) {
            if (p->bytes >= below || p->bytes < most) continue;
            if (p->bytes > most) most = p->bytes, *n = 0;
            ++*n;
        }
    return most;
}
