/* test_attention.c - attention as one step: which programs have it, and that
 * they compute what they did.
 *
 * Every case is a loss of q, k and v and its gradients, in 16 bits; what is
 * right is the same in float64.  The pass runs on the CPU, where the two ops
 * are their reference; then programs run on the card of the machine, or on the
 * simulated one, by kernels of our own and by cuDNN. */
#include "base/memory.h"
#include "core/graph.h"
#include "lower/attention_match.h"
#include "lower/passes.h"
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"
#include "support/faults.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Programs */

typedef enum layout {
    BHTD,
    BTHD,
    SPLIT, /* one matrix, of parts of heads */
    CUT,   /* the same, by cutting its columns */
    JOINED,
    ONE
} layout;
typedef enum mask {
    NONE,
    PAST,     /* where(tril, s, -1e9) */
    FUTURE,   /* where(not tril, -inf, s) */
    ADDED,    /* s + where(s <= t, 0, -1e9) */
    AHEAD,    /* tril(2) */
    BAND,     /* not what kernels know */
    GIVEN,    /* an input */
    BACKWARDS /* triu */
} mask;
typedef enum way {
    SOFTMAX,
    BY_HAND,
    NAIVE,
    SHOWN, /* weights are a result */
    LINEAR /* nothing that flows back depends on o */
} way;

typedef struct program {
    const char *says;
    layout layout;
    mask mask;
    way way;
    int64_t b, h, t, s, d;
    nb_dtype dtype;
    bool scale_first, divides;
    int forward, back; /* calls that are to be found */
} program;

static bool is_one_matrix(const program *p)
{
    return p->layout == SPLIT || p->layout == CUT;
}

#define IN(...)                                         \
    (sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) \
    {                                                   \
        __VA_ARGS__                                     \
    }

static nb_tensor *causal(const program *p, int64_t k)
{
    return nb_tril(nb_ones(IN(p->t, p->s), NB_BOOL), k);
}

static nb_tensor *masked(const program *p, nb_tensor *s, nb_tensor *given)
{
    nb_tensor *low = nb_num(-1e9), *row, *column;
    switch (p->mask) {
    case PAST: return nb_where(causal(p, 0), s, low);
    case AHEAD: return nb_where(causal(p, 2), s, low);
    case FUTURE:
        return nb_where(nb_logical_not(causal(p, 0)), nb_num(-INFINITY), s);
    case ADDED:
        row = nb_reshape(nb_iota(p->t, NB_I64), IN(p->t, 1));
        column = nb_iota(p->s, NB_I64);
        return nb_add(
            s, nb_cast(nb_where(nb_less_equal(column, row), nb_num(0), low),
                       nb_dtype_of(s)));
    case BAND:
        return nb_where(
            nb_logical_and(causal(p, 0), nb_logical_not(causal(p, -3))), s,
            low);
    case GIVEN: return nb_where(given, s, low);
    case BACKWARDS:
        return nb_where(nb_triu(nb_ones(IN(p->t, p->s), NB_BOOL), 0), s, low);
    default: return s;
    }
}

static nb_tensor *weights(const program *p, nb_tensor *s)
{
    int64_t last = nb_rank(s) - 1;
    nb_dtype d = nb_dtype_of(s);
    if (p->way != BY_HAND && p->way != NAIVE) return nb_softmax(s, -1);
    if (d != NB_F64) s = nb_cast(s, NB_F32);
    if (p->way == BY_HAND)
        s = nb_sub(s, nb_stop_gradient(nb_reduce_max(s, 1, &last, true)));
    nb_tensor *e = nb_exp(s);
    return nb_cast(nb_div(e, nb_reduce_sum(e, 1, &last, true)), d);
}

static nb_tensor *scaled(const program *p, nb_tensor *x)
{
    double root = sqrt((double)p->d);
    return p->divides ? nb_div(x, nb_num(root)) : nb_mul(x, nb_num(1 / root));
}

