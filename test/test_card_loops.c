/* test_card_loops.c - loops and branches on a card: the values of the CPU, and
 * one launch for all turns.
 *
 * Every program is run on the CPU and on the card, as it is and compiled, and
 * again there: the same bits.  The second run is launches alone, which are
 * counted. */
#include "backend/cuda/card.h"
#include "base/memory.h"
#include "core/tensor.h"
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"
#include "support/faults.h"
#include "transform/func.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { TURNS = 150, WIDTH = 12, LANES = 3, ROWS = 48, MOST = 16 };

/* A body of several results, which closes over c. */
#define BODY_OF(name, ...)                                                 \
    static nb_status name(void *ctx, int nx, nb_tensor *const *x, int *ny, \
                          nb_tensor **y)                                   \
    {                                                                      \
        nb_tensor *const *c = ctx;                                         \
        nb_tensor *all[] = {__VA_ARGS__};                                  \
        (void)c, (void)nx, (void)x;                                        \
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)            \
            y[k] = all[k];                                                 \
        return *ny = sizeof all / sizeof all[0], NB_OK;                    \
    }

/* A program on the inputs W (WIDTH, WIDTH), X (TURNS, WIDTH), h (WIDTH). */
#define PROGRAM(name)                                                      \
    static nb_status name(void *ctx, int nx, nb_tensor *const *x, int *ny, \
                          nb_tensor **y)

static nb_func *fn(nb_body *body, nb_tensor *const *closed)
{
    return nb_func_new(body, (void *)closed);
}

static nb_tensor *total(nb_tensor *x)
{
    return nb_reduce_sum(x, -1, NULL, false);
}

static nb_tensor *whole(int64_t v)
{
    return nb_scalar_int(v, NB_I64);
}

static nb_tensor *number(double v)
{
    return nb_scalar_float(v, NB_F32);
}

static nb_status scan(nb_body *body, nb_tensor *const *closed, int n,
                      nb_tensor *const *init, int nxs, nb_tensor *const *xs,
                      int64_t length, bool reverse, int *ny, nb_tensor **y)
{
    *ny = MOST;
    return nb_scan(fn(body, closed), n, init, nxs, xs, length, reverse, ny, y);
}

/* Scans */

static nb_tensor *next(nb_tensor *w, nb_tensor *h, nb_tensor *x)
{
    return nb_tanh(nb_add(nb_matmul(w, h), x));
}

BODY_OF(rnn, next(c[0], x[0], x[1]), next(c[0], x[0], x[1]), total(x[0]))

PROGRAM(forward)
{
    (void)ctx, (void)nx;
    return scan(rnn, x, 1, x + 2, 1, x + 1, 0, false, ny, y);
}

PROGRAM(backward)
{
    (void)ctx, (void)nx;
    return scan(rnn, x, 1, x + 2, 1, x + 1, 0, true, ny, y);
}

PROGRAM(no_turns)
{
    nb_tensor *none = nb_get(x[1], 1, (nb_key[]){NB_RANGE(3, 3, 1)});
    (void)ctx, (void)nx;
    return scan(rnn, x, 1, x + 2, 1, &none, 0, false, ny, y);
}

/* Operands that do not lie in order: a matrix turned, every other step, rows
 * that begin anywhere. */
PROGRAM(looks)
{
    nb_tensor *c[] = {nb_swap_axes(x[0], 0, 1)};
    nb_tensor *some = nb_get(x[1], 1, (nb_key[]){NB_RANGE(1, TURNS, 2)});
    (void)ctx, (void)nx;
    return scan(rnn, c, 1, x + 2, 1, &some, 0, false, ny, y);
}

PROGRAM(columns)
{
    nb_tensor *turned = nb_swap_axes(x[0], 0, 1);
    (void)ctx, (void)nx;
    return scan(rnn, x, 1, x + 2, 1, &turned, 0, false, ny, y);
}

/* Carries of several types, that change places, stay, or come of nothing;
 * steps of one byte. */
BODY_OF(kinds, nb_add(x[0], nb_count(1)), x[2], nb_logical_not(x[1]),
        nb_cast(nb_add(nb_mul(x[3], nb_num(0.5)), nb_cast(x[7], NB_BF16)),
                NB_BF16),
        nb_add(x[4], nb_cast(x[7], NB_F64)), nb_mul(c[0], nb_num(2)), x[8],
        nb_mul(x[0], nb_count(3)), nb_where(x[1], x[3], nb_num(1)),
        nb_cast(x[8], NB_I32))

