/* memory.c - blocks: where they are kept, and for how long.
 *
 * Temporaries share one arena (arena.c).  Blocks that are handed out are
 * allocated anew on each run.  The steps of a chain or a batch run at the same
 * time: a block that one of them touches lives from the first to the last. */
#include "lower/chain.h"

nb_life nb_plan_with(const nb_plan *p, int s)
{
    int chain = p->step[s].chain, batch = p->step[s].batch;
    if (chain)
        return (nb_life){p->chain[chain - 1].first, p->chain[chain - 1].last};
    return batch ? p->batch[batch - 1] : (nb_life){s, s};
}

static int buffer_of(const nb_step *s, int block)
{
    for (int b = 0; b < s->nbuffers; b++)
        if (s->buffer[b] == block) return b;
    return -1;
}

int nb_plan_in_place(const nb_plan *p, int s, int from, int to)
{
    nb_life with = nb_plan_with(p, s);
    int found = -1;
    if (p->step[s].chain) return -1;
    for (int t = with.first; t <= with.last; t++) {
        const nb_step *step = &p->step[t];
        int i = buffer_of(step, from), o = buffer_of(step, to);
        if (i < 0) continue;
        if (found >= 0 || o < 0 || !step->nest) return -1;
        if (!nb_nest_in_place(step->nest, i, o, p->device)) return -1;
        found = t;
    }
    return found;
}

static void touch(const nb_plan *p, nb_life *l, int root, int step)
{
    nb_life with = nb_plan_with(p, step);
    if (l[root].first < 0) l[root].first = with.first;
    l[root].last = with.last;
}

int nb_plan_blocks(const nb_plan *p)
{
    return p->graph->n + p->nextra;
}

void nb_plan_lives(const nb_plan *p, nb_life *l)
{
    const nb_graph *g = p->graph;
    for (int k = 0; k < nb_plan_blocks(p); k++)
        l[k] = (nb_life){-1, -1};
    for (int s = 0; s < p->nsteps; s++) {
        const nb_step *step = &p->step[s];
        const nb_line *call = &g->line[step->line];
        for (int b = 0; b < step->nbuffers; b++)
            touch(p, l, step->buffer[b], s);
        if (step->nest || step->gemm) continue;
        touch(p, l, step->line, s);
        for (int i = 0; i < call->nin; i++)
            touch(p, l, p->place[call->in[i]].root, s);
    }
}

bool nb_plan_is_alive(const nb_plan *p, const nb_life *l, int k, int step)
{
    return p->home[k] == NB_HOME_ARENA && l[k].first <= step &&
           step <= l[k].last;
}

int nb_plan_fullest(const nb_plan *p, const nb_life *l, int64_t *bytes)
{
    int best = -1;
    *bytes = 0;
    for (int s = 0; s < p->nsteps; s++) {
        int64_t sum = 0;
        for (int k = 0; k < nb_plan_blocks(p); k++)
            if (nb_plan_is_alive(p, l, k, s)) sum += p->bytes[k];
        if (sum <= *bytes) continue;
        *bytes = sum;
        best = s;
    }
    return best;
}

static bool block_bytes(nb_plan *p, int k)
{
    if (k >= p->graph->n) {
        p->bytes[k] = p->extra[k - p->graph->n];
        return true;
    }
    const nb_line *l = &p->graph->line[k];
    nb_shape s = nb_tensor_shape(p->node[k]);
    int64_t n;
    if (l->multi) {
        p->bytes[k] = p->parts[k][l->op->nout];
        return true;
    }
    if (!nb_shape_count(&s, &n)) return false;
    p->bytes[k] = n * (int64_t)nb_dtype_size(l->dtype);
    return true;
}

static void choose_homes(nb_plan *p, const nb_life *l)
{
    const nb_graph *g = p->graph;
    for (int k = 0; k < nb_plan_blocks(p); k++) {
        bool given = k < g->n && g->line[k].kind != NB_LINE_CALL;
        p->home[k] = given                 ? NB_HOME_GIVEN
                     : l[k].first < 0      ? NB_HOME_NONE
                     : p->row && p->row[k] ? NB_HOME_TILE
                                           : NB_HOME_ARENA;
    }
    for (int i = 0; i < g->ny; i++) {
        int root = p->place[g->result[i]].root;
        if (p->home[root] == NB_HOME_ARENA) p->home[root] = NB_HOME_RESULT;
    }
}

bool nb_plan_bytes(nb_plan *p)
{
    size_t n = (size_t)nb_plan_blocks(p) + 1;
    bool ok = (p->bytes = nb_alloc_zero(n * sizeof *p->bytes));
    for (int k = 0; ok && k < nb_plan_blocks(p); k++)
        ok = block_bytes(p, k);
    return ok;
}

bool nb_plan_memory(nb_plan *p)
{
    size_t n = (size_t)nb_plan_blocks(p) + 1;
    nb_life *l = nb_alloc(n * sizeof *l);
    p->home = nb_alloc_zero(n * sizeof *p->home);
    p->at = nb_alloc_zero(n * sizeof *p->at);
    bool ok = l && p->home && p->at;
    if (ok) {
        nb_plan_lives(p, l);
        choose_homes(p, l);
        nb_chain_place(p, l);
        ok = nb_plan_arena(p, l);
    }
    nb_free(l);
    return ok;
}
