/* shim_ptx.h - the instructions of PTX that kernels write as assembly.  ptx.c
 * makes "cvt.rn.f16.f32 %0, %1;" a call of sim_ptx_cvt_rn_f16_f32. */
#ifndef SIM_SHIM_PTX_H
#define SIM_SHIM_PTX_H

#include "shim_half.h"
#include "shim_math.h"

/* An address in brackets: a pointer, or 64 bits, or 32 of shared memory. */
template <class T> static inline char *sim_address(T *p)
{
    return (char *)p;
}

static inline char *sim_address(unsigned long p)
{
    return (char *)p;
}

static inline char *sim_address(unsigned long long p)
{
    return (char *)p;
}

static inline char *sim_address(long long p)
{
    return (char *)p;
}

static inline char *sim_address(long p)
{
    return (char *)p;
}

static inline char *sim_address(unsigned offset)
{
    return sim_dynamic + (int)offset;
}

static inline char *sim_address(int offset)
{
    return sim_dynamic + offset;
}

#define SIM_PTX(name, To, From, value)               \
    static inline void sim_ptx_##name(To &y, From x) \
    {                                                \
        y = (value);                                 \
    }
#define SIM_PTX2(name, To, value)                        \
    static inline void sim_ptx_##name(To &y, To a, To b) \
    {                                                    \
        y = (value);                                     \
    }
#define SIM_PTX3(name, To, value)                              \
    static inline void sim_ptx_##name(To &y, To a, To b, To c) \
    {                                                          \
        y = (value);                                           \
    }

SIM_PTX(cvt_f32_f16, float, unsigned short, sim_half_to_float(x))
SIM_PTX(cvt_rn_f16_f32, unsigned short, float, sim_float_to_half(x))
SIM_PTX(cvt_f32_bf16, float, unsigned short, sim_bfloat_to_float(x))
SIM_PTX(cvt_rn_bf16_f32, unsigned short, float, sim_float_to_bfloat(x))
SIM_PTX(ex2_approx_f32, float, float, exp2f(x))
SIM_PTX(ex2_approx_ftz_f32, float, float, exp2f(x))
SIM_PTX(lg2_approx_f32, float, float, log2f(x))
SIM_PTX(lg2_approx_ftz_f32, float, float, log2f(x))
SIM_PTX(rcp_approx_f32, float, float, 1 / x)
SIM_PTX(rcp_approx_ftz_f32, float, float, 1 / x)
SIM_PTX(rsqrt_approx_f32, float, float, rsqrtf(x))
SIM_PTX(rsqrt_approx_ftz_f32, float, float, rsqrtf(x))
SIM_PTX(sqrt_approx_f32, float, float, sqrtf(x))
SIM_PTX(sqrt_approx_ftz_f32, float, float, sqrtf(x))
SIM_PTX(tanh_approx_f32, float, float, tanhf(x))
SIM_PTX(sin_approx_f32, float, float, sinf(x))
SIM_PTX(cos_approx_f32, float, float, cosf(x))
SIM_PTX2(add_rn_f32, float, sim_apart(a + b))
SIM_PTX2(sub_rn_f32, float, sim_apart(a - b))
SIM_PTX2(mul_rn_f32, float, sim_apart(a *b))
SIM_PTX2(div_rn_f32, float, a / b)
SIM_PTX2(max_f32, float, fmaxf(a, b))
SIM_PTX2(min_f32, float, fminf(a, b))
SIM_PTX2(max_NaN_f32, float, a != a || b != b ? a + b : fmaxf(a, b))
SIM_PTX2(min_NaN_f32, float, a != a || b != b ? a + b : fminf(a, b))
SIM_PTX2(add_u32, unsigned, a + b)
SIM_PTX2(add_s32, int, a + b)
SIM_PTX2(mul_hi_u32, unsigned, __umulhi(a, b))
SIM_PTX2(mul_lo_u32, unsigned, a *b)
SIM_PTX3(fma_rn_f32, float, fmaf(a, b, c))
SIM_PTX3(fma_rn_f64, double, fma(a, b, c))
SIM_PTX3(prmt_b32, unsigned, __byte_perm(a, b, c))

static inline void sim_ptx_cvt_rn_bf16x2_f32(unsigned &y, float high, float low)
{
    y = (unsigned)sim_float_to_bfloat(high) << 16 | sim_float_to_bfloat(low);
}

