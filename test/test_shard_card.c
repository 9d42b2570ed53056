/* test_shard_card.c - meshes whose devices are cards: steps on their blocks, and
 * programs over them.
 *
 * Runs on the card of the machine, or on the simulated one where there is none;
 * every test in a process of its own.  NABLA_TEST_EVERY=n takes every n-th of
 * the random steps. */
#include "backend/cuda/memory.h"
#include "backend/cuda/nccl.h"
#include "core/tensor.h"
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"
#include "support/ranks.h"
#include "support/steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
    const char *every = getenv("NABLA_TEST_EVERY");
    for (int k = 0; k < 5; k++) {
        batch b = {.mesh = mesh(sizes[k][0], sizes[k][1], cards),
                   .seed = (unsigned)k + 1};
        b.n = every ? 1 + 200 / atoi(every) : cards_simulated() ? 12 : 200;
        need(b.mesh);
        need(nb_devices_run(b.mesh, run_batch, &b));
        need(b.wrong == 0);
    }
}

CARD_TEST(steps_do_on_a_card_what_they_do_on_the_cpu, "")
{
    cards_first();
    steps_hold(1);
}

CARD_TEST(blocks_of_several_cards_go_through_the_cpu,
          "NABLA_SIM_CARDS=3 NABLA_NCCL=none")
{
    cards_first();
    if (nb_card_count() < 2) alone_skips("there is one card");
    steps_hold(nb_card_count() > 2 ? 3 : 2);
}

/* NCCL: the simulated one is beside the simulated driver. */

static void nccl_open(int cards)
{
    cards_first();
    if (cards_simulated()) setenv("NABLA_NCCL", getenv("NABLA_CUDA_DRIVER"), 1);
    if (nb_card_count() < cards) alone_skips("there are too few cards");
    if (!nb_distributed_nccl()) alone_skips(nb_error_message());
}

static bool is_by_nccl(void *ctx, int position)
{
    (void)position;
    return !strcmp(nb_device_now()->link->name, ctx);
}

CARD_TEST(cards_of_one_process_talk_through_nccl, "NABLA_SIM_CARDS=8")
{
    static const int sizes[][2] = {{2, 1}, {3, 1}, {2, 2}, {2, 4}, {4, 2}};
    nccl_open(2);
    for (int k = 0; k < 5; k++) {
        int n = sizes[k][0] * sizes[k][1];
        if (n > nb_card_count()) continue;
        batch b = {.mesh = mesh(sizes[k][0], sizes[k][1], n)};
        b.n = cards_simulated() ? 25 : 200;
        b.seed = (unsigned)k + 7;
        need(nb_devices_run(b.mesh, is_by_nccl, "nccl"));
        need(nb_devices_run(b.mesh, run_batch, &b));
        need(b.wrong == 0);
    }
    /* Two devices that are one card do without. */
    need(nb_devices_run(mesh(2, 2, 3), is_by_nccl, "local"));
    need(nb_devices_run(mesh(2, 2, 1), is_by_nccl, "card"));
    need(nb_devices_run(mesh(2, 2, 0), is_by_nccl, "local"));
}

CARD_TEST(programs_over_cards_talk_through_nccl, "NABLA_SIM_CARDS=4")
{
    nccl_open(4);
    need(nb_scope_open() == NB_OK);
    const nb_mesh *m = mesh(2, 2, 4);
    nb_tensor *x = on(m, "[x, y]", iota(6, 8));
    nb_tensor *y = nb_matmul(x, nb_swap_axes(x, 0, 1));
    need(equal(y, nb_matmul(iota(6, 8), nb_swap_axes(iota(6, 8), 0, 1))));
    need(equal(on(m, "[(y x), .]", x), iota(6, 8)));
    nb_scope_close(0, NULL);
}

static bool all_equal(const unsigned char *x, size_t n, int v)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != v) return false;
    return true;
}

/* To itself, as one card can. */
CARD_TEST(a_group_of_one_card_sends_to_itself, "")
{
    enum { N = 1 << 20, MANY = 3 };
    static unsigned char host[MANY * N];
    nccl_open(1);
    nb_card *card = cards_first();
    nb_nccl_id id;
    nb_card_comm *k;
    size_t room;
    need(nb_nccl_id_new(&id));
    need(nb_card_comms_new(1, &card, (int[]){0}, 1, &id, &k));
    char *from = nb_card_alloc(card, MANY * N, &room), *to;
    to = nb_card_alloc(card, MANY * N, &room);
    need(from && to && nb_card_zero(card, to, MANY * N));
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < MANY; i++)
            memset(host + i * N, 10 * turn + i + 1, N);
        need(nb_card_put(card, from, host, MANY * N));
        need(nb_card_comm_begin(k));
        for (int i = 0; i < MANY; i++)
            need(nb_card_comm_send(k, 0, from + i * N, (size_t)N - i));
        for (int i = 0; i < MANY; i++)
            need(nb_card_comm_receive(k, 0, to + i * N, (size_t)N - i));
        need(nb_card_comm_end(k));
        need(nb_card_get(card, host, to, MANY * N));
        for (int i = 0; i < MANY; i++)
            need(all_equal(host + i * N, (size_t)N - i, 10 * turn + i + 1));
    }
    nb_card_comm_free(k);
    nb_card_free(card, from, room);
    nb_card_free(card, to, room);
}

