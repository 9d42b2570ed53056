/* showcase.c - two ways of splitting work in one line: x over dp, w over tp, and
 * a mean.
 *
 * The function is that of one device.  How its arguments lie is enough: each of
 * four devices has half of x and half of w, makes a quarter of x @ w, and keeps
 * its part of the sum; one number of four bytes is added up at the end.  It runs
 * with devices that are threads, and the same under mpirun -n 2 or -n 4. */
#include "common/training.h"

/* mean(relu(x @ w)) */
static nb_status f(void *ctx, int nx, nb_tensor *const *x, int *ny,
                   nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = (NB_HERE, nb_mean(nb_relu(nb_matmul(x[0], x[1])), -1, NULL, false));
    *ny = 1;
    return NB_OK;
}

static void say(const char *text)
{
    if (is_first()) printf("%s", text);
}

static void show_program(nb_func *func, nb_tensor **x)
{
    nb_graph *g = NULL;
    nb_tensor *y = nb_func_call1(func, 2, x);
    if (nb_graph_of(2, x, 1, &y, &g) != NB_OK) return;
    show("", nb_graph_text(g), "");
    nb_graph_free(g);
}

int main(void)
{
    nb_scope_open();
    const nb_mesh *mesh = nb_mesh_new(
        "pod", 2, (const char *const[]){"dp", "tp"}, (int[]){2, 2}, NULL);
    float xs[] = {-4, -3, -2, -1, 0, 1, 2, 3};
    float ws[] = {1, 2, -3, 0, -1, 0, 2, 1};
    nb_tensor *one[] = {nb_constant(NB_F32, 2, (int64_t[]){4, 2}, xs),
                        nb_constant(NB_F32, 2, (int64_t[]){2, 4}, ws)};
    nb_tensor *split[] = {nb_reshard(one[0], nb_spec_parse(mesh, "[dp, .]")),
                          nb_reshard(one[1], nb_spec_parse(mesh, "[., tp]"))};
    show("x = ", nb_tensor_text(split[0]), "\n");
    show("w = ", nb_tensor_text(split[1]), "\n");

    say("relu(x @ w) lies as its operands say, nothing has moved:\n");
    show_picture(nb_relu(nb_matmul(split[0], split[1])));

    nb_func *func = nb_func_new(f, NULL);
    say("f, each line with how it lies; P:(dp,tp) is a sum that is still to "
        "come:\n");
    show_program(func, split);
    say("What moves: a number of four bytes, from each device to the "
        "others.\n");
    explain(func, 2, split);

    double many = nb_item(nb_func_call1(func, 2, split));
    double alone = nb_item(nb_func_call1(func, 2, one));
    if (is_first()) printf("f(x, w) = %g, on one device %g\n", many, alone);
    return finish(many == alone);
}
