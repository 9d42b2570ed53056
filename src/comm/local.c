/* local.c - see local.h.
 *
 * One lock guards all posts; it is held for looking, never for copying.  A
 * device sleeps on a condition of its own and is woken once: when the last peer
 * that it lacks has posted, when the last of its messages is read, or when
 * there is nothing left to wait for because somebody failed.
 *
 * A post stays until nobody reads from it, also when its owner gives up, for
 * the memory behind it is the owner's.  Who gives up has failed from that
 * moment on, so that nobody begins to read what is no longer there. */
#include "comm/hall.h"

#include "base/error.h"
#include "base/memory.h"
#include "comm/nccl.h"
#include "comm/shm.h"
#include "comm/stats.h"
#include "nabla/distributed.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Large enough that waiting for each other does not matter, and small enough
 * for caches. */
enum { PIECE = 1 << 20 };

static nb_hall hall = {.lock = PTHREAD_MUTEX_INITIALIZER, .first = -1};

nb_hall *nb_hall_get(void)
{
    return &hall;
}

double nb_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

const char *nb_round_text(const nb_meeting *r, char text[NB_WHERE])
{
    bool known = r->source && *r->source;
    snprintf(text, NB_WHERE, "%s%s%s", r->name, known ? " at " : "",
             known ? r->source : "");
    return text;
}

void nb_seat_wake(nb_seat *s)
{
    if (s->asleep) pthread_cond_signal(&s->wake);
    if (hall.spans) nb_remote_wake(s);
}

void nb_hall_wake_all(void)
{
    for (int i = 0; i < hall.mesh->ndevices; i++)
        nb_seat_wake(&hall.at[i]);
}

bool nb_seat_is_here(int position)
{
    return hall.at[position].rank == hall.rank;
}

bool nb_seat_is_of(int position, int rank)
{
    return position >= 0 && position < hall.mesh->ndevices &&
           hall.at[position].rank == rank;
}

const nb_message *nb_message_nth(int n, const nb_message *m, int peer,
                                 int before)
{
    for (int i = 0; i < n; i++)
        if (m[i].peer == peer && before-- == 0) return &m[i];
    return NULL;
}

/* Whether what a sends to b is what b receives from it. */
static bool fits(const nb_seat *a, const nb_seat *b)
{
    for (int i = 0;; i++) {
        const nb_message *x =
            nb_message_nth(a->post->nsend, a->post->send, b->position, i);
        const nb_message *y =
            nb_message_nth(b->post->nrecv, b->post->recv, a->position, i);
        if (!x && !y) return true;
        if (!x || !y || x->bytes != y->bytes) return false;
    }
}

static bool match(const nb_seat *a, const nb_seat *b)
{
    if (a->number == b->number && a->what == b->what && a->post && b->post &&
        fits(a, b) && fits(b, a))
        return true;
    return nb_fail(NB_ERUNTIME,
                   "the programs of the devices differ: device %d is in round "
                   "%llu, %s; device %d in round %llu, %s",
                   a->position, (unsigned long long)a->number, a->where,
                   b->position, (unsigned long long)b->number, b->where);
}

static bool ended(const nb_seat *a, int peer)
{
    return nb_fail(NB_ERUNTIME,
                   "%s: device %d waits for device %d, which has come to its "
                   "end",
                   a->where, a->position, peer);
}

/* Notes which peers are not there yet; false if one will not come. */
static bool look_for(nb_seat *a, int n, const nb_message *m)
{
    for (int i = 0; i < n; i++) {
        nb_seat *b = &hall.at[m[i].peer];
        if (!nb_seat_is_here(b->position)) continue;
        if (b->over) return ended(a, b->position);
        if (b->number >= a->number) {
            if (!match(a, b)) return false;
        } else if (!a->lacks[b->position]) {
            a->lacks[b->position] = true;
            a->lacking++;
        }
    }
    return true;
}

/* Tells those who lack this device that it is there. */
static bool tell(nb_seat *a)
{
    for (int i = 0; i < hall.mesh->ndevices; i++) {
        nb_seat *b = &hall.at[i];
        if (!b->lacks[a->position] || b->number > a->number) continue;
        if (!match(b, a)) return false;
        b->lacks[a->position] = false;
        if (--b->lacking == 0) nb_seat_wake(b);
    }
    return true;
}

static bool struck(nb_seat *a)
{
    char who[NB_WHO];
    a->me->struck = true;
    return nb_fail(NB_ERUNTIME, "%s: %s has failed: %s", a->where,
                   nb_device_text(hall.first, who), hall.message);
}

