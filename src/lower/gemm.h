/* gemm.h - a sum of products as products of matrices, for a library or a kernel
 * that knows those.
 *
 * C = A B for every point of the outer axes: C is m x n, k is summed.  Axes of
 * one kind that all operands walk through as one are merged; where several are
 * left the longest is that of the matrices, and the others are outer ones.
 * Operands that do not lie as matrices, with rows or columns without gaps, are
 * copied first by a nest, the result afterwards, if the product is large enough
 * for that to pay. */
#ifndef NB_LOWER_GEMM_H
#define NB_LOWER_GEMM_H

#include "lower/plan.h"

/* A, B or C: which buffer of the step it is in, from where on, and strides. */
typedef struct nb_gemm_part {
    nb_dtype dtype;
    int buffer;
    int64_t offset;            /* elements */
    int64_t row, column;       /* strides: of A along m and k, and so on */
    int64_t step[NB_MAX_DIMS]; /* along the outer axes */
} nb_gemm_part;

/* What else is read or written, from an offset on; buffer -1: it is not. */
typedef struct nb_gemm_beside {
    nb_dtype dtype;
    int buffer;
    int64_t offset;
} nb_gemm_beside;

/* What becomes of a sum, last of all. */
typedef enum nb_gemm_end {
    NB_END_NONE,
    NB_END_RELU,
    NB_END_GELU,      /* by tanh */
    NB_END_GELU_SLOPE /* times the derivative of that at `kept` */
} nb_gemm_end;

/* C is end(scale A B + add + bias).  `add` and `kept` lie as C does; `bias` has
 * one element for each place of a run of C's memory, which has no gaps then. */
typedef struct nb_gemm {
    int64_t m, n, k;
    int nouter;
    int64_t outer[NB_MAX_DIMS]; /* extents, the longest last */
    nb_gemm_part a, b, c;
    double scale;
    nb_gemm_end end;
    nb_gemm_beside add, bias;
    nb_gemm_beside kept; /* of GELU: written, what it is of, if wanted */
} nb_gemm;

/* The product of line k as matrices; false if it is none, or not worth it.  A
 * part that has to be copied has buffer -1, and strides as if it were. */
bool nb_gemm_find(const nb_plan *p, int k, nb_gemm *g, bool *found);

/* Appends the steps of line k, a product that a library makes. */
bool nb_gemm_steps(nb_plan *p, int k);

/* How a matrix of r x c with those strides lies: by columns, by rows (its
 * transpose by columns), or neither. */
typedef enum nb_lies {
    NB_LIES_BADLY,
    NB_LIES_BY_COLUMNS,
    NB_LIES_BY_ROWS
} nb_lies;
nb_lies nb_matrix_lies(int64_t r, int64_t c, int64_t row, int64_t column);

/* Elements from the start of a column, or row, to the next. */
int64_t nb_matrix_leap(int64_t r, int64_t c, int64_t row, int64_t column);

double nb_gemm_flops(const nb_gemm *g);

/* "32 of 64 x 64 x 8 ", for people. */
void nb_gemm_print(const nb_gemm *g, nb_text *t);

#endif
