/* ends_take.c - the product stores what a nest would have made of it; what is
 * left of the nest reads that. */
#include "lower/ends_parts.h"

#include <string.h>

/* Marks what the nest still computes when its stores to the result and to what
 * is kept are gone, and these are loaded. */
static void find_rest(const nb_ending *x, bool *lives)
{
    const nb_nest *n = nb_ending_nest(x);
    int made[2] = {nb_ending_value(x, x->store)->arg[0],
                   x->kept < 0 ? -1 : nb_ending_value(x, x->kept)->arg[0]};
    memset(lives, 0, (size_t)n->n);
    for (int v = n->n - 1; v >= 0; v--) {
        const nb_nest_value *k = &n->value[v];
        bool stores = k->kind == NB_NEST_STORE;
        lives[v] = lives[v] || (stores && v != x->store && v != x->kept);
        if (!lives[v] || v == made[0] || v == made[1]) continue;
        for (int i = 0; i < nb_nest_args(k); i++)
            lives[k->arg[i]] = true;
    }
}

static bool is_empty(const bool *lives, int n)
{
    for (int v = 0; v < n; v++)
        if (lives[v]) return false;
    return true;
}

/* The value that store v stored is read from where the product stores it. */
static void read_back(nb_nest *n, int v)
{
    const nb_nest_value store = n->value[v];
    nb_nest_value *made = &n->value[store.arg[0]];
    nb_dtype d = made->dtype;
    *made = store;
    made->kind = NB_NEST_LOAD;
    made->dtype = d;
}

static void drop_values(nb_nest *n, const bool *lives, int *is)
{
    int left = 0;
    for (int v = 0; v < n->n; v++) {
        is[v] = left;
        if (!lives[v]) continue;
        n->value[left] = n->value[v];
        for (int i = 0; i < 3; i++)
            if (i < nb_nest_args(&n->value[left]))
                n->value[left].arg[i] = is[n->value[left].arg[i]];
        left++;
    }
    n->n = left;
}

/* Buffers that no access has any more. */
static void drop_buffers(nb_step *s)
{
    int left = 0;
    for (int b = 0; b < s->nbuffers; b++) {
        bool used = false;
        for (int v = 0; v < s->nest->n; v++) {
            nb_nest_value *k = &s->nest->value[v];
            if (!nb_nest_in_memory(k) || k->buffer != b) continue;
            k->buffer = left;
            used = true;
        }
        if (used) s->buffer[left++] = s->buffer[b];
    }
    s->nbuffers = s->nest->nbuffers = left;
}

static bool shrink(const nb_ending *x, bool *lives)
{
    nb_step *t = &x->p->step[x->t];
    int *is = nb_alloc((size_t)t->nest->n * sizeof *is);
    if (!is) return false;
    read_back(t->nest, x->store);
    if (x->kept >= 0) read_back(t->nest, x->kept);
    drop_values(t->nest, lives, is);
    drop_buffers(t);
    nb_free(is);
    return true;
}

/* Taking it in */

static void beside(const nb_ending *x, int v, nb_gemm_beside *to, int *block,
                   int *n)
{
    const nb_step *t = &x->p->step[x->t];
    if (v < 0) return;
    to->dtype = nb_ending_value(x, v)->stored;
    to->offset = nb_ending_value(x, v)->offset;
    to->buffer = *n;
    block[(*n)++] = t->buffer[nb_ending_value(x, v)->buffer];
}

static int line_of(const nb_ending *x, int store)
{
    return x->p->step[x->t].buffer[nb_ending_value(x, store)->buffer];
}

/* The product with buffers of its own, the result's among them. */
static void set_buffers(nb_ending *x, int *block, int *n)
{
    const nb_step *s = &x->p->step[x->s];
    memcpy(block, s->buffer, (size_t)s->nbuffers * sizeof *block);
    *n = s->nbuffers;
    block[x->g.c.buffer] = line_of(x, x->store);
    x->g.c.offset = 0;
    beside(x, x->bias, &x->g.bias, block, n);
    x->vector = x->g.bias;
    if (x->vector.dtype != x->g.c.dtype) { /* it will be cast */
        x->g.bias.dtype = x->g.c.dtype;
        x->g.bias.offset = 0;
    }
    beside(x, x->add, &x->g.add, block, n);
    beside(x, x->aux, &x->g.kept, block, n);
    beside(x, x->kept, &x->g.kept, block, n);
}

static void remove_step(nb_plan *p, int s)
{
    nb_step_free(&p->step[s]);
    p->nsteps--;
    memmove(&p->step[s], &p->step[s + 1],
            (size_t)(p->nsteps - s) * sizeof *p->step);
}

