/* shim.h - CUDA C as C++ of the host: what NVRTC knows without a header, for
 * one thread at a time.  A kernel's text follows, in an unnamed namespace, so
 * that its templates stay local; then nvrtc.c adds the table of its kernels.
 * No standard headers: a compile must take milliseconds. */
#ifndef SIM_SHIM_H
#define SIM_SHIM_H

#include "port.h"

#define __CUDACC__           1
#define __CUDACC_RTC__       1
#define __CUDA_ARCH__        (SIM_ARCH * 10)
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_VERSION       13000
#define __global__           __attribute__((noinline))
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__    __attribute__((noinline))
#define __shared__      static __attribute__((section("sim_shared")))
#define __constant__
#define __managed__
#define __restrict __restrict__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(n)         __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __inline__ inline
#define __nv_pure__ __attribute__((pure))

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef long long clock_t;
typedef unsigned long long cudaGraphConditionalHandle;

extern "C" {
char sim_dynamic[SIM_DYNAMIC_MOST]
    __attribute__((aligned(4096), visibility("hidden")));
extern char __start_sim_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_sim_shared[] __attribute__((weak, visibility("hidden")));
int printf(const char *, ...);
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
}

static const sim_host *sim_host_now;

/* What -fsanitize=alignment,bounds calls: accesses a card would refuse. */
extern "C" {
__attribute__((visibility("hidden"))) void
__ubsan_handle_type_mismatch_v1(void *, void *)
{
    sim_host_now->stop(716);
}
__attribute__((visibility("hidden"))) void __ubsan_handle_out_of_bounds(void *,
                                                                        void *)
{
    sim_host_now->stop(700);
}

/* What a driver has besides, for those who declare it. */
__attribute__((visibility("hidden"))) void
cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value)
{
    sim_host_now->condition(handle, value);
}
}

#include "shim_types.h"

static uint3 threadIdx, blockIdx;
static dim3 blockDim, gridDim;
static const int warpSize = 32;

/* Threads meet: of a block, of a warp. */
#define __syncthreads()         sim_barrier(__LINE__, 0)
#define __syncthreads_count(p)  sim_barrier(__LINE__, (p) != 0)
#define __syncthreads_or(p)     (sim_barrier(__LINE__, (p) != 0) != 0)
#define __syncthreads_and(p)    (sim_barrier(__LINE__, (p) == 0) == 0)
#define __syncwarp(...)         sim_meet(__LINE__, ##__VA_ARGS__)
#define __shfl_sync(...)        sim_shuffle(SIM_SHUFFLE, __LINE__, __VA_ARGS__)
#define __shfl_up_sync(...)     sim_shuffle(SIM_UP, __LINE__, __VA_ARGS__)
#define __shfl_down_sync(...)   sim_shuffle(SIM_DOWN, __LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...)    sim_shuffle(SIM_ACROSS, __LINE__, __VA_ARGS__)
#define __ballot_sync(m, p)     sim_ballot(__LINE__, m, (p) != 0)
#define __any_sync(m, p)        (sim_ballot(__LINE__, m, (p) != 0) != 0)
#define __all_sync(m, p)        (sim_ballot(__LINE__, m, (p) == 0) == 0)
#define __match_any_sync(m, v)  sim_match(__LINE__, m, v)
#define __reduce_add_sync(m, v) sim_reduce(SIM_ADD, SIM_ADD, __LINE__, m, v)
#define __reduce_min_sync(m, v) sim_reduce(SIM_MIN, SIM_UMIN, __LINE__, m, v)
#define __reduce_max_sync(m, v) sim_reduce(SIM_MAX, SIM_UMAX, __LINE__, m, v)
#define __reduce_and_sync(m, v) sim_reduce(SIM_AND, SIM_AND, __LINE__, m, v)
#define __reduce_or_sync(m, v)  sim_reduce(SIM_OR, SIM_OR, __LINE__, m, v)
#define __reduce_xor_sync(m, v) sim_reduce(SIM_XOR, SIM_XOR, __LINE__, m, v)

static inline int sim_barrier(int line, int yes)
{
    return sim_host_now->barrier(line, yes);
}

static inline unsigned long long sim_together(int what, int line, unsigned mask,
                                              int operand, int width,
                                              unsigned long long value)
{
    sim_lanes l = {what, line, mask, operand, width, value};
    return sim_host_now->lanes(&l);
}

static inline void sim_meet(int line, unsigned mask = 0xffffffffu)
{
    sim_together(SIM_MEET, line, mask, 0, 32, 0);
}

template <class T>
static inline T sim_shuffle(int what, int line, unsigned mask, T value,
                            int operand, int width = 32)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 64 bits");
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = sim_together(what, line, mask, operand, width, bits);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline unsigned sim_ballot(int line, unsigned mask, int yes)
{
    return (unsigned)sim_together(SIM_BALLOT, line, mask, 0, 32, yes);
}

