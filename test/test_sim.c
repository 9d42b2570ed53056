/* test_sim.c - the simulated driver by itself: kernels give what their text
 * says, and what a card refuses is refused, as late as a card does. */
#include "support/sim.h"

#include "sim/api_graph.h"

#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define CU(name)    ((__typeof__(&name))symbol(#name))
#define GOOD(call)  assert_int_equal(call, 0)
#define COUNT(list) ((int)(sizeof(list) / sizeof *(list)))

static void *library;

static void *symbol(const char *name)
{
    void *found = dlsym(library, name);
    if (!found) fail_msg("%s is not exported", name);
    return found;
}

static CUcontext enter(int card)
{
    CUcontext context;
    GOOD(CU(cuInit)(0));
    GOOD(CU(cuDevicePrimaryCtxRetain)(&context, card));
    GOOD(CU(cuCtxSetCurrent)(context));
    return context;
}

/* What a program looks like to its user: compiled, loaded, found. */
static int compile(const char *text, const char *arch, char **cubin, char **log)
{
    nvrtcProgram p;
    const char *options[] = {arch, "--std=c++17"};
    size_t n = 0;
    *cubin = NULL;
    GOOD(CU(nvrtcCreateProgram)(&p, text, "test.cu", 0, NULL, NULL));
    int code = CU(nvrtcCompileProgram)(p, 2, options);
    GOOD(CU(nvrtcGetProgramLogSize)(p, &n));
    *log = malloc(n);
    GOOD(CU(nvrtcGetProgramLog)(p, *log));
    if (!code) {
        GOOD(CU(nvrtcGetCUBINSize)(p, &n));
        *cubin = malloc(n);
        GOOD(CU(nvrtcGetCUBIN)(p, *cubin));
    }
    GOOD(CU(nvrtcDestroyProgram)(&p));
    return code;
}

static CUfunction function(const char *text, const char *name, CUmodule *module)
{
    char *cubin, *log;
    CUfunction f;
    if (compile(text, "--gpu-architecture=sm_90", &cubin, &log))
        fail_msg("%s", log);
    GOOD(CU(cuModuleLoadData)(module, cubin));
    GOOD(CU(cuModuleGetFunction)(&f, *module, name));
    free(cubin);
    free(log);
    return f;
}

static CUdeviceptr put(const void *from, size_t n)
{
    CUdeviceptr at;
    GOOD(CU(cuMemAlloc_v2)(&at, n));
    if (from) GOOD(CU(cuMemcpyHtoD_v2)(at, from, n));
    return at;
}

static int launch(CUfunction f, unsigned grid, unsigned block, unsigned shared,
                  CUstream stream, void **args)
{
    return CU(cuLaunchKernel)(f, grid, 1, 1, block, 1, 1, shared, stream, args,
                              NULL);
}

static int setup(void **state)
{
    (void)state;
    enter(0);
    return 0;
}

/* A fresh context after every test: no fault, no memory, nothing to come. */
static int teardown(void **state)
{
    (void)state;
    unsetenv("NABLA_SIM_FAIL");
    unsetenv("NABLA_SIM_SEED");
    GOOD(CU(cuDevicePrimaryCtxReset_v2)(0));
    assert_int_equal(CU(nabla_sim_count)("memory"), 0);
    return 0;
}

/* Kernels. */

static const char add_text[] =
    "extern \"C\" __global__ void __launch_bounds__(256)\n"
    "add(float *y, const float *__restrict__ a, const float *b, int n)\n"
    "{\n"
    "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "    if (i < n) y[i] = a[i] + b[i];\n"
    "}\n";

