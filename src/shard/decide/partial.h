/* partial.h - reductions that are pending when an op is called. */
#ifndef NB_SHARD_DECIDE_PARTIAL_H
#define NB_SHARD_DECIDE_PARTIAL_H

#include "shard/decide/work.h"

/* With the factors settled: what is pending of each operand when the op runs
 * (the rest is reduced before), and of the results. */
bool nb_work_partials(const nb_work *w, nb_cut *operand, nb_cut *result,
                      nb_reduce *kind);

/* What kind of reduction of the result a pending one of the operand becomes. */
nb_reduce nb_call_turns(const nb_call *c, nb_reduce kind);

/* Whether a sum that is pending in operand t alone, over axes that the call
 * does not use, may be taken after it: others may be made to have a part of it
 * where the op is linear in all of them together. */
bool nb_call_carries(const nb_call *c, int t);

#endif
