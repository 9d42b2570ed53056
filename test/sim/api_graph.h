/* api_graph.h - the driver's graphs and captures, as api.h has the rest. */
#ifndef SIM_API_GRAPH_H
#define SIM_API_GRAPH_H

#include "api.h"

typedef struct CUDA_KERNEL_NODE_PARAMS {
    CUfunction function;
    unsigned grid[3], block[3], shared;
    void **args, **extra;
    void *kernel;
    CUcontext context;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct CUDA_MEMCPY3D {
    size_t from_x, from_y, from_z, from_lod;
    int from_kind;
    const void *from_host;
    CUdeviceptr from_device;
    void *from_array, *reserved0;
    size_t from_pitch, from_height;
    size_t to_x, to_y, to_z, to_lod;
    int to_kind;
    void *to_host;
    CUdeviceptr to_device;
    void *to_array, *reserved1;
    size_t to_pitch, to_height;
    size_t width, height, depth;
} CUDA_MEMCPY3D;

typedef struct CUDA_MEMSET_NODE_PARAMS {
    CUdeviceptr to;
    size_t pitch;
    unsigned value, size;
    size_t width, height;
} CUDA_MEMSET_NODE_PARAMS;

typedef struct CUDA_HOST_NODE_PARAMS {
    CUhostFn function;
    void *data;
} CUDA_HOST_NODE_PARAMS;

typedef struct CUDA_CONDITIONAL_NODE_PARAMS {
    unsigned long long handle;
    int type;
    unsigned size;
    CUgraph *bodies; /* set by the driver */
    CUcontext context;
} CUDA_CONDITIONAL_NODE_PARAMS;

typedef struct CUgraphNodeParams {
    int type, reserved0[3];
    union {
        long long reserved1[29];
        CUDA_KERNEL_NODE_PARAMS kernel;
        struct {
            int flags, reserved;
            CUcontext context;
            CUDA_MEMCPY3D copy;
        } copy;
        CUDA_MEMSET_NODE_PARAMS set;
        CUDA_HOST_NODE_PARAMS host;
        CUDA_CONDITIONAL_NODE_PARAMS conditional;
    };
    long long reserved2;
} CUgraphNodeParams;

typedef struct CUgraphEdgeData {
    unsigned char from, to, type, reserved[5];
} CUgraphEdgeData;

typedef struct CUgraphExecUpdateResultInfo {
    int result;
    CUgraphNode node, from;
} CUgraphExecUpdateResultInfo;

typedef struct CUDA_GRAPH_INSTANTIATE_PARAMS {
    uint64_t flags;
    CUstream stream;
    CUgraphNode node;
    int result;
} CUDA_GRAPH_INSTANTIATE_PARAMS;

enum {
    SIM_NODE_KERNEL = 0,
    SIM_NODE_COPY = 1,
    SIM_NODE_SET = 2,
    SIM_NODE_HOST = 3,
    SIM_NODE_GRAPH = 4,
    SIM_NODE_EMPTY = 5,
    SIM_NODE_RECORD = 7,
    SIM_NODE_FREE = 11,
    SIM_NODE_CONDITIONAL = 13
};

#pragma GCC visibility push(default)

/* Capture. */
CUresult cuStreamBeginCapture_v2(CUstream stream, int mode);
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                     const CUgraphNode *after,
                                     const CUgraphEdgeData *edges, size_t count,
                                     int mode);
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph);
CUresult cuStreamIsCapturing(CUstream stream, int *status);
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id,
                                   CUgraph *graph, const CUgraphNode **after,
                                   size_t *count);
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, int *status, uint64_t *id,
                                   CUgraph *graph, const CUgraphNode **after,
                                   const CUgraphEdgeData **edges,
                                   size_t *count);
CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode *after,
                                           size_t count, unsigned flags);
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream,
                                              CUgraphNode *after,
                                              const CUgraphEdgeData *edges,
                                              size_t count, unsigned flags);
CUresult cuThreadExchangeStreamCaptureMode(int *mode);

/* Graphs made by hand. */
CUresult cuGraphCreate(CUgraph *graph, unsigned flags);
CUresult cuGraphDestroy(CUgraph graph);
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
CUresult cuGraphNodeGetType(CUgraphNode node, int *type);
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode *after,
                                    size_t *count);
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *after,
                                       CUgraphEdgeData *edges, size_t *count);
CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph,
                                 const CUgraphNode *after, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS *p);
CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph,
                              const CUgraphNode *after, size_t count,
                              const CUDA_MEMCPY3D *p, CUcontext context);
CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph,
                              const CUgraphNode *after, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *p,
                              CUcontext context);
CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph,
                            const CUgraphNode *after, size_t count,
                            const CUDA_HOST_NODE_PARAMS *p);
CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph,
                             const CUgraphNode *after, size_t count);
CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph,
                        const CUgraphNode *after, size_t count,
                        CUgraphNodeParams *p);
CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph,
                           const CUgraphNode *after,
                           const CUgraphEdgeData *edges, size_t count,
                           CUgraphNodeParams *p);
CUresult cuGraphConditionalHandleCreate(unsigned long long *handle,
                                        CUgraph graph, CUcontext context,
                                        unsigned first, unsigned flags);
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node,
                                       CUDA_KERNEL_NODE_PARAMS *p);
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node,
                                       const CUDA_KERNEL_NODE_PARAMS *p);
CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *p);
CUresult cuGraphMemsetNodeGetParams(CUgraphNode node,
                                    CUDA_MEMSET_NODE_PARAMS *p);

/* Graphs that run. */
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph,
                                     unsigned long long flags);
CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS *p);
CUresult cuGraphExecDestroy(CUgraphExec exec);
CUresult cuGraphUpload(CUgraphExec exec, CUstream stream);
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream);
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *p);
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMCPY3D *p,
                                        CUcontext context);
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                        const CUDA_MEMSET_NODE_PARAMS *p,
                                        CUcontext context);
CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned on);
CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node,
                               unsigned *on);
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph,
                              CUgraphExecUpdateResultInfo *info);

#pragma GCC visibility pop

#endif
