/* nest_passes.c - the passes of a nest over its inner axes, and what each has to
 * compute. */
#include "lower/nest.h"

unsigned nb_nest_axes(const nb_nest *x, int k)
{
    const nb_nest_value *v = &x->value[k];
    unsigned axes = v->axes;
    for (int i = 0; v->kind == NB_NEST_STORE && i < nb_nest_args(v); i++)
        axes |= x->value[v->arg[i]].axes;
    return axes;
}

int nb_nest_ready(const nb_nest *x, int *ready)
{
    int passes = 1;
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        ready[k] = 0;
        for (int i = 0; i < nb_nest_args(v); i++)
            if (ready[v->arg[i]] > ready[k]) ready[k] = ready[v->arg[i]];
        if (v->kind == NB_NEST_REDUCE || v->kind == NB_NEST_LAST) ready[k]++;
        if (ready[k] >= passes) passes = ready[k] + 1;
    }
    return passes;
}

/* Whether value k is what the loops of pass q are for. */
static bool is_root(const nb_nest *x, int k, int q, const int *ready,
                    const bool *inside)
{
    const nb_nest_value *v = &x->value[k];
    if (v->kind == NB_NEST_REDUCE || v->kind == NB_NEST_CARRY)
        return ready[v->arg[0]] == q;
    return v->kind == NB_NEST_STORE && inside[k] && ready[k] == q;
}

void nb_nest_needed(const nb_nest *x, int q, const int *ready,
                    const bool *inside, const int *kept, bool *need)
{
    for (int k = 0; k < x->n; k++)
        need[k] = is_root(x, k, q, ready, inside);
    for (int k = 0; k < x->n; k++)
        if (need[k] && x->value[k].kind == NB_NEST_CARRY)
            need[x->value[k].next] |= inside[x->value[k].next];
    for (int k = x->n - 1; k >= 0; k--) {
        const nb_nest_value *v = &x->value[k];
        bool ends = kept[k] >= 0 && kept[k] < q;
        if (!need[k] || ends) continue;
        for (int i = 0; i < nb_nest_args(v); i++)
            need[v->arg[i]] |= inside[v->arg[i]];
    }
}
