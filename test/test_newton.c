/* test_newton.c - Newton's method, as many turns as it takes.
 *
 * A circle meets a hyperbola: f(x) = (x0^2 + x1^2 - a0, x0 x1 - a1) = 0.  Each
 * step solves with the Jacobian of f, which is itself a transform within the
 * loop.  The loop has the derivatives of the implicit function once it is at
 * its end, and those of the same steps written out wherever it stops; walking
 * back through it keeps the states and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/check.h"
#include "support/there.h"

#include "base/memory.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static nb_tensor *at(nb_tensor *x, int64_t i)
{
    return nb_get(x, 1, (nb_key[]){NB_AT(i)});
}

static nb_tensor *pair(nb_tensor *x, nb_tensor *y)
{
    return nb_stack(2, (nb_tensor *[]){x, y}, 0);
}

static nb_tensor *circle(nb_tensor *x)
{
    return nb_add(nb_square(at(x, 0)), nb_square(at(x, 1)));
}

/* f(x), which closes over a. */
FN(system, nb_sub(pair(circle(x[0]), nb_mul(at(x[0], 0), at(x[0], 1))), c[0]))

/* x - J^-1 f(x) */
static nb_tensor *next(nb_tensor *x, nb_tensor *a)
{
    nb_func *f = nb_func_new(system, &a);
    nb_tensor *slope = nb_func_call1(nb_jacfwd(f, 0), 1, &x);
    return nb_sub(x, nb_solve(slope, nb_func_call1(f, 1, &x)));
}

static nb_tensor *off(nb_tensor *x, nb_tensor *a)
{
    nb_func *f = nb_func_new(system, &a);
    return nb_reduce_max(nb_abs(nb_func_call1(f, 1, &x)), -1, NULL, false);
}

/* What the loop closes over: a, and how near is near. */
typedef struct search {
    nb_tensor *a;
    double near;
} search;

static nb_status far_off(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    const search *s = ctx;
    (void)nx;
    y[0] = nb_greater(off(x[0], s->a), nb_num(s->near));
    return *ny = 1, nb_error_code();
}

static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    const search *s = ctx;
    (void)nx;
    y[0] = next(x[0], s->a);
    y[1] = nb_add(x[1], nb_count(1));
    return *ny = 2, nb_error_code();
}

/* (a) -> (x, turns), from (2, 0.5). */
static nb_status looped(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    const double *near_enough = ctx;
    search s = {x[0], *near_enough};
    nb_tensor *init[] = {VEC(2, 0.5), nb_scalar_int(0, NB_I64)};
    (void)nx;
    *ny = 2;
    return nb_while(nb_func_new(far_off, &s), nb_func_new(step, &s), 2, init,
                    y);
}

static nb_status solved(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    *ny = 2;
    nb_status s = looped(ctx, nx, x, ny, y);
    return *ny = 1, s;
}

/* The same turns, written out. */
static nb_status unrolled(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    const int *turns = ctx;
    (void)nx;
    y[0] = VEC(2, 0.5);
    for (int i = 0; i < *turns; i++)
        y[0] = next(y[0], x[0]);
    return *ny = 1, nb_error_code();
}

/* Two steps more than values need: derivatives lag behind. */
static nb_status settled(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    *ny = 1;
    nb_status s = solved(ctx, nx, x, ny, y);
    if (s == NB_OK) y[0] = next(next(y[0], x[0]), x[0]);
    return nb_error_code();
}

static int open_scope(void **state)
{
    (void)state;
    return nb_scope_open() != NB_OK;
}

static int close_scope(void **state)
{
    (void)state;
    nb_error_clear();
    for (int open = 0; open < 20; open++)
        nb_scope_close(0, NULL);
    nb_caches_clear();
    return nodes_left() != 0;
}

static void expect_near(nb_tensor *x, nb_tensor *y)
{
    if (!near(x, y, 1e-8)) {
        char *p = nb_tensor_text(x), *q = nb_tensor_text(y);
        fail_msg("%s is not %s; %s", p, q, nb_error_message());
    }
}

static const double tight = 1e-13, loose = 1e-3;
static const double targets[][2] = {{4, 1}, {9, -2}, {50, 3}};
enum { NTARGETS = sizeof targets / sizeof targets[0] };

/* J dx/da = 1, so dx/da = J^-1 = S, and d2x/da2 = -S (x0' x0' + x1' x1', ...)
 * with f's second derivatives, which are constant: 2 on the diagonal for the
 * circle, 1 off it for the hyperbola. */
