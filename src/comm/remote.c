/* remote.c - messages between devices of different processes.
 *
 * A message is cut into packets that each say what they belong to: run, round,
 * sender, receiver.  They go through shared memory where there is some, else
 * over the wire.  Whichever device waits takes what has come, for all devices of
 * the process.  What comes for a device that is not yet in that round is kept
 * as a parcel.
 *
 * Runs are numbered; every process takes part in all of them.  Who fails in a
 * run tells all others, over the wire, so that full rings do not matter.  What
 * comes from a run that is over is dropped.  So processes are in step again
 * with the next run, whatever became of the last. */
#include "comm/remote.h"

#include "base/memory.h"
#include "comm/hall.h"
#include "comm/packet.h"
#include "comm/shm.h"
#include "nabla/distributed.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { FLIGHTS = 32 };
static const double GRACE = 0.2;
static const size_t PACKET =
    NB_PACKET_DATA + NB_PACKET_TEXT + sizeof(nb_packet) + 128;

struct nb_parcel {
    nb_parcel *next;
    int from;
    uint64_t round, what;
    size_t filled, total;
    bool own; /* data is the parcel's, not the receiver's */
    char *data;
    const nb_reader *reader; /* of the receiver, who has no data */
    char where[NB_WHERE];
};

/* A packet that the wire has not let go of. */
typedef struct flight {
    void *request;
    char *data;
} flight;

/* A packet of a run that has not begun here. */
typedef struct early {
    struct early *next;
    nb_packet packet; /* and what belongs to it */
} early;

/* What another process has told. */
typedef struct report {
    uint64_t run; /* in which it failed last */
    int position;
    bool bye;
    char text[NB_PACKET_TEXT];
} report;

static struct {
    const nb_wire *wire;
    uint64_t run, idle;
    nb_seat *listener; /* sleeps until the bell rings */
    bool troubled;     /* some run failed */
    bool near;         /* all others share memory with this process */
    flight *flight;    /* FLIGHTS for data, then two to each rank for notices */
    char *in;
    early *early;
    uint64_t lost; /* a run of which there was no memory to keep a packet */
    report *from;  /* by rank */
} net;

static int rank_of(int position)
{
    return nb_hall_get()->at[position].rank;
}

static bool is_here(int position)
{
    return rank_of(position) == nb_hall_get()->rank;
}

static int first_of(int rank)
{
    int position = 0;
    while (rank_of(position) != rank)
        position++;
    return position;
}

const char *nb_device_text(int position, char text[NB_WHO])
{
    if (nb_hall_get()->spans)
        snprintf(text, NB_WHO, "device %d (rank %d)", position,
                 rank_of(position));
    else
        snprintf(text, NB_WHO, "device %d", position);
    return text;
}

/* Going out. */

/* One of n that the wire has let go of, with room for a packet. */
static flight *find_flight(flight *f, int n, size_t room)
{
    for (; n > 0; n--, f++) {
        if (f->request && net.wire->sent(f->request)) f->request = NULL;
        if (f->request) continue;
        if (!f->data) f->data = nb_alloc_forever(room);
        return f->data ? f : NULL;
    }
    return NULL;
}

static bool is_flushed(void)
{
    bool all = true;
    for (int i = 0; i < FLIGHTS && !net.near; i++) {
        flight *f = &net.flight[i];
        if (f->request && net.wire->sent(f->request)) f->request = NULL;
        all &= !f->request;
    }
    return all;
}

static bool fly(flight *f, int rank, const nb_packet *p, const void *text,
                const void *data)
{
    if (!f) return false;
    memcpy(f->data, p, sizeof *p);
    if (p->text) memcpy(f->data + sizeof *p, text, p->text);
    if (p->bytes) memcpy(f->data + nb_packet_data(p), data, p->bytes);
    f->request = net.wire->send(f->data, nb_packet_size(p), rank);
    return f->request != NULL;
}

/* Notices have flights of their own: they leave also when data does not. */
static void notify(nb_packet_kind kind, int position, const char *text)
{
    size_t n = strlen(text);
    nb_packet p = {.kind = kind,
                   .text =
                       (uint32_t)(n < NB_PACKET_TEXT ? n : NB_PACKET_TEXT - 1),
                   .from = position,
                   .rank = (uint32_t)net.wire->rank,
                   .run = net.run};
    for (int i = 0; i < net.wire->size; i++) {
        flight *own = &net.flight[FLIGHTS + 2 * i];
        if (i == net.wire->rank) continue;
        fly(find_flight(own, 2, 2 * NB_PACKET_TEXT), i, &p, text, NULL);
        nb_shm_ring(i);
    }
}

