/* layouts.c - layouts as they follow from call to call. */
#include "shard/decide/layouts.h"

void nb_layouts_free(nb_layouts *l)
{
    nb_free(l->spec);
    nb_free(l->decision);
    *l = (nb_layouts){0};
}

static const nb_mesh *mesh_of(const nb_graph *g, nb_tensor *const *node)
{
    for (int k = 0; k < g->n; k++)
        if (node[k]->sharding && !g->line[k].multi)
            return ((const nb_spec *)node[k]->sharding)->mesh;
    return nb_fail(NB_ERUNTIME, "no tensor of the program lies on a mesh");
}

/* A value that some call had to have reduced is there reduced: calls behind it
 * take it so, rather than leave another reduction pending.  The nodes are the
 * program's own, so they can say it. */
static void note_reduced(const nb_call *c, const nb_decision *d)
{
    for (int i = 0; i < c->nin; i++) {
        const nb_spec *was = c->in[i]->sharding, *is = d->need[i];
        if (was && was->partial.n && !is->partial.n) c->in[i]->sharding = is;
    }
}

static bool add_call(nb_layouts *l, int k, nb_tensor *x, bool result)
{
    nb_call c = nb_call_of(x);
    const nb_decision *d = nb_decide(&c, 1, &x);
    if (!d) return false;
    l->decision[k] = d;
    note_reduced(&c, d);
    x->sharding = d->give[0];
    if (!result) l->spec[k] = d->give[0];
    return true;
}

/* Results lie as was said when they were recorded. */
static bool add(nb_layouts *l, const nb_line *line, int k, nb_tensor *x,
                bool result)
{
    if (line->multi) {
        l->decision[k] = x->sharding;
        return true;
    }
    l->spec[k] = nb_spec_on(x, l->mesh);
    if (!l->spec[k]) return false;
    if (line->kind != NB_LINE_CALL || !x->sharding || line->op->places ||
        line->op == &nb_op_part)
        return true;
    return add_call(l, k, x, result);
}

/* Values that lie on no mesh are made in the parts in which they are wanted, if
 * all who want one want the same of it. */
typedef struct backwards {
    const nb_graph *g;
    nb_tensor *const *node;
    nb_layouts *lay;
    const nb_spec **want; /* by line */
    bool *fixed;          /* it is whole */
} backwards;

static void note(backwards *b, int line, const nb_spec *s)
{
    const nb_spec *was = b->want[line];
    b->fixed[line] = b->fixed[line] || !s || s->partial.n ||
                     (was && !nb_spec_same_layout(was, s));
    b->want[line] = s;
}

static bool is_makable(const backwards *b, int k)
{
    const nb_line *l = &b->g->line[k];
    const nb_spec *s = b->want[k];
    return l->kind == NB_LINE_CALL && !l->multi && !b->node[k]->sharding &&
           l->op != &nb_op_part && !l->op->places && !l->op->release &&
           !l->op->effect && s && !b->fixed[k] && !nb_spec_is_whole(s);
}

/* Nothing moves for it. */
static bool is_quiet(const nb_decision *d, const nb_spec *s)
{
    bool so = nb_spec_same_layout(d->give[0], s);
    for (int t = 0; t < d->nin; t++)
        so = so && !d->reach[t] && !d->need[t]->partial.n;
    for (int t = 0; t < d->nin + d->nout; t++)
        so = so && !d->share[t];
    return so;
}

static bool make_parts(backwards *b, int k)
{
    nb_tensor *x = b->node[k];
    nb_call c = nb_call_of(x);
    nb_wish w = {.mesh = b->lay->mesh, .results = &b->want[k]};
    const nb_decision *d = nb_decide_with(&c, 1, &x, &w);
    if (!d) return false;
    if (!is_quiet(d, b->want[k])) return true;
    b->lay->decision[k] = d;
    b->lay->spec[k] = d->give[0];
    return true;
}

static bool look_back(backwards *b)
{
    bool ok = true;
    for (int i = 0; i < b->g->ny; i++)
        b->fixed[b->g->result[i]] = true;
    for (int k = b->g->n - 1; ok && k >= 0; k--) {
        const nb_line *l = &b->g->line[k];
        if (is_makable(b, k)) ok = make_parts(b, k);
        const nb_decision *d = b->lay->decision[k];
        for (int i = 0; ok && i < l->nin; i++)
            note(b, l->in[i],
                 l->op->places || l->op->lands ? b->lay->spec[k]
                 : d                           ? d->need[i]
                                               : NULL);
    }
    return ok;
}

static bool lay_backwards(const nb_graph *g, nb_tensor *const *node,
                          nb_layouts *to)
{
    size_t n = (size_t)(g->n + 1);
    backwards b = {.g = g, .node = node, .lay = to};
    b.want = nb_alloc_zero(n * sizeof *b.want);
    b.fixed = nb_alloc_zero(n * sizeof *b.fixed);
    bool ok = b.want && b.fixed && look_back(&b);
    nb_free(b.want);
    nb_free(b.fixed);
    return ok;
}

bool nb_layouts_of(const nb_graph *g, nb_tensor *const *node, nb_layouts *to)
{
    const nb_mesh *m = mesh_of(g, node);
    return m && nb_layouts_on(g, node, m, to);
}

bool nb_layouts_on(const nb_graph *g, nb_tensor *const *node, const nb_mesh *m,
                   nb_layouts *to)
{
    size_t n = (size_t)(g->n + 1);
    *to = (nb_layouts){.mesh = m, .n = g->n};
    to->spec = nb_alloc_zero(n * sizeof *to->spec);
    to->decision = nb_alloc_zero(n * sizeof *to->decision);
    bool *result = nb_alloc_zero(n * sizeof *result);
    bool ok = to->spec && to->decision && result;
    for (int i = 0; ok && i < g->ny; i++)
        result[g->result[i]] = true;
    for (int k = 0; ok && k < g->n; k++)
        ok = add(to, &g->line[k], k, node[k], result[k]);
    ok = ok && lay_backwards(g, node, to);
    nb_free(result);
    if (!ok) nb_layouts_free(to);
    return ok;
}
