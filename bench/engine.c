/* engine.c - what recording and realising cost from C: bench-engine runs it.
 *
 * Best of several rounds, because machines are noisy; times are per op. */
#include <nabla/nabla.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { OPS = 2000, ROUNDS = 30 };

/* Seconds a call of nb_add(x, y), realised too if asked. */
static double one_op(nb_tensor *x, nb_tensor *y, bool realize)
{
    double best = 1;
    for (int r = 0; r < ROUNDS; r++) {
        double start = now();
        for (int i = 0; i < OPS; i++) {
            nb_scope_open();
            nb_tensor *z = nb_add(x, y);
            if (realize) nb_realize(z);
            nb_scope_close(0, NULL);
        }
        double each = (now() - start) / OPS;
        best = each < best ? each : best;
    }
    return best;
}

static double bytes_a_node(nb_tensor *x, nb_tensor *y)
{
    enum { NODES = 4096 };
    nb_scope_open();
    size_t before = nb_stats_get().bytes_allocated;
    for (int i = 0; i < NODES; i++)
        nb_add(x, y);
    size_t after = nb_stats_get().bytes_allocated;
    nb_scope_close(0, NULL);
    return (double)(after - before) / NODES;
}

int main(void)
{
    float data[32 * 32] = {0};
    nb_scope_open();
    nb_tensor *x = nb_constant(NB_F32, 2, (int64_t[]){32, 32}, data);
    nb_tensor *y = nb_constant(NB_F32, 2, (int64_t[]){32, 32}, data);
    printf("C record x + y (32x32 f32)        %6.3f us  (at most 0.25)\n",
           1e6 * one_op(x, y, false));
    printf("C record and realise x + y        %6.3f us  (at most 2)\n",
           1e6 * one_op(x, y, true));
    printf("C bytes a live lazy node          %6.0f     (at most 400)\n",
           bytes_a_node(x, y));
    nb_scope_close(0, NULL);
}