PROGRAM(of_many_kinds)
{
    nb_tensor *c[] = {x[2]};
    nb_tensor *init[] = {whole(7),
                         nb_greater(total(x[2]), nb_num(0)),
                         nb_less(total(x[0]), nb_num(0)),
                         nb_cast(x[2], NB_BF16),
                         nb_cast(x[2], NB_F64),
                         x[2],
                         nb_cast(total(x[2]), NB_I8)};
    nb_tensor *byte = nb_cast(
        nb_mul(nb_get(x[1], 2, (nb_key[]){NB_ALL, NB_AT(0)}), nb_num(9)),
        NB_I8);
    nb_tensor *xs[] = {x[1], byte};
    (void)ctx, (void)nx;
    return scan(kinds, c, 7, init, 2, xs, 0, false, ny, y);
}

/* What a block has no room for: states of more than its memory. */
BODY_OF(wide, nb_add(nb_mul(x[0], nb_num(0.5)), x[1]),
        nb_reduce_max(x[0], -1, NULL, false))

PROGRAM(of_wide_states)
{
    int64_t shape[] = {40, 200, WIDTH};
    nb_tensor *init = nb_broadcast_to(x[2], 3, shape);
    (void)ctx, (void)nx;
    return scan(wide, NULL, 1, &init, 1, x + 1, 0, false, ny, y);
}

BODY_OF(softly, nb_softmax(nb_add(nb_matmul(c[0], x[0]), x[1]), -1),
        nb_cumsum(x[0], 0, false, false))

PROGRAM(of_rows)
{
    (void)ctx, (void)nx;
    return scan(softly, x, 1, x + 2, 1, x + 1, 0, false, ny, y);
}

/* Rows that go each for itself, which blocks share out; and rows that meet. */
static nb_tensor *row_max(nb_tensor *x)
{
    return nb_reduce_max(x, 1, (int64_t[]){1}, false);
}

static nb_tensor *row_mean(nb_tensor *x)
{
    return nb_mean(x, 1, (int64_t[]){0}, false);
}

static nb_tensor *next_rows(nb_tensor *w, nb_tensor *h, nb_tensor *x)
{
    return nb_tanh(nb_add(nb_matmul(h, w), x));
}

BODY_OF(apart, next_rows(c[0], x[0], x[2]), nb_add(x[1], nb_count(1)),
        row_max(x[0]), x[1], next_rows(c[0], x[0], x[2]))
BODY_OF(together, nb_sub(next_rows(c[0], x[0], x[2]), row_mean(x[0])),
        nb_add(x[1], nb_count(1)), row_max(x[0]))

static nb_tensor *rows_of(nb_tensor *h)
{
    nb_tensor *some[ROWS];
    for (int r = 0; r < ROWS; r++)
        some[r] = nb_mul(h, nb_num(0.1 * r - 1));
    return nb_stack(ROWS, some, 0);
}

PROGRAM(of_rows_apart)
{
    nb_tensor *init[] = {rows_of(x[2]), whole(0)};
    (void)ctx, (void)nx;
    return scan(apart, x, 2, init, 1, x + 1, 0, false, ny, y);
}

PROGRAM(of_rows_together)
{
    nb_tensor *init[] = {rows_of(x[2]), whole(0)};
    (void)ctx, (void)nx;
    return scan(together, x, 2, init, 1, x + 1, 0, false, ny, y);
}

/* Steps of rows of their own. */
PROGRAM(of_rows_of_steps)
{
    int64_t shape[] = {TURNS, ROWS, WIDTH};
    nb_tensor *init[] = {rows_of(x[2]), whole(0)};
    nb_tensor *steps = nb_reshape(x[1], 3, (int64_t[]){TURNS, 1, WIDTH});
    steps = nb_mul(nb_broadcast_to(steps, 3, shape), rows_of(x[2]));
    (void)ctx, (void)nx;
    return scan(apart, x, 2, init, 1, &steps, 0, true, ny, y);
}

