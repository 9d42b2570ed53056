/* signature.c - parsing and interning signatures.
 *
 * The grammar is in signature.h.  Errors name the text, the position, what
 * stands there and the rule that is broken. */
#include "core/signature.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *text, *at;
    nb_sig *sig;
    int nterms, room;
    int dim_room;
} reader;

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The n characters at `at` are wrong. */
static bool wrong_at(const reader *r, const char *at, size_t n,
                     const char *rule)
{
    int position = (int)(at - r->text);
    if (!*at)
        return nb_fail(NB_EVALUE, "signature \"%s\": at %d: end of text: %s",
                       r->text, position, rule);
    return nb_fail(NB_EVALUE, "signature \"%s\": at %d: \"%.*s\": %s", r->text,
                   position, (int)n, at, rule);
}

/* The word or character here is wrong. */
static bool wrong(const reader *r, const char *rule)
{
    size_t n = strncmp(r->at, "...", 3) && strncmp(r->at, "->", 2) ? 1 : 2;
    if (r->at[0] == '.' && n == 2) n = 3;
    if (is_word(*r->at))
        while (is_word(r->at[n]))
            n++;
    return wrong_at(r, r->at, n, rule);
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
    while (is_word(*r->at))
        r->at++;
    size_t n = (size_t)(r->at - from);
    for (int f = 0; f < r->sig->nfactors; f++) {
        const char *name = r->sig->factor[f].name;
        if (strlen(name) != n || strncmp(name, from, n) != 0) continue;
        *number = f;
        return true;
    }
    r->at = make ? r->at : from;
    if (!make) return wrong(r, "no operand has such a factor");
    const char *name = nb_intern(from, n);
    return name && factor_new(r, name, number);
}

static bool dim_has(const nb_dim *d, int f)
{
    for (int k = 0; k < d->n; k++)
        if (d->factor[k] == f) return true;
    return false;
}

static bool has_factor(const nb_term *t, int f)
{
    for (int d = 0; d < t->n; d++)
        if (dim_has(&t->dim[d], f)) return true;
    return false;
}

static bool add_factor(reader *r, nb_term *t, nb_dim *dim)
{
    const char *from = r->at;
    int f;
    if (!read_factor(r, true, &f)) return false;
    if (has_factor(t, f) || dim_has(dim, f))
        return wrong_at(r, from, (size_t)(r->at - from),
                        "a factor stands twice in one operand");
    if (dim->n == NB_MAX_GROUP)
        return wrong_at(r, from, (size_t)(r->at - from),
                        "more than 16 factors in a group");
    dim->factor[dim->n++] = (int16_t)f;
    return true;
}

static bool read_group(reader *r, nb_term *t, nb_dim *dim)
{
    const char *from = r->at++;
    for (blanks(r); *r->at != ')'; blanks(r)) {
        if (*r->at == '(') return wrong(r, "a group inside a group");
        if (*r->at == '.') return wrong(r, "dots inside a group");
        if (!*r->at || strchr(",;-", *r->at))
            return wrong_at(r, from, (size_t)(r->at - from),
                            "a group is not closed");
        if (!add_factor(r, t, dim)) return false;
    }
    r->at++;
    return dim->n >= 2 || wrong_at(r, from, (size_t)(r->at - from),
                                   "a group has at least two factors");
}

static bool read_dim(reader *r, nb_term *t, bool result)
{
    nb_dim dim = {.at = (int)(r->at - r->text)};
    bool ok = true;
    if (*r->at == '1' && !is_word(r->at[1])) {
        r->at++;
    } else if (*r->at == '?') {
        int f = 0;
        if (!result) return wrong(r, "? stands in results only");
        r->at++;
        ok = factor_new(r, "", &f);
        dim.factor[dim.n++] = (int16_t)f;
    } else if (*r->at == '(') {
        ok = read_group(r, t, &dim);
    } else if (*r->at == ')') {
        return wrong(r, "no group is open");
    } else
        ok = add_factor(r, t, &dim);
    if (!ok) return false;
    dim.to = (int)(r->at - r->text);
    if (!nb_grow(&t->dim, &r->dim_room, t->n + 1, sizeof dim)) return false;
    t->dim[t->n++] = dim;
    return true;
}

/* "..." or "...1". */
static bool read_dots(reader *r, nb_term *t)
{
    nb_sig *s = r->sig;
    const char *from = r->at;
    int number = 0, b = 0;
    if (t->dots || t->n)
        return wrong(r, "dots come first in an operand, and once");
    for (r->at += 3; isdigit((unsigned char)*r->at); r->at++) {
        number = 10 * number + (*r->at - '0');
        if (number > 9999)
            return wrong_at(r, from, (size_t)(r->at - from + 1),
                            "the number of a batch is below 10000");
    }
    while (b < s->nbatches && s->batch[b] != number)
        b++;
    if (b == NB_MAX_BATCHES)
        return wrong_at(r, from, (size_t)(r->at - from), "more than 4 batches");
    if (b == s->nbatches) s->batch[s->nbatches++] = number;
    t->dots = true;
    t->batch = b;
    return true;
}

