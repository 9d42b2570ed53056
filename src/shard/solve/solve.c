/* solve.c - problems, and the road to their solution: a net, without options
 * that no optimum needs; elimination, or search where that is too wide; budgets
 * by multipliers; CBC where a gap is left. */
#include "shard/solve/parts.h"

#include <math.h>
#include <string.h>

enum { TABLE = 40 * 1000 * 1000 };
static const double WORK = 3e9, GAP = 0.01, SECONDS = 20;

nb_problem *nb_problem_new(int nrows)
{
    nb_problem *p = nb_alloc_zero(sizeof *p);
    if (!p) return NULL;
    p->nrows = nrows;
    p->budget = nb_alloc((size_t)(nrows + 1) * sizeof *p->budget);
    if (!p->budget) return nb_free(p), NULL;
    for (int r = 0; r < nrows; r++)
        p->budget[r] = -1;
    return p;
}

void nb_problem_free(nb_problem *p)
{
    if (!p) return;
    for (int i = 0; i < p->n; i++) {
        nb_free(p->node[i].cost);
        nb_free(p->node[i].bytes);
    }
    for (int i = 0; i < p->npairs; i++)
        nb_free(p->pair[i].price);
    nb_free(p->node);
    nb_free(p->pair);
    nb_free(p->budget);
    nb_free(p);
}

int nb_problem_add(nb_problem *p, int noptions)
{
    if (noptions < 1) return nb_fail(NB_EVALUE, "solve: no options"), -1;
    if (!nb_grow(&p->node, &p->room, p->n + 1, sizeof *p->node)) return -1;
    size_t rows = (size_t)(p->nrows ? p->nrows : 1);
    nb_node_said *v = &p->node[p->n];
    v->count = noptions;
    v->tied = p->n;
    v->cost = nb_alloc_zero((size_t)noptions * sizeof *v->cost);
    v->bytes = nb_alloc_zero((size_t)noptions * rows * sizeof *v->bytes);
    if (v->cost && v->bytes) return p->n++;
    nb_free(v->cost);
    nb_free(v->bytes);
    return -1;
}

static bool check_costs(const double *cost, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (isnan(cost[i]) || cost[i] == -INFINITY)
            return nb_fail(NB_EVALUE, "solve: a cost of %g", cost[i]);
    return true;
}

bool nb_problem_cost(nb_problem *p, int node, const double *cost)
{
    nb_node_said *v = &p->node[node];
    if (!check_costs(cost, v->count)) return false;
    for (int i = 0; i < v->count; i++)
        v->cost[i] += cost[i];
    return true;
}

bool nb_problem_bytes(nb_problem *p, int node, int row, const int64_t *bytes)
{
    nb_node_said *v = &p->node[node];
    for (int i = 0; i < v->count; i++) {
        if (bytes[i] < 0)
            return nb_fail(NB_EVALUE, "solve: %lld bytes", (long long)bytes[i]);
        v->bytes[row * v->count + i] += bytes[i];
    }
    return true;
}

bool nb_problem_pair(nb_problem *p, int u, int v, const double *price)
{
    int64_t n = (int64_t)p->node[u].count * p->node[v].count;
    if (!check_costs(price, n) ||
        !nb_grow(&p->pair, &p->pair_room, p->npairs + 1, sizeof *p->pair))
        return false;
    double *copy = nb_alloc((size_t)n * sizeof *copy);
    if (!copy) return false;
    memcpy(copy, price, (size_t)n * sizeof *copy);
    p->pair[p->npairs++] = (nb_net_pair){u, v, copy};
    return true;
}

int nb_problem_root(const nb_problem *p, int node)
{
    while (p->node[node].tied != node)
        node = p->node[node].tied;
    return node;
}

bool nb_problem_tie(nb_problem *p, int u, int v)
{
    u = nb_problem_root(p, u), v = nb_problem_root(p, v);
    if (p->node[u].count != p->node[v].count)
        return nb_fail(NB_EVALUE, "solve: %d options are tied to %d",
                       p->node[u].count, p->node[v].count);
    p->node[u > v ? u : v].tied = u > v ? v : u;
    return true;
}

bool nb_problem_budget(nb_problem *p, int row, int64_t bytes)
{
    if (row < 0 || row >= p->nrows)
        return nb_fail(NB_EVALUE, "solve: no row %d of %d", row, p->nrows);
    p->budget[row] = bytes < 0 ? -1 : bytes;
    return true;
}

void nb_solution_free(nb_solution *s)
{
    if (!s) return;
    nb_free(s->choice);
    nb_free(s->bytes);
    nb_free(s->least);
    nb_free(s);
}