static void vectors_add(void **state)
{
    (void)state;
    enum { N = 1000 };
    float a[N], b[N], y[N];
    CUmodule module;
    CUfunction f = function(add_text, "add", &module);
    for (int i = 0; i < N; i++)
        a[i] = (float)i, b[i] = (float)(2 * i);
    CUdeviceptr pa = put(a, sizeof a), pb = put(b, sizeof b),
                py = put(NULL, sizeof y);
    int n = N;
    void *args[] = {&py, &pa, &pb, &n};
    GOOD(launch(f, 4, 256, 0, NULL, args));
    GOOD(CU(cuMemcpyDtoH_v2)(y, py, sizeof y));
    for (int i = 0; i < N; i++)
        assert_true(y[i] == 3.0f * (float)i);
    assert_int_equal(launch(f, 4, 512, 0, NULL, args),
                     CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    GOOD(CU(cuModuleUnload)(module));
}

/* A block's sum: shuffles in a warp, shared memory between warps. */
static const char sum_text[] =
    "__device__ __forceinline__ float warp_sum(float v)\n"
    "{\n"
    "    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);\n"
    "    return v;\n"
    "}\n"
    "extern \"C\" __global__ void sum(float *y, const float4 *x, int n)\n"
    "{\n"
    "    __shared__ float part[32];\n"
    "    float v = 0;\n"
    "    const float4 *row = x + (long long)blockIdx.x * n;\n"
    "    for (int i = threadIdx.x; i < n; i += blockDim.x) {\n"
    "        float4 q = __ldg(&row[i]);\n"
    "        v += (q.x + q.y) + (q.z + q.w);\n"
    "    }\n"
    "    v = warp_sum(v);\n"
    "    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;\n"
    "    __syncthreads();\n"
    "    if (threadIdx.x < 32) {\n"
    "        v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0.0f;\n"
    "        v = warp_sum(v);\n"
    "        if (threadIdx.x == 0) y[blockIdx.x] = v;\n"
    "    }\n"
    "}\n";

static void blocks_sum(void **state)
{
    (void)state;
    enum { ROWS = 7, QUADS = 300 };
    static float x[ROWS][4 * QUADS];
    float y[ROWS];
    CUmodule module;
    CUfunction f = function(sum_text, "sum", &module);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < 4 * QUADS; i++)
            x[r][i] = (float)((r * 31 + i * 7) % 13);
    CUdeviceptr px = put(x, sizeof x), py = put(NULL, sizeof y);
    int n = QUADS;
    void *args[] = {&py, &px, &n};
    for (int seed = 0; seed < 4; seed++) {
        char text[16];
        snprintf(text, sizeof text, "%d", seed);
        setenv("NABLA_SIM_SEED", text, 1);
        GOOD(CU(cuMemsetD8_v2)(py, 0, sizeof y));
        GOOD(launch(f, ROWS, 256, 0, NULL, args));
        GOOD(CU(cuMemcpyDtoH_v2)(y, py, sizeof y));
        for (int r = 0; r < ROWS; r++) {
            float want = 0;
            for (int i = 0; i < 4 * QUADS; i++)
                want += x[r][i];
            assert_true(y[r] == want);
        }
    }
    GOOD(CU(cuModuleUnload)(module));
}

static void dynamic_shared_memory_reverses(void **state)
{
    (void)state;
    enum { N = 1024 };
    const char *text = "extern \"C\" __global__ void turn(int *y, int n)\n"
                       "{\n"
                       "    extern __shared__ __align__(16) int room[];\n"
                       "    room[threadIdx.x] = y[threadIdx.x];\n"
                       "    __syncthreads();\n"
                       "    y[threadIdx.x] = room[n - 1 - threadIdx.x];\n"
                       "}\n";
    int y[N], n = N, most;
    CUmodule module;
    CUfunction f = function(text, "turn", &module);
    for (int i = 0; i < N; i++)
        y[i] = i;
    CUdeviceptr py = put(y, sizeof y);
    void *args[] = {&py, &n};
    GOOD(launch(f, 1, N, sizeof y, NULL, args));
    GOOD(CU(cuMemcpyDtoH_v2)(y, py, sizeof y));
    for (int i = 0; i < N; i++)
        assert_int_equal(y[i], N - 1 - i);
    assert_int_equal(launch(f, 1, N, 100 << 10, NULL, args),
                     CUDA_ERROR_INVALID_VALUE);
    GOOD(CU(cuFuncSetAttribute)(f, 8, 100 << 10));
    GOOD(launch(f, 1, N, 100 << 10, NULL, args));
    GOOD(CU(cuDeviceGetAttribute)(&most, 97, 0));
    assert_int_equal(CU(cuFuncSetAttribute)(f, 8, most + 1),
                     CUDA_ERROR_INVALID_VALUE);
    GOOD(CU(cuModuleUnload)(module));
}

