/* propagate.c - layouts spread over a program until nothing changes.
 *
 * Rounds: what the strongest priority says spreads before the next is heard;
 * within that, through calls that only pass dims on before others, through
 * dims that are passed on before reductions and the like, and backward through
 * broadcasts before forward. */
#include "shard/graph/propagate.h"

#include "shard/decide/factors.h"
#include "shard/decide/work.h"

#include <string.h>

enum { ROUNDS = 5 };

typedef struct party {
    int line, rank;
    int64_t *size; /* by dim */
    nb_dim *dim;
} party;

/* A call and its tensors: factors.h, in as little room as it takes. */
typedef struct site {
    int n, nin; /* tensors: operands, then the result */
    party *tensor;
    int nfactors;
    int64_t *size; /* by factor */
    uint8_t *kind; /* as the op does it */
    bool *reduced;
    bool passes;  /* all of its factors are in the result and pass */
    bool single;  /* its operands have no other use */
    bool repeats; /* its result is larger than what it is made of */
    bool waiting; /* a tensor of it has changed */
} site;

typedef struct spreader {
    const nb_graph *g;
    nb_tensor *const *node;
    const nb_mesh *mesh;
    nb_spec *value;  /* by line */
    site **of;       /* by line; NULL: nothing spreads through it */
    int *uses;       /* by line */
    int *first, *by; /* lines that use line k: by[first[k + 1]] and on, to
                      * where those of the next begin */
    nb_cut *cand;    /* of the site at hand, by tensor and factor */
    int room;
    int priority, round;
    bool changed, grew;
} spreader;

/* The program as values and sites */

static bool spreads(const nb_line *l)
{
    return l->kind == NB_LINE_CALL && !l->multi && l->op != &nb_op_part &&
           !l->op->release && !l->op->effect;
}

static site *site_new(const nb_factors *f)
{
    int n = f->nin + f->nout, dims = 0;
    for (int t = 0; t < n; t++)
        dims += f->tensor[t].rank;
    size_t tensors = (size_t)n, factors = (size_t)f->n, all = (size_t)dims;
    site *s = nb_alloc(sizeof *s + tensors * sizeof *s->tensor +
                       (factors + all) * sizeof *s->size +
                       all * sizeof(nb_dim) + 2 * factors);
    if (!s) return NULL;
    *s = (site){.n = n, .nin = f->nin, .nfactors = f->n};
    s->tensor = (party *)(s + 1);
    s->size = (int64_t *)(s->tensor + n);
    nb_dim *dim = (nb_dim *)(s->size + f->n + dims);
    s->kind = (uint8_t *)(dim + dims);
    s->reduced = (bool *)(s->kind + f->n);
    memcpy(s->size, f->size, factors * sizeof *s->size);
    memcpy(s->reduced, f->reduced, factors * sizeof *s->reduced);
    int64_t *size = s->size + f->n;
    for (int t = 0; t < n; t++) {
        const nb_factored *x = &f->tensor[t];
        s->tensor[t] = (party){.rank = x->rank, .size = size, .dim = dim};
        memcpy(size, x->size, (size_t)x->rank * sizeof *size);
        memcpy(dim, x->dim, (size_t)x->rank * sizeof *dim);
        size += x->rank;
        dim += x->rank;
    }
    return s;
}

static int64_t elements(const party *x)
{
    int64_t n = 1;
    for (int d = 0; d < x->rank; d++)
        n *= x->size[d];
    return n;
}

static void describe(const spreader *p, site *s, const nb_call *c,
                     const nb_factors *f)
{
    nb_work w = {.call = c, .mesh = p->mesh, .f = f};
    s->passes = s->single = true;
    for (int k = 0; k < f->n; k++) {
        s->kind[k] = (uint8_t)nb_work_kind(&w, k);
        s->passes = s->passes && f->kind[k] == NB_PASS && !f->reduced[k];
    }
    for (int t = 0; t < s->nin; t++)
        s->single = s->single && p->uses[s->tensor[t].line] == 1;
    s->repeats =
        s->nin == 1 && elements(&s->tensor[1]) > elements(&s->tensor[0]);
}

