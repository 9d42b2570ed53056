/* realize.h - the executor behind nb_realize. */
#ifndef NB_RUN_REALIZE_H
#define NB_RUN_REALIZE_H

#include "core/tensor.h"

/* Whether this thread has asked for a value that does not exist, because the
 * function that asks is being recorded, since this was last called. */
bool nb_asked_take(void);

int64_t nb_steps_run(void); /* ops executed by this process */

/* Fails: x has no value, and none can be computed. */
bool nb_no_value(const nb_tensor *x);

#endif
