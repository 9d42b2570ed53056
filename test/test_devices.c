/* test_devices.c - tensors on a card through the public header: where they are,
 * how they are read, memory that others own, and order among streams.
 *
 * Runs on the card of the machine, or on the simulated one where there is
 * none, whose memory the CPU cannot touch; every test in a process of its
 * own. */
#include "backend/cuda/build.h"
#include "backend/cuda/memory.h"
#include "core/tensor.h"
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"
#include "support/faults.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const float six[] = {1, 2, 3, 4, 5, 6};

/* Two rows of three on the card, in a scope. */
static nb_tensor *begin(void)
{
    cards_first();
    need(nb_scope_open() == NB_OK);
    nb_tensor *x = nb_constant(NB_F32, 2, (int64_t[]){2, 3}, six);
    x = nb_to_device(x, 1);
    need(x && nb_realize(x) == NB_OK && nb_device_of(x) == 1);
    return x;
}

static bool holds(nb_tensor *x, const float *want)
{
    float got[16] = {0};
    size_t n = (size_t)nb_elements(x);
    return nb_read(x, NB_F32, got) == NB_OK && !memcmp(got, want, 4 * n);
}

CARD_TEST(values_are_read_from_a_card, "")
{
    nb_tensor *x = begin();
    int64_t stride[2];
    const float *data = nb_data(x, stride);
    need(data && !memcmp(data, six, sizeof six));
    need(stride[0] == 3 && stride[1] == 1);
    need(holds(x, six));
    need(holds(nb_swap_axes(x, 0, 1), (float[]){1, 4, 2, 5, 3, 6}));
    nb_keep(x);
    nb_scope_close(0, NULL);
    need(holds(x, six)); /* without a scope */
    nb_drop(x);
}

CARD_TEST(data_without_history_stays_there, "")
{
    nb_tensor *x = begin(), *y = nb_detach(x);
    need(nb_device_of(y) == 1 && holds(y, six));
    need(nb_device_data(x, NULL) == nb_device_data(y, NULL));
    nb_scope_close(0, NULL);
}

CARD_TEST(a_copy_has_memory_of_its_own, "")
{
    int64_t stride[2];
    nb_tensor *x = begin(), *t = nb_swap_axes(x, 0, 1);
    nb_tensor *y = nb_device_copy(t);
    need(y && nb_device_of(y) == 1);
    char *at = nb_device_data(y, stride);
    need(at && at != nb_device_data(x, NULL));
    need(stride[0] == 2 && stride[1] == 1);
    need(holds(y, (float[]){1, 4, 2, 5, 3, 6}));
    nb_tensor *here = nb_device_copy(nb_to_device(t, 0));
    need(nb_device_of(here) == 0);
    need(holds(here, (float[]){1, 4, 2, 5, 3, 6}));
    nb_scope_close(0, NULL);
}

static void count(void *n)
{
    ++*(int *)n;
}

CARD_TEST(memory_of_others_is_borrowed, "")
{
    nb_tensor *x = begin();
    int released = 0;
    void *data = nb_device_data(x, NULL);
    need(nb_scope_open() == NB_OK);
    nb_tensor *y = nb_borrow_on(1, NB_F32, 2, (int64_t[]){3, 2},
                                (int64_t[]){1, 3}, data, count, &released);
    need(y && nb_device_of(y) == 1 && nb_device_data(y, NULL) == data);
    nb_tensor *z = nb_keep(nb_add(y, y));
    need(nb_realize(z) == NB_OK && released == 0);
    nb_scope_close(0, NULL);
    need(released == 1);
    need(holds(z, (float[]){2, 8, 4, 10, 6, 12}));
    nb_drop(z);
    need(!nb_borrow_on(1, NB_F32, 1, (int64_t[]){-1}, NULL, data, count,
                       &released));
    nb_error_clear();
    need(!nb_borrow_on(1, NB_F32, 1, (int64_t[]){2}, NULL, NULL, count,
                       &released));
    need(nb_error_code() == NB_EVALUE &&
         strstr(nb_error_message(), "borrow: the data of shape (2,) is NULL"));
    nb_error_clear();
    need(released == 1);
    float own[2] = {3, 4};
    y = nb_borrow_on(0, NB_F32, 1, (int64_t[]){2}, NULL, own, NULL, NULL);
    need(nb_device_of(y) == 0 && holds(y, own));
    nb_scope_close(0, NULL);
}

