/* test_compile.c - compiled code computes what the reference does.
 *
 * Every op of the catalogue, alone and under transforms, is compiled as one
 * program and compared with its ops run one by one; and again with its real
 * inputs in each other dtype.  Then the parts: what fuses, what is kept in
 * memory, what the cache counts, what is refused. */
#include "support/faults.h"
#include "support/there.h"
#include "support/words.h"

#include "backend/cpu/llvm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void compare(const trial *x)
{
    const task *t = x->t;
    nb_tensor *want[MAX_ARGS], *got[MAX_ARGS];
    int n = MAX_ARGS, m = MAX_ARGS;
    nb_func *f = nb_compile(t->fn, NULL);
    if (!expect(nb_func_call(t->fn, t->nin, t->x, &n, want) == NB_OK,
                "%s%s runs", x->how, x->op->name))
        return;
    bool ok = nb_func_call(f, t->nin, t->x, &m, got) == NB_OK && m == n;
    for (int k = 0; ok && k < n; k++)
        ok = near(got[k], want[k], x->tolerance);
    expect(ok, "%s%s compiled", x->how, x->op->name);
}

/* What the cache counts, and what is refused. */

static bool refused(bool failed, nb_status code)
{
    failed = failed && nb_error_code() == code;
    nb_error_clear();
    return failed;
}

static nb_tensor *ramp(int64_t n)
{
    float v[64];
    for (int i = 0; i < 64; i++)
        v[i] = (float)(i % 7) - 2;
    return given(NB_F32, 1, &n, v);
}

static nb_status wave(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_add(nb_mul(nb_sin(x[0]), x[0]), nb_num(1));
    return *ny = 1, NB_OK;
}

static bool counted(nb_func *f, int hits, int misses, int fallbacks, int size)
{
    nb_compile_stats s;
    return nb_compile_stats_of(f, &s) == NB_OK && s.hits == hits &&
           s.misses == misses && s.fallbacks == fallbacks &&
           s.cache_size == size;
}

static bool call_is(nb_func *f, nb_func *like, nb_tensor *x)
{
    return near(nb_func_call1(f, 1, &x), nb_func_call1(like, 1, &x), 1e-5);
}

static void calls_are_counted(void)
{
    nb_func *f = nb_func_new(wave, NULL);
    nb_func *c = nb_compile(f, &(nb_compile_options){.max_cache_size = 2});
    nb_compile_stats s;
    expect(call_is(c, f, ramp(3)) && counted(c, 0, 1, 0, 1), "a miss");
    expect(call_is(c, f, ramp(3)) && counted(c, 1, 1, 0, 1), "a hit");
    expect(call_is(c, f, ramp(4)) && counted(c, 1, 2, 0, 2), "another size");
    expect(call_is(c, f, nb_cast(ramp(4), NB_F64)) && counted(c, 1, 3, 0, 2),
           "another dtype, and the least recently used goes");
    expect(call_is(c, f, ramp(4)) && counted(c, 2, 3, 0, 2), "one that stayed");
    expect(call_is(c, f, ramp(3)) && counted(c, 2, 4, 0, 2), "one that went");
    expect(nb_compile_clear(c) == NB_OK && counted(c, 2, 4, 0, 0), "clear");
    expect(call_is(c, f, ramp(3)) && counted(c, 2, 5, 0, 1), "made again");
    nb_caches_clear();
    expect(counted(c, 2, 5, 0, 0), "all caches are cleared");
    expect(refused(nb_compile_stats_of(f, &s) != NB_OK, NB_EVALUE),
           "f is not compiled");
    nb_compile_options none = {.max_cache_size = -1};
    expect(refused(!nb_compile(f, &none), NB_EVALUE), "a cache of no size");
}

/* Twice x, if its first element is positive. */
static nb_status looks(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    (void)ctx, (void)nx;
    double v = nb_item(nb_reduce_sum(x[0], -1, NULL, false));
    if (nb_error_code()) return nb_error_code();
    y[0] = v > 0 ? nb_mul(x[0], nb_num(2)) : x[0];
    return *ny = 1, NB_OK;
}

static void values_that_are_asked_for_fall_back(void)
{
    nb_func *f = nb_func_new(looks, NULL), *c = nb_compile(f, NULL);
    nb_executable *e = NULL;
    nb_tensor *x = ramp(7), *y = nb_neg(x);
    expect(refused(nb_executable_new(f, 1, &x, &e) != NB_OK, NB_ERUNTIME) &&
               nb_value_asked(),
           "an executable is refused");
    expect(call_is(c, f, x) && call_is(c, f, y) && counted(c, 0, 0, 2, 1),
           "each call falls back");
    expect(!nb_error_code(), "and leaves no error");
    expect(nb_executable_new(nb_func_new(wave, NULL), 1, &x, &e) == NB_OK &&
               !nb_value_asked(),
           "the next one is not");
    nb_executable_drop(e);
}

static nb_status inner(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    nb_tensor *twice = nb_mul(x[0], nb_num(2));
    (void)nx;
    return nb_func_call(ctx, 1, &twice, ny, y);
}

