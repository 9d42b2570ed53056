/* convert.c - elements from one dtype to another, by the rules of
 * core/convert.h, and the constants, loads and stores of a dtype.
 *
 * 16-bit floats are widened and narrowed by integer operations, as base/half.h
 * does; where the processor has instructions between float16 and float32,
 * those, whose bits are the same.  bfloat is not among LLVM's types that all
 * versions can compile. */
#include "core/convert.h"
#include "backend/cpu/cpu.h"
#include "backend/cpu/scalar.h"
#include "base/half.h"

#include <string.h>

nb_irt nb_irt_in_memory(nb_dtype d)
{
    static const nb_irt by[NB_NDTYPES] = {
        [NB_BOOL] = NB_IR_I8, [NB_I8] = NB_IR_I8,    [NB_I16] = NB_IR_I16,
        [NB_I32] = NB_IR_I32, [NB_I64] = NB_IR_I64,  [NB_U8] = NB_IR_I8,
        [NB_U16] = NB_IR_I16, [NB_U32] = NB_IR_I32,  [NB_U64] = NB_IR_I64,
        [NB_F16] = NB_IR_I16, [NB_BF16] = NB_IR_I16, [NB_F32] = NB_IR_F32,
        [NB_F64] = NB_IR_F64};
    return by[d];
}

nb_irt nb_irt_of(nb_dtype d)
{
    return d == NB_BOOL ? NB_IR_I1 : nb_irt_in_memory(d);
}

/* Bits of a type as an integer of its width, sign extended. */
nb_v nb_emit_const(nb_dtype d, double value)
{
    double real;
    int64_t bits;
    char at[8];
    nb_irt type = nb_irt_of(d);
    nb_write_f64(at, d, value);
    real = nb_read_f64(at, d);
    bits = nb_read_i64(at, nb_dtype_is_half(d) ? NB_I16 : d);
    if (type == NB_IR_F32 || type == NB_IR_F64) return nb_ir_float(type, real);
    return nb_ir_int(type, bits);
}

/* Shorter names for what follows. */

static nb_v op(nb_ir *ir, const char *name, nb_v a, nb_v b)
{
    return nb_ir_op2(ir, name, a, b);
}

static nb_v opk(nb_ir *ir, const char *name, nb_v a, uint64_t k)
{
    return op(ir, name, a, nb_ir_int((nb_irt)a.type, (int64_t)k));
}

static nb_v test(nb_ir *ir, const char *name, nb_v a, uint64_t k)
{
    nb_v v = nb_ir_int((nb_irt)a.type, (int64_t)k);
    return nb_ir_compare(ir, name, a, v);
}

/* The float of those bits, and back. */
static nb_v real_of(nb_ir *ir, nb_v bits)
{
    bool wide = bits.type == NB_IR_I64;
    return nb_ir_cast(ir, "bitcast", bits, wide ? NB_IR_F64 : NB_IR_F32);
}

static nb_v bits_of(nb_ir *ir, nb_v x)
{
    bool wide = x.type == NB_IR_F64;
    return nb_ir_cast(ir, "bitcast", x, wide ? NB_IR_I64 : NB_IR_I32);
}

static nb_v zero_of(nb_v x)
{
    return nb_ir_is_float(x) ? nb_ir_float((nb_irt)x.type, 0)
                             : nb_ir_int((nb_irt)x.type, 0);
}

/* k if the test holds, else 0. */
static nb_v where(nb_ir *ir, nb_v on, nb_irt type, uint64_t k)
{
    return nb_ir_select(ir, on, nb_ir_int(type, (int64_t)k),
                        nb_ir_int(type, 0));
}

/* Widening */

