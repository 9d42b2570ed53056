/* nabla/index.h - */
#ifndef NABLA_INDEX_H
#define NABLA_INDEX_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
}
#endif
#endif
