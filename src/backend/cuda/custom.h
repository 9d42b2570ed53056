/* custom.h - kernels of users' own, as in nabla/kernel.h, on cards.
 *
 * A text is compiled for a card when it is first used there, and stays loaded
 * as long as the process.  What a kernel stores as its status is met when the
 * host next waits for the card: whatever call does that fails with it. */
#ifndef NB_CUDA_CUSTOM_H
#define NB_CUDA_CUSTOM_H

#include "backend/cuda/build.h"

/* A file, which may include others; key: of all that they say. */
typedef struct nb_card_file {
    const char *path, *folder; /* as NVRTC takes them */
    uint64_t key[2];
} nb_card_file;

/* A kernel in a file; lives for ever. */
typedef struct nb_card_text {
    nb_card_source source;
    nb_card_file file;
} nb_card_text;

typedef struct nb_card_custom {
    struct nb_card_custom *next; /* of all that are loaded */
    nb_card *card;
    const nb_card_text *text;
    nb_card_code *code;
    int threads; /* of a block; and its bytes of shared memory */
    unsigned shared;
    int32_t *status; /* for kernels to write */
} nb_card_custom;

/* The kernel on a card, lent for ever; NB_EVALUE if the text has none of that
 * name. */
const nb_card_custom *nb_card_custom_get(nb_card *c, const nb_card_text *t);

/* Words of the host's that kernels may write, each named by a kernel; and the
 * error that one of them says, which is forgotten with that. */
int32_t *nb_card_word_new(nb_card *c, const char *name);
bool nb_card_words_check(nb_card *c);

#endif
