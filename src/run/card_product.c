/* card_product.c - products of matrices on a card, by the library. */
#include "run/card_parts.h"

static bool multiplies(int device, const nb_gemm *g)
{
    nb_card *card = nb_blaslt_there() ? nb_card_at(device - 1) : NULL;
    return card && nb_blaslt_takes(card, g);
}

bool (*const nb_card_multiplies)(int device, const nb_gemm *g) = multiplies;

bool nb_card_find_product(nb_exec *e, int s)
{
    nb_card_step *k = &e->on_card[s];
    return (k->job = nb_blaslt_job(nb_card_at(e->device - 1),
                                   e->plan->step[s].gemm));
}
