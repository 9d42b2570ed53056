/* test_comm.c - devices of one process: steps against a plain computation, and
 * everything that can go wrong between them. */
#include "support/steps.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/pool.h"
#include "nabla/distributed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const nb_mesh *line(int n)
{
    return nb_mesh_new("line", 1, (const char *[]){"x"}, &n, NULL);
}

static const nb_mesh *mesh_of(int k)
{
    static const int sizes[][3] = {{2, 1, 1}, {3, 1, 1}, {4, 1, 1}, {2, 2, 1},
                                   {2, 4, 1}, {3, 2, 1}, {2, 2, 2}, {7, 1, 1}};
    return nb_mesh_new("m", 3, (const char *[]){"x", "y", "z"}, sizes[k], NULL);
}

/* Steps of random kinds, specs, sizes and dtypes. */

enum { CASES = 500 };
typedef struct batch {
    const nb_mesh *mesh;
    unsigned seed;
    atomic_int wrong;
} batch;

static bool run_batch(void *ctx, int position)
{
    batch *b = ctx;
    unsigned seed = b->seed;
    for (int i = 0; i < CASES; i++) {
        step_case c = step_draw(b->mesh, &seed);
        if (step_holds(nb_device_now(), &c)) continue;
        if (nb_failed()) return false;
        printf("device %d of %d: case %d (%s) is wrong\n", position,
               b->mesh->ndevices, i, nb_dtype_name(c.dtype));
        b->wrong++;
    }
    return true;
}

static void steps_do_what_a_plain_computation_does(void **state)
{
    (void)state;
    for (int k = 0; k < 8; k++) {
        batch b = {.mesh = mesh_of(k), .seed = (unsigned)k + 1};
        bool ok = nb_devices_run(b.mesh, run_batch, &b);
        if (!ok) print_message("%s\n", nb_error_message());
        assert_true(ok);
        assert_int_equal(b.wrong, 0);
    }
}

static bool run_case(void *ctx, int position)
{
    (void)position;
    return step_holds(nb_device_now(), ctx);
}

static void bytes_received_are_counted(void **state)
{
    (void)state;
    unsigned seed = 99;
    for (int i = 0; i < 400; i++) {
        step_case c = step_draw(mesh_of(i % 8), &seed);
        const nb_mesh *m = c.step.from->mesh;
        nb_comm_stats_reset(m);
        assert_true(nb_devices_run(m, run_case, &c));
        nb_comm_stats s = nb_comm_stats_get(m, c.step.kind);
        assert_int_equal(s.calls, 1);
        assert_int_equal(s.bytes, step_bytes(&c));
    }
}

/* Single values over a line of devices. */

typedef struct single {
    nb_hop step;
    nb_dtype dtype;
    int64_t size;
    double in[8], out[8];
    const char *source;
    int act, who; /* what one of them does instead */
} single;

static const nb_spec *spec_of(const nb_mesh *m, bool split, int pending)
{
    nb_spec s = {.mesh = m, .rank = 1};
    if (split) s.dim[0].axes = (nb_cut){1, {nb_axis_full(m, 0)}};
    if (pending >= 0) {
        s.partial = (nb_cut){1, {nb_axis_full(m, 0)}};
        s.kind = (nb_reduce)pending;
    }
    return nb_spec_intern(&s);
}

static single sum_over(int n, nb_reduce kind, nb_dtype dtype)
{
    const nb_mesh *m = line(n);
    single s = {.dtype = dtype, .size = 1, .source = "model.py:7", .who = -1};
    s.step.kind = NB_HOP_ALL_REDUCE;
    s.step.axes = (nb_cut){1, {nb_axis_full(m, 0)}};
    s.step.from = spec_of(m, false, (int)kind);
    s.step.into = spec_of(m, false, -1);
    return s;
}

enum { DO, FAIL, RETURN, STALL, OTHER_STEP, OTHER_SIZE, SKIP };

static bool step_once(single *s, const nb_hop *step, int64_t size, int at)
{
    char in[64], out[64];
    if (!*nb_device_now()->source) nb_device_now()->source = s->source;
    for (int i = 0; i < size; i++)
        put_number(s->dtype, in, i, s->in[at]);
    if (!nb_hop_run(nb_device_now(), step, s->dtype, &size, in, out))
        return false;
    s->out[at] = get_number(s->dtype, out, 0);
    return true;
}

