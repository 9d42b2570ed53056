/* traffic.c - what running a program will move: every value goes from how it
 * was made to each other layout that somebody needs, once. */
#include "shard/decide/factors.h"
#include "shard/decide/layouts.h"

typedef struct need {
    const nb_spec *spec;
    int next; /* of the same line; -1: none */
} need;

typedef struct counter {
    const nb_graph *g;
    nb_tensor *const *node;
    const nb_layouts *lay;
    int *first; /* by line */
    need *need;
    int n, room;
    nb_traffic *to;
} counter;

static void add_plan(nb_traffic *t, const nb_reshard_plan *p)
{
    t->bytes += p->bytes;
    t->seconds += p->seconds;
    for (int k = 0; k < p->n; k++)
        t->steps += p->step[k].kind != NB_HOP_SLICE &&
                    p->step[k].kind != NB_HOP_UNREDUCE;
}

/* How a line lies where it is made. */
static const nb_spec *made_as(const counter *c, int line)
{
    const nb_line *l = &c->g->line[line];
    const nb_decision *d = c->lay->decision[line];
    if (l->op == &nb_op_part && c->lay->decision[l->in[0]])
        return c->lay->decision[l->in[0]]->give[l->attr[0]];
    return d ? d->give[0] : c->lay->spec[line];
}

static bool want(counter *c, int line, const nb_spec *spec)
{
    const nb_spec *from = made_as(c, line);
    const nb_tensor *x = c->node[line];
    int64_t size[NB_MAX_DIMS];
    if (nb_spec_same_layout(from, spec)) return true;
    for (int i = c->first[line]; i >= 0; i = c->need[i].next)
        if (nb_spec_same_layout(c->need[i].spec, spec)) return true;
    if (!nb_grow(&c->need, &c->room, c->n + 1, sizeof *c->need)) return false;
    c->need[c->n] = (need){spec, c->first[line]};
    c->first[line] = c->n++;
    nb_stored_sizes(x, size);
    const nb_reshard_plan *p = nb_reshard_find(
        from, spec, size, (int)nb_dtype_size((nb_dtype)x->dtype), NULL);
    if (p) add_plan(c->to, p);
    return p;
}

static bool count_line(counter *c, int k)
{
    const nb_line *l = &c->g->line[k];
    const nb_decision *d = c->lay->decision[k];
    bool ok = true;
    if (l->kind != NB_LINE_CALL || l->op == &nb_op_part) return true;
    if (l->op->places) return want(c, l->in[0], c->lay->spec[k]);
    for (int i = 0; ok && d && i < l->nin; i++) {
        ok = want(c, l->in[i], d->need[i]);
        if (ok && d->reach[i]) add_plan(c->to, d->reach[i]);
    }
    for (int t = 0; ok && d && t < d->nin + d->nout; t++)
        if (d->share[t]) add_plan(c->to, d->share[t]);
    return ok;
}

bool nb_layouts_traffic(const nb_graph *g, nb_tensor *const *node,
                        const nb_layouts *l, nb_traffic *to)
{
    counter c = {.g = g, .node = node, .lay = l, .to = to};
    *to = (nb_traffic){0};
    c.first = nb_alloc((size_t)(g->n + 1) * sizeof *c.first);
    bool ok = c.first;
    for (int k = 0; ok && k < g->n; k++)
        c.first[k] = -1;
    for (int k = 0; ok && k < g->n; k++)
        ok = count_line(&c, k);
    for (int i = 0; ok && i < g->ny; i++)
        ok = want(&c, g->result[i], l->spec[g->result[i]]);
    nb_free(c.first);
    nb_free(c.need);
    return ok;
}
