/* transforms.c - what derivatives cost, counted from the recorded programs:
 * bench-transforms runs it.  Counts are exact, so nothing is timed here. */
#include <nabla/nabla.h>
#include <stdio.h>

enum { BATCH = 128, LAYERS = 3 };

static nb_tensor *zeros(int64_t m, int64_t n)
{
    return nb_zeros(2, (int64_t[]){m, n}, NB_F32);
}

/* The mean square of a perceptron's output: w[0..2] are arguments, the data is
 * closed over. */
static nb_status mlp(void *data, int nx, nb_tensor *const *w, int *ny,
                     nb_tensor **y)
{
    nb_tensor *h = data;
    for (int k = 0; k < nx; k++) {
        h = nb_matmul(h, w[k]);
        if (k + 1 < nx) h = nb_relu(h);
    }
    y[0] = nb_mean(nb_square(h), -1, NULL, false);
    *ny = 1;
    return NB_OK;
}

/* Operations of f at x, results from `first` on. */
static double flops(nb_func *f, int nx, nb_tensor *const *x, int first)
{
    nb_tensor *y[32];
    nb_graph *g;
    int ny = 32;
    if (nb_func_call(f, nx, x, &ny, y) != NB_OK) return -1;
    if (nb_graph_of(nx, x, ny - first, y + first, &g) != NB_OK) return -1;
    double n = nb_graph_flops(g);
    nb_graph_free(g);
    return n;
}

static void perceptron(void)
{
    static const int64_t width[] = {784, 512, 512, 10};
    static const int all[] = {0, 1, 2};
    nb_tensor *x[2 * LAYERS];
    for (int k = 0; k < LAYERS; k++) {
        x[k] = zeros(width[k], width[k + 1]);
        x[LAYERS + k] = zeros(width[k], width[k + 1]);
        nb_realize(x[k]);
        nb_realize(x[LAYERS + k]);
    }
    nb_tensor *data = zeros(BATCH, 784);
    nb_realize(data);
    nb_func *f = nb_func_new(mlp, data), *grad = nb_grad(f, LAYERS, all);
    double forward = flops(f, LAYERS, x, 0);
    double back = flops(nb_value_and_grad(f, LAYERS, all), LAYERS, x, 0);
    double only = flops(grad, LAYERS, x, 0);
    double hvp = flops(nb_jvp(grad), 2 * LAYERS, x, LAYERS);
    printf("value and grad / forward, MLP      %6.3f     (at most 3.0)\n",
           back / forward);
    printf("hvp / grad, MLP                    %6.3f     (at most 2.2)\n",
           hvp / only);
}

static nb_status sines(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_reduce_sum(nb_mul(nb_sin(x[0]), x[0]), -1, NULL, false);
    *ny = 1;
    return NB_OK;
}

static int calls(nb_func *f, int64_t batch)
{
    nb_graph *g;
    nb_tensor *x = zeros(batch, 3), *y;
    int n = -1;
    if ((y = nb_func_call1(f, 1, &x)) &&
        nb_graph_of(1, &x, 1, &y, &g) == NB_OK) {
        n = nb_graph_calls(g);
        nb_graph_free(g);
    }
    return n;
}

/* The sum of 1 / r over pairs of points. */
static nb_status pairs(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    int64_t n = nb_size(x[0], 0);
    nb_tensor *d = nb_sub(nb_reshape(x[0], 3, (int64_t[]){n, 1, 3}),
                          nb_reshape(x[0], 3, (int64_t[]){1, n, 3}));
    nb_tensor *r2 = nb_reduce_sum(nb_square(d), 1, (int64_t[]){-1}, false);
    (void)ctx, (void)nx;
    y[0] = nb_reduce_sum(nb_rsqrt(nb_add(r2, nb_eye(n, n, 0, NB_F64))), -1,
                         NULL, false);
    *ny = 1;
    return NB_OK;
}

static nb_tensor *points(int64_t n)
{
    nb_tensor *key = nb_random_key(1);
    nb_tensor *x = nb_random_uniform(key, 2, (int64_t[]){n, 3}, 0, 1, NB_F64);
    nb_realize(x);
    return x;
}

/* The most bytes at once that the Hessian of n points needs, in bytes of the
 * result. */
static double hessian_peak(int64_t n, size_t budget)
{
    size_t usual = nb_jacobian_budget();
    nb_scope_open();
    nb_tensor *x = points(n);
    nb_jacobian_budget_set(budget);
    nb_memory_peak_reset();
    nb_realize(nb_func_call1(nb_hessian(nb_func_new(pairs, NULL), 0), 1, &x));
    nb_jacobian_budget_set(usual);
    nb_scope_close(0, NULL);
    return (double)nb_memory_peak() / (72.0 * (double)(n * n));
}

/* One row, the gradient pushed along the tape that all rows share: of as many
 * points as are meant, since all rows would take hours. */
static void molecule(int64_t n)
{
    static const int first[] = {0};
    nb_tensor *x = points(n), *in, *u = nb_zeros_like(x), *row;
    nb_func *grad = nb_grad(nb_func_new(pairs, NULL), 1, first);
    nb_memory_peak_reset();
    nb_tape *t = nb_tape_open(1, &x, &in);
    nb_tensor *g = nb_func_call1(grad, 1, &in);
    nb_tape_close(t, 1, &g);
    nb_scope_open();
    int pushed = nb_tape_push(t, &u, &row) == NB_OK;
    nb_scope_close(pushed, &row);
    if (pushed) nb_realize(row);
    double result = 72e-9 * (double)(n * n);
    printf("Hessian of %lld points in rows     %6.2f GB   (at most 4; the "
           "result is %.2f)\n",
           (long long)n, (double)nb_memory_peak() / 1e9 + result, result);
    nb_tape_drop(t);
}

static void hessians(void)
{
    printf("Hessian of points, peak / result   %6.1f of 20, %.1f of 40 at "
           "once\n",
           hessian_peak(20, (size_t)1 << 40),
           hessian_peak(40, (size_t)1 << 40));
    printf(
        "the same in rows                   %6.1f of 20, %.1f of 40, %.1f of "
        "80\n",
        hessian_peak(20, 1), hessian_peak(40, 1), hessian_peak(80, 1));
    nb_scope_open();
    molecule(2483);
    nb_scope_close(0, NULL);
}

int main(void)
{
    static const int first[] = {0};
    nb_scope_open();
    perceptron();
    hessians();
    nb_func *f = nb_func_new(sines, NULL);
    nb_func *jac = nb_jacrev(nb_vmap(f, NULL), 0);
    nb_func *per = nb_vmap(nb_grad(f, 1, first), NULL);
    printf("calls recorded, jacrev(vmap(f))    %d of 2 rows, %d of 200\n",
           calls(jac, 2), calls(jac, 200));
    printf("calls recorded, vmap(grad(f))      %d of 2 rows, %d of 200\n",
           calls(per, 2), calls(per, 200));
    if (nb_error_code()) puts(nb_error_message());
    nb_scope_close(0, NULL);
}