static bool scatter_instead(single *s, int at)
{
    nb_hop step = s->step;
    step.kind = NB_HOP_REDUCE_SCATTER;
    step.into = spec_of(step.from->mesh, true, -1);
    nb_device_now()->source = "other.py:9";
    return step_once(s, &step, s->size, at);
}

static bool act(void *ctx, int at)
{
    single *s = ctx;
    switch (at == s->who ? s->act : DO) {
    case FAIL: return nb_fail(NB_EINDEX, "by itself: %d", at);
    case RETURN: return true;
    case STALL: nanosleep(&(struct timespec){0, 400000000}, NULL); break;
    case OTHER_STEP: return scatter_instead(s, at);
    case OTHER_SIZE: return step_once(s, &s->step, s->size + 1, at);
    case SKIP: nb_device_now()->round++; break;
    }
    return step_once(s, &s->step, s->size, at);
}

static const nb_mesh *mesh_in(const single *s)
{
    return s->step.from->mesh;
}

static void half_precision_is_rounded_once(void **state)
{
    (void)state;
    single s = sum_over(3, NB_SUM, NB_F16);
    memcpy(s.in, (double[]){2048, 1, 1}, 3 * sizeof(double));
    assert_true(nb_devices_run(mesh_in(&s), act, &s));
    for (int i = 0; i < 3; i++)
        assert_true(s.out[i] == 2050);
    s = sum_over(3, NB_SUM, NB_BF16);
    memcpy(s.in, (double[]){256, 1, 1}, 3 * sizeof(double));
    assert_true(nb_devices_run(mesh_in(&s), act, &s));
    for (int i = 0; i < 3; i++)
        assert_true(s.out[i] == 258);
}

static void a_sum_is_taken_in_the_order_of_the_devices(void **state)
{
    (void)state;
    single s = sum_over(4, NB_SUM, NB_F32);
    memcpy(s.in, (double[]){1e8, 3, -1e8, 1}, 4 * sizeof(double));
    float want = ((1e8f + 3.f) + -1e8f) + 1.f;
    assert_true(nb_devices_run(mesh_in(&s), act, &s));
    for (int i = 0; i < 4; i++)
        assert_true(s.out[i] == want);
}

static void a_nan_wins_every_max_and_min(void **state)
{
    (void)state;
    static const nb_dtype dtypes[] = {NB_F16, NB_BF16, NB_F32, NB_F64};
    for (int d = 0; d < 4; d++)
        for (int at = 0; at < 3; at++)
            for (int kind = NB_MAX; kind <= NB_MIN; kind++) {
                single s = sum_over(3, (nb_reduce)kind, dtypes[d]);
                memcpy(s.in, (double[]){1, 5, -3}, 3 * sizeof(double));
                s.in[at] = NAN;
                assert_true(nb_devices_run(mesh_in(&s), act, &s));
                for (int i = 0; i < 3; i++)
                    assert_true(isnan(s.out[i]));
            }
}

static bool there_and_back(void *ctx, int at)
{
    single *s = ctx;
    nb_hop back = s->step;
    char in[8], pending[8], out[8];
    int64_t one = 1;
    back.kind = NB_HOP_UNREDUCE;
    back.from = s->step.into;
    back.into = s->step.from;
    put_number(s->dtype, in, 0, 1);
    if (!nb_hop_run(nb_device_now(), &back, s->dtype, &one, in, pending) ||
        !nb_hop_run(nb_device_now(), &s->step, s->dtype, &one, pending, out))
        return false;
    s->out[at] = get_number(s->dtype, out, 0);
    return true;
}

static void unreduce_then_all_reduce_gives_the_value_back(void **state)
{
    (void)state;
    for (int dtype = 1; dtype < NB_NDTYPES; dtype++)
        for (int kind = NB_SUM; kind <= NB_OR; kind++) {
            single s = sum_over(4, (nb_reduce)kind, (nb_dtype)dtype);
            assert_true(nb_devices_run(mesh_in(&s), there_and_back, &s));
            for (int i = 0; i < 4; i++)
                assert_true(s.out[i] == 1);
        }
}

/* Faults: the error is there, and the devices work afterwards. */

