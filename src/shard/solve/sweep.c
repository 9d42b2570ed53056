/* sweep.c - sequential tree-reweighted message passing.
 *
 * For nets too wide to eliminate.  Every pair has a message each way, what the
 * one end says the other's options cost; adding messages to options and taking
 * them from pairs changes no sum.  Going forth and back along the variables,
 * each spreads what it knows evenly over the chains through it; the minima that
 * are split off add up to a bound, which no pass lowers.  (Kolmogorov 2006.)
 *
 * Prices are finite in at least one place of every row and column, as after
 * pruning; then so are messages. */
#include "shard/solve/parts.h"

#include <math.h>
#include <string.h>

typedef struct sweep {
    const nb_net *g;
    const double *cost;
    double **to_u, **to_v; /* messages of each pair */
    double **turned;       /* its table, options of u side by side */
    double *room, *own;    /* all of these; one variable's sum */
} sweep;

static double *message(const sweep *s, int pair, int to)
{
    return s->g->pair[pair].u == to ? s->to_u[pair] : s->to_v[pair];
}

static double take_least(double *x, int n)
{
    double least = x[0];
    for (int i = 1; i < n; i++)
        if (x[i] < least) least = x[i];
    for (int i = 0; i < n; i++)
        x[i] -= least;
    return least;
}

/* A variable's costs with all that others say. */
static void gather(const sweep *s, int v)
{
    const nb_net *g = s->g;
    int n = nb_net_count(g, v);
    memcpy(s->own, s->cost + g->at[v], (size_t)n * sizeof *s->own);
    for (int e = g->first[v]; e < g->first[v + 1]; e++) {
        const double *m = message(s, g->near[e], v);
        for (int i = 0; i < n; i++)
            s->own[i] += m[i];
    }
}

/* Sends from v along a pair; returns what was split off. */
static double send(const sweep *s, int v, int pair, double share)
{
    const nb_net *g = s->g;
    const nb_net_pair *p = &g->pair[pair];
    int w = nb_net_other(p, v), n = nb_net_count(g, v), nw = nb_net_count(g, w);
    const double *price = p->u == v ? p->price : s->turned[pair];
    const double *back = message(s, pair, v);
    double *m = message(s, pair, w);
    for (int k = 0; k < nw; k++)
        m[k] = INFINITY;
    for (int i = 0; i < n; i++, price += nw) {
        double x = share * s->own[i] - back[i];
        for (int k = 0; k < nw; k++)
            m[k] = x + price[k] < m[k] ? x + price[k] : m[k];
    }
    return take_least(m, nw);
}

static double share_of(const nb_net *g, int v)
{
    int before = 0, after = 0;
    for (int e = g->first[v]; e < g->first[v + 1]; e++)
        *(nb_net_other(&g->pair[g->near[e]], v) < v ? &before : &after) += 1;
    int most = before > after ? before : after;
    return most ? 1.0 / most : 1;
}

/* One pass; what is split off in it. */
static double pass(const sweep *s, bool forth)
{
    const nb_net *g = s->g;
    double sum = 0;
    for (int k = 0; k < g->n; k++) {
        int v = forth ? k : g->n - 1 - k;
        gather(s, v);
        sum += take_least(s->own, nb_net_count(g, v));
        for (int e = g->first[v]; e < g->first[v + 1]; e++)
            if ((nb_net_other(&g->pair[g->near[e]], v) > v) == forth)
                sum += send(s, v, g->near[e], share_of(g, v));
    }
    return sum;
}

/* Variables one after another: pairs with what is chosen, messages of what is
 * not. */
static void decode(const sweep *s, int *choice)
{
    const nb_net *g = s->g;
    for (int v = 0; v < g->n; v++) {
        int n = nb_net_count(g, v), best = 0;
        memcpy(s->own, s->cost + g->at[v], (size_t)n * sizeof *s->own);
        for (int e = g->first[v]; e < g->first[v + 1]; e++) {
            const nb_net_pair *p = &g->pair[g->near[e]];
            int w = nb_net_other(p, v), nv = nb_net_count(g, p->v);
            const double *m = message(s, g->near[e], v);
            for (int i = 0; i < n; i++)
                s->own[i] += w > v       ? m[i]
                             : p->u == v ? p->price[i * nv + choice[w]]
                                         : p->price[choice[w] * nv + i];
        }
        for (int i = 1; i < n; i++)
            if (s->own[i] < s->own[best]) best = i;
        choice[v] = best;
    }
}

static void turn(const nb_net *g, const nb_net_pair *p, double *to)
{
    int nu = nb_net_count(g, p->u), nv = nb_net_count(g, p->v);
    for (int j = 0; j < nv; j++)
        for (int i = 0; i < nu; i++)
            *to++ = p->price[i * nv + j];
}

static bool sweep_open(sweep *s)
{
    const nb_net *g = s->g;
    size_t total = (size_t)g->at[g->n] + 1, pairs = (size_t)g->npairs + 1;
    for (int k = 0; k < g->npairs; k++) {
        size_t nu = (size_t)nb_net_count(g, g->pair[k].u);
        size_t nv = (size_t)nb_net_count(g, g->pair[k].v);
        total += nu + nv + nu * nv;
    }
    s->room = nb_alloc_zero(total * sizeof *s->room);
    s->to_u = nb_alloc(3 * pairs * sizeof *s->to_u);
    if (!s->room || !s->to_u) return false;
    s->to_v = s->to_u + pairs;
    s->turned = s->to_v + pairs;
    double *at = s->room;
    for (int k = 0; k < g->npairs; k++) {
        int nu = nb_net_count(g, g->pair[k].u);
        int nv = nb_net_count(g, g->pair[k].v);
        s->to_u[k] = at, at += nu;
        s->to_v[k] = at, at += nv;
        s->turned[k] = at, at += (int64_t)nu * nv;
        turn(g, &g->pair[k], s->turned[k]);
    }
    s->own = at;
    return true;
}

bool nb_sweep(const nb_net *g, const double *cost, int rounds, int *choice,
              double *bound)
{
    sweep s = {.g = g, .cost = cost};
    int *tried = nb_alloc((size_t)(g->n + 1) * sizeof *tried);
    double best = INFINITY;
    bool ok = tried && sweep_open(&s);
    *bound = -INFINITY;
    for (int k = 0; k < rounds && ok; k++) {
        pass(&s, true);
        decode(&s, tried);
        double value = nb_net_cost(g, cost, tried), low = pass(&s, false);
        if (value < best || k == 0)
            memcpy(choice, tried, (size_t)g->n * sizeof *choice);
        if (value < best) best = value;
        bool slow = low - *bound < 1e-7 * (fabs(low) + 1e-300);
        if (low > *bound) *bound = low;
        if (best - low <= 1e-12 * fabs(best) || (slow && k > 20)) break;
    }
    nb_free(tried);
    nb_free(s.room);
    nb_free(s.to_u);
    return ok;
}
