/* signature_text.c - signatures written in one form: terms as they stand, then
 * kinds, reductions and sizes in this order, factors in that of their first
 * appearance. */
#include "core/signature.h"

#include <ctype.h>

enum { KINDS = NB_BLOCKED + 1, REDUCES = NB_OR + 1 };

const char *nb_factor_kind_name(nb_factor_kind kind)
{
    static const char *const name[KINDS] = {"",     "replicate", "permute",
                                            "scan", "mask",      "blocked"};
    return name[kind];
}

const char *nb_reduce_name(nb_reduce reduce)
{
    static const char *const name[REDUCES] = {"",     "max", "min",
                                              "prod", "and", "or"};
    return name[reduce];
}

static bool has_name(const nb_factor *f)
{
    return isalpha((unsigned char)f->name[0]);
}

/* All but the first word follow a blank. */
static void blank(nb_text *t)
{
    if (t->n) nb_text_put(t, " ", 1);
}

static void write_dim(nb_text *t, const nb_sig_parts *p, const nb_dim *d)
{
    if (d->n == 0) nb_text_add(t, "1");
    if (d->n > 1) nb_text_add(t, "(");
    for (int k = 0; k < d->n; k++) {
        const nb_factor *f = &p->factor[d->factor[k]];
        nb_text_add(t, "%s%s", k ? " " : "", has_name(f) ? f->name : "?");
    }
    if (d->n > 1) nb_text_add(t, ")");
}

static void write_term(nb_text *t, const nb_sig_parts *p, const nb_term *term)
{
    if (term->dots) {
        blank(t);
        nb_text_add(t, "...");
    }
    if (term->dots && p->batch[term->batch])
        nb_text_add(t, "%d", p->batch[term->batch]);
    for (int d = 0; d < term->n; d++) {
        blank(t);
        write_dim(t, p, &term->dim[d]);
    }
}

static void write_side(nb_text *t, const nb_sig_parts *p, int from, int n)
{
    for (int k = 0; k < n; k++) {
        if (k) nb_text_put(t, ",", 1);
        write_term(t, p, &p->term[from + k]);
    }
}

/* "kind{a b}" of those factors that are so; *any says whether another attribute
 * stands before. */
static void write_kind(nb_text *t, const nb_sig_parts *p, bool reduce, int k,
                       bool *any)
{
    bool open = false;
    for (int f = 0; f < p->nfactors; f++) {
        const nb_factor *x = &p->factor[f];
        if (!has_name(x) || (int)(reduce ? x->reduce : x->kind) != k) continue;
        if (!open)
            nb_text_add(t, "%s%s{%s", *any ? ", " : "; ",
                        reduce ? nb_reduce_name(k) : nb_factor_kind_name(k),
                        x->name);
        else
            nb_text_add(t, " %s", x->name);
        open = *any = true;
    }
    if (open) nb_text_add(t, "}");
}

bool nb_sig_write(nb_text *t, const nb_sig_parts *p)
{
    bool any = false;
    write_side(t, p, 0, p->nin);
    blank(t);
    nb_text_put(t, "->", 2);
    write_side(t, p, p->nin, p->nout);
    for (int k = 1; k < KINDS; k++)
        write_kind(t, p, false, k, &any);
    for (int k = 1; k < REDUCES; k++)
        write_kind(t, p, true, k, &any);
    for (int f = 0; f < p->nfactors; f++) {
        const nb_factor *x = &p->factor[f];
        if (!has_name(x) || x->size < 0) continue;
        nb_text_add(t, "%s%s=%lld", any ? ", " : "; ", x->name,
                    (long long)x->size);
        any = true;
    }
    return !t->failed;
}

bool nb_sig_print(nb_text *t, const nb_sig *s)
{
    return nb_sig_write(t, &(nb_sig_parts){.nin = s->nin,
                                           .nout = s->nout,
                                           .nfactors = s->nfactors,
                                           .term = s->term,
                                           .factor = s->factor,
                                           .batch = s->batch});
}