static bool push(int rank, const nb_packet *p, const void *text,
                 const void *data)
{
    return nb_shm_has(rank) ? nb_shm_push(rank, p, text, data)
                            : fly(find_flight(net.flight, FLIGHTS, PACKET),
                                  rank, p, text, data);
}

/* The next packet of what the seat sends; false if it has to wait. */
static bool send_one(nb_seat *a)
{
    const nb_message *m = &a->post->send[a->next];
    size_t left = m->bytes - a->sent;
    if (left > NB_PACKET_DATA) left = NB_PACKET_DATA;
    nb_packet p = {.kind = NB_PACKET_DATUM,
                   .text = a->sent ? 0 : (uint32_t)strlen(a->where) + 1,
                   .bytes = (uint32_t)left,
                   .from = a->position,
                   .to = m->peer,
                   .rank = (uint32_t)net.wire->rank,
                   .run = net.run,
                   .round = a->number,
                   .what = a->what,
                   .at = a->sent,
                   .total = m->bytes};
    int rank = rank_of(m->peer);
    if (!push(rank, &p, a->where, (char *)m->data + a->sent)) return false;
    a->sent += left;
    if (a->sent == m->bytes) {
        a->next++;
        a->sent = 0;
    }
    return true;
}

static bool send_some(nb_seat *a)
{
    bool any = false;
    while (a->next < a->post->nsend) {
        if (is_here(a->post->send[a->next].peer)) {
            a->next++;
            continue;
        }
        if (!send_one(a)) break;
        a->moved++;
        any = true;
    }
    return any;
}

/* Coming in. */

/* The run is over for all here: that rank is to blame. */
static void blame(int position, const char *why)
{
    nb_hall *h = nb_hall_get();
    if (h->first >= 0) return;
    h->first = position;
    snprintf(h->message, sizeof h->message, "%s", why);
    net.troubled = true;
    nb_hall_wake_all();
}

static void stop(int rank, const char *why)
{
    blame(first_of(rank), why);
}

/* The message that the seat expects as the parcel, or NULL: as many from that
 * peer come before it in the round. */
static const nb_message *expected(const nb_seat *a, const nb_parcel *p)
{
    int before = 0;
    for (const nb_parcel *q = a->parcel; q != p; q = q->next)
        before += q->from == p->from && q->round == p->round;
    for (int j = 0; j < a->post->nrecv; j++)
        if (a->post->recv[j].peer == p->from && before-- == 0)
            return &a->post->recv[j];
    return NULL;
}

/* Whether the seat waits for a message of that peer which has not begun. */
static bool lacks(const nb_seat *a, int peer)
{
    int n = 0;
    for (int j = 0; j < a->post->nrecv; j++)
        n += a->post->recv[j].peer == peer;
    for (const nb_parcel *q = a->parcel; q; q = q->next)
        n -= q->from == peer && q->round == a->number;
    return n > 0;
}

static void arrived(nb_seat *a)
{
    if (--a->arriving == 0) nb_seat_wake(a);
}

static void put(nb_parcel *p, size_t at, const void *data, size_t bytes)
{
    if (p->reader)
        p->reader->read(p->reader->ctx, at, bytes, &data);
    else
        memcpy(p->data + at, data, bytes);
}

/* Gives a parcel to the seat, which is in a round, if it is of that round. */
static void bind(nb_seat *a, nb_parcel *p)
{
    if (p->round > a->number) {
        if (lacks(a, p->from)) a->odd = p;
        return;
    }
    const nb_message *m = p->round == a->number ? expected(a, p) : NULL;
    if (!m || m->bytes != p->total || p->what != a->what) {
        a->odd = p;
        return;
    }
    char *kept = p->own ? p->data : NULL;
    p->own = false;
    p->data = m->data;
    p->reader = m->data ? NULL : a->post->reader;
    if (p->filled) put(p, 0, kept, p->filled);
    nb_free(kept);
    if (p->filled == p->total) arrived(a);
}

static nb_parcel *begin(nb_seat *a, const nb_packet *k, const char *text)
{
    nb_parcel *p = nb_alloc_zero(sizeof *p), **at = &a->parcel;
    if (!p) return NULL;
    *p = (nb_parcel){
        .from = k->from, .round = k->round, .what = k->what, .total = k->total};
    snprintf(p->where, sizeof p->where, "%.*s", (int)k->text, text);
    bool now = a->post && k->round == a->number;
    if (!now && k->total) {
        p->own = true;
        p->data = nb_alloc(k->total);
        if (!p->data) return nb_free(p), NULL;
    }
    while (*at)
        at = &(*at)->next;
    *at = p;
    return p;
}

static nb_parcel *unfinished(nb_seat *a, const nb_packet *k)
{
    nb_parcel *p = a->parcel;
    while (p && (p->from != k->from || p->round != k->round ||
                 p->filled != k->at || p->filled == p->total))
        p = p->next;
    return p;
}

