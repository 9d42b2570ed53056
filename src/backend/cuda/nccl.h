/* nccl.h - NCCL: messages between cards, of one process or of many.
 *
 * It is opened when first asked for, by the name libnccl.so.2; the environment
 * variable NABLA_NCCL names another file, or "none".  Only messages are used of
 * it: sums are ours, in an order that is ours. */
#ifndef NB_CUDA_NCCL_H
#define NB_CUDA_NCCL_H

#include "backend/cuda/card.h"

typedef struct nb_nccl_id {
    char bytes[128];
} nb_nccl_id;

typedef struct nb_card_comm nb_card_comm;

bool nb_nccl_there(void);
int nb_nccl_version(void); /* 22003 is 2.20.3; 0 with an error */

/* A name for a new group of cards, which one makes and all have. */
bool nb_nccl_id_new(nb_nccl_id *id);

/* Joins a group of so many with n cards of this process, as these members.  All
 * processes of it do so at once; no card is in it twice. */
bool nb_card_comms_new(int n, nb_card *const *card, const int *member, int size,
                       const nb_nccl_id *id, nb_card_comm **comm);
void nb_card_comm_free(nb_card_comm *k); /* NULL is fine */

/* Messages between begin and end go together, in the order of the main stream,
 * and are under way when it returns.  Whoever begins ends, whatever has failed. */
bool nb_card_comm_begin(nb_card_comm *k);
bool nb_card_comm_send(nb_card_comm *k, int member, const void *data, size_t n);
bool nb_card_comm_receive(nb_card_comm *k, int member, void *data, size_t n);
bool nb_card_comm_end(nb_card_comm *k);

#endif
