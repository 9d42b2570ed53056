/* test_blaslt.c - products of matrices on a card: every sum of products of two
 * operands is made by the library, however they lie, or by kernels of our own
 * where there is none, and is what the CPU makes of them.
 *
 * Runs with the library of this machine's card, or the simulated one; every
 * test in a process of its own. */
#include "backend/cuda/product/blaslt.h"
#include "base/memory.h"
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"
#include "support/faults.h"
#include "support/sim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool is_own(void)
{
    const char *library = getenv("NABLA_CUBLASLT");
    return library && !strcmp(library, "none");
}

/* Calls of the library so far; none are known of a real card, nor if there is
 * none. */
static int64_t calls(void)
{
    return cards_simulated() && !is_own() ? cards_count("cublasLtMatmul") : -1;
}

#define L(...) ((int64_t[]){__VA_ARGS__})
enum { RANK = 4, MOST = 1 << 18 };

/* Numbers that no two elements near each other have in common. */
static nb_tensor *sample(nb_dtype d, int rank, const int64_t *size, int seed)
{
    static float v[MOST];
    int64_t n = 1;
    for (int i = 0; i < rank; i++)
        n *= size[i];
    need(n <= MOST);
    for (int64_t i = 0; i < n; i++)
        v[i] = (float)((i * 7919 + seed * 131) % 211) / 211 - 0.5f;
    return nb_cast(nb_constant(NB_F32, rank, size, v), d);
}

/* That x, on a card, is y, within rounding of a dtype. */
static void same(nb_tensor *x, nb_tensor *y, double eps)
{
    static double a[MOST], b[MOST];
    int64_t n = nb_elements(y);
    need(nb_elements(x) == n && n <= MOST);
    need(nb_read(x, NB_F64, a) == NB_OK && nb_read(y, NB_F64, b) == NB_OK);
    for (int64_t i = 0; i < n; i++)
        need(fabs(a[i] - b[i]) <= eps * (1 + fabs(b[i])));
}

static double eps_of(nb_dtype d)
{
    return d == NB_BF16 ? 0x1p-6 : d == NB_F16 ? 0x1p-9 : 1e-5;
}

/* Realises x, which takes so many calls of the library. */
static void takes(nb_tensor *x, int64_t wanted)
{
    int64_t before = calls();
    need(x && nb_realize(x) == NB_OK && nb_device_of(x) == 1);
    need(before < 0 || calls() - before == wanted);
}

typedef struct product {
    const char *rule;
    int64_t x[RANK], y[RANK];
    int calls;
} product;

static int rank_of(const int64_t *size)
{
    int n = 0;
    while (n < RANK && size[n])
        n++;
    return n;
}

static void try_product(const product *p, nb_dtype d)
{
    need(nb_scope_open() == NB_OK);
    nb_tensor *here[2] = {sample(d, rank_of(p->x), p->x, 1),
                          sample(d, rank_of(p->y), p->y, 2)};
    nb_tensor *there[2] = {nb_to_device(here[0], 1), nb_to_device(here[1], 1)};
    need(nb_realize(there[0]) == NB_OK && nb_realize(there[1]) == NB_OK);
    nb_tensor *z = nb_einsum(p->rule, 2, there);
    takes(z, p->calls);
    same(z, nb_einsum(p->rule, 2, here), eps_of(d));
    nb_scope_close(0, NULL);
}

static const product products[] = {
    {"mk,kn->mn", {33, 20}, {20, 17}, 1},
    {"km,kn->mn", {20, 33}, {20, 17}, 1},
    {"mk,nk->mn", {33, 20}, {17, 20}, 1},
    {"mk,kn->nm", {33, 20}, {20, 17}, 1},
    {"mk,k->m", {33, 20}, {20}, 0},          /* better a loop */
    {"abk,kn->abn", {3, 5, 16}, {16, 9}, 1}, /* m is two */
    {"abk,kn->bna", {3, 5, 16}, {16, 9}, 1}, /* one is outer */
    {"bmk,bkn->bmn", {3, 5, 16}, {3, 16, 9}, 1},
    {"bmk,kn->bmn", {3, 5, 16}, {16, 9}, 1},
    {"abmk,bkn->abmn", {2, 3, 5, 16}, {3, 16, 9}, 2},
    {"bthd,bshd->bhts", {2, 6, 3, 8}, {2, 7, 3, 8}, 2},
    {"bhts,bshd->bthd", {2, 3, 6, 7}, {2, 7, 3, 8}, 2},
    {"btn,btk->nk", {3, 5, 16}, {3, 5, 9}, 1}, /* k is two */
    {"m,n->mn", {33}, {17}, 0},                /* nothing is summed */
    {"k,k->", {33}, {33}, 0},                  /* better a loop */
    {"akl,kbl->ab", {6, 3, 4}, {3, 6, 4}, 0},  /* too small to copy */
    {"akl,kbl->ab", {64, 16, 64}, {16, 80, 64}, 1},
    {"bmk,bkn->mnb", {32, 32, 64}, {32, 64, 80}, 1},
};

