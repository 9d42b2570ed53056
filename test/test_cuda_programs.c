/* test_cuda_programs.c - random programs give on a card what they give on the
 * CPU: as they are, compiled, and their gradients.
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
    }
    return tally();
}
