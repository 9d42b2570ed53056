/* scalar.c - the scalar instruction set as LLVM IR: one row an instruction.
 *
 * A row is a way of writing and, for ways that need them, the names of LLVM's
 * instructions for floats, signed and unsigned integers and bools.  A row of
 * scalars.def that has no ROW here does not compile. */
#include "backend/cpu/scalar.h"

#include "backend/cpu/math.h"
#include "core/convert.h"
#include "lower/nest.h"

#include <math.h>
#include <string.h>

/* What a row is written from. */
typedef struct site {
    nb_ir *ir;
    nb_dtype d;
    int class;
    const struct row *row;
    nb_v a, b, c;
} site;

enum { REAL, SIGNED, UNSIGNED, BOOL };

typedef struct row {
    nb_v (*way)(const site *s);
    const char *op[4]; /* by class */
    nb_v (*one)(nb_ir *ir, nb_v a);
    nb_v (*two)(nb_ir *ir, nb_v a, nb_v b);
} row;

static nb_v op(const site *s, const char *name, nb_v a, nb_v b)
{
    return nb_ir_op2(s->ir, name, a, b);
}

static nb_v compare(const site *s, const char *name, nb_v a, nb_v b)
{
    return nb_ir_compare(s->ir, name, a, b);
}

static nb_v choose(const site *s, nb_v test, nb_v a, nb_v b)
{
    return nb_ir_select(s->ir, test, a, b);
}

/* A constant of the type of a. */
static nb_v number(const site *s, int value)
{
    return nb_ir_is_float(s->a) ? nb_ir_float(s->a.type, value)
                                : nb_ir_int(s->a.type, value);
}

static const char *name_of(const site *s)
{
    return s->row->op[s->class];
}

/* Ways that serve many rows.  One without a name for the class leaves the
 * first operand as it is: floor of an integer. */

static nb_v by_copy(const site *s)
{
    return s->a;
}

static nb_v by_op2(const site *s)
{
    return name_of(s) ? op(s, name_of(s), s->a, s->b) : s->a;
}

static nb_v by_compare(const site *s)
{
    return compare(s, name_of(s), s->a, s->b);
}

static nb_v by_intrinsic(const site *s)
{
    return name_of(s) ? nb_ir_call1(s->ir, name_of(s), s->a) : s->a;
}

static nb_v by_intrinsic2(const site *s)
{
    return nb_ir_call2(s->ir, name_of(s), s->a, s->b);
}

static nb_v by_one(const site *s)
{
    return s->row->one(s->ir, s->a);
}

static nb_v by_two(const site *s)
{
    return s->row->two(s->ir, s->a, s->b);
}

static nb_v by_select(const site *s)
{
    return choose(s, s->a, s->b, s->c);
}

/* Arithmetic */

static nb_v way_neg(const site *s)
{
    if (s->class == REAL) return nb_ir_op1(s->ir, "fneg", s->a);
    return op(s, "sub", number(s, 0), s->a);
}

static nb_v way_abs(const site *s)
{
    if (s->class == REAL) return nb_ir_call1(s->ir, "llvm.fabs", s->a);
    if (s->class != SIGNED) return s->a;
    nb_v less = op(s, "sub", number(s, 0), s->a);
    return choose(s, compare(s, "icmp slt", s->a, number(s, 0)), less, s->a);
}

/* A NaN is none of the three. */
static nb_v way_sign(const site *s)
{
    bool real = s->class == REAL;
    nb_v zero = number(s, 0), y;
    if (s->class == UNSIGNED)
        return nb_ir_cast(s->ir, "zext", compare(s, "icmp ne", s->a, zero),
                          (nb_irt)s->a.type);
    nb_v less = compare(s, real ? "fcmp olt" : "icmp slt", s->a, zero);
    nb_v more = compare(s, real ? "fcmp ogt" : "icmp sgt", s->a, zero);
    y = real ? choose(s, compare(s, "fcmp oeq", s->a, zero), zero, s->a) : zero;
    y = choose(s, less, number(s, -1), y);
    return choose(s, more, number(s, 1), y);
}

static nb_v way_recip(const site *s)
{
    return op(s, "fdiv", number(s, 1), s->a);
}

static nb_v way_inv(const site *s)
{
    return op(s, "xor", s->a, number(s, s->class == BOOL ? 1 : -1));
}

/* As the reference: the second where neither is greater, a NaN if there is
 * one. */
