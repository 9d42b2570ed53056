/* test_faults.c - the n-th allocation fails, for every n, in programs that
 * touch every part of the engine: an error, no leak, and all still works. */
#include "core/tensor.h"
#include "nabla/nabla.h"
#include "support/faults.h"
#include "transform/derive.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static const float numbers[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};

static nb_tensor *matrix(int64_t m, int64_t n)
{
    return nb_constant(NB_F32, 2, (int64_t[]){m, n}, numbers);
}

static bool chain(void)
{
    nb_tensor *x = matrix(3, 4);
    nb_tensor *y = nb_tanh(nb_add(nb_mul(x, nb_num(0.5)), nb_sin(x)));
    return nb_realize(nb_mean(y, -1, NULL, false)) == NB_OK;
}

static bool product(void)
{
    nb_tensor *x = matrix(3, 4), *t = nb_permute(x, 2, (int64_t[]){1, 0});
    nb_tensor *h = nb_matmul(nb_cast(x, NB_F16), nb_cast(t, NB_F16));
    return nb_realize(nb_matmul(x, t)) == NB_OK && nb_realize(h) == NB_OK;
}

static bool views(void)
{
    nb_tensor *x = matrix(3, 4), *t = nb_permute(x, 2, (int64_t[]){1, 0});
    nb_tensor *flat = nb_reshape(t, 1, (int64_t[]){-1});
    nb_tensor *many = nb_broadcast_to(flat, 2, (int64_t[]){2, 12});
    return nb_realize(nb_reduce_max(many, 1, (int64_t[]){1}, true)) == NB_OK;
}

static bool printed(void)
{
    char *text = nb_tensor_text(nb_equal(matrix(2, 6), nb_count(3)));
    nb_text_release(text);
    return text;
}

static bool refused(void)
{
    nb_tensor *y = nb_matmul(matrix(3, 4), matrix(3, 4));
    bool as_it_should = !y && nb_error_code() == NB_EVALUE;
    if (as_it_should) nb_error_clear();
    return as_it_should;
}

static bool gradient(void)
{
    nb_tensor *x = matrix(3, 4), *fresh, *ct, *cx = NULL;
    uint64_t bit = nb_walk_begin(1, &x, &fresh);
    if (!bit) return false;
    nb_tensor *y =
        nb_reduce_sum(nb_mul(fresh, nb_sigmoid(fresh)), -1, NULL, false);
    ct = nb_scalar_float(1, NB_F32);
    bool ok = y && ct && nb_walk_pull(bit, 1, &fresh, 1, &y, &ct, &cx);
    nb_walk_end(bit);
    return ok && cx && nb_realize(cx) == NB_OK;
}

static bool listing(void)
{
    nb_tensor *x = matrix(3, 4), *y = nb_mul(nb_exp(x), nb_num(2));
    nb_graph *g = NULL, *h = NULL;
    bool ok = y && nb_graph_of(1, &x, 1, &y, &g) == NB_OK;
    char *text = ok ? nb_graph_text(g) : NULL;
    ok = text && nb_graph_parse(text, &h) == NB_OK &&
         nb_graph_run(h, 1, &x, &y) == NB_OK && nb_realize(y) == NB_OK;
    nb_text_release(text);
    nb_graph_free(g);
    nb_graph_free(h);
    return ok;
}

static nb_status layer(void *ctx, int nx, nb_tensor *const *x, int *ny,
                       nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_tensor *h = nb_matmul(x[0], nb_permute(x[0], 2, (int64_t[]){1, 0}));
    y[0] = nb_exp(nb_broadcast_to(h, 3, (int64_t[]){2, 3, 3}));
    *ny = 1;
    return y[0] ? NB_OK : nb_error_code();
}

static const nb_mesh *two(void)
{
    return nb_mesh_new("two", 1, (const char *const[]){"d"}, (int[]){2}, NULL);
}

static bool compiled_for_a_mesh(void)
{
    const nb_mesh *m = two();
    const nb_spec *s = m ? nb_spec_parse(m, "[., d]") : NULL;
    nb_tensor *x = s ? nb_reshard(matrix(3, 4), s) : NULL;
    nb_func *f = x ? nb_func_new(layer, NULL) : NULL;
    nb_executable *e = NULL;
    bool ok = f && nb_executable_lower(f, 1, &x, 0, NULL, &e) == NB_OK;
    nb_executable_drop(e);
    return ok;
}

static bool layouts_chosen(void)
{
    const nb_mesh *m = two();
    nb_tensor *x = m ? matrix(3, 4) : NULL, *y[1];
    nb_func *f = x ? nb_func_new(layer, NULL) : NULL, *follow;
    nb_auto_plan *p = NULL;
    int ny = 1;
    bool ok = f && nb_auto_shard(f, m, 1, &x, NULL, &p) == NB_OK &&
              (follow = nb_auto_plan_apply(p)) &&
              nb_func_call(follow, 1, &x, &ny, y) == NB_OK;
    nb_auto_plan_drop(p);
    return ok;
}

typedef struct program {
    const char *name;
    bool (*run)(void);
} program;

static const program programs[] = {
    {"a chain of ops", chain},
    {"matrix products", product},
    {"views and copies", views},
    {"printing", printed},
    {"a call that fails", refused},
    {"a gradient", gradient},
    {"a listing", listing},
    {"layouts chosen", layouts_chosen},
    {"a program over a mesh", compiled_for_a_mesh},
};

static bool run_program(void *ctx)
{
    const program *p = ctx;
    return p->run();
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (size_t p = 0; p < sizeof programs / sizeof programs[0]; p++) {
        faults f = {.run = run_program, .ctx = (void *)&programs[p]};
        if (!faults_survived(&f)) fail_msg("%s", programs[p].name);
        assert_int_equal(nb_nodes_live(), 0);
        assert_true(f.n < 10000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