static void take_datum(const nb_packet *k)
{
    nb_hall *h = nb_hall_get();
    if (k->run != net.run || h->first >= 0) return;
    int n = h->mesh->ndevices;
    if (k->to >= n || k->from >= n || !is_here(k->to)) {
        stop((int)k->rank, "it runs a program over another mesh");
        return;
    }
    nb_seat *a = &h->at[k->to];
    const char *text = (const char *)(k + 1);
    nb_parcel *p = k->at == 0 ? begin(a, k, text) : unfinished(a, k);
    if (!p) {
        a->starved = a->starved || k->at == 0;
        nb_error_clear();
        nb_seat_wake(a);
        return;
    }
    if (k->at == 0 && a->post) bind(a, p);
    a->moved++;
    if (a->odd == p) {
        nb_seat_wake(a);
        return;
    }
    bool whole = p->filled == p->total;
    if (k->bytes) put(p, k->at, (const char *)k + nb_packet_data(k), k->bytes);
    p->filled += k->bytes;
    if (a->post && !p->own && p->filled == p->total && !whole) arrived(a);
}

/* That a process failed in this run. */
static void heed(int rank)
{
    const report *r = &net.from[rank];
    if (r->run != net.run) return;
    if (r->position < 0 || r->position >= nb_hall_get()->mesh->ndevices)
        stop(rank, r->text);
    else
        blame(r->position, r->text);
}

static void take(const nb_packet *k, bool running)
{
    report *r = &net.from[k->rank];
    switch ((nb_packet_kind)k->kind) {
    case NB_PACKET_DATUM:
        if (running) take_datum(k);
        return;
    case NB_PACKET_BYE: r->bye = true; return;
    case NB_PACKET_FAIL: break;
    }
    r->run = k->run;
    r->position = k->from; /* or -1: its process */
    snprintf(r->text, sizeof r->text, "%.*s", (int)k->text,
             (const char *)(k + 1));
    if (running) heed((int)k->rank);
}

/* Packets of runs to come stay in their ring until their run begins; those of
 * the wire, where notices may be behind them, are kept. */
static bool is_early(const nb_packet *k)
{
    return k->kind == NB_PACKET_DATUM && k->run > net.run;
}

static bool take_from_rings(bool running)
{
    bool any = false;
    for (int i = 0; i < net.wire->size; i++) {
        const nb_packet *k;
        if (!nb_shm_has(i)) continue;
        while ((k = nb_shm_peek(i)) && !(running && is_early(k))) {
            take(k, running);
            nb_shm_pop(i);
            any = true;
        }
    }
    return any;
}

static void keep(const nb_packet *k)
{
    early *e = nb_alloc(sizeof *e + nb_packet_size(k)), **at = &net.early;
    if (!e) {
        net.lost = k->run;
        nb_error_clear();
        return;
    }
    memcpy(&e->packet, k, nb_packet_size(k));
    e->next = NULL;
    while (*at)
        at = &(*at)->next;
    *at = e;
}

static void take_early(bool running)
{
    early **at = &net.early, *e;
    while ((e = *at)) {
        if (running && is_early(&e->packet)) {
            at = &e->next;
            continue;
        }
        take(&e->packet, running);
        *at = e->next;
        nb_free(e);
    }
}

static bool take_from_wire(bool running)
{
    bool any = false;
    int rank;
    size_t bytes;
    while (net.wire->probe(&rank, &bytes) && bytes <= PACKET) {
        if (!net.wire->receive(net.in, bytes, rank)) break;
        const nb_packet *k = (const nb_packet *)net.in;
        if (running && is_early(k))
            keep(k);
        else
            take(k, running);
        any = true;
    }
    return any;
}

/* Waiting. */

int nb_remote_missing(const nb_seat *a)
{
    if (!a->post) return -1;
    for (int j = 0; j < a->post->nrecv; j++) {
        int peer = a->post->recv[j].peer;
        if (!is_here(peer) && lacks(a, peer)) return peer;
    }
    for (const nb_parcel *p = a->parcel; p; p = p->next)
        if (p->round == a->number && p->filled < p->total) return p->from;
    return a->next < a->post->nsend ? a->post->send[a->next].peer : -1;
}

/* Whether that rank is beyond this run. */
static bool is_past(int rank)
{
    const nb_packet *k = nb_shm_has(rank) ? nb_shm_peek(rank) : NULL;
    if (net.from[rank].run > net.run || (k && is_early(k))) return true;
    for (const early *e = net.early; e; e = e->next)
        if ((int)e->packet.rank == rank) return true;
    return false;
}

