/* test_engine.c - how tensors behave: scopes, errors, laziness, history,
 * dtypes, views, sources, shelves.  Sentences with the expected value on the page. */
#include "base/memory.h"
#include "core/tensor.h"
#include "nabla/nabla.h"
#include "run/shelf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

static nb_tensor *vector(int64_t n, const float *v)
{
    return nb_constant(NB_F32, 1, &n, v);
}

static const float one_two_three[] = {1, 2, 3};

static int open_scope(void **state)
{
    (void)state;
    return nb_scope_open() != NB_OK;
}

static int close_scope(void **state)
{
    (void)state;
    nb_error_clear();
    nb_scope_close(0, NULL);
    nb_caches_clear();
    return nb_nodes_live() != 0;
}

static void expect_error(nb_status code, const char *part)
{
    assert_int_equal(nb_error_code(), code);
    if (!strstr(nb_error_message(), part))
        fail_msg("\"%s\" is not in \"%s\"", part, nb_error_message());
    nb_error_clear();
}

static void an_op_is_lazy_and_knows_its_shape(void **state)
{
    (void)state;
    nb_tensor *y = nb_add(vector(3, one_two_three), nb_num(1));
    assert_false(nb_is_realized(y));
    assert_int_equal(nb_rank(y), 1);
    assert_int_equal(nb_size(y, -1), 3);
    assert_int_equal(nb_dtype_of(y), NB_F32);
    assert_true(nb_item(nb_reduce_sum(y, -1, NULL, false)) == 9);
}

static void a_realised_tensor_forgets_how_it_was_made(void **state)
{
    (void)state;
    nb_tensor *y = nb_exp(vector(3, one_two_three));
    assert_string_equal(nb_op_name_of(y), "exp");
    assert_false(nb_is_leaf(y));
    assert_int_equal(nb_realize(y), NB_OK);
    assert_true(nb_is_leaf(y));
    assert_string_equal(nb_op_name_of(y), "");
}

static void a_traced_tensor_remembers(void **state)
{
    (void)state;
    nb_tensor *x = vector(3, one_two_three);
    nb_set_traced(x, true);
    nb_tensor *y = nb_exp(x);
    assert_true(nb_is_traced(y));
    nb_realize(y);
    assert_string_equal(nb_op_name_of(y), "exp");
    assert_false(nb_is_traced(nb_detach(y)));
}

static void a_loop_of_realised_steps_does_not_grow(void **state)
{
    (void)state;
    nb_tensor *x = nb_keep(vector(3, one_two_three));
    int64_t before = nb_nodes_live();
    for (int i = 0; i < 100; i++) {
        nb_scope_open();
        nb_tensor *y = nb_keep(nb_mul(x, nb_num(0.5)));
        nb_realize(y);
        nb_drop(x);
        x = y;
        nb_scope_close(0, NULL);
    }
    assert_true(nb_nodes_live() <= before + 1);
    nb_drop(x);
}

/* Deeper than any stack of calls would be. */
static void a_long_chain_is_realised_and_freed(void **state)
{
    (void)state;
    nb_tensor *x = nb_scalar_float(0, NB_F32);
    for (int i = 0; i < 200000; i++)
        x = nb_add(x, nb_num(1));
    assert_true(nb_item(x) == 200000);
}

static void null_in_gives_null_out_and_keeps_the_first_cause(void **state)
{
    (void)state;
    nb_tensor *x = vector(3, one_two_three), *y = vector(2, one_two_three);
    assert_null(nb_tanh(nb_add(nb_add(x, y), nb_matmul(x, NULL))));
    expect_error(NB_EVALUE, "add: shapes (3,) and (2,) do not fit");
}

static void nothing_is_watched_of_what_failed(void **state)
{
    (void)state;
    nb_tensor *x[] = {vector(3, one_two_three), NULL};
    assert_false(nb_is_watched(2, x));
    assert_false(nb_is_watched(1, x + 1));
}

static void elements_are_read_as_a_dtype(void **state)
{
    (void)state;
    float got[3] = {0};
    nb_tensor *x = vector(3, one_two_three);
    assert_int_equal(nb_read(x, (nb_dtype)77, got), NB_ETYPE);
    expect_error(NB_ETYPE, "read: 77 is not a dtype");
    assert_int_equal(nb_read(x, (nb_dtype)-1, got), NB_ETYPE);
    expect_error(NB_ETYPE, "read: -1 is not a dtype");
    assert_int_equal(nb_read(x, NB_NOTYPE, got), NB_OK);
    assert_memory_equal(got, one_two_three, sizeof got);
}

