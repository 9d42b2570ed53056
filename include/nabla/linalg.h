/* nabla/linalg.h - */
#ifndef NABLA_LINALG_H
#define NABLA_LINALG_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
}
#endif
#endif
