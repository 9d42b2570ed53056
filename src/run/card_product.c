/* card_product.c - products of matrices on a card: by the library, or by
 * kernels of our own where there is none. */
#include "run/card_parts.h"

#include "backend/cuda/product/multiply.h"

static bool multiplies(int device, const nb_gemm *g)
{
    nb_card *card = nb_card_at(device - 1);
    if (!card) return nb_error_clear(), false;
    return nb_blaslt_there() ? nb_blaslt_takes(card, g) : nb_multiply_takes(g);
}

bool (*const nb_card_multiplies)(int device, const nb_gemm *g) = multiplies;

bool nb_card_find_product(nb_exec *e, int s)
{
    nb_card *card = nb_card_at(e->device - 1);
    const nb_gemm *g = e->plan->step[s].gemm;
    return (e->on_card[s].job = nb_blaslt_there() ? nb_blaslt_job(card, g)
                                                  : nb_multiply_job(card, g));
}
