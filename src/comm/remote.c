/* remote.c - this process among others.
 *
 * A message is cut into packets that each say what they belong to: run, round,
 * sender, receiver.  Whichever device waits takes what has come, for all devices
 * of the process.
 *
 * Runs are numbered; every process takes part in all of them.  Who fails in a
 * run tells all others.  What comes from a run that is over is dropped.  So
 * processes are in step again with the next run, whatever became of the last. */
#include "comm/remote.h"

#include "comm/remote_parts.h"
#include "comm/shm.h"
#include "nabla/distributed.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct {
    const nb_wire *wire;
    uint64_t idle;
    nb_seat *listener; /* sleeps until the bell rings */
    bool near;         /* all others share memory with this process */
} net;

const char *nb_device_text(int position, char text[NB_WHO])
{
    if (nb_hall_get()->spans)
        snprintf(text, NB_WHO, "device %d (rank %d)", position,
                 nb_hall_get()->at[position].rank);
    else
        snprintf(text, NB_WHO, "device %d", position);
    return text;
}

bool nb_remote_work(nb_seat *a)
{
    bool any = nb_outbox_send(a);
    any |= nb_parcels_thank(a);
    any |= nb_inbox_take_rings(true);
    if (any && net.near) return true;
    /* A goodbye comes after all else: look once more for that. */
    if (nb_inbox_take_wire(true)) return nb_inbox_take_rings(true) | true;
    if (!any) nb_doubt(a);
    return any;
}

bool nb_remote_is_ready(const nb_seat *a)
{
    return a->pending == 0;
}

bool nb_remote_is_done(const nb_seat *a)
{
    return a->next == a->post->nsend && a->arriving == 0 && a->offered == 0 &&
           nb_outbox_is_flushed();
}

unsigned nb_remote_bell(void)
{
    return nb_shm_bell();
}

void nb_remote_wake(nb_seat *a)
{
    if (a == net.listener) nb_shm_ring(net.wire->rank);
}

/* Without a bell: politely at first, then more and more rarely. */
static void doze(void)
{
    if (++net.idle < 200) {
        sched_yield();
        return;
    }
    long pause = net.idle < 2000 ? 50000 : 500000;
    nanosleep(&(struct timespec){0, pause}, NULL);
}

void nb_remote_wait(nb_seat *a, unsigned bell)
{
    nb_hall *h = nb_hall_get();
    if (net.listener) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += 2000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        a->asleep = true;
        pthread_cond_timedwait(&a->wake, &h->lock, &until);
        a->asleep = false;
        return;
    }
    net.listener = a;
    pthread_mutex_unlock(&h->lock);
    if (net.near)
        nb_shm_sleep(bell, 2e-3);
    else
        doze();
    pthread_mutex_lock(&h->lock);
    net.listener = NULL;
}

/* Rounds and runs. */

/* What it sends goes first, before anything that has come, early or in time,
 * can end the run: others learn from it. */
void nb_remote_post(nb_seat *a)
{
    a->next = 0;
    a->sent = 0;
    a->doubted = 0;
    net.idle = 0;
    nb_outbox_send(a);
    nb_parcels_bind(a);
    nb_inbox_take_early(true);
}

/* What is still offered must not be read from here on.  Another who waits listens
 * now. */
void nb_remote_withdraw(nb_seat *a)
{
    nb_hall *h = nb_hall_get();
    if (a->offered > 0) {
        nb_shm_take_back(h->run);
        memset(a->untaken, 0, (size_t)h->mesh->ndevices * sizeof(int));
        a->offered = 0;
    }
    a->odd = NULL;
    nb_parcels_forget(a, h->first < 0 ? a->number : UINT64_MAX);
    for (int i = 0; i < h->mesh->ndevices; i++)
        if (h->at[i].asleep) {
            nb_seat_wake(&h->at[i]);
            return;
        }
}

void nb_remote_leave(nb_seat *a)
{
    nb_parcels_forget(a, UINT64_MAX);
}

void nb_remote_fail(int position, const char *message)
{
    nb_news_trouble();
    nb_outbox_notify(NB_PACKET_FAIL, position, message);
}

bool nb_remote_start(bool ok)
{
    nb_hall_get()->run++;
    if (ok && nb_inbox_has_lost(nb_hall_get()->run))
        ok = nb_fail_memory(0, "messages");
    if (!ok) {
        nb_remote_fail(-1, nb_error_message());
        return false;
    }
    nb_news_heed();
    return true;
}

bool nb_remote_open(const nb_wire *w)
{
    net.wire = w;
    if (!nb_inbox_open(w) || !nb_outbox_open(w) || !nb_news_open(w))
        return false;
    nb_shm_open(w);
    net.near = true;
    for (int i = 0; i < w->size; i++)
        net.near &= i == w->rank || nb_shm_has(i);
    return true;
}

void nb_remote_close(void)
{
    double end = nb_clock() + nb_distributed_timeout();
    bool all = false;
    nb_outbox_notify(NB_PACKET_BYE, 0, "");
    for (net.idle = 0; !(all = nb_news_all_left() && nb_outbox_is_flushed());) {
        nb_inbox_take_early(false);
        bool more = nb_inbox_take_rings(false);
        if (nb_inbox_take_wire(false) || more) continue;
        bool enough = nb_clock() > end || nb_news_none_awaited();
        if (!nb_news_are_good() && enough) break;
        doze();
    }
    nb_shm_close();
    net.wire->close(all);
    net.wire = NULL;
}
