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

#include "lower/ends_parts.h"
#include "lower/formula.h"
#include "lower/passes.h"

#include <math.h>
#include <string.h>

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
static bool is_vector(const nb_ending *x, int v)
{
    const nb_nest *n = nb_ending_nest(x);
    for (int a = 0; a < n->naxes; a++) {
        int64_t step = nb_ending_value(x, x->load)->stride[a];
        bool within = step * n->size[a] <= x->run;
        if (step % x->run && !within) return false;
        if (nb_ending_value(x, v)->stride[a] != (step % x->run ? step : 0))
            return false;
    }
    return true;
}

/* Elements that load v goes through. */
static int64_t elements(const nb_ending *x, int v)
{
    const nb_nest *n = nb_ending_nest(x);
    int64_t count = 1;
    for (int a = 0; a < n->naxes; a++)
        if (nb_ending_value(x, v)->stride[a]) count *= n->size[a];
    return count;
}

/* The only load of the block that the product is in, of all of it. */
static bool find_load(nb_ending *x)
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
    const nb_ending *x;
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
    const nb_ending *x = t->x;
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
static bool find_loads(nb_ending *x, const nb_formula *f)
{
    bool product = false;
    x->bias = x->add = x->aux = -1;
    for (int i = 0; i < f->n; i++) {
        int v = f->load[i];
        if (v == x->load)
            product = true;
        else if (x->add < 0 &&
                 same_strides(nb_ending_nest(x), nb_ending_value(x, v),
                              nb_ending_value(x, x->load)))
            x->add = v;
        else if (x->bias < 0 && is_vector(x, v))
            x->bias = v;
        else
            return false;
    }
    return product;
}

/* An end that the formula is; what is added may be what a slope is at. */
static bool find_end(nb_ending *x, trial *t, nb_dtype stored)
{
    static const nb_gemm_end ends[] = {NB_END_NONE, NB_END_RELU, NB_END_GELU,
                                       NB_END_GELU_SLOPE};
    double eps = tolerance(stored);
    for (int i = 0; i < 4; i++) {
        nb_ending y = *x;
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
static bool try_store(nb_ending *x, int v, bool *is)
{
    trial t = {.x = x};
    const nb_nest_value *store = nb_ending_value(x, v);
    *is = store->kind == NB_NEST_STORE && !store->offset &&
          nb_dtype_is_float(store->stored) &&
          same_strides(nb_ending_nest(x), store, nb_ending_value(x, x->load));
    if (!*is) return true;
    x->store = v;
    t.room = nb_alloc_zero((size_t)nb_ending_nest(x)->n * sizeof *t.room);
    bool ok =
        t.room && nb_formula_of(nb_ending_nest(x), store->arg[0], &t.f, is);
    x->g = *x->p->step[x->s].gemm;
    x->g.c.dtype = store->stored;
    *is = ok && *is && find_loads(x, &t.f) && find_end(x, &t, store->stored);
    nb_formula_free(&t.f);
    nb_free(t.room);
    return ok;
}

/* What a gelu is of, if the nest stores that too. */
static bool find_kept(nb_ending *x)
{
    x->kept = -1;
    if (x->g.end != NB_END_GELU) return true;
    for (int v = 0; v < nb_ending_nest(x)->n; v++) {
        nb_ending y = *x;
        bool is;
        if (v == x->store) continue;
        if (!try_store(&y, v, &is)) return false;
        if (is && y.g.end == NB_END_NONE && y.g.scale == 1 &&
            y.bias == x->bias && y.add == x->add && y.g.c.dtype == x->g.c.dtype)
            x->kept = v;
    }
    return true;
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
    nb_ending x = {.p = p, .s = s};
    for (int b = 0; b < p->step[s].nbuffers; b++)
        if (p->step[s].buffer[b] >= p->graph->n) return true; /* a copy */
    if ((x.t = reader_of(p, s)) < 0) return true;
    if (!find_run(p->step[s].gemm, &x.run) || !find_load(&x)) return true;
    for (int v = nb_ending_nest(&x)->n - 1; !*done && v >= 0; v--) {
        bool is;
        if (!try_store(&x, v, &is)) return false;
        if (!is) continue;
        if (!find_kept(&x) || !nb_ending_take(&x, done)) return false;
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