static nb_v extreme(const site *s)
{
    nb_v y = choose(s, compare(s, name_of(s), s->a, s->b), s->a, s->b);
    if (s->class != REAL) return y;
    return choose(s, compare(s, "fcmp uno", s->a, s->a), s->a, y);
}

static nb_v way_fma(const site *s)
{
    if (s->class == REAL)
        return nb_ir_call3(s->ir, "llvm.fmuladd", s->a, s->b, s->c);
    return op(s, "add", op(s, "mul", s->a, s->b), s->c);
}

/* Shifts by the width or more, or by less than 0, leave only the sign. */
static nb_v shift(const site *s)
{
    int bits = 8 * nb_irt_bytes((nb_irt)s->a.type);
    nb_v last = number(s, bits - 1);
    nb_v in = compare(s, "icmp ult", s->b, number(s, bits));
    nb_v by = choose(s, in, s->b, last);
    nb_v y = op(s, name_of(s), s->a, by);
    if (!strcmp(name_of(s), "ashr")) return y;
    return choose(s, in, y, number(s, 0));
}

static nb_v way_shl(const site *s)
{
    return s->class == BOOL ? s->a : shift(s);
}

static nb_v way_shr(const site *s)
{
    if (s->class != BOOL) return shift(s);
    return op(s, "and", s->a, op(s, "xor", s->b, number(s, 1)));
}

/* Quotients and remainders round down: they are those of C, less or plus one
 * divisor where the remainder has the other sign. */

/* The quotient of C, rounded towards zero.  Vectors are not divided by any
 * processor but as floats, which is exact if they have twice the bits: no
 * quotient is near enough to a whole number to be rounded to it. */
static nb_v plain_quot(const site *s, nb_v by)
{
    bool is_signed = s->class == SIGNED;
    int bytes = nb_irt_bytes((nb_irt)s->a.type);
    nb_irt real = bytes < 4 ? NB_IR_F32 : NB_IR_F64;
    if (s->a.lanes == 1 || !s->b.id || bytes > 4)
        return op(s, is_signed ? "sdiv" : "udiv", s->a, by);
    const char *to = is_signed ? "sitofp" : "uitofp";
    nb_v q = op(s, "fdiv", nb_ir_cast(s->ir, to, s->a, real),
                nb_ir_cast(s->ir, to, by, real));
    nb_irt middle = bytes < 4 ? NB_IR_I32 : (nb_irt)s->a.type;
    bool plain = !is_signed && bytes == 4;
    q = nb_ir_cast(s->ir, plain ? "fptoui" : "fptosi", q, middle);
    return nb_ir_cast(s->ir, "trunc", q, (nb_irt)s->a.type);
}

/* With a divisor that cannot trap: 1 in place of 0 and of -1. */
typedef struct division {
    nb_v zero, minus, quot, rest, borrow;
} division;

static division divide(const site *s)
{
    division v;
    v.zero = compare(s, "icmp eq", s->b, number(s, 0));
    v.minus = compare(s, "icmp eq", s->b, number(s, -1));
    nb_v odd = s->class == SIGNED ? op(s, "or", v.zero, v.minus) : v.zero;
    nb_v by = choose(s, odd, number(s, 1), s->b);
    v.quot = plain_quot(s, by);
    v.rest = op(s, "sub", s->a, op(s, "mul", v.quot, by));
    if (s->class == SIGNED) {
        nb_v some = compare(s, "icmp ne", v.rest, number(s, 0));
        nb_v signs = op(s, "xor", s->a, s->b);
        nb_v differ = compare(s, "icmp slt", signs, number(s, 0));
        v.borrow = op(s, "and", some, differ);
    }
    return v;
}

static nb_v int_quot(const site *s)
{
    division v = divide(s);
    nb_v q = v.quot;
    if (s->class == SIGNED) {
        nb_v less = nb_ir_cast(s->ir, "sext", v.borrow, (nb_irt)s->a.type);
        q = op(s, "add", q, less);
        q = choose(s, v.minus, op(s, "sub", number(s, 0), s->a), q);
    }
    return choose(s, v.zero, number(s, 0), q);
}

/* The remainder of a divisor that was replaced by 1 is 0, as it should be, but
 * then nothing is borrowed either. */
static nb_v int_mod(const site *s)
{
    division v = divide(s);
    if (s->class == UNSIGNED) return v.rest;
    return choose(s, v.borrow, op(s, "add", v.rest, s->b), v.rest);
}

/* Floats: in double, as the reference does it.  With a remainder of C,
 * r = fmod(a, b), a - r is a multiple of b, so the quotient is whole up to
 * rounding. */
