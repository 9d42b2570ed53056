/* test_cuda_batch.c - steps of a card that are alike and need not wait for each
 * other: that they share launches, and give what each gives by itself.
 *
 * Runs on the card of the machine, or on the simulated one, which counts
 * kernels; every test in a process of its own. */
#include "backend/cuda/graph.h"
#include "base/memory.h"
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 64, LONGEST = 5000 };

/* Parameters and what goes with them: w, then m. */
typedef struct model {
    int n, size[MOST];
} model;

static nb_tensor *numbers(int device, int size, int i)
{
    float v[LONGEST];
    for (int k = 0; k < size; k++)
        v[k] = cosf((float)(k * (i + 2) % 97));
    nb_tensor *x = nb_constant(NB_F32, 1, (int64_t[]){size}, v);
    x = nb_to_device(x, device);
    need(x && nb_realize(x) == NB_OK);
    return x;
}

/* Steps of all, scaled by what the first is. */
static nb_status update(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    const model *o = ctx;
    (void)nx;
    nb_tensor *all = nb_mean(nb_sin(x[0]), -1, NULL, false);
    nb_tensor *scale = nb_div(nb_num(0.1), nb_add(nb_num(1), nb_square(all)));
    for (int i = 0; i < o->n; i++) {
        nb_tensor *w = x[i], *m = x[o->n + i];
        m = nb_add(nb_mul(nb_num(0.9), m), nb_mul(nb_cos(w), scale));
        y[i] = nb_sub(w, nb_mul(m, nb_num(0.25)));
        y[o->n + i] = m;
    }
    return *ny = 2 * o->n, NB_OK;
}

static void inputs(const model *o, int device, int turn, nb_tensor **x)
{
    for (int i = 0; i < 2 * o->n; i++)
        x[i] = numbers(device, o->size[i % o->n], i + turn);
}

static bool agree(nb_tensor *x, nb_tensor *want)
{
    float a[LONGEST], b[LONGEST];
    int64_t n = nb_elements(x);
    need(n == nb_elements(want) && n <= LONGEST);
    need(nb_read(x, NB_F32, a) == NB_OK && nb_read(want, NB_F32, b) == NB_OK);
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(a[i] - b[i]) <= 2e-5f * (1 + fabsf(b[i])))) return false;
    return true;
}

static nb_executable *compiled(nb_body *body, model *o)
{
    nb_tensor *x[2 * MOST];
    nb_executable *e = NULL;
    inputs(o, 1, 0, x);
    need(nb_executable_new(nb_func_new(body, o), 2 * o->n, x, &e) == NB_OK);
    return e;
}

/* Runs it on new memory, compares, and says how many kernels that took. */
static int64_t right(nb_body *body, nb_executable *e, model *o, int turn)
{
    nb_tensor *x[2 * MOST], *y[2 * MOST], *z[2 * MOST];
    int ny = 2 * o->n;
    need(nb_scope_open() == NB_OK);
    inputs(o, 1, turn, x);
    int64_t before = cards_count("kernels");
    need(nb_executable_run(e, 2 * o->n, x, &ny, y) == NB_OK);
    need(nb_device_wait(1) == NB_OK);
    int64_t took = cards_count("kernels") - before;
    inputs(o, 0, turn, x);
    need(body(o, 2 * o->n, x, &ny, z) == NB_OK);
    for (int i = 0; i < ny; i++)
        need(agree(y[i], z[i]));
    nb_scope_close(0, NULL);
    return took;
}

static model of_sizes(int n, const int *size)
{
    model o = {.n = n};
    memcpy(o.size, size, (size_t)n * sizeof *size);
    return o;
}

static void begin(void)
{
    cards_first();
    need(nb_scope_open() == NB_OK);
}

CARD_TEST(updates_of_parameters_of_any_size_are_one_launch, "")
{
    begin();
    model o = of_sizes(6, (int[]){64, 4096, 128, 64, 2048, 256});
    nb_executable *e = compiled(update, &o);
    int64_t took = right(update, e, &o, 1);
    need(!cards_simulated() || (took > 0 && took <= 3));
    nb_executable_drop(e);
}

