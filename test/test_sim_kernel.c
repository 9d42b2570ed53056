/* test_sim_kernel.c - kernels give what their text says: threads, warps, blocks
 * and grids of the simulated card, in any order of threads. */
#include "support/driver.h"

#include <math.h>

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
    CUfunction f = driver_function(add_text, "add", &module);
    for (int i = 0; i < N; i++)
        a[i] = (float)i, b[i] = (float)(2 * i);
    CUdeviceptr pa = driver_put(a, sizeof a), pb = driver_put(b, sizeof b),
                py = driver_put(NULL, sizeof y);
    int n = N;
    void *args[] = {&py, &pa, &pb, &n};
    GOOD(driver_launch(f, 4, 256, 0, NULL, args));
    GOOD(CU(cuMemcpyDtoH_v2)(y, py, sizeof y));
    for (int i = 0; i < N; i++)
        assert_true(y[i] == 3.0f * (float)i);
    assert_int_equal(driver_launch(f, 4, 512, 0, NULL, args),
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
    CUfunction f = driver_function(sum_text, "sum", &module);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < 4 * QUADS; i++)
            x[r][i] = (float)((r * 31 + i * 7) % 13);
    CUdeviceptr px = driver_put(x, sizeof x), py = driver_put(NULL, sizeof y);
    int n = QUADS;
    void *args[] = {&py, &px, &n};
    for (int seed = 0; seed < 4; seed++) {
        char text[16];
        snprintf(text, sizeof text, "%d", seed);
        setenv("NABLA_SIM_SEED", text, 1);
        GOOD(CU(cuMemsetD8_v2)(py, 0, sizeof y));
        GOOD(driver_launch(f, ROWS, 256, 0, NULL, args));
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
    CUfunction f = driver_function(text, "turn", &module);
    for (int i = 0; i < N; i++)
        y[i] = i;
    CUdeviceptr py = driver_put(y, sizeof y);
    void *args[] = {&py, &n};
    GOOD(driver_launch(f, 1, N, sizeof y, NULL, args));
    GOOD(CU(cuMemcpyDtoH_v2)(y, py, sizeof y));
    for (int i = 0; i < N; i++)
        assert_int_equal(y[i], N - 1 - i);
    assert_int_equal(driver_launch(f, 1, N, 100 << 10, NULL, args),
                     CUDA_ERROR_INVALID_VALUE);
    GOOD(CU(cuFuncSetAttribute)(f, 8, 100 << 10));
    GOOD(driver_launch(f, 1, N, 100 << 10, NULL, args));
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
    CUfunction f = driver_function(text, "turn", &module);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            x[i][j] = i * 1000 + j;
    CUdeviceptr px = driver_put(x, sizeof x), py = driver_put(NULL, sizeof y);
    int r = ROWS, c = COLUMNS;
    void *args[] = {&py, &px, &r, &c};
    GOOD(CU(cuLaunchKernel)(f, 5, 3, 1, 16, 16, 1, 0, NULL, args, NULL));
    GOOD(CU(cuMemcpyDtoH_v2)(y, py, sizeof y));
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++)
            assert_true(y[j][i] == x[i][j]);
    GOOD(CU(cuModuleUnload)(module));
}

/* What the lanes of a warp do, against the same on the host. */

enum { ROWS = 24, LANES = 64 };

