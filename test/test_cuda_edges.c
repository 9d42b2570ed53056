/* test_cuda_edges.c - calls on a card of extents at the edge: of nothing, of
 * one, of more lines than most have, and matrices that are more than a block of
 * threads holds.  They give what the CPU gives, and nothing is left to it. */
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SHAPE(...)                                           \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / 8), (int64_t[]) \
    {                                                        \
        __VA_ARGS__                                          \
    }

/* Numbers that go up and down. */
static nb_tensor *numbers(int rank, const int64_t *size)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= size[d];
    nb_tensor *x = nb_sin(nb_cast(nb_iota(n, NB_I64), NB_F32));
    return nb_reshape(x, rank, size);
}

/* Whole ones, which are the same on every device; many are many on a card that
 * is not simulated. */
static nb_tensor *whole(int64_t lines, int64_t n)
{
    nb_tensor *x = nb_mul(nb_iota(lines * n, NB_I64), nb_num(7919));
    return nb_reshape(nb_mod(x, nb_num(1009)), SHAPE(n, lines));
}

static int64_t many(int64_t n)
{
    return cards_simulated() ? 70 : n;
}

static nb_tensor *places(int64_t n)
{
    return nb_zeros(SHAPE(n), NB_I64);
}

static nb_tensor *product(nb_tensor *x)
{
    return nb_matmul(x, nb_swap_axes(x, 0, 1));
}

enum { MANY = (1 << 21) + 3 };

static nb_status gathered(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *some = nb_gather(x[0], places(0), 0);
    y[0] = nb_reduce_sum(nb_mul(some, some), -1, NULL, false);
    return *ny = 1, y[0] ? NB_OK : nb_error_code();
}

static nb_tensor *gradient(nb_tensor *x)
{
    nb_tensor *y = NULL;
    int n = 1;
    nb_func *f = nb_grad(nb_func_new(gathered, NULL), 1, (int[]){0});
    return nb_func_call(f, 1, &x, &n, &y) == NB_OK ? y : NULL;
}

static nb_tensor *definite(int64_t n)
{
    nb_tensor *x = numbers(SHAPE(n, n)), *i = nb_eye(n, n, 0, NB_F32);
    return nb_add(product(x), nb_mul(i, nb_num((double)n)));
}

static nb_tensor *reflected(nb_tensor *x)
{
    nb_tensor *out[2];
    return nb_qr(x, "complete", out) == NB_OK ? out[0] : NULL;
}

#define CASE(text, x) \
    if (i-- == 0) return *says = text, x

