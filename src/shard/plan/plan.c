/* plan.c - plans: found once, then remembered. */
#include "shard/plan/deal.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

const char *nb_hop_name(nb_hop_kind kind)
{
    static const char *const name[] = {
        [NB_HOP_SLICE] = "slice",
        [NB_HOP_ALL_GATHER] = "all_gather",
        [NB_HOP_ALL_TO_ALL] = "all_to_all",
        [NB_HOP_PERMUTE] = "permute",
        [NB_HOP_REDUCE_SCATTER] = "reduce_scatter",
        [NB_HOP_ALL_REDUCE] = "all_reduce",
        [NB_HOP_UNREDUCE] = "unreduce",
        [NB_HOP_REDUCE_EXCHANGE] = "reduce_exchange",
        [NB_HOP_EXCHANGE] = "exchange"};
    return name[kind];
}

static bool price(nb_reshard_plan *p, nb_hop *step)
{
    for (int i = 0; i < p->n; i++) {
        if (!nb_hop_price(&step[i], p->size, p->item)) return false;
        int64_t memory = nb_hop_memory(&step[i], p->size, p->item);
        p->bytes += step[i].bytes;
        p->seconds += step[i].seconds;
        if (memory > p->peak) p->peak = memory;
    }
    return true;
}

/* One block: the plan, its steps, the sizes. */
static nb_reshard_plan *write_plan(const nb_reshard_task *t, const nb_route *r)
{
    size_t sizes = (size_t)t->from->rank * sizeof(int64_t);
    size_t steps = (size_t)r->n * sizeof(nb_hop);
    nb_reshard_plan *p = nb_alloc_forever(sizeof *p + steps + sizes);
    if (!p) return NULL;
    nb_hop *step = (nb_hop *)(p + 1);
    int64_t *size = (int64_t *)(step + r->n);
    if (sizes) memcpy(size, t->size, sizes);
    *p = (nb_reshard_plan){.from = t->from,
                           .into = t->into,
                           .item = t->item,
                           .n = r->n,
                           .size = size,
                           .step = step};
    if (r->n) memcpy(step, r->step, steps);
    p->bound = nb_reshard_bound(t);
    if (p->bound >= 0 && price(p, step)) return p;
    free(p); /* nobody has seen it */
    return NULL;
}

bool nb_mesh_meets(const nb_mesh *a, const nb_mesh *b)
{
    bool same = a == b || a->ndevices == b->ndevices;
    for (int i = 0; a != b && same && i < a->ndevices; i++)
        same = nb_mesh_position(b, a->device[i]) >= 0;
    if (!same || (a != b && !nb_mesh_shares(a, b)))
        return nb_fail(NB_EVALUE,
                       "reshard: meshes @%s and @%s have different devices",
                       a->name, b->name);
    return true;
}

static bool check(const nb_spec *from, const nb_spec *into)
{
    if (from->rank != into->rank)
        return nb_fail(NB_EVALUE, "reshard: from %d dims to %d", from->rank,
                       into->rank);
    return nb_mesh_meets(from->mesh, into->mesh);
}

static nb_reshard_plan *make_one(const nb_reshard_task *t)
{
    nb_route r = {0};
    nb_reshard_plan *p = NULL;
    if (t->from == t->into || nb_route_find(t, &r)) p = write_plan(t, &r);
    nb_free(r.step);
    return p;
}

/* An exchange sends boxes of all sizes to all sides.  Unless it is asked for, it
 * is taken where collectives move a quarter more than must be moved, and not
 * for a tensor of no more than so many bytes. */
enum { SMALL = 1024 };

static bool is_poor(const nb_reshard_plan *p)
{
    int64_t bytes = p->item;
    for (int d = 0; d < p->from->rank; d++)
        bytes *= p->size[d];
    return bytes > SMALL && 4 * (p->bytes - p->bound) > p->bound;
}

static const nb_reshard_plan *make(nb_reshard_task t)
{
    nb_reshard_open(&t);
    nb_reshard_plan *p = make_one(&t);
    const nb_plan_options *o = &t.options;
    if (!p || o->exchange || o->collectives || !t.fits || !is_poor(p)) return p;
    t.options.exchange = true;
    nb_reshard_plan *direct = make_one(&t);
    bool better = direct && direct->bytes < p->bytes;
    if (!direct || better) free(p);
    if (direct && !better) free(direct);
    return better || !direct ? direct : p;
}

