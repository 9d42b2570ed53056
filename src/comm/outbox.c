/* outbox.c - messages on their way to other processes.
 *
 * They are cut into packets, which go through shared memory where there is some,
 * else over the wire; or a packet offers what its receiver can read where it is.
 * Notices always go over the wire, so that full rings do not matter. */
#include "comm/remote_parts.h"

#include "base/memory.h"
#include "comm/shm.h"

#include <string.h>

enum { FLIGHTS = 32 };

/* A packet that the wire has not let go of. */
typedef struct flight {
    void *request;
    char *data;
} flight;

static struct {
    const nb_wire *wire;
    flight *flight; /* FLIGHTS for data, then two to each rank for notices */
} box;

/* One of n that the wire has let go of, with room for a packet. */
static flight *find_flight(flight *f, int n, size_t room)
{
    for (; n > 0; n--, f++) {
        if (f->request && box.wire->sent(f->request)) f->request = NULL;
        if (f->request) continue;
        if (!f->data) f->data = nb_alloc_forever(room);
        return f->data ? f : NULL;
    }
    return NULL;
}

bool nb_outbox_is_flushed(void)
{
    bool all = true;
    for (int i = 0; i < FLIGHTS; i++) {
        flight *f = &box.flight[i];
        if (f->request && box.wire->sent(f->request)) f->request = NULL;
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
    f->request = box.wire->send(f->data, nb_packet_size(p), rank);
    return f->request != NULL;
}

/* Notices have flights of their own: they leave also when data does not. */
void nb_outbox_notify(nb_packet_kind kind, int position, const char *text)
{
    size_t n = strlen(text);
    nb_packet p = {.kind = kind,
                   .text =
                       (uint32_t)(n < NB_PACKET_TEXT ? n : NB_PACKET_TEXT - 1),
                   .from = position,
                   .rank = (uint32_t)box.wire->rank,
                   .run = nb_hall_get()->run};
    for (int i = 0; i < box.wire->size; i++) {
        flight *own = &box.flight[FLIGHTS + 2 * i];
        if (i == box.wire->rank) continue;
        fly(find_flight(own, 2, 2 * NB_PACKET_TEXT), i, &p, text, NULL);
        nb_shm_ring(i);
    }
}

static bool push(int rank, const nb_packet *p, const void *text,
                 const void *data)
{
    return nb_shm_has(rank)
               ? nb_shm_push(rank, p, text, data)
               : fly(find_flight(box.flight, FLIGHTS, NB_PACKET_MOST), rank, p,
                     text, data);
}

static nb_packet packet_of(const nb_seat *a, const nb_message *m)
{
    return (nb_packet){.kind = NB_PACKET_DATUM,
                       .text = a->sent ? 0 : (uint32_t)strlen(a->where) + 1,
                       .from = a->position,
                       .to = m->peer,
                       .rank = (uint32_t)box.wire->rank,
                       .run = nb_hall_get()->run,
                       .round = a->number,
                       .what = a->what,
                       .at = a->sent,
                       .total = m->bytes};
}

static bool offer(nb_seat *a, const nb_message *m, int rank)
{
    nb_packet p = packet_of(a, m);
    p.kind = NB_PACKET_OFFER;
    p.at = (uintptr_t)m->data;
    if (!push(rank, &p, a->where, NULL)) return false;
    a->next++;
    a->offered++;
    a->untaken[m->peer]++;
    return true;
}

/* The next packet of what the seat sends; false if it has to wait. */
static bool send_one(nb_seat *a)
{
    const nb_message *m = &a->post->send[a->next];
    int rank = nb_hall_get()->at[m->peer].rank;
    if (nb_shm_offers(rank, m->bytes)) return offer(a, m, rank);
    nb_packet p = packet_of(a, m);
    size_t left = m->bytes - a->sent;
    p.bytes = (uint32_t)(left < NB_PACKET_DATA ? left : NB_PACKET_DATA);
    if (!push(rank, &p, a->where, (char *)m->data + a->sent)) return false;
    a->sent += p.bytes;
    if (a->sent == m->bytes) {
        a->next++;
        a->sent = 0;
    }
    return true;
}

bool nb_outbox_send(nb_seat *a)
{
    bool any = false;
    while (a->next < a->post->nsend) {
        if (nb_seat_is_here(a->post->send[a->next].peer)) {
            a->next++;
            continue;
        }
        if (!send_one(a)) break;
        a->moved++;
        any = true;
    }
    return any;
}

bool nb_outbox_thank(const nb_seat *a, int to)
{
    nb_packet p = {.kind = NB_PACKET_TAKEN,
                   .from = a->position,
                   .to = to,
                   .rank = (uint32_t)box.wire->rank,
                   .run = nb_hall_get()->run,
                   .round = a->number};
    return push(nb_hall_get()->at[to].rank, &p, NULL, NULL);
}

void nb_outbox_thanked(nb_seat *a, const nb_packet *k)
{
    if (!a->post || k->round != a->number || a->untaken[k->from] == 0) return;
    a->untaken[k->from]--;
    a->moved++;
    if (--a->offered == 0) nb_seat_wake(a);
}

bool nb_outbox_open(const nb_wire *w)
{
    size_t n = (size_t)w->size;
    box.wire = w;
    box.flight = nb_alloc_forever((FLIGHTS + 2 * n) * sizeof *box.flight);
    if (!box.flight) return false;
    for (size_t i = 0; i < 2 * n; i++) {
        flight *f = &box.flight[FLIGHTS + i];
        if (!(f->data = nb_alloc_forever(2 * NB_PACKET_TEXT))) return false;
    }
    return true;
}
