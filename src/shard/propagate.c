/* propagate.c - layouts spread over a program until nothing changes.
 *
 * Rounds: what the strongest priority says spreads before the next is heard;
 * within that, through calls that only pass dims on before others, through
 * dims that are passed on before reductions and the like, and backward through
 * broadcasts before forward. */
#include "shard/propagate.h"

#include "shard/factors.h"
#include "shard/work.h"

#include <string.h>

enum { ROUNDS = 5 };

/* A call and its tensors. */
typedef struct site {
    int n, *at; /* lines: operands, then the result */
    nb_factors f;
    bool passes;  /* all of its factors are in the result and pass */
    bool single;  /* its operands have no other use */
    bool repeats; /* its result is larger than what it is made of */
    bool waiting; /* a tensor of it has changed */
    uint8_t kind[NB_MAX_AXES];
} site;

typedef struct spreader {
    const nb_graph *g;
    nb_tensor *const *node;
    const nb_mesh *mesh;
    nb_spec *value; /* by line */
    site **of;      /* by line; NULL: nothing spreads through it */
    int *uses;
    int priority, round;
    bool changed;
} spreader;

/* The program as values and sites */

static bool spreads(const nb_line *l)
{
    return l->kind == NB_LINE_CALL && !l->multi && l->op != &nb_op_part &&
           !l->op->release && !l->op->effect;
}

static void site_free(site *s)
{
    if (!s) return;
    nb_factors_free(&s->f);
    nb_free(s->at);
    nb_free(s);
}

static void describe(const spreader *p, site *s, const nb_call *c)
{
    const nb_factors *f = &s->f;
    nb_work w = {.call = c, .mesh = p->mesh, .f = f};
    int64_t in = 1, out = 1;
    s->passes = s->single = true;
    for (int k = 0; k < f->n; k++) {
        s->kind[k] = (uint8_t)nb_work_kind(&w, k);
        s->passes = s->passes && f->kind[k] == NB_PASS && !f->reduced[k];
    }
    for (int t = 0; t < f->nin; t++)
        s->single = s->single && p->uses[s->at[t]] == 1;
    for (int d = 0; f->nin == 1 && d < f->tensor[0].rank; d++)
        in *= f->tensor[0].size[d];
    for (int d = 0; f->nin == 1 && d < f->tensor[1].rank; d++)
        out *= f->tensor[1].size[d];
    s->repeats = out > in;
}

static bool add_site(spreader *p, int k)
{
    const nb_line *l = &p->g->line[k];
    nb_tensor *y = p->node[k];
    if (!spreads(l)) return true;
    nb_call c = nb_call_of(y);
    site *s = nb_alloc_zero(sizeof *s);
    if (!s) return false;
    s->n = l->nin + 1;
    s->at = nb_alloc((size_t)s->n * sizeof *s->at);
    if (!s->at || !nb_factors_of(&s->f, &c, 1, &y)) {
        nb_free(s->at);
        nb_free(s);
        return false;
    }
    for (int i = 0; i < l->nin; i++)
        s->at[i] = l->in[i];
    s->at[l->nin] = k;
    describe(p, s, &c);
    p->of[k] = s;
    return true;
}

/* What is fixed is closed; the rest is open and empty. */
static void add_value(spreader *p, int k, const nb_spec *given, bool result)
{
    const nb_line *l = &p->g->line[k];
    const nb_tensor *x = p->node[k];
    const nb_spec *is = given ? given : x->sharding;
    nb_spec *v = &p->value[k];
    bool fixed = given || result || !spreads(l) || l->op->places;
    v->mesh = p->mesh;
    if (l->multi) return;
    v->rank = x->nlanes + x->rank;
    for (int d = 0; d < v->rank; d++)
        v->dim[d].open = !fixed;
    if (!fixed || !is) return;
    v->replicated = is->replicated;
    v->partial = is->partial;
    v->kind = is->kind;
    for (int d = 0; d < v->rank; d++) {
        v->dim[d].axes = is->dim[d].axes;
        if (!v->dim[d].axes.n) continue;
        v->dim[d].priority = is->dim[d].priority;
        /* What a result came to lie as is heard last. */
        if (result && !given && !l->op->places && v->dim[d].axes.n)
            v->dim[d].priority = UINT8_MAX;
    }
}

