/* blas_lib.h - products by oneDNN and OpenBLAS, which are opened when first
 * asked for and do each call in the thread that makes it. */
#ifndef NB_BASE_BLAS_LIB_H
#define NB_BASE_BLAS_LIB_H

#include "base/blas_own.h"

bool nb_onednn_found(void);   /* and NABLA_BLAS allows it */
bool nb_openblas_found(void); /* the same */

/* Whether the libraries take a matrix with these strides as it lies: one of
 * them is one and the other no less than the extent. */
bool nb_operand_fits(int64_t rows, int64_t cols, int64_t row, int64_t col);

/* For operands that fit, extents and strides of 32 bits, k > 0; rows of C no
 * nearer than its columns are many.  False if the library refuses. */
bool nb_product_onednn(const nb_product *x); /* NB_F32 only */
void nb_product_openblas(const nb_product *x);

#endif
