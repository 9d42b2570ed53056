/* test_cuda_same.c - every family of kernels gives the same bits at each run on
 * a card, and what the CPU gives.
 *
 * NABLA_CARD_REPEATS=n runs each n times, 100 if nothing is said, and
 * NABLA_CARD_ROWS=n gives matrices so many rows, up to 257; a sanitizer of the
 * card is given this program with few of both (tools/sanitize).  A word as
 * argument: the families whose names contain it; NABLA_TEST_PART=k/n: a part of
 * these (support/there.h). */
#include "ops/view.h"
#include "support/cards.h"
#include "support/check.h"
#include "support/there.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* x (300 257), w (257 64), of normal numbers; i (900), rows of x; image and
 * filter of convolutions; q (2 3 80 32), of attention. */
enum { X, W, I, IMAGE, FILTER, Q, NIN };

static nb_tensor *total(nb_tensor *x)
{
    return nb_reduce_sum(x, -1, NULL, false);
}

static nb_tensor *along(nb_tensor *x, int64_t axis)
{
    return nb_reduce_sum(x, 1, &axis, false);
}

static nb_tensor *norm(nb_tensor *x)
{
    int64_t last = -1;
    nb_tensor *d = nb_sub(x, nb_mean(x, 1, &last, true));
    nb_tensor *var = nb_mean(nb_mul(d, d), 1, &last, true);
    return nb_mul(d, nb_rsqrt(nb_add(var, nb_num(1e-5))));
}

static nb_tensor *attend(nb_tensor *q)
{
    nb_tensor *s = nb_matmul(q, nb_swap_axes(q, -1, -2));
    return nb_matmul(nb_softmax(nb_mul(s, nb_num(0.176)), -1), q);
}

static nb_tensor *placed(nb_tensor *x, nb_tensor *i)
{
    nb_key key[] = {NB_PICK(i)};
    return nb_set(x, 1, key, nb_gather(nb_sin(x), i, 0), "add");
}

static nb_tensor *drawn(void)
{
    int64_t shape[] = {70, 111};
    return nb_random_normal(nb_random_key(5), 2, shape, 0, 1, NB_F32);
}

static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_tanh(nb_add(x[0], x[1]));
    y[1] = total(y[0]);
    return *ny = 2, NB_OK;
}

static nb_tensor *rolled(nb_tensor *x)
{
    nb_tensor *y[2], *first = nb_gather(x, nb_zeros(0, NULL, NB_I64), 0);
    int n = 2;
    return nb_scan(nb_func_new(step, NULL), 1, &first, 1, &x, 300, false, &n,
                   y) == NB_OK
               ? nb_add(total(y[0]), total(y[1]))
               : NULL;
}

/* What a setting says; if it says no number from 1 on, `otherwise`. */
static int setting(const char *name, int otherwise)
{
    const char *said = getenv(name);
    return said && atoi(said) > 0 ? atoi(said) : otherwise;
}

/* A square of x, larger than what one block does where a card is no simulated
 * one; what is positive definite; and what is nearly diagonal, which a few turns
 * make so: under a sanitizer each takes seconds. */
static nb_tensor *square(nb_tensor *x)
{
    int64_t n = setting("NABLA_CARD_ROWS", cards_simulated() ? 20 : 200);
    return nb_narrow(nb_narrow(x, 0, 0, n), 1, 0, n);
}

static nb_tensor *definite(nb_tensor *x)
{
    nb_tensor *a = square(x);
    return nb_add(nb_matmul(a, nb_swap_axes(a, 0, 1)),
                  nb_eye(nb_size(a, 0), nb_size(a, 0), 0, NB_F32));
}

static nb_tensor *slanted(nb_tensor *a)
{
    int64_t n = nb_size(a, 0);
    nb_tensor *by = nb_arange_float(1, (double)n + 1, 1, NB_F32);
    nb_tensor *x = nb_mul(nb_eye(n, n, 0, NB_F32), by);
    return nb_div(nb_add(nb_mul(a, nb_num(0.02)), x), nb_num((double)n));
}

