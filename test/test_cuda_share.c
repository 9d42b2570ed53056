/* test_cuda_share.c - sums over the same memory on a card: that they are one
 * loop program where none needs another, and what they are.
 *
 * Runs on the card of the machine, or on the simulated one, which counts
 * kernels; every test in a process of its own. */
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 4100, COLUMNS = 72, N = ROWS * COLUMNS, RESULTS = 4 };

static nb_tensor *rows(int device)
{
    float *v = malloc(N * sizeof *v);
    need(v);
    for (int k = 0; k < N; k++)
        v[k] = sinf((float)(k % 1013)) / 64;
    nb_tensor *x = nb_constant(NB_F32, 2, (int64_t[]){ROWS, COLUMNS}, v);
    free(v);
    x = nb_to_device(x, device);
    need(x && nb_realize(x) == NB_OK);
    return x;
}

static nb_tensor *down(nb_tensor *x)
{
    return nb_reduce_sum(x, 1, (int64_t[]){0}, false);
}

/* Three sums of columns, and what is made of rows meanwhile; the squares of one
 * sum lie between them. */
static nb_status beside(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *all = down(x[0]);
    y[0] = nb_reduce_sum(nb_square(all), -1, NULL, false);
    y[1] = down(nb_mul(x[0], x[1]));
    y[2] = nb_sub(nb_cos(x[0]), x[1]);
    y[3] = down(y[2]);
    return *ny = RESULTS, NB_OK;
}

/* Each needs the one before. */
static nb_status behind(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = down(x[0]);
    for (int i = 1; i < RESULTS; i++)
        y[i] = down(
            nb_mul(x[0], nb_cos(nb_reduce_sum(y[i - 1], -1, NULL, false))));
    return *ny = RESULTS, NB_OK;
}

static bool agree(nb_tensor *x, nb_tensor *want)
{
    int64_t n = nb_elements(x);
    float *a = malloc(2 * N * sizeof *a), *b = a + N;
    need(a && n == nb_elements(want) && n <= N);
    need(nb_read(x, NB_F32, a) == NB_OK && nb_read(want, NB_F32, b) == NB_OK);
    bool ok = true;
    for (int64_t i = 0; i < n; i++)
        ok = ok && fabsf(a[i] - b[i]) <= 1e-4f * (1 + fabsf(b[i]));
    free(a);
    return ok;
}

/* Runs it, compares, and says how many kernels that took. */
static int64_t right(nb_body *body)
{
    cards_first();
    need(nb_scope_open() == NB_OK);
    nb_executable *e = NULL;
    nb_tensor *x[] = {rows(1), rows(1)}, *here[] = {rows(0), rows(0)};
    nb_tensor *y[RESULTS], *want[RESULTS];
    int ny = RESULTS;
    need(nb_executable_new(nb_func_new(body, NULL), 2, x, &e) == NB_OK);
    int64_t before = cards_count("kernels");
    need(nb_executable_run(e, 2, x, &ny, y) == NB_OK);
    need(nb_device_wait(1) == NB_OK);
    int64_t took = cards_count("kernels") - before;
    need(body(NULL, 2, here, &ny, want) == NB_OK);
    for (int i = 0; i < ny; i++)
        need(agree(y[i], want[i]));
    nb_executable_drop(e);
    return took;
}

CARD_TEST(sums_of_the_same_rows_are_one_program, "")
{
    /* Parts of all sums; the sums, and the squares of one of them. */
    int64_t took = right(beside);
    need(!cards_simulated() || (took > 0 && took <= 3));
}

CARD_TEST(without_the_pass_they_are_several, "NABLA_DISABLE=share")
{
    int64_t took = right(beside);
    need(!cards_simulated() || took > 4);
}

CARD_TEST(sums_that_need_each_other_stay_apart, "")
{
    int64_t took = right(behind);
    need(!cards_simulated() || took >= 2 * RESULTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_the_same_rows_are_one_program),
        cmocka_unit_test(without_the_pass_they_are_several),
        cmocka_unit_test(sums_that_need_each_other_stay_apart),
    };
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
