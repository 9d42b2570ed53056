/* attention_dnn.h - attention by cuDNN: one plan forward, one back. */
#ifndef NB_CUDA_OPS_ATTENTION_DNN_H
#define NB_CUDA_OPS_ATTENTION_DNN_H

#include "backend/cuda/dnn/dnn.h"
#include "lower/attention.h"

/* A plan is looked for while the rest of a program is prepared.  It runs once
 * for each of some parts of the batch, because on the way back it has room for
 * the scores of one beside. */
typedef struct nb_attention_dnn {
    nb_dnn_search *search; /* or NULL */
    int64_t parts;
    int64_t step[NB_ATTENTION_OPERANDS]; /* bytes from part to part */
    size_t sums, room; /* bytes beside: of sums it is given, and its own */
} nb_attention_dnn;

/* No search, without an error, where the library is not there or does not take
 * the form: rows of 16-bit numbers, aligned to 16 bytes, no mask or one without
 * keys ahead. */
bool nb_attention_dnn_begin(nb_card *c, const nb_attention_form *f,
                            nb_attention_dnn *to);
size_t nb_attention_dnn_workspace(const nb_attention_dnn *a);

/* Whether there is a plan; waits for it. */
bool nb_attention_dnn_there(const nb_attention_dnn *a);

/* at: the operands, in the order of the form. */
bool nb_attention_dnn_run(const nb_attention_dnn *a, const nb_attention_form *f,
                          char *const *at, char *workspace, const char *what);

#endif
