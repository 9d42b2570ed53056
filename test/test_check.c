/* test_check.c - compiled code compared with its ops, watched ops, printed
 * lines, and times. */
#include "backend/cpu/llvm.h"
#include "lower/passes.h"
#include "nabla/nabla.h"
#include "run/exec.h"
#include "support/faults.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_scope(void **state)
{
    (void)state;
    return nb_scope_open() != NB_OK;
}

static int close_scope(void **state)
{
    (void)state;
    nb_scope_close(0, NULL);
    nb_exec_spoil = NULL;
    nb_check_set(false);
    nb_debug_set(0);
    nb_print_to(NULL, NULL);
    nb_error_clear();
    return 0;
}

#define FN(name, expression)                                               \
    static nb_status name(void *ctx, int nx, nb_tensor *const *x, int *ny, \
                          nb_tensor **y)                                   \
    {                                                                      \
        (void)ctx, (void)nx;                                               \
        y[0] = expression;                                                 \
        return *ny = 1, y[0] ? NB_OK : nb_error_code();                    \
    }

static nb_func *fn(nb_body *body)
{
    return nb_func_new(body, NULL);
}

static nb_tensor *row(int64_t n, double from, double by)
{
    return nb_add(nb_mul(nb_iota(n, NB_F32), nb_num(by)), nb_num(from));
}

static void fails_with(nb_status code, const char *part)
{
    if (nb_error_code() != code || !strstr(nb_error_message(), part))
        print_message("error %d: %s\n", nb_error_code(), nb_error_message());
    assert_int_equal(nb_error_code(), code);
    assert_non_null(strstr(nb_error_message(), part));
}

/* Comparing */

static nb_tensor *centred(nb_tensor *x)
{
    return nb_sub(x, nb_mean(x, 1, (int64_t[]){-1}, true));
}

/* A kernel of several ops, a product, and one more kernel. */
static nb_tensor *layers(nb_tensor *x, nb_tensor *w)
{
    NB_HERE;
    nb_tensor *a = nb_exp(nb_sub(nb_num(0), nb_mul(x, x)));
    nb_tensor *b = nb_matmul(a, w);
    nb_tensor *c = centred(b);
    return nb_tanh(nb_mul(c, nb_num(3)));
}

FN(model, layers(x[0], x[1]))

static nb_tensor *run_model(int64_t n)
{
    nb_tensor *x =
        nb_reshape(row(n * n, -1, 2.0 / (double)(n * n)), 2, (int64_t[]){n, n});
    nb_tensor *in[] = {x, nb_sin(nb_mul(x, nb_num(40)))};
    nb_tensor *y = nb_func_call1(nb_compile(fn(model), NULL), 2, in);
    return y && nb_realize(y) == NB_OK ? y : NULL;
}

static void swap_instruction(nb_nest *x, nb_scalar from, nb_scalar to)
{
    for (int k = 0; k < x->n; k++)
        if (x->value[k].kind == NB_NEST_SCALAR && x->value[k].scalar == from)
            x->value[k].scalar = to;
}

/* Without code there is nothing to spoil. */
static void need_code(void)
{
    if (!nb_llvm_there() || !nb_pass_is_on("code")) skip();
}

static void spoil_tanh(nb_nest *x)
{
    swap_instruction(x, NB_S_tanh, NB_S_sin);
}

static void spoil_exp(nb_nest *x)
{
    swap_instruction(x, NB_S_exp, NB_S_cos);
}

static void spoil_sum(nb_nest *x)
{
    for (int k = 0; k < x->n; k++)
        if (x->value[k].kind == NB_NEST_REDUCE) x->value[k].reduce = NB_MAX;
}

static void right_code_is_found_right(void **state)
{
    (void)state;
    nb_check_set(true);
    assert_non_null(run_model(33));
    assert_non_null(run_model(64));
    assert_int_equal(nb_error_code(), NB_OK);
}

static void a_wrong_instruction_is_named(void **state)
{
    (void)state;
    need_code();
    nb_exec_spoil = spoil_tanh;
    assert_non_null(run_model(32)); /* nobody looks */
    nb_check_set(true);
    assert_null(run_model(32));
    fails_with(NB_ERUNTIME, "differs from its ops in tanh(f32[32,32])");
    assert_non_null(strstr(nb_error_message(), "test_check.c:"));
    assert_non_null(strstr(nb_error_message(), "the difference is"));
    assert_non_null(strstr(nb_error_message(), "step "));
}