static nb_solution *solution_new(const nb_problem *p)
{
    nb_solution *s = nb_alloc_zero(sizeof *s);
    if (!s) return NULL;
    size_t rows = (size_t)(p->nrows ? p->nrows : 1);
    s->bytes = nb_alloc_zero(rows * sizeof *s->bytes);
    s->least = nb_alloc_zero(rows * sizeof *s->least);
    s->how = "elimination";
    s->cost = s->bound = INFINITY;
    if (s->bytes && s->least) return s;
    return nb_solution_free(s), NULL;
}

/* A choice of variables as one of nodes. */
static bool tell(nb_solution *s, const nb_problem *p, const nb_net *g,
                 const int *choice)
{
    s->choice = nb_alloc((size_t)(p->n ? p->n : 1) * sizeof *s->choice);
    if (!s->choice) return false;
    for (int i = 0; i < p->n; i++) {
        int v = g->var[i];
        s->choice[i] = g->option[g->at[v] + choice[v]];
        const nb_node_said *said = &p->node[i];
        for (int r = 0; r < p->nrows; r++)
            s->bytes[r] += said->bytes[r * said->count + s->choice[i]];
    }
    return true;
}

/* Whether every row by itself can be kept to; else a choice of the fewest
 * bytes of the row that is worst off. */
static bool rows_can(nb_solution *s, const nb_net *g, int64_t table,
                     int *choice, bool *can)
{
    int *tried = nb_alloc((size_t)(g->n + 1) * sizeof *tried);
    double worst = 0;
    bool ok = tried != NULL;
    *can = true;
    for (int k = 0; k < g->nrows && ok; k++) {
        int64_t least;
        if (!(ok = nb_budget_least(g, k, table, tried, &least))) break;
        s->least[g->row[k]] = least;
        double excess = (double)(least - g->budget[k]);
        if (excess <= worst) continue;
        worst = excess;
        *can = false;
        memcpy(choice, tried, (size_t)g->n * sizeof *choice);
    }
    nb_free(tried);
    return ok;
}

static bool is_closed(const nb_found *f)
{
    return isfinite(f->value) &&
           f->value - f->bound <= 1e-9 * (fabs(f->value) + 1e-300);
}

static bool solve_net(nb_solution *s, const nb_problem *p, const nb_net *g,
                      const nb_solve_options *o, int *choice)
{
    int64_t table = o && o->table ? o->table : TABLE;
    double work = o && o->work ? (double)o->work : WORK;
    nb_relaxed r = {0};
    nb_found f = {choice, INFINITY, -INFINITY};
    bool can;
    s->variables = g->n;
    if (!rows_can(s, g, table, choice, &can)) return false;
    if (!can) return s->proved = true, tell(s, p, g, choice);
    if (!nb_relaxed_open(&r, g, table)) return false;
    bool ok = nb_budget_solve(&r, work, &f);
    s->spent = (int64_t)r.work;
    s->table = r.tree ? nb_tree_largest(r.tree) : 0;
    s->how = r.tree ? "elimination" : "search";
    nb_relaxed_close(&r);
    if (!ok) return false;
    bool large = f.value - f.bound > (o && o->gap ? o->gap : GAP) * f.value;
    if ((large || !isfinite(f.value)) && f.bound < INFINITY &&
        !(o && o->no_cbc) && nb_cbc_solve(g, SECONDS, &f))
        s->how = "cbc";
    s->feasible = isfinite(f.value);
    s->cost = f.value;
    s->bound = f.bound < f.value ? f.bound : f.value;
    s->proved = s->feasible ? is_closed(&f) : f.bound == INFINITY;
    return !s->feasible || tell(s, p, g, choice);
}

static bool solve(nb_solution *s, const nb_problem *p,
                  const nb_solve_options *o)
{
    nb_net *all = nb_net_new(p), *g = NULL;
    int *choice = NULL;
    bool *gone = NULL;
    int left = -1;
    if (all) gone = nb_alloc_zero((size_t)all->at[all->n] + 1);
    if (gone) left = nb_net_prune(all, gone);
    if (left > 0) g = nb_net_keep(all, gone);
    if (g) choice = nb_alloc_zero((size_t)(g->n + 1) * sizeof *choice);
    bool ok = left == 0 || (choice && solve_net(s, p, g, o, choice));
    if (left == 0) s->proved = true;
    nb_free(choice);
    nb_free(gone);
    nb_net_free(g);
    nb_net_free(all);
    return ok;
}

nb_solution *nb_problem_solve(const nb_problem *p, const nb_solve_options *o)
{
    nb_solution *s = solution_new(p);
    if (!s || solve(s, p, o)) return s;
    return nb_solution_free(s), NULL;
}
