/* ask.c - what rules and templates are asked, and their text. */
#include "core/reshape_rule.h"
#include "shard/rule/parts.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Templates */

const nb_rule_template *nb_rule_parse(const char *text)
{
    if (text) return nb_sig_parse(text);
    return nb_fail(NB_EVALUE, "rule: no text");
}

static bool is_name(const char *text)
{
    bool is = isalpha((unsigned char)*text);
    while (isalnum((unsigned char)*text) || *text == '_')
        text++;
    return is && !*text;
}

static bool add_mapping(nb_text *t, const nb_rule_mapping *m)
{
    for (int d = 0; d < m->rank; d++) {
        const nb_rule_names *dim = &m->dim[d];
        nb_text_add(t, dim->n == 0 ? " 1" : dim->n > 1 ? " (" : "");
        for (int k = 0; k < dim->n; k++) {
            if (!is_name(dim->name[k]))
                return nb_fail(NB_EVALUE, "rule: \"%s\" is not a factor",
                               dim->name[k]);
            nb_text_add(t, " %s", dim->name[k]);
        }
        nb_text_add(t, dim->n > 1 ? ")" : "");
    }
    return true;
}

const nb_rule_template *nb_rule_map(int nin, const nb_rule_mapping *in,
                                    int nout, const nb_rule_mapping *out)
{
    nb_text t = {0};
    bool ok = true;
    for (int i = 0; ok && i < nin; i++) {
        nb_text_add(&t, i ? "," : "");
        ok = add_mapping(&t, &in[i]);
    }
    nb_text_add(&t, " ->");
    for (int k = 0; ok && k < nout; k++) {
        nb_text_add(&t, k ? "," : "");
        ok = add_mapping(&t, &out[k]);
    }
    const nb_sig *s = ok && !t.failed ? nb_sig_parse(nb_text_get(&t)) : NULL;
    nb_text_free(&t);
    return s;
}

static bool count(int n, const int64_t *size, int64_t *product)
{
    bool empty = false;
    if (n < 0 || n > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "rule: rank %d is not in 0 to %d", n,
                       NB_MAX_RANK);
    *product = 1;
    for (int d = 0; d < n; d++) {
        empty = empty || size[d] == 0;
        if (size[d] < 0 ||
            (size[d] && __builtin_mul_overflow(*product, size[d], product)))
            return nb_fail(NB_EVALUE, "rule: dim %d of size %lld is too much",
                           d, (long long)size[d]);
    }
    if (empty) *product = 0;
    return true;
}

const nb_rule_template *nb_rule_reshape(int nfrom, const int64_t *from, int nto,
                                        const int64_t *to)
{
    int64_t n, m;
    nb_text t = {0};
    if (!count(nfrom, from, &n) || !count(nto, to, &m)) return NULL;
    if (n != m)
        return nb_fail(NB_EVALUE,
                       "rule: %lld elements are not reshaped to %lld",
                       (long long)n, (long long)m);
    const nb_sig *s = nb_reshape_rule(&t, nfrom, from, nto, to)
                          ? nb_sig_parse(nb_text_get(&t))
                          : NULL;
    nb_text_free(&t);
    return s;
}

static char *taken(nb_text *t)
{
    if (!t->failed) return t->data;
    nb_text_free(t);
    return NULL;
}

char *nb_rule_template_text(const nb_rule_template *s)
{
    nb_text t = {0};
    if (!s) return NULL;
    nb_sig_print(&t, s);
    return taken(&t);
}

int nb_rule_template_inputs(const nb_rule_template *t)
{
    return t ? t->nin : 0;
}

int nb_rule_template_results(const nb_rule_template *t)
{
    return t ? t->nout : 0;
}

/* Factors by name */

/* Number f among the factors that are not written: behind the dots of a
 * batch. */
static void other_name(const nb_rule *r, int f, char *name, size_t room)
{
    int k = f - r->sig->nfactors, b = 0, width[NB_MAX_BATCHES] = {0};
    for (int t = 0; t < r->nin + r->nout; t++) {
        const nb_term *term = nb_rule_term(r, t);
        int n = r->tensor[t].rank - term->n;
        if (term->dots && n > width[term->batch]) width[term->batch] = n;
    }
    while (k >= width[b])
        k -= width[b++];
    snprintf(name, room, ".%d_%d", r->sig->batch[b], k);
}

/* Which of the ? it is. */
static int question(const nb_rule *r, int f)
{
    int n = 0;
    for (int k = 0; k < f; k++)
        n += !r->sig->factor[k].name[0];
    return n;
}

static const char *name_of(const nb_rule *r, int f, char *room, size_t n)
{
    if (f >= r->sig->nfactors)
        other_name(r, f, room, n);
    else if (r->factor[f].name[0])
        return r->factor[f].name;
    else
        snprintf(room, n, "?%d", question(r, f));
    return room;
}

int nb_rule_factors(const nb_rule *r)
{
    return r ? r->nfactors : 0;
}

bool nb_rule_factor(const nb_rule *r, int f, nb_rule_factor_info *info)
{
    char room[32];
    if (!r || f < 0 || f >= r->nfactors) return false;
    const nb_factor *x = &r->factor[f];
    const char *name = name_of(r, f, room, sizeof room);
    bool reduced = nb_rule_is_reduced(r, f);
    *info = (nb_rule_factor_info){.name = nb_intern(name, strlen(name)),
                                  .size = x->size};
    if (reduced) info->reduce = x->reduce ? nb_reduce_name(x->reduce) : "sum";
    info->kind = x->kind   ? nb_factor_kind_name(x->kind)
                 : reduced ? "reduce"
                           : "pass";
    return info->name;
}

