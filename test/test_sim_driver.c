/* test_sim_driver.c - what a card or a compiler refuses, the simulated one
 * refuses, as late as a card does; and what settings make of it. */
#include "support/driver.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static const char twice_text[] =
    "extern \"C\" __global__ void twice(int *y) { y[threadIdx.x] *= 2; }\n";

/* Four numbers by themselves to memory of the block's. */
#define COPY(to, from)                                                \
    "__shared__ __align__(16) int s[8];\n"                            \
    "asm volatile(\"cp.async.ca.shared.global [%0], [%1], 16;\" ::\n" \
    "    \"r\"((unsigned)__cvta_generic_to_shared(" to ")),\n"        \
    "    \"l\"(" from ") : \"memory\");\n"                            \
    "asm volatile(\"cp.async.wait_all;\" ::: \"memory\"); p[0] = s[0];"

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
        {"*(int *)(long long)p[0] = 1;", CUDA_ERROR_ILLEGAL_ADDRESS},
        {"*host = 1;", CUDA_ERROR_ILLEGAL_ADDRESS},
        {"__shared__ int s[8]; s[p[0] + threadIdx.x] = 1; p[1] = s[3];",
         CUDA_ERROR_ILLEGAL_ADDRESS},
        {"*(float4 *)(p + 1) = make_float4(1, 2, 3, 4);",
         CUDA_ERROR_MISALIGNED_ADDRESS},
        {COPY("s", "s + 4"), CUDA_ERROR_INVALID_ADDRESS_SPACE},
        {COPY("p", "p + 4"), CUDA_ERROR_INVALID_ADDRESS_SPACE},
        {COPY("s", "p + 1"), CUDA_ERROR_MISALIGNED_ADDRESS},
        {COPY("s + 1", "p"), CUDA_ERROR_MISALIGNED_ADDRESS},
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
        CUdeviceptr p = driver_put(y, sizeof y), other;
        CUstream stream;
        snprintf(text, sizeof text,
                 "extern \"C\" __global__ void k(int *p, int *host)\n{\n%s\n}",
                 cases[i].body);
        CUfunction f = driver_function(text, "k", &module);
        void *args[] = {&p, &ph};
        GOOD(CU(cuStreamCreate)(&stream, 1));
        GOOD(driver_launch(f, 2, 32, 0, stream, args));
        GOOD(CU(cuMemAlloc_v2)(&other, 100));
        assert_int_equal(CU(cuStreamSynchronize)(stream), cases[i].code);
        assert_int_equal(CU(cuMemAlloc_v2)(&other, 100), cases[i].code);
        assert_int_equal(driver_launch(f, 1, 1, 0, stream, args),
                         cases[i].code);
        assert_int_equal(CU(cuMemcpyDtoH_v2)(y, p, 4), cases[i].code);
        assert_int_equal(host, 7);
        GOOD(CU(cuDevicePrimaryCtxReset_v2)(0));
        GOOD(CU(cuModuleUnload)(module));
    }
}

/* The compiler. */

static void errors_are_in_the_log(void **state)
{
    (void)state;
    char *cubin, *log;
    CUmodule module;
    assert_int_equal(driver_compile("extern \"C\" __global__ void k(int *p)\n"
                                    "{\n"
                                    "    p[0] = missing;\n"
                                    "}\n",
                                    "-arch=sm_90", &cubin, &log),
                     NVRTC_ERROR_COMPILATION);
    assert_non_null(strstr(log, "test.cu:3"));
    assert_non_null(strstr(log, "missing"));
    free(log);
    assert_int_equal(driver_compile("", "-arch=sm_12", &cubin, &log),
                     NVRTC_ERROR_INVALID_OPTION);
    assert_non_null(strstr(log, "sm_12"));
    free(log);
    assert_int_equal(driver_compile("", "--what", &cubin, &log),
                     NVRTC_ERROR_INVALID_OPTION);
    free(log);
    GOOD(driver_compile(twice_text, "-arch=sm_80", &cubin, &log));
    assert_int_equal(CU(cuModuleLoadData)(&module, cubin),
                     CUDA_ERROR_NO_BINARY_FOR_GPU);
    cubin[0] ^= 1;
    assert_int_equal(CU(cuModuleLoadData)(&module, cubin),
                     CUDA_ERROR_INVALID_IMAGE);
    free(cubin);
    free(log);
}

