/* distributed.c - finding the other processes, and parting from them. */
#define _GNU_SOURCE
#include "nabla/distributed.h"

#include "base/dl.h"
#include "base/memory.h"
#include "comm/comm.h"
#include "comm/remote.h"
#include "shard/layout/mesh.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum state {
    UNKNOWN,
    ALONE,
    TOGETHER,
    REFUSED, /* there are others, but no way to them */
    OVER,    /* parted */
    FORKED   /* the child of one that has joined others */
} state;

static struct {
    pthread_mutex_t lock;
    atomic_int state;
    int rank, size;
    const nb_wire *wire;
    bool registered;
    char why[256]; /* of REFUSED */
} us = {.lock = PTHREAD_MUTEX_INITIALIZER, .size = 1};

static int number(const char *variable)
{
    const char *text = getenv(variable);
    return text ? atoi(text) : 0;
}

/* Whether mpirun has started us, whosever it is. */
static bool is_launched(void)
{
    const char *wanted = getenv("NABLA_DISTRIBUTED");
    if (wanted && strcmp(wanted, "0") == 0) return false;
    return number("OMPI_COMM_WORLD_SIZE") > 1 || number("PMI_SIZE") > 1;
}

/* Beside the library, or program, that this function is in. */
static void *load(void)
{
    char path[PATH_MAX] = "", beside[PATH_MAX] = "";
    const char *said = getenv("NABLA_MPI");
    Dl_info info;
    if (dladdr((void *)&nb_distributed_init, &info) && info.dli_fname)
        snprintf(beside, sizeof beside, "%s", info.dli_fname);
    char *end = strrchr(beside, '/');
    if (end) *end = '\0';
    int n =
        snprintf(path, sizeof path, "%s/libnabla_mpi.so", end ? beside : ".");
    if (said && *said) return nb_dl_open((const char *const[]){said, NULL});
    return nb_dl_open((const char *const[]){
        n < PATH_MAX ? path : "libnabla_mpi.so", "libnabla_mpi.so", NULL});
}

static bool open_wire(void)
{
    void *lib = load();
    nb_wire_open_fn *open =
        (nb_wire_open_fn *)nb_dl_symbol(lib, NB_WIRE_SYMBOL);
    if (!open) {
        const char *why = lib ? "it is not ours" : dlerror();
        snprintf(us.why, sizeof us.why, "libnabla_mpi.so: %s",
                 why ? why : "it cannot be loaded");
        return false;
    }
    us.wire = open(us.why, sizeof us.why);
    if (us.wire && us.wire->abi != NB_WIRE_ABI) {
        snprintf(us.why, sizeof us.why,
                 "libnabla_mpi.so is of another version");
        us.wire = NULL;
    }
    return us.wire;
}

static void start_anew(void)
{
    pthread_mutex_init(&us.lock, NULL);
    if (us.state == TOGETHER) us.state = FORKED;
}

/* With the lock held. */
static void part(void)
{
    if (us.state == TOGETHER)
        nb_remote_close();
    else if (us.state == ALONE && us.wire)
        us.wire->close(true);
    else
        return;
    us.wire = NULL;
    us.state = OVER;
    us.rank = 0;
    us.size = 1;
}

void nb_distributed_finish(void)
{
    pthread_mutex_lock(&us.lock);
    part();
    pthread_mutex_unlock(&us.lock);
}

static state join(void)
{
    if (!us.registered)
        us.registered = !pthread_atfork(NULL, NULL, start_anew) &&
                        !atexit(nb_distributed_finish);
    if (!open_wire()) return REFUSED;
    if (us.wire->size > 1 && !nb_remote_open(us.wire)) {
        snprintf(us.why, sizeof us.why, "%s", nb_error_message());
        nb_error_clear();
        return REFUSED;
    }
    us.rank = us.wire->rank;
    us.size = us.wire->size;
    return us.size > 1 ? TOGETHER : ALONE;
}

static void settle(bool asked)
{
    pthread_mutex_lock(&us.lock);
    bool join_now = us.state == UNKNOWN || (us.state == ALONE && !us.wire);
    if (join_now && (asked || is_launched()))
        us.state = join();
    else if (us.state == UNKNOWN)
        us.state = ALONE;
    pthread_mutex_unlock(&us.lock);
}

static bool refuse(void)
{
    switch ((state)us.state) {
    case REFUSED:
        return nb_fail(NB_ERUNTIME,
                       "distributed: the other processes cannot be reached: %s",
                       us.why);
    case OVER:
        return nb_fail(NB_ERUNTIME, "distributed: this process has parted from "
                                    "the others");
    default:
        return nb_fail(NB_ERUNTIME,
                       "distributed: this process was forked from one of many "
                       "and has no part in their program");
    }
}

bool nb_ranks_get(int *rank, int *size)
{
    if (us.state == UNKNOWN) settle(false);
    *rank = us.rank;
    *size = us.size;
    return us.state == ALONE || us.state == TOGETHER || refuse();
}

nb_status nb_distributed_init(void)
{
    int rank, size;
    settle(true);
    return NB_STATUS(nb_ranks_get(&rank, &size));
}

int nb_distributed_rank(void)
{
    if (us.state == UNKNOWN) settle(false);
    return us.rank;
}

int nb_distributed_size(void)
{
    if (us.state == UNKNOWN) settle(false);
    return us.size;
}

/* The same to everybody, from everybody: bytes of each, by rank. */
typedef struct meeting {
    size_t bytes;
    char *all;
    nb_message *message; /* to all others, then from them */
} meeting;

static bool meet_all(void *ctx, int position)
{
    const meeting *t = ctx;
    nb_device *me = nb_device_now();
    int n = me->mesh->ndevices, k = 0;
    char *mine = t->all + (size_t)position * t->bytes;
    nb_message *send = t->message, *recv = send + n;
    for (int i = 0; i < n; i++) {
        if (i == position) continue;
        send[k] = (nb_message){i, mine, t->bytes};
        recv[k++] = (nb_message){i, t->all + (size_t)i * t->bytes, t->bytes};
    }
    nb_meeting round = {++me->round, t->bytes + 1,
                        t->bytes ? "agreement" : "barrier", ""};
    nb_post post = {k, k, send, recv, NULL};
    return me->link->exchange(me->link, me, &round, &post);
}

bool nb_ranks_gather(const void *mine, size_t bytes, void *all)
{
    int rank, size;
    if (!nb_ranks_get(&rank, &size)) return false;
    meeting t = {.bytes = bytes, .all = all};
    if (bytes) memcpy(t.all + (size_t)rank * bytes, mine, bytes);
    if (size == 1) return true;
    const nb_mesh *ranks =
        nb_mesh_new("ranks", 1, (const char *[]){"rank"}, &size, NULL);
    int *cpu = nb_alloc_zero((size_t)size * sizeof *cpu);
    t.message = nb_alloc(2 * (size_t)size * sizeof *t.message);
    bool ok = ranks && cpu && t.message && (ranks = nb_mesh_on(ranks, cpu)) &&
              nb_devices_run(ranks, meet_all, &t);
    nb_free(cpu);
    nb_free(t.message);
    return ok;
}

nb_status nb_distributed_barrier(void)
{
    return NB_STATUS(nb_ranks_gather(NULL, 0, NULL));
}
