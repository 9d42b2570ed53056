/* math.h - elementary functions of float vectors, written as LLVM IR.
 *
 * Each takes and gives numbers or vectors of f32 or f64.  Errors are at most
 * two units in the last place on the whole line, zeros keep their signs, NaN
 * gives NaN, and what overflows or has no value is as in C.  The polynomials
 * are our own: minimax fits of what is left after the leading terms, weighted
 * for relative error.  Multiply-adds are fused where the processor can; the
 * bounds hold either way. */
#ifndef NB_CPU_MATH_H
#define NB_CPU_MATH_H

#include "backend/cpu/ir.h"

nb_v nb_math_exp(nb_ir *ir, nb_v x);
nb_v nb_math_exp2(nb_ir *ir, nb_v x);
nb_v nb_math_expm1(nb_ir *ir, nb_v x);
nb_v nb_math_log(nb_ir *ir, nb_v x);
nb_v nb_math_log2(nb_ir *ir, nb_v x);
nb_v nb_math_log10(nb_ir *ir, nb_v x);
nb_v nb_math_log1p(nb_ir *ir, nb_v x);
nb_v nb_math_sin(nb_ir *ir, nb_v x);
nb_v nb_math_cos(nb_ir *ir, nb_v x);
nb_v nb_math_tan(nb_ir *ir, nb_v x);
nb_v nb_math_asin(nb_ir *ir, nb_v x);
nb_v nb_math_acos(nb_ir *ir, nb_v x);
nb_v nb_math_atan(nb_ir *ir, nb_v x);
nb_v nb_math_atan2(nb_ir *ir, nb_v y, nb_v x);
nb_v nb_math_sinh(nb_ir *ir, nb_v x);
nb_v nb_math_cosh(nb_ir *ir, nb_v x);
nb_v nb_math_tanh(nb_ir *ir, nb_v x);
nb_v nb_math_asinh(nb_ir *ir, nb_v x);
nb_v nb_math_acosh(nb_ir *ir, nb_v x);
nb_v nb_math_atanh(nb_ir *ir, nb_v x);
nb_v nb_math_erf(nb_ir *ir, nb_v x);
nb_v nb_math_erfc(nb_ir *ir, nb_v x);
nb_v nb_math_pow(nb_ir *ir, nb_v x, nb_v y);
nb_v nb_math_hypot(nb_ir *ir, nb_v x, nb_v y);
nb_v nb_math_nextafter(nb_ir *ir, nb_v x, nb_v y);
/* Of doubles; it takes less of those that were floats. */
nb_v nb_math_fmod(nb_ir *ir, nb_v x, nb_v y, bool floats);

#endif