static void fails_with(single *s, nb_status code, int nparts,
                       const char *const *part)
{
    assert_false(nb_devices_run(mesh_in(s), act, s));
    const char *said = nb_error_message();
    bool ok = nb_error_code() == code;
    for (int i = 0; i < nparts; i++)
        ok &= strstr(said, part[i]) != NULL;
    if (!ok) print_message("%d: %s\n", (int)nb_error_code(), said);
    nb_error_clear();
    assert_true(ok);
    s->who = -1;
    for (int i = 0; i < 8; i++)
        s->in[i] = i;
    int n = mesh_in(s)->ndevices;
    bool again = nb_devices_run(mesh_in(s), act, s);
    if (!again) print_message("again: %s\n", nb_error_message());
    assert_true(again);
    assert_true(s->out[n - 1] == n * (n - 1) / 2);
}
#define FAILS_WITH(s, code, ...)                                       \
    fails_with(&s, code,                                               \
               sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), \
               (const char *[]){__VA_ARGS__})

static single with(int n, int what, int who)
{
    single s = sum_over(n, NB_SUM, NB_F32);
    s.act = what;
    s.who = who;
    return s;
}

static void the_error_is_that_of_the_device_that_failed(void **state)
{
    (void)state;
    for (int n = 2; n <= 8; n += 3)
        for (int who = 0; who < n; who++) {
            char text[64];
            single s = with(n, FAIL, who);
            snprintf(text, sizeof text, "by itself: %d", who);
            FAILS_WITH(s, NB_EINDEX, text);
        }
}

static void a_device_that_ends_early_is_named(void **state)
{
    (void)state;
    single s = with(4, RETURN, 2);
    FAILS_WITH(s, NB_ERUNTIME, "all_reduce f32[1] at model.py:7",
               "for device 2, which has come to its end");
}

static void a_device_that_stays_away_is_named(void **state)
{
    (void)state;
    double before = nb_distributed_timeout();
    nb_distributed_set_timeout(0.1);
    single s = with(4, STALL, 1);
    FAILS_WITH(s, NB_ERUNTIME, "all_reduce f32[1] at model.py:7",
               "device 1 did not come within 0.1 s");
    nb_distributed_set_timeout(before);
}

static void programs_that_differ_are_both_named(void **state)
{
    (void)state;
    single s = with(2, OTHER_STEP, 1);
    FAILS_WITH(s, NB_ERUNTIME, "differ", "all_reduce f32[1] at model.py:7",
               "reduce_scatter f32[1] at other.py:9", "device 0", "device 1");
    s = with(4, OTHER_SIZE, 0);
    FAILS_WITH(s, NB_ERUNTIME, "differ", "f32[1]", "f32[2]", "device 0");
    s = with(3, SKIP, 1);
    FAILS_WITH(s, NB_ERUNTIME, "differ", "round 2", "device 1");
}

static void a_message_that_fails_is_an_error(void **state)
{
    (void)state;
    for (int nth = 1; nth <= 2; nth++)
        for (int who = 0; who < 3; who++) {
            char text[64];
            single s = with(3, DO, -1);
            snprintf(text, sizeof text, "device %d fails, as was", who);
            nb_comm_fault_set(who, nth);
            FAILS_WITH(s, NB_ERUNTIME, text, "model.py:7");
        }
}

static void timeouts_are_numbers_above_zero(void **state)
{
    (void)state;
    assert_int_equal(nb_distributed_set_timeout(0), NB_EVALUE);
    nb_error_clear();
    assert_int_equal(nb_distributed_set_timeout(NAN), NB_EVALUE);
    nb_error_clear();
    assert_true(nb_distributed_timeout() > 0);
}

typedef struct starved {
    batch b;
    int who;
    int64_t nth;
    bool struck; /* by the fault */
} starved;

static bool run_starved(void *ctx, int at)
{
    starved *s = ctx;
    unsigned seed = s->b.seed;
    bool ok = true;
    step_case c[12];
    for (int i = 0; i < 12; i++)
        c[i] = step_draw(s->b.mesh, &seed);
    if (at == s->who) nb_fault_set(s->nth);
    for (int i = 0; i < 12 && ok; i++)
        ok = step_holds(nb_device_now(), &c[i]);
    if (at == s->who) s->struck = !nb_fault_is_set();
    nb_fault_set(0);
    return ok;
}

static void running_out_of_memory_is_an_error(void **state)
{
    (void)state;
    starved s = {.b = {.mesh = mesh_of(3), .seed = 5}, .who = -1};
    assert_true(nb_devices_run(s.b.mesh, run_starved, &s));
    int64_t live = nb_memory_live();
    for (s.who = 0; s.who < 4; s.who++)
        for (s.nth = 1, s.struck = true; s.struck && s.nth < 200; s.nth++) {
            bool ok = nb_devices_run(s.b.mesh, run_starved, &s);
            assert_true(ok == !s.struck);
            assert_true(ok || nb_error_code() == NB_EMEMORY);
            nb_error_clear();
            assert_int_equal(nb_memory_live(), live);
        }
}

