/* search.c - the cheapest way from one layout to another.
 *
 * Dijkstra's algorithm.  A way costs the seconds of its steps and a little for
 * each, so that of equal ways the one with fewer steps is taken; of those the
 * one that was found first.  Two permutations never follow each other: one does
 * what both do and costs no more. */
#include "shard/plan/deal.h"

#include "base/memory.h"
#include "base/text.h"

#include <string.h>

enum { MOST_PRICED = 100000 };

typedef struct node {
    nb_deal layout;
    double price;
    int parent, next; /* on the way; of those in the same bucket */
    bool settled;
    nb_hop move; /* that led here */
} node;

typedef struct entry {
    double price;
    int order, node;
} entry;

enum { BUCKETS = 1024 };

typedef struct search {
    const nb_reshard_task *task;
    nb_route *route;
    bool directed, crowded;
    int at; /* the node whose moves are being tried */
    int nnodes, node_room, nheap, heap_room, order, npriced;
    node *node;
    entry *heap;
    int bucket[BUCKETS];
    nb_spec from, into;
} search;

static bool is_before(const entry *a, const entry *b)
{
    return a->price != b->price ? a->price < b->price : a->order < b->order;
}

static bool push(search *s, double price, int n)
{
    if (!nb_grow(&s->heap, &s->heap_room, s->nheap + 1, sizeof *s->heap))
        return false;
    entry e = {price, s->order++, n};
    int i = s->nheap++;
    for (; i && is_before(&e, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = e;
    return true;
}

static int pop(search *s)
{
    int n = s->heap[0].node, i = 0;
    entry e = s->heap[--s->nheap];
    for (int k = 1; k < s->nheap; k = 2 * i + 1) {
        if (k + 1 < s->nheap && is_before(&s->heap[k + 1], &s->heap[k])) k++;
        if (!is_before(&s->heap[k], &e)) break;
        s->heap[i] = s->heap[k];
        i = k;
    }
    s->heap[i] = e;
    return n;
}

static int *bucket_of(search *s, const nb_deal *l)
{
    return &s->bucket[nb_hash(0, l, sizeof *l) % BUCKETS];
}

static int find(search *s, const nb_deal *l)
{
    int n = *bucket_of(s, l);
    while (n >= 0 && memcmp(&s->node[n].layout, l, sizeof *l) != 0)
        n = s->node[n].next;
    return n;
}

static int add(search *s, const nb_deal *l)
{
    if (!nb_grow(&s->node, &s->node_room, s->nnodes + 1, sizeof *s->node))
        return -1;
    int *bucket = bucket_of(s, l), n = s->nnodes++;
    s->node[n] = (node){.layout = *l, .price = -1, .parent = -1};
    s->node[n].next = *bucket;
    *bucket = n;
    return n;
}

/* Below 0: not allowed.  Slices of one atom each are one step in the end, and
 * cost less than one. */
static bool price(search *s, const nb_deal *next, const nb_hop *move,
                  double *seconds)
{
    const nb_reshard_task *t = s->task;
    nb_hop step = {.kind = move->kind, .axes = move->axes};
    step.from = &s->from;
    step.into = &s->into;
    *seconds = -1;
    if (!nb_deal_spec(t, next, &s->into)) return true;
    if (t->options.memory &&
        nb_hop_memory(&step, t->size, t->item) > t->options.memory)
        return true;
    if (!nb_hop_price(&step, t->size, t->item)) return false;
    *seconds = step.seconds + (move->kind == NB_HOP_SLICE ? t->op / 4 : t->op);
    return true;
}

/* Whether a way to a node that is known already cannot become shorter: to settle
 * who adds up what takes long, and everybody receives what it wants at least. */
static bool is_vain(search *s, int known, const nb_hop *move)
{
    const nb_reshard_task *t = s->task;
    const double *byte = t->from->mesh->byte;
    double least = 0;
    if (move->kind != NB_HOP_REDUCE_EXCHANGE) return false;
    for (int i = 0; i < move->axes.n; i++)
        if (byte[move->axes.at[i].axis] > least)
            least = byte[move->axes.at[i].axis];
    least *= (double)(nb_spec_elements(t->into, t->size) * t->item);
    return s->node[known].price <= s->node[s->at].price + least;
}

/* False ends the search: out of memory or too much to look at. */
static bool visit(void *ctx, const nb_deal *next, const nb_hop *move)
{
    search *s = ctx;
    int n = find(s, next);
    if (n >= 0 && (s->node[n].settled || is_vain(s, n, move))) return true;
    if (s->npriced++ == MOST_PRICED) return s->crowded = true, false;
    double step;
    if (!price(s, next, move, &step)) return false;
    if (step < 0) return true;
    double total = s->node[s->at].price + step;
    if (n >= 0 && s->node[n].price <= total) return true;
    if (n < 0) n = add(s, next);
    if (n < 0) return false;
    s->node[n].price = total;
    s->node[n].parent = s->at;
    s->node[n].move = *move;
    return push(s, total, n);
}

/* The steps that lead to node n, after those that lead to its parent. */
static bool write_route(search *s)
{
    nb_route *r = s->route;
    int length = 0;
    for (int n = s->at; s->node[n].parent >= 0; n = s->node[n].parent)
        length++;
    const nb_spec *from = s->task->from;
    while (length--) {
        int n = s->at;
        for (int i = 0; i < length; i++)
            n = s->node[n].parent;
        if (!nb_deal_spec(s->task, &s->node[n].layout, &s->into)) return false;
        const nb_spec *into = nb_spec_intern(&s->into);
        if (!into || !nb_route_add(r, &s->node[n].move, from, into))
            return false;
        from = into;
    }
    return true;
}

static nb_search_end run(search *s)
{
    const nb_reshard_task *t = s->task;
    int first = add(s, &t->start);
    if (first < 0 || !push(s, 0, first)) return NB_SEARCH_FAILED;
    s->node[first].price = 0;
    while (s->nheap) {
        s->at = pop(s);
        node *n = &s->node[s->at];
        if (n->settled) continue;
        n->settled = true;
        if (memcmp(&n->layout, &t->goal, sizeof n->layout) == 0)
            return write_route(s) ? NB_SEARCH_FOUND : NB_SEARCH_FAILED;
        nb_deal l = n->layout;
        nb_hop last = n->move;
        bool any = n->parent >= 0;
        if (!nb_deal_spec(t, &l, &s->from)) continue;
        if (!nb_deal_moves(t, &l, any ? &last : NULL, s->directed, visit, s))
            return s->crowded ? NB_SEARCH_CROWDED : NB_SEARCH_FAILED;
    }
    return NB_SEARCH_NONE;
}

nb_search_end nb_reshard_search(const nb_reshard_task *t, bool directed,
                                nb_route *r)
{
    search *s = nb_alloc_zero(sizeof *s);
    if (!s) return NB_SEARCH_FAILED;
    s->task = t;
    s->route = r;
    s->directed = directed;
    memset(s->bucket, -1, sizeof s->bucket);
    nb_search_end end = run(s);
    nb_free(s->node);
    nb_free(s->heap);
    nb_free(s);
    return end;
}
