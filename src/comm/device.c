/* device.c - the devices of this process: a thread for each.
 *
 * The first device of a run is the thread that asks for the run, the others are
 * threads that wait for the next run between runs.  They take no signals, start
 * when first needed and are not carried over a fork.
 *
 * Errors belong to threads; of those of a run the caller gets that of the first
 * device that failed by itself, for the others only say that it did. */
#define _GNU_SOURCE
#include "comm/comm.h"

#include "base/error.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/local.h"
#include "comm/remote.h"
#include "comm/stats.h"
#include "nabla/distributed.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct worker {
    struct worker *next;
    pthread_t thread;
    sem_t go;
    nb_device device;
} worker;

static struct {
    pthread_mutex_t turn; /* held while a run lasts */
    int count;            /* that run; those behind them in the list do not */
    worker *first;
    bool registered, quit;

    nb_device_fn *fn;
    void *ctx;
    atomic_int left;
    sem_t done;

    pthread_mutex_t lock; /* of what follows */
    bool failed, by_itself;
    nb_status code;
    char message[4096], notes[512];
} crew = {.turn = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local nb_device *now;

nb_device *nb_device_now(void)
{
    return now;
}

int nb_devices_here(const nb_mesh *m)
{
    int rank, size;
    if (!nb_ranks_get(&rank, &size)) return 0;
    if (m->ndevices % size == 0) return m->ndevices / size;
    nb_fail(NB_EVALUE,
            "mesh @%s: %d devices cannot be dealt out evenly to %d processes",
            m->name, m->ndevices, size);
    return 0;
}

int nb_device_rank(const nb_mesh *m, int position)
{
    int before = 0;
    for (int i = 0; i < m->ndevices; i++)
        before += m->device[i] < m->device[position];
    return before / (m->ndevices / nb_distributed_size());
}

bool nb_device_is_here(const nb_mesh *m, int position)
{
    int n = nb_devices_here(m);
    if (n == 0 || position < 0 || position >= m->ndevices) return false;
    return n == m->ndevices ||
           nb_device_rank(m, position) == nb_distributed_rank();
}

static void wait_for(sem_t *s)
{
    while (sem_wait(s) && errno == EINTR)
        ;
}

/* Keeps the error of this thread for the caller and forgets it here. */
static void hand_over_error(const nb_device *d)
{
    pthread_mutex_lock(&crew.lock);
    if (!crew.failed || (!crew.by_itself && !d->struck)) {
        crew.failed = true;
        crew.by_itself = !d->struck;
        crew.code = nb_error_code();
        snprintf(crew.message, sizeof crew.message, "%s", nb_error_message());
        snprintf(crew.notes, sizeof crew.notes, "%s", nb_error_notes());
    }
    pthread_mutex_unlock(&crew.lock);
    nb_error_clear();
}

static void be(nb_device *d)
{
    now = d;
    if (!crew.fn(crew.ctx, d->position)) {
        if (!nb_failed())
            nb_fail(NB_ERUNTIME, "device %d failed without an error",
                    d->position);
        d->link->fail(d->link, d);
        hand_over_error(d);
    }
    d->link->leave(d->link, d);
    now = NULL;
    if (--crew.left == 0) sem_post(&crew.done);
}

static void *work(void *ctx)
{
    worker *w = ctx;
    for (;;) {
        wait_for(&w->go);
        if (crew.quit) return NULL;
        be(&w->device);
    }
}

/* In the child of a fork, which has none of the threads. */
static void start_anew(void)
{
    crew.count = 0;
    pthread_mutex_init(&crew.turn, NULL);
    pthread_mutex_init(&crew.lock, NULL);
}

/* At exit, or when the library is unloaded.  Devices of a run that still goes
 * on end with the process. */
static void stop(void)
{
    if (pthread_mutex_trylock(&crew.turn)) return;
    crew.quit = true;
    worker *w = crew.first;
    for (int i = 0; i < crew.count; i++, w = w->next) {
        sem_post(&w->go);
        pthread_join(w->thread, NULL);
    }
    crew.count = 0;
    pthread_mutex_unlock(&crew.turn);
}

static bool get_ready(void)
{
    if (!crew.registered)
        crew.registered = !sem_init(&crew.done, 0, 0) &&
                          !pthread_atfork(NULL, NULL, start_anew) &&
                          !atexit(stop);
    return crew.registered || nb_fail_memory(0, "devices");
}

/* The worker behind all that run, made if need be. */
static worker *idle_worker(void)
{
    worker **at = &crew.first;
    for (int i = 0; i < crew.count; i++)
        at = &(*at)->next;
    if (!*at) *at = nb_alloc_forever(sizeof **at);
    return *at;
}

static bool add_worker(void)
{
    worker *w = idle_worker();
    if (!w) return false;
    sem_init(&w->go, 0, 0);
    if (!nb_thread_start(&w->thread, "nabla device", work, w))
        return nb_fail(NB_ERUNTIME,
                       "mesh: the system gives no thread for device %d of this "
                       "process",
                       crew.count + 1);
    crew.count++;
    return true;
}

static bool prepare(const nb_mesh *m, int others)
{
    if (!get_ready() || !nb_counters_get(m)) return false;
    while (crew.count < others)
        if (!add_worker()) return false;
    return true;
}

/* Others count on a run once it has been asked for. */
static bool start(const nb_mesh *m, nb_link *link, int here)
{
    nb_device mine = {.mesh = m, .link = link, .source = ""};
    if (!link->start(link, m)) return false;
    if (prepare(m, here - 1)) return true;
    while (!nb_device_is_here(m, mine.position))
        mine.position++;
    link->fail(link, &mine);
    return false;
}

static void run_all(const nb_mesh *m, nb_link *link, int here)
{
    nb_device mine = {.mesh = m, .link = link, .source = ""};
    const int *place = nb_mesh_places(m);
    crew.left = here;
    crew.failed = crew.by_itself = false;
    while (!nb_device_is_here(m, mine.position))
        mine.position++;
    worker *w = crew.first;
    for (int i = mine.position + 1; i < m->ndevices; i++) {
        if (here < m->ndevices && !nb_device_is_here(m, i)) continue;
        w->device = mine;
        w->device.position = i;
        w->device.on = place[i];
        sem_post(&w->go);
        w = w->next;
    }
    mine.on = place[mine.position];
    be(&mine);
    wait_for(&crew.done);
}

bool nb_devices_run(const nb_mesh *m, nb_device_fn *fn, void *ctx)
{
    if (now)
        return nb_fail(NB_ERUNTIME,
                       "mesh @%s: device %d of mesh @%s cannot run programs "
                       "over a mesh itself",
                       m->name, now->position, now->mesh->name);
    int n = nb_devices_here(m);
    nb_link *link = n ? nb_link_get(m) : NULL;
    if (!link) return false;
    pthread_mutex_lock(&crew.turn);
    bool ok = start(m, link, n);
    if (ok) {
        crew.fn = fn;
        crew.ctx = ctx;
        run_all(m, link, n);
        ok = !crew.failed;
        if (!ok) {
            nb_fail(crew.code, "%s", crew.message);
            nb_error_note("%s", crew.notes);
        }
    }
    pthread_mutex_unlock(&crew.turn);
    return ok;
}
