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
#include "comm/local.h"

#include "base/error.h"
#include "base/memory.h"
#include "comm/stats.h"
#include "nabla/distributed.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef struct slot {
    pthread_cond_t wake;
    int position;
    nb_device *me;
    const nb_post *post;   /* NULL: not in a round */
    uint64_t number, what; /* of the round that it is in or was in last; 0 */
    char where[NB_WHERE];
    int lacking; /* peers that have not posted; which, by position: */
    bool *lacks;
    int unread;  /* of its messages */
    int readers; /* who copy from it right now */
    bool asleep, over;
    int gone;          /* a peer that will not come, or -1 */
    const void **data; /* that a reader sees */
} slot;

/* first: who failed by itself before all others, or -1. */
static struct {
    pthread_mutex_t lock;
    const nb_mesh *mesh;
    int room, first;
    char message[1024];
    slot *at;
} run = {.lock = PTHREAD_MUTEX_INITIALIZER, .first = -1};

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

static void wake(slot *s)
{
    if (s->asleep) pthread_cond_signal(&s->wake);
}

static void wake_all(void)
{
    for (int i = 0; i < run.mesh->ndevices; i++)
        wake(&run.at[i]);
}

/* The message with `before` others to or from that peer in front of it. */
static const nb_message *nth(int n, const nb_message *m, int peer, int before)
{
    for (int i = 0; i < n; i++)
        if (m[i].peer == peer && before-- == 0) return &m[i];
    return NULL;
}

/* Message j that a receives, as its peer sends it. */
static const nb_message *partner(const slot *a, int j)
{
    const nb_message *m = a->post->recv;
    const nb_post *from = run.at[m[j].peer].post;
    int before = 0;
    for (int i = 0; i < j; i++)
        before += m[i].peer == m[j].peer;
    return nth(from->nsend, from->send, a->position, before);
}

/* Whether what a sends to b is what b receives from it. */
static bool fits(const slot *a, const slot *b)
{
    for (int i = 0;; i++) {
        const nb_message *x =
            nth(a->post->nsend, a->post->send, b->position, i);
        const nb_message *y =
            nth(b->post->nrecv, b->post->recv, a->position, i);
        if (!x && !y) return true;
        if (!x || !y || x->bytes != y->bytes) return false;
    }
}

static bool match(const slot *a, const slot *b)
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

static bool ended(const slot *a, int peer)
{
    return nb_fail(NB_ERUNTIME,
                   "%s: device %d waits for device %d, which has come to its "
                   "end",
                   a->where, a->position, peer);
}

