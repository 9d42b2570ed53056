/* tensor_parallel.c - after Megatron: every device has a part of each layer.
 *
 * Of the two matrices of a layer the first is split by columns and the second by
 * rows, so that between them, where most numbers are, each device has columns of
 * its own and needs nobody.  What leaves a layer is a sum over devices, and so
 * is the gradient of what enters it (of x, which nobody asks for, there is none):
 * one all-reduce of activations a layer in each direction, and none of weights.
 * tensor_parallel.py is the same in Python and gives the same numbers. */
#include <math.h>
#include <nabla/nabla.h>
#include <stdio.h>

enum { LAYERS = 2, BATCH = 16, WIDTH = 8, STEPS = 40 };
static const double rate = 0.1;

/* up, down, up, down, x, y */
enum { PARAMS = 2 * LAYERS, X = PARAMS, Y, ARGUMENTS };

/* A rank and a shape, as ops take them. */
#define COUNT(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define SHAPE(...) COUNT(__VA_ARGS__), ((int64_t[]){__VA_ARGS__})

static nb_tensor *between(nb_tensor *x, nb_tensor *up)
{
    return nb_gelu(nb_matmul(x, up), "none");
}

/* (parameters, x, y) -> loss */
static nb_status loss(void *ctx, int nx, nb_tensor *const *p, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *x = p[X];
    for (int i = 0; i < PARAMS; i += 2)
        x = (NB_HERE, nb_add(x, nb_matmul(between(x, p[i]), p[i + 1])));
    y[0] = (NB_HERE, nb_mean(nb_square(nb_sub(x, p[Y])), -1, NULL, false));
    *ny = 1;
    return NB_OK;
}

/* (parameters, x, y) -> (loss, parameters) */
static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx;
    nb_tensor *out[1 + PARAMS];
    int by[PARAMS], n = 1 + PARAMS;
    for (int i = 0; i < PARAMS; i++)
        by[i] = i;
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

static void init(nb_tensor **x)
{
    nb_tensor *key[LAYERS + 1] = {NULL}, *of[2] = {NULL};
    nb_unbind(nb_random_split(nb_random_key(0), LAYERS + 1), 0, key);
    x[X] = nb_random_normal(key[LAYERS], SHAPE(BATCH, WIDTH), 0, 1, NB_F32);
    x[Y] = nb_sin(nb_mul(nb_num(2), x[X]));
    for (int i = 0; i < LAYERS; i++) {
        nb_unbind(nb_random_split(key[i], 2), 0, of);
        x[2 * i] = nb_random_normal(of[0], SHAPE(WIDTH, 4 * WIDTH), 0,
                                    1 / sqrt(WIDTH), NB_F32);
        x[2 * i + 1] =
            nb_random_normal(of[1], SHAPE(4 * WIDTH, WIDTH), 0, 0.1, NB_F32);
    }
}

/* Once for all processes. */
static bool is_first(void)
{
    return nb_distributed_rank() == 0;
}

/* The text goes. */
static void show(const char *before, char *text)
{
    if (is_first()) printf("%s%s\n", before, text ? text : nb_error_message());
    nb_text_release(text);
}

static void show_layouts(nb_tensor *const *p)
{
    nb_tensor *up = p[0], *down = p[1], *h = between(p[X], up);
    int64_t size[] = {WIDTH, 4 * WIDTH};
    show("up      ", nb_spec_text(nb_sharding(up)));
    show("down    ", nb_spec_text(nb_sharding(down)));
    show("between ", nb_spec_text(nb_sharding(h)));
    show("after   ", nb_spec_text(nb_sharding(nb_matmul(h, down))));
    show("", nb_sharding_picture(nb_sharding(up), 2, size, "text"));
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
    static const char *const layout[] = {"[., tp]", "[tp, .]"};
    nb_tensor *one[ARGUMENTS], *many[ARGUMENTS];
    bool learned = false;
    nb_scope_open();
    const nb_mesh *mesh =
        nb_mesh_new("pod", 1, (const char *const[]){"tp"}, (int[]){4}, NULL);
    init(one);
    for (int i = 0; i < ARGUMENTS; i++)
        many[i] = i < PARAMS
                      ? nb_reshard(one[i], nb_spec_parse(mesh, layout[i % 2]))
                      : one[i];
    show_layouts(many);
    explain(many);
    double most = compare(many, one, &learned);
    if (is_first()) printf("largest difference from one device: %.0e\n", most);
    nb_status status = nb_error_code();
    if (status != NB_OK) fprintf(stderr, "%s\n", nb_error_message());
    nb_scope_close(0, NULL);
    return status != NB_OK || !learned || !(most < 1e-5);
}
