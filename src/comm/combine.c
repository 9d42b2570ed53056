/* combine.c - see combine.h. */
#include "comm/combine.h"

#include "base/half.h"
#include "comm/stream.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 1024 };

#define SAME(x) (x)

#define NAME  i8
#define T     int8_t
#define A     int8_t
#define U     unsigned
#define PLAIN 1
#define LOAD  SAME
#define STORE SAME
#define LEAST INT8_MIN
#define MOST  INT8_MAX
#include "comm/combine_loops.h"

#define NAME  i16
#define T     int16_t
#define A     int16_t
#define U     unsigned
#define PLAIN 1
#define LOAD  SAME
#define STORE SAME
#define LEAST INT16_MIN
#define MOST  INT16_MAX
#include "comm/combine_loops.h"

#define NAME  i32
#define T     int32_t
#define A     int32_t
#define U     uint32_t
#define PLAIN 1
#define LOAD  SAME
#define STORE SAME
#define LEAST INT32_MIN
#define MOST  INT32_MAX
#include "comm/combine_loops.h"

#define NAME  i64
#define T     int64_t
#define A     int64_t
#define U     uint64_t
#define PLAIN 1
#define LOAD  SAME
#define STORE SAME
#define LEAST INT64_MIN
#define MOST  INT64_MAX
#include "comm/combine_loops.h"

#define NAME  u8
#define T     uint8_t
#define A     uint8_t
#define U     unsigned
#define PLAIN 1
#define LOAD  SAME
#define STORE SAME
#define LEAST 0
#define MOST  UINT8_MAX
#include "comm/combine_loops.h"

#define NAME  u16
#define T     uint16_t
#define A     uint16_t
#define U     unsigned
#define PLAIN 1
#define LOAD  SAME
#define STORE SAME
#define LEAST 0
#define MOST  UINT16_MAX
#include "comm/combine_loops.h"

#define NAME  u32
#define T     uint32_t
#define A     uint32_t
#define U     uint32_t
#define PLAIN 1
#define LOAD  SAME
#define STORE SAME
#define LEAST 0
#define MOST  UINT32_MAX
#include "comm/combine_loops.h"

#define NAME  u64
#define T     uint64_t
#define A     uint64_t
#define U     uint64_t
#define PLAIN 1
#define LOAD  SAME
#define STORE SAME
#define LEAST 0
#define MOST  UINT64_MAX
#include "comm/combine_loops.h"

#define NAME  f16
#define T     uint16_t
#define A     float
#define U     float
#define PLAIN 0
#define LOAD  nb_f16_to_f32
#define STORE nb_f32_to_f16
#define LEAST -INFINITY
#define MOST  INFINITY
#include "comm/combine_loops.h"

#define NAME  bf16
#define T     uint16_t
#define A     float
#define U     float
#define PLAIN 0
#define LOAD  nb_bf16_to_f32
#define STORE nb_f32_to_bf16
#define LEAST -INFINITY
#define MOST  INFINITY
#include "comm/combine_loops.h"

#define NAME  f32
#define T     float
#define A     float
#define U     float
#define PLAIN 1
#define LOAD  SAME
#define STORE SAME
#define LEAST -INFINITY
#define MOST  INFINITY
#include "comm/combine_loops.h"

#define NAME  f64
#define T     double
#define A     double
#define U     double
#define PLAIN 1
#define LOAD  SAME
#define STORE SAME
#define LEAST -INFINITY
#define MOST  INFINITY
#include "comm/combine_loops.h"

/* What a kind is on bools, as bytes. */
static const nb_reduce on_bools[] = {
    [NB_SUM] = NB_OR,   [NB_MAX] = NB_OR,  [NB_MIN] = NB_AND,
    [NB_PROD] = NB_AND, [NB_AND] = NB_AND, [NB_OR] = NB_OR};

typedef void combine_fn(nb_reduce, int, const void *const *, int64_t, void *);
typedef void fill_fn(nb_reduce, int64_t, void *);

static combine_fn *const combine[NB_NDTYPES] = {
    [NB_BOOL] = combine_u8, [NB_I8] = combine_i8,     [NB_I16] = combine_i16,
    [NB_I32] = combine_i32, [NB_I64] = combine_i64,   [NB_U8] = combine_u8,
    [NB_U16] = combine_u16, [NB_U32] = combine_u32,   [NB_U64] = combine_u64,
    [NB_F16] = combine_f16, [NB_BF16] = combine_bf16, [NB_F32] = combine_f32,
    [NB_F64] = combine_f64};

static fill_fn *const fill[NB_NDTYPES] = {
    [NB_BOOL] = fill_u8, [NB_I8] = fill_i8,     [NB_I16] = fill_i16,
    [NB_I32] = fill_i32, [NB_I64] = fill_i64,   [NB_U8] = fill_u8,
    [NB_U16] = fill_u16, [NB_U32] = fill_u32,   [NB_U64] = fill_u64,
    [NB_F16] = fill_f16, [NB_BF16] = fill_bf16, [NB_F32] = fill_f32,
    [NB_F64] = fill_f64};

void nb_combine(nb_dtype dtype, nb_reduce kind, int n, const void *const *x,
                int64_t count, void *out)
{
    if (dtype == NB_BOOL) kind = on_bools[kind];
    if (n == 1)
        memcpy(out, x[0], (size_t)count * nb_dtype_size(dtype));
    else
        combine[dtype](kind, n, x, count, out);
    nb_stream_end();
}

void nb_identity_fill(nb_dtype dtype, nb_reduce kind, int64_t count, void *out)
{
    if (dtype == NB_BOOL) kind = on_bools[kind];
    fill[dtype](kind, count, out);
}
