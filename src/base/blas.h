/* blas.h - the matrix product of plain numbers.
 *
 * Done by oneDNN, OpenBLAS or our own kernel, whichever was measured best for
 * the shape and is there, on the threads of pool.h; the number of threads
 * changes no result.  The environment variable NABLA_BLAS (own, openblas,
 * onednn; auto is the default) restricts which libraries are opened; it is read
 * once. */
#ifndef NB_BASE_BLAS_H
#define NB_BASE_BLAS_H

#include "nabla/dtype.h"

/* C = A B, where A is m x k, B is k x n and C is m x n, of one floating dtype;
 * products of 16-bit ones are summed in float32.  Strides count elements; those
 * of A and B may be any, zero and negative ones too; the columns of C have
 * stride one and its rows do not overlap.  Extents may be zero: k == 0 gives
 * zeros.  C must not overlap A or B.  False with the error set for another
 * dtype, or without memory to pack an operand in. */
bool nb_gemm(nb_dtype d, int64_t m, int64_t n, int64_t k, const void *a,
             int64_t a_row, int64_t a_col, const void *b, int64_t b_row,
             int64_t b_col, void *c, int64_t c_row);

/* C += A B, the same otherwise. */
bool nb_gemm_add(nb_dtype d, int64_t m, int64_t n, int64_t k, const void *a,
                 int64_t a_row, int64_t a_col, const void *b, int64_t b_row,
                 int64_t b_col, void *c, int64_t c_row);

/* About how many nanoseconds it takes in one thread. */
double nb_gemm_cost(nb_dtype d, int64_t m, int64_t n, int64_t k);

/* What is in use: "onednn+openblas", "onednn", "openblas" or "own". */
const char *nb_blas_name(void);

#endif