/* Transposed through shared memory, by a grid and blocks of two dimensions. */
static void grids_have_two_dimensions(void **state)
{
    (void)state;
    enum { ROWS = 45, COLUMNS = 70 };
    const char *text =
        "extern \"C\" __global__ void turn(double *y, const double *x, int r,\n"
        "                                int c)\n"
        "{\n"
        "    __shared__ double tile[16][17];\n"
        "    int i = blockIdx.y * 16 + threadIdx.y;\n"
        "    int j = blockIdx.x * 16 + threadIdx.x;\n"
        "    if (i < r && j < c) tile[threadIdx.y][threadIdx.x] = x[i * c + "
        "j];\n"
        "    __syncthreads();\n"
        "    i = blockIdx.y * 16 + threadIdx.x;\n"
        "    j = blockIdx.x * 16 + threadIdx.y;\n"
        "    if (i < r && j < c) y[j * r + i] = "
        "tile[threadIdx.x][threadIdx.y];\n"
        "}\n";
    double x[ROWS][COLUMNS], y[COLUMNS][ROWS];
    CUmodule module;
    CUfunction f = function(text, "turn", &module);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            x[i][j] = i * 1000 + j;
    CUdeviceptr px = put(x, sizeof x), py = put(NULL, sizeof y);
    int r = ROWS, c = COLUMNS;
    void *args[] = {&py, &px, &r, &c};
    GOOD(CU(cuLaunchKernel)(f, 5, 3, 1, 16, 16, 1, 0, NULL, args, NULL));
    GOOD(CU(cuMemcpyDtoH_v2)(y, py, sizeof y));
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            assert_true(y[j][i] == x[i][j]);
    GOOD(CU(cuModuleUnload)(module));
}

/* Halves by assembly and by NVIDIA's headers: the same bits, nearest even. */
static void halves_round_to_even(void **state)
{
    (void)state;
    const char *text =
        "#include <cuda_fp16.h>\n"
        "#include <cuda_bf16.h>\n"
        "extern \"C\" __global__ void k(unsigned short *y, const float *x)\n"
        "{\n"
        "    int i = threadIdx.x;\n"
        "    unsigned short h, b;\n"
        "    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(h) : \"f\"(x[i]));\n"
        "    asm volatile(\"cvt.rn.bf16.f32 %0, %1;\"\n"
        "                 : \"=h\"(b)\n"
        "                 : \"f\"(x[i]));\n"
        "    float back;\n"
        "    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(back) : \"h\"(h));\n"
        "    asm volatile(\"st.global.v2.u16 [%0 + 4], {%1, %2};\" ::\n"
        "                 \"l\"(y + 8 * i), \"h\"(h), \"h\"(b) : \"memory\");\n"
        "    y[8 * i] = __half_as_ushort(__float2half_rn(x[i]));\n"
        "    y[8 * i + 1] = __bfloat16_as_ushort(__float2bfloat16_rn(x[i]));\n"
        "    y[8 * i + 4] = __half_as_ushort(__float2half_rn(back));\n"
        "}\n";
    static const struct {
        float x;
        unsigned short half, bfloat;
    } rows[] = {{0, 0, 0},
                {-0.0f, 0x8000, 0x8000},
                {1, 0x3c00, 0x3f80},
                {1 + 0x1p-11f, 0x3c00, 0x3f80},
                {1 + 0x3p-11f, 0x3c02, 0x3f80},
                {1 + 0x1p-8f, 0x3c04, 0x3f80},
                {1 + 0x3p-8f, 0x3c0c, 0x3f82},
                {65504, 0x7bff, 0x4780},
                {65519, 0x7bff, 0x4780},
                {65520, 0x7c00, 0x4780},
                {-1e30f, 0xfc00, 0xf14a},
                {0x1p-24f, 0x0001, 0x3380},
                {0x1p-25f, 0x0000, 0x3300},
                {0x3p-25f, 0x0002, 0x33c0},
                {0x1p-14f, 0x0400, 0x3880},
                {INFINITY, 0x7c00, 0x7f80}};
    float x[COUNT(rows)];
    unsigned short y[COUNT(rows)][8];
    CUmodule module;
    CUfunction f = function(text, "k", &module);
    for (int i = 0; i < COUNT(rows); i++)
        x[i] = rows[i].x;
    CUdeviceptr px = put(x, sizeof x), py = put(NULL, sizeof y);
    void *args[] = {&py, &px};
    GOOD(launch(f, 1, COUNT(rows), 0, NULL, args));
    GOOD(CU(cuMemcpyDtoH_v2)(y, py, sizeof y));
    for (int i = 0; i < COUNT(rows); i++) {
        assert_int_equal(y[i][0], rows[i].half);
        assert_int_equal(y[i][2], rows[i].half);
        assert_int_equal(y[i][4], rows[i].half);
        assert_int_equal(y[i][1], rows[i].bfloat);
        assert_int_equal(y[i][3], rows[i].bfloat);
    }
    GOOD(CU(cuModuleUnload)(module));
}

/* Streams and graphs. */

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
    return launch(f, 3, 128, 0, s, args);
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
    return put(y, sizeof y);
}

/* Nothing of a stream has run until something waits for it, and then only what
 * it waits for. */