template <class T>
static inline unsigned sim_match(int line, unsigned mask, T value)
{
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    return (unsigned)sim_together(SIM_MATCH, line, mask, 0, 32, bits);
}

static inline unsigned sim_reduce(int, int what, int line, unsigned mask,
                                  unsigned value)
{
    return (unsigned)sim_together(what, line, mask, 0, 32, value);
}

static inline int sim_reduce(int what, int, int line, unsigned mask, int value)
{
    return (int)sim_together(what, line, mask, 0, 32, (long long)value);
}

/* The lanes that exist: an upper bound, as the CUDA C guide allows no more. */
static inline unsigned __activemask(void)
{
    unsigned n = blockDim.x * blockDim.y * blockDim.z;
    unsigned t =
        threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    unsigned left = n - (t & ~31u);
    return left >= 32 ? ~0u : (1u << left) - 1;
}

static inline void __threadfence(void)
{
    sim_host_now->pause();
}

static inline void __threadfence_block(void)
{
    sim_host_now->pause();
}

static inline void __threadfence_system(void)
{
    sim_host_now->pause();
}

static inline void __nanosleep(unsigned)
{
    sim_host_now->pause();
}

static inline void __trap(void)
{
    sim_host_now->stop(719);
}

static inline void __brkpt(void)
{
}

static inline void sim_assert(bool holds)
{
    if (!holds) sim_host_now->stop(710);
}

#ifdef NDEBUG
#define assert(x) ((void)0)
#else
#define assert(x) sim_assert(x)
#endif

static inline long long clock64(void)
{
    return (long long)__builtin_ia32_rdtsc();
}

static inline int clock(void)
{
    return (int)clock64();
}

static inline unsigned long long __globaltimer(void)
{
    return __builtin_ia32_rdtsc();
}

#include "shim_atomic.h"
#include "shim_math.h"
#include "shim_mma.h"

/* From the driver's void **args to a call, for any list of parameters. */
template <class T> struct sim_is_pointer {
    enum { yes = 0 };
};

template <class T> struct sim_is_pointer<T *> {
    enum { yes = 1 };
};

template <int... I> struct sim_indices {
};

template <int N, int... I> struct sim_count : sim_count<N - 1, N - 1, I...> {
};

template <int... I> struct sim_count<0, I...> {
    typedef sim_indices<I...> type;
};

template <class... A, int... I>
static inline __attribute__((always_inline)) void
sim_spread(void (*f)(A...), void **args, sim_indices<I...>)
{
    (void)args;
    f(*(A *)args[I]...);
}

template <class... A>
static inline __attribute__((always_inline)) void sim_call(void (*f)(A...),
                                                           void **args)
{
    sim_spread(f, args, typename sim_count<sizeof...(A)>::type());
}

template <class... A> struct sim_signature {
    static const sim_parameter list[sizeof...(A) + 1];
};

template <class... A>
const sim_parameter sim_signature<A...>::list[sizeof...(A) + 1] = {
    {sizeof(A), alignof(A), sim_is_pointer<A>::yes}..., {0, 0, 0}};

template <class... A>
static constexpr const sim_parameter *sim_parameters(void (*)(A...))
{
    return sim_signature<A...>::list;
}

template <class... A> static constexpr int sim_parameter_count(void (*)(A...))
{
    return sizeof...(A);
}

/* One kernel: its two bodies and its row of the table. */
#define SIM_BODIES(n, kernel)                                          \
    static void sim_body_##n(void **args)                              \
    {                                                                  \
        sim_call(kernel, args);                                        \
    }                                                                  \
    static void sim_sweep_##n(void **args)                             \
    {                                                                  \
        const dim3 d = blockDim;                                       \
        for (unsigned z = 0; z < d.z; z++)                             \
            for (unsigned y = 0; y < d.y; y++)                         \
                for (unsigned x = 0; x < d.x; x++) {                   \
                    threadIdx.x = x, threadIdx.y = y, threadIdx.z = z; \
                    sim_call(kernel, args);                            \
                }                                                      \
    }
#define SIM_ROW(n, name, kernel, threads)                          \
    {                                                              \
        name, sim_body_##n, sim_sweep_##n, sim_parameters(kernel), \
            sim_parameter_count(kernel), threads                   \
    }
#define SIM_IMAGE(meets)                                 \
    extern "C" __attribute__((visibility("default")))    \
    sim_image sim_image_here = {sim_kernels,             \
                                (sim_place *)&threadIdx, \
                                (sim_place *)&blockIdx,  \
                                (sim_place *)&blockDim,  \
                                (sim_place *)&gridDim,   \
                                __start_sim_shared,      \
                                __stop_sim_shared,       \
                                sim_dynamic,             \
                                &sim_host_now,           \
                                SIM_ARCH,                \
                                meets};

#endif
