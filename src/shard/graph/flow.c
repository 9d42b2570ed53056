/* flow.c - maximum flow by shortest ways that have room left. */
#include "shard/graph/flow.h"

typedef struct edge {
    int to, next; /* edges 2 i and 2 i + 1 are each other's reverse */
    int64_t room;
} edge;

struct nb_flow {
    int n, node_room, nedges, edge_room, seen_room;
    int *first; /* by node; -1: none */
    edge *edge;
    int *by;      /* by node: the edge it was reached by; -1: not */
    bool *behind; /* by node: the sink can be reached from it */
};

nb_flow *nb_flow_new(void)
{
    nb_flow *f = nb_alloc_zero(sizeof *f);
    if (f && nb_flow_node(f) == NB_FLOW_SOURCE &&
        nb_flow_node(f) == NB_FLOW_SINK)
        return f;
    nb_flow_free(f);
    return NULL;
}

void nb_flow_free(nb_flow *f)
{
    if (!f) return;
    nb_free(f->first);
    nb_free(f->edge);
    nb_free(f->by);
    nb_free(f->behind);
    nb_free(f);
}

int nb_flow_node(nb_flow *f)
{
    if (!nb_grow(&f->first, &f->node_room, f->n + 1, sizeof *f->first))
        return -1;
    f->first[f->n] = -1;
    return f->n++;
}

static void add(nb_flow *f, int from, int to, int64_t room)
{
    f->edge[f->nedges] = (edge){to, f->first[from], room};
    f->first[from] = f->nedges++;
}

bool nb_flow_edge(nb_flow *f, int from, int to, int64_t room)
{
    if (!nb_grow(&f->edge, &f->edge_room, f->nedges + 2, sizeof *f->edge))
        return false;
    add(f, from, to, room);
    add(f, to, from, 0);
    return true;
}

/* Reaches nodes from the source, nearest first; whether the sink is there. */
static bool reach(nb_flow *f, int *queue)
{
    int n = 0;
    for (int i = 0; i < f->n; i++)
        f->by[i] = -1;
    queue[n++] = NB_FLOW_SOURCE;
    for (int at = 0; at < n; at++)
        for (int e = f->first[queue[at]]; e >= 0; e = f->edge[e].next) {
            int to = f->edge[e].to;
            if (!f->edge[e].room || to == NB_FLOW_SOURCE || f->by[to] >= 0)
                continue;
            f->by[to] = e;
            queue[n++] = to;
        }
    return f->by[NB_FLOW_SINK] >= 0;
}

static int64_t push(nb_flow *f)
{
    int64_t most = NB_FLOW_ALL;
    for (int at = NB_FLOW_SINK; at != NB_FLOW_SOURCE;
         at = f->edge[f->by[at] ^ 1].to)
        if (f->edge[f->by[at]].room < most) most = f->edge[f->by[at]].room;
    for (int at = NB_FLOW_SINK; at != NB_FLOW_SOURCE;) {
        int e = f->by[at];
        f->edge[e].room -= most;
        f->edge[e ^ 1].room += most;
        at = f->edge[e ^ 1].to;
    }
    return most;
}

/* Nodes from which there is room left to the sink. */
static void look_back(nb_flow *f, int *queue)
{
    int n = 0;
    for (int i = 0; i < f->n; i++)
        f->behind[i] = false;
    f->behind[NB_FLOW_SINK] = true;
    queue[n++] = NB_FLOW_SINK;
    for (int at = 0; at < n; at++)
        for (int e = f->first[queue[at]]; e >= 0; e = f->edge[e].next) {
            int from = f->edge[e].to;
            if (!f->edge[e ^ 1].room || f->behind[from]) continue;
            f->behind[from] = true;
            queue[n++] = from;
        }
}

int64_t nb_flow_run(nb_flow *f)
{
    size_t n = (size_t)f->n;
    int64_t total = 0;
    int *queue = nb_alloc(n * sizeof *queue);
    f->by = nb_alloc(n * sizeof *f->by);
    f->behind = nb_alloc(n * sizeof *f->behind);
    bool ok = queue && f->by && f->behind;
    while (ok && total < NB_FLOW_ALL && reach(f, queue))
        total += push(f);
    if (ok) look_back(f, queue);
    nb_free(queue);
    return ok ? total : -1;
}

bool nb_flow_is_before(const nb_flow *f, int node)
{
    return !f->behind[node];
}
