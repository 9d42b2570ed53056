/* ends.c - products take in what follows them.
 *
 * A nest that makes a value of a product, point by point, and stores it need
 * not read the product, if a library can end one that way: with a vector added
 * to each run of memory, a relu, a gelu, the slope of one, another matrix
 * added, or a number times it, in the dtype that is wanted.  What such a value
 * is is found by trying (formula.h).  The product then stores that value, the
 * rest of the nest reads it from there, and a nest without a rest is gone.
 *
 * It is done where the product itself is needed nowhere else.  A mere copy, and
 * what is added of the same size, are not worth it if the nest has to read the
 * result all the same; nor is it to wait for what is added, and keep operands
 * in memory for so long. */
#include "lower/ends.h"

#include "lower/formula.h"
#include "lower/gemm.h"
#include "lower/passes.h"

#include <math.h>
#include <string.h>

/* A product, the nest after it, and how the one reads the other. */
typedef struct pair {
    nb_plan *p;
    int s, t;           /* steps */
    int load;           /* value of the nest */
    int64_t run;        /* elements of memory that a vector is added to */
    int store;          /* of the value that the product is to end as, */
    int kept;           /* and of what a gelu is of, -1: none */
    nb_gemm g;          /* as it becomes, but for its buffers: */
    int bias, add, aux; /* loads; or -1 */
} pair;

static const nb_nest *nest_of(const pair *x)
{
    return x->p->step[x->t].nest;
}

static const nb_nest_value *value(const pair *x, int v)
{
    return &nest_of(x)->value[v];
}

/* Runs of memory of the result, all of one length and one after another. */
static bool find_run(const nb_gemm *g, int64_t *run)
{
    bool by_rows =
        nb_matrix_lies(g->m, g->n, g->c.row, g->c.column) == NB_LIES_BY_ROWS;
    *run = by_rows ? g->n : g->m;
    bool whole = nb_matrix_leap(g->m, g->n, g->c.row, g->c.column) == *run;
    for (int i = 0; i < g->nouter; i++)
        whole = whole && g->c.step[i] % *run == 0;
    return whole && g->m > 1 && g->n > 1;
}

static bool same_strides(const nb_nest *x, const nb_nest_value *a,
                         const nb_nest_value *b)
{
    return !memcmp(a->stride, b->stride, (size_t)x->naxes * sizeof *a->stride);
}

/* Whether load v has one element for each place of a run. */
static bool is_vector(const pair *x, int v)
{
    const nb_nest *n = nest_of(x);
    for (int a = 0; a < n->naxes; a++) {
        int64_t step = value(x, x->load)->stride[a];
        bool within = step * n->size[a] <= x->run;
        if (step % x->run && !within) return false;
        if (value(x, v)->stride[a] != (step % x->run ? step : 0)) return false;
    }
    return true;
}

/* Elements that load v goes through. */
static int64_t elements(const pair *x, int v)
{
    const nb_nest *n = nest_of(x);
    int64_t count = 1;
    for (int a = 0; a < n->naxes; a++)
        if (value(x, v)->stride[a]) count *= n->size[a];
    return count;
}

/* The only load of the block that the product is in, of all of it. */
static bool find_load(pair *x)
{
    const nb_step *s = &x->p->step[x->s], *t = &x->p->step[x->t];
    int block = s->buffer[s->gemm->c.buffer];
    int64_t count = s->gemm->m * s->gemm->n;
    for (int i = 0; i < s->gemm->nouter; i++)
        count *= s->gemm->outer[i];
    x->load = -1;
    for (int v = 0; v < t->nest->n; v++) {
        const nb_nest_value *l = &t->nest->value[v];
        if (l->kind == NB_NEST_CARRY) return false;
        if (!nb_nest_in_memory(l) || t->buffer[l->buffer] != block) continue;
        if (x->load >= 0 || l->kind != NB_NEST_LOAD || l->offset) return false;
        x->load = v;
    }
    return x->load >= 0 && elements(x, x->load) == count;
}

/* Trying */

/* How far a result may be off, as a part of it: twice what rounding it is. */
static double tolerance(nb_dtype d)
{
    return d == NB_BF16  ? 0x1p-7
           : d == NB_F16 ? 0x1p-10
           : d == NB_F32 ? 0x1p-22
                         : 0x1p-48;
}

