/* test_cuda_bad.c - what can go wrong with a card, seen through the public
 * header: the error says it, and the process and the CPU go on.
 *
 * Runs on the card of the machine, or on the simulated one where there is
 * none; every test in a process of its own. */
#include "backend/cuda/memory.h"
#include "nabla/nabla.h"
#include "support/alone.h"
#include "support/cards.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 64 };

static bool error_says(nb_status code, const char *text)
{
    bool says = nb_error_code() == code && strstr(nb_error_message(), text);
    if (!says)
        fprintf(stderr, "it says: %d, %s\n", nb_error_code(),
                nb_error_message());
    nb_error_clear();
    return says;
}

static void the_cpu_computes(void)
{
    need(nb_scope_open() == NB_OK);
    nb_tensor *x = nb_constant(NB_F32, 1, (int64_t[]){2}, (float[]){1, 2});
    nb_tensor *y = nb_reduce_sum(nb_exp(nb_mul(x, x)), -1, NULL, false);
    need(nb_device_of(y) == 0 && nb_item(y) > 57.31 && nb_item(y) < 57.32);
    nb_scope_close(0, NULL);
    need(!nb_error_code());
}

static nb_tensor *there(void)
{
    nb_tensor *x = nb_constant(NB_F32, 1, (int64_t[]){2}, (float[]){1, 2});
    return nb_to_device(x, 1);
}

static void the_card_computes(void)
{
    need(nb_scope_open() == NB_OK);
    nb_tensor *x = there();
    nb_tensor *y = nb_reduce_sum(nb_mul(x, x), -1, NULL, false);
    need(nb_device_of(y) == 1 && nb_item(y) == 5);
    nb_scope_close(0, NULL);
}

static void no_card_but_the_cpu(const char *why)
{
    need(nb_devices() == 1 && strstr(nb_devices_trouble(), why));
    need(nb_scope_open() == NB_OK);
    need(!there() && error_says(NB_ERUNTIME, why));
    need(nb_default_device_set(1) != NB_OK && error_says(NB_ERUNTIME, why));
    need(nb_device_wait(1) != NB_OK && error_says(NB_ERUNTIME, why));
    nb_scope_close(0, NULL);
    the_cpu_computes();
}

CARD_TEST(no_driver, "NABLA_CUDA_DRIVER=none")
{
    no_card_but_the_cpu("NABLA_CUDA_DRIVER is none");
}

CARD_TEST(a_driver_that_is_not_there, "NABLA_CUDA_DRIVER=/nowhere/libcuda.so")
{
    no_card_but_the_cpu("/nowhere/libcuda.so");
}

SIM_TEST(an_old_driver, "NABLA_SIM_VERSION=11080")
{
    no_card_but_the_cpu("11.8");
}

/* Copies need no compiler. */
CARD_TEST(no_nvrtc, "NABLA_NVRTC=none NABLA_CACHE_DIR=/nowhere")
{
    float got[2];
    cards_first();
    need(nb_scope_open() == NB_OK);
    nb_tensor *x = there();
    need(nb_read(x, NB_F32, got) == NB_OK && got[0] == 1 && got[1] == 2);
    need(nb_realize(nb_exp(x)) != NB_OK);
    need(error_says(NB_ERUNTIME, "NVRTC is needed, but NABLA_NVRTC is none"));
    nb_tensor *here = nb_to_device(x, 0);
    need(nb_read(nb_add(here, here), NB_F32, got) == NB_OK && got[1] == 4);
    nb_scope_close(0, NULL);
    the_cpu_computes();
}

static nb_status doubled(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    (void)ctx, (void)nx;
    y[0] = nb_mul(x[0], nb_num(2));
    return *ny = 1, NB_OK;
}

