/* blaslt_parts.h - what the files of cuBLASLt share. */
#ifndef NB_CUDA_BLASLT_PARTS_H
#define NB_CUDA_BLASLT_PARTS_H

#include "backend/cuda/product/blaslt.h"

enum { NB_BLASLT_WORKSPACE = 32 << 20 };

#define BLASLT(result, name, arguments) result(*name) arguments;
typedef struct nb_blaslt {
#include "backend/cuda/product/blaslt.def"
} nb_blaslt;
#undef BLASLT

/* Begins with the algorithm, as the library lays it out. */
typedef struct nb_blaslt_choice {
    uint64_t algo[8];
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
} nb_blaslt_choice;

/* A call of the library: matrices by columns, C' = B' A' where the result is
 * stored by rows.  All that its form depends on is in `g`. */
typedef struct nb_blaslt_call {
    nb_card_job job;
    const nb_blaslt *api;
    nb_card *card;
    nb_gemm g;
    bool swapped;
    void *handle, *desc, *first, *second, *c;
    nb_blaslt_choice choice;
    pthread_mutex_t lock; /* of addresses in the description */
} nb_blaslt_call;

/* One product of those along the outer axes; at: the buffers of the step, or
 * where they are at that point. */
bool nb_blaslt_once(nb_blaslt_call *b, char *const *at, char *workspace,
                    const char *what);

/* Chooses an algorithm; *found: there is one. */
bool nb_blaslt_find(nb_blaslt_call *b, bool *found);
bool nb_blaslt_choose(nb_blaslt_call *b);

bool nb_blaslt_check(int status, const char *what);

#endif
