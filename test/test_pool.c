/* test_pool.c - the threads of the runtime: every chunk runs once, whoever
 * calls from wherever, and the number of threads shows in no result.
 *
 * Chunks note what they see and it is looked at afterwards, because cmocka may
 * only be asked in the thread of the test. */
#define _GNU_SOURCE
#include "base/error.h"
#include "base/memory.h"
#include "base/pool.h"
#include "base/thread.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_CHUNKS = 3000, NCOUNTS = 3, CALLERS = 4 };

static const int counts[NCOUNTS] = {1, 2, 5};

static void use_threads(int n)
{
    assert_int_equal(nb_set_threads(n), NB_OK);
    assert_int_equal(nb_threads(), n);
}

static void rest(long microseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000 * microseconds}, NULL);
}

/* What the child returns, which has a minute for it. */
static int in_child(int (*run)(void))
{
    int status = -1;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(run());
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int threads_now(void)
{
    return nb_threads();
}

static void the_environment_says_how_many_threads(void **state)
{
    (void)state;
    cpu_set_t cpus;
    assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    const char *before = getenv("NABLA_NUM_THREADS");
    char *kept = before ? strdup(before) : NULL;
    const struct {
        const char *text;
        int threads;
    } cases[] = {{"1", 1},  {"3", 3},   {"", 0},        {"none", 0},
                 {"-2", 0}, {"2.5", 0}, {"99999999", 0}};
    for (int i = 0; i < 7; i++) {
        int want = cases[i].threads ? cases[i].threads : CPU_COUNT(&cpus);
        setenv("NABLA_NUM_THREADS", cases[i].text, 1);
        assert_int_equal(in_child(threads_now), want);
    }
    unsetenv("NABLA_NUM_THREADS");
    assert_int_equal(in_child(threads_now), CPU_COUNT(&cpus));
    if (kept) setenv("NABLA_NUM_THREADS", kept, 1);
    free(kept);
}

static void the_number_of_threads_must_be_sensible(void **state)
{
    (void)state;
    const int bad[] = {0, -1, 1 << 20};
    int before = nb_threads();
    for (int i = 0; i < 3; i++) {
        assert_int_equal(nb_set_threads(bad[i]), NB_EVALUE);
        assert_int_equal(nb_threads(), before);
        nb_error_clear();
    }
}

static void count_chunk(void *times, int64_t i)
{
    ((atomic_int *)times)[i]++;
}

/* Whether the first n of the chunks ran once and the others never. */
static bool launch(int64_t n)
{
    atomic_int *times = calloc(MOST_CHUNKS, sizeof *times);
    nb_parallel(n, count_chunk, times);
    bool ok = true;
    for (int64_t i = 0; i < MOST_CHUNKS; i++)
        ok = ok && times[i] == (i < n);
    free(times);
    return ok;
}

static void every_chunk_runs_exactly_once(void **state)
{
    (void)state;
    for (int c = 0; c < NCOUNTS; c++) {
        use_threads(counts[c]);
        for (int64_t n = 0; n < 70; n++)
            assert_true(launch(n));
        for (int64_t n = 70; n < MOST_CHUNKS; n += 333)
            assert_true(launch(n));
    }
}

typedef struct meeting {
    int size;
    atomic_int here, most;
} meeting;

/* Stays until all have come, or for two seconds. */
static void meet(void *ctx, int64_t i)
{
    meeting *m = ctx;
    int here = ++m->here, most = m->most;
    (void)i;
    while (here > most && !atomic_compare_exchange_weak(&m->most, &most, here))
        ;
    for (int tries = 0; m->most < m->size && tries < 20000; tries++)
        rest(100);
    m->here--;
}

static void all_threads_take_part(void **state)
{
    (void)state;
    for (int c = 0; c < NCOUNTS; c++) {
        meeting m = {.size = counts[c]};
        use_threads(counts[c]);
        nb_parallel(counts[c], meet, &m);
        assert_int_equal(m.most, counts[c]);
    }
    meeting two = {.size = 2}; /* of the four workers that there are now */
    use_threads(2);
    nb_parallel(8, meet, &two);
    assert_int_equal(two.most, 2);
}

/* Ten small launches, of which the second half finds the workers asleep. */
static void workers_that_fell_asleep_are_woken(void **state)
{
    (void)state;
    use_threads(2);
    for (int i = 0; i < 10; i++) {
        meeting m = {.size = 2};
        if (i >= 5) rest(5000);
        nb_parallel(2, meet, &m);
        assert_int_equal(m.most, 2);
    }
}

static void launch_inside(void *bad, int64_t i)
{
    if (!launch(i)) *(atomic_bool *)bad = true;
}

static void a_chunk_may_launch_chunks(void **state)
{
    (void)state;
    for (int c = 0; c < NCOUNTS; c++) {
        atomic_bool bad = false;
        use_threads(counts[c]);
        nb_parallel(40, launch_inside, &bad);
        assert_false(bad);
    }
}

static void *launch_often(void *bad)
{
    for (int i = 0; i < 200; i++)
        if (!launch(i % 50)) *(bool *)bad = true;
    return NULL;
}

static void start_callers(pthread_t *caller, bool *bad)
{
    for (int i = 0; i < CALLERS; i++) {
        bad[i] = false;
        assert_int_equal(
            pthread_create(&caller[i], NULL, launch_often, &bad[i]), 0);
    }
}

static void join_callers(const pthread_t *caller, const bool *bad)
{
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(caller[i], NULL);
        assert_false(bad[i]);
    }
}