static void templates_are_named(void **state)
{
    (void)state;
    const char *text = "template <class T, int N> __global__ void k(T *y)\n"
                       "{\n"
                       "    __shared__ T s[N];\n"
                       "    s[threadIdx.x] = (T)N / 2;\n"
                       "    __syncthreads();\n"
                       "    y[threadIdx.x] = s[N - 1 - threadIdx.x];\n"
                       "}\n";
    const char *options[] = {"--gpu-architecture=sm_90a"}, *name;
    nvrtcProgram p;
    CUmodule module;
    CUfunction f;
    size_t n;
    double y[5];
    GOOD(CU(nvrtcCreateProgram)(&p, text, NULL, 0, NULL, NULL));
    GOOD(CU(nvrtcAddNameExpression)(p, "k<double, 5>"));
    GOOD(CU(nvrtcCompileProgram)(p, 1, options));
    GOOD(CU(nvrtcGetLoweredName)(p, "k<double, 5>", &name));
    GOOD(CU(nvrtcGetCUBINSize)(p, &n));
    char *cubin = malloc(n);
    GOOD(CU(nvrtcGetCUBIN)(p, cubin));
    GOOD(CU(cuModuleLoadData)(&module, cubin));
    GOOD(CU(cuModuleGetFunction)(&f, module, name));
    assert_int_equal(CU(cuModuleGetFunction)(&f, module, "k"),
                     CUDA_ERROR_NOT_FOUND);
    CUdeviceptr at = driver_put(NULL, sizeof y);
    void *args[] = {&at};
    GOOD(driver_launch(f, 1, 5, 0, NULL, args));
    GOOD(CU(cuMemcpyDtoH_v2)(y, at, sizeof y));
    for (int i = 0; i < 5; i++)
        assert_true(y[i] == 2.5);
    free(cubin);
    GOOD(CU(nvrtcDestroyProgram)(&p));
    GOOD(CU(cuModuleUnload)(module));
}

/* Settings. */

static void calls_fail_when_told(void **state)
{
    (void)state;
    CUdeviceptr at;
    setenv("NABLA_SIM_FAIL", "cuStreamCreate:1,cuMemAlloc:3,cuMemsetD8:2+:77",
           1);
    CUstream s;
    assert_int_equal(CU(cuStreamCreate)(&s, 1), CUDA_ERROR_UNKNOWN);
    GOOD(CU(cuStreamCreate)(&s, 1));
    GOOD(CU(cuMemAlloc_v2)(&at, 8));
    GOOD(CU(cuMemAlloc_v2)(&at, 8));
    assert_int_equal(CU(cuMemAlloc_v2)(&at, 8), CUDA_ERROR_OUT_OF_MEMORY);
    GOOD(CU(cuMemAlloc_v2)(&at, 8));
    GOOD(CU(cuMemsetD8_v2)(at, 0, 8));
    assert_int_equal(CU(cuMemsetD8_v2)(at, 0, 8), 77);
    assert_int_equal(CU(cuMemsetD8_v2)(at, 0, 8), 77);
    unsetenv("NABLA_SIM_FAIL");
    GOOD(CU(cuMemsetD8_v2)(at, 0, 8));
}

/* A process of its own: what cuInit reads is read once. */
static int status_of(void (*body)(void))
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        signal(SIGSEGV, SIG_DFL);
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

#define NEED(x)             \
    do {                    \
        if (!(x)) _exit(1); \
    } while (0)

