/* graph_run.c - a graph recorded again: on inputs to run it, on stand-ins to
 * check it.  Nodes remember the place that their line does. */
#include "core/graph.h"

#include "core/debug.h"
#include "nabla/device.h"

#include <math.h>
#include <string.h>

nb_tensor *nb_line_number(const nb_line *l)
{
    nb_tensor *x = nb_scalar_int(0, l->dtype);
    if (x) memcpy(x->data, &l->number, nb_dtype_size(l->dtype));
    return x;
}

/* The node with several results that the parts of `op` refer to. */
static nb_tensor *all_results(nb_op *op, nb_tensor **in, const nb_line *l)
{
    nb_tensor **part = nb_alloc((size_t)op->nout * sizeof *part), *all = NULL;
    nb_results r = {.room = op->nout, .out = part};
    if (part && nb_record_many(op, l->nin, in, l->nattr, l->attr, &r))
        all = nb_tensor_in(part[0])[0];
    nb_free(part);
    return all;
}

static nb_tensor *part_of(nb_tensor *all, const nb_line *l)
{
    nb_call c = nb_call_of(all);
    nb_shape shape;
    nb_dtype dtype;
    if (!nb_call_infer(&c, (int)l->attr[0], &shape, &dtype)) return NULL;
    return nb_part_new(all, (int)l->attr[0], dtype, &shape);
}

/* Whether the op would take such a call; of what was recorded it did. */
static bool valid(const nb_line *l, nb_tensor **in, const int *id)
{
    int64_t attr[NB_MAX_WORDS];
    nb_call c = {
        .op = l->op, .nin = l->nin, .in = in, .attr = attr, .nattr = l->nattr};
    if (l->nattr) memcpy(attr, l->attr, (size_t)l->nattr * sizeof attr[0]);
    if (nb_op_moves_lanes(l->op)) attr[1] = id[attr[1]];
    return l->op == &nb_op_part || nb_call_check(&c);
}

static nb_tensor *lane_moved(const nb_line *l, nb_tensor **in, const int *id)
{
    int64_t attr[3];
    memcpy(attr, l->attr, sizeof attr);
    attr[1] = id[attr[1]];
    return nb_record(l->op, l->nin, in, l->nattr, attr);
}

static nb_tensor *call_of(const nb_line *l, nb_tensor **in, const int *id)
{
    if (l->op == &nb_op_part) return part_of(in[0], l);
    if (l->multi) return all_results(l->op, in, l);
    if (nb_op_moves_lanes(l->op)) return lane_moved(l, in, id);
    return nb_record(l->op, l->nin, in, l->nattr, l->attr);
}

/* A line whose inputs have values. */
static nb_tensor *call_line(const nb_line *l, nb_tensor **value, const int *id,
                            bool checked)
{
    nb_tensor *few[8], **in = few, *y = NULL;
    if (l->nin > 8 && !(in = nb_alloc((size_t)l->nin * sizeof *in)))
        return NULL;
    for (int i = 0; i < l->nin; i++)
        in[i] = value[l->in[i]];
    unsigned watched = nb_debug_flags; /* the place is not known yet */
    nb_debug_flags = 0;
    int device = nb_device_enter(l->device);
    if (!checked || valid(l, in, id)) y = call_of(l, in, id);
    nb_device_enter(device);
    nb_debug_flags = watched;
    if (in != few) nb_free(in);
    if (!y) return NULL;
    y->flags =
        (uint8_t)((y->flags & ~(NB_BACKWARD | NB_TANGENT)) | l->direction);
    if (l->op->effect && nb_direction()) y->flags |= NB_SILENT;
    if (l->source) {
        y->source = l->source;
        y->line = l->source_line;
    }
    return !watched || l->multi || nb_debug_settle(y) ? y : NULL;
}

static bool has_lane(const nb_graph *g, nb_tensor *const *x, int id)
{
    for (int i = 0; i < g->nx; i++)
        for (int l = 0; l < x[i]->nlanes; l++)
            if (nb_tensor_lane(x[i])[l].id == id) return true;
    return false;
}

void nb_graph_name_lanes(const nb_graph *g, int *id)
{
    for (int n = 1; n <= g->nlanes; n++)
        id[n] = g->lane_id ? g->lane_id[n - 1] : nb_lane_fresh();
}