CARD_TEST(streams_wait_for_each_other, "")
{
    nb_tensor *x = begin();
    nb_card *c = nb_card_at(0);
    void *other = nb_card_stream_new(c);
    need(other && nb_device_stream(1) == c->stream);
    need(!nb_device_stream(0));
    nb_error_clear();
    float *data = nb_device_data(nb_add(x, x), NULL);
    void *room = nb_card_alloc(c, sizeof six, &(size_t){0});
    need(nb_device_before(1, other) == NB_OK);
    need(nb_device_before(1, NULL) == NB_OK);
    need(c->api->MemcpyDtoDAsync((nb_address)(uintptr_t)room,
                                 (nb_address)(uintptr_t)data, sizeof six,
                                 other) == 0);
    need(nb_device_after(1, other) == NB_OK);
    need(nb_device_after(1, NULL) == NB_OK);
    nb_tensor *y =
        nb_borrow_on(1, NB_F32, 1, (int64_t[]){6}, NULL, room, NULL, NULL);
    need(holds(y, (float[]){2, 4, 6, 8, 10, 12}));
    nb_card_stream_free(c, other);
    nb_scope_close(0, NULL);
}

CARD_TEST(elements_are_written_where_they_are, "")
{
    nb_tensor *x = begin();
    int64_t places[] = {1};
    nb_tensor *list = nb_constant(NB_I64, 1, (int64_t[]){1}, places);
    nb_key key[] = {NB_AT(0), NB_AT(1)}, pick = NB_PICK(list);
    pick.checked = true;
    need(holds(nb_set(x, 2, key, nb_num(9), "set"),
               (float[]){1, 9, 3, 4, 5, 6}));
    need(holds(nb_get(x, 1, &pick), six + 3));
    nb_key mask = NB_PICK(nb_greater(x, nb_num(4)));
    nb_tensor *y = nb_get(x, 1, &mask);
    need(nb_device_of(y) == 1 && holds(y, (float[]){5, 6}));
    pick.checked = false; /* a tensor of the caller's */
    need(!nb_get(x, 1, &pick) && nb_error_code() == NB_EVALUE);
    nb_error_clear();
    nb_scope_close(0, NULL);
}

static nb_status double_it(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_add(x[0], x[0]);
    return *ny = 1, NB_OK;
}

CARD_TEST(executables_tell_devices_apart, "")
{
    nb_tensor *x = begin(), *here = nb_to_device(x, 0), *y[1];
    nb_executable *e;
    int n = 1;
    nb_func *f = nb_func_new(double_it, NULL);
    need(nb_executable_new(f, 1, &x, &e) == NB_OK);
    need(nb_executable_run(e, 1, &x, &n, y) == NB_OK);
    need(nb_device_of(y[0]) == 1 && holds(y[0], (float[]){2, 4, 6, 8, 10, 12}));
    n = 1;
    need(nb_executable_run(e, 1, &here, &n, y) == NB_EVALUE);
    need(strstr(nb_error_message(), "is on cpu, it was compiled for gpu:0"));
    nb_error_clear();
    nb_executable_drop(e);
    nb_scope_close(0, NULL);
}

CARD_TEST(keys_are_made_where_numbers_are, "")
{
    nb_tensor *x = begin();
    float want[8];
    nb_manual_seed(3);
    nb_tensor *here =
        nb_random_uniform(nb_next_key(), 1, (int64_t[]){8}, 0, 1, NB_F32);
    need(nb_read(here, NB_F32, want) == NB_OK);
    need(nb_default_device_set(1) == NB_OK);
    nb_manual_seed(3);
    nb_tensor *key = nb_next_key();
    need(nb_device_of(key) == 1 && nb_is_leaf(key));
    nb_tensor *y = nb_random_uniform(key, 1, (int64_t[]){8}, 0, 1, NB_F32);
    need(nb_device_of(y) == 1 && holds(y, want));
    need(nb_default_device_set(0) == NB_OK);
    (void)x;
    nb_scope_close(0, NULL);
}