static inline void sim_ptx_cvt_rn_f16x2_f32(unsigned &y, float high, float low)
{
    y = (unsigned)sim_float_to_half(high) << 16 | sim_float_to_half(low);
}

/* Two halves at once. */
#define SIM_PTX_PAIR(name, up, down, value)                                \
    static inline unsigned short sim_half_##name(float a, float b)         \
    {                                                                      \
        return down(a != a || b != b ? a + b : (value));                   \
    }                                                                      \
    static inline void sim_ptx_##name(unsigned &y, unsigned a, unsigned b) \
    {                                                                      \
        unsigned high = sim_half_##name(up(a >> 16), up(b >> 16));         \
        y = high << 16 | sim_half_##name(up(a & 0xffff), up(b & 0xffff));  \
    }
SIM_PTX_PAIR(max_NaN_bf16x2, sim_bfloat_to_float, sim_float_to_bfloat,
             fmaxf(a, b))
SIM_PTX_PAIR(min_NaN_bf16x2, sim_bfloat_to_float, sim_float_to_bfloat,
             fminf(a, b))
SIM_PTX_PAIR(max_NaN_f16x2, sim_half_to_float, sim_float_to_half, fmaxf(a, b))
SIM_PTX_PAIR(min_NaN_f16x2, sim_half_to_float, sim_float_to_half, fminf(a, b))

template <class T> static inline void sim_ptx_mov_b32(T &y, T x)
{
    y = x;
}

template <class T, class U> static inline void sim_ptx_mov_u32(T &y, U x)
{
    y = x;
}

template <class T, class U> static inline void sim_ptx_mov_u64(T &y, U x)
{
    y = x;
}

