/* cut.c - sums between where they come to be pending and where they must be
 * taken.
 *
 * A sum over devices may be taken at any value that linear ops carry it
 * through.  Every value is two nodes with an edge between them that has room
 * for the bytes of taking it there; every use that needs it taken is a node
 * behind an edge with room for what taking it there costs more than if it were
 * taken already.  Edges along which it is carried are never cut. */
#include "shard/graph/cut.h"

#include "shard/decide/factors.h"
#include "shard/decide/partial.h"
#include "shard/graph/flow.h"

#include <string.h>

typedef struct cutter {
    const nb_graph *g;
    nb_tensor *const *node;
    const nb_layouts *lay;
    nb_axis axis;
    nb_flow *flow;
    int *in, *out; /* nodes, by line; -1: the axis is never pending there */
    bool *source;  /* the axis comes to be pending there */
    bool *pending; /* in the end: it is, for all uses */
    nb_sums *to;
} cutter;

void nb_sums_free(nb_sums *s)
{
    nb_free(s->reduce);
    nb_free(s->carry);
    *s = (nb_sums){0};
}

static bool is_pending(const nb_spec *s, nb_axis a)
{
    for (int i = 0; s && s->kind == NB_SUM && i < s->partial.n; i++)
        if (nb_axis_equal(s->partial.at[i], a)) return true;
    return false;
}

static bool is_split(const nb_spec *s, nb_axis a)
{
    for (int d = 0; d < s->rank; d++)
        if (nb_cut_has(&s->dim[d].axes, a)) return true;
    return false;
}

/* Whether the call splits something by the axis. */
static bool uses_axis(const cutter *c, const nb_decision *d)
{
    for (int i = 0; i < d->nin; i++)
        if (is_split(d->need[i], c->axis)) return true;
    return is_split(d->give[0], c->axis);
}

static const nb_spec *made_as(const cutter *c, int k)
{
    const nb_line *l = &c->g->line[k];
    const nb_decision *d = c->lay->decision[k];
    if (l->op == &nb_op_part && c->lay->decision[l->in[0]])
        return c->lay->decision[l->in[0]]->give[l->attr[0]];
    return d && !l->multi ? d->give[0] : c->lay->spec[k];
}

/* Through calls with one result that decide for themselves. */
static bool is_plain_call(const cutter *c, int k)
{
    const nb_line *l = &c->g->line[k];
    return l->kind == NB_LINE_CALL && !l->multi && l->op != &nb_op_part &&
           !l->op->places && !l->op->release && !l->op->effect &&
           c->lay->decision[k];
}

/* Of operands that an op is linear in each by itself one carries: the largest.
 */
static bool is_carrier(const cutter *c, int k, int i)
{
    const nb_line *l = &c->g->line[k];
    int64_t size[NB_MAX_DIMS], n[2];
    for (int j = 0; j < l->nin; j++) {
        if (j == i || c->out[l->in[j]] < 0) continue;
        if (l->in[j] == l->in[i]) return false;
        for (int t = 0; t < 2; t++) {
            int line = l->in[t ? j : i];
            nb_stored_sizes(c->node[line], size);
            n[t] = nb_spec_elements(made_as(c, line), size);
        }
        if (n[1] > n[0] || (n[1] == n[0] && j < i)) return false;
    }
    return true;
}

static bool carries(const cutter *c, int k, int i)
{
    nb_call call = nb_call_of(c->node[k]);
    if (!is_plain_call(c, k) || c->out[c->g->line[k].in[i]] < 0 ||
        uses_axis(c, c->lay->decision[k]) || !nb_call_carries(&call, i) ||
        is_split(made_as(c, k), c->axis))
        return false;
    return call.op->kind == NB_LINEAR || is_carrier(c, k, i);
}

/* Bytes of getting value k from how it is made, its dims, to another layout:
 * with the axis pending, and without. */
static bool price(const cutter *c, int k, const nb_spec *to, bool pending,
                  int64_t *bytes)
{
    const nb_tensor *x = c->node[k];
    const nb_spec *made = made_as(c, k);
    nb_spec s;
    int64_t size[NB_MAX_DIMS];
    memset(&s, 0, sizeof s);
    s.mesh = made->mesh;
    s.rank = made->rank;
    for (int d = 0; d < s.rank; d++)
        s.dim[d].axes = made->dim[d].axes;
    const nb_spec *whole = nb_spec_intern(&s);
    if (pending) s.partial = (nb_cut){.n = 1, .at = {c->axis}};
    const nb_spec *from = nb_spec_intern(&s);
    nb_stored_sizes(x, size);
    const nb_reshard_plan *p =
        from && whole
            ? nb_reshard_find(from, to ? to : whole, size,
                              (int)nb_dtype_size((nb_dtype)x->dtype), NULL)
            : NULL;
    *bytes = p ? p->bytes : 0;
    return p;
}

static bool add_value(cutter *c, int k)
{
    int64_t bytes;
    return (c->in[k] = nb_flow_node(c->flow)) >= 0 &&
           (c->out[k] = nb_flow_node(c->flow)) >= 0 &&
           price(c, k, NULL, true, &bytes) &&
           nb_flow_edge(c->flow, c->in[k], c->out[k], bytes);
}

