/* search.c - bettering a choice.
 *
 * Search holds as many variables as it must for the rest to be eliminated at
 * small cost, finds the best for the rest, and does it again with others held:
 * each round is exact in a very large neighbourhood, so costs only fall.
 * Polishing changes one variable, or the two of a pair, within the budgets. */
#include "shard/solve/parts.h"

#include <math.h>
#include <string.h>

enum { SMALL = 200 * 1000, ORDERS = 24, EASY = 1000 * 1000 };
static const double HARD = 1e8; /* additions of a run */

static bool search_round(const nb_net *g, const double *cost, uint64_t seed,
                         bool *held, int *order, int *choice, double *value,
                         double *work)
{
    nb_order o = {.limit = SMALL, .seed = seed, .by_fill = seed & 1};
    memset(held, 0, (size_t)g->n);
    int n = nb_order_find(g, &o, held, order);
    if (n < 0) return false;
    nb_tree *t = nb_tree_new(g, held, n, order);
    if (!t) return false;
    double got;
    *work += o.work;
    if (nb_tree_run(t, cost, choice, &got) && got < *value) *value = got;
    nb_tree_free(t);
    return true;
}

static bool is_met(double value, double bound)
{
    return value - bound <= 1e-10 * fabs(value);
}

bool nb_search(const nb_net *g, const double *cost, int rounds, double bound,
               int *choice, double *value, double *work)
{
    bool *held = nb_alloc((size_t)g->n + 1);
    int *order = nb_alloc((size_t)(g->n + 1) * sizeof *order);
    bool ok = held && order;
    int idle = 0;
    *value = nb_net_cost(g, cost, choice);
    for (int k = 0; k < rounds && idle < 10 && ok; k++) {
        if (is_met(*value, bound)) break;
        double before = *value;
        ok = search_round(g, cost, 0x9e3779b97f4a7c15u * (uint64_t)(k + 1),
                          held, order, choice, value, work);
        idle = *value < before ? 0 : idle + 1;
    }
    nb_free(held);
    nb_free(order);
    return ok;
}

typedef struct polisher {
    const nb_net *g;
    int *choice;
    int64_t *bytes;
    double *u, *v; /* costs of the options of two variables */
} polisher;

static void options_cost(const polisher *s, int v, int but, double *to)
{
    const nb_net *g = s->g;
    int n = nb_net_count(g, v);
    memcpy(to, g->cost + g->at[v], (size_t)n * sizeof *to);
    for (int e = g->first[v]; e < g->first[v + 1]; e++) {
        const nb_net_pair *p = &g->pair[g->near[e]];
        int c = s->choice[nb_net_other(p, v)], nv = nb_net_count(g, p->v);
        if (g->near[e] == but) continue;
        for (int i = 0; i < n; i++)
            to[i] += p->u == v ? p->price[i * nv + c] : p->price[c * nv + i];
    }
}

/* Bytes that a change of v to i adds to a row. */
static int64_t more(const polisher *s, int row, int v, int i)
{
    const nb_net *g = s->g;
    const int64_t *b = g->bytes + (size_t)row * (size_t)g->at[g->n] + g->at[v];
    return b[i] - b[s->choice[v]];
}

static bool may(const polisher *s, int u, int i, int v, int j)
{
    for (int r = 0; r < s->g->nrows; r++) {
        int64_t sum = s->bytes[r] + more(s, r, u, i);
        if (v >= 0) sum += more(s, r, v, j);
        if (sum > s->g->budget[r]) return false;
    }
    return true;
}

static void change(polisher *s, int v, int i)
{
    for (int r = 0; r < s->g->nrows; r++)
        s->bytes[r] += more(s, r, v, i);
    s->choice[v] = i;
}

static bool polish_one(polisher *s, int v)
{
    int n = nb_net_count(s->g, v), best = s->choice[v];
    options_cost(s, v, -1, s->u);
    for (int i = 0; i < n; i++)
        if (s->u[i] < s->u[best] - 1e-12 * fabs(s->u[best]) &&
            may(s, v, i, -1, 0))
            best = i;
    if (best == s->choice[v]) return false;
    return change(s, v, best), true;
}

