/* api.h - the part of the CUDA driver API and of NVRTC that the simulator
 * exports, in their own names and binary forms.  Types are opaque; results are
 * plain ints with NVIDIA's numbers. */
#ifndef SIM_API_H
#define SIM_API_H

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct sim_card *CUcontext;
typedef struct sim_module *CUmodule;
typedef struct sim_function *CUfunction;
typedef struct sim_stream *CUstream;
typedef struct sim_event *CUevent;
typedef struct sim_graph *CUgraph;
typedef struct sim_node *CUgraphNode;
typedef struct sim_exec *CUgraphExec;
typedef void (*CUhostFn)(void *);
typedef struct sim_program *nvrtcProgram;

enum {
    CUDA_SUCCESS,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_OUT_OF_MEMORY,
    CUDA_ERROR_NOT_INITIALIZED,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209,
    CUDA_ERROR_OPERATING_SYSTEM = 304,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_NOT_READY = 600,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
    CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
    CUDA_ERROR_PEER_ACCESS_NOT_ENABLED = 705,
    CUDA_ERROR_ASSERT = 710,
    CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
    CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
    CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
    CUDA_ERROR_MISALIGNED_ADDRESS = 716,
    CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    CUDA_ERROR_NOT_PERMITTED = 800,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
    CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
    CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_CAPTURED_EVENT = 907,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
    CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,
    CUDA_ERROR_UNKNOWN = 999
};

enum {
    NVRTC_SUCCESS,
    NVRTC_ERROR_OUT_OF_MEMORY,
    NVRTC_ERROR_PROGRAM_CREATION_FAILURE,
    NVRTC_ERROR_INVALID_INPUT,
    NVRTC_ERROR_INVALID_PROGRAM,
    NVRTC_ERROR_INVALID_OPTION,
    NVRTC_ERROR_COMPILATION,
    NVRTC_ERROR_BUILTIN_OPERATION_FAILURE,
    NVRTC_ERROR_NO_NAME_EXPRESSIONS_AFTER_COMPILATION,
    NVRTC_ERROR_NO_LOWERED_NAMES_BEFORE_COMPILATION,
    NVRTC_ERROR_NAME_EXPRESSION_NOT_VALID,
    NVRTC_ERROR_INTERNAL_ERROR
};

#pragma GCC visibility push(default)

/* The simulator's own: how often a function was called, or how many "kernels"
 * ran; bytes of "memory" alive on all cards; 0 for what it does not know. */
int64_t nabla_sim_count(const char *what);

/* The driver and its cards. */
CUresult cuInit(unsigned flags);
CUresult cuDriverGetVersion(int *version);
CUresult cuGetErrorName(CUresult code, const char **name);
CUresult cuGetErrorString(CUresult code, const char **text);
CUresult cuGetProcAddress_v2(const char *name, void **function, int version,
                             uint64_t flags, int *status);
CUresult cuDeviceGetCount(int *count);
CUresult cuDeviceGet(CUdevice *card, int ordinal);
CUresult cuDeviceGetName(char *name, int room, CUdevice card);
CUresult cuDeviceGetUuid_v2(char uuid[16], CUdevice card);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice card);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice card);
CUresult cuDeviceGetPCIBusId(char *name, int room, CUdevice card);
CUresult cuDeviceCanAccessPeer(int *can, CUdevice card, CUdevice peer);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice card);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice card);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice card);
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice card, unsigned flags);
CUresult cuDevicePrimaryCtxGetState(CUdevice card, unsigned *flags, int *on);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuCtxGetCurrent(CUcontext *context);
CUresult cuCtxPushCurrent_v2(CUcontext context);
CUresult cuCtxPopCurrent_v2(CUcontext *context);
CUresult cuCtxGetDevice(CUdevice *card);
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest);
CUresult cuCtxSynchronize(void);
CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags);
CUresult cuCtxDisablePeerAccess(CUcontext peer);

/* Memory. */
CUresult cuMemGetInfo_v2(size_t *left, size_t *total);
CUresult cuMemAlloc_v2(CUdeviceptr *to, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr at);
CUresult cuMemAllocAsync(CUdeviceptr *to, size_t bytes, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr at, CUstream stream);
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes,
                                 CUdeviceptr at);
CUresult cuMemHostAlloc(void **to, size_t bytes, unsigned flags);
CUresult cuMemAllocHost_v2(void **to, size_t bytes);
CUresult cuMemFreeHost(void *at);
CUresult cuMemHostRegister_v2(void *at, size_t bytes, unsigned flags);
CUresult cuMemHostUnregister(void *at);
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *to, void *at,
                                      unsigned flags);
CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr at);
CUresult cuPointerGetAttributes(unsigned count, int *attributes, void **values,
                                CUdeviceptr at);

