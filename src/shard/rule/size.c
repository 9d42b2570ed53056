/* size.c - sizes of factors from sizes of dims.
 *
 * A dim with one factor of unknown size fixes it, until nothing changes; then
 * every dim must be the product of its factors.  Factors of kind permute are
 * outside of this: each tensor has its own size along them. */
#include "shard/rule/parts.h"

static const char *sort(const nb_rule *r, int t)
{
    return t < r->nin ? "input" : "result";
}

static int place(const nb_rule *r, int t)
{
    return t < r->nin ? t : t - r->nin;
}

/* "b is 2 by dim 0 of input 0, c=4" of the factors that are known. */
static void add_known(nb_text *text, const nb_rule_builder *b, const nb_dim *d)
{
    const nb_rule *r = b->rule;
    const char *between = "";
    for (int k = 0; k < d->n; k++) {
        int f = d->factor[k], t = b->by[f].tensor;
        const nb_factor *x = &r->factor[f];
        if (x->size < 0) continue;
        if (t < 0)
            nb_text_add(text, "%s%s=%lld is written", between, x->name,
                        (long long)x->size);
        else
            nb_text_add(text, "%s%s is %lld by dim %d of %s %d", between,
                        f < b->sig->nfactors ? x->name : "it",
                        (long long)x->size, b->by[f].dim, sort(r, t),
                        place(r, t));
        between = ", ";
    }
}

static bool misfit(const nb_rule_builder *b, int t, int d, const char *how)
{
    const nb_rule *r = b->rule;
    const nb_term *term = nb_rule_term(r, t);
    const nb_dim *dim = &r->tensor[t].dim[d];
    int named = d - (r->tensor[t].rank - term->n);
    int at = named < 0 ? term->at : term->dim[named].at;
    int to = named < 0 ? at + 3 : term->dim[named].to;
    nb_text known = {0};
    add_known(&known, b, dim);
    nb_fail(NB_EVALUE,
            "rule \"%s\": at %d: \"%.*s\": dim %d of %s %d has "
            "size %lld%s%s",
            b->sig->text, at, to - at, b->sig->text + at, d, sort(r, t),
            place(r, t), (long long)r->tensor[t].size[d], how,
            nb_text_get(&known));
    nb_text_free(&known);
    return false;
}

/* The product of the known factors, how many are not, and which. */
static int64_t product(const nb_rule *r, const nb_dim *d, int *unknown,
                       int *which)
{
    int64_t p = 1;
    *unknown = 0;
    for (int k = 0; k < d->n; k++) {
        int64_t size = r->factor[d->factor[k]].size;
        if (size < 0)
            *which = d->factor[k], ++*unknown;
        else if (__builtin_mul_overflow(p, size, &p))
            p = INT64_MAX; /* no dim has that */
    }
    return p;
}

static bool has_own_sizes(const nb_rule *r, const nb_dim *d)
{
    return d->n == 1 && r->factor[d->factor[0]].kind == NB_PERMUTE;
}

static bool solve_dim(nb_rule_builder *b, int t, int d)
{
    nb_rule *r = b->rule;
    int64_t size = r->tensor[t].size[d];
    int unknown, f = 0;
    int64_t p = product(r, &r->tensor[t].dim[d], &unknown, &f);
    /* One says little of a dim behind dots: it may be broadcast. */
    bool thin = f >= b->sig->nfactors && size == 1;
    if (unknown != 1 || size < 0 || p == 0 || size % p || thin) return false;
    r->factor[f].size = size / p;
    b->by[f].tensor = t;
    b->by[f].dim = d;
    return true;
}

static void solve(nb_rule_builder *b)
{
    nb_rule *r = b->rule;
    bool changed = true;
    while (changed) {
        changed = false;
        for (int t = 0; t < r->nin + r->nout; t++)
            for (int d = 0; d < r->tensor[t].rank; d++)
                changed = solve_dim(b, t, d) || changed;
    }
    for (int f = b->sig->nfactors; f < r->nfactors; f++)
        if (r->factor[f].size < 0) r->factor[f].size = 1;
}

static bool check_dim(const nb_rule_builder *b, int t, int d)
{
    const nb_rule *r = b->rule;
    const nb_dim *dim = &r->tensor[t].dim[d];
    int64_t size = r->tensor[t].size[d];
    int unknown, f = 0;
    if (dim->n == 0 || size < 0 || has_own_sizes(r, dim)) return true;
    int64_t p = product(r, dim, &unknown, &f);
    bool spread = dim->factor[0] >= b->sig->nfactors && size == 1;
    if (unknown == 0) return p == size || spread || misfit(b, t, d, ", but ");
    return (p > 0 && size % p == 0) ||
           misfit(b, t, d, ", which its factors do not divide: ");
}

/* Factors that no shape tells. */
static bool check_factor(const nb_rule_builder *b, int f)
{
    const nb_rule *r = b->rule;
    if (r->factor[f].size >= 0 || !r->factor[f].name[0]) return true;
    for (int t = 0; t < r->nin + r->nout; t++) {
        const nb_term *term = nb_rule_term(r, t);
        for (int d = 0; d < term->n; d++)
            for (int k = 0; k < term->dim[d].n; k++)
                if (term->dim[d].factor[k] == f)
                    return nb_fail(NB_EVALUE,
                                   "rule \"%s\": at %d: \"%.*s\": no shape "
                                   "tells the size of %s",
                                   b->sig->text, term->dim[d].at,
                                   term->dim[d].to - term->dim[d].at,
                                   b->sig->text + term->dim[d].at,
                                   r->factor[f].name);
    }
    return true;
}

bool nb_rule_infer(nb_rule_builder *b)
{
    const nb_rule *r = b->rule;
    solve(b);
    for (int t = 0; t < r->nin + r->nout; t++)
        for (int d = 0; d < r->tensor[t].rank; d++)
            if (!check_dim(b, t, d)) return false;
    for (int f = 0; f < b->sig->nfactors; f++)
        if (!check_factor(b, f)) return false;
    return true;
}
