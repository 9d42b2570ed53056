/* test_mpi.c - devices of several processes, under mpirun: the steps of
 * test_comm.c, and faults of a rank.  test_mpi [NAME [RANK]] runs the checks of
 * that name; all that end with every process alive if there is none.  Every
 * rank prints what failed, rank 0 the count. */
#include "support/steps.h"

#include "base/error.h"
#include "base/memory.h"
#include "comm/hall.h"
#include "comm/shm.h"
#include "nabla/distributed.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int passed, failed;

static bool check(bool ok, const char *what)
{
    passed += ok;
    failed += !ok;
    if (!ok)
        printf("rank %d: FAIL %s: %s\n", nb_distributed_rank(), what,
               nb_error_message());
    nb_error_clear();
    return ok;
}

static const nb_mesh *mesh_of(int k)
{
    static const int sizes[][3] = {{4, 1, 1}, {2, 2, 1}, {2, 4, 1},
                                   {2, 2, 2}, {8, 1, 1}, {3, 4, 1}};
    return nb_mesh_new("m", 3, (const char *[]){"x", "y", "z"}, sizes[k], NULL);
}

static void rest(double seconds)
{
    struct timespec t = {(time_t)seconds,
                         (long)(1e9 * (seconds - (time_t)seconds))};
    nanosleep(&t, NULL);
}

typedef struct batch {
    const nb_mesh *mesh;
    unsigned seed;
    int cases;
    int64_t bytes;
    atomic_int wrong;
} batch;

static bool run_batch(void *ctx, int position)
{
    batch *b = ctx;
    unsigned seed = b->seed;
    for (int i = 0; i < b->cases; i++) {
        step_case c = step_draw(b->mesh, &seed);
        if (step_holds(nb_device_now(), &c)) continue;
        if (nb_failed()) return false;
        printf("device %d of %d: case %d (%s) is wrong\n", position,
               b->mesh->ndevices, i, nb_dtype_name(c.dtype));
        b->wrong++;
    }
    return true;
}

static void steps(void)
{
    for (int k = 0; k < 6; k++) {
        batch b = {.mesh = mesh_of(k), .seed = (unsigned)k + 1, .cases = 200};
        check(nb_devices_run(b.mesh, run_batch, &b) && b.wrong == 0,
              "steps do what a plain computation does");
    }
}

static bool run_one(void *ctx, int position)
{
    (void)position;
    return step_holds(nb_device_now(), ctx);
}

/* A run for each step: nothing of one is taken for the next. */
static void runs(void)
{
    unsigned seed = 7;
    int wrong = 0;
    for (int i = 0; i < 200; i++) {
        step_case c = step_draw(mesh_of(i % 6), &seed);
        wrong += !nb_devices_run(c.step.from->mesh, run_one, &c);
    }
    check(wrong == 0, "runs follow each other");
}

/* Large sums: many packets, floats whose order matters. */

typedef struct large {
    nb_hop step;
    int64_t size;
    atomic_int wrong;
} large;

static nb_spec one_axis(const nb_mesh *m, bool split, bool pending)
{
    nb_spec s = {.mesh = m, .rank = 1};
    nb_cut x = {1, {nb_axis_full(m, 0)}};
    if (split) s.dim[0].axes = x;
    if (pending) s.partial = x;
    return s;
}

static large over_line(nb_hop_kind kind, int n, bool split, bool pending,
                       bool then_split, int64_t size)
{
    const nb_mesh *m = nb_mesh_new("line", 1, (const char *[]){"x"}, &n, NULL);
    large l = {.size = size};
    nb_spec from = one_axis(m, split, pending);
    nb_spec into = one_axis(m, then_split, false);
    l.step.kind = kind;
    l.step.axes = (nb_cut){1, {nb_axis_full(m, 0)}};
    l.step.from = nb_spec_intern(&from);
    l.step.into = nb_spec_intern(&into);
    return l;
}

static float element(int64_t i, int position)
{
    return (float)((i * 7919 + position * 104729) % 10007) * 1.37e-3f - 5.f;
}

static float wanted(const large *l, int64_t i)
{
    float sum = element(i, 0);
    int n = l->step.from->mesh->ndevices;
    if (l->step.kind == NB_HOP_ALL_GATHER) return sum;
    for (int p = 1; p < n; p++)
        sum += element(i, p);
    return sum;
}