/* Random words, keys handed on. */
static nb_tensor *key_at(nb_tensor *keys, int64_t i)
{
    return nb_get(keys, 1, (nb_key[]){NB_AT(i)});
}

static nb_tensor *noise(nb_tensor *key)
{
    return nb_random_uniform(key, 1, (int64_t[]){WIDTH}, 0, 1, NB_F32);
}

BODY_OF(draws, key_at(nb_random_split(x[0], 2), 0),
        nb_add(x[1], noise(key_at(nb_random_split(x[0], 2), 1))))

PROGRAM(of_random_words)
{
    nb_tensor *key = nb_random_key(5);
    (void)ctx, (void)nx;
    return scan(draws, NULL, 1, &key, 1, x + 1, 0, false, ny, y);
}

/* Whiles and branches */

/* In a way that nobody counts beforehand. */
BODY_OF(few, nb_less(nb_square(x[0]), nb_count(100 * 100)))
BODY_OF(known, nb_less(x[0], nb_count(100)))
BODY_OF(none, nb_less(x[0], nb_count(0)))
BODY_OF(large, nb_greater(total(nb_square(x[1])), nb_num(1e-2)))
BODY_OF(shrink, nb_add(x[0], nb_count(1)),
        nb_mul(nb_matmul(c[0], x[1]), nb_num(0.4)))
BODY_OF(add_up, nb_add(x[0], nb_count(1)),
        nb_add(nb_mul(x[1], nb_num(0.9)), nb_num(1)))

static nb_status loop(nb_body *test, nb_body *body, nb_tensor *const *c,
                      nb_tensor *state, int *ny, nb_tensor **y)
{
    nb_tensor *init[] = {whole(0), state};
    *ny = 2;
    return nb_while(fn(test, c), fn(body, c), 2, init, y);
}

PROGRAM(counted)
{
    (void)ctx, (void)nx;
    return loop(few, add_up, x, number(3), ny, y);
}

PROGRAM(until_small)
{
    (void)ctx, (void)nx;
    return loop(large, shrink, x, x[2], ny, y);
}

PROGRAM(not_once)
{
    (void)ctx, (void)nx;
    return loop(none, shrink, x, x[2], ny, y);
}

PROGRAM(known_beforehand)
{
    (void)ctx, (void)nx;
    return loop(known, shrink, x, x[2], ny, y);
}

BODY_OF(one_side, nb_sin(x[0]), total(c[0]))
BODY_OF(other_side, nb_matmul(c[0], x[0]), total(x[0]))

static nb_status choose(nb_tensor *pred, nb_tensor *const *c, nb_tensor *h,
                        int *ny, nb_tensor **y)
{
    *ny = 2;
    return nb_cond(pred, fn(one_side, c), fn(other_side, c), 1, &h, ny, y);
}

PROGRAM(either)
{
    nb_tensor *rest[2] = {0};
    int n = 2;
    (void)ctx, (void)nx;
    nb_tensor *pred = nb_greater(total(x[2]), nb_num(0));
    nb_status s = choose(pred, x, x[2], ny, y);
    if (s == NB_OK) s = choose(nb_logical_not(pred), x, x[2], &n, rest);
    y[2] = rest[0], y[3] = rest[1];
    return *ny = 4, s;
}

/* Loops within loops */

static nb_status inner_scan(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    nb_tensor *const *c = ctx, *own[] = {c[0], x[0]};
    nb_tensor *out[4] = {0};
    int n = 4;
    (void)nx;
    *ny = 2;
    if (nb_scan(fn(rnn, own), 1, x, 1, c, 0, false, &n, out) != NB_OK)
        return nb_error_code();
    y[0] = nb_add(out[0], x[1]);
    y[1] = out[2];
    return NB_OK;
}

static nb_status inner_while(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    nb_tensor *out[2] = {0};
    int n;
    (void)nx;
    nb_status s = loop(large, shrink, ctx, nb_add(x[0], x[1]), &n, out);
    y[0] = nb_add(out[1], x[1]);
    y[1] = out[0];
    return *ny = 2, s;
}

static nb_status inner_cond(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    nb_tensor *out[2] = {0};
    int n;
    (void)nx;
    nb_status s =
        choose(nb_greater(total(x[1]), nb_num(0)), ctx, x[0], &n, out);
    y[0] = nb_tanh(nb_add(out[0], x[1]));
    y[1] = out[1];
    return *ny = 2, s;
}

