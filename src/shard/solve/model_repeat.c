/* model_repeat.c - repeated layers: runs of ops that are alike.
 *
 * Only which ops follow each other counts, not what they are applied to: a tie
 * that is not apt may cost something, but is never wrong. */
#include "shard/solve/model_parts.h"

enum { SHORTEST = 4 };

/* Ops of node numbers, inputs left out. */
typedef struct row {
    const nb_model *m;
    int n, *node;
} row;

static bool alike(const row *s, int a, int b)
{
    return s->m->node[s->node[a]].choices == s->m->node[s->node[b]].choices;
}

/* How many times the `length` ops from `at` come one after another. */
static int repeats(const row *s, int at, int length)
{
    int same = 0;
    while (at + length + same < s->n && alike(s, at + same, at + length + same))
        same++;
    return 1 + same / length;
}

/* Inputs that are the same operand of tied ops are tied too. */
static bool tie_nodes(nb_model *m, int a, int b, int *ties)
{
    const nb_model_node *x = &m->node[a], *y = &m->node[b];
    if (!nb_model_tie(m, x->first, y->first)) return false;
    ++*ties;
    for (int j = 0; j < x->nin; j++) {
        int u = x->operand[j], v = y->operand[j];
        const nb_model_node *p = &m->node[m->value[u].node];
        const nb_model_node *q = &m->node[m->value[v].node];
        if (u == v || !p->is_input || !q->is_input || p->choices != q->choices)
            continue;
        if (!nb_model_tie(m, u, v)) return false;
        ++*ties;
    }
    return true;
}

static bool tie_run(nb_model *m, const row *s, int at, int length, int times,
                    int *ties)
{
    for (int k = length; k < length * times; k++)
        if (!tie_nodes(m, s->node[at + k % length], s->node[at + k], ties))
            return false;
    return true;
}

int nb_model_tie_repeats(nb_model *m)
{
    row s = {.m = m, .node = nb_alloc((size_t)(m->nnodes + 1) * sizeof(int))};
    int ties = 0;
    bool ok = s.node != NULL;
    for (int i = 0; i < m->nnodes && ok; i++)
        if (!m->node[i].is_input) s.node[s.n++] = i;
    for (int at = 0; at < s.n && ok;) {
        int best = 0, covered = 0;
        for (int p = SHORTEST; at + 2 * p <= s.n; p++) {
            int r = repeats(&s, at, p);
            if (r > 1 && r * p > covered) best = p, covered = r * p;
        }
        if (best) ok = tie_run(m, &s, at, best, covered / best, &ties);
        at += best ? covered : 1;
    }
    nb_free(s.node);
    return ok ? ties : -1;
}
