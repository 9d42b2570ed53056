/* test_conv_card.c - convolutions on a card: every way to compute them gives
 * what the CPU does, with gradients, and the same bits each time.
 *
 * A case is a convolution of numbers that 16 bits hold, a loss of it, its
 * gradients in x and filter, and those of their squares; what is right is
 * computed in float64 on the CPU.  A name, or part of one with *, as argument:
 * those tests alone. */
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

typedef struct program {
    const char *says;
    nb_dtype dtype;
    int rank;
    int64_t x[5], filter[5];
    nb_conv how;
    bool transposed, once; /* once: no derivative of derivatives */
    int lanes;             /* mapped over x, over both if 2, 3 the filter */
    int dnn; /* of y and both gradients, so many are made by cuDNN */
} program;

static const program programs[] = {
    {"3 x 3 of halves, channels in vectors",
     NB_F16,
     2,
     {2, 9, 7, 16},
     {3, 3, 16, 24},
     .how = {.padding = {{1, 1}, {1, 1}}},
     .dnn = 3},
    {"of bfloat16, a stride",
     NB_BF16,
     2,
     {2, 11, 9, 16},
     {3, 3, 16, 16},
     .how = {.stride = {2, 2}, .padding = {{1, 1}, {1, 1}}},
     .dnn = 3},
    {"channels that no vector fits",
     NB_F16,
     2,
     {2, 8, 9, 3},
     {5, 3, 3, 17},
     .how = {.stride = {2, 1}, .padding = {{2, 1}, {0, 1}}},
     .dnn = 3},
    {"more images than a tile has rows, many channels",
     NB_BF16,
     2,
     {72, 3, 3, 8},
     {2, 2, 8, 72},
     .once = true,
     .dnn = 3},
    {"one tap", NB_F16, 2, {3, 6, 5, 32}, {1, 1, 32, 40}, .dnn = 3},
    {"groups",
     NB_F16,
     2,
     {2, 6, 6, 48},
     {3, 3, 16, 48},
     .how = {.padding = {{1, 1}, {1, 1}}, .groups = 3},
     .dnn = 3},
    {"float32, dilated",
     NB_F32,
     2,
     {2, 12, 9, 12},
     {3, 3, 12, 20},
     .how = {.dilation = {2, 3}, .padding = {{2, 1}, {3, 4}}},
     .dnn = 3},
    {"float32 in vectors, stride and dilation",
     NB_F32,
     2,
     {3, 13, 11, 16},
     {3, 2, 16, 68},
     .how = {.stride = {3, 2}, .dilation = {2, 1}},
     .once = true,
     .dnn = 3},
    {"float64",
     NB_F64,
     2,
     {2, 6, 7, 6},
     {3, 3, 6, 18},
     .how = {.stride = {2, 1}, .padding = {{1, 1}, {2, 0}}}},
    {"a channel to a group",
     NB_F32,
     2,
     {2, 9, 8, 20},
     {3, 3, 1, 20},
     .how = {.stride = {2, 1}, .padding = {{1, 1}, {1, 1}}, .groups = 20},
     .dnn = 2},
    {"a channel to a group, of halves",
     NB_BF16,
     2,
     {3, 7, 8, 16},
     {3, 3, 1, 32},
     .how = {.padding = {{1, 1}, {1, 1}}, .groups = 16},
     .dnn = 2},
    {"one line",
     NB_F32,
     1,
     {4, 40, 16},
     {5, 16, 16},
     .how = {.padding = {{4, 0}}},
     .dnn = 3},
    {"one line of halves",
     NB_F16,
     1,
     {2, 37, 8},
     {4, 8, 24},
     .how = {.stride = {3}, .padding = {{2, 5}}},
     .dnn = 3},
    {"three lines",
     NB_F16,
     3,
     {2, 5, 4, 6, 8},
     {2, 3, 3, 8, 16},
     .how = {.stride = {1, 2, 1}, .padding = {{1, 0}, {1, 1}, {0, 2}}},
     .dnn = 3},
    {"three lines of float32",
     NB_F32,
     3,
     {2, 4, 5, 4, 5},
     {3, 1, 2, 5, 16},
     .how = {.dilation = {1, 1, 2}, .padding = {{1, 1}, {0, 0}, {1, 1}}},
     .dnn = 3},
    {"transposed",
     NB_F16,
     2,
     {2, 5, 4, 16},
     {3, 3, 24, 16},
     .how = {.stride = {2, 2},
             .padding = {{1, 1}, {1, 0}},
             .output_padding = {1, 0}},
     .transposed = true,
     .dnn = 2},
    {"transposed, stride and dilation",
     NB_F32,
     2,
     {2, 5, 4, 16},
     {3, 2, 16, 16},
     .how = {.stride = {3, 2}, .dilation = {2, 3}},
     .transposed = true,
     .once = true,
     .dnn = 2},
    {"transposed in groups",
     NB_BF16,
     1,
     {3, 9, 32},
     {4, 16, 32},
     .how = {.stride = {2}, .padding = {{1, 2}}, .groups = 2},
     .transposed = true,
     .dnn = 3},
    {"small, of everything a little",
     NB_F32,
     2,
     {1, 3, 3, 2},
     {2, 2, 2, 3},
     .how = {.padding = {{1, 0}, {0, 1}}},
     .dnn = 3},
    {"lanes of images",
     NB_F16,
     2,
     {3, 2, 6, 5, 8},
     {3, 3, 8, 16},
     .how = {.padding = {{1, 1}, {1, 1}}},
     .lanes = 1,
     .dnn = 2},
    {"lanes of images and filters",
     NB_F32,
     2,
     {3, 2, 6, 5, 8},
     {3, 3, 3, 8, 16},
     .how = {.stride = {2, 1}},
     .lanes = 2,
     .once = true},
    {"lanes of filters",
     NB_F16,
     2,
     {4, 6, 5, 8},
     {3, 3, 3, 8, 16},
     .how = {.padding = {{1, 1}, {1, 1}}},
     .lanes = 3,
     .once = true},
    {"transposed, more places between than taps",
     NB_F32,
     2,
     {2, 5, 4, 16},
     {2, 1, 16, 16},
     .how = {.stride = {3, 2}},
     .transposed = true,
     .once = true,
     .dnn = 2},
};
enum { PROGRAMS = sizeof programs / sizeof *programs, RESULTS = 8 };

