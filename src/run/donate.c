/* donate.c - results in the memory of arguments that nobody needs any more.
 *
 * A result may be written into the block of an argument of the same size that
 * no step from then on reads, and that no result looks into. */
#include "run/donate.h"

#include <string.h>

/* By root: the first and the last step that has to do with its block. */
typedef struct lives {
    int *first, *last;
} lives;

static void touch(lives *l, int root, int step)
{
    if (l->last[root] < 0) l->first[root] = step;
    l->last[root] = step;
}

static void find_lives(const nb_plan *p, lives *l)
{
    const nb_graph *g = p->graph;
    for (int k = 0; k < g->n + p->nextra; k++)
        l->first[k] = l->last[k] = -1;
    for (int s = 0; s < p->nsteps; s++) {
        const nb_step *step = &p->step[s];
        const nb_line *call = &g->line[step->line];
        for (int b = 0; b < step->nbuffers; b++)
            touch(l, step->buffer[b], s);
        if (step->nest) continue;
        touch(l, step->line, s);
        for (int i = 0; i < call->nin; i++)
            touch(l, p->place[call->in[i]].root, s);
    }
}

static bool is_result(const nb_plan *p, int root)
{
    for (int i = 0; i < p->graph->ny; i++)
        if (p->place[p->graph->result[i]].root == root) return true;
    return false;
}

/* Whether the step that writes block k may do so over block i, which it is the
 * last to read. */
static bool in_place(const nb_plan *p, int s, int i, int k)
{
    const nb_step *step = &p->step[s];
    int from = -1, to = -1;
    for (int b = 0; step->nest && b < step->nbuffers; b++) {
        if (step->buffer[b] == i) from = b;
        if (step->buffer[b] == k) to = b;
    }
    return from >= 0 && to >= 0 && nb_nest_in_place(step->nest, from, to);
}

/* The result that takes input i, or -1: the first that is free to. */
static int taker(const nb_plan *p, const lives *l, int i, const int *take)
{
    if (is_result(p, i) || p->bytes[i] == 0) return -1;
    for (int k = 0; k < p->graph->n; k++)
        if (p->home[k] == NB_HOME_RESULT && take[k] < 0 &&
            p->bytes[k] == p->bytes[i] &&
            (l->first[k] > l->last[i] ||
             (l->first[k] == l->last[i] && in_place(p, l->last[i], i, k))))
            return k;
    return -1;
}

int *nb_donate_plan(const nb_plan *p, int n, const int *inputs)
{
    size_t bytes = (size_t)(p->graph->n + p->nextra + 1) * sizeof(int);
    lives l = {nb_alloc(bytes), nb_alloc(bytes)};
    int *take = nb_alloc(bytes);
    if (take) memset(take, -1, bytes);
    if (take && l.first && l.last) {
        find_lives(p, &l);
        for (int i = 0; i < n; i++) {
            int k = taker(p, &l, inputs[i], take);
            if (k >= 0) take[k] = inputs[i];
        }
    } else {
        nb_free(take);
        take = NULL;
    }
    nb_free(l.first);
    nb_free(l.last);
    return take;
}

bool nb_donate_can(const nb_tensor *x)
{
    return x->refs == 1 && x->buffer && x->buffer->refs == 1 &&
           x->buffer->room && x->data == x->buffer->data && !x->strides &&
           (uintptr_t)x->data % 64 == 0;
}

void nb_donate_mark(nb_tensor *x)
{
    nb_buffer *b = x->buffer;
    nb_graph_lock();
    x->flags |= NB_DONATED;
    x->buffer = NULL;
    x->data = NULL;
    nb_graph_unlock();
    nb_buffer_drop(b);
}