static bool add_site(spreader *p, int k)
{
    const nb_line *l = &p->g->line[k];
    nb_tensor *y = p->node[k];
    nb_factors f;
    if (!spreads(l)) return true;
    nb_call c = nb_call_of(y);
    if (!nb_factors_of(&f, &c, 1, &y)) return false;
    site *s = p->of[k] = site_new(&f);
    for (int i = 0; s && i < s->n; i++)
        s->tensor[i].line = i < l->nin ? l->in[i] : k;
    if (s) describe(p, s, &c, &f);
    nb_factors_free(&f);
    return s;
}

/* What is fixed is closed; the rest is open and empty. */
static void add_value(spreader *p, int k, bool result)
{
    const nb_line *l = &p->g->line[k];
    const nb_tensor *x = p->node[k];
    const nb_spec *is = x->sharding;
    nb_spec *v = &p->value[k];
    bool fixed = result || !spreads(l) || l->op->places;
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
        if (result && !l->op->places && v->dim[d].axes.n)
            v->dim[d].priority = UINT8_MAX;
    }
}

static bool list_uses(spreader *p)
{
    const nb_graph *g = p->g;
    int total = 0;
    for (int k = 0; k < g->n; k++)
        for (int i = 0; i < g->line[k].nin; i++)
            p->first[g->line[k].in[i] + 1]++;
    for (int k = 0; k < g->n; k++) {
        p->uses[k] += p->first[k + 1];
        total = p->first[k + 1] += p->first[k];
    }
    p->first[g->n + 1] = total;
    p->by = nb_alloc((size_t)(total + 1) * sizeof *p->by);
    /* Filled from the back, `first` moves to where they begin. */
    for (int k = g->n - 1; p->by && k >= 0; k--)
        for (int i = 0; i < g->line[k].nin; i++)
            p->by[--p->first[g->line[k].in[i] + 1]] = k;
    return p->by;
}

