/* convert.c - elements from one dtype to another.
 *
 * Not a loop for every pair: each dtype is loaded into and stored from three
 * wide ones, int64, float32 and float64, and a pair goes through the one that
 * loses nothing on the way.  If either end is that wide dtype, one loop does
 * it; else two, by blocks that stay in the first-level cache.  Loops run over
 * contiguous elements without branches, so that compilers vectorise them;
 * strided elements are gathered into a block first.
 *
 * What mixed precision does most, between 16-bit floats and float32, has loops
 * for AVX2 beside the portable ones, with the same bits. */
#include "core/convert.h"

#include "base/half.h"

#include <assert.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { BLOCK = 1024, WORD = 8 };

typedef void loop(void *restrict to, const void *restrict from, int64_t n);

#define LOOP(name, out, in, value)                                            \
    static void name(void *restrict to, const void *restrict from, int64_t n) \
    {                                                                         \
        out *restrict y = to;                                                 \
        const in *restrict all = from;                                        \
        for (int64_t i = 0; i < n; i++) {                                     \
            const in x = all[i];                                              \
            y[i] = (out)(value);                                              \
        }                                                                     \
    }

/* The ends of an integer dtype, and the first number above it: unlike the last
 * one in it, a power of two that every floating dtype holds. */
#define MOST_I(bytes)  (INT64_MAX >> (64 - 8 * bytes))
#define MOST_U(bytes)  (UINT64_MAX >> (64 - 8 * bytes))
#define LEAST_I(bytes) (-MOST_I(bytes) - 1)
#define LEAST_U(bytes) 0
#define ABOVE_I(bytes) (2.0 * (1ull << (8 * bytes - 2)))
#define ABOVE_U(bytes) (4.0 * (1ull << (8 * bytes - 2)))

/* The cast sees only what it is defined for; a NaN fails all comparisons and
 * stays at zero. */
#define HOLD(NAME, type, bytes, class, real)               \
    static inline type hold_##NAME##_##real(real x)        \
    {                                                      \
        const real least = (real)LEAST_##class(bytes);     \
        const real above = (real)ABOVE_##class(bytes);     \
        type r = (type)(x >= least && x < above ? x : 0);  \
        r = x < least ? (type)LEAST_##class(bytes) : r;    \
        return x >= above ? (type)MOST_##class(bytes) : r; \
    }

