/* test_placed.c - tensors that lie on meshes, as they print, are drawn and
 * stand in listings; specs of hidden axes; layouts from rules alone. */
#include "nabla/nabla.h"
#include "nabla/rule.h"
#include "support/faults.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int open_scope(void **state)
{
    (void)state;
    return nb_scope_open();
}

static int close_scope(void **state)
{
    (void)state;
    nb_scope_close(0, NULL);
    nb_error_clear();
    return 0;
}

#define L(...) ((int64_t[]){__VA_ARGS__})

static void refused(const void *made, const char *part)
{
    assert_null(made);
    if (nb_error_code() != NB_EVALUE || !strstr(nb_error_message(), part))
        fail_msg("\"%s\" is not in: %s", part, nb_error_message());
    nb_error_clear();
}

static void says(char *text, const char *expected)
{
    if (!text) fail_msg("%s", nb_error_message());
    assert_string_equal(text, expected);
    nb_text_release(text);
}

static const nb_mesh *square(void)
{
    return nb_mesh_new("pod", 2, (const char *[]){"dp", "tp"}, (int[]){2, 2},
                       NULL);
}

/* As expected, but for blocks that another process has: what follows their
 * "shard(1): ", each on a line of its own. */
static void shows(char *text, const char *expected)
{
    char seen[500] = "";
    int position;
    for (size_t n; *expected; expected += n) {
        char line[100];
        n = strcspn(expected, "\n");
        n += expected[n] == '\n';
        snprintf(line, sizeof line, "%.*s", (int)n, expected);
        char *value = strstr(line, ": ");
        if (sscanf(line, " shard(%d)", &position) == 1 &&
            !nb_mesh_is_here(square(), position))
            strcpy(value + 2, "in another process\n");
        strcat(seen, line);
    }
    says(text, seen);
}

static const nb_spec *spec(const char *text)
{
    const nb_spec *s = nb_spec_parse(square(), text);
    if (!s) fail_msg("%s", nb_error_message());
    return s;
}

/* 0, 1, 2, ... */
static nb_tensor *counted(int64_t rows, int64_t columns)
{
    return nb_reshape(nb_arange_int(0, rows * columns, 1, NB_I32), 2,
                      L(rows, columns));
}

/* Printing */

static void blocks_are_printed_with_the_layout(void **state)
{
    (void)state;
    shows(nb_tensor_text(nb_reshard(counted(2, 4), spec("[dp, tp]"))),
          "Tensor([\n"
          "  shard(0): [[0 1]]\n"
          "  shard(1): [[2 3]]\n"
          "  shard(2): [[4 5]]\n"
          "  shard(3): [[6 7]]\n"
          "] : i32[2,4](<dp, tp>)(local=[1,2]))");
    shows(nb_tensor_text(nb_reshard(counted(4, 1), spec("[(tp dp), .]"))),
          "Tensor([\n"
          "  shard(0): [[0]]\n"
          "  shard(1): [[2]]\n"
          "  shard(2): [[1]]\n"
          "  shard(3): [[3]]\n"
          "] : i32[4,1](<(tp, dp), *>)(local=[1,1]))");
}

static void what_all_have_is_printed_once(void **state)
{
    (void)state;
    nb_tensor *x = nb_reshard(counted(2, 2), spec("[dp, .]"));
    says(nb_tensor_text(nb_reshard(x, spec("[., .]"))),
         "Tensor(\n  [[0 1]\n   [2 3]] : i32[2,2](<*, *>)(local=[2,2])\n)");
    nb_tensor *sum = nb_reduce_sum(x, -1, NULL, false);
    says(nb_tensor_text(sum),
         "Tensor(6 : i64[](<> | partial={'dp'})(local=[]))");
    says(nb_spec_text(nb_sharding(sum)),
         "sharding<@pod, [], partial={\"dp\"}>");
    says(nb_tensor_text(nb_reduce_max(x, -1, NULL, false)),
         "Tensor(3 : i32[](<> | partial={'dp'}:max)(local=[]))");
}

static void plain_tensors_print_as_ever(void **state)
{
    (void)state;
    says(nb_tensor_text(counted(1, 2)), "Tensor([[0 1]] : i32[1,2])");
}

/* Pictures */

static char *picture(const char *layout, int rank, const int64_t *size,
                     const char *format)
{
    return nb_sharding_picture(spec(layout), rank, size, format);
}

