/* calls.c - finding the kernels of a call. */
#include "backend/cuda_ops/makers.h"

#include <string.h>

static const nb_card_maker *const makers[] = {
#define MAKER(name) &nb_card_##name,
#include "backend/cuda_ops/makers.def"
#undef MAKER
};

bool nb_card_job_make(nb_card *card, const nb_call *c, nb_tensor *y,
                      nb_card_job **job)
{
    *job = NULL;
    if (c->op->rows_there) return nb_card_custom_make(card, c, job);
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        if (!strcmp(makers[i]->op, c->op->name))
            return makers[i]->make(card, c, y, job);
    return true;
}

void nb_card_job_free(nb_card_job *j)
{
    if (j) j->free(j);
}

unsigned nb_card_grid(const nb_card *card, int64_t n)
{
    int64_t blocks = (n + NB_CARD_THREADS - 1) / NB_CARD_THREADS;
    int64_t most =
        (int64_t)card->processors * card->processor_threads / NB_CARD_THREADS;
    return (unsigned)(blocks < most ? blocks : most);
}
