/* inside.c - a program inside an op as one call has it: in the lanes of that
 * call, laid out. */
#include "shard/decide/region.h"

#include "core/lanes.h"

#include <string.h>

const nb_spec *nb_spec_between(const nb_spec *s, const nb_shape *of,
                               const nb_shape *to)
{
    nb_spec d;
    memset(&d, 0, sizeof d);
    d.mesh = s->mesh;
    d.rank = to->nlanes + to->rank;
    for (int l = 0; l < to->nlanes; l++) {
        int at = nb_shape_find_lane(of, to->lane[l].id);
        if (at >= 0 && !to->lane[l].thin && !of->lane[at].thin)
            d.dim[l].axes = s->dim[at].axes;
    }
    /* Counted from the last. */
    for (int k = 1; k <= to->rank && k <= of->rank; k++)
        d.dim[d.rank - k].axes = s->dim[of->nlanes + of->rank - k].axes;
    return nb_spec_intern(&d);
}

void nb_inside_free(nb_inside *b)
{
    nb_layouts_free(&b->lay);
    nb_graph_free(b->made);
    nb_free(b->node);
    nb_free(b->in);
    nb_joints_free(&b->j);
    *b = (nb_inside){0};
}

/* Lanes */

static bool has_lanes(const nb_call *c)
{
    for (int i = 0; i < c->nin; i++)
        if (c->in[i]->nlanes) return true;
    return false;
}

/* y in all the lanes of s, full where those are: every device knows its part. */
static nb_tensor *in_lanes(nb_tensor *y, const nb_shape *s)
{
    for (int l = 0; y && l < s->nlanes; l++) {
        nb_shape is = nb_tensor_shape(y);
        int at = nb_shape_find_lane(&is, s->lane[l].id);
        if (at >= 0 && is.lane[at].thin <= s->lane[l].thin) continue;
        y = s->lane[l].thin
                ? nb_spread(y, s->lane[l])
                : nb_hide(nb_show(y, 0, s->lane[l]), 0, s->lane[l].id);
    }
    return y;
}

static nb_tensor *result_in_lanes(const nb_call *c, const nb_joints *j, int k,
                                  nb_tensor *y)
{
    nb_shape s;
    nb_dtype d;
    if (j->feeds[k] >= 0) return in_lanes(y, &j->shape[j->feeds[k]]);
    if (j->to[k] < 0) return y;
    return c->op->result(c, j->to[k], &s, &d) ? in_lanes(y, &s) : NULL;
}

static bool stand_ins(const nb_inside *b, const nb_graph *g, nb_tensor **x)
{
    bool ok = true;
    for (int i = 0; ok && i < g->nx; i++) {
        x[i] = nb_node_new(NULL, NULL, g->line[i].dtype, &b->j.shape[i], 0,
                           NULL, 0, NULL);
        ok = x[i];
        if (ok) x[i]->device = g->line[i].device;
        if (ok && b->in) x[i]->sharding = b->in[i];
    }
    return ok;
}

/* The program recorded once more, on inputs in the lanes of the call. */
static nb_graph *in_call(const nb_call *c, const nb_graph *g,
                         const nb_inside *b)
{
    nb_graph *made = NULL;
    nb_tensor **x = nb_alloc((size_t)(g->nx + g->ny + 1) * sizeof *x);
    nb_tensor **node = nb_alloc((size_t)(g->n + 1) * sizeof *node);
    bool ok = x && node && stand_ins(b, g, x) && nb_graph_nodes_on(g, x, node);
    for (int k = 0; ok && k < g->ny; k++)
        ok = (x[g->nx + k] =
                  result_in_lanes(c, &b->j, k, node[g->result[k]])) != NULL;
    ok = ok && nb_graph_of(g->nx, x, g->ny, x + g->nx, &made) == NB_OK;
    nb_free(x);
    nb_free(node);
    return ok ? made : NULL;
}

bool nb_inside_open(const nb_call *c, int region, nb_inside *to)
{
    const nb_graph *g = c->op->region[region];
    *to = (nb_inside){.graph = g};
    if (!nb_joints_of(c, region, &to->j)) return false;
    bool ok = true;
    if (has_lanes(c)) {
        to->graph = to->made = in_call(c, g, to);
        ok = to->made;
    }
    if (ok) {
        to->in = nb_alloc_zero((size_t)(g->nx + 1) * sizeof *to->in);
        to->node = nb_alloc((size_t)(to->graph->n + 1) * sizeof *to->node);
        ok = to->in && to->node;
    }
    if (!ok) nb_inside_free(to);
    return ok;
}

bool nb_inside_nodes(nb_inside *b)
{
    nb_tensor **x = nb_alloc((size_t)(b->graph->nx + 1) * sizeof *x);
    bool ok = x && stand_ins(b, b->graph, x) &&
              nb_graph_nodes_on(b->graph, x, b->node);
    nb_free(x);
    return ok;
}

bool nb_inside_lay(nb_inside *b, const nb_mesh *m)
{
    nb_layouts_free(&b->lay);
    return nb_inside_nodes(b) && nb_layouts_on(b->graph, b->node, m, &b->lay);
}

bool *nb_inside_lines(const nb_inside *b, int run)
{
    const nb_graph *g = b->graph;
    bool *needed = nb_alloc_zero((size_t)(g->n + 1));
    for (int k = 0; needed && k < g->ny; k++)
        if (b->j.run[k] == run) needed[g->result[k]] = true;
    for (int k = g->n - 1; needed && k >= 0; k--)
        for (int i = 0; needed[k] && i < g->line[k].nin; i++)
            needed[g->line[k].in[i]] = true;
    return needed;
}
