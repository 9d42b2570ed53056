/* blas_own.c - the product without a library: the variants of blas_tile.h and
 * the choice among them.
 *
 * A vector type is split up for the instructions of the function it stands in,
 * so every variant is compiled from the same text under its own target; which
 * one runs is asked of the processor. */
#include "base/blas_own.h"

#include "base/half.h"
#include "base/memory.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INLINE __attribute__((always_inline)) inline

enum { DEPTH = 384, HEIGHT = 512, WIDTH = 480, FEW = 3, FEW_ROWS = 16 };
enum { FEW_HALVES = 3 }; /* rows */
enum { STRIP = 4096 };   /* bytes */

size_t nb_float_size(nb_dtype d)
{
    return d == NB_F64 ? 8 : d == NB_F32 ? 4 : 2;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* n cut into as few parts as are no larger than `most`, all of about one size,
 * a multiple of `unit`. */
static int64_t even_part(int64_t n, int64_t most, int64_t unit)
{
    int64_t parts = (n + most - 1) / most;
    return round_up((n + parts - 1) / parts, unit);
}

/* The places of numbers that interleave halves of two vectors of so many. */
#define LOW_2   0, 2
#define HIGH_2  1, 3
#define LOW_4   0, 4, 1, 5
#define HIGH_4  2, 6, 3, 7
#define LOW_8   0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_8  4, 12, 5, 13, 6, 14, 7, 15
#define LOW_16  0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_16 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31

#define REAL    float
#define NAME(x) x##_f32
#define BYTES   16
#define ROWS    4
#define VECS    2
#define LOW     LOW_4
#define HIGH    HIGH_4
#define TARGET
#define HALVES 1
#include "base/blas_variant.h"

#define REAL    double
#define NAME(x) x##_f64
#define BYTES   16
#define ROWS    4
#define VECS    2
#define LOW     LOW_2
#define HIGH    HIGH_2
#define TARGET
#define HALVES 0
#include "base/blas_variant.h"

#if defined(__x86_64__)
#define REAL    float
#define NAME(x) x##_f32_avx2
#define BYTES   32
#define ROWS    4
#define VECS    3
#define LOW     LOW_8
#define HIGH    HIGH_8
#define TARGET  __attribute__((target("avx2,fma")))
#define HALVES  1
#include "base/blas_variant.h"

#define REAL    double
#define NAME(x) x##_f64_avx2
#define BYTES   32
#define ROWS    4
#define VECS    3
#define LOW     LOW_4
#define HIGH    HIGH_4
#define TARGET  __attribute__((target("avx2,fma")))
#define HALVES  0
#include "base/blas_variant.h"

#define REAL     float
#define NAME(x)  x##_f32_avx512
#define BYTES    64
#define ROWS     8
#define VECS     3
#define LOW      LOW_16
#define HIGH     HIGH_16
#define TARGET   __attribute__((target("avx512f,avx2,fma")))
#define WIDEN(p) _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(p)))
#define HALVES   1
#include "base/blas_variant.h"

#define REAL    double
#define NAME(x) x##_f64_avx512
#define BYTES   64
#define ROWS    8
#define VECS    3
#define LOW     LOW_8
#define HIGH    HIGH_8
#define TARGET  __attribute__((target("avx512f,avx2,fma")))
#define HALVES  0
#include "base/blas_variant.h"

#define REAL         float
#define NAME(x)      x##_bf16_avx512
#define BYTES        64
#define ROWS         8
#define VECS         3
#define LOW          LOW_16
#define HIGH         HIGH_16
#define TARGET       __attribute__((target("avx512f,avx2,fma")))
#define PER          2
#define NARROW_PAIRS narrow_row_f32_avx512
#include "base/blas_variant.h"
#endif

typedef struct variant {
    bool (*product)(const nb_product *x);
    void (*dots)(const nb_product *x);
    void (*rows)(const nb_product *x);
} variant;
#define VARIANT(suffix)                                \
    {                                                  \
        product_##suffix, dots_##suffix, rows_##suffix \
    }
#define HALF_VARIANT(suffix)                                     \
    {                                                            \
        product_##suffix, dots_half_##suffix, rows_half_##suffix \
    }

int nb_own_bytes(void)
{
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return 16;
    return __builtin_cpu_supports("avx512f") ? 64 : 32;
#else
    return 16;
#endif
}

/* By the size of a number. */
static const variant *choose(size_t size, int bytes)
{
    static const variant plain[] = {HALF_VARIANT(f32), VARIANT(f32),
                                    VARIANT(f64)};
    const variant *v = plain;
    int most = nb_own_bytes();
    if (bytes > most) bytes = most;
#if defined(__x86_64__)
    static const variant avx2[] = {HALF_VARIANT(f32_avx2), VARIANT(f32_avx2),
                                   VARIANT(f64_avx2)};
    static const variant avx512[] = {HALF_VARIANT(f32_avx512),
                                     VARIANT(f32_avx512), VARIANT(f64_avx512)};
    if (bytes >= 32) v = bytes >= 64 ? avx512 : avx2;
#endif
    return &v[size / 4];
}

/* Whether there is an instruction for bfloat16, and it is wanted. */
static bool has_pairs(nb_dtype d, int bytes)
{
#if defined(__x86_64__)
    return d == NB_BF16 && bytes >= 64 && nb_own_bytes() >= 64 &&
           __builtin_cpu_supports("avx512bf16");
#else
    return (void)d, (void)bytes, false;
#endif
}

bool nb_product_own(const nb_product *x, int bytes)
{
    size_t size = nb_float_size(x->dtype);
    const variant *v = choose(size, bytes);
    bool few = x->m <= FEW || (x->n <= FEW && size > 2);
    bool dots = (x->a_col == 1 || x->k == 1) && (x->b_row == 1 || x->k == 1);
    if (few && dots) return v->dots(x), true;
    if (x->m <= (size > 2 ? FEW_ROWS : FEW_HALVES) && x->b_col == 1)
        return v->rows(x), true;
#if defined(__x86_64__)
    if (has_pairs(x->dtype, bytes)) return product_bf16_avx512(x);
#endif
    return v->product(x);
}

static void simple_f32(const nb_product *x)
{
    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->n; j++) {
            const float *a = (const float *)x->a + i * x->a_row;
            const float *b = (const float *)x->b + j * x->b_col;
            float *c = (float *)x->c + i * x->c_row + j;
            float sum = x->add ? *c : 0;
            for (int64_t p = 0; p < x->k; p++)
                sum += a[p * x->a_col] * b[p * x->b_row];
            *c = sum;
        }
}

