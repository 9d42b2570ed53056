/* cuda_device_runtime_api.h - what kernels may ask of a graph. */
#ifndef SIM_CUDA_DEVICE_RUNTIME_API_H
#define SIM_CUDA_DEVICE_RUNTIME_API_H

extern "C" void cudaGraphSetConditional(cudaGraphConditionalHandle handle,
                                        unsigned value);

#endif
