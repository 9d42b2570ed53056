/* driver.h - NVIDIA's driver: opened when first asked for, or the one sentence
 * why it cannot be.
 *
 * The library is libcuda.so.1; the environment variable NABLA_CUDA_DRIVER
 * names another file, or "none".  A driver for CUDA 12.0 or later will do.
 *
 * A process that forks after the driver was started cannot use it in the
 * child: there everything fails, with a sentence that says so. */
#ifndef NB_CUDA_DRIVER_H
#define NB_CUDA_DRIVER_H

#include "base/error.h"

#include <stdint.h>

typedef unsigned long long nb_address;

/* Values of CUDA's enumerations. */
enum {
    NB_CUDA_OUT_OF_MEMORY = 2,
    NB_CUDA_STREAM_NON_BLOCKING = 1,
    NB_CUDA_EVENT_DISABLE_TIMING = 2,
    NB_CUDA_NOT_FOUND = 500,
    NB_CUDA_HOST_PORTABLE = 1,
    NB_CUDA_HOST_MAPPED = 2,
    NB_CUDA_FUNC_SHARED = 1,
    NB_CUDA_FUNC_REGISTERS = 4,
    NB_CUDA_FUNC_SHARED_MOST = 8
};

typedef struct nb_cuda {
#define CUDA(name, suffix, arguments) int(*name) arguments;
#define LATER                         CUDA
#include "backend/cuda/driver.def"
#undef LATER
#undef CUDA
} nb_cuda;

/* NULL, without an error, where there is none. */
const nb_cuda *nb_cuda_driver(void);

/* "no GPU: ..."; NULL where there is a driver. */
const char *nb_cuda_trouble(void);

int nb_cuda_version(void); /* 12040 for 12.4; 0: no driver */

/* Of a process forked after the driver was started. */
bool nb_cuda_forked(void);

/* "CUDA_ERROR_INVALID_VALUE: invalid argument", in a buffer of the thread. */
const char *nb_cuda_text(int result);

#endif