int nb_rule_factor_find(const nb_rule *r, const char *name)
{
    char room[32];
    for (int f = 0; f < nb_rule_factors(r); f++)
        if (!strcmp(name_of(r, f, room, sizeof room), name)) return f;
    return -1;
}

/* Tensors */

int nb_rule_inputs(const nb_rule *r)
{
    return r ? r->nin : 0;
}

int nb_rule_results(const nb_rule *r)
{
    return r ? r->nout : 0;
}

static const nb_rule_tensor *tensor_of(const nb_rule *r, int t)
{
    return r && t >= 0 && t < r->nin + r->nout ? &r->tensor[t] : NULL;
}

int nb_rule_rank(const nb_rule *r, int tensor)
{
    const nb_rule_tensor *t = tensor_of(r, tensor);
    return t ? t->rank : -1;
}

int64_t nb_rule_size(const nb_rule *r, int tensor, int dim)
{
    const nb_rule_tensor *t = tensor_of(r, tensor);
    return t && dim >= 0 && dim < t->rank ? t->size[dim] : -1;
}

int nb_rule_dim_factors(const nb_rule *r, int tensor, int dim)
{
    const nb_rule_tensor *t = tensor_of(r, tensor);
    return t && dim >= 0 && dim < t->rank ? t->dim[dim].n : 0;
}

int nb_rule_dim_factor(const nb_rule *r, int tensor, int dim, int k)
{
    bool is = k >= 0 && k < nb_rule_dim_factors(r, tensor, dim);
    return is ? r->tensor[tensor].dim[dim].factor[k] : -1;
}

const char *nb_rule_note(const nb_rule *r)
{
    return r ? r->note : NULL;
}

/* Text */

/* "b", "b_", ...: what no written name begins with. */
static void free_prefix(const nb_sig *s, char *prefix, size_t room)
{
    size_t n = 1;
    strcpy(prefix, "b");
    for (int f = 0; f < s->nfactors; f++)
        while (!strncmp(s->factor[f].name, prefix, n) && n + 1 < room) {
            prefix[n++] = '_';
            prefix[n] = '\0';
        }
}

static bool is_used(const nb_rule *r, int f, bool *in_input)
{
    bool used = false;
    *in_input = false;
    for (int t = 0; t < r->nin + r->nout; t++)
        for (int d = 0; d < r->tensor[t].rank; d++)
            for (int k = 0; k < r->tensor[t].dim[d].n; k++) {
                bool is = r->tensor[t].dim[d].factor[k] == f;
                used = used || is;
                *in_input = *in_input || (is && t < r->nin);
            }
    return used;
}

/* Its factors as they are to be written: sizes only where they must be. */
static void write_factor(const nb_rule *r, int f, const char *name,
                         nb_factor *to)
{
    bool written = f < r->sig->nfactors && r->sig->factor[f].size >= 0, in;
    bool used = is_used(r, f, &in);
    *to = (nb_factor){.name = name, .size = -1};
    if (!used) return;
    to->kind = r->factor[f].kind;
    to->reduce = r->factor[f].reduce;
    if (name[0] != '?' && (written || !in)) to->size = r->factor[f].size;
}

typedef struct written {
    nb_factor *factor;
    nb_term *term;
    char (*name)[64];
} written;

static bool write_rule(nb_text *t, const nb_rule *r, const written *w)
{
    char prefix[32];
    int n = r->nin + r->nout;
    free_prefix(r->sig, prefix, sizeof prefix);
    for (int f = 0; f < r->nfactors; f++) {
        bool other = f >= r->sig->nfactors;
        if (other)
            snprintf(w->name[f], sizeof w->name[f], "%s%d", prefix,
                     f - r->sig->nfactors);
        const char *name = other                  ? w->name[f]
                           : r->factor[f].name[0] ? r->factor[f].name
                                                  : "?";
        write_factor(r, f, name, &w->factor[f]);
    }
    for (int k = 0; k < n; k++)
        w->term[k] = (nb_term){.n = r->tensor[k].rank, .dim = r->tensor[k].dim};
    return nb_sig_write(t, &(nb_sig_parts){.nin = r->nin,
                                           .nout = r->nout,
                                           .nfactors = r->nfactors,
                                           .term = w->term,
                                           .factor = w->factor});
}

char *nb_rule_text(const nb_rule *r)
{
    nb_text t = {0};
    if (!r) return NULL;
    size_t nf = (size_t)r->nfactors, n = (size_t)(r->nin + r->nout);
    written w = {.factor = nb_alloc((nf + 1) * sizeof *w.factor),
                 .term = nb_alloc((n + 1) * sizeof *w.term),
                 .name = nb_alloc((nf + 1) * sizeof *w.name)};
    bool ok = w.factor && w.term && w.name && write_rule(&t, r, &w);
    nb_free(w.factor);
    nb_free(w.term);
    nb_free(w.name);
    if (ok) return taken(&t);
    nb_text_free(&t);
    return NULL;
}