static void the_first_of_two_is_named(void **state)
{
    (void)state;
    need_code();
    nb_exec_spoil = spoil_exp;
    nb_check_set(true);
    assert_null(run_model(32));
    fails_with(NB_ERUNTIME, "in exp(f32[32,32])");
}

static void a_wrong_reduction_is_named(void **state)
{
    (void)state;
    need_code();
    nb_exec_spoil = spoil_sum;
    nb_check_set(true);
    assert_null(run_model(32));
    fails_with(NB_ERUNTIME, "sum(f32[32,32]");
}

/* Two products that are alive at once, in one place.  Neither reads the other:
 * what a library makes of that is anyone's guess. */
static nb_tensor *products(nb_tensor *x)
{
    nb_tensor *a = nb_matmul(x, x);
    nb_tensor *b = nb_matmul(x, nb_swap_axes(x, 0, 1));
    return nb_matmul(a, b);
}

static void memory_that_is_shared_is_found(void **state)
{
    (void)state;
    nb_tensor *x = nb_cos(nb_reshape(row(64, 0, 1), 2, (int64_t[]){8, 8}));
    nb_tensor *y = products(nb_realize(x) == NB_OK ? x : NULL), *got;
    nb_graph *g;
    need_code();
    assert_int_equal(nb_graph_of(1, &x, 1, &y, &g), NB_OK);
    nb_exec *e = nb_exec_new(g);
    assert_non_null(e);
    const nb_plan *p = nb_exec_plan(e);
    nb_check_set(true);
    assert_true(nb_exec_run(e, &x, &got));
    for (int k = 0; k < p->graph->n; k++)
        if (p->home[k] == NB_HOME_ARENA) p->at[k] = 0;
    assert_false(nb_exec_run(e, &x, &got));
    fails_with(NB_ERUNTIME, "the memory of matmul(f32[8,8], f32[8,8])");
    fails_with(NB_ERUNTIME, "before step 3 of 3");
    nb_exec_drop(e);
}

/* Near a pole rounding is all there is; that is no fault. */
FN(cancelled,
   nb_mul(nb_sub(nb_add(x[0], nb_num(1e7)), nb_num(1e7)), nb_num(1e6)))

static void rounding_that_grows_is_no_fault(void **state)
{
    (void)state;
    nb_tensor *x = row(1000, 0.1, 0.37);
    nb_check_set(true);
    assert_non_null(nb_func_call1(nb_compile(fn(cancelled), NULL), 1, &x));
    assert_int_equal(nb_error_code(), NB_OK);
}

static void lazy_programs_are_compared(void **state)
{
    (void)state;
    need_code();
    nb_check_set(true);
    nb_exec_spoil = spoil_tanh;
    nb_caches_clear();
    bool failed = false;
    for (int i = 0; i < 3 && !failed; i++) {
        nb_tensor *x = row(1 << 16, -1, 1e-4);
        assert_int_equal(nb_realize(x), NB_OK);
        failed = nb_realize(nb_tanh(nb_mul(x, nb_num(2)))) != NB_OK;
    }
    assert_true(failed);
    fails_with(NB_ERUNTIME, "in tanh(");
    nb_caches_clear();
}

FN(next_state, nb_add(nb_mul(x[0], nb_num(2)), nb_num(1)))

static void donated_inputs_are_compared(void **state)
{
    (void)state;
    nb_executable *e;
    nb_tensor *x =
        nb_constant(NB_F32, 1, (int64_t[]){4}, (float[]){1, 2, 3, 4});
    assert_int_equal(nb_executable_new(fn(next_state), 1, &x, &e), NB_OK);
    assert_int_equal(nb_executable_donate(e, 1, (int[]){0}), NB_OK);
    nb_check_set(true);
    nb_tensor *y;
    int ny = 1;
    assert_int_equal(nb_executable_run(e, 1, &x, &ny, &y), NB_OK);
    assert_true(nb_item(nb_reduce_max(y, -1, NULL, false)) == 9);
    nb_executable_drop(e);
}

/* Watching */

FN(logs, (NB_HERE, nb_log(x[0])))
FN(root_sum,
   (NB_HERE, nb_reduce_sum(nb_mul(nb_sqrt(x[0]), nb_num(0)), -1, NULL, false)))