/* Of tangents and cotangents, too. */
CARD_TEST(derivatives_apart, "")
{
    cards_first();
    need(nb_scope_open() == NB_OK);
    nb_tensor *x = there(), *here = nb_to_device(x, 0), *y[2];
    nb_func *f = nb_func_new(doubled, NULL);
    int n = 2;
    need(nb_func_call(nb_vjp(f, 1), 2, (nb_tensor *[]){x, here}, &n, y) ==
         NB_EVALUE);
    need(error_says(NB_EVALUE, "vjp: a cotangent must be on the same device as "
                               "its value, not on cpu and gpu:0 (to_device "
                               "moves one)"));
    n = 2;
    need(nb_func_call(nb_jvp(f), 2, (nb_tensor *[]){here, x}, &n, y) ==
         NB_EVALUE);
    need(error_says(NB_EVALUE, "jvp: a tangent must be on the same device as "
                               "its value, not on gpu:0 and cpu"));
    need(nb_require_grad(x) == NB_OK);
    need(nb_backward(nb_neg(x), here, false) == NB_EVALUE);
    need(error_says(NB_EVALUE, "same device"));
    nb_tensor *sum = nb_reduce_sum(x, -1, NULL, false);
    need(nb_backward(sum, nb_num(3), false) == NB_OK && nb_grad_of(x));
    need(nb_backward(sum, nb_scalar_float(3, NB_F32), false) == NB_OK);
    need(nb_device_of(nb_grad_of(x)) == 1);
    nb_grad_clear(x);
    nb_scope_close(0, NULL);
}

CARD_TEST(operands_apart, "")
{
    cards_first();
    need(nb_scope_open() == NB_OK);
    nb_tensor *x = there(), *y = nb_to_device(x, 0);
    need(!nb_add(x, y));
    need(error_says(NB_EVALUE, "add: operands must be on the same device, not "
                               "on gpu:0 and cpu (to_device moves one)"));
    need(!nb_matmul(y, x) && error_says(NB_EVALUE, "same device"));
    need(!nb_to_device(x, 200) && nb_error_code() == NB_ERUNTIME);
    nb_error_clear();
    need(!nb_to_device(x, -1) && error_says(NB_EVALUE, "-1 is not a device"));
    nb_scope_close(0, NULL);
    the_card_computes();
    the_cpu_computes();
}

/* Tensors are kept until there is no room for another. */
static int fill(nb_tensor **x, int64_t n)
{
    int k = 0;
    for (; k < BLOCKS; k++) {
        nb_scope_open();
        x[k] = nb_keep(nb_minimum(nb_iota(n, NB_F32), nb_num(k)));
        nb_scope_close(0, NULL);
        if (!x[k] || nb_realize(x[k]) != NB_OK) break;
    }
    need(k < BLOCKS);
    nb_drop(x[k]);
    return k;
}

CARD_TEST(a_full_card, "NABLA_SIM_MEMORY=134217728")
{
    nb_card *c = cards_first();
    nb_tensor *x[BLOCKS];
    need(nb_default_device_set(1) == NB_OK && nb_scope_open() == NB_OK);
    int64_t n = (int64_t)(c->memory / 40) / 4096 * 1024; /* a fortieth */
    for (int turn = 0; turn < 2; turn++) {
        int k = fill(x, n);
        need(k > 20 && nb_error_code() == NB_EMEMORY);
        need(strstr(nb_error_message(), "out of memory on GPU 0: "));
        need(strstr(nb_error_message(), " alive in "));
        need(strstr(nb_error_message(), "; the largest: "));
        need(error_says(NB_EMEMORY, "the program needs "));
        need(nb_item(nb_reduce_max(x[k - 1], -1, NULL, false)) == k - 1);
        for (int i = 0; i < k; i++)
            nb_drop(x[i]);
    }
    nb_scope_close(0, NULL);
    nb_default_device_set(0);
    the_card_computes();
    the_cpu_computes();
}

/* More than there is, asked for by one program. */
CARD_TEST(a_program_too_large, "NABLA_SIM_MEMORY=134217728")
{
    nb_card *c = cards_first();
    need(nb_default_device_set(1) == NB_OK && nb_scope_open() == NB_OK);
    int64_t n = (int64_t)(c->memory / 8) / 4096 * 1024, most = 12;
    nb_tensor *x = nb_iota(n, NB_F32);
    nb_tensor *y = nb_tile(x, 1, &most);
    need(nb_realize(y) != NB_OK);
    need(error_says(NB_EMEMORY, "out of memory on GPU 0: "));
    need(nb_item(nb_reduce_sum(x, -1, NULL, false)) > 0);
    nb_scope_close(0, NULL);
    nb_default_device_set(0);
    the_card_computes();
    the_cpu_computes();
}