static void simple_f64(const nb_product *x)
{
    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->n; j++) {
            const double *a = (const double *)x->a + i * x->a_row;
            const double *b = (const double *)x->b + j * x->b_col;
            double *c = (double *)x->c + i * x->c_row + j;
            double sum = x->add ? *c : 0;
            for (int64_t p = 0; p < x->k; p++)
                sum += a[p * x->a_col] * b[p * x->b_row];
            *c = sum;
        }
}

static float get_half(nb_dtype d, const void *p, int64_t i)
{
    uint16_t x = ((const uint16_t *)p)[i];
    return d == NB_F16 ? nb_f16_to_f32(x) : nb_bf16_to_f32(x);
}

static void simple_half(const nb_product *x)
{
    nb_dtype d = x->dtype;
    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->n; j++) {
            uint16_t *c = (uint16_t *)x->c + i * x->c_row + j;
            float sum = 0;
            for (int64_t p = 0; p < x->k; p++)
                sum += get_half(d, x->a, i * x->a_row + p * x->a_col) *
                       get_half(d, x->b, p * x->b_row + j * x->b_col);
            *c = d == NB_F16 ? nb_f32_to_f16(sum) : nb_f32_to_bf16(sum);
        }
}

void nb_product_simple(const nb_product *x)
{
    if (x->dtype == NB_F32)
        simple_f32(x);
    else if (x->dtype == NB_F64)
        simple_f64(x);
    else
        simple_half(x);
}