CARD_TEST(products_are_the_library_s_however_they_lie, "%s", cards_blaslt())
{
    static const nb_dtype dtypes[] = {NB_F32, NB_BF16, NB_F16, NB_F64};
    cards_first();
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        for (size_t d = 0; d < 4; d++)
            try_product(&products[i], dtypes[d]);
}

static const product small_and_not[] = {
    {"mk,kn->mn", {64, 256}, {256, 10}, 0},
    {"bmk,bkn->bmn", {8, 16, 32}, {8, 32, 64}, 0},
    {"bmk,bkn->bmn", {16, 16, 32}, {16, 32, 64}, 1},
    {"mk,kn->mn", {64, 784}, {784, 16}, 1},
};

CARD_TEST(small_products_are_loops, "%s NABLA_TUNE=", cards_blaslt())
{
    cards_first();
    for (size_t i = 0; i < sizeof small_and_not / sizeof *small_and_not; i++)
        try_product(&small_and_not[i], i % 2 ? NB_BF16 : NB_F32);
}

/* A view that begins at an odd element, one with gaps, one turned round. */
static nb_tensor *view(nb_tensor *x, int way)
{
    int64_t step = way == 1 ? 2 : 1;
    nb_tensor *part = nb_slice(x, L(3, 1), L(197, 64), L(1, step));
    return way == 2 ? nb_flip(part, 1, L(1)) : part;
}

CARD_TEST(views_are_multiplied_where_they_lie_or_copied, "%s", cards_blaslt())
{
    cards_first();
    need(nb_scope_open() == NB_OK);
    nb_tensor *x = sample(NB_F32, 2, L(200, 129), 1);
    nb_tensor *y = sample(NB_F32, 2, L(64, 400), 2);
    nb_tensor *on = nb_to_device(x, 1), *at = nb_to_device(y, 1);
    need(nb_realize(on) == NB_OK && nb_realize(at) == NB_OK);
    for (int way = 0; way < 3; way++) {
        nb_tensor *z = nb_matmul(view(on, way), at);
        takes(z, 1);
        same(z, nb_matmul(view(x, way), y), 1e-5);
    }
    nb_scope_close(0, NULL);
}

/* Ends */

static nb_tensor *with_bias(nb_tensor *const *x)
{
    return nb_add(nb_matmul(x[0], x[1]), x[2]);
}

static nb_tensor *with_relu(nb_tensor *const *x)
{
    return nb_maximum(with_bias(x), nb_num(0));
}

static nb_tensor *with_matrix(nb_tensor *const *x)
{
    return nb_add(x[3], with_bias(x));
}

static nb_tensor *with_factor(nb_tensor *const *x)
{
    return nb_mul(nb_matmul(x[0], x[1]), nb_num(0.25));
}

static nb_tensor *with_gelu(nb_tensor *const *x)
{
    return nb_gelu(with_bias(x), "tanh");
}

/* Written down, as some do. */
static nb_tensor *with_own_gelu(nb_tensor *const *x)
{
    nb_tensor *z = with_bias(x), *cube = nb_mul(z, nb_mul(z, z));
    nb_tensor *inner = nb_add(z, nb_mul(nb_num(0.044715), cube));
    nb_tensor *t = nb_tanh(nb_mul(nb_num(0.79788456), inner));
    return nb_mul(nb_mul(nb_num(0.5), z), nb_add(nb_num(1), t));
}

/* The formula of the slope at x[3]. */
static nb_tensor *with_slope(nb_tensor *const *x)
{
    nb_tensor *z = x[3], *square = nb_mul(z, z);
    nb_tensor *inner =
        nb_mul(nb_num(0.79788456),
               nb_add(z, nb_mul(nb_num(0.044715), nb_mul(z, square))));
    nb_tensor *t = nb_tanh(inner), *one = nb_num(1);
    nb_tensor *rise = nb_mul(nb_num(0.79788456),
                             nb_add(one, nb_mul(nb_num(0.134145), square)));
    nb_tensor *second = nb_mul(nb_mul(z, rise), nb_sub(one, nb_mul(t, t)));
    nb_tensor *slope = nb_mul(nb_num(0.5), nb_add(nb_add(one, t), second));
    return nb_mul(nb_matmul(x[0], x[1]), slope);
}

static nb_tensor *with_cast(nb_tensor *const *x)
{
    return nb_cast(nb_matmul(x[0], x[1]), NB_F32);
}

/* What is nearly one of them stays a loop. */
static nb_tensor *with_erf(nb_tensor *const *x)
{
    return nb_gelu(with_bias(x), "none");
}

