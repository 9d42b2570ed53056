/* multiply.h - matrix products on a card by kernels of our own, where there is
 * no library.
 *
 * Halves are multiplied by the tensor cores and summed in float32, in the order
 * of k; floats of 32 and 64 bits by fused multiplication and addition.  All ends
 * of products are there (lower/gemm.h). */
#ifndef NB_CUDA_MULTIPLY_H
#define NB_CUDA_MULTIPLY_H

#include "backend/cuda/call.h"
#include "lower/gemm.h"

bool nb_multiply_takes(const nb_gemm *g);

/* The job of a product, which is given the buffers of its step; NULL with an
 * error. */
nb_card_job *nb_multiply_job(nb_card *c, const nb_gemm *g);

#endif