static nb_tensor *convolved(const program *p, nb_tensor *x, nb_tensor *f)
{
    switch (p->rank) {
    case 1:
        return p->transposed ? nb_conv1d_transpose(x, f, &p->how)
                             : nb_conv1d(x, f, &p->how);
    case 2:
        return p->transposed ? nb_conv2d_transpose(x, f, &p->how)
                             : nb_conv2d(x, f, &p->how);
    default:
        return p->transposed ? nb_conv3d_transpose(x, f, &p->how)
                             : nb_conv3d(x, f, &p->how);
    }
}

static nb_status body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)nx;
    y[0] = convolved(ctx, x[0], x[1]);
    *ny = 1;
    return y[0] ? NB_OK : nb_error_code();
}

static nb_tensor *mapped(const program *p, nb_tensor *x, nb_tensor *f)
{
    const int axes[] = {p->lanes < 3 ? 0 : NB_UNMAPPED,
                        p->lanes > 1 ? 0 : NB_UNMAPPED};
    nb_vmap_options over = {.nin = 2, .in_axes = axes};
    if (!p->lanes) return convolved(p, x, f);
    nb_func *g = nb_vmap(nb_func_new(body, (void *)p), &over);
    nb_tensor *y = NULL;
    int ny = 1;
    need(nb_func_call(g, 2, (nb_tensor *[]){x, f}, &ny, &y) == NB_OK);
    return y;
}

/* The sum of y times what differs from place to place, and with y a little; so
 * y itself, of the dtype. */
static nb_status loss(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    const program *p = ctx;
    nb_dtype d = p->dtype == NB_F64 ? NB_F64 : NB_F32;
    (void)nx;
    nb_tensor *all =
        mapped(p, nb_cast(x[0], p->dtype), nb_cast(x[1], p->dtype));
    if (!all) return nb_error_code();
    nb_tensor *flat = nb_reshape(nb_cast(all, d), 1, (int64_t[]){-1});
    nb_tensor *by = nb_sin(nb_cast(nb_iota(nb_size(flat, 0), NB_I64), d));
    by = nb_mul(by, nb_cos(nb_mul(flat, nb_num(0.1))));
    y[0] = nb_reduce_sum(nb_mul(flat, by), -1, NULL, false);
    y[1] = all;
    *ny = 2;
    return NB_OK;
}

/* Half the squares of the gradients, which are differentiated again. */
static nb_status squares(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    nb_tensor *g[2];
    int n = 2;
    nb_func *df = nb_grad(nb_func_new(loss, ctx), 2, (int[]){0, 1});
    nb_status ok = nb_func_call(df, nx, x, &n, g);
    if (ok != NB_OK) return ok;
    y[0] = nb_num(0);
    for (int i = 0; i < 2; i++)
        y[0] = nb_add(y[0], nb_mean(nb_mul(g[i], g[i]), -1, NULL, false));
    *ny = 1;
    return NB_OK;
}

static nb_tensor *numbers(int64_t seed, const int64_t *size)
{
    int rank = 0;
    while (rank < 5 && size[rank])
        rank++;
    nb_tensor *x =
        nb_random_normal(nb_random_key(seed), rank, size, 0, 1, NB_F32);
    return nb_cast(nb_cast(x, NB_BF16), NB_F32);
}