CARD_TEST(files_take_what_is_on_a_card, "")
{
    nb_tensor *x = begin();
    char path[96];
    snprintf(path, sizeof path, "%s/x.npz", cards_folder);
    nb_tensor *both[] = {x, nb_swap_axes(x, 0, 1)};
    const char *names[] = {"x", "t"};
    need(nb_save(path, 2, names, both, 0, NULL, NULL) == NB_OK);
    nb_file *f;
    need(nb_load(path, &f) == NB_OK && nb_file_tensors(f) == 2);
    need(holds(nb_file_tensor(f, 0), six));
    need(holds(nb_file_tensor(f, 1), (float[]){1, 4, 2, 5, 3, 6}));
    nb_file_free(f);
    nb_scope_close(0, NULL);
}

/* The view is realised before it is used: kernels get the address where it
 * begins, one element into the buffer, and read vectors of four. */
CARD_TEST(views_may_begin_anywhere, "")
{
    float data[48], want[16];
    cards_first();
    need(nb_scope_open() == NB_OK);
    for (int i = 0; i < 48; i++)
        data[i] = (float)i;
    nb_tensor *x = nb_constant(NB_F32, 1, (int64_t[]){48}, data);
    x = nb_to_device(x, 1);
    need(nb_realize(x) == NB_OK);
    nb_tensor *line =
        nb_slice(x, (int64_t[]){1}, (int64_t[]){16}, (int64_t[]){1});
    nb_tensor *rows =
        nb_slice(nb_reshape(x, 2, (int64_t[]){4, 12}), (int64_t[]){0, 1},
                 (int64_t[]){4, 4}, (int64_t[]){1, 1});
    need(nb_realize(line) == NB_OK && nb_realize(rows) == NB_OK);
    for (int i = 0; i < 16; i++)
        want[i] = 2 * data[i + 1];
    need(holds(nb_mul(line, nb_num(2)), want));
    for (int i = 0; i < 16; i++)
        want[i] = data[i / 4 * 12 + i % 4 + 1];
    need(holds(nb_device_copy(rows), want));
    nb_scope_close(0, NULL);
}

/* One number all over is written by one kernel, however many there are. */
CARD_TEST(fills_of_any_size_share_a_kernel, "")
{
    cards_first();
    need(nb_scope_open() == NB_OK);
    nb_tensor *x = nb_constant(NB_F32, 1, (int64_t[]){1}, (float[]){2.5f});
    x = nb_to_device(x, 1);
    need(nb_realize(x) == NB_OK);
    nb_card_build_stats before = nb_card_build_stats_get();
    for (int64_t n = 2; n < 5000; n = 3 * n + 1) {
        nb_tensor *y = nb_broadcast_to(x, 2, (int64_t[]){n, 3});
        nb_tensor *copy = nb_device_copy(y);
        float *got = malloc((size_t)n * 12);
        need(copy && got && nb_read(copy, NB_F32, got) == NB_OK);
        for (int64_t i = 0; i < 3 * n; i++)
            need(got[i] == 2.5f);
        free(got);
    }
    nb_card_build_stats now = nb_card_build_stats_get();
    need(now.misses - before.misses <= 1);
    nb_scope_close(0, NULL);
}

/* What is asked of a device that is not there, of the CPU, and of a card. */
static bool refused(nb_status s, nb_status code, const char *says)
{
    bool is = s == code && nb_error_code() == code &&
              strstr(nb_error_message(), says);
    nb_error_clear();
    return is;
}

CARD_TEST(devices_that_are_not_there_are_refused, "")
{
    nb_device_memory m;
    static const int absent[] = {-1, INT_MIN, 1000};
    cards_first();
    for (int i = 0; i < 3; i++) {
        int d = absent[i];
        nb_status code = d < 0 ? NB_EVALUE : NB_ERUNTIME;
        const char *says = d < 0 ? "is not a device" : "there is no GPU 999";
        need(refused(nb_device_wait(d), code, says));
        need(refused(nb_device_memory_of(d, &m), code, says));
        need(m.used == 0 && m.all == 0);
        need(refused(nb_device_trim(d), code, says));
        need(refused(nb_device_peak_reset(d), code, says));
        need(refused(nb_default_device_set(d), code, says));
        need(refused(nb_device_after(d, NULL), code, says));
        need(!nb_device_name(d) && refused(code, code, says));
        need(!nb_device_stream(d) && refused(code, code, says));
    }
    need(nb_device_wait(0) == NB_OK && nb_device_trim(0) == NB_OK);
    need(nb_device_memory_of(0, &m) == NB_OK && m.all > 0);
    need(nb_device_memory_of(1, &m) == NB_OK && m.all > 0);
    need(refused(nb_device_before(0, NULL), NB_EVALUE, "has no stream"));
}