static bool read_program(spreader *p, const nb_spec *const *given)
{
    const nb_graph *g = p->g;
    bool *result = nb_alloc_zero((size_t)(g->n + 1) * sizeof *result);
    bool ok = result;
    for (int i = 0; ok && i < g->ny; i++) {
        result[g->result[i]] = true;
        p->uses[g->result[i]]++;
    }
    for (int k = 0; ok && k < g->n; k++)
        for (int i = 0; i < g->line[k].nin; i++)
            p->uses[g->line[k].in[i]]++;
    for (int k = 0; ok && k < g->n; k++) {
        bool called = result[k] && g->line[k].kind == NB_LINE_CALL;
        add_value(p, k, given ? given[k] : NULL, called);
        ok = add_site(p, k);
    }
    nb_free(result);
    return ok;
}

/* Spreading along one factor */

static bool heard(const spreader *p, const nb_dim_spec *d)
{
    return d->priority <= p->priority;
}

/* The lists that the tensors of a site have for its factors, as far as they
 * are heard yet. */
static void collect(const spreader *p, const site *s, nb_cut *cand)
{
    const nb_factors *f = &s->f;
    memset(cand, 0, (size_t)(s->n * f->n) * sizeof *cand);
    for (int t = 0; t < s->n; t++) {
        const nb_spec *v = &p->value[s->at[t]];
        for (int d = 0; d < f->tensor[t].rank; d++)
            if (heard(p, &v->dim[d]))
                nb_factors_deal(f, &f->tensor[t].dim[d], &v->dim[d].axes,
                                cand + t * f->n);
    }
}

static bool is_open(const spreader *p, const site *s, int t, int k)
{
    const nb_factored *x = &s->f.tensor[t];
    for (int d = 0; d < x->rank; d++)
        for (int i = 0; i < x->dim[d].n; i++)
            if (x->dim[d].factor[i] == k) return p->value[s->at[t]].dim[d].open;
    return false;
}

/* The list that all open tensors can grow to: the longest, if what they have
 * is where it begins.  Of lists that are closed and disagree the one with more
 * blocks, if there is one. */
static nb_cut longest(const spreader *p, const site *s, int k,
                      const nb_cut *cand)
{
    int n = s->f.n;
    nb_cut best = {0};
    bool tie = false;
    for (int t = 0; t < s->n; t++) {
        const nb_cut *l = &cand[t * n + k];
        if (nb_cut_prefix(l, &best)) continue;
        if (nb_cut_prefix(&best, l) || nb_cut_count(l) > nb_cut_count(&best)) {
            tie = false;
            best = *l;
        } else if (nb_cut_count(l) == nb_cut_count(&best))
            tie = true;
    }
    for (int t = 0; t < s->n; t++)
        if (is_open(p, s, t, k) && !nb_cut_prefix(&cand[t * n + k], &best))
            tie = true;
    if (tie) best.n = 0;
    return best;
}

static void stop_at(nb_cut *l, const nb_cut *used)
{
    for (int i = 0; i < l->n; i++)
        if (nb_cut_has(used, l->at[i])) l->n = (uint8_t)i;
}

/* An axis that another factor of the call wants is for the call to decide. */
static void stop_at_others(const site *s, int k, const nb_cut *cand, nb_cut *l)
{
    for (int t = 0; t < s->n; t++)
        for (int j = 0; j < s->f.n; j++)
            if (j != k) stop_at(l, &cand[t * s->f.n + j]);
}

/* A dim with factor k split by l, the others as they are: the minor ones of a
 * group only where the major ones are split to the last. */
static nb_cut dim_with(const site *s, int t, int d, int k, const nb_cut *l,
                       const nb_cut *cand)
{
    const nb_factors *f = &s->f;
    const nb_dim *dim = &f->tensor[t].dim[d];
    nb_cut all = {0};
    for (int i = 0; i < dim->n; i++) {
        int j = dim->factor[i];
        const nb_cut *of = j == k ? l : &cand[t * f->n + j];
        int64_t n = nb_cut_count(of);
        if (i + 1 < dim->n && (!f->size[j] || f->size[j] % n)) break;
        for (int a = 0; a < of->n; a++)
            if (!nb_cut_add(&all, of->at[a])) return all;
        if (n != f->size[j]) break;
    }
    while (all.n && nb_cut_count(&all) > f->tensor[t].size[d])
        all.n--;
    return all;
}

static void wake(spreader *p, int line)
{
    const nb_graph *g = p->g;
    if (p->of[line]) p->of[line]->waiting = true;
    for (int k = line + 1; k < g->n; k++)
        for (int i = 0; p->of[k] && i < g->line[k].nin; i++)
            if (g->line[k].in[i] == line) p->of[k]->waiting = true;
}