static void realising_nothing_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(nb_realize(NULL), NB_EVALUE);
    expect_error(NB_EVALUE, "NULL");
}

static void an_op_without_a_scope_says_so(void **state)
{
    (void)state;
    nb_scope_close(0, NULL);
    assert_null(nb_num(1));
    expect_error(NB_ERUNTIME, "nb_scope_open");
    nb_scope_open();
}

static void a_scope_hands_results_to_the_one_around_it(void **state)
{
    (void)state;
    nb_tensor *y;
    nb_scope_open();
    y = nb_add(vector(3, one_two_three), nb_num(1));
    nb_scope_close(1, &y);
    assert_true(nb_item(nb_reduce_max(y, -1, NULL, false)) == 4);
}

static void sizes_that_overflow_are_refused(void **state)
{
    int64_t big[] = {INT64_C(1) << 32, INT64_C(1) << 32};
    (void)state;
    assert_null(nb_broadcast_to(nb_scalar_float(0, NB_F32), 2, big));
    expect_error(NB_EOVERFLOW, "more bytes than an int64 can count");
    assert_null(nb_constant(NB_F32, 17, big, NULL));
    expect_error(NB_EVALUE, "rank 17");
    assert_null(nb_constant(NB_F32, 1, (int64_t[]){-1}, NULL));
    expect_error(NB_EVALUE, "size -1");
    assert_null(nb_constant((nb_dtype)77, 0, NULL, NULL));
    expect_error(NB_ETYPE, "77");
}

/* Memory that cannot be had is an error, and what was there stays usable. */
static void absurd_results_fail_when_realised(void **state)
{
    int64_t big[] = {INT64_C(1) << 50};
    (void)state;
    nb_tensor *y =
        nb_add(nb_broadcast_to(nb_scalar_float(0, NB_F32), 1, big), nb_num(1));
    assert_non_null(y);
    assert_int_equal(nb_realize(y), NB_EMEMORY);
    expect_error(NB_EMEMORY, "out of memory");
    assert_true(nb_item(nb_add(nb_num(1), nb_num(2))) == 3);
}

static void numbers_take_the_dtype_they_meet(void **state)
{
    (void)state;
    nb_tensor *f16 = nb_scalar_float(1, NB_F16), *i8 = nb_scalar_int(1, NB_I8);
    nb_tensor *b = nb_scalar_int(1, NB_BOOL);
    assert_int_equal(nb_dtype_of(nb_add(f16, nb_num(2))), NB_F16);
    assert_int_equal(nb_dtype_of(nb_add(f16, nb_count(2))), NB_F16);
    assert_int_equal(nb_dtype_of(nb_add(i8, nb_count(2))), NB_I8);
    assert_int_equal(nb_dtype_of(nb_add(i8, nb_num(2))), NB_F32);
    assert_int_equal(nb_dtype_of(nb_add(b, nb_count(2))), NB_I64);
    assert_int_equal(nb_dtype_of(nb_add(b, nb_truth(true))), NB_BOOL);
    assert_int_equal(nb_dtype_of(nb_add(nb_count(1), nb_count(2))), NB_I64);
    assert_int_equal(nb_dtype_of(nb_div(nb_count(1), nb_count(2))), NB_F32);
    assert_null(nb_add(i8, nb_count(200)));
    expect_error(NB_EOVERFLOW, "200 does not fit int8");
}

static void dtypes_combine_as_tabled(void **state)
{
    static const struct {
        nb_dtype a, b, both;
    } table[] = {{NB_BOOL, NB_I8, NB_I8},  {NB_I8, NB_I32, NB_I32},
                 {NB_U8, NB_U16, NB_U16},  {NB_U8, NB_I8, NB_I16},
                 {NB_U16, NB_I32, NB_I32}, {NB_U32, NB_I8, NB_I64},
                 {NB_I64, NB_F16, NB_F16}, {NB_F16, NB_BF16, NB_F32},
                 {NB_F32, NB_F64, NB_F64}, {NB_U64, NB_F32, NB_F32},
                 {NB_BOOL, NB_U64, NB_U64}};
    (void)state;
    for (size_t k = 0; k < sizeof table / sizeof table[0]; k++) {
        assert_int_equal(nb_dtype_promote(table[k].a, table[k].b),
                         table[k].both);
        assert_int_equal(nb_dtype_promote(table[k].b, table[k].a),
                         table[k].both);
    }
    assert_int_equal(nb_dtype_promote(NB_U64, NB_I8), NB_NOTYPE);
    expect_error(NB_ETYPE, "uint64 does not combine with int8");
    assert_false(nb_dtype_can_cast(NB_U64, NB_I64));
    assert_int_equal(nb_error_code(), NB_OK);
}