static bool touches(const nb_plan *p, const nb_step *s, int block)
{
    for (int b = 0; b < s->nbuffers; b++)
        if (s->buffer[b] == block) return true;
    return p->place[s->line].root == block;
}

/* The last step before t that has to do with one of n blocks; s: none after
 * that. */
static int last_before(const nb_plan *p, int s, int t, const int *block, int n)
{
    for (int u = t - 1; u > s; u--)
        for (int b = 0; b < n; b++)
            if (touches(p, &p->step[u], block[b])) return u;
    return s;
}

static void move(nb_plan *p, int s, int to)
{
    nb_step moved = p->step[s];
    memmove(&p->step[s], &p->step[s + 1], (size_t)(to - s) * sizeof moved);
    p->step[to] = moved;
}

/* A step before product s that makes the vector it adds, of n elements, of what
 * is there in another dtype. */
static bool cast_vector(nb_plan *p, int s, const nb_gemm_beside *from,
                        int64_t n)
{
    nb_gemm_beside *to = &p->step[s].gemm->bias;
    nb_step c = {.line = p->step[s].line, .nbuffers = 2};
    bool wide = from->dtype == NB_F64 || to->dtype == NB_F64;
    nb_nest_value load = {.kind = NB_NEST_LOAD,
                          .dtype = wide ? NB_F64 : NB_F32,
                          .stored = from->dtype,
                          .offset = from->offset,
                          .axes = 1,
                          .stride = {1}};
    nb_nest_value store = load;
    store.kind = NB_NEST_STORE;
    store.stored = to->dtype;
    store.offset = 0;
    store.buffer = 1;
    int block = nb_plan_extra(p, n * (int64_t)nb_dtype_size(to->dtype));
    c.nest = nb_alloc_zero(sizeof *c.nest);
    c.buffer = nb_alloc(2 * sizeof *c.buffer);
    if (c.nest) *c.nest = (nb_nest){.naxes = 1, .size = {n}, .nbuffers = 2};
    bool ok = block >= 0 && c.nest && c.buffer && nb_nest_add(c.nest, load) &&
              nb_nest_add(c.nest, store) &&
              nb_grow(&p->step, &p->room, p->nsteps + 1, sizeof c);
    if (!ok) return nb_step_free(&c), false;
    c.buffer[0] = p->step[s].buffer[to->buffer];
    c.buffer[1] = p->step[s].buffer[to->buffer] = block;
    memmove(&p->step[s + 1], &p->step[s], (size_t)(p->nsteps++ - s) * sizeof c);
    p->step[s] = c;
    return true;
}

/* All that the product reads is there before the nest.  Where that is gone the
 * operands should not have to wait for it. */
static bool take(nb_ending *x, const int *block, int n, bool *lives)
{
    nb_plan *p = x->p;
    nb_step *s = &p->step[x->s];
    int *buffer = nb_alloc((size_t)n * sizeof *buffer);
    bool gone = is_empty(lives, nb_ending_nest(x)->n);
    int line = line_of(x, x->store);
    if (!buffer || (!gone && !shrink(x, lives))) return nb_free(buffer), false;
    memcpy(buffer, block, (size_t)n * sizeof *buffer);
    nb_free(s->buffer);
    s->buffer = buffer;
    s->nbuffers = n;
    p->group[s->line] = p->group[line];
    s->line = line;
    *s->gemm = x->g;
    int to = gone ? last_before(p, x->s, x->t, block, n) : x->t - 1;
    if (gone) remove_step(p, x->t);
    move(p, x->s, to);
    return x->bias < 0 || x->vector.dtype == x->g.c.dtype ||
           cast_vector(p, to, &x->vector, x->run);
}

/* Whether it saves more than it costs. */
static bool pays(const nb_ending *x, bool gone)
{
    bool ends = x->g.end != NB_END_NONE || x->bias >= 0;
    return gone || (ends && x->add < 0);
}

bool nb_ending_take(nb_ending *x, bool *done)
{
    enum { MOST = 8 };
    const nb_nest *n = nb_ending_nest(x);
    bool *lives = nb_alloc((size_t)n->n + 1), ok = lives;
    int block[MOST], blocks;
    if (!ok) return false;
    find_rest(x, lives);
    bool needed =
        lives[x->load] && nb_ending_value(x, x->store)->arg[0] != x->load;
    if (!needed && pays(x, is_empty(lives, n->n))) {
        set_buffers(x, block, &blocks);
        *done = (x->add < 0 ||
                 last_before(x->p, x->s, x->t, block, blocks) == x->s) &&
                nb_card_multiplies(x->p->device, &x->g);
        if (*done) ok = take(x, block, blocks, lives);
    }
    nb_free(lives);
    return ok;
}
