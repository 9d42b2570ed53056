/* nabla/conv.h - convolution and pooling, channels last.
 *
 * Images are (N, W, C), (N, H, W, C) or (N, D, H, W, C), filters (taps...,
 * C / groups, channels out), those of a transposed convolution (taps...,
 * channels out / groups, C).  A bias is an nb_add. */
#ifndef NABLA_CONV_H
#define NABLA_CONV_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a window moves over an image, one entry a spatial axis.  A zero in
 * stride, dilation or groups stands for one, so that {0} is the plain case. */
typedef struct nb_conv {
    int64_t stride[3];
    int64_t dilation[3];
    int64_t padding[3][2];     /* zeros before and after */
    int64_t output_padding[3]; /* transposed: less than the stride */
    int64_t groups;
} nb_conv;

/* Length of the result: floor((n + before + after - dilation (taps - 1) - 1) /
 * stride) + 1.  how may be NULL: the plain case. */
NB_API nb_tensor *nb_conv1d(nb_tensor *x, nb_tensor *filter,
                            const nb_conv *how);
NB_API nb_tensor *nb_conv2d(nb_tensor *x, nb_tensor *filter,
                            const nb_conv *how);
NB_API nb_tensor *nb_conv3d(nb_tensor *x, nb_tensor *filter,
                            const nb_conv *how);

/* The adjoints of the above in x, with the same filter.  Length of the result:
 * (n - 1) stride - before - after + dilation (taps - 1) + output_padding + 1.*/
NB_API nb_tensor *nb_conv1d_transpose(nb_tensor *x, nb_tensor *filter,
                                      const nb_conv *how);
NB_API nb_tensor *nb_conv2d_transpose(nb_tensor *x, nb_tensor *filter,
                                      const nb_conv *how);
NB_API nb_tensor *nb_conv3d_transpose(nb_tensor *x, nb_tensor *filter,
                                      const nb_conv *how);

/* The window of a pool; a stride of zero stands for the window's size, a
 * dilation of zero for one. */
typedef struct nb_pool {
    int64_t kernel_size[2];
    int64_t stride[2];
    int64_t padding[2][2];
    int64_t dilation[2];
} nb_pool;

/* The mean over each window, padding counted as zeros; and the maximum, padding
 * not counted. */
NB_API nb_tensor *nb_avg_pool2d(nb_tensor *x, const nb_pool *how);
NB_API nb_tensor *nb_max_pool2d(nb_tensor *x, const nb_pool *how);

#ifdef __cplusplus
}
#endif
#endif
