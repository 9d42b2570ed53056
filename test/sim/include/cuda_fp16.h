/* cuda_fp16.h - __half for simulated kernels: computed in float. */
#ifndef SIM_CUDA_FP16_H
#define SIM_CUDA_FP16_H

struct __half_raw {
    unsigned short x;
};

struct __half {
    unsigned short bits;
    __half() = default;
    __half(float x) : bits(sim_float_to_half(x))
    {
    }
    __half(double x) : bits(sim_float_to_half((float)x))
    {
    }
    __half(int x) : bits(sim_float_to_half((float)x))
    {
    }
    __half(__half_raw r) : bits(r.x)
    {
    }
    operator float() const
    {
        return sim_half_to_float(bits);
    }
};

struct __align__(4) __half2
{
    __half x, y;
};

typedef __half half;
typedef __half2 half2;

static inline float __half2float(__half x)
{
    return x;
}

static inline __half __float2half(float x)
{
    return __half(x);
}

static inline __half __float2half_rn(float x)
{
    return __half(x);
}

static inline __half __double2half(double x)
{
    return __half(x);
}

static inline unsigned short __half_as_ushort(__half x)
{
    return x.bits;
}

static inline __half __ushort_as_half(unsigned short bits)
{
    __half_raw r = {bits};
    return __half(r);
}

static inline __half2 __halves2half2(__half x, __half y)
{
    __half2 v = {x, y};
    return v;
}

static inline float2 __half22float2(__half2 v)
{
    return make_float2(v.x, v.y);
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return __halves2half2(__half(x), __half(y));
}

static inline __half2 __float22half2_rn(float2 v)
{
    return __floats2half2_rn(v.x, v.y);
}

static inline __half __low2half(__half2 v)
{
    return v.x;
}

static inline __half __high2half(__half2 v)
{
    return v.y;
}

static inline __half __hadd(__half x, __half y)
{
    return __half((float)x + (float)y);
}

static inline __half __hmul(__half x, __half y)
{
    return __half((float)x * (float)y);
}

#endif