static nb_v f16_to_f32(nb_ir *ir, nb_v h)
{
    const uint32_t bias = (127 - 15) << 23, one = 1 << 23, quiet = 1 << 22;
    if (nb_cpu_target()->f16c)
        return nb_ir_cast(ir, "fpext", nb_ir_cast(ir, "bitcast", h, NB_IR_F16),
                          NB_IR_F32);
    nb_v w = nb_ir_cast(ir, "zext", h, NB_IR_I32);
    nb_v sign = opk(ir, "shl", opk(ir, "and", w, 0x8000), 16);
    nb_v a = opk(ir, "shl", opk(ir, "and", w, 0x7fff), 13);
    nb_v tiny = test(ir, "icmp ult", a, one);
    nb_v large = test(ir, "icmp uge", a, 0x0f800000);
    nb_v nan = test(ir, "icmp ugt", a, 0x0f800000);
    nb_v r = opk(ir, "add", a, bias);
    r = op(ir, "add", r, where(ir, tiny, NB_IR_I32, one));
    r = op(ir, "add", r, where(ir, large, NB_IR_I32, bias));
    r = op(ir, "or", r, where(ir, nan, NB_IR_I32, quiet));
    /* 2^-14 (1 + m) - 2^-14 is the subnormal 2^-14 m. */
    nb_v less = real_of(ir, where(ir, tiny, NB_IR_I32, bias + one));
    nb_v x = op(ir, "fsub", real_of(ir, r), less);
    return real_of(ir, op(ir, "or", sign, bits_of(ir, x)));
}

static nb_v bf16_to_f32(nb_ir *ir, nb_v h)
{
    nb_v bits = opk(ir, "shl", nb_ir_cast(ir, "zext", h, NB_IR_I32), 16);
    nb_v a = opk(ir, "and", bits, 0x7fffffff);
    nb_v nan = test(ir, "icmp ugt", a, 0x7f800000);
    nb_v quiet = where(ir, nan, NB_IR_I32, 1 << 22);
    return real_of(ir, op(ir, "or", bits, quiet));
}

/* Narrowing.  A number is its sign and its size, an integer that grows with it;
 * a size is rounded by adding just under half of what is cut off. */
typedef struct rule {
    int cut;        /* bits */
    uint64_t bias;  /* between the exponents, in place */
    uint64_t tiny;  /* below this size, results are subnormal */
    double beside;  /* a number whose last bit weighs as much as theirs */
    uint64_t large; /* from this size on, infinite */
    uint64_t inf;   /* the size of infinity */
    int to_inf, to_nan, payload;
} rule;

static nb_v narrow(nb_ir *ir, nb_v x, const rule *n)
{
    nb_v bits = bits_of(ir, x), beside = nb_ir_float(x.type, n->beside);
    nb_irt type = (nb_irt)bits.type;
    uint64_t cut = (uint64_t)n->cut, half = (1ull << (cut - 1)) - 1;
    uint64_t all = type == NB_IR_I64 ? INT64_MAX : INT32_MAX;
    nb_v a = opk(ir, "and", bits, all), top = opk(ir, "lshr", a, cut);
    nb_v r = op(ir, "add", a, opk(ir, "and", top, 1));
    r = opk(ir, "lshr", opk(ir, "add", r, half - n->bias), cut);
    /* Beside such a number the low bits of the sum are the pattern wanted. */
    nb_v tiny = test(ir, "icmp ult", a, n->tiny);
    nb_v small = real_of(ir, nb_ir_select(ir, tiny, a, nb_ir_int(type, 0)));
    nb_v sum = bits_of(ir, op(ir, "fadd", small, beside));
    nb_v low = opk(ir, "and", sum, 0xffff);
    r = nb_ir_select(ir, tiny, low, r);
    nb_v large = test(ir, "icmp uge", a, n->large);
    r = nb_ir_select(ir, large, nb_ir_int(type, n->to_inf), r);
    nb_v nan = opk(ir, "and", top, (uint64_t)n->payload);
    nan = opk(ir, "or", nan, (uint64_t)n->to_nan);
    r = nb_ir_select(ir, test(ir, "icmp ugt", a, n->inf), nan, r);
    int rest = 8 * nb_irt_bytes(type) - 16;
    nb_v sign = opk(ir, "lshr", bits, (uint64_t)rest);
    r = op(ir, "or", r, opk(ir, "and", sign, 0x8000));
    return nb_ir_cast(ir, "trunc", r, NB_IR_I16);
}

static nb_v f32_to_f16(nb_ir *ir, nb_v x)
{
    static const rule n = {
        .cut = 13,
        .bias = 112ull << 23,
        .tiny = 113ull << 23,
        .beside = 0.5,
        .large = 143ull << 23,
        .inf = 255ull << 23,
        .to_inf = 0x7c00,
        .to_nan = 0x7e00,
        .payload = 0x3ff,
    };
    if (nb_cpu_target()->f16c)
        return nb_ir_cast(ir, "bitcast",
                          nb_ir_cast(ir, "fptrunc", x, NB_IR_F16), NB_IR_I16);
    return narrow(ir, x, &n);
}

