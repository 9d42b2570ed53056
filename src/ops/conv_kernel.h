/* conv_kernel.h - the geometry of a convolution: its primitive, and its work on
 * the CPU. */
#ifndef NB_OPS_CONV_KERNEL_H
#define NB_OPS_CONV_KERNEL_H

#include "ops/conv.h"

/* One spatial axis: tap k at place t reads the image, spread out, at
 * t stride + k dilation - before. */
typedef struct nb_conv_line {
    int64_t size, taps, places;
    int64_t stride, dilation, spread, before, after;
} nb_conv_line;

/* Channels `in` and `out` are those of one group. */
typedef struct nb_geometry {
    int rank;
    int64_t images, groups, in, out;
    nb_conv_line line[NB_MAX_SPATIAL];
} nb_geometry;

/* That of a call of the primitive. */
nb_geometry nb_conv_geometry(const nb_call *c);

/* Size of n elements with step - 1 zeros between them. */
int64_t nb_spread_size(int64_t n, int64_t step);

/* Sets places from the rest; they may be less than one.  False, without an
 * error, if a size does not fit an int64. */
bool nb_conv_line_measure(nb_conv_line *l);

/* The primitive called with that geometry, of which it reads rank, groups and,
 * of lines, stride, dilation, spread and padding. */
nb_tensor *nb_conv_apply(nb_tensor *x, nb_tensor *filter, const nb_geometry *g);

/* The convolution that is the adjoint in x of that one, to be applied with its
 * filter turned: taps reversed, channels in and out exchanged. */
nb_geometry nb_conv_adjoint(const nb_geometry *g);
nb_tensor *nb_conv_turn(nb_tensor *filter, const nb_geometry *g);

/* y = x * filter; the views are those of a call of that geometry. */
bool nb_conv_run(const nb_geometry *g, const nb_view *x, const nb_view *filter,
                 const nb_view *y);

/* The same in a given way, for tests: by which rows, in vectors of at most so
 * many bytes. */
typedef struct nb_conv_way {
    enum { NB_CONV_EITHER, NB_CONV_BY_PLACES, NB_CONV_BY_IMAGES } rows;
    int bytes;
} nb_conv_way;

bool nb_conv_run_as(const nb_geometry *g, const nb_view *x,
                    const nb_view *filter, const nb_view *y, nb_conv_way way);

#endif