static bool run_large(void *ctx, int position)
{
    large *l = ctx;
    nb_box from, into;
    nb_spec_box(l->step.from, &l->size, position, &from);
    nb_spec_box(l->step.into, &l->size, position, &into);
    float *in = malloc((size_t)from.size[0] * sizeof *in + 1);
    float *out = malloc((size_t)into.size[0] * sizeof *out + 1);
    int p = l->step.kind == NB_HOP_ALL_GATHER ? 0 : position;
    for (int64_t i = 0; i < from.size[0]; i++)
        in[i] = element(from.start[0] + i, p);
    bool ok = nb_hop_run(nb_device_now(), &l->step, NB_F32, &l->size, in, out);
    for (int64_t i = 0; ok && i < into.size[0]; i++)
        l->wrong += out[i] != wanted(l, into.start[0] + i);
    free(in);
    free(out);
    return ok;
}

static void large_messages(void)
{
    static const int64_t sizes[] = {0, 1, 5, 32768, 100003, 1000003};
    for (int k = 0; k < 6; k++)
        for (int n = 4; n <= 8; n += 4) {
            large l =
                over_line(NB_HOP_ALL_REDUCE, n, false, true, false, sizes[k]);
            check(nb_devices_run(l.step.from->mesh, run_large, &l) && !l.wrong,
                  "large sums are the same to the last bit");
            l = over_line(NB_HOP_REDUCE_SCATTER, n, false, true, true,
                          sizes[k]);
            check(nb_devices_run(l.step.from->mesh, run_large, &l) && !l.wrong,
                  "and scattered");
            l = over_line(NB_HOP_ALL_GATHER, n, true, false, false, sizes[k]);
            check(nb_devices_run(l.step.from->mesh, run_large, &l) && !l.wrong,
                  "large blocks are gathered");
        }
}

/* What goes on between ranks of one machine. */

typedef struct swap {
    const void *mine;
    void *theirs;
    size_t bytes;
} swap;

/* Ranks 2k and 2k + 1 give each other bytes. */
static bool run_swap(void *ctx, int position)
{
    swap *s = ctx;
    nb_device *me = nb_device_now();
    nb_message out = {position ^ 1, (void *)s->mine, s->bytes};
    nb_message in = {position ^ 1, s->theirs, s->bytes};
    nb_meeting round = {++me->round, 7, "swap", "model.py:7"};
    nb_post post = {1, 1, &out, &in, NULL};
    return me->link->exchange(me->link, me, &round, &post);
}

static bool swapped(const void *mine, void *theirs, size_t bytes)
{
    int n = nb_distributed_size();
    const nb_mesh *m = nb_mesh_new("line", 1, (const char *[]){"x"}, &n, NULL);
    return nb_devices_run(m, run_swap, &(swap){mine, theirs, bytes});
}

static bool says(const char *const *part)
{
    bool all = true;
    for (; *part; part++)
        all &= strstr(nb_error_message(), *part) != NULL;
    return all;
}
#define SAID(...)         \
    (const char *[])      \
    {                     \
        __VA_ARGS__, NULL \
    }

static void offers_are_taken_back(int peer)
{
    static const double word = 2.5;
    const double *mine = &word, *theirs = NULL;
    double read = 0;
    uint64_t run = nb_hall_get()->run + 1;
    check(swapped(&mine, &theirs, sizeof mine), "addresses are swapped");
    nb_shm_take_back(run);
    check(nb_distributed_barrier() == NB_OK, "a barrier is passed");
    check(!nb_shm_read(peer, run, (uintptr_t)theirs, &read, sizeof read),
          "what was taken back is not read");
    check(nb_shm_read(peer, run + 1, (uintptr_t)theirs, &read, sizeof read) &&
              read == word,
          "later offers are");
    check(nb_distributed_barrier() == NB_OK, "a barrier is passed");
}

