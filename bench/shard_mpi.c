/* shard_mpi.c - what processes gain and cost, for bench/shard.py to compare.
 *
 * Run as one process or, under mpirun, as several.  Rank 0 prints seconds, each
 * the least of several:
 *     step S        a data-parallel step of training, work shared out
 *     all_reduce S  64 MiB, among all ranks
 *     memcpy S      64 MiB, in all ranks at once */
#include "mlp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, WIDTH = 4096, BATCH = 1024, X = LAYERS, ARGUMENTS };
enum { ROUNDS = 3, MANY = 30, NUMBERS = 16 << 20 };
enum { BYTES = NUMBERS * sizeof(float) };

/* What is pending is added up. */
static nb_status add_up(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)nx;
    y[0] = nb_reshard(x[0], ctx);
    *ny = 1;
    return NB_OK;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* Seconds of a run that all ranks begin together; 0: failed. */
static double once(nb_executable *e, int nx, nb_tensor *const *x)
{
    nb_tensor *y[LAYERS];
    int ny = LAYERS;
    nb_distributed_barrier();
    nb_scope_open();
    double start = now();
    nb_status status = nb_executable_run(e, nx, x, &ny, y);
    double seconds = now() - start;
    nb_scope_close(0, NULL);
    return status == NB_OK ? seconds : 0;
}

static double copied(char *to, const char *from)
{
    nb_distributed_barrier();
    double start = now();
    memcpy(to, from, BYTES);
    double seconds = now() - start;
    return memcmp(to, from, BYTES) == 0 ? seconds : 0;
}

static nb_tensor *laid(int64_t m, int64_t n, const nb_mesh *mesh,
                       const char *spec)
{
    nb_tensor *x = nb_ones(2, (int64_t[]){m, n}, NB_F32);
    if (nb_mesh_devices(mesh) > 1) x = nb_reshard(x, nb_spec_parse(mesh, spec));
    return nb_realize(x) == NB_OK ? x : NULL;
}

static void say(const char *what, double seconds)
{
    if (nb_distributed_rank() == 0) printf("%s %.6f\n", what, seconds);
}

static void train(nb_tensor *const *x)
{
    nb_executable *e = NULL;
    double best = 1e9;
    nb_executable_new(nb_func_new(mlp_step, NULL), ARGUMENTS, x, &e);
    for (int r = 0; r < ROUNDS; r++)
        best = least(best, once(e, ARGUMENTS, x));
    say("step", best);
    nb_executable_drop(e);
}

/* In turn, so that both are measured on the same machine, whoever else uses it.
 * The first of each touches memory for the first time. */
static void reduce_and_copy(const nb_mesh *m)
{
    nb_executable *e = NULL;
    nb_tensor *x = laid(1, NUMBERS, m, "[., .] P{dp}");
    nb_func *f = nb_func_new(add_up, (void *)nb_spec_parse(m, "[., .]"));
    char *from = malloc(BYTES), *to = malloc(BYTES);
    double reduce = 1e9, copy = 1e9;
    if (from && to) memset(from, 1, BYTES);
    nb_executable_new(f, 1, &x, &e);
    for (int r = 0; r <= MANY && from && to; r++) {
        double a = once(e, 1, &x), b = copied(to, from);
        if (r > 0) reduce = least(reduce, a), copy = least(copy, b);
    }
    say("all_reduce", reduce);
    say("memcpy", copy);
    nb_executable_drop(e);
    free(from);
    free(to);
}

int main(void)
{
    int ranks = nb_distributed_size();
    const nb_mesh *m =
        nb_mesh_new("all", 1, (const char *[]){"dp"}, &ranks, NULL);
    nb_scope_open();
    nb_tensor *x[ARGUMENTS];
    for (int k = 0; k < ARGUMENTS; k++)
        x[k] = k == X ? laid(BATCH, WIDTH, m, "[dp, .]")
                      : laid(WIDTH, WIDTH, m, "[., .]");
    train(x);
    if (ranks > 1) reduce_and_copy(m);
    nb_status status = nb_error_code();
    if (status != NB_OK) fprintf(stderr, "%s\n", nb_error_message());
    nb_scope_close(0, NULL);
    return status != NB_OK;
}
