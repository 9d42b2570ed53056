/* nccl.h - devices that are cards, each another, talk through NCCL.
 *
 * Before messages go, devices meet as they do without it, so that one that has
 * failed, or is in another round, is found out while nobody waits for a card. */
#ifndef NB_COMM_NCCL_H
#define NB_COMM_NCCL_H

#include "comm/comm.h"

/* What carries messages over a mesh on whose cards they are; `base`, over which
 * the devices meet, where NCCL is not here, or two devices are one card.  NULL,
 * with an error.  All processes ask at once. */
nb_link *nb_nccl_link(const nb_mesh *m, nb_link *base);

/* NCCL, of which comm knows nothing; run/ defines it. */
enum { NB_NCCL_ID = 128, NB_CARD_NAME = 16 };
typedef struct nb_card_talk {
    bool (*there)(void);
    int (*version)(void);
    bool (*name)(int device,
                 char name[NB_CARD_NAME]); /* of a card, in the world */
    bool (*id)(char id[NB_NCCL_ID]);
    bool (*join)(int n, const int *device, const int *member, int size,
                 const char *id, void **comm);
    /* member: by position. */
    bool (*exchange)(void *comm, const nb_post *post, const int *member);
} nb_card_talk;
extern const nb_card_talk nb_nccl;

#endif