static nb_status add_up(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    nb_tensor *twice = nb_mul(x[1], nb_num(2));
    (void)nx, (void)ny;
    y[0] = nb_add(x[0], nb_func_call1(ctx, 1, &twice));
    return *ny = 1, NB_OK;
}

static void within_others_it_is_the_function(void)
{
    nb_func *f = nb_func_new(wave, NULL), *c = nb_compile(f, NULL);
    nb_func *around = nb_func_new(inner, c), *same = nb_func_new(inner, f);
    nb_tensor *x = ramp(7), *y[2], *z[2], *zero = nb_num(0);
    int ny = 2;
    expect(call_is(nb_compile(around, NULL), same, x), "compile in compile");
    expect(call_is(nb_grad(around, 1, (int[]){0}), nb_grad(same, 1, (int[]){0}),
                   x),
           "compile in grad");
    zero = nb_cast(zero, NB_F32);
    expect(nb_scan(nb_func_new(add_up, c), 1, &zero, 1, &x, 7, false, &ny, y) ==
                   NB_OK &&
               nb_scan(nb_func_new(add_up, f), 1, &zero, 1, &x, 7, false, &ny,
                       z) == NB_OK &&
               near(y[0], z[0], 1e-5),
           "compile in scan");
    expect(counted(c, 0, 0, 0, 0), "it was not compiled by itself");
}

static nb_status noise(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_add(x[0], nb_random_uniform(nb_next_key(), 1, (int64_t[]){7}, 0,
                                          1, NB_F32));
    return *ny = 1, NB_OK;
}

static void keys_are_drawn_on_each_run(void)
{
    nb_func *c = nb_compile(nb_func_new(noise, NULL), NULL);
    nb_tensor *x = ramp(7), *first = nb_func_call1(c, 1, &x);
    nb_tensor *second = nb_func_call1(c, 1, &x);
    expect(first && second && !near(first, second, 1e-3), "noise is fresh");
    expect(counted(c, 1, 1, 0, 1), "from one executable");
}

/* (a b) -> cos(sin(a) b) b: a is free when the result is written. */
static nb_status products(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_matmul(nb_cos(nb_matmul(nb_sin(x[0]), x[1])), x[1]);
    return *ny = 1, NB_OK;
}

static void donated_memory_is_taken(void)
{
    float v[64];
    for (int i = 0; i < 64; i++)
        v[i] = (float)(i % 5) * 0.1f;
    int64_t size[] = {8, 8};
    nb_func *f = nb_func_new(products, NULL);
    nb_tensor *x[] = {given(NB_F32, 2, size, v), given(NB_F32, 2, size, v)};
    nb_tensor *want = nb_func_call1(f, 2, x), *y, *held = x[0];
    nb_executable *e = NULL;
    int ny = 1;
    expect(nb_realize(want) == NB_OK &&
               nb_executable_new(f, 2, x, &e) == NB_OK &&
               nb_executable_donate(e, 1, (int[]){0}) == NB_OK,
           "an executable that takes its first argument");
    expect(nb_executable_memory(e).donated == 256, "its memory is one block");
    nb_keep(held);
    ny = 1;
    expect(nb_executable_run(e, 2, x, &ny, &y) == NB_OK &&
               near(y, want, 1e-5) && nb_is_realized(held),
           "not while somebody holds it");
    nb_drop(held);
    const void *data = nb_device_data(x[0], NULL);
    ny = 1;
    expect(nb_executable_run(e, 2, x, &ny, &y) == NB_OK &&
               near(y, want, 1e-5) && nb_device_data(y, NULL) == data,
           "the result lies where the argument was");
    expect(refused(!nb_sin(x[0]), NB_ERUNTIME), "which is gone");
    expect(refused(nb_realize(x[0]) != NB_OK, NB_ERUNTIME), "with its value");
    expect(refused(nb_executable_donate(e, 1, (int[]){2}) != NB_OK, NB_EVALUE),
           "there is no third argument");
    nb_executable_drop(e);
}

enum { WIDE = 1 << 21 };

static nb_status vast(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    int64_t size[] = {WIDE, WIDE};
    nb_tensor *all = nb_mul(nb_broadcast_to(x[0], 2, size), nb_num(2));
    (void)nx;
    y[0] = ctx ? nb_reduce_sum(nb_sort(all, 0, false, true), -1, NULL, false)
               : all;
    return *ny = 1, NB_OK;
}

static void what_is_too_large_fails_before_it_runs(void)
{
    for (int inside = 0; inside < 2; inside++) {
        nb_func *f = nb_func_new(vast, inside ? &inside : NULL);
        nb_tensor *x = nb_ones(1, (int64_t[]){WIDE}, NB_F32), *y;
        nb_executable *e = NULL;
        int ny = 1;
        expect(nb_executable_new(f, 1, &x, &e) == NB_OK, "it can be compiled");
        bool failed = nb_executable_run(e, 1, &x, &ny, &y) != NB_OK;
        bool said = strstr(nb_error_message(), "the largest:") &&
                    strstr(nb_error_message(),
                           "mul(2097152, 2097152) of 17592186044416 bytes");
        expect(refused(failed, NB_EMEMORY) && said, "inside %d", inside);
        nb_executable_drop(e);
    }
}