static nb_tensor *corner(nb_tensor *x)
{
    return nb_narrow(nb_narrow(x, 0, 0, 10), 1, 0, 10);
}

static nb_tensor *turned_back(nb_tensor *x)
{
    nb_tensor *out[2];
    if (nb_eigh(nb_add(x, nb_swap_axes(x, 0, 1)), out) != NB_OK) return NULL;
    return nb_matmul(nb_mul(out[1], out[0]), nb_swap_axes(out[1], 0, 1));
}

static nb_tensor *put_together(nb_tensor *x)
{
    nb_tensor *out[3];
    if (nb_svd(x, true, out) != NB_OK) return NULL;
    return nb_matmul(nb_mul(out[0], out[1]), out[2]);
}

static nb_tensor *first_factor(nb_tensor *x)
{
    nb_tensor *out[2];
    return nb_qr(square(x), "reduced", out) == NB_OK ? out[0] : NULL;
}

FN(map, nb_mul(nb_tanh(x[X]), nb_exp(nb_neg(nb_mul(x[X], x[X])))))
FN(rows, norm(x[X]))
FN(softmax, nb_softmax(x[X], -1))
FN(row_sums, along(x[X], 1))
FN(column_sums, along(x[X], 0))
FN(long_sum, total(nb_sin(nb_repeat(nb_flatten(x[X], 0, -1), 20, 0))))
FN(turned, nb_add(nb_swap_axes(x[X], 0, 1), nb_num(1)))
FN(product, nb_matmul(x[X], x[W]))
FN(batched, nb_matmul(x[Q], nb_swap_axes(x[Q], -1, -2)))
FN(attention, attend(x[Q]))
FN(attention_loss, total(nb_sin(attend(x[Q]))))
FN(attention_back,
   nb_func_call1(nb_grad(nb_func_new(attention_loss, NULL), 1, (int[]){Q}), NIN,
                 x))
FN(picked, nb_gather(x[X], x[I], 0))
FN(added_in_place, placed(x[X], x[I]))
FN(totals, nb_cumsum(x[X], -1, false, false))
FN(sorted, nb_sort(x[X], -1, false, true))
FN(ranked, nb_argsort(nb_flatten(x[X], 0, -1), 0, false, true))
FN(extremes, nb_argmax(x[X], -1, false))
FN(random_numbers, drawn())
FN(convolved, nb_conv2d(x[IMAGE], x[FILTER], NULL))
FN(convolution_loss, total(nb_sin(nb_conv2d(x[IMAGE], x[FILTER], NULL))))
FN(convolved_back, nb_func_call1(nb_grad(nb_func_new(convolution_loss, NULL), 1,
                                         (int[]){FILTER}),
                                 NIN, x))
FN(pool_loss,
   total(nb_sin(nb_max_pool2d(x[IMAGE], &(nb_pool){.kernel_size = {3, 2},
                                                   .stride = {1, 1}}))))
FN(pooled_back,
   nb_func_call1(nb_grad(nb_func_new(pool_loss, NULL), 1, (int[]){IMAGE}), NIN,
                 x))
FN(looped, rolled(x[X]))
FN(root, nb_cholesky(definite(x[X]), false))
FN(solution, nb_solve(definite(x[X]), square(x[X])))
FN(reflected, first_factor(x[X]))
FN(eigenvectors, turned_back(slanted(square(x[X]))))
FN(few_eigenvectors, turned_back(corner(x[X])))
FN(singular_vectors, put_together(slanted(square(x[X]))))
FN(few_singular_vectors, put_together(corner(x[X])))

static const struct {
    const char *name;
    nb_body *body;
} families[] = {
    {"map", map},
    {"rows in registers", rows},
    {"softmax", softmax},
    {"sums of rows", row_sums},
    {"sums of columns", column_sums},
    {"a long sum", long_sum},
    {"what is turned", turned},
    {"product", product},
    {"products of a batch", batched},
    {"attention", attention},
    {"attention, backwards", attention_back},
    {"gather", picked},
    {"adding in places", added_in_place},
    {"running totals", totals},
    {"sort", sorted},
    {"argsort", ranked},
    {"argmax", extremes},
    {"random numbers", random_numbers},
    {"convolution", convolved},
    {"convolution, backwards", convolved_back},
    {"pool, backwards", pooled_back},
    {"loop", looped},
    {"cholesky", root},
    {"linear equations", solution},
    {"qr", reflected},
    {"eigenvectors", eigenvectors},
    {"few eigenvectors", few_eigenvectors},
    {"singular vectors", singular_vectors},
    {"few singular vectors", few_singular_vectors},
};
enum { NFAMILIES = sizeof families / sizeof families[0] };

