/* graph.h - graphs inside: nodes in the order they came, each after earlier
 * ones. */
#ifndef SIM_GRAPH_H
#define SIM_GRAPH_H

#include "api_graph.h"
#include "sim.h"

/* A value that kernels set and conditional nodes read. */
typedef struct sim_condition {
    struct sim_condition *next;
    unsigned value, first;
    bool assigned; /* `first` at every launch */
} sim_condition;

typedef struct sim_branch {
    sim_condition *condition;
    int type; /* 0: if, 1: while, 2: switch */
    unsigned count;
    CUgraph *bodies;
} sim_branch;

typedef struct sim_node {
    struct sim_graph *graph;
    int index;
    sim_work work;
    struct sim_node **after;
    int after_count;
} sim_node;

typedef struct sim_graph {
    int refs;    /* its owner, and what was instantiated from it */
    uint64_t id; /* never the same again */
    sim_card *card;
    sim_node **nodes;
    int count, room;
    sim_condition *conditions;
} sim_graph;

sim_graph *sim_graph_new(sim_card *c);
void sim_graph_drop(sim_graph *g);
/* Takes w; NULL: no memory, or a node of another graph. */
sim_node *sim_node_new(sim_graph *g, sim_node *const *after, size_t count,
                       sim_work w);
bool sim_work_copy(sim_work *to, const sim_work *w);

/* What nodes are made of. */
CUresult sim_work_kernel(sim_work *w, sim_card *c,
                         const CUDA_KERNEL_NODE_PARAMS *p);
CUresult sim_work_copied(sim_work *w, const CUDA_MEMCPY3D *p);
CUresult sim_work_set(sim_work *w, const CUDA_MEMSET_NODE_PARAMS *p);

#endif
