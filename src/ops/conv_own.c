/* conv_own.c - the variants of conv_tile.h and the choice among them.
 *
 * A vector type is split up for the instructions of the function it stands in,
 * so every variant is compiled from the same text under its own target; which
 * one runs is asked of the processor. */
#include "ops/conv_own.h"

/* Loops that must go, or the tile they index does not stay in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

#define REAL    float
#define NAME(x) x##_f32
#define BYTES   16
#define ROWS    4
#define TARGET
#include "ops/conv_tile.h"

#define REAL    double
#define NAME(x) x##_f64
#define BYTES   16
#define ROWS    4
#define TARGET
#include "ops/conv_tile.h"

#define REAL    uint64_t
#define NAME(x) x##_i64
#define BYTES   16
#define ROWS    4
#define TARGET
#include "ops/conv_tile.h"

#if defined(__x86_64__)
#define REAL    float
#define NAME(x) x##_f32_avx2
#define BYTES   32
#define ROWS    6
#define TARGET  __attribute__((target("avx2,fma")))
#include "ops/conv_tile.h"

#define REAL    double
#define NAME(x) x##_f64_avx2
#define BYTES   32
#define ROWS    6
#define TARGET  __attribute__((target("avx2,fma")))
#include "ops/conv_tile.h"

#define REAL    float
#define NAME(x) x##_f32_avx512
#define BYTES   64
#define ROWS    8
#define TARGET  __attribute__((target("avx512f,avx2,fma")))
#include "ops/conv_tile.h"

#define REAL    double
#define NAME(x) x##_f64_avx512
#define BYTES   64
#define ROWS    8
#define TARGET  __attribute__((target("avx512f,avx2,fma")))
#include "ops/conv_tile.h"
#endif

const nb_conv_tiler *nb_conv_tiler_of(nb_dtype d, int bytes)
{
    bool f32 = d == NB_F32;
    if (d == NB_I64) return &tiler_i64;
#if defined(__x86_64__)
    bool avx2 = bytes >= 32 && __builtin_cpu_supports("avx2") &&
                __builtin_cpu_supports("fma");
    if (avx2 && bytes >= 64 && __builtin_cpu_supports("avx512f"))
        return f32 ? &tiler_f32_avx512 : &tiler_f64_avx512;
    if (avx2) return f32 ? &tiler_f32_avx2 : &tiler_f64_avx2;
#else
    (void)bytes;
#endif
    return f32 ? &tiler_f32 : &tiler_f64;
}
