/* region.c - how the operands and results of loops and inlined programs lie. */
#include "shard/decide/region.h"

#include <string.h>

static nb_spec draft_of(const nb_spec *s)
{
    nb_spec d;
    memset(&d, 0, sizeof d);
    d.mesh = s->mesh;
    d.rank = s->rank;
    for (int k = 0; k < s->rank; k++)
        d.dim[k].axes = s->dim[k].axes;
    return d;
}

const nb_spec *nb_spec_settled(const nb_spec *s)
{
    nb_spec d = draft_of(s);
    return nb_spec_intern(&d);
}

const nb_spec *nb_spec_of_step(const nb_spec *s)
{
    nb_spec d = draft_of(s);
    memmove(d.dim, d.dim + 1, (size_t)--d.rank * sizeof d.dim[0]);
    return nb_spec_intern(&d);
}

const nb_spec *nb_spec_of_steps(const nb_spec *s)
{
    nb_spec d = draft_of(s);
    memmove(d.dim + 1, d.dim, (size_t)d.rank++ * sizeof d.dim[0]);
    memset(&d.dim[0], 0, sizeof d.dim[0]);
    return nb_spec_intern(&d);
}

/* The same with its first dim whole. */
static const nb_spec *along_whole(const nb_spec *s)
{
    nb_spec d = draft_of(s);
    d.dim[0].axes.n = 0;
    return nb_spec_intern(&d);
}

void nb_inside_free(nb_inside *b)
{
    nb_layouts_free(&b->lay);
    nb_graph_free(b->graph);
    nb_free(b->node);
    *b = (nb_inside){0};
}

bool nb_inside_lay(const nb_graph *g, const nb_mesh *m,
                   const nb_spec *const *in, nb_inside *to)
{
    *to = (nb_inside){.graph = nb_graph_copy(g)};
    to->node = nb_alloc((size_t)(g->n + 1) * sizeof *to->node);
    bool ok = to->graph && to->node;
    for (int i = 0; ok && i < g->nx; i++)
        to->graph->line[i].sharding = in[i];
    ok = ok && nb_graph_nodes(to->graph, to->node) &&
         nb_layouts_on(to->graph, to->node, m, &to->lay);
    if (!ok) nb_inside_free(to);
    return ok;
}

static bool has_lanes(const nb_call *c)
{
    for (int i = 0; i < c->nin; i++)
        if (c->in[i]->nlanes) return true;
    return false;
}

bool nb_call_hands_on(const nb_call *c)
{
    return c->op->inlines && !c->op->region[0];
}

/* Whether values inside may be split. */
static bool opens(const nb_call *c, nb_turns *turns)
{
    *turns = (nb_turns){0};
    if (!c->op->region[0] || has_lanes(c)) return false;
    return c->op->inlines || (c->op->repeats && c->op->repeats(c, turns));
}

bool nb_inside_inputs(const nb_call *c, const nb_decision *d,
                      const nb_spec **in)
{
    nb_turns t;
    if (!opens(c, &t)) return false;
    for (int i = 0; i < c->nin; i++) {
        bool step = i >= t.carries && i < t.carries + t.xs;
        in[i] = step ? nb_spec_of_step(d->need[i]) : d->need[i];
        if (!in[i]) return false;
    }
    return true;
}

const nb_spec *nb_inside_result(const nb_call *c, const nb_decision *d, int k)
{
    nb_turns t;
    opens(c, &t);
    return c->op->repeats && k >= t.carries ? nb_spec_of_step(d->give[k])
                                            : d->give[k];
}

/* Carries that came in whole take the layout that a turn gives them. */
static bool adopt(const nb_call *c, const nb_inside *b, const nb_turns *t,
                  nb_decision *d, bool *changed)
{
    for (int k = 0; k < t->carries; k++) {
        const nb_spec *is = nb_spec_settled(b->lay.spec[b->graph->result[k]]);
        if (!is) return false;
        if (nb_spec_same_layout(is, d->need[k]) ||
            !nb_spec_is_whole(d->need[k]))
            continue;
        d->need[k] = is;
        *changed = true;
    }
    (void)c;
    return true;
}

static bool give(const nb_call *c, const nb_inside *b, const nb_turns *t,
                 int nout, nb_decision *d)
{
    for (int k = 0; k < nout; k++) {
        const nb_spec *s = b->lay.spec[b->graph->result[k]];
        if (c->op->repeats)
            s = k < t->carries ? d->need[k] : nb_spec_of_steps(s);
        if (!s) return false;
        d->give[k] = s;
    }
    return true;
}

static bool lay_once(const nb_call *c, const nb_decision *d, nb_inside *b)
{
    const nb_spec **in = nb_alloc((size_t)(c->nin + 1) * sizeof *in);
    bool ok = in && nb_inside_inputs(c, d, in) &&
              nb_inside_lay(c->op->region[0], d->mesh, in, b);
    nb_free(in);
    return ok;
}

static bool decide_open(const nb_call *c, int nout, const nb_turns *t,
                        nb_decision *d)
{
    bool ok = true, changed = true;
    for (int i = 0; ok && i < c->nin; i++) {
        const nb_spec *s = nb_spec_settled(nb_spec_on(c->in[i], d->mesh));
        bool xs = i >= t->carries && i < t->carries + t->xs;
        d->need[i] = s && xs ? along_whole(s) : s;
        ok = d->need[i];
    }
    for (int turn = 0; ok && changed; turn++) {
        nb_inside b;
        changed = false;
        if (!lay_once(c, d, &b)) return false;
        ok = (turn == 3 || adopt(c, &b, t, d, &changed)) &&
             (changed || give(c, &b, t, nout, d));
        nb_inside_free(&b);
    }
    return ok;
}

static bool decide_whole(const nb_call *c, int nout, nb_tensor *const *out,
                         nb_decision *d)
{
    bool ok = true;
    for (int i = 0; ok && i < c->nin; i++) {
        int rank = c->in[i]->nlanes + c->in[i]->rank;
        ok = (d->need[i] = nb_spec_whole(d->mesh, rank, false)) != NULL;
    }
    for (int k = 0; ok && k < nout; k++) {
        int rank = out[k]->nlanes + out[k]->rank;
        ok = (d->give[k] = nb_spec_whole(d->mesh, rank, false)) != NULL;
    }
    return ok;
}

static bool hand_on(const nb_call *c, int nout, nb_decision *d)
{
    bool ok = true;
    for (int i = 0; ok && i < c->nin; i++)
        ok = (d->need[i] = nb_spec_on(c->in[i], d->mesh)) != NULL;
    for (int k = 0; ok && k < nout; k++)
        d->give[k] = d->need[k];
    return ok;
}

bool nb_region_decide(const nb_call *c, int nout, nb_tensor *const *out,
                      nb_decision *d)
{
    nb_turns t;
    if (nb_call_hands_on(c) && !has_lanes(c)) return hand_on(c, nout, d);
    if (!opens(c, &t)) return decide_whole(c, nout, out, d);
    if (nb_scope_open() != NB_OK) return false;
    bool ok = decide_open(c, nout, &t, d);
    nb_scope_close(0, NULL);
    return ok;
}
