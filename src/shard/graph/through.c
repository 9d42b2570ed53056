/* through.c - reshards that a value only passes through.
 *
 * A gradient is laid out as its parameter, and then perhaps goes where the
 * state of an optimizer is: what was pending is summed for everybody, who keep
 * a part.  In a program that is known as a whole, a reshard whose uses all need
 * one other layout has that one at once. */
#include "shard/decide/layouts.h"

#include <string.h>

typedef struct through {
    const nb_graph *g;
    nb_layouts *lay;
    const nb_spec **need; /* by line: what its uses need; NULL: none so far */
    bool *fixed;          /* they need several, or it is a result */
    int *uses;
    bool alone; /* only of values that nobody else uses */
} through;

static void note_use(through *t, int line, const nb_spec *need)
{
    if (!need || (t->need[line] && !nb_spec_same_layout(t->need[line], need)))
        t->fixed[line] = true;
    t->need[line] = need;
}

static void note_uses(through *t, int k)
{
    const nb_line *l = &t->g->line[k];
    const nb_decision *d = t->lay->decision[k];
    for (int i = 0; l->kind == NB_LINE_CALL && i < l->nin; i++)
        note_use(t, l->in[i],
                 l->op->places || l->op->lands ? t->lay->spec[k]
                 : d                           ? d->need[i]
                                               : NULL);
}

static bool is_passed_through(const through *t, int k)
{
    const nb_line *l = &t->g->line[k];
    return l->kind == NB_LINE_CALL && l->op->places && !l->op->asks &&
           !t->fixed[k] && t->need[k] && (!t->alone || t->uses[l->in[0]] == 1);
}

static void count_uses(through *t)
{
    for (int i = 0; i < t->g->ny; i++)
        t->uses[t->g->result[i]]++;
    for (int k = 0; k < t->g->n; k++)
        for (int i = 0; i < t->g->line[k].nin; i++)
            t->uses[t->g->line[k].in[i]]++;
}

/* Uses stand after what they use: their layouts are known already. */
static void walk(through *t)
{
    size_t n = (size_t)t->g->n + 1;
    memset(t->need, 0, n * sizeof *t->need);
    memset(t->fixed, 0, n * sizeof *t->fixed);
    for (int i = 0; i < t->g->ny; i++)
        t->fixed[t->g->result[i]] = true;
    for (int k = t->g->n - 1; k >= 0; k--) {
        if (is_passed_through(t, k)) t->lay->spec[k] = t->need[k];
        note_uses(t, k);
    }
}

/* Where a value has other uses, one that is passed by may have been needed all
 * the same, and more moves: then those stay as they are. */
static bool choose(through *t, nb_tensor *const *node)
{
    size_t n = (size_t)t->g->n * sizeof *t->lay->spec;
    const nb_spec **was = nb_alloc(n + 1);
    nb_traffic before, after;
    bool ok = was && nb_layouts_traffic(t->g, node, t->lay, &before);
    if (ok) {
        memcpy(was, t->lay->spec, n);
        walk(t);
        ok = nb_layouts_traffic(t->g, node, t->lay, &after);
    }
    if (ok && after.bytes > before.bytes) {
        memcpy(t->lay->spec, was, n);
        t->alone = true;
        count_uses(t);
        walk(t);
    }
    nb_free(was);
    return ok;
}

bool nb_layouts_pass(const nb_graph *g, nb_tensor *const *node, nb_layouts *l)
{
    size_t n = (size_t)g->n + 1;
    through t = {.g = g, .lay = l};
    t.need = nb_alloc(n * sizeof *t.need);
    t.fixed = nb_alloc(n * sizeof *t.fixed);
    t.uses = nb_alloc_zero(n * sizeof *t.uses);
    bool ok = t.need && t.fixed && t.uses && choose(&t, node);
    nb_free(t.need);
    nb_free(t.fixed);
    nb_free(t.uses);
    return ok;
}