static void implicit(nb_tensor *x, double s[2][2], double d[2][2][2])
{
    double v[2], det;
    assert_int_equal(nb_read(x, NB_F64, v), NB_OK);
    det = 2 * (v[0] * v[0] - v[1] * v[1]);
    s[0][0] = v[0] / det, s[0][1] = -2 * v[1] / det;
    s[1][0] = -v[1] / det, s[1][1] = 2 * v[0] / det;
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 2; b++) {
            double c = 2 * (s[0][a] * s[0][b] + s[1][a] * s[1][b]);
            double h = s[0][a] * s[1][b] + s[1][a] * s[0][b];
            for (int i = 0; i < 2; i++)
                d[i][a][b] = -(s[i][0] * c + s[i][1] * h);
        }
}

static void at_its_end_it_is_the_implicit_function(void **state)
{
    nb_func *f = nb_func_new(settled, (void *)&tight);
    (void)state;
    for (int k = 0; k < NTARGETS; k++) {
        nb_tensor *a = vec(2, targets[k]), *x = nb_func_call1(f, 1, &a);
        double s[2][2], d[2][2][2];
        assert_true(nb_item(off(x, a)) < 1e-11);
        implicit(x, s, d);
        nb_tensor *slope = given(NB_F64, 2, (int64_t[]){2, 2}, s);
        nb_tensor *curve = given(NB_F64, 3, (int64_t[]){2, 2, 2}, d);
        expect_near(nb_func_call1(nb_jacrev(f, 0), 1, &a), slope);
        expect_near(nb_func_call1(nb_jacfwd(f, 0), 1, &a), slope);
        expect_near(nb_func_call1(nb_hessian(f, 0), 1, &a), curve);
        expect_near(nb_func_call1(nb_jacrev(nb_jacrev(f, 0), 0), 1, &a), curve);
    }
}

static int turns_of(nb_tensor *a, double near_enough)
{
    nb_tensor *y[2];
    int n = 2;
    assert_int_equal(
        nb_func_call(nb_func_new(looped, &near_enough), 1, &a, &n, y), NB_OK);
    return (int)nb_item(y[1]);
}

static void where_it_stops_it_is_the_loop_written_out(void **state)
{
    nb_func *f = nb_func_new(solved, (void *)&loose);
    (void)state;
    for (int k = 0; k < NTARGETS; k++) {
        nb_tensor *a = vec(2, targets[k]);
        int turns = turns_of(a, loose);
        nb_func *g = nb_func_new(unrolled, &turns);
        assert_true(turns > 0 && turns < turns_of(a, tight));
        expect_near(nb_func_call1(f, 1, &a), nb_func_call1(g, 1, &a));
        expect_near(nb_func_call1(nb_jacrev(f, 0), 1, &a),
                    nb_func_call1(nb_jacrev(g, 0), 1, &a));
        expect_near(nb_func_call1(nb_jacfwd(f, 0), 1, &a),
                    nb_func_call1(nb_jacfwd(g, 0), 1, &a));
        expect_near(nb_func_call1(nb_hessian(f, 0), 1, &a),
                    nb_func_call1(nb_hessian(g, 0), 1, &a));
    }
}

static void lanes_take_their_own_time(void **state)
{
    nb_tensor *a = given(NB_F64, 2, (int64_t[]){NTARGETS, 2}, targets);
    nb_func *f = nb_func_new(looped, (void *)&tight), *g;
    nb_tensor *y[2];
    int n = 2;
    (void)state;
    assert_int_equal(nb_func_call(nb_vmap(f, NULL), 1, &a, &n, y), NB_OK);
    g = nb_jacrev(nb_func_new(settled, (void *)&tight), 0);
    nb_tensor *slopes = nb_func_call1(nb_vmap(g, NULL), 1, &a);
    for (int k = 0; k < NTARGETS; k++) {
        nb_tensor *one = vec(2, targets[k]);
        assert_int_equal(nb_item(at(y[1], k)), turns_of(one, tight));
        expect_near(at(y[0], k), nb_func_call1(f, 1, &one));
        expect_near(at(slopes, k), nb_func_call1(g, 1, &one));
    }
    assert_int_not_equal(nb_item(at(y[1], 0)), nb_item(at(y[1], 2)));
}