static site in_double(const site *s)
{
    site t = *s;
    t.a = nb_ir_cast(s->ir, "fpext", s->a, NB_IR_F64);
    t.b = nb_ir_cast(s->ir, "fpext", s->b, NB_IR_F64);
    return t;
}

static nb_v narrow(const site *s, nb_v y)
{
    return nb_ir_cast(s->ir, "fptrunc", y, (nb_irt)s->a.type);
}

static nb_v fmod_of(const site *f, const site *wide)
{
    bool floats = f->a.type == NB_IR_F32;
    return nb_math_fmod(wide->ir, wide->a, wide->b, floats);
}

/* Has the remainder r another sign than the divisor? */
static nb_v crosses(const site *s, nb_v r)
{
    nb_v zero = number(s, 0);
    return op(s, "xor", compare(s, "fcmp olt", r, zero),
              compare(s, "fcmp olt", s->b, zero));
}

static nb_v float_mod(const site *f)
{
    site s = in_double(f);
    nb_v zero = number(&s, 0), r = fmod_of(f, &s);
    nb_v y = choose(&s, crosses(&s, r), op(&s, "fadd", r, s.b), r);
    nb_v none = nb_ir_call2(s.ir, "llvm.copysign", zero, s.b);
    return narrow(f, choose(&s, compare(&s, "fcmp oeq", r, zero), none, y));
}

static nb_v float_quot(const site *f)
{
    site s = in_double(f);
    nb_v zero = number(&s, 0), one = number(&s, 1);
    nb_v r = fmod_of(f, &s), plain = op(&s, "fdiv", s.a, s.b);
    nb_v q = op(&s, "fdiv", op(&s, "fsub", s.a, r), s.b);
    nb_v some = compare(&s, "fcmp une", r, zero);
    nb_v less = op(&s, "and", some, crosses(&s, r));
    q = choose(&s, less, op(&s, "fsub", q, one), q);
    nb_v whole = nb_ir_call1(s.ir, "llvm.floor", q);
    nb_v part = op(&s, "fsub", q, whole);
    nb_v up = compare(&s, "fcmp ogt", part, nb_ir_float(NB_IR_F64, 0.5));
    whole = choose(&s, up, op(&s, "fadd", whole, one), whole);
    nb_v none = nb_ir_call2(s.ir, "llvm.copysign", zero, plain);
    nb_v y = choose(&s, compare(&s, "fcmp oeq", q, zero), none, whole);
    return narrow(f, choose(&s, compare(&s, "fcmp oeq", s.b, zero), plain, y));
}

static nb_v way_quot(const site *s)
{
    return s->class == REAL ? float_quot(s) : int_quot(s);
}

static nb_v way_mod(const site *s)
{
    return s->class == REAL ? float_mod(s) : int_mod(s);
}

/* Powers */

static nb_v times(const site *s, nb_v a, nb_v b)
{
    return op(s, s->class == REAL ? "fmul" : "mul", a, b);
}

/* a^n by squaring, n known. */
static nb_v known_power(const site *s, uint64_t n)
{
    nb_v x = s->a, y = number(s, 1);
    for (bool first = true; n; n >>= 1) {
        if (n & 1) y = first ? x : times(s, y, x), first = false;
        if (n > 1) x = times(s, x, x);
    }
    return nb_ir_splat(s->ir, y, s->a.lanes);
}

/* One bit of the exponents a turn. */
static nb_v lane_power(const site *s)
{
    int lanes = s->a.lanes > s->b.lanes ? s->a.lanes : s->b.lanes;
    int bits = 8 * nb_irt_bytes((nb_irt)s->a.type);
    nb_v one = nb_ir_int(NB_IR_I64, 1), zero = nb_ir_int(NB_IR_I64, 0);
    nb_v carry[3] = {nb_ir_splat(s->ir, number(s, 1), lanes),
                     nb_ir_splat(s->ir, s->a, lanes),
                     nb_ir_splat(s->ir, s->b, lanes)};
    nb_ir_loop l;
    nb_ir_for(s->ir, &l, zero, nb_ir_int(NB_IR_I64, bits), one, 3, carry);
    nb_v odd = op(s, "and", carry[2], number(s, 1));
    nb_v more = times(s, carry[0], carry[1]);
    carry[0] =
        choose(s, compare(s, "icmp ne", odd, number(s, 0)), more, carry[0]);
    carry[1] = times(s, carry[1], carry[1]);
    carry[2] = op(s, "lshr", carry[2], number(s, 1));
    nb_ir_next(s->ir, &l);
    return carry[0];
}

