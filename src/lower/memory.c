/* memory.c - blocks: where they are kept, and for how long.
 *
 * Temporaries share one arena.  Steps are walked in order; a block takes the
 * lowest gap that is free from the step that writes it to the last that reads
 * it.  Blocks that are handed out are allocated anew on each run. */
#include "lower/passes.h"
#include "lower/plan.h"

enum { ALIGN = 64 };

static void touch(nb_life *l, int root, int step)
{
    if (l[root].first < 0) l[root].first = step;
    l[root].last = step;
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
            touch(l, step->buffer[b], s);
        if (step->nest) continue;
        touch(l, step->line, s);
        for (int i = 0; i < call->nin; i++)
            touch(l, p->place[call->in[i]].root, s);
    }
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

static int64_t rounded(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Blocks alive at a step, by offset: a gap is looked for among them. */
typedef struct arena {
    const nb_life *life;
    bool reuse;
    int n;
    int *block;
} arena;

static void drop_dead(arena *a, int step)
{
    int n = 0;
    for (int i = 0; i < a->n; i++)
        if (a->life[a->block[i]].last >= step) a->block[n++] = a->block[i];
    a->n = n;
}

static void insert(nb_plan *p, arena *a, int k)
{
    int64_t at = a->reuse ? 0 : p->arena, bytes = rounded(p->bytes[k]);
    for (int i = 0; i < a->n && p->at[a->block[i]] < at + bytes; i++) {
        int other = a->block[i];
        int64_t end = p->at[other] + rounded(p->bytes[other]);
        if (end > at) at = end;
    }
    p->at[k] = at;
    if (at + bytes > p->arena) p->arena = at + bytes;
    int i = a->n++;
    for (; i > 0 && p->at[a->block[i - 1]] > at; i--)
        a->block[i] = a->block[i - 1];
    a->block[i] = k;
}

/* A block of this step that ends with it and that k may take the place of;
 * those that were taken are no longer in the list. */
static bool takes_over(nb_plan *p, arena *a, int s, int k)
{
    const nb_step *step = &p->step[s];
    int to = 0;
    if (!step->nest || !a->reuse) return false;
    while (step->buffer[to] != k)
        to++;
    for (int i = 0; i < a->n; i++) {
        int old = a->block[i], from = 0;
        if (a->life[old].last != s || p->bytes[old] != p->bytes[k]) continue;
        while (from < step->nbuffers && step->buffer[from] != old)
            from++;
        if (from == step->nbuffers || !nb_nest_in_place(step->nest, from, to))
            continue;
        p->at[k] = p->at[old];
        a->block[i] = k;
        return true;
    }
    return false;
}

/* Blocks in the order of the steps that write them. */
static bool place_blocks(nb_plan *p, arena *a)
{
    int n = nb_plan_blocks(p);
    int *first = nb_alloc((size_t)(p->nsteps + 1) * sizeof *first);
    int *next = nb_alloc((size_t)(n + 1) * sizeof *next);
    bool ok = first && next;
    for (int s = 0; ok && s < p->nsteps; s++)
        first[s] = -1;
    for (int k = n - 1; ok && k >= 0; k--) {
        if (p->home[k] != NB_HOME_ARENA) continue;
        next[k] = first[a->life[k].first];
        first[a->life[k].first] = k;
    }
    for (int s = 0; ok && s < p->nsteps; s++) {
        drop_dead(a, s);
        for (int k = first[s]; k >= 0; k = next[k])
            if (!takes_over(p, a, s, k)) insert(p, a, k);
    }
    nb_free(first);
    nb_free(next);
    return ok;
}

static void choose_homes(nb_plan *p, const nb_life *l)
{
    const nb_graph *g = p->graph;
    for (int k = 0; k < nb_plan_blocks(p); k++) {
        bool given = k < g->n && g->line[k].kind != NB_LINE_CALL;
        p->home[k] = given             ? NB_HOME_GIVEN
                     : l[k].first >= 0 ? NB_HOME_ARENA
                                       : NB_HOME_NONE;
    }
    for (int i = 0; i < g->ny; i++) {
        int root = p->place[g->result[i]].root;
        if (p->home[root] == NB_HOME_ARENA) p->home[root] = NB_HOME_RESULT;
    }
}

bool nb_plan_memory(nb_plan *p)
{
    size_t n = (size_t)nb_plan_blocks(p) + 1;
    nb_life *l = nb_alloc(n * sizeof *l);
    arena a = {.life = l, .block = nb_alloc(n * sizeof *a.block)};
    a.reuse = nb_pass_is_on("memory");
    p->home = nb_alloc_zero(n * sizeof *p->home);
    p->at = nb_alloc_zero(n * sizeof *p->at);
    p->bytes = nb_alloc_zero(n * sizeof *p->bytes);
    bool ok = l && a.block && p->home && p->at && p->bytes;
    for (int k = 0; ok && k < nb_plan_blocks(p); k++)
        ok = block_bytes(p, k);
    if (ok) {
        nb_plan_lives(p, l);
        choose_homes(p, l);
        ok = place_blocks(p, &a);
    }
    nb_free(l);
    nb_free(a.block);
    return ok;
}
