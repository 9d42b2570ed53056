/* peer.h - the memory of another process of this machine, read in place.
 *
 * The system allows it among processes of one user, or not: it is asked by
 * reading a mark that the other has set. */
#ifndef NB_COMM_PEER_H
#define NB_COMM_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nb_peer {
    int64_t pid; /* 0: not to be read */
    uint64_t mark, at;
} nb_peer;

/* This process, for others; the mark is any number. */
nb_peer nb_peer_self(uint64_t mark);

/* Whether its memory can be read, and is that of whom it says. */
bool nb_peer_is_readable(const nb_peer *p);

/* Copies what lies at `from` there; false if it cannot. */
bool nb_peer_read(const nb_peer *p, uint64_t from, void *to, size_t bytes);

/* Whether that process has ended. */
bool nb_peer_is_gone(const nb_peer *p);

#endif