/* Steps of what is read elsewhere, too: it lies in the block's memory. */
BODY_OF(sums, nb_cumsum(nb_mul(c[0], x[0]), 0, false, false))

static nb_status staged_scan(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    int n = 1;
    nb_status s = inner_scan(ctx, nx, x, ny, y);
    if (s == NB_OK) s = sums(ctx, nx, x, &n, y + 1);
    return s;
}

PROGRAM(scans_in_scan)
{
    (void)ctx, (void)nx;
    return scan(inner_scan, x, 1, x + 2, 1, x + 1, 0, false, ny, y);
}

PROGRAM(staged_in_scan)
{
    (void)ctx, (void)nx;
    return scan(staged_scan, x, 1, x + 2, 1, x + 1, 0, false, ny, y);
}

PROGRAM(whiles_in_scan)
{
    (void)ctx, (void)nx;
    return scan(inner_while, x, 1, x + 2, 1, x + 1, 0, true, ny, y);
}

PROGRAM(branches_in_scan)
{
    (void)ctx, (void)nx;
    return scan(inner_cond, x, 1, x + 2, 1, x + 1, 0, false, ny, y);
}

/* Transforms */

static nb_status last_sum(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    nb_tensor *out[MOST] = {0};
    int n = MOST;
    nb_body *body = *(nb_body **)ctx;
    if (body(NULL, nx, x, &n, out) != NB_OK) return nb_error_code();
    y[0] = nb_add(total(nb_square(out[0])), total(out[1]));
    return *ny = 1, NB_OK;
}

static nb_status gradient_of(nb_body *body, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    *ny = 3;
    nb_func *f = nb_func_new(last_sum, &body);
    return nb_func_call(nb_grad(f, 3, (int[]){0, 1, 2}), 3, x, ny, y);
}

PROGRAM(gradient)
{
    (void)ctx, (void)nx;
    return gradient_of(forward, x, ny, y);
}

PROGRAM(gradient_of_branches)
{
    (void)ctx, (void)nx;
    return gradient_of(branches_in_scan, x, ny, y);
}

PROGRAM(gradient_of_whiles)
{
    (void)ctx, (void)nx;
    return gradient_of(whiles_in_scan, x, ny, y);
}

PROGRAM(decayed)
{
    nb_tensor *out[2];
    int n;
    (void)ctx, (void)nx;
    nb_status s = loop(few, shrink, x, x[2], &n, out);
    y[0] = out[1], y[1] = nb_mul(out[1], nb_num(2));
    return *ny = 2, s;
}

PROGRAM(gradient_of_a_while)
{
    (void)ctx, (void)nx;
    return gradient_of(decayed, x, ny, y);
}

PROGRAM(gradient_of_rows)
{
    (void)ctx, (void)nx;
    return gradient_of(of_rows_apart, x, ny, y);
}

static nb_status mapped_of(nb_body *body, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    int axes[] = {NB_UNMAPPED, NB_UNMAPPED, 0};
    nb_vmap_options o = {.nin = 3, .in_axes = axes};
    nb_tensor *some[LANES];
    for (int l = 0; l < LANES; l++)
        some[l] = nb_mul(x[2], nb_num(0.5 + l));
    nb_tensor *in[] = {x[0], x[1], nb_stack(LANES, some, 0)};
    return nb_func_call(nb_vmap(nb_func_new(body, NULL), &o), 3, in, ny, y);
}

PROGRAM(mapped)
{
    (void)ctx, (void)nx;
    return mapped_of(forward, x, ny, y);
}

PROGRAM(mapped_gradient)
{
    (void)ctx, (void)nx;
    return mapped_of(gradient, x, ny, y);
}

PROGRAM(mapped_while)
{
    (void)ctx, (void)nx;
    return mapped_of(until_small, x, ny, y);
}

/* One of three, closing over a number; along one that the CPU has. */
BODY_OF(times, nb_mul(x[0], c[1]))
BODY_OF(waved, nb_sin(x[0]))
BODY_OF(plus, nb_add(x[0], c[1]))

