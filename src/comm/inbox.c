/* inbox.c - packets from other processes, on their way to whom they concern.
 *
 * Packets of runs to come stay in their ring until their run begins; those of
 * the wire, where notices may be behind them, are kept.  Those of runs that are
 * over are dropped. */
#include "comm/remote_parts.h"

#include "base/memory.h"
#include "comm/shm.h"

#include <string.h>

/* A packet of a run that has not begun here. */
typedef struct early {
    struct early *next;
    nb_packet packet; /* and what belongs to it */
} early;

static struct {
    const nb_wire *wire;
    char *in;
    early *early;
    uint64_t lost; /* a run of which there was no memory to keep a packet */
} box;

/* And not news, which concern whoever is there. */
static bool is_of_run(const nb_packet *k)
{
    return k->kind < NB_PACKET_FAIL;
}

static void take(const nb_packet *k, bool running)
{
    nb_hall *h = nb_hall_get();
    if (!is_of_run(k)) {
        nb_news_take(k, running);
        return;
    }
    if (!running || k->run != h->run || h->first >= 0) return;
    if (!nb_seat_is_of(k->to, h->rank) || !nb_seat_is_of(k->from, (int)k->rank))
        nb_blame_rank((int)k->rank, "it runs a program over another mesh");
    else if (k->kind == NB_PACKET_TAKEN)
        nb_outbox_thanked(&h->at[k->to], k);
    else
        nb_parcel_take(&h->at[k->to], k);
}

static bool is_early(const nb_packet *k)
{
    return is_of_run(k) && k->run > nb_hall_get()->run;
}

bool nb_inbox_take_rings(bool running)
{
    bool any = false;
    for (int i = 0; i < box.wire->size; i++) {
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
    early *e = nb_alloc(sizeof *e + nb_packet_size(k)), **at = &box.early;
    if (!e) {
        box.lost = k->run;
        nb_error_clear();
        return;
    }
    memcpy(&e->packet, k, nb_packet_size(k));
    e->next = NULL;
    while (*at)
        at = &(*at)->next;
    *at = e;
}

void nb_inbox_take_early(bool running)
{
    early **at = &box.early, *e;
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

bool nb_inbox_take_wire(bool running)
{
    bool any = false;
    int rank;
    size_t bytes;
    while (box.wire->probe(&rank, &bytes) && bytes <= NB_PACKET_MOST) {
        if (!box.wire->receive(box.in, bytes, rank)) break;
        const nb_packet *k = (const nb_packet *)box.in;
        if (running && is_early(k))
            keep(k);
        else
            take(k, running);
        any = true;
    }
    return any;
}

bool nb_inbox_is_past(int rank)
{
    const nb_packet *k = nb_shm_has(rank) ? nb_shm_peek(rank) : NULL;
    if (k && is_early(k)) return true;
    for (const early *e = box.early; e; e = e->next)
        if ((int)e->packet.rank == rank && is_early(&e->packet)) return true;
    return false;
}

bool nb_inbox_has_lost(uint64_t run)
{
    return box.lost == run;
}

bool nb_inbox_open(const nb_wire *w)
{
    box.wire = w;
    box.in = nb_alloc_forever(NB_PACKET_MOST);
    return box.in;
}
