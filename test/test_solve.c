/* test_solve.c - the solver of choices: against trying everything on thousands
 * of small problems, and where the answer is known on larger ones. */
#include "support/check.h"

#include "base/memory.h"
#include "shard/solve/solve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NODES = 8, OPTIONS = 5, PAIRS = 40, ROWS = 3, TIES = 3 };

static uint64_t state = 88172645463325252u;

static uint32_t one_of(uint32_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)((state >> 20) % n);
}

/* A problem as it was drawn, so that it can be tried out. */
typedef struct drawn {
    int n, npairs, nrows, nties;
    int count[NODES], tie[TIES][2];
    double cost[NODES][OPTIONS];
    int64_t bytes[ROWS][NODES][OPTIONS], budget[ROWS];
    int end[PAIRS][2];
    double price[PAIRS][OPTIONS * OPTIONS];
} drawn;

static double draw_price(int infinite)
{
    if ((int)one_of(100) < infinite) return INFINITY;
    return one_of(4) ? one_of(50) : 0;
}

static void draw_problem(drawn *d, int ties, int infinite)
{
    d->n = 1 + (int)one_of(NODES);
    d->nties = 0;
    for (int v = 0; v < d->n; v++) {
        d->count[v] = 1 + (int)one_of(OPTIONS);
        for (int i = 0; i < d->count[v]; i++) {
            d->cost[v][i] = draw_price(infinite / 2);
            for (int r = 0; r < ROWS; r++)
                d->bytes[r][v][i] = one_of(30);
        }
    }
    for (int k = 0; k < ties && d->n > 1; k++) {
        int u = (int)one_of((uint32_t)d->n), v = (int)one_of((uint32_t)d->n);
        if (d->count[u] != d->count[v]) continue;
        d->tie[d->nties][0] = u, d->tie[d->nties++][1] = v;
    }
    d->npairs = (int)one_of((uint32_t)(3 * d->n));
    for (int k = 0; k < d->npairs; k++) {
        int u = d->end[k][0] = (int)one_of((uint32_t)d->n);
        int v = d->end[k][1] = (int)one_of((uint32_t)d->n);
        for (int i = 0; i < d->count[u] * d->count[v]; i++)
            d->price[k][i] = draw_price(infinite);
    }
    d->nrows = 0;
}

static nb_problem *problem_of(const drawn *d)
{
    nb_problem *p = nb_problem_new(d->nrows);
    bool ok = p != NULL;
    for (int v = 0; v < d->n && ok; v++) {
        ok = nb_problem_add(p, d->count[v]) == v &&
             nb_problem_cost(p, v, d->cost[v]);
        for (int r = 0; r < d->nrows && ok; r++)
            ok = nb_problem_bytes(p, v, r, d->bytes[r][v]);
    }
    for (int k = 0; k < d->npairs && ok; k++)
        ok = nb_problem_pair(p, d->end[k][0], d->end[k][1], d->price[k]);
    for (int k = 0; k < d->nties && ok; k++)
        ok = nb_problem_tie(p, d->tie[k][0], d->tie[k][1]);
    for (int r = 0; r < d->nrows && ok; r++)
        ok = nb_problem_budget(p, r, d->budget[r]);
    if (ok) return p;
    return nb_problem_free(p), NULL;
}

static double cost_of(const drawn *d, const int *choice)
{
    double sum = 0;
    for (int k = 0; k < d->nties; k++)
        if (choice[d->tie[k][0]] != choice[d->tie[k][1]]) return INFINITY;
    for (int v = 0; v < d->n; v++)
        sum += d->cost[v][choice[v]];
    for (int k = 0; k < d->npairs; k++) {
        int u = d->end[k][0], v = d->end[k][1];
        sum += d->price[k][choice[u] * d->count[v] + choice[v]];
    }
    return sum;
}

static int64_t bytes_of(const drawn *d, int r, const int *choice)
{
    int64_t sum = 0;
    for (int v = 0; v < d->n; v++)
        sum += d->bytes[r][v][choice[v]];
    return sum;
}

static bool fits(const drawn *d, const int *choice)
{
    for (int r = 0; r < d->nrows; r++)
        if (bytes_of(d, r, choice) > d->budget[r]) return false;
    return true;
}

static bool next(const drawn *d, int *choice)
{
    for (int v = 0; v < d->n; v++) {
        if (++choice[v] < d->count[v]) return true;
        choice[v] = 0;
    }
    return false;
}

