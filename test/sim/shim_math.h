/* shim_math.h - CUDA's mathematics by the host's libm: the same names, not the
 * same last bits. */
#ifndef SIM_SHIM_MATH_H
#define SIM_SHIM_MATH_H

#define SIM_MATH1(name)               \
    extern "C" double name(double);   \
    extern "C" float name##f(float);  \
    static inline float name(float x) \
    {                                 \
        return name##f(x);            \
    }
#define SIM_MATH2(name)                        \
    extern "C" double name(double, double);    \
    extern "C" float name##f(float, float);    \
    static inline float name(float x, float y) \
    {                                          \
        return name##f(x, y);                  \
    }

SIM_MATH1(sin)
SIM_MATH1(cos)
SIM_MATH1(tan)
SIM_MATH1(asin)
SIM_MATH1(acos)
SIM_MATH1(atan)
SIM_MATH1(sinh)
SIM_MATH1(cosh)
SIM_MATH1(tanh)
SIM_MATH1(asinh)
SIM_MATH1(acosh)
SIM_MATH1(atanh)
SIM_MATH1(exp)
SIM_MATH1(exp2)
SIM_MATH1(exp10)
SIM_MATH1(expm1)
SIM_MATH1(log)
SIM_MATH1(log2)
SIM_MATH1(log10)
SIM_MATH1(log1p)
SIM_MATH1(logb)
SIM_MATH1(sqrt)
SIM_MATH1(cbrt)
SIM_MATH1(erf)
SIM_MATH1(erfc)
SIM_MATH1(lgamma)
SIM_MATH1(tgamma)
SIM_MATH1(j0)
SIM_MATH1(j1)
SIM_MATH1(y0)
SIM_MATH1(y1)
SIM_MATH1(fabs)
SIM_MATH1(floor)
SIM_MATH1(ceil)
SIM_MATH1(trunc)
SIM_MATH1(round)
SIM_MATH1(rint)
SIM_MATH1(nearbyint)
SIM_MATH2(pow)
SIM_MATH2(atan2)
SIM_MATH2(fmod)
SIM_MATH2(remainder)
SIM_MATH2(hypot)
SIM_MATH2(copysign)
SIM_MATH2(nextafter)
SIM_MATH2(fdim)
SIM_MATH2(fmin)
SIM_MATH2(fmax)

extern "C" {
double fma(double, double, double);
float fmaf(float, float, float);
double ldexp(double, int);
float ldexpf(float, int);
double scalbn(double, int);
float scalbnf(float, int);
double frexp(double, int *);
float frexpf(float, int *);
double modf(double, double *);
float modff(float, float *);
int ilogb(double);
int ilogbf(float);
long lround(double);
long lroundf(float);
long lrint(double);
long lrintf(float);
long long llround(double);
long long llroundf(float);
long long llrint(double);
long long llrintf(float);
void sincos(double, double *, double *);
void sincosf(float, float *, float *);
}

static inline float fma(float x, float y, float z)
{
    return fmaf(x, y, z);
}

static inline float ldexp(float x, int n)
{
    return ldexpf(x, n);
}

static inline int abs(int x)
{
    return x < 0 ? -x : x;
}

static inline long abs(long x)
{
    return x < 0 ? -x : x;
}

static inline long long abs(long long x)
{
    return x < 0 ? -x : x;
}

static inline long long llabs(long long x)
{
    return x < 0 ? -x : x;
}

static inline float abs(float x)
{
    return fabsf(x);
}

static inline double abs(double x)
{
    return fabs(x);
}

#define SIM_LEAST_MOST(T)         \
    static inline T min(T x, T y) \
    {                             \
        return y < x ? y : x;     \
    }                             \
    static inline T max(T x, T y) \
    {                             \
        return y > x ? y : x;     \
    }

SIM_LEAST_MOST(int)
SIM_LEAST_MOST(unsigned)
SIM_LEAST_MOST(long)
SIM_LEAST_MOST(unsigned long)
SIM_LEAST_MOST(long long)
SIM_LEAST_MOST(unsigned long long)

static inline float min(float x, float y)
{
    return fminf(x, y);
}

