/* data_parallel.c - every device has all parameters and a part of the batch.
 *
 * The step of training is that of one device.  Its gradients are sums over the
 * batch, and the batch is split, so each device has a part of each sum; asking
 * for a gradient that lies as its parameter does adds them up: one all-reduce of
 * each, for which nothing is written here.  data_parallel.py is the same in
 * Python and gives the same numbers. */
#include <math.h>
#include <nabla/nabla.h>
#include <stdio.h>

enum { BATCH = 62, STEPS = 40 }; /* 62 over 4 devices: 15, 16, 15, 16 */
static const double rate = 0.2;

enum { BIAS, DOWN, UP, PARAMS, X = PARAMS, Y, ARGUMENTS };

/* A rank and a shape, as ops take them. */
#define COUNT(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define SHAPE(...) COUNT(__VA_ARGS__), ((int64_t[]){__VA_ARGS__})

/* (parameters, x, y) -> loss */
static nb_status loss(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *h = (NB_HERE, nb_tanh(nb_add(nb_matmul(x[X], x[UP]), x[BIAS])));
    nb_tensor *miss = (NB_HERE, nb_sub(nb_matmul(h, x[DOWN]), x[Y]));
    y[0] = (NB_HERE, nb_mean(nb_square(miss), -1, NULL, false));
    *ny = 1;
    return NB_OK;
}

/* (parameters, x, y) -> (loss, parameters) */
static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx;
    nb_tensor *out[1 + PARAMS];
    int by[PARAMS] = {BIAS, DOWN, UP}, n = 1 + PARAMS;
    nb_func *slope = nb_value_and_grad(nb_func_new(loss, NULL), PARAMS, by);
    nb_status status = (NB_HERE, nb_func_call(slope, nx, x, &n, out));
    for (int i = 0; status == NB_OK && i < PARAMS; i++)
        y[1 + i] = nb_sub(x[i], nb_mul(nb_num(rate), out[1 + i]));
    y[0] = status == NB_OK ? out[0] : NULL;
    *ny = 1 + PARAMS;
    return status;
}

/* All steps: x has the new parameters in the end. */
static nb_status train(nb_tensor **x, double *losses)
{
    nb_executable *e = NULL;
    nb_tensor *y[1 + PARAMS];
    nb_status status =
        nb_executable_new(nb_func_new(step, NULL), ARGUMENTS, x, &e);
    for (int t = 0; status == NB_OK && t < STEPS; t++) {
        int n = 1 + PARAMS;
        status = nb_executable_run(e, ARGUMENTS, x, &n, y);
        for (int i = 0; status == NB_OK && i < PARAMS; i++)
            x[i] = y[1 + i];
        if (status == NB_OK) losses[t] = nb_item(y[0]);
    }
    nb_executable_drop(e);
    return status;
}

/* Parameters, a batch and what to make of it. */
static void init(nb_tensor **x)
{
    nb_tensor *key[3] = {NULL};
    nb_unbind(nb_random_split(nb_random_key(0), 3), 0, key);
    x[X] = nb_random_normal(key[0], SHAPE(BATCH, 8), 0, 1, NB_F32);
    x[Y] = nb_sin(nb_reduce_sum(x[X], SHAPE(1), true));
    x[UP] = nb_random_normal(key[1], SHAPE(8, 32), 0, 0.3, NB_F32);
    x[BIAS] = nb_zeros(SHAPE(32), NB_F32);
    x[DOWN] = nb_random_normal(key[2], SHAPE(32, 1), 0, 0.2, NB_F32);
}

/* Once for all processes. */
static bool is_first(void)
{
    return nb_distributed_rank() == 0;
}

static void show_layout(nb_tensor *x)
{
    int64_t size[2], local[2];
    nb_sizes(x, size);
    char *text = nb_sharding_picture(nb_sharding(x), nb_rank(x), size, "text");
    if (is_first()) printf("%s\nblocks of x: [", text ? text : "");
    for (int i = 0; i < 4; i++) {
        nb_spec_local_sizes(nb_sharding(x), size, i, NULL, local);
        if (is_first())
            printf("%s(%d, %d)", i ? ", " : "", (int)local[0], (int)local[1]);
    }
    if (is_first()) puts("]");
    nb_text_release(text);
}

/* What a step has to say to other devices, and why. */
static void explain(nb_tensor **x)
{
    nb_explanation *e = NULL;
    if (nb_explain(nb_func_new(step, NULL), ARGUMENTS, x, NULL, &e) != NB_OK)
        return;
    char *text = nb_explanation_text(e);
    if (is_first()) printf("%s", text ? text : nb_error_message());
    nb_text_release(text);
    nb_explanation_drop(e);
}

static double difference(nb_tensor *a, nb_tensor *b)
{
    return nb_item(nb_reduce_max(nb_abs(nb_sub(a, b)), -1, NULL, false));
}

/* Trains over the mesh and on one device; how far they are apart, and whether
 * something was learned. */
static double compare(nb_tensor **many, nb_tensor **one, bool *learned)
{
    double losses[STEPS], expected[STEPS], most = 0;
    if (train(many, losses) || train(one, expected)) return INFINITY;
    for (int t = 0; t < STEPS; t += 13)
        if (is_first()) printf("step %2d  loss %.4f\n", t, losses[t]);
    for (int i = 0; i < PARAMS; i++)
        most = fmax(most, difference(many[i], one[i]));
    for (int t = 0; t < STEPS; t++)
        most = fmax(most, fabs(losses[t] - expected[t]));
    *learned = losses[STEPS - 1] < losses[0] / 2;
    return most;
}

int main(void)
{
    static const char *const layout[] = {"[.]", "[., .]", "[., .]", "[dp, .]",
                                         "[dp, .]"};
    nb_tensor *one[ARGUMENTS], *many[ARGUMENTS];
    bool learned = false;
    nb_scope_open();
    const nb_mesh *mesh =
        nb_mesh_new("pod", 1, (const char *const[]){"dp"}, (int[]){4}, NULL);
    init(one);
    for (int i = 0; i < ARGUMENTS; i++)
        many[i] = nb_reshard(one[i], nb_spec_parse(mesh, layout[i]));
    show_layout(many[X]);
    explain(many);
    double most = compare(many, one, &learned);
    if (is_first()) printf("largest difference from one device: %.0e\n", most);
    nb_status status = nb_error_code();
    if (status != NB_OK) fprintf(stderr, "%s\n", nb_error_message());
    nb_scope_close(0, NULL);
    return status != NB_OK || !learned || !(most < 1e-5);
}
