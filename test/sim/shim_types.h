/* shim_types.h - CUDA's vector types and their makers. */
#ifndef SIM_SHIM_TYPES_H
#define SIM_SHIM_TYPES_H

#define SIM_VECTOR(name, T, a2, a4)                          \
    struct name##1                                           \
    {                                                        \
        T x;                                                 \
    };                                                       \
    struct __align__(a2) name##2                             \
    {                                                        \
        T x, y;                                              \
    };                                                       \
    struct name##3                                           \
    {                                                        \
        T x, y, z;                                           \
    };                                                       \
    struct __align__(a4) name##4                             \
    {                                                        \
        T x, y, z, w;                                        \
    };                                                       \
    static inline name##1 make_##name##1(T x)                \
    {                                                        \
        name##1 v = {x};                                     \
        return v;                                            \
    }                                                        \
    static inline name##2 make_##name##2(T x, T y)           \
    {                                                        \
        name##2 v = {x, y};                                  \
        return v;                                            \
    }                                                        \
    static inline name##3 make_##name##3(T x, T y, T z)      \
    {                                                        \
        name##3 v = {x, y, z};                               \
        return v;                                            \
    }                                                        \
    static inline name##4 make_##name##4(T x, T y, T z, T w) \
    {                                                        \
        name##4 v = {x, y, z, w};                            \
        return v;                                            \
    }

SIM_VECTOR(char, signed char, 2, 4)
SIM_VECTOR(uchar, unsigned char, 2, 4)
SIM_VECTOR(short, short, 4, 8)
SIM_VECTOR(ushort, unsigned short, 4, 8)
SIM_VECTOR(int, int, 8, 16)
SIM_VECTOR(uint, unsigned, 8, 16)
SIM_VECTOR(long, long, 16, 16)
SIM_VECTOR(ulong, unsigned long, 16, 16)
SIM_VECTOR(longlong, long long, 16, 16)
SIM_VECTOR(ulonglong, unsigned long long, 16, 16)
SIM_VECTOR(float, float, 8, 16)
SIM_VECTOR(double, double, 16, 16)

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1)
        : x(a), y(b), z(c)
    {
    }
};

#endif
