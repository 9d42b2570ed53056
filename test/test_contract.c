/* test_contract.c - what the laws do not say of products: forms of matmul, the
 * subscripts of einsum, pairs of axes, every dtype, nothing to sum, refusals.
 */
#include "ops/contract.h"
#include "support/forms.h"
#include "support/sample.h"
#include "support/sentence.h"
#include "support/there.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define L(...) ((int64_t[]){__VA_ARGS__})

static nb_tensor *counting(nb_dtype d, int rank, const int64_t *size)
{
    double v[64];
    for (int i = 0; i < 64; i++)
        v[i] = i + 1;
    return nb_cast(given(NB_F64, rank, size, v), d);
}

/* matmul */

static void test_matmul_takes_a_vector_for_a_row_or_a_column(void **s)
{
    (void)s;
    form_holds("matmul([1, 2], [3, 4]) = 11");
    form_holds("matmul([[1, 2], [3, 4]], [5, 6]) = [17, 39]");
    form_holds("matmul([5, 6], [[1, 2], [3, 4]]) = [23, 34]");
    form_holds("matmul([1, 2], [[[1], [2]], [[3], [4]]]) = [[5], [11]]");
    form_holds("matmul([[[1, 2]], [[3, 4]]], [1, 2]) = [[5], [11]]");
}

static void test_matmul_broadcasts_leading_axes(void **s)
{
    (void)s;
    form_holds("matmul([[[1, 2]], [[3, 4]]], [[1], [2]]) = [[[5]], [[11]]]");
    form_holds("matmul([[1, 2]], [[[1], [2]], [[3], [4]]]) = [[[5]], [[11]]]");
    form_holds("matmul([[[[1, 2]]], [[[0, 1]]]], [[[1], [2]], [[3], [4]]]) = "
               "[[[[5]], [[11]]], [[[2]], [[4]]]]");
}

static void test_every_form_of_matmul_derives(void **s)
{
    (void)s;
    form_derives("matmul([1., 2.], [3., 4.]) = 0");
    form_derives("matmul([1., 2.], [[[1.], [2.]], [[3.], [4.]]]) = 0");
    form_derives("matmul([[[1., 2.]], [[3., 4.]]], [1., 2.]) = 0");
    form_derives("matmul([[[1., 2.]], [[3., 4.]]], [[1.], [2.]]) = 0");
    form_derives("matmul([[[[1., 2.]]], [[[0., 1.]]]], [[[1.], [2.]], [[3.], "
                 "[4.]]]) = 0");
}

static void test_matmul_names_the_shapes_that_do_not_fit(void **s)
{
    (void)s;
    form_fails("matmul([[1, 2]], [[1, 2]])", NB_EVALUE,
               "matmul: shapes (1, 2) and (1, 2) do not fit: axis of size 2 "
               "meets axis of size 1 (... m k, ... k n -> ... m n)");
    form_fails("matmul([1, 2], [1, 2, 3])", NB_EVALUE, "(k, k -> ...)");
    form_fails("matmul(2, [1, 2])", NB_EVALUE, "shapes () and (2,)");
    form_fails("matmul([1, 2], 2)", NB_EVALUE, "scalar");
    form_fails("matmul([[[1]], [[1]]], [[[1]], [[1]], [[1]]])", NB_EVALUE,
               "axis of size 2 meets axis of size 3");
}

static void test_products_of_nothing_are_zeros(void **s)
{
    nb_tensor *x = nb_zeros(2, L(2, 0), NB_F32);
    nb_tensor *y = nb_matmul(x, nb_zeros(2, L(0, 3), NB_F32));
    double v[6];
    (void)s;
    has_shape(y, 2, L(2, 3));
    assert_int_equal(nb_read(y, NB_F64, v), NB_OK);
    for (int i = 0; i < 6; i++)
        assert_true(v[i] == 0);
    has_shape(
        nb_matmul(nb_zeros(2, L(0, 2), NB_F32), counting(NB_F32, 1, L(2))), 1,
        L(0));
}