/* Notes which peers are not there yet; false if one will not come. */
static bool look_for(slot *a, int n, const nb_message *m)
{
    for (int i = 0; i < n; i++) {
        slot *b = &run.at[m[i].peer];
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
static bool tell(slot *a)
{
    for (int i = 0; i < run.mesh->ndevices; i++) {
        slot *b = &run.at[i];
        if (!b->lacks[a->position] || b->number > a->number) continue;
        if (!match(b, a)) return false;
        b->lacks[a->position] = false;
        if (--b->lacking == 0) wake(b);
    }
    return true;
}

static bool struck(slot *a)
{
    a->me->struck = true;
    return nb_fail(NB_ERUNTIME, "%s: device %d has failed: %s", a->where,
                   run.first, run.message);
}

/* Who it is that a waits for in the end: one that is not itself waiting. */
static const slot *missing(const slot *a)
{
    int n = run.mesh->ndevices;
    for (int step = 0; step < n && a->post && a->lacking > 0; step++) {
        int next = 0;
        while (!a->lacks[next])
            next++;
        a = &run.at[next];
    }
    return a;
}

/* A device that had its messages lie unread was waited for in that round. */
static bool late(const slot *a)
{
    const slot *b = missing(a);
    return nb_fail(NB_ERUNTIME, "%s: device %d did not come within %g s%s%s",
                   a->where, b->position, nb_distributed_timeout(),
                   b->number ? "; it was last in " : "", b->where);
}

/* Sleeps until *count is zero. */
static bool await(slot *a, const int *count)
{
    double end = nb_clock() + nb_distributed_timeout();
    struct timespec until = {(time_t)end, (long)(1e9 * (end - (time_t)end))};
    while (*count > 0 && run.first < 0 && a->gone < 0) {
        a->asleep = true;
        int rc = pthread_cond_timedwait(&a->wake, &run.lock, &until);
        a->asleep = false;
        if (rc && *count > 0 && run.first < 0) return late(a);
    }
    if (run.first >= 0) return struck(a);
    return *count == 0 || ended(a, a->gone);
}

/* Outside of the lock: the peers stay as long as they have a reader. */
static void copy(const slot *a)
{
    const nb_post *p = a->post;
    for (int j = 0; j < p->nrecv; j++) {
        const nb_message *m = partner(a, j);
        if (p->reader)
            a->data[j] = m->data;
        else if (m->bytes)
            memcpy(p->recv[j].data, m->data, m->bytes);
    }
    if (p->reader && p->nrecv > 0)
        p->reader->read(p->reader->ctx, 0, p->recv[0].bytes, a->data);
}

static void count_readers(slot *a, int by)
{
    for (int j = 0; j < a->post->nrecv; j++) {
        slot *b = &run.at[a->post->recv[j].peer];
        b->readers += by;
        if (by > 0) continue;
        b->unread--;
        if (b->unread == 0 || b->readers == 0) wake(b);
    }
}

static void read_all(slot *a)
{
    count_readers(a, 1);
    pthread_mutex_unlock(&run.lock);
    copy(a);
    pthread_mutex_lock(&run.lock);
    count_readers(a, -1);
}

static bool take_part(slot *a)
{
    if (run.first >= 0) return struck(a);
    if (!look_for(a, a->post->nsend, a->post->send) ||
        !look_for(a, a->post->nrecv, a->post->recv) || !tell(a) ||
        !await(a, &a->lacking))
        return false;
    read_all(a);
    return await(a, &a->unread);
}

static void withdraw(slot *a)
{
    while (a->readers > 0) {
        a->asleep = true;
        pthread_cond_wait(&a->wake, &run.lock);
        a->asleep = false;
    }
    memset(a->lacks, 0, (size_t)run.mesh->ndevices);
    a->lacking = a->unread = 0;
    a->post = NULL;
}

static void give_up(const nb_device *me)
{
    if (run.first >= 0 || me->struck) return;
    run.first = me->position;
    snprintf(run.message, sizeof run.message, "%s", nb_error_message());
    wake_all();
}

static bool exchange(nb_link *l, nb_device *me, const nb_meeting *round,
                     const nb_post *post)
{
    (void)l;
    slot *a = &run.at[me->position];
    pthread_mutex_lock(&run.lock);
    nb_round_text(round, a->where);
    a->me = me;
    a->number = round->number;
    a->what = round->what;
    a->post = post;
    a->unread = post->nsend;
    bool ok = !nb_comm_must_fail(me, a->where) && take_part(a);
    if (!ok) give_up(me);
    withdraw(a);
    pthread_mutex_unlock(&run.lock);
    return ok;
}

static void fail(nb_link *l, nb_device *me)
{
    (void)l;
    pthread_mutex_lock(&run.lock);
    give_up(me);
    pthread_mutex_unlock(&run.lock);
}

/* Who still waits for this device finds out by itself. */
static void leave(nb_link *l, nb_device *me)
{
    (void)l;
    pthread_mutex_lock(&run.lock);
    run.at[me->position].over = true;
    for (int i = 0; i < run.mesh->ndevices; i++) {
        slot *b = &run.at[i];
        if (!b->lacks[me->position]) continue;
        b->gone = me->position;
        wake(b);
    }
    pthread_mutex_unlock(&run.lock);
}

/* One block, for ever: slots, what they lack, what they see. */
static bool make_room(int n)
{
    size_t each = sizeof(slot) + (size_t)n * (sizeof(void *) + sizeof(bool));
    pthread_condattr_t monotonic;
    if (n <= run.room) return true;
    slot *at = nb_alloc_forever((size_t)n * each);
    if (!at) return false;
    const void **data = (const void **)(at + n);
    bool *lacks = (bool *)(data + (size_t)n * (size_t)n);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (int i = 0; i < n; i++) {
        pthread_cond_init(&at[i].wake, &monotonic);
        at[i].data = data + (size_t)i * (size_t)n;
        at[i].lacks = lacks + (size_t)i * (size_t)n;
    }
    pthread_condattr_destroy(&monotonic);
    run.at = at;
    run.room = n;
    return true;
}

static bool start(nb_link *l, const nb_mesh *m)
{
    (void)l;
    if (!make_room(m->ndevices)) return false;
    run.mesh = m;
    run.first = -1;
    for (int i = 0; i < m->ndevices; i++) {
        slot *a = &run.at[i];
        a->position = i;
        a->number = 0;
        a->where[0] = '\0';
        a->over = false;
        a->gone = -1;
    }
    return true;
}

/* In the child of a fork: whoever waited here is gone. */
static void start_anew(void)
{
    pthread_mutex_init(&run.lock, NULL);
    run.room = 0;
}

static void prepare(void)
{
    pthread_atfork(NULL, NULL, start_anew);
}

nb_link *nb_local_link(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static nb_link link = {"local", exchange, fail, start, leave};
    pthread_once(&once, prepare);
    return &link;
}