static void views_share_the_buffer(void **state)
{
    float v[6] = {1, 2, 3, 4, 5, 6};
    int64_t stride[2];
    (void)state;
    nb_tensor *x = nb_constant(NB_F32, 2, (int64_t[]){2, 3}, v);
    nb_tensor *t = nb_permute(x, 2, (int64_t[]){1, 0});
    assert_ptr_equal(nb_data(t, stride), nb_data(x, NULL));
    assert_int_equal(stride[0], 1);
    assert_int_equal(stride[1], 3);
    float flat[6];
    assert_int_equal(nb_read(t, NB_F32, flat), NB_OK);
    assert_memory_equal(flat, ((float[]){1, 4, 2, 5, 3, 6}), sizeof flat);
}

static int releases;
static void release(void *owner)
{
    releases += owner == (void *)&releases;
}

static void borrowed_memory_is_released_once(void **state)
{
    static float v[4] = {1, 2, 3, 4};
    (void)state;
    releases = 0;
    nb_scope_open();
    nb_tensor *x = nb_borrow(NB_F32, 2, (int64_t[]){2, 2}, (int64_t[]){1, 2}, v,
                             release, &releases);
    nb_tensor *row = nb_keep(nb_reduce_sum(x, 1, (int64_t[]){1}, false));
    nb_realize(row);
    nb_scope_close(0, NULL);
    assert_int_equal(releases, 1);
    float sums[2];
    nb_read(row, NB_F32, sums);
    assert_memory_equal(sums, ((float[]){4, 6}), sizeof sums);
    nb_drop(row);
}

static void elements_need_memory(void **state)
{
    (void)state;
    releases = 0;
    assert_null(nb_borrow(NB_F32, 2, (int64_t[]){2, 3}, NULL, NULL, release,
                          &releases));
    expect_error(NB_EVALUE, "borrow: the data of shape (2, 3) is NULL");
    assert_null(nb_borrow(NB_F32, 0, NULL, NULL, NULL, release, &releases));
    expect_error(NB_EVALUE, "borrow: the data of shape () is NULL");
    assert_null(nb_constant(NB_F32, 1, (int64_t[]){3}, NULL));
    expect_error(NB_EVALUE, "constant: the data of shape (3,) is NULL");
    assert_int_equal(releases, 0);
    nb_scope_open();
    assert_non_null(nb_borrow(NB_F32, 2, (int64_t[]){0, 3}, NULL, NULL, release,
                              &releases));
    nb_scope_close(0, NULL);
    assert_int_equal(releases, 1);
}

static nb_tensor *from_here(nb_tensor *x)
{
    return nb_exp(x);
}

static void a_node_knows_the_place_that_made_it(void **state)
{
    (void)state;
    nb_tensor *x = nb_scalar_float(0, NB_F32);
    nb_source_set("model.py", 12);
    assert_string_equal(nb_source_of(nb_exp(x)), "model.py:12");
    nb_tensor *composite = nb_mean(x, -1, NULL, false);
    assert_string_equal(nb_source_of(composite), "model.py:12");
    nb_source_set(NULL, 0);
    assert_true(*nb_source_of(from_here(x)) != '\0');
}

static void empty_and_scalar_tensors_work(void **state)
{
    (void)state;
    nb_tensor *none = nb_constant(NB_F32, 2, (int64_t[]){0, 3}, NULL);
    assert_int_equal(nb_realize(nb_exp(none)), NB_OK);
    assert_true(nb_item(nb_reduce_sum(none, -1, NULL, false)) == 0);
    nb_tensor *w = nb_constant(NB_F32, 2, (int64_t[]){3, 0}, NULL);
    float zero[9];
    nb_tensor *product = nb_matmul(w, none);
    assert_int_equal(nb_read(product, NB_F32, zero), NB_OK);
    for (int i = 0; i < 9; i++)
        assert_true(zero[i] == 0);
    assert_null(nb_reduce_max(none, -1, NULL, false));
    expect_error(NB_EVALUE, "reduce_max");
    assert_true(isnan(nb_item(nb_mean(none, -1, NULL, false))));
}