/* Copies; those without Async wait for all that streams have begun. */
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t n);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t n);
CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t n);
CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t n);
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n,
                              CUstream stream);
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n,
                              CUstream stream);
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n,
                              CUstream stream);
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n,
                       CUstream stream);
CUresult cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                      CUcontext from_context, size_t n);
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context,
                           CUdeviceptr from, CUcontext from_context, size_t n,
                           CUstream stream);
CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t n);
CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t n);
CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t n);
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n,
                         CUstream stream);
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t n,
                          CUstream stream);
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t n,
                          CUstream stream);

typedef struct CUDA_MEMCPY2D {
    size_t from_x, from_y;
    int from_kind;
    const void *from_host;
    CUdeviceptr from_device;
    void *from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    int to_kind;
    void *to_host;
    CUdeviceptr to_device;
    void *to_array;
    size_t to_pitch;
    size_t width, height;
} CUDA_MEMCPY2D;

CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *copy);
CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *copy, CUstream stream);

/* Streams and events. */
CUresult cuStreamCreate(CUstream *stream, unsigned flags);
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags,
                                    int priority);
CUresult cuStreamDestroy_v2(CUstream stream);
CUresult cuStreamSynchronize(CUstream stream);
CUresult cuStreamQuery(CUstream stream);
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);
CUresult cuStreamGetCtx(CUstream stream, CUcontext *context);
CUresult cuStreamGetFlags(CUstream stream, unsigned *flags);
CUresult cuStreamGetPriority(CUstream stream, int *priority);
CUresult cuStreamGetId(CUstream stream, unsigned long long *id);
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data);
CUresult cuEventCreate(CUevent *event, unsigned flags);
CUresult cuEventDestroy_v2(CUevent event);
CUresult cuEventRecord(CUevent event, CUstream stream);
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags);
CUresult cuEventQuery(CUevent event);
CUresult cuEventSynchronize(CUevent event);
CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to);
CUresult cuEventElapsedTime_v2(float *ms, CUevent from, CUevent to);

/* Modules and launches. */
CUresult cuModuleLoadData(CUmodule *module, const void *image);
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            int *options, void **values);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name);
CUresult cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *bytes, CUmodule module,
                              const char *name);
CUresult cuModuleGetLoadingMode(int *mode);
CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function);
CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value);
CUresult cuFuncSetCacheConfig(CUfunction function, int config);
CUresult cuFuncGetModule(CUmodule *module, CUfunction function);
CUresult cuFuncGetName(const char **name, CUfunction function);
CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset,
                            size_t *size);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                     CUfunction function,
                                                     int threads,
                                                     size_t shared);
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, CUfunction function, int threads, size_t shared,
    unsigned flags);
CUresult cuOccupancyMaxPotentialBlockSize(int *blocks, int *threads,
                                          CUfunction function,
                                          size_t (*shared_of)(int),
                                          size_t shared, int most);
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy,
                        unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **args,
                        void **extra);
CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx,
                                   unsigned gy, unsigned gz, unsigned bx,
                                   unsigned by, unsigned bz, unsigned shared,
                                   CUstream stream, void **args);

typedef struct CUlaunchAttribute {
    int id, pad;
    union {
        char room[64];
        int cooperative;
        unsigned cluster[3];
    };
} CUlaunchAttribute;

typedef struct CUlaunchConfig {
    unsigned grid[3], block[3], shared;
    CUstream stream;
    CUlaunchAttribute *attributes;
    unsigned count;
} CUlaunchConfig;

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                          void **args, void **extra);

/* Compilation. */
const char *nvrtcGetErrorString(int code);
int nvrtcVersion(int *major, int *minor);
int nvrtcGetNumSupportedArchs(int *count);
int nvrtcGetSupportedArchs(int *archs);
int nvrtcCreateProgram(nvrtcProgram *program, const char *text,
                       const char *name, int count, const char *const *headers,
                       const char *const *names);
int nvrtcDestroyProgram(nvrtcProgram *program);
int nvrtcCompileProgram(nvrtcProgram program, int count,
                        const char *const *options);
int nvrtcGetCUBINSize(nvrtcProgram program, size_t *bytes);
int nvrtcGetCUBIN(nvrtcProgram program, char *to);
int nvrtcGetPTXSize(nvrtcProgram program, size_t *bytes);
int nvrtcGetPTX(nvrtcProgram program, char *to);
int nvrtcGetProgramLogSize(nvrtcProgram program, size_t *bytes);
int nvrtcGetProgramLog(nvrtcProgram program, char *to);
int nvrtcAddNameExpression(nvrtcProgram program, const char *expression);
int nvrtcGetLoweredName(nvrtcProgram program, const char *expression,
                        const char **name);

#pragma GCC visibility pop

#endif
