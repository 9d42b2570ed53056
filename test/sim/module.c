/* module.c - a cubin becomes a library of this process; its kernels become
 * functions; a launch is checked and its arguments copied. */
#include "sim.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PLAIN_SHARED = 48 << 10, REGISTERS = 32 };

static void *library_open(const void *data, size_t bytes)
{
    const char *folder = getenv("TMPDIR");
    char path[512];
    snprintf(path, sizeof path, "%s/nabla-sim-XXXXXX",
             folder && *folder ? folder : "/tmp");
    int file = mkstemp(path);
    if (file < 0) return NULL;
    FILE *f = fdopen(file, "wb");
    bool good = f && fwrite(data, 1, bytes, f) == bytes;
    if (f) good = !fclose(f) && good;
    void *library = good ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    unlink(path);
    return library;
}

static CUresult load(sim_card *c, CUmodule *module, const void *image)
{
    sim_header h;
    if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
    memcpy(h.magic, image, sizeof h.magic);
    if (memcmp(h.magic, SIM_MAGIC, sizeof h.magic))
        return CUDA_ERROR_INVALID_IMAGE;
    memcpy(&h, image, sizeof h);
    bool runs = h.virtual || h.arch / 10 == sim_arch() / 10;
    runs = runs && h.arch <= sim_arch();
    if (!runs) return CUDA_ERROR_NO_BINARY_FOR_GPU;
    sim_module *m = calloc(1, sizeof *m);
    if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
    m->card = c;
    m->library = library_open((const char *)image + sizeof h, h.bytes);
    if (m->library) m->image = dlsym(m->library, "sim_image_here");
    if (!m->image) {
        if (m->library) dlclose(m->library);
        free(m);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *module = m;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    SIM_CARD_TURN;
    return load(card, module, image);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                            int *options, void **values)
{
    SIM_CARD_TURN;
    (void)count, (void)options, (void)values;
    return load(card, module, image);
}

CUresult cuModuleGetLoadingMode(int *mode)
{
    SIM_TURN;
    if (!mode) return CUDA_ERROR_INVALID_VALUE;
    *mode = 2;
    return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
    SIM_CARD_TURN;
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    CUresult code = sim_finish(module->card);
    for (sim_function *f = module->functions, *next; f; f = next) {
        next = f->next;
        free(f);
    }
    dlclose(module->library);
    free(module);
    return code;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module,
                             const char *name)
{
    SIM_CARD_TURN;
    if (!function || !name) return CUDA_ERROR_INVALID_VALUE;
    if (!module) return CUDA_ERROR_INVALID_HANDLE;
    for (sim_function *f = module->functions; f; f = f->next)
        if (!strcmp(f->kernel->name, name)) {
            *function = f;
            return CUDA_SUCCESS;
        }
    const sim_kernel *k = module->image->kernels;
    while (k->name && strcmp(k->name, name))
        k++;
    if (!k->name) return CUDA_ERROR_NOT_FOUND;
    sim_function *f = calloc(1, sizeof *f);
    if (!f) return CUDA_ERROR_OUT_OF_MEMORY;
    *f = (sim_function){.module = module, .kernel = k};
    f->dynamic_most = PLAIN_SHARED;
    f->next = module->functions;
    *function = module->functions = f;
    return CUDA_SUCCESS;
}

/* A variable stays where the library has it; kernels may be given its address,
 * and copies reach it as they reach pinned memory. */
CUresult cuModuleGetGlobal_v2(CUdeviceptr *at, size_t *bytes, CUmodule module,
                              const char *name)
{
    SIM_CARD_TURN;
    if (!module || !name) return CUDA_ERROR_INVALID_VALUE;
    void *found = dlsym(module->library, name);
    if (!found) return CUDA_ERROR_NOT_FOUND;
    if (!sim_pinned((uintptr_t)found) && !sim_pin(found, 1))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (at) *at = (uintptr_t)found;
    if (bytes) *bytes = 0;
    return CUDA_SUCCESS;
}

static int fixed_shared(const sim_function *f)
{
    const sim_image *m = f->module->image;
    return m->fixed ? (int)(m->fixed_end - m->fixed) : 0;
}

enum {
    MAX_THREADS = 0,
    SHARED = 1,
    NUM_REGS = 4,
    PTX_VERSION = 5,
    BINARY_VERSION = 6,
    MAX_DYNAMIC_SHARED = 8,
    CARVEOUT = 9
};

CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    SIM_CARD_TURN;
    if (!value) return CUDA_ERROR_INVALID_VALUE;
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    switch (attribute) {
    case MAX_THREADS: *value = function->kernel->threads; break;
    case SHARED: *value = fixed_shared(function); break;
    case NUM_REGS: *value = REGISTERS; break;
    case PTX_VERSION:
    case BINARY_VERSION: *value = function->module->image->arch; break;
    case MAX_DYNAMIC_SHARED: *value = function->dynamic_most; break;
    case CARVEOUT: *value = -1; break;
    default: *value = 0; break;
    }
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    SIM_CARD_TURN;
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    if (attribute != MAX_DYNAMIC_SHARED)
        return attribute == CARVEOUT ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    if (value < 0 || value + fixed_shared(function) > sim_shared_most())
        return CUDA_ERROR_INVALID_VALUE;
    function->dynamic_most = value;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetCacheConfig(CUfunction function, int config)
{
    SIM_CARD_TURN;
    (void)config;
    return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuFuncGetModule(CUmodule *module, CUfunction function)
{
    SIM_CARD_TURN;
    if (!module || !function) return CUDA_ERROR_INVALID_VALUE;
    *module = function->module;
    return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char **name, CUfunction function)
{
    SIM_CARD_TURN;
    if (!name || !function) return CUDA_ERROR_INVALID_VALUE;
    *name = function->kernel->name;
    return CUDA_SUCCESS;
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static size_t offset_of(const sim_kernel *k, size_t index)
{
    size_t at = 0;
    for (size_t i = 0; i < index; i++)
        at = round_up(at, k->parameters[i].align) + k->parameters[i].size;
    return round_up(at, k->parameters[index].align);
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset,
                            size_t *size)
{
    SIM_CARD_TURN;
    if (!function || index >= (size_t)function->kernel->count)
        return CUDA_ERROR_INVALID_VALUE;
    if (offset) *offset = offset_of(function->kernel, index);
    if (size) *size = function->kernel->parameters[index].size;
    return CUDA_SUCCESS;
}

static int occupancy(const sim_function *f, int threads, size_t shared)
{
    int warps = (threads + SIM_WARP - 1) / SIM_WARP;
    int fit = 2048 / (warps * SIM_WARP);
    size_t bytes = shared + (size_t)fixed_shared(f) + 1024;
    int room = (int)((size_t)(sim_shared_most() + 1024) / bytes);
    fit = room < fit ? room : fit;
    return fit < 32 ? fit : 32;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks,
                                                     CUfunction function,
                                                     int threads, size_t shared)
{
    SIM_CARD_TURN;
    if (!blocks || !function || threads < 1) return CUDA_ERROR_INVALID_VALUE;
    *blocks = occupancy(function, threads, shared);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, CUfunction function, int threads, size_t shared,
    unsigned flags)
{
    SIM_CARD_TURN;
    (void)flags;
    if (!blocks || !function || threads < 1) return CUDA_ERROR_INVALID_VALUE;
    *blocks = occupancy(function, threads, shared);
    return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialBlockSize(int *blocks, int *threads,
                                          CUfunction function,
                                          size_t (*shared_of)(int),
                                          size_t shared, int most)
{
    SIM_CARD_TURN;
    if (!blocks || !threads || !function) return CUDA_ERROR_INVALID_VALUE;
    int n = function->kernel->threads;
    *threads = most && most < n ? most : n;
    if (shared_of) shared = shared_of(*threads);
    *blocks = sim_processors() * occupancy(function, *threads, shared);
    return CUDA_SUCCESS;
}

static CUresult fits(const sim_function *f, const unsigned grid[3],
                     const unsigned block[3], unsigned shared)
{
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (!threads || block[0] > 1024 || block[1] > 1024 || block[2] > 64)
        return CUDA_ERROR_INVALID_VALUE;
    if (threads > 1024) return CUDA_ERROR_INVALID_VALUE;
    if (!grid[0] || !grid[1] || !grid[2]) return CUDA_ERROR_INVALID_VALUE;
    if (grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535)
        return CUDA_ERROR_INVALID_VALUE;
    if (threads > (uint64_t)f->kernel->threads)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    bool opted = f->dynamic_most > PLAIN_SHARED;
    uint64_t most = opted
                        ? (uint64_t)f->dynamic_most + (unsigned)fixed_shared(f)
                        : PLAIN_SHARED;
    if ((uint64_t)shared + (unsigned)fixed_shared(f) > most)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* The buffer form of the arguments: key, value, ..., NULL. */
static const char *buffer_of(void **extra)
{
    enum { END = 0, POINTER = 1 };
    for (int i = 0; extra && (uintptr_t)extra[i] != END; i += 2)
        if ((uintptr_t)extra[i] == POINTER) return extra[i + 1];
    return NULL;
}

static void **args_copy(const sim_kernel *k, void **args, const char *buffer)
{
    size_t bytes = round_up((size_t)(k->count + 1) * sizeof(void *), 64);
    size_t at = bytes;
    for (int i = 0; i < k->count; i++)
        bytes = round_up(bytes, 64) + k->parameters[i].size;
    char *room = aligned_alloc(64, round_up(bytes + 1, 64));
    void **copy = (void **)(void *)room;
    for (int i = 0; room && i < k->count; i++) {
        at = round_up(at, 64);
        copy[i] = room + at;
        memcpy(copy[i],
               buffer ? buffer + offset_of(k, (size_t)i) : (char *)args[i],
               k->parameters[i].size);
        at += k->parameters[i].size;
    }
    return copy;
}

CUresult sim_launch_new(sim_launch *l, sim_card *c, CUfunction f,
                        const unsigned grid[3], const unsigned block[3],
                        unsigned shared, void **args, void **extra)
{
    if (!f || f->module->card != c) return CUDA_ERROR_INVALID_HANDLE;
    CUresult code = fits(f, grid, block, shared);
    if (code) return code;
    const char *buffer = args ? NULL : buffer_of(extra);
    if (f->kernel->count && !args && !buffer) return CUDA_ERROR_INVALID_VALUE;
    *l = (sim_launch){.function = f, .shared = shared};
    memcpy(l->grid, grid, sizeof l->grid);
    memcpy(l->block, block, sizeof l->block);
    l->args = args_copy(f->kernel, args, buffer);
    return l->args ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult launch(sim_card *c, CUfunction f, const unsigned grid[3],
                       const unsigned block[3], unsigned shared,
                       CUstream stream, void **args, void **extra,
                       bool together)
{
    sim_work w = {.kind = SIM_KERNEL};
    CUresult code =
        sim_launch_new(&w.launch, c, f, grid, block, shared, args, extra);
    if (code) return code;
    uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
    int threads = (int)(block[0] * block[1] * block[2]);
    int most = sim_processors() * occupancy(f, threads, shared);
    if (together && blocks > (uint64_t)most) {
        free(w.launch.args);
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    w.launch.together = together;
    return sim_put(c, stream, w);
}

CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy,
                        unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **args,
                        void **extra)
{
    SIM_CARD_TURN;
    unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    return launch(card, function, grid, block, shared, stream, args, extra,
                  false);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned gx,
                                   unsigned gy, unsigned gz, unsigned bx,
                                   unsigned by, unsigned bz, unsigned shared,
                                   CUstream stream, void **args)
{
    SIM_CARD_TURN;
    unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    return launch(card, function, grid, block, shared, stream, args, NULL,
                  true);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                          void **args, void **extra)
{
    SIM_CARD_TURN;
    enum { COOPERATIVE = 2 };
    if (!config) return CUDA_ERROR_INVALID_VALUE;
    bool together = false;
    for (unsigned i = 0; i < config->count; i++)
        if (config->attributes[i].id == COOPERATIVE)
            together = config->attributes[i].cooperative;
    return launch(card, function, config->grid, config->block, config->shared,
                  config->stream, args, extra, together);
}