static void grow(spreader *p, const site *s, int t, int d, int k, nb_cut l,
                 const nb_cut *cand)
{
    nb_spec *v = &p->value[s->at[t]];
    nb_dim_spec *dim = &v->dim[d];
    stop_at(&l, &v->replicated);
    stop_at(&l, &v->partial);
    for (int o = 0; o < v->rank; o++)
        if (o != d) stop_at(&l, &v->dim[o].axes);
    nb_cut all = dim_with(s, t, d, k, &l, cand);
    if (nb_cut_count(&all) <= nb_cut_count(&dim->axes) ||
        !nb_cut_prefix(&dim->axes, &all))
        return;
    dim->axes = all;
    dim->priority = (uint8_t)p->priority;
    p->changed = true;
    wake(p, s->at[t]);
}

static bool may_spread(const spreader *p, const site *s, int k)
{
    if (s->kind[k] == NB_REPLICATE || s->kind[k] == NB_BLOCKED) return false;
    if (p->round < 3) return s->kind[k] == NB_PASS && !s->f.reduced[k];
    return true;
}

static void spread_factor(spreader *p, const site *s, int k, nb_cut *cand)
{
    const nb_factors *f = &s->f;
    nb_cut l = longest(p, s, k, cand);
    int last = s->repeats && p->round < 4 ? f->nin : s->n;
    stop_at_others(s, k, cand, &l);
    for (int t = 0; l.n && t < last; t++)
        for (int d = 0; d < f->tensor[t].rank; d++) {
            const nb_dim *dim = &f->tensor[t].dim[d];
            bool has = false;
            for (int i = 0; i < dim->n; i++)
                has = has || dim->factor[i] == k;
            const nb_dim_spec *is = &p->value[s->at[t]].dim[d];
            if (has && is->open && heard(p, is)) grow(p, s, t, d, k, l, cand);
        }
}

static bool spread_site(spreader *p, site *s)
{
    bool early = p->round == 0   ? s->passes && s->single && !s->repeats
                 : p->round == 1 ? s->passes && !s->repeats
                                 : true;
    if (!early || !s->f.n) return true;
    nb_cut *cand = nb_alloc((size_t)(s->n * s->f.n) * sizeof *cand);
    if (!cand) return false;
    for (int k = 0; k < s->f.n; k++)
        if (may_spread(p, s, k)) {
            collect(p, s, cand);
            spread_factor(p, s, k, cand);
        }
    nb_free(cand);
    return true;
}

/* Up and down until nothing changes. */
static bool spread(spreader *p)
{
    int n = p->g->n;
    bool ok = true, down = true;
    for (int k = 0; k < n; k++)
        if (p->of[k]) p->of[k]->waiting = true;
    do {
        p->changed = false;
        for (int i = 0; ok && i < n; i++) {
            site *s = p->of[down ? i : n - 1 - i];
            if (!s || !s->waiting) continue;
            s->waiting = false;
            ok = spread_site(p, s);
        }
        down = !down;
    } while (ok && p->changed);
    return ok;
}

/* The next priority that some dim has; -1: none. */
static int next_priority(const spreader *p, int after)
{
    int next = -1;
    for (int k = 0; k < p->g->n; k++)
        for (int d = 0; d < p->value[k].rank; d++) {
            int is = p->value[k].dim[d].priority;
            if (is > after && (next < 0 || is < next)) next = is;
        }
    return next;
}

static bool spread_all(spreader *p)
{
    bool ok = true;
    for (p->priority = 0; ok && p->priority >= 0;
         p->priority = next_priority(p, p->priority))
        for (p->round = 0; ok && p->round < ROUNDS; p->round++)
            ok = spread(p);
    return ok;
}

bool nb_propagate(const nb_graph *g, nb_tensor *const *node,
                  const nb_mesh *mesh, const nb_spec *const *given,
                  nb_spec **wish)
{
    size_t n = (size_t)(g->n + 1);
    spreader p = {.g = g, .node = node, .mesh = mesh};
    p.value = nb_alloc_zero(n * sizeof *p.value);
    p.of = nb_alloc_zero(n * sizeof *p.of);
    p.uses = nb_alloc_zero(n * sizeof *p.uses);
    bool ok =
        p.value && p.of && p.uses && read_program(&p, given) && spread_all(&p);
    for (int k = 0; p.of && k < g->n; k++)
        site_free(p.of[k]);
    nb_free(p.of);
    nb_free(p.uses);
    if (!ok) nb_free(p.value);
    *wish = ok ? p.value : NULL;
    return ok;
}