static void test_every_dtype_multiplies_in_itself(void **s)
{
    (void)s;
    for (nb_dtype d = NB_NOTYPE + 1; d < NB_NDTYPES; d++) {
        nb_tensor *x = counting(d, 2, L(2, 2));
        nb_tensor *y = nb_matmul(x, x), *z = nb_contract(x, x, "a b, a b ->");
        double v[4], sum;
        assert_int_equal(nb_dtype_of(y), d);
        assert_int_equal(nb_dtype_of(z), d);
        assert_int_equal(nb_read(y, NB_F64, v), NB_OK);
        assert_int_equal(nb_read(z, NB_F64, &sum), NB_OK);
        assert_true(v[0] == (d == NB_BOOL ? 1 : 7));
        assert_true(v[3] == (d == NB_BOOL ? 1 : 22));
        assert_true(sum == (d == NB_BOOL ? 1 : 30));
    }
}

static void test_half_products_are_added_up_in_float32(void **s)
{
    nb_tensor *ones = nb_ones(1, L(5000), NB_F16);
    (void)s;
    assert_true(nb_item(nb_matmul(ones, ones)) == 5000);
}

/* Small integers: the sum is exact in float32 and rounded once. */
static nb_tensor *integers(nb_dtype d, const int64_t *size, int seed)
{
    double v[3 * 20 * 33];
    for (int i = 0; i < (int)(sizeof v / sizeof *v); i++)
        v[i] = (i * (17 + seed) + i / 7) % 11 - 5;
    return nb_cast(given(NB_F64, 3, size, v), d);
}

/* In place, turned over, and packed; in batches of little products. */
static void test_products_of_halves_are_those_of_doubles_rounded(void **s)
{
    const struct {
        const char *rule;
        int64_t x[3], y[3];
    } c[] = {
        {"b m k, b k n -> b m n", {3, 20, 33}, {3, 33, 20}},
        {"b m k, b n k -> b m n", {3, 20, 33}, {3, 20, 33}},
        {"b k m, b k n -> b m n", {3, 33, 20}, {3, 33, 20}},
        {"b m k, b k n -> b n m", {3, 20, 33}, {3, 33, 20}},
        {"b m k, b n k -> m n", {3, 20, 33}, {3, 20, 33}},
        {"a m k, b n k -> a m b n", {3, 20, 33}, {3, 20, 33}},
        {"b m k, b k n -> m b n", {3, 20, 33}, {3, 33, 20}},
    };
    static double wide[60 * 60], narrow[60 * 60];
    (void)s;
    for (int i = 0; i < 2 * (int)(sizeof c / sizeof *c); i++) {
        nb_dtype d = i % 2 ? NB_F16 : NB_BF16;
        nb_tensor *y[2];
        for (int k = 0; k < 2; k++)
            y[k] = nb_contract(integers(k ? NB_F64 : d, c[i / 2].x, 1),
                               integers(k ? NB_F64 : d, c[i / 2].y, 2),
                               c[i / 2].rule);
        assert_int_equal(nb_dtype_of(y[0]), d);
        assert_int_equal(nb_read(y[0], NB_F64, narrow), NB_OK);
        assert_int_equal(nb_read(nb_cast(y[1], d), NB_F64, wide), NB_OK);
        assert_memory_equal(narrow, wide,
                            sizeof *wide * (size_t)nb_elements(y[0]));
    }
}

/* einsum */

