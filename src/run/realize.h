/* realize.h - the executor behind nb_realize. */
#ifndef NB_RUN_REALIZE_H
#define NB_RUN_REALIZE_H

#include "core/tensor.h"

int64_t nb_steps_run(void); /* ops executed by this process */

#endif
