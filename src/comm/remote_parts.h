/* remote_parts.h - what the parts of remote.c are to each other: packets leave
 * by the outbox and come by the inbox, those of messages become parcels of a
 * device, the others are news.  All of it with the lock of the hall held. */
#ifndef NB_COMM_REMOTE_PARTS_H
#define NB_COMM_REMOTE_PARTS_H

#include "comm/hall.h"
#include "comm/packet.h"
#include "comm/wire.h"

/* outbox.c.  Sends what the seat has to send, as far as there is room; whether
 * anything went. */
bool nb_outbox_open(const nb_wire *w);
bool nb_outbox_send(nb_seat *a);
bool nb_outbox_is_flushed(void); /* nothing is left that the wire has */

/* Tells that an offer of the device at `to` was taken; false: not now. */
bool nb_outbox_thank(const nb_seat *a, int to);
void nb_outbox_thanked(nb_seat *a, const nb_packet *k);

/* Tells all others.  Notices have room of their own: they leave also when
 * messages do not. */
void nb_outbox_notify(nb_packet_kind kind, int position, const char *text);

/* inbox.c.  Takes what has come through rings, over the wire, or before its run
 * began; whether there was anything.  running: a run goes on, else all but news
 * is dropped. */
bool nb_inbox_open(const nb_wire *w);
bool nb_inbox_take_rings(bool running);
bool nb_inbox_take_wire(bool running);
void nb_inbox_take_early(bool running);
bool nb_inbox_is_past(int rank); /* something of a later run came from it */
bool nb_inbox_has_lost(uint64_t run); /* there was no memory to keep some */

/* A message from another process, or as much of it as is there. */
struct nb_parcel {
    nb_parcel *next;
    int from;
    uint64_t round, what;
    size_t filled, total;
    bool own; /* data is the parcel's, not the receiver's */
    char *data;
    uint64_t offer;            /* 0, or where it lies in the sender's memory */
    bool read;                 /* there; the sender does not know yet */
    const nb_message *message; /* of the receiver, once it is in that round */
    const nb_reader *reader;   /* of the receiver, who has no data */
    char where[NB_WHERE];
};

/* parcel.c.  A packet for that seat; the seat has posted; what it was sent in
 * rounds up to that one is not wanted. */
void nb_parcel_take(nb_seat *a, const nb_packet *k);
void nb_parcels_bind(nb_seat *a);
void nb_parcels_forget(nb_seat *a, uint64_t upto);

/* What came, or was offered, as that receive; it has been read. */
nb_parcel *nb_parcel_find(const nb_seat *a, const nb_message *m);
void nb_parcel_read(nb_seat *a, nb_parcel *p);

/* Tells those whose offers have been read, as far as there is room; whether any
 * was told. */
bool nb_parcels_thank(nb_seat *a);

/* news.c.  Blames a device, or a process, for the end of this run. */
bool nb_news_open(const nb_wire *w);
void nb_blame(int position, const char *why);
void nb_blame_rank(int rank, const char *why);

void nb_news_take(const nb_packet *k, bool running);
void nb_news_heed(void); /* what was told of this run before it began here */
void nb_news_trouble(void);
bool nb_news_are_good(void);     /* no run has failed */
bool nb_news_all_left(void);     /* said goodbye */
bool nb_news_none_awaited(void); /* or died */

/* Nothing moves: looks whether whom the seat waits for will still come. */
void nb_doubt(nb_seat *a);

#endif
