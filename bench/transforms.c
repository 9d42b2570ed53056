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

int main(void)
{
    static const int first[] = {0};
    nb_scope_open();
    perceptron();
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