static void test_einsum_reads_subscripts_as_numpy_does(void **s)
{
    (void)s;
    form_holds("einsum(([[1, 2], [3, 4]]), subscripts=\"ij->ji\") = "
               "[[1, 3], [2, 4]]");
    form_holds("einsum(([[1, 2], [3, 4]]), subscripts=\"ji\") = "
               "[[1, 3], [2, 4]]");
    form_holds("einsum(([[1, 2], [3, 4]]), subscripts=\"ii\") = 5");
    form_holds("einsum(([[1, 2], [3, 4]]), subscripts=\"ii->i\") = [1, 4]");
    form_holds("einsum(([[1, 2], [3, 4]]), subscripts=\"ij->j\") = [4, 6]");
    form_holds("einsum(([1, 2], [3, 4, 5]), subscripts=\" i , j -> j i \") = "
               "[[3, 6], [4, 8], [5, 10]]");
    form_holds("einsum(([1, 2], [3, 4]), subscripts=\"i,i\") = 11");
    form_holds("einsum((2, [3, 4]), subscripts=\",i->i\") = [6, 8]");
    form_holds("einsum((2), subscripts=\"->\") = 2");
    form_holds("einsum(([[1, 2]], [[3], [4]]), subscripts=\"bA,Ac\") = "
               "[[11]]");
}

static void test_einsum_broadcasts_behind_an_ellipsis(void **s)
{
    (void)s;
    form_holds("einsum(([[[1, 2]], [[3, 4]]], [1, 2]), "
               "subscripts=\"...ij,j->...i\") = [[5], [11]]");
    form_holds("einsum(([[1, 2], [3, 4]], [1, 10]), subscripts=\"...,...\") = "
               "[[1, 20], [3, 40]]");
    form_holds("einsum(([[1, 2], [3, 4]]), subscripts=\"i...->...\") = "
               "[4, 6]");
    form_holds("einsum(([[1, 2], [3, 4]], [[1], [10]]), "
               "subscripts=\"a...,b...->ab...\") = "
               "[[[1, 2], [10, 20]], [[3, 4], [30, 40]]]");
    form_holds("einsum(([[1, 2], [3, 4]], [[1, 10]]), "
               "subscripts=\"ij,ij->ij\") = [[1, 20], [3, 40]]");
}

static void test_einsum_takes_many_operands(void **s)
{
    (void)s;
    form_holds("einsum(([[1, 2], [3, 4]], [[0, 1], [1, 0]], [[1, 1], [0, 2]], "
               "[2, 3]), subscripts=\"ij,jk,kl,l->i\") = [16, 38]");
    form_holds("einsum(([1, 2], [3, 4], [5, 6]), subscripts=\"i,i,i\") = 63");
    form_derives("einsum(([1., 2.], [3., 4., 5.], [5., 6.]), "
                 "subscripts=\"i,j,k->kij\") = 0");
    form_derives("einsum(([[[1., 2., 3.], [1., 2., 3.]], [[1., 2., 3.], [1., "
                 "2., 3.]]], [[[1., 2.], [1., 2.]], [[1., 2.], [1., 2.]], "
                 "[[1., 2.], [1., 2.]]]), subscripts=\"iij,jkk->ik\") = 0");
    form_derives("einsum(([[1., 2., 3.], [1., 2., 3.]], [[1., 2., 3.]]), "
                 "subscripts=\"ij,ij->\") = 0");
    form_derives("einsum(([[[1., 2.]], [[1., 2.]]]), subscripts=\"...i->...\")"
                 " = 0");
}

/* The small product first: the other order has ten times the terms. */
static void test_einsum_multiplies_what_leaves_least(void **s)
{
    nb_tensor *a = nb_ones(2, L(40, 2), NB_F32);
    nb_tensor *b = nb_ones(2, L(2, 40), NB_F32), *x[] = {a, b, a};
    nb_tensor *y = nb_einsum("ij,jk,kl->il", 3, x);
    (void)s;
    assert_string_equal(nb_op_name_of(y), "contract");
    nb_tensor *first =
        nb_tensor_in(y)[1]->op ? nb_tensor_in(y)[1] : nb_tensor_in(y)[0];
    has_shape(first, 2, L(2, 2));
}

static void test_einsum_keeps_narrow_integers(void **s)
{
    nb_tensor *x = counting(NB_I8, 2, L(2, 2));
    (void)s;
    assert_int_equal(nb_dtype_of(nb_einsum("ij->", 1, &x)), NB_I8);
    assert_true(nb_item(nb_einsum("ij->", 1, &x)) == 10);
}

