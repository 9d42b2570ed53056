/* memory.h - memory of a card: a caching allocator, and copies.
 *
 * Everything is ordered by the main stream.  Freed memory is handed out again
 * at once: whoever gets it uses it in the stream's order, after what was there
 * before.  Memory stays with the process until nb_card_trim, or until an
 * allocation would fail without it. */
#ifndef NB_CUDA_MEMORY_H
#define NB_CUDA_MEMORY_H

#include "backend/cuda/card.h"

/* A device address, aligned to 256 bytes; *room is how much is there.  bytes
 * may be 0.  Where there is not enough the error (NB_EMEMORY) says how much
 * was wanted, is free and is alive, and what the largest live blocks are. */
void *nb_card_alloc(nb_card *c, size_t bytes, size_t *room);
void nb_card_free(nb_card *c, void *p, size_t room); /* NULL is fine */

/* For work on another stream, which waits until the memory is its own. */
void *nb_card_alloc_on(nb_card *c, void *stream, size_t bytes, size_t *room);
void nb_card_free_on(nb_card *c, void *stream, void *p);

/* Asynchronous; but host has been read when it returns, and a get waits. */
bool nb_card_put(nb_card *c, void *to, const void *host, size_t n);
bool nb_card_get(nb_card *c, void *host, const void *from, size_t n);
bool nb_card_copy(nb_card *c, void *to, const void *from, size_t n);

/* From another card, after all that it was given so far; what it is given next
 * waits for the copy.  Cards that cannot reach each other go through the host,
 * which the driver does. */
bool nb_card_copy_from(nb_card *c, void *to, nb_card *other, const void *from,
                       size_t n);
bool nb_card_zero(nb_card *c, void *to, size_t n);

/* Waits for the card and gives back to the driver what is not in use. */
void nb_card_trim(nb_card *c);

typedef struct nb_card_memory {
    size_t live, cached, peak; /* bytes; peak: the most that were live */
    size_t blocks;             /* live ones */
} nb_card_memory;

/* Whether its kernels may touch what lies there: memory of this card, made in
 * the context that programs of a process share, or managed. */
bool nb_card_reaches(nb_card *c, const void *data);

void nb_card_memory_get(nb_card *c, nb_card_memory *m);
void nb_card_peak_reset(nb_card *c);

#endif