CARD_TEST(without_the_pass_each_is_a_launch, "NABLA_DISABLE=batch")
{
    begin();
    model o = of_sizes(6, (int[]){64, 4096, 128, 64, 2048, 256});
    nb_executable *e = compiled(update, &o);
    int64_t took = right(update, e, &o, 1);
    need(!cards_simulated() || took >= 6);
    nb_executable_drop(e);
}

CARD_TEST(sizes_of_other_forms_are_launches_of_their_own, "")
{
    begin();
    model o = of_sizes(8, (int[]){64, 63, 1, 2, 100, 4999, 5, 64});
    nb_executable *e = compiled(update, &o);
    right(update, e, &o, 3);
    nb_executable_drop(e);
}

CARD_TEST(more_than_arguments_hold_are_several_launches, "")
{
    begin();
    model o = {.n = MOST};
    for (int i = 0; i < o.n; i++)
        o.size[i] = 4 * (i % 7 + 1);
    nb_executable *e = compiled(update, &o);
    int64_t took = right(update, e, &o, 2);
    need(!cards_simulated() || took <= 5);
    nb_executable_drop(e);
}

CARD_TEST(graphs_of_them_are_given_new_memory, "")
{
    begin();
    model o = of_sizes(4, (int[]){32, 64, 32, 96});
    nb_executable *e = compiled(update, &o);
    for (int i = 0; i < 12; i++)
        right(update, e, &o, i);
    nb_card_graph_stats s = nb_card_graph_stats_get();
    need(s.launched > 0);
    nb_executable_drop(e);
}

/* The same chain of steps on each, every one over all that was before: no two
 * of a chain may meet, those of different chains may. */
static nb_status chains(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    const model *o = ctx;
    for (int i = 0; i < nx; i++) {
        y[i] = x[i];
        for (int k = 0; k < 3; k++) {
            nb_tensor *all = nb_mean(nb_sin(y[i]), -1, NULL, false);
            y[i] = nb_add(nb_mul(y[i], nb_num(0.5)), nb_cos(all));
        }
    }
    return *ny = 2 * o->n, NB_OK;
}

CARD_TEST(steps_that_need_each_other_do_not_meet, "")
{
    begin();
    model o = of_sizes(3, (int[]){4096, 4992, 4096});
    nb_executable *e = compiled(chains, &o);
    for (int i = 0; i < 3; i++)
        right(chains, e, &o, i);
    nb_executable_drop(e);
}

CARD_TEST(donated_parameters_are_written_where_they_lie, "")
{
    enum { N = 3 };
    begin();
    model o = of_sizes(N, (int[]){4096, 128, 64});
    nb_executable *e = compiled(update, &o);
    nb_tensor *x[2 * N], *y[2 * N], *z[2 * N], *to[2 * N];
    int all[2 * N], ny = 2 * N;
    for (int i = 0; i < 2 * N; i++)
        all[i] = i;
    need(nb_executable_donate(e, 2 * N, all) == NB_OK);
    inputs(&o, 1, 4, x), inputs(&o, 0, 4, to);
    void *at[2 * N];
    for (int i = 0; i < 2 * N; i++)
        at[i] = nb_device_data(x[i], NULL);
    need(nb_executable_run(e, 2 * N, x, &ny, y) == NB_OK);
    need(update(&o, 2 * N, to, &ny, z) == NB_OK);
    for (int i = 0; i < 2 * N; i++) {
        bool found = false;
        for (int j = 0; j < 2 * N; j++)
            found = found || nb_device_data(y[i], NULL) == at[j];
        need(agree(y[i], z[i]) && found);
    }
    nb_executable_drop(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_of_parameters_of_any_size_are_one_launch),
        cmocka_unit_test(without_the_pass_each_is_a_launch),
        cmocka_unit_test(sizes_of_other_forms_are_launches_of_their_own),
        cmocka_unit_test(more_than_arguments_hold_are_several_launches),
        cmocka_unit_test(graphs_of_them_are_given_new_memory),
        cmocka_unit_test(steps_that_need_each_other_do_not_meet),
        cmocka_unit_test(donated_parameters_are_written_where_they_lie),
    };
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