static nb_tensor *product(const char *rule, nb_tensor *x, nb_tensor *y)
{
    return nb_einsum(rule, 2, (nb_tensor *[]){x, y});
}

/* q, k, v and what o is weighed with: of any layout, o is b t (h d). */
static nb_tensor *attention(const program *p, nb_tensor *const *x,
                            nb_tensor **w)
{
    nb_tensor *q = x[0], *k = x[1], *v = x[2], *qkv[3];
    bool plain = p->layout != BTHD;
    if (p->layout == SPLIT) {
        nb_tensor *all = nb_reshape(q, IN(p->b, p->t, 3, p->h, p->d));
        if (nb_unbind(nb_permute(all, IN(2, 0, 3, 1, 4)), 0, qkv) != NB_OK)
            return NULL;
        q = qkv[0], k = qkv[1], v = qkv[2];
    }
    if (p->layout == CUT) {
        if (nb_split(q, 3, -1, qkv) != NB_OK) return NULL;
        for (int i = 0; i < 3; i++)
            qkv[i] = nb_swap_axes(
                nb_reshape(qkv[i], IN(p->b, p->t, p->h, p->d)), 1, 2);
        q = qkv[0], k = qkv[1], v = qkv[2];
    }
    if (p->layout == JOINED) {
        q = nb_reshape(q, IN(p->b * p->h, p->t, p->d));
        k = nb_reshape(k, IN(p->b * p->h, p->s, p->d));
        v = nb_reshape(v, IN(p->b * p->h, p->s, p->d));
    }
    if (p->scale_first) q = scaled(p, q);
    nb_tensor *s = plain ? nb_matmul(q, nb_swap_axes(k, -1, -2))
                         : product("bthd,bshd->bhts", q, k);
    if (!p->scale_first) s = scaled(p, s);
    *w = weights(p, masked(p, s, x[3]));
    nb_tensor *o = plain ? nb_matmul(*w, v) : product("bhts,bshd->bthd", *w, v);
    return is_one_matrix(p) || p->layout == BHTD ? nb_swap_axes(o, 1, 2) : o;
}

/* The sum of o times what differs from place to place, and with o. */
static nb_status loss(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    const program *p = ctx;
    nb_tensor *in[5], *w, *o;
    for (int i = 0; i < nx; i++)
        in[i] = i == 3 ? x[i] : nb_cast(x[i], p->dtype);
    o = attention(p, in, &w);
    if (!o) return nb_error_code();
    nb_dtype d = p->dtype == NB_F64 ? NB_F64 : NB_F32;
    o = nb_reshape(nb_cast(o, d), IN(-1));
    nb_tensor *by = nb_sin(nb_cast(nb_iota(nb_size(o, 0), NB_I64), d));
    if (p->way != LINEAR) by = nb_mul(by, nb_cos(o));
    y[0] = nb_reduce_sum(nb_mul(o, by), -1, NULL, false);
    y[1] = o;
    y[2] = p->way == SHOWN ? w : o;
    *ny = 3;
    return nb_error_code(); /* of what not every layout uses, too */
}

enum { INPUTS = 4, RESULTS = 6 };

/* Numbers that 16 bits hold. */
static nb_tensor *numbers(int64_t seed, int rank, const int64_t *shape,
                          nb_dtype d)
{
    nb_tensor *x =
        nb_random_normal(nb_random_key(seed), rank, shape, 0, 1, NB_F32);
    return nb_cast(nb_cast(x, d), NB_F32);
}

static void inputs(const program *p, nb_tensor **x)
{
    nb_dtype d = p->dtype == NB_F32 ? NB_BF16 : p->dtype;
    int64_t b = p->b, h = p->h, t = p->t, s = p->s;
    for (int i = 0; i < 3; i++) {
        int64_t n = i ? s : t;
        if (is_one_matrix(p))
            x[i] = numbers(i, IN(b, t, 3 * h * p->d), d);
        else if (p->layout == ONE)
            x[i] = numbers(i, IN(n, p->d), d);
        else if (p->layout == BTHD)
            x[i] = numbers(i, IN(b, n, h, p->d), d);
        else
            x[i] = numbers(i, IN(b, h, n, p->d), d);
    }
    x[3] = causal(p, 0);
    need(nb_realize_all(INPUTS, x) == NB_OK);
}

