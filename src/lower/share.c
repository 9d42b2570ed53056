/* share.c - sums over the same memory, in one nest.
 *
 * The gradients of a layer's gain and of its bias are sums over the same rows,
 * and what they sum is read for the gradient of the layer's input too.  None of
 * them needs another, so fusion leaves them apart.  On a card memory is what
 * they wait for: nests with the same axes, which sum in one pass and read some
 * of the same memory, become one, at the place of the last.  What needs an
 * earlier one of them runs after it then. */
#include "lower/passes.h"
#include "lower/plan.h"

#include <string.h>

enum {
    NEAR = 48,        /* steps */
    MOST_VALUES = 96, /* of a nest */
    LARGE = 1 << 20,  /* bytes that are worth it */
    LITTLE = 1 << 18  /* that may be held a little longer */
};

/* Whether it sums, and no sum has to be known before others begin. */
static bool sums_once(const nb_nest *x)
{
    bool late[MOST_VALUES];
    if (!x || !x->inner || x->cut || x->lead || x->n > MOST_VALUES)
        return false;
    for (int k = 0; k < x->n; k++) {
        const nb_nest_value *v = &x->value[k];
        if (v->kind == NB_NEST_CARRY || v->kind == NB_NEST_SCAN) return false;
        late[k] = false;
        for (int i = 0; i < nb_nest_args(v); i++)
            late[k] |= late[v->arg[i]];
        bool inside = v->axes & x->inner || v->kind == NB_NEST_REDUCE;
        if (late[k] && inside) return false;
        late[k] |= v->kind == NB_NEST_REDUCE;
    }
    return true;
}

static int64_t bytes_of(const nb_nest *x, const nb_nest_value *v)
{
    int64_t n = (int64_t)nb_dtype_size(v->stored);
    for (int a = 0; a < x->naxes; a++)
        if (v->stride[a]) n *= x->size[a];
    return n;
}

/* Whether both read what is large at the same places. */
static bool read_the_same(const nb_step *s, const nb_step *t)
{
    const nb_nest *x = s->nest, *y = t->nest;
    size_t strides = (size_t)x->naxes * sizeof(int64_t);
    for (int i = 0; i < x->n; i++)
        for (int k = 0; k < y->n; k++) {
            const nb_nest_value *v = &x->value[i], *w = &y->value[k];
            if (v->kind == NB_NEST_LOAD && w->kind == NB_NEST_LOAD &&
                s->buffer[v->buffer] == t->buffer[w->buffer] &&
                v->offset == w->offset &&
                !memcmp(v->stride, w->stride, strides) &&
                bytes_of(x, v) >= LARGE)
                return true;
        }
    return false;
}

static bool are_alike(const nb_step *s, const nb_step *t)
{
    const nb_nest *x = s->nest, *y = t->nest;
    return sums_once(x) && x->naxes == y->naxes && x->inner == y->inner &&
           x->n + y->n <= MOST_VALUES &&
           !memcmp(x->size, y->size, (size_t)x->naxes * sizeof *x->size) &&
           read_the_same(s, t);
}

/* Whether what s reads, beside little, is in use until t anyway. */
static bool may_wait(const nb_plan *p, const nb_life *l, int s, int t)
{
    const nb_step *step = &p->step[s];
    for (int k = 0; k < step->nest->n; k++) {
        const nb_nest_value *v = &step->nest->value[k];
        if (!nb_nest_reads(v)) continue;
        int block = step->buffer[v->buffer];
        bool given =
            block < p->graph->n && p->graph->line[block].kind != NB_LINE_CALL;
        if (!given && l[block].last < t && bytes_of(step->nest, v) > LITTLE)
            return false;
    }
    return true;
}

typedef struct sharer {
    nb_plan *plan;
    nb_life *life;
    bool *marked; /* by block: it waits for the step looked at */
    nb_step later[NEAR];
} sharer;

static bool writes(const sharer *x, int u, int block)
{
    const nb_graph *g = x->plan->graph;
    bool given = block < g->n && g->line[block].kind != NB_LINE_CALL;
    return !given && x->life[block].first == u;
}

/* Whether step u has to do with what is marked; if so what it writes is. */
static bool waits(sharer *x, int u)
{
    const nb_plan *p = x->plan;
    const nb_step *step = &p->step[u];
    const nb_line *call = &p->graph->line[step->line];
    bool calls = !step->nest && !step->gemm, found = false;
    for (int b = 0; b < step->nbuffers; b++)
        found = found || x->marked[step->buffer[b]];
    for (int i = 0; calls && i < call->nin; i++)
        found = found || x->marked[p->place[call->in[i]].root];
    for (int b = 0; found && b < step->nbuffers; b++)
        if (writes(x, u, step->buffer[b])) x->marked[step->buffer[b]] = true;
    if (found && calls) x->marked[step->line] = true;
    return found;
}

