/* test_turns.c - loops and branches inside compiled programs.
 *
 * Their bodies are compiled with the program around them and run on memory: the
 * results are those of the ops one by one, a turn makes no tensors, and what all
 * of it needs is known before. */
#include "support/check.h"
#include "support/faults.h"
#include "support/there.h"

#include "backend/cpu/llvm.h"
#include "base/memory.h"
#include "nabla/compile.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define TURN(name)                                                         \
    static nb_status name(void *ctx, int nx, nb_tensor *const *x, int *ny, \
                          nb_tensor **y)

enum { N = 5 };

static nb_tensor *total(nb_tensor *x)
{
    return nb_reduce_sum(x, -1, NULL, false);
}

static nb_tensor *times(nb_tensor *x, nb_tensor *w)
{
    return nb_matmul(x, w);
}

/* A cell of a recurrent network that closes over its weights c; the square of
 * these does not change, the second carry neither, the last two change places. */
TURN(cell)
{
    nb_tensor *const *c = ctx;
    nb_tensor *h = nb_tanh(nb_add(times(x[0], c[0]), x[4]));
    (void)nx;
    y[0] = nb_add(h, nb_mul(nb_num(0.1), times(nb_square(c[0]), x[2])));
    y[1] = x[1];
    y[2] = nb_sin(x[3]);
    y[3] = x[2];
    y[4] = nb_swap_axes(times(h, x[1]), 0, 1);
    y[5] = total(h);
    y[6] = y[4];
    return *ny = 7, NB_OK;
}

typedef struct shape_of_loop {
    int64_t length;
    bool reverse, turned;
} shape_of_loop;

static nb_tensor *sum_of(int n, nb_tensor *const *y)
{
    nb_tensor *sum = nb_num(0);
    for (int k = 0; k < n; k++)
        sum = nb_add(sum, nb_mul(nb_num(k + 1), total(nb_sin(y[k]))));
    return sum;
}

/* x: the state and the weights.  Steps of xs lie in order or do not. */
TURN(rnn)
{
    const shape_of_loop *l = ctx;
    nb_tensor *c[] = {x[1]}, *out[7];
    nb_tensor *init[] = {x[0], x[1], nb_cos(x[0]), x[0]};
    int64_t turned[] = {l->length, N, N}, swap[] = {0, 2, 1};
    nb_tensor *xs =
        nb_reshape(nb_sin(nb_iota(l->length * N * N, NB_F64)), 3, turned);
    int n = 7;
    (void)nx;
    if (l->turned) xs = nb_permute(xs, 3, swap);
    if (nb_scan(nb_func_new(cell, c), 4, init, 1, &xs, l->length, l->reverse,
                &n, out) != NB_OK)
        return nb_error_code();
    y[0] = sum_of(n, out);
    y[1] = out[6];
    return *ny = 2, NB_OK;
}

/* x <- tanh(x w) until as many turns have passed as x[2] says. */
TURN(goes_on)
{
    nb_tensor *const *c = ctx;
    (void)nx;
    y[0] = nb_less(x[1], c[2]);
    return *ny = 1, NB_OK;
}

TURN(go_on)
{
    nb_tensor *const *c = ctx;
    (void)nx;
    y[0] = nb_tanh(times(nb_add(x[0], nb_cos(c[1])), c[1]));
    y[1] = nb_add(x[1], nb_num(1));
    return *ny = 2, NB_OK;
}

TURN(until)
{
    nb_tensor *init[] = {x[0], nb_scalar_float(0, NB_F64)}, *out[2];
    (void)ctx, (void)nx;
    if (nb_while(nb_func_new(goes_on, (void *)x), nb_func_new(go_on, (void *)x),
                 2, init, out) != NB_OK)
        return nb_error_code();
    y[0] = sum_of(2, out);
    y[1] = out[0];
    return *ny = 2, NB_OK;
}

TURN(yes)
{
    nb_tensor *const *c = ctx;
    (void)nx;
    y[0] = times(nb_sin(times(x[0], c[1])), c[1]);
    y[1] = total(y[0]);
    return *ny = 2, NB_OK;
}

TURN(no)
{
    (void)ctx, (void)nx;
    y[0] = nb_swap_axes(x[0], 0, 1);
    y[1] = total(nb_exp(x[0]));
    return *ny = 2, NB_OK;
}

/* A branch in each turn of a loop. */
TURN(turn_off)
{
    nb_tensor *const *c = ctx, *out[2];
    int n = 2;
    (void)nx;
    nb_tensor *low = nb_less(x[1], nb_num(1.5));
    if (nb_cond(low, nb_func_new(yes, ctx), nb_func_new(no, ctx), 1, x, &n,
                out) != NB_OK)
        return nb_error_code();
    y[0] = nb_mul(out[0], nb_cos(total(c[1])));
    y[1] = nb_add(x[1], nb_num(1));
    y[2] = out[1];
    return *ny = 3, NB_OK;
}

