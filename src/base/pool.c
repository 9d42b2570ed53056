/* pool.c - threads that wait for chunks.
 *
 * A job is open while its seats are above zero or chunks of it are left.  A
 * worker takes a seat before it looks at the job; the caller, out of chunks,
 * removes the seats that are left and waits for those who had taken one.  So
 * it waits for chunks being worked on, never for a worker that has not woken
 * up, and the job cannot change under one that has.
 *
 * Nobody spins for long: who finds nothing for SPIN nanoseconds sleeps on a
 * futex.  Waking a sleeper takes longer than many a kernel, hence the bounds
 * HOT and COLD on what is worth handing out.
 *
 * Whoever sets `taken` owns the job and the list of workers; there is no other
 * lock, so a forked child, which has no workers, need only clear the flags. */
#define _GNU_SOURCE
#include "base/pool.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 256, SPIN = 30000, HOT = 5000, COLD = 100000, LINE = 64 };

static atomic_int threads; /* 0: not yet known */

static struct {
    alignas(LINE) atomic_uint turn; /* of jobs; what idle workers watch */
    atomic_int awake, asleep;       /* idle workers */
    atomic_bool quit;

    alignas(LINE) atomic_int seats;
    nb_chunk_fn *fn;
    void *ctx;
    int64_t n;

    alignas(LINE) atomic_int_fast64_t next;

    alignas(LINE) atomic_uint gone; /* of those who took a seat */
    atomic_bool waiting;            /* the caller sleeps, or is about to */
    atomic_flag failed;             /* code and message are spoken for */
    nb_status code;
    char message[1024];

    alignas(LINE) atomic_bool taken;
    bool registered;
    int workers;
    pthread_t worker[MOST];
} pool;

static int available(void)
{
    cpu_set_t cpus;
    long n = sched_getaffinity(0, sizeof cpus, &cpus) == 0
                 ? CPU_COUNT(&cpus)
                 : sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > MOST ? MOST : (int)n;
}

static int wanted(void)
{
    const char *text = getenv("NABLA_NUM_THREADS");
    char *end;
    long n = text ? strtol(text, &end, 10) : 0;
    return n < 1 || n > MOST || *end ? available() : (int)n;
}

int nb_threads(void)
{
    int n = atomic_load_explicit(&threads, memory_order_relaxed), none = 0;
    if (n) return n;
    n = wanted();
    return atomic_compare_exchange_strong(&threads, &none, n) ? n : none;
}

nb_status nb_set_threads(int n)
{
    if (n < 1 || n > MOST)
        return NB_STATUS(nb_fail(NB_EVALUE,
                                 "set_threads: %d threads are asked for (from "
                                 "1 to %d)",
                                 n, MOST));
    threads = n;
    return NB_OK;
}

