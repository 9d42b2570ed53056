/* verify.c - whether a table of layouts can be what a program's devices do:
 * every call is looked at again, by its factors alone.
 *
 * Tensors of a call split a factor alike, one that must be whole is whole, a
 * factor that is split and reduced leaves just that pending, and what is
 * pending besides is carried by ops that may carry it. */
#include "shard/decide/factors.h"
#include "shard/decide/layouts.h"
#include "shard/decide/partial.h"

#include <string.h>

typedef struct checker {
    const nb_graph *g;
    nb_tensor *const *node;
    const nb_layouts *lay;
    int line;
    const nb_call *call;
    const nb_decision *d;
    const nb_factors *f;
    nb_cut *cand; /* by tensor and factor */
} checker;

static bool wrong(const checker *c, const char *what)
{
    return nb_fail(NB_ERUNTIME, "layouts: line %d, %s: %s", c->line,
                   c->g->line[c->line].op->name, what);
}

static const nb_spec *spec_of(const checker *c, int t)
{
    return t < c->f->nin ? c->d->need[t] : c->d->give[t - c->f->nin];
}

/* Whether a is one of them, or a part of one: neighbours are merged. */
static bool has(const nb_cut *l, nb_axis a)
{
    for (int i = 0; i < l->n; i++) {
        nb_axis b = l->at[i];
        if (b.axis == a.axis && b.pre <= a.pre &&
            a.pre * a.size <= b.pre * b.size)
            return true;
    }
    return false;
}

/* All axes of a dim must be those of its factors. */
static bool check_dims(const checker *c, int t)
{
    const nb_factored *x = &c->f->tensor[t];
    const nb_spec *s = spec_of(c, t);
    nb_cut *cand = c->cand + t * c->f->n;
    if (s->rank != x->rank) return wrong(c, "a layout has another rank");
    for (int d = 0; d < x->rank; d++) {
        int64_t n = 1;
        nb_factors_deal(c->f->size, &x->dim[d], &s->dim[d].axes, cand);
        for (int i = 0; i < x->dim[d].n; i++)
            n *= nb_cut_count(&cand[x->dim[d].factor[i]]);
        if (n != nb_cut_count(&s->dim[d].axes))
            return wrong(c, "a dim is split that the op has to have whole");
    }
    return true;
}

/* A dim of one element is not split, whatever runs along it. */
static bool is_one(const nb_factored *x, int k)
{
    for (int d = 0; d < x->rank; d++)
        for (int i = 0; i < x->dim[d].n; i++)
            if (x->dim[d].factor[i] == k) return x->size[d] <= 1;
    return true;
}

static bool check_factor(const checker *c, int k)
{
    const nb_factors *f = c->f;
    nb_work w = {.call = c->call, .mesh = c->d->mesh, .f = f};
    nb_factor_kind kind = nb_work_kind(&w, k);
    const nb_cut *first = NULL;
    for (int t = 0; t < f->nin + f->nout; t++) {
        const nb_cut *l = &c->cand[t * f->n + k];
        if (!nb_factored_has(&f->tensor[t], k) || is_one(&f->tensor[t], k))
            continue;
        if (l->n && (kind == NB_REPLICATE || kind == NB_BLOCKED))
            return wrong(c, "what has to be whole is split");
        if (kind == NB_PERMUTE) continue;
        if (!first) first = l;
        if (!nb_cut_equal(first, l))
            return wrong(c, "what runs together is split in two ways");
    }
    for (int i = 0; first && f->reduced[k] && i < first->n; i++)
        for (int r = 0; r < f->nout; r++)
            if (!has(&c->d->give[r]->partial, first->at[i]) ||
                c->d->give[r]->kind != (nb_reduce)f->reduce[k])
                return wrong(c, "a reduction over devices is forgotten");
    return true;
}

static bool is_reduced_here(const checker *c, nb_axis a)
{
    for (int k = 0; k < c->f->n; k++)
        for (int t = 0; c->f->reduced[k] && t < c->f->nin; t++)
            if (nb_cut_has(&c->cand[t * c->f->n + k], a)) return true;
    return false;
}

static bool may_carry(const checker *c, nb_axis a, nb_reduce kind)
{
    const nb_op *op = c->call->op;
    int carry = 0, might = 0;
    bool moves = op->view || op->dim_of || op->in_order;
    for (int t = 0; t < c->f->nin; t++) {
        bool does = nb_cut_has(&c->d->need[t]->partial, a);
        bool may = kind != NB_SUM || nb_call_carries(c->call, t);
        if (does && !may) return false;
        carry += does;
        might += may;
    }
    bool extreme = kind == NB_MAX || kind == NB_MIN;
    if (op->scalar == (kind == NB_MAX ? NB_S_max : NB_S_min) && extreme)
        return carry == c->f->nin;
    if (kind != NB_SUM)
        return carry == 1 &&
               (moves || (c->f->nin == 1 &&
                          (op->reduce == kind || (op->rises && extreme))));
    return op->kind == NB_LINEAR && !moves ? carry == might : carry == 1;
}

static bool check_pending(const checker *c)
{
    const nb_spec *give = c->d->nout ? c->d->give[0] : NULL;
    for (int t = 0; t < c->f->nin; t++)
        for (int i = 0; i < c->d->need[t]->partial.n; i++)
            if (!give || !has(&give->partial, c->d->need[t]->partial.at[i]) ||
                give->kind != nb_call_turns(c->call, c->d->need[t]->kind))
                return wrong(c, "an operand is pending that the result is not");
    for (int i = 0; give && i < give->partial.n; i++) {
        nb_axis a = give->partial.at[i];
        if (!is_reduced_here(c, a) && !may_carry(c, a, give->kind))
            return wrong(c, "a reduction is pending that it cannot carry");
    }
    return true;
}

static bool check_call(checker *c, nb_tensor *y)
{
    nb_factors f;
    if (!nb_factors_of(&f, c->call, 1, &y)) return false;
    int n = f.nin + f.nout;
    c->f = &f;
    c->cand = nb_alloc_zero((size_t)(n * f.n + 1) * sizeof *c->cand);
    bool ok = c->cand;
    for (int t = 0; ok && t < n; t++)
        ok = check_dims(c, t);
    for (int k = 0; ok && k < f.n; k++)
        ok = check_factor(c, k);
    ok = ok && check_pending(c);
    nb_free(c->cand);
    nb_factors_free(&f);
    return ok;
}

/* Every device does all of it: each has all of what it is done to. */
static bool check_whole(const checker *c)
{
    const nb_line *l = &c->g->line[c->line];
    for (int i = 0; i < l->nin; i++) {
        const nb_decision *d = c->lay->decision[l->in[i]];
        const nb_spec *s =
            d && d->nout == 1 ? d->give[0] : c->lay->spec[l->in[i]];
        if (s && !nb_spec_is_whole(s))
            return wrong(c, "an operand is in parts and nobody minds");
    }
    return true;
}

bool nb_layouts_verify(const nb_graph *g, nb_tensor *const *node,
                       const nb_layouts *l)
{
    checker c = {.g = g, .node = node, .lay = l};
    bool ok = true;
    for (int k = 0; ok && k < g->n; k++) {
        const nb_line *line = &g->line[k];
        if (line->kind != NB_LINE_CALL || line->op == &nb_op_part ||
            line->op->places || line->op->lands)
            continue;
        nb_call call = nb_call_of(node[k]);
        c.line = k;
        c.call = &call;
        c.d = l->decision[k];
        ok = !c.d          ? check_whole(&c)
             : line->multi ? true
                           : check_call(&c, node[k]);
    }
    return ok;
}
