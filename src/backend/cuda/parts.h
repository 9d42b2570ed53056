/* parts.h - what a card gets when it is started, for memory.c and copy.c. */
#ifndef NB_CUDA_PARTS_H
#define NB_CUDA_PARTS_H

#include "backend/cuda/card.h"

/* Once; with the lock of the card held. */
bool nb_card_pool_make(nb_card *c);
bool nb_card_rings_make(nb_card *c);

/* No memory is in use on that stream any more. */
void nb_card_pool_forget(nb_card *c, void *stream);

#endif
