/* test_cuda_graph.c - programs on a card as graphs: that they are, that runs
 * give the same whatever memory they have, and what happens where a graph
 * cannot be made.
 *
 * Runs on the card of the machine, or on the simulated one, which counts the
 * calls of the driver; every test in a process of its own. */
#include "backend/cuda/graph.h"
#include "backend/cuda/memory.h"
#include "base/memory.h"
#include "core/tensor.h"
#include "nabla/custom.h"
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* core's operand of a kernel has the name of the public one. */
#define nb_view nb_row_view
#include "nabla/kernel.h"
#undef nb_view

enum { ROWS = 6, COLUMNS = 8, N = ROWS * COLUMNS };

/* Several steps: rows are reduced, then columns; both results are needed by
 * what comes after. */
static nb_tensor *rows_of(nb_tensor *x, nb_tensor *w)
{
    nb_tensor *e = nb_exp(nb_sub(x, nb_reduce_max(x, 1, (int64_t[]){1}, true)));
    nb_tensor *p = nb_div(e, nb_reduce_sum(e, 1, (int64_t[]){1}, true));
    return nb_mul(p, w);
}

static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *p = rows_of(x[0], x[1]);
    nb_tensor *c = nb_reduce_sum(p, 1, (int64_t[]){0}, true);
    y[0] = nb_sub(x[1], nb_mul(nb_num(0.5), nb_mul(p, c)));
    y[1] = nb_reduce_sum(nb_mul(y[0], c), -1, NULL, false);
    return *ny = 2, NB_OK;
}

/* Numbers of turn i. */
static nb_tensor *numbers(int device, int rows, int i)
{
    float v[4 * N];
    for (int k = 0; k < rows * COLUMNS; k++)
        v[k] = sinf((float)(k * (i + 3)));
    nb_tensor *x = nb_constant(NB_F32, 2, (int64_t[]){rows, COLUMNS}, v);
    x = nb_to_device(x, device);
    need(x && nb_realize(x) == NB_OK);
    return x;
}

static void read_into(nb_tensor *x, float *to)
{
    need(nb_read(x, NB_F32, to) == NB_OK);
}

static bool agree(nb_tensor *x, nb_tensor *want)
{
    float a[8 * N], b[8 * N];
    int64_t n = nb_elements(x);
    need(n == nb_elements(want) && n <= 8 * N);
    read_into(x, a), read_into(want, b);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-5f * (1 + fabsf(b[i])))) return false;
    return true;
}

static nb_executable *compiled(nb_body *body, int device)
{
    nb_tensor *x[] = {numbers(device, ROWS, 0), numbers(device, ROWS, 1)};
    nb_executable *e = NULL;
    need(nb_executable_new(nb_func_new(body, NULL), 2, x, &e) == NB_OK);
    return e;
}

static void run(nb_executable *e, nb_tensor **x, nb_tensor **y)
{
    int ny = 2;
    need(nb_executable_run(e, 2, x, &ny, y) == NB_OK);
}

/* What the CPU gives for turn i. */
static void want(nb_body *body, int rows, int i, nb_tensor **y)
{
    nb_tensor *x[] = {numbers(0, rows, i), numbers(0, rows, 7 * i)};
    int ny = 2;
    need(body(NULL, 2, x, &ny, y) == NB_OK);
}

static bool is_right(nb_body *body, int rows, int i, nb_tensor **y)
{
    nb_tensor *of[2];
    want(body, rows, i, of);
    return agree(y[0], of[0]) && agree(y[1], of[1]);
}

static int64_t launched(void)
{
    return nb_card_graph_stats_get().launched;
}

static void open_scope(void)
{
    cards_first();
    need(nb_scope_open() == NB_OK);
}

CARD_TEST(a_program_that_runs_again_and_again_is_one_graph, "%s",
          cards_blaslt())
{
    open_scope();
    nb_executable *e = compiled(step, 1);
    for (int i = 0; i < 10; i++) {
        need(nb_scope_open() == NB_OK);
        nb_tensor *y[2], *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)};
        int64_t before = launched();
        run(e, x, y);
        need(launched() - before == (i > 4));
        need(is_right(step, ROWS, i, y));
        nb_scope_close(0, NULL);
    }
    nb_executable_drop(e);
}

