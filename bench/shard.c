/* shard.c - what layouts cost from C: bench-shard runs it.
 *
 * One op call on a mesh beyond the same without one; how near to the bound the
 * plans of reshards are; and a compiled step of training over eight devices of
 * one process, against one device that does the same work.  Times are the least
 * of many, because machines are noisy, and what is compared takes turns. */
#include "mlp.h"

#include <stdio.h>

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* A row that cannot be had, and why; the error goes. */
static void not_yet(const char *name)
{
    printf("%-41s not yet: %s\n", name, nb_error_message());
    nb_error_clear();
}

static nb_tensor *normal(int64_t m, int64_t n)
{
    nb_tensor *x = nb_random_normal(nb_random_key(m), 2, (int64_t[]){m, n}, 0,
                                    0.03, NB_F32);
    return nb_realize(x) == NB_OK ? x : NULL;
}

static nb_tensor *laid(nb_tensor *x, const nb_mesh *m, const char *spec)
{
    nb_tensor *y = nb_reshard(x, nb_spec_parse(m, spec));
    return nb_realize(y) == NB_OK ? y : NULL;
}

/* Recording. */

typedef nb_tensor *binary(nb_tensor *x, nb_tensor *y);

/* Seconds a call. */
static double record(binary *op, nb_tensor *const *x)
{
    enum { OPS = 1000 };
    double start = now();
    for (int i = 0; i < OPS; i++) {
        nb_scope_open();
        op(x[0], x[1]);
        nb_scope_close(0, NULL);
    }
    return (now() - start) / OPS;
}

static void call(const char *name, binary *op, nb_tensor *const *plain,
                 nb_tensor *const *on_mesh)
{
    enum { ROUNDS = 60 };
    double without = 1, with = 1;
    if (!nb_sharding(op(on_mesh[0], on_mesh[1]))) {
        not_yet(name);
        return;
    }
    for (int r = 0; r < ROUNDS; r++) {
        without = least(without, record(op, plain));
        with = least(with, record(op, on_mesh));
    }
    printf("%-41s %7.3f us  (at most 1.5)\n", name, 1e6 * (with - without));
}

static void calls(void)
{
    const nb_mesh *m =
        nb_mesh_new("m", 2, (const char *[]){"dp", "tp"}, (int[]){2, 2}, NULL);
    nb_tensor *x[] = {normal(32, 32), normal(32, 32)};
    nb_tensor *same[] = {laid(x[0], m, "[dp, tp]"), laid(x[1], m, "[dp, tp]")};
    nb_tensor *grid[] = {laid(x[0], m, "[dp, .]"), laid(x[1], m, "[., tp]")};
    call("C record x + y on (2, 2), beyond plain", nb_add, x, same);
    call("C record x @ y on (2, 2), beyond plain", nb_matmul, x, grid);
}

/* Reshards. */

static unsigned draw(unsigned *seed, unsigned n)
{
    *seed = *seed * 1103515245 + 12345;
    return (*seed >> 16) % n;
}

/* A spec in which every axis splits one of the dims, is pending or unused. */
static const nb_spec *draw_spec(const nb_mesh *m, int rank, bool pending,
                                unsigned *seed)
{
    const char *axis[4][3], *partial[3];
    nb_dim_parts dim[4] = {{0}};
    nb_spec_parts s = {.rank = rank, .dim = dim, .partial = partial};
    for (int k = 0; k < nb_mesh_axes(m); k++) {
        int at = (int)draw(seed, (unsigned)rank + 1 + pending);
        if (at < rank) axis[at][dim[at].naxes++] = nb_mesh_axis_name(m, k);
        if (at > rank) partial[s.npartial++] = nb_mesh_axis_name(m, k);
    }
    for (int d = 0; d < rank; d++)
        dim[d].axis = axis[d];
    return nb_spec_new(m, &s);
}

/* Bytes by the bound, 1 if nothing has to move and nothing does; -1: failed. */
static double excess(const nb_mesh *m, bool pending, int may, unsigned *seed)
{
    static const int64_t size[] = {64, 48, 32, 16};
    int rank = 2 + (int)draw(seed, 3);
    const nb_spec *from = draw_spec(m, rank, pending, seed);
    const nb_spec *into = draw_spec(m, rank, false, seed);
    const nb_reshard_plan *p =
        nb_reshard_plan_of(from, into, rank, size, NB_F32, may);
    if (!p) return -1;
    double bytes = (double)nb_reshard_plan_bytes(p);
    double bound = (double)nb_reshard_plan_bound(p);
    return bytes == bound ? 1 : bytes / bound;
}

