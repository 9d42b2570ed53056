/* driver.c - opening and calling the simulated driver. */
#include "support/driver.h"

#include "support/sim.h"

#include <dlfcn.h>

static void *library;

void *driver_symbol(const char *name)
{
    void *found = dlsym(library, name);
    if (!found) fail_msg("%s is not exported", name);
    return found;
}

/* What a program looks like to its user: compiled, loaded, found. */
int driver_compile(const char *text, const char *arch, char **cubin, char **log)
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

CUfunction driver_function(const char *text, const char *name, CUmodule *module)
{
    char *cubin, *log;
    CUfunction f;
    if (driver_compile(text, "--gpu-architecture=sm_90", &cubin, &log))
        fail_msg("%s", log);
    GOOD(CU(cuModuleLoadData)(module, cubin));
    GOOD(CU(cuModuleGetFunction)(&f, *module, name));
    free(cubin);
    free(log);
    return f;
}

CUdeviceptr driver_put(const void *from, size_t n)
{
    CUdeviceptr at;
    GOOD(CU(cuMemAlloc_v2)(&at, n));
    if (from) GOOD(CU(cuMemcpyHtoD_v2)(at, from, n));
    return at;
}

int driver_launch(CUfunction f, unsigned grid, unsigned block, unsigned shared,
                  CUstream stream, void **args)
{
    return CU(cuLaunchKernel)(f, grid, 1, 1, block, 1, 1, shared, stream, args,
                              NULL);
}

int driver_setup(void **state)
{
    (void)state;
    CUcontext context;
    GOOD(CU(cuInit)(0));
    GOOD(CU(cuDevicePrimaryCtxRetain)(&context, 0));
    GOOD(CU(cuCtxSetCurrent)(context));
    return 0;
}

int driver_teardown(void **state)
{
    (void)state;
    unsetenv("NABLA_SIM_FAIL");
    unsetenv("NABLA_SIM_SEED");
    GOOD(CU(cuDevicePrimaryCtxReset_v2)(0));
    assert_int_equal(CU(nabla_sim_count)("memory"), 0);
    return 0;
}

bool driver_open(void)
{
    char path[4200];
    bool found = sim_find(path, sizeof path);
    library = found ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!library) puts(found ? dlerror() : "there is no simulated driver");
    return library;
}