static double gelu(double x)
{
    double s = sqrt(2 / M_PI);
    return 0.5 * x * (1 + tanh(s * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double s = sqrt(2 / M_PI), t = tanh(s * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) +
           0.5 * x * (1 - t * t) * s * (1 + 3 * 0.044715 * x * x);
}

static double end_of(const nb_gemm *g, double sum, double aux)
{
    switch (g->end) {
    case NB_END_RELU: return sum > 0 ? sum : 0;
    case NB_END_GELU: return gelu(sum);
    case NB_END_GELU_SLOPE: return sum * gelu_slope(aux);
    default: return sum;
    }
}

typedef struct trial {
    const pair *x;
    nb_formula f;
    double *room;
} trial;

/* The formula where the product, and what else is loaded, are those. */
static double at(const trial *t, double product, double bias, double same)
{
    double load[NB_MAX_FORMULA_LOADS];
    for (int i = 0; i < t->f.n; i++)
        load[i] = t->f.load[i] == t->x->load   ? product
                  : t->f.load[i] == t->x->bias ? bias
                                               : same;
    return nb_formula_value(&t->f, load, t->room);
}

/* Numbers to try: some near one, then ever larger and smaller ones. */
static double sample(int i)
{
    enum { NEAR = 61 };
    if (i < NEAR) return (i - NEAR / 2) * 0.217 + 0.011;
    double size = pow(10, (i - NEAR) / 2 * 3 - 9);
    return (i - NEAR) % 2 ? -size : size;
}

/* Results below this may be off by as much as it may: so numbers of a formula
 * may be rounded, and the gelu by erf is still another. */
static double least_of(const nb_gemm *g, double product)
{
    return g->end == NB_END_GELU         ? 0x1p-6
           : g->end == NB_END_GELU_SLOPE ? fabs(product) / 16
                                         : 0;
}

/* Whether the formula is what the product would end as. */
static bool agrees(const trial *t, const nb_gemm *g, double eps)
{
    enum { PRODUCTS = 81, OTHERS = 81 };
    const pair *x = t->x;
    for (int i = 0; i < PRODUCTS; i++)
        for (int j = i % 8; j < OTHERS; j += 8) {
            double p = sample(i), other = sample(j);
            double b = x->bias >= 0 ? sample((i + j) % OTHERS) : 0;
            double sum = g->scale * p + b + (x->add >= 0 ? other : 0);
            double want = end_of(g, sum, other);
            double all = fabs(g->scale * p) + fabs(b) + fabs(want);
            double exact = g->end == NB_END_NONE ? all : fabs(want);
            double most = eps * fmax(exact, least_of(g, p));
            if (!(fabs(at(t, p, b, other) - want) <= most)) return false;
        }
    return true;
}

/* Sums and products, which are equal if they are at so many points. */
static bool is_plain(const nb_formula *f)
{
    static const bool plain[NB_S_count] = {
        [NB_S_copy] = true, [NB_S_neg] = true, [NB_S_add] = true,
        [NB_S_sub] = true,  [NB_S_mul] = true, [NB_S_div] = true,
        [NB_S_fma] = true};
    for (int v = 0; v <= f->v; v++) {
        const nb_nest_value *k = &f->nest->value[v];
        if (f->in[v] && k->kind == NB_NEST_SCALAR && !plain[k->scalar])
            return false;
    }
    return true;
}

/* Loads that take part: the product, a vector, one more of the result's kind. */
static bool find_loads(pair *x, const nb_formula *f)
{
    bool product = false;
    x->bias = x->add = x->aux = -1;
    for (int i = 0; i < f->n; i++) {
        int v = f->load[i];
        if (v == x->load)
            product = true;
        else if (x->add < 0 &&
                 same_strides(nest_of(x), value(x, v), value(x, x->load)))
            x->add = v;
        else if (x->bias < 0 && is_vector(x, v))
            x->bias = v;
        else
            return false;
    }
    return product;
}

/* An end that the formula is; what is added may be what a slope is at. */
static bool find_end(pair *x, trial *t, nb_dtype stored)
{
    static const nb_gemm_end ends[] = {NB_END_NONE, NB_END_RELU, NB_END_GELU,
                                       NB_END_GELU_SLOPE};
    double eps = tolerance(stored);
    for (int i = 0; i < 4; i++) {
        pair y = *x;
        bool slope = ends[i] == NB_END_GELU_SLOPE;
        trial u = *t;
        u.x = &y;
        y.g.end = ends[i];
        y.g.scale = 1;
        if (slope) y.aux = y.add, y.add = -1;
        if (slope && (y.aux < 0 || y.bias >= 0)) continue;
        if (!i && !is_plain(&t->f)) continue;
        if (!i) y.g.scale = at(&u, 1, 0, 0) - at(&u, 0, 0, 0);
        if (!isfinite(y.g.scale) || !agrees(&u, &y.g, eps)) continue;
        *x = y;
        return true;
    }
    return false;
}

/* Whether the value of a store can be the product's. */
static bool try_store(pair *x, int v, bool *is)
{
    trial t = {.x = x};
    const nb_nest_value *store = value(x, v);
    *is = store->kind == NB_NEST_STORE && !store->offset &&
          nb_dtype_is_float(store->stored) &&
          same_strides(nest_of(x), store, value(x, x->load));
    if (!*is) return true;
    x->store = v;
    t.room = nb_alloc_zero((size_t)nest_of(x)->n * sizeof *t.room);
    bool ok = t.room && nb_formula_of(nest_of(x), store->arg[0], &t.f, is);
    x->g = *x->p->step[x->s].gemm;
    x->g.c.dtype = store->stored;
    *is = ok && *is && find_loads(x, &t.f) && find_end(x, &t, store->stored);
    nb_formula_free(&t.f);
    nb_free(t.room);
    return ok;
}

/* What a gelu is of, if the nest stores that too. */
static bool find_kept(pair *x)
{
    x->kept = -1;
    if (x->g.end != NB_END_GELU) return true;
    for (int v = 0; v < nest_of(x)->n; v++) {
        pair y = *x;
        bool is;
        if (v == x->store) continue;
        if (!try_store(&y, v, &is)) return false;
        if (is && y.g.end == NB_END_NONE && y.g.scale == 1 &&
            y.bias == x->bias && y.add == x->add && y.g.c.dtype == x->g.c.dtype)
            x->kept = v;
    }
    return true;
}

/* What is left */

/* Marks what the nest still computes when its stores to the result and to what
 * is kept are gone, and these are loaded. */
static void find_rest(const pair *x, bool *lives)
{
    const nb_nest *n = nest_of(x);
    int made[2] = {value(x, x->store)->arg[0],
                   x->kept < 0 ? -1 : value(x, x->kept)->arg[0]};
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

static bool shrink(const pair *x, bool *lives)
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

static void beside(const pair *x, int v, nb_gemm_beside *to, int *block, int *n)
{
    const nb_step *t = &x->p->step[x->t];
    if (v < 0) return;
    to->dtype = value(x, v)->stored;
    to->offset = value(x, v)->offset;
    to->buffer = *n;
    block[(*n)++] = t->buffer[value(x, v)->buffer];
}

static int line_of(const pair *x, int store)
{
    return x->p->step[x->t].buffer[value(x, store)->buffer];
}

/* The product with buffers of its own, the result's among them. */
static void set_buffers(pair *x, int *block, int *n)
{
    const nb_step *s = &x->p->step[x->s];
    memcpy(block, s->buffer, (size_t)s->nbuffers * sizeof *block);
    *n = s->nbuffers;
    block[x->g.c.buffer] = line_of(x, x->store);
    x->g.c.offset = 0;
    beside(x, x->bias, &x->g.bias, block, n);
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

/* All that the product reads is there before the nest.  Where that is gone the
 * operands should not have to wait for it. */
static bool take(pair *x, const int *block, int n, bool *lives)
{
    nb_plan *p = x->p;
    nb_step *s = &p->step[x->s];
    int *buffer = nb_alloc((size_t)n * sizeof *buffer);
    bool gone = is_empty(lives, nest_of(x)->n);
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
    return true;
}

/* Whether it saves more than it costs. */
static bool pays(const pair *x, bool gone)
{
    bool ends = x->g.end != NB_END_NONE || x->bias >= 0;
    return gone || (ends && x->add < 0);
}

static bool consider(pair *x, bool *done)
{
    enum { MOST = 8 };
    const nb_nest *n = nest_of(x);
    bool *lives = nb_alloc((size_t)n->n + 1), ok = lives;
    int block[MOST], blocks;
    if (!ok) return false;
    find_rest(x, lives);
    bool needed = lives[x->load] && value(x, x->store)->arg[0] != x->load;
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

/* The only step that reads the block of the product, a nest; -1: there is
 * none, or others need it. */
static int reader_of(const nb_plan *p, int s)
{
    const nb_graph *g = p->graph;
    int block = p->step[s].buffer[p->step[s].gemm->c.buffer], found = -1;
    for (int i = 0; i < g->ny; i++)
        if (p->place[g->result[i]].root == block) return -1;
    for (int t = 0; t < p->nsteps; t++) {
        const nb_step *step = &p->step[t];
        const nb_line *l = &g->line[step->line];
        bool reads = false;
        for (int b = 0; b < step->nbuffers; b++)
            reads = reads || step->buffer[b] == block;
        for (int i = 0; !step->nest && !step->gemm && i < l->nin; i++)
            reads = reads || p->place[l->in[i]].root == block;
        if (!reads || t == s) continue;
        if (found >= 0 || t < s || !step->nest) return -1;
        found = t;
    }
    return found;
}

/* The last store that can be the end comes first: a gelu, rather than what it
 * is of. */
static bool end_product(nb_plan *p, int s, bool *done)
{
    pair x = {.p = p, .s = s};
    for (int b = 0; b < p->step[s].nbuffers; b++)
        if (p->step[s].buffer[b] >= p->graph->n) return true; /* a copy */
    if ((x.t = reader_of(p, s)) < 0) return true;
    if (!find_run(p->step[s].gemm, &x.run) || !find_load(&x)) return true;
    for (int v = nest_of(&x)->n - 1; !*done && v >= 0; v--) {
        bool is;
        if (!try_store(&x, v, &is)) return false;
        if (!is) continue;
        if (!find_kept(&x) || !consider(&x, done)) return false;
    }
    return true;
}

static bool is_ended(const nb_gemm *g)
{
    return g->end || g->scale != 1 || g->bias.buffer >= 0 || g->add.buffer >= 0;
}

bool nb_plan_ends(nb_plan *p)
{
    bool on = p->device && nb_pass_is_on("ends");
    for (int s = 0; on && s < p->nsteps; s++) {
        bool done = false;
        if (!p->step[s].gemm || is_ended(p->step[s].gemm)) continue;
        if (!end_product(p, s, &done)) return false;
        if (done) s--;
    }
    return true;
}
