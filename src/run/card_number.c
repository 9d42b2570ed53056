/* card_number.c - numbers that kernels on a card are given with their
 * arguments, so that they need no memory there. */
#include "run/card.h"

#include <string.h>

static bool lands(const nb_line *l)
{
    return l->op && l->op->lands;
}

/* The device that input k is moved to by all that use it, -1: there is none, or
 * others use it. */
static int destination(const nb_graph *g, int k)
{
    const nb_line *x = &g->line[k];
    int device = -1;
    if (x->device || x->sharding || x->shape.rank || x->shape.nlanes) return -1;
    for (int i = 0; i < g->ny; i++)
        if (g->result[i] == k || lands(&g->line[g->result[i]])) return -1;
    for (int c = 0; c < g->n; c++) {
        const nb_line *l = &g->line[c];
        for (int i = 0; i < l->nin; i++) {
            if (l->in[i] != k) continue;
            if (!lands(l) || !l->device) return -1;
            if (device >= 0 && device != l->device) return -1;
            device = l->device;
        }
    }
    return device;
}

/* A line that nobody needs, of which nothing says that it moves. */
static void retire(nb_line *l)
{
    nb_line plain = {
        .kind = NB_LINE_NUMBER, .dtype = l->dtype, .shape = l->shape};
    nb_line_free(l);
    *l = plain;
}

static bool is_result(const nb_graph *g, int k)
{
    for (int i = 0; i < g->ny; i++)
        if (g->result[i] == k) return true;
    return false;
}

/* What copies of input k that moved to the device are used for, it is used
 * for. */
static void take_over(nb_graph *g, int k, int device)
{
    for (int c = g->nx; c < g->n; c++) {
        const nb_line *l = &g->line[c];
        if (!lands(l) || l->in[0] != k || l->device != device) continue;
        for (int u = c + 1; u < g->n; u++)
            for (int i = 0; i < g->line[u].nin; i++)
                if (g->line[u].in[i] == c) g->line[u].in[i] = k;
        if (!is_result(g, c)) retire(&g->line[c]);
    }
}

void nb_card_give_numbers(nb_graph *g)
{
    for (int k = 0; k < g->nx; k++) {
        int device = g->line[k].given ? g->line[k].device : destination(g, k);
        if (device <= 0) continue;
        take_over(g, k, device);
        g->line[k].device = (uint8_t)device;
        g->line[k].given = true;
    }
}

/* Not what others than kernels read. */
static void leave_calls(const nb_plan *p, bool *by_value)
{
    for (int s = 0; s < p->nsteps; s++) {
        const nb_step *step = &p->step[s];
        const nb_line *l = &p->graph->line[step->line];
        for (int i = 0; !step->nest && i < l->nin; i++)
            by_value[p->place[l->in[i]].root] = false;
        for (int b = 0; step->gemm && b < step->nbuffers; b++)
            by_value[step->buffer[b]] = false;
    }
    for (int i = 0; i < p->graph->ny; i++)
        by_value[p->place[p->graph->result[i]].root] = false;
}

static void leave_picks(const nb_step *step, bool *by_value)
{
    for (int k = 0; k < step->nest->n; k++) {
        const nb_nest_value *v = &step->nest->value[k];
        if (nb_nest_in_memory(v) && v->kind != NB_NEST_LOAD)
            by_value[step->buffer[v->buffer]] = false;
    }
}

static void tell(const nb_step *step, const bool *by_value)
{
    for (int k = 0; k < step->nest->n; k++) {
        nb_nest_value *v = &step->nest->value[k];
        if (v->kind == NB_NEST_LOAD)
            v->given = by_value[step->buffer[v->buffer]];
    }
}

bool nb_card_find_by_value(nb_exec *e)
{
    const nb_plan *p = e->plan;
    const nb_graph *g = p->graph;
    bool *by_value = nb_alloc_zero((size_t)nb_plan_blocks(p) + 1);
    if (!by_value) return false;
    for (int k = 0; k < g->nx; k++)
        by_value[k] = g->line[k].given && g->line[k].shape.rank == 0 &&
                      g->line[k].shape.nlanes == 0;
    leave_calls(p, by_value);
    for (int s = 0; s < p->nsteps; s++)
        if (p->step[s].nest) leave_picks(&p->step[s], by_value);
    for (int s = 0; s < p->nsteps; s++)
        if (p->step[s].nest) tell(&p->step[s], by_value);
    nb_free(e->by_value);
    e->by_value = by_value;
    return true;
}

char *nb_card_value(const nb_tensor *x)
{
    uintptr_t bits = 0;
    memcpy(&bits, x->data, nb_dtype_size((nb_dtype)x->dtype));
    return (char *)bits;
}