static void blocks_are_drawn_where_they_are(void **state)
{
    (void)state;
    says(picture("[dp, tp]", 2, L(4, 6), "text"), "@pod [4@dp, 6@tp]\n"
                                                  "┌───┬───┐\n"
                                                  "│ 0 │ 1 │\n"
                                                  "├───┼───┤\n"
                                                  "│ 2 │ 3 │\n"
                                                  "└───┴───┘");
    says(picture("[tp]P{dp}", 1, L(4), "text"), "@pod [4@tp]{P:dp}\n"
                                                "┌─────┬─────┐\n"
                                                "│ 0,2 │ 1,3 │\n"
                                                "└─────┴─────┘");
    says(picture("[]", 0, NULL, "text"), "@pod []\n"
                                         "┌─────┐\n"
                                         "│ 0-3 │\n"
                                         "└─────┘");
    says(picture("[dp, ., .]", 3, L(4, 2, 1), "text"),
         "@pod [4@dp, 2, 1]\n"
         "┌─────┐\n"
         "│ 0,1 │\n"
         "└─────┘\n"
         "the last two dims, of block 1 of 2 of the others");
}

static void a_dim_of_one_element_is_drawn_whole(void **state)
{
    (void)state;
    says(picture("[dp]", 1, L(1), "text"), "@pod [1]\n"
                                           "┌─────┐\n"
                                           "│ 0-3 │\n"
                                           "└─────┘");
}

static void blocks_of_an_svg_are_as_large_as_they_are(void **state)
{
    (void)state;
    char *text = picture("[., tp]", 2, L(3, 3), "svg");
    assert_non_null(text);
    assert_non_null(strstr(text, "width=\"160.0\" height=\"480.0\""));
    assert_non_null(strstr(text, "width=\"320.0\" height=\"480.0\""));
    nb_text_release(text);
    text = picture("[dp]", 1, L(0), "svg");
    assert_non_null(strstr(text, "</svg>"));
    nb_text_release(text);
}

static void pictures_that_are_refused(void **state)
{
    (void)state;
    refused(picture("[dp]", 1, L(4), "pdf"), "no format is called pdf");
    refused(picture("[dp]", 1, L(4), NULL), "no format");
    refused(picture("[dp]", 2, L(4, 4), "text"), "1 dims for a tensor of 2");
}

/* Listings */

static void listings_show_layouts(void **state)
{
    (void)state;
    nb_tensor *x = nb_reshard(nb_cast(counted(4, 2), NB_F32), spec("[dp, .]"));
    assert_int_equal(nb_realize(x), NB_OK);
    nb_set_traced(x, true);
    nb_tensor *y = nb_reshard(nb_sin(x), spec("[., tp]"));
    nb_tensor *z = nb_reduce_sum(y, -1, NULL, false);
    nb_graph *g;
    assert_int_equal(nb_graph_of(1, &x, 1, &z, &g), NB_OK);
    says(nb_graph_text(g),
         "@pod(shape=(2, 2), devices=[0, 1, 2, 3], axes=(dp, tp))\n"
         "fn(\n"
         "  %a1: f32[4@dp,2],\n"
         ") {\n"
         "  spmd @pod(%a1) {\n"
         "    %v1: f32[4@dp,2] = sin(%a1)\n"
         "  }\n"
         "  %v2: f32[4,2@tp] = reshard(%v1, mesh=@pod, spec=<*, tp>)\n"
         "  spmd @pod(%v2) {\n"
         "    %v3: f32[]{P:tp} = reduce_sum(%v2, keepdims=False)\n"
         "  }\n"
         "  return %v3\n"
         "}\n");
    assert_ptr_equal(nb_graph_target(g, 2), spec("[., tp]"));
    assert_null(nb_graph_target(g, 1));
    assert_null(nb_graph_target(g, 99));
    assert_ptr_equal(nb_target_of(y), spec("[., tp]"));
    assert_null(nb_target_of(z));
    nb_graph_free(g);
}

/* Hidden axes */

