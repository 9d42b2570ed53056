/* donate.c - results in the memory of arguments that nobody needs any more.
 *
 * A result may be written into the block of an argument of the same size that
 * no step from then on reads, and that no result looks into. */
#include "run/donate.h"

#include <string.h>

static bool is_result(const nb_plan *p, int root)
{
    for (int i = 0; i < p->graph->ny; i++)
        if (p->place[p->graph->result[i]].root == root) return true;
    return false;
}

/* Whether result k may take input i, which is the same size; here: where a step
 * writes over what it reads. */
static bool may_take(const nb_plan *p, const nb_life *l, int i, int k,
                     bool here)
{
    if (l[i].last >= 0 && nb_plan_with(p, l[i].last).first == l[k].first &&
        nb_plan_in_place(p, l[k].first, i, k) >= 0)
        return true;
    return !here && l[k].first > l[i].last;
}

/* The result that takes input i, or -1: the first that is free to; of those that
 * a step writes over what it reads, or of all. */
static int taker(const nb_plan *p, const nb_life *l, int i, const int *take,
                 bool here)
{
    if (is_result(p, i) || p->bytes[i] == 0) return -1;
    for (int k = 0; k < p->graph->n; k++) {
        if (p->home[k] != NB_HOME_RESULT || take[k] >= 0 ||
            p->bytes[k] != p->bytes[i])
            continue;
        if (may_take(p, l, i, k, here)) return k;
    }
    return -1;
}

bool nb_donate_fits(const nb_plan *p, int i, int k, bool *fits)
{
    nb_life *l = nb_alloc(((size_t)nb_plan_blocks(p) + 1) * sizeof *l);
    if (!l) return false;
    nb_plan_lives(p, l);
    *fits = !is_result(p, i) && p->home[k] == NB_HOME_RESULT && p->bytes[i] &&
            p->bytes[k] == p->bytes[i] && may_take(p, l, i, k, false);
    nb_free(l);
    return true;
}

/* What can be written over what the same step reads is: its place would else be
 * taken by a result that can as well lie elsewhere. */
int *nb_donate_plan(const nb_plan *p, int n, const int *inputs)
{
    size_t blocks = (size_t)nb_plan_blocks(p) + 1;
    nb_life *l = nb_alloc(blocks * sizeof *l);
    int *take = l ? nb_alloc(blocks * sizeof *take) : NULL;
    bool *gone = take ? nb_alloc_zero((size_t)p->graph->n + 1) : NULL;
    if (gone) {
        memset(take, -1, blocks * sizeof *take);
        nb_plan_lives(p, l);
    }
    for (int round = 0; gone && round < 2; round++)
        for (int i = 0; i < n; i++) {
            int x = inputs[i];
            int k = gone[x] ? -1 : taker(p, l, x, take, round == 0);
            if (k < 0) continue;
            take[k] = x;
            gone[x] = true;
        }
    if (!gone) nb_free(take), take = NULL;
    nb_free(l);
    nb_free(gone);
    return take;
}

bool nb_donate_can(const nb_tensor *x)
{
    return x->refs == 1 && x->buffer && x->buffer->refs == 1 &&
           x->buffer->room && x->data == x->buffer->data &&
           nb_tensor_is_packed(x) && (uintptr_t)x->data % 64 == 0;
}

void nb_donate_mark(nb_tensor *x)
{
    nb_buffer *b = x->buffer;
    nb_graph_lock();
    x->flags |= NB_DONATED;
    x->buffer = NULL;
    x->data = NULL;
    nb_graph_unlock();
    if (!(x->flags & NB_INSIDE)) nb_buffer_drop(b); /* or with x itself */
}