static nb_func *gradients(nb_func *f, const program *p)
{
    nb_func *g =
        nb_value_and_grad(f, is_one_matrix(p) ? 1 : 3, (int[]){0, 1, 2});
    need(g);
    return g;
}

/* Results of p in a dtype; how many. */
static int run(const program *p, nb_dtype d, nb_tensor *const *x, nb_tensor **y)
{
    program q = *p;
    int ny = RESULTS;
    q.dtype = d;
    nb_func *f = nb_func_new(loss, &q), *g = gradients(f, p);
    need(nb_func_call(g, INPUTS, x, &ny, y) == NB_OK);
    need(nb_realize_all(ny, y) == NB_OK);
    return ny;
}

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
    return most;
}

/* Within so many roundings of the largest number, or of 1. */
static bool near(const program *p, nb_tensor *got, nb_tensor *right)
{
    int64_t n = nb_elements(right);
    double *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * 8);
    need(nb_elements(got) == n && nb_read(got, NB_F64, a) == NB_OK &&
         nb_read(right, NB_F64, b) == NB_OK);
    double bound = fmax(largest(b, n), 1) * (p->dtype == NB_F16 ? 0.01 : 0.04);
    for (int64_t i = 0; i < n; i++)
        a[i] -= b[i];
    double off = largest(a, n);
    bool ok = off <= bound; /* no NaN */
    for (int64_t i = 0; i < n; i++)
        ok = ok && !isnan(a[i]);
    if (!ok) fprintf(stderr, "%s: off by %g of %g\n", p->says, off, bound);
    free(a), free(b);
    return ok;
}

static int count(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)); text++)
        n++;
    return n;
}

/* Where q, k and v are of one matrix, so is what flows back, as it lies. */
static bool has_calls(const program *p, const char *text)
{
    bool one = is_one_matrix(p);
    const char *back = one ? "= attention_back_one(" : "= attention_back(";
    bool has = count(text, "= attention(") == p->forward &&
               count(text, back) == p->back &&
               (!one || count(text, "-> A t z B d; z=3") == p->back) &&
               (!one || !count(text, "= embed("));
    if (!has) fprintf(stderr, "%s:\n%s\n", p->says, text);
    return has;
}