static const char warp_text[] =
    "extern \"C\" __global__ void k(long long *y)\n"
    "{\n"
    "    int i = threadIdx.x, l = i % 32, n = blockDim.x;\n"
    "    unsigned all = ~0u, u = i * 2654435761u;\n"
    "    double d = i * 0.5;\n"
    "    int r = 0;\n"
    "    y[n * r++ + i] = __shfl_sync(all, i, 5);\n"
    "    y[n * r++ + i] = __shfl_sync(all, i, l + 1, 8);\n"
    "    y[n * r++ + i] = __shfl_up_sync(all, i, 3);\n"
    "    y[n * r++ + i] = __shfl_up_sync(all, i, 3, 16);\n"
    "    y[n * r++ + i] = __shfl_down_sync(all, i, 7);\n"
    "    y[n * r++ + i] = __shfl_down_sync(all, i, 7, 16);\n"
    "    y[n * r++ + i] = __shfl_xor_sync(all, i, 9);\n"
    "    y[n * r++ + i] = __shfl_xor_sync(all, i, 9, 4);\n"
    "    y[n * r++ + i] = (long long)(2 * __shfl_xor_sync(all, d, 1));\n"
    "    y[n * r++ + i] = __shfl_sync(all, (long long)i << 40, 31);\n"
    "    y[n * r++ + i] = __ballot_sync(all, i % 3 == 0);\n"
    "    y[n * r++ + i] = __any_sync(all, i == 40);\n"
    "    y[n * r++ + i] = __all_sync(all, i < 40);\n"
    "    y[n * r++ + i] = __match_any_sync(all, l % 5);\n"
    "    y[n * r++ + i] = __reduce_add_sync(all, i);\n"
    "    y[n * r++ + i] = __reduce_min_sync(all, 10 - i);\n"
    "    y[n * r++ + i] = __reduce_max_sync(all, u);\n"
    "    y[n * r++ + i] = __reduce_xor_sync(all, u);\n"
    "    y[n * r++ + i] = __syncthreads_count(i % 7 == 0);\n"
    "    y[n * r++ + i] = __syncthreads_or(i == 9);\n"
    "    y[n * r++ + i] = __syncthreads_and(i != 9);\n"
    "    unsigned half = l < 16 ? 0xffffu : 0xffff0000u;\n"
    "    y[n * r++ + i] = __reduce_add_sync(half, i);\n"
    "    if (l < 16) i += __shfl_xor_sync(half, i, 15);\n"
    "    y[n * r++ + threadIdx.x] = i;\n"
    "    if (l >= 8) return;\n"
    "    y[n * r++ + threadIdx.x] = __reduce_add_sync(all, 1);\n"
    "}\n";

static int shuffled(int i, int to, int width, bool within)
{
    int lane = i % 32, first = lane & -width;
    bool out = within && (to < first || to >= first + width);
    return i - lane + (out ? lane : to);
}

static long long wanted(int row, int i)
{
    int l = i % 32, w = i - l, bits = 0;
    unsigned most = 0, xored = 0;
    for (int k = 0; k < 32; k++) {
        unsigned u = (unsigned)(w + k) * 2654435761u;
        most = u > most ? u : most;
        xored ^= u;
        if (row == 10) bits |= (int)((unsigned)((w + k) % 3 == 0) << k);
        if (row == 13) bits |= (int)((unsigned)(k % 5 == l % 5) << k);
    }
    int half = w + (l & 16);
    switch (row) {
    case 0: return w + 5;
    case 1: return w + (l & -8) + (l + 1) % 8;
    case 2: return shuffled(i, l - 3, 32, true);
    case 3: return shuffled(i, l - 3, 16, true);
    case 4: return shuffled(i, l + 7, 32, true);
    case 5: return shuffled(i, l + 7, 16, true);
    case 6: return w + (l ^ 9);
    case 7: return (l ^ 9) < (l & -4) + 4 ? w + (l ^ 9) : i;
    case 8: return i ^ 1;
    case 9: return (long long)(w + 31) << 40;
    case 10:
    case 13: return (unsigned)bits;
    case 11: return w == 32;
    case 12: return w == 0;
    case 14: return 32 * w + 31 * 16;
    case 15: return 10 - (w + 31);
    case 16: return most;
    case 17: return xored;
    case 18: return 10;
    case 19: return 1;
    case 20: return 0;
    case 21: return 16 * half + 120;
    case 22: return l < 16 ? i + w + (l ^ 15) : i;
    case 23: return l < 8 ? 8 : -1;
    default: return 0;
    }
}

static void lanes_exchange(void **state)
{
    (void)state;
    static long long y[ROWS][LANES];
    CUmodule module;
    CUfunction f = driver_function(warp_text, "k", &module);
    for (int seed = 0; seed < 3; seed++) {
        char text[16];
        CUdeviceptr at = driver_put(NULL, sizeof y);
        void *args[] = {&at};
        snprintf(text, sizeof text, "%d", seed);
        setenv("NABLA_SIM_SEED", text, 1);
        GOOD(driver_launch(f, 1, LANES, 0, NULL, args));
        GOOD(CU(cuMemcpyDtoH_v2)(y, at, sizeof y));
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < LANES; i++)
                if (y[r][i] != wanted(r, i))
                    fail_msg("row %d, thread %d: %lld is not %lld", r, i,
                             y[r][i], wanted(r, i));
    }
    GOOD(CU(cuModuleUnload)(module));
}

