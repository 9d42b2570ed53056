/* math_two.c - functions of two numbers.  Those of f32 compute in double, which
 * leaves nothing to be careful about; powers and hypotenuses of f64 are left
 * to the C library. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/math_parts.h"

#include <math.h>

static nb_v wide(nb_ir *ir, nb_v x)
{
    return nb_ir_cast(ir, "fpext", x, NB_IR_F64);
}

static nb_v narrow(nb_ir *ir, nb_v x)
{
    return nb_ir_cast(ir, "fptrunc", x, NB_IR_F32);
}

static nb_v is_whole(nb_ir *ir, nb_v x)
{
    return eq(ir, nb_ir_call1(ir, "llvm.trunc", x), x);
}

/* |x|^y = exp(y log |x|).  An exponent held within 1e30 changes no result but
 * those of |x| = 1, which would be 0 times infinity. */
static nb_v power_of_size(nb_ir *ir, nb_v a, nb_v y)
{
    nb_v held = at_least(ir, at_most(ir, y, 1e30), -1e30);
    return nb_math_exp(ir, mul(ir, held, nb_math_log(ir, a)));
}

/* Of a negative number: +-|x|^y of a whole y, else nothing, but for zero and
 * infinity, which have no sign then. */
static nb_v power_of_minus(nb_ir *ir, nb_v p, nb_v a, nb_v y)
{
    nb_v whole = is_whole(ir, y), even = is_whole(ir, mul(ir, y, k(y, 0.5)));
    nb_v inf = k(a, INFINITY), zero = k(a, 0);
    nb_v plain = iop(ir, "or", eq(ir, a, zero), eq(ir, a, inf));
    nb_v other = pick(ir, plain, p, k(a, NAN));
    p = pick(ir, even, p, pick(ir, whole, neg(ir, p), other));
    return p;
}

/* 1^y and x^0 are 1 even of a NaN. */
static nb_v f32_pow(nb_ir *ir, nb_v x, nb_v y)
{
    x = wide(ir, x), y = wide(ir, y);
    nb_v a = size(ir, x), one = k(x, 1), p = power_of_size(ir, a, y);
    nb_v minus =
        nb_ir_compare(ir, "icmp slt", bits(ir, x), nb_ir_int(NB_IR_I64, 0));
    p = pick(ir, minus, power_of_minus(ir, p, a, y), p);
    nb_v sure = iop(ir, "or", eq(ir, x, one), eq(ir, y, k(y, 0)));
    return narrow(ir, pick(ir, sure, one, p));
}

nb_v nb_math_pow(nb_ir *ir, nb_v x, nb_v y)
{
    if (W(x)) return nb_math_libm(ir, "pow", 2, (nb_v[]){x, y});
    return f32_pow(ir, x, y);
}

/* Infinite if either is, even beside a NaN. */
nb_v nb_math_hypot(nb_ir *ir, nb_v x, nb_v y)
{
    if (W(x)) return nb_math_libm(ir, "hypot", 2, (nb_v[]){x, y});
    nb_v a = wide(ir, size(ir, x)), b = wide(ir, size(ir, y));
    nb_v inf = k(a, INFINITY);
    nb_v far = iop(ir, "or", eq(ir, a, inf), eq(ir, b, inf));
    nb_v h = root(ir, add(ir, mul(ir, a, a), mul(ir, b, b)));
    return narrow(ir, pick(ir, far, inf, h));
}

/* a - q b with q = a / b cut to a whole number, which rounding may have made
 * one too large.  The product has to be exact: q of 29 bits times a float, or
 * anything fused. */
nb_v nb_math_fmod(nb_ir *ir, nb_v x, nb_v y, bool floats)
{
    bool fused = nb_cpu_target()->fma;
    if (!fused && !floats) return nb_math_libm(ir, "fmod", 2, (nb_v[]){x, y});
    nb_v a = size(ir, x), b = size(ir, y), inf = k(x, INFINITY);
    nb_v q = quo(ir, a, b);
    nb_v known = iop(ir, "and", lt(ir, q, k(x, fused ? 0x1p52 : 0x1p29)),
                     lt(ir, b, inf));
    q = nb_ir_call1(ir, "llvm.trunc", q);
    nb_v r = fused ? nb_ir_call3(ir, "llvm.fma", neg(ir, q), b, a)
                   : sub(ir, a, mul(ir, q, b));
    r = pick(ir, lt(ir, r, k(x, 0)), add(ir, r, b), r);
    nb_v rare = iop(ir, "xor", known, nb_ir_int(NB_IR_I1, 1));
    return nb_math_rare(ir, rare, sign_of(ir, r, x), "fmod", 2, (nb_v[]){x, y});
}

/* The next pattern, up or down: sizes grow with their patterns. */
nb_v nb_math_nextafter(nb_ir *ir, nb_v x, nb_v y)
{
    nb_v zero = k(x, 0), i = bits(ir, x), one = nb_ir_int(int_of(x), 1);
    nb_v grow = iop(ir, "xor", lt(ir, x, y), lt(ir, x, zero));
    nb_v next = pick(ir, grow, iop(ir, "add", i, one), iop(ir, "sub", i, one));
    nb_v least = sign_of(ir, k(x, W(x) ? 0x1p-1074 : 0x1p-149), y);
    nb_v z = pick(ir, eq(ir, x, zero), least, unbits(ir, next));
    z = pick(ir, eq(ir, x, y), y, z);
    nb_v nan = nb_ir_compare(ir, "fcmp uno", x, y);
    return pick(ir, nan, k(x, NAN), z);
}