static void a_wrong_listing_is_refused_with_its_line(void **state)
{
    nb_graph *g;
    (void)state;
    assert_int_equal(nb_graph_parse("fn(\n  %a1: f32[2],\n) {\n  %v1: f32[3] "
                                    "= sin(%a1)\n  return %v1\n}\n",
                                    &g),
                     NB_EVALUE);
    expect_error(NB_EVALUE, "sin");
    assert_int_equal(nb_graph_parse("fn(\n) {\n  %v1: f32[] = nope()\n", &g),
                     NB_EVALUE);
    expect_error(NB_EVALUE, "line 3");
    assert_int_equal(nb_graph_parse("fn(\n  %a1: f32[2],\n) {\n  return "
                                    "%v7\n}\n",
                                    &g),
                     NB_EVALUE);
    expect_error(NB_EVALUE, "an earlier line");
}

/* What failed to be made, handed on: the first cause stays. */
static void a_graph_that_is_none_is_empty(void **state)
{
    nb_graph *g = NULL;
    nb_line_info line;
    nb_arg arg;
    nb_value value;
    (void)state;
    assert_int_equal(nb_graph_parse("fun", &g), NB_EVALUE);
    assert_int_equal(nb_graph_calls(g) + nb_graph_inputs(g), 0);
    assert_int_equal(nb_graph_results(g) + nb_graph_lines(g), 0);
    assert_int_equal(nb_graph_result(g, 0), -1);
    assert_false(nb_graph_line(g, 0, &line));
    assert_false(nb_graph_attr(g, 0, 0, &arg, &value));
    assert_null(nb_graph_region(g, 0, 0));
    assert_null(nb_graph_region_name(g, 0, 0));
    assert_string_equal(nb_graph_source(g, 0), "");
    assert_null(nb_graph_value(g, 0));
    assert_null(nb_graph_text(g));
    assert_null(nb_graph_type_text(g, 0));
    assert_null(nb_graph_number_text(g, 0));
    assert_int_equal(nb_graph_hash(g), 0);
    assert_true(isnan(nb_graph_flops(g)));
    assert_int_equal(nb_graph_check(g), NB_EVALUE);
    assert_int_equal(nb_graph_run(g, 0, NULL, NULL), NB_EVALUE);
    nb_graph_free(g);
    expect_error(NB_EVALUE, "expected fn");
}

static nb_status refusing(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx, (void)x, (void)ny, (void)y;
    nb_error_raise(NB_EKEY, "not today");
    return NB_EKEY;
}

static void an_executable_that_is_none_does_nothing(void **state)
{
    nb_executable *e = NULL;
    nb_explanation *of = NULL;
    nb_explain_row row;
    nb_tensor *x = vector(3, one_two_three), *y;
    int ny = 1, loops = 1;
    (void)state;
    nb_func *f = nb_func_new(refusing, NULL);
    assert_int_equal(nb_executable_new(f, 1, &x, &e), NB_EKEY);
    assert_null(nb_executable_keep(e));
    assert_int_equal(nb_executable_load(e), NB_EKEY);
    assert_string_equal(nb_executable_fixed(e), "");
    assert_string_equal(nb_executable_trouble(e), "");
    assert_false(nb_executable_takes(e, 0, x) || nb_executable_is_small(e));
    assert_int_equal(nb_executable_run(e, 1, &x, &ny, &y), NB_EKEY);
    assert_int_equal(nb_executable_donate(e, 0, NULL), NB_EKEY);
    assert_null(nb_executable_text(e, "plan"));
    assert_int_equal(nb_executable_results(e), 0);
    assert_int_equal(nb_executable_steps(e, &loops) + loops, 0);
    assert_true(isnan(nb_executable_flops(e)));
    assert_int_equal(nb_executable_memory(e).peak, 0);
    assert_int_equal(nb_executable_explain(e, &of), NB_EKEY);
    assert_int_equal(nb_executable_budget(e, 1), NB_EKEY);
    assert_int_equal(nb_explanation_rows(of), 0);
    assert_false(nb_explanation_row(of, 0, &row));
    assert_int_equal(nb_explanation_total(of, NULL, NULL), 0);
    assert_null(nb_explanation_text(of));
    nb_explanation_drop(of);
    nb_executable_drop(e);
    expect_error(NB_EKEY, "not today");
}

static void an_op_that_is_none_has_no_name(void **state)
{
    nb_op *op = nb_op_find("no_such_op");
    nb_arg arg;
    (void)state;
    assert_null(nb_op_name(op));
    assert_string_equal(nb_op_doc(op), "");
    assert_string_equal(nb_op_example(op), "");
    assert_string_equal(nb_op_signature(op), "");
    assert_string_equal(nb_op_params(op), "");
    assert_int_equal(nb_op_results(op), 0);
    assert_false(nb_op_is_public(op) || nb_op_arg(op, 0, &arg));
}

