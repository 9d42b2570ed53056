/* test_cuda_forms.c - every form of kernel computes on a card what the CPU does,
 * at sizes that fill its vectors, tiles and teams and at sizes that do not, in
 * types of several widths.
 *
 * NABLA_TEST_EVERY and NABLA_TEST_PART take some of the cases (support/there.h).
 * A word as argument: the functions whose names contain it. */
#include "nabla/nabla.h"
#include "support/cards.h"
#include "support/check.h"
#include "support/there.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of x (n m), w (m) and u (n); i are whole numbers (n) below m. */
enum { X, W, U, I, NIN };

static nb_tensor *turn(nb_tensor *x)
{
    return nb_swap_axes(x, 0, 1);
}

static nb_tensor *column(nb_tensor *x)
{
    return nb_reshape(x, 2, (int64_t[]){-1, 1});
}

static nb_tensor *along(nb_tensor *f(nb_tensor *, int, const int64_t *, bool),
                        nb_tensor *x, int64_t axis, bool keep)
{
    return f(x, 1, &axis, keep);
}

static nb_tensor *square(nb_tensor *x)
{
    return nb_mul(x, x);
}

static nb_tensor *norm(nb_tensor *x, nb_tensor *w)
{
    nb_tensor *y = nb_cast(x, NB_F32);
    nb_tensor *d = nb_sub(y, along(nb_mean, y, -1, true));
    nb_tensor *v = along(nb_mean, square(d), -1, true);
    y = nb_div(d, nb_sqrt(nb_add(v, nb_num(1e-5))));
    return nb_cast(nb_add(nb_mul(y, nb_cast(w, NB_F32)), nb_cast(w, NB_F32)),
                   nb_dtype_of(x));
}

/* The logarithm of what a softmax gives the label. */
static nb_tensor *loss(nb_tensor *x, nb_tensor *i)
{
    nb_tensor *y = nb_cast(x, NB_F32), *m = along(nb_reduce_max, y, -1, true);
    nb_tensor *s = along(nb_reduce_sum, nb_exp(nb_sub(y, m)), -1, true);
    nb_tensor *z = nb_add(nb_log(s), m);
    return nb_sub(z, nb_take_along_axis(y, column(i), -1));
}

/* As a gradient of it is. */
static nb_tensor *slope(nb_tensor *x)
{
    nb_tensor *y = nb_cast(x, NB_F32), *m = along(nb_reduce_max, y, -1, true);
    nb_tensor *e = nb_exp(nb_sub(y, m));
    e = nb_div(e, along(nb_reduce_sum, e, -1, true));
    return nb_cast(nb_mul(e, nb_num(0.5)), nb_dtype_of(x));
}

/* The logarithm of a sum of exponentials, in some rows of infinite ones. */
static nb_tensor *infinite(nb_tensor *x, nb_tensor *u)
{
    nb_tensor *y = nb_cast(x, NB_F32), *by = nb_cast(column(u), NB_F32);
    y = nb_div(y, nb_cast(nb_greater(by, nb_num(0)), NB_F32));
    return nb_cast(nb_logsumexp(y, 1, (int64_t[]){-1}, false), nb_dtype_of(x));
}

FN(chain, nb_add(nb_mul(x[X], x[W]), nb_mul(x[X], x[X])))
FN(both, nb_mul(nb_add(x[X], x[W]), column(x[U])))
FN(turned, nb_add(turn(x[X]), column(x[W])))
FN(turned_sum, nb_add(nb_mul(turn(x[X]), x[U]), column(x[W])))
FN(flat, nb_add(nb_reshape(x[X], 1, (int64_t[]){-1}), nb_num(1)))
FN(softmax, nb_softmax(x[X], -1))
FN(columns, nb_softmax(x[X], 0))
FN(weights, norm(x[X], x[W]))
FN(labels, loss(x[X], x[I]))
FN(slopes, slope(x[X]))
FN(infinities, infinite(x[X], x[U]))
FN(rows, along(nb_reduce_sum, square(x[X]), -1, false))
FN(sums, along(nb_reduce_sum, square(x[X]), 0, false))
FN(all, nb_reduce_sum(square(x[X]), -1, NULL, false))
FN(most, along(nb_reduce_max, turn(x[X]), 0, false))
FN(totals, nb_cumsum(square(x[X]), -1, false, false))
FN(shifted, nb_add(x[X], nb_roll(x[X], 1, (int64_t[]){1}, (int64_t[]){1})))

