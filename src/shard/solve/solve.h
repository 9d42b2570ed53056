/* solve.h - one option for every node, at the least total cost.
 *
 * A problem has nodes with options.  An option costs something by itself, and
 * has bytes in each of a few rows of memory; a pair of nodes has a price for
 * every two options of theirs.  Nodes that are tied take the same option.  The
 * solution is the cheapest choice whose bytes stay within the budgets.
 *
 * Costs may be INFINITY: such an option, or two such options together, are
 * never chosen.  The cost of a solution and a bound that no choice can go below
 * are always given together; where they are equal the solution is optimal. */
#ifndef NB_SHARD_SOLVE_H
#define NB_SHARD_SOLVE_H

#include "base/memory.h"

typedef struct nb_problem nb_problem;

nb_problem *nb_problem_new(int nrows);
void nb_problem_free(nb_problem *p);

/* A node; its number, or -1. */
int nb_problem_add(nb_problem *p, int noptions);

/* What each option costs, and its bytes in a row; added to what was said. */
bool nb_problem_cost(nb_problem *p, int node, const double *cost);
bool nb_problem_bytes(nb_problem *p, int node, int row, const int64_t *bytes);

/* price[i * options of v + j]: of i at u with j at v; added. */
bool nb_problem_pair(nb_problem *p, int u, int v, const double *price);

/* u and v, with as many options, always take the same one. */
bool nb_problem_tie(nb_problem *p, int u, int v);

/* At most so many bytes in a row; negative: any, as it is at first. */
bool nb_problem_budget(nb_problem *p, int row, int64_t bytes);

typedef struct nb_solve_options {
    int64_t table; /* entries of the largest table; 0: 40 million */
    int64_t work;  /* additions spent on closing a gap; 0: a few seconds */
    bool no_cbc;   /* never ask an installed CBC, else where a gap is large */
    double gap;    /* the gap that is; 0: a hundredth of the cost */
} nb_solve_options;

typedef struct nb_solution {
    bool feasible; /* else choice is what needs the fewest bytes, or NULL */
    bool proved;   /* that it is optimal, or that there is none */
    double cost, bound;
    int *choice;     /* of each node */
    int64_t *bytes;  /* of the choice, in each row */
    int64_t *least;  /* no choice needs less; of rows with a budget */
    const char *how; /* "elimination", "search" or "cbc" */
    int variables;   /* left after ties and what can never be chosen */
    int64_t table;   /* entries of the largest table */
    int64_t spent;   /* additions */
} nb_solution;

/* NULL only if memory runs out. */
nb_solution *nb_problem_solve(const nb_problem *p, const nb_solve_options *o);
void nb_solution_free(nb_solution *s);

#endif
