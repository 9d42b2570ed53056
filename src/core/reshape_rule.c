/* reshape_rule.c - cutting two shapes into common factors.
 *
 * Every reshape that is recorded passes here, so names and signs are written
 * byte by byte into one buffer. */
#include "core/reshape_rule.h"

#include <string.h>

/* Factors: those shared by both sides are i j k ..., private ones a b c ... */
enum { SHARED = 18, PRIVATE = 8, FACTORS = 4 * NB_MAX_RANK };

typedef struct factor {
    bool private, sized; /* sized: no dim tells its size */
    int number;          /* among those of its sort */
    int64_t size;
} factor;

typedef struct pieces {
    int n;
    int16_t factor[NB_MAX_GROUP + 1];
} pieces;

typedef struct side {
    const int64_t *size;
    int rank, from, to; /* the run is dims from .. to - 1 */
    pieces dim[NB_MAX_RANK];
} side;

typedef struct cutter {
    side s[2];
    int n, nshared, nprivate;
    factor factor[FACTORS];
} cutter;

static int64_t common(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* The next run; neither shape has a zero. */
static void next_run(side *a, side *b)
{
    int64_t p = 1, q = 1;
    a->from = a->to;
    b->from = b->to;
    if (a->to < a->rank) p = a->size[a->to++];
    if (b->to < b->rank) q = b->size[b->to++];
    while (p != q)
        if (p < q)
            p *= a->size[a->to++];
        else
            q *= b->size[b->to++];
}

static int add(cutter *c, bool private, int64_t size)
{
    c->factor[c->n] = (factor){.private = private,
                               .number = private ? c->nprivate++ : c->nshared++,
                               .size = size};
    return c->n++;
}

static void give(side *s, int d, int f)
{
    s->dim[d].factor[s->dim[d].n++] = (int16_t)f;
}

/* What is left of dim d is `rest`, and of the dims behind it all: private on
 * side i.  Sizes of the result's own are not told by any input. */
static void keep_private(cutter *c, int i, int d, int64_t rest)
{
    side *s = &c->s[i];
    for (; d < s->to; d++) {
        if (rest > 1) {
            int f = add(c, true, rest);
            c->factor[f].sized = i == 1;
            give(s, d, f);
        }
        rest = d + 1 < s->to ? s->size[d + 1] : 1;
    }
}

static void cut_run(cutter *c)
{
    int d[2] = {c->s[0].from, c->s[1].from};
    int64_t rest[2] = {1, 1};
    for (int i = 0; i < 2; i++)
        if (d[i] < c->s[i].to) rest[i] = c->s[i].size[d[i]];
    while (d[0] < c->s[0].to || d[1] < c->s[1].to) {
        int64_t g = common(rest[0], rest[1]);
        if (g == 1 && rest[0] > 1 && rest[1] > 1) {
            keep_private(c, 0, d[0], rest[0]);
            keep_private(c, 1, d[1], rest[1]);
            return;
        }
        int f = g > 1 ? add(c, false, g) : -1;
        for (int i = 0; i < 2; i++) {
            if (f >= 0) give(&c->s[i], d[i], f);
            rest[i] /= g;
        }
        /* Both dims go on with factors of their own: neither tells g. */
        if (f >= 0) c->factor[f].sized = rest[0] > 1 && rest[1] > 1;
        for (int i = 0; i < 2; i++)
            if (rest[i] == 1 && d[i] < c->s[i].to && ++d[i] < c->s[i].to)
                rest[i] = c->s[i].size[d[i]];
    }
}

/* Writing: there is always room, see ROOM. */

enum { ROOM = 2048 };

static char *put(char *to, const char *text)
{
    size_t n = strlen(text);
    memcpy(to, text, n);
    return to + n;
}

static char *put_number(char *to, int64_t number)
{
    char digit[20];
    int n = 0;
    do
        digit[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n)
        *to++ = digit[--n];
    return to;
}

static char *put_name(char *to, const factor *f)
{
    int letters = f->private ? PRIVATE : SHARED;
    *to++ = (char)((f->private ? 'a' : 'i') + f->number % letters);
    return f->number < letters ? to : put_number(to, f->number / letters);
}

static char *put_dim(char *to, const cutter *c, const pieces *p)
{
    if (p->n == 0) *to++ = '1';
    if (p->n > 1) *to++ = '(';
    for (int k = 0; k < p->n; k++) {
        if (k) *to++ = ' ';
        to = put_name(to, &c->factor[p->factor[k]]);
    }
    if (p->n > 1) *to++ = ')';
    return to;
}

static char *put_attributes(char *to, const cutter *c)
{
    bool any = false;
    for (int f = 0; f < c->n; f++) {
        if (!c->factor[f].private) continue;
        to = put_name(put(to, any ? " " : "; replicate{"), &c->factor[f]);
        any = true;
    }
    if (any) *to++ = '}';
    for (int f = 0; f < c->n; f++) {
        if (!c->factor[f].sized) continue;
        to = put_name(put(to, ", "), &c->factor[f]);
        *to++ = '=';
        to = put_number(to, c->factor[f].size);
    }
    return to;
}

bool nb_reshape_rule(nb_text *t, int nfrom, const int64_t *from, int nto,
                     const int64_t *to)
{
    cutter c;
    char text[ROOM], *at = text;
    bool empty = false;
    c.n = c.nshared = c.nprivate = 0;
    c.s[0].size = from, c.s[0].rank = nfrom, c.s[0].to = 0;
    c.s[1].size = to, c.s[1].rank = nto, c.s[1].to = 0;
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < c.s[i].rank; d++) {
            c.s[i].dim[d].n = 0;
            empty = empty || c.s[i].size[d] == 0;
        }
    while (!empty && (c.s[0].to < nfrom || c.s[1].to < nto)) {
        next_run(&c.s[0], &c.s[1]);
        cut_run(&c);
    }
    for (int d = 0; d < nfrom; d++) {
        at = put_dim(at, &c, &c.s[0].dim[d]);
        *at++ = ' ';
    }
    at = put(at, "->");
    for (int d = 0; d < nto; d++) {
        *at++ = ' ';
        at = put_dim(at, &c, &c.s[1].dim[d]);
    }
    at = put_attributes(at, &c);
    return nb_text_put(t, text, (size_t)(at - text));
}
