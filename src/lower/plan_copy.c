/* plan_copy.c - a plan once more, for other numbers. */
#include "lower/plan.h"

#include "lower/rewrite.h"

#include <string.h>

static void *copied(const void *from, size_t bytes)
{
    void *to = nb_alloc(bytes + 1);
    if (to && bytes) memcpy(to, from, bytes);
    return to;
}

static bool copy_step(nb_step *to, const nb_step *from)
{
    *to = (nb_step){.line = from->line};
    to->buffer =
        copied(from->buffer, (size_t)from->nbuffers * sizeof *to->buffer);
    if (!to->buffer) return false;
    to->nbuffers = from->nbuffers;
    return !from->nest || (to->nest = nb_nest_copy(from->nest));
}

static bool copy_parts(nb_plan *to, const nb_plan *p)
{
    to->parts = nb_alloc_zero((size_t)(p->graph->n + 1) * sizeof *to->parts);
    if (!to->parts) return false;
    for (int k = 0; k < p->graph->n; k++) {
        if (!p->parts[k]) continue;
        size_t n = (size_t)p->graph->line[k].op->nout + 1;
        to->parts[k] = copied(p->parts[k], n * sizeof *p->parts[k]);
        if (!to->parts[k]) return false;
    }
    return true;
}

nb_plan *nb_plan_copy(const nb_plan *p)
{
    nb_plan *to = nb_alloc_zero(sizeof *to);
    if (!to) return NULL;
    size_t n = (size_t)p->graph->n;
    to->no_code = p->no_code;
    to->any_size = p->any_size;
    to->device = p->device;
    to->graph = nb_graph_copy_whole(p->graph);
    if (!to->graph) return nb_free(to), NULL;
    to->place = copied(p->place, n * sizeof *p->place);
    to->group = copied(p->group, n * sizeof *p->group);
    to->extra = copied(p->extra, (size_t)p->nextra * sizeof *p->extra);
    to->step = nb_alloc_zero((size_t)(p->nsteps + 1) * sizeof *to->step);
    if (p->library) to->library = copied(p->library, n);
    bool ok = to->place && to->group && to->extra && to->step &&
              !p->library == !to->library;
    to->nextra = ok ? p->nextra : 0;
    ok = ok && copy_parts(to, p);
    for (int s = 0; ok && s < p->nsteps; s++)
        ok = copy_step(&to->step[to->nsteps++], &p->step[s]);
    if (ok) return to;
    nb_plan_free(to);
    return NULL;
}

bool nb_plan_finish(nb_plan *p)
{
    return nb_plan_stand_ins(p) && nb_plan_bytes(p) && nb_plan_memory(p);
}
