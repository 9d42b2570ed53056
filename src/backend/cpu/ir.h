/* ir.h - LLVM IR as text, one value at a time.
 *
 * A value is a number (lanes 1) or a vector of them; where one of each meet,
 * the number is repeated.  Constants are values too and cost nothing.  Every
 * function appends to the text of the function being written; a failure to
 * allocate is kept in the text and asked for once, at the end. */
#ifndef NB_CPU_IR_H
#define NB_CPU_IR_H

#include "base/text.h"

typedef enum nb_irt {
    NB_IR_I1,
    NB_IR_I8,
    NB_IR_I16,
    NB_IR_I32,
    NB_IR_I64,
    NB_IR_F32,
    NB_IR_F64,
    NB_IR_F16, /* only between casts */
    NB_IR_PTR
} nb_irt;

/* %v<id>, or a constant of those bits. */
typedef struct nb_v {
    int id; /* 0: a constant */
    uint8_t type, lanes;
    int64_t bits; /* of a double if the type is a float */
} nb_v;

typedef struct nb_ir {
    nb_text body;    /* of functions */
    nb_text declare; /* of the intrinsics and functions they call */
    int last;        /* id */
    int block;       /* the one being written */
    bool past;       /* something is stored past the caches */
} nb_ir;

void nb_ir_free(nb_ir *ir);
/* The module: declarations, then functions.  NULL if memory ran out. */
char *nb_ir_module(nb_ir *ir);

/* Constants; of a float type, exactly that value. */
nb_v nb_ir_int(nb_irt type, int64_t value);
nb_v nb_ir_float(nb_irt type, double value);
static inline bool nb_ir_is_float(nb_v x)
{
    return x.type == NB_IR_F32 || x.type == NB_IR_F64;
}
int nb_irt_bytes(nb_irt type);

/* "fadd", "mul nsw", ...; "fneg"; "fcmp olt", "icmp slt". */
nb_v nb_ir_op2(nb_ir *ir, const char *op, nb_v a, nb_v b);
nb_v nb_ir_op1(nb_ir *ir, const char *op, nb_v a);
nb_v nb_ir_compare(nb_ir *ir, const char *op, nb_v a, nb_v b);
nb_v nb_ir_select(nb_ir *ir, nb_v test, nb_v a, nb_v b);
/* "sext", "bitcast", "fptosi"...; nothing to the same type but for bitcasts. */
nb_v nb_ir_cast(nb_ir *ir, const char *op, nb_v a, nb_irt type);
/* An intrinsic that is overloaded by the type of its operands: "llvm.fma". */
nb_v nb_ir_call1(nb_ir *ir, const char *name, nb_v a);
nb_v nb_ir_call2(nb_ir *ir, const char *name, nb_v a, nb_v b);
nb_v nb_ir_call3(nb_ir *ir, const char *name, nb_v a, nb_v b, nb_v c);
/* a 2^n of floats, n whole, rounded once; processors with AVX-512 and vectors
 * of 64 bytes only. */
nb_v nb_ir_scalef(nb_ir *ir, nb_v a, nb_v n);
/* A C function of numbers, called once a lane, in a loop. */
nb_v nb_ir_libm(nb_ir *ir, const char *name, int n, const nb_v *x);

/* Vectors */
nb_v nb_ir_splat(nb_ir *ir, nb_v a, int lanes);
nb_v nb_ir_iota(nb_ir *ir, nb_irt type, int lanes); /* 0, 1, 2, ... */
nb_v nb_ir_lane(nb_ir *ir, nb_v a, int lane);       /* one number */
nb_v nb_ir_any(nb_ir *ir, nb_v test);               /* is it so in a lane? */
/* The lanes from `first` on, half of them. */
nb_v nb_ir_half(nb_ir *ir, nb_v a, int first);
/* a0 b0 a1 b1 ..., as many as a has: those before the middle, or after it. */
nb_v nb_ir_weave(nb_ir *ir, nb_v a, nb_v b, bool after);
/* The lanes moved up by n, the first n those of `first`; turned round. */
nb_v nb_ir_shift(nb_ir *ir, nb_v a, int n, nb_v first);
nb_v nb_ir_reverse(nb_ir *ir, nb_v a);
/* The same bits as so many lanes of a type. */
nb_v nb_ir_recast(nb_ir *ir, nb_v a, nb_irt type, int lanes);

/* Memory.  at[index], index in elements of the type; alignment of one element.
 * Under a mask, lanes that are off read zero and write nothing. */
nb_v nb_ir_at(nb_ir *ir, nb_v base, nb_irt type, nb_v index);
nb_v nb_ir_load(nb_ir *ir, nb_v at, nb_irt type, int lanes, const nb_v *mask);
void nb_ir_store(nb_ir *ir, nb_v at, nb_v value, const nb_v *mask);
/* The same past the caches, for what is not read soon; `at` is a multiple of
 * the vector's size. */
void nb_ir_store_past(nb_ir *ir, nb_v at, nb_v value);
/* Each lane from its own index. */
nb_v nb_ir_gather(nb_ir *ir, nb_v base, nb_irt type, nb_v index,
                  const nb_v *mask);
void nb_ir_scatter(nb_ir *ir, nb_v base, nb_v index, nb_v value,
                   const nb_v *mask);

/* Functions: void name(ptr, ptr, i64, i64), its arguments as values. */
void nb_ir_begin(nb_ir *ir, const char *name, int n, const nb_irt *types,
                 nb_v *arguments);
void nb_ir_end(nb_ir *ir);

/* A loop for i from `from` to before `to`, whose step divides the distance.
 * carry[] holds n values: before, as the body sees them, and, after the end,
 * as it left them.  Loops may be nested to eight. */
typedef struct nb_ir_loop {
    int head, last; /* blocks */
    int n, first;   /* ids of carried values from `first` on */
    nb_v i, to, step;
    nb_v *carry;
} nb_ir_loop;
nb_v nb_ir_for(nb_ir *ir, nb_ir_loop *l, nb_v from, nb_v to, nb_v step, int n,
               nb_v *carry);
void nb_ir_next(nb_ir *ir, nb_ir_loop *l);

/* if (test) { ... } */
typedef struct nb_ir_if {
    int end, before; /* blocks */
} nb_ir_if;
void nb_ir_when(nb_ir *ir, nb_ir_if *f, nb_v test);
void nb_ir_fi(nb_ir *ir, nb_ir_if *f);
/* The same, and a value: `inside` if the test held, else `otherwise`, which was
 * made before it.  Both are of one type and length. */
nb_v nb_ir_fi_value(nb_ir *ir, nb_ir_if *f, nb_v inside, nb_v otherwise);

#endif