static bool read_program(spreader *p)
{
    const nb_graph *g = p->g;
    bool *result = nb_alloc_zero((size_t)(g->n + 1) * sizeof *result);
    bool ok = result;
    for (int i = 0; ok && i < g->ny; i++) {
        result[g->result[i]] = true;
        p->uses[g->result[i]]++;
    }
    ok = ok && list_uses(p);
    for (int k = 0; ok && k < g->n; k++) {
        bool called = result[k] && g->line[k].kind == NB_LINE_CALL;
        add_value(p, k, called);
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
 * are heard yet; false: none. */
static bool collect(const spreader *p, const site *s, nb_cut *cand)
{
    bool any = false;
    for (int i = 0; i < s->n * s->nfactors; i++)
        cand[i].n = 0;
    for (int t = 0; t < s->n; t++) {
        const nb_spec *v = &p->value[s->tensor[t].line];
        for (int d = 0; d < s->tensor[t].rank; d++) {
            if (!v->dim[d].axes.n || !heard(p, &v->dim[d])) continue;
            nb_factors_deal(s->size, &s->tensor[t].dim[d], &v->dim[d].axes,
                            cand + t * s->nfactors);
            any = true;
        }
    }
    return any;
}

static bool is_open(const spreader *p, const site *s, int t, int k)
{
    const party *x = &s->tensor[t];
    for (int d = 0; d < x->rank; d++)
        for (int i = 0; i < x->dim[d].n; i++)
            if (x->dim[d].factor[i] == k)
                return p->value[s->tensor[t].line].dim[d].open;
    return false;
}

/* The list that all open tensors can grow to: the longest, if what they have
 * is where it begins.  Of lists that are closed and disagree the one with more
 * blocks, if there is one. */
static nb_cut longest(const spreader *p, const site *s, int k,
                      const nb_cut *cand)
{
    int n = s->nfactors;
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
        for (int j = 0; j < s->nfactors; j++)
            if (j != k) stop_at(l, &cand[t * s->nfactors + j]);
}

/* A dim with factor k split by l, the others as they are: the minor ones of a
 * group only where the major ones are split to the last. */
static nb_cut dim_with(const site *s, int t, int d, int k, const nb_cut *l,
                       const nb_cut *cand)
{
    const nb_dim *dim = &s->tensor[t].dim[d];
    nb_cut all = {0};
    for (int i = 0; i < dim->n; i++) {
        int j = dim->factor[i];
        const nb_cut *of = j == k ? l : &cand[t * s->nfactors + j];
        int64_t n = nb_cut_count(of);
        if (i + 1 < dim->n && (!s->size[j] || s->size[j] % n)) break;
        for (int a = 0; a < of->n; a++)
            if (!nb_cut_add(&all, of->at[a])) return all;
        if (n != s->size[j]) break;
    }
    while (all.n && nb_cut_count(&all) > s->tensor[t].size[d])
        all.n--;
    return all;
}

static void wake(spreader *p, int line)
{
    if (p->of[line]) p->of[line]->waiting = true;
    for (int i = p->first[line + 1]; i < p->first[line + 2]; i++)
        if (p->of[p->by[i]]) p->of[p->by[i]]->waiting = true;
}

static void grow(spreader *p, const site *s, int t, int d, int k, nb_cut l,
                 const nb_cut *cand)
{
    nb_spec *v = &p->value[s->tensor[t].line];
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
    p->changed = p->grew = true;
    wake(p, s->tensor[t].line);
}

static bool may_spread(const spreader *p, const site *s, int k)
{
    if (s->kind[k] == NB_REPLICATE || s->kind[k] == NB_BLOCKED) return false;
    if (p->round < 3) return s->kind[k] == NB_PASS && !s->reduced[k];
    return true;
}

static void spread_factor(spreader *p, const site *s, int k, nb_cut *cand)
{
    nb_cut l = longest(p, s, k, cand);
    int last = s->repeats && p->round < 4 ? s->nin : s->n;
    stop_at_others(s, k, cand, &l);
    for (int t = 0; l.n && t < last; t++)
        for (int d = 0; d < s->tensor[t].rank; d++) {
            const nb_dim *dim = &s->tensor[t].dim[d];
            bool has = false;
            for (int i = 0; i < dim->n; i++)
                has = has || dim->factor[i] == k;
            const nb_dim_spec *is = &p->value[s->tensor[t].line].dim[d];
            if (has && is->open && heard(p, is)) grow(p, s, t, d, k, l, cand);
        }
}

static bool spread_site(spreader *p, site *s)
{
    bool early = p->round == 0   ? s->passes && s->single && !s->repeats
                 : p->round == 1 ? s->passes && !s->repeats
                                 : true;
    if (!early || !s->nfactors) return true;
    if (!nb_grow(&p->cand, &p->room, s->n * s->nfactors, sizeof *p->cand))
        return false;
    bool any = collect(p, s, p->cand);
    for (int k = 0; any && k < s->nfactors; k++) {
        if (!may_spread(p, s, k)) continue;
        p->grew = false;
        spread_factor(p, s, k, p->cand);
        if (p->grew) collect(p, s, p->cand);
    }
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
                  const nb_mesh *mesh, nb_spec **wish)
{
    size_t n = (size_t)(g->n + 1);
    spreader p = {.g = g, .node = node, .mesh = mesh};
    p.value = nb_alloc_zero(n * sizeof *p.value);
    p.of = nb_alloc_zero(n * sizeof *p.of);
    p.uses = nb_alloc_zero(n * sizeof *p.uses);
    p.first = nb_alloc_zero((n + 1) * sizeof *p.first);
    bool ok = p.value && p.of && p.uses && p.first && read_program(&p) &&
              spread_all(&p);
    for (int k = 0; p.of && k < g->n; k++)
        nb_free(p.of[k]);
    nb_free(p.of);
    nb_free(p.uses);
    nb_free(p.first);
    nb_free(p.by);
    nb_free(p.cand);
    if (!ok) nb_free(p.value);
    *wish = ok ? p.value : NULL;
    return ok;
}
