/* packet.h - what travels between processes: a header, a text, bytes.
 *
 * Every packet says what it belongs to, so that one which comes too late, from
 * a run that failed, is known as such and dropped. */
#ifndef NB_COMM_PACKET_H
#define NB_COMM_PACKET_H

#include <stddef.h>
#include <stdint.h>

enum {
    NB_PACKET_TEXT = 512,      /* at most */
    NB_PACKET_DATA = 128 << 10 /* a longer message is cut into several */
};

typedef enum nb_packet_kind {
    NB_PACKET_DATUM, /* part of a message; text: where the sender is */
    NB_PACKET_OFFER, /* a message, at `at` in the sender's memory */
    NB_PACKET_TAKEN, /* from whom it was offered to: it has been read */
    NB_PACKET_FAIL,  /* a device has failed in that run; text: why */
    NB_PACKET_BYE    /* the process comes to its end */
} nb_packet_kind;

typedef struct nb_packet {
    uint32_t kind, text, bytes; /* of the text and of the data after it */
    int32_t from, to;           /* positions on the mesh */
    uint32_t rank;              /* of the sender */
    uint64_t run, round, what;  /* see nb_meeting */
    uint64_t at, total;         /* of the message: this part, all */
} nb_packet;

/* No packet is larger. */
static const size_t NB_PACKET_MOST =
    NB_PACKET_DATA + NB_PACKET_TEXT + sizeof(nb_packet) + 128;

/* The text begins after the header, the data after the text, at a multiple of
 * 64. */
static inline size_t nb_packet_data(const nb_packet *p)
{
    return (sizeof *p + p->text + 63) / 64 * 64;
}

static inline size_t nb_packet_size(const nb_packet *p)
{
    return (nb_packet_data(p) + p->bytes + 63) / 64 * 64;
}

#endif