/* Of rank 1; who has nothing to do with it may be done before it hears of it. */
static void memory_that_is_not_there(void)
{
    size_t bytes = (size_t)1 << 20;
    int rank = nb_distributed_rank();
    void *theirs = malloc(bytes);
    void *mine = mmap(NULL, bytes, rank == 1 ? PROT_NONE : PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool ok = swapped(mine, theirs, bytes);
    check(ok ? rank > 1
             : says(SAID("swap at model.py:7: the memory of device 1 (rank 1) "
                         "cannot be read")),
          "memory that cannot be read is an error");
    munmap(mine, bytes);
    free(theirs);
}

static void ways(void)
{
    const char *said = getenv("NABLA_SHM");
    bool forbidden = said && (!strcmp(said, "0") || !strcmp(said, "rings"));
    bool reads = nb_shm_reads_all();
    check(!forbidden || !reads, "memory is not read where that is not wanted");
    if (nb_distributed_rank() == 0)
        printf("memory of other ranks is %s\n", reads ? "read" : "not read");
    if (!reads) return;
    offers_are_taken_back(nb_distributed_rank() ^ 1);
    memory_that_is_not_there();
}

static void ranks(void)
{
    int size = nb_distributed_size(), rank = nb_distributed_rank();
    const nb_mesh *m = mesh_of(4);
    check(nb_devices_here(m) == 8 / size, "devices are dealt out");
    check(nb_device_is_here(m, 8 / size * rank), "in order");
    check(!nb_device_is_here(m, (8 / size * (rank + 1)) % 8), "to one each");
    check(nb_distributed_barrier() == NB_OK, "a barrier is passed");
    int eight = 8;
    const nb_mesh *back = nb_mesh_new("back", 1, (const char *[]){"x"}, &eight,
                                      (int[]){7, 6, 5, 4, 3, 2, 1, 0});
    bool same = true;
    for (int i = 0; i < 8; i++)
        same &= nb_device_is_here(back, i) == nb_device_is_here(m, 7 - i);
    check(same, "a device is where it is on every mesh");
    batch b = {.mesh = back, .seed = 3, .cases = 100};
    check(nb_devices_run(back, run_batch, &b) && b.wrong == 0,
          "and computes the same");
    int seven = 7;
    const nb_mesh *odd =
        nb_mesh_new("odd", 1, (const char *[]){"x"}, &seven, NULL);
    bool refused = !nb_devices_run(odd, run_one, NULL);
    check(refused && strstr(nb_error_message(), "dealt out"),
          "a mesh that cannot be dealt out is refused");
}

/* Faults.  All devices sum; one does something else. */

enum { DO, RAISE, RETURN, STALL, OTHER, LARGER, SKIP, STARVE };
typedef struct act {
    large l;
    int what, who;
} act;

static bool run_act(void *ctx, int position)
{
    act *a = ctx;
    large l = {.step = a->l.step, .size = a->l.size};
    nb_device *me = nb_device_now();
    int what = position == a->who ? a->what : DO;
    me->source = position == a->who ? "other.py:9" : "model.py:7";
    if (what == RAISE) return nb_fail(NB_EINDEX, "by itself");
    if (what == RETURN) return true;
    if (what == STALL) rest(0.8);
    if (what == SKIP) me->round++;
    if (what == LARGER) l.size++;
    if (what == OTHER)
        l = over_line(NB_HOP_REDUCE_SCATTER, l.step.from->mesh->ndevices, false,
                      true, true, l.size);
    if (what == STARVE) nb_fault_set(2);
    bool ok = run_large(&l, position);
    nb_fault_set(0);
    if (what == DO || what == STALL) a->l.wrong += l.wrong;
    return ok;
}

/* What the culprit's process says, and what the others say. */
static void fault(const char *name, int what, int64_t size,
                  const char *const *culprit, const char *const *others)
{
    int n = 2 * nb_distributed_size();
    for (int who = 0; who < n; who += n - 1) {
        act a = {over_line(NB_HOP_ALL_REDUCE, n, false, true, false, size),
                 what, who};
        const nb_mesh *m = a.l.step.from->mesh;
        bool here = nb_device_is_here(m, who);
        bool refused = !nb_devices_run(m, run_act, &a);
        check(refused && says(here ? culprit : others), name);
        double before = nb_distributed_timeout();
        nb_distributed_set_timeout(20);
        a = (act){a.l, DO, -1};
        a.l.wrong = 0;
        check(nb_devices_run(m, run_act, &a) && !a.l.wrong,
              "all work afterwards");
        nb_distributed_set_timeout(before);
    }
}
static void faults(void)
{
    static const int64_t sizes[] = {3, 300000};
    for (int k = 0; k < 2; k++) {
        fault("a device that fails is named", RAISE, sizes[k],
              SAID("by itself"),
              SAID("all_reduce f32[", "at model.py:7", "device ", "(rank ",
                   "has failed: by itself"));
        fault("programs that differ are named", OTHER, sizes[k],
              SAID("differ", "reduce_scatter", "all_reduce"), SAID("differ"));
        fault("sizes that differ are named", LARGER, sizes[k],
              SAID("differ", "model.py:7", "other.py:9"), SAID("differ"));
        fault("rounds that differ are named", SKIP, sizes[k], SAID("differ"),
              SAID("differ"));
        fault("memory that runs out is an error", STARVE, sizes[k],
              SAID("out of memory"), SAID("has failed: out of memory"));
    }
    nb_distributed_set_timeout(0.3);
    for (int k = 0; k < 2; k++)
        fault("a device that stalls is named", STALL, sizes[k],
              SAID("did not come"),
              SAID("did not come within 0.3 s", "model.py:7"));
    nb_distributed_set_timeout(20);
}

/* One rank runs a program over another mesh: it is named, by its number. */
static void other_mesh(void)
{
    int size = nb_distributed_size(), rank = nb_distributed_rank();
    for (int who = 0; who < size; who += size - 1) {
        char named[32];
        int n = rank == who ? size : 2 * size;
        act a = {over_line(NB_HOP_ALL_REDUCE, n, false, true, false, 9), DO,
                 -1};
        snprintf(named, sizeof named, "(rank %d)", who);
        bool refused = !nb_devices_run(a.l.step.from->mesh, run_act, &a);
        check(refused && (rank == who || says(SAID(named, "another mesh"))),
              "who runs over another mesh is named");
        a = (act){over_line(NB_HOP_ALL_REDUCE, size, false, true, false, 9), DO,
                  -1};
        check(nb_devices_run(a.l.step.from->mesh, run_act, &a) && !a.l.wrong,
              "and all work afterwards");
    }
}

/* The n-th exchange of a device fails. */
static void injected(void)
{
    int n = nb_distributed_size();
    for (int nth = 1; nth <= 2; nth++)
        for (int who = 0; who < n; who++) {
            act a = {over_line(NB_HOP_ALL_REDUCE, n, false, true, false, 9), DO,
                     -1};
            const nb_mesh *m = a.l.step.from->mesh;
            if (nb_device_is_here(m, who)) nb_comm_fault_set(who, nth);
            bool refused = !nb_devices_run(m, run_act, &a);
            check(refused && says(SAID("as was asked for", "model.py:7")),
                  "a message that fails is an error");
            check(nb_devices_run(m, run_act, &a) && !a.l.wrong,
                  "and the next goes through");
        }
}

static void leaks(void)
{
    check(nb_memory_live() == 0, "no memory is left");
}

/* Programs that end: run by themselves, looked at from outside. */

static int sum_alone(int size)
{
    act a = {over_line(NB_HOP_ALL_REDUCE, size, false, true, false, 100), DO,
             -1};
    bool ok = nb_devices_run(a.l.step.from->mesh, run_act, &a);
    printf("rank %d: %s\n", nb_distributed_rank(),
           ok ? "went through" : nb_error_message());
    fflush(stdout);
    return ok ? 0 : 3;
}

static void *die(void *ctx)
{
    (void)ctx;
    rest(0.2);
    _exit(0);
}

/* One rank exits, or sleeps, while the others sum, or dies after it has offered
 * its part, before the others read it. */
static int ends(const char *how, int who)
{
    if (nb_distributed_init()) return 2;
    int size = nb_distributed_size();
    bool dies = strcmp(how, "dies") == 0;
    pthread_t killer;
    if (dies && (!nb_shm_reads_all() || !getenv("OMPI_COMM_WORLD_RANK"))) {
        printf("memory of other ranks is not read, or one must not die\n");
        return 0;
    }
    sum_alone(size);
    if (nb_distributed_rank() == who) {
        if (strcmp(how, "exits") == 0) exit(0);
        if (strcmp(how, "sleeps") == 0) rest(1000);
        if (dies && pthread_create(&killer, NULL, die, NULL)) return 2;
    } else if (dies) {
        rest(0.5);
    }
    nb_distributed_set_timeout(strcmp(how, "sleeps") == 0 ? 1 : 20);
    return sum_alone(size);
}

int main(int argc, char **argv)
{
    alarm(200);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 2) return ends(argv[1], atoi(argv[2]));
    nb_distributed_set_timeout(20);
    if (!check(nb_distributed_init() == NB_OK, "processes find each other"))
        return 1;
    ranks();
    ways();
    steps();
    runs();
    large_messages();
    faults();
    other_mesh();
    injected();
    leaks();
    if (nb_distributed_rank() == 0 || failed)
        printf("rank %d of %d: %d passed, %d failed\n", nb_distributed_rank(),
               nb_distributed_size(), passed, failed);
    return failed > 0;
}