static nb_v f64_to_f16(nb_ir *ir, nb_v x)
{
    static const rule n = {
        .cut = 42,
        .bias = 1008ull << 52,
        .tiny = 1009ull << 52,
        .beside = 0x1p28,
        .large = 0x40f0ull << 48,
        .inf = 2047ull << 52,
        .to_inf = 0x7c00,
        .to_nan = 0x7e00,
        .payload = 0x3ff,
    };
    return narrow(ir, x, &n);
}

static nb_v f64_to_bf16(nb_ir *ir, nb_v x)
{
    static const rule n = {
        .cut = 45,
        .bias = 896ull << 52,
        .tiny = 897ull << 52,
        .beside = 0x1p-81,
        .large = 0x47f0ull << 48,
        .inf = 2047ull << 52,
        .to_inf = 0x7f80,
        .to_nan = 0x7fc0,
        .payload = 0x7f,
    };
    return narrow(ir, x, &n);
}

/* The same exponents: only the last step of the above. */
static nb_v f32_to_bf16(nb_ir *ir, nb_v x)
{
    nb_v bits = bits_of(ir, x), top = opk(ir, "lshr", bits, 16);
    nb_v r = op(ir, "add", bits, opk(ir, "and", top, 1));
    r = opk(ir, "lshr", opk(ir, "add", r, 0x7fff), 16);
    nb_v nan = nb_ir_compare(ir, "fcmp uno", x, x);
    r = nb_ir_select(ir, nan, opk(ir, "or", top, 0x40), r);
    return nb_ir_cast(ir, "trunc", r, NB_IR_I16);
}

/* Between numbers */

static nb_v real_to_real(nb_ir *ir, nb_v x, nb_dtype from, nb_dtype to)
{
    if (from == NB_F16) x = f16_to_f32(ir, x);
    if (from == NB_BF16) x = bf16_to_f32(ir, x);
    bool wide = from == NB_F64;
    if (to == NB_F16) return wide ? f64_to_f16(ir, x) : f32_to_f16(ir, x);
    if (to == NB_BF16) return wide ? f64_to_bf16(ir, x) : f32_to_bf16(ir, x);
    return nb_ir_cast(ir, wide ? "fptrunc" : "fpext", x, nb_irt_of(to));
}

static nb_v integer_to_integer(nb_ir *ir, nb_v x, nb_dtype from, nb_dtype to)
{
    const char *widen = nb_dtype_is_unsigned(from) ? "zext" : "sext";
    bool less = nb_dtype_size(to) < nb_dtype_size(from);
    return nb_ir_cast(ir, less ? "trunc" : widen, x, nb_irt_of(to));
}

/* A 64-bit integer too long for a double keeps a last bit of one for what is
 * cut off (rounding to odd), so that rounding again equals rounding once. */
static nb_v odd(nb_ir *ir, nb_v x)
{
    nb_v rest = opk(ir, "and", x, 0x7ff);
    nb_v some = test(ir, "icmp ne", rest, 0);
    nb_v kept =
        op(ir, "or", op(ir, "xor", x, rest), where(ir, some, NB_IR_I64, 0x800));
    nb_v size = opk(ir, "lshr", x, 53);
    return nb_ir_select(ir, test(ir, "icmp ne", size, 0), kept, x);
}

/* Of the size, since what is cut off counts towards zero. */
static nb_v long_to_double(nb_ir *ir, nb_v x, bool is_unsigned)
{
    if (is_unsigned) return nb_ir_cast(ir, "uitofp", odd(ir, x), NB_IR_F64);
    nb_v zero = nb_ir_int(NB_IR_I64, 0);
    nb_v minus = nb_ir_compare(ir, "icmp slt", x, zero);
    nb_v size = nb_ir_select(ir, minus, op(ir, "sub", zero, x), x);
    nb_v y = nb_ir_cast(ir, "uitofp", odd(ir, size), NB_IR_F64);
    return nb_ir_select(ir, minus, nb_ir_op1(ir, "fneg", y), y);
}