static int64_t clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns when *word may have changed. */
static void sleep_on(atomic_uint *word, unsigned value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void wake(atomic_uint *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

/* Whether *word is (same) or is not value, before SPIN nanoseconds are over. */
static bool spin(atomic_uint *word, unsigned value, bool same)
{
    int64_t end = clock_now() + SPIN;
    do {
        for (int i = 0; i < 32; i++) {
            if ((*word == value) == same) return true;
            pause_briefly();
        }
    } while (clock_now() < end);
    return false;
}

static void run_chunks(void)
{
    int64_t n = pool.n, i;
    while ((i = atomic_fetch_add_explicit(&pool.next, 1,
                                          memory_order_relaxed)) < n)
        pool.fn(pool.ctx, i);
}

static bool take_seat(void)
{
    int seats = pool.seats;
    while (seats > 0)
        if (atomic_compare_exchange_weak(&pool.seats, &seats, seats - 1))
            return true;
    return false;
}

/* The first error of any worker is kept for the caller. */
static void hand_over_error(void)
{
    if (!nb_failed()) return;
    if (!atomic_flag_test_and_set(&pool.failed)) {
        pool.code = nb_error_code();
        snprintf(pool.message, sizeof pool.message, "%s", nb_error_message());
    }
    nb_error_clear();
}

static void wait_for_turn(unsigned after)
{
    pool.awake++;
    bool found = spin(&pool.turn, after, false);
    pool.awake--;
    if (found) return;
    pool.asleep++;
    while (pool.turn == after)
        sleep_on(&pool.turn, after);
    pool.asleep--;
}

static void *work(void *unused)
{
    (void)unused;
    for (;;) {
        unsigned turn = pool.turn;
        if (pool.quit) return NULL;
        if (take_seat()) {
            run_chunks();
            hand_over_error();
            pool.gone++;
            if (pool.waiting) wake(&pool.gone, 1);
        }
        wait_for_turn(turn);
    }
}

/* In the child of a fork.  The workers are gone, and so is the owner of the
 * pool unless it is this very thread, in a chunk, which is not allowed. */
static void start_anew(void)
{
    pool.workers = 0;
    pool.awake = pool.asleep = pool.seats = 0;
    pool.taken = pool.quit = false;
}

/* At exit, or when the library is unloaded.  If another thread still uses the
 * pool, it and the workers end with the process. */
static void stop(void)
{
    if (atomic_exchange(&pool.taken, true)) return;
    pool.quit = true;
    pool.turn++;
    wake(&pool.turn, INT_MAX);
    for (int i = 0; i < pool.workers; i++)
        pthread_join(pool.worker[i], NULL);
    pool.workers = 0;
}

/* As many workers as asked for, or as the system lets us have. */
static int start(int count)
{
    if (!pool.registered)
        pool.registered =
            !pthread_atfork(NULL, NULL, start_anew) && !atexit(stop);
    if (!pool.registered) return 0;
    while (pool.workers < count &&
           nb_thread_start(&pool.worker[pool.workers], "nabla", work, NULL))
        pool.workers++;
    return pool.workers < count ? pool.workers : count;
}

static void open_job(int seats, int64_t n, nb_chunk_fn *fn, void *ctx)
{
    pool.fn = fn;
    pool.ctx = ctx;
    pool.n = n;
    pool.next = 0;
    pool.gone = 0;
    pool.waiting = false;
    atomic_flag_clear(&pool.failed);
    pool.code = NB_OK;
    pool.seats = seats;
    pool.turn++;
    int asleep = pool.asleep, lacking = seats - pool.awake;
    if (asleep > 0 && lacking > 0) wake(&pool.turn, lacking);
}

static void close_job(int seats)
{
    unsigned inside = (unsigned)(seats - atomic_exchange(&pool.seats, 0)), gone;
    if (!spin(&pool.gone, inside, true)) {
        pool.waiting = true;
        while ((gone = pool.gone) != inside)
            sleep_on(&pool.gone, gone);
    }
    if (pool.code) nb_fail(pool.code, "%s", pool.message);
}

static void run_alone(int64_t n, nb_chunk_fn *fn, void *ctx)
{
    for (int64_t i = 0; i < n; i++)
        fn(ctx, i);
}

/* A fault to be injected counts the allocations of one thread, so that thread
 * has to make them all. */
void nb_parallel(int64_t n, nb_chunk_fn *fn, void *ctx)
{
    int seats = nb_threads() - 1;
    if (seats > n - 1) seats = (int)(n - 1);
    if (seats < 1 || nb_fault_is_set() || atomic_exchange(&pool.taken, true)) {
        run_alone(n, fn, ctx);
        return;
    }
    seats = start(seats);
    open_job(seats, n, fn, ctx);
    run_chunks();
    close_job(seats);
    pool.taken = false;
}

/* Little jobs that follow each other closely are worth waking the workers for
 * as much as a large one: the time of those that stayed here is added up, and
 * forgotten in a pause in which a worker would have fallen asleep anyway. */
static bool add_up(double nanoseconds)
{
    static _Thread_local struct {
        int64_t end; /* when the last is thought to be done */
        double sum;
    } alone;
    int64_t now = clock_now();
    if (now > alone.end + SPIN) alone.sum = 0;
    alone.sum += nanoseconds;
    alone.end = now + (int64_t)nanoseconds;
    if (alone.sum < COLD) return false;
    alone.sum = 0;
    return true;
}

void nb_parallel_if(double nanoseconds, int64_t n, nb_chunk_fn *fn, void *ctx)
{
    bool hot = atomic_load_explicit(&pool.awake, memory_order_relaxed) > 0;
    bool worth = n > 1 && nanoseconds >= HOT &&
                 (hot || nanoseconds >= COLD || add_up(nanoseconds));
    if (worth)
        nb_parallel(n, fn, ctx);
    else
        run_alone(n, fn, ctx);
}
