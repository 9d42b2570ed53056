/* model_parts.h - what the files of the model share. */
#ifndef NB_SHARD_SOLVE_MODEL_PARTS_H
#define NB_SHARD_SOLVE_MODEL_PARTS_H

#include "shard/solve/model.h"

/* The options of ops that are alike, or of inputs: specs of operands, then of
 * results, for each. */
typedef struct nb_choices {
    struct nb_choices *next;
    int nkey;
    int64_t *key;
    int n, room, nin, nout;
    int *rank;      /* of each tensor */
    int64_t **size; /* ... */
    const nb_spec **spec;
    double *share; /* of the flops, that a device does */
} nb_choices;

static inline const nb_spec *nb_choices_spec(const nb_choices *c, int i, int t)
{
    return c->spec[i * (c->nin + c->nout) + t];
}

/* A table of prices from result k of one to operand j of another, kept. */
typedef struct nb_priced {
    struct nb_priced *next;
    const nb_choices *from, *into;
    int k, j, item;
    double *table;
} nb_priced;

typedef struct nb_model_node {
    const char *name;
    const nb_choices *choices;
    int nin, nout, first; /* value of result 0 */
    int *operand;
    int var; /* in the problem */
    bool is_input;
} nb_model_node;

typedef struct nb_model_value {
    int node, k, item;
    int last; /* node that uses it last */
} nb_model_value;

typedef struct nb_model_alias_pair {
    int value, input;
} nb_model_alias_pair;

struct nb_model {
    const nb_mesh *mesh;
    nb_model_options o;
    nb_choices *choices;
    nb_priced *priced;
    nb_model_node *node;
    nb_model_value *value;
    int nnodes, node_room, nvalues, value_room;
    /* Said before the problem is made. */
    struct {
        int a, b;
    } * tie, *count, *alias;
    struct {
        int value;
        bool rather; /* where it costs no more */
        const nb_spec *spec;
    } * want;
    int64_t *budget;
    int nties, tie_room, ncounts, count_room, naliases, alias_room;
    int nwants, want_room, nrows, row_room;
    double *flops; /* of each node */
    int flops_room;
    nb_problem *problem;
    nb_solution *solution;
};

/* model_options.c: options of an op, of an input. */
nb_choices *nb_choices_of_op(const nb_mesh *mesh, const nb_model_op *op);
nb_choices *nb_choices_of_input(const nb_mesh *mesh, const nb_model_tensor *t);
void nb_choices_free(nb_choices *c);

/* model_table.c: kept for ops that are alike. */
const double *nb_model_prices(nb_model *m, const nb_choices *from, int k,
                              const nb_choices *into, int j, int item);
double nb_model_price(const nb_model *m, const nb_spec *from,
                      const nb_spec *into, const int64_t *size, int item);

int64_t nb_choices_bytes(const nb_choices *c, int i, int t, int item);

#endif
