/* signature.c - parsing and interning signatures.
 *
 * The grammar is in signature.h.  Errors name the text, the position and the
 * rule that is broken. */
#include "core/signature.h"

#include <ctype.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *text, *at;
    nb_sig *sig;
    int nterms, room;
    int dim_room;
} reader;

static bool wrong(const reader *r, const char *rule)
{
    return nb_fail(NB_EVALUE, "signature \"%s\", position %d: %s", r->text,
                   (int)(r->at - r->text), rule);
}

static void blanks(reader *r)
{
    while (*r->at == ' ')
        r->at++;
}

static bool factor_new(reader *r, const char *name, int *number)
{
    if (r->sig->nfactors == NB_MAX_FACTORS)
        return wrong(r, "more than 64 factors");
    *number = r->sig->nfactors++;
    r->sig->factor[*number] = (nb_factor){.name = name, .size = -1};
    return true;
}

/* Reads a name; *number is its factor, made if `make`. */
static bool read_factor(reader *r, bool make, int *number)
{
    const char *from = r->at;
    if (!isalpha((unsigned char)*from))
        return wrong(r, "a factor begins with a letter");
    while (isalnum((unsigned char)*r->at) || *r->at == '_')
        r->at++;
    size_t n = (size_t)(r->at - from);
    for (int f = 0; f < r->sig->nfactors; f++) {
        const char *name = r->sig->factor[f].name;
        if (strlen(name) != n || strncmp(name, from, n) != 0) continue;
        *number = f;
        return true;
    }
    r->at = make ? r->at : from;
    if (!make) return wrong(r, "no such factor in any operand");
    const char *name = nb_intern(from, n);
    return name && factor_new(r, name, number);
}

static bool has_factor(const nb_term *t, int f)
{
    for (int d = 0; d < t->n; d++)
        for (int k = 0; k < t->dim[d].n; k++)
            if (t->dim[d].factor[k] == f) return true;
    return false;
}

static bool add_factor(reader *r, nb_term *t, nb_dim *dim)
{
    int f;
    if (!read_factor(r, true, &f)) return false;
    if (has_factor(t, f)) return wrong(r, "a factor twice in one operand");
    for (int k = 0; k < dim->n; k++)
        if (dim->factor[k] == f)
            return wrong(r, "a factor twice in one operand");
    if (dim->n == NB_MAX_GROUP) return wrong(r, "more than 8 in a group");
    dim->factor[dim->n++] = (int16_t)f;
    return true;
}

static bool read_group(reader *r, nb_term *t, nb_dim *dim)
{
    r->at++;
    for (blanks(r); *r->at != ')'; blanks(r)) {
        if (*r->at == '(') return wrong(r, "a group inside a group");
        if (*r->at == '\0') return wrong(r, "a group is not closed");
        if (!add_factor(r, t, dim)) return false;
    }
    r->at++;
    return dim->n >= 2 || wrong(r, "a group has at least two factors");
}

static bool read_dim(reader *r, nb_term *t, bool result)
{
    nb_dim dim = {0};
    bool ok = true;
    if (*r->at == '1') {
        r->at++;
    } else if (*r->at == '?') {
        int f = 0;
        if (!result) return wrong(r, "? stands in results only");
        r->at++;
        ok = factor_new(r, "", &f);
        dim.factor[dim.n++] = (int16_t)f;
    } else if (*r->at == '(') {
        ok = read_group(r, t, &dim);
    } else
        ok = add_factor(r, t, &dim);
    if (!ok) return false;
    if (!nb_grow(&t->dim, &r->dim_room, t->n + 1, sizeof dim)) return false;
    t->dim[t->n++] = dim;
    return true;
}

static bool read_term(reader *r, bool result)
{
    if (!nb_grow(&r->sig->term, &r->room, r->nterms + 1, sizeof(nb_term)))
        return false;
    nb_term *t = &r->sig->term[r->nterms++];
    *t = (nb_term){0};
    r->dim_room = 0;
    for (blanks(r);; blanks(r)) {
        if (!strncmp(r->at, "...", 3)) {
            if (t->dots || t->n) return wrong(r, "... comes first, once");
            t->dots = true;
            r->at += 3;
        } else if (!*r->at || *r->at == ',' || *r->at == ';' || *r->at == '-')
            return true;
        else if (!read_dim(r, t, result))
            return false;
    }
}

static bool read_side(reader *r, bool result, int *n)
{
    int before = r->nterms;
    do {
        if (r->nterms > before) r->at++;
        if (!read_term(r, result)) return false;
    } while (*r->at == ',');
    *n = r->nterms - before;
    return true;
}

