/* data_parallel.c - every device has all parameters and a part of the batch.
 *
 * The step of training is that of one device.  Its gradients are sums over the
 * batch, and the batch is split, so each device has a part of each sum; asking
 * for a gradient that lies as its parameter does adds them up: one all-reduce of
 * each, for which nothing is written here.  data_parallel.py is the same in
 * Python and gives the same numbers. */
#include "common/training.h"

enum { BATCH = 62 }; /* over 4 devices: 15, 16, 15, 16 */
enum { BIAS, DOWN, UP, PARAMS, X = PARAMS, Y, ARGUMENTS };

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

static void show_blocks(nb_tensor *x)
{
    int64_t size[2], local[2];
    nb_sizes(x, size);
    if (is_first()) printf("blocks of x: [");
    for (int i = 0; i < 4; i++) {
        nb_spec_local_sizes(nb_sharding(x), size, i, NULL, local);
        if (is_first())
            printf("%s(%d, %d)", i ? ", " : "", (int)local[0], (int)local[1]);
    }
    if (is_first()) puts("]");
}

int main(void)
{
    static const char *const layout[] = {"[.]", "[., .]", "[., .]", "[dp, .]",
                                         "[dp, .]"};
    training t = {loss, PARAMS, ARGUMENTS, .rate = 0.2};
    nb_tensor *one[ARGUMENTS], *many[ARGUMENTS];
    nb_scope_open();
    const nb_mesh *mesh =
        nb_mesh_new("pod", 1, (const char *const[]){"dp"}, (int[]){4}, NULL);
    init(one);
    for (int i = 0; i < ARGUMENTS; i++)
        many[i] = nb_reshard(one[i], nb_spec_parse(mesh, layout[i]));
    show_picture(many[X]);
    show_blocks(many[X]);
    explain(nb_func_new(step, &t), ARGUMENTS, many);
    return finish(compare(&t, many, one));
}