static void threads_may_launch_at_once(void **state)
{
    (void)state;
    pthread_t caller[CALLERS];
    bool bad[CALLERS];
    for (int c = 0; c < NCOUNTS; c++) {
        use_threads(counts[c]);
        start_callers(caller, bad);
        join_callers(caller, bad);
    }
}

static int child_fails_to_launch(void)
{
    meeting m = {.size = 2};
    for (int64_t n = 0; n < 20; n++)
        if (!launch(n)) return 1;
    nb_parallel(2, meet, &m);
    return m.most != 2;
}

/* The allocator of the address sanitizer may be locked by another thread when a
 * child is forked, which then waits for ever. */
#ifdef __SANITIZE_ADDRESS__
enum { FORKS_AMONG_CALLERS = 0 };
#else
enum { FORKS_AMONG_CALLERS = 1 };
#endif

static void a_forked_process_has_threads_too(void **state)
{
    (void)state;
    pthread_t caller[CALLERS];
    bool bad[CALLERS];
    use_threads(2);
    assert_true(launch(10));
    assert_int_equal(in_child(child_fails_to_launch), 0);
    if (!FORKS_AMONG_CALLERS) return;
    start_callers(caller, bad);
    for (int i = 0; i < 5; i++)
        assert_int_equal(in_child(child_fails_to_launch), 0);
    join_callers(caller, bad);
    assert_true(launch(10));
}

static int child_exits_at_once(void)
{
    launch(10);
    exit(0);
}

static void exit_ends_the_threads(void **state)
{
    (void)state;
    use_threads(5);
    assert_int_equal(in_child(child_exits_at_once), 0);
}

/* A library that a thread works in takes itself apart at the end: by then who
 * ends the process has waited for the thread. */
static pthread_t late;
static atomic_bool at_work;

static void *work_late(void *unused)
{
    (void)unused;
    at_work = true;
    rest(50000);
    at_work = false;
    return NULL;
}

static void wait_for_late(void *unused)
{
    (void)unused;
    pthread_join(late, NULL);
}

static void take_apart(void)
{
    _exit(at_work ? 1 : 0);
}

static int child_ends_in_time(void)
{
    if (!nb_thread_before_end(wait_for_late, NULL)) return 2;
    if (!nb_thread_start(&late, "late", work_late, NULL)) return 3;
    while (!at_work)
        rest(100);
    if (atexit(take_apart)) return 4;
    exit(5);
}

static void the_end_waits_for_threads_before_all_else(void **state)
{
    (void)state;
    assert_int_equal(in_child(child_ends_in_time), 0);
}

static void ten_thousand_small_launches_come_to_an_end(void **state)
{
    (void)state;
    enum { ROUNDS = 10000, CHUNKS = 6 };
    static atomic_int times[CHUNKS];
    for (int r = 0; r < ROUNDS; r++) {
        if (r % 1000 == 0) use_threads(counts[r / 1000 % NCOUNTS]);
        nb_parallel(CHUNKS, count_chunk, times);
    }
    for (int i = 0; i < CHUNKS; i++)
        assert_int_equal(times[i], ROUNDS);
}

enum { NUMBERS = 100000, GRAIN = 1024 };

static void add_up(void *sums, int64_t i)
{
    int64_t end = (i + 1) * GRAIN < NUMBERS ? (i + 1) * GRAIN : NUMBERS;
    float sum = 0;
    for (int64_t j = i * GRAIN; j < end; j++)
        sum += 1.0f / (float)(j + 1);
    ((float *)sums)[i] = sum;
}

static float harmonic(void)
{
    enum { CHUNKS = (NUMBERS + GRAIN - 1) / GRAIN };
    float sums[CHUNKS], sum = 0;
    nb_parallel(CHUNKS, add_up, sums);
    for (int i = 0; i < CHUNKS; i++)
        sum += sums[i];
    return sum;
}

static void sums_are_the_same_for_all_numbers_of_threads(void **state)
{
    (void)state;
    use_threads(1);
    float one = harmonic();
    for (int c = 1; c < NCOUNTS; c++) {
        use_threads(counts[c]);
        for (int r = 0; r < 20; r++)
            assert_true(harmonic() == one);
    }
}