static bool polish_pair(polisher *s, int k)
{
    const nb_net_pair *p = &s->g->pair[k];
    int nu = nb_net_count(s->g, p->u), nv = nb_net_count(s->g, p->v);
    int a = s->choice[p->u], b = s->choice[p->v];
    options_cost(s, p->u, k, s->u);
    options_cost(s, p->v, k, s->v);
    double best = s->u[a] + s->v[b] + p->price[a * nv + b];
    for (int i = 0; i < nu; i++)
        for (int j = 0; j < nv; j++) {
            double x = s->u[i] + s->v[j] + p->price[i * nv + j];
            if (x >= best - 1e-12 * fabs(best) || !may(s, p->u, i, p->v, j))
                continue;
            best = x, a = i, b = j;
        }
    if (a == s->choice[p->u] && b == s->choice[p->v]) return false;
    change(s, p->u, a);
    change(s, p->v, b);
    return true;
}

bool nb_polish(const nb_net *g, int *choice, double *value)
{
    polisher s = {.g = g, .choice = choice};
    size_t total = (size_t)g->at[g->n] + 1;
    bool changed = true;
    s.bytes = nb_alloc((size_t)(g->nrows + 1) * sizeof *s.bytes);
    s.u = nb_alloc(2 * total * sizeof *s.u);
    if (s.bytes && s.u) {
        s.v = s.u + total;
        nb_net_bytes(g, choice, s.bytes);
        for (int k = 0; k < 20 && changed; k++) {
            changed = false;
            for (int v = 0; v < g->n; v++)
                changed |= polish_one(&s, v);
            for (int e = 0; e < g->npairs; e++)
                changed |= polish_pair(&s, e);
        }
        *value = nb_net_cost(g, g->cost, choice);
    }
    bool ok = s.bytes && s.u;
    nb_free(s.bytes);
    nb_free(s.u);
    return ok;
}

/* The cheapest of several orders; true if it eliminates all within the limit.
 */
static bool best_order(const nb_net *g, int64_t table, bool *held, int *order,
                       int *tried, bool *found)
{
    double best = INFINITY;
    *found = false;
    for (int k = 0; k < ORDERS && best > EASY; k++) {
        nb_order o = {.limit = table, .by_fill = k & 1};
        if (k > 1) o.seed = 0x9e3779b97f4a7c15u * (uint64_t)k;
        memset(held, 0, (size_t)g->n);
        int n = nb_order_find(g, &o, held, tried);
        if (n < 0) return false;
        if (n < g->n || o.entries > 1.5 * (double)table || o.work >= best)
            continue;
        best = o.work;
        *found = true;
        memcpy(order, tried, (size_t)n * sizeof *order);
    }
    memset(held, 0, (size_t)g->n);
    return true;
}

bool nb_relaxed_open(nb_relaxed *r, const nb_net *g, int64_t table)
{
    bool *held = nb_alloc_zero((size_t)g->n + 1), found = false;
    int *order = nb_alloc(2 * (size_t)(g->n + 1) * sizeof *order);
    *r = (nb_relaxed){.g = g};
    bool ok = held && order &&
              best_order(g, table, held, order, order + g->n, &found);
    if (ok && found) r->tree = nb_tree_new(g, held, g->n, order);
    nb_free(held);
    nb_free(order);
    return ok && (!found || r->tree);
}

void nb_relaxed_close(nb_relaxed *r)
{
    nb_tree_free(r->tree);
    r->tree = NULL;
}

static bool all_finite(const nb_net *g, const double *cost)
{
    for (int i = 0; i < g->at[g->n]; i++)
        if (!isfinite(cost[i])) return false;
    return true;
}

/* A tree that takes long is kept for where messages leave a gap. */
bool nb_relaxed_run(nb_relaxed *r, const double *cost, int *choice,
                    double *value, double *bound)
{
    const nb_net *g = r->g;
    bool hard = !r->tree || nb_tree_work(r->tree) > HARD;
    r->work += 20.0 * g->at[g->n];
    if (hard && all_finite(g, cost)) {
        if (!nb_sweep(g, cost, 200, choice, bound) ||
            !nb_search(g, cost, 60, *bound, choice, value, &r->work))
            return false;
        if (!r->tree || is_met(*value, *bound)) return true;
    }
    nb_tree_run(r->tree, cost, choice, value);
    r->work += nb_tree_work(r->tree);
    return *bound = *value, true;
}