/* Memory: the most data alive while something runs, seen from beside. */

typedef struct watch {
    atomic_bool over;
    size_t bytes;
    int64_t nodes;
    int looks;
} watch;

static void *look_on(void *arg)
{
    for (watch *w = arg; !w->over; w->looks++, usleep(50)) {
        nb_stats s = nb_stats_get();
        if (s.bytes_in_use > w->bytes) w->bytes = s.bytes_in_use;
        if (s.nodes_live > w->nodes) w->nodes = s.nodes_live;
    }
    return NULL;
}

static watch watched(nb_tensor *x)
{
    watch w = {0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, look_on, &w), 0);
    nb_status s = nb_realize(x);
    w.over = true;
    pthread_join(thread, NULL);
    if (s != NB_OK) fail_msg("%s", nb_error_message());
    assert_true(w.looks > 10 || there_is_card()); /* which works on by itself */
    return w;
}

enum { STATE = 1000 }; /* numbers of 8 bytes */

FN(decay, nb_add(nb_mul(x[0], nb_num(0.999)), nb_num(1)))

static void a_long_scan_needs_the_memory_of_a_few_states(void **state)
{
    nb_tensor *init = nb_zeros(1, (int64_t[]){STATE}, NB_F64), *y;
    uint64_t before = nb_num(0)->serial;
    int n = 1;
    (void)state;
    assert_int_equal(nb_scan(nb_func_new(decay, NULL), 1, &init, 0, NULL,
                             100000, false, &n, &y),
                     NB_OK);
    assert_true(nb_num(0)->serial - before < 20);
    watch w = watched(y);
    assert_true(w.bytes < 20 * 8 * STATE);
    assert_true(w.nodes < 100);
    assert_true(fabs(nb_item(at(y, 0)) - 1000) < 1e-3);
}

typedef struct wave {
    nb_tensor *turns;
} wave;

static nb_status goes_on(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    const wave *w = ctx;
    (void)nx;
    y[0] = nb_less(nb_square(x[1]), nb_square(w->turns)); /* none can count */
    return *ny = 1, nb_error_code();
}

static nb_status swings(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_sin(x[0]);
    y[1] = nb_add(x[1], nb_count(1));
    return *ny = 2, nb_error_code();
}

static nb_status waves(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    wave w = {nb_scalar_int(*(int64_t *)ctx, NB_I64)};
    nb_tensor *init[] = {x[0], nb_scalar_int(0, NB_I64)}, *out[2];
    (void)nx;
    *ny = 1;
    if (nb_while(nb_func_new(goes_on, &w), nb_func_new(swings, &w), 2, init,
                 out) == NB_OK)
        y[0] = nb_reduce_sum(out[0], -1, NULL, false);
    return nb_error_code();
}

static size_t back(int64_t turns)
{
    nb_tensor *x = nb_ones(1, (int64_t[]){STATE}, NB_F64);
    nb_func *f = nb_grad(nb_func_new(waves, &turns), 1, (int[]){0});
    nb_tensor *g = nb_func_call1(f, 1, &x);
    size_t most = watched(g).bytes;
    double v = 1, slope = 1;
    for (int64_t t = 0; t < turns; t++) {
        slope *= cos(v);
        v = sin(v);
    }
    assert_true(fabs(nb_item(at(g, STATE - 1)) - slope) < 1e-9 * slope);
    return most;
}

static void walking_back_keeps_one_state_a_turn(void **state)
{
    (void)state;
    if (there_is_card()) skip(); /* bytes of the CPU are counted */
    double growth = ((double)back(2500) - (double)back(500)) / 2000;
    /* the numbers, in blocks up to a quarter larger, and the counter */
    assert_true(growth > 0.9 * 8 * STATE && growth < 1.25 * 8 * STATE + 128);
}

#define SENTENCE(f) cmocka_unit_test_setup_teardown(f, open_scope, close_scope)

int main(void)
{
    there_open();
    const struct CMUnitTest tests[] = {
        SENTENCE(at_its_end_it_is_the_implicit_function),
        SENTENCE(where_it_stops_it_is_the_loop_written_out),
        SENTENCE(lanes_take_their_own_time),
        SENTENCE(a_long_scan_needs_the_memory_of_a_few_states),
        SENTENCE(walking_back_keeps_one_state_a_turn),
    };
    return cmocka_run_group_tests_name("newton", tests, NULL, NULL);
}
