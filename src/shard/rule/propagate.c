/* propagate.c - layouts by a rule alone: what COLLECT, RESOLVE and UPDATE
 * make of it without a call. */
#include "base/error.h"
#include "shard/decide/work.h"
#include "shard/rule/rule.h"

#include <string.h>

enum { ITEM = 4 }; /* bytes, where costs decide */

/* Rules have the factors of the signature first, calls have them last. */
static int16_t place_of(const nb_rule *r, int factor)
{
    int own = r->sig->nfactors;
    return (int16_t)(factor < own ? r->nfactors - own + factor : factor - own);
}

static void set_factor(nb_factors *f, const nb_rule *r, int k)
{
    int at = place_of(r, k);
    f->size[at] = r->factor[k].size;
    f->kind[at] = (uint8_t)r->factor[k].kind;
    f->reduce[at] = (uint8_t)r->factor[k].reduce;
    f->reduced[at] = nb_rule_is_reduced(r, k);
}

static void set_tensor(nb_factored *x, const nb_rule *r, int t)
{
    const nb_rule_tensor *from = &r->tensor[t];
    x->rank = from->rank;
    for (int d = 0; d < x->rank; d++) {
        x->size[d] = from->size[d];
        x->dim[d] = from->dim[d];
        for (int i = 0; i < x->dim[d].n; i++)
            x->dim[d].factor[i] = place_of(r, x->dim[d].factor[i]);
    }
}

static bool factors_of(nb_factors *f, const nb_rule *r)
{
    int n = r->nin + r->nout;
    if (r->nfactors > NB_MAX_AXES)
        return nb_fail(NB_EVALUE, "rule: %d factors, at most %d propagate",
                       r->nfactors, NB_MAX_AXES);
    *f = (nb_factors){.n = r->nfactors, .nin = r->nin, .nout = r->nout};
    f->tensor = nb_alloc_zero((size_t)(n + 1) * sizeof *f->tensor);
    if (!f->tensor) return false;
    for (int k = 0; k < r->nfactors; k++)
        set_factor(f, r, k);
    for (int t = 0; t < n; t++)
        set_tensor(&f->tensor[t], r, t);
    return true;
}

static bool check(const nb_rule *r, const nb_mesh *m, int n,
                  const nb_spec *const *spec)
{
    for (int t = 0; t < n; t++) {
        if (!spec[t]) continue;
        if (spec[t]->mesh != m)
            return nb_fail(NB_EVALUE, "rule: a spec on @%s, the mesh is @%s",
                           spec[t]->mesh->name, m->name);
        if (spec[t]->rank != r->tensor[t].rank)
            return nb_fail(NB_EVALUE,
                           "rule: a spec of %d dims for tensor %d of %d dims",
                           spec[t]->rank, t, r->tensor[t].rank);
    }
    return true;
}

/* The factors' axes from the specs of the first n tensors. */
typedef struct problem {
    nb_factors f;
    nb_op op;
    nb_call call;
    nb_work w;
    const nb_spec **spec;
} problem;

/* Whoever has the rule sees to factors that permute. */
static bool reach(const nb_call *c, int i, int d, const int64_t *to,
                  int64_t *from)
{
    (void)c, (void)i, (void)d;
    from[0] = to[0];
    from[1] = to[1];
    return true;
}

static bool solve(problem *p, const nb_rule *r, const nb_mesh *m, int n,
                  const nb_spec *const *spec)
{
    int all = r->nin + r->nout;
    unsigned whole = 1u << NB_REPLICATE | 1u << NB_BLOCKED | 1u << NB_PASS;
    memset(p, 0, sizeof *p);
    if (!check(r, m, n, spec) || !factors_of(&p->f, r)) return false;
    p->op = (nb_op){.name = "rule", .splits = ~whole, .reach = reach};
    p->call = (nb_call){.op = &p->op, .sig = r->sig, .nin = r->nin};
    p->spec = nb_alloc_zero((size_t)(2 * all + 1) * sizeof *p->spec);
    p->w.item = nb_alloc((size_t)(all + 1) * sizeof(int));
    if (!p->spec || !p->w.item) return false;
    p->w.call = &p->call;
    p->w.mesh = m;
    p->w.f = &p->f;
    p->w.spec = p->spec;
    p->w.from = p->spec + all;
    for (int t = 0; t < all; t++) {
        p->w.item[t] = ITEM;
        if (t < n) p->w.spec[t] = spec[t];
        p->w.from[t] = t < n && spec[t]
                           ? spec[t]
                           : nb_spec_whole(m, r->tensor[t].rank, true);
        if (!p->w.from[t]) return false;
    }
    return nb_work_resolve(&p->w);
}

static void problem_free(problem *p)
{
    nb_free(p->f.tensor);
    nb_free(p->w.cand);
    nb_free(p->w.item);
    nb_free(p->spec);
}

