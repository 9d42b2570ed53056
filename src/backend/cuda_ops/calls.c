/* calls.c - the ops that have kernels of their own on a card. */
#include "backend/cuda/call.h"

#include <string.h>

static const nb_card_maker *const makers[] = {NULL};

bool nb_card_job_make(nb_card *card, const nb_call *c, nb_tensor *y,
                      nb_card_job **job)
{
    *job = NULL;
    for (int i = 0; makers[i]; i++)
        if (!strcmp(makers[i]->op, c->op->name))
            return makers[i]->make(card, c, y, job);
    return true;
}

void nb_card_job_free(nb_card_job *j)
{
    if (j) j->free(j);
}
