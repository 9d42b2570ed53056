/* test_sim_stream.c - streams, events and graphs of the simulated driver: work
 * runs as late as it may, and is replayed. */
#include "support/driver.h"

static const char scale_text[] =
    "extern \"C\" __global__ void scale(float *y, float a, float b, int n)\n"
    "{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) y[i] = a * y[i] + b;\n"
    "}\n";

enum { LENGTH = 300 };

static int scale(CUfunction f, CUdeviceptr y, float a, float b, CUstream s)
{
    int n = LENGTH;
    void *args[] = {&y, &a, &b, &n};
    return driver_launch(f, 3, 128, 0, s, args);
}

static void assert_all(CUdeviceptr at, float want)
{
    float y[LENGTH];
    GOOD(CU(cuMemcpyDtoH_v2)(y, at, sizeof y));
    for (int i = 0; i < LENGTH; i++)
        assert_true(y[i] == want);
}

static CUdeviceptr ones(void)
{
    float y[LENGTH];
    for (int i = 0; i < LENGTH; i++)
        y[i] = 1;
    return driver_put(y, sizeof y);
}

/* Nothing of a stream has run until something waits for it, and then only what
 * it waits for. */
static void work_runs_when_waited_for(void **state)
{
    (void)state;
    CUmodule module;
    CUfunction f = driver_function(scale_text, "scale", &module);
    CUdeviceptr y = ones(), z = ones();
    CUstream s, t;
    CUevent e;
    int64_t before = CU(nabla_sim_count)("kernels");
    GOOD(CU(cuStreamCreate)(&s, 1));
    GOOD(CU(cuStreamCreate)(&t, 1));
    GOOD(CU(cuEventCreate)(&e, 0));
    GOOD(CU(cuEventQuery)(e));
    GOOD(scale(f, y, 2, 0, s));
    GOOD(CU(cuEventRecord)(e, s));
    GOOD(scale(f, y, 2, 0, s));
    GOOD(CU(cuStreamWaitEvent)(t, e, 0));
    GOOD(scale(f, z, 3, 0, t));
    assert_int_equal(CU(nabla_sim_count)("kernels"), before);
    GOOD(CU(cuStreamSynchronize)(t));
    assert_int_equal(CU(nabla_sim_count)("kernels"), before + 2);
    GOOD(CU(cuEventQuery)(e));
    assert_int_equal(CU(cuStreamQuery)(s), 0);
    assert_int_equal(CU(nabla_sim_count)("kernels"), before + 3);
    assert_all(y, 4);
    assert_all(z, 3);
    GOOD(scale(f, y, 1, 1, s));
    GOOD(scale(f, y, 1, 1, s));
    assert_int_equal(CU(cuStreamQuery)(s), CUDA_ERROR_NOT_READY);
    GOOD(CU(cuStreamQuery)(s));
    GOOD(CU(cuEventDestroy_v2)(e));
    GOOD(CU(cuStreamDestroy_v2)(s));
    assert_int_equal(CU(cuStreamQuery)(s), CUDA_ERROR_INVALID_HANDLE);
    GOOD(CU(cuModuleUnload)(module));
}

/* Pageable memory is read at once, pinned memory late. */
static void copies_from_pinned_memory_are_late(void **state)
{
    (void)state;
    int pageable = 1, *pinned, out[2];
    CUdeviceptr y = driver_put(NULL, 8);
    CUstream s;
    GOOD(CU(cuMemHostAlloc)((void **)&pinned, sizeof *pinned, 0));
    *pinned = 1;
    GOOD(CU(cuStreamCreate)(&s, 1));
    GOOD(CU(cuMemcpyHtoDAsync_v2)(y, &pageable, 4, s));
    GOOD(CU(cuMemcpyHtoDAsync_v2)(y + 4, pinned, 4, s));
    pageable = *pinned = 2;
    GOOD(CU(cuMemcpyDtoHAsync_v2)(out, y, 8, s));
    assert_int_equal(out[0], 1);
    assert_int_equal(out[1], 2);
    assert_int_equal(CU(cuMemcpyHtoDAsync_v2)(y, out, 9, s),
                     CUDA_ERROR_INVALID_VALUE);
    GOOD(CU(cuMemFreeHost)(pinned));
}

