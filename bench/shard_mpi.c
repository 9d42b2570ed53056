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
enum { ROUNDS = 3, MANY = 10, NUMBERS = 16 << 20 };

/* What is pending is added up. */
static nb_status add_up(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)nx;
    y[0] = nb_reshard(x[0], ctx);
    *ny = 1;
    return NB_OK;
}

/* Seconds of a run, the least of n; 0: failed. */
static double best(nb_func *f, int nx, nb_tensor *const *x, int n)
{
    nb_executable *e = NULL;
    double least = 1e9;
    nb_status status = nb_executable_new(f, nx, x, &e);
    for (int r = 0; status == NB_OK && r < n; r++) {
        nb_tensor *y[LAYERS];
        int ny = LAYERS;
        nb_distributed_barrier();
        nb_scope_open();
        double start = now();
        status = nb_executable_run(e, nx, x, &ny, y);
        double each = now() - start;
        nb_scope_close(0, NULL);
        least = each < least ? each : least;
    }
    nb_executable_drop(e);
    return status == NB_OK ? least : 0;
}

static double copied(void)
{
    size_t bytes = sizeof(float) * NUMBERS;
    char *from = malloc(bytes), *to = malloc(bytes);
    double least = 0;
    for (int r = 0; from && to && r <= MANY; r++) {
        memset(from, r, bytes);
        nb_distributed_barrier();
        double start = now();
        memcpy(to, from, bytes);
        double each = now() - start;
        if (r == 1 || (r > 1 && each < least)) least = each;
        if (to[bytes - 1] != (char)r) least = 0;
    }
    free(from);
    free(to);
    return least;
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
    say("step", best(nb_func_new(mlp_step, NULL), ARGUMENTS, x, ROUNDS));
    if (ranks > 1) {
        nb_tensor *sum = laid(1, NUMBERS, m, "[., .] P{dp}");
        nb_func *f = nb_func_new(add_up, (void *)nb_spec_parse(m, "[., .]"));
        say("all_reduce", best(f, 1, &sum, MANY));
        say("memcpy", copied());
    }
    nb_status status = nb_error_code();
    if (status != NB_OK) fprintf(stderr, "%s\n", nb_error_message());
    nb_scope_close(0, NULL);
    return status != NB_OK;
}
