/* shard_model.c - what it takes to lay out a transformer: bench/shard.py runs
 * it.
 *
 * A step of training of twelve layers is recorded and planned, nothing runs:
 * laid out as one says (batches on one axis, heads and the inner width on the
 * other, after Megatron), and with the layouts chosen.  Times are the least of
 * several, each on a mesh of its own: plans are kept, and the second on a mesh
 * would find some. */
#include <math.h>
#include <nabla/nabla.h>
#include <stdio.h>
#include <time.h>

enum { LAYERS = 12, WIDTH = 512, HEADS = 8, DEPTH = WIDTH / HEADS };
enum { BATCH = 16, CONTEXT = 128, ROUNDS = 5 };

/* The parameters of a layer; then x and y. */
enum { NORM1, QUERY, KEY, VALUE, PROJ, NORM2, UP, DOWN, OF_LAYER };
enum { PARAMS = LAYERS * OF_LAYER, X = PARAMS, Y, ARGUMENTS };

#define COUNT(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define SHAPE(...) COUNT(__VA_ARGS__), ((int64_t[]){__VA_ARGS__})
#define LAST       SHAPE(-1)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void not_yet(const char *name)
{
    printf("%-41s not yet: %s\n", name, nb_error_message());
    nb_error_clear();
}

static nb_tensor *einsum(const char *subscripts, nb_tensor *x, nb_tensor *y)
{
    return nb_einsum(subscripts, 2, (nb_tensor *[]){x, y});
}

static nb_tensor *norm(nb_tensor *x, nb_tensor *gain)
{
    x = nb_sub(x, nb_mean(x, LAST, true));
    nb_tensor *var = nb_mean(nb_square(x), LAST, true);
    return nb_mul(nb_mul(x, nb_rsqrt(nb_add(var, nb_num(1e-5)))), gain);
}

static nb_tensor *attention(nb_tensor *x, nb_tensor *const *p)
{
    nb_tensor *q = einsum("btw,whd->bhtd", x, p[QUERY]);
    nb_tensor *k = einsum("btw,whd->bhtd", x, p[KEY]);
    nb_tensor *v = einsum("btw,whd->bhtd", x, p[VALUE]);
    nb_tensor *score = nb_matmul(q, nb_swap_axes(k, -1, -2));
    score = nb_softmax(nb_div(score, nb_num(sqrt(DEPTH))), -1);
    return einsum("bhtd,hdw->btw", nb_matmul(score, v), p[PROJ]);
}

static nb_tensor *mlp(nb_tensor *x, nb_tensor *const *p)
{
    return nb_matmul(nb_gelu(nb_matmul(x, p[UP]), "tanh"), p[DOWN]);
}

/* (parameters, x, y) -> loss */
static nb_status loss(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *h = x[X];
    for (int i = 0; i < PARAMS; i += OF_LAYER) {
        nb_tensor *const *p = x + i;
        h = nb_add(h, attention(norm(h, p[NORM1]), p));
        h = nb_add(h, mlp(norm(h, p[NORM2]), p));
    }
    y[0] = nb_mean(nb_square(nb_sub(h, x[Y])), -1, NULL, false);
    *ny = 1;
    return NB_OK;
}

/* (parameters, x, y) -> (parameters, loss) */
static nb_status step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *out[1 + PARAMS];
    int by[PARAMS], n = 1 + PARAMS;
    (void)ctx;
    for (int i = 0; i < PARAMS; i++)
        by[i] = i;
    nb_func *slope = nb_value_and_grad(nb_func_new(loss, NULL), PARAMS, by);
    nb_status status = nb_func_call(slope, nx, x, &n, out);
    for (int i = 0; status == NB_OK && i < PARAMS; i++)
        y[i] = nb_sub(x[i], nb_mul(nb_num(0.1), out[1 + i]));
    y[PARAMS] = status == NB_OK ? out[0] : NULL;
    *ny = PARAMS + 1;
    return status;
}

static nb_tensor *argument(int i)
{
    if (i >= X) return nb_zeros(SHAPE(BATCH, CONTEXT, WIDTH), NB_F32);
    switch (i % OF_LAYER) {
    case NORM1:
    case NORM2: return nb_zeros(SHAPE(WIDTH), NB_F32);
    case PROJ: return nb_zeros(SHAPE(HEADS, DEPTH, WIDTH), NB_F32);
    case UP: return nb_zeros(SHAPE(WIDTH, 4 * WIDTH), NB_F32);
    case DOWN: return nb_zeros(SHAPE(4 * WIDTH, WIDTH), NB_F32);
    }
    return nb_zeros(SHAPE(WIDTH, HEADS, DEPTH), NB_F32);
}