#define sim_special_laneid \
    ((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32)
#define sim_special_smid            0u
#define sim_special_clock64         clock64()
#define sim_special_globaltimer     __globaltimer()
#define sim_special_nsmid           1u
#define sim_ptx_trap()              __trap()
#define sim_ptx_bar_sync(...)       __syncthreads()
#define sim_ptx_barrier_sync(i)     __syncthreads()
#define sim_ptx_bar_warp_sync(m)    __syncwarp(m)
#define sim_ptx_membar_gl()         __threadfence()
#define sim_ptx_membar_cta()        __threadfence_block()
#define sim_ptx_fence_acq_rel_gpu() __threadfence()

/* Loads and stores by width and count; how they are cached does not matter. */
template <class T> static inline void sim_ptx_load(T &a, const char *p)
{
    a = *(const T *)p;
}

template <class T> static inline void sim_ptx_load(T &a, T &b, const char *p)
{
    struct __align__(2 * sizeof(T)) pair
    {
        T x, y;
    }
    v = *(const pair *)p;
    a = v.x, b = v.y;
}

template <class T>
static inline void sim_ptx_load(T &a, T &b, T &c, T &d, const char *p)
{
    struct __align__(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) quad
    {
        T x, y, z, w;
    }
    v = *(const quad *)p;
    a = v.x, b = v.y, c = v.z, d = v.w;
}

template <class T> static inline void sim_ptx_store(char *p, T a)
{
    *(T *)p = a;
}

template <class T> static inline void sim_ptx_store(char *p, T a, T b)
{
    struct __align__(2 * sizeof(T)) pair
    {
        T x, y;
    }
    v = {a, b};
    *(pair *)p = v;
}

template <class T> static inline void sim_ptx_store(char *p, T a, T b, T c, T d)
{
    struct __align__(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) quad
    {
        T x, y, z, w;
    }
    v = {a, b, c, d};
    *(quad *)p = v;
}

#define SIM_PTX_TYPED(what, how)                                           \
    template <class... A> static inline void sim_ptx_##how##_f32(A &&...a) \
    {                                                                      \
        sim_ptx_##what(a...);                                              \
    }                                                                      \
    template <class... A> static inline void sim_ptx_##how##_f64(A &&...a) \
    {                                                                      \
        sim_ptx_##what(a...);                                              \
    }                                                                      \
    template <class... A> static inline void sim_ptx_##how##_u32(A &&...a) \
    {                                                                      \
        sim_ptx_##what(a...);                                              \
    }                                                                      \
    template <class... A> static inline void sim_ptx_##how##_s32(A &&...a) \
    {                                                                      \
        sim_ptx_##what(a...);                                              \
    }                                                                      \
    template <class... A> static inline void sim_ptx_##how##_b32(A &&...a) \
    {                                                                      \
        sim_ptx_##what(a...);                                              \
    }                                                                      \
    template <class... A> static inline void sim_ptx_##how##_u64(A &&...a) \
    {                                                                      \
        sim_ptx_##what(a...);                                              \
    }                                                                      \
    template <class... A> static inline void sim_ptx_##how##_b64(A &&...a) \
    {                                                                      \
        sim_ptx_##what(a...);                                              \
    }                                                                      \
    template <class... A> static inline void sim_ptx_##how##_u16(A &&...a) \
    {                                                                      \
        sim_ptx_##what(a...);                                              \
    }
#define SIM_PTX_COUNTED(what, how) \
    SIM_PTX_TYPED(what, how)       \
    SIM_PTX_TYPED(what, how##_v2)  \
    SIM_PTX_TYPED(what, how##_v4)

SIM_PTX_COUNTED(load, ld_global)
SIM_PTX_COUNTED(load, ld_global_nc)
SIM_PTX_COUNTED(load, ld_global_nc_L1__no_allocate)
SIM_PTX_COUNTED(load, ld_global_L1__no_allocate)
SIM_PTX_COUNTED(load, ld_shared)
SIM_PTX_COUNTED(load, ld_volatile_global)
SIM_PTX_COUNTED(store, st_global)
SIM_PTX_COUNTED(store, st_global_L1__no_allocate)
SIM_PTX_COUNTED(store, st_shared)
SIM_PTX_COUNTED(store, st_volatile_global)

/* What another thread or block must see: it gets its turn. */
template <class T>
static inline void sim_ptx_ld_acquire_gpu_global_u32(T &y, const char *p)
{
    sim_host_now->pause();
    y = *(const volatile T *)p;
}

template <class T>
static inline void sim_ptx_ld_acquire_gpu_u32(T &y, const char *p)
{
    sim_ptx_ld_acquire_gpu_global_u32(y, p);
}

template <class T>
static inline void sim_ptx_st_release_gpu_global_u32(char *p, T x)
{
    *(volatile T *)p = x;
}

template <class T> static inline void sim_ptx_st_release_gpu_u32(char *p, T x)
{
    sim_ptx_st_release_gpu_global_u32(p, x);
}

static inline void sim_ptx_red_release_gpu_global_add_u32(char *p, unsigned x)
{
    *(volatile unsigned *)p += x;
}

/* Copies to shared memory are done when they are begun.  They go nowhere else,
 * and come from nowhere else than global memory. */
static inline void sim_ptx_cp_async_ca_shared_global(char *to, const char *from,
                                                     int n, int given = -1)
{
    if (!__isShared(to) || __isShared(from)) sim_host_now->stop(717);
    if (((size_t)to | (size_t)from) % n) sim_host_now->stop(716);
    given = given < 0 ? n : given;
    memcpy(to, from, given);
    memset(to + given, 0, n - given);
}

static inline void sim_ptx_cp_async_cg_shared_global(char *to, const char *from,
                                                     int n, int given = -1)
{
    sim_ptx_cp_async_ca_shared_global(to, from, n, given);
}

#define sim_ptx_cp_async_cg_shared_global_L2__128B \
    sim_ptx_cp_async_cg_shared_global
#define sim_ptx_cp_async_cg_shared_global_L2__256B \
    sim_ptx_cp_async_cg_shared_global
#define sim_ptx_cp_async_ca_shared_global_L2__128B \
    sim_ptx_cp_async_ca_shared_global
#define sim_ptx_cp_async_commit_group()            ((void)0)
#define sim_ptx_cp_async_wait_group(n)             ((void)0)
#define sim_ptx_cp_async_wait_all()                ((void)0)
#define sim_ptx_prefetch_global_L2(p)              ((void)(p))
#define sim_ptx_prefetch_global_L1(p)              ((void)(p))
#define sim_ptx_griddepcontrol_wait()              ((void)0)
#define sim_ptx_griddepcontrol_launch_dependents() ((void)0)

#endif
