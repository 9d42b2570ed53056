/* scalars.c - the table of instructions by compute type. */
#include "backend/ref/scalars.h"

#include "base/half.h"

#include <math.h>
#include <string.h>

/* One text serves signed and unsigned types: some tests are then constant. */
#pragma GCC diagnostic ignored "-Wtype-limits"

/* Floats: the remainder has the sign of the divisor.  a - remainder is a
 * multiple of b, so the quotient is whole up to rounding, which is undone.
 * float32 computes these in double. */
static inline double nb_float_mod(double a, double b)
{
    double r = fmod(a, b);
    if (r == 0) return copysign(0, b);
    return (r < 0) != (b < 0) ? r + b : r;
}

static inline double nb_floor_div(double a, double b)
{
    double r = fmod(a, b), q = (a - r) / b;
    if (b == 0) return a / b;
    if (r != 0 && (r < 0) != (b < 0)) q -= 1;
    if (q == 0) return copysign(0, a / b);
    return floor(q) + (q - floor(q) > 0.5);
}

/* Integers: nothing traps.  Powers by squaring, modulo 2^64; a negative
 * exponent gives 0 but for bases 1 and -1. */
static inline uint64_t power(uint64_t x, uint64_t n)
{
    uint64_t y = 1;
    for (; n; n >>= 1, x *= x)
        if (n & 1) y *= x;
    return y;
}

#define nb_int_pow(a, b)                                     \
    ((b) >= 0       ? (T)power((uint64_t)(a), (uint64_t)(b)) \
     : (a) == 1     ? (T)1                                   \
     : (a) == (T)-1 ? (T)((b)&1 ? -1 : 1)                    \
                    : (T)0)

/* With zero as the divisor both are 0; the one quotient too large wraps. */
#define nb_int_quot(a, b)        \
    ((b) == 0 ? (T)0             \
     : SIGNED(T) && (b) == (T)-1 \
         ? (T)(0 - (U)(a))       \
         : (T)((a) / (b) - (((a) % (b) != 0) && (((a) < 0) != ((b) < 0)))))
#define nb_int_mod(a, b)                                                   \
    ((b) == 0 || (SIGNED(T) && (b) == (T)-1)        ? (T)0                 \
     : ((a) % (b) != 0) && (((a) < 0) != ((b) < 0)) ? (T)((a) % (b) + (b)) \
                                                    : (T)((a) % (b)))
#define SIGNED(T) ((T)-1 < (T)1)

/* Shifting by the width or more, or by less than 0, leaves only the sign. */
#define WIDTH(T) ((T)(8 * sizeof(T)))
#define nb_shl(a, b) \
    ((b) < 0 || (b) >= WIDTH(T) ? (T)0 : (T)((W)(a) << (int)(b)))
#define nb_shr(a, b)                                       \
    ((b) < 0 || (b) >= WIDTH(T) ? ((a) < 0 ? (T)-1 : (T)0) \
                                : (T)((a) >> (int)(b)))

/* Floating types. */
#define VALUE(f, i) f
#define CLASS_A(x)  x
#define CLASS_N(x)  x
#define CLASS_F(x)  x
#define CLASS_I(x)
#define PICK_A(x) x,
#define PICK_N(x) x,
#define PICK_F(x) x,
#define PICK_I(x) NULL,

#define TYPE    f32
#define T       float
#define U       float
#define W       float
#define KEEP(v) (v)
#define M(fn)   fn##f
#include "backend/ref/scalar_type.h"
#undef M

#define TYPE    f64
#define T       double
#define U       double
#define W       double
#define KEEP(v) (v)
#define M(fn)   fn
#include "backend/ref/scalar_type.h"
#undef M
#undef VALUE
#undef CLASS_F
#undef CLASS_I
#undef PICK_F
#undef PICK_I

/* Integers. */
#define VALUE(f, i) i
#define CLASS_F(x)
#define CLASS_I(x) x
#define PICK_F(x)  NULL,
#define PICK_I(x)  x,