static nb_tensor *chosen(int64_t which, nb_tensor *const *x)
{
    nb_func *f[] = {fn(times, x), fn(waved, x), fn(plus, x)};
    nb_tensor *y;
    int n = 1;
    return nb_switch(whole(which), 3, f, 1, x, &n, &y) == NB_OK ? y : NULL;
}

PROGRAM(one_of_three)
{
    (void)ctx, (void)nx;
    y[0] = nb_add(chosen(1, x), nb_mul(chosen(-7, x), chosen(9, x)));
    return *ny = 1, NB_STATUS(y[0]);
}

PROGRAM(pushed)
{
    const float by = 0.3f;
    nb_tensor *in[] = {x[2], total(x[0]), nb_cos(x[2]),
                       nb_constant(NB_F32, 0, NULL, &by)};
    (void)ctx, (void)nx;
    return nb_func_call(nb_jvp(fn(one_of_three, NULL)), 4, in, ny, y);
}

/* The same in lanes, some of which tell no difference. */
static nb_status pulled(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    nb_tensor *in[] = {nb_get(x[1], 1, (nb_key[]){NB_AT(3)}), total(x[2])};
    nb_tensor *all[2];
    nb_func *f = nb_vjp(fn(one_of_three, NULL), 2);
    int n = 1;
    (void)ctx, (void)nx;
    if (one_of_three(NULL, 2, in, &n, all) != NB_OK) return nb_error_code();
    nb_tensor *back[] = {in[0], in[1], nb_cos(all[0])};
    return nb_func_call(f, 3, back, ny, y);
}

PROGRAM(mapped_branches)
{
    (void)ctx, (void)nx;
    return mapped_of(pulled, x, ny, y);
}

/* A map within a body, of loops, in lanes. */
BODY_OF(wave_on, nb_sin(nb_add(x[1], c[0])))

static nb_tensor *waves_of(nb_tensor *x, nb_tensor *h)
{
    nb_tensor *y;
    nb_func *f = fn(wave_on, &x);
    return nb_fori(nb_count(0), nb_count(3), f, 1, &h, &y) == NB_OK ? y : NULL;
}
BODY_OF(each_wave, waves_of(x[0], c[0]))

static nb_tensor *fan_of(nb_tensor *h, nb_tensor *over)
{
    nb_tensor *all = nb_func_call1(nb_vmap(fn(each_wave, &h), NULL), 1, &over);
    return nb_mul(total(all), nb_num(0.05));
}
BODY_OF(fan, fan_of(x[0], x[1]))

PROGRAM(fans)
{
    nb_tensor *begin = total(x[2]);
    (void)ctx, (void)nx;
    return scan(fan, NULL, 1, &begin, 1, x + 1, 0, false, ny, y);
}

PROGRAM(mapped_fans)
{
    (void)ctx, (void)nx;
    return mapped_of(fans, x, ny, y);
}

/* More steps, in and out, than are moved at once. */
enum { CROWD = 70 };

static nb_status one_of_crowd(void *ctx, int nx, nb_tensor *const *x, int *ny,
                              nb_tensor **y)
{
    nb_tensor *sum = x[0];
    (void)ctx;
    for (int i = 1; i < nx; i++) {
        sum = nb_add(sum, nb_mul(x[i], nb_num(0.01 * i)));
        y[i] = nb_add(x[i], x[0]);
    }
    y[0] = nb_tanh(sum);
    return *ny = nx, NB_OK;
}

PROGRAM(of_a_crowd)
{
    nb_tensor *xs[CROWD], *all[1 + CROWD], *sum = nb_num(0);
    int n = 1 + CROWD;
    (void)ctx, (void)nx;
    for (int i = 0; i < CROWD; i++)
        xs[i] = nb_sin(nb_add(x[1], nb_num(i)));
    nb_status ok =
        nb_scan(fn(one_of_crowd, NULL), 1, x + 2, CROWD, xs, 0, false, &n, all);
    if (ok != NB_OK) return ok;
    for (int i = 1; i < n; i++)
        sum = nb_add(sum, nb_mul(all[i], nb_num(0.1 * i)));
    y[0] = all[0], y[1] = sum;
    return *ny = 2, NB_OK;
}

/* Both ways */

static void fill(float *to, int n, double scale, double phase)
{
    for (int i = 0; i < n; i++)
        to[i] = (float)(scale * sin(1.7 * i + phase));
}

