/* conv_own.h - the inner loops of convolution, for the widest vectors of the
 * processor.
 *
 * All of them add up runs of products into a tile of a matrix C that stays in
 * registers: its rows are places, or channels in, its columns channels out. */
#ifndef NB_OPS_CONV_OWN_H
#define NB_OPS_CONV_OWN_H

#include "nabla/dtype.h"

/* k terms to the sums, from these elements of a and b on. */
typedef struct nb_conv_terms {
    int64_t a, b, k;
} nb_conv_terms;

/* c[i][j] = or += the sum over all runs and p < k of
 * a[run a + i a_row + p a_step] b[run b + p b_step + j].  Strides count
 * elements. */
typedef struct nb_conv_tile {
    const nb_conv_terms *run;
    int64_t runs;
    const void *a;
    int64_t a_row, a_step;
    const void *b;
    int64_t b_step;
    void *c;
    int64_t c_row;
    int64_t rows, cols;
    bool add;
} nb_conv_tile;

typedef struct nb_conv_tiler {
    int64_t rows;  /* the most of a tile */
    int64_t lanes; /* elements to a vector; b is read by whole ones */
    int64_t cols;  /* the most of a tile, two vectors */
    void (*tile)(const nb_conv_tile *t);

    /* The same by channels, a[... + i a_row + p a_step + j], for any number of
     * rows and columns. */
    void (*weigh)(const nb_conv_tile *t);

    /* to[i] += from[i] */
    void (*add)(void *to, const void *from, int64_t n);
} nb_conv_tiler;

/* For NB_F32, NB_F64 or NB_I64, which is modulo 2^64; vectors of no more than
 * that many bytes. */
const nb_conv_tiler *nb_conv_tiler_of(nb_dtype d, int bytes);

#endif