void nb_graph_match(const nb_graph *g, nb_tensor *const *x, int *id)
{
    bool settled[NB_MAX_GRAPH_LANES + 1] = {false};
    nb_graph_name_lanes(g, id);
    for (int n = 1; n <= g->nlanes; n++)
        settled[n] = g->lane_id && has_lane(g, x, id[n]);
    for (int i = 0; i < g->nx; i++)
        for (int l = 0; l < x[i]->nlanes && l < g->line[i].shape.nlanes; l++) {
            int n = g->line[i].shape.lane[l].id;
            if (!settled[n]) id[n] = nb_tensor_lane(x[i])[l].id;
            settled[n] = true;
        }
}

static nb_tensor *record(const nb_line *l, nb_tensor **value, const int *id,
                         bool checked)
{
    if (l->kind == NB_LINE_CALL) return call_line(l, value, id, checked);
    if (!l->captured) return nb_line_number(l);
    bool there = l->captured->device == l->device;
    return there ? l->captured : nb_to_device(l->captured, l->device);
}

nb_tensor *nb_line_record(const nb_line *l, nb_tensor **value, const int *id)
{
    return record(l, value, id, false);
}

/* All lines after the inputs, which have values; id is what the lanes are. */
static bool record_all(const nb_graph *g, nb_tensor **value, const int *id,
                       bool checked)
{
    for (int k = g->nx; k < g->n; k++) {
        value[k] = record(&g->line[k], value, id, checked);
        if (!value[k]) return false;
    }
    return true;
}

static bool same_type(const nb_line *l, const nb_tensor *x)
{
    nb_shape s = nb_tensor_shape(x);
    bool same = l->multi || (l->dtype == x->dtype && l->shape.rank == s.rank &&
                             l->shape.nlanes == s.nlanes);
    for (int d = 0; same && !l->multi && d < s.rank; d++)
        same = nb_extent_same(l->shape.size[d], s.size[d]);
    for (int d = 0; same && !l->multi && d < s.nlanes; d++)
        same = nb_extent_same(l->shape.lane[d].size, s.lane[d].size) &&
               l->shape.lane[d].thin == s.lane[d].thin;
    return same;
}

bool nb_line_takes(const nb_line *l, const nb_tensor *x, int skip)
{
    int rank = l->shape.rank;
    bool same = l->dtype == x->dtype && rank + skip == x->rank;
    for (int d = 0; same && d < rank; d++)
        same = nb_extent_same(l->shape.size[d], nb_tensor_size(x)[skip + d]);
    return same;
}

bool nb_line_same(const nb_line *a, const nb_line *b)
{
    bool same = a->dtype == b->dtype && a->shape.rank == b->shape.rank;
    for (int d = 0; same && d < a->shape.rank; d++)
        same = nb_extent_same(a->shape.size[d], b->shape.size[d]);
    return same;
}

/* Lanes may come and go: the ops of the graph carry what they are given. */
nb_status nb_graph_run(const nb_graph *g, int nx, nb_tensor *const *x,
                       nb_tensor **y)
{
    if (!g) return NB_STATUS(false);
    bool ok = nx == g->nx;
    if (!ok) nb_fail(NB_EVALUE, "graph: takes %d inputs, not %d", g->nx, nx);
    for (int i = 0; ok && i < nx; i++) {
        ok = x[i] && nb_line_takes(&g->line[i], x[i], 0);
        if (!ok && x[i])
            nb_fail(NB_EVALUE, "graph: input %d has another type", i);
    }
    nb_tensor **value =
        ok ? nb_alloc((size_t)(g->n + 1) * sizeof *value) : NULL;
    if (ok && value) {
        int id[NB_MAX_GRAPH_LANES + 1];
        nb_graph_match(g, x, id);
        for (int i = 0; i < nx; i++)
            value[i] = x[i];
        ok = record_all(g, value, id, false);
    }
    ok = ok && value;
    for (int i = 0; ok && i < g->ny; i++)
        y[i] = value[g->result[i]];
    nb_free(value);
    return NB_STATUS(ok);
}

static nb_tensor *placeholder(const nb_line *l, const int *id)
{
    nb_shape s = l->shape;
    for (int d = 0; d < s.nlanes; d++)
        s.lane[d].id = id[s.lane[d].id];
    nb_tensor *x = nb_node_new(NULL, NULL, l->dtype, &s, 0, NULL, 0, NULL);
    if (x) x->sharding = l->sharding;
    if (x) x->device = l->device;
    return x;
}