CARD_TEST(memory_that_comes_back_needs_one_call_of_the_driver, "%s",
          cards_blaslt())
{
    open_scope();
    nb_executable *e = compiled(step, 1);
    nb_tensor *x[] = {numbers(1, ROWS, 1), numbers(1, ROWS, 7)};
    nb_card_graph_stats was = {0};
    for (int i = 0; i < 12; i++) {
        nb_tensor *y[2];
        need(nb_scope_open() == NB_OK);
        if (i == 6) was = nb_card_graph_stats_get();
        run(e, x, y);
        need(is_right(step, ROWS, 1, y));
        nb_scope_close(0, NULL);
    }
    nb_card_graph_stats is = nb_card_graph_stats_get();
    need(is.captured == was.captured && is.changed == was.changed);
    need(is.launched == was.launched + 6);
    nb_executable_drop(e);
}

CARD_TEST(results_that_are_kept_stay_what_they_are, "%s", cards_blaslt())
{
    enum { TURNS = 24 };
    open_scope();
    nb_executable *e = compiled(step, 1);
    nb_tensor *y[TURNS][2];
    for (int i = 0; i < TURNS; i++) {
        nb_tensor *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)};
        run(e, x, y[i]);
    }
    for (int i = 0; i < TURNS; i++)
        need(is_right(step, ROWS, i, y[i]));
    nb_card_graph_stats s = nb_card_graph_stats_get();
    need(s.launched >= TURNS - 6 && s.captured <= 5 && s.changed > 0);
    nb_executable_drop(e);
}

/* w = step(x, w), the memory of w its own or a new one each time. */
static void descend(bool donates, float *to)
{
    nb_executable *e = compiled(step, 1);
    if (donates) need(nb_executable_donate(e, 1, (int[]){1}) == NB_OK);
    nb_tensor *x = numbers(1, ROWS, 1), *w = nb_keep(numbers(1, ROWS, 2));
    for (int i = 0; i < 16; i++) {
        nb_tensor *y[2], *in[] = {x, w};
        need(nb_scope_open() == NB_OK);
        run(e, in, y);
        nb_keep(y[0]);
        nb_scope_close(0, NULL);
        nb_drop(w);
        w = y[0];
    }
    read_into(w, to);
    nb_drop(w);
    nb_executable_drop(e);
}

CARD_TEST(donated_arguments_are_results, "%s", cards_blaslt())
{
    float a[N], b[N];
    open_scope();
    descend(false, a);
    need(nb_scope_open() == NB_OK);
    descend(true, b);
    need(!memcmp(a, b, sizeof a));
    need(launched() > 16);
}

CARD_TEST(graphs_are_turned_off, "%s NABLA_CUDA_GRAPHS=0", cards_blaslt())
{
    open_scope();
    nb_executable *e = compiled(step, 1);
    for (int i = 0; i < 4; i++) {
        nb_tensor *y[2], *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)};
        run(e, x, y);
        need(is_right(step, ROWS, i, y));
    }
    need(!launched() && !nb_card_graph_stats_get().captured);
    nb_executable_drop(e);
}

CARD_TEST(whoever_looks_for_a_fault_has_no_graphs, "%s NABLA_CUDA_SYNC=1",
          cards_blaslt())
{
    open_scope();
    nb_executable *e = compiled(step, 1);
    for (int i = 0; i < 3; i++) {
        nb_tensor *y[2], *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)};
        run(e, x, y);
        need(is_right(step, ROWS, i, y));
    }
    need(!launched());
    nb_executable_drop(e);
}

/* A kernel in C, which only the CPU can run. */
static void squares(const nb_kernel_args *a)
{
    NB_ROWS(a, r)
    {
        const float *x = NB_ROW(float, nb_in(a, 0), r);
        float sum = 0;
        for (int64_t k = 0; k < nb_row_size(nb_in(a, 0)); k++)
            sum += x[k] * x[k];
        *NB_ROW(float, nb_out(a, 0), r) = sum;
    }
}