static bool read_term(reader *r, bool result)
{
    if (!nb_grow(&r->sig->term, &r->room, r->nterms + 1, sizeof(nb_term)))
        return false;
    nb_term *t = &r->sig->term[r->nterms++];
    blanks(r);
    *t = (nb_term){.at = (int)(r->at - r->text)};
    r->dim_room = 0;
    for (;;) {
        t->to = (int)(r->at - r->text);
        blanks(r);
        if (!*r->at || strchr(",;-", *r->at)) return true;
        bool ok =
            strncmp(r->at, "...", 3) ? read_dim(r, t, result) : read_dots(r, t);
        if (!ok) return false;
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

/* The kind of a word: number k of kinds, or, if *reduce, of reductions. */
static int find_kind(const char *word, size_t n, bool *reduce)
{
    for (int k = 1; k < 6; k++) {
        const char *kind = nb_factor_kind_name(k), *red = nb_reduce_name(k);
        *reduce = strlen(red) == n && !strncmp(red, word, n);
        if (*reduce || (strlen(kind) == n && !strncmp(kind, word, n))) return k;
    }
    return 0;
}

static bool in_group(const nb_sig *s, int f)
{
    for (int t = 0; t < s->nin + s->nout; t++)
        for (int d = 0; d < s->term[t].n; d++)
            if (s->term[t].dim[d].n > 1 && dim_has(&s->term[t].dim[d], f))
                return true;
    return false;
}

/* Kinds exclude each other: a factor that is split may pass, be reduced or be
 * treated in one of the other ways. */
static bool set_kind(reader *r, int k, bool reduce)
{
    const char *from = r->at;
    int f;
    if (!read_factor(r, false, &f)) return false;
    size_t n = (size_t)(r->at - from);
    nb_factor *x = &r->sig->factor[f];
    if (x->kind || x->reduce)
        return wrong_at(r, from, n, "a factor is of one kind");
    if (!reduce && k == NB_PERMUTE && in_group(r->sig, f))
        return wrong_at(r, from, n,
                        "a factor of a group has one size: not permute");
    if (reduce && x->in_result)
        return wrong_at(r, from, n, "a factor of the result is not reduced");
    if (reduce)
        x->reduce = (nb_reduce)k;
    else
        x->kind = (nb_factor_kind)k;
    return true;
}

static bool read_size(reader *r, const char *word)
{
    char *end;
    int f;
    r->at = word;
    if (!read_factor(r, false, &f)) return false;
    if (r->sig->factor[f].size >= 0)
        return wrong_at(r, word, (size_t)(r->at - word), "a size twice");
    blanks(r);
    r->at++;
    blanks(r);
    errno = 0;
    if (!isdigit((unsigned char)*r->at)) return wrong(r, "a size is a number");
    int64_t size = strtoll(r->at, &end, 10);
    if (errno || is_word(*end)) return wrong(r, "a size is a 64-bit number");
    r->at = end;
    r->sig->factor[f].size = size;
    return true;
}

static bool read_attribute(reader *r)
{
    bool reduce;
    blanks(r);
    const char *word = r->at;
    while (is_word(*r->at))
        r->at++;
    size_t n = (size_t)(r->at - word);
    blanks(r);
    if (*r->at == '=') return read_size(r, word);
    if (*r->at != '{' || n == 0)
        return wrong(r, "kind{factors} or factor=size are attributes");
    int k = find_kind(word, n, &reduce);
    if (!k) return wrong_at(r, word, n, "no such kind");
    const char *open = r->at++;
    for (blanks(r); *r->at != '}'; blanks(r)) {
        if (!*r->at) return wrong_at(r, open, 1, "{ is not closed");
        if (!set_kind(r, k, reduce)) return false;
    }
    r->at++;
    return true;
}

static void find_results(nb_sig *s)
{
    for (int f = 0; f < s->nfactors; f++)
        for (int t = s->nin; t < s->nin + s->nout; t++)
            if (has_factor(&s->term[t], f)) s->factor[f].in_result = true;
}

static const nb_dim *dim_of(const nb_sig *s, int f)
{
    for (int t = 0; t < s->nin + s->nout; t++)
        for (int d = 0; d < s->term[t].n; d++)
            if (dim_has(&s->term[t].dim[d], f)) return &s->term[t].dim[d];
    return NULL;
}

/* A factor of the result comes from an input, from ?, or with a size. */
static bool settle(reader *r)
{
    nb_sig *s = r->sig;
    s->pointwise = s->nbatches < 2;
    for (int t = 0; t < r->nterms; t++)
        s->pointwise = s->pointwise && s->term[t].dots && !s->term[t].n;
    for (int f = 0; f < s->nfactors; f++) {
        nb_factor *x = &s->factor[f];
        bool in = false;
        for (int t = 0; t < s->nin; t++)
            in = in || has_factor(&s->term[t], f);
        if (in || !x->name[0] || x->size >= 0) continue;
        const nb_dim *d = dim_of(s, f);
        return wrong_at(r, r->text + d->at, (size_t)(d->to - d->at),
                        "a factor of the result that no input has needs a "
                        "size");
    }
    return true;
}

static bool read_all(reader *r)
{
    if (!read_side(r, false, &r->sig->nin)) return false;
    if (strncmp(r->at, "->", 2) != 0) return wrong(r, "-> is expected");
    r->at += 2;
    if (!read_side(r, true, &r->sig->nout)) return false;
    if (*r->at == '-') return wrong(r, "-> stands once");
    find_results(r->sig);
    while (*r->at == ';' || *r->at == ',') {
        r->at++;
        if (!read_attribute(r)) return false;
        blanks(r);
    }
    if (*r->at) return wrong(r, "the attributes have ended");
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
