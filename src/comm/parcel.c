/* parcel.c - what has come for a device from devices of other processes.
 *
 * A parcel is a message, or as much of it as is there.  One that comes while
 * its receiver is in that round goes straight to where it belongs; one that
 * comes before is kept until then. */
#include "comm/remote_parts.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

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

void nb_parcel_take(nb_seat *a, const nb_packet *k)
{
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

int nb_remote_missing(const nb_seat *a)
{
    if (!a->post) return -1;
    for (int j = 0; j < a->post->nrecv; j++) {
        int peer = a->post->recv[j].peer;
        if (!nb_seat_is_here(peer) && lacks(a, peer)) return peer;
    }
    for (const nb_parcel *p = a->parcel; p; p = p->next)
        if (p->round == a->number && p->filled < p->total) return p->from;
    return a->next < a->post->nsend ? a->post->send[a->next].peer : -1;
}

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

void nb_parcels_bind(nb_seat *a)
{
    a->arriving = 0;
    for (int j = 0; j < a->post->nrecv; j++)
        a->arriving += !nb_seat_is_here(a->post->recv[j].peer);
    for (nb_parcel *p = a->parcel; p && !a->odd; p = p->next)
        bind(a, p);
}

void nb_parcels_forget(nb_seat *a, uint64_t upto)
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
