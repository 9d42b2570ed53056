/* shard_bytes.c - what the known ways of training over many devices move,
 * against the formulas: bench/shard.py runs it.
 *
 * Bytes are those that a device receives in a step, as the step is explained;
 * nothing runs or is timed.  On n devices an all-gather or a reduce-scatter of b
 * bytes has (n - 1) / n b, an all-reduce twice that. */
#include <nabla/nabla.h>
#include <stdio.h>

enum { BLOCKS = 4, BATCH = 1024, WIDTH = 256, INNER = 1024 };
static const double up_bytes = 4. * WIDTH * INNER;
static const double batch_bytes = 4. * BATCH * WIDTH;

/* up, down, up, down, ...; as much of the optimizer's state; x. */
enum { PARAMS = 2 * BLOCKS, STATE = PARAMS, X = 2 * PARAMS, ARGUMENTS };

typedef struct scheme {
    const char *name, *mesh;
    const char *up, *down;             /* how the parameters lie */
    const char *state_up, *state_down; /* and the state */
    const char *x;
    double bytes; /* by the formula */
} scheme;

/* (parameters, state, x) -> loss */
static nb_status loss(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *h = x[X];
    for (int i = 0; i < PARAMS; i += 2) {
        nb_tensor *inner = nb_relu(nb_matmul(h, x[i]));
        h = nb_add(h, nb_matmul(inner, x[i + 1]));
    }
    y[0] = nb_mean(nb_square(h), -1, NULL, false);
    *ny = 1;
    return NB_OK;
}

/* (parameters, state, x) -> (parameters, state): the gradient goes where the
 * state is, and what is new of a parameter to where that was. */
static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *slope[PARAMS];
    int by[PARAMS], n = PARAMS;
    (void)ctx;
    for (int i = 0; i < PARAMS; i++)
        by[i] = i;
    nb_func *f = nb_grad(nb_func_new(loss, NULL), PARAMS, by);
    nb_status status = nb_func_call(f, nx, x, &n, slope);
    for (int i = 0; status == NB_OK && i < PARAMS; i++) {
        nb_tensor *g = nb_reshard_like(slope[i], x[STATE + i]);
        y[STATE + i] = nb_add(nb_mul(x[STATE + i], nb_num(0.9)), g);
        nb_tensor *p = nb_sub(x[i], nb_mul(y[STATE + i], nb_num(0.1)));
        y[i] = nb_reshard_like(p, x[i]);
    }
    *ny = 2 * PARAMS;
    return status;
}

static nb_tensor *argument(const scheme *s, int i)
{
    static const int64_t up[] = {WIDTH, INNER}, down[] = {INNER, WIDTH};
    static const int64_t batch[] = {BATCH, WIDTH};
    const nb_mesh *m = nb_mesh_parse(s->mesh);
    const char *spec = i % 2 ? s->down : s->up;
    if (i >= STATE) spec = i % 2 ? s->state_down : s->state_up;
    if (i == X) spec = s->x;
    nb_tensor *x = nb_zeros(2, i == X ? batch : (i % 2 ? down : up), NB_F32);
    return nb_reshard(x, nb_spec_parse(m, spec));
}

static int unjustified(const nb_explanation *e)
{
    nb_explain_row row;
    int n = 0;
    for (int k = 0; nb_explanation_row(e, k, &row); k++)
        n += !row.reason[0];
    return n;
}

/* How many collectives have no reason. */
static int compare(const scheme *s)
{
    nb_tensor *x[ARGUMENTS];
    nb_explanation *e = NULL;
    int odd = 0;
    nb_scope_open();
    for (int i = 0; i < ARGUMENTS; i++)
        x[i] = argument(s, i);
    if (nb_explain(nb_func_new(step, NULL), ARGUMENTS, x, NULL, &e) == NB_OK) {
        double bytes = (double)nb_explanation_total(e, NULL, NULL);
        printf("%-41s %7.3f     (exactly 1)\n", s->name, bytes / s->bytes);
        odd = unjustified(e);
    } else {
        printf("%-41s not yet: %s\n", s->name, nb_error_message());
        nb_error_clear();
    }
    nb_explanation_drop(e);
    nb_scope_close(0, NULL);
    return odd;
}

int main(void)
{
    const char *line = "@m = <[\"dp\"=8]>", *tp = "@m = <[\"tp\"=8]>";
    const char *grid = "@m = <[\"dp\"=2, \"tp\"=4]>";
    /* Of weights, on a line; of activations, one each way for every block, but
     * for the gradient of x, which nobody wants. */
    const double weights = 7. / 8 * PARAMS * up_bytes;
    const double passes = 2 * BLOCKS - 1;
    const scheme all[] = {
        {"bytes / formula: data parallel", line, "[., .]", "[., .]", "[., .]",
         "[., .]", "[dp, .]", 2 * weights},
        {"bytes / formula: ZeRO-1", line, "[., .]", "[., .]", "[dp, .]",
         "[dp, .]", "[dp, .]", weights + weights},
        /* Gathered parameters are kept for the way back. */
        {"bytes / formula: ZeRO-3", line, "[dp, .]", "[dp, .]", "[dp, .]",
         "[dp, .]", "[dp, .]", weights + weights},
        {"bytes / formula: Megatron", tp, "[., tp]", "[tp, .]", "[., tp]",
         "[tp, .]", "[., .]", passes * 2 * 7 / 8 * batch_bytes},
        {"bytes / formula: 2-D", grid, "[., tp]", "[tp, .]", "[., tp]",
         "[tp, .]", "[dp, .]",
         passes * 2 * 3 / 4 * batch_bytes / 2 +
             PARAMS * 2 * 1 / 2 * up_bytes / 4}};
    int odd = 0;
    for (int i = 0; i < (int)(sizeof(all) / sizeof(*all)); i++)
        odd += compare(all + i);
    printf("%-41s %7d     (at most 0)\n", "collectives without a reason", odd);
}