/* Threads. */

static bool run_inside(void *ctx, int at)
{
    (void)at;
    return nb_devices_run(line(2), act, ctx);
}

static void a_device_cannot_run_devices(void **state)
{
    (void)state;
    single s = with(2, DO, -1);
    assert_false(nb_devices_run(line(2), run_inside, &s));
    assert_non_null(strstr(nb_error_message(), "itself"));
    nb_error_clear();
    assert_null(nb_device_now());
}

static void add(void *ctx, int64_t i)
{
    atomic_fetch_add((atomic_int *)ctx, (int)i);
}

static bool run_pool(void *ctx, int at)
{
    (void)ctx;
    for (int k = 0; k < 50; k++) {
        atomic_int sum = 0;
        nb_parallel(64, add, &sum);
        if (sum != 2016) return nb_fail(NB_ERUNTIME, "device %d: %d", at, sum);
    }
    return true;
}

static void devices_may_use_the_pool(void **state)
{
    (void)state;
    assert_true(nb_devices_run(line(8), run_pool, NULL));
}

static void a_forked_process_has_devices_of_its_own(void **state)
{
    (void)state;
    single s = with(4, DO, -1);
    assert_true(nb_devices_run(line(4), act, &s));
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        bool ok = nb_devices_run(line(4), act, &s);
        _exit(ok ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_true(nb_devices_run(line(4), act, &s));
}

static void all_devices_are_here(void **state)
{
    (void)state;
    assert_int_equal(nb_devices_here(line(5)), 5);
    assert_true(nb_device_is_here(line(5), 4));
    assert_false(nb_device_is_here(line(5), 5));
}

static void one_process_is_rank_0_of_1(void **state)
{
    (void)state;
    assert_int_equal(nb_distributed_rank(), 0);
    assert_int_equal(nb_distributed_size(), 1);
    assert_int_equal(nb_distributed_barrier(), NB_OK);
}

static void nccl_has_a_version_or_is_not_here(void **state)
{
    (void)state;
    int version = nb_distributed_nccl();
    assert_true(version > 2000 ||
                strstr(nb_error_message(), "nccl: libnccl.so.2 is not here"));
    nb_error_clear();
}

/* In a process of its own, since it is decided once. */
static void a_missing_mpi_is_an_error_and_no_more(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0) {
        setenv("NABLA_MPI", "/nowhere/libnabla_mpi.so", 1);
        bool said = nb_distributed_init() == NB_ERUNTIME &&
                    strstr(nb_error_message(), "cannot be reached");
        nb_error_clear();
        bool again = nb_devices_here(line(4)) == 0 && nb_failed();
        _exit(said && again ? 0 : 1);
    }
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
}

int main(void)
{
    alarm(300);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_do_what_a_plain_computation_does),
        cmocka_unit_test(bytes_received_are_counted),
        cmocka_unit_test(half_precision_is_rounded_once),
        cmocka_unit_test(a_sum_is_taken_in_the_order_of_the_devices),
        cmocka_unit_test(a_nan_wins_every_max_and_min),
        cmocka_unit_test(unreduce_then_all_reduce_gives_the_value_back),
        cmocka_unit_test(the_error_is_that_of_the_device_that_failed),
        cmocka_unit_test(a_device_that_ends_early_is_named),
        cmocka_unit_test(a_device_that_stays_away_is_named),
        cmocka_unit_test(programs_that_differ_are_both_named),
        cmocka_unit_test(a_message_that_fails_is_an_error),
        cmocka_unit_test(timeouts_are_numbers_above_zero),
        cmocka_unit_test(running_out_of_memory_is_an_error),
        cmocka_unit_test(a_device_cannot_run_devices),
        cmocka_unit_test(devices_may_use_the_pool),
        cmocka_unit_test(a_forked_process_has_devices_of_its_own),
        cmocka_unit_test(all_devices_are_here),
        cmocka_unit_test(one_process_is_rank_0_of_1),
        cmocka_unit_test(nccl_has_a_version_or_is_not_here),
        cmocka_unit_test(a_missing_mpi_is_an_error_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