/* Value k has to have the sum taken by someone who needs it to lie so. */
static bool add_use(cutter *c, int k, const nb_spec *need)
{
    int64_t with, without;
    int use;
    if (c->out[k] < 0 || is_pending(need, c->axis)) return true;
    return price(c, k, need, true, &with) &&
           price(c, k, need, false, &without) &&
           (use = nb_flow_node(c->flow)) >= 0 &&
           nb_flow_edge(c->flow, c->out[k], use,
                        with > without ? with - without : 0) &&
           nb_flow_edge(c->flow, use, NB_FLOW_SINK, NB_FLOW_ALL);
}

/* What a use needs where nothing is pending that it would carry. */
static const nb_spec *taken(const nb_spec *need)
{
    nb_spec s = nb_spec_draft(need);
    s.partial.n = 0;
    s.kind = NB_SUM;
    return nb_spec_intern(&s);
}

static bool add_line(cutter *c, int k)
{
    const nb_line *l = &c->g->line[k];
    const nb_decision *d = c->lay->decision[k];
    bool carried = false, ok = true;
    c->in[k] = c->out[k] = -1;
    if (l->op == &nb_op_part) return true;
    for (int i = 0; i < l->nin; i++)
        carried = carried || carries(c, k, i);
    c->source[k] = !carried && !l->multi && is_pending(made_as(c, k), c->axis);
    if (carried || c->source[k]) ok = add_value(c, k);
    if (ok && c->source[k])
        ok = nb_flow_edge(c->flow, NB_FLOW_SOURCE, c->in[k], NB_FLOW_ALL);
    for (int i = 0; ok && i < l->nin; i++) {
        int from = l->in[i];
        if (c->out[from] < 0) continue;
        if (carries(c, k, i))
            ok = nb_flow_edge(c->flow, c->out[from], c->in[k], NB_FLOW_ALL);
        else if (l->op->places || l->op->lands)
            ok = add_use(c, from, c->lay->spec[k]);
        else if (d) {
            const nb_spec *need = taken(d->need[i]);
            ok = need && add_use(c, from, need);
        }
    }
    return ok;
}

static void append(nb_cut *l, nb_axis a)
{
    if (l->n < NB_MESH_AXES) l->at[l->n++] = a;
}

/* Sums are carried from where they come to be pending as far as nothing cuts
 * them off. */
static void read_cut(cutter *c)
{
    for (int k = 0; k < c->g->n; k++) {
        const nb_line *l = &c->g->line[k];
        bool made = c->source[k];
        c->pending[k] = false;
        if (c->in[k] < 0) continue;
        for (int i = 0; i < l->nin; i++)
            made = made || (c->pending[l->in[i]] && carries(c, k, i));
        if (!made) continue;
        append(&c->to->carry[k], c->axis);
        c->pending[k] = nb_flow_is_before(c->flow, c->out[k]);
        if (!c->pending[k]) append(&c->to->reduce[k], c->axis);
    }
}

static bool place_axis(cutter *c)
{
    bool ok = (c->flow = nb_flow_new()) != NULL;
    for (int k = 0; ok && k < c->g->n; k++)
        ok = add_line(c, k);
    for (int i = 0; ok && i < c->g->ny; i++)
        ok = add_use(c, c->g->result[i], c->lay->spec[c->g->result[i]]);
    ok = ok && nb_flow_run(c->flow) >= 0;
    if (ok) read_cut(c);
    nb_flow_free(c->flow);
    return ok;
}

/* Axes over which sums are pending somewhere. */
static void find_axes(const cutter *c, nb_cut *all)
{
    all->n = 0;
    for (int k = 0; k < c->g->n; k++) {
        const nb_spec *s = c->g->line[k].multi ? NULL : made_as(c, k);
        for (int i = 0; s && s->kind == NB_SUM && i < s->partial.n; i++)
            if (!nb_cut_has(all, s->partial.at[i]))
                append(all, s->partial.at[i]);
    }
}

bool nb_sums_place(const nb_graph *g, nb_tensor *const *node,
                   const nb_layouts *l, nb_sums *to)
{
    size_t n = (size_t)(g->n + 1);
    cutter c = {.g = g, .node = node, .lay = l, .to = to};
    nb_cut axes;
    c.in = nb_alloc(n * sizeof *c.in);
    c.out = nb_alloc(n * sizeof *c.out);
    c.source = nb_alloc_zero(n * sizeof *c.source);
    c.pending = nb_alloc_zero(n * sizeof *c.pending);
    to->reduce = nb_alloc_zero(n * sizeof *to->reduce);
    to->carry = nb_alloc_zero(n * sizeof *to->carry);
    bool ok = c.in && c.out && c.source && c.pending && to->reduce && to->carry;
    if (ok) find_axes(&c, &axes);
    for (int i = 0; ok && i < axes.n; i++) {
        c.axis = axes.at[i];
        ok = place_axis(&c);
    }
    nb_free(c.in);
    nb_free(c.out);
    nb_free(c.source);
    nb_free(c.pending);
    if (!ok) nb_sums_free(to);
    return ok;
}
