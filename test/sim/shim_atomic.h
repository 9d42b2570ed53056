/* shim_atomic.h - atomics, cached loads and stores, and bits.  Threads take
 * turns only where they meet, so an atomic is a plain read and write; it lets
 * others run, for a thread that spins on it. */
#ifndef SIM_SHIM_ATOMIC_H
#define SIM_SHIM_ATOMIC_H

template <class T> struct sim_same {
    typedef T type;
};

#define SIM_ATOMIC(name, T, value)                                    \
    template <class T>                                                \
    static inline T name(T *p, typename sim_same<T>::type v)          \
    {                                                                 \
        sim_host_now->pause();                                        \
        T old = *(volatile T *)p;                                     \
        *(volatile T *)p = (value);                                   \
        return old;                                                   \
    }                                                                 \
    template <class T>                                                \
    static inline T name##_block(T *p, typename sim_same<T>::type v)  \
    {                                                                 \
        return name(p, v);                                            \
    }                                                                 \
    template <class T>                                                \
    static inline T name##_system(T *p, typename sim_same<T>::type v) \
    {                                                                 \
        return name(p, v);                                            \
    }

SIM_ATOMIC(atomicAdd, T, old + v)
SIM_ATOMIC(atomicSub, T, old - v)
SIM_ATOMIC(atomicExch, T, v)
SIM_ATOMIC(atomicMin, T, v < old ? v : old)
SIM_ATOMIC(atomicMax, T, v > old ? v : old)
SIM_ATOMIC(atomicAnd, T, old &v)
SIM_ATOMIC(atomicOr, T, old | v)
SIM_ATOMIC(atomicXor, T, old ^ v)
SIM_ATOMIC(atomicInc, T, old >= v ? 0 : old + 1)
SIM_ATOMIC(atomicDec, T, old == 0 || old > v ? v : old - 1)

template <class T>
static inline T atomicCAS(T *p, typename sim_same<T>::type expected,
                          typename sim_same<T>::type v)
{
    sim_host_now->pause();
    T old = *(volatile T *)p;
    if (old == expected) *(volatile T *)p = v;
    return old;
}

#define SIM_LOAD(name)                                  \
    template <class T> static inline T name(const T *p) \
    {                                                   \
        return *p;                                      \
    }
#define SIM_STORE(name)                                         \
    template <class T>                                          \
    static inline void name(T *p, typename sim_same<T>::type v) \
    {                                                           \
        *p = v;                                                 \
    }

SIM_LOAD(__ldg)
SIM_LOAD(__ldca)
SIM_LOAD(__ldcg)
SIM_LOAD(__ldcs)
SIM_LOAD(__ldlu)
SIM_LOAD(__ldcv)
SIM_STORE(__stwb)
SIM_STORE(__stcg)
SIM_STORE(__stcs)
SIM_STORE(__stwt)

template <class To, class From> static inline To sim_bits(From x)
{
    To y;
    static_assert(sizeof x == sizeof y, "bits of another width");
    memcpy(&y, &x, sizeof y);
    return y;
}

static inline int __float_as_int(float x)
{
    return sim_bits<int>(x);
}

static inline unsigned __float_as_uint(float x)
{
    return sim_bits<unsigned>(x);
}

static inline float __int_as_float(int x)
{
    return sim_bits<float>(x);
}

static inline float __uint_as_float(unsigned x)
{
    return sim_bits<float>(x);
}

static inline long long __double_as_longlong(double x)
{
    return sim_bits<long long>(x);
}

static inline double __longlong_as_double(long long x)
{
    return sim_bits<double>(x);
}

static inline int __double2hiint(double x)
{
    return (int)(sim_bits<unsigned long long>(x) >> 32);
}

static inline int __double2loint(double x)
{
    return (int)sim_bits<unsigned long long>(x);
}

static inline double __hiloint2double(int hi, int lo)
{
    return sim_bits<double>((unsigned long long)(unsigned)hi << 32 |
                            (unsigned)lo);
}

static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}

static inline int __popcll(unsigned long long x)
{
    return __builtin_popcountll(x);
}

static inline int __clz(int x)
{
    return x ? __builtin_clz(x) : 32;
}

static inline int __clzll(long long x)
{
    return x ? __builtin_clzll(x) : 64;
}

static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

static inline int __ffsll(long long x)
{
    return __builtin_ffsll(x);
}

static inline unsigned long long __brevll(unsigned long long x)
{
    unsigned long long y = 0;
    for (int i = 0; i < 64; i++)
        y |= (x >> i & 1) << (63 - i);
    return y;
}

static inline unsigned __brev(unsigned x)
{
    return (unsigned)(__brevll(x) >> 32);
}

static inline int __mulhi(int x, int y)
{
    return (int)((long long)x * y >> 32);
}

static inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)((unsigned long long)x * y >> 32);
}

static inline long long __mul64hi(long long x, long long y)
{
    return (long long)((__int128)x * y >> 64);
}

static inline unsigned long long __umul64hi(unsigned long long x,
                                            unsigned long long y)
{
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}

static inline int __mul24(int x, int y)
{
    return (x << 8 >> 8) * (y << 8 >> 8);
}

static inline unsigned __sad(int x, int y, unsigned z)
{
    return (x > y ? (unsigned)x - y : (unsigned)y - x) + z;
}

static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned n)
{
    return (unsigned)((((unsigned long long)hi << 32 | lo) << (n & 31)) >> 32);
}

static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned n)
{
    return (unsigned)(((unsigned long long)hi << 32 | lo) >> (n & 31));
}

static inline unsigned __funnelshift_lc(unsigned lo, unsigned hi, unsigned n)
{
    return n >= 32 ? lo : __funnelshift_l(lo, hi, n);
}

static inline unsigned __funnelshift_rc(unsigned lo, unsigned hi, unsigned n)
{
    return n >= 32 ? hi : __funnelshift_r(lo, hi, n);
}

static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s)
{
    unsigned long long v = (unsigned long long)y << 32 | x;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned pick = s >> 4 * i & 15;
        unsigned byte = (unsigned)(v >> 8 * (pick & 7)) & 255;
        if (pick & 8) byte = byte & 128 ? 255 : 0;
        out |= byte << 8 * i;
    }
    return out;
}

static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 32; i += 8)
        c += (signed char)(a >> i) * (signed char)(b >> i);
    return c;
}

/* Global addresses are the host's; 32 bits hold where in shared memory. */
template <class T> static inline size_t __cvta_generic_to_global(const T *p)
{
    return (size_t)p;
}

template <class T> static inline size_t __cvta_generic_to_shared(const T *p)
{
    return (unsigned)((const char *)p - sim_dynamic);
}

static inline bool __isShared(const void *p)
{
    const char *c = (const char *)p;
    return (c >= sim_dynamic && c < sim_dynamic + SIM_DYNAMIC_MOST) ||
           (c >= __start_sim_shared && c < __stop_sim_shared);
}

static inline bool __isGlobal(const void *p)
{
    return !__isShared(p);
}

#endif