static bool set_kind(reader *r, nb_factor *f, const char *word, size_t n)
{
    static const char *const kinds[] = {"",     "replicate", "permute",
                                        "scan", "mask",      "blocked"};
    static const char *const reduces[] = {"",     "max", "min",
                                          "prod", "and", "or"};
    for (int k = 1; k < 6; k++) {
        bool kind = strlen(kinds[k]) == n && !strncmp(kinds[k], word, n);
        bool red = strlen(reduces[k]) == n && !strncmp(reduces[k], word, n);
        if (kind && f->kind) return wrong(r, "a factor of two kinds");
        if (kind) return f->kind = (nb_factor_kind)k, true;
        if (red) return f->reduce = (nb_reduce)k, true;
    }
    return wrong(r, "no such kind");
}

static bool read_attribute(reader *r)
{
    int f;
    blanks(r);
    const char *word = r->at;
    while (isalnum((unsigned char)*r->at) || *r->at == '_')
        r->at++;
    size_t n = (size_t)(r->at - word);
    if (*r->at == '=') {
        r->at = word;
        if (!read_factor(r, false, &f)) return false;
        r->at++;
        if (!isdigit((unsigned char)*r->at)) return wrong(r, "a size");
        r->sig->factor[f].size = strtoll(r->at, (char **)&r->at, 10);
        return true;
    }
    if (*r->at != '{') return wrong(r, "kind{factors} or factor=size");
    r->at++;
    for (blanks(r); *r->at != '}'; blanks(r)) {
        if (!*r->at) return wrong(r, "{ is not closed");
        if (!read_factor(r, false, &f) ||
            !set_kind(r, &r->sig->factor[f], word, n))
            return false;
    }
    r->at++;
    return true;
}

/* A factor of the result comes from an input, from ?, or with a size; one of
 * kind permute or mask may be new in it. */
static bool settle(reader *r)
{
    nb_sig *s = r->sig;
    s->pointwise = true;
    for (int t = 0; t < r->nterms; t++)
        s->pointwise = s->pointwise && s->term[t].dots && !s->term[t].n;
    for (int f = 0; f < s->nfactors; f++) {
        nb_factor *x = &s->factor[f];
        bool in = false;
        for (int t = 0; t < s->nin; t++)
            in = in || has_factor(&s->term[t], f);
        for (int t = s->nin; t < r->nterms; t++)
            x->in_result = x->in_result || has_factor(&s->term[t], f);
        if (!in && x->name[0] && x->size < 0)
            return wrong(r, "a factor of the result that no input has needs "
                            "a size");
    }
    return true;
}

static bool read_all(reader *r)
{
    if (!read_side(r, false, &r->sig->nin)) return false;
    if (strncmp(r->at, "->", 2) != 0) return wrong(r, "expected ->");
    r->at += 2;
    if (!read_side(r, true, &r->sig->nout)) return false;
    if (*r->at == '-') return wrong(r, "more than one ->");
    while (*r->at == ';' || *r->at == ',') {
        r->at++;
        if (!read_attribute(r)) return false;
        blanks(r);
    }
    if (*r->at) return wrong(r, "unexpected character");
    return settle(r);
}

static void discard(nb_sig *s, int nterms)
{
    for (int t = 0; t < nterms; t++)
        nb_free(s->term[t].dim);
    nb_free(s->term);
    nb_free(s);
}

/* Open hashing on the text; entries are never removed. */
enum { BUCKETS = 512 };
typedef struct entry {
    struct entry *next;
    uint64_t hash;
    nb_sig *sig;
} entry;
static struct {
    pthread_mutex_t lock;
    entry *bucket[BUCKETS];
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const nb_sig *find(uint64_t h, const char *text)
{
    const nb_sig *found = NULL;
    pthread_mutex_lock(&known.lock);
    for (entry *e = known.bucket[h % BUCKETS]; e && !found; e = e->next)
        if (e->hash == h && !strcmp(e->sig->text, text)) found = e->sig;
    pthread_mutex_unlock(&known.lock);
    return found;
}

const nb_sig *nb_sig_parse(const char *text)
{
    uint64_t h = nb_hash(2, text, strlen(text));
    const nb_sig *found = find(h, text);
    if (found) return found;
    reader r = {.text = text, .at = text};
    entry *e = nb_alloc_forever(sizeof *e);
    r.sig = e ? nb_alloc_zero(sizeof *r.sig) : NULL;
    if (!r.sig || !(r.sig->text = nb_intern(text, strlen(text))) ||
        !read_all(&r)) {
        if (r.sig) discard(r.sig, r.nterms);
        free(e);
        return NULL;
    }
    *e = (entry){.hash = h, .sig = r.sig};
    pthread_mutex_lock(&known.lock);
    e->next = known.bucket[h % BUCKETS];
    known.bucket[h % BUCKETS] = e;
    pthread_mutex_unlock(&known.lock);
    return r.sig;
}