/* The owner of borrowed memory lets it go too early. */
CARD_TEST(a_kernel_that_faults, "")
{
    nb_card *c = cards_first();
    int64_t n = 16 << 20;
    nb_address at;
    char first[4096];
    need(nb_scope_open() == NB_OK && nb_card_enter(c));
    nb_tensor *fine = there();
    need(nb_realize(fine) == NB_OK);
    need(c->api->MemAlloc(&at, (size_t)n * 4) == 0);
    nb_tensor *x =
        nb_borrow_on(1, NB_F32, 1, &n, NULL, (void *)(uintptr_t)at, NULL, NULL);
    need(x && c->api->MemFree(at) == 0);
    nb_tensor *y = nb_reduce_sum(nb_tanh(x), -1, NULL, false);
    need(nb_realize(y) != NB_OK || nb_device_wait(1) != NB_OK);
    snprintf(first, sizeof first, "%s", nb_error_message());
    need(strstr(first, "GPU 0 (") && strstr(first, "CUDA_ERROR_"));
    need(error_says(NB_ERUNTIME, "tanh"));
    need(nb_realize(nb_neg(fine)) != NB_OK && error_says(NB_ERUNTIME, first));
    need(nb_device_wait(1) != NB_OK && error_says(NB_ERUNTIME, first));
    need(!nb_to_device(fine, 0) || nb_realize(nb_to_device(fine, 0)) != NB_OK);
    nb_error_clear();
    nb_scope_close(0, NULL);
    the_cpu_computes();
}

CARD_TEST(memory_of_nobody, "")
{
    nb_card *c = cards_first();
    int64_t two = 2;
    float host[2];
    need(nb_scope_open() == NB_OK);
    need(!nb_borrow_on(1, NB_F32, 1, &two, NULL, host, NULL, NULL));
    need(error_says(NB_EVALUE, " is not memory of gpu:0"));
    need(!nb_borrow_on(1, NB_F32, 1, &two, NULL, (void *)64, NULL, NULL));
    need(error_says(NB_EVALUE, " is not memory of gpu:0"));
    size_t room;
    void *ours = nb_card_alloc(c, 8, &room);
    nb_tensor *x = nb_borrow_on(1, NB_F32, 1, &two, NULL, ours, NULL, NULL);
    need(x && nb_realize(nb_mul(x, nb_num(0))) == NB_OK);
    nb_scope_close(0, NULL);
    nb_card_free(c, ours, room);
    the_card_computes();
}

SIM_TEST(memory_of_another_card, "NABLA_SIM_CARDS=2")
{
    int64_t two = 2;
    need(nb_devices() == 3 && nb_scope_open() == NB_OK);
    nb_tensor *x = nb_to_device(there(), 2);
    void *data = nb_device_data(x, NULL);
    need(data && nb_device_of(x) == 2);
    need(!nb_borrow_on(1, NB_F32, 1, &two, NULL, data, NULL, NULL));
    need(error_says(NB_EVALUE, " is not memory of gpu:0"));
    need(nb_borrow_on(2, NB_F32, 1, &two, NULL, data, NULL, NULL));
    need(!nb_add(there(), x));
    need(error_says(NB_EVALUE, "not on gpu:0 and gpu:1"));
    float got[2];
    nb_tensor *y = nb_add(nb_to_device(x, 1), there());
    need(nb_read(y, NB_F32, got) == NB_OK && got[0] == 2 && got[1] == 4);
    y = nb_mul(nb_to_device(y, 2), x);
    need(nb_device_of(y) == 2);
    need(nb_read(y, NB_F32, got) == NB_OK && got[0] == 2 && got[1] == 8);
    nb_scope_close(0, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_driver),
        cmocka_unit_test(a_driver_that_is_not_there),
        cmocka_unit_test(an_old_driver),
        cmocka_unit_test(no_nvrtc),
        cmocka_unit_test(operands_apart),
        cmocka_unit_test(derivatives_apart),
        cmocka_unit_test(a_full_card),
        cmocka_unit_test(a_program_too_large),
        cmocka_unit_test(a_kernel_that_faults),
        cmocka_unit_test(memory_of_nobody),
        cmocka_unit_test(memory_of_another_card),
    };
    return cmocka_run_group_tests(tests, cards_open, cards_close);
}
