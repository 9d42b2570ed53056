/* code.h - texts that are compiled as one, and the kernels in them. */
#ifndef NB_CUDA_CODE_H
#define NB_CUDA_CODE_H

#include "backend/cuda/build.h"
#include "base/disk.h"

typedef struct nb_card_image {
    nb_card *card;
    nb_disk_key key;
    char *text;          /* until it is compiled */
    bool joins;          /* NB_CARD_JOINS */
    void *module;        /* NULL: not loaded yet */
    bool settled;        /* loaded, or it could not be; with that lock */
    nb_card_code *codes; /* and the next: with the lock of build.c, once it is
                          * in its table */
    struct nb_card_image *next;
} nb_card_image;

struct nb_card_code {
    nb_card_image *image;
    void *function;      /* NULL: it is not loaded yet */
    int registers;       /* a thread */
    size_t shared;       /* bytes a block, of those declared in it */
    atomic_bool allowed; /* more than a block has without asking */
    int references;
    nb_card_code *next; /* of its image */
    char name[];
};

nb_card_image *nb_card_image_new(nb_card *c, nb_disk_key key, const char *text);
void nb_card_image_free(nb_card_image *m); /* without codes, by now */

/* What the kernel is called in its code. */
enum { NB_CARD_NAME = 96 };
void nb_card_image_calls(const nb_card_image *m, const char *name,
                         char to[NB_CARD_NAME]);

/* Loads it, with all its codes; or none of it. */
bool nb_card_image_load(nb_card_image *m, const nb_object *o);

/* The kernel of that name in an image, where it has none yet; with one
 * reference. */
nb_card_code *nb_card_code_new(nb_card_image *m, const char *name);

/* Builds what the kernel is waiting for. */
bool nb_card_code_ready(const nb_card_code *k);

/* Another kernel of the same text; NULL, without an error, if it has none. */
void *nb_card_code_other(const nb_card_code *k, const char *name);

#endif
