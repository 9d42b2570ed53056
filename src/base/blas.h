/* blas.h - the matrix product of plain numbers.
 *
 * Done by oneDNN or OpenBLAS, whichever was measured better for the shape, and
 * by our own kernel where neither is installed.  The environment variable
 * NABLA_BLAS (own, openblas, onednn; auto is the default) restricts the choice
 * to one; it is read once. */
#ifndef NB_BASE_BLAS_H
#define NB_BASE_BLAS_H

#include "nabla/dtype.h"

/* C = A B, where A is m x k, B is k x n and C is m x n, of NB_F32 or NB_F64.
 * Strides count elements; those of A and B may be any, zero and negative ones
 * too; the columns of C have stride one and its rows do not overlap.  Extents
 * may be zero: k == 0 gives zeros.  C must not overlap A or B.  False with the
 * error set for another dtype, or without memory to pack an operand in. */
bool nb_gemm(nb_dtype d, int64_t m, int64_t n, int64_t k, const void *a,
             int64_t a_row, int64_t a_col, const void *b, int64_t b_row,
             int64_t b_col, void *c, int64_t c_row);

/* What is in use: "onednn+openblas", "onednn", "openblas" or "own". */
const char *nb_blas_name(void);

/* How many threads the libraries may use for products that the calling thread
 * asks for (OpenBLAS: that the process asks for).  Until told, they use one
 * per processor; our own kernel always works alone. */
void nb_blas_threads(int n);

#endif
