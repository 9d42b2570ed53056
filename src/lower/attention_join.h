/* attention_join.h - results of attention_back that are put together again. */
#ifndef NB_LOWER_ATTENTION_JOIN_H
#define NB_LOWER_ATTENTION_JOIN_H

#include "core/apply.h"
#include "lower/rewrite.h"

/* Where q, k and v are parts of one tensor, what flows back to it is
 * dq, dk and dv side by side: the sum of three, each zero but in its part.
 * Attention writes them there itself (attention_back_one). */
bool nb_attention_join(nb_graph *g);

/* A call before the line looked at, and the lines of all its results
 * (pass_attention.c). */
bool nb_attention_insert(nb_rewrite *r, nb_op *op, const words *w, int nin,
                         const int *in, int *part);

#endif