static nb_tensor *squares_of(nb_tensor *x)
{
    nb_tensor *y = NULL;
    int n = 1;
    nb_op *op = nb_op_register(&(nb_op_spec){.name = "test_squares",
                                             .signature = "... k -> ...",
                                             .in = NB_IN_FLOAT,
                                             .kernel = squares});
    need(op && nb_op_call(op, 1, &x, 0, NULL, &n, &y) == NB_OK);
    nb_op_drop(op);
    return y;
}

/* The CPU does a part of it. */
static nb_status aside(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *c = nb_reduce_sum(rows_of(x[0], x[1]), 1, (int64_t[]){0}, true);
    nb_tensor *q = squares_of(c);
    nb_tensor *p = rows_of(nb_mul(x[1], q), x[0]);
    y[0] = nb_mul(p, nb_reduce_sum(p, 1, (int64_t[]){0}, true));
    y[1] = q;
    return *ny = 2, NB_OK;
}

CARD_TEST(steps_of_the_cpu_lie_between_graphs, "%s", cards_blaslt())
{
    open_scope();
    nb_executable *e = compiled(aside, 1);
    for (int i = 0; i < 10; i++) {
        int64_t before = launched();
        nb_tensor *y[2], *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)};
        run(e, x, y);
        need(is_right(aside, ROWS, i, y));
        need(i < 7 || launched() - before == 2);
    }
    nb_executable_drop(e);
}

typedef struct worker {
    nb_executable *e;
    bool captures, right;
} worker;

/* Some threads run one program, which is captured meanwhile; others record new
 * ones, take memory and wait. */
static void *work(void *ctx)
{
    worker *w = ctx;
    w->right = true;
    for (int i = 1; w->right && i < 12; i++) {
        need(nb_scope_open() == NB_OK);
        nb_tensor *y[2], *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)};
        int ny = 2;
        if (w->captures)
            run(w->e, x, y);
        else
            need(step(NULL, 2, x, &ny, y) == NB_OK);
        w->right = is_right(step, ROWS, i, y);
        nb_scope_close(0, NULL);
    }
    return NULL;
}

CARD_TEST(threads_capture_while_others_use_the_card, "%s", cards_blaslt())
{
    enum { THREADS = 4 };
    open_scope();
    pthread_t thread[THREADS];
    worker w[THREADS];
    nb_executable *e = compiled(step, 1);
    for (int i = 0; i < THREADS; i++) {
        w[i] = (worker){.e = e, .captures = i % 2};
        need(!pthread_create(&thread[i], NULL, work, &w[i]));
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        need(w[i].right);
    }
    need(launched() > 0);
    nb_executable_drop(e);
}

CARD_TEST(any_size_has_graphs_of_its_own, "%s", cards_blaslt())
{
    open_scope();
    nb_tensor *form[] = {numbers(1, ROWS, 0), numbers(1, ROWS, 1)};
    nb_dynamic_dim dims[] = {{0, 0, "rows"}, {1, 0, "rows"}};
    nb_executable *e = NULL;
    need(nb_executable_new_dynamic(nb_func_new(step, NULL), 2, form, 2, dims,
                                   &e) == NB_OK);
    for (int i = 0; i < 12; i++) {
        int rows = 2 + i % 3 * 5;
        nb_tensor *y[2], *x[] = {numbers(1, rows, i), numbers(1, rows, 7 * i)};
        run(e, x, y);
        need(is_right(step, rows, i, y));
    }
    nb_executable_drop(e);
}

static void run_in_spite_of_it(void)
{
    open_scope();
    nb_executable *e = compiled(step, 1);
    nb_tensor *y[24][2];
    for (int i = 0; i < 24; i++) {
        nb_tensor *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)};
        run(e, x, y[i]);
        need(is_right(step, ROWS, i, y[i]));
    }
    nb_executable_drop(e);
}

static void what_cannot_be_captured_runs_step_by_step(void **state)
{
    static const char *const calls[] = {
        "cuStreamBeginCapture",
        "cuStreamGetCaptureInfo",
        "cuGraphInstantiateWithFlags",
        "cuGraphExecKernelNodeSetParams",
    };
    (void)state;
    if (!cards_simulated()) skip();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int n = 1; n < 4; n++)
            cards_alone(run_in_spite_of_it, "%s NABLA_SIM_FAIL=%s:%d",
                        cards_blaslt(), calls[i], n);
}

