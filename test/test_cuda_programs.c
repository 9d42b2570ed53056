/* test_cuda_programs.c - random programs give on a card what they give on the
 * CPU: as they are, compiled, and their gradients; some as bodies of loops.
 *
 * NABLA_CARD_PROGRAMS is how many, NABLA_CARD_SEED that of the first;
 * NABLA_TEST_EVERY and NABLA_TEST_PART take some (support/there.h). */
#include "backend/cuda/card.h"
#include "support/check.h"
#include "support/recipe.h"
#include "support/there.h"

#include <stdio.h>
#include <stdlib.h>

static int setting(const char *name, int otherwise)
{
    const char *said = getenv(name);
    return said ? atoi(said) : otherwise;
}

/* The results of f on a device, or of its gradient; how many. */
static int results(nb_func *f, int device, nb_tensor *const *x, nb_tensor **y)
{
    nb_tensor *there[RECIPE_IN];
    int n = MAX_ARGS;
    there_move(device);
    for (int i = 0; i < RECIPE_IN; i++)
        there[i] = nb_to_device(x[i], device);
    bool ok = nb_func_call(f, RECIPE_IN, there, &n, y) == NB_OK &&
              nb_realize_all(n, y) == NB_OK;
    there_move(0);
    return ok ? n : -1;
}

static void compare(int seed, const char *how, nb_func *f, nb_func *there,
                    nb_tensor *const *x)
{
    nb_tensor *want[MAX_ARGS], *got[MAX_ARGS];
    int n = results(f, 0, x, want);
    bool refused = n < 0;
    nb_error_clear();
    int m = results(there, 1, x, got);
    bool ok = m == n;
    for (int i = 0; ok && i < n; i++)
        ok = near(got[i], want[i], 1e-8);
    if (refused && ok) nb_error_clear();
    expect(ok, "the program of seed %d, %s", seed, how);
}

static void program(int seed)
{
    nb_tensor *x[RECIPE_IN];
    uniform_seed((uint64_t)seed);
    recipe r = recipe_draw();
    recipe_inputs(0, x);
    nb_func *f = nb_func_new(recipe_body, &r);
    compare(seed, "as it is", f, f, x);
    compare(seed, "compiled", f, nb_compile(f, NULL), x);
    r.smooth = r.loss = true;
    nb_func *g = nb_grad(f, 1, (int[]){0});
    compare(seed, "its gradient", g, nb_compile(g, NULL), x);
}

/* The same as the body of a loop, which is a graph in the end: of many kernels,
 * whatever its size. */
static nb_status turn(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    nb_tensor *const *closed = ((void **)ctx)[1];
    nb_tensor *in[RECIPE_IN] = {x[1], closed[1], closed[2]}, *out[2];
    int n = 2;
    (void)nx;
    if (recipe_body(((void **)ctx)[0], RECIPE_IN, in, &n, out) != NB_OK)
        return nb_error_code();
    y[0] = nb_add(x[0], nb_count(1));
    y[1] = nb_tanh(nb_add(nb_mul(x[1], nb_num(0.5)), out[0]));
    y[2] = out[1];
    return *ny = 3, NB_OK;
}

static nb_status state_only(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    nb_tensor *out[3];
    int n = 3;
    nb_status s = turn(ctx, nx, x, &n, out);
    y[0] = out[0], y[1] = out[1];
    return *ny = 2, s;
}

static nb_status unchanged(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = x[0], y[1] = nb_neg(x[1]);
    return *ny = 2, NB_OK;
}

static nb_status goes_on(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_less(nb_square(x[0]), nb_count(9));
    return *ny = 1, y[0] ? NB_OK : nb_error_code();
}

static nb_status turn_or_not(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    nb_tensor *late = nb_greater(x[0], nb_count(1));
    nb_tensor *out[2];
    int n = 2;
    nb_status s = nb_cond(late, nb_func_new(state_only, ctx),
                          nb_func_new(unchanged, NULL), nx, x, &n, out);
    y[0] = nb_add(x[0], nb_count(1)), y[1] = out[1];
    return *ny = 2, s;
}

typedef struct looped {
    recipe *r;
    int kind;
} looped;

static nb_status loop_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const looped *l = ctx;
    void *closed[] = {l->r, (void *)x};
    nb_tensor *init[] = {nb_scalar_int(0, NB_I64), x[0]};
    (void)nx;
    *ny = 3;
    if (l->kind == 0)
        return nb_scan(nb_func_new(turn, closed), 2, init, 0, NULL, 5, false,
                       ny, y);
    *ny = 2;
    if (l->kind == 1)
        return nb_while(nb_func_new(goes_on, NULL),
                        nb_func_new(state_only, closed), 2, init, y);
    return nb_scan(nb_func_new(turn_or_not, closed), 2, init, 0, NULL, 4, true,
                   ny, y);
}

static nb_status loop_loss(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    nb_tensor *out[3];
    int n = 3;
    if (loop_body(ctx, nx, x, &n, out) != NB_OK) return nb_error_code();
    y[0] = nb_mean(nb_square(out[1]), -1, NULL, false);
    return *ny = 1, y[0] ? NB_OK : nb_error_code();
}

static void loops(int seed)
{
    nb_tensor *x[RECIPE_IN];
    uniform_seed((uint64_t)seed);
    recipe r = recipe_draw();
    looped l = {&r, seed % 3};
    recipe_inputs(0, x);
    nb_func *f = nb_func_new(loop_body, &l);
    nb_func *there = nb_compile(f, NULL);
    setenv("NABLA_DISABLE", "solo", 1);
    for (int run = 0; run < 3; run++)
        compare(seed, "in a loop", f, there, x);
    r.smooth = true;
    nb_func *g = nb_grad(nb_func_new(loop_loss, &l), 1, (int[]){0});
    there = nb_compile(g, NULL);
    for (int run = 0; run < 3; run++)
        compare(seed, "the gradient of a loop", g, there, x);
    unsetenv("NABLA_DISABLE");
}

int main(void)
{
    int n = setting("NABLA_CARD_PROGRAMS", 300);
    int first = setting("NABLA_CARD_SEED", 1000);
    if (!nb_card_count()) return printf("no card: %s\n", nb_card_trouble()), 77;
    for (int k = 0; k < n; k++) {
        if (!there_takes()) continue;
        nb_scope_open();
        program(first + k);
        nb_scope_close(0, NULL);
        if (k % 4) continue;
        nb_scope_open();
        loops(first + k);
        nb_scope_close(0, NULL);
    }
    return tally();
}
