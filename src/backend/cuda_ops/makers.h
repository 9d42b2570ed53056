/* makers.h - the ops that have kernels of their own on a card. */
#ifndef NB_CUDA_OPS_MAKERS_H
#define NB_CUDA_OPS_MAKERS_H

#include "backend/cuda/build.h"
#include "backend/cuda/call.h"

extern const nb_card_maker nb_card_argsort, nb_card_index_set,
    nb_card_index_add, nb_card_index_mul, nb_card_index_min, nb_card_index_max,
    nb_card_index_prior, nb_card_put_along, nb_card_cumsum, nb_card_cumprod,
    nb_card_linear_scan, nb_card_arg_extreme, nb_card_attention,
    nb_card_attention_back, nb_card_attention_back_one, nb_card_conv_maker,
    nb_card_fold, nb_card_searchsorted, nb_card_select, nb_card_reshape;

/* Blocks of so many threads for n places, each of which walks on by the whole
 * grid. */
enum { NB_CARD_THREADS = 256 };
unsigned nb_card_grid(const nb_card *card, int64_t n);

#endif