/* A negative exponent gives 0 but for bases 1 and -1. */
static nb_v int_pow(const site *s)
{
    nb_v zero = number(s, 0), one = number(s, 1), minus = number(s, -1);
    if (!s->b.id && (s->class == UNSIGNED || s->b.bits >= 0))
        return known_power(s, (uint64_t)s->b.bits);
    nb_v y = lane_power(s);
    if (s->class == UNSIGNED) return y;
    nb_v odd = compare(s, "icmp ne", op(s, "and", s->b, one), zero);
    nb_v small = choose(s, compare(s, "icmp eq", s->a, minus),
                        choose(s, odd, minus, one), zero);
    small = choose(s, compare(s, "icmp eq", s->a, one), one, small);
    return choose(s, compare(s, "icmp slt", s->b, zero), small, y);
}

/* Squares and the like need no logarithm; three factors are within an ulp. */
static nb_v float_pow(const site *s)
{
    double n;
    memcpy(&n, &s->b.bits, sizeof n);
    if (!s->b.id && (n == 1 || n == 2 || n == 3))
        return known_power(s, (uint64_t)n);
    if (!s->b.id && n == -1) return way_recip(s);
    return nb_math_pow(s->ir, s->a, s->b);
}

static nb_v way_pow(const site *s)
{
    return s->class == REAL ? float_pow(s) : int_pow(s);
}

/* Tests */

static nb_v never(const site *s)
{
    return nb_ir_splat(s->ir, nb_ir_int(NB_IR_I1, 0), s->a.lanes);
}

static nb_v way_isnan(const site *s)
{
    return s->class == REAL ? compare(s, "fcmp uno", s->a, s->a) : never(s);
}

static nb_v way_isinf(const site *s)
{
    if (s->class != REAL) return never(s);
    nb_v most = nb_ir_float((nb_irt)s->a.type, INFINITY);
    return compare(s, "fcmp oeq", nb_ir_call1(s->ir, "llvm.fabs", s->a), most);
}

static nb_v way_signbit(const site *s)
{
    nb_irt type = s->a.type == NB_IR_F32 ? NB_IR_I32 : NB_IR_I64;
    if (s->class == SIGNED) return compare(s, "icmp slt", s->a, number(s, 0));
    if (s->class != REAL) return never(s);
    nb_v bits = nb_ir_cast(s->ir, "bitcast", s->a, type);
    return compare(s, "icmp slt", bits, nb_ir_int(type, 0));
}

static nb_v way_not(const site *s)
{
    return op(s, "xor", s->a, nb_ir_int(NB_IR_I1, 1));
}

#define WAY(f)   \
    {            \
        .way = f \
    }
#define ONE(f)                  \
    {                           \
        .way = by_one, .one = f \
    }
#define TWO(f)                  \
    {                           \
        .way = by_two, .two = f \
    }
#define OP2(...)                             \
    {                                        \
        .way = by_op2, .op = { __VA_ARGS__ } \
    }
#define COMPARE(...)                             \
    {                                            \
        .way = by_compare, .op = { __VA_ARGS__ } \
    }
#define NAMED(f, ...)                   \
    {                                   \
        .way = f, .op = { __VA_ARGS__ } \
    }