/* The least cost of all choices that fit; fewest bytes of each row. */
static double try_all(const drawn *d, int64_t *least)
{
    int choice[NODES] = {0};
    double best = INFINITY;
    for (int r = 0; r < d->nrows; r++)
        least[r] = INT64_MAX;
    do {
        double c = cost_of(d, choice);
        if (isinf(c)) continue;
        for (int r = 0; r < d->nrows; r++)
            if (bytes_of(d, r, choice) < least[r])
                least[r] = bytes_of(d, r, choice);
        if (c < best && fits(d, choice)) best = c;
    } while (next(d, choice));
    return best;
}

static bool close_to(double a, double b)
{
    return a == b || fabs(a - b) <= 1e-6 * (fabs(a) + fabs(b));
}

static void holds(const drawn *d, const nb_solution *s, double best,
                  const int64_t *least)
{
    expect(s->bound <= best + 1e-6 * fabs(best), "bound %g under %g", s->bound,
           best);
    expect(s->feasible == isfinite(best), "feasible if %g is finite", best);
    for (int r = 0; r < d->nrows && least[r] < INT64_MAX; r++)
        expect(s->least[r] == least[r], "least %lld is %lld",
               (long long)s->least[r], (long long)least[r]);
    if (!s->feasible) return;
    expect(close_to(cost_of(d, s->choice), s->cost), "the cost of the choice");
    expect(fits(d, s->choice), "the choice fits");
    for (int r = 0; r < d->nrows; r++)
        expect(s->bytes[r] == bytes_of(d, r, s->choice), "its bytes");
    expect(s->cost >= best - 1e-6 * fabs(best), "no better than the best");
}

static void check_drawn(const drawn *d, const nb_solve_options *o, bool exact)
{
    int64_t least[ROWS];
    nb_problem *p = problem_of(d);
    nb_solution *s = p ? nb_problem_solve(p, o) : NULL;
    if (expect(s != NULL, "solved")) {
        double best = try_all(d, least);
        holds(d, s, best, least);
        if (exact) {
            expect(close_to(s->cost, best), "%g is the optimum %g", s->cost,
                   best);
            expect(s->proved, "and known to be");
        }
    }
    nb_solution_free(s);
    nb_problem_free(p);
}

static void small_problems_are_solved_exactly(void)
{
    static drawn d;
    for (int k = 0; k < 2500; k++) {
        draw_problem(&d, k % 3 ? 0 : TIES, k % 2 ? 0 : 15);
        check_drawn(&d, NULL, true);
    }
}

/* Budgets between the fewest bytes and those of the free optimum, and a few
 * below. */
static void draw_budgets(drawn *d, int nrows)
{
    int64_t least[ROWS];
    d->nrows = nrows;
    for (int r = 0; r < nrows; r++)
        d->budget[r] = INT64_MAX / 4;
    try_all(d, least);
    for (int r = 0; r < nrows; r++) {
        if (least[r] == INT64_MAX) least[r] = 10;
        d->budget[r] = least[r] + one_of(60) - (one_of(8) ? 0 : 5);
        if (d->budget[r] < 0) d->budget[r] = 0;
    }
}

static void small_problems_with_budgets_are_solved_exactly(void)
{
    static drawn d;
    nb_solve_options o = {.no_cbc = true};
    for (int k = 0; k < 2500; k++) {
        draw_problem(&d, k % 3 ? 0 : TIES, k % 2 ? 0 : 15);
        draw_budgets(&d, 1 + k % ROWS);
        check_drawn(&d, &o, true);
    }
}

/* With tables this small nothing can be eliminated at once. */
static void bounds_hold_where_search_is_used(void)
{
    static drawn d;
    nb_solve_options o = {.table = 1, .no_cbc = true};
    for (int k = 0; k < 600; k++) {
        draw_problem(&d, 0, 0);
        if (k % 3 == 0) draw_budgets(&d, 1);
        int64_t least[ROWS];
        nb_problem *p = problem_of(&d);
        nb_solution *s = p ? nb_problem_solve(p, &o) : NULL;
        double best = try_all(&d, least);
        if (expect(s != NULL, "solved") && s->feasible)
            expect(s->bound <= best + 1e-6 * (1 + fabs(best)) &&
                       s->cost >= best - 1e-6 * (1 + fabs(best)) &&
                       close_to(cost_of(&d, s->choice), s->cost) &&
                       fits(&d, s->choice),
                   "bound %g, optimum %g, found %g", s->bound, best, s->cost);
        if (s && !s->feasible && s->proved)
            expect(isinf(best), "infeasible with optimum %g", best);
        nb_solution_free(s);
        nb_problem_free(p);
    }
}

/* A chain whose neighbours want to differ by one, which costs nothing, from
 * an end that is fixed: all can have it. */
