/* cbc.c - an installed CBC closes a gap.
 *
 * The net as an integer program: a column for every option, and one for every
 * two options of a pair that may meet; each variable has one option, and the
 * options of a pair add up to those of its ends.  CBC is called through its C
 * interface (Debian: coinor-libcbc3); where it is not installed nothing
 * happens.  What it says is checked: a choice by its cost and bytes. */
#include "shard/solve/parts.h"

#include "base/dl.h"

#include <math.h>
#include <string.h>

enum { MOST = 4 * 1000 * 1000 }; /* coefficients */

typedef struct cbc {
    void *(*new_model)(void);
    void (*delete_model)(void *);
    void (*load)(void *, int, int, const int *, const int *, const double *,
                 const double *, const double *, const double *, const double *,
                 const double *);
    void (*set_integer)(void *, int);
    void (*set_parameter)(void *, const char *, const char *);
    void (*set_log)(void *, int);
    void (*set_seconds)(void *, double);
    int (*solve)(void *);
    const double *(*solution)(void *);
    double (*bound)(void *);
    int (*is_infeasible)(void *);
} cbc;

/* ISO C has no cast from data to functions; copying the pointer is what POSIX
 * offers instead. */
static bool find(void *lib, const char *name, void *to)
{
    void *f = nb_dl_symbol(lib, name);
    memcpy(to, &f, sizeof f);
    return f != NULL;
}

static bool cbc_open(cbc *c)
{
    static const char *const names[] = {"libCbcSolver.so.3", "libCbcSolver.so",
                                        NULL};
    void *lib = nb_dl_open(names);
    return lib && find(lib, "Cbc_newModel", &c->new_model) &&
           find(lib, "Cbc_deleteModel", &c->delete_model) &&
           find(lib, "Cbc_loadProblem", &c->load) &&
           find(lib, "Cbc_setInteger", &c->set_integer) &&
           find(lib, "Cbc_setParameter", &c->set_parameter) &&
           find(lib, "Cbc_setLogLevel", &c->set_log) &&
           find(lib, "Cbc_setMaximumSeconds", &c->set_seconds) &&
           find(lib, "Cbc_solve", &c->solve) &&
           find(lib, "Cbc_getColSolution", &c->solution) &&
           find(lib, "Cbc_getBestPossibleObjValue", &c->bound) &&
           find(lib, "Cbc_isProvenInfeasible", &c->is_infeasible);
}

/* Columns one after another. */
typedef struct program {
    int ncolumns, nrows, n;
    int *start, *row;
    double *value, *cost, *low, *high, *row_low, *row_high;
    double scale; /* of costs, so that they are near one */
} program;

static void program_free(program *p)
{
    nb_free(p->start);
    nb_free(p->row);
    nb_free(p->value);
    nb_free(p->cost);
    nb_free(p->row_low);
}

static bool program_room(program *p, const nb_net *g)
{
    int64_t columns = g->at[g->n], coefficients, rows = g->n + g->nrows;
    coefficients = columns * (1 + g->nrows);
    for (int k = 0; k < g->npairs; k++) {
        int64_t nu = nb_net_count(g, g->pair[k].u);
        int64_t nv = nb_net_count(g, g->pair[k].v);
        columns += nu * nv;
        coefficients += nu * nv * 2 + nu + nv;
        rows += nu + nv;
    }
    if (coefficients > MOST) return false;
    size_t c = (size_t)columns + 1, r = (size_t)rows + 1;
    p->nrows = (int)rows;
    p->start = nb_alloc(c * sizeof *p->start);
    p->row = nb_alloc((size_t)coefficients * sizeof *p->row);
    p->value = nb_alloc((size_t)coefficients * sizeof *p->value);
    p->cost = nb_alloc(3 * c * sizeof *p->cost);
    p->row_low = nb_alloc_zero(2 * r * sizeof *p->row_low);
    if (!p->start || !p->row || !p->value || !p->cost || !p->row_low)
        return false;
    p->low = p->cost + c;
    p->high = p->low + c;
    p->row_high = p->row_low + r;
    return true;
}

static void put(program *p, int row, double value)
{
    p->row[p->n] = row;
    p->value[p->n++] = value;
}

static void begin_column(program *p, double cost)
{
    int k = p->ncolumns++;
    p->start[k] = p->n;
    p->cost[k] = cost / p->scale;
    p->low[k] = 0;
    p->high[k] = 1;
}

/* An option is in the row of its variable, in those of budgets, and against the
 * rows that pairs have for it; of_pair is where those of a pair begin. */
