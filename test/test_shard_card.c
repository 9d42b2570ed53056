/* test_shard_card.c - meshes whose devices are cards: steps on their blocks, and
 * programs over them.
 *
 * Runs on the card of the machine, or on the simulated one where there is none;
 * every test in a process of its own.  NABLA_CARD_EVERY=n takes every n-th of
 * the random steps. */
#include "base/memory.h"
#include "core/tensor.h"
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"
#include "support/steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[64];

static int make(void **state)
{
    (void)state;
    folder_make(folder);
    return 0;
}

static int unmake(void **state)
{
    (void)state;
    folder_remove(folder);
    return 0;
}

static void test(void (*body)(void), const char *more)
{
    char all[4096];
    snprintf(all, sizeof all, "NABLA_CACHE_DIR=%s %s %s", folder,
             cards_settings(), more);
    alone(body, all);
}

#define TEST_WITH(name, more)         \
    static void body_of_##name(void); \
    static void name(void **state)    \
    {                                 \
        (void)state;                  \
        test(body_of_##name, more);   \
    }                                 \
    static void body_of_##name(void)
#define TEST(name) TEST_WITH(name, "")

/* Devices in a line or a grid, on the first `cards` cards in turn. */
static const nb_mesh *mesh(int m, int n, int cards)
{
    int on[64];
    const nb_mesh *plain =
        nb_mesh_new("m", 2, (const char *[]){"x", "y"}, (int[]){m, n}, NULL);
    for (int i = 0; i < m * n; i++)
        on[i] = cards ? 1 + i % cards : 0;
    return nb_mesh_on(plain, on);
}

static nb_tensor *iota(int m, int n)
{
    nb_tensor *x = nb_arange_int(0, m * n, 1, NB_F32);
    return nb_reshape(x, 2, (int64_t[]){m, n});
}

static nb_tensor *on(const nb_mesh *m, const char *layout, nb_tensor *x)
{
    return nb_reshard(x, nb_spec_parse(m, layout));
}

static bool equal(nb_tensor *x, nb_tensor *y)
{
    int64_t n = nb_elements(x);
    double *a = malloc((size_t)(n + 1) * 8), *b = malloc((size_t)(n + 1) * 8);
    bool ok = n == nb_elements(y) && nb_read(x, NB_F64, a) == NB_OK &&
              nb_read(y, NB_F64, b) == NB_OK;
    for (int64_t i = 0; ok && i < n; i++)
        ok = a[i] - b[i] < 1e-4 && b[i] - a[i] < 1e-4;
    free(a);
    free(b);
    return ok;
}

/* Steps */

typedef struct batch {
    const nb_mesh *mesh;
    unsigned seed;
    int n;
    atomic_int wrong;
} batch;

static bool run_batch(void *ctx, int position)
{
    batch *b = ctx;
    unsigned seed = b->seed;
    for (int i = 0; i < b->n; i++) {
        step_case c = step_draw(b->mesh, &seed);
        if (step_holds(nb_device_now(), &c)) continue;
        if (nb_failed()) return false;
        printf("device %d: case %d (%s %s) is wrong\n", position, i,
               nb_hop_name(c.step.kind), nb_dtype_name(c.dtype));
        b->wrong++;
    }
    return true;
}

static void steps_hold(int cards)
{
    static const int sizes[][2] = {{2, 1}, {3, 1}, {2, 2}, {2, 4}, {3, 2}};
    const char *every = getenv("NABLA_CARD_EVERY");
    for (int k = 0; k < 5; k++) {
        batch b = {.mesh = mesh(sizes[k][0], sizes[k][1], cards),
                   .seed = (unsigned)k + 1};
        b.n = every ? 1 + 200 / atoi(every) : cards_simulated() ? 12 : 200;
        need(b.mesh);
        need(nb_devices_run(b.mesh, run_batch, &b));
        need(b.wrong == 0);
    }
}

TEST(steps_do_on_a_card_what_they_do_on_the_cpu)
{
    cards_first();
    steps_hold(1);
}

TEST_WITH(blocks_of_several_cards_go_through_the_cpu, "NABLA_SIM_CARDS=3")
{
    cards_first();
    if (nb_card_count() < 2) alone_skips("there is one card");
    steps_hold(nb_card_count() > 2 ? 3 : 2);
}

/* Where devices are */

TEST(devices_are_simulated_on_the_default_card)
{
    cards_first();
    const char *x[] = {"x"};
    const nb_mesh *cpu = nb_mesh_new("m", 1, x, (int[]){4}, NULL);
    need(nb_default_device_set(1) == NB_OK);
    const nb_mesh *m = nb_mesh_new("m", 1, x, (int[]){4}, NULL);
    need(m != cpu && m == nb_mesh_new("m", 1, x, (int[]){4}, NULL));
    need(nb_default_device_set(0) == NB_OK);
    need(cpu == nb_mesh_new("m", 1, x, (int[]){4}, NULL));
    if (nb_devices() > 4) return;
    for (int i = 0; i < 4; i++)
        need(nb_mesh_place(cpu, i) == 0 && nb_mesh_place(m, i) == 1);
    need(nb_mesh_place(m, 4) == -1 && nb_mesh_place(m, -1) == -1);
    int on[] = {1, 1, 1, 1};
    const nb_mesh *told = nb_mesh_on(cpu, on);
    need(told && told != m && nb_mesh_on(told, NULL) == cpu);
    on[3] = 77;
    need(!nb_mesh_on(cpu, on) && nb_error_code() == NB_ERUNTIME);
}

TEST_WITH(devices_are_cards_where_there_are_enough, "NABLA_SIM_CARDS=4")
{
    cards_first();
    if (nb_card_count() < 4) alone_skips("there are fewer than four cards");
    const nb_mesh *m =
        nb_mesh_new("m", 1, (const char *[]){"x"}, (int[]){4}, NULL);
    for (int i = 0; i < 4; i++)
        need(nb_mesh_place(m, i) == 1 + i);
    need(nb_scope_open() == NB_OK);
    nb_tensor *x = on(m, "[x, .]", iota(4, 6));
    nb_tensor *y = nb_matmul(nb_swap_axes(x, 0, 1), x);
    nb_tensor *plain = nb_matmul(nb_swap_axes(iota(4, 6), 0, 1), iota(4, 6));
    need(equal(y, plain));
    for (int i = 0; i < 4; i++)
        need(nb_device_of(nb_shard_at(x, i)) == 1 + i);
    need(nb_device_of(x) == 1);
    nb_scope_close(0, NULL);
}

/* Programs */

TEST(tensors_land_on_the_card_and_come_back)
{
    cards_first();
    const nb_mesh *m = mesh(2, 2, 1);
    need(nb_scope_open() == NB_OK);
    nb_tensor *plain = iota(6, 8);
    nb_tensor *x = on(m, "[x, y]", plain);
    need(nb_device_of(x) == 1 && nb_realize(x) == NB_OK);
    need(nb_device_of(nb_shard_at(x, 3)) == 1);
    need(equal(x, plain));
    nb_tensor *y = on(m, "[(y x), .]", x);
    need(equal(y, plain) && nb_device_of(y) == 1);
    nb_tensor *here = nb_to_device(y, 0);
    need(!nb_sharding(here) && nb_device_of(here) == 0 && equal(here, plain));
    nb_tensor *there = nb_to_device(nb_neg(y), 0);
    need(equal(there, nb_neg(plain)));
    nb_scope_close(0, NULL);
}

TEST(others_follow_to_the_mesh)
{
    cards_first();
    const nb_mesh *m = mesh(2, 2, 1);
    need(nb_scope_open() == NB_OK);
    nb_tensor *plain = iota(6, 8);
    nb_tensor *x = on(m, "[x, y]", plain);
    nb_tensor *y = nb_mul(nb_add(x, plain), nb_to_device(plain, 1));
    need(nb_device_of(y) == 1 && nb_sharding(y));
    need(equal(y, nb_mul(nb_add(plain, plain), plain)));
    nb_tensor *z =
        nb_add(on(mesh(2, 2, 0), "[x, .]", plain), nb_to_device(plain, 1));
    need(nb_device_of(z) == 0 && equal(z, nb_add(plain, plain)));
    need(!nb_add(x, on(mesh(2, 2, 0), "[x, y]", plain)));
    need(nb_error_code() == NB_EVALUE);
    nb_error_clear();
    need(!on(mesh(2, 2, 0), "[x, y]", x) && nb_error_code() == NB_EVALUE);
    need(strstr(nb_error_message(), "different devices"));
    nb_scope_close(0, NULL);
}

static nb_tensor *loss(int n, nb_tensor *const *x)
{
    (void)n;
    nb_tensor *y = nb_tanh(nb_matmul(x[0], x[1]));
    return nb_reduce_sum(nb_mul(y, y), -1, NULL, false);
}

static nb_status body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx;
    y[0] = loss(nx, x);
    *ny = 1;
    return y[0] ? NB_OK : nb_error_code();
}

