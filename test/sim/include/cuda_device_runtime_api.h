/* cuda_device_runtime_api.h - what simulated kernels may ask of a graph. */
#ifndef SIM_CUDA_DEVICE_RUNTIME_API_H
#define SIM_CUDA_DEVICE_RUNTIME_API_H

static inline void cudaGraphSetConditional(cudaGraphConditionalHandle handle,
                                           unsigned value)
{
    sim_host_now->condition(handle, value);
}

#endif