static void put_option(program *p, const nb_net *g, int v, int i,
                       const int *of_pair)
{
    begin_column(p, g->cost[g->at[v] + i]);
    put(p, v, 1);
    for (int r = 0; r < g->nrows; r++)
        put(p, g->n + r,
            (double)g->bytes[(size_t)r * (size_t)g->at[g->n] +
                             (size_t)(g->at[v] + i)] /
                (double)(g->budget[r] + 1));
    for (int e = g->first[v]; e < g->first[v + 1]; e++) {
        const nb_net_pair *q = &g->pair[g->near[e]];
        put(p,
            of_pair[g->near[e]] + i + (q->u == v ? 0 : nb_net_count(g, q->u)),
            -1);
    }
}

static void put_pair(program *p, const nb_net *g, const nb_net_pair *q, int at)
{
    int nu = nb_net_count(g, q->u), nv = nb_net_count(g, q->v);
    for (int i = 0; i < nu; i++)
        for (int j = 0; j < nv; j++) {
            double price = q->price[i * nv + j];
            if (isinf(price)) continue;
            begin_column(p, price);
            put(p, at + i, 1);
            put(p, at + nu + j, 1);
        }
}

static bool write_program(program *p, const nb_net *g)
{
    int *of_pair = nb_alloc((size_t)(g->npairs + 1) * sizeof *of_pair);
    if (!of_pair) return false;
    int at = g->n + g->nrows;
    for (int k = 0; k < g->npairs; k++) {
        of_pair[k] = at;
        at += nb_net_count(g, g->pair[k].u) + nb_net_count(g, g->pair[k].v);
    }
    for (int v = 0; v < g->n; v++)
        p->row_low[v] = p->row_high[v] = 1;
    for (int r = 0; r < g->nrows; r++) {
        p->row_low[g->n + r] = -INFINITY;
        p->row_high[g->n + r] =
            (double)g->budget[r] / (double)(g->budget[r] + 1);
    }
    for (int v = 0; v < g->n; v++)
        for (int i = 0; i < nb_net_count(g, v); i++)
            put_option(p, g, v, i, of_pair);
    for (int k = 0; k < g->npairs; k++)
        put_pair(p, g, &g->pair[k], of_pair[k]);
    p->start[p->ncolumns] = p->n;
    nb_free(of_pair);
    return true;
}

static bool take_choice(const nb_net *g, const double *x, nb_found *f)
{
    int *choice = nb_alloc((size_t)(g->n + 1) * sizeof *choice);
    bool better = false;
    if (!choice) return nb_error_clear(), false;
    for (int v = 0; v < g->n; v++) {
        choice[v] = 0;
        for (int i = 1; i < nb_net_count(g, v); i++)
            if (x[g->at[v] + i] > x[g->at[v] + choice[v]]) choice[v] = i;
    }
    double value = nb_net_cost(g, g->cost, choice);
    if (value < f->value && nb_net_fits(g, choice)) {
        memcpy(f->choice, choice, (size_t)g->n * sizeof *choice);
        f->value = value;
        better = true;
    }
    nb_free(choice);
    return better;
}

static bool run(const cbc *c, const nb_net *g, const program *p, double seconds,
                nb_found *f)
{
    void *m = c->new_model();
    bool better = false;
    c->load(m, p->ncolumns, p->nrows, p->start, p->row, p->value, p->low,
            p->high, p->cost, p->row_low, p->row_high);
    for (int i = 0; i < g->at[g->n]; i++)
        c->set_integer(m, i);
    c->set_log(m, 0);
    c->set_parameter(m, "log", "0");
    c->set_seconds(m, seconds);
    c->solve(m);
    if (c->is_infeasible(m)) {
        better = f->value == INFINITY;
        if (better) f->bound = INFINITY;
    } else {
        const double *x = c->solution(m);
        better = x && take_choice(g, x, f);
        /* It works to tolerances of its own. */
        double bound = c->bound(m) * p->scale;
        bound -= 1e-6 * fabs(bound);
        if (isfinite(f->value) && bound > f->bound && bound < 1e30 * p->scale)
            f->bound = bound, better = true;
        if (f->bound > f->value) f->bound = f->value;
    }
    c->delete_model(m);
    return better;
}

bool nb_cbc_solve(const nb_net *g, double seconds, nb_found *f)
{
    cbc c;
    program p = {.scale = 1};
    if (!cbc_open(&c)) return false;
    if (isfinite(f->value) && fabs(f->value) > 0)
        p.scale = fabs(f->value) / 1000;
    bool ok = program_room(&p, g) && write_program(&p, g);
    if (!ok) nb_error_clear();
    ok = ok && run(&c, g, &p, seconds, f);
    program_free(&p);
    return ok;
}
