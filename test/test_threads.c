/* test_threads.c - several threads build and realise graphs at once, their own
 * and shared ones. */
#include "core/tensor.h"
#include "nabla/nabla.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 200, SIDE = 16 };

static nb_tensor *shared[ROUNDS]; /* lazy, kept */

static nb_tensor *fill(float value)
{
    nb_tensor *x = nb_scalar_float(value, NB_F32);
    return nb_broadcast_to(x, 2, (int64_t[]){SIDE, SIDE});
}

static void *build_and_realize(void *result)
{
    for (int r = 0; r < ROUNDS; r++) {
        nb_scope_open();
        nb_tensor *x = fill((float)r), *y = nb_matmul(x, x);
        nb_tensor *z = nb_add(nb_mul(y, nb_num(2)), shared[r]);
        /* 2 * 16 r^2, and 16 r of what is shared */
        double want = 32.0 * r * r + 16.0 * r;
        double got = nb_item(nb_reduce_max(z, -1, NULL, false));
        if (got != want || nb_error_code()) *(bool *)result = false;
        nb_scope_close(0, NULL);
    }
    return NULL;
}

static void threads_share_lazy_tensors(void **state)
{
    pthread_t thread[THREADS];
    bool ok[THREADS];
    (void)state;
    nb_scope_open();
    for (int r = 0; r < ROUNDS; r++) {
        nb_tensor *x = fill((float)r);
        shared[r] = nb_keep(nb_matmul(x, fill(1)));
    }
    nb_scope_close(0, NULL);
    for (int t = 0; t < THREADS; t++) {
        ok[t] = true;
        assert_int_equal(
            pthread_create(&thread[t], NULL, build_and_realize, &ok[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(thread[t], NULL);
        assert_true(ok[t]);
    }
    for (int r = 0; r < ROUNDS; r++)
        nb_drop(shared[r]);
    assert_int_equal(nb_nodes_live(), 0);
}

static void *fail_alone(void *result)
{
    for (int r = 0; r < ROUNDS; r++) {
        nb_scope_open();
        nb_tensor *bad = nb_matmul(fill(1), nb_scalar_float(1, NB_F32));
        if (bad || nb_error_code() != NB_EVALUE) *(bool *)result = false;
        nb_error_clear();
        nb_scope_close(0, NULL);
    }
    return NULL;
}

static void errors_belong_to_their_thread(void **state)
{
    pthread_t thread;
    bool ok = true;
    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, fail_alone, &ok), 0);
    for (int r = 0; r < ROUNDS; r++) {
        nb_scope_open();
        assert_true(nb_item(nb_reduce_sum(fill(1), -1, NULL, false)) == 256);
        assert_int_equal(nb_error_code(), NB_OK);
        nb_scope_close(0, NULL);
    }
    pthread_join(thread, NULL);
    assert_true(ok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_share_lazy_tensors),
        cmocka_unit_test(errors_belong_to_their_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