#define ROW_copy      WAY(by_copy)
#define ROW_neg       WAY(way_neg)
#define ROW_abs       WAY(way_abs)
#define ROW_sign      WAY(way_sign)
#define ROW_recip     WAY(way_recip)
#define ROW_sqrt      NAMED(by_intrinsic, "llvm.sqrt")
#define ROW_exp       ONE(nb_math_exp)
#define ROW_exp2      ONE(nb_math_exp2)
#define ROW_expm1     ONE(nb_math_expm1)
#define ROW_log       ONE(nb_math_log)
#define ROW_log2      ONE(nb_math_log2)
#define ROW_log10     ONE(nb_math_log10)
#define ROW_log1p     ONE(nb_math_log1p)
#define ROW_sin       ONE(nb_math_sin)
#define ROW_cos       ONE(nb_math_cos)
#define ROW_tan       ONE(nb_math_tan)
#define ROW_asin      ONE(nb_math_asin)
#define ROW_acos      ONE(nb_math_acos)
#define ROW_atan      ONE(nb_math_atan)
#define ROW_sinh      ONE(nb_math_sinh)
#define ROW_cosh      ONE(nb_math_cosh)
#define ROW_tanh      ONE(nb_math_tanh)
#define ROW_asinh     ONE(nb_math_asinh)
#define ROW_acosh     ONE(nb_math_acosh)
#define ROW_atanh     ONE(nb_math_atanh)
#define ROW_erf       ONE(nb_math_erf)
#define ROW_erfc      ONE(nb_math_erfc)
#define ROW_floor     NAMED(by_intrinsic, "llvm.floor")
#define ROW_ceil      NAMED(by_intrinsic, "llvm.ceil")
#define ROW_trunc     NAMED(by_intrinsic, "llvm.trunc")
#define ROW_round     NAMED(by_intrinsic, "llvm.rint")
#define ROW_inv       WAY(way_inv)
#define ROW_add       OP2("fadd", "add", "add", "or")
#define ROW_sub       OP2("fsub", "sub", "sub")
#define ROW_mul       OP2("fmul", "mul", "mul", "and")
#define ROW_div       OP2("fdiv")
#define ROW_quot      WAY(way_quot)
#define ROW_mod       WAY(way_mod)
#define ROW_pow       WAY(way_pow)
#define ROW_max       NAMED(extreme, "fcmp ogt", "icmp sgt", "icmp ugt", "icmp ugt")
#define ROW_min       NAMED(extreme, "fcmp olt", "icmp slt", "icmp ult", "icmp ult")
#define ROW_atan2     TWO(nb_math_atan2)
#define ROW_hypot     TWO(nb_math_hypot)
#define ROW_copysign  NAMED(by_intrinsic2, "llvm.copysign")
#define ROW_nextafter TWO(nb_math_nextafter)
#define ROW_and       OP2(NULL, "and", "and", "and")
#define ROW_or        OP2(NULL, "or", "or", "or")
#define ROW_xor       OP2(NULL, "xor", "xor", "xor")
#define ROW_shl       NAMED(way_shl, NULL, "shl", "shl")
#define ROW_shr       NAMED(way_shr, NULL, "ashr", "lshr")
#define ROW_fma       WAY(way_fma)
#define ROW_eq        COMPARE("fcmp oeq", "icmp eq", "icmp eq", "icmp eq")
#define ROW_ne        COMPARE("fcmp une", "icmp ne", "icmp ne", "icmp ne")
#define ROW_lt        COMPARE("fcmp olt", "icmp slt", "icmp ult", "icmp ult")
#define ROW_le        COMPARE("fcmp ole", "icmp sle", "icmp ule", "icmp ule")
#define ROW_isnan     WAY(way_isnan)
#define ROW_isinf     WAY(way_isinf)
#define ROW_signbit   WAY(way_signbit)
#define ROW_not       WAY(way_not)
#define ROW_both      NAMED(by_op2, "and", "and", "and", "and")
#define ROW_either    NAMED(by_op2, "or", "or", "or", "or")
#define ROW_differ    NAMED(by_op2, "xor", "xor", "xor", "xor")
#define ROW_select    WAY(by_select)

static const row rows[NB_S_count] = {
    [NB_S_none] = WAY(by_copy),
#define SCALAR(name, form, types, cost, f, i) [NB_S_##name] = ROW_##name,
#include "core/scalars.def"
};

static int class_of(nb_dtype d)
{
    if (nb_dtype_is_float(d)) return REAL;
    if (d == NB_BOOL) return BOOL;
    return nb_dtype_is_unsigned(d) ? UNSIGNED : SIGNED;
}

nb_v nb_emit_scalar(nb_ir *ir, nb_scalar s, nb_dtype d, nb_v a, nb_v b, nb_v c)
{
    site at = {ir, d, class_of(d), &rows[s], a, b, c};
    return rows[s].way(&at);
}

/* Reductions */

nb_v nb_emit_combine(nb_ir *ir, nb_reduce r, nb_dtype d, nb_v a, nb_v b)
{
    return nb_emit_scalar(ir, nb_reduce_scalar(r), d, a, b, b);
}

/* Out of range, a constant is the end of the range. */
nb_v nb_emit_neutral(nb_reduce r, nb_dtype d)
{
    double x = nb_reduce_neutral(r);
    if (d == NB_BOOL) return nb_ir_int(NB_IR_I1, x > 0);
    return nb_emit_const(d, x);
}

nb_v nb_emit_fold(nb_ir *ir, nb_reduce r, nb_dtype d, nb_v x)
{
    while (x.lanes > 1)
        x = nb_emit_combine(ir, r, d, nb_ir_half(ir, x, 0),
                            nb_ir_half(ir, x, x.lanes / 2));
    return nb_ir_lane(ir, x, 0);
}