static void inputs(int device, nb_tensor **x)
{
    static float w[WIDTH * WIDTH], steps[TURNS * WIDTH], h[WIDTH];
    fill(w, WIDTH * WIDTH, 0.25, 0.3);
    fill(steps, TURNS * WIDTH, 1, 0.1);
    fill(h, WIDTH, 0.8, 0.9);
    x[0] = nb_constant(NB_F32, 2, (int64_t[]){WIDTH, WIDTH}, w);
    x[1] = nb_constant(NB_F32, 2, (int64_t[]){TURNS, WIDTH}, steps);
    x[2] = nb_constant(NB_F32, 1, (int64_t[]){WIDTH}, h);
    for (int i = 0; i < 3; i++) {
        x[i] = nb_to_device(x[i], device);
        need(x[i] && nb_realize(x[i]) == NB_OK);
    }
}

typedef struct values {
    int n;
    int64_t size[MOST];
    double *at[MOST];
} values;

static void read_all(int n, nb_tensor *const *y, values *v)
{
    v->n = n;
    for (int k = 0; k < n; k++) {
        v->size[k] = nb_elements(y[k]);
        v->at[k] = nb_alloc((size_t)(v->size[k] + 1) * sizeof *v->at[k]);
        need(v->at[k] && nb_read(y[k], NB_F64, v->at[k]) == NB_OK);
    }
}

static void run(nb_func *f, nb_tensor *const *x, values *v)
{
    nb_tensor *y[MOST];
    int n = MOST;
    need(nb_func_call(f, 3, x, &n, y) == NB_OK &&
         nb_realize_all(n, y) == NB_OK);
    read_all(n, y, v);
}

static void free_all(values *v)
{
    for (int k = 0; k < v->n; k++)
        nb_free(v->at[k]);
}

static bool near(const values *a, const values *b, double within)
{
    bool ok = a->n == b->n;
    for (int k = 0; ok && k < a->n; k++) {
        double most = 1;
        ok = a->size[k] == b->size[k];
        for (int64_t i = 0; ok && i < a->size[k]; i++)
            most = fmax(most, fabs(a->at[k][i]));
        for (int64_t i = 0; ok && i < a->size[k]; i++)
            ok = fabs(a->at[k][i] - b->at[k][i]) <= within * most;
        if (!ok) fprintf(stderr, "result %d differs\n", k);
    }
    return ok;
}

/* On the CPU and on the card; so many launches there at most. */
static void check(nb_body *body, int launches)
{
    nb_tensor *here[3], *there[3];
    values a, b, c, lazy;
    nb_card *card = cards_first();
    need(nb_scope_open() == NB_OK);
    inputs(0, here);
    run(nb_func_new(body, NULL), here, &a);
    nb_default_device_set(1);
    inputs(1, there);
    run(nb_func_new(body, NULL), there, &lazy);
    nb_func *f = nb_compile(nb_func_new(body, NULL), NULL);
    run(f, there, &b);
    nb_card_sync(card);
    uint64_t before = nb_card_launches(card);
    run(f, there, &c);
    uint64_t took = nb_card_launches(card) - before;
    need(near(&a, &lazy, 2e-5) && near(&a, &b, 2e-5));
    need(near(&b, &c, 0));
    if (took > (uint64_t)launches) fprintf(stderr, "%d launches\n", (int)took);
    need(took <= (uint64_t)launches);
    free_all(&a), free_all(&b), free_all(&c), free_all(&lazy);
    nb_scope_close(0, NULL);
}

/* The same by many launches, which later are a graph: then one launch, or a few
 * where the program has more than the loop. */
static void check_large(nb_body *body, int launches)
{
    nb_tensor *here[3], *there[3];
    values a, b, c;
    nb_card *card = cards_first();
    uint64_t took = 0;
    need(nb_scope_open() == NB_OK);
    inputs(0, here);
    run(nb_func_new(body, NULL), here, &a);
    nb_default_device_set(1);
    inputs(1, there);
    nb_func *f = nb_compile(nb_func_new(body, NULL), NULL);
    run(f, there, &b);
    need(near(&a, &b, 2e-5));
    for (int again = 0; again < 4; again++) {
        need(nb_scope_open() == NB_OK);
        nb_card_sync(card);
        uint64_t before = nb_card_launches(card);
        run(f, there, &c);
        took = nb_card_launches(card) - before;
        need(near(&b, &c, 0));
        free_all(&c);
        nb_scope_close(0, NULL);
    }
    if (took > (uint64_t)launches) fprintf(stderr, "%d launches\n", (int)took);
    need(took <= (uint64_t)launches);
    free_all(&a), free_all(&b);
    nb_scope_close(0, NULL);
}