TURN(branches)
{
    nb_tensor *init[] = {x[0], nb_scalar_float(0, NB_F64)}, *out[3];
    int n = 3;
    (void)ctx, (void)nx;
    if (nb_scan(nb_func_new(turn_off, (void *)x), 2, init, 0, NULL, 4, false,
                &n, out) != NB_OK)
        return nb_error_code();
    y[0] = sum_of(n, out);
    y[1] = out[0];
    return *ny = 2, NB_OK;
}

static shape_of_loop all_loops[] = {{0, false, false}, {1, false, false},
                                    {7, false, false}, {7, true, true},
                                    {64, false, true}, {64, true, false}};

static const struct {
    const char *name;
    nb_body *body;
    void *ctx;
} all[] = {{"a scan of nothing", rnn, &all_loops[0]},
           {"one step", rnn, &all_loops[1]},
           {"a scan", rnn, &all_loops[2]},
           {"a scan from the end, of turned steps", rnn, &all_loops[3]},
           {"a scan of turned steps", rnn, &all_loops[4]},
           {"a scan from the end", rnn, &all_loops[5]},
           {"a while", until, NULL},
           {"a branch in a scan", branches, NULL}};
enum { NALL = sizeof all / sizeof all[0] };

static void arguments(nb_tensor **x, double turns)
{
    x[0] = draw(2, (int64_t[]){N, N}, -1, 1);
    x[1] = draw(2, (int64_t[]){N, N}, -0.5, 0.5);
    x[2] = nb_scalar_float(turns, NB_F64);
}

static bool agree(nb_func *f, nb_func *g, nb_tensor *const *x)
{
    nb_tensor *a[2], *b[2];
    int n = 2, m = 2;
    bool ok = nb_func_call(f, 3, x, &n, a) == NB_OK &&
              nb_func_call(g, 3, x, &m, b) == NB_OK && n == m;
    for (int k = 0; ok && k < n; k++) {
        int64_t count = nb_elements(a[k]);
        double *p = nb_alloc((size_t)(2 * count + 1) * sizeof *p);
        ok = p && nb_read(a[k], NB_F64, p) == NB_OK &&
             nb_read(b[k], NB_F64, p + count) == NB_OK;
        for (int64_t i = 0; ok && i < count; i++)
            ok = fabs(p[i] - p[count + i]) <= 1e-9 * (1 + fabs(p[i]));
        nb_free(p);
    }
    return ok;
}

static nb_func *slope(nb_func *f)
{
    return nb_grad(f, 2, (int[]){0, 1});
}

TURN(first)
{
    int n = 2;
    nb_status s = nb_func_call(ctx, nx, x, &n, y);
    *ny = s == NB_OK;
    return s;
}

static void they_compute_what_their_ops_do(void)
{
    for (int i = 0; i < NALL; i++) {
        nb_tensor *x[3];
        nb_func *f = nb_func_new(all[i].body, all[i].ctx);
        nb_func *g = slope(nb_func_new(first, f));
        nb_func *c = nb_compile(f, NULL), *d = nb_compile(g, NULL);
        arguments(x, 6);
        expect(agree(c, f, x) && agree(c, f, x), "%s", all[i].name);
        expect(agree(d, g, x), "the way back from %s", all[i].name);
        arguments(x, 2);
        expect(agree(c, f, x) && agree(d, g, x), "%s, on others", all[i].name);
    }
}

static uint64_t nodes_made(nb_func *f, nb_tensor *const *x)
{
    nb_tensor *y[2];
    int n = 2;
    uint64_t before = nb_num(0)->serial;
    bool ok = nb_func_call(f, 3, x, &n, y) == NB_OK;
    return ok ? nb_num(0)->serial - before : 0;
}

static void turns_make_no_tensors(void)
{
    shape_of_loop some = {10, false, false}, many = {1000, false, false};
    nb_func *f = nb_compile(nb_func_new(rnn, &some), NULL);
    nb_func *g = nb_compile(nb_func_new(rnn, &many), NULL);
    nb_func *h = nb_compile(nb_func_new(until, NULL), NULL);
    nb_tensor *x[3], *z[3];
    arguments(x, 3);
    arguments(z, 3000);
    for (int k = 0; k < 2; k++)
        nodes_made(f, x), nodes_made(g, x), nodes_made(h, x);
    expect(nodes_made(f, x) == nodes_made(g, x), "of a scan");
    expect(nodes_made(h, x) == nodes_made(h, z), "of a while");
    expect(nodes_made(g, x) < 100, "and the call few");
}