static nb_tensor *with_clip(nb_tensor *const *x)
{
    return nb_minimum(with_bias(x), nb_num(3000));
}

static nb_tensor *of_some_rows(nb_tensor *const *x)
{
    nb_tensor *y = nb_matmul(x[0], x[1]);
    return nb_add(nb_slice_tensor(y, L(0, 0), L(7, 16)), x[2]);
}

static nb_tensor *by_rows(nb_tensor *const *x)
{
    nb_tensor *column = nb_slice_tensor(x[3], L(0, 0), L(40, 1));
    return nb_add(nb_matmul(x[0], x[1]), column);
}

typedef struct ending {
    nb_tensor *(*make)(nb_tensor *const *x);
    bool wide, narrow; /* it is taken in, in float32, and in narrow types */
} ending;

static const ending endings[] = {
    {with_bias, true, true},      {with_relu, true, true},
    {with_matrix, true, true},    {with_factor, true, true},
    {with_gelu, false, true},     {with_own_gelu, false, true},
    {with_slope, false, true},    {with_cast, true, true},
    {with_erf, false, false},     {with_clip, false, false},
    {of_some_rows, false, false}, {by_rows, false, false},
};

static nb_status body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    const ending *e = ctx;
    (void)nx;
    *ny = 1;
    y[0] = e->make(x);
    return NB_OK;
}

/* Kernels that a run of it takes; -1 on a real card. */
static int64_t kernels_of(nb_executable *e, nb_tensor *const *x, nb_tensor **y)
{
    int ny = 1;
    nb_device_wait(1);
    int64_t before = cards_count("kernels"), made = calls();
    need(nb_executable_run(e, 4, x, &ny, y) == NB_OK);
    need(nb_device_wait(1) == NB_OK);
    if (made < 0) return -1;
    need(calls() == made + 1);
    return cards_count("kernels") - before;
}

static void try_ending(const ending *e, nb_dtype d)
{
    need(nb_scope_open() == NB_OK);
    nb_tensor *here[] = {sample(d, 2, L(40, 24), 1), sample(d, 2, L(24, 16), 2),
                         sample(d, 1, L(16), 3), sample(d, 2, L(40, 16), 4)};
    nb_tensor *there[4], *z;
    for (int i = 0; i < 4; i++) {
        there[i] = nb_to_device(here[i], 1);
        need(nb_realize(there[i]) == NB_OK);
    }
    nb_executable *x;
    nb_func *f = nb_func_new(body, (void *)e);
    need(nb_executable_new(f, 4, there, &x) == NB_OK);
    int64_t kernels = kernels_of(x, there, &z);
    bool taken = d == NB_F32 ? e->wide : e->narrow;
    need(kernels < 0 || kernels == !taken);
    same(z, e->make(here), eps_of(d));
    nb_executable_drop(x);
    nb_scope_close(0, NULL);
}

CARD_TEST(products_take_in_what_follows_them, "%s", cards_blaslt())
{
    static const nb_dtype dtypes[] = {NB_F32, NB_BF16, NB_F16};
    cards_first();
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        for (size_t d = 0; d < 3; d++)
            try_ending(&endings[i], dtypes[d]);
}

/* Without a library */

static const product uneven[] = {
    {"mk,kn->mn", {67, 37}, {37, 53}, 0},
    {"km,kn->mn", {37, 67}, {37, 53}, 0},
    {"mk,nk->mn", {67, 37}, {53, 37}, 0},
    {"km,nk->mn", {37, 67}, {53, 37}, 0},
    {"mk,kn->nm", {67, 37}, {37, 53}, 0},
    {"mk,kn->mn", {72, 40}, {40, 88}, 0},
    {"km,kn->mn", {40, 72}, {40, 88}, 0},
    {"mk,nk->mn", {72, 40}, {88, 40}, 0},
    {"mk,kn->mn", {300, 24}, {24, 520}, 0}, /* larger tiles */
    {"bthd,bshd->bhts", {2, 20, 3, 16}, {2, 24, 3, 16}, 0},
};

CARD_TEST(products_without_a_library,
          "NABLA_CUBLASLT=none NABLA_SIM_PROCESSORS=2")
{
    static const nb_dtype dtypes[] = {NB_F32, NB_BF16, NB_F16, NB_F64};
    cards_first();
    for (size_t d = 0; d < 4; d++)
        for (size_t i = 0; i < sizeof uneven / sizeof *uneven; i++)
            try_product(&uneven[i], dtypes[d]);
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        try_product(&products[i], dtypes[i % 2]);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        try_ending(&endings[i], dtypes[i % 4]);
}

