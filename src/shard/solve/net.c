/* net.c - a problem as a net: ties made one variable, tables of the same
 * two variables added up. */
#include "shard/solve/parts.h"

#include <stdlib.h>
#include <string.h>

void nb_net_free(nb_net *g)
{
    if (!g) return;
    for (int i = 0; i < g->npairs; i++)
        nb_free(g->pair[i].price);
    nb_free(g->at);
    nb_free(g->cost);
    nb_free(g->bytes);
    nb_free(g->budget);
    nb_free(g->row);
    nb_free(g->pair);
    nb_free(g->first);
    nb_free(g->near);
    nb_free(g->var);
    nb_free(g->option);
    nb_free(g);
}

/* Room for everything; at[] is filled in, pairs have no tables yet. */
static nb_net *net_new(int n, int npairs, int nrows, int nnodes,
                       const int *count)
{
    nb_net *g = nb_alloc_zero(sizeof *g);
    if (!g) return NULL;
    size_t rows = (size_t)(nrows + 1), pairs = (size_t)(npairs + 1);
    g->n = n, g->nrows = nrows, g->nnodes = nnodes;
    g->at = nb_alloc_zero((size_t)(n + 1) * sizeof *g->at);
    if (!g->at) return nb_net_free(g), NULL;
    for (int v = 0; v < n; v++)
        g->at[v + 1] = g->at[v] + count[v];
    size_t total = (size_t)g->at[n] + 1;
    g->cost = nb_alloc_zero(total * sizeof *g->cost);
    g->option = nb_alloc_zero(total * sizeof *g->option);
    g->bytes = nb_alloc_zero(total * rows * sizeof *g->bytes);
    g->budget = nb_alloc_zero(rows * sizeof *g->budget);
    g->row = nb_alloc_zero(rows * sizeof *g->row);
    g->pair = nb_alloc_zero(pairs * sizeof *g->pair);
    g->near = nb_alloc_zero(2 * pairs * sizeof *g->near);
    g->first = nb_alloc_zero((size_t)(n + 2) * sizeof *g->first);
    g->var = nb_alloc_zero((size_t)(nnodes + 1) * sizeof *g->var);
    if (g->cost && g->option && g->bytes && g->budget && g->row && g->pair &&
        g->near && g->first && g->var)
        return g;
    return nb_net_free(g), NULL;
}

static void link_pairs(nb_net *g)
{
    memset(g->first, 0, (size_t)(g->n + 2) * sizeof *g->first);
    for (int k = 0; k < g->npairs; k++) {
        g->first[g->pair[k].u + 2]++;
        g->first[g->pair[k].v + 2]++;
    }
    for (int v = 0; v < g->n; v++)
        g->first[v + 2] += g->first[v + 1];
    for (int k = 0; k < g->npairs; k++) {
        g->near[g->first[g->pair[k].u + 1]++] = k;
        g->near[g->first[g->pair[k].v + 1]++] = k;
    }
}

/* A table of the problem in the terms of variables, u the smaller. */
typedef struct line {
    int u, v, from;
    bool turned;
} line;

static int by_ends(const void *a, const void *b)
{
    const line *x = a, *y = b;
    if (x->u != y->u) return x->u < y->u ? -1 : 1;
    if (x->v != y->v) return x->v < y->v ? -1 : 1;
    return x->from - y->from;
}

static void add_table(double *to, const nb_net *g, const line *l,
                      const double *price)
{
    int nu = nb_net_count(g, l->u), nv = nb_net_count(g, l->v);
    for (int i = 0; i < nu; i++)
        for (int j = 0; j < nv; j++)
            to[i * nv + j] += l->turned ? price[j * nu + i] : price[i * nv + j];
}

static bool join_pairs(nb_net *g, const nb_problem *p, const line *l, int n)
{
    for (int k = 0; k < n; k++) {
        const double *price = p->pair[l[k].from].price;
        int nu = nb_net_count(g, l[k].u), nv = nb_net_count(g, l[k].v);
        if (l[k].u == l[k].v) {
            for (int i = 0; i < nu; i++)
                g->cost[g->at[l[k].u] + i] += price[i * nu + i];
            continue;
        }
        nb_net_pair *last = g->npairs ? &g->pair[g->npairs - 1] : NULL;
        if (!last || last->u != l[k].u || last->v != l[k].v) {
            double *t = nb_alloc_zero((size_t)nu * (size_t)nv * sizeof *t);
            if (!t) return false;
            g->pair[g->npairs++] = (nb_net_pair){l[k].u, l[k].v, t};
            last = &g->pair[g->npairs - 1];
        }
        add_table(last->price, g, &l[k], price);
    }
    return true;
}

static bool add_pairs(nb_net *g, const nb_problem *p)
{
    line *l = nb_alloc((size_t)(p->npairs + 1) * sizeof *l);
    if (!l) return false;
    for (int k = 0; k < p->npairs; k++) {
        int u = g->var[p->pair[k].u], v = g->var[p->pair[k].v];
        l[k] = (line){u < v ? u : v, u < v ? v : u, k, u > v};
    }
    if (p->npairs) qsort(l, (size_t)p->npairs, sizeof *l, by_ends);
    bool ok = join_pairs(g, p, l, p->npairs);
    nb_free(l);
    if (ok) link_pairs(g);
    return ok;
}

