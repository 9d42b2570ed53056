/* exec.h - an executable: a plan with its code, that runs on tensors.
 *
 * Any number of threads may run one at a time; each run has a frame of its own,
 * kept for the next. */
#ifndef NB_RUN_EXEC_H
#define NB_RUN_EXEC_H

#include "lower/plan.h"

typedef struct nb_exec nb_exec;

/* Takes the graph, or a plan of it.  One that is only lowered has no code before
 * it is loaded, or runs. */
nb_exec *nb_exec_new(nb_graph *g);
nb_exec *nb_exec_of(nb_plan *p);
nb_exec *nb_exec_lower(nb_graph *g);
bool nb_exec_load(nb_exec *e);

/* A plan of the same form with other numbers, which has code already: that of e,
 * which is loaded.  Takes the plan. */
nb_exec *nb_exec_like(const nb_exec *e, nb_plan *p);
nb_exec *nb_exec_keep(nb_exec *e);
void nb_exec_drop(nb_exec *e);

/* Inputs are realised, of the types of the graph; results are lent. */
bool nb_exec_run(nb_exec *e, nb_tensor *const *x, nb_tensor **y);

/* The same; `recorded` is what the graph was before the passes, for runs that
 * are watched or compared with it. */
bool nb_exec_run_as(nb_exec *e, const nb_graph *recorded, nb_tensor *const *x,
                    nb_tensor **y);

/* Runs the code and nothing else.  Whoever watches, or NULL, is told before and
 * after each step, and may ask for values of lines: those that the step reads
 * or wrote.  A run that is watched takes no memory of inputs. */
typedef nb_tensor *nb_run_value(void *run, int line);
typedef struct nb_run_watch {
    bool (*step)(void *ctx, int s, bool after, nb_run_value *value, void *run);
    void *ctx;
} nb_run_watch;
bool nb_exec_run_watched(nb_exec *e, nb_tensor *const *x, nb_tensor **y,
                         const nb_run_watch *watch);

/* For tests: changes nests before code is made of them; NULL: nothing does. */
extern void (*nb_exec_spoil)(nb_nest *x);

/* The same on memory: inputs and results are packed, no lanes are among them,
 * and ops keep nothing of what they are given.  It is loaded, and without
 * trouble. */
bool nb_exec_run_at(nb_exec *e, char *const *in, char *const *out);

/* The same of a program on a card all of whose steps only enqueue: what it does
 * depends on the pointers alone, so that it may become part of a graph.
 * Temporaries are in memory of the caller's; inputs, results and that are
 * aligned as blocks are.  at[i] is where result i is: where it belongs, or as
 * the plan lays it out elsewhere, for the caller to move. */
bool nb_exec_only_enqueues(const nb_exec *e);
size_t nb_exec_room(const nb_exec *e);
bool nb_exec_enqueue(nb_exec *e, char *const *in, char *const *out, char *room,
                     char **at);

/* Bytes that a run needs besides inputs and results: the arena, and the largest
 * of what loops and branches need inside. */
int64_t nb_exec_temporaries(const nb_exec *e);

/* The blocks that are alive when temporaries take the most: lines of bytes and
 * what it is, the largest first; the first nx inputs are arguments. */
char *nb_exec_alive(const nb_exec *e, int nx);

/* Inputs whose blocks results may take, where no one else holds them. */
bool nb_exec_donate(nb_exec *e, int n, const int *inputs);
int64_t nb_exec_donated_bytes(const nb_exec *e);

/* Why ops run one by one: there is no compiler; "" if there is code. */
const char *nb_exec_trouble(nb_exec *e);

const nb_plan *nb_exec_plan(const nb_exec *e);

#endif
