/* conv_work.h - one convolution to be computed, and the two ways to do it. */
#ifndef NB_OPS_CONV_WORK_H
#define NB_OPS_CONV_WORK_H

#include "ops/conv_kernel.h"
#include "ops/conv_own.h"

/* An operand.  Strides count elements: of x and y along images, three lines
 * and channels, those of a group after those of the one before; of the filter
 * along the taps of three lines, channels in and channels out. */
typedef struct nb_conv_side {
    char *data;
    nb_dtype dtype;
    int64_t stride[5], offset; /* the first is so many elements after data */
} nb_conv_side;

/* Three lines, of which the first may be trivial.  Where it is computed none
 * spreads x, channels of y are one apart, and there is at least one place, term
 * and channel out. */
typedef struct nb_conv_work {
    nb_dtype type; /* in which it multiplies */
    int64_t item;  /* bytes of it */
    const nb_conv_tiler *tiler;
    int64_t images, groups, in, out;
    nb_conv_line line[3];
    nb_conv_side x, filter, y;
} nb_conv_work;

/* That of a call; its lines may spread x. */
nb_conv_work nb_conv_work_of(const nb_geometry *g, const nb_view *x,
                             const nb_view *filter, const nb_view *y);

/* How many convolutions that spread nothing make that one, and the i-th. */
int64_t nb_conv_phases(const nb_conv_work *w);
nb_conv_work nb_conv_phase(const nb_conv_work *w, int64_t i);

/* Rows of a tile are places of one line, terms run over taps and channels. */
bool nb_conv_by_places(const nb_conv_work *w);

/* Rows of a tile are images, terms run over taps or channels: for what has many
 * taps at few places, as the gradient of a filter.  Its images are channels,
 * mostly one apart. */
bool nb_conv_by_images(const nb_conv_work *w);

/* A matrix of any strides. */
typedef struct nb_conv_matrix {
    const char *data;
    nb_dtype dtype;
    int64_t row, col, rows, cols;
    int64_t width; /* numbers to a row of the copy, zero after cols */
} nb_conv_matrix;

/* Copies it, row by row, as numbers of that type. */
void nb_conv_pack(void *to, nb_dtype type, const nb_conv_matrix *m);

/* How many numbers are multiplied, and about how many nanoseconds that takes in
 * one thread. */
double nb_conv_products(const nb_conv_work *w);
double nb_conv_cost(const nb_conv_work *w);

static inline int64_t nb_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t nb_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t nb_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Where tap k at place t reads along a line; outside of [0, size) is zero. */
static inline int64_t nb_conv_line_at(const nb_conv_line *l, int64_t t,
                                      int64_t k)
{
    return t * l->stride + k * l->dilation - l->before;
}

static inline bool nb_conv_line_has(const nb_conv_line *l, int64_t t, int64_t k)
{
    int64_t p = nb_conv_line_at(l, t, k);
    return 0 <= p && p < l->size;
}

/* Part i of n elements in `parts` parts that differ by one at most. */
static inline int64_t nb_part_start(int64_t n, int64_t parts, int64_t i)
{
    return n / parts * i + nb_least(i, n % parts);
}

#endif