static nb_tensor *zero_one(void)
{
    return nb_constant(NB_F32, 1, (int64_t[]){2}, (float[]){0, 1});
}

static nb_tensor *minus_one(void)
{
    return nb_constant(NB_F32, 1, (int64_t[]){2}, (float[]){-1, 1});
}

static nb_func *gradient(nb_func *f)
{
    return nb_grad(f, 1, (int[]){0});
}

static void a_nan_is_found_where_it_is_made(void **state)
{
    (void)state;
    nb_tensor *x = minus_one();
    nb_debug_set(NB_DEBUG_NANS);
    assert_null(nb_func_call1(fn(logs), 1, &x));
    fails_with(NB_EFLOAT, "log: makes NaN");
    fails_with(NB_EFLOAT, "test_check.c:");
    fails_with(NB_EFLOAT, "in the forward pass");
    nb_error_clear();
    nb_func *compiled = nb_compile(fn(logs), NULL);
    assert_null(nb_func_call1(compiled, 1, &x));
    fails_with(NB_EFLOAT, "log: makes NaN");
    nb_error_clear();
    nb_tensor *good = zero_one();
    assert_non_null(nb_func_call1(compiled, 1, &good));
    nb_debug_set(0);
    assert_non_null(nb_func_call1(compiled, 1, &x));
}

static void a_nan_that_is_given_is_nobodys(void **state)
{
    (void)state;
    nb_debug_set(NB_DEBUG_NANS);
    nb_tensor *x = nb_constant(NB_F32, 1, (int64_t[]){1}, (float[]){NAN});
    assert_int_equal(nb_realize(nb_add(x, nb_num(1))), NB_OK);
    assert_int_equal(nb_realize(nb_mul(nb_num(NAN), zero_one())), NB_OK);
}

static void a_nan_of_the_way_back_is_said_to_be(void **state)
{
    (void)state;
    nb_tensor *x = zero_one();
    nb_debug_set(NB_DEBUG_NANS);
    assert_non_null(nb_func_call1(fn(root_sum), 1, &x));
    assert_null(nb_func_call1(gradient(fn(root_sum)), 1, &x));
    fails_with(NB_EFLOAT, "in the backward pass");
    fails_with(NB_EFLOAT, "test_check.c:");
    nb_error_clear();
    assert_null(nb_func_call1(nb_compile(gradient(fn(root_sum)), NULL), 1, &x));
    fails_with(NB_EFLOAT, "in the backward pass");
}

static nb_status log_step(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx;
    NB_HERE;
    y[0] = nb_log(x[0]);
    return *ny = 1, NB_OK;
}

static void a_nan_in_a_loop_is_found(void **state)
{
    (void)state;
    nb_tensor *x = nb_scalar_float(2, NB_F32), *y;
    int ny = 1;
    nb_debug_set(NB_DEBUG_NANS);
    nb_status s = nb_scan(fn(log_step), 1, &x, 0, NULL, 4, false, &ny, &y);
    if (s == NB_OK) s = nb_realize(y);
    assert_int_not_equal(s, NB_OK);
    fails_with(NB_EFLOAT, "log: makes NaN");
    fails_with(NB_EFLOAT, "test_check.c:");
}

FN(picked, (NB_HERE, nb_gather(x[0], x[1], 0)))
FN(along, (NB_HERE, nb_take_along_axis(x[0], x[1], 0)))

static nb_tensor *whole(int64_t a, int64_t b)
{
    return nb_constant(NB_I64, 1, (int64_t[]){2}, (int64_t[]){a, b});
}

static void indices_out_of_range_fail(void **state)
{
    (void)state;
    nb_tensor *in[] = {row(4, 0, 1), whole(1, 4)};
    nb_tensor *good[] = {in[0], whole(-4, 3)}, *low[] = {in[0], whole(0, -5)};
    nb_body *body[] = {picked, along};
    for (int i = 0; i < 2; i++)
        for (int compiled = 0; compiled < 2; compiled++) {
            nb_func *f = fn(body[i]);
            if (compiled) f = nb_compile(f, NULL);
            nb_debug_set(0);
            nb_tensor *y = nb_func_call1(f, 2, in);
            assert_int_equal(nb_realize(y), NB_OK);
            nb_debug_set(NB_DEBUG_BOUNDS);
            assert_non_null(nb_func_call1(f, 2, good));
            assert_null(nb_func_call1(f, 2, in));
            fails_with(NB_EINDEX, "index 4 is out of range for an axis of "
                                  "size 4 at ");
            fails_with(NB_EINDEX, "test_check.c:");
            nb_error_clear();
            assert_null(nb_func_call1(f, 2, low));
            fails_with(NB_EINDEX, "index -5 is out of range");
            nb_error_clear();
        }
}