static nb_tensor *f32(nb_tensor *x)
{
    return nb_cast(x, NB_F32);
}

/* On the CPU, computed. */
static bool make_inputs(nb_tensor **x)
{
    int64_t at[900], n = 900;
    for (int k = 0; k < 900; k++)
        at[k] = k * k % 299;
    x[X] = f32(draw(2, (int64_t[]){300, 257}, -1, 1));
    x[W] = f32(draw(2, (int64_t[]){257, 64}, -1, 1));
    x[I] = nb_constant(NB_I64, 1, &n, at);
    x[IMAGE] = f32(draw(4, (int64_t[]){2, 14, 15, 5}, -1, 1));
    x[FILTER] = f32(draw(4, (int64_t[]){3, 3, 5, 24}, -1, 1));
    x[Q] = f32(draw(4, (int64_t[]){2, 3, 80, 32}, -1, 1));
    return nb_realize_all(NIN, x) == NB_OK;
}

/* The bytes of f at x, to be freed. */
static char *bytes_of(nb_func *f, nb_tensor *const *x, size_t *n)
{
    nb_scope_open();
    nb_tensor *y = nb_func_call1(f, NIN, x);
    *n = y ? (size_t)nb_elements(y) * nb_dtype_size(nb_dtype_of(y)) : 0;
    char *to = y ? malloc(*n + 1) : NULL;
    bool ok = to && nb_read(y, NB_NOTYPE, to) == NB_OK;
    nb_scope_close(0, NULL);
    if (ok) return to;
    free(to);
    return NULL;
}

static void repeats(const char *name, const char *how, nb_func *f,
                    nb_tensor *const *x, int times)
{
    size_t n, m;
    char *first = bytes_of(f, x, &n);
    bool same = first;
    int k = 1;
    for (; same && k < times; k++) {
        char *next = bytes_of(f, x, &m);
        same = next && m == n && !memcmp(first, next, n);
        free(next);
    }
    expect(same, "%s, %s: the same bits in run %d", name, how, k);
    free(first);
}

static void family(int k, int times)
{
    nb_tensor *x[NIN], *there[NIN];
    const char *name = families[k].name;
    uniform_seed(7);
    nb_func *f = nb_func_new(families[k].body, NULL);
    if (!expect(make_inputs(x), "inputs")) return;
    nb_tensor *want = nb_func_call1(f, NIN, x);
    expect(want && nb_realize(want) == NB_OK, "%s on the CPU", name);
    for (int i = 0; i < NIN; i++)
        there[i] = nb_to_device(x[i], 1);
    nb_default_device_set(1);
    nb_tensor *got = nb_func_call1(f, NIN, there);
    expect(nb_device_of(got) == 1 && near(got, want, 1e-4),
           "%s is what the CPU gives", name);
    if (times > 1) repeats(name, "one by one", f, there, times);
    repeats(name, "compiled", nb_compile(f, NULL), there, times);
    nb_default_device_set(0);
}

int main(int argc, char **argv)
{
    int times = setting("NABLA_CARD_REPEATS", 100);
    setenv("NABLA_TEST_EVERY", "1", 1); /* families are few */
    if (!nb_card_count()) return printf("no card: %s\n", nb_card_trouble()), 77;
    for (int k = 0; k < NFAMILIES; k++) {
        if (argc > 1 && !strstr(families[k].name, argv[1])) continue;
        if (!there_takes()) continue;
        printf("%s\n", families[k].name);
        fflush(stdout); /* one that does not end is known by it */
        nb_scope_open();
        family(k, times);
        nb_scope_close(0, NULL);
    }
    return tally();
}
