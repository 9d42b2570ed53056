/* spec.c - specs as values: checked, in one form, one pointer for each. */
#include "shard/layout/spec.h"

#include "base/error.h"
#include "base/memory.h"

#include <pthread.h>
#include <string.h>

enum { BUCKETS = 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const nb_spec *table[BUCKETS];

/* The list without axes of size one, neighbours merged. */
static bool settle_list(const nb_mesh *m, nb_uses *u, const nb_cut *from,
                        nb_cut *to)
{
    to->n = 0;
    for (int i = 0; i < from->n; i++) {
        if (!nb_axis_use(m, u, from->at[i]))
            return nb_fail(NB_EVALUE, "sharding: %s", u->why);
        nb_cut_add(to, from->at[i]);
    }
    return true;
}

static bool is_before(nb_axis a, nb_axis b)
{
    return a.axis != b.axis ? a.axis < b.axis : a.pre < b.pre;
}

static void sort(nb_cut *l)
{
    nb_cut merged = {0};
    for (int i = 1; i < l->n; i++)
        for (int j = i; j && is_before(l->at[j], l->at[j - 1]); j--) {
            nb_axis t = l->at[j];
            l->at[j] = l->at[j - 1];
            l->at[j - 1] = t;
        }
    for (int i = 0; i < l->n; i++)
        nb_cut_add(&merged, l->at[i]);
    *l = merged;
}

static bool settle_dim(const nb_mesh *m, nb_uses *u, int d,
                       const nb_dim_spec *from, nb_dim_spec *to)
{
    if (!settle_list(m, u, &from->axes, &to->axes)) return false;
    if (from->priority && !from->axes.n && !from->open)
        return nb_fail(NB_EVALUE, "sharding: " NB_NO_PRIORITY, d);
    to->open = from->open;
    if (to->axes.n || to->open) to->priority = from->priority;
    return true;
}

static bool settle(const nb_spec *from, nb_spec *to)
{
    nb_uses u = {0};
    memset(to, 0, sizeof *to);
    to->mesh = from->mesh;
    to->rank = from->rank;
    if (from->rank < 0 || from->rank > NB_MAX_DIMS)
        return nb_fail(NB_EVALUE, "sharding: %d dims", from->rank);
    for (int d = 0; d < from->rank; d++)
        if (!settle_dim(to->mesh, &u, d, &from->dim[d], &to->dim[d]))
            return false;
    if (!settle_list(to->mesh, &u, &from->replicated, &to->replicated) ||
        !settle_list(to->mesh, &u, &from->partial, &to->partial))
        return false;
    sort(&to->replicated);
    sort(&to->partial);
    to->kind = to->partial.n ? from->kind : NB_SUM;
    return true;
}

static uint64_t mix(uint64_t h, uint64_t v)
{
    return (h ^ v) * 0x9e3779b97f4a7c15u ^ (h >> 29);
}

static uint64_t mix_list(uint64_t h, const nb_cut *l)
{
    h = mix(h, l->n);
    for (int i = 0; i < l->n; i++)
        h = mix(h, (uint64_t)l->at[i].axis << 32 |
                       (uint64_t)l->at[i].pre << 16 | l->at[i].size);
    return h;
}

static uint64_t hash(const nb_spec *s)
{
    uint64_t h = mix((uint64_t)(uintptr_t)s->mesh, (uint64_t)s->rank);
    for (int d = 0; d < s->rank; d++) {
        h = mix_list(h, &s->dim[d].axes);
        h = mix(h, (uint64_t)s->dim[d].open << 8 | s->dim[d].priority);
    }
    h = mix_list(h, &s->replicated);
    return mix(mix_list(h, &s->partial), (uint64_t)s->kind);
}

static bool same_dims(const nb_spec *a, const nb_spec *b, bool all)
{
    for (int d = 0; d < a->rank; d++) {
        const nb_dim_spec *x = &a->dim[d], *y = &b->dim[d];
        if (!nb_cut_equal(&x->axes, &y->axes)) return false;
        if (all && (x->open != y->open || x->priority != y->priority))
            return false;
    }
    return true;
}

bool nb_spec_same_layout(const nb_spec *a, const nb_spec *b)
{
    return a == b ||
           (a && b && a->mesh == b->mesh && a->rank == b->rank &&
            a->kind == b->kind && nb_cut_equal(&a->partial, &b->partial) &&
            same_dims(a, b, false));
}

static bool is_same(const nb_spec *a, const nb_spec *b)
{
    return a->hash == b->hash && nb_spec_same_layout(a, b) &&
           nb_cut_equal(&a->replicated, &b->replicated) &&
           same_dims(a, b, true);
}

/* Only the dims there are. */
static size_t spec_bytes(int rank)
{
    return offsetof(nb_spec, dim) + (size_t)rank * sizeof(nb_dim_spec);
}

static const nb_spec *keep(const nb_spec *s)
{
    size_t bytes = spec_bytes(s->rank);
    nb_spec *k = nb_alloc_forever(bytes);
    if (k) memcpy(k, s, bytes);
    return k;
}

const nb_spec *nb_spec_intern(const nb_spec *draft)
{
    nb_spec s;
    if (!settle(draft, &s)) return NULL;
    s.hash = hash(&s);
    pthread_mutex_lock(&lock);
    const nb_spec **at = &table[s.hash % BUCKETS], *found = *at;
    while (found && !is_same(found, &s))
        found = found->next;
    if (!found) {
        s.next = *at;
        found = keep(&s);
        if (found) *at = found;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

nb_spec nb_spec_draft(const nb_spec *s)
{
    nb_spec draft = {0};
    memcpy(&draft, s, spec_bytes(s->rank));
    return draft;
}

nb_spec nb_spec_bare(const nb_spec *s)
{
    nb_spec draft = {.mesh = s->mesh, .rank = s->rank, .kind = s->kind};
    draft.partial = s->partial;
    for (int d = 0; d < s->rank; d++)
        draft.dim[d].axes = s->dim[d].axes;
    return draft;
}

const nb_spec *nb_spec_layout(const nb_spec *s)
{
    nb_spec draft = nb_spec_bare(s);
    return nb_spec_intern(&draft);
}

const nb_spec *nb_spec_settled(const nb_spec *s)
{
    nb_spec draft = nb_spec_bare(s);
    draft.partial.n = 0;
    return nb_spec_intern(&draft);
}

const nb_spec *nb_spec_whole(const nb_mesh *m, int rank, bool open)
{
    nb_spec s = {.mesh = m, .rank = rank};
    for (int d = 0; d < rank; d++)
        s.dim[d].open = open;
    return nb_spec_intern(&s);
}

bool nb_spec_is_whole(const nb_spec *s)
{
    if (!s) return false;
    for (int d = 0; d < s->rank; d++)
        if (s->dim[d].axes.n) return false;
    return !s->partial.n;
}
