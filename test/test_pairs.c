/* test_pairs.c - transforms of transforms, of every op in the catalogue.
 *
 * A word is a list of transforms, the last applied first: "vmap vjp sin" is a
 * batch of gradients of sin.  Every letter, every ordered pair and some triples
 * are tried on every op.  In a word only the outermost letter is done slowly, by
 * finite differences or a loop (support/check.h): the rest is a shorter word,
 * which is tried as well. */
#include "support/check.h"

#include <stdio.h>
#include <string.h>

static const way letters[] = {JVP,     VJP,        VMAP, HESS_RF,
                              HESS_FR, CHECKPOINT, SCAN};
enum { NLETTERS = sizeof letters / sizeof letters[0], TRIPLES = 6 };

#define ON(w)   (1u << (w))
#define MAPPED  (ON(VMAP) | ON(SCAN))

/* Letters that an op cannot have in a word, and why. */
static const struct {
    const char *op;
    unsigned ways;
    const char *why;
} exempt[] = {
    {"", 0, ""},
};
enum { NEXEMPT = sizeof exempt / sizeof exempt[0] };
static int exempted, words;

static unsigned ways_barred(const nb_op *op)
{
    unsigned ways = 0;
    for (int i = 0; i < NEXEMPT; i++)
        if (!strcmp(exempt[i].op, op->name)) ways |= exempt[i].ways;
    return ways;
}

/* An op as a function: of all inputs but the reals that it holds fixed.  One
 * without real inputs to differentiate by gets another, which scales its first
 * result as the first of the function. */
typedef struct subject {
    sample s;
    int nfree, free[MAX_IN];
    bool scaled;
} subject;

static nb_status subject_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                              nb_tensor **y)
{
    const subject *f = ctx;
    const sample *s = &f->s;
    nb_tensor *in[MAX_IN];
    (void)nx;
    memcpy(in, s->in, sizeof in);
    for (int i = 0; i < f->nfree; i++)
        in[f->free[i]] = x[i];
    *ny -= f->scaled;
    nb_status status = nb_op_call(s->op, s->nin, in, s->nval, s->val, ny,
                                  y + f->scaled);
    *ny += f->scaled;
    if (f->scaled && status == NB_OK)
        y[0] = nb_mul(nb_cast(y[1], NB_F64), x[f->nfree]);
    return status;
}

static bool subject_of(nb_op *op, subject *f, task *g)
{
    nb_tensor *y[MAX_ARGS];
    *f = (subject){.scaled = true};
    if (!sample_random(&f->s, op)) return false;
    *g = (task){.fn = nb_func_new(subject_body, f), .nout = MAX_ARGS};
    for (int i = 0; i < f->s.nin; i++) {
        bool real = nb_dtype_is_float(nb_dtype_of(f->s.in[i]));
        if (sample_smooth(&f->s, i)) f->scaled = false;
        if (real && op->fixed >> i & 1) continue;
        f->free[f->nfree++] = i;
        g->x[g->nin++] = f->s.in[i];
    }
    if (f->scaled) g->x[g->nin++] = draw(0, NULL, 0.5, 2);
    return nb_func_call(g->fn, g->nin, g->x, &g->nout, y) == NB_OK;
}

/* Numbers for choices, the same for an op in every run. */
static unsigned state;
static unsigned pick(unsigned n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

/* The task before a letter is put to it, and the word's choices for it. */
static task readied(way w, const task *g)
{
    return w == HESS_RF || w == HESS_FR ? task_small(g, pick(64)) : *g;
}

static uint64_t some(int n)
{
    uint64_t all = ((uint64_t)1 << n) - 1;
    uint64_t bits = ((uint64_t)pick(1 << 16) << 32 | pick(1 << 16) << 16 |
                     pick(1 << 16)) & all;
    return bits ? bits : all;
}

static task put(way w, const task *g)
{
    uint64_t mapped = some(g->nin);
    return task_transform(w, g, mapped, pick(2) ? 0 : -1);
}

static int order(way w)
{
    return w == HESS_RF || w == HESS_FR ? 2 : w == JVP || w == VJP;
}

/* A letter put to a word that is done, checked. */
static void check(way w, const task *word, const char *name, int inner)
{
    nb_scope_open();
    task g = readied(w, word), t = put(w, &g);
    const char *first = way_name[w];
    words++;
    expect(task_agrees(w, &g, &t), "%s %s is as done slowly", first, name);
    if (w == VJP)
        expect(task_is_transposed(&g, &t, inner ? 1e-10 : 1e-12),
               "%s %s is its jvp transposed", first, name);
    if (w == HESS_RF) {
        task other = put(HESS_FR, &g);
        expect(task_is_same(&t, &other, 1e-10), "%s %s is hess_fr", first,
               name);
    }
    nb_scope_close(0, NULL);
}

/* Every letter put to a word, those in `barred` not. */
static void extend(const task *g, const char *name, int inner, unsigned barred)
{
    for (int l = 0; l < NLETTERS; l++)
        if (ON(letters[l]) & barred)
            exempted++;
        else
            check(letters[l], g, name, inner);
}

static void pairs(const task *g, const char *name, unsigned barred)
{
    for (int l = 0; l < NLETTERS; l++) {
        way w = letters[l];
        char longer[96];
        if (ON(w) & barred) {
            exempted += NLETTERS;
            continue;
        }
        nb_scope_open();
        task h = readied(w, g), t = put(w, &h);
        snprintf(longer, sizeof longer, "%s %s", way_name[w], name);
        extend(&t, longer, order(w), barred);
        nb_scope_close(0, NULL);
    }
}

static void triples(const task *g, const char *name, unsigned barred)
{
    for (int k = 0; k < TRIPLES; k++) {
        way a = letters[pick(NLETTERS)], b = letters[pick(NLETTERS)];
        way c = letters[pick(NLETTERS)];
        char longer[96];
        if ((ON(a) | ON(b) | ON(c)) & barred) {
            exempted++;
            continue;
        }
        nb_scope_open();
        task h = readied(c, g), one = put(c, &h);
        task i = readied(b, &one), two = put(b, &i);
        snprintf(longer, sizeof longer, "%s %s %s", way_name[b], way_name[c],
                 name);
        check(a, &two, longer, order(b) + order(c));
        nb_scope_close(0, NULL);
    }
}

static void try_op(nb_op *op, int n)
{
    subject f;
    task g;
    unsigned barred = ways_barred(op);
    state = (unsigned)n + 1;
    nb_scope_open();
    if (expect(subject_of(op, &f, &g), "%s runs", op->name)) {
        extend(&g, op->name, 0, barred);
        pairs(&g, op->name, barred);
        triples(&g, op->name, barred);
    }
    nb_scope_close(0, NULL);
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL;
    int n = 0;
    for (nb_op *op; (op = nb_op_at(n)); n++)
        if (!only || !strcmp(only, op->name)) try_op(op, n);
    for (int i = 0; i < NEXEMPT; i++)
        if (expect(nb_op_find(exempt[i].op), "%s is an op", exempt[i].op)) {
            printf("exempt %s from", exempt[i].op);
            for (way w = VJP; w < ALL_WAYS; w++)
                if (exempt[i].ways & ON(w)) printf(" %s", way_name[w]);
            printf(": %s\n", exempt[i].why);
        }
    int64_t nodes = nb_stats_get().nodes_live;
    expect(nodes == 0, "%lld nodes are still alive", (long long)nodes);
    printf("%d ops, %d words, %d exemptions\n", n, words, exempted);
    return tally();
}