static inline float max(float x, float y)
{
    return fmaxf(x, y);
}

static inline double min(double x, double y)
{
    return fmin(x, y);
}

static inline double max(double x, double y)
{
    return fmax(x, y);
}

static inline unsigned umin(unsigned x, unsigned y)
{
    return min(x, y);
}

static inline unsigned umax(unsigned x, unsigned y)
{
    return max(x, y);
}

static inline long long llmin(long long x, long long y)
{
    return min(x, y);
}

static inline long long llmax(long long x, long long y)
{
    return max(x, y);
}

template <class T> static inline bool isnan(T x)
{
    return __builtin_isnan(x);
}

template <class T> static inline bool isinf(T x)
{
    return __builtin_isinf(x);
}

template <class T> static inline bool isfinite(T x)
{
    return __builtin_isfinite(x);
}

template <class T> static inline bool signbit(T x)
{
    return __builtin_signbit(x);
}

static inline float rsqrtf(float x)
{
    return (float)(1 / sqrt((double)x));
}

static inline double rsqrt(double x)
{
    return 1 / sqrt(x);
}

static inline float rsqrt(float x)
{
    return rsqrtf(x);
}

static inline float rcbrtf(float x)
{
    return 1 / cbrtf(x);
}

static inline double rcbrt(double x)
{
    return 1 / cbrt(x);
}

static inline double sinpi(double x)
{
    return sin(3.14159265358979323846 * fmod(x, 2.0));
}

static inline double cospi(double x)
{
    return cos(3.14159265358979323846 * fmod(x, 2.0));
}

static inline float sinpif(float x)
{
    return (float)sinpi((double)x);
}

static inline float cospif(float x)
{
    return (float)cospi((double)x);
}

static inline double normcdf(double x)
{
    return 0.5 * erfc(-0.70710678118654752440 * x);
}

static inline float normcdff(float x)
{
    return (float)normcdf((double)x);
}

/* Newton's steps on erf from Winitzki's first guess. */
static inline double erfinv(double x)
{
    if (!(x > -1 && x < 1)) return x / (1 - x * x);
    double l = log1p(-x * x), a = 4.3307467508 + l / 2;
    double y = copysign(sqrt(sqrt(a * a - l / 0.147) - a), x);
    for (int i = 0; i < 4; i++)
        y -= (erf(y) - x) / (1.12837916709551257390 * exp(-y * y));
    return y;
}

static inline float erfinvf(float x)
{
    return (float)erfinv((double)x);
}

/* Quick forms: here as good as the slow ones. */
static inline float __expf(float x)
{
    return expf(x);
}

static inline float __exp10f(float x)
{
    return exp10f(x);
}

static inline float __logf(float x)
{
    return logf(x);
}

static inline float __log2f(float x)
{
    return log2f(x);
}

static inline float __log10f(float x)
{
    return log10f(x);
}

static inline float __sinf(float x)
{
    return sinf(x);
}

static inline float __cosf(float x)
{
    return cosf(x);
}

static inline float __tanf(float x)
{
    return tanf(x);
}

static inline float __tanhf(float x)
{
    return tanhf(x);
}

static inline float __powf(float x, float y)
{
    return powf(x, y);
}

static inline void __sincosf(float x, float *s, float *c)
{
    sincosf(x, s, c);
}

static inline float __fdividef(float x, float y)
{
    return x / y;
}

static inline float fdividef(float x, float y)
{
    return x / y;
}

static inline float __saturatef(float x)
{
    return x > 0 ? x < 1 ? x : 1 : 0;
}

/* Rounded once: the empty assembly keeps a sum from melting into an fma. */
template <class T> static inline T sim_apart(T x)
{
    __asm__("" : "+x"(x));
    return x;
}

static inline float __fadd_rn(float x, float y)
{
    return sim_apart(x + y);
}

static inline float __fsub_rn(float x, float y)
{
    return sim_apart(x - y);
}

static inline float __fmul_rn(float x, float y)
{
    return sim_apart(x * y);
}

static inline float __fdiv_rn(float x, float y)
{
    return x / y;
}

