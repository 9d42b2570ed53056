/* spread.h - a program as what layouts spread over: values, and sites at which
 * several of them meet. */
#ifndef NB_SHARD_GRAPH_SPREAD_H
#define NB_SHARD_GRAPH_SPREAD_H

#include "core/graph.h"
#include "shard/decide/factors.h"

typedef struct nb_party {
    int value, rank;
    int64_t *size; /* by dim */
    nb_dim *dim;
} nb_party;

/* A call and its tensors: factors.h, in as little room as it takes.  Or two
 * values that are one: an input of a call and that of a program inside it. */
typedef struct nb_crossing {
    int n, nin; /* tensors: operands, then results */
    nb_party *tensor;
    int nfactors;
    int64_t *size; /* by factor */
    uint8_t *kind; /* as the op does it */
    bool *reduced;
    bool passes;  /* all of its factors are in the result and pass */
    bool single;  /* its operands have no other use */
    bool repeats; /* its result is larger than what it is made of */
    bool waiting; /* a tensor of it has changed */
} nb_crossing;

typedef struct nb_spreader {
    const nb_mesh *mesh;
    nb_spec *value; /* lines of the program, then of programs inside it */
    int nvalues, value_room;
    nb_crossing **site; /* in the order of the program */
    int nsites, site_room;
    int *uses; /* by value: operands and results that it is */
    int *first,
        *by; /* sites of value k: by[first[k]] to by[first[k + 1] - 1] */
} nb_spreader;

/* Reads a program, nodes one for each line; in an open scope. */
bool nb_spreader_read(nb_spreader *p, const nb_graph *g,
                      nb_tensor *const *node);
void nb_spreader_free(nb_spreader *p);

#endif