#define LOADS(NAME, type)                     \
    LOOP(load_##NAME##_I64, int64_t, type, x) \
    LOOP(load_##NAME##_F32, float, type, x)   \
    LOOP(load_##NAME##_F64, double, type, x)

#define LOOPS_B(NAME, type, bytes)                  \
    LOADS(NAME, type)                               \
    LOOP(store_##NAME##_I64, type, int64_t, x != 0) \
    LOOP(store_##NAME##_F32, type, float, x != 0)   \
    LOOP(store_##NAME##_F64, type, double, x != 0)

#define LOOPS_INTEGER(NAME, type, bytes, class)                   \
    LOADS(NAME, type)                                             \
    HOLD(NAME, type, bytes, class, float)                         \
    HOLD(NAME, type, bytes, class, double)                        \
    LOOP(store_##NAME##_I64, type, int64_t, x)                    \
    LOOP(store_##NAME##_F32, type, float, hold_##NAME##_float(x)) \
    LOOP(store_##NAME##_F64, type, double, hold_##NAME##_double(x))

#define LOOPS_I(NAME, type, bytes) LOOPS_INTEGER(NAME, type, bytes, I)
#define LOOPS_U(NAME, type, bytes) LOOPS_INTEGER(NAME, type, bytes, U)
#define LOOPS_F(NAME, type, bytes)

#define DTYPE(NAME, name, brief, type, bytes, class) \
    LOOPS_##class(NAME, type, bytes)
#include "nabla/dtypes.def"

LOOP(load_F16_F32, float, uint16_t, nb_f16_to_f32(x))
LOOP(load_BF16_F32, float, uint16_t, nb_bf16_to_f32(x))
LOOP(store_F16_F32, uint16_t, float, nb_f32_to_f16(x))
LOOP(store_F16_F64, uint16_t, double, nb_f64_to_f16(x))
LOOP(store_BF16_F32, uint16_t, float, nb_f32_to_bf16(x))
LOOP(store_BF16_F64, uint16_t, double, nb_f64_to_bf16(x))
LOOP(store_F32_F64, float, double, x)
LOOP(store_F64_F32, double, float, x)

/* A double too short for all of u keeps a last bit of one for what is cut off
 * (rounding to odd), so that rounding it again equals rounding u. */
static inline double odd(uint64_t u)
{
    uint64_t rest = u & 0x7ff;
    uint64_t kept = (u ^ rest) | (rest ? 0x800 : 0);
    return (double)(u >> 53 ? kept : u);
}

LOOP(odd_I64, double, int64_t, x < 0 ? -odd(-(uint64_t)x) : odd((uint64_t)x))
LOOP(odd_U64, double, uint64_t, odd(x))

enum { I64, F32, F64, NWIDE };
static const nb_dtype wide_type[NWIDE] = {NB_I64, NB_F32, NB_F64};

#define ROW_B(way, NAME) \
    [NB_##NAME] = {way##_##NAME##_I64, way##_##NAME##_F32, way##_##NAME##_F64},
#define ROW_I ROW_B
#define ROW_U ROW_B
#define ROW_F(way, NAME)

static loop *const load[NB_NDTYPES][NWIDE] = {
#define DTYPE(NAME, name, brief, type, bytes, class) ROW_##class(load, NAME)
#include "nabla/dtypes.def"
    [NB_F16] = {NULL, load_F16_F32, NULL},
    [NB_BF16] = {NULL, load_BF16_F32, NULL},
};
static loop *const store[NB_NDTYPES][NWIDE] = {
#define DTYPE(NAME, name, brief, type, bytes, class) ROW_##class(store, NAME)
#include "nabla/dtypes.def"
    [NB_F16] = {NULL, store_F16_F32, store_F16_F64},
    [NB_BF16] = {NULL, store_BF16_F32, store_BF16_F64},
    [NB_F32] = {NULL, NULL, store_F32_F64},
    [NB_F64] = {NULL, store_F64_F32, NULL},
};

#if defined(__x86_64__)
#define WITH_AVX2                       __attribute__((target("avx2,f16c")))
#define LOOP_AVX2(name, out, in, value) WITH_AVX2 LOOP(name, out, in, value)

LOOP_AVX2(load_BF16_F32_avx2, float, uint16_t, nb_bf16_to_f32(x))
LOOP_AVX2(store_BF16_F32_avx2, uint16_t, float, nb_f32_to_bf16(x))

WITH_AVX2 static void load_F16_F32_avx2(void *restrict to,
                                        const void *restrict from, int64_t n)
{
    float *y = to;
    const uint16_t *x = from;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i h = _mm_loadu_si128((const __m128i *)(x + i));
        _mm256_storeu_ps(y + i, _mm256_cvtph_ps(h));
    }
    for (; i < n; i++)
        y[i] = nb_f16_to_f32(x[i]);
}

WITH_AVX2 static void store_F16_F32_avx2(void *restrict to,
                                         const void *restrict from, int64_t n)
{
    uint16_t *y = to;
    const float *x = from;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m128i h =
            _mm256_cvtps_ph(_mm256_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(y + i), h);
    }
    for (; i < n; i++)
        y[i] = nb_f32_to_f16(x[i]);
}

/* Every processor with AVX2 has F16C, which not all compilers can ask for. */
static loop *best(loop *l)
{
    static loop *const better[][2] = {
        {load_F16_F32, load_F16_F32_avx2},
        {load_BF16_F32, load_BF16_F32_avx2},
        {store_F16_F32, store_F16_F32_avx2},
        {store_BF16_F32, store_BF16_F32_avx2},
    };
    for (int i = 0; i < 4; i++)
        if (l == better[i][0] && __builtin_cpu_supports("avx2"))
            return better[i][1];
    return l;
}
#else
static loop *best(loop *l)
{
    return l;
}
#endif

/* The wide dtype on the way between two that differ: one that holds all of
 * `from` (16 bits fit float32, 32 fit float64), or `to` itself, so that nothing
 * is rounded but in the last step. */
static int middle(nb_dtype to, nb_dtype from)
{
    if (nb_dtype_is_float(from)) return from == NB_F64 ? F64 : F32;
    if (!nb_dtype_is_float(to)) return I64;
    if (to == NB_F32) return F32;
    return to == NB_F64 || nb_dtype_size(from) > 2 ? F64 : F32;
}

typedef struct plan {
    loop *first, *second; /* second may be NULL */
    size_t to_bytes, from_bytes;
} plan;

static plan choose(nb_dtype to, nb_dtype from)
{
    int w = middle(to, from);
    plan p = {load[from][w], store[to][w], nb_dtype_size(to),
              nb_dtype_size(from)};
    if (to == wide_type[w])
        p.second = NULL;
    else if (from == wide_type[w])
        p.first = p.second, p.second = NULL;
    else if (w == F64 && from == NB_I64)
        p.first = odd_I64;
    else if (w == F64 && from == NB_U64)
        p.first = odd_U64;
    p.first = best(p.first);
    p.second = best(p.second);
    return p;
}

static void run(const plan *p, char *to, const char *from, int64_t n)
{
    _Alignas(64) char wide[BLOCK * WORD];
    if (!p->second) {
        p->first(to, from, n);
        return;
    }
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        p->first(wide, from + i * (int64_t)p->from_bytes, m);
        p->second(to + i * (int64_t)p->to_bytes, wide, m);
    }
}

#define MOVE(bits)                                                     \
    static void move_##bits(void *restrict to, int64_t to_stride,      \
                            const void *restrict from, int64_t stride, \
                            int64_t n)                                 \
    {                                                                  \
        uint##bits##_t *restrict y = to;                               \
        const uint##bits##_t *restrict x = from, first = *x;           \
        if (to_stride == 1 && stride == 0)                             \
            for (int64_t i = 0; i < n; i++)                            \
                y[i] = first;                                          \
        else                                                           \
            for (int64_t i = 0; i < n; i++)                            \
                y[i * to_stride] = x[i * stride];                      \
    }
MOVE(8)
MOVE(16)
MOVE(32)
MOVE(64)

/* n elements as they are; n is not zero. */
static void move(size_t bytes, void *to, int64_t to_stride, const void *from,
                 int64_t from_stride, int64_t n)
{
    switch (bytes) {
    case 1: move_8(to, to_stride, from, from_stride, n); break;
    case 2: move_16(to, to_stride, from, from_stride, n); break;
    case 4: move_32(to, to_stride, from, from_stride, n); break;
    case 8: move_64(to, to_stride, from, from_stride, n); break;
    }
}

/* Gathers a block, converts it, scatters it. */
static void run_strided(const plan *p, char *to, int64_t to_stride,
                        const char *from, int64_t from_stride, int64_t n)
{
    _Alignas(64) char in[BLOCK * WORD], out[BLOCK * WORD];
    int64_t to_step = to_stride * (int64_t)p->to_bytes;
    int64_t from_step = from_stride * (int64_t)p->from_bytes;
    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        move(p->from_bytes, in, 1, from + i * from_step, from_stride, m);
        run(p, out, in, m);
        move(p->to_bytes, to + i * to_step, to_stride, out, 1, m);
    }
}

void nb_convert(void *to, nb_dtype to_type, int64_t to_stride, const void *from,
                nb_dtype from_type, int64_t from_stride, int64_t n)
{
    size_t bytes = nb_dtype_size(to_type);
    assert(bytes && nb_dtype_size(from_type) && to_stride);
    if (n <= 0) return;
    bool packed = to_stride == 1 && from_stride == 1;
    if (to_type == from_type && packed) {
        memcpy(to, from, (size_t)n * bytes);
        return;
    }
    if (to_type == from_type) {
        move(bytes, to, to_stride, from, from_stride, n);
        return;
    }
    plan p = choose(to_type, from_type);
    _Alignas(WORD) char one[WORD];
    if (packed)
        run(&p, to, from, n);
    else if (from_stride == 0) {
        run(&p, one, from, 1);
        move(bytes, to, to_stride, one, 0, n);
    } else
        run_strided(&p, to, to_stride, from, from_stride, n);
}

double nb_read_f64(const void *at, nb_dtype d)
{
    double x;
    nb_convert(&x, NB_F64, 1, at, d, 1, 1);
    return x;
}

int64_t nb_read_i64(const void *at, nb_dtype d)
{
    int64_t x;
    nb_convert(&x, NB_I64, 1, at, d, 1, 1);
    return x;
}

void nb_write_f64(void *at, nb_dtype d, double x)
{
    nb_convert(at, d, 1, &x, NB_F64, 1, 1);
}

void nb_write_i64(void *at, nb_dtype d, int64_t x)
{
    nb_convert(at, d, 1, &x, NB_I64, 1, 1);
}