static inline float __frcp_rn(float x)
{
    return 1 / x;
}

static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}

static inline float __frsqrt_rn(float x)
{
    return rsqrtf(x);
}

static inline float __fmaf_rn(float x, float y, float z)
{
    return fmaf(x, y, z);
}

static inline double __dadd_rn(double x, double y)
{
    return sim_apart(x + y);
}

static inline double __dsub_rn(double x, double y)
{
    return sim_apart(x - y);
}

static inline double __dmul_rn(double x, double y)
{
    return sim_apart(x * y);
}

static inline double __ddiv_rn(double x, double y)
{
    return x / y;
}

static inline double __drcp_rn(double x)
{
    return 1 / x;
}

static inline double __dsqrt_rn(double x)
{
    return sqrt(x);
}

static inline double __fma_rn(double x, double y, double z)
{
    return fma(x, y, z);
}

/* To integers: a card keeps to the ends of the range and makes NaN 0 (the least
 * value, for 64 bits). */
template <class To>
static inline To sim_clamp(double x, double least, double most, To low, To high,
                           To nan)
{
    if (x != x) return nan;
    if (x <= least) return low;
    return x >= most ? high : (To)x;
}

static inline int sim_int(double x)
{
    return sim_clamp<int>(x, -2147483648.0, 2147483647.0, -2147483647 - 1,
                          2147483647, 0);
}

static inline unsigned sim_uint(double x)
{
    return sim_clamp<unsigned>(x, 0, 4294967295.0, 0, ~0u, 0);
}

static inline long long sim_ll(double x)
{
    const long long most = 0x7fffffffffffffffll;
    return sim_clamp<long long>(x, -9223372036854775808.0,
                                9223372036854775808.0, -most - 1, most,
                                -most - 1);
}

static inline unsigned long long sim_ull(double x)
{
    return sim_clamp<unsigned long long>(x, 0, 18446744073709551616.0, 0, ~0ull,
                                         1ull << 63);
}

#define SIM_TO_INTEGER(from, From, to, To)        \
    static inline To __##from##2##to##_rn(From x) \
    {                                             \
        return sim_##to(rint((double)x));         \
    }                                             \
    static inline To __##from##2##to##_rz(From x) \
    {                                             \
        return sim_##to(trunc((double)x));        \
    }                                             \
    static inline To __##from##2##to##_rd(From x) \
    {                                             \
        return sim_##to(floor((double)x));        \
    }                                             \
    static inline To __##from##2##to##_ru(From x) \
    {                                             \
        return sim_##to(ceil((double)x));         \
    }

/* Of the two floats beside x, y the nearer one, that nearer to 0. */
static inline float sim_to_zero(float y, long double x)
{
    bool further = x < 0 ? y < x : y > x;
    return further ? nextafterf(y, 0.0f) : y;
}

#define SIM_TO_REAL(from, From)                       \
    static inline float __##from##2float_rn(From x)   \
    {                                                 \
        return (float)x;                              \
    }                                                 \
    static inline float __##from##2float_rz(From x)   \
    {                                                 \
        return sim_to_zero((float)x, (long double)x); \
    }                                                 \
    static inline double __##from##2double_rn(From x) \
    {                                                 \
        return (double)x;                             \
    }

SIM_TO_INTEGER(float, float, int, int)
SIM_TO_INTEGER(float, float, uint, unsigned)
SIM_TO_INTEGER(float, float, ll, long long)
SIM_TO_INTEGER(float, float, ull, unsigned long long)
SIM_TO_INTEGER(double, double, int, int)
SIM_TO_INTEGER(double, double, uint, unsigned)
SIM_TO_INTEGER(double, double, ll, long long)
SIM_TO_INTEGER(double, double, ull, unsigned long long)
SIM_TO_REAL(int, int)
SIM_TO_REAL(uint, unsigned)
SIM_TO_REAL(ll, long long)
SIM_TO_REAL(ull, unsigned long long)

static inline float __double2float_rn(double x)
{
    return (float)x;
}

static inline float __double2float_rz(double x)
{
    return sim_to_zero((float)x, x);
}

#endif
