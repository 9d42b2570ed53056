/* blaslt.h - matrix products on a card, by cuBLASLt.
 *
 * The library is opened when first asked for.  NABLA_CUBLASLT names another
 * file, or "none".  f16 and bf16 are summed in float32, float32 as that and not
 * in fewer bits; NABLA_TF32=1 allows the latter.
 *
 * Which of its algorithms makes a large product is found by trying the first
 * few, once: the choice is kept on disk with the kernels.  NABLA_TUNE=0 takes
 * the library's first, NABLA_TUNE=all tries for small products too. */
#ifndef NB_CUDA_BLASLT_H
#define NB_CUDA_BLASLT_H

#include "backend/cuda/call.h"
#include "lower/gemm.h"

bool nb_blaslt_there(void);

/* Opens it, where it is, and asks for an algorithm: what comes first takes it
 * longest. */
void nb_blaslt_wake(nb_card *c);

/* Whether the library has an algorithm for it. */
bool nb_blaslt_takes(nb_card *c, const nb_gemm *g);

/* The job of a product, which is given the buffers of its step; NULL with an
 * error. */
nb_card_job *nb_blaslt_job(nb_card *c, const nb_gemm *g);

#endif
