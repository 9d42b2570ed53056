/* graph_line.c - a graph looked into from outside, line by line. */
#include "core/graph.h"

#include <string.h>

static const nb_line *line_of(const nb_graph *g, int k)
{
    return g && k >= 0 && k < g->n ? &g->line[k] : NULL;
}

int nb_graph_calls(const nb_graph *g)
{
    int n = 0;
    for (int k = 0; g && k < g->n; k++)
        n += g->line[k].kind == NB_LINE_CALL;
    return n;
}

int nb_graph_inputs(const nb_graph *g)
{
    return g ? g->nx : 0;
}

int nb_graph_results(const nb_graph *g)
{
    return g ? g->ny : 0;
}

int nb_graph_lines(const nb_graph *g)
{
    return g ? g->n : 0;
}

int nb_graph_result(const nb_graph *g, int i)
{
    return g && i >= 0 && i < g->ny ? g->result[i] : -1;
}

static int regions(const nb_op *op)
{
    int n = 0;
    while (op && n < 2 && op->region[n])
        n++;
    return n;
}

bool nb_graph_line(const nb_graph *g, int k, nb_line_info *info)
{
    const nb_line *l = line_of(g, k);
    *info = (nb_line_info){.op = ""};
    if (!l) return false;
    bool part = l->op == &nb_op_part;
    info->kind = part ? NB_LINE_PART : l->kind;
    info->part = part ? (int)l->attr[0] : 0;
    info->nin = l->nin;
    info->in = l->in;
    info->parts = l->multi;
    info->regions = regions(l->op);
    if (l->op && !part) info->op = l->op->name;
    if (l->op && !part) info->nout = l->op->nout > 1 ? l->op->nout : 1;
    if (l->multi) return true;
    info->dtype = l->dtype;
    info->rank = l->shape.rank;
    info->hidden = l->shape.nlanes;
    for (int d = 0; d < l->shape.nlanes; d++)
        info->hidden_size[l->shape.nlanes - 1 - d] =
            nb_extent_get(l->shape.lane[d].size);
    for (int d = 0; d < l->shape.rank; d++)
        info->size[d] = nb_extent_get(l->shape.size[d]);
    return true;
}

static nb_value value_of(nb_param_kind kind, const int64_t *at)
{
    nb_value v = {.kind = NB_VALUE_INT, .i = *at};
    if (*at == NB_NONE) return (nb_value){.kind = NB_VALUE_NONE};
    if (kind == NB_P_FLOAT) {
        v.kind = NB_VALUE_FLOAT;
        memcpy(&v.f, at, sizeof v.f);
    } else if (kind == NB_P_TEXT) {
        v.kind = NB_VALUE_TEXT;
        v.text = (const char *)(intptr_t)*at;
    } else if (kind == NB_P_AXES || kind == NB_P_INTS) {
        v = (nb_value){.kind = NB_VALUE_LIST, .n = (int)*at, .list = at + 1};
    }
    return v;
}

bool nb_graph_attr(const nb_graph *g, int k, int i, nb_arg *arg,
                   nb_value *value)
{
    const nb_line *l = line_of(g, k);
    const nb_param *p = NULL;
    if (!l || !l->op || !l->op->parsed || l->op == &nb_op_part) return false;
    nb_call c = {.op = l->op, .attr = l->attr, .nattr = l->nattr};
    const int64_t *at = nb_arg_find(&c, i, &p);
    if (!at) return false;
    *arg = (nb_arg){p->name, (nb_arg_kind)p->kind, p->has_default,
                    p->keyword_only};
    *value = value_of(p->kind, at);
    return true;
}

const nb_graph *nb_graph_region(const nb_graph *g, int k, int i)
{
    const nb_line *l = line_of(g, k);
    return l && i >= 0 && i < regions(l->op) ? l->op->region[i] : NULL;
}

const char *nb_graph_region_name(const nb_graph *g, int k, int i)
{
    if (!nb_graph_region(g, k, i)) return NULL;
    const char *name = g->line[k].op->region_name[i];
    return name ? name : "body";
}

const char *nb_graph_source(const nb_graph *g, int k)
{
    const nb_line *l = line_of(g, k);
    return l ? nb_source_text(l->source, l->source_line) : "";
}

nb_tensor *nb_graph_value(const nb_graph *g, int k)
{
    const nb_line *l = line_of(g, k);
    if (!l || l->kind == NB_LINE_INPUT || l->kind == NB_LINE_CALL) return NULL;
    return l->captured ? nb_give(nb_keep(l->captured)) : nb_line_number(l);
}