/* What runs take from the memory of tensors, against the plan. */
static void the_plan_knows_the_peak(void)
{
    for (int i = 0; i < NALL; i++)
        for (int back = 0; back < 2; back++) {
            nb_tensor *x[3], *y[2];
            nb_func *f = nb_func_new(all[i].body, all[i].ctx);
            nb_executable *e = NULL;
            int n = 2;
            if (back) f = slope(nb_func_new(first, f));
            arguments(x, 1); /* a while is planned for one turn */
            nb_realize_all(3, x);
            expect(nb_executable_new(f, 3, x, &e) == NB_OK &&
                       nb_executable_run(e, 3, x, &n, y) == NB_OK,
                   "%s runs", all[i].name);
            nb_memory_plan m = nb_executable_memory(e);
            size_t before = nb_memory_in_use();
            nb_memory_peak_reset();
            n = 2;
            nb_executable_run(e, 3, x, &n, y);
            int64_t took = (int64_t)(nb_memory_peak() - before);
            /* a block has up to a quarter more, and small ones a head */
            expect(took <= (m.temporaries + m.results) * 5 / 4 + 40 * 256,
                   "%s, back %d: %lld of %lld", all[i].name, back,
                   (long long)took, (long long)(m.temporaries + m.results));
            nb_executable_drop(e);
        }
}

static void large_bodies_are_in_the_plan(void)
{
    enum { BIG = 128 }; /* small products join with others on a card */
    nb_func *f = nb_func_new(until, NULL);
    nb_tensor *x[] = {draw(2, (int64_t[]){BIG, BIG}, -1, 1),
                      draw(2, (int64_t[]){BIG, BIG}, -1, 1),
                      nb_scalar_float(3, NB_F64)};
    nb_executable *e = NULL;
    expect(nb_executable_lower(f, 3, x, 0, NULL, &e) == NB_OK, "lowered");
    int64_t one = BIG * BIG * 8;
    /* two places of the state, cos(c) from before, the product of a turn */
    expect(nb_executable_memory(e).temporaries >= 4 * one, "at least four");
    char *text = nb_executable_text(e, "memory");
    expect(text && strstr(text, "inside while_loop") &&
               strstr(text, "131072 argument 0 f64[128,128]"),
           "which the list names");
    nb_text_release(text);
    nb_executable_drop(e);
}

typedef struct turning {
    nb_func *f;
    nb_tensor *x[3];
} turning;

static bool turns(void *ctx)
{
    turning *t = ctx;
    nb_tensor *y[2];
    int ny = 2;
    return nb_func_call(t->f, 3, t->x, &ny, y) == NB_OK;
}

static void allocations_may_fail(void)
{
    for (int i = 2; i < NALL; i += 2) {
        nb_func *f = nb_func_new(all[i].body, all[i].ctx);
        turning t = {.f = nb_compile(f, NULL)};
        faults one = {.run = turns, .ctx = &t, .keeps = true};
        arguments(t.x, 3);
        expect(agree(t.f, f, t.x) && faults_survived(&one) &&
                   agree(t.f, f, t.x),
               "faults in %s", all[i].name);
    }
}

typedef struct worker {
    nb_func *f;
    nb_tensor **x;
    double sum;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    for (int k = 0; k < 50; k++) {
        nb_tensor *y[2];
        int n = 2;
        nb_scope_open();
        bool ok = nb_func_call(w->f, 3, w->x, &n, y) == NB_OK;
        w->sum = ok ? nb_item(y[0]) : NAN;
        nb_scope_close(0, NULL);
    }
    return NULL;
}

static void threads_share_them(void)
{
    nb_func *f = nb_compile(nb_func_new(rnn, &all_loops[4]), NULL);
    nb_tensor *x[3];
    worker w[4];
    pthread_t thread[4];
    arguments(x, 3);
    for (int i = 0; i < 4; i++) {
        w[i] = (worker){f, x, 0};
        pthread_create(&thread[i], NULL, work, &w[i]);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    expect(!isnan(w[0].sum) && w[0].sum == w[1].sum && w[1].sum == w[2].sum &&
               w[2].sum == w[3].sum,
           "four threads run one loop");
}

FN(decay, nb_add(nb_mul(x[0], nb_num(0.5)), x[1]))

/* The ops of a loop lend what they make, whoever asks for its value. */
static void they_run_where_no_scope_is_open(void)
{
    nb_scope_open();
    nb_tensor *x = draw(2, (int64_t[]){5000, 3}, -1, 1), *y = NULL;
    nb_tensor *c = nb_zeros(1, (int64_t[]){3}, NB_F64);
    int ny = 1;
    nb_scan(nb_func_new(decay, NULL), 1, &c, 1, &x, 5000, false, &ny, &y);
    nb_keep(y);
    nb_scope_close(0, NULL);
    expect(y && nb_realize(y) == NB_OK, "a loop without a scope");
    nb_drop(y);
}

int main(void)
{
    there_open();
    void (*const tests[])(void) = {
        they_compute_what_their_ops_do, turns_make_no_tensors,
        the_plan_knows_the_peak,        large_bodies_are_in_the_plan,
        allocations_may_fail,           threads_share_them};
    if (!nb_llvm_there()) return printf("no LLVM here\n"), 77;
    they_run_where_no_scope_is_open();
    none_leaks(sizeof tests / sizeof tests[0], tests);
    return tally();
}