/* Nothing has come, and all that was sent is here: who is gone, or in another
 * run, will send nothing more.  But that it failed in this one, and why, may be
 * on its way over the wire, so it gets a moment. */
static void doubt(nb_seat *a)
{
    int peer = nb_remote_missing(a);
    if (peer < 0) return;
    int rank = rank_of(peer);
    if (net.from[rank].bye) {
        blame(peer, "its process has come to its end");
    } else if (!is_past(rank)) {
        a->doubted = 0;
    } else if (a->doubted == 0) {
        a->doubted = nb_clock();
    } else if (nb_clock() > a->doubted + GRACE) {
        blame(peer, "it is past this program already");
    }
}

bool nb_remote_work(nb_seat *a)
{
    bool any = send_some(a);
    any |= take_from_rings(true);
    if (any && net.near) return true;
    /* A goodbye comes after all else: look once more for that. */
    if (take_from_wire(true)) return take_from_rings(true) | true;
    if (!any) doubt(a);
    return any;
}

bool nb_remote_is_done(const nb_seat *a)
{
    return a->next == a->post->nsend && a->arriving == 0 && is_flushed();
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

bool nb_remote_differs(const nb_seat *a, const nb_parcel *p)
{
    char one[NB_WHO], other[NB_WHO];
    return nb_fail(NB_ERUNTIME,
                   "the programs of the devices differ: %s is in round %llu, "
                   "%s; %s in round %llu, %s",
                   nb_device_text(a->position, one),
                   (unsigned long long)a->number, a->where,
                   nb_device_text(p->from, other), (unsigned long long)p->round,
                   p->where);
}

bool nb_remote_post(nb_seat *a)
{
    a->next = 0;
    a->sent = 0;
    a->arriving = 0;
    a->doubted = 0;
    net.idle = 0;
    for (int j = 0; j < a->post->nrecv; j++)
        a->arriving += !is_here(a->post->recv[j].peer);
    for (nb_parcel *p = a->parcel; p && !a->odd; p = p->next)
        bind(a, p);
    return true;
}

static void forget(nb_seat *a, uint64_t upto)
{
    nb_parcel **at = &a->parcel, *p;
    while ((p = *at)) {
        if (p->round > upto) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        if (p->own) nb_free(p->data);
        nb_free(p);
    }
}

/* Another who waits listens from now on. */
void nb_remote_withdraw(nb_seat *a)
{
    nb_hall *h = nb_hall_get();
    a->odd = NULL;
    forget(a, h->first < 0 ? a->number : UINT64_MAX);
    for (int i = 0; i < h->mesh->ndevices; i++)
        if (h->at[i].asleep) {
            nb_seat_wake(&h->at[i]);
            return;
        }
}

void nb_remote_leave(nb_seat *a)
{
    forget(a, UINT64_MAX);
}

void nb_remote_fail(int position, const char *message)
{
    net.troubled = true;
    notify(NB_PACKET_FAIL, position, message);
}

bool nb_remote_start(bool ok)
{
    net.run++;
    if (ok && net.lost == net.run) ok = nb_fail_memory(0, "messages");
    if (!ok) {
        nb_remote_fail(-1, nb_error_message());
        return false;
    }
    take_early(true);
    for (int i = 0; i < net.wire->size; i++)
        heed(i);
    return true;
}

bool nb_remote_open(const nb_wire *w)
{
    size_t n = (size_t)w->size;
    net.wire = w;
    net.in = nb_alloc_forever(PACKET);
    net.from = nb_alloc_forever(n * sizeof *net.from);
    net.flight = nb_alloc_forever((FLIGHTS + 2 * n) * sizeof *net.flight);
    if (!net.in || !net.from || !net.flight) return false;
    for (size_t i = 0; i < 2 * n; i++) {
        flight *f = &net.flight[FLIGHTS + i];
        if (!(f->data = nb_alloc_forever(2 * NB_PACKET_TEXT))) return false;
    }
    nb_shm_open(w);
    net.near = true;
    for (int i = 0; i < w->size; i++)
        net.near &= i == w->rank || nb_shm_has(i);
    return true;
}

static bool all_have_left(void)
{
    for (int i = 0; i < net.wire->size; i++)
        if (i != net.wire->rank && !net.from[i].bye) return false;
    return true;
}

void nb_remote_close(void)
{
    double end = nb_clock() + nb_distributed_timeout();
    bool all = false;
    notify(NB_PACKET_BYE, 0, "");
    for (net.idle = 0; !(all = all_have_left() && is_flushed());) {
        take_early(false);
        bool more = take_from_rings(false);
        if (take_from_wire(false) || more) continue;
        if (net.troubled && nb_clock() > end) break;
        doze();
    }
    nb_shm_close();
    net.wire->close(all);
    net.wire = NULL;
}
