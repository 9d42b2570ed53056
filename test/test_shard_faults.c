/* test_shard_faults.c - the n-th allocation fails, or the n-th message of a
 * device, for every n, in programs over a mesh: an error, no leak, no wait
 * without end, and all still works. */
#include "support/check.h"
#include "support/laid.h"

#include "base/memory.h"
#include "comm/comm.h"
#include "nabla/nabla.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const nb_mesh *mesh(void)
{
    return mesh_there(nb_mesh_parse("@m = <[\"x\"=2, \"y\"=2]>"));
}

static nb_tensor *on(const char *layout, nb_tensor *x)
{
    const nb_mesh *m = mesh();
    return m ? nb_reshard(x, nb_spec_parse(m, layout)) : NULL;
}

static nb_tensor *matrix(int64_t m, int64_t n)
{
    static const float numbers[64] = {1, 5, 2, 7, 4, 3, 8, 6};
    return nb_constant(NB_F32, 2, (int64_t[]){m, n}, numbers);
}

static bool readable(nb_tensor *x)
{
    double v[64];
    return x && nb_read(x, NB_F64, v) == NB_OK;
}

static bool product(void)
{
    nb_tensor *x = on("[x, y]", matrix(5, 6)), *w = on("[y, .]", matrix(6, 3));
    return readable(nb_relu(nb_matmul(x, w)));
}

static bool moved(void)
{
    nb_tensor *x = on("[(x y), .]", matrix(5, 6));
    return readable(on("[., (y x)]", x)) && readable(on("[y, .]P{x}", x));
}

static bool reached_for(void)
{
    nb_tensor *x = on("[x, y]", matrix(5, 6));
    nb_tensor *y = nb_roll(x, 1, (int64_t[]){2}, (int64_t[]){0});
    y = nb_concatenate(2, (nb_tensor *[]){y, x}, 1);
    return readable(nb_cumsum(y, 1, false, false)) &&
           readable(nb_sort(x, 0, false, true));
}

FN(energy,
   nb_reduce_sum(nb_square(nb_tanh(nb_matmul(x[0], x[1]))), -1, NULL, false))

static bool gradient(void)
{
    nb_tensor *x[] = {on("[x, .]", matrix(5, 6)), on("[., y]", matrix(6, 3))};
    nb_tensor *g[2];
    int n = 2;
    if (!x[0] || !x[1]) return false;
    nb_func *f = nb_grad(nb_func_new(energy, NULL), 2, (int[]){0, 1});
    return f && nb_func_call(f, 2, x, &n, g) == NB_OK && readable(g[0]) &&
           readable(g[1]);
}

static bool compiled(void)
{
    nb_tensor *x[] = {on("[x, .]", matrix(5, 6)), on("[., y]", matrix(6, 3))};
    nb_tensor *y;
    nb_executable *e = NULL;
    int n = 1;
    nb_func *f = x[0] && x[1] ? nb_func_new(energy, NULL) : NULL;
    bool ok = f && nb_executable_lower(f, 2, x, 0, NULL, &e) == NB_OK &&
              nb_executable_run(e, 2, x, &n, &y) == NB_OK && readable(y);
    nb_executable_drop(e);
    return ok;
}

static const struct {
    const char *name;
    bool (*run)(void);
} programs[] = {
    {"a product", product},
    {"layouts", moved},
    {"parts of others", reached_for},
    {"a gradient", gradient},
    {"a compiled function", compiled},
};

static bool attempt(bool (*run)(void))
{
    if (nb_scope_open() != NB_OK) return false;
    bool ok = run();
    nb_scope_close(0, NULL);
    return ok;
}

/* Programs are made anew each time. */
static int64_t live(void)
{
    nb_caches_clear();
    return nb_memory_live();
}

static void may_fail(const char *name, bool (*run)(void))
{
    bool done = false;
    expect(attempt(run), "%s runs", name); /* fills tables kept for good */
    int64_t before = live();
    for (int64_t n = 1; !done && n < 20000; n++) {
        alarm(60);
        nb_fault_set(n);
        done = attempt(run) && nb_fault_is_set();
        nb_fault_set(0);
        nb_status code = nb_error_code();
        if (code != NB_OK && code != NB_EMEMORY)
            printf("  error %d, %s\n", code, nb_error_message());
        nb_error_clear();
        int64_t more = live() - before;
        if (!expect(code == NB_OK || code == NB_EMEMORY,
                    "%s, allocation %lld is missing", name, (long long)n) ||
            !expect(!more, "%s, allocation %lld: %lld leak", name, (long long)n,
                    (long long)more))
            break;
    }
    expect(attempt(run), "%s runs again", name);
}

static void messages_may_fail(const char *name, bool (*run)(void), int position)
{
    int64_t before = live();
    bool failed = true;
    for (int64_t n = 1; failed && n < 1000; n++) {
        alarm(60);
        nb_comm_fault_set(position, n);
        failed = !attempt(run);
        nb_comm_fault_set(0, 0);
        bool said = !failed || nb_error_code() == NB_ERUNTIME;
        if (!said) printf("  %d, %s\n", nb_error_code(), nb_error_message());
        nb_error_clear();
        expect(said, "%s, message %lld of device %d", name, (long long)n,
               position);
        if (!expect(live() == before, "%s, message %lld of device %d: a leak",
                    name, (long long)n, position))
            return;
    }
    expect(attempt(run), "%s runs again", name);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++)
        if (argc < 2 || atoi(argv[1]) == (int)i)
            may_fail(programs[i].name, programs[i].run);
    for (size_t i = 0; argc < 2 && i < sizeof programs / sizeof programs[0];
         i++)
        for (int p = 0; p < 4; p++)
            messages_may_fail(programs[i].name, programs[i].run, p);
    return tally();
}