static CUgraph captured(CUfunction f, CUdeviceptr y, CUdeviceptr z, CUstream s,
                        CUstream t)
{
    CUgraph g;
    CUevent fork, join;
    GOOD(CU(cuEventCreate)(&fork, 2));
    GOOD(CU(cuEventCreate)(&join, 2));
    GOOD(CU(cuStreamBeginCapture_v2)(s, 0));
    GOOD(scale(f, y, 2, 0, s));
    GOOD(CU(cuEventRecord)(fork, s));
    GOOD(CU(cuStreamWaitEvent)(t, fork, 0));
    GOOD(CU(cuMemcpyDtoDAsync_v2)(z, y, LENGTH * 4, t));
    GOOD(scale(f, z, 1, 10, t));
    GOOD(CU(cuEventRecord)(join, t));
    GOOD(CU(cuStreamWaitEvent)(s, join, 0));
    GOOD(scale(f, y, 1, 1, s));
    GOOD(CU(cuStreamEndCapture)(s, &g));
    GOOD(CU(cuEventDestroy_v2)(fork));
    GOOD(CU(cuEventDestroy_v2)(join));
    return g;
}

static void graphs_replay_and_are_patched(void **state)
{
    (void)state;
    CUmodule module;
    CUfunction f = driver_function(scale_text, "scale", &module);
    CUdeviceptr y = ones(), z = ones(), w = ones();
    CUstream s, t;
    CUgraphNode nodes[8];
    CUgraphExec exec;
    CUDA_KERNEL_NODE_PARAMS p;
    size_t count = 8;
    int type, n = LENGTH;
    float a = 5, b = 7;
    GOOD(CU(cuStreamCreate)(&s, 1));
    GOOD(CU(cuStreamCreate)(&t, 1));
    CUgraph g = captured(f, y, z, s, t);
    assert_all(y, 1);
    GOOD(CU(cuGraphGetNodes)(g, nodes, &count));
    assert_int_equal(count, 4);
    GOOD(CU(cuGraphNodeGetType)(nodes[1], &type));
    assert_int_equal(type, SIM_NODE_COPY);
    GOOD(CU(cuGraphInstantiateWithFlags)(&exec, g, 0));
    GOOD(CU(cuGraphLaunch)(exec, s));
    GOOD(CU(cuGraphLaunch)(exec, s));
    GOOD(CU(cuStreamSynchronize)(s));
    assert_all(y, 7);
    assert_all(z, 16);
    GOOD(CU(cuGraphKernelNodeGetParams_v2)(nodes[3], &p));
    void *args[] = {&w, &a, &b, &n};
    p.args = args;
    GOOD(CU(cuGraphLaunch)(exec, s));
    GOOD(CU(cuGraphExecKernelNodeSetParams_v2)(exec, nodes[3], &p));
    GOOD(CU(cuGraphDestroy)(g));
    GOOD(CU(cuGraphLaunch)(exec, s));
    GOOD(CU(cuGraphExecDestroy)(exec));
    GOOD(CU(cuStreamSynchronize)(s));
    assert_all(y, 30);
    assert_all(w, 12);
    GOOD(CU(cuModuleUnload)(module));
}

