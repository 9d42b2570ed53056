/* mlp.h - the network of the shard benchmarks, and a clock. */
#ifndef MLP_H
#define MLP_H

#include <nabla/nabla.h>
#include <time.h>

static inline double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* (weights, x) -> mean(relu(... relu(x w0) w1 ...)^2) */
static inline nb_status mlp_loss(void *ctx, int nx, nb_tensor *const *x,
                                 int *ny, nb_tensor **y)
{
    (void)ctx;
    nb_tensor *h = x[nx - 1];
    for (int k = 0; k < nx - 1; k++)
        h = nb_relu(nb_matmul(h, x[k]));
    y[0] = nb_mean(nb_square(h), -1, NULL, false);
    *ny = 1;
    return NB_OK;
}

/* A step of training: (weights, x) -> weights, each laid out as it was. */
static inline nb_status mlp_step(void *ctx, int nx, nb_tensor *const *x,
                                 int *ny, nb_tensor **y)
{
    static const int by[] = {0, 1, 2};
    (void)ctx;
    nb_func *slope = nb_grad(nb_func_new(mlp_loss, NULL), nx - 1, by);
    nb_status status = nb_func_call(slope, nx, x, ny, y);
    for (int k = 0; status == NB_OK && k < nx - 1; k++)
        y[k] = nb_reshard_like(nb_sub(x[k], nb_mul(nb_num(0.1), y[k])), x[k]);
    return status;
}

#endif