static const program programs[] = {
    {"softmax of q k^T", BHTD, NONE, .b = 2, .h = 2, .t = 20, .s = 20, .d = 16,
     .dtype = NB_BF16, .forward = 1, .back = 1},
    {"a causal mask", BHTD, PAST, .b = 1, .h = 2, .t = 70, .s = 70, .d = 32,
     .dtype = NB_BF16, .divides = true, .forward = 1, .back = 1},
    {"in float16, a tile and a bit", BHTD, PAST, .b = 1, .h = 1, .t = 130,
     .s = 130, .d = 64, .dtype = NB_F16, .forward = 1, .back = 1},
    {"q, k and v are parts of one matrix", SPLIT, PAST, .b = 2, .h = 3, .t = 33,
     .s = 33, .d = 8, .dtype = NB_BF16, .divides = true, .forward = 1,
     .back = 1},
    {"heads inside", BTHD, PAST, .b = 2, .h = 3, .t = 17, .s = 17, .d = 48,
     .dtype = NB_BF16, .forward = 1, .back = 1},
    {"one batch of heads", JOINED, PAST, .b = 2, .h = 2, .t = 40, .s = 40,
     .d = 16, .dtype = NB_F16, .forward = 1, .back = 1},
    {"matrices alone, columns that vectors do not fit", ONE, NONE, .b = 1,
     .h = 1, .t = 5, .s = 19, .d = 20, .dtype = NB_BF16, .forward = 1,
     .back = 1},
    {"a mask the other way round, softmax by hand", BHTD, FUTURE, BY_HAND,
     .b = 1, .h = 2, .t = 24, .s = 24, .d = 16, .dtype = NB_BF16, .forward = 1,
     .back = 1},
    {"a mask that is added, no peak", BHTD, ADDED, NAIVE, .b = 1, .h = 2,
     .t = 24, .s = 24, .d = 16, .dtype = NB_BF16, .forward = 1, .back = 1},
    {"q is scaled first; keys ahead, fewer queries", BHTD, AHEAD, .b = 1,
     .h = 1, .t = 20, .s = 35, .d = 16, .dtype = NB_BF16, .scale_first = true,
     .forward = 1, .back = 1},
    {"fewer keys than queries", BHTD, PAST, .b = 1, .h = 1, .t = 40, .s = 21,
     .d = 16, .dtype = NB_BF16, .forward = 1, .back = 1},
    {"128 columns", BHTD, PAST, .b = 1, .h = 1, .t = 66, .s = 66, .d = 128,
     .dtype = NB_BF16, .forward = 1, .back = 1},
    {"q, k and v are cut from one matrix", CUT, PAST, .b = 2, .h = 2, .t = 24,
     .s = 24, .d = 16, .dtype = NB_BF16, .forward = 1, .back = 1},
    {"of one head, in float16", CUT, NONE, .b = 1, .h = 1, .t = 24, .s = 24,
     .d = 16, .dtype = NB_F16, .forward = 1, .back = 1},
    {"what flows back is there first", SPLIT, PAST, LINEAR, .b = 2, .h = 2,
     .t = 20, .s = 20, .d = 16, .dtype = NB_BF16, .forward = 1, .back = 1},
    {"weights that are shown are stored", BHTD, PAST, SHOWN, .b = 1, .h = 1,
     .t = 12, .s = 12, .d = 16, .dtype = NB_BF16},
    {"a band is no mask that kernels know", BHTD, BAND, .b = 1, .h = 1, .t = 12,
     .s = 12, .d = 16, .dtype = NB_BF16},
    {"nor is what is after", BHTD, BACKWARDS, .b = 1, .h = 1, .t = 12, .s = 12,
     .d = 16, .dtype = NB_BF16},
    {"a mask that is given is not known", BHTD, GIVEN, .b = 1, .h = 1, .t = 12,
     .s = 12, .d = 16, .dtype = NB_BF16},
    {"float32 stays as it is", BHTD, PAST, .b = 1, .h = 1, .t = 12, .s = 12,
     .d = 16, .dtype = NB_F32},
    {"columns that kernels have no room for", BHTD, PAST, .b = 1, .h = 1,
     .t = 12, .s = 12, .d = 136, .dtype = NB_BF16},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

/* On the CPU */

static bool has_scores(const program *p, const nb_graph *g)
{
    bool has = false;
    nb_line_info info;
    for (int k = 0; nb_graph_line(g, k, &info); k++) {
        int64_t n = info.rank;
        has = has ||
              (n > 2 && info.size[n - 1] == p->s && info.size[n - 2] == p->t);
    }
    return has;
}

/* What f records at x, as the pass finds it, and its results. */
static nb_graph *recorded(nb_func *f, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    nb_graph *g = NULL;
    *ny = RESULTS;
    need(nb_func_call(f, INPUTS, x, ny, y) == NB_OK);
    need(nb_graph_of(INPUTS, x, *ny, y, &g) == NB_OK);
    need(nb_lower_until(g, "dead"));
    return g;
}

/* The same after the pass; in place of what it was. */
static nb_graph *fused(nb_func *f, nb_tensor *const *x, int *ny, nb_tensor **y)
{
    nb_graph *g = recorded(f, x, ny, y);
    need(nb_attention_fuse(g) && nb_graph_check(g) == NB_OK);
    return g;
}

/* Runs the program, which goes, at x: that its results are these. */
static void gives(const program *p, nb_graph *g, nb_tensor *const *x, int ny,
                  nb_tensor *const *right)
{
    nb_tensor *got[RESULTS];
    need(nb_graph_run(g, INPUTS, x, got) == NB_OK);
    for (int i = 0; i < ny; i++)
        need(near(p, got[i], right[i]));
    nb_graph_free(g);
}

static void check_here(const program *p)
{
    program q = *p;
    nb_tensor *x[INPUTS], *y[RESULTS], *right[RESULTS];
    int ny;
    need(nb_scope_open() == NB_OK);
    inputs(p, x);
    run(p, NB_F64, x, right);
    nb_graph *g = fused(gradients(nb_func_new(loss, &q), p), x, &ny, y);
    char *text = nb_graph_text(g);
    need(has_calls(p, text) && has_scores(p, g) == !p->forward);
    nb_text_release(text);
    gives(p, g, x, ny, right);
    nb_scope_close(0, NULL);
}

static void programs_are_fused(void **state)
{
    (void)state;
    for (int i = 0; i < PROGRAMS; i++)
        check_here(&programs[i]);
}

/* Other derivatives: a body with `ctx` a program whose results they are. */

static const program small = {
    "other derivatives", BHTD, PAST, .b = 1, .h = 2, .t = 9, .s = 9, .d = 16,
    .dtype = NB_BF16};

/* sum of squares of the gradients, which is differentiated again */
static nb_status squares(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    nb_tensor *g[RESULTS], *sum = nb_num(0);
    int n = RESULTS;
    nb_func *f = nb_func_new(loss, ctx), *all = gradients(f, ctx);
    nb_status ok = nb_func_call(all, nx, x, &n, g);
    if (ok != NB_OK) return ok;
    for (int i = 3; i < n; i++)
        sum = nb_add(sum, nb_reduce_sum(nb_mul(g[i], g[i]), -1, NULL, false));
    *ny = 1;
    y[0] = sum;
    return NB_OK;
}

/* The gradients of f at x, by the pass, against those of `right`. */
static void compare(const program *p, nb_func *f, nb_func *right,
                    nb_tensor *const *x, int forward, int back)
{
    nb_tensor *y[RESULTS], *z[RESULTS];
    int ny, nz = RESULTS;
    nb_func *df = nb_grad(f, 3, (int[]){0, 1, 2});
    nb_func *dr = nb_grad(right, 3, (int[]){0, 1, 2});
    need(nb_func_call(dr, INPUTS, x, &nz, z) == NB_OK);
    nb_graph *g = fused(df, x, &ny, y);
    char *text = nb_graph_text(g);
    bool found = count(text, "= attention(") == forward &&
                 count(text, "= attention_back(") == back;
    if (!found) fprintf(stderr, "%s\n", text);
    need(found && ny == nz);
    nb_text_release(text);
    gives(p, g, x, ny, z);
}

/* compare for functions of a program by that body; `of` it or NULL. */
static void compare_bodies(nb_body *body, nb_func *(*of)(nb_func *),
                           const program *p, int forward, int back)
{
    program close = *p, exact = *p;
    nb_tensor *x[INPUTS];
    exact.dtype = NB_F64;
    nb_scope_open();
    inputs(p, x);
    nb_func *f = nb_func_new(body, &close), *r = nb_func_new(body, &exact);
    compare(p, of ? of(f) : f, r, x, forward, back);
    nb_scope_close(0, NULL);
}

static void second_derivatives_keep_scores(void **state)
{
    (void)state;
    compare_bodies(squares, NULL, &small, 0, 0);
}

static nb_func *computed_again(nb_func *f)
{
    return nb_checkpoint(f, NULL);
}

/* What is computed again on the way back is attention again. */
static void recomputed_attention_is_fused(void **state)
{
    (void)state;
    compare_bodies(loss, computed_again, &small, 1, 1);
}

/* Lanes are of the batch. */
static void vmapped_attention_is_fused(void **state)
{
    program p = {"lanes", ONE,    PAST,    .b = 1,          .h = 1,
                 .t = 9,  .s = 9, .d = 16, .dtype = NB_BF16};
    program many = p;
    nb_tensor *x[INPUTS];
    (void)state;
    many.layout = BHTD, many.b = 2, many.h = 3;
    nb_scope_open();
    inputs(&many, x);
    nb_func *f = nb_func_new(loss, &p);
    const int axes[] = {0, 0, 0, NB_UNMAPPED};
    nb_vmap_options over = {.nin = 4, .in_axes = axes};
    nb_func *once = nb_vmap(f, &over), *twice = nb_vmap(once, &over);
    nb_tensor *y[RESULTS];
    int ny;
    nb_graph *g = fused(twice, x, &ny, y);
    char *text = nb_graph_text(g);
    need(count(text, "= attention(") == 1);
    nb_text_release(text);
    gives(&p, g, x, ny, y);
    nb_scope_close(0, NULL);
}

/* A sum of losses, each of other queries and with a mask of `layer_masks`. */
static const mask layer_masks[] = {PAST, PAST, AHEAD, BAND, PAST};

static nb_status layers(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    nb_tensor *in[INPUTS], *one[RESULTS], *sum = nb_num(0);
    for (int i = 0; i < 5; i++) {
        program p = *(const program *)ctx;
        p.mask = layer_masks[i];
        memcpy(in, x, sizeof in);
        in[0] = nb_mul(x[0], nb_num(0.5 * i + 0.5));
        nb_status ok = loss(&p, nx, in, ny, one);
        if (ok != NB_OK) return ok;
        sum = nb_add(sum, one[0]);
    }
    *ny = 1;
    y[0] = sum;
    return NB_OK;
}

/* A mask is looked at once for all layers that it is of, and for no other. */
static void layers_have_their_masks(void **state)
{
    program p = small;
    (void)state;
    p.t = p.s = 20;
    compare_bodies(layers, NULL, &p, 4, 4);
}

/* Memory that runs out leaves nothing behind. */
static void faults_leave_nothing(void **state)
{
    const program *p = &programs[1];
    nb_tensor *x[INPUTS];
    bool done = false;
    int failed = 0;
    (void)state;
    nb_scope_open();
    inputs(p, x);
    for (int n = 1; !done && n < 20000; n += 1 + n / 8) {
        program q = *p;
        nb_tensor *y[RESULTS];
        int ny;
        nb_scope_open();
        nb_func *f = gradients(nb_func_new(loss, &q), p);
        nb_graph *g = recorded(f, x, &ny, y);
        int64_t live = nb_memory_live();
        nb_graph *copy = nb_graph_copy(g);
        nb_fault_set(n);
        bool ok = nb_attention_fuse(copy);
        done = nb_fault_is_set();
        nb_fault_set(0);
        failed += !ok;
        need(ok || nb_error_code() == NB_EMEMORY);
        nb_error_clear();
        nb_graph_free(copy);
        need(nb_memory_live() == live);
        nb_graph_free(g);
        nb_scope_close(0, NULL);
    }
    need(done && failed > 5);
    nb_scope_close(0, NULL);
}

/* On a card */

/* The function of a program that stays, and its gradients. */
static nb_func *function(const program *p)
{
    static program q;
    q = *p;
    return gradients(nb_func_new(loss, &q), p);
}

static nb_executable *compiled(nb_func *f, nb_tensor *const *x)
{
    nb_executable *e = NULL;
    return nb_executable_new(f, INPUTS, x, &e) == NB_OK ? e : NULL;
}

/* Opens a scope and the card, on which the inputs of p are then. */
static void begin_there(const program *p, nb_tensor **x)
{
    cards_first();
    need(nb_scope_open() == NB_OK);
    inputs(p, x);
    nb_default_device_set(1);
    for (int i = 0; i < INPUTS; i++)
        x[i] = nb_to_device(x[i], 1);
}

static void end_there(void)
{
    nb_default_device_set(0);
    nb_scope_close(0, NULL);
}

/* Runs of the library; 0 on a card that is none of ours. */
static int64_t library_runs(void)
{
    return cards_count("cudnnBackendExecute");
}

/* As often as it takes to run as a graph of the driver's; how often the second
 * run, when plans are chosen, has run the library. */
static int64_t check_there(const program *p, int times)
{
    nb_tensor *x[INPUTS], *there[INPUTS], *right[RESULTS], *got[RESULTS];
    int ny = RESULTS;
    int64_t runs = 0;
    need(nb_scope_open() == NB_OK);
    inputs(p, x);
    run(p, NB_F64, x, right);
    nb_default_device_set(1);
    for (int i = 0; i < INPUTS; i++)
        there[i] = nb_to_device(x[i], 1);
    nb_executable *e = compiled(function(p), there);
    char *text = e ? nb_executable_text(e, "attention") : NULL;
    need(text && has_calls(p, text));
    for (int k = 0; k < times; k++) {
        int64_t before = library_runs();
        ny = RESULTS;
        need(nb_executable_run(e, INPUTS, there, &ny, got) == NB_OK);
        if (k == 1) runs = library_runs() - before;
    }
    for (int i = 0; i < ny; i++)
        need(near(p, got[i], right[i]));
    nb_default_device_set(0);
    nb_text_release(text);
    nb_executable_drop(e);
    nb_scope_close(0, NULL);
    return runs;
}

CARD_TEST(kernels_are_right, "NABLA_CUDNN=none")
{
    cards_first();
    for (int i = 0; i < PROGRAMS; i++)
        if (programs[i].forward) need(check_there(&programs[i], 2) == 0);
}

/* No keys ahead, rows of whole vectors. */
static bool library_takes(const program *p)
{
    return p->mask != AHEAD && p->d % 8 == 0;
}

static void by_library(void)
{
    cards_first();
    for (int i = 0; i < PROGRAMS; i++) {
        const program *p = &programs[i];
        if (!p->forward) continue;
        int64_t runs = check_there(p, 2);
        int64_t all = library_takes(p) ? p->forward + p->back : 0;
        if (cards_simulated() && runs != all)
            fprintf(stderr, "%s: %d runs\n", p->says, (int)runs);
        need(!cards_simulated() || runs == all);
    }
    check_there(&programs[3], 8);
}

static void by_library_once(void)
{
    cards_first();
    need(check_there(&programs[3], 2) == 2);
}

/* Its plans have been tried. */
static void by_library_made(void)
{
    nb_tensor *x[INPUTS];
    begin_there(&programs[3], x);
    nb_executable *e = compiled(function(&programs[3]), x);
    need(e && library_runs() > 0);
    nb_executable_drop(e);
    end_there();
}

/* Back, its batch of two is in two parts. */
static void by_library_in_parts(void)
{
    cards_first();
    program p = programs[3];
    p.t = p.s = 36;
    need(check_there(&p, 2) == 3);
}

static void by_library_refused(void)
{
    cards_first();
    need(check_there(&programs[3], 2) == 0);
}

static void forward_by_library(void)
{
    cards_first();
    need(check_there(&programs[3], 2) == 1);
}

static void by_library_failing(void)
{
    const program *p = &programs[3];
    nb_tensor *x[INPUTS], *got[RESULTS];
    int ny = RESULTS;
    begin_there(p, x);
    nb_executable *e = compiled(function(p), x);
    need(e && nb_executable_run(e, INPUTS, x, &ny, got) != NB_OK);
    need(strstr(nb_error_message(), "cuDNN: "));
    nb_error_clear();
    nb_executable_drop(e);
    end_there();
}

/* Memory that runs out while a program for the library is made. */
typedef struct compiling {
    nb_func *f;
    nb_tensor *x[INPUTS];
} compiling;

static bool compiles_there(void *ctx)
{
    const compiling *c = ctx;
    nb_executable *e = compiled(c->f, c->x);
    nb_executable_drop(e);
    return e;
}

static void by_library_with_faults(void)
{
    compiling c;
    cards_first();
    check_there(&programs[3], 2); /* what lives on is there */
    begin_there(&programs[3], c.x);
    c.f = function(&programs[3]);
    faults f = {.run = compiles_there, .ctx = &c, .sparse = 16};
    need(faults_survived(&f) && f.failed > 5);
    end_there();
}

/* With the library, for small programs too, and more settings. */
static void with_library(void (*body)(void), const char *more)
{
    cards_alone(body, "%s NABLA_TUNE=all %s", cards_dnn(), more);
}

static void cudnn_is_right(void **state)
{
    (void)state;
    with_library(by_library, "");
}

static void small_programs_do_without_cudnn(void **state)
{
    (void)state;
    if (!cards_simulated()) skip();
    cards_alone(by_library_refused, "%s", cards_dnn());
}

/* Without proposals there is nothing but what is on disk. */
static void plans_of_cudnn_are_kept(void **state)
{
    (void)state;
    if (!cards_simulated()) skip();
    with_library(by_library_once, "");
    with_library(by_library_once, "NABLA_SIM_CUDNN_PROPOSALS=0");
    with_library(by_library_refused,
                 "NABLA_SIM_CUDNN_PROPOSALS=0 NABLA_CACHE_MIB=0");
}

static void nothing_is_under_way_once_a_program_is_made(void **state)
{
    (void)state;
    if (!cards_simulated()) skip();
    with_library(by_library_made, "NABLA_CACHE_MIB=0");
}

static void a_batch_that_has_no_room_is_in_parts(void **state)
{
    (void)state;
    if (!cards_simulated()) skip();
    with_library(by_library_in_parts, "NABLA_SIM_MEMORY=8388608");
}

static void what_cudnn_refuses_is_done_by_kernels(void **state)
{
    (void)state;
    if (!cards_simulated()) skip();
    static const char *const no[] = {
        "NABLA_CACHE_MIB=0 NABLA_SIM_FAIL=cudnnCreate:1+",
        "NABLA_CACHE_MIB=0 NABLA_SIM_FAIL=cudnnBackendFinalize:1+",
        "NABLA_CACHE_MIB=0 NABLA_SIM_FAIL=cudnnBackendCreateDescriptor:9+",
        "NABLA_SIM_CUDNN=90100"};
    for (size_t i = 0; i < sizeof no / sizeof *no; i++)
        with_library(by_library_refused, no[i]);
    with_library(forward_by_library, "NABLA_SIM_CUDNN=91400");
    with_library(forward_by_library, "NABLA_SIM_ARCH=80");
}

static void cudnn_that_fails_is_an_error(void **state)
{
    (void)state;
    if (!cards_simulated()) skip();
    with_library(by_library_failing, "NABLA_SIM_FAIL=cudnnBackendExecute:1+");
}

static void faults_with_cudnn_leave_nothing(void **state)
{
    (void)state;
    if (!cards_simulated()) skip();
    with_library(by_library_with_faults, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_are_fused),
        cmocka_unit_test(second_derivatives_keep_scores),
        cmocka_unit_test(recomputed_attention_is_fused),
        cmocka_unit_test(vmapped_attention_is_fused),
        cmocka_unit_test(layers_have_their_masks),
        cmocka_unit_test(faults_leave_nothing),
        cmocka_unit_test(kernels_are_right),
        cmocka_unit_test(cudnn_is_right),
        cmocka_unit_test(small_programs_do_without_cudnn),
        cmocka_unit_test(plans_of_cudnn_are_kept),
        cmocka_unit_test(nothing_is_under_way_once_a_program_is_made),
        cmocka_unit_test(a_batch_that_has_no_room_is_in_parts),
        cmocka_unit_test(what_cudnn_refuses_is_done_by_kernels),
        cmocka_unit_test(cudnn_that_fails_is_an_error),
        cmocka_unit_test(faults_with_cudnn_leave_nothing),
    };
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