SIM_TEST(a_fault_names_the_ops_of_graphs,
         "%s NABLA_SIM_FAIL=cuStreamSynchronize:1:700", cards_blaslt())
{
    open_scope();
    nb_executable *e = compiled(step, 1);
    nb_tensor *y[2], *x[] = {numbers(1, ROWS, 1), numbers(1, ROWS, 7)};
    for (int i = 0; i < 24; i++)
        run(e, x, y);
    need(launched() > 16);
    need(nb_device_wait(1) != NB_OK);
    need(strstr(nb_error_message(), "exp") && strstr(nb_error_message(), ";"));
    nb_error_clear();
    int ny = 2;
    need(nb_executable_run(e, 2, x, &ny, y) != NB_OK);
    nb_executable_drop(e);
}

SIM_TEST(a_launch_that_fails_is_an_error, "%s NABLA_SIM_FAIL=cuGraphLaunch:1:1",
         cards_blaslt())
{
    open_scope();
    nb_executable *e = compiled(step, 1);
    nb_tensor *y[2], *x[] = {numbers(1, ROWS, 1), numbers(1, ROWS, 7)};
    int failed = 0;
    for (int i = 0; i < 10; i++) {
        int ny = 2;
        failed += nb_executable_run(e, 2, x, &ny, y) != NB_OK;
        nb_error_clear();
    }
    need(failed == 1 && is_right(step, ROWS, 1, y));
    nb_executable_drop(e);
}

/* x * number, which was computed before. */
static void take_a_number(nb_dtype d)
{
    nb_tensor *x = nb_cast(numbers(1, ROWS, 2), d);
    need(x && nb_realize(x) == NB_OK);
    for (int i = 2; i < 5; i++) {
        nb_tensor *y = nb_mul(x, nb_num(i));
        int64_t before = cards_count("cuMemcpyHtoDAsync");
        need(y && nb_realize(y) == NB_OK);
        need(cards_count("cuMemcpyHtoDAsync") == before);
        nb_tensor *here = nb_cast(numbers(0, ROWS, 2), d);
        need(agree(y, nb_mul(here, nb_num(i))));
    }
}

CARD_TEST(numbers_are_arguments_of_kernels, "%s", cards_blaslt())
{
    static const nb_dtype some[] = {NB_F32,  NB_F64, NB_F16,
                                    NB_BF16, NB_I32, NB_I64};
    open_scope();
    for (int i = 0; i < 6; i++)
        take_a_number(some[i]);
}

static nb_tensor *rate(int i)
{
    float v = 0.25f * (float)i;
    return nb_constant(NB_F32, 0, NULL, &v);
}

static nb_status scaled(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *c = nb_reduce_sum(nb_mul(x[0], x[1]), 1, (int64_t[]){0}, true);
    y[0] = nb_add(nb_mul(x[0], c), x[1]);
    y[1] = nb_reduce_sum(y[0], -1, NULL, false);
    return *ny = 2, NB_OK;
}

CARD_TEST(arguments_that_are_numbers_of_the_cpu_need_no_copies, "%s",
          cards_blaslt())
{
    open_scope();
    nb_tensor *form[] = {numbers(1, ROWS, 1), rate(1)};
    nb_executable *e = NULL;
    need(nb_executable_new(nb_func_new(scaled, NULL), 2, form, &e) == NB_OK);
    need(!*nb_executable_trouble(e));
    for (int i = 0; i < 12; i++) {
        need(nb_scope_open() == NB_OK);
        nb_tensor *x[] = {form[0], rate(i)}, *y[2], *of[2];
        nb_tensor *here[] = {numbers(0, ROWS, 1), rate(i)};
        int64_t before = cards_count("cuMemcpyHtoDAsync");
        int ny = 2;
        run(e, x, y);
        need(cards_count("cuMemcpyHtoDAsync") == before);
        need(scaled(NULL, 2, here, &ny, of) == NB_OK);
        need(agree(y[0], of[0]) && agree(y[1], of[1]));
        nb_scope_close(0, NULL);
    }
    need(launched() > 2);
    nb_executable_drop(e);
}

