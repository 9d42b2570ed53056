/* nabla/contract.h - */
#ifndef NABLA_CONTRACT_H
#define NABLA_CONTRACT_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __cplusplus
}
#endif
#endif
