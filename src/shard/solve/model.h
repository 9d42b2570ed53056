/* model.h - a program as a problem of layouts.
 *
 * Inputs and ops are added in the order of the program; each op says its
 * factors, so that its options follow: every mesh axis splits one factor, or is
 * carried by a pending sum, or is not used.  An option fixes how operands must
 * lie and how results do.  Between a value and its use stands the price of the
 * plan that moves it; the solver chooses for all at once.
 *
 * A value is named by the number that adding it gave.  Functions that return an
 * int give -1, those that return bool false, with an error. */
#ifndef NB_SHARD_SOLVE_MODEL_H
#define NB_SHARD_SOLVE_MODEL_H

#include "shard/decide/factors.h"
#include "shard/layout/spec.h"
#include "shard/solve/solve.h"

typedef struct nb_model nb_model;

/* What moving a tensor costs; INFINITY: it cannot be.  NaN: failed. */
typedef double nb_price_fn(void *ctx, const nb_spec *from, const nb_spec *into,
                           const int64_t *size, int item);

typedef struct nb_model_options {
    nb_price_fn *price; /* NULL: seconds of the plan */
    void *ctx;
    double flop; /* seconds of one */
    nb_solve_options solve;
} nb_model_options;

nb_model *nb_model_new(const nb_mesh *mesh, const nb_model_options *o);
void nb_model_free(nb_model *m);

/* A tensor that the program is given, or keeps: it may lie in any way, or as
 * `spec` says.  Names are borrowed. */
typedef struct nb_model_tensor {
    const char *name;
    int rank, item;
    const int64_t *size;
    const nb_spec *spec; /* or NULL */
} nb_model_tensor;
int nb_model_input(nb_model *m, const nb_model_tensor *t);

/* Which operands may be pending, and then the result is too. */
typedef enum nb_carry {
    NB_CARRY_NONE,
    NB_CARRY_ALL, /* those named, together: linear in them jointly */
    NB_CARRY_ONE  /* one of those named: linear in each */
} nb_carry;

typedef struct nb_model_op {
    const char *name;
    /* Factors of kind pass and mask may be split, no others. */
    const nb_factors *factors;
    const int *operand; /* values */
    const int *item;    /* bytes of an element, of each result */
    nb_carry carry;
    uint64_t carriers; /* operands, as bits */
    bool spread;       /* uses as many devices as it can */
    /* Or NULL: of an op of one operand, how its result lies; closed dims so,
     * open ones rather so than otherwise where that costs as much. */
    const nb_spec *said;
    double flops; /* of the whole */
} nb_model_op;
/* The first of its results, which are numbered in order. */
int nb_model_add(nb_model *m, const nb_model_op *op);

/* Where it costs no more, open dims of the value rather begin with the axes
 * that the spec says. */
bool nb_model_prefer(nb_model *m, int value, const nb_spec *spec);

/* In the end the value lies as the spec says; or as an input does, whose new
 * contents it is. */
bool nb_model_want(nb_model *m, int value, const nb_spec *spec);
bool nb_model_alias(nb_model *m, int value, int input);

/* The nodes of two values, of the same kind and sizes, choose alike. */
bool nb_model_tie(nb_model *m, int a, int b);
/* Does so for all repeats that it finds: layers.  Returns how many ties. */
int nb_model_tie_repeats(nb_model *m);

/* Bytes that must fit on a device together: a row with a budget (negative:
 * none), the values in it. */
int nb_model_row(nb_model *m, int64_t budget);
bool nb_model_count(nb_model *m, int row, int value);
/* Rows for the times at which the most is alive, counting inputs throughout and
 * others from where they are made to their last use. */
bool nb_model_count_live(nb_model *m, int times, int64_t budget);

/* Chooses.  True also if there is no choice within the budgets: ask. */
bool nb_model_solve(nb_model *m);

const nb_solution *nb_model_solution(const nb_model *m); /* NULL: not yet */
/* How a value lies where it is made, and how operand k of the op that makes it
 * must; NULL if nothing was chosen. */
const nb_spec *nb_model_spec(const nb_model *m, int value);
const nb_spec *nb_model_need(const nb_model *m, int value, int k);

/* The problem: node of a value, for oracles. */
const nb_problem *nb_model_problem(const nb_model *m);

/* The plan as a table: every value, how it lies, what its operands cost; cost,
 * bound and bytes; or why there is none. */
bool nb_model_print(const nb_model *m, nb_text *t);

/* Seconds of the plan of plan.h. */
nb_price_fn nb_price_plan;

#endif