static const struct {
    const char *name;
    nb_status (*body)(void *, int, nb_tensor *const *, int *, nb_tensor **);
} functions[] = {{"chain", chain},
                 {"both", both},
                 {"turned", turned},
                 {"turned sum", turned_sum},
                 {"flat", flat},
                 {"softmax", softmax},
                 {"columns", columns},
                 {"weights", weights},
                 {"labels", labels},
                 {"slopes", slopes},
                 {"rows", rows},
                 {"sums", sums},
                 {"all", all},
                 {"most", most},
                 {"totals", totals},
                 {"shifted", shifted},
                 {"infinities", infinities}};

static const int64_t shapes[][2] = {
    {1, 1},    {1, 17},    {32, 32},  {33, 65},    {64, 96},   {70, 130},
    {16, 512}, {5, 1000},  {3, 1021}, {131, 33},   {1, 4099},  {2, 8200},
    {2, 8201}, {1, 50304}, {3, 6},    {257, 1024}, {1, 30011}, {4099, 3}};

static const struct {
    nb_dtype dtype;
    double tolerance;
} dtypes[] = {{NB_F32, 2e-5}, {NB_BF16, 2e-2}, {NB_F64, 2e-5}, {NB_I8, 2e-5}};

enum {
    NFUNCTIONS = sizeof functions / sizeof functions[0],
    NSHAPES = sizeof shapes / sizeof shapes[0],
    NTYPES = sizeof dtypes / sizeof dtypes[0]
};

static nb_tensor *labels_of(int64_t n, int64_t m)
{
    nb_tensor *i = nb_arange_int(0, n, 1, NB_I64);
    return nb_cast(nb_mod(nb_mul(i, nb_num(37)), nb_num((double)m)), NB_I64);
}

static bool run(nb_func *f, nb_tensor *const *x, nb_tensor **y)
{
    int n = 1;
    return nb_func_call(f, NIN, x, &n, y) == NB_OK && n == 1 &&
           nb_realize_now(1, y);
}

static void compare(int f, const int64_t *size, nb_dtype d, double tolerance)
{
    nb_tensor *x[NIN] = {draw(2, size, -2, 2), draw(1, size + 1, -2, 2),
                         draw(1, size, -2, 2), labels_of(size[0], size[1])};
    nb_tensor *want, *got;
    nb_func *body = nb_func_new(functions[f].body, NULL);
    nb_func *fast = nb_compile(body, NULL);
    for (int i = 0; i < I; i++)
        x[i] = nb_cast(x[i], d);
    bool ok = run(body, x, &want);
    for (int i = 0; i < NIN; i++)
        x[i] = nb_to_device(x[i], 1);
    nb_default_device_set(1);
    ok = ok && run(fast, x, &got) && nb_device_of(got) == 1 &&
         near(got, want, tolerance);
    nb_default_device_set(0);
    expect(ok, "%s of %lld x %lld %s: %s", functions[f].name,
           (long long)size[0], (long long)size[1], nb_dtype_brief(d),
           nb_error_code() ? nb_error_message() : "");
    nb_error_clear();
}

/* Some, n apart, have each type if n is odd. */
static void compare_all(int f)
{
    for (int s = 0; s < NSHAPES; s++)
        for (int d = 0; d < NTYPES; d++) {
            if (!there_takes()) continue;
            nb_scope_open();
            compare(f, shapes[s], dtypes[d].dtype, dtypes[d].tolerance);
            nb_scope_close(0, NULL);
        }
}

int main(int argc, char **argv)
{
    if (!nb_card_count()) return printf("no card: %s\n", nb_card_trouble()), 77;
    for (int f = 0; f < NFUNCTIONS; f++) {
        if (argc > 1 && !strstr(functions[f].name, argv[1])) continue;
        compare_all(f);
    }
    return tally();
}