static void equal_programs_have_equal_hashes(void **state)
{
    nb_graph *a, *b, *c;
    (void)state;
    nb_tensor *x = vector(3, one_two_three), *y = vector(3, one_two_three);
    nb_tensor *fx = nb_mul(nb_exp(x), nb_num(2));
    nb_tensor *fy = nb_mul(nb_exp(y), nb_num(2));
    nb_tensor *gy = nb_mul(nb_exp(y), nb_num(3));
    nb_graph_of(1, &x, 1, &fx, &a);
    nb_graph_of(1, &y, 1, &fy, &b);
    nb_graph_of(1, &y, 1, &gy, &c);
    assert_true(nb_graph_hash(a) == nb_graph_hash(b));
    assert_true(nb_graph_hash(a) != nb_graph_hash(c));
    nb_graph_free(a);
    nb_graph_free(b);
    nb_graph_free(c);
}

static int gone;

static void note_gone(void *it)
{
    gone = *(int *)it;
}

static void a_shelf_lets_go_of_what_was_used_longest_ago(void **state)
{
    int thing[] = {1, 2, 3, 4};
    nb_shelf s = {PTHREAD_MUTEX_INITIALIZER, NULL, 2, note_gone};
    (void)state;
    nb_shelved *first = nb_shelf_put(&s, 10, &thing[0], true);
    nb_shelf_return(&s, nb_shelf_put(&s, 20, &thing[1], true));
    nb_shelved *again = nb_shelf_take(&s, 10);
    assert_ptr_equal(again, first);
    nb_shelf_return(&s, again);
    nb_shelf_return(&s, nb_shelf_put(&s, 30, &thing[2], true));
    assert_int_equal(gone, 2);
    assert_null(nb_shelf_take(&s, 20));
    nb_shelved *equal = nb_shelf_put(&s, 10, &thing[3], true);
    assert_ptr_equal(equal, first); /* who was first with it */
    assert_int_equal(gone, 4);
    nb_shelf_return(&s, equal);
    nb_shelf_clear(&s);
    assert_int_equal(gone, 3);
    nb_shelf_return(&s, first); /* was held all the time */
    assert_int_equal(gone, 1);
}

static void the_block_cache_gives_memory_back(void **state)
{
    (void)state;
    size_t before = nb_memory_in_use();
    nb_scope_open();
    nb_realize(nb_exp(
        nb_broadcast_to(nb_scalar_float(0, NB_F32), 1, (int64_t[]){1 << 20})));
    assert_true(nb_memory_in_use() >= before + (4 << 20));
    nb_scope_close(0, NULL);
    assert_true(nb_memory_in_use() == before);
    nb_memory_trim();
}

#define SENTENCE(f) cmocka_unit_test_setup_teardown(f, open_scope, close_scope)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SENTENCE(an_op_is_lazy_and_knows_its_shape),
        SENTENCE(a_realised_tensor_forgets_how_it_was_made),
        SENTENCE(a_traced_tensor_remembers),
        SENTENCE(a_loop_of_realised_steps_does_not_grow),
        SENTENCE(a_long_chain_is_realised_and_freed),
        SENTENCE(null_in_gives_null_out_and_keeps_the_first_cause),
        SENTENCE(nothing_is_watched_of_what_failed),
        SENTENCE(elements_are_read_as_a_dtype),
        SENTENCE(realising_nothing_is_an_error),
        SENTENCE(an_op_without_a_scope_says_so),
        SENTENCE(a_scope_hands_results_to_the_one_around_it),
        SENTENCE(sizes_that_overflow_are_refused),
        SENTENCE(absurd_results_fail_when_realised),
        SENTENCE(numbers_take_the_dtype_they_meet),
        SENTENCE(dtypes_combine_as_tabled),
        SENTENCE(views_share_the_buffer),
        SENTENCE(borrowed_memory_is_released_once),
        SENTENCE(elements_need_memory),
        SENTENCE(a_node_knows_the_place_that_made_it),
        SENTENCE(empty_and_scalar_tensors_work),
        SENTENCE(a_wrong_listing_is_refused_with_its_line),
        SENTENCE(a_graph_that_is_none_is_empty),
        SENTENCE(an_executable_that_is_none_does_nothing),
        SENTENCE(an_op_that_is_none_has_no_name),
        SENTENCE(equal_programs_have_equal_hashes),
        SENTENCE(a_shelf_lets_go_of_what_was_used_longest_ago),
        SENTENCE(the_block_cache_gives_memory_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