TEST(gradients_and_compiled_programs_run_there)
{
    cards_first();
    const nb_mesh *m = mesh(2, 2, 1);
    need(nb_scope_open() == NB_OK);
    nb_tensor *small = nb_num(0.01);
    nb_tensor *plain[] = {nb_mul(iota(4, 6), small), nb_mul(iota(6, 8), small)};
    nb_tensor *x[] = {on(m, "[x, .]", plain[0]), on(m, "[., y]", plain[1])};
    nb_func *g = nb_grad(nb_func_new(body, NULL), 1, (int[]){1});
    nb_tensor *want = nb_func_call1(g, 2, plain);
    for (int turn = 0; turn < 3; turn++) {
        nb_tensor *y = nb_func_call1(g, 2, x);
        need(y && nb_device_of(y) == 1 && equal(y, want));
    }
    nb_executable *e;
    need(nb_executable_new(g, 2, x, &e) == NB_OK);
    for (int turn = 0; turn < 2; turn++) {
        nb_tensor *y;
        int n = 1;
        need(nb_executable_run(e, 2, x, &n, &y) == NB_OK && equal(y, want));
        need(nb_device_of(y) == 1 && nb_sharding(y));
    }
    nb_executable_drop(e);
    nb_scope_close(0, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_simulated_on_the_default_card),
        cmocka_unit_test(tensors_land_on_the_card_and_come_back),
        cmocka_unit_test(others_follow_to_the_mesh),
        cmocka_unit_test(gradients_and_compiled_programs_run_there),
        cmocka_unit_test(devices_are_cards_where_there_are_enough),
        cmocka_unit_test(steps_do_on_a_card_what_they_do_on_the_cpu),
        cmocka_unit_test(blocks_of_several_cards_go_through_the_cpu),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