#define INTEGER(bits) int##bits##_t
#define TYPE          i8
#define T             int8_t
#define U             uint8_t
#define W             uint32_t
#define KEEP(v)       (v)
#define INV(a)        ~(a)
#include "backend/ref/scalar_type.h"
#define TYPE    i16
#define T       int16_t
#define U       uint16_t
#define W       uint32_t
#define KEEP(v) (v)
#define INV(a)  ~(a)
#include "backend/ref/scalar_type.h"
#define TYPE    i32
#define T       int32_t
#define U       uint32_t
#define W       uint32_t
#define KEEP(v) (v)
#define INV(a)  ~(a)
#include "backend/ref/scalar_type.h"
#define TYPE    i64
#define T       int64_t
#define U       uint64_t
#define W       uint64_t
#define KEEP(v) (v)
#define INV(a)  ~(a)
#include "backend/ref/scalar_type.h"
#define TYPE    u8
#define T       uint8_t
#define U       uint8_t
#define W       uint32_t
#define KEEP(v) (v)
#define INV(a)  ~(a)
#include "backend/ref/scalar_type.h"
#define TYPE    u16
#define T       uint16_t
#define U       uint16_t
#define W       uint32_t
#define KEEP(v) (v)
#define INV(a)  ~(a)
#include "backend/ref/scalar_type.h"
#define TYPE    u32
#define T       uint32_t
#define U       uint32_t
#define W       uint32_t
#define KEEP(v) (v)
#define INV(a)  ~(a)
#include "backend/ref/scalar_type.h"
#define TYPE    u64
#define T       uint64_t
#define U       uint64_t
#define W       uint64_t
#define KEEP(v) (v)
#define INV(a)  ~(a)
#include "backend/ref/scalar_type.h"

/* Bool: as a byte that is brought back to 0 or 1; no numbers-only rows. */
#undef CLASS_N
#undef PICK_N
#define CLASS_N(x)
#define PICK_N(x) NULL,
#define TYPE      b8
#define T         uint8_t
#define U         uint8_t
#define W         uint32_t
#define KEEP(v)   ((v) != 0)
#define INV(a)    !(a)
#include "backend/ref/scalar_type.h"

static nb_run *const *const runs[NB_NDTYPES] = {
    [NB_BOOL] = runs_b8, [NB_I8] = runs_i8,   [NB_I16] = runs_i16,
    [NB_I32] = runs_i32, [NB_I64] = runs_i64, [NB_U8] = runs_u8,
    [NB_U16] = runs_u16, [NB_U32] = runs_u32, [NB_U64] = runs_u64,
    [NB_F32] = runs_f32, [NB_F64] = runs_f64};

typedef void reduce_fn(void *, const void *, int64_t);
static reduce_fn *const *const reduces[NB_NDTYPES] = {
    [NB_BOOL] = reduces_b8, [NB_I8] = reduces_i8,   [NB_I16] = reduces_i16,
    [NB_I32] = reduces_i32, [NB_I64] = reduces_i64, [NB_U8] = reduces_u8,
    [NB_U16] = reduces_u16, [NB_U32] = reduces_u32, [NB_U64] = reduces_u64,
    [NB_F32] = reduces_f32, [NB_F64] = reduces_f64};

nb_run *nb_scalar_run(nb_scalar s, nb_dtype compute)
{
    return runs[compute][s];
}

nb_dtype nb_compute_type(nb_dtype d)
{
    return nb_dtype_is_half(d) ? NB_F32 : d;
}

void nb_reduce_run(nb_reduce r, nb_dtype compute, void *acc, const void *a,
                   int64_t n)
{
    reduces[compute][r](acc, a, n);
}

/* The neutral element: 0, 1, the least or the greatest number. */
void nb_reduce_start(nb_reduce r, nb_dtype compute, void *acc, int64_t n)
{
    size_t bytes = nb_dtype_size(compute);
    bool top = r == NB_MIN || r == NB_AND, least = r == NB_MAX || r == NB_OR;
    unsigned char one[8] = {0};
    if (compute == NB_F32) {
        float v = r == NB_PROD ? 1 : top ? INFINITY : least ? -INFINITY : 0;
        memcpy(one, &v, sizeof v);
    } else if (compute == NB_F64) {
        double v = r == NB_PROD ? 1 : top ? INFINITY : least ? -INFINITY : 0;
        memcpy(one, &v, sizeof v);
    } else if (r == NB_PROD || (compute == NB_BOOL && top)) {
        one[0] = 1;
    } else if (top || (least && !nb_dtype_is_unsigned(compute) &&
                       compute != NB_BOOL)) {
        bool is_signed = !nb_dtype_is_unsigned(compute);
        memset(one, top ? 0xff : 0, sizeof one);
        if (is_signed) one[bytes - 1] = top ? 0x7f : 0x80;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy((char *)acc + (size_t)i * bytes, one, bytes);
}