static void long_chains_and_rings(void)
{
    enum { N = 2000, K = 7 };
    double price[K * K], first[K];
    for (int i = 0; i < K * K; i++)
        price[i] = (i / K + 1) % K == i % K ? 0 : 1;
    for (int i = 0; i < K; i++)
        first[i] = i == 3 ? 0 : 10;
    nb_problem *p = nb_problem_new(0);
    for (int v = 0; v < N; v++) {
        nb_problem_add(p, K);
        if (v) nb_problem_pair(p, v - 1, v, price);
    }
    nb_problem_cost(p, 0, first);
    nb_solution *s = nb_problem_solve(p, NULL);
    expect(s && s->cost == 0 && s->proved, "a chain costs nothing");
    for (int v = 0; s && v < N; v++)
        if (s->choice[v] != (3 + v) % K)
            expect(false, "node %d has option %d", v, s->choice[v]);
    nb_solution_free(s);
    /* Closed to a ring, N mod K is 5: one pair must pay. */
    nb_problem_pair(p, N - 1, 0, price);
    s = nb_problem_solve(p, NULL);
    expect(s && s->cost == 1 && s->proved, "a ring of the wrong length pays");
    nb_solution_free(s);
    nb_problem_free(p);
}

/* The least cut of a grid whose left column is 0 and right column is 1: each
 * row is cut once, at its cheapest place if cutting between rows is free. */
static void grids(void)
{
    enum { R = 7, C = 40 };
    nb_problem *p = nb_problem_new(0);
    double expected = 0, never[2][2] = {{0, INFINITY}, {INFINITY, 0}};
    for (int v = 0; v < R * C; v++)
        nb_problem_add(p, 2);
    for (int r = 0; r < R; r++) {
        double least = INFINITY;
        nb_problem_cost(p, r * C, never[0]);
        nb_problem_cost(p, r * C + C - 1, never[1]);
        for (int c = 0; c + 1 < C; c++) {
            double w = 1 + one_of(1000), t[4] = {0, w, w, 0};
            nb_problem_pair(p, r * C + c, r * C + c + 1, t);
            least = w < least ? w : least;
        }
        expected += least;
    }
    double zero[4] = {0};
    for (int v = 0; v + C < R * C; v++)
        nb_problem_pair(p, v, v + C, zero);
    nb_solution *s = nb_problem_solve(p, NULL);
    expect(s && close_to(s->cost, expected) && s->proved, "cut %g is %g",
           s ? s->cost : 0, expected);
    nb_solution_free(s);
    /* Rows held together: one column is cut, the cheapest in all. */
    nb_problem_free(p);
    p = nb_problem_new(0);
    double sum[C] = {0}, best = INFINITY;
    for (int v = 0; v < R * C; v++)
        nb_problem_add(p, 2);
    for (int v = 0; v < R * C; v++) {
        double w = 1 + one_of(1000), t[4] = {0, w, w, 0};
        double tie[4] = {0, INFINITY, INFINITY, 0};
        if (v % C == 0) nb_problem_cost(p, v, never[0]);
        if (v % C == C - 1)
            nb_problem_cost(p, v, never[1]);
        else
            nb_problem_pair(p, v, v + 1, t), sum[v % C] += w;
        if (v >= C) nb_problem_pair(p, v - C, v, tie);
    }
    for (int c = 0; c + 1 < C; c++)
        best = sum[c] < best ? sum[c] : best;
    s = nb_problem_solve(p, NULL);
    expect(s && close_to(s->cost, best) && s->proved, "cut %g is %g",
           s ? s->cost : 0, best);
    nb_solution_free(s);
    nb_problem_free(p);
}

/* A net too wide to eliminate: random prices on all pairs of 40 nodes. */
static void wide_nets_have_a_gap(void)
{
    enum { N = 40, K = 6 };
    nb_problem *p = nb_problem_new(0);
    nb_solve_options o = {.table = 1000, .no_cbc = true};
    for (int v = 0; v < N; v++)
        nb_problem_add(p, K);
    for (int u = 0; u < N; u++)
        for (int v = 0; v < u; v++) {
            double t[K * K];
            for (int i = 0; i < K * K; i++)
                t[i] = one_of(100);
            nb_problem_pair(p, u, v, t);
        }
    nb_solution *s = nb_problem_solve(p, &o);
    expect(s && s->feasible && s->bound < s->cost && s->bound > 0 &&
               !strcmp(s->how, "search"),
           "found %g, bound %g", s ? s->cost : 0, s ? s->bound : 0);
    nb_solution_free(s);
    nb_problem_free(p);
}

