/* plan.c - plans: found once, then remembered. */
#include "shard/deal.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/text.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

const char *nb_hop_name(nb_hop_kind kind)
{
    static const char *const name[] = {
        "slice",          "all_gather", "all_to_all", "permute",
        "reduce_scatter", "all_reduce", "unreduce",   "exchange"};
    return name[kind];
}

bool nb_route_add(nb_route *r, const nb_hop *move, const nb_spec *from,
                  const nb_spec *into)
{
    nb_hop *last = r->n ? &r->step[r->n - 1] : NULL;
    if (last && move->kind == NB_HOP_SLICE && last->kind == NB_HOP_SLICE &&
        last->dim == move->dim) {
        nb_cut axes = last->axes;
        bool fits = true;
        for (int i = 0; i < move->axes.n; i++)
            fits &= nb_cut_add(&axes, move->axes.at[i]);
        if (fits) {
            last->axes = axes;
            last->into = into;
            return true;
        }
    }
    if (!nb_grow(&r->step, &r->room, r->n + 1, sizeof *r->step)) return false;
    nb_hop *next = &r->step[r->n++];
    *next = *move;
    next->from = from;
    next->into = into;
    return true;
}

/* The layout alone, as a draft that can be changed. */
static void draft_of(const nb_spec *s, nb_spec *draft)
{
    memset(draft, 0, sizeof *draft);
    draft->mesh = s->mesh;
    draft->rank = s->rank;
    draft->kind = s->kind;
    draft->partial = s->partial;
    for (int d = 0; d < s->rank; d++)
        draft->dim[d].axes = s->dim[d].axes;
}

static const nb_spec *layout_of(const nb_spec *s)
{
    nb_spec draft;
    draft_of(s, &draft);
    return nb_spec_intern(&draft);
}

static const nb_spec *without_pending(const nb_spec *s)
{
    nb_spec draft;
    draft_of(s, &draft);
    draft.partial.n = 0;
    return nb_spec_intern(&draft);
}

/* What l has after its beginning c. */
static nb_cut rest(const nb_cut *l, const nb_cut *c)
{
    nb_cut r = {0};
    for (int i = 0; i < l->n; i++) {
        nb_axis a = l->at[i];
        int done = i < c->n ? c->at[i].size : 1;
        nb_axis left = {a.axis, (uint16_t)(a.pre * done),
                        (uint16_t)(a.size / done)};
        nb_cut_add(&r, left);
    }
    return r;
}

static bool go(nb_route *r, nb_hop_kind kind, int dim, const nb_cut *axes,
               const nb_spec **at, const nb_spec *next)
{
    nb_hop move = {.kind = kind, .dim = dim, .to = -1, .axes = *axes};
    if (!next || !nb_route_add(r, &move, *at, next)) return false;
    *at = next;
    return true;
}

/* Dim by dim gathers what is not wanted, then slices what is. */
static bool gather_and_slice(nb_route *r, const nb_spec **at,
                             const nb_spec *into)
{
    nb_spec draft;
    draft_of(*at, &draft);
    for (int turn = 0; turn < 2; turn++)
        for (int d = 0; d < into->rank; d++) {
            const nb_cut *a = &draft.dim[d].axes, *b = &into->dim[d].axes;
            nb_cut c = nb_cut_common(a, b), axes = rest(turn ? b : a, &c);
            if (!axes.n) continue;
            draft.dim[d].axes = turn ? *b : c;
            if (!go(r, turn ? NB_HOP_SLICE : NB_HOP_ALL_GATHER, d, &axes, at,
                    nb_spec_intern(&draft)))
                return false;
        }
    return true;
}

static bool exchange(nb_route *r, const nb_spec **at, const nb_spec *into)
{
    nb_cut all = {0};
    const nb_mesh *m = (*at)->mesh;
    for (int k = 0; k < m->naxes; k++)
        nb_cut_add(&all, nb_axis_full(m, k));
    return go(r, NB_HOP_EXCHANGE, -1, &all, at, into);
}