typedef struct program {
    const char *name;
    nb_body *body;
    int launches;
} program;

/* Loops that are graphs. */
static const program large_ones[] = {
    {"scan", forward, 3},
    {"backward", backward, 3},
    {"no turns", no_turns, 3},
    {"looks", looks, 3},
    {"columns", columns, 3},
    {"many kinds", of_many_kinds, 3},
    {"wide states", of_wide_states, 3},
    {"rows", of_rows, 3},
    {"rows apart", of_rows_apart, 3},
    {"rows of steps", of_rows_of_steps, 3},
    {"random words", of_random_words, 3},
    {"counted", counted, 3},
    {"until small", until_small, 3},
    {"not once", not_once, 3},
    {"as often as is known beforehand", known_beforehand, 3},
    {"either", either, 3},
    {"scans in scan", scans_in_scan, 3},
    {"staged in scan", staged_in_scan, 3},
    {"whiles in scan", whiles_in_scan, 3},
    {"branches in scan", branches_in_scan, 3},
    {"gradient", gradient, 3},
    {"gradient of branches", gradient_of_branches, 3},
    {"gradient of rows", gradient_of_rows, 3},
    {"gradient of a while", gradient_of_a_while, 500},
    {"gradient of whiles", gradient_of_whiles, 50000},
    {"mapped", mapped, 3},
    {"mapped gradient", mapped_gradient, 3},
    {"mapped while", mapped_while, 3},
    {"a crowd", of_a_crowd, 3 + CROWD},
};

static int large_one;

static void body_of_large(void)
{
    check_large(large_ones[large_one].body, large_ones[large_one].launches);
}

static void loops_of_many_kernels_are_graphs(void **state)
{
    (void)state;
    for (large_one = 0;
         large_one < (int)(sizeof large_ones / sizeof large_ones[0]);
         large_one++) {
        fprintf(stderr, "%s\n", large_ones[large_one].name);
        cards_alone(body_of_large, "NABLA_DISABLE=solo");
    }
}

/* The same where the host has to read tests: no conditions, no graphs, or some
 * that cannot be made. */
static void body_of_reading(void)
{
    check_large(large_ones[large_one].body, 1 << 20);
}

static void tests_are_read_without_conditions(void **state)
{
    static const char *const settings[] = {
        "NABLA_DISABLE=solo NABLA_SIM_VERSION=12000",
        "NABLA_DISABLE=solo NABLA_CUDA_GRAPHS=0",
        "NABLA_DISABLE=solo NABLA_SIM_FAIL=cuGraphAddNode:1",
    };
    static const char *const names[] = {"until small", "either",
                                        "gradient of a while"};
    (void)state;
    if (!cards_simulated()) skip();
    for (int i = 0; i < 9; i++) {
        large_one = 0;
        while (strcmp(large_ones[large_one].name, names[i % 3]) != 0)
            large_one++;
        cards_alone(body_of_reading, "%s", settings[i / 3]);
    }
}

#define TEST(name, body, launches) \
    CARD_TEST(name, "")            \
    {                              \
        check(body, launches);     \
    }