/* y, gradients and, unless once, those of their squares, on a device. */
static int run(const program *p, nb_dtype d, int device, nb_tensor **y)
{
    program q = *p;
    q.dtype = d;
    nb_default_device_set(0);
    nb_tensor *x[2] = {numbers(1, p->x), numbers(2, p->filter)};
    need(nb_realize_all(2, x) == NB_OK);
    for (int i = 0; i < 2; i++)
        x[i] = nb_to_device(d == NB_F64 ? nb_cast(x[i], d) : x[i], device);
    nb_default_device_set(device);
    int n = 4, m = 2;
    nb_func *f = nb_value_and_grad(nb_func_new(loss, &q), 2, (int[]){0, 1});
    need(nb_func_call(f, 2, x, &n, y) == NB_OK);
    nb_func *s = nb_grad(nb_func_new(squares, &q), 2, (int[]){0, 1});
    if (!p->once) {
        need(nb_func_call(s, 2, x, &m, y + n) == NB_OK);
        n += m;
    }
    need(nb_realize_all(n, y) == NB_OK);
    nb_default_device_set(0);
    return n;
}

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
    return most;
}

/* Of the largest number, or of 1. */
static double bound(nb_dtype d)
{
    return d == NB_F64 ? 1e-10 : d == NB_F32 ? 2e-5 : d == NB_F16 ? 0.01 : 0.05;
}

static bool near(const program *p, int i, nb_tensor *got, nb_tensor *right)
{
    int64_t n = nb_elements(right);
    double *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * 8);
    need(nb_elements(got) == n && nb_read(got, NB_F64, a) == NB_OK &&
         nb_read(right, NB_F64, b) == NB_OK);
    double most = fmax(largest(b, n), 1) * bound(p->dtype);
    bool ok = true;
    for (int64_t k = 0; k < n; k++) {
        a[k] -= b[k];
        ok = ok && fabs(a[k]) <= most;
    }
    if (!ok)
        fprintf(stderr, "%s, result %d: off by %g of %g\n", p->says, i,
                largest(a, n), most);
    free(a), free(b);
    return ok;
}

static bool is_right(const program *p)
{
    nb_tensor *got[RESULTS], *right[RESULTS];
    bool ok = true;
    need(nb_scope_open() == NB_OK);
    int n = run(p, NB_F64, 0, right);
    need(run(p, p->dtype, 1, got) == n);
    for (int k = 0; k < n; k++)
        ok = near(p, k, got[k], right[k]) && ok;
    nb_scope_close(0, NULL);
    return ok;
}

/* And nothing is computed by the CPU. */
static void check(int first, int after)
{
    bool ok = true;
    char last[64];
    nb_card *card = cards_first();
    for (int i = first; i < after; i++)
        ok = is_right(&programs[i]) && ok;
    need(ok && nb_card_elsewhere(card, last) == 0);
}

static void check_all(void)
{
    check(0, PROGRAMS);
}

/* In memory that nobody has used before. */
CARD_TEST(places_that_no_tap_reaches_are_zero, "NABLA_CUDNN=none")
{
    check(PROGRAMS - 1, PROGRAMS);
}

static bool is_same(nb_tensor *a, nb_tensor *b)
{
    int64_t n = nb_elements(a);
    double *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * 8);
    need(nb_read(a, NB_F64, x) == NB_OK && nb_read(b, NB_F64, y) == NB_OK);
    bool same = !memcmp(x, y, (size_t)n * sizeof *x);
    free(x), free(y);
    return same;
}

static void repeat_all(void)
{
    cards_first();
    for (int i = 0; i < PROGRAMS; i += 6) {
        nb_tensor *first[RESULTS], *again[RESULTS];
        need(nb_scope_open() == NB_OK);
        int n = run(&programs[i], programs[i].dtype, 1, first);
        for (int r = 0; r < 2; r++) {
            run(&programs[i], programs[i].dtype, 1, again);
            for (int k = 0; k < n; k++)
                need(is_same(first[k], again[k]));
        }
        nb_scope_close(0, NULL);
    }
}

/* By cuDNN */

/* Runs of the library; 0 on a card that is none of ours. */
static int64_t library_runs(void)
{
    return cards_count("cudnnBackendExecute");
}

static void count_all(void)
{
    bool ok = true;
    cards_first();
    for (int i = 0; i < PROGRAMS; i++) {
        program p = programs[i];
        nb_tensor *y[RESULTS];
        p.once = true;
        need(nb_scope_open() == NB_OK);
        run(&p, p.dtype, 1, y); /* plans are tried */
        int64_t before = library_runs();
        run(&p, p.dtype, 1, y);
        int64_t n = library_runs() - before;
        if (n != p.dnn) {
            fprintf(stderr, "%s: cuDNN %d times\n", p.says, (int)n);
            ok = false;
        }
        nb_scope_close(0, NULL);
    }
    need(ok);
}

