/* batch.c - steps of a card that may run at the same time, brought together.
 *
 * The update of a parameter is the same work as that of the next, on other
 * memory and perhaps of another size.  Nests that are alike, but for the extent
 * of their first axis, and none of which needs another, become neighbours: a
 * batch, which is one launch.
 *
 * Steps are put down from the last to the first.  A step that nobody needs who
 * is still to come goes down early, that is later in the program, if it is like
 * the one that is put down now.  What it reads is then in use for longer: that
 * has to be little, or not too much and where there is room below the most that
 * is in use anywhere. */
#include "lower/passes.h"
#include "lower/plan.h"

#include <string.h>

enum { LITTLE = 1 << 18, MUCH = 1 << 25 }; /* bytes */

typedef struct batcher {
    nb_plan *plan;
    nb_life *life;
    int *left;    /* by step: how often others, not put down, read of it */
    int *form;    /* by step: the first one that it is like, -1: no nest */
    bool *placed; /* by step */
    bool *alive;  /* by block: something that is put down has to do with it */
    int64_t *use; /* by step, as they were: bytes in use */
    int64_t most;
    nb_step *to; /* filled from the end */
    int n, *members;
} batcher;

/* Whether x may be y with another extent of the first axis, an outer one. */
static bool is_like(const nb_nest *x, const nb_nest *y)
{
    bool free = x->naxes && !(x->inner & 1);
    if (x->naxes != y->naxes || x->n != y->n || x->inner != y->inner ||
        x->nbuffers != y->nbuffers || x->cut != y->cut || x->lead != y->lead)
        return false;
    if (x->cut_size != y->cut_size && !free) return false;
    for (int a = free; a < x->naxes; a++)
        if (x->size[a] != y->size[a]) return false;
    for (int k = 0; k < x->n; k++)
        if (!nb_nest_same_value(x->naxes, &x->value[k], &y->value[k]))
            return false;
    return true;
}

static void find_forms(batcher *b)
{
    const nb_plan *p = b->plan;
    for (int s = 0; s < p->nsteps; s++) {
        const nb_nest *x = p->step[s].nest;
        b->form[s] = x ? s : -1;
        for (int t = 0; x && t < s && b->form[s] == s; t++)
            if (b->form[t] == t && is_like(x, p->step[t].nest)) b->form[s] = t;
    }
}

/* The step that writes a block is the first that has to do with it. */
static int writer(const batcher *b, int block)
{
    const nb_graph *g = b->plan->graph;
    bool given = block < g->n && g->line[block].kind != NB_LINE_CALL;
    return given ? -1 : b->life[block].first;
}

typedef void visit(batcher *b, int s, int block);

/* All blocks that step s has to do with; some perhaps more than once, but as
 * often whenever it is asked. */
static void each_block(batcher *b, int s, visit *f)
{
    const nb_plan *p = b->plan;
    const nb_step *step = &p->step[s];
    const nb_line *call = &p->graph->line[step->line];
    for (int i = 0; i < step->nbuffers; i++)
        f(b, s, step->buffer[i]);
    if (step->nest || step->gemm) return;
    f(b, s, step->line);
    for (int i = 0; i < call->nin; i++)
        f(b, s, p->place[call->in[i]].root);
}

static void count(batcher *b, int s, int block)
{
    int w = writer(b, block);
    if (w >= 0 && w != s) b->left[w]++;
}

static void leave(batcher *b, int s, int block)
{
    int w = writer(b, block);
    if (w >= 0 && w != s) b->left[w]--;
    b->alive[block] = true;
}

/* Whether some block is written by two steps, which have to keep their order. */
static bool writes_again(const batcher *b)
{
    const nb_plan *p = b->plan;
    for (int s = 0; s < p->nsteps; s++) {
        const nb_nest *x = p->step[s].nest;
        for (int k = 0; x && k < x->n; k++)
            if (x->value[k].kind == NB_NEST_STORE &&
                writer(b, p->step[s].buffer[x->value[k].buffer]) != s)
                return true;
    }
    return false;
}

/* Bytes that step s would keep in use for longer.  Of inputs only those count
 * that others, who go before, would want to write over. */
