/* blas_own.h - the product as one value, and our own way to compute it. */
#ifndef NB_BASE_BLAS_OWN_H
#define NB_BASE_BLAS_OWN_H

#include "nabla/dtype.h"

/* C = A B, or C += A B, where A is m x k, B is k x n, and C has unit column
 * stride. */
typedef struct nb_product {
    nb_dtype dtype; /* of all three, floating; 16-bit ones sum in float32 */
    int64_t m, n, k;
    const void *a;
    int64_t a_row, a_col;
    const void *b;
    int64_t b_row, b_col;
    void *c;
    int64_t c_row;
    bool add;
} nb_product;

size_t nb_float_size(nb_dtype d); /* in bytes */

/* The definition, for products too small to prepare anything.  Needs no
 * memory, takes any strides and extents. */
void nb_product_simple(const nb_product *x);

/* The same, fast, for m, n, k > 0, with the widest vectors that the processor
 * has and that are no wider than `bytes`; false if there is no memory to pack
 * in. */
bool nb_product_own(const nb_product *x, int bytes);

int nb_own_bytes(void); /* of the widest vectors there are */

#endif