static int64_t code_asked_for(void)
{
    nb_cache_stats s = nb_cache_stats_get();
    return s.hits + s.disk_hits + s.misses;
}

/* Where no pass is left out: without code there is none to make. */
static void code_is_made_when_it_is_needed(void)
{
    if (getenv("NABLA_DISABLE")) return;
    nb_func *f = nb_func_new(wave, NULL);
    nb_tensor *x = ramp(7), *want = nb_func_call1(f, 1, &x), *y;
    nb_executable *e[2] = {NULL};
    int ny = 1, loops;
    int64_t before = code_asked_for();
    for (int i = 0; i < 2; i++)
        expect(nb_executable_lower(f, 1, &x, 0, NULL, &e[i]) == NB_OK,
               "lowered");
    char *plan = nb_executable_text(e[0], "plan");
    expect(plan && nb_executable_steps(e[0], &loops) >= 1 && loops >= 1 &&
               nb_executable_memory(e[0]).results == 28 &&
               !*nb_executable_trouble(e[0]),
           "all is known of it");
    nb_text_release(plan);
    expect(code_asked_for() == before, "but there is no code");
    expect(nb_executable_load(e[0]) == NB_OK && code_asked_for() == before + 1,
           "there is now");
    for (int i = 0; i < 2; i++) {
        before = code_asked_for();
        expect(nb_executable_run(e[i], 1, &x, &ny, &y) == NB_OK &&
                   code_asked_for() == before + i,
               i ? "or is made by the first run" : "and it runs");
        expect(near(y, want, 1e-5), "which is right");
        nb_executable_drop(e[i]);
    }
}

/* Keys, and copies of arguments whose elements do not lie in order, do not
 * outlive the call. */
static void calls_lend_their_results_alone(void)
{
    nb_func *c = nb_compile(nb_func_new(noise, NULL), NULL);
    nb_tensor *x =
        nb_slice(ramp(14), (int64_t[]){0}, (int64_t[]){7}, (int64_t[]){2});
    expect(nb_realize(x) == NB_OK && nb_func_call1(c, 1, &x), "noise runs");
    int64_t before = nb_nodes_live();
    for (int i = 0; i < 10; i++)
        nb_func_call1(c, 1, &x);
    expect(nb_nodes_live() == before + 10, "ten calls lend ten tensors");
}

/* A small result is one piece of memory with its data, which others share. */
static void results_may_go_before_their_views(void)
{
    nb_func *f = nb_func_new(wave, NULL), *c = nb_compile(f, NULL);
    nb_tensor *x = ramp(7), *want = nb_func_call1(f, 1, &x), *view;
    nb_realize(want);
    nb_scope_open();
    view = nb_detach(nb_func_call1(c, 1, &x));
    nb_scope_close(1, &view);
    nb_scope_open();
    for (int i = 0; i < 4; i++)
        nb_func_call1(c, 1, &x);
    expect(near(view, want, 1e-5), "a view has what its tensor had");
    nb_scope_close(0, NULL);
}

typedef struct twice {
    nb_func *f, *compiled;
    nb_tensor *x;
} twice;

static bool called_twice(void *ctx)
{
    twice *t = ctx;
    t->compiled = nb_compile(t->f, NULL);
    return t->compiled && nb_func_call1(t->compiled, 1, &t->x) &&
           nb_func_call1(t->compiled, 1, &t->x);
}

static bool called_again(void *ctx)
{
    const twice *t = ctx;
    return !t->compiled || call_is(t->compiled, t->f, t->x);
}

static void calls_survive_faults(void)
{
    nb_scope_open();
    twice t = {.f = nb_func_new(wave, NULL), .x = ramp(5)};
    faults f = {called_twice, &t, .holds = called_again, .keeps = true};
    expect(faults_survived(&f),
           "a failed allocation fails the call, not the next");
    nb_scope_close(0, NULL);
}

static void sentences(void)
{
    void (*const all[])(void) = {calls_are_counted,
                                 values_that_are_asked_for_fall_back,
                                 within_others_it_is_the_function,
                                 keys_are_drawn_on_each_run,
                                 donated_memory_is_taken,
                                 code_is_made_when_it_is_needed,
                                 what_is_too_large_fails_before_it_runs,
                                 calls_lend_their_results_alone,
                                 results_may_go_before_their_views,
                                 calls_survive_faults};
    none_leaks(sizeof all / sizeof all[0], all);
}

int main(int argc, char **argv)
{
    there_open();
    if (!nb_llvm_there()) return printf("no LLVM here\n"), 77;
    nb_op *op;
    for (int i = 0; (op = nb_op_at(i)); i++) {
        if (argc > 1 && strcmp(argv[1], op->name)) continue;
        words_usual(op, compare);
        words_dtypes(op, NULL, compare);
    }
    if (there_leads()) sentences();
    return tally();
}