static CUcontext enter_card(int card)
{
    CUcontext c;
    NEED(!CU(cuInit)(0) && !CU(cuDevicePrimaryCtxRetain)(&c, card));
    NEED(!CU(cuCtxSetCurrent)(c));
    return c;
}

static void touch(void)
{
    CUdeviceptr at;
    enter_card(0);
    NEED(!CU(cuMemAlloc_v2)(&at, 4096));
    *(volatile char *)(uintptr_t)at = 1;
}

static void touch_unguarded(void)
{
    setenv("NABLA_SIM_GUARD", "0", 1);
    touch();
}

static void host_code_cannot_touch(void **state)
{
    (void)state;
    assert_true(WIFSIGNALED(status_of(touch)));
    assert_int_equal(status_of(touch_unguarded), 0);
}

static void small(void)
{
    CUdeviceptr a, b;
    size_t left, total;
    int value;
    setenv("NABLA_SIM_MEMORY", "1000000", 1);
    setenv("NABLA_SIM_ARCH", "86", 1);
    enter_card(0);
    NEED(!CU(cuMemAlloc_v2)(&a, 600000));
    NEED(CU(cuMemAlloc_v2)(&b, 600000) == CUDA_ERROR_OUT_OF_MEMORY);
    NEED(!CU(cuMemGetInfo_v2)(&left, &total) && total == 1000000);
    NEED(left == 1000000 - 600064);
    NEED(!CU(cuMemFree_v2)(a) && !CU(cuMemAlloc_v2)(&b, 600000));
    NEED(CU(cuMemFree_v2)(a) == CUDA_ERROR_INVALID_VALUE);
    NEED(!CU(cuDeviceGetAttribute)(&value, 76, 0) && value == 6);
}

static void none(void)
{
    setenv("NABLA_SIM_CARDS", "0", 1);
    NEED(CU(cuInit)(0) == CUDA_ERROR_NO_DEVICE);
}

/* Copies go between cards; a kernel reaches its own, unless told more. */
static void two(void)
{
    CUcontext first, second, c;
    CUdeviceptr a, b;
    CUmodule module;
    int n = 0, x = 7, y = 0;
    setenv("NABLA_SIM_CARDS", "2", 1);
    second = enter_card(1);
    NEED(!CU(cuMemAlloc_v2)(&b, 4));
    first = enter_card(0);
    NEED(!CU(cuDeviceGetCount)(&n) && n == 2);
    NEED(!CU(cuMemAlloc_v2)(&a, 4) && !CU(cuMemcpyHtoD_v2)(a, &x, 4));
    NEED(!CU(cuMemcpyPeer)(b, second, a, first, 4));
    NEED(!CU(cuPointerGetAttribute)(&c, 1, b) && c == second);
    CUfunction f = driver_function(twice_text, "twice", &module);
    void *args[] = {&b};
    NEED(!CU(cuCtxEnablePeerAccess)(second, 0));
    NEED(!driver_launch(f, 1, 1, 0, NULL, args) && !CU(cuCtxSynchronize)());
    NEED(!CU(cuCtxDisablePeerAccess)(second));
    NEED(!driver_launch(f, 1, 1, 0, NULL, args));
    NEED(CU(cuCtxSynchronize)() == CUDA_ERROR_ILLEGAL_ADDRESS);
    NEED(!CU(cuCtxSetCurrent)(second));
    NEED(!CU(cuMemcpyDtoH_v2)(&y, b, 4) && y == 14);
}

static void settings_are_kept_to(void **state)
{
    (void)state;
    assert_int_equal(status_of(small), 0);
    assert_int_equal(status_of(none), 0);
    assert_int_equal(status_of(two), 0);
}

int main(void)
{
    if (!driver_open()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(host_code_cannot_touch),
        cmocka_unit_test(settings_are_kept_to),
        TEST(faults_come_late_and_stay),
        TEST(errors_are_in_the_log),
        TEST(templates_are_named),
        TEST(calls_fail_when_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