/* Where CBC is installed it closes gaps; where not, nothing changes. */
static void cbc_closes_gaps(void)
{
    static drawn d;
    nb_solve_options o = {.table = 1, .gap = 1e-9};
    int closed = 0;
    for (int k = 0; k < 150; k++) {
        int64_t least[ROWS];
        draw_problem(&d, 0, k % 2 ? 10 : 0);
        draw_budgets(&d, k % 3);
        nb_problem *p = problem_of(&d);
        nb_solution *s = p ? nb_problem_solve(p, &o) : NULL;
        double best = try_all(&d, least);
        if (!expect(s != NULL, "solved")) continue;
        double slack = isfinite(best) ? 1e-5 * fabs(best) : 0;
        expect(s->bound <= best + slack && s->cost >= best - slack,
               "bound %g, optimum %g, found %g", s->bound, best, s->cost);
        if (!strcmp(s->how, "cbc") && s->proved) {
            expect(close_to(s->cost, best), "%g is %g", s->cost, best);
            closed++;
        }
        nb_solution_free(s);
        nb_problem_free(p);
    }
    printf("%d gaps closed by CBC\n", closed);
}

static void budgets_that_cannot_be_kept(void)
{
    static const int64_t bytes[3] = {100, 40, 60};
    static const double cost[3] = {0, 9, 4};
    nb_problem *p = nb_problem_new(2);
    for (int v = 0; v < 3; v++) {
        nb_problem_add(p, 3);
        nb_problem_cost(p, v, cost);
        nb_problem_bytes(p, v, 0, bytes);
    }
    nb_problem_budget(p, 0, 119);
    nb_solution *s = nb_problem_solve(p, NULL);
    expect(s && !s->feasible && s->proved && s->least[0] == 120 &&
               s->bytes[0] == 120,
           "119 bytes are one too few");
    nb_solution_free(s);
    nb_problem_budget(p, 0, 180);
    s = nb_problem_solve(p, NULL);
    expect(s && s->feasible && s->cost == 12 && s->bytes[0] == 180,
           "three of 60 bytes");
    nb_solution_free(s);
    nb_problem_budget(p, 0, -1);
    s = nb_problem_solve(p, NULL);
    expect(s && s->cost == 0 && s->bytes[0] == 300, "no budget");
    nb_solution_free(s);
    double no[9];
    for (int i = 0; i < 9; i++)
        no[i] = INFINITY;
    nb_problem_pair(p, 0, 1, no);
    s = nb_problem_solve(p, NULL);
    expect(s && !s->feasible && s->proved && !s->choice, "no choice at all");
    nb_solution_free(s);
    nb_problem_free(p);
}

static void bad_problems_are_refused(void)
{
    nb_problem *p = nb_problem_new(1);
    double nan[2] = {NAN, 0};
    int64_t negative[2] = {1, -1};
    expect(nb_problem_add(p, 0) < 0 && failed_with(NB_EVALUE, "no options"),
           "no options");
    nb_problem_add(p, 2);
    nb_problem_add(p, 3);
    expect(!nb_problem_cost(p, 0, nan) && failed_with(NB_EVALUE, "a cost of"),
           "nan");
    expect(!nb_problem_bytes(p, 0, 0, negative) &&
               failed_with(NB_EVALUE, "-1 bytes"),
           "negative bytes");
    expect(!nb_problem_tie(p, 0, 1) &&
               failed_with(NB_EVALUE, "2 options are tied to 3"),
           "ties");
    expect(!nb_problem_budget(p, 1, 5) && failed_with(NB_EVALUE, "no row 1"),
           "rows");
    nb_problem_free(p);
}

/* Every allocation fails once; nothing is lost, and what comes out is right. */
static void memory_may_run_out(void)
{
    static drawn d;
    for (int k = 0; k < 6; k++) {
        do
            draw_problem(&d, 1, k % 2 ? 10 : 0);
        while (d.n < 4 || d.npairs < 4);
        if (k > 1) draw_budgets(&d, k / 2);
        nb_solve_options o = {.table = k == 5 ? 2 : 0, .no_cbc = true};
        for (int64_t nth = 1; nth < 4000; nth += nth < 200 ? 1 : 37) {
            int64_t live = nb_memory_live();
            nb_fault_set(nth);
            nb_problem *p = problem_of(&d);
            nb_solution *s = p ? nb_problem_solve(p, &o) : NULL;
            bool struck = !nb_fault_is_set();
            nb_fault_set(0);
            expect((!struck || failed_with(NB_EMEMORY, "")) && !s == struck,
                   "fails if and only if memory does");
            nb_solution_free(s);
            nb_problem_free(p);
            expect(nb_memory_live() == live, "nothing is lost");
            if (!struck) break;
        }
    }
}

int main(void)
{
    small_problems_are_solved_exactly();
    small_problems_with_budgets_are_solved_exactly();
    bounds_hold_where_search_is_used();
    long_chains_and_rings();
    grids();
    wide_nets_have_a_gap();
    cbc_closes_gaps();
    budgets_that_cannot_be_kept();
    bad_problems_are_refused();
    memory_may_run_out();
    return tally();
}