TEST(a_scan_is_one_launch, forward, 1)
TEST(a_scan_goes_back_to_front, backward, 1)
TEST(a_scan_of_no_turns_is_where_it_began, no_turns, 1)
TEST(operands_need_not_lie_in_order, looks, 1)
TEST(steps_are_columns, columns, 2)
TEST(carries_are_of_many_kinds, of_many_kinds, 8)
TEST(states_are_larger_than_a_block_holds, of_wide_states, 3 * TURNS)
TEST(rows_are_reduced_and_summed_up, of_rows, 1)
TEST(rows_are_shared_out_to_blocks, of_rows_apart, 3)
TEST(rows_of_steps_are_shared_out_to_blocks, of_rows_of_steps, 4)
TEST(rows_that_meet_stay_together, of_rows_together, 3)
TEST(gradients_of_rows_are_loops, gradient_of_rows, 10)
TEST(random_words_are_those_of_the_cpu, of_random_words, 3)
TEST(a_while_counts, counted, 1)
TEST(a_while_ends_by_its_states, until_small, 1)
TEST(a_while_may_end_before_it_begins, not_once, 1)
TEST(a_branch_is_taken_there, either, 4)
TEST(scans_run_in_scans, scans_in_scan, 1)
TEST(steps_are_of_what_is_staged, staged_in_scan, 1)
TEST(whiles_run_in_scans, whiles_in_scan, 1)
TEST(branches_run_in_scans, branches_in_scan, 1)
TEST(gradients_are_two_loops, gradient, 6)
TEST(gradients_of_branches_are_loops, gradient_of_branches, 6)
TEST(lanes_go_together, mapped, 6)
TEST(gradients_in_lanes_are_loops, mapped_gradient, 10)
TEST(lanes_end_by_themselves, mapped_while, 6)
TEST(numbers_of_the_cpu_move_branches, pushed, 12)
TEST(branches_in_lanes_fill_all_of_them, mapped_branches, 40)
TEST(maps_within_bodies_stay_within, mapped_fans, 6)

static bool runs_often(void *x)
{
    nb_func *f = nb_compile(nb_func_new(branches_in_scan, NULL), NULL);
    bool ok = f;
    for (int run = 0; ok && run < 3; run++) {
        nb_tensor *y[MOST];
        int ny = MOST;
        ok = nb_func_call(f, 3, x, &ny, y) == NB_OK &&
             nb_realize_all(ny, y) == NB_OK;
    }
    return ok;
}

static void body_of_faults(void)
{
    nb_tensor *x[3];
    cards_first();
    need(nb_scope_open() == NB_OK);
    nb_default_device_set(1);
    inputs(1, x);
    faults f = {.run = runs_often, .ctx = x, .sparse = 16, .keeps = true};
    f.fresh = true;
    need(faults_survived(&f));
    nb_scope_close(0, NULL);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    cards_alone(body_of_faults, "");
    cards_alone(body_of_faults, "NABLA_DISABLE=solo");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_scan_is_one_launch),
        cmocka_unit_test(a_scan_goes_back_to_front),
        cmocka_unit_test(a_scan_of_no_turns_is_where_it_began),
        cmocka_unit_test(operands_need_not_lie_in_order),
        cmocka_unit_test(steps_are_columns),
        cmocka_unit_test(carries_are_of_many_kinds),
        cmocka_unit_test(states_are_larger_than_a_block_holds),
        cmocka_unit_test(rows_are_reduced_and_summed_up),
        cmocka_unit_test(rows_are_shared_out_to_blocks),
        cmocka_unit_test(rows_of_steps_are_shared_out_to_blocks),
        cmocka_unit_test(rows_that_meet_stay_together),
        cmocka_unit_test(gradients_of_rows_are_loops),
        cmocka_unit_test(random_words_are_those_of_the_cpu),
        cmocka_unit_test(a_while_counts),
        cmocka_unit_test(a_while_ends_by_its_states),
        cmocka_unit_test(a_while_may_end_before_it_begins),
        cmocka_unit_test(a_branch_is_taken_there),
        cmocka_unit_test(scans_run_in_scans),
        cmocka_unit_test(steps_are_of_what_is_staged),
        cmocka_unit_test(whiles_run_in_scans),
        cmocka_unit_test(branches_run_in_scans),
        cmocka_unit_test(gradients_are_two_loops),
        cmocka_unit_test(gradients_of_branches_are_loops),
        cmocka_unit_test(lanes_go_together),
        cmocka_unit_test(gradients_in_lanes_are_loops),
        cmocka_unit_test(lanes_end_by_themselves),
        cmocka_unit_test(numbers_of_the_cpu_move_branches),
        cmocka_unit_test(branches_in_lanes_fill_all_of_them),
        cmocka_unit_test(maps_within_bodies_stay_within),
        cmocka_unit_test(loops_of_many_kernels_are_graphs),
        cmocka_unit_test(tests_are_read_without_conditions),
        cmocka_unit_test(memory_may_run_out),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
