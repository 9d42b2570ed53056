/* test_reshard_bound.c - what no plan can do with less: bounds against all that
 * devices could possibly do, on tensors of a few elements.
 *
 * Of each element a device knows some sums of addends: its own to begin with,
 * those that it received, and what they make together.  In a step one device
 * tells another one a sum that it knows.  All orders of all steps are tried, and
 * the counts of receives, by device, with which everybody that wants the sum
 * can have it are kept.  Elements do not meet, so their counts only add up. */
#include "support/check.h"
#include "support/simulate.h"

#include "shard/plan/deal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 4, COUNT = 8, TALLIES = COUNT * COUNT * COUNT * COUNT };

/* Who has which addend of an element, or -1, and who wants the sum. */
typedef struct element {
    int n, addends, wanted; /* devices; those that want it */
    int has[DEVICES];
    bool wants[DEVICES];
} element;

/* Sums that each device knows, a bit for every set of addends; receives of each
 * in base COUNT. */
typedef struct state {
    uint16_t knows[DEVICES];
    int tally;
} state;

typedef struct search {
    const element *e;
    int most;   /* receives of a device */
    bool *done; /* by tally */
    state *seen;
    int nseen, room;
    int *table, slots;
} search;

static int tally_of(const int *count)
{
    int t = 0;
    for (int d = 0; d < DEVICES; d++)
        t = t * COUNT + count[d];
    return t;
}

static void counts_of(int tally, int *count)
{
    for (int d = DEVICES - 1; d >= 0; d--, tally /= COUNT)
        count[d] = tally % COUNT;
}

/* Sums of disjoint sets are known too.  Remembered: 0 is not yet. */
static uint16_t closed(uint16_t knows)
{
    static uint16_t memo[1 << 16];
    uint16_t *is = &memo[knows];
    if (*is) return *is;
    for (uint16_t before = 0; before != knows;) {
        before = knows;
        for (int a = 1; a < 16; a++)
            for (int b = a + 1; b < 16; b++)
                if (knows >> a & 1 && knows >> b & 1 && !(a & b))
                    knows |= (uint16_t)(1u << (a | b));
    }
    return *is = knows;
}

static void grow(search *s)
{
    s->room = s->room ? 2 * s->room : 1024;
    s->seen = realloc(s->seen, (size_t)s->room * sizeof *s->seen);
    s->slots = 4 * s->room;
    s->table = realloc(s->table, (size_t)s->slots * sizeof *s->table);
    memset(s->table, -1, (size_t)s->slots * sizeof *s->table);
}

static int *slot(search *s, const state *x)
{
    uint64_t h = 1469598103934665603u;
    for (int d = 0; d < DEVICES; d++)
        h = (h ^ x->knows[d]) * 1099511628211u;
    h = (h ^ (uint64_t)x->tally) * 1099511628211u;
    int at = (int)((h ^ h >> 32) % (uint64_t)s->slots);
    while (s->table[at] >= 0) {
        const state *y = &s->seen[s->table[at]];
        if (y->tally == x->tally &&
            !memcmp(y->knows, x->knows, sizeof x->knows))
            break;
        at = (at + 1) % s->slots;
    }
    return &s->table[at];
}

static void meet(search *s, const state *x)
{
    if (s->nseen == s->room) {
        grow(s);
        for (int i = 0; i < s->nseen; i++)
            *slot(s, &s->seen[i]) = i;
    }
    int *at = slot(s, x);
    if (*at >= 0) return;
    *at = s->nseen;
    s->seen[s->nseen++] = *x;
}

static bool is_done(const element *e, const state *x)
{
    int all = (1 << e->addends) - 1;
    for (int d = 0; d < e->n; d++)
        if (e->wants[d] && !(x->knows[d] >> all & 1)) return false;
    return true;
}

/* Device d receives a sum that it does not know. */
static void receive(search *s, state x, int d)
{
    int count[DEVICES], all = 0;
    uint16_t told = 0;
    counts_of(x.tally, count);
    if (count[d] == s->most) return;
    for (int i = 0; i < DEVICES; i++)
        all += count[i];
    if (all == s->e->addends + s->e->wanted) return; /* more helps nobody */
    count[d]++;
    for (int i = 0; i < s->e->n; i++)
        told |= x.knows[i];
    told &= (uint16_t)~x.knows[d];
    for (int a = 1; a < 16; a++) {
        state next = x;
        if (!(told >> a & 1)) continue;
        next.knows[d] = closed(x.knows[d] | (uint16_t)(1u << a));
        next.tally = tally_of(count);
        meet(s, &next);
    }
}

/* Marks the tallies with which an element can be done. */
static void try_all(const element *e, int most, bool *done)
{
    search s = {.e = e, .most = most};
    state first = {{0}, 0};
    memset(done, 0, TALLIES);
    for (int d = 0; d < e->n; d++)
        if (e->has[d] >= 0) first.knows[d] = (uint16_t)(1u << (1 << e->has[d]));
    meet(&s, &first);
    for (int i = 0; i < s.nseen; i++) {
        state x = s.seen[i];
        if (is_done(e, &x)) {
            done[x.tally] = true;
            continue;
        }
        for (int d = 0; d < e->n; d++)
            receive(&s, x, d);
    }
    free(s.seen);
    free(s.table);
}

