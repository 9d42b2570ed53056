/* code.h - a kernel that is loaded on a card. */
#ifndef NB_CUDA_CODE_H
#define NB_CUDA_CODE_H

#include "backend/cuda/build.h"
#include "base/disk.h"

struct nb_card_code {
    nb_card *card;
    void *module, *function;
    int registers;       /* a thread */
    size_t shared;       /* bytes a block, of those declared in it */
    atomic_bool allowed; /* more than a block has without asking */
    nb_disk_key key;
    int references; /* and the next: the table's, build.c */
    nb_card_code *next;
};

nb_card_code *nb_card_code_load(nb_card *c, const nb_object *o,
                                const char *name);
void nb_card_code_unload(nb_card_code *k);

#endif