static void add_node(nb_net *g, const nb_problem *p, int i)
{
    const nb_node_said *said = &p->node[i];
    int from = g->at[g->var[i]];
    size_t total = (size_t)g->at[g->n];
    for (int k = 0; k < said->count; k++) {
        g->option[from + k] = k;
        g->cost[from + k] += said->cost[k];
        for (int r = 0; r < g->nrows; r++)
            g->bytes[(size_t)r * total + (size_t)(from + k)] +=
                said->bytes[g->row[r] * said->count + k];
    }
}

nb_net *nb_net_new(const nb_problem *p)
{
    int n = 0, nrows = 0, *count, *var;
    count = nb_alloc((size_t)(p->n + 1) * 2 * sizeof *count);
    if (!count) return NULL;
    var = count + p->n;
    for (int i = 0; i < p->n; i++) {
        int root = nb_problem_root(p, i);
        var[i] = root == i ? n : var[root];
        if (root == i) count[n++] = p->node[i].count;
    }
    for (int r = 0; r < p->nrows; r++)
        nrows += p->budget[r] >= 0;
    nb_net *g = net_new(n, p->npairs, nrows, p->n, count);
    if (g) memcpy(g->var, var, (size_t)p->n * sizeof *var);
    nb_free(count);
    if (!g) return NULL;
    for (int r = 0, k = 0; r < p->nrows; r++)
        if (p->budget[r] >= 0) {
            g->row[k] = r;
            g->budget[k++] = p->budget[r];
        }
    for (int i = 0; i < p->n; i++)
        add_node(g, p, i);
    return add_pairs(g, p) ? g : (nb_net_free(g), NULL);
}

/* Copies what is left of the options of a variable. */
static void keep_options(nb_net *to, const nb_net *g, int v, const bool *gone)
{
    size_t total = (size_t)to->at[to->n], all = (size_t)g->at[g->n];
    size_t k = (size_t)to->at[v];
    for (int i = g->at[v]; i < g->at[v + 1]; i++) {
        if (gone[i]) continue;
        to->cost[k] = g->cost[i];
        to->option[k] = g->option[i];
        for (size_t r = 0; r < (size_t)g->nrows; r++)
            to->bytes[r * total + k] = g->bytes[r * all + (size_t)i];
        k++;
    }
}

static bool keep_pair(nb_net *to, const nb_net *g, const nb_net_pair *p,
                      const bool *gone)
{
    size_t n = (size_t)nb_net_count(to, p->u) * (size_t)nb_net_count(to, p->v);
    int nu = nb_net_count(g, p->u), nv = nb_net_count(g, p->v);
    double *t = nb_alloc(n * sizeof *t), *w = t;
    if (!t) return false;
    for (int i = 0; i < nu; i++)
        for (int j = 0; j < nv; j++)
            if (!gone[g->at[p->u] + i] && !gone[g->at[p->v] + j])
                *w++ = p->price[i * nv + j];
    to->pair[to->npairs++] = (nb_net_pair){p->u, p->v, t};
    return true;
}

nb_net *nb_net_keep(const nb_net *g, const bool *gone)
{
    int *count = nb_alloc_zero((size_t)(g->n + 1) * sizeof *count);
    if (!count) return NULL;
    for (int v = 0; v < g->n; v++)
        for (int i = g->at[v]; i < g->at[v + 1]; i++)
            count[v] += !gone[i];
    nb_net *to = net_new(g->n, g->npairs, g->nrows, g->nnodes, count);
    nb_free(count);
    if (!to) return NULL;
    memcpy(to->var, g->var, (size_t)g->nnodes * sizeof *to->var);
    for (int r = 0; r < g->nrows; r++) {
        to->row[r] = g->row[r];
        to->budget[r] = g->budget[r];
    }
    for (int v = 0; v < g->n; v++)
        keep_options(to, g, v, gone);
    for (int k = 0; k < g->npairs; k++)
        if (!keep_pair(to, g, &g->pair[k], gone)) return nb_net_free(to), NULL;
    link_pairs(to);
    return to;
}

double nb_net_cost(const nb_net *g, const double *cost, const int *choice)
{
    double sum = 0;
    for (int v = 0; v < g->n; v++)
        sum += cost[g->at[v] + choice[v]];
    for (int k = 0; k < g->npairs; k++) {
        const nb_net_pair *p = &g->pair[k];
        sum += p->price[choice[p->u] * nb_net_count(g, p->v) + choice[p->v]];
    }
    return sum;
}

void nb_net_bytes(const nb_net *g, const int *choice, int64_t *bytes)
{
    for (int r = 0; r < g->nrows; r++) {
        const int64_t *row = g->bytes + (size_t)r * (size_t)g->at[g->n];
        bytes[r] = 0;
        for (int v = 0; v < g->n; v++)
            bytes[r] += row[g->at[v] + choice[v]];
    }
}

bool nb_net_fits(const nb_net *g, const int *choice)
{
    for (int r = 0; r < g->nrows; r++) {
        const int64_t *row = g->bytes + (size_t)r * (size_t)g->at[g->n];
        int64_t sum = 0;
        for (int v = 0; v < g->n; v++)
            sum += row[g->at[v] + choice[v]];
        if (sum > g->budget[r]) return false;
    }
    return true;
}