/* Who it is that a waits for in the end: one that is not itself waiting, as far
 * as can be seen from here. */
static const nb_seat *missing(const nb_seat *a)
{
    for (int i = 0; i < hall.mesh->ndevices && a->post; i++) {
        int next = 0, elsewhere = nb_remote_missing(a);
        if (a->lacking == 0) return elsewhere < 0 ? a : &hall.at[elsewhere];
        while (!a->lacks[next])
            next++;
        a = &hall.at[next];
    }
    return a;
}

static bool late(const nb_seat *a)
{
    char who[NB_WHO];
    const nb_seat *b = missing(a);
    return nb_fail(NB_ERUNTIME, "%s: %s did not come within %g s%s%s", a->where,
                   nb_device_text(b->position, who), nb_distributed_timeout(),
                   b->number ? "; it was last in " : "", b->where);
}

static bool barred(const nb_seat *a)
{
    char who[NB_WHO];
    return nb_fail(NB_ERUNTIME, "%s: the memory of %s cannot be read", a->where,
                   nb_device_text(a->torn, who));
}

/* Rests until woken, or until something may have come from elsewhere. */
static bool rest(nb_seat *a, double end)
{
    struct timespec until = {(time_t)end, (long)(1e9 * (end - (time_t)end))};
    a->asleep = true;
    int rc = pthread_cond_timedwait(&a->wake, &hall.lock, &until);
    a->asleep = false;
    return rc == 0;
}

static bool is_ready(const nb_seat *a)
{
    return a->lacking == 0 && (!hall.spans || nb_remote_is_ready(a));
}

static bool is_done(const nb_seat *a)
{
    return a->unread == 0 && (!hall.spans || nb_remote_is_done(a));
}

static bool is_hopeless(const nb_seat *a)
{
    return hall.first >= 0 || a->gone >= 0 || a->odd || a->starved || a->barred;
}

static bool despair(nb_seat *a)
{
    if (hall.first >= 0) return struck(a);
    if (a->starved) return nb_fail_memory(0, "messages");
    if (a->barred) return barred(a);
    return a->odd ? nb_remote_differs(a, a->odd) : ended(a, a->gone);
}

/* Waits until it is so.  Time counts from when something last moved. */
static bool await(nb_seat *a, bool (*is_so)(const nb_seat *))
{
    double end = nb_clock() + nb_distributed_timeout();
    while (!is_so(a) && !is_hopeless(a)) {
        uint64_t moved = a->moved;
        unsigned bell = hall.spans ? nb_remote_bell() : 0;
        if (hall.spans && nb_remote_work(a)) {
            if (moved != a->moved) end = nb_clock() + nb_distributed_timeout();
            continue;
        }
        if (!hall.spans)
            rest(a, end);
        else
            nb_remote_wait(a, bell);
        if (nb_clock() >= end && !is_so(a) && !is_hopeless(a)) return late(a);
    }
    return !is_hopeless(a) || despair(a);
}

static bool take_part(nb_seat *a)
{
    if (hall.first >= 0) return struck(a);
    if (!look_for(a, a->post->nsend, a->post->send) ||
        !look_for(a, a->post->nrecv, a->post->recv) || !tell(a))
        return false;
    if (hall.spans) nb_remote_post(a);
    return await(a, is_ready) && nb_seat_read(a) && await(a, is_done);
}

static void withdraw(nb_seat *a)
{
    while (a->readers > 0) {
        a->asleep = true;
        pthread_cond_wait(&a->wake, &hall.lock);
        a->asleep = false;
    }
    if (hall.spans) nb_remote_withdraw(a);
    memset(a->lacks, 0, (size_t)hall.mesh->ndevices);
    a->lacking = a->unread = 0;
    a->post = NULL;
}

static void give_up(const nb_device *me)
{
    if (hall.first >= 0 || me->struck) return;
    hall.first = me->position;
    snprintf(hall.message, sizeof hall.message, "%s", nb_error_message());
    if (hall.spans) nb_remote_fail(me->position, hall.message);
    nb_hall_wake_all();
}

static bool exchange(nb_link *l, nb_device *me, const nb_meeting *round,
                     const nb_post *post)
{
    (void)l;
    nb_seat *a = &hall.at[me->position];
    pthread_mutex_lock(&hall.lock);
    nb_round_text(round, a->where);
    a->me = me;
    a->number = round->number;
    a->what = round->what;
    a->post = post;
    a->unread = 0;
    for (int i = 0; i < post->nsend; i++)
        a->unread += nb_seat_is_here(post->send[i].peer);
    bool ok = !nb_comm_must_fail(me, a->where) && take_part(a);
    if (!ok) give_up(me);
    withdraw(a);
    pthread_mutex_unlock(&hall.lock);
    return ok;
}