/* Three algorithms, each five times. */
static void multiply_and_count(int64_t wanted)
{
    cards_first();
    need(nb_scope_open() == NB_OK);
    nb_tensor *here = sample(NB_F32, 2, L(8, 8), 1);
    nb_tensor *x = nb_to_device(here, 1);
    need(nb_realize(x) == NB_OK);
    nb_tensor *z = nb_matmul(x, x);
    takes(z, wanted);
    same(z, nb_matmul(here, here), 1e-5);
    nb_scope_close(0, NULL);
}

static void body_that_tries(void)
{
    multiply_and_count(16);
}

static void body_that_knows(void)
{
    multiply_and_count(1);
}

static void an_algorithm_is_chosen_once(void **state)
{
    (void)state;
    const char *library = cards_blaslt();
    cards_alone(body_that_tries, "%s NABLA_TUNE=all", library);
    cards_alone(body_that_knows, "%s NABLA_TUNE=all", library);
    cards_alone(body_that_tries, "%s NABLA_TUNE=all NABLA_SIM_CUBLASLT=120900",
                library);
    cards_alone(body_that_knows, "%s NABLA_TUNE=0 NABLA_SIM_CUBLASLT=120800",
                library);
}

/* Planning, choosing and running. */
static bool compiled_and_run(void *x)
{
    static const ending e = {with_gelu, false, true};
    nb_func *f = nb_func_new(body, (void *)&e);
    nb_executable *made = NULL;
    nb_tensor *y[1];
    int ny = 1;
    bool ok = f && nb_executable_new(f, 4, x, &made) == NB_OK &&
              nb_executable_run(made, 4, x, &ny, y) == NB_OK;
    nb_executable_drop(made);
    return ok;
}

CARD_TEST(memory_may_run_out, "%s", cards_blaslt())
{
    cards_first();
    need(nb_scope_open() == NB_OK);
    nb_tensor *x[4] = {
        sample(NB_BF16, 2, L(40, 24), 1), sample(NB_BF16, 2, L(24, 16), 2),
        sample(NB_BF16, 1, L(16), 3), sample(NB_BF16, 2, L(40, 16), 4)};
    for (int i = 0; i < 4; i++) {
        x[i] = nb_to_device(x[i], 1);
        need(nb_realize(x[i]) == NB_OK);
    }
    faults f = {compiled_and_run, x, .keeps = true, .fresh = true};
    need(faults_survived(&f));
    nb_scope_close(0, NULL);
}

/* Opened before it is needed it says nothing, whatever fails, and leaves
 * nothing. */
CARD_TEST(waking_it_changes_nothing, "%s", cards_blaslt())
{
    nb_card *c = cards_first();
    int64_t live = nb_memory_live();
    nb_blaslt_wake(c);
    if (cards_simulated()) {
        setenv("NABLA_SIM_FAIL", "cublasLtMatrixLayoutCreate:2", 1);
        nb_blaslt_wake(c);
        setenv("NABLA_SIM_FAIL", "cublasLtMatmulAlgoGetHeuristic:1", 1);
        nb_blaslt_wake(c);
        setenv("NABLA_SIM_FAIL", "", 1);
    }
    need(!nb_failed() && nb_memory_live() == live);
    multiply_and_count(1);
}

CARD_TEST(failures_of_the_library_are_errors, "%s", cards_blaslt())
{
    cards_first();
    if (!cards_simulated()) return;
    static const char *const failing[] = {
        "cublasLtMatmul:1", "cublasLtMatmulAlgoGetHeuristic:1",
        "cublasLtMatmulDescCreate:1", "cublasLtMatrixLayoutCreate:2"};
    for (int i = 0; i < 4; i++) {
        need(nb_scope_open() == NB_OK);
        nb_tensor *x = nb_to_device(sample(NB_F32, 2, L(8, 8 + i), 1), 1);
        nb_tensor *y = nb_to_device(sample(NB_F32, 2, L(8 + i, 9), 2), 1);
        need(nb_realize(x) == NB_OK && nb_realize(y) == NB_OK);
        setenv("NABLA_SIM_FAIL", failing[i], 1);
        need(nb_realize(nb_matmul(x, y)) != NB_OK);
        need(strstr(nb_error_message(), "cuBLASLt"));
        setenv("NABLA_SIM_FAIL", "", 1);
        need(nb_realize(nb_matmul(x, y)) == NB_OK);
        nb_scope_close(0, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_the_library_s_however_they_lie),
        cmocka_unit_test(small_products_are_loops),
        cmocka_unit_test(views_are_multiplied_where_they_lie_or_copied),
        cmocka_unit_test(products_take_in_what_follows_them),
        cmocka_unit_test(products_without_a_library),
        cmocka_unit_test(an_algorithm_is_chosen_once),
        cmocka_unit_test(memory_may_run_out),
        cmocka_unit_test(waking_it_changes_nothing),
        cmocka_unit_test(failures_of_the_library_are_errors),
    };
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