static nb_status lay_both(void *ctx, int nx, nb_tensor *const *x, int *ny,
                          nb_tensor **y)
{
    (void)ctx, (void)nx;
    says(nb_spec_text(nb_sharding(x[0])), "sharding<@pod, [{\"dp\"}, {}]>");
    nb_tensor *visible = nb_reshard(x[0], spec("[tp]"));
    says(nb_spec_text(nb_sharding(visible)),
         "sharding<@pod, [{\"dp\"}, {\"tp\"}]>");
    assert_ptr_equal(nb_reshard(visible, spec("[tp]")), visible);
    nb_tensor *all = nb_reshard(visible, spec("[tp, dp]"));
    says(nb_spec_text(nb_sharding(all)),
         "sharding<@pod, [{\"tp\"}, {\"dp\"}]>");
    assert_ptr_equal(nb_reshard(all, spec("[tp, dp]")), all);
    refused(nb_reshard(x[0], spec("[tp, ., .]")), "3 dims");
    shows(nb_tensor_text(all), "Tensor([\n"
                               "  shard(0): [[0]]\n"
                               "  shard(1): [[2]]\n"
                               "  shard(2): [[1]]\n"
                               "  shard(3): [[3]]\n"
                               "] : i32[2 | 2](<tp | dp>)(local=[1 | 1]))");
    y[0] = all;
    *ny = 1;
    return NB_OK;
}

static void specs_of_visible_dims_and_of_all(void **state)
{
    (void)state;
    nb_tensor *x = nb_reshard(counted(2, 2), spec("[dp, .]")), *y;
    nb_func *f = nb_vmap(nb_func_new(lay_both, NULL), NULL);
    y = nb_func_call1(f, 1, &x);
    if (!y) fail_msg("%s", nb_error_message());
    says(nb_spec_text(nb_sharding(y)), "sharding<@pod, [{\"tp\"}, {\"dp\"}]>");
    int32_t out[4];
    assert_int_equal(nb_read(y, NB_NOTYPE, out), NB_OK);
    assert_memory_equal(out, ((int32_t[]){0, 1, 2, 3}), sizeof out);
}

static void laid_out_like_another(void **state)
{
    (void)state;
    nb_tensor *x = nb_reshard(counted(4, 2), spec("[dp, tp]"));
    nb_tensor *y = nb_reshard_like(counted(4, 2), x);
    assert_ptr_equal(nb_sharding(y), nb_sharding(x));
    assert_ptr_equal(nb_reshard_like(y, x), y);
    nb_tensor *plain = counted(4, 2);
    assert_ptr_equal(nb_reshard_like(plain, plain), plain);
    assert_null(nb_reshard_like(plain, NULL));
    assert_null(nb_reshard_like(NULL, x));
    assert_null(nb_sharding(NULL));
}

static void meshes_of_other_devices_are_refused_at_the_call(void **state)
{
    (void)state;
    const nb_mesh *m =
        nb_mesh_new("big", 1, (const char *[]){"x"}, (int[]){16}, NULL);
    nb_tensor *x = nb_reshard(counted(4, 2), spec("[dp, tp]"));
    refused(nb_reshard(x, nb_spec_parse(m, "[x, .]")),
            "meshes @pod and @big have different devices");
    nb_tensor *y = nb_reshard(counted(4, 2), nb_spec_parse(m, "[x, .]"));
    refused(nb_add(x, y), "operands lie on two meshes, @pod and @big");
    bool last = nb_distributed_rank() == nb_distributed_size() - 1;
    assert_int_equal(nb_mesh_is_here(m, 15), last);
    assert_false(nb_mesh_is_here(m, 16));
    assert_false(nb_mesh_is_here(m, -1));
}

static void a_number_can_be_placed(void **state)
{
    (void)state;
    nb_tensor *x = nb_reshard(nb_scalar_float(2.5, NB_F32), spec("[]"));
    assert_true(nb_item(x) == 2.5);
}

/* Rules */

static nb_rule *rule(const char *text, int nin, const nb_rule_shape *in)
{
    nb_rule *r = nb_rule_new(nb_rule_parse(text), nin, in, 1, NULL);
    if (!r) fail_msg("%s", nb_error_message());
    return r;
}

static nb_rule *matmul(void)
{
    return rule("m k, k n -> m n", 2,
                (nb_rule_shape[]){{2, L(4, 8)}, {2, L(8, 16)}});
}