CARD_TEST(nccl_can_be_named, "NABLA_NCCL=/nowhere/libnccl.so")
{
    cards_first();
    need(!nb_distributed_nccl() && nb_error_code() == NB_ERUNTIME);
    need(strstr(nb_error_message(), "nccl: /nowhere/libnccl.so is not here"));
}

/* Where devices are */

CARD_TEST(devices_are_simulated_on_the_default_card, "")
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

CARD_TEST(devices_are_cards_where_there_are_enough, "NABLA_SIM_CARDS=4")
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

CARD_TEST(tensors_land_on_the_card_and_come_back, "")
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

CARD_TEST(others_follow_to_the_mesh, "")
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

CARD_TEST(gradients_and_compiled_programs_run_there, "")
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

/* Of several processes (tools/test.py mpi): devices in a line, two a process, on
 * cards that the processes share, or have for themselves if there are enough; the
 * way by which they are to talk. */
static int ranks(const char *way)
{
    int n = nb_distributed_size(), wrong = 0;
    need(nb_default_device_set(1) == NB_OK);
    for (int each = 1; each <= 2; each++) {
        int size = n * each;
        const nb_mesh *m =
            nb_mesh_new("line", 1, (const char *[]){"x"}, &size, NULL);
        batch b = {.mesh = m, .seed = 11, .n = 40};
        need(nb_mesh_home(m) > 0);
        need(nb_devices_run(m, is_by_nccl, (void *)way));
        need(nb_devices_run(m, run_batch, &b));
        wrong += b.wrong;
    }
    const nb_mesh *m = nb_mesh_new("line", 1, (const char *[]){"x"}, &n, NULL);
    need(nb_scope_open() == NB_OK);
    nb_tensor *x = on(m, "[x, .]", iota(6, 4));
    nb_tensor *plain = nb_to_device(iota(6, 4), 0);
    need(equal(x, plain));
    need(equal(nb_matmul(nb_swap_axes(x, 0, 1), x),
               nb_matmul(nb_swap_axes(plain, 0, 1), plain)));
    nb_scope_close(0, NULL);
    return ranks_tally(81, wrong);
}

static nb_status fetched(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_mul(nb_to_device(nb_neg(x[0]), 0), nb_num(2));
    *ny = 1;
    return y[0] ? NB_OK : nb_error_code();
}

CARD_TEST(compiled_programs_may_leave_the_mesh, "")
{
    cards_first();
    need(nb_scope_open() == NB_OK);
    nb_tensor *x = on(mesh(2, 2, 1), "[x, y]", iota(6, 8)), *y;
    nb_executable *e;
    int n = 1;
    need(nb_executable_new(nb_func_new(fetched, NULL), 1, &x, &e) == NB_OK);
    need(nb_executable_run(e, 1, &x, &n, &y) == NB_OK);
    need(nb_device_of(y) == 0 && !nb_sharding(y));
    need(equal(y, nb_mul(iota(6, 8), nb_num(-2))));
    nb_explanation *of;
    need(nb_executable_explain(e, &of) == NB_OK);
    need(nb_explanation_rows(of) > 0); /* what comes together is counted */
    nb_explanation_drop(of);
    nb_executable_drop(e);
    nb_scope_close(0, NULL);
}

int main(int argc, char **argv)
{
    if (argc > 1) return ranks(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_simulated_on_the_default_card),
        cmocka_unit_test(tensors_land_on_the_card_and_come_back),
        cmocka_unit_test(others_follow_to_the_mesh),
        cmocka_unit_test(gradients_and_compiled_programs_run_there),
        cmocka_unit_test(compiled_programs_may_leave_the_mesh),
        cmocka_unit_test(devices_are_cards_where_there_are_enough),
        cmocka_unit_test(steps_do_on_a_card_what_they_do_on_the_cpu),
        cmocka_unit_test(blocks_of_several_cards_go_through_the_cpu),
        cmocka_unit_test(cards_of_one_process_talk_through_nccl),
        cmocka_unit_test(programs_over_cards_talk_through_nccl),
        cmocka_unit_test(a_group_of_one_card_sends_to_itself),
        cmocka_unit_test(nccl_can_be_named),
    };
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
