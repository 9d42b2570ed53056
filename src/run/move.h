/* move.h - a step of a reshard plan as an op of a device's program. */
#ifndef NB_RUN_MOVE_H
#define NB_RUN_MOVE_H

#include "core/apply.h"
#include "shard/plan/plan.h"

/* The block x of this device after step k of the plan; `to` is what the device
 * has then.  The token says that all moves before have happened: every device
 * makes its moves in one order. */
nb_tensor *nb_move(nb_tensor *x, const nb_reshard_plan *plan, int k,
                   const nb_box *to, nb_tensor **token);

/* The first token. */
nb_tensor *nb_token_new(void);

extern nb_op nb_op_move;

#endif