typedef struct notes {
    pthread_t caller;
    atomic_int others;  /* chunks not run by the caller */
    atomic_int exposed; /* ... in a thread that takes signals */
    atomic_int failed;
    int64_t last; /* of the caller, -1 at first */
    bool in_order;
} notes;

static notes notes_new(void)
{
    return (notes){.caller = pthread_self(), .last = -1, .in_order = true};
}

static void note_thread(void *ctx, int64_t i)
{
    notes *x = ctx;
    sigset_t mask;
    if (pthread_equal(pthread_self(), x->caller)) {
        x->in_order = x->in_order && i == x->last + 1;
        x->last = i;
        return;
    }
    x->others++;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (!sigismember(&mask, SIGINT) || !sigismember(&mask, SIGALRM))
        x->exposed++;
}

static void little_work_stays_with_the_caller(void **state)
{
    (void)state;
    notes x = notes_new();
    use_threads(2);
    nb_parallel_if(1000, 100, note_thread, &x);
    assert_int_equal(x.others, 0);
    assert_true(x.in_order && x.last == 99);
}

static void note_thread_slowly(void *ctx, int64_t i)
{
    note_thread(ctx, i);
    rest(100);
}

static void workers_take_no_signals(void **state)
{
    (void)state;
    notes x = notes_new();
    use_threads(5);
    nb_parallel_if(1e7, 100, note_thread_slowly, &x);
    assert_true(x.others > 0);
    assert_int_equal(x.exposed, 0);
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    assert_false(sigismember(&mask, SIGINT));
}

static void fail_elsewhere(void *ctx, int64_t i)
{
    notes *x = ctx;
    note_thread_slowly(ctx, i);
    if (pthread_equal(pthread_self(), x->caller)) return;
    x->failed++;
    nb_fail(NB_EINDEX, "chunk %d", (int)i);
}

/* On a busy machine a worker may come too late for a launch, not for all. */
static void launch_until_failed(notes *x)
{
    for (int i = 0; i < 1000 && !x->failed; i++)
        nb_parallel(50, fail_elsewhere, x);
}

static void an_error_in_a_chunk_becomes_the_callers(void **state)
{
    (void)state;
    use_threads(2);
    for (int r = 0; r < 3; r++) {
        notes x = notes_new();
        launch_until_failed(&x);
        assert_true(x.failed > 0);
        assert_int_equal(nb_error_code(), NB_EINDEX);
        assert_int_equal(strncmp(nb_error_message(), "chunk ", 6), 0);
        nb_error_clear();
        nb_parallel(50, note_thread_slowly, &x);
        assert_false(nb_failed());
    }
}

static void the_first_cause_of_the_caller_stays(void **state)
{
    (void)state;
    notes x = notes_new();
    use_threads(2);
    nb_fail(NB_EKEY, "before");
    launch_until_failed(&x);
    assert_true(x.failed > 0);
    assert_int_equal(nb_error_code(), NB_EKEY);
    nb_error_clear();
}

static void allocate(void *failed, int64_t i)
{
    void *p = nb_alloc((size_t)i + 1);
    if (!p) ++*(int *)failed; /* one thread, so nobody else writes it */
    nb_free(p);
}

static void an_injected_fault_strikes_in_any_chunk(void **state)
{
    (void)state;
    use_threads(5);
    for (int64_t nth = 1; nth <= 20; nth++) {
        int failed = 0;
        nb_fault_set(nth);
        nb_parallel(20, allocate, &failed);
        nb_fault_set(0);
        assert_int_equal(failed, 1);
        assert_int_equal(nb_error_code(), NB_EMEMORY);
        nb_error_clear();
    }
    assert_int_equal(nb_memory_live(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_says_how_many_threads),
        cmocka_unit_test(the_number_of_threads_must_be_sensible),
        cmocka_unit_test(every_chunk_runs_exactly_once),
        cmocka_unit_test(all_threads_take_part),
        cmocka_unit_test(workers_that_fell_asleep_are_woken),
        cmocka_unit_test(a_chunk_may_launch_chunks),
        cmocka_unit_test(threads_may_launch_at_once),
        cmocka_unit_test(a_forked_process_has_threads_too),
        cmocka_unit_test(exit_ends_the_threads),
        cmocka_unit_test(the_end_waits_for_threads_before_all_else),
        cmocka_unit_test(ten_thousand_small_launches_come_to_an_end),
        cmocka_unit_test(sums_are_the_same_for_all_numbers_of_threads),
        cmocka_unit_test(little_work_stays_with_the_caller),
        cmocka_unit_test(workers_take_no_signals),
        cmocka_unit_test(an_error_in_a_chunk_becomes_the_callers),
        cmocka_unit_test(the_first_cause_of_the_caller_stays),
        cmocka_unit_test(an_injected_fault_strikes_in_any_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