static void do_without(void)
{
    const program *p = &programs[0];
    nb_tensor *got[RESULTS], *right[RESULTS];
    cards_first();
    need(nb_scope_open() == NB_OK);
    int n = run(p, NB_F64, 0, right);
    need(run(p, p->dtype, 1, got) == n && library_runs() == 0);
    for (int k = 0; k < n; k++)
        need(near(p, k, got[k], right[k]));
    nb_scope_close(0, NULL);
}

/* y and its gradients. */
typedef struct compiling {
    nb_func *f;
    nb_tensor *x[2];
} compiling;

static bool compiles(void *ctx)
{
    const compiling *c = ctx;
    nb_executable *e = NULL;
    bool ok = nb_executable_new(c->f, 2, c->x, &e) == NB_OK;
    nb_executable_drop(ok ? e : NULL);
    return ok;
}

/* Memory that runs out meanwhile leaves nothing behind. */
static void fail_some(void)
{
    program p = programs[0];
    compiling c = {.x = {numbers(1, p.x), numbers(2, p.filter)}};
    nb_tensor *y[RESULTS];
    cards_first();
    run(&p, p.dtype, 1, y);
    nb_default_device_set(1);
    for (int i = 0; i < 2; i++)
        c.x[i] = nb_to_device(c.x[i], 1);
    need(nb_realize_all(2, c.x) == NB_OK);
    c.f = nb_value_and_grad(nb_func_new(loss, &p), 2, (int[]){0, 1});
    faults f = {.run = compiles, .ctx = &c, .sparse = 16};
    need(faults_survived(&f) && f.failed > 5);
    nb_default_device_set(0);
}

static void faults_leave_nothing(void)
{
    need(nb_scope_open() == NB_OK);
    fail_some();
    nb_scope_close(0, NULL);
}

static void own_kernels_are_right(void **state)
{
    (void)state;
    cards_alone(check_all, "NABLA_CUDNN=none");
}

static void own_kernels_repeat(void **state)
{
    (void)state;
    cards_alone(repeat_all, "NABLA_CUDNN=none");
}

static void with_library(void (*what)(void), const char *more)
{
    cards_alone(what, "%s NABLA_TUNE=all %s", cards_dnn(), more);
}

static void cudnn_is_right(void **state)
{
    (void)state;
    with_library(check_all, "");
}

static void cudnn_makes_what_it_takes(void **state)
{
    (void)state;
    if (!cards_simulated()) skip();
    with_library(count_all, "");
}

/* Of tensors of more than two MiB both ends are looked at. */
static const program large = {
    "more than is looked at", NB_F32,       2,
    {1, 520, 520, 2},         {1, 1, 2, 2}, .once = true};

static void check_some(void)
{
    check(0, 8);
    need(is_right(&large));
}

static void plans_that_give_something_else_are_left_out(void **state)
{
    (void)state;
    if (!cards_simulated()) skip();
    with_library(check_some,
                 "NABLA_SIM_CUDNN_PROPOSALS=4 NABLA_SIM_CUDNN_IDLE=3");
}

static void cudnn_repeats(void **state)
{
    (void)state;
    with_library(repeat_all, "");
}

static void small_ones_do_without_cudnn(void **state)
{
    (void)state;
    if (!cards_simulated()) skip();
    cards_alone(do_without, "%s", cards_dnn());
}

static void what_cudnn_refuses_is_done_by_kernels(void **state)
{
    (void)state;
    if (!cards_simulated()) skip();
    with_library(do_without, "NABLA_CACHE_MIB=0 NABLA_SIM_FAIL=cudnnCreate:1+");
    with_library(do_without,
                 "NABLA_CACHE_MIB=0 NABLA_SIM_FAIL=cudnnBackendFinalize:1+");
}

static void memory_that_runs_out_leaves_nothing(void **state)
{
    (void)state;
    if (!cards_simulated()) skip();
    cards_alone(faults_leave_nothing, "NABLA_CUDNN=none");
    with_library(faults_leave_nothing, "");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_kernels_are_right),
        cmocka_unit_test(places_that_no_tap_reaches_are_zero),
        cmocka_unit_test(own_kernels_repeat),
        cmocka_unit_test(cudnn_is_right),
        cmocka_unit_test(cudnn_makes_what_it_takes),
        cmocka_unit_test(plans_that_give_something_else_are_left_out),
        cmocka_unit_test(cudnn_repeats),
        cmocka_unit_test(small_ones_do_without_cudnn),
        cmocka_unit_test(what_cudnn_refuses_is_done_by_kernels),
        cmocka_unit_test(memory_that_runs_out_leaves_nothing),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