static void test_einsum_refuses_what_makes_no_sense(void **s)
{
    (void)s;
    form_fails("einsum(([1, 2], [1, 2, 3]), subscripts=\"i,i\")", NB_EVALUE,
               "label i has size 3 in operand 1 and 2 before");
    form_fails("einsum(([1, 2]), subscripts=\"ij\")", NB_EVALUE,
               "operand 0 has shape (2,) but 2 labels");
    form_fails("einsum(([1, 2]), subscripts=\"i,i\")", NB_EVALUE,
               "a term for each of 1 operands");
    form_fails("einsum(([1, 2], [1, 2]), subscripts=\"i\")", NB_EVALUE,
               "a term for each of 2 operands");
    form_fails("einsum(([1, 2]), subscripts=\"i->k\")", NB_EVALUE,
               "stands in no operand");
    form_fails("einsum(([1, 2]), subscripts=\"i->ii\")", NB_EVALUE,
               "stands twice in the result");
    form_fails("einsum(([1, 2]), subscripts=\"i.\")", NB_EVALUE,
               "only letters");
    form_fails("einsum(([1, 2]), subscripts=\"......\")", NB_EVALUE,
               "two ellipses");
    form_fails("einsum(([[1, 2]]), subscripts=\"...i->i\")", NB_EVALUE,
               "needs the ellipsis");
    form_fails("einsum(([[1, 2]]), subscripts=\"ii\")", NB_EVALUE, "size");
    form_fails("einsum(([1, 2]), subscripts=\"i->i->i\")", NB_EVALUE,
               "the result is one term");
    form_fails("einsum(([1, 2]), subscripts=\"aaaaaaaaaaaaaaaaaaaaaaa\")",
               NB_EVALUE, "too many labels");
}

/* The others */

static void test_tensordot_pairs_axes(void **s)
{
    (void)s;
    form_holds("tensordot([[1, 2], [3, 4]], [[1, 0], [0, 1]]) = 5");
    form_holds("tensordot([1, 2], [3, 4], axes=1) = 11");
    form_holds("tensordot([1, 2], [3, 4], axes=0) = [[3, 4], [6, 8]]");
    form_holds("tensordot([1, 2], [3, 4], axes=()) = [[3, 4], [6, 8]]");
    form_holds("tensordot([[1, 2]], [[3], [4]], axes=(-1, 0)) = [[11]]");
    form_holds("tensordot([[1, 2], [3, 4]], [[1, 0], [5, 1]], "
               "axes=(0, 1, 1, 0)) = 15");
    form_derives("tensordot([[1., 2.], [3., 4.], [0., 0.]], [[[1., 0., 2.]], "
                 "[[5., 1., 2.]]], axes=(0, 1, 2, 0)) = 0");
    assert_true(
        nb_item(nb_tensordot(counting(NB_F32, 1, L(2)),
                             counting(NB_F32, 1, L(2)), 1, L(0), L(-1))) == 5);
}

static void test_tensordot_refuses_what_has_no_partner(void **s)
{
    (void)s;
    form_fails("tensordot([1, 2], [1, 2, 3], axes=1)", NB_EVALUE,
               "shapes (2,) and (3,): axis 0 of size 2 meets axis 0 of size 3");
    form_fails("tensordot([1, 2], [1, 2], axes=2)", NB_EVALUE,
               "2 axes of operands of rank 1 and 1");
    form_fails("tensordot([1, 2], [1, 2], axes=-1)", NB_EVALUE, "-1 axes");
    form_fails("tensordot([[1]], [[1]], axes=(0, 1, 0))", NB_EVALUE,
               "in pairs");
    form_fails("tensordot([[1]], [[1]], axes=(0, 0, 0, 1))", NB_EVALUE,
               "given twice");
    form_fails("tensordot([[1]], [[1]], axes=(0, 2))", NB_EAXIS,
               "axis 2 is out of range for operand 1 of rank 2");
}