static void captures_refuse_what_waits(void **state)
{
    (void)state;
    CUmodule module;
    CUfunction f = driver_function(scale_text, "scale", &module);
    CUdeviceptr y = ones(), z;
    CUstream s, t;
    CUgraph g;
    CUevent e;
    int status;
    GOOD(CU(cuStreamCreate)(&s, 1));
    GOOD(CU(cuStreamCreate)(&t, 1));
    GOOD(CU(cuEventCreate)(&e, 2));
    GOOD(CU(cuStreamBeginCapture_v2)(s, 0));
    GOOD(scale(f, y, 2, 0, s));
    assert_int_equal(CU(cuStreamSynchronize)(s),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    GOOD(CU(cuStreamIsCapturing)(s, &status));
    assert_int_equal(status, 2);
    assert_int_equal(scale(f, y, 2, 0, s),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(CU(cuStreamEndCapture)(s, &g),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    GOOD(CU(cuStreamBeginCapture_v2)(s, 1));
    assert_int_equal(CU(cuMemAlloc_v2)(&z, 64),
                     CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(CU(cuStreamEndCapture)(s, &g),
                     CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    GOOD(CU(cuStreamBeginCapture_v2)(s, 2));
    GOOD(CU(cuMemAlloc_v2)(&z, 64));
    GOOD(CU(cuEventRecord)(e, s));
    GOOD(CU(cuStreamWaitEvent)(t, e, 0));
    GOOD(scale(f, y, 2, 0, t));
    assert_int_equal(CU(cuStreamEndCapture)(s, &g),
                     CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    assert_all(y, 1);
    GOOD(CU(cuEventDestroy_v2)(e));
    GOOD(CU(cuModuleUnload)(module));
}

/* while (left) { y = 2 y; left--; } on the card. */
static void loops_stay_in_the_graph(void **state)
{
    (void)state;
    const char *text =
        "#include <cuda_device_runtime_api.h>\n"
        "extern \"C\" __global__ void step(float *y, int *left,\n"
        "                                cudaGraphConditionalHandle h)\n"
        "{\n"
        "    y[0] *= 2;\n"
        "    cudaGraphSetConditional(h, --*left > 0);\n"
        "}\n";
    CUmodule module;
    CUfunction f = driver_function(text, "step", &module);
    float one = 1, result;
    int ten = 10;
    CUdeviceptr y = driver_put(&one, 4), left = driver_put(&ten, 4);
    CUcontext context;
    CUgraph g, same;
    CUgraphNode node;
    CUgraphExec exec;
    CUstream s;
    unsigned long long handle;
    CUgraphNodeParams p = {.type = SIM_NODE_CONDITIONAL};
    GOOD(CU(cuCtxGetCurrent)(&context));
    GOOD(CU(cuStreamCreate)(&s, 1));
    GOOD(CU(cuGraphCreate)(&g, 0));
    GOOD(CU(cuGraphConditionalHandleCreate)(&handle, g, context, 1, 1));
    p.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){handle, 1, 1, NULL, context};
    GOOD(CU(cuGraphAddNode_v2)(&node, g, NULL, NULL, 0, &p));
    GOOD(CU(cuStreamBeginCaptureToGraph)(s, p.conditional.bodies[0], NULL, NULL,
                                         0, 0));
    void *args[] = {&y, &left, &handle};
    GOOD(driver_launch(f, 1, 1, 0, s, args));
    GOOD(CU(cuStreamEndCapture)(s, &same));
    assert_ptr_equal(same, p.conditional.bodies[0]);
    GOOD(CU(cuGraphInstantiateWithFlags)(&exec, g, 0));
    GOOD(CU(cuGraphDestroy)(g));
    GOOD(CU(cuGraphLaunch)(exec, s));
    GOOD(CU(cuStreamSynchronize)(s));
    GOOD(CU(cuMemcpyDtoH_v2)(&result, y, 4));
    assert_true(result == 1024);
    GOOD(CU(cuGraphExecDestroy)(exec));
    GOOD(CU(cuModuleUnload)(module));
}

/* if (left is odd) y += 1 else y *= 2, inside such a loop. */
static void branches_are_taken_in_loops(void **state)
{
    (void)state;
    const char *text =
        "extern \"C\" __device__ void cudaGraphSetConditional(\n"
        "    unsigned long long handle, unsigned value);\n"
        "extern \"C\" __global__ void pick(int *left, unsigned long long h)\n"
        "{ cudaGraphSetConditional(h, *left % 2); }\n"
        "extern \"C\" __global__ void step(float *y, int *left, int way,\n"
        "                                unsigned long long h)\n"
        "{\n"
        "    if (way == 0) y[0] *= 2;\n"
        "    if (way == 1) y[0] += 1;\n"
        "    if (way == 2) cudaGraphSetConditional(h, --*left > 0);\n"
        "}\n";
    CUmodule module;
    CUfunction step = driver_function(text, "step", &module), pick;
    GOOD(CU(cuModuleGetFunction)(&pick, module, "pick"));
    float one = 1, result;
    int four = 4, way[] = {1, 0, 2};
    CUdeviceptr y = driver_put(&one, 4), left = driver_put(&four, 4);
    CUcontext context;
    CUgraph g, body, same;
    CUgraphNode node;
    CUgraphExec exec;
    CUstream s, inner;
    unsigned long long on, odd;
    CUgraphNodeParams p = {.type = SIM_NODE_CONDITIONAL}, q = p;
    GOOD(CU(cuCtxGetCurrent)(&context));
    GOOD(CU(cuStreamCreate)(&s, 1));
    GOOD(CU(cuStreamCreate)(&inner, 1));
    GOOD(CU(cuGraphCreate)(&g, 0));
    GOOD(CU(cuGraphConditionalHandleCreate)(&on, g, context, 1, 1));
    p.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){on, 1, 1, NULL, context};
    GOOD(CU(cuGraphAddNode)(&node, g, NULL, 0, &p));
    body = p.conditional.bodies[0];
    GOOD(CU(cuStreamBeginCaptureToGraph)(s, body, NULL, NULL, 0, 0));
    GOOD(CU(cuGraphConditionalHandleCreate)(&odd, body, context, 0, 1));
    GOOD(driver_launch(pick, 1, 1, 0, s, (void *[]){&left, &odd}));
    const CUgraphNode *last;
    CUgraph now;
    uint64_t id;
    size_t n;
    int status;
    GOOD(CU(cuStreamGetCaptureInfo_v2)(s, &status, &id, &now, &last, &n));
    assert_ptr_equal(now, body);
    q.conditional = (CUDA_CONDITIONAL_NODE_PARAMS){odd, 0, 2, NULL, context};
    GOOD(CU(cuGraphAddNode)(&node, body, last, n, &q));
    GOOD(CU(cuStreamUpdateCaptureDependencies)(s, &node, 1, 1));
    for (int i = 0; i < 2; i++) {
        GOOD(CU(cuStreamBeginCaptureToGraph)(inner, q.conditional.bodies[i],
                                             NULL, NULL, 0, 0));
        GOOD(driver_launch(step, 1, 1, 0, inner,
                           (void *[]){&y, &left, &way[i], &on}));
        GOOD(CU(cuStreamEndCapture)(inner, &same));
    }
    GOOD(driver_launch(step, 1, 1, 0, s, (void *[]){&y, &left, &way[2], &on}));
    GOOD(CU(cuStreamEndCapture)(s, &same));
    GOOD(CU(cuGraphInstantiateWithFlags)(&exec, g, 0));
    GOOD(CU(cuGraphLaunch)(exec, s));
    GOOD(CU(cuStreamSynchronize)(s));
    GOOD(CU(cuMemcpyDtoH_v2)(&result, y, 4));
    assert_true(result == 7); /* (1 * 2 + 1) * 2 + 1 */
    GOOD(CU(cuGraphExecDestroy)(exec));
    GOOD(CU(cuGraphDestroy)(g));
    GOOD(CU(cuModuleUnload)(module));
}

int main(void)
{
    if (!driver_open()) return 1;
    const struct CMUnitTest tests[] = {
        TEST(work_runs_when_waited_for),
        TEST(copies_from_pinned_memory_are_late),
        TEST(graphs_replay_and_are_patched),
        TEST(captures_refuse_what_waits),
        TEST(loops_stay_in_the_graph),
        TEST(branches_are_taken_in_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
