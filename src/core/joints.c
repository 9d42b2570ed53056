/* joints.c - programs inside ops and their calls. */
#include "core/joints.h"

#include "core/graph.h"

#include <string.h>

void nb_joints_free(nb_joints *j)
{
    nb_free(j->shape);
    *j = (nb_joints){0};
}

static bool room(nb_joints *j, int nx, int ny)
{
    size_t x = (size_t)nx, y = (size_t)ny;
    *j = (nb_joints){.nx = nx, .ny = ny};
    j->shape = nb_alloc_zero((x + 1) * sizeof *j->shape +
                             (x + 3 * y) * sizeof *j->from + x + y);
    if (!j->shape) return false;
    j->from = (int *)(j->shape + nx + 1);
    j->to = j->from + nx;
    j->feeds = j->to + ny;
    j->run = j->feeds + ny;
    j->step = (bool *)(j->run + ny);
    j->stacked = j->step + nx;
    return true;
}

/* A program that runs once, on the inputs of the call. */
static void fill(const nb_call *c, const nb_graph *g, nb_joints *j)
{
    j->nruns = 1;
    j->turns = 1;
    j->more = c->nin;
    for (int i = 0; i < j->nx; i++)
        j->from[i] = i;
    for (int k = 0; k < j->ny; k++) {
        j->to[k] = k;
        j->feeds[k] = -1;
    }
    for (int i = 0; i < j->nx; i++)
        j->shape[i] = g->line[i].shape;
}

/* Inputs have the lanes of what they are; the op has said it of the others. */
static void set_lanes(const nb_call *c, nb_joints *j)
{
    for (int i = 0; i < j->nx; i++) {
        bool changes = j->from[i] < 0;
        for (int k = 0; k < j->ny; k++)
            changes = changes || j->feeds[k] == i;
        if (changes) continue;
        nb_shape is = nb_tensor_shape(c->in[j->from[i]]);
        j->shape[i].nlanes = is.nlanes;
        memcpy(j->shape[i].lane, is.lane, sizeof is.lane);
    }
}

bool nb_joints_of(const nb_call *c, int region, nb_joints *j)
{
    const nb_graph *g = c->op->region[region];
    *j = (nb_joints){0};
    if (!g || (!c->op->inlines && !c->op->join)) return false;
    if (!room(j, g->nx, g->ny)) return false;
    fill(c, g, j);
    if (c->op->join && !c->op->join(c, region, j)) {
        nb_joints_free(j);
        return false;
    }
    set_lanes(c, j);
    return true;
}

static bool move_known(const nb_graph *g, nb_tensor **node)
{
    bool ok = true;
    for (int k = 0; ok && k < g->n; k++) {
        const nb_line *l = &g->line[k];
        if (l->op && l->op->lands && nb_tensor_done(node[l->in[0]]))
            ok = nb_realize_now(1, &node[k]);
    }
    return ok;
}

bool nb_joints_nodes(const nb_call *c, int region, const nb_joints *j,
                     int device, nb_tensor **node)
{
    const nb_graph *g = c->op->region[region];
    nb_tensor **x = nb_alloc_zero((size_t)(g->nx + 1) * sizeof *x);
    bool ok = x;
    for (int i = 0; ok && i < g->nx; i++)
        ok = (x[i] = nb_leaf_on(device,
                                nb_node_new(NULL, NULL, g->line[i].dtype,
                                            &j->shape[i], 0, NULL, 0, NULL)));
    ok = ok && nb_graph_nodes_on(g, x, node) && move_known(g, node);
    nb_free(x);
    return ok;
}
