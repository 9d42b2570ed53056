/* one.h - calls that are one kernel, with a thread for every place of a count,
 * each of which walks on by the whole grid.
 *
 * The kernel takes what is to be known of the call, a struct of its own, and
 * where the operands are: inputs, then the result. */
#ifndef NB_CUDA_OPS_ONE_H
#define NB_CUDA_OPS_ONE_H

#include "backend/cuda_ops/makers.h"

enum { NB_ONE_MOST = 1280, NB_ONE_OPERANDS = 4 }; /* bytes, operands */

/* Takes the text; `known` is copied.  Nothing to do, where count is 0, is a job
 * too. */
bool nb_card_one_make(nb_card *card, nb_text *text, const char *name, int nin,
                      const void *known, size_t bytes, int64_t count,
                      nb_card_job **job);

/* How the kernel is given them: "struct at", with the elements' types left
 * out. */
extern const char nb_one_text[];

#endif
