/* nabla/random.h - */
#ifndef NABLA_RANDOM_H
#define NABLA_RANDOM_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
}
#endif
#endif