/* Plans by what was asked.  Entries are only ever added, at the front, so
 * reading needs no lock. */
typedef struct memo {
    struct memo *next;
    uint64_t hash, costs;
    const nb_spec *from, *into;
    nb_plan_options options;
    const nb_reshard_plan *plan;
} memo;

enum { BUCKETS = 4096 };

static _Atomic(memo *) table[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Costs of a mesh can be set anew. */
static uint64_t costs_of(const nb_mesh *m, uint64_t seed)
{
    size_t bytes = (size_t)m->naxes * sizeof(double);
    return nb_hash(nb_hash(seed, m->message, bytes), m->byte, bytes);
}

static void set_key(memo *key, const nb_reshard_task *t)
{
    key->from = t->from;
    key->into = t->into;
    key->options = t->options;
    key->costs = costs_of(t->from->mesh, 0);
    const nb_plan_options *o = &t->options;
    uint64_t part[5] = {(uint64_t)(uintptr_t)t->from,
                        (uint64_t)(uintptr_t)t->into, key->costs,
                        (uint64_t)o->memory,
                        (uint64_t)t->item << 4 | o->collectives << 3 |
                            o->wide << 2 | o->idle_axes << 1 | o->exchange};
    key->hash = nb_hash(nb_hash(0, part, sizeof part), t->size,
                        (size_t)t->from->rank * sizeof(int64_t));
}

static bool is_same(const memo *a, const memo *key, const nb_reshard_task *t)
{
    const nb_plan_options *x = &a->options, *y = &key->options;
    return a->hash == key->hash && a->from == key->from &&
           a->into == key->into && a->costs == key->costs &&
           x->memory == y->memory && x->idle_axes == y->idle_axes &&
           x->wide == y->wide && x->exchange == y->exchange &&
           x->collectives == y->collectives && a->plan->item == t->item &&
           memcmp(a->plan->size, t->size,
                  (size_t)t->from->rank * sizeof(int64_t)) == 0;
}

static const nb_reshard_plan *recall(const memo *key, const nb_reshard_task *t)
{
    const memo *e =
        atomic_load_explicit(&table[key->hash % BUCKETS], memory_order_acquire);
    while (e && !is_same(e, key, t))
        e = e->next;
    return e ? e->plan : NULL;
}

/* Two threads may have found the same plan: the first is kept. */
static const nb_reshard_plan *keep(const memo *key, const nb_reshard_task *t,
                                   const nb_reshard_plan *plan)
{
    _Atomic(memo *) *at = &table[key->hash % BUCKETS];
    pthread_mutex_lock(&lock);
    const nb_reshard_plan *found = recall(key, t);
    memo *e = found ? NULL : nb_alloc_forever(sizeof *e);
    if (e) {
        *e = *key;
        e->plan = found = plan;
        e->next = atomic_load_explicit(at, memory_order_relaxed);
        atomic_store_explicit(at, e, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* Specs of the same layout have the same plan. */
static const nb_reshard_plan *find_layouts(nb_reshard_task t)
{
    memo key = {0};
    t.from = nb_spec_layout(t.from);
    t.into = nb_spec_layout(t.into);
    if (!t.from || !t.into) return NULL;
    set_key(&key, &t);
    const nb_reshard_plan *p = recall(&key, &t);
    if (p) return p;
    p = make(t);
    const nb_reshard_plan *kept = p ? keep(&key, &t, p) : NULL;
    if (kept != p) free((void *)p); /* nobody has seen it */
    return kept;
}

const nb_reshard_plan *nb_reshard_find(const nb_spec *from, const nb_spec *into,
                                       const int64_t *size, int item,
                                       const nb_plan_options *options)
{
    nb_reshard_task t = {
        .from = from, .into = into, .size = size, .item = item};
    memo key = {0};
    if (options) t.options = *options;
    set_key(&key, &t);
    const nb_reshard_plan *p = recall(&key, &t);
    if (p) return p;
    p = check(from, into) ? find_layouts(t) : NULL;
    return p ? keep(&key, &t, p) : NULL;
}