static void pairs(const char *name, double limit, int nmeshes,
                  const nb_mesh *const *mesh, bool pending, int may)
{
    enum { PAIRS = 60 };
    unsigned seed = 1;
    double most = 1, sum = 0;
    for (int i = 0; i < PAIRS; i++) {
        double ratio = excess(mesh[i % nmeshes], pending, may, &seed);
        if (ratio < 0) {
            not_yet(name);
            return;
        }
        most = ratio > most ? ratio : most;
        sum += ratio;
    }
    printf("%-41s %7.3f     (at most %.2f)\n", name, most, limit);
    printf("%-41s %7.3f\n", "  mean", sum / PAIRS);
}

static void reshards(void)
{
    static const char *const name[] = {"x", "y", "z"};
    static const int one[][1] = {{2}, {4}, {8}}, two[][2] = {{2, 4}, {4, 2}};
    static const int three[] = {2, 2, 2};
    const nb_mesh *m[] = {nb_mesh_new("a", 1, name, one[0], NULL),
                          nb_mesh_new("b", 1, name, one[1], NULL),
                          nb_mesh_new("c", 1, name, one[2], NULL),
                          nb_mesh_new("d", 2, name, two[0], NULL),
                          nb_mesh_new("e", 2, name, two[1], NULL),
                          nb_mesh_new("f", 3, name, three, NULL)};
    const int direct = NB_RESHARD_EXCHANGE;
    pairs("60 reshards, one axis: most bytes / bound", 1, 3, m, true, 0);
    pairs("60 reshards, any mesh: the same", 1.25, 6, m, true, 0);
    pairs("  if blocks go directly where it helps", 1.25, 6, m, true, direct);
    pairs("  and nothing is pending", 1.25, 6, m, false, direct);
}

/* A step of training. */

enum { LAYERS = 3, WIDTH = 1024, BATCH = 512, X = LAYERS, ARGUMENTS };

static double run(nb_executable *e, nb_tensor *const *x)
{
    nb_tensor *y[LAYERS];
    int ny = LAYERS;
    double start = now();
    nb_scope_open();
    nb_status status = nb_executable_run(e, ARGUMENTS, x, &ny, y);
    nb_scope_close(0, NULL);
    return status == NB_OK ? now() - start : -1;
}

/* spec: of the weights, which take turns, and of x. */
static void simulated(const char *name, const nb_mesh *m,
                      const char *const *spec)
{
    enum { ROUNDS = 15 };
    nb_tensor *x[ARGUMENTS], *on_mesh[ARGUMENTS];
    nb_executable *one = NULL, *many = NULL;
    nb_func *f = nb_func_new(mlp_step, NULL);
    for (int k = 0; k < ARGUMENTS; k++) {
        x[k] = normal(k == X ? BATCH : WIDTH, WIDTH);
        on_mesh[k] = laid(x[k], m, spec[k]);
    }
    double alone = 1e9, together = 1e9;
    if (nb_executable_new(f, ARGUMENTS, x, &one) == NB_OK &&
        nb_executable_new(f, ARGUMENTS, on_mesh, &many) == NB_OK)
        for (int r = 0; r < ROUNDS; r++) {
            alone = least(alone, run(one, x));
            together = least(together, run(many, on_mesh));
        }
    nb_executable_drop(one);
    nb_executable_drop(many);
    if (nb_error_code() != NB_OK)
        not_yet(name);
    else
        printf("%-41s %7.3f     (at most 1.2)\n", name, together / alone);
}

static void steps(void)
{
    static const char *const axis[] = {"dp", "tp"};
    static const char *const batch[] = {"[., .]", "[., .]", "[., .]",
                                        "[dp, .]"};
    static const char *const grid[] = {"[., tp]", "[tp, .]", "[., tp]",
                                       "[dp, .]"};
    simulated("MLP step, 8 devices here / 1: dp",
              nb_mesh_new("g", 1, axis, (int[]){8}, NULL), batch);
    simulated("MLP step, 8 devices here / 1: (2, 4)",
              nb_mesh_new("h", 2, axis, (int[]){2, 4}, NULL), grid);
}

int main(void)
{
    nb_scope_open();
    calls();
    reshards();
    steps();
    nb_scope_close(0, NULL);
}
