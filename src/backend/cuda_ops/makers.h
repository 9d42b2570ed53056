/* makers.h - the ops that have kernels of their own on a card. */
#ifndef NB_CUDA_OPS_MAKERS_H
#define NB_CUDA_OPS_MAKERS_H

#include "backend/cuda/build.h"
#include "backend/cuda/call.h"

#define MAKER(name) extern const nb_card_maker nb_card_##name;
#include "backend/cuda_ops/makers.def"
#undef MAKER

/* Kernels of users' own: ops with rows_there. */
bool nb_card_custom_make(nb_card *card, const nb_call *c, nb_card_job **job);

/* Blocks of so many threads for n places, each of which walks on by the whole
 * grid. */
enum { NB_CARD_THREADS = 256 };
unsigned nb_card_grid(const nb_card *card, int64_t n);

#endif
