/* order.c - in which order variables are eliminated.
 *
 * Greedy: the one whose table is smallest next, or the one that adds least to
 * what the others must know of each other.  With a seed, choices are shaken a
 * little, so that many orders can be tried. */
#include "shard/solve/parts.h"

#include <math.h>
#include <string.h>

typedef struct orderer {
    const nb_net *g;
    const nb_order *o;
    int words;
    uint64_t *near; /* n rows of bits: who is in one table with whom */
    uint64_t *left; /* not yet eliminated nor held */
    double *key, *size;
    int *list;
    uint64_t random;
} orderer;

static uint64_t *row(const orderer *s, int v)
{
    return s->near + (size_t)v * (size_t)s->words;
}

static bool has(const uint64_t *bits, int v)
{
    return bits[v >> 6] >> (v & 63) & 1;
}

static double shake(orderer *s)
{
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return (double)(s->random >> 11) * 0x1p-53;
}

static int neighbours(const orderer *s, int v, int *list)
{
    int n = 0;
    for (int w = 0; w < s->words; w++)
        for (uint64_t bits = row(s, v)[w]; bits; bits &= bits - 1)
            list[n++] = w * 64 + __builtin_ctzll(bits);
    return n;
}

/* Entries of the tables that would come to be between neighbours. */
static double fill(const orderer *s, const int *list, int n)
{
    double sum = 0;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < a; b++)
            if (!has(row(s, list[a]), list[b]))
                sum += (double)nb_net_count(s->g, list[a]) *
                       nb_net_count(s->g, list[b]);
    return sum;
}

static void weigh(orderer *s, int v)
{
    int *list = s->list + s->g->n, n = neighbours(s, v, list);
    double size = 1;
    for (int k = 0; k < n; k++)
        size *= nb_net_count(s->g, list[k]);
    s->size[v] = size;
    double key = size * nb_net_count(s->g, v);
    if (s->o->by_fill) key = fill(s, list, n) + 1e-9 * key;
    if (s->o->seed) key *= 1 + 0.5 * shake(s) * shake(s);
    s->key[v] = key;
}

static void leave(orderer *s, int v, int n)
{
    s->left[v >> 6] &= ~(1ull << (v & 63));
    for (int k = 0; k < n; k++)
        row(s, s->list[k])[v >> 6] &= ~(1ull << (v & 63));
}

/* v goes; its neighbours come together in one table. */
static void eliminate(orderer *s, int v)
{
    int n = neighbours(s, v, s->list);
    leave(s, v, n);
    for (int a = 0; a < n; a++) {
        uint64_t *r = row(s, s->list[a]);
        for (int w = 0; w < s->words; w++)
            r[w] |= row(s, v)[w];
        r[s->list[a] >> 6] &= ~(1ull << (s->list[a] & 63));
    }
    for (int a = 0; a < n; a++)
        weigh(s, s->list[a]);
}

/* v is held: to the others it is a number. */
static void hold(orderer *s, int v)
{
    int n = neighbours(s, v, s->list);
    leave(s, v, n);
    for (int a = 0; a < n; a++)
        weigh(s, s->list[a]);
}

/* The least key among those whose table is within the limit, or -1. */
static int pick(const orderer *s)
{
    int best = -1;
    for (int v = 0; v < s->g->n; v++)
        if (has(s->left, v) && s->size[v] <= (double)s->o->limit &&
            (best < 0 || s->key[v] < s->key[best]))
            best = v;
    return best;
}

/* The one that is in the most, or the largest, tables: -1 if none is left. */
static int pick_held(orderer *s)
{
    int best = -1;
    double most = -1;
    for (int v = 0; v < s->g->n; v++) {
        if (!has(s->left, v)) continue;
        double m = neighbours(s, v, s->list) + log(s->size[v] + 1);
        if (s->o->seed) m *= 0.5 + shake(s);
        if (m > most) most = m, best = v;
    }
    return best;
}

static void start(orderer *s, const bool *held)
{
    const nb_net *g = s->g;
    for (int v = 0; v < g->n; v++)
        if (!held[v]) s->left[v >> 6] |= 1ull << (v & 63);
    for (int k = 0; k < g->npairs; k++) {
        int u = g->pair[k].u, v = g->pair[k].v;
        if (held[u] || held[v]) continue;
        row(s, u)[v >> 6] |= 1ull << (v & 63);
        row(s, v)[u >> 6] |= 1ull << (u & 63);
    }
    for (int v = 0; v < g->n; v++)
        if (!held[v]) weigh(s, v);
}

int nb_order_find(const nb_net *g, nb_order *o, bool *held, int *order)
{
    orderer s = {.g = g, .o = o, .words = g->n / 64 + 1, .random = o->seed};
    size_t n = (size_t)g->n + 1, words = (size_t)s.words;
    int count = 0;
    s.near = nb_alloc_zero((n + 1) * words * sizeof *s.near);
    s.key = nb_alloc(2 * n * sizeof *s.key);
    s.list = nb_alloc(2 * n * sizeof *s.list);
    if (s.near && s.key && s.list) {
        s.left = s.near + n * words;
        s.size = s.key + n;
        o->work = o->entries = 0;
        start(&s, held);
        for (int v; (v = pick(&s)) >= 0 || (v = pick_held(&s)) >= 0;) {
            bool fits = s.size[v] <= (double)o->limit;
            held[v] = !fits;
            if (fits) {
                o->work += s.size[v] * nb_net_count(g, v);
                o->entries += s.size[v];
                order[count++] = v;
                eliminate(&s, v);
            } else
                hold(&s, v);
        }
    } else
        count = -1;
    nb_free(s.near);
    nb_free(s.key);
    nb_free(s.list);
    return count;
}
