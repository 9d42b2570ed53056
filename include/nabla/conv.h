/* nabla/conv.h - */
#ifndef NABLA_CONV_H
#define NABLA_CONV_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
}
#endif
#endif
