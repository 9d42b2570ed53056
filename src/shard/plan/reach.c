/* reach.c - exchanges that end in parts of any kind: windows with their halos,
 * slices, what is concatenated. */
#include "base/memory.h"
#include "base/text.h"
#include "shard/plan/plan.h"

#include <pthread.h>
#include <string.h>

void nb_hop_box(const nb_hop *h, const int64_t *size, int position, nb_box *box)
{
    const nb_spec *s = h->into;
    nb_spec_box(s, size, position, box);
    for (int d = 0; h->reach && d < s->rank; d++) {
        const int64_t *r = h->reach->range[d];
        if (!r) continue;
        int64_t i = nb_cut_index(s->mesh, &s->dim[d].axes, position);
        box->start[d] = r[2 * i];
        box->size[d] = r[2 * i + 1] - r[2 * i];
    }
}

typedef struct entry {
    struct entry *next;
    uint64_t hash;
    nb_reshard_plan plan;
    nb_hop hop;
    nb_reach reach;
    int64_t size[NB_MAX_DIMS];
} entry;

enum { BUCKETS = 256 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry *table[BUCKETS];

static int64_t range_words(const nb_spec *s, int d)
{
    return 2 * nb_cut_count(&s->dim[d].axes);
}

static uint64_t hash_of(const nb_spec *from, const nb_spec *into,
                        const int64_t *size, int item, const nb_reach *r)
{
    const void *ends[] = {from, into};
    uint64_t h = nb_hash((uint64_t)item, ends, sizeof ends);
    h = nb_hash(h, size, (size_t)from->rank * sizeof *size);
    for (int d = 0; d < from->rank; d++)
        if (r->range[d])
            h = nb_hash(h ^ (uint64_t)d, r->range[d],
                        (size_t)range_words(into, d) * sizeof(int64_t));
    return h;
}

static bool is_same(const entry *e, const nb_spec *from, const nb_spec *into,
                    const int64_t *size, int item, const nb_reach *r)
{
    if (e->hop.from != from || e->hop.into != into || e->plan.item != item ||
        memcmp(e->size, size, (size_t)from->rank * sizeof *size) != 0)
        return false;
    for (int d = 0; d < from->rank; d++) {
        const int64_t *a = e->reach.range[d], *b = r->range[d];
        if (!a != !b ||
            (a && memcmp(a, b, (size_t)range_words(into, d) * sizeof *a) != 0))
            return false;
    }
    return true;
}

/* Devices may have to hear from all that differ along a dim with ranges. */
static void set_axes(entry *e)
{
    const nb_spec *s = e->hop.into;
    for (int d = 0; d < s->rank; d++) {
        const nb_cut *a = &s->dim[d].axes;
        if (e->reach.range[d] && !a->n) a = &e->hop.from->dim[d].axes;
        for (int i = 0; e->reach.range[d] && i < a->n; i++)
            nb_cut_add(&e->hop.axes, a->at[i]);
    }
}

static int64_t common(int rank, const nb_box *a, const nb_box *b)
{
    nb_box both;
    return nb_box_meet(rank, a, b, &both) ? nb_box_count(rank, &both) : 0;
}

static void price(entry *e)
{
    const nb_mesh *m = e->hop.into->mesh;
    int rank = e->hop.into->rank;
    double byte = 0, message = 0;
    nb_box whole = {0};
    memcpy(whole.size, e->size, sizeof e->size);
    for (int p = 0; p < m->ndevices; p++) {
        nb_box has, wants;
        nb_spec_box(e->hop.from, e->size, p, &has);
        nb_hop_box(&e->hop, e->size, p, &wants);
        int64_t n = common(rank, &wants, &whole) - common(rank, &wants, &has);
        if (n * e->plan.item > e->hop.bytes) e->hop.bytes = n * e->plan.item;
    }
    for (int i = 0; i < e->hop.axes.n; i++) {
        int a = e->hop.axes.at[i].axis;
        if (m->byte[a] > byte) byte = m->byte[a];
        if (m->message[a] > message) message = m->message[a];
    }
    if (!e->hop.bytes) e->hop.kind = NB_HOP_SLICE; /* all have what they want */
    e->hop.messages = e->hop.bytes ? 1 : 0;
    e->hop.seconds = e->hop.messages * message + (double)e->hop.bytes * byte;
    e->plan.bytes = e->plan.bound = e->hop.bytes;
    e->plan.seconds = e->hop.seconds;
}

static entry *make(const nb_spec *from, const nb_spec *into,
                   const int64_t *size, int item, const nb_reach *r)
{
    size_t words = 0;
    for (int d = 0; d < from->rank; d++)
        if (r->range[d]) words += (size_t)range_words(into, d);
    entry *e = nb_alloc_forever(sizeof *e + words * sizeof(int64_t));
    if (!e) return NULL;
    memset(e, 0, sizeof *e);
    int64_t *at = (int64_t *)(e + 1);
    for (int d = 0; d < from->rank; d++) {
        if (!r->range[d]) continue;
        size_t n = (size_t)range_words(into, d);
        e->reach.range[d] = memcpy(at, r->range[d], n * sizeof *at);
        at += n;
    }
    memcpy(e->size, size, (size_t)from->rank * sizeof *size);
    e->hop = (nb_hop){.kind = NB_HOP_EXCHANGE, .dim = -1, .to = -1};
    e->hop.from = from;
    e->hop.into = into;
    e->hop.reach = &e->reach;
    e->plan = (nb_reshard_plan){.from = from, .into = into, .item = item};
    e->plan.n = 1;
    e->plan.size = e->size;
    e->plan.step = &e->hop;
    set_axes(e);
    price(e);
    return e;
}

const nb_reshard_plan *nb_reach_find(const nb_spec *from, const nb_spec *into,
                                     const int64_t *size, int item,
                                     const nb_reach *reach)
{
    uint64_t h = hash_of(from, into, size, item, reach);
    pthread_mutex_lock(&lock);
    entry *e = table[h % BUCKETS];
    while (e && !is_same(e, from, into, size, item, reach))
        e = e->next;
    if (!e && (e = make(from, into, size, item, reach))) {
        e->next = table[h % BUCKETS];
        table[h % BUCKETS] = e;
    }
    pthread_mutex_unlock(&lock);
    return e ? &e->plan : NULL;
}
