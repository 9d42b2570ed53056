NB_CUDA(
static __device__ __forceinline__ float load_f16(u16 h)
{
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}

static __device__ __forceinline__ u16 store_f16(float x)
{
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}

static __device__ __forceinline__ float load_bf16(u16 h)
{
    return __int_as_float((u32)h << 16);
}

static __device__ __forceinline__ u16 store_bf16(float x)
{
    u16 h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}
)
