/* test_chain.c - attention and its like, in tiles: the same numbers as with
 * whole matrices of scores, on any number of threads, and none of their memory.
 */
#include "backend/cpu/llvm.h"
#include "base/memory.h"
#include "core/tensor.h"
#include "lower/passes.h"
#include "nabla/nabla.h"
#include "run/exec.h"
#include "support/check.h"
#include "support/there.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_Y = 8 };

/* Sizes of an attention: batch, heads of keys, heads of queries for each of
 * these, times of queries and keys, width. */
typedef struct shape {
    int64_t b, h, g, t, s, d;
} shape;

/* What masks the scores: nothing, a causal mask of booleans, or -inf added. */
typedef enum mask { NO_MASK, WHERE, ADDED } mask;

/* How a function was compiled and what it gave. */
typedef struct outcome {
    nb_tensor *y[MAX_Y];
    int ny;
    int64_t bytes;
    int chains;
} outcome;

static int count(const char *text, const char *part)
{
    int n = 0;
    for (; text && (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

/* A pass that is left out besides. */
static const char *without = "";

static bool compile(nb_func *f, int nx, nb_tensor *const *x, bool chained,
                    nb_executable **e)
{
    char names[64];
    snprintf(names, sizeof names, "%s,%s", chained ? "" : "chain", without);
    setenv("NABLA_DISABLE", names, 1);
    bool ok = nb_executable_new(f, nx, x, e) == NB_OK;
    unsetenv("NABLA_DISABLE");
    return ok;
}

static outcome run(nb_func *f, int nx, nb_tensor *const *x, bool chained)
{
    outcome o = {.ny = MAX_Y, .bytes = -1};
    nb_executable *e = NULL;
    bool ok = compile(f, nx, x, chained, &e) &&
              nb_executable_run(e, nx, x, &o.ny, o.y) == NB_OK;
    if (ok) {
        char *text = nb_executable_text(e, "plan");
        o.bytes = nb_executable_memory(e).temporaries;
        o.chains = count(text, "chain of steps");
        nb_text_release(text);
    }
    expect(ok, "compiled and run: %s", nb_error_message());
    nb_executable_drop(e);
    return o;
}

static bool same_bits(nb_tensor *x, nb_tensor *y)
{
    return nb_elements(x) == nb_elements(y) && near(x, y, 0);
}

/* Holds the function to what it is without chains; returns how it went. */
static outcome check(const char *what, nb_func *f, int nx, nb_tensor *const *x,
                     double tolerance)
{
    outcome whole = run(f, nx, x, false), tiled = run(f, nx, x, true);
    int threads = nb_threads();
    nb_set_threads(threads == 1 ? 2 : 1);
    outcome other = run(f, nx, x, true);
    nb_set_threads(threads);
    expect(!whole.chains, "%s: no chains where they are switched off", what);
    for (int i = 0; i < whole.ny; i++) {
        expect(near(tiled.y[i], whole.y[i], tolerance),
               "%s: result %d is the same in tiles", what, i);
        expect(same_bits(tiled.y[i], other.y[i]),
               "%s: result %d is the same on one thread and two", what, i);
    }
    return tiled;
}

static nb_tensor *numbers(nb_dtype d, int rank, const int64_t *size)
{
    return nb_cast(draw(rank, size, -1, 1), d);
}

static nb_tensor *causal(int64_t t, int64_t s, mask m)
{
    nb_tensor *row = nb_reshape(nb_iota(t, NB_I64), 2, (int64_t[]){t, 1});
    nb_tensor *col = nb_iota(s, NB_I64);
    nb_tensor *seen = nb_less_equal(col, row);
    if (m == WHERE) return seen;
    return nb_where(seen, nb_scalar_float(0, NB_F32),
                    nb_scalar_float(-INFINITY, NB_F32));
}

/* q (b h g t d), k and v (b h s d), mask. */
static nb_tensor *attend(nb_tensor *const *x, mask m, nb_tensor **p)
{
    nb_tensor *k = x[1], *v = x[2];
    int rank = nb_rank(x[0]);
    if (nb_rank(k) < rank) {
        k = nb_unsqueeze(k, -3);
        v = nb_unsqueeze(v, -3);
    }
    nb_tensor *s = nb_matmul(x[0], nb_swap_axes(k, -1, -2));
    s = nb_mul(s, nb_num(0.3));
    if (m == WHERE) s = nb_where(x[3], s, nb_num(-1e9));
    if (m == ADDED) s = nb_add(s, x[3]);
    *p = nb_softmax(s, -1);
    return nb_matmul(*p, v);
}

static nb_status attention(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    nb_tensor *p;
    (void)nx;
    y[0] = attend(x, *(mask *)ctx, &p);
    return *ny = 1, NB_OK;
}

static nb_status with_scores(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    (void)nx;
    y[0] = attend(x, *(mask *)ctx, &y[1]);
    return *ny = 2, NB_OK;
}

/* A loss that is not linear, so that all derivatives are there. */
static nb_status energy(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    nb_tensor *p;
    (void)nx;
    y[0] = nb_reduce_sum(nb_sin(attend(x, *(mask *)ctx, &p)), -1, NULL, false);
    return *ny = 1, NB_OK;
}

/* Arguments of an attention; how many. */
static int arguments(const shape *s, nb_dtype d, mask m, nb_tensor **x)
{
    int64_t q[] = {s->b, s->h, s->g, s->t, s->d};
    int64_t k[] = {s->b, s->h, s->s, s->d};
    if (s->g == 1) {
        q[2] = s->t;
        q[3] = s->d;
    }
    x[0] = numbers(d, s->g == 1 ? 4 : 5, q);
    x[1] = numbers(d, 4, k);
    x[2] = numbers(d, 4, k);
    if (m == NO_MASK) return 3;
    x[3] =
        m == WHERE ? causal(s->t, s->s, m) : nb_cast(causal(s->t, s->s, m), d);
    return 4;
}

/* Scores have a megabyte and more in each. */
static const struct {
    const char *name;
    shape s;
    mask m;
    nb_dtype d;
} every[] = {
    {"causal", {2, 4, 1, 192, 192, 32}, WHERE, NB_F32},
    {"added mask", {2, 4, 1, 192, 192, 32}, ADDED, NB_F32},
    {"no mask, float64", {2, 3, 1, 160, 160, 24}, NO_MASK, NB_F64},
    {"T = 37", {16, 16, 1, 37, 37, 8}, WHERE, NB_F32},
    {"T = 129", {4, 5, 1, 129, 129, 20}, WHERE, NB_F32},
    {"tiles that do not fill a row axis",
     {2, 2, 1, 301, 301, 16},
     WHERE,
     NB_F32},
    {"more keys than queries", {2, 4, 1, 70, 513, 16}, NO_MASK, NB_F32},
    {"queries of one time", {64, 64, 1, 1, 129, 8}, NO_MASK, NB_F32},
    {"keys of one time", {64, 64, 1, 129, 1, 8}, NO_MASK, NB_F32},
    {"grouped heads", {2, 2, 3, 150, 150, 16}, WHERE, NB_F32},
    {"one head", {1, 1, 1, 700, 700, 32}, WHERE, NB_F32},
};

static void forward(void)
{
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        nb_tensor *x[4];
        mask m = every[i].m;
        nb_scope_open();
        int nx = arguments(&every[i].s, every[i].d, m, x);
        outcome o =
            check(every[i].name, nb_func_new(attention, &m), nx, x, 1e-5);
        int64_t scores = every[i].s.s == 1 || every[i].s.t == 1 ? -1 : 0;
        expect(scores || o.chains == 1, "%s: one chain", every[i].name);
        expect(scores || o.bytes < 4 << 20, "%s: %lld bytes", every[i].name,
               (long long)o.bytes);
        nb_scope_close(0, NULL);
    }
}

static void gradients(void)
{
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        nb_tensor *x[4];
        mask m = every[i].m;
        nb_scope_open();
        int nx = arguments(&every[i].s, every[i].d, m, x);
        nb_func *f = nb_func_new(energy, &m);
        check(every[i].name, nb_grad(f, 3, (int[]){0, 1, 2}), nx, x, 2e-5);
        nb_scope_close(0, NULL);
    }
}

/* jvp, vjp, a gradient of a gradient, and a map over a batch. */
static nb_status slope(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    nb_func *f = nb_func_new(energy, ctx);
    nb_tensor *g[3];
    int n = 3;
    (void)nx;
    if (nb_func_call(nb_grad(f, 3, (int[]){0, 1, 2}), nx, x, &n, g) != NB_OK)
        return nb_error_code();
    y[0] = nb_reduce_sum(nb_mul(g[0], g[1]), -1, NULL, false);
    y[0] = nb_add(y[0], nb_reduce_sum(nb_sin(g[2]), -1, NULL, false));
    return *ny = 1, NB_OK;
}

static void transforms(void)
{
    mask m = NO_MASK;
    shape s = {3, 4, 1, 160, 160, 16};
    nb_tensor *x[8];
    nb_scope_open();
    arguments(&s, NB_F32, m, x);
    arguments(&s, NB_F32, m, x + 3);
    nb_func *f = nb_func_new(attention, &m);
    check("jvp", nb_jvp(f), 6, x, 1e-5);
    outcome o = check("vjp", nb_vjp(f, 3), 4, x, 1e-5);
    expect(o.chains > 0, "vjp: a chain");
    check("second order", nb_grad(nb_func_new(slope, &m), 3, (int[]){0, 1, 2}),
          3, x, 1e-4);
    o = check("vmap", nb_vmap(f, NULL), 3, x, 1e-5);
    expect(o.chains == 1, "vmap: one chain");
    nb_func *g = nb_grad(nb_func_new(energy, &m), 3, (int[]){0, 1, 2});
    check("vmap of grad", nb_vmap(g, NULL), 3, x, 2e-5);
    nb_scope_close(0, NULL);
}

/* Scores that somebody wants are stored; the rest need not be. */
static void scores_are_handed_out(void)
{
    mask m = WHERE;
    shape s = {2, 4, 1, 192, 192, 32};
    nb_tensor *x[4];
    nb_scope_open();
    int nx = arguments(&s, NB_F32, m, x);
    check("scores too", nb_func_new(with_scores, &m), nx, x, 1e-5);
    nb_scope_close(0, NULL);
}

/* Heads that are a view, as in a network: (b t h d) with h and t swapped. */
static nb_status heads(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    nb_tensor *in[4] = {0}, *p;
    for (int i = 0; i < 3; i++)
        in[i] = nb_swap_axes(x[i], 1, 2);
    in[3] = nx > 3 ? x[3] : NULL;
    nb_tensor *o = nb_swap_axes(attend(in, *(mask *)ctx, &p), 1, 2);
    int64_t flat[3] = {nb_size(o, 0), nb_size(o, 1), -1};
    y[0] = nb_tanh(nb_reshape(o, 3, flat));
    return *ny = 1, NB_OK;
}

static nb_status heads_energy(void *ctx, int nx, nb_tensor *const *x, int *ny,
                              nb_tensor **y)
{
    heads(ctx, nx, x, ny, y);
    y[0] = nb_reduce_sum(nb_mul(y[0], y[0]), -1, NULL, false);
    return *ny = 1, NB_OK;
}

static void heads_may_be_views(void)
{
    mask m = WHERE;
    int64_t size[] = {2, 150, 6, 16};
    nb_tensor *x[4];
    nb_scope_open();
    for (int i = 0; i < 3; i++)
        x[i] = numbers(NB_F32, 4, size);
    x[3] = causal(150, 150, m);
    outcome o = check("heads as views", nb_func_new(heads, &m), 4, x, 1e-5);
    expect(o.chains == 1, "heads as views: one chain");
    nb_func *g = nb_grad(nb_func_new(heads_energy, &m), 3, (int[]){0, 1, 2});
    o = check("gradient of heads as views", g, 4, x, 2e-5);
    expect(o.chains > 0, "gradient of heads as views: a chain");
    nb_scope_close(0, NULL);
}

/* Attentions, ctx of them, far from their backward pass: layers between, which
 * do not go row by row. */
static nb_status deep(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *in[3], *p, *h = x[0];
    (void)nx;
    for (int k = 0; k < *(int *)ctx; k++) {
        for (int i = 0; i < 3; i++)
            in[i] = nb_matmul(h, x[1 + i]);
        h = nb_add(h, attend(in, NO_MASK, &p));
    }
    for (int i = 0; i < 6; i++)
        h = nb_tanh(nb_sub(nb_matmul(h, x[1]), nb_mean(h, -1, NULL, false)));
    y[0] = nb_reduce_sum(nb_mul(h, h), -1, NULL, false);
    return *ny = 1, NB_OK;
}

static void scores_are_made_again(void)
{
    int64_t size[] = {2, 4, 256, 16}, weight[] = {16, 16};
    int64_t scores = 4 * 2 * 4 * 256 * 256;
    nb_tensor *x[4];
    nb_scope_open();
    x[0] = numbers(NB_F32, 4, size);
    for (int i = 1; i < 4; i++)
        x[i] = nb_mul(numbers(NB_F32, 2, weight), nb_num(0.5));
    int layers = 3;
    nb_func *f = nb_grad(nb_func_new(deep, &layers), 4, (int[]){0, 1, 2, 3});
    outcome o = check("three layers", f, 4, x, 1e-4);
    expect(o.chains >= 6, "three layers: %d chains", o.chains);
    layers = 1;
    f = nb_grad(nb_func_new(deep, &layers), 4, (int[]){0, 1, 2, 3});
    o = check("layers between", f, 4, x, 1e-4);
    expect(o.chains >= 2, "layers between: %d chains", o.chains);
    expect(o.bytes < 2 * scores, "layers between: %lld bytes",
           (long long)o.bytes);
    without = "recompute";
    int64_t kept = run(f, 4, x, true).bytes;
    without = "";
    expect(kept > o.bytes + scores, "scores that are kept: %lld bytes",
           (long long)kept);
    nb_scope_close(0, NULL);
}

/* Forward and backward without a score in memory. */
static void memory_shrinks(void)
{
    mask m = WHERE;
    shape s = {2, 8, 1, 256, 256, 32};
    int64_t scores = 4 * s.b * s.h * s.t * s.s;
    nb_tensor *x[4];
    nb_scope_open();
    int nx = arguments(&s, NB_F32, m, x);
    nb_func *f = nb_func_new(attention, &m);
    nb_func *g = nb_grad(nb_func_new(energy, &m), 3, (int[]){0, 1, 2});
    int64_t whole = run(f, nx, x, false).bytes,
            tiled = run(f, nx, x, true).bytes;
    expect(whole >= scores && tiled < scores / 4, "forward: %lld bytes, %lld",
           (long long)whole, (long long)tiled);
    whole = run(g, nx, x, false).bytes;
    tiled = run(g, nx, x, true).bytes;
    expect(whole >= 3 * scores && tiled < scores, "backward: %lld bytes, %lld",
           (long long)whole, (long long)tiled);
    nb_scope_close(0, NULL);
}

/* Other passes may be left out, and the numbers stay. */
static void passes_are_left_out(void)
{
    mask m = WHERE;
    shape s = {2, 4, 1, 192, 192, 16};
    nb_tensor *x[4];
    nb_scope_open();
    int nx = arguments(&s, NB_F32, m, x);
    nb_func *f = nb_grad(nb_func_new(energy, &m), 3, (int[]){0, 1, 2});
    for (const nb_pass *p = nb_passes; p->name; p++) {
        without = p->name;
        outcome o = check(p->name, f, nx, x, 2e-5);
        expect(o.chains || !strcmp(p->name, "chain") ||
                   !strcmp(p->name, "code"),
               "without %s: a chain", p->name);
    }
    without = "";
    nb_scope_close(0, NULL);
}

static void spoil_exp(nb_nest *x)
{
    for (int k = 0; k < x->n; k++)
        if (x->value[k].kind == NB_NEST_SCALAR &&
            x->value[k].scalar == NB_S_exp)
            x->value[k].scalar = NB_S_tanh;
}

/* Who compares code with its ops finds nothing in a chain, and what is wrong
 * where something is, though the values were only in tiles. */
static void chains_are_checked(void)
{
    mask m = WHERE;
    shape s = {2, 4, 1, 192, 192, 16};
    nb_tensor *x[4], *y[MAX_Y];
    nb_executable *good = NULL, *bad = NULL;
    int ny = MAX_Y;
    nb_scope_open();
    int nx = arguments(&s, NB_F32, m, x);
    nb_func *f = nb_grad(nb_func_new(energy, &m), 3, (int[]){0, 1, 2});
    bool ok = compile(f, nx, x, true, &good);
    nb_exec_spoil = spoil_exp;
    ok = ok && compile(f, nx, x, true, &bad);
    nb_exec_spoil = NULL;
    nb_check_set(true);
    expect(ok && nb_executable_run(good, nx, x, &ny, y) == NB_OK,
           "code in chains is what its ops are: %s", nb_error_message());
    ny = MAX_Y;
    FAILS("what is wrong in a chain is named",
          ok && nb_executable_run(bad, nx, x, &ny, y) == NB_OK, NB_ERUNTIME,
          "differs from its ops");
    nb_check_set(false);
    nb_executable_drop(good), nb_executable_drop(bad);
    nb_scope_close(0, NULL);
}

/* A result is not written over an argument that later tiles read. */
static void arguments_are_donated(void)
{
    mask m = NO_MASK;
    shape s = {2, 8, 1, 192, 192, 32};
    nb_tensor *x[3], *y[MAX_Y], *want;
    nb_executable *e = NULL;
    int ny = MAX_Y;
    nb_scope_open();
    arguments(&s, NB_F32, m, x);
    nb_func *f = nb_func_new(attention, &m);
    want = run(f, 3, x, false).y[0];
    bool ok = compile(f, 3, x, true, &e) &&
              nb_executable_donate(e, 3, (int[]){0, 1, 2}) == NB_OK &&
              nb_executable_run(e, 3, x, &ny, y) == NB_OK;
    expect(ok && near(y[0], want, 1e-5), "arguments that are donated");
    nb_executable_drop(e);
    nb_scope_close(0, NULL);
}

/* Whichever allocation fails: an error, and nothing is left behind. */
static void memory_runs_out(void)
{
    mask m = WHERE;
    shape s = {2, 4, 1, 192, 192, 8};
    int failed = 0;
    bool done = false;
    nb_tensor *x[4];
    nb_scope_open();
    int nx = arguments(&s, NB_F32, m, x);
    nb_func *f = nb_grad(nb_func_new(energy, &m), 3, (int[]){0, 1, 2});
    nb_realize_all(nx, x);
    for (int n = 1; !done && n < 20000; n += n < 400 ? 1 : 7) {
        nb_executable *e = NULL;
        nb_tensor *y[MAX_Y];
        int ny = MAX_Y;
        int64_t live = nb_memory_live();
        nb_scope_open();
        nb_fault_set(n);
        bool ok = nb_executable_new(f, nx, x, &e) == NB_OK &&
                  nb_executable_run(e, nx, x, &ny, y) == NB_OK;
        done = nb_fault_is_set();
        nb_fault_set(0);
        bool told = ok || nb_error_code() == NB_EMEMORY;
        failed += !ok;
        nb_error_clear();
        nb_executable_drop(e);
        nb_scope_close(0, NULL);
        expect(told && nb_memory_live() == live,
               "nothing is left of fault %d: %lld", n,
               (long long)(nb_memory_live() - live));
    }
    expect(failed > 20 && done, "%d faults", failed);
    nb_scope_close(0, NULL);
}

int main(void)
{
    there_open();
    unsetenv("NABLA_DISABLE");
    unsetenv("NABLA_DUMP");
    if (!nb_llvm_there()) return 0;
    forward();
    gradients();
    transforms();
    scores_are_handed_out();
    heads_may_be_views();
    scores_are_made_again();
    memory_shrinks();
    passes_are_left_out();
    chains_are_checked();
    arguments_are_donated();
    memory_runs_out();
    return tally();
}