/* Printing */

static char printed[4096];

static void note(void *ctx, const char *line)
{
    (void)ctx;
    strncat(printed, line, sizeof printed - strlen(printed) - 1);
}

static void listen(void)
{
    *printed = '\0';
    nb_print_to(note, NULL);
}

static void prints_are(const char *text)
{
    assert_string_equal(printed, text);
    *printed = '\0';
}

static nb_status chatty(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_debug_print("first {}", 1, x);
    y[0] = nb_mul(x[0], nb_num(2));
    nb_debug_print("then {} of {0}", 1, y);
    nb_debug_print("done", 0, NULL);
    return *ny = 1, NB_OK;
}

static void values_are_printed(void **state)
{
    (void)state;
    listen();
    nb_tensor *x[] = {nb_scalar_float(1.5, NB_F32), whole(1, 2)};
    assert_int_equal(nb_debug_print("{} {{{}}} {0:.3f} {0:6.1f}|", 2, x),
                     NB_OK);
    prints_are("1.5 {[1 2]} 1.500    1.5|\n");
    nb_tensor *z[] = {nb_scalar_int(3, NB_F32), nb_truth(true)};
    nb_debug_print("{} {}", 2, z);
    prints_are("3.0 True\n");
    const char *wrong[] = {"{", "}", "{} {} {}", "{:q}", "{1:.2f}", "{-1}"};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(nb_debug_print(wrong[i], 2, x), NB_EVALUE);
        nb_error_clear();
    }
    prints_are("");
}

static void compiled_code_prints_each_time(void **state)
{
    (void)state;
    listen();
    nb_func *f = nb_compile(fn(chatty), NULL);
    for (int i = 1; i < 3; i++) {
        char text[100];
        nb_tensor *x = nb_scalar_float(i, NB_F32);
        assert_non_null(nb_func_call1(f, 1, &x));
        snprintf(text, sizeof text, "first %d.0\nthen %d.0 of %d.0\ndone\n", i,
                 2 * i, 2 * i);
        prints_are(text);
    }
    nb_check_set(true); /* the ops beside it are silent */
    nb_tensor *x = nb_scalar_float(5, NB_F32);
    assert_non_null(nb_func_call1(f, 1, &x));
    prints_are("first 5.0\nthen 10.0 of 10.0\ndone\n");
    nb_check_set(false);
    nb_debug_set(NB_DEBUG_NANS);
    assert_non_null(nb_func_call1(f, 1, &x));
    prints_are("first 5.0\nthen 10.0 of 10.0\ndone\n");
}

static void each_lane_prints(void **state)
{
    (void)state;
    nb_tensor *x = row(3, 0, 1);
    const char *all = "first 0.0\nfirst 1.0\nfirst 2.0\n"
                      "then 0.0 of 0.0\nthen 2.0 of 2.0\nthen 4.0 of 4.0\n"
                      "done\n";
    listen();
    assert_non_null(nb_func_call1(nb_vmap(fn(chatty), NULL), 1, &x));
    prints_are(all);
    nb_func *f = nb_compile(nb_vmap(fn(chatty), NULL), NULL);
    assert_non_null(nb_func_call1(f, 1, &x));
    prints_are(all);
}

static nb_status loop(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    (void)ctx, (void)nx;
    nb_debug_print("before", 0, NULL);
    nb_status s = nb_scan(fn(chatty), 1, x, 0, NULL, 3, false, ny, y);
    nb_debug_print("after {}", 1, y);
    return s;
}

static void loops_print_each_turn(void **state)
{
    (void)state;
    const char *all = "before\n"
                      "first 1.0\nthen 2.0 of 2.0\ndone\n"
                      "first 2.0\nthen 4.0 of 4.0\ndone\n"
                      "first 4.0\nthen 8.0 of 8.0\ndone\n"
                      "after 8.0\n";
    nb_tensor *x = nb_scalar_float(1, NB_F32);
    listen();
    assert_int_equal(nb_realize(nb_func_call1(fn(loop), 1, &x)), NB_OK);
    prints_are(all);
    nb_func *f = nb_compile(fn(loop), NULL);
    assert_non_null(nb_func_call1(f, 1, &x));
    prints_are(all);
}