CARD_TEST(numbers_change_and_the_graph_stays, "%s", cards_blaslt())
{
    open_scope();
    nb_tensor *x = numbers(1, ROWS, 1), *here = numbers(0, ROWS, 1);
    for (int i = 0; i < 16; i++) {
        need(nb_scope_open() == NB_OK);
        nb_tensor *a = nb_mul(x, nb_num(i)), *b = nb_mul(here, nb_num(i));
        nb_tensor *y = nb_reduce_sum(rows_of(a, x), 1, (int64_t[]){0}, true);
        nb_tensor *w = nb_reduce_sum(rows_of(b, here), 1, (int64_t[]){0}, true);
        need(agree(nb_mul(y, nb_num(i + 1)), nb_mul(w, nb_num(i + 1))));
        nb_scope_close(0, NULL);
    }
    nb_card_graph_stats s = nb_card_graph_stats_get();
    need(s.launched >= 8 && s.captured == 1 && s.changed >= 7);
}

/* Branches side by side, whose temporaries follow one another in the same
 * memory; the simulated card runs the last of those that may first. */
static nb_status branches(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *sum = NULL, *last = x[1];
    for (int i = 0; i < 6; i++) {
        nb_tensor *a = rows_of(nb_mul(x[0], nb_num(i + 1)), last);
        nb_tensor *c = nb_reduce_sum(a, 1, (int64_t[]){0}, true);
        nb_tensor *r = nb_reduce_max(nb_mul(a, c), 1, (int64_t[]){1}, true);
        sum = sum ? nb_add(sum, nb_mul(r, x[1])) : nb_mul(r, x[1]);
        if (i == 3) last = nb_cumsum(sum, 0, false, false);
    }
    y[0] = nb_cumsum(sum, 1, false, false);
    y[1] = nb_reduce_sum(sum, -1, NULL, false);
    return *ny = 2, NB_OK;
}

CARD_TEST(steps_wait_for_what_they_need, "%s", cards_blaslt())
{
    open_scope();
    nb_executable *e = compiled(branches, 1);
    for (int i = 0; i < 8; i++) {
        need(nb_scope_open() == NB_OK);
        nb_tensor *y[2], *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)};
        run(e, x, y);
        need(is_right(branches, ROWS, i, y));
        nb_scope_close(0, NULL);
    }
    need(launched() > 4);
    nb_executable_drop(e);
}

/* Products side by side, with what follows them. */
static nb_status layers(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *p = nb_tanh(nb_matmul(nb_swap_axes(x[0], 0, 1), x[1]));
    nb_tensor *q = nb_tanh(nb_matmul(nb_swap_axes(x[1], 0, 1), x[0]));
    nb_tensor *most = nb_reduce_max(q, 1, (int64_t[]){0}, true);
    nb_tensor *u = nb_tanh(nb_relu(nb_add(nb_matmul(p, q), most)));
    nb_tensor *v = nb_tanh(nb_add(nb_matmul(q, p), q));
    nb_tensor *w = nb_tanh(nb_matmul(p, p));
    y[0] = nb_add(nb_matmul(u, v), nb_matmul(w, u));
    y[1] = nb_reduce_max(nb_matmul(w, v), -1, NULL, false);
    return *ny = 2, NB_OK;
}

CARD_TEST(products_of_a_library_are_part_of_graphs, "%s", cards_blaslt())
{
    enum { TURNS = 12 };
    open_scope();
    nb_executable *e = compiled(layers, 1);
    nb_tensor *y[TURNS][2];
    for (int i = 0; i < TURNS; i++) {
        nb_tensor *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)};
        run(e, x, y[i]);
        need(is_right(layers, ROWS, i, y[i]));
    }
    need(launched() > 0);
    nb_executable_drop(e);
}

/* A job of the card's own has no addresses but those it was captured with. */
static nb_status sorted(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *i = nb_argsort(x[0], 1, false, true);
    y[0] = nb_take_along_axis(rows_of(x[0], x[1]), i, 1);
    y[1] = nb_reduce_sum(y[0], -1, NULL, false);
    return *ny = 2, NB_OK;
}

