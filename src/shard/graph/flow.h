/* flow.h - the least that separates two ends of a network. */
#ifndef NB_SHARD_GRAPH_FLOW_H
#define NB_SHARD_GRAPH_FLOW_H

#include "base/memory.h"

typedef struct nb_flow nb_flow;

enum { NB_FLOW_SOURCE, NB_FLOW_SINK }; /* the first two nodes */
#define NB_FLOW_ALL (INT64_MAX / 4)    /* never to be cut */

nb_flow *nb_flow_new(void);
void nb_flow_free(nb_flow *f);

/* A node; its number, or -1. */
int nb_flow_node(nb_flow *f);
bool nb_flow_edge(nb_flow *f, int from, int to, int64_t room);

/* The greatest flow, which is what the least cut costs; -1: failed. */
int64_t nb_flow_run(nb_flow *f);

/* Afterwards: whether a node is on the side of the source of the cut that is
 * nearest to the sink. */
bool nb_flow_is_before(const nb_flow *f, int node);

#endif