/* Records g on stand-ins; id is what its lanes are for now. */
static bool on_stand_ins(const nb_graph *g, nb_tensor **value, int *id,
                         bool checked)
{
    unsigned watched = nb_debug_flags; /* nothing of it is to run */
    bool ok = true;
    nb_graph_name_lanes(g, id);
    nb_debug_flags = 0;
    for (int i = 0; ok && i < g->nx; i++)
        ok = (value[i] = placeholder(&g->line[i], id));
    ok = ok && record_all(g, value, id, checked);
    nb_debug_flags = watched;
    return ok;
}

bool nb_graph_nodes(const nb_graph *g, nb_tensor **node)
{
    int id[NB_MAX_GRAPH_LANES + 1];
    return on_stand_ins(g, node, id, false);
}

bool nb_graph_nodes_on(const nb_graph *g, nb_tensor *const *x, nb_tensor **node)
{
    int id[NB_MAX_GRAPH_LANES + 1];
    unsigned watched = nb_debug_flags; /* nothing of it is to run */
    nb_graph_match(g, x, id);
    for (int i = 0; i < g->nx; i++)
        node[i] = x[i];
    nb_debug_flags = 0;
    bool ok = record_all(g, node, id, false);
    nb_debug_flags = watched;
    return ok;
}

static bool check(const nb_graph *g, nb_tensor **value, int *id)
{
    if (!on_stand_ins(g, value, id, true)) return false;
    for (int k = 0; k < g->n; k++) {
        const nb_line *l = &g->line[k];
        nb_shape is = nb_tensor_shape(value[k]);
        if (same_type(l, value[k])) continue;
        return nb_fail(
            NB_EVALUE, "graph: line %d (%s) says %s%s, its op gives %s%s", k,
            l->op ? l->op->name : "value", nb_dtype_brief(l->dtype),
            nb_shape_text(&l->shape), nb_dtype_brief((nb_dtype)value[k]->dtype),
            nb_shape_text(&is));
    }
    return true;
}

/* The nodes of the graph on stand-ins, in a scope that the caller closes. */
static nb_tensor **stand_ins(const nb_graph *g)
{
    nb_tensor **value = nb_alloc((size_t)(g->n + 1) * sizeof *value);
    if (!value || nb_scope_open() != NB_OK) return nb_free(value), NULL;
    return value;
}

double nb_graph_flops(const nb_graph *g)
{
    if (!g) return NB_STATUS(false), NAN;
    int id[NB_MAX_GRAPH_LANES + 1];
    nb_tensor **value = stand_ins(g);
    double total = NAN;
    if (!value) return NAN;
    if (check(g, value, id)) {
        total = 0;
        for (int k = 0; k < g->n; k++)
            if (g->line[k].kind == NB_LINE_CALL)
                total += nb_call_flops(value[k]);
    }
    nb_scope_close(0, NULL);
    nb_free(value);
    return total;
}

nb_status nb_graph_check(const nb_graph *g)
{
    int id[NB_MAX_GRAPH_LANES + 1];
    nb_tensor **value = g ? stand_ins(g) : NULL;
    bool ok = value;
    if (ok) {
        ok = check(g, value, id);
        nb_scope_close(0, NULL);
    }
    nb_free(value);
    return NB_STATUS(ok);
}

static void number_lanes(const nb_graph *g, nb_line *l, const nb_tensor *x,
                         const int *id)
{
    for (int d = 0; d < l->shape.nlanes; d++)
        for (int n = 1; n <= g->nlanes; n++)
            if (id[n] == nb_tensor_lane(x)[d].id) l->shape.lane[d].id = n;
}

bool nb_graph_settle(nb_graph *g)
{
    int id[NB_MAX_GRAPH_LANES + 1];
    nb_tensor **value = stand_ins(g);
    if (!value) return false;
    bool ok = check(g, value, id);
    for (int k = g->nx; ok && k < g->n; k++) {
        number_lanes(g, &g->line[k], value[k], id);
        g->line[k].device = value[k]->device;
    }
    nb_scope_close(0, NULL);
    nb_free(value);
    return ok;
}
