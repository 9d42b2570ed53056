/* conv.h - convolutions on a card: what a call is, and the ways to compute it.
 */
#ifndef NB_CUDA_OPS_CONV_H
#define NB_CUDA_OPS_CONV_H

#include "backend/cuda/call.h"
#include "backend/cuda_ops/dims.h"
#include "ops/conv_work.h"

/* Lanes that share the filter are images where they lie like that; the others
 * are points at each of which there is a convolution.  Offsets of operands are
 * 0, the channels of y are one apart. */
typedef struct nb_card_conv {
    nb_conv_work w;
    nb_dims lanes; /* of x, filter and y */
} nb_card_conv;

/* Jobs; *job stays NULL where one does not take it. */

/* cuDNN's plans: for what it takes, where it is installed. */
bool nb_card_conv_dnn(nb_card *card, const nb_card_conv *c, nb_card_job **job);

/* Tiles of a product, of places and channels out, over taps and channels in:
 * for floats, and results that fill tiles. */
bool nb_card_conv_tiles(nb_card *card, const nb_card_conv *c,
                        nb_card_job **job);

/* A thread for every element of the result: for whatever there is. */
bool nb_card_conv_each(nb_card *card, const nb_card_conv *c, nb_card_job **job);

#endif