/* Axes of the factors that are reduced, as a set. */
static void add_pending(const problem *p, nb_spec *draft)
{
    for (int k = 0; k < p->f.n; k++) {
        if (!p->f.reduced[k] || !p->w.axes[k].n) continue;
        draft->kind = (nb_reduce)p->f.reduce[k];
        for (int i = 0; i < p->w.axes[k].n; i++)
            if (draft->partial.n < NB_MESH_AXES)
                draft->partial.at[draft->partial.n++] = p->w.axes[k].at[i];
    }
}

nb_status nb_rule_resolve(const nb_rule *r, const nb_mesh *m,
                          const nb_spec *const *in, const nb_spec **need,
                          const nb_spec **give)
{
    problem p;
    nb_spec draft;
    bool ok = solve(&p, r, m, r->nin, in);
    for (int t = 0; ok && need && t < r->nin; t++)
        ok = (need[t] = nb_work_need(&p.w, t)) != NULL;
    for (int k = 0; ok && k < r->nout; k++) {
        nb_work_dims(&p.w, r->nin + k, &draft);
        add_pending(&p, &draft);
        ok = (give[k] = nb_spec_intern(&draft)) != NULL;
    }
    problem_free(&p);
    return NB_STATUS(ok);
}

/* Propagation */

/* The spec without what is said at a priority that is not up yet. */
static const nb_spec *active(const nb_spec *s, int priority)
{
    nb_spec draft = nb_spec_draft(s);
    if (priority < 0) return s;
    for (int d = 0; d < s->rank; d++)
        if (s->dim[d].priority > priority) draft.dim[d].axes.n = 0;
    for (int d = 0; d < s->rank; d++)
        if (!draft.dim[d].axes.n && !draft.dim[d].open)
            draft.dim[d].priority = 0;
    return nb_spec_intern(&draft);
}

/* Whether a dim along the factor is split on the axis. */
static bool is_said(const problem *p, int factor, nb_axis a)
{
    for (int t = 0; t < p->f.nin + p->f.nout; t++)
        for (int d = 0; p->w.spec[t] && d < p->f.tensor[t].rank; d++) {
            const nb_dim *dim = &p->f.tensor[t].dim[d];
            for (int i = 0; i < dim->n; i++)
                if (dim->factor[i] == factor &&
                    nb_cut_has(&p->w.spec[t]->dim[d].axes, a))
                    return true;
        }
    return false;
}

/* What an op would do with axes of a factor that it needs whole, splitting
 * another one with them, is not propagated. */
static void keep_said(problem *p)
{
    for (int k = 0; k < p->f.n; k++) {
        nb_cut *l = &p->w.axes[k];
        for (int i = 0; i < l->n; i++)
            if (!is_said(p, k, l->at[i])) l->n = (uint8_t)i;
    }
}

/* Whether the tensor may be split on all that `to` adds to dim d. */
static bool is_free(const nb_spec *s, int d, const nb_cut *to)
{
    for (int i = 0; i < to->n; i++) {
        nb_axis a = to->at[i];
        if (nb_cut_has(&s->replicated, a) || nb_cut_has(&s->partial, a))
            return false;
        for (int e = 0; e < s->rank; e++)
            if (e != d && nb_cut_has(&s->dim[e].axes, a)) return false;
    }
    return true;
}

/* Open dims become longer, never other. */
static const nb_spec *extended(const problem *p, int t, const nb_spec *s)
{
    nb_spec draft = nb_spec_draft(s), wanted;
    nb_work_dims(&p->w, t, &wanted);
    for (int d = 0; d < s->rank; d++) {
        const nb_cut *to = &wanted.dim[d].axes;
        if (s->dim[d].open && nb_cut_prefix(&s->dim[d].axes, to) &&
            is_free(&draft, d, to))
            draft.dim[d].axes = *to;
    }
    return nb_spec_intern(&draft);
}

nb_status nb_rule_propagate(const nb_rule *r, const nb_mesh *m, int priority,
                            const nb_spec **spec, bool *changed)
{
    int n = r->nin + r->nout;
    problem p = {0};
    const nb_spec **now = nb_alloc_zero((size_t)(n + 1) * sizeof *now);
    bool ok = now;
    *changed = false;
    for (int t = 0; ok && t < n; t++)
        if (spec[t]) ok = (now[t] = active(spec[t], priority)) != NULL;
    ok = ok && solve(&p, r, m, n, now);
    if (ok) keep_said(&p);
    for (int t = 0; ok && t < n; t++) {
        const nb_spec *was = spec[t] ? spec[t] : p.w.from[t];
        ok = (now[t] = extended(&p, t, was)) != NULL;
        *changed = *changed || (ok && now[t] != was);
    }
    for (int t = 0; ok && t < n; t++)
        spec[t] = now[t];
    problem_free(&p);
    nb_free(now);
    return NB_STATUS(ok);
}
