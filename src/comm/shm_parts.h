/* shm_parts.h - the memory that processes of one machine share, as the parts of
 * shm.h see it.
 *
 * A ring is bytes with two counters: `head`, what has been written, and `tail`,
 * what has been read, each written by one side. */
#ifndef NB_COMM_SHM_PARTS_H
#define NB_COMM_SHM_PARTS_H

#include "comm/peer.h"
#include "comm/shm.h"

#include <stdalign.h>

enum { NB_CACHE_LINE = 64 };

typedef struct nb_ring {
    alignas(NB_CACHE_LINE) atomic_size_t head;
    alignas(NB_CACHE_LINE) atomic_size_t tail;
} nb_ring;

typedef struct nb_segment {
    uint64_t mark; /* so that a stranger's is not taken for ours */
    alignas(NB_CACHE_LINE) atomic_uint bell;
    atomic_int asleep;
    atomic_uint_fast64_t taken_back; /* offers of its owner up to that run */
    nb_ring ring[];                  /* by rank; then their bytes */
} nb_segment;

typedef struct nb_shm {
    int rank, size;
    size_t room, bytes; /* of a ring, of a segment */
    nb_segment **at;    /* by rank; NULL: not this way */
    nb_peer *peer;      /* by rank; of those whose memory is read */
    bool all;           /* of all ranks, by all */
    size_t offered;     /* messages of so many bytes or more */
    unsigned spin;      /* how often who waits looks before it sleeps */
} nb_shm;

nb_shm *nb_shm_get(void);

#endif
