/* prelude.h - what kernels in CUDA C are written with: types, conversions, the
 * scalar instructions, reductions, random words.
 *
 * Types are named as in listings (f32, i64, b1 for bool); what lies in memory
 * as 16 bits of a float is u16.  Only what a kernel uses is written. */
#ifndef NB_CUDA_PRELUDE_H
#define NB_CUDA_PRELUDE_H

#include "backend/cuda/print/walk.h"

/* The type of a value in registers, and in memory. */
const char *nb_cuda_type(nb_dtype d);
const char *nb_cuda_stored(nb_dtype d);

/* Functions that the values of n nests call:
 *     s_NAME_TYPE(a, b, c)    an instruction
 *     c_FROM_TO(x)            a conversion, of 16-bit floats too
 *     r_KIND_TYPE(a, b)       two parts of a reduction as one
 *     word_u32(n, key0, key1, low, high), word_u64
 *     divisor, divide_by(y), divided(x, divisor)
 *     exp_low(x)              of x not above 0
 *     pack_f16(x, y)          two as they lie in memory; pack_bf16
 *     pairs_K(y, x)           of value K, which is paired
 *     take<V>(p, at, end, whole, fill), give(p, at, end, whole, x)
 *     hide(x)                 of what is kept as it lies in memory */
void nb_cuda_prelude(nb_text *t, int n, const nb_cuda_walk *const *w);
/* Its part for the forms of kernels. */
void nb_cuda_prelude_forms(nb_text *t, int n, const nb_cuda_walk *const *w);

/* Their names; what a reduction of nothing is, as an expression. */
void nb_cuda_scalar_name(nb_text *t, nb_scalar s, nb_dtype compute);
void nb_cuda_reduce_name(nb_text *t, nb_reduce r, nb_dtype d);
void nb_cuda_neutral(nb_text *t, nb_reduce r, nb_dtype d);
void nb_cuda_constant(nb_text *t, nb_dtype d, int64_t bits);

#endif
