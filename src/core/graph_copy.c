/* graph_copy.c - graphs with lines of their own. */
#include "core/graph.h"

#include <string.h>

bool nb_line_own(nb_line *l)
{
    const int *from_in = l->in;
    const int64_t *from_attr = l->attr;
    size_t in = (size_t)l->nin * sizeof *l->in;
    size_t attr = (size_t)l->nattr * sizeof *l->attr;
    l->in = l->nin ? nb_alloc(in) : NULL;
    l->attr = l->nattr ? nb_alloc(attr) : NULL;
    if ((l->nin && !l->in) || (l->nattr && !l->attr)) {
        nb_free(l->in), nb_free(l->attr);
        return false;
    }
    if (l->in) memcpy(l->in, from_in, in);
    if (l->attr) memcpy(l->attr, from_attr, attr);
    return true;
}

static bool copy_line(nb_graph *to, const nb_line *from)
{
    nb_line l = *from;
    if (!nb_line_own(&l) || !nb_graph_add(to, l)) return false;
    nb_keep(l.captured);
    return true;
}

nb_graph *nb_graph_copy(const nb_graph *g)
{
    nb_graph *to = nb_alloc_zero(sizeof *to);
    if (!to) return NULL;
    size_t results = (size_t)g->ny * sizeof *g->result;
    size_t lanes = (size_t)g->nlanes * sizeof *g->lane_id;
    to->nx = g->nx;
    to->nlanes = g->nlanes;
    to->result = nb_alloc(results + 1);
    if (g->lane_id) to->lane_id = nb_alloc(lanes + 1);
    bool ok = to->result && (to->lane_id || !g->lane_id);
    for (int k = 0; ok && k < g->n; k++)
        ok = copy_line(to, &g->line[k]);
    if (!ok) return nb_graph_free(to), NULL;
    to->ny = g->ny;
    if (results) memcpy(to->result, g->result, results);
    if (g->lane_id) memcpy(to->lane_id, g->lane_id, lanes);
    return to;
}
