/* blas_own.c - the product without a library: the variants of blas_tile.h and
 * the choice among them.
 *
 * A vector type is split up for the instructions of the function it stands in,
 * so every variant is compiled from the same text under its own target; which
 * one runs is asked of the processor. */
#include "base/blas_own.h"

#include "base/memory.h"

#include <string.h>

enum { DEPTH = 256, HEIGHT = 192, WIDTH = 3072, FEW = 3, FEW_ROWS = 16 };
enum { STRIP = 2048 }; /* bytes */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#define REAL    float
#define NAME(x) x##_f32
#define BYTES   16
#define ROWS    4
#define VECS    2
#define TARGET
#include "base/blas_tile.h"

#define REAL    double
#define NAME(x) x##_f64
#define BYTES   16
#define ROWS    4
#define VECS    2
#define TARGET
#include "base/blas_tile.h"

#if defined(__x86_64__)
#define REAL    float
#define NAME(x) x##_f32_avx2
#define BYTES   32
#define ROWS    6
#define VECS    2
#define TARGET  __attribute__((target("avx2,fma")))
#include "base/blas_tile.h"

#define REAL    double
#define NAME(x) x##_f64_avx2
#define BYTES   32
#define ROWS    6
#define VECS    2
#define TARGET  __attribute__((target("avx2,fma")))
#include "base/blas_tile.h"

#define REAL    float
#define NAME(x) x##_f32_avx512
#define BYTES   64
#define ROWS    12
#define VECS    2
#define TARGET  __attribute__((target("avx512f,avx2,fma")))
#include "base/blas_tile.h"

#define REAL    double
#define NAME(x) x##_f64_avx512
#define BYTES   64
#define ROWS    12
#define VECS    2
#define TARGET  __attribute__((target("avx512f,avx2,fma")))
#include "base/blas_tile.h"
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

static const variant *choose(nb_dtype d, int bytes)
{
    static const variant plain[2] = {VARIANT(f32), VARIANT(f64)};
    const variant *v = plain;
#if defined(__x86_64__)
    static const variant avx2[2] = {VARIANT(f32_avx2), VARIANT(f64_avx2)};
    static const variant avx512[2] = {VARIANT(f32_avx512), VARIANT(f64_avx512)};
    if (bytes >= 32 && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        v = avx2;
    if (bytes >= 64 && v == avx2 && __builtin_cpu_supports("avx512f"))
        v = avx512;
#else
    (void)bytes;
#endif
    return &v[d == NB_F64];
}

bool nb_product_own(const nb_product *x, int bytes)
{
    const variant *v = choose(x->dtype, bytes);
    bool few = x->m <= FEW || x->n <= FEW;
    bool dots = (x->a_col == 1 || x->k == 1) && (x->b_row == 1 || x->k == 1);
    if (few && dots) return v->dots(x), true;
    if (x->m <= FEW_ROWS && x->b_col == 1) return v->rows(x), true;
    return v->product(x);
}

static void simple_f32(const nb_product *x)
{
    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->n; j++) {
            const float *a = (const float *)x->a + i * x->a_row;
            const float *b = (const float *)x->b + j * x->b_col;
            float sum = 0;
            for (int64_t p = 0; p < x->k; p++)
                sum += a[p * x->a_col] * b[p * x->b_row];
            ((float *)x->c)[i * x->c_row + j] = sum;
        }
}

static void simple_f64(const nb_product *x)
{
    for (int64_t i = 0; i < x->m; i++)
        for (int64_t j = 0; j < x->n; j++) {
            const double *a = (const double *)x->a + i * x->a_row;
            const double *b = (const double *)x->b + j * x->b_col;
            double sum = 0;
            for (int64_t p = 0; p < x->k; p++)
                sum += a[p * x->a_col] * b[p * x->b_row];
            ((double *)x->c)[i * x->c_row + j] = sum;
        }
}

void nb_product_simple(const nb_product *x)
{
    (x->dtype == NB_F32 ? simple_f32 : simple_f64)(x);
}
