/* blaslt.h - matrix products on a card, by cuBLASLt.
 *
 * The library is opened when first asked for; without it nothing here works,
 * and products are loops.  NABLA_CUBLASLT names another file, or "none". */
#ifndef NB_CUDA_BLASLT_H
#define NB_CUDA_BLASLT_H

#include "backend/cuda/card.h"
#include "nabla/dtype.h"

/* C = A B, times as many as there are in the batch.  C is m x n, k is summed.
 * Strides count elements; of each matrix one of its two is 1, or its extent is
 * one.  f16 and bf16 are summed in float32, float32 as that. */
typedef struct nb_gemm_form {
    nb_dtype dtype;
    int64_t m, n, k, batch;
    int64_t a[2], b[2], c[2]; /* strides: rows, columns */
    int64_t step[3];          /* from one matrix of a batch to the next */
} nb_gemm_form;

bool nb_blaslt_there(void);

/* Whether it can be done where it lies. */
bool nb_blaslt_takes(const nb_gemm_form *f);

/* A product, its algorithm chosen; NULL with an error. */
typedef struct nb_card_gemm nb_card_gemm;
nb_card_gemm *nb_card_gemm_new(nb_card *c, const nb_gemm_form *f);
void nb_card_gemm_free(nb_card_gemm *g);
bool nb_card_gemm_run(const nb_card_gemm *g, const void *a, const void *b,
                      void *c, const char *what);

#endif
