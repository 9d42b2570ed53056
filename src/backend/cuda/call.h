/* call.h - ops whose calls have kernels of their own on a card.
 *
 * A maker looks at a call, with where its operands lie, and prepares a job if
 * it can do it; whoever finds none runs the call another way. */
#ifndef NB_CUDA_CALL_H
#define NB_CUDA_CALL_H

#include "backend/cuda/card.h"
#include "core/op.h"

/* A call, prepared; makers put it first in a struct of their own. */
typedef struct nb_card_job {
    size_t workspace; /* bytes that it wants beside, of any contents; known
                       * when what is gathered (build.h) is built */
    int launches;     /* that it is about, if it is no graph; 0: one */
    bool waits;       /* for the card, unless it is part of a graph */
    bool alone;       /* it waits in any case, and is part of none */

    /* Enqueues it on nb_card_stream and waits for nothing, but as said above;
     * what it does depends on the pointers alone, for it may become part of a
     * graph.  Operands may begin anywhere; the first result and the workspace
     * are aligned to 64 bytes. */
    bool (*run)(struct nb_card_job *j, char *const *in, char *const *out,
                char *workspace, const char *what);
    void (*free)(struct nb_card_job *j);

    /* NULL, or what waits for what was begun as it was made; else the first run
     * does. */
    bool (*settle)(struct nb_card_job *j);
} nb_card_job;

typedef struct nb_card_maker {
    const char *op;

    /* c->in are nodes laid out, without data; results are packed.  *job stays
     * NULL without an error where it does not take such a call. */
    bool (*make)(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **job);
} nb_card_maker;

/* The job of a call; *job is NULL if there is none. */
bool nb_card_job_make(nb_card *card, const nb_call *c, nb_tensor *y,
                      nb_card_job **job);
void nb_card_job_free(nb_card_job *j);

#endif
