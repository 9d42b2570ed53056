/* traffic.c - how much running a program will move. */
#include "shard/graph/reason.h"

enum { SOME_TURNS = 8 }; /* of a loop, where nobody knows how many */

static bool add(void *ctx, const nb_occasion *o)
{
    nb_traffic *t = ctx;
    const nb_reshard_plan *p = o->plan;
    t->bytes += o->times * p->bytes;
    t->seconds += (double)o->times * p->seconds;
    for (int k = 0; k < p->n; k++)
        if (nb_hop_talks(&p->step[k])) t->steps += (int)o->times;
    return true;
}

bool nb_layouts_traffic(const nb_graph *g, nb_tensor *const *node,
                        const nb_layouts *l, nb_traffic *to)
{
    nb_watcher w = {.moved = add, .ctx = to, .turns = SOME_TURNS};
    *to = (nb_traffic){0};
    return nb_layouts_watch(g, node, l, &w);
}
