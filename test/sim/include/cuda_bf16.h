/* cuda_bf16.h - __nv_bfloat16 for simulated kernels: computed in float. */
#ifndef SIM_CUDA_BF16_H
#define SIM_CUDA_BF16_H

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct __nv_bfloat16 {
    unsigned short bits;
    __nv_bfloat16() = default;
    __nv_bfloat16(float x) : bits(sim_float_to_bfloat(x))
    {
    }
    __nv_bfloat16(double x) : bits(sim_float_to_bfloat((float)x))
    {
    }
    __nv_bfloat16(int x) : bits(sim_float_to_bfloat((float)x))
    {
    }
    __nv_bfloat16(__nv_bfloat16_raw r) : bits(r.x)
    {
    }
    operator float() const
    {
        return sim_bfloat_to_float(bits);
    }
};

struct __align__(4) __nv_bfloat162
{
    __nv_bfloat16 x, y;
};

typedef __nv_bfloat16 nv_bfloat16;
typedef __nv_bfloat162 nv_bfloat162;

static inline float __bfloat162float(__nv_bfloat16 x)
{
    return x;
}

static inline __nv_bfloat16 __float2bfloat16(float x)
{
    return __nv_bfloat16(x);
}

static inline __nv_bfloat16 __float2bfloat16_rn(float x)
{
    return __nv_bfloat16(x);
}

static inline __nv_bfloat16 __double2bfloat16(double x)
{
    return __nv_bfloat16(x);
}

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x)
{
    return x.bits;
}

static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    __nv_bfloat16_raw r = {bits};
    return __nv_bfloat16(r);
}

static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x,
                                                __nv_bfloat16 y)
{
    __nv_bfloat162 v = {x, y};
    return v;
}

static inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return make_float2(v.x, v.y);
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return __halves2bfloat162(__nv_bfloat16(x), __nv_bfloat16(y));
}

static inline __nv_bfloat162 __float22bfloat162_rn(float2 v)
{
    return __floats2bfloat162_rn(v.x, v.y);
}

static inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v)
{
    return v.x;
}

static inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v)
{
    return v.y;
}

static inline __nv_bfloat16 __hadd(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return __nv_bfloat16((float)x + (float)y);
}

static inline __nv_bfloat16 __hmul(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return __nv_bfloat16((float)x * (float)y);
}

#endif