CARD_TEST(jobs_are_part_of_graphs, "%s", cards_blaslt())
{
    enum { TURNS = 16 };
    open_scope();
    nb_executable *e = compiled(sorted, 1);
    nb_tensor *y[TURNS][2];
    for (int i = 0; i < TURNS; i++) {
        nb_tensor *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)};
        run(e, x, y[i]);
    }
    for (int i = 0; i < TURNS; i++)
        need(is_right(sorted, ROWS, i, y[i]));
    int64_t before = launched();
    for (int i = 0; i < 8; i++) {
        nb_tensor *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)}, *z[2];
        need(nb_scope_open() == NB_OK);
        run(e, x, z);
        need(is_right(sorted, ROWS, i, z));
        nb_scope_close(0, NULL);
    }
    need(before > 0);
    nb_executable_drop(e);
}

/* In each of some runs, one of which makes a graph, the nth allocation fails: an
 * error may come of it, and nothing else.  How often there was one. */
static int fail_at(nb_executable *e, int64_t nth)
{
    int struck = 0;
    for (int i = 0; i < 10; i++) {
        need(nb_scope_open() == NB_OK);
        nb_tensor *y[2], *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)};
        int ny = 2;
        nb_fault_set(nth);
        bool ok = nb_executable_run(e, 2, x, &ny, y) == NB_OK;
        struck += !nb_fault_is_set();
        nb_fault_set(0);
        need(ok || nb_error_code() == NB_EMEMORY);
        nb_error_clear();
        need(!ok || is_right(step, ROWS, i, y));
        nb_scope_close(0, NULL);
    }
    return struck;
}

CARD_TEST(memory_may_run_out_while_a_graph_is_made, "%s", cards_blaslt())
{
    open_scope();
    int64_t nth = 0;
    for (int struck = 1; struck && nth < 200;) {
        nb_executable *e = compiled(step, 1);
        struck = fail_at(e, ++nth);
        nb_executable_drop(e);
    }
    need(nth > 10 && nth < 200);
}

/* Memory of the card that a program gave back is trimmed between its runs. */
CARD_TEST(memory_is_given_back_between_runs, "%s", cards_blaslt())
{
    open_scope();
    nb_executable *e = compiled(step, 1);
    for (int i = 0; i < 6; i++) {
        need(nb_scope_open() == NB_OK);
        nb_tensor *y[2], *x[] = {numbers(1, ROWS, i), numbers(1, ROWS, 7 * i)};
        run(e, x, y);
        need(is_right(step, ROWS, i, y));
        nb_scope_close(0, NULL);
        need(nb_device_trim(1) == NB_OK);
    }
    nb_executable_drop(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_program_that_runs_again_and_again_is_one_graph),
        cmocka_unit_test(memory_that_comes_back_needs_one_call_of_the_driver),
        cmocka_unit_test(results_that_are_kept_stay_what_they_are),
        cmocka_unit_test(donated_arguments_are_results),
        cmocka_unit_test(graphs_are_turned_off),
        cmocka_unit_test(whoever_looks_for_a_fault_has_no_graphs),
        cmocka_unit_test(steps_of_the_cpu_lie_between_graphs),
        cmocka_unit_test(threads_capture_while_others_use_the_card),
        cmocka_unit_test(any_size_has_graphs_of_its_own),
        cmocka_unit_test(what_cannot_be_captured_runs_step_by_step),
        cmocka_unit_test(a_fault_names_the_ops_of_graphs),
        cmocka_unit_test(a_launch_that_fails_is_an_error),
        cmocka_unit_test(numbers_are_arguments_of_kernels),
        cmocka_unit_test(arguments_that_are_numbers_of_the_cpu_need_no_copies),
        cmocka_unit_test(numbers_change_and_the_graph_stays),
        cmocka_unit_test(steps_wait_for_what_they_need),
        cmocka_unit_test(products_of_a_library_are_part_of_graphs),
        cmocka_unit_test(jobs_are_part_of_graphs),
        cmocka_unit_test(memory_may_run_out_while_a_graph_is_made),
        cmocka_unit_test(memory_is_given_back_between_runs),
    };
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