static nb_v integer_to_real(nb_ir *ir, nb_v x, nb_dtype from, nb_dtype to)
{
    bool is_unsigned = nb_dtype_is_unsigned(from);
    const char *name = is_unsigned ? "uitofp" : "sitofp";
    size_t bytes = nb_dtype_size(from);
    if (!nb_dtype_is_half(to)) return nb_ir_cast(ir, name, x, nb_irt_of(to));
    if (bytes == 8) {
        x = long_to_double(ir, x, is_unsigned);
        return real_to_real(ir, x, NB_F64, to);
    }
    nb_dtype middle = bytes > 2 ? NB_F64 : NB_F32;
    x = nb_ir_cast(ir, name, x, nb_irt_of(middle));
    return real_to_real(ir, x, middle, to);
}

/* The cast sees only what it is defined for; a NaN fails all comparisons and
 * stays at zero.  Short integers are cast as 32 bits. */
static nb_v real_to_integer(nb_ir *ir, nb_v x, nb_dtype to)
{
    int bits = 8 * (int)nb_dtype_size(to);
    bool is_unsigned = nb_dtype_is_unsigned(to);
    double end = (double)(1ull << (bits - 1));
    int64_t most = is_unsigned ? -1 : INT64_MAX >> (64 - bits);
    nb_irt type = nb_irt_of(to), real = (nb_irt)x.type;
    nb_v low = nb_ir_float(real, is_unsigned ? 0 : -end);
    nb_v above = nb_ir_float(real, is_unsigned ? 2 * end : end);
    nb_v under = nb_ir_compare(ir, "fcmp olt", x, low);
    nb_v over = nb_ir_compare(ir, "fcmp oge", x, above);
    nb_v in = nb_ir_compare(ir, "fcmp oge", x, low);
    nb_v held = nb_ir_select(ir, in, x, nb_ir_float(real, 0));
    held = nb_ir_select(ir, over, nb_ir_float(real, 0), held);
    bool plain = is_unsigned && bits >= 32;
    nb_v y = nb_ir_cast(ir, plain ? "fptoui" : "fptosi", held,
                        bits < 32 ? NB_IR_I32 : type);
    y = nb_ir_cast(ir, "trunc", y, type);
    y = nb_ir_select(ir, under, nb_ir_int(type, is_unsigned ? 0 : ~most), y);
    return nb_ir_select(ir, over, nb_ir_int(type, most), y);
}

static nb_v to_bool(nb_ir *ir, nb_v x, nb_dtype from)
{
    if (nb_dtype_is_half(from)) x = opk(ir, "and", x, 0x7fff);
    const char *name = nb_ir_is_float(x) ? "fcmp une" : "icmp ne";
    return nb_ir_compare(ir, name, x, zero_of(x));
}

nb_v nb_emit_convert(nb_ir *ir, nb_v x, nb_dtype from, nb_dtype to)
{
    if (from == to) return x;
    if (to == NB_BOOL) return to_bool(ir, x, from);
    if (from == NB_BOOL)
        return nb_ir_select(ir, x, nb_emit_const(to, 1), nb_emit_const(to, 0));
    if (!nb_dtype_is_float(from))
        return nb_dtype_is_float(to) ? integer_to_real(ir, x, from, to)
                                     : integer_to_integer(ir, x, from, to);
    if (nb_dtype_is_float(to)) return real_to_real(ir, x, from, to);
    if (nb_dtype_is_half(from)) x = real_to_real(ir, x, from, NB_F32);
    return real_to_integer(ir, x, to);
}

/* Memory */

nb_v nb_emit_load(nb_ir *ir, nb_v at, nb_dtype d, int lanes, const nb_v *mask)
{
    nb_v x = nb_ir_load(ir, at, nb_irt_in_memory(d), lanes, mask);
    return d == NB_BOOL ? test(ir, "icmp ne", x, 0) : x;
}

void nb_emit_store(nb_ir *ir, nb_v at, nb_dtype d, nb_v x, const nb_v *mask)
{
    if (d == NB_BOOL) x = nb_ir_cast(ir, "zext", x, NB_IR_I8);
    nb_ir_store(ir, at, x, mask);
}
