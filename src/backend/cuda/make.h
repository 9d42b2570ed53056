/* make.h - images of texts: from the disk, or compiled in several threads. */
#ifndef NB_CUDA_MAKE_H
#define NB_CUDA_MAKE_H

#include "backend/cuda/code.h"

/* The key of a text's code for a card. */
nb_disk_key nb_card_image_key(const nb_card *c, const char *text);

/* Compiles and loads; what could be is loaded where not all can.  Meanwhile one
 * thread calls beside(ctx), unless that is NULL. */
bool nb_card_images_make(int n, nb_card_image **image, void (*beside)(void *),
                         void *ctx);

/* Images that were read, and that were compiled; nanoseconds of NVRTC. */
typedef struct nb_card_made {
    int64_t read, compiled, ns;
} nb_card_made;
nb_card_made nb_card_made_get(void);

#endif
