/* test_pairs.c - transforms of transforms, of every op in the catalogue.
 *
 * A word is a list of transforms, the last applied first: "vmap vjp sin" is a
 * batch of gradients of sin.  Every letter, every ordered pair and a sample of
 * triples are tried on every op.  In a word only the outermost letter is done
 * slowly, by finite differences or a loop (support/check.h): the rest is a
 * shorter word, which is tried as well. */
#include "support/subject.h"

#include "transform/func.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const way letters[] = {JVP,     VJP,        VMAP, HESS_RF,
                              HESS_FR, CHECKPOINT, SCAN};
enum { NLETTERS = sizeof letters / sizeof letters[0], TRIPLES = 24 };

#define ON(w)  (1u << (w))
#define MAPPED (ON(VMAP) | ON(SCAN))
#define HESS   (ON(HESS_RF) | ON(HESS_FR))

/* Words that an op does not take, and why: those with one of `ways`. */
typedef struct exemption {
    const char *op;
    unsigned ways;
    const char *why;
} exemption;

#define IN_LANES "the shape of the result depends on the data of a lane or step"

static const exemption exempt[] = {
    {"nonzero", MAPPED, IN_LANES},       {"unique_values", MAPPED, IN_LANES},
    {"unique_counts", MAPPED, IN_LANES}, {"unique_inverse", MAPPED, IN_LANES},
    {"unique_all", MAPPED, IN_LANES},
};
enum { NEXEMPT = sizeof exempt / sizeof exempt[0] };

static int tried, checks, exempted;

/* Whether no word with these letters is for op; counted. */
static bool is_exempt(const nb_op *op, unsigned word)
{
    bool so = false;
    for (int i = 0; i < NEXEMPT; i++) {
        const exemption *e = &exempt[i];
        so = so || (!strcmp(e->op, op->name) && word & e->ways);
    }
    exempted += so;
    return so;
}

/* A function that a hessian can be taken of: of few elements in and out.  Its
 * real results are one tensor, or summed with random weights if they are many.
 * It moves with one real argument, put first, or if that is large with two
 * numbers before all arguments, which move every real one along two ways. */
enum { MAX_AXES = 4 };
typedef struct few {
    nb_func *of;
    int first; /* argument; -1: two numbers */
    nb_tensor *ways[MAX_ARGS], *weight[MAX_ARGS]; /* NULL: none */
} few;

static void few_free(void *ctx)
{
    few *f = ctx;
    nb_func_drop(f->of);
    for (int i = 0; i < MAX_ARGS; i++) {
        nb_drop(f->ways[i]);
        nb_drop(f->weight[i]);
    }
    free(f);
}

static nb_tensor *moved(nb_tensor *x, nb_tensor *ways, nb_tensor *numbers)
{
    int64_t last = -1, only = 0;
    return nb_add(x, nb_tensordot(ways, numbers, 1, &last, &only));
}

/* The real results, or all if none is, as reals, to the front of y. */
static int reals(int n, nb_tensor **y)
{
    bool any = false;
    int m = 0;
    for (int k = 0; k < n; k++)
        any = any || is_float(y[k]);
    for (int k = 0; k < n; k++)
        if (!any || is_float(y[k])) y[m++] = nb_cast(y[k], NB_F64);
    return m;
}

static nb_tensor *joined(const few *f, int n, nb_tensor **y)
{
    nb_tensor *sum = nb_num(0);
    if (n == 1 && !f->weight[0] && nb_rank(y[0]) <= MAX_AXES) return y[0];
    for (int k = 0; k < n; k++) {
        nb_tensor *part = f->weight[0] ? nb_mul(y[k], f->weight[k]) : y[k];
        y[k] = nb_flatten(part, 0, -1);
        sum = nb_add(sum, nb_reduce_sum(part, -1, NULL, false));
    }
    return f->weight[0] ? sum : nb_concatenate(n, y, 0);
}

static nb_status few_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    const few *f = ctx;
    nb_tensor *in[MAX_ARGS];
    bool whole = f->first >= 0;
    int n = whole ? nx : nx - 1;
    memcpy(in, x + nx - n, (size_t)n * sizeof *in);
    if (whole) {
        in[0] = x[f->first];
        in[f->first] = x[0];
    }
    for (int i = 0; i < n; i++)
        if (f->ways[i]) in[i] = moved(in[i], f->ways[i], x[0]);
    nb_status status = nb_func_call(f->of, n, in, ny, y);
    if (status == NB_OK) y[0] = joined(f, reals(*ny, y), y);
    return *ny = 1, status;
}

static bool weigh(few *f, const task *g, int most)
{
    nb_tensor *y[MAX_ARGS];
    int n = MAX_ARGS;
    int64_t size = 0;
    if (nb_func_call(g->fn, g->nin, g->x, &n, y) != NB_OK) return false;
    n = reals(n, y);
    for (int k = 0; k < n; k++)
        size += nb_elements(y[k]);
    for (int k = 0; size > most && k < n; k++)
        f->weight[k] = nb_keep(draw_like(y[k], -1, 1));
    return true;
}

/* Two numbers before all arguments. */
static void move_all(few *f, task *t)
{
    int64_t size[NB_MAX_RANK + 1];
    for (int i = t->nin++; i > 0; i--) {
        nb_tensor *x = t->x[i] = t->x[i - 1];
        if (!is_float(x)) continue;
        nb_sizes(x, size);
        size[nb_rank(x)] = 2;
        f->ways[i - 1] = nb_keep(draw(nb_rank(x) + 1, size, -1, 1));
    }
    t->x[0] = draw(1, (int64_t[]){2}, -0.01, 0.01);
    f->first = -1;
}