static int64_t holds(const batcher *b, int s)
{
    const nb_plan *p = b->plan;
    int64_t bytes = 0;
    for (int i = 0; i < p->step[s].nbuffers; i++) {
        int block = p->step[s].buffer[i], w = writer(b, block);
        if (w == s || b->alive[block]) continue;
        if (w >= 0 || b->life[block].last > s) bytes += p->bytes[block];
    }
    return bytes;
}

/* Whether step t may go down with s; then what it holds is in use until that. */
static bool may_wait(batcher *b, int t, int s)
{
    int64_t bytes = holds(b, t), most = 0;
    for (int u = t + 1; u <= s; u++)
        if (b->use[u] > most) most = b->use[u];
    if (bytes > LITTLE && (bytes > MUCH || most + bytes > b->most))
        return false;
    for (int u = t + 1; u <= s; u++)
        b->use[u] += bytes;
    return true;
}

static void find_use(batcher *b)
{
    const nb_plan *p = b->plan;
    for (int k = 0; k < nb_plan_blocks(p); k++)
        for (int s = b->life[k].first;
             writer(b, k) >= 0 && s <= b->life[k].last; s++)
            b->use[s] += p->bytes[k];
    for (int s = 0; s < p->nsteps; s++)
        if (b->use[s] > b->most) b->most = b->use[s];
}

static void put(batcher *b, int s)
{
    b->placed[s] = true;
    b->to[--b->n] = b->plan->step[s];
}

/* Puts down step s, and those that may go with it. */
static bool put_batch(batcher *b, int s)
{
    nb_plan *p = b->plan;
    int n = 0;
    b->members[n++] = s;
    for (int t = s - 1; b->form[s] >= 0 && t >= b->form[s]; t--)
        if (b->form[t] == b->form[s] && !b->placed[t] && !b->left[t] &&
            may_wait(b, t, s))
            b->members[n++] = t;
    if (n > 1 &&
        !nb_grow(&p->batch, &p->batch_room, p->nbatches + 1, sizeof *p->batch))
        return false;
    if (n > 1) p->batch[p->nbatches++] = (nb_life){b->n - n, b->n - 1};
    for (int i = 0; i < n; i++) {
        put(b, b->members[i]);
        if (n > 1) b->to[b->n].batch = p->nbatches;
    }
    for (int i = 0; i < n; i++)
        each_block(b, b->members[i], leave);
    return true;
}

static bool make_room(batcher *b)
{
    size_t n = (size_t)b->plan->nsteps + 1;
    size_t blocks = (size_t)nb_plan_blocks(b->plan) + 1;
    b->life = nb_alloc(blocks * sizeof *b->life);
    b->alive = nb_alloc_zero(blocks);
    b->left = nb_alloc_zero(n * sizeof *b->left);
    b->form = nb_alloc(n * sizeof *b->form);
    b->members = nb_alloc(n * sizeof *b->members);
    b->placed = nb_alloc_zero(n);
    b->use = nb_alloc_zero(n * sizeof *b->use);
    b->to = nb_alloc(n * sizeof *b->to);
    return b->life && b->alive && b->left && b->form && b->members &&
           b->placed && b->use && b->to;
}

static bool bring_together(batcher *b)
{
    nb_plan *p = b->plan;
    b->n = p->nsteps;
    find_forms(b);
    find_use(b);
    for (int s = 0; s < p->nsteps; s++)
        each_block(b, s, count);
    for (int i = 0; i < p->graph->ny; i++)
        b->alive[p->place[p->graph->result[i]].root] = true;
    for (int s = p->nsteps - 1; s >= 0; s--)
        if (!b->placed[s] && !put_batch(b, s)) return false;
    for (int s = 0; s < p->nsteps; s++)
        p->step[s] = b->to[s];
    return true;
}

bool nb_plan_batch(nb_plan *p)
{
    batcher b = {.plan = p};
    if (!p->device || p->any_size || p->alone || !nb_pass_is_on("batch"))
        return true;
    bool ok = make_room(&b);
    if (ok) nb_plan_lives(p, b.life);
    ok = ok && (writes_again(&b) || bring_together(&b));
    nb_free(b.life), nb_free(b.alive), nb_free(b.left), nb_free(b.form);
    nb_free(b.members), nb_free(b.placed), nb_free(b.to);
    nb_free(b.use);
    return ok;
}
