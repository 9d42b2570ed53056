/* test_blaslt.c - products of matrices on a card: every sum of products of two
 * operands is made by the library, however they lie, and what the CPU makes of
 * them.
 *
 * Runs with the library of this machine's card, or the simulated one; every
 * test in a process of its own. */
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"
#include "support/sim.h"

#include <dlfcn.h>
#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];

static int make(void **state)
{
    (void)state;
    folder_make(folder);
    return 0;
}

static int unmake(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

static void test_with(void (*body)(void), const char *more)
{
    char path[PATH_MAX], all[3 * PATH_MAX];
    const char *told = getenv("NABLA_CUDA_DRIVER");
    int n = snprintf(all, sizeof all, "NABLA_CACHE_DIR=%s %s %s", folder, more,
                     cards_settings());
    if (told)
        snprintf(path, sizeof path, "%s", told);
    else if (!sim_find(path, sizeof path))
        *path = 0;
    if (cards_simulated())
        snprintf(all + n, sizeof all - (size_t)n, " NABLA_CUBLASLT=%s", path);
    alone(body, all);
}

static void test(void (*body)(void))
{
    test_with(body, "");
}

#define TEST(name)                    \
    static void body_of_##name(void); \
    static void name(void **state)    \
    {                                 \
        (void)state;                  \
        test(body_of_##name);         \
    }                                 \
    static void body_of_##name(void)

static int64_t count(const char *what)
{
    void *lib = dlopen(getenv("NABLA_CUDA_DRIVER"), RTLD_NOW);
    int64_t (*f)(const char *) = NULL;
    void *at = lib ? dlsym(lib, "nabla_sim_count") : NULL;
    memcpy(&f, &at, sizeof f);
    return f ? f(what) : -1;
}

/* Calls of the library so far; none are known of a real card. */
static int64_t calls(void)
{
    return cards_simulated() ? count("cublasLtMatmul") : -1;
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
    {"mk,k->m", {33, 20}, {20}, 1},
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

TEST(products_are_the_library_s_however_they_lie)
{
    static const nb_dtype dtypes[] = {NB_F32, NB_BF16, NB_F16, NB_F64};
    cards_first();
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        for (size_t d = 0; d < 4; d++)
            try_product(&products[i], dtypes[d]);
}

/* A view that begins at an odd element, one with gaps, one turned round. */
static nb_tensor *view(nb_tensor *x, int way)
{
    int64_t step = way == 1 ? 2 : 1;
    nb_tensor *part = nb_slice(x, L(3, 1), L(197, 64), L(1, step));
    return way == 2 ? nb_flip(part, 1, L(1)) : part;
}

TEST(views_are_multiplied_where_they_lie_or_copied)
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
    test_with(body_that_tries, "NABLA_TUNE=all");
    test_with(body_that_knows, "NABLA_TUNE=all");
    test_with(body_that_tries, "NABLA_TUNE=all NABLA_SIM_CUBLASLT=120900");
    test_with(body_that_knows, "NABLA_TUNE=0 NABLA_SIM_CUBLASLT=120800");
}

TEST(failures_of_the_library_are_errors)
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
        cmocka_unit_test(views_are_multiplied_where_they_lie_or_copied),
        cmocka_unit_test(an_algorithm_is_chosen_once),
        cmocka_unit_test(failures_of_the_library_are_errors),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