static void work_runs_when_waited_for(void **state)
{
    (void)state;
    CUmodule module;
    CUfunction f = function(scale_text, "scale", &module);
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
    CUdeviceptr y = put(NULL, 8);
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
    CUfunction f = function(scale_text, "scale", &module);
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
    CUfunction f = function(scale_text, "scale", &module);
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
        "extern \"C\" __global__ void step(float *y, int *left,\n"
        "                                cudaGraphConditionalHandle h)\n"
        "{\n"
        "    y[0] *= 2;\n"
        "    cudaGraphSetConditional(h, --*left > 0);\n"
        "}\n";
    CUmodule module;
    CUfunction f = function(text, "step", &module);
    float one = 1, result;
    int ten = 10;
    CUdeviceptr y = put(&one, 4), left = put(&ten, 4);
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
    GOOD(launch(f, 1, 1, 0, s, args));
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

/* Faults. */

typedef struct bad {
    const char *body;
    int code;
} bad;

static void faults_come_late_and_stay(void **state)
{
    (void)state;
    static const bad cases[] = {
        {"p[1 << 20] = 1;", CUDA_ERROR_ILLEGAL_ADDRESS},
        {"p[64] = 1;", CUDA_ERROR_ILLEGAL_ADDRESS},
        {"p[-5000] = 1;", CUDA_ERROR_ILLEGAL_ADDRESS},
        {"*(int *)0 = 1;", CUDA_ERROR_ILLEGAL_ADDRESS},
        {"*host = 1;", CUDA_ERROR_ILLEGAL_ADDRESS},
        {"__shared__ int s[8]; s[p[0] + threadIdx.x] = 1; p[1] = s[3];",
         CUDA_ERROR_ILLEGAL_ADDRESS},
        {"*(float4 *)(p + 1) = make_float4(1, 2, 3, 4);",
         CUDA_ERROR_MISALIGNED_ADDRESS},
        {"if (threadIdx.x < 16) __syncthreads(); else __syncwarp();",
         CUDA_ERROR_ILLEGAL_INSTRUCTION},
        {"if (threadIdx.x < 16) __syncthreads();\n else __syncthreads();",
         CUDA_ERROR_ILLEGAL_INSTRUCTION},
        {"__shfl_xor_sync(1u, p[0], 1);", CUDA_ERROR_ILLEGAL_INSTRUCTION},
        {"__trap();", CUDA_ERROR_LAUNCH_FAILED},
        {"assert(p[0] == 12345);", CUDA_ERROR_ASSERT},
    };
    for (int i = 0; i < COUNT(cases); i++) {
        char text[512];
        int y[64] = {0}, host = 7;
        int *ph = &host;
        CUmodule module;
        CUdeviceptr p = put(y, sizeof y), other;
        CUstream stream;
        snprintf(text, sizeof text,
                 "extern \"C\" __global__ void k(int *p, int *host)\n{\n%s\n}",
                 cases[i].body);
        CUfunction f = function(text, "k", &module);
        void *args[] = {&p, &ph};
        GOOD(CU(cuStreamCreate)(&stream, 1));
        GOOD(launch(f, 2, 32, 0, stream, args));
        GOOD(CU(cuMemAlloc_v2)(&other, 100));
        assert_int_equal(CU(cuStreamSynchronize)(stream), cases[i].code);
        assert_int_equal(CU(cuMemAlloc_v2)(&other, 100), cases[i].code);
        assert_int_equal(launch(f, 1, 1, 0, stream, args), cases[i].code);
        assert_int_equal(CU(cuMemcpyDtoH_v2)(y, p, 4), cases[i].code);
        assert_int_equal(host, 7);
        GOOD(CU(cuDevicePrimaryCtxReset_v2)(0));
        GOOD(CU(cuModuleUnload)(module));
    }
}

int main(void)
{
    char path[4200];
    if (!sim_find(path, sizeof path)) {
        puts("the simulated driver was not built");
        return 77;
    }
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        puts(dlerror());
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(vectors_add, setup, teardown),
        cmocka_unit_test_setup_teardown(blocks_sum, setup, teardown),
        cmocka_unit_test_setup_teardown(dynamic_shared_memory_reverses, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(grids_have_two_dimensions, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(halves_round_to_even, setup, teardown),
        cmocka_unit_test_setup_teardown(work_runs_when_waited_for, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(copies_from_pinned_memory_are_late,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(graphs_replay_and_are_patched, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(captures_refuse_what_waits, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(loops_stay_in_the_graph, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(faults_come_late_and_stay, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