/* A plan without a search: reduces, moves, makes pending. */
static bool plain_route(const nb_reshard_task *t, nb_route *r)
{
    const nb_spec *at = t->from, *into = without_pending(t->into);
    bool across = at->mesh != t->into->mesh;
    bool kept = !across && at->kind == t->into->kind &&
                nb_cut_equal(&at->partial, &t->into->partial);
    if (!into) return false;
    if (at->partial.n && !kept &&
        !go(r, NB_HOP_ALL_REDUCE, -1, &at->partial, &at, without_pending(at)))
        return false;
    if (across || (t->options.exchange && !at->partial.n)) {
        if (!exchange(r, &at, into)) return false;
    } else if (!gather_and_slice(r, &at, into)) {
        return false;
    }
    return at == t->into ||
           go(r, NB_HOP_UNREDUCE, -1, &t->into->partial, &at, t->into);
}

static bool find_route(const nb_reshard_task *asked, nb_route *r)
{
    nb_search_end end = NB_SEARCH_CROWDED;
    nb_reshard_task t = *asked;
    bool fits = t.from->mesh == t.into->mesh && nb_reshard_open(&t);
    for (int directed = 0; directed < 2 && fits; directed++) {
        if (end != NB_SEARCH_CROWDED) break;
        end = nb_reshard_search(&t, directed, r);
    }
    if (end == NB_SEARCH_CROWDED) return plain_route(asked, r);
    if (end == NB_SEARCH_NONE)
        nb_fail(NB_EVALUE,
                "reshard: no plan keeps its steps within %lld bytes a device",
                (long long)t.options.memory);
    return end == NB_SEARCH_FOUND;
}

/* Steps that were found without a search have not been measured. */
static bool check_memory(const nb_reshard_task *t, const nb_route *r)
{
    for (int i = 0; t->options.memory && i < r->n; i++)
        if (nb_hop_memory(&r->step[i], t->size, t->item) > t->options.memory)
            return nb_fail(NB_EVALUE,
                           "reshard: no plan keeps its steps within %lld bytes "
                           "a device",
                           (long long)t->options.memory);
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
    p->bound = nb_reshard_bound(p->from, p->into, size, p->item);
    for (int i = 0; i < r->n; i++) {
        step[i] = r->step[i];
        nb_hop_price(&step[i], size, p->item);
        int64_t memory = nb_hop_memory(&step[i], size, p->item);
        p->bytes += step[i].bytes;
        p->seconds += step[i].seconds;
        if (memory > p->peak) p->peak = memory;
    }
    return p;
}

static bool check(const nb_spec *from, const nb_spec *into)
{
    const nb_mesh *a = from->mesh, *b = into->mesh;
    if (from->rank != into->rank)
        return nb_fail(NB_EVALUE, "reshard: from %d dims to %d", from->rank,
                       into->rank);
    bool same = a == b || a->ndevices == b->ndevices;
    for (int i = 0; a != b && same && i < a->ndevices; i++)
        same = nb_mesh_position(b, a->device[i]) >= 0;
    if (!same)
        return nb_fail(NB_EVALUE,
                       "reshard: meshes @%s and @%s have different devices",
                       a->name, b->name);
    return true;
}

static const nb_reshard_plan *make(const nb_reshard_task *t)
{
    nb_route r = {0};
    nb_reshard_plan *p = NULL;
    bool ok = t->from == t->into || find_route(t, &r);
    if (ok && check_memory(t, &r)) p = write_plan(t, &r);
    nb_free(r.step);
    return p;
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
    uint64_t part[5] = {(uint64_t)(uintptr_t)t->from,
                        (uint64_t)(uintptr_t)t->into, key->costs,
                        (uint64_t)t->options.memory,
                        (uint64_t)t->item << 3 | t->options.wide << 2 |
                            t->options.idle_axes << 1 | t->options.exchange};
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
           a->plan->item == t->item &&
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
    t.from = layout_of(t.from);
    t.into = layout_of(t.into);
    if (!t.from || !t.into) return NULL;
    set_key(&key, &t);
    const nb_reshard_plan *p = recall(&key, &t);
    if (p) return p;
    p = make(&t);
    return p ? keep(&key, &t, p) : NULL;
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
