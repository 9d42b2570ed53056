/* propagate.c - layouts spread over a program until nothing changes.
 *
 * Rounds: what the strongest priority says spreads before the next is heard;
 * within that, through calls that only pass dims on before others, through
 * dims that are passed on before reductions and the like, and backward through
 * broadcasts before forward. */
#include "shard/graph/propagate.h"

#include "shard/graph/spread.h"

enum { ROUNDS = 5 };

typedef struct spreader {
    nb_spreader of;
    nb_cut *cand; /* of the site at hand, by tensor and factor */
    int room;
    int priority, round;
    bool changed, grew;
} spreader;

/* Spreading along one factor */

static bool heard(const spreader *p, const nb_dim_spec *d)
{
    return d->priority <= p->priority;
}

/* The lists that the tensors of a site have for its factors, as far as they
 * are heard yet; false: none. */
static bool collect(const spreader *p, const nb_crossing *s, nb_cut *cand)
{
    bool any = false;
    for (int i = 0; i < s->n * s->nfactors; i++)
        cand[i].n = 0;
    for (int t = 0; t < s->n; t++) {
        const nb_spec *v = &p->of.value[s->tensor[t].value];
        for (int d = 0; d < s->tensor[t].rank; d++) {
            if (!v->dim[d].axes.n || !heard(p, &v->dim[d])) continue;
            nb_factors_deal(s->size, &s->tensor[t].dim[d], &v->dim[d].axes,
                            cand + t * s->nfactors);
            any = true;
        }
    }
    return any;
}

static bool is_open(const spreader *p, const nb_crossing *s, int t, int k)
{
    const nb_party *x = &s->tensor[t];
    for (int d = 0; d < x->rank; d++)
        for (int i = 0; i < x->dim[d].n; i++)
            if (x->dim[d].factor[i] == k)
                return p->of.value[s->tensor[t].value].dim[d].open;
    return false;
}

/* The list that all open tensors can grow to: the longest, if what they have
 * is where it begins.  Of lists that are closed and disagree the one with more
 * blocks, if there is one. */
static nb_cut longest(const spreader *p, const nb_crossing *s, int k,
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
static void stop_at_others(const nb_crossing *s, int k, const nb_cut *cand,
                           nb_cut *l)
{
    for (int t = 0; t < s->n; t++)
        for (int j = 0; j < s->nfactors; j++)
            if (j != k) stop_at(l, &cand[t * s->nfactors + j]);
}

/* A dim with factor k split by l, the others as they are: the minor ones of a
 * group only where the major ones are split to the last. */
static nb_cut dim_with(const nb_crossing *s, int t, int d, int k,
                       const nb_cut *l, const nb_cut *cand)
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

static void wake(const nb_spreader *p, int value)
{
    for (int i = p->first[value]; i < p->first[value + 1]; i++)
        p->site[p->by[i]]->waiting = true;
}

static void grow(spreader *p, const nb_crossing *s, int t, int d, int k,
                 nb_cut l, const nb_cut *cand)
{
    nb_spec *v = &p->of.value[s->tensor[t].value];
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
    wake(&p->of, s->tensor[t].value);
}

static bool may_spread(const spreader *p, const nb_crossing *s, int k)
{
    if (s->kind[k] == NB_REPLICATE || s->kind[k] == NB_BLOCKED) return false;
    if (p->round < 3) return s->kind[k] == NB_PASS && !s->reduced[k];
    return true;
}

static void spread_factor(spreader *p, const nb_crossing *s, int k,
                          nb_cut *cand)
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
            const nb_dim_spec *is = &p->of.value[s->tensor[t].value].dim[d];
            if (has && is->open && heard(p, is)) grow(p, s, t, d, k, l, cand);
        }
}

static bool spread_site(spreader *p, nb_crossing *s)
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
    int n = p->of.nsites;
    bool ok = true, down = true;
    for (int k = 0; k < n; k++)
        p->of.site[k]->waiting = true;
    do {
        p->changed = false;
        for (int i = 0; ok && i < n; i++) {
            nb_crossing *s = p->of.site[down ? i : n - 1 - i];
            if (!s->waiting) continue;
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
    for (int k = 0; k < p->of.nvalues; k++)
        for (int d = 0; d < p->of.value[k].rank; d++) {
            int is = p->of.value[k].dim[d].priority;
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
    spreader p = {.of = {.mesh = mesh}};
    *wish = NULL;
    if (nb_scope_open() != NB_OK) return false;
    bool ok = nb_spreader_read(&p.of, g, node) && spread_all(&p);
    nb_scope_close(0, NULL);
    if (ok) {
        *wish = p.of.value;
        p.of.value = NULL;
    }
    nb_spreader_free(&p.of);
    nb_free(p.cand);
    return ok;
}
