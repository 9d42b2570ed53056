/* row_args.h - the ABI of kernels over rows, for the engine: core's operand of a
 * kernel has the name of the public one, which is nb_row_view here. */
#ifndef NB_CORE_ROW_ARGS_H
#define NB_CORE_ROW_ARGS_H

#include "core/op.h"

#define nb_view nb_row_view
#include "nabla/kernel.h"
#undef nb_view

/* Fails if the status that a kernel stored is not 0. */
bool nb_row_status_check(const char *name, int32_t status);

#endif
