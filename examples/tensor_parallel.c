/* tensor_parallel.c - after Megatron: every device has a part of each layer.
 *
 * Of the two matrices of a layer the first is split by columns and the second by
 * rows, so that between them, where most numbers are, each device has columns of
 * its own and needs nobody.  What leaves a layer is a sum over devices, and so
 * is the gradient of what enters it (of x, which nobody asks for, there is none):
 * one all-reduce of activations a layer in each direction, and none of weights.
 * tensor_parallel.py is the same in Python and gives the same numbers. */
#include "common/training.h"

enum { LAYERS = 2, BATCH = 16, WIDTH = 8 };

/* up, down, up, down, x, y */
enum { PARAMS = 2 * LAYERS, X = PARAMS, Y, ARGUMENTS };

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

static void show_layouts(nb_tensor *const *p)
{
    nb_tensor *up = p[0], *down = p[1], *h = between(p[X], up);
    show("up      ", nb_spec_text(nb_sharding(up)), "\n");
    show("down    ", nb_spec_text(nb_sharding(down)), "\n");
    show("between ", nb_spec_text(nb_sharding(h)), "\n");
    show("after   ", nb_spec_text(nb_sharding(nb_matmul(h, down))), "\n");
    show_picture(up);
}

int main(void)
{
    static const char *const layout[] = {"[., tp]", "[tp, .]"};
    training t = {loss, PARAMS, ARGUMENTS, .rate = 0.1};
    nb_tensor *one[ARGUMENTS], *many[ARGUMENTS];
    nb_scope_open();
    const nb_mesh *mesh =
        nb_mesh_new("pod", 1, (const char *const[]){"tp"}, (int[]){4}, NULL);
    init(one);
    for (int i = 0; i < ARGUMENTS; i++)
        many[i] = i < PARAMS
                      ? nb_reshard(one[i], nb_spec_parse(mesh, layout[i % 2]))
                      : one[i];
    show_layouts(many);
    explain(nb_func_new(step, &t), ARGUMENTS, many);
    return finish(compare(&t, many, one));
}
