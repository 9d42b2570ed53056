/* parts.h - what the files of a card share. */
#ifndef NB_CUDA_PARTS_H
#define NB_CUDA_PARTS_H

#include "backend/cuda/card.h"

/* Once; with the lock of the card held. */
bool nb_card_pool_make(nb_card *c);
bool nb_card_rings_make(nb_card *c);

/* No memory is in use on that stream any more. */
void nb_card_pool_forget(nb_card *c, void *stream);

/* NABLA_CUDA_SYNC: every launch waits. */
bool nb_card_waits(void);

/* Fails if this thread is capturing, with what it is not free for. */
bool nb_card_is_free(const nb_card *c, const char *what);

#endif
