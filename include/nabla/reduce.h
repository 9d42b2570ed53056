/* nabla/reduce.h - */
#ifndef NABLA_REDUCE_H
#define NABLA_REDUCE_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
}
#endif
#endif