/* g of at most so many elements; turn chooses the argument. */
static task task_few(const task *g, int most, unsigned turn)
{
    task t = {.nin = g->nin, .nout = 1};
    int real[MAX_ARGS] = {0}, n = 0;
    few *f = calloc(1, sizeof *f);
    for (int i = 0; i < g->nin; i++)
        if (is_float(g->x[i])) real[n++] = i;
    unsigned nth = turn % (unsigned)(n + 1);
    int i = nth < (unsigned)n ? real[nth] : real[0];
    bool small = nb_elements(g->x[i]) <= most && nb_rank(g->x[i]) <= MAX_AXES;
    memcpy(t.x, g->x, sizeof t.x);
    f->of = nb_func_keep(g->fn);
    if (small && (n == 1 || nth < (unsigned)n)) {
        f->first = i;
        t.x[0] = g->x[i];
        t.x[i] = g->x[0];
    } else
        move_all(f, &t);
    bool ok = weigh(f, g, most);
    t.fn = nb_func_owning(few_body, f, few_free);
    if (!ok) t.fn = NULL;
    return t;
}

/* Numbers for choices, the same for an op in every run. */
static unsigned state;
static unsigned below(unsigned n)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % n;
}

/* A function on the way through a word: what it is so far. */
typedef struct stage {
    const nb_op *op;
    task t;
    char word[120];
    unsigned letters;
    int order; /* of derivative */
} stage;

/* A letter put to the next stage, and the function that it is put to: the last
 * stage's, made few for a hessian. */
static void put(way w, const stage *last, task *g, stage *next)
{
    bool hess = ON(w) & HESS;
    int most = last->letters & HESS ? 3 : 12; /* lanes in lanes are many */
    uint64_t some = 0;
    *next = *last;
    *g = hess ? task_few(&last->t, most, below(64)) : last->t;
    uint64_t all = ((uint64_t)1 << g->nin) - 1;
    for (int i = 0; i < 4; i++)
        some = some << 16 | below(1 << 16);
    some = some & all ? some & all : all;
    next->t = task_transform(w, g, some, below(2) ? 0 : -1);
    next->letters |= ON(w);
    next->order += hess ? 2 : w == JVP || w == VJP;
    snprintf(next->word, sizeof next->word, "%s %.100s", way_name[w],
             last->word);
}

static void count(bool ok, const stage *s, const char *says)
{
    checks++;
    expect(ok, "%s: %s", s->word, says);
}

/* A letter put to a word and checked. */
static void check(way w, const stage *last)
{
    task g;
    stage next;
    tried++;
    nb_scope_open();
    put(w, last, &g, &next);
    count(task_agrees(w, &g, &next.t), &next, "it is as done slowly");
    if (w == VJP)
        count(task_is_transposed(&g, &next.t, next.order > 1 ? 1e-10 : 1e-12),
              &next, "it is the jvp transposed");
    if (ON(w) & HESS) {
        task other = task_transform(w == HESS_RF ? HESS_FR : HESS_RF, &g, 0, 0);
        count(task_is_same(&next.t, &other, 1e-10), &next,
              "it is the hessian the other way");
    }
    nb_scope_close(0, NULL);
}

/* n letters, the outermost first: all but that put to the op, that checked. */
static void try_word(const stage *op, int n, const way *w)
{
    stage s = *op;
    unsigned all = 0;
    for (int i = 0; i < n; i++)
        all |= ON(w[i]);
    if (is_exempt(op->op, all)) return;
    nb_scope_open();
    for (int i = n - 1; i > 0; i--) {
        task g;
        stage last = s;
        put(w[i], &last, &g, &s);
    }
    check(w[0], &s);
    nb_scope_close(0, NULL);
}

static void try_words(const stage *op)
{
    for (int i = 0; i < NLETTERS; i++) {
        try_word(op, 1, &letters[i]);
        for (int j = 0; j < NLETTERS; j++)
            try_word(op, 2, (way[]){letters[i], letters[j]});
    }
    for (int k = 0; k < TRIPLES; k++) {
        way w[3];
        for (int l = 0; l < 3; l++)
            w[l] = letters[below(NLETTERS)];
        try_word(op, 3, w);
    }
}

static void try_op(nb_op *op, int n)
{
    subject f;
    stage s = {.op = op};
    state = (unsigned)n + 1;
    nb_scope_open();
    snprintf(s.word, sizeof s.word, "%s", op->name);
    bool runs = subject_of(op, &f, &s.t);
    count(runs, &s, "it runs");
    if (runs) try_words(&s);
    nb_scope_close(0, NULL);
}

static void print_exemptions(void)
{
    for (int i = 0; i < NEXEMPT; i++) {
        const exemption *e = &exempt[i];
        printf("exempt %s from", e->op);
        for (way w = VJP; w < ALL_WAYS; w++)
            if (e->ways & ON(w)) printf(" %s", way_name[w]);
        printf(": %s\n", e->why);
        expect(nb_op_find(e->op), "%s is an op", e->op);
    }
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL;
    int n = 0;
    for (nb_op *op; (op = nb_op_at(n)); n++)
        if (!only || !strcmp(only, op->name)) try_op(op, n);
    print_exemptions();
    nb_caches_clear();
    int64_t nodes = nb_stats_get().nodes_live;
    expect(nodes == 0, "%lld nodes are still alive", (long long)nodes);
    printf("%d ops, %d words, %d checks, %d exemptions\n", n, tried, checks,
           exempted);
    return tally();
}
