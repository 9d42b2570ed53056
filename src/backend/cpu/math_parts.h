/* math_parts.h - short names for writing formulas, and what the functions of
 * one family take from another.
 *
 * Tables have two entries, for f32 and f64; [W(x)] is that of x's type. */
#ifndef NB_CPU_MATH_PARTS_H
#define NB_CPU_MATH_PARTS_H

#include "backend/cpu/math.h"

#define W(x) ((x).type == NB_IR_F64)

static inline nb_v k(nb_v x, double value) /* a constant of x's type */
{
    return nb_ir_float((nb_irt)x.type, value);
}

static inline nb_v add(nb_ir *ir, nb_v a, nb_v b)
{
    return nb_ir_op2(ir, "fadd", a, b);
}

static inline nb_v sub(nb_ir *ir, nb_v a, nb_v b)
{
    return nb_ir_op2(ir, "fsub", a, b);
}

static inline nb_v mul(nb_ir *ir, nb_v a, nb_v b)
{
    return nb_ir_op2(ir, "fmul", a, b);
}

static inline nb_v quo(nb_ir *ir, nb_v a, nb_v b)
{
    return nb_ir_op2(ir, "fdiv", a, b);
}

static inline nb_v neg(nb_ir *ir, nb_v a)
{
    return nb_ir_op1(ir, "fneg", a);
}

/* a b + c, rounded once if that is fast. */
static inline nb_v mac(nb_ir *ir, nb_v a, nb_v b, nb_v c)
{
    return nb_ir_call3(ir, "llvm.fmuladd", a, b, c);
}

static inline nb_v size(nb_ir *ir, nb_v a)
{
    return nb_ir_call1(ir, "llvm.fabs", a);
}

static inline nb_v sign_of(nb_ir *ir, nb_v a, nb_v sign)
{
    return nb_ir_call2(ir, "llvm.copysign", a, sign);
}

static inline nb_v root(nb_ir *ir, nb_v a)
{
    return nb_ir_call1(ir, "llvm.sqrt", a);
}

static inline nb_v lt(nb_ir *ir, nb_v a, nb_v b)
{
    return nb_ir_compare(ir, "fcmp olt", a, b);
}

static inline nb_v gt(nb_ir *ir, nb_v a, nb_v b)
{
    return nb_ir_compare(ir, "fcmp ogt", a, b);
}

static inline nb_v eq(nb_ir *ir, nb_v a, nb_v b)
{
    return nb_ir_compare(ir, "fcmp oeq", a, b);
}

static inline nb_v pick(nb_ir *ir, nb_v test, nb_v a, nb_v b)
{
    return nb_ir_select(ir, test, a, b);
}

/* The lesser and the greater; x if it is a NaN. */
static inline nb_v at_most(nb_ir *ir, nb_v x, double bound)
{
    return pick(ir, lt(ir, k(x, bound), x), k(x, bound), x);
}

static inline nb_v at_least(nb_ir *ir, nb_v x, double bound)
{
    return pick(ir, gt(ir, k(x, bound), x), k(x, bound), x);
}

/* Integers of the same width. */
static inline nb_irt int_of(nb_v x)
{
    return W(x) ? NB_IR_I64 : NB_IR_I32;
}

static inline nb_v bits(nb_ir *ir, nb_v x)
{
    return nb_ir_cast(ir, "bitcast", x, int_of(x));
}

static inline nb_v unbits(nb_ir *ir, nb_v i)
{
    bool wide = i.type == NB_IR_I64;
    return nb_ir_cast(ir, "bitcast", i, wide ? NB_IR_F64 : NB_IR_F32);
}

static inline nb_v iop(nb_ir *ir, const char *op, nb_v a, nb_v b)
{
    return nb_ir_op2(ir, op, a, b);
}

static inline nb_v iopk(nb_ir *ir, const char *op, nb_v a, int64_t b)
{
    return nb_ir_op2(ir, op, a, nb_ir_int((nb_irt)a.type, b));
}

/* c[0] + c[1] x + ... */
typedef struct nb_poly {
    int n;
    double c[24];
} nb_poly;
nb_v nb_math_poly(nb_ir *ir, const nb_poly *two, nb_v x);

/* x to the nearest whole number, as a float and as an integer. */
typedef struct nb_whole {
    nb_v real, integer;
} nb_whole;
nb_whole nb_math_whole(nb_ir *ir, nb_v x, double times);

/* 2^n of an integer, -126 to 127 (f64: -1022 to 1023); and x 2^n of any that
 * two such factors make. */
nb_v nb_math_two(nb_ir *ir, nb_v n);
nb_v nb_math_scale(nb_ir *ir, nb_v x, nb_whole n);

/* exp x within +-700 (f32: 87), and half of it within +-1400 (f32: 170). */
nb_v nb_math_exp_fast(nb_ir *ir, nb_v x);
nb_v nb_math_exp_half(nb_ir *ir, nb_v x);
/* The C function of that name (f32: with an f after it), lane by lane. */
nb_v nb_math_libm(nb_ir *ir, const char *name, int n, const nb_v *x);
/* The same in place of y, for vectors with a lane where `rare` holds; lanes
 * where it does not keep y. */
nb_v nb_math_rare(nb_ir *ir, nb_v rare, nb_v y, const char *name, int n,
                  const nb_v *x);

#endif
