/* rule.c - making a rule: a signature's terms laid over the dims of tensors.
 *
 * A rule is one allocation: the struct, then factors, tensors, dims, sizes. */
#include "shard/rule/parts.h"

#include <string.h>

const nb_term *nb_rule_term(const nb_rule *r, int t)
{
    return &r->sig->term[t < r->nin ? t : r->sig->nin + t - r->nin];
}

bool nb_rule_is_reduced(const nb_rule *r, int factor)
{
    const nb_factor *f = &r->factor[factor];
    return r->in_input[factor] && !f->in_result &&
           (f->kind == NB_PASS || f->kind == NB_MASK);
}

/* Checks */

/* What makes something from nothing is written as made from a scalar. */
static bool check_counts(const nb_sig *s, int nin, int nout)
{
    bool scalar = s->nin == 1 && !s->term[0].n && !s->term[0].dots;
    if (nin != s->nin && !(nin == 0 && scalar))
        return nb_fail(NB_EVALUE,
                       "rule \"%s\": at 0: %d inputs are written, %d given",
                       s->text, s->nin, nin);
    return nout == s->nout ||
           nb_fail(NB_EVALUE,
                   "rule \"%s\": at %d: %d results are written, %d given",
                   s->text, s->term[s->nin].at, s->nout, nout);
}

static bool check_rank(const nb_rule *r, int t, int rank)
{
    const nb_term *term = nb_rule_term(r, t);
    const char *text = r->sig->text + term->at;
    int n = term->to - term->at;
    bool in = t < r->nin;
    if (rank == term->n || (rank > term->n && term->dots)) return true;
    if (term->dots)
        return nb_fail(NB_EVALUE,
                       "rule \"%s\": at %d: \"%.*s\": %s %d has rank %d: dots "
                       "would stand for %d dims",
                       r->sig->text, term->at, n, text, in ? "input" : "result",
                       in ? t : t - r->nin, rank, rank - term->n);
    return nb_fail(NB_EVALUE,
                   "rule \"%s\": at %d: \"%.*s\": %s %d has rank %d, not %d",
                   r->sig->text, term->at, n, text, in ? "input" : "result",
                   in ? t : t - r->nin, rank, term->n);
}

static bool measure(nb_rule_builder *b)
{
    const nb_rule *r = b->rule;
    for (int t = 0; t < r->nin + r->nout; t++) {
        const nb_term *term = nb_rule_term(r, t);
        int rank = b->operand[t].rank, *width = &b->width[term->batch];
        if (rank < 0) continue;
        if (!check_rank(r, t, rank)) return false;
        if (term->dots && rank - term->n > *width) *width = rank - term->n;
    }
    return true;
}

/* Laying out */

static int visible(const nb_rule_builder *b, int t)
{
    const nb_term *term = nb_rule_term(b->rule, t);
    int rank = b->operand[t].rank;
    if (rank >= 0) return rank;
    return term->n + (term->dots ? b->width[term->batch] : 0);
}

static size_t whole(size_t n)
{
    return (n + 15) / 16 * 16;
}

/* The rule with room for all its parts; `head` has its counts. */
static nb_rule *allocate(const nb_rule_builder *b, const nb_rule *head)
{
    size_t n = (size_t)(head->nin + head->nout), nf = (size_t)head->nfactors;
    size_t dims = 0;
    for (int t = 0; t < (int)n; t++)
        dims += (size_t)visible(b, t);
    size_t at[] = {whole(sizeof(nb_rule)),
                   whole(nf * sizeof(nb_factor)),
                   whole(n * sizeof(nb_rule_tensor)),
                   whole(dims * sizeof(nb_dim)),
                   whole(dims * 8),
                   whole(nf)};
    size_t bytes = 0;
    for (int k = 0; k < 6; k++)
        bytes += at[k];
    char *p = nb_alloc_zero(bytes);
    if (!p) return NULL;
    nb_rule *r = (nb_rule *)p;
    *r = *head;
    r->factor = (nb_factor *)(p += at[0]);
    r->tensor = (nb_rule_tensor *)(p += at[1]);
    nb_dim *dim = (nb_dim *)(p += at[2]);
    int64_t *size = (int64_t *)(p += at[3]);
    r->in_input = (bool *)(p + at[4]);
    for (int t = 0; t < (int)n; t++) {
        int rank = visible(b, t);
        r->tensor[t] = (nb_rule_tensor){rank, size, dim};
        dim += rank;
        size += rank;
    }
    return r;
}

static void set_factors(nb_rule_builder *b)
{
    nb_rule *r = b->rule;
    for (int f = 0; f < r->nfactors; f++) {
        bool written = f < b->sig->nfactors;
        r->factor[f] =
            written ? b->sig->factor[f] : (nb_factor){.name = "", .size = -1};
        b->by[f].tensor = -1;
    }
}

static void lay(nb_rule_builder *b, int t)
{
    const nb_rule_operand *o = &b->operand[t];
    const nb_term *term = nb_rule_term(b->rule, t);
    nb_rule_tensor *to = &b->rule->tensor[t];
    int dots = to->rank - term->n;
    int last = b->first[term->batch] + b->width[term->batch];
    for (int d = 0; d < to->rank; d++) {
        nb_dim *dim = &to->dim[d];
        to->size[d] = o->rank < 0 ? -1 : o->size[d];
        if (d >= dots)
            *dim = term->dim[d - dots];
        else
            *dim = (nb_dim){.n = 1, .factor = {(int16_t)(last - dots + d)}};
    }
}