static void test_vecdot_counts_its_axis_in_each(void **s)
{
    (void)s;
    form_holds("vecdot([[1, 2], [3, 4]], [1, 2]) = [5, 11]");
    form_holds("vecdot([[1, 2], [3, 4]], [[1, 2], [3, 4]], axis=0) = "
               "[10, 20]");
    form_fails("vecdot([1, 2], [1, 2, 3])", NB_EVALUE, "(2,) and (3,)");
    form_fails("vecdot([[1, 2]], [1, 2], axis=1)", NB_EAXIS, "axis 1");
    form_fails("vecdot(1, [1, 2])", NB_EAXIS, "rank 0");
}

static void test_outer_and_trace(void **s)
{
    (void)s;
    form_fails("outer([[1]], [1])", NB_EVALUE, "two vectors");
    form_holds("trace([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]) = [5, 13]");
    form_holds("trace([[1, 2], [3, 4]], offset=-1) = 3");
    form_holds("trace([[1, 2], [3, 4]], offset=9) = 0");
    form_fails("trace([1, 2])", NB_EVALUE, "trace: rank 1");
    assert_int_equal(nb_dtype_of(nb_trace(counting(NB_I8, 2, L(2, 2)), 0)),
                     NB_I64);
}

static void test_a_rule_is_of_two_operands(void **s)
{
    (void)s;
    form_fails("contract([1], [1], rule=\"a -> a\")", NB_EVALUE, "rule");
    form_fails("contract([1], [1], rule=\"a, (a b) -> a b\")", NB_EVALUE,
               "rule");
    form_fails("contract([1], [1], rule=\"... a, a -> a\")", NB_EVALUE, "rule");
    form_fails("contract([1], [1], rule=\"a, a - a\")", NB_EVALUE, "signature");
    form_derives("contract([[1., 2., 3.], [1., 2., 3.]], [1., 2.], "
                 "rule=\"a b, c -> c\") = 0");
}

static void test_running_out_of_memory_is_an_error(void **s)
{
    (void)s;
    form_survives("matmul([[[1., 2.]], [[3., 4.]]], [1., 2.]) = 0");
    form_survives("contract([[1., 2., 3.], [1., 2., 3.]], [1., 2.], "
                  "rule=\"a b, c -> c\") = 0");
    form_survives("tensordot([[1., 2.]], [[3.], [4.]], axes=(1, 0)) = 0");
    form_survives("einsum(([[1., 2.], [3., 4.]], [[1., 2.]], [1., 2.]), "
                  "subscripts=\"ii,ij,k->j\") = 0");
    form_survives("vecdot([[1., 2.]], [[3., 4.]], axis=0) = 0");
}

#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, open_scope, close_scope)

int main(void)
{
    there_open();
    const struct CMUnitTest tests[] = {
        TEST(test_matmul_takes_a_vector_for_a_row_or_a_column),
        TEST(test_matmul_broadcasts_leading_axes),
        TEST(test_every_form_of_matmul_derives),
        TEST(test_matmul_names_the_shapes_that_do_not_fit),
        TEST(test_products_of_nothing_are_zeros),
        TEST(test_every_dtype_multiplies_in_itself),
        TEST(test_half_products_are_added_up_in_float32),
        TEST(test_products_of_halves_are_those_of_doubles_rounded),
        TEST(test_einsum_reads_subscripts_as_numpy_does),
        TEST(test_einsum_broadcasts_behind_an_ellipsis),
        TEST(test_einsum_takes_many_operands),
        TEST(test_einsum_multiplies_what_leaves_least),
        TEST(test_einsum_keeps_narrow_integers),
        TEST(test_einsum_refuses_what_makes_no_sense),
        TEST(test_tensordot_pairs_axes),
        TEST(test_tensordot_refuses_what_has_no_partner),
        TEST(test_vecdot_counts_its_axis_in_each),
        TEST(test_outer_and_trace),
        TEST(test_a_rule_is_of_two_operands),
        TEST(test_running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