static void results_lie_as_rules_say(void **state)
{
    (void)state;
    nb_rule *r = matmul();
    const nb_spec *need[2], *give[1];
    const nb_spec *in[] = {spec("[dp, tp]"), NULL};
    assert_int_equal(nb_rule_resolve(r, square(), in, need, give), NB_OK);
    assert_ptr_equal(give[0], spec("[dp, .]P{tp}"));
    assert_ptr_equal(need[0], spec("[dp, tp]"));
    assert_ptr_equal(need[1], spec("[tp, .]"));
    nb_rule_free(r);
    r = rule("a k -> a; max{k}", 1, (nb_rule_shape[]){{2, L(4, 8)}});
    in[0] = spec("[., tp]");
    assert_int_equal(nb_rule_resolve(r, square(), in, NULL, give), NB_OK);
    assert_ptr_equal(give[0], spec("[.]Pmax{tp}"));
    in[0] = spec("[dp]");
    assert_int_equal(nb_rule_resolve(r, square(), in, NULL, give), NB_EVALUE);
    refused(NULL, "1 dims for tensor 0 of 2 dims");
    nb_rule_free(r);
}

static void factors_that_stay_split_and_that_do_not(void **state)
{
    (void)state;
    static const struct {
        const char *rule, *give;
    } rows[] = {{"a r -> a r; permute{r}", "[., tp]"},
                {"a r -> a r; scan{r}", "[., tp]"},
                {"a r -> a r; replicate{r}", "[tp, .]"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const nb_spec *give, *in = spec("[., tp]");
        nb_rule_shape shape = {2, L(4, 8)};
        nb_rule *r =
            nb_rule_new(nb_rule_parse(rows[i].rule), 1, &shape, 1, &shape);
        if (!r) fail_msg("%s", nb_error_message());
        assert_int_equal(nb_rule_resolve(r, square(), &in, NULL, &give), NB_OK);
        if (!nb_spec_same_layout(give, spec(rows[i].give)))
            fail_msg("%s: %s", rows[i].rule, nb_spec_text(give));
        nb_rule_free(r);
    }
}

static void open_dims_get_what_runs_along(void **state)
{
    (void)state;
    nb_rule *r = matmul();
    bool changed;
    const nb_spec *s[] = {NULL, spec("[?, .]"), spec("[dp, tp]")};
    assert_int_equal(nb_rule_propagate(r, square(), -1, s, &changed), NB_OK);
    assert_true(changed);
    assert_ptr_equal(s[0], spec("[dp?, ?]"));
    assert_ptr_equal(s[1], spec("[?, .]")); /* its last dim is closed */
    assert_ptr_equal(s[2], spec("[dp, tp]"));
    assert_int_equal(nb_rule_propagate(r, square(), -1, s, &changed), NB_OK);
    assert_false(changed);
    nb_rule_free(r);
}

static void what_is_needed_whole_does_not_spread(void **state)
{
    (void)state;
    nb_rule_shape shape = {2, L(4, 8)};
    nb_rule *r = nb_rule_new(nb_rule_parse("a r -> a r; replicate{r}"), 1,
                             &shape, 1, &shape);
    bool changed;
    const nb_spec *s[] = {spec("[., tp]"), spec("[?, ?]")};
    assert_int_equal(nb_rule_propagate(r, square(), -1, s, &changed), NB_OK);
    assert_false(changed);
    nb_rule_free(r);
}

static void axes_that_a_tensor_cannot_have_stay_away(void **state)
{
    (void)state;
    nb_rule *r = rule("a b -> a b", 1, (nb_rule_shape[]){{2, L(4, 8)}});
    bool changed;
    const nb_spec *s[] = {spec("[dp, tp]"), spec("[?, ?]R{dp}")};
    assert_int_equal(nb_rule_propagate(r, square(), -1, s, &changed), NB_OK);
    assert_ptr_equal(s[1], spec("[?, tp?]R{dp}"));
    const nb_spec *used[] = {spec("[dp, .]"), spec("[?, dp]")};
    assert_int_equal(nb_rule_propagate(r, square(), -1, used, &changed), NB_OK);
    assert_ptr_equal(used[1], spec("[?, dp]"));
    nb_rule_free(r);
}

static void priorities_come_one_after_the_other(void **state)
{
    (void)state;
    nb_rule *r = rule("a b -> a b", 1, (nb_rule_shape[]){{2, L(4, 8)}});
    bool changed;
    const nb_spec *s[] = {spec("[dp, tp p1]"), spec("[?, ?]")};
    assert_int_equal(nb_rule_propagate(r, square(), 0, s, &changed), NB_OK);
    assert_ptr_equal(s[1], spec("[dp?, ?]"));
    assert_int_equal(nb_rule_propagate(r, square(), 1, s, &changed), NB_OK);
    assert_ptr_equal(s[1], spec("[dp?, tp?]"));
    assert_ptr_equal(s[0], spec("[dp, tp p1]"));
    nb_rule_free(r);
}

/* Faults: the n-th allocation fails. */

static bool draw(void)
{
    char *text = picture("[dp, tp]", 2, L(4, 4), "svg");
    nb_text_release(text);
    return text;
}

static bool print(void)
{
    nb_scope_open();
    nb_tensor *x = nb_reshard(counted(2, 2), spec("[dp, .]P{tp}"));
    char *text = x ? nb_tensor_text(x) : NULL;
    nb_text_release(text);
    nb_scope_close(0, NULL);
    return text;
}

static bool propagate(void)
{
    nb_rule_shape in[] = {{2, L(4, 8)}, {2, L(8, 16)}};
    nb_rule *r = nb_rule_new(nb_rule_parse("m k, k n -> m n"), 2, in, 1, NULL);
    const nb_spec *s[] = {NULL, spec("[?, .]"), spec("[dp, tp]")}, *give;
    bool changed,
        ok = r && nb_rule_propagate(r, square(), -1, s, &changed) == NB_OK &&
             nb_rule_resolve(r, square(), s, NULL, &give) == NB_OK;
    nb_rule_free(r);
    return ok;
}

static bool run_pointed_to(void *ctx)
{
    bool (*const *run)(void) = ctx;
    return (*run)();
}

static void faults_are_errors_and_leave_nothing(void **state)
{
    static bool (*all[])(void) = {draw, print, propagate};
    (void)state;
    if (nb_distributed_size() > 1) skip(); /* test_mpi.c has those of a rank */
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        faults f = {run_pointed_to, &all[i], .bare = true, .keeps = true};
        assert_true(all[i]());
        nb_caches_clear();
        int64_t live = nb_stats_get().nodes_live;
        assert_true(faults_survived(&f) && f.n < 4000);
        nb_caches_clear(); /* of programs over the mesh */
        assert_int_equal(nb_stats_get().nodes_live, live);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_scope, close_scope)

/* The same program from several threads: the second run compiles it while the
 * first may still be on its way. */
static void *thread_runs(void *wrong)
{
    if (nb_scope_open() != NB_OK) return NULL;
    for (int i = 0; i < 8; i++) {
        const nb_mesh *m = nb_mesh_parse("@m = <[\"x\"=4]>");
        int64_t n = 40 + 4 * i;
        nb_tensor *x = nb_arange_int(0, n, 1, NB_F64);
        x = nb_reshard(x, nb_spec_parse(m, "[x]"));
        double sum = nb_item(nb_reduce_sum(nb_mul(x, x), -1, NULL, false));
        double is = (double)((n - 1) * n * (2 * n - 1) / 6);
        if (sum != is) atomic_fetch_add((atomic_int *)wrong, 1);
    }
    nb_scope_close(0, NULL);
    return NULL;
}

static void threads_may_share_a_program(void **state)
{
    pthread_t thread[4];
    atomic_int wrong = 0;
    (void)state;
    if (nb_distributed_size() > 1) skip(); /* ranks have the same order */
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, thread_runs, &wrong),
                         0);
    for (int i = 0; i < 4; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(blocks_are_printed_with_the_layout),
        TEST(what_all_have_is_printed_once),
        TEST(plain_tensors_print_as_ever),
        TEST(blocks_are_drawn_where_they_are),
        TEST(a_dim_of_one_element_is_drawn_whole),
        TEST(blocks_of_an_svg_are_as_large_as_they_are),
        TEST(pictures_that_are_refused),
        TEST(listings_show_layouts),
        TEST(specs_of_visible_dims_and_of_all),
        TEST(laid_out_like_another),
        TEST(meshes_of_other_devices_are_refused_at_the_call),
        TEST(a_number_can_be_placed),
        TEST(results_lie_as_rules_say),
        TEST(factors_that_stay_split_and_that_do_not),
        TEST(open_dims_get_what_runs_along),
        TEST(what_is_needed_whole_does_not_spread),
        TEST(axes_that_a_tensor_cannot_have_stay_away),
        TEST(priorities_come_one_after_the_other),
        TEST(faults_are_errors_and_leave_nothing),
        TEST(threads_may_share_a_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