static nb_status twice_the_same(void *ctx, int nx, nb_tensor *const *x, int *ny,
                                nb_tensor **y)
{
    (void)ctx, (void)nx;
    for (int i = 0; i < 3; i++)
        nb_debug_print("same {}", 1, x);
    y[0] = nb_scalar_float(1, NB_F32);
    return *ny = 1, NB_OK;
}

static void equal_prints_are_not_one(void **state)
{
    (void)state;
    nb_tensor *x = nb_scalar_float(1, NB_F32);
    listen();
    assert_non_null(nb_func_call1(nb_compile(fn(twice_the_same), NULL), 1, &x));
    prints_are("same 1.0\nsame 1.0\nsame 1.0\n");
}

FN(chatty_sum, (nb_debug_print("at {}", 1, x),
                nb_reduce_sum(nb_mul(x[0], x[0]), -1, NULL, false)))

static void gradients_print_once(void **state)
{
    (void)state;
    nb_tensor *x = nb_scalar_float(3, NB_F32);
    listen();
    nb_tensor *g = nb_func_call1(gradient(fn(chatty_sum)), 1, &x);
    assert_true(nb_item(g) == 6);
    prints_are("at 3.0\n");
    g = nb_func_call1(nb_compile(gradient(fn(chatty_sum)), NULL), 1, &x);
    assert_true(nb_item(g) == 6);
    prints_are("at 3.0\n");
}

/* Times */

static char *content(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    if (f) fclose(f);
    return text;
}

static void times_are_written(void **state)
{
    (void)state;
    char path[] = "/tmp/nabla-profile-XXXXXX";
    need_code();
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(nb_profile_stop(), NB_ERUNTIME);
    nb_error_clear();
    assert_int_equal(nb_profile_start("/nowhere/at/all"), NB_ENOFILE);
    nb_error_clear();
    assert_int_equal(nb_profile_start(path), NB_OK);
    assert_int_equal(nb_profile_start(path), NB_ERUNTIME);
    nb_error_clear();
    assert_non_null(run_model(64));
    assert_int_equal(nb_profile_stop(), NB_OK);
    const char *text = content(path);
    assert_int_equal(text[0], '[');
    assert_non_null(strstr(text, "\"cat\": \"kernel\""));
    assert_non_null(strstr(text, "exp"));
    assert_non_null(strstr(text, "\"name\": \"LLVM\", \"cat\": \"compile\""));
    assert_non_null(strstr(text, "\"name\": \"lower\""));
    assert_non_null(strstr(text, "\"ph\": \"C\""));
    remove(path);
}

static bool called(void *ctx)
{
    nb_tensor *x = nb_scalar_float(1, NB_F32);
    return nb_func_call1(ctx, 1, &x);
}

static void memory_may_run_out(void **state)
{
    (void)state;
    faults f = {.run = called, .ctx = nb_compile(fn(chatty), NULL)};
    listen();
    assert_true(called(f.ctx));
    nb_check_set(true);
    f.keeps = true;
    assert_true(faults_survived(&f));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, open_scope, close_scope)
    const struct CMUnitTest tests[] = {
        TEST(right_code_is_found_right),
        TEST(a_wrong_instruction_is_named),
        TEST(the_first_of_two_is_named),
        TEST(a_wrong_reduction_is_named),
        TEST(memory_that_is_shared_is_found),
        TEST(rounding_that_grows_is_no_fault),
        TEST(lazy_programs_are_compared),
        TEST(donated_inputs_are_compared),
        TEST(a_nan_is_found_where_it_is_made),
        TEST(a_nan_that_is_given_is_nobodys),
        TEST(a_nan_of_the_way_back_is_said_to_be),
        TEST(a_nan_in_a_loop_is_found),
        TEST(indices_out_of_range_fail),
        TEST(values_are_printed),
        TEST(compiled_code_prints_each_time),
        TEST(each_lane_prints),
        TEST(loops_print_each_turn),
        TEST(equal_prints_are_not_one),
        TEST(gradients_print_once),
        TEST(times_are_written),
        TEST(memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