/* Those of two elements together. */
static void add(bool *sum, const bool *one, int most)
{
    bool *next = calloc(TALLIES, sizeof *next);
    for (int a = 0; a < TALLIES; a++)
        for (int b = 0; sum[a] && b < TALLIES; b++) {
            int x[DEVICES], y[DEVICES];
            bool fits = one[b];
            if (!fits) continue;
            counts_of(a, x);
            counts_of(b, y);
            for (int d = 0; d < DEVICES; d++)
                fits &= (x[d] += y[d]) <= most;
            if (fits) next[tally_of(x)] = true;
        }
    memcpy(sum, next, TALLIES * sizeof *sum);
    free(next);
}

static bool is_in(const nb_box *b, int rank, const int64_t *size, int64_t at)
{
    for (int d = rank - 1; d >= 0; d--) {
        int64_t i = at % size[d] - b->start[d];
        if (i < 0 || i >= b->size[d]) return false;
        at /= size[d];
    }
    return true;
}

static element element_of(const reshard_case *c, int n, const int *member,
                          int64_t at)
{
    element e = {.n = n};
    int64_t seen[DEVICES];
    for (int i = 0; i < n; i++) {
        nb_box has, wants;
        int64_t mine = nb_cut_index(c->mesh, &c->from->partial, member[i]);
        int k = 0;
        nb_spec_box(c->from, c->size, member[i], &has);
        nb_spec_box(c->into, c->size, member[i], &wants);
        while (k < e.addends && seen[k] != mine)
            k++;
        if (k == e.addends) seen[e.addends++] = mine;
        e.has[i] = is_in(&has, c->rank, c->size, at) ? k : -1;
        e.wanted += e.wants[i] = is_in(&wants, c->rank, c->size, at);
    }
    return e;
}

/* The least that the device with most receives, `most` or less; else -1. */
static int least(const reshard_case *c, int n, const int *member, int most)
{
    bool *sum = calloc(TALLIES, sizeof *sum), *one = malloc(TALLIES);
    int best = -1;
    sum[0] = true;
    for (int64_t at = 0; at < c->elements; at++) {
        element e = element_of(c, n, member, at);
        try_all(&e, most, one);
        add(sum, one, most);
    }
    for (int t = 0; t < TALLIES; t++) {
        int count[DEVICES], max = 0;
        counts_of(t, count);
        for (int d = 0; d < DEVICES; d++)
            max = count[d] > max ? count[d] : max;
        if (sum[t] && (best < 0 || max < best)) best = max;
    }
    free(sum);
    free(one);
    return best;
}

/* A few elements on up to four devices, what is pending and what is wanted
 * drawn. */
static reshard_case draw_case(void)
{
    static const struct {
        int naxes, size[2];
    } shape[] = {{1, {2}}, {1, {3}}, {1, {4}}, {2, {2, 2}}, {2, {2, 2}}};
    unsigned k = below(5);
    reshard_case c = {.rank = 1 + (int)below(2), .elements = 1};
    c.mesh = nb_mesh_new("m", shape[k].naxes, (const char *[]){"x", "y"},
                         shape[k].size, NULL);
    for (int d = 0; d < c.rank; d++)
        c.elements *= c.size[d] = 1 + (int)below(4 / (unsigned)c.elements);
    c.from = spec_draw(c.mesh, c.rank, NB_SUM, true);
    c.into = spec_draw(c.mesh, c.rank, NB_SUM, false);
    return c;
}

/* Four addends that three devices want: too many orders to try. */
static bool is_large(const reshard_case *c)
{
    int wanted = 0;
    for (int p = 0; p < c->mesh->ndevices; p++) {
        nb_box wants;
        nb_spec_box(c->into, c->size, p, &wants);
        wanted += (int)nb_box_count(c->rank, &wants);
    }
    return nb_cut_count(&c->from->partial) == 4 && wanted > 2 * c->elements;
}

/* The groups that plans over the axes of both specs know. */
static int optimum(const reshard_case *c, int most)
{
    nb_reshard_task t = {
        .from = c->from, .into = c->into, .size = c->size, .item = 1};
    nb_cut axes;
    int worst = 0;
    nb_reshard_open(&t);
    if (!nb_reshard_all_axes(&t, &axes)) return -1;
    for (int p = 0; p < c->mesh->ndevices; p++) {
        int member[DEVICES];
        if (nb_cut_index(c->mesh, &axes, p)) continue;
        int n = nb_cut_group(c->mesh, &axes, p, member);
        int best = least(c, n, member, most);
        if (best < 0) return -1;
        worst = best > worst ? best : worst;
    }
    return worst;
}

static void test_bound(void)
{
    int minimal = 0, tight = 0, pending = 0, cases = 0;
    nb_plan_options direct = {.exchange = true};
    for (int i = 0; i < 500; i++) {
        reshard_case c = draw_case();
        if (is_large(&c)) continue;
        const nb_reshard_plan *p =
            nb_reshard_find(c.from, c.into, c.size, 1, &direct);
        if (!expect(p && p->bytes < COUNT, "case %d has a plan", i)) return;
        int best = optimum(&c, (int)p->bytes);
        expect(best >= 0 && p->bound <= best, "case %d: bound %lld, best %d", i,
               (long long)p->bound, best);
        cases++;
        pending += c.from->partial.n > 0;
        tight += p->bound == best;
        minimal += p->bytes == best;
    }
    printf(
        "%d cases, %d pending: bound reached by something in %d, by the plan "
        "in %d\n",
        cases, pending, tight, minimal);
    expect(4 * tight > 3 * cases && 4 * minimal > 3 * cases,
           "most bounds can be reached, and most plans are the best");
}

int main(void)
{
    void (*const all[])(void) = {test_bound};
    none_leaks(sizeof all / sizeof all[0], all);
    return tally();
}
