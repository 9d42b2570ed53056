/* shm.h - packets between processes of one machine, through memory they share.
 *
 * Every process has a segment with a bell, which others ring when there is
 * something to see, and a ring of packets from each of them.  The segment has a
 * name for as long as it takes the others to open it.
 *
 * Where two processes may also read each other's memory, large messages stay
 * where they are: a packet offers them, the receiver reads them there and says
 * so.  The environment variable NABLA_SHM decides: `0`, no memory is shared;
 * `rings`, all goes through rings; `reads`, small messages are read in place
 * too; anything else, as described. */
#ifndef NB_COMM_SHM_H
#define NB_COMM_SHM_H

#include "comm/packet.h"
#include "comm/wire.h"

#include <stdatomic.h>

/* All ranks call it together.  Where memory cannot be shared there is none; no
 * error. */
void nb_shm_open(const nb_wire *w);
void nb_shm_close(void);

/* Whether packets to and from that rank go this way. */
bool nb_shm_has(int rank);

/* Appends a packet to what that rank has to read; false if there is no room. */
bool nb_shm_push(int rank, const nb_packet *p, const void *text,
                 const void *data);

/* The oldest packet from that rank, or NULL; pop forgets it. */
const nb_packet *nb_shm_peek(int rank);
void nb_shm_pop(int rank);

/* Whether all ranks read each other's memory; and whether a message of that size
 * is offered to that rank. */
bool nb_shm_reads_all(void);
bool nb_shm_offers(int rank, size_t bytes);

/* Reads what that rank has offered in that run; false if it cannot be read, or
 * was taken back before all was read. */
bool nb_shm_read(int rank, uint64_t run, uint64_t from, void *to, size_t bytes);

/* Takes back all that this process has offered in that run, and before. */
void nb_shm_take_back(uint64_t run);

/* Whether the process of that rank is known to have ended. */
bool nb_shm_is_gone(int rank);

/* Rings the bell of a rank.  Who sleeps reads its own bell, looks whether there
 * is something to do, and sleeps if it has not rung since. */
void nb_shm_ring(int rank);
unsigned nb_shm_bell(void);
void nb_shm_sleep(unsigned bell, double seconds);

#endif
