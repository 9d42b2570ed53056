/* card_product.c - products of matrices on a card: by the library, or by
 * kernels of our own where there is none.
 *
 * A call of the library takes its time, and what is small is done sooner by a
 * loop program, with what stands around it; unless NABLA_TUNE says how the
 * library is to choose. */
#include "run/card_parts.h"

#include "backend/cuda/product/multiply.h"

#include <stdlib.h>

static const double worth_calling = 0x1p20; /* operations */

static bool is_small(const nb_gemm *g)
{
    const char *tune = getenv("NABLA_TUNE");
    return nb_gemm_flops(g) < worth_calling && !(tune && *tune);
}

static bool multiplies(int device, const nb_gemm *g)
{
    nb_card *card = nb_card_at(device - 1);
    if (!card) return nb_error_clear(), false;
    if (!nb_blaslt_there()) return nb_multiply_takes(g);
    return !is_small(g) && nb_blaslt_takes(card, g);
}

bool (*const nb_card_multiplies)(int device, const nb_gemm *g) = multiplies;

bool nb_card_find_product(nb_exec *e, int s)
{
    nb_card *card = nb_card_at(e->device - 1);
    const nb_gemm *g = e->plan->step[s].gemm;
    return (e->on_card[s].job = nb_blaslt_there() ? nb_blaslt_job(card, g)
                                                  : nb_multiply_job(card, g));
}