/* A turn closes over a tensor of the CPU and moves it; each allocation in turn
 * fails. */
static nb_status turn(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)nx;
    y[0] = nb_add(x[0], nb_to_device(nb_neg(ctx), 1));
    return *ny = 1, NB_OK;
}

typedef struct closure {
    nb_tensor *x, *closed, *y;
} closure;

static bool turned(void *ctx)
{
    closure *c = ctx;
    nb_tensor *y = NULL;
    int ny = 1;
    bool ok = nb_scan(nb_func_new(turn, c->closed), 1, &c->x, 0, NULL, 3, false,
                      &ny, &y) == NB_OK &&
              nb_realize(y) == NB_OK;
    c->y = ok ? y : NULL;
    return ok;
}

static bool turned_right(void *ctx)
{
    nb_tensor *y = ((closure *)ctx)->y;
    return !y || (holds(y, (float[]){-2, -4, -6, -8, -10, -12}) &&
                  nb_device_of(y) == 1);
}

CARD_TEST(what_a_body_closes_over_is_moved_before_it_runs, "")
{
    nb_tensor *x = begin();
    closure c = {.x = x, .closed = nb_to_device(x, 0)};
    need(c.closed && nb_realize(c.closed) == NB_OK);
    faults f = {turned, &c, .holds = turned_right, .keeps = true};
    f.fresh = true;
    need(faults_survived(&f));
    nb_scope_close(0, NULL);
}

/* Programs of one call are known again by what tells it apart: its op, its
 * attributes, which inputs are one, what is a number. */
CARD_TEST(calls_that_are_alike_are_told_apart, "")
{
    nb_tensor *x = begin(), *y = nb_mul(x, nb_num(3));
    nb_tensor *zero = nb_to_device(nb_reduce_sum(nb_num(10), 0, NULL, 0), 1);
    need(nb_realize(y) == NB_OK && zero && nb_realize(zero) == NB_OK);
    for (int i = 0; i < 3; i++) {
        float n = (float)(i + 1);
        need(holds(nb_add(x, y), (float[]){4, 8, 12, 16, 20, 24}));
        need(holds(nb_add(x, x), (float[]){2, 4, 6, 8, 10, 12}));
        need(holds(nb_add(y, x), (float[]){4, 8, 12, 16, 20, 24}));
        need(holds(nb_sub(y, x), (float[]){2, 4, 6, 8, 10, 12}));
        need(holds(nb_add(x, nb_num(n)),
                   (float[]){1 + n, 2 + n, 3 + n, 4 + n, 5 + n, 6 + n}));
        need(holds(nb_add(x, zero), (float[]){11, 12, 13, 14, 15, 16}));
        need(holds(nb_reduce_sum(x, 1, (int64_t[]){0}, false),
                   (float[]){5, 7, 9}));
        need(holds(nb_reduce_sum(x, 1, (int64_t[]){1}, false),
                   (float[]){6, 15}));
        need(
            holds(nb_reduce_sum(x, 1, (int64_t[]){1}, true), (float[]){6, 15}));
        need(nb_rank(nb_reduce_sum(x, 1, (int64_t[]){1}, true)) == 2);
    }
    nb_scope_close(0, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_may_begin_anywhere),
        cmocka_unit_test(values_are_read_from_a_card),
        cmocka_unit_test(data_without_history_stays_there),
        cmocka_unit_test(a_copy_has_memory_of_its_own),
        cmocka_unit_test(memory_of_others_is_borrowed),
        cmocka_unit_test(streams_wait_for_each_other),
        cmocka_unit_test(elements_are_written_where_they_are),
        cmocka_unit_test(executables_tell_devices_apart),
        cmocka_unit_test(keys_are_made_where_numbers_are),
        cmocka_unit_test(files_take_what_is_on_a_card),
        cmocka_unit_test(fills_of_any_size_share_a_kernel),
        cmocka_unit_test(devices_that_are_not_there_are_refused),
        cmocka_unit_test(what_a_body_closes_over_is_moved_before_it_runs),
        cmocka_unit_test(calls_that_are_alike_are_told_apart),
    };
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