static void fail(nb_link *l, nb_device *me)
{
    (void)l;
    pthread_mutex_lock(&hall.lock);
    give_up(me);
    pthread_mutex_unlock(&hall.lock);
}

/* Who still waits for this device finds out by itself. */
static void leave(nb_link *l, nb_device *me)
{
    (void)l;
    pthread_mutex_lock(&hall.lock);
    hall.at[me->position].over = true;
    if (hall.spans) nb_remote_leave(&hall.at[me->position]);
    for (int i = 0; i < hall.mesh->ndevices; i++) {
        nb_seat *b = &hall.at[i];
        if (!b->lacks[me->position]) continue;
        b->gone = me->position;
        nb_seat_wake(b);
    }
    pthread_mutex_unlock(&hall.lock);
}

/* One block, for ever: a link to the one before, seats, whom they offer to and
 * whom they lack. */
static bool make_room(int n)
{
    size_t each = sizeof(nb_seat) + (size_t)n * (sizeof(int) + sizeof(bool));
    pthread_condattr_t monotonic;
    if (n <= hall.room) return true;
    void **block = nb_alloc_forever(sizeof *block + (size_t)n * each);
    if (!block) return false;
    nb_seat *at = (nb_seat *)(block + 1);
    int *untaken = (int *)(at + n);
    bool *lacks = (bool *)(untaken + (size_t)n * (size_t)n);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (int i = 0; i < n; i++) {
        pthread_cond_init(&at[i].wake, &monotonic);
        at[i].untaken = untaken + (size_t)i * (size_t)n;
        at[i].lacks = lacks + (size_t)i * (size_t)n;
    }
    pthread_condattr_destroy(&monotonic);
    *block = hall.outgrown;
    hall.outgrown = block;
    hall.at = at;
    hall.room = n;
    return true;
}

static void sit_down(nb_seat *a, int position)
{
    a->position = position;
    a->number = 0;
    a->where[0] = '\0';
    a->over = a->starved = a->barred = false;
    a->gone = a->torn = -1;
    a->odd = NULL;
}

static bool start(nb_link *l, const nb_mesh *m)
{
    pthread_mutex_lock(&hall.lock);
    bool ok = make_room(m->ndevices);
    hall.mesh = m;
    hall.on = l->cards ? nb_mesh_home(m) : 0;
    hall.first = -1;
    hall.rank = nb_distributed_rank();
    hall.spans = nb_devices_here(m) < m->ndevices;
    for (int i = 0; ok && i < m->ndevices; i++) {
        sit_down(&hall.at[i], i);
        hall.at[i].rank = hall.spans ? nb_device_rank(m, i) : hall.rank;
    }
    if (hall.spans) ok = nb_remote_start(ok);
    pthread_mutex_unlock(&hall.lock);
    return ok;
}

/* In the child of a fork: whoever waited here is gone. */
static void start_anew(void)
{
    pthread_mutex_init(&hall.lock, NULL);
    hall.room = 0;
}

static void prepare(void)
{
    pthread_atfork(NULL, NULL, start_anew);
}

static bool is_one_card(const nb_mesh *m)
{
    const int *place = nb_mesh_places(m);
    for (int i = 1; i < m->ndevices; i++)
        if (place[i] != place[0]) return false;
    return place[0] > 0;
}

static bool has_card(const nb_mesh *m)
{
    const int *place = nb_mesh_places(m);
    for (int i = 0; i < m->ndevices; i++)
        if (place[i]) return true;
    return false;
}

#define LINK(name, piece, cards)                                \
    {                                                           \
        name, piece, cards, false, exchange, fail, start, leave \
    }

nb_link *nb_link_get(const nb_mesh *m)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static nb_link local = LINK("local", 0, false);
    static nb_link shared = LINK("card", 0, true);
    static nb_link near = LINK("mpi", 0, false);
    static nb_link far = LINK("mpi", PIECE, false);
    pthread_once(&once, prepare);
    bool here = nb_devices_here(m) == m->ndevices;
    if (here && is_one_card(m)) return &shared;
    nb_link *base = here ? &local : nb_shm_reads_all() ? &near : &far;
    return has_card(m) ? nb_nccl_link(m, base) : base;
}