/* Case i and what it is called; NULL after the last. */
static nb_tensor *compute(int i, const char **says)
{
    static const nb_conv plain;
    *says = NULL;
    CASE("argsort of lines of nothing",
         nb_argsort(numbers(SHAPE(0, 5)), 0, false, true));
    CASE("argsort of no lines",
         nb_argsort(numbers(SHAPE(5, 0)), 0, false, true));
    CASE("argsort of many lines",
         nb_argsort(whole(many(MANY), 3), 0, false, true));
    CASE("argsort of a long line",
         nb_argsort(whole(1, many(2 * (int64_t)MANY)), 0, true, true));
    CASE("cumsum of lines of nothing",
         nb_cumsum(numbers(SHAPE(0, 5)), 0, false, false));
    CASE("cumsum of no lines",
         nb_cumsum(numbers(SHAPE(50, 0)), 0, false, false));
    CASE("cumsum of many lines",
         nb_cumsum(numbers(SHAPE(2, MANY)), 0, false, false));
    CASE("cumprod of a line of one",
         nb_cumprod(numbers(SHAPE(1)), 0, true, false));
    CASE("argmax of no lines", nb_argmax(numbers(SHAPE(5, 0)), 0, false));
    CASE("argmax of many lines", nb_argmax(numbers(SHAPE(2, MANY)), 0, false));
    CASE("searchsorted in nothing",
         nb_searchsorted(numbers(SHAPE(0)), numbers(SHAPE(3)), "left", NULL));
    CASE("searchsorted of nothing",
         nb_searchsorted(numbers(SHAPE(3)), numbers(SHAPE(0)), "left", NULL));
    CASE("scatter of nothing",
         nb_scatter(numbers(SHAPE(4, 3)), places(0), numbers(SHAPE(0, 3)), 0));
    CASE("scatter into nothing",
         nb_scatter(numbers(SHAPE(0, 3)), places(2), numbers(SHAPE(2, 3)), 0));
    CASE("scatter of rows of nothing",
         nb_scatter(numbers(SHAPE(4, 0)), places(2), numbers(SHAPE(2, 0)), 0));
    CASE("gradient of a gather of nothing", gradient(numbers(SHAPE(4, 3))));
    CASE("product of nothing", product(numbers(SHAPE(4, 0))));
    CASE("convolution of no channels",
         nb_conv2d(numbers(SHAPE(2, 5, 5, 0)), numbers(SHAPE(3, 3, 0, 4)),
                   &plain));
    CASE("convolution of no images",
         nb_conv2d(numbers(SHAPE(0, 5, 5, 3)), numbers(SHAPE(3, 3, 3, 4)),
                   &plain));
    CASE("cholesky of nothing", nb_cholesky(numbers(SHAPE(2, 0, 0)), false));
    CASE("determinant of nothing", nb_det(numbers(SHAPE(2, 0, 0))));
    CASE("pseudo-inverse of no rows", nb_pinv(numbers(SHAPE(0, 3)), NULL));
    CASE("pseudo-inverse of no columns", nb_pinv(numbers(SHAPE(3, 0)), NULL));
    CASE("cholesky in panels", nb_cholesky(definite(140), false));
    CASE("solutions in panels", nb_solve(definite(70), numbers(SHAPE(70, 35))));
    CASE("determinant in panels", nb_det(nb_mul(definite(40), nb_num(0.02))));
    CASE("reflections in panels",
         reflected(nb_matmul(definite(70), nb_eye(70, 40, 0, NB_F32))));
    CASE("eigenvalues in teams",
         nb_eigvalsh(nb_mul(definite(70), nb_num(0.02))));
    CASE("singular values in teams",
         nb_svdvals(nb_mul(definite(70), nb_num(0.02))));
    return NULL;
}

/* Of case i on a device, to be freed; NULL after the last. */
static double *values(int i, int device, int64_t *n, const char **says)
{
    nb_default_device_set(device);
    nb_tensor *y = compute(i, says);
    if (!*says) return NULL;
    need(y && nb_device_of(y) == device);
    *n = nb_elements(y);
    double *v = calloc((size_t)*n + 1, sizeof *v);
    need(v && nb_read(y, NB_F64, v) == NB_OK);
    return v;
}

CARD_TEST(extents_at_the_edge_are_computed_there, "NABLA_CUDNN=none")
{
    bool ok = true;
    char last[64];
    const char *says = "";
    nb_card *card = cards_first();
    for (int i = 0; says; i++) {
        int64_t n = 0, m = 0;
        need(nb_scope_open() == NB_OK);
        double *want = values(i, 0, &n, &says), *got = values(i, 1, &m, &says);
        bool same = n == m;
        for (int64_t k = 0; same && k < n; k++)
            same = fabs(want[k] - got[k]) <= 1e-5 * fmax(1, fabs(want[k]));
        if (!same) fprintf(stderr, "%s differs\n", says);
        ok = ok && same;
        free(want), free(got);
        nb_scope_close(0, NULL);
    }
    if (nb_card_elsewhere(card, last))
        fprintf(stderr, "%s is left to the CPU\n", last);
    need(ok && nb_card_elsewhere(card, last) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(extents_at_the_edge_are_computed_there),
    };
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
