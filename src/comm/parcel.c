/* parcel.c - what has come for a device from devices of other processes.
 *
 * What comes in packets while its receiver is in that round goes straight to
 * where it belongs; what comes before is kept until then, and so are several
 * messages that a reader sees together.  What is offered stays where it is. */
#include "comm/remote_parts.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

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

/* Whether a reader sees this one, and others with it. */
static bool is_seen_with_others(const nb_post *p, const nb_message *m)
{
    return p->reader && !m->data && p->nrecv > 1 && !p->recv[1].data;
}

static bool make_room(nb_parcel *p)
{
    if (p->own || p->total == 0) return true;
    p->data = nb_alloc(p->total);
    return p->own = p->data;
}

static void starve(nb_seat *a)
{
    a->starved = true;
    nb_error_clear();
    nb_seat_wake(a);
}

/* It can be read, or needs not be. */
static void at_hand(nb_seat *a)
{
    if (--a->pending == 0) nb_seat_wake(a);
}

/* All of it has come in packets. */
static void complete(nb_seat *a, const nb_parcel *p)
{
    if (is_seen_with_others(a->post, p->message))
        at_hand(a);
    else
        arrived(a);
}

/* What there is of it goes where it belongs. */
static void forward(nb_seat *a, nb_parcel *p)
{
    const nb_message *m = p->message;
    char *kept = p->own ? p->data : NULL;
    at_hand(a);
    p->own = false;
    p->data = m->data;
    p->reader = m->data ? NULL : a->post->reader;
    if (p->filled) put(p, 0, kept, p->filled);
    nb_free(kept);
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
    p->message = m;
    if (p->offer) {
        at_hand(a);
        return;
    }
    if (!is_seen_with_others(a->post, m))
        forward(a, p);
    else if (!make_room(p))
        starve(a);
    if (p->filled == p->total) complete(a, p);
}

static nb_parcel *begin(nb_seat *a, const nb_packet *k, const char *text)
{
    nb_parcel *p = nb_alloc_zero(sizeof *p), **at = &a->parcel;
    if (!p) return NULL;
    *p = (nb_parcel){
        .from = k->from, .round = k->round, .what = k->what, .total = k->total};
    if (k->kind == NB_PACKET_OFFER) p->offer = k->at;
    snprintf(p->where, sizeof p->where, "%.*s", (int)k->text, text);
    bool now = a->post && k->round == a->number;
    if (!now && !p->offer && !make_room(p)) return nb_free(p), NULL;
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
    bool first = k->kind == NB_PACKET_OFFER || k->at == 0;
    nb_parcel *p = first ? begin(a, k, text) : unfinished(a, k);
    if (!p) {
        if (first) starve(a);
        return;
    }
    if (first && a->post) bind(a, p);
    a->moved++;
    if (a->odd == p) nb_seat_wake(a);
    if (a->odd == p || a->starved || k->bytes == 0) return;
    put(p, k->at, (const char *)k + nb_packet_data(k), k->bytes);
    p->filled += k->bytes;
    if (p->message && p->filled == p->total) complete(a, p);
}

nb_parcel *nb_parcel_find(const nb_seat *a, const nb_message *m)
{
    nb_parcel *p = a->parcel;
    while (p->message != m)
        p = p->next;
    return p;
}

void nb_parcel_read(nb_seat *a, nb_parcel *p)
{
    p->read = p->offer;
    if (!p->offer && is_seen_with_others(a->post, p->message)) arrived(a);
    a->moved++;
}

bool nb_parcels_thank(nb_seat *a)
{
    bool any = false;
    for (nb_parcel *p = a->parcel; p; p = p->next) {
        if (!p->read || !nb_outbox_thank(a, p->from)) continue;
        p->read = false;
        p->filled = p->total;
        arrived(a);
        any = true;
    }
    return any;
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
    if (a->next < a->post->nsend) return a->post->send[a->next].peer;
    for (int i = 0; i < nb_hall_get()->mesh->ndevices; i++)
        if (a->untaken[i] > 0) return i;
    return -1;
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
    a->pending = a->arriving;
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