/* Which factors are in inputs and, behind dots, in results. */
static void place_factors(nb_rule *r)
{
    for (int t = 0; t < r->nin + r->nout; t++)
        for (int d = 0; d < r->tensor[t].rank; d++)
            for (int k = 0; k < r->tensor[t].dim[d].n; k++) {
                int f = r->tensor[t].dim[d].factor[k];
                if (t < r->nin)
                    r->in_input[f] = true;
                else
                    r->factor[f].in_result = true;
            }
}

/* Settling, once sizes are known */

/* Takes members of size one out of a group, and the factor of a dim behind dots
 * that is broadcast. */
static bool simplify(nb_rule *r, int t, int d)
{
    nb_dim *dim = &r->tensor[t].dim[d];
    int was = dim->n, n = 0;
    const nb_dim full = *dim;
    if (was == 1 && dim->factor[0] >= r->sig->nfactors &&
        r->tensor[t].size[d] == 1)
        dim->n = r->factor[dim->factor[0]].size == 1;
    if (was < 2) return true;
    for (int k = 0; k < was; k++)
        if (r->factor[full.factor[k]].size != 1)
            dim->factor[n++] = full.factor[k];
    dim->n = n;
    if (n >= 2 || r->note) return true;
    nb_text note = {0};
    const char *left = n ? r->factor[dim->factor[0]].name : "1";
    nb_text_add(&note,
                "rule \"%s\": at %d: \"%.*s\": the other factors have size 1: "
                "read as %s",
                r->sig->text, full.at, full.to - full.at,
                r->sig->text + full.at, left);
    r->note = note.data;
    return !note.failed;
}

static void complete(nb_rule *r, int t, int d)
{
    const nb_dim *dim = &r->tensor[t].dim[d];
    int64_t *size = &r->tensor[t].size[d], p = 1;
    for (int k = 0; k < dim->n; k++) {
        nb_factor *f = &r->factor[dim->factor[k]];
        if (f->kind == NB_PERMUTE && f->size < 0) f->size = *size;
        if (f->kind == NB_PERMUTE || f->size < 0 ||
            __builtin_mul_overflow(p, f->size, &p))
            return;
    }
    if (*size < 0) *size = p;
}

static bool settle(nb_rule *r)
{
    for (int t = 0; t < r->nin + r->nout; t++)
        for (int d = 0; d < r->tensor[t].rank; d++) {
            if (!simplify(r, t, d)) return false;
            complete(r, t, d);
        }
    return true;
}

static nb_rule *build(const nb_sig *s, int nin, int nout,
                      const nb_rule_operand *operand)
{
    nb_rule head = {.sig = s, .nin = nin, .nout = nout};
    nb_rule_builder b = {.rule = &head, .sig = s, .operand = operand};
    if (!check_counts(s, nin, nout) || !measure(&b)) return NULL;
    head.nfactors = s->nfactors;
    for (int k = 0; k < s->nbatches; k++) {
        b.first[k] = head.nfactors;
        head.nfactors += b.width[k];
    }
    nb_rule *r = b.rule = allocate(&b, &head);
    if (!r) return NULL;
    set_factors(&b);
    for (int t = 0; t < nin + nout; t++)
        lay(&b, t);
    place_factors(r);
    if (nb_rule_infer(&b) && settle(r)) return r;
    nb_rule_free(r);
    return NULL;
}

/* Public */

static bool read_shape(nb_rule_operand *o, const nb_rule_shape *s)
{
    if (!s) return o->rank = -1, true;
    if (s->rank < 0 || s->rank > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "rule: rank %d is not in 0 to %d", s->rank,
                       NB_MAX_RANK);
    o->rank = s->rank;
    for (int d = 0; d < s->rank; d++) {
        o->size[d] = s->size[d];
        if (s->size[d] < -1)
            return nb_fail(NB_EVALUE, "rule: %lld is not a size",
                           (long long)s->size[d]);
    }
    return true;
}

nb_rule *nb_rule_new(const nb_rule_template *t, int nin,
                     const nb_rule_shape *in, int nout,
                     const nb_rule_shape *out)
{
    if (!t) return NULL;
    if (!out) nout = t->nout;
    if (nin < 0 || nout < 0)
        return nb_fail(NB_EVALUE, "rule \"%s\": at 0: %d tensors", t->text,
                       nin < 0 ? nin : nout);
    size_t n = (size_t)nin + (size_t)nout;
    nb_rule_operand *o = nb_alloc_zero(n * sizeof *o);
    bool ok = o;
    for (int i = 0; ok && i < nin; i++)
        ok = read_shape(&o[i], &in[i]);
    for (int k = 0; ok && k < nout; k++)
        ok = read_shape(&o[nin + k], out ? &out[k] : NULL);
    nb_rule *r = ok ? build(t, nin, nout, o) : NULL;
    nb_free(o);
    return r;
}

void nb_rule_free(nb_rule *r)
{
    if (!r) return;
    nb_free(r->note);
    nb_free(r);
}
