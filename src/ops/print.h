/* print.h - what the executor has to know of lines that are printed. */
#ifndef NB_OPS_PRINT_H
#define NB_OPS_PRINT_H

#include "core/op.h"

/* Whether nothing is printed, in this thread: ops run to be compared. */
extern _Thread_local bool nb_print_quiet;

extern nb_op nb_op_print;

#endif