/* A barrier of the whole grid, spun on; each block keeps its shared memory. */
static void blocks_run_together(void **state)
{
    (void)state;
    const char *text =
        "__device__ void meet(unsigned *at, unsigned blocks)\n"
        "{\n"
        "    __syncthreads();\n"
        "    if (threadIdx.x == 0) {\n"
        "        unsigned turn = atomicAdd(at, 1) / blocks + 1;\n"
        "        while (atomicAdd(at, 0) < turn * blocks) __nanosleep(20);\n"
        "    }\n"
        "    __syncthreads();\n"
        "}\n"
        "extern \"C\" __global__ void k(int *y, unsigned *at)\n"
        "{\n"
        "    __shared__ int mine[32];\n"
        "    extern __shared__ int more[];\n"
        "    mine[threadIdx.x] = more[threadIdx.x] = blockIdx.x;\n"
        "    for (int i = 0; i < 5; i++) {\n"
        "        int from = (blockIdx.x + 1) % gridDim.x;\n"
        "        int v = y[from * 32 + threadIdx.x];\n"
        "        meet(at, gridDim.x);\n"
        "        y[blockIdx.x * 32 + threadIdx.x] = v;\n"
        "        meet(at, gridDim.x);\n"
        "    }\n"
        "    y[blockIdx.x * 32 + threadIdx.x] +=\n"
        "        1000 * mine[threadIdx.x] + 100000 * more[threadIdx.x];\n"
        "}\n";
    int y[6 * 32], zero = 0;
    CUmodule module;
    CUfunction f = driver_function(text, "k", &module);
    for (int i = 0; i < 6 * 32; i++)
        y[i] = i / 32;
    CUdeviceptr py = driver_put(y, sizeof y), at = driver_put(&zero, 4);
    void *args[] = {&py, &at};
    GOOD(CU(cuLaunchCooperativeKernel)(f, 6, 1, 1, 32, 1, 1, 128, NULL, args));
    GOOD(CU(cuMemcpyDtoH_v2)(y, py, sizeof y));
    for (int i = 0; i < 6 * 32; i++)
        assert_int_equal(y[i], (i / 32 + 5) % 6 + 101000 * (i / 32));
    assert_int_equal(
        CU(cuLaunchCooperativeKernel)(f, 100000, 1, 1, 32, 1, 1, 0, NULL, args),
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    GOOD(CU(cuModuleUnload)(module));
}

/* Two halves in a word; a NaN stays one. */
static void extremes_of_halves_go_in_pairs(void **state)
{
    (void)state;
    const char *text =
        "extern \"C\" __global__ void k(unsigned *y, const unsigned *x)\n"
        "{\n"
        "    unsigned a = x[0], b = x[1], c = x[2];\n"
        "    asm(\"max.NaN.bf16x2 %0, %1, %2;\" : \"=r\"(y[0]) : \"r\"(a), "
        "\"r\"(b));\n"
        "    asm(\"min.NaN.bf16x2 %0, %1, %2;\" : \"=r\"(y[1]) : \"r\"(a), "
        "\"r\"(b));\n"
        "    asm(\"max.NaN.bf16x2 %0, %0, %1;\" : \"+r\"(c) : \"r\"(a));\n"
        "    y[2] = c;\n"
        "    asm(\"max.NaN.f16x2 %0, %1, %2;\" : \"=r\"(y[3]) : \"r\"(a), "
        "\"r\"(b));\n"
        "}\n";
    const unsigned x[] = {0x3f80c000, 0x40003f80, 0x7fc0ff80};
    unsigned y[4];
    CUmodule module;
    CUfunction f = driver_function(text, "k", &module);
    CUdeviceptr px = driver_put(x, sizeof x), py = driver_put(NULL, sizeof y);
    void *args[] = {&py, &px};
    GOOD(driver_launch(f, 1, 1, 0, NULL, args));
    GOOD(CU(cuMemcpyDtoH_v2)(y, py, sizeof y));
    assert_int_equal(y[0], 0x40003f80);
    assert_int_equal(y[1], 0x3f80c000);
    assert_true((y[2] >> 16 & 0x7fff) > 0x7f80); /* no number */
    assert_int_equal(y[2] & 0xffff, 0xc000);
    assert_int_equal(y[3], 0x40003f80);
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
    CUfunction f = driver_function(text, "k", &module);
    for (int i = 0; i < COUNT(rows); i++)
        x[i] = rows[i].x;
    CUdeviceptr px = driver_put(x, sizeof x), py = driver_put(NULL, sizeof y);
    void *args[] = {&py, &px};
    GOOD(driver_launch(f, 1, COUNT(rows), 0, NULL, args));
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

/* Of a number that needs no rounding. */
static unsigned short bfloat(float x)
{
    unsigned bits;
    memcpy(&bits, &x, sizeof bits);
    return (unsigned short)(bits >> 16);
}

/* A product of 16x16 and 16x8 by one warp; ldmatrix turns the second. */
static void warps_multiply_matrices(void **state)
{
    (void)state;
    const char *text =
        "typedef unsigned short u16;\n"
        "extern \"C\" __global__ void k(float *y, const u16 *a, const u16 *b)\n"
        "{\n"
        "    __shared__ __align__(16) u16 sa[16][16];\n"
        "    __shared__ __align__(16) u16 sb[16][8];\n"
        "    int l = threadIdx.x;\n"
        "    for (int i = l; i < 256; i += 32) sa[i / 16][i % 16] = a[i];\n"
        "    for (int i = l; i < 128; i += 32) sb[i / 8][i % 8] = b[i];\n"
        "    __syncwarp();\n"
        "    unsigned r[4], q[2];\n"
        "    float d[4] = {1, 2, 3, 4};\n"
        "    unsigned pa = __cvta_generic_to_shared(\n"
        "        &sa[l % 16][l / 16 * 8]);\n"
        "    unsigned pb = __cvta_generic_to_shared(&sb[l % 16][0]);\n"
        "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 \"\n"
        "                 \"{%0, %1, %2, %3}, [%4];\"\n"
        "                 : \"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]),\n"
        "                   \"=r\"(r[3])\n"
        "                 : \"r\"(pa));\n"
        "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 \"\n"
        "                 \"{%0, %1}, [%2];\"\n"
        "                 : \"=r\"(q[0]), \"=r\"(q[1]) : \"r\"(pb));\n"
        "    asm volatile(\n"
        "        \"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 \"\n"
        "        \"{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, \"\n"
        "        \"{%0, %1, %2, %3};\"\n"
        "        : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])\n"
        "        : \"r\"(r[0]), \"r\"(r[1]), \"r\"(r[2]), \"r\"(r[3]),\n"
        "          \"r\"(q[0]), \"r\"(q[1]));\n"
        "    for (int i = 0; i < 4; i++)\n"
        "        y[(l / 4 + 8 * (i / 2)) * 8 + 2 * (l % 4) + i % 2] = d[i];\n"
        "}\n";
    unsigned short a[16][16], b[16][8];
    float y[16][8];
    CUmodule module;
    CUfunction f = driver_function(text, "k", &module);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++)
            a[i][j] = bfloat((float)((i * 5 + j * 3) % 7 - 3));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++)
            b[i][j] = bfloat((float)((i * 3 + j * 5) % 9 - 4));
    CUdeviceptr py = driver_put(NULL, sizeof y), pa = driver_put(a, sizeof a),
                pb = driver_put(b, sizeof b);
    void *args[] = {&py, &pa, &pb};
    GOOD(driver_launch(f, 1, 32, 0, NULL, args));
    GOOD(CU(cuMemcpyDtoH_v2)(y, py, sizeof y));
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 8; j++) {
            int want = 1 + 2 * (i / 8) + j % 2;
            for (int k = 0; k < 16; k++)
                want += ((i * 5 + k * 3) % 7 - 3) * ((k * 3 + j * 5) % 9 - 4);
            assert_true(y[i][j] == (float)want);
        }
    GOOD(CU(cuModuleUnload)(module));
}

int main(void)
{
    if (!driver_open()) return 1;
    const struct CMUnitTest tests[] = {
        TEST(vectors_add),
        TEST(blocks_sum),
        TEST(dynamic_shared_memory_reverses),
        TEST(grids_have_two_dimensions),
        TEST(lanes_exchange),
        TEST(blocks_run_together),
        TEST(extremes_of_halves_go_in_pairs),
        TEST(halves_round_to_even),
        TEST(warps_multiply_matrices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