static const char *layout(int i)
{
    static const char *const of[OF_LAYER] = {
        "[.]",        "[., tp, .]", "[., tp, .]", "[., tp, .]",
        "[tp, ., .]", "[.]",        "[., tp]",    "[tp, .]"};
    return i >= X ? "[dp, ., .]" : of[i % OF_LAYER];
}

/* Another every time. */
static const nb_mesh *mesh(int naxes, const int *size)
{
    static const char *const axis[] = {"dp", "tp"};
    static int made;
    char name[16];
    snprintf(name, sizeof(name), "m%d", made++);
    return nb_mesh_new(name, naxes, axis, size, NULL);
}

/* Seconds, negative after an error. */
typedef double timed(nb_func *f, nb_tensor *const *x);

static double recorded(nb_func *f, nb_tensor *const *x)
{
    nb_tensor *y[PARAMS + 1];
    int ny = PARAMS + 1;
    double start = now();
    nb_status status = nb_func_call(f, ARGUMENTS, x, &ny, y);
    return status == NB_OK ? now() - start : -1;
}

/* Recorded, laid out and listed. */
static double explained(nb_func *f, nb_tensor *const *x)
{
    nb_explanation *e = NULL;
    double start = now();
    nb_status status = nb_explain(f, ARGUMENTS, x, NULL, &e);
    double end = now();
    nb_explanation_drop(e);
    return status == NB_OK ? end - start : -1;
}

static double best(timed *how, nb_func *f, nb_tensor *const *x, bool on_mesh)
{
    double least = 1e9;
    for (int r = 0; r < ROUNDS; r++) {
        const nb_mesh *m = on_mesh ? mesh(2, (int[]){2, 4}) : NULL;
        nb_tensor *y[ARGUMENTS];
        nb_scope_open();
        for (int i = 0; i < ARGUMENTS; i++)
            y[i] = m ? nb_reshard(x[i], nb_spec_parse(m, layout(i))) : x[i];
        double each = how(f, y);
        nb_scope_close(0, NULL);
        least = each < least ? each : least;
    }
    return least;
}

static void planned(nb_func *f, nb_tensor *const *x)
{
    const char *name = "transformer step on (2, 4): to plan it";
    double plain = best(recorded, f, x, false);
    double calls = best(recorded, f, x, true);
    double all = best(explained, f, x, true);
    if (plain < 0 || calls < 0 || all < 0) {
        not_yet(name);
        return;
    }
    printf("%-41s %7.1f ms  (at most 50)\n", name, 1e3 * (all - plain));
    printf("%-41s %7.1f ms\n", "  of which when ops are called",
           1e3 * (calls - plain));
}

static void chosen(const char *name, nb_func *f, nb_tensor *const *x, int naxes,
                   const int *size, double limit)
{
    nb_auto_alias alias[PARAMS];
    nb_auto_options o = {.naliases = PARAMS, .alias = alias};
    double least = 1e9, excess = 0;
    for (int i = 0; i < PARAMS; i++)
        alias[i] = (nb_auto_alias){i, i};
    for (int r = 0; r < ROUNDS; r++) {
        nb_auto_plan *p = NULL;
        const nb_mesh *m = mesh(naxes, size);
        double start = now();
        if (nb_auto_shard(f, m, ARGUMENTS, x, &o, &p) != NB_OK) {
            not_yet(name);
            return;
        }
        double each = now() - start;
        least = each < least ? each : least;
        excess = nb_auto_plan_cost(p) / nb_auto_plan_bound(p);
        nb_auto_plan_drop(p);
    }
    printf("%-41s %7.3f s   (at most %g)\n", name, least, limit);
    printf("%-41s %7.3f\n", "  cost / bound", excess);
}

int main(void)
{
    nb_tensor *x[ARGUMENTS];
    nb_scope_open();
    for (int i = 0; i < ARGUMENTS; i++)
        x[i] = argument(i);
    nb_func *f = nb_func_new(step, NULL);
    planned(f, x);
    chosen("transformer step on (4): to choose layouts", f, x, 1, (int[]){4},
           1);
    chosen("transformer step on (2, 4): the same", f, x, 2, (int[]){2, 4}, 5);
    nb_scope_close(0, NULL);
}
