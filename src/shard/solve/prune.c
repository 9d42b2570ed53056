/* prune.c - options that no optimum needs.
 *
 * An option goes if it costs infinitely much, by itself or with every option of
 * some other variable.  And it goes if another of the same variable is never
 * worse: i may always be replaced by j if it has no fewer bytes in any row and
 *
 *     cost i - cost j + sum over pairs of min over k (t[i][k] - t[j][k]) >= 0
 *
 * which is exact, also under budgets, as options go one at a time. */
#include "shard/solve/parts.h"

#include <math.h>
#include <string.h>

typedef struct pruner {
    const nb_net *g;
    bool *gone, *again; /* options; variables to look at again */
} pruner;

static double price_at(const nb_net *g, const nb_net_pair *p, int v, int i,
                       int k)
{
    int nv = nb_net_count(g, p->v);
    return p->u == v ? p->price[i * nv + k] : p->price[k * nv + i];
}

static void remove_option(pruner *r, int v, int i)
{
    const nb_net *g = r->g;
    r->gone[g->at[v] + i] = true;
    for (int e = g->first[v]; e < g->first[v + 1]; e++)
        r->again[nb_net_other(&g->pair[g->near[e]], v)] = true;
    r->again[v] = true;
}

static bool has_partner(const pruner *r, const nb_net_pair *p, int v, int i)
{
    const nb_net *g = r->g;
    int w = nb_net_other(p, v);
    for (int k = 0; k < nb_net_count(g, w); k++)
        if (!r->gone[g->at[w] + k] && isfinite(price_at(g, p, v, i, k)))
            return true;
    return false;
}

static bool is_possible(const pruner *r, int v, int i)
{
    const nb_net *g = r->g;
    if (!isfinite(g->cost[g->at[v] + i])) return false;
    for (int e = g->first[v]; e < g->first[v + 1]; e++)
        if (!has_partner(r, &g->pair[g->near[e]], v, i)) return false;
    return true;
}

/* min over k of t[i][k] - t[j][k]; what neither can have does not count. */
static double least_gain(const pruner *r, const nb_net_pair *p, int v, int i,
                         int j)
{
    const nb_net *g = r->g;
    int w = nb_net_other(p, v), nw = nb_net_count(g, w);
    bool is_u = p->u == v;
    int nv = nb_net_count(g, p->v), step = is_u ? 1 : nv;
    const double *a = p->price + (is_u ? i * nv : i);
    const double *b = p->price + (is_u ? j * nv : j);
    const bool *gone = r->gone + g->at[w];
    double least = INFINITY;
    for (int k = 0; k < nw; k++) {
        double x = a[k * step], y = b[k * step];
        if (gone[k] || isinf(x)) continue;
        if (isinf(y)) return -INFINITY;
        if (x - y < least) least = x - y;
    }
    return least;
}

static bool is_replaced(const pruner *r, int v, int i, int j)
{
    const nb_net *g = r->g;
    size_t total = (size_t)g->at[g->n];
    const int64_t *bytes = g->bytes + g->at[v];
    for (size_t row = 0; row < (size_t)g->nrows; row++)
        if (bytes[row * total + (size_t)i] < bytes[row * total + (size_t)j])
            return false;
    double gain = g->cost[g->at[v] + i] - g->cost[g->at[v] + j];
    for (int e = g->first[v]; e < g->first[v + 1]; e++) {
        gain += least_gain(r, &g->pair[g->near[e]], v, i, j);
        if (gain == -INFINITY) return false;
    }
    return gain >= 0;
}

static bool is_needed(const pruner *r, int v, int i)
{
    const nb_net *g = r->g;
    int n = nb_net_count(g, v);
    for (int j = 0; j < n; j++)
        if (j != i && !r->gone[g->at[v] + j] && is_replaced(r, v, i, j))
            return false;
    return true;
}

/* False if nothing is left of the variable. */
static bool prune_variable(pruner *r, int v)
{
    const nb_net *g = r->g;
    int left = 0;
    r->again[v] = false;
    for (int i = 0; i < nb_net_count(g, v); i++)
        if (!r->gone[g->at[v] + i] && !is_possible(r, v, i))
            remove_option(r, v, i);
    for (int i = nb_net_count(g, v) - 1; i >= 0; i--) {
        if (r->gone[g->at[v] + i]) continue;
        if (is_needed(r, v, i))
            left++;
        else
            remove_option(r, v, i);
    }
    return left > 0;
}

int nb_net_prune(const nb_net *g, bool *gone)
{
    pruner r = {.g = g, .gone = gone};
    bool more = true;
    r.again = nb_alloc((size_t)g->n + 1);
    if (!r.again) return -1;
    memset(r.again, true, (size_t)g->n);
    int ok = 1;
    while (more && ok) {
        more = false;
        for (int v = 0; v < g->n && ok; v++) {
            if (!r.again[v]) continue;
            ok = prune_variable(&r, v);
            more = true;
        }
    }
    nb_free(r.again);
    return ok;
}
