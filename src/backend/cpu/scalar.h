/* scalar.h - arithmetic of the CPU backend, written as LLVM IR.
 *
 * A value of a dtype is in registers what nb_irt_of says: a bool one bit,
 * float16 and bfloat16 their 16 bits as an integer (they compute as float32),
 * the rest themselves; signed and unsigned integers differ only in what is
 * done to them.  In memory a bool is a byte.
 *
 * Results are those of the reference backend: integers, comparisons and exact
 * operations to the bit, functions within two units in the last place. */
#ifndef NB_CPU_SCALAR_H
#define NB_CPU_SCALAR_H

#include "backend/cpu/ir.h"
#include "core/op.h"

nb_irt nb_irt_of(nb_dtype d);        /* in a register */
nb_irt nb_irt_in_memory(nb_dtype d); /* the same but for bool */

/* One row of scalars.def for a compute dtype: bool, an integer, f32 or f64.
 * Operands are numbers or vectors of one length; b and c are looked at only if
 * the row has them. */
nb_v nb_emit_scalar(nb_ir *ir, nb_scalar s, nb_dtype d, nb_v a, nb_v b, nb_v c);

/* By the rules of core/convert.h, any pair. */
nb_v nb_emit_convert(nb_ir *ir, nb_v x, nb_dtype from, nb_dtype to);
/* The constant of dtype d that is nearest. */
nb_v nb_emit_const(nb_dtype d, double value);

/* Elements of dtype d at `at`, as they are in registers. */
nb_v nb_emit_load(nb_ir *ir, nb_v at, nb_dtype d, int lanes, const nb_v *mask);
void nb_emit_store(nb_ir *ir, nb_v at, nb_dtype d, nb_v x, const nb_v *mask);

/* Reductions: two values into one, what changes no value, and the lanes of a
 * vector into one number: halves onto halves, so that the order is fixed. */
nb_v nb_emit_combine(nb_ir *ir, nb_reduce r, nb_dtype d, nb_v a, nb_v b);
nb_v nb_emit_neutral(nb_reduce r, nb_dtype d);
nb_v nb_emit_fold(nb_ir *ir, nb_reduce r, nb_dtype d, nb_v x);

#endif
