/* parts.h - what the parts of the solver share.
 *
 * A net is a problem made small: tied nodes are one variable, two variables
 * have at most one table, options that no optimum needs are gone. */
#ifndef NB_SHARD_SOLVE_PARTS_H
#define NB_SHARD_SOLVE_PARTS_H

#include "shard/solve/solve.h"

typedef struct nb_net_pair {
    int u, v;
    double *price; /* [options of u][options of v] */
} nb_net_pair;

typedef struct nb_net {
    int n, npairs, nrows, nnodes;
    int *at;        /* where a variable's options begin; n + 1 */
    double *cost;   /* of all options of all variables */
    int64_t *bytes; /* [row][option], of rows with a budget */
    int64_t *budget;
    int *row; /* of the problem, for each of ours */
    nb_net_pair *pair;
    int *first, *near; /* near[first[v]] ...: the pairs of v */
    int *var;          /* of each node */
    int *option;       /* of the node, for every option here */
} nb_net;

static inline int nb_net_count(const nb_net *g, int v)
{
    return g->at[v + 1] - g->at[v];
}

static inline int nb_net_other(const nb_net_pair *p, int v)
{
    return p->u == v ? p->v : p->u;
}

/* solve.c: what a problem says, read by the net. */
typedef struct nb_node_said {
    int count, tied; /* to this node, or itself */
    double *cost;
    int64_t *bytes; /* [row][option] */
} nb_node_said;

struct nb_problem {
    int nrows, n, room, npairs, pair_room;
    nb_node_said *node;
    nb_net_pair *pair;
    int64_t *budget;
};

int nb_problem_root(const nb_problem *p, int node);

/* solve_net.c */
nb_net *nb_net_new(const nb_problem *p);
nb_net *nb_net_keep(const nb_net *g, const bool *gone); /* without these */
void nb_net_free(nb_net *g);
double nb_net_cost(const nb_net *g, const double *cost, const int *choice);
void nb_net_bytes(const nb_net *g, const int *choice, int64_t *bytes);
bool nb_net_fits(const nb_net *g, const int *choice);

/* solve_prune.c: marks what no optimum needs; -1 out of memory, 0 if a
 * variable has nothing left. */
int nb_net_prune(const nb_net *g, bool *gone);

/* solve_order.c: in which order variables go.  A variable is held, and not
 * eliminated, if it is so on entry or if all tables that are left are larger
 * than the limit.  Returns how many are eliminated, -1 out of memory. */
typedef struct nb_order {
    int64_t limit;
    uint64_t seed; /* 0: the plain heuristic */
    bool by_fill;
    double work, entries; /* additions that the order takes; of tables */
} nb_order;
int nb_order_find(const nb_net *g, nb_order *o, bool *held, int *order);

/* solve_tree.c: eliminating all variables but those held. */
typedef struct nb_tree nb_tree;
nb_tree *nb_tree_new(const nb_net *g, const bool *held, int n,
                     const int *order);
void nb_tree_free(nb_tree *t);
/* The best choice given that of held variables, and its cost; false if none
 * costs less than infinity. */
bool nb_tree_run(nb_tree *t, const double *cost, int *choice, double *value);
int64_t nb_tree_largest(const nb_tree *t);
double nb_tree_work(const nb_tree *t); /* additions of a run */

/* solve_sweep.c: a bound, and a choice to begin with, by messages along the
 * pairs (sequential tree-reweighted message passing). */
bool nb_sweep(const nb_net *g, const double *cost, int rounds, int *choice,
              double *bound);

/* solve_search.c: betters a choice by eliminating what can be eliminated while
 * the rest is held, until the bound is met. */
bool nb_search(const nb_net *g, const double *cost, int rounds, double bound,
               int *choice, double *value, double *work);
/* Betters a choice within the budgets by single and double changes. */
bool nb_polish(const nb_net *g, int *choice, double *value);

/* A net whose cost can be minimised, exactly by a tree or nearly by search. */
typedef struct nb_relaxed {
    const nb_net *g;
    nb_tree *tree; /* NULL: too wide */
    double work;   /* spent so far */
} nb_relaxed;

bool nb_relaxed_open(nb_relaxed *r, const nb_net *g, int64_t table);
void nb_relaxed_close(nb_relaxed *r);
/* A choice, its cost, and a bound for all; an infinite bound: there is none. */
bool nb_relaxed_run(nb_relaxed *r, const double *cost, int *choice,
                    double *value, double *bound);

/* solve_budget.c: the best choice within the budgets. */
typedef struct nb_found {
    int *choice;
    double value, bound; /* value is infinite while none was found */
} nb_found;
bool nb_budget_solve(nb_relaxed *r, double work, nb_found *f);
/* Fewest bytes of row k alone, and the choice that has them. */
bool nb_budget_least(const nb_net *g, int k, int64_t table, int *choice,
                     int64_t *least);

/* solve_cbc.c: true if CBC is installed and bettered the choice or the bound. */
bool nb_cbc_solve(const nb_net *g, double seconds, nb_found *f);

#endif