static void mark(sharer *x, int s)
{
    memset(x->marked, 0, (size_t)nb_plan_blocks(x->plan));
    for (int b = 0; b < x->plan->step[s].nbuffers; b++) {
        int block = x->plan->step[s].buffer[b];
        x->marked[block] = writes(x, s, block);
    }
}

/* Whether t can do without s, and nothing between them has to stay there. */
static bool are_free(sharer *x, int s, int t)
{
    const nb_plan *p = x->plan;
    mark(x, s);
    for (int u = s + 1; u < t; u++) {
        const nb_op *op = p->graph->line[p->step[u].line].op;
        waits(x, u);
        if (op && op->effect) return false;
    }
    return !waits(x, t);
}

/* The buffer of step t that a block is. */
static int buffer_of(nb_step *t, int block)
{
    for (int b = 0; b < t->nbuffers; b++)
        if (t->buffer[b] == block) return b;
    t->buffer[t->nbuffers] = block;
    return t->nbuffers++;
}

/* The value of x that does what v does, a new one if there is none. */
static int value_of(nb_nest *x, const nb_nest_value *v)
{
    for (int k = 0; k < x->n; k++)
        if (v->kind != NB_NEST_STORE &&
            nb_nest_same_value(x->naxes, &x->value[k], v))
            return k;
    return nb_nest_add(x, *v) ? x->n - 1 : -1;
}

/* What step s does is done by t. */
static bool add(nb_step *t, const nb_step *s)
{
    int at[MOST_VALUES];
    size_t n = (size_t)(t->nbuffers + s->nbuffers);
    int *buffer = nb_resize(t->buffer, n * sizeof *buffer);
    if (!buffer) return false;
    t->buffer = buffer;
    for (int k = 0; k < s->nest->n; k++) {
        nb_nest_value v = s->nest->value[k];
        for (int i = 0; i < nb_nest_args(&v); i++)
            v.arg[i] = at[v.arg[i]];
        if (nb_nest_in_memory(&v)) v.buffer = buffer_of(t, s->buffer[v.buffer]);
        if ((at[k] = value_of(t->nest, &v)) < 0) return false;
    }
    t->nest->nbuffers = t->nbuffers;
    return true;
}

/* Steps s to t without s: those that need it come after t. */
static void reorder(sharer *x, int s, int t)
{
    nb_plan *p = x->plan;
    int n = 0, to = s;
    mark(x, s);
    for (int u = s + 1; u < t; u++)
        if (waits(x, u))
            x->later[n++] = p->step[u];
        else
            p->step[to++] = p->step[u];
    p->step[to++] = p->step[t];
    memcpy(&p->step[to], x->later, (size_t)n * sizeof *x->later);
    memmove(&p->step[t], &p->step[t + 1],
            (size_t)(p->nsteps - t - 1) * sizeof *p->step);
    p->nsteps--;
}

static bool merge(sharer *x, int s, int t)
{
    nb_plan *p = x->plan;
    nb_step gone = p->step[s];
    int from = p->group[gone.line], to = p->group[p->step[t].line];
    if (!add(&p->step[t], &gone)) return false;
    reorder(x, s, t);
    for (int k = 0; k < p->graph->n; k++)
        if (from >= 0 && p->group[k] == from) p->group[k] = to;
    nb_step_free(&gone);
    nb_plan_lives(p, x->life);
    return true;
}

/* The step that t takes in, -1 if there is none. */
static int partner(sharer *x, int t)
{
    const nb_plan *p = x->plan;
    if (!sums_once(p->step[t].nest)) return -1;
    for (int s = t - 1; s >= 0 && s >= t - NEAR; s--)
        if (are_alike(&p->step[s], &p->step[t]) && may_wait(p, x->life, s, t) &&
            are_free(x, s, t))
            return s;
    return -1;
}

bool nb_plan_share(nb_plan *p)
{
    size_t n = (size_t)nb_plan_blocks(p) + 1;
    if (!p->device || p->any_size || p->alone || !nb_pass_is_on("share"))
        return true;
    sharer x = {.plan = p,
                .life = nb_alloc(n * sizeof *x.life),
                .marked = nb_alloc_zero(n)};
    bool ok = x.life && x.marked;
    if (ok) nb_plan_lives(p, x.life);
    for (int t = 0; ok && t < p->nsteps; t++) {
        int s = partner(&x, t);
        if (s < 0) continue;
        ok = merge(&x, s, t);
        t = s - 1; /* some have moved */
    }
    nb_free(x.life), nb_free(x.marked);
    return ok;
}
