/* cpu.c - what calling a compiled function costs from C: bench-cpu runs it. */
#include <nabla/nabla.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 200, CALLS = 2000 };

static double now(void)
{
    struct timespec t;
    timespec_get(&t, TIME_UTC);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static nb_status sum(void *ctx, int nx, nb_tensor *const *x, int *ny,
                     nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_add(x[0], x[1]);
    *ny = 1;
    return NB_OK;
}

int main(int argc, char **argv)
{
    static const char name[] = "call, 2 arguments, from C";
    if (argc > 1 && !strstr(name, argv[1])) return 0;
    nb_tensor *x[2], *y;
    nb_scope_open();
    for (int i = 0; i < 2; i++)
        nb_realize(x[i] = nb_ones(1, (int64_t[]){8}, NB_F32));
    nb_func *plain = nb_func_new(sum, NULL), *f = nb_compile(plain, NULL);
    double best = 1e300;
    for (int round = 0; round < ROUNDS; round++) {
        double from = now();
        for (int k = 0; k < CALLS; k++) {
            int ny = 1;
            nb_scope_open();
            if (nb_func_call(f, 2, x, &ny, &y) != NB_OK) {
                fprintf(stderr, "%s\n", nb_error_message());
                return 1;
            }
            nb_scope_close(0, NULL);
        }
        double each = (now() - from) / CALLS;
        if (each < best) best = each;
    }
    printf("%-34s%9.2f us  (at most 0.2 us)%s\n", name, best * 1e6,
           best > 0.2e-6 ? "  MISSED" : "");
    nb_func_drop(f);
    nb_func_drop(plain);
    nb_scope_close(0, NULL);
    return 0;
}
