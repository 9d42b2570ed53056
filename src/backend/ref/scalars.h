/* scalars.h - the scalar instructions as loops over short contiguous runs.
 *
 * One table entry an instruction and compute type.  16-bit floats compute in
 * float32; nb_compute_type says in what. */
#ifndef NB_REF_SCALARS_H
#define NB_REF_SCALARS_H

#include "core/op.h"

/* y[0..n) from a, b, c; y may be any of them.  Bools are bytes. */
typedef void nb_run(void *y, const void *a, const void *b, const void *c,
                    int64_t n);

/* NULL if the instruction does not exist for the type. */
nb_run *nb_scalar_run(nb_scalar s, nb_dtype compute);
nb_dtype nb_compute_type(nb_dtype d);

/* *acc = reduce(*acc, a[0..n)), a and acc of the compute type. */
void nb_reduce_run(nb_reduce r, nb_dtype compute, void *acc, const void *a,
                   int64_t n);
/* n times what a reduction of nothing is. */
void nb_reduce_start(nb_reduce r, nb_dtype compute, void *acc, int64_t n);

#endif
