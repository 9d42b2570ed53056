/* test_linalg.c - what the laws do not say of linear algebra: every form of its
 * functions, batches, float32, matrices for which they are not defined, empty
 * ones, refusals.  Factorisations are multiplied out again, since signs are
 * any. */
#include "ops/linalg.h"
#include "support/forms.h"
#include "support/sample.h"
#include "support/there.h"
#include "transform/derive.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
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
    return nodes_left() != 0;
}

#define L(...) ((int64_t[]){__VA_ARGS__})

/* Random numbers, the same in every run. */
static nb_tensor *some(nb_dtype d, int rank, const int64_t *size)
{
    return nb_cast(draw_like(nb_zeros(rank, size, NB_F64), -2, 2), d);
}

static void is_near(nb_tensor *x, nb_tensor *y, double tolerance)
{
    if (!near(x, y, tolerance)) {
        char *text = nb_tensor_text(x);
        fail_msg("%s%s", text ? text : "", nb_error_message());
    }
}

static void has_shape(nb_tensor *x, int rank, const int64_t *size)
{
    if (!x) fail_msg("%s", nb_error_message());
    assert_int_equal(nb_rank(x), rank);
    for (int d = 0; d < rank; d++)
        assert_int_equal(nb_size(x, d), size[d]);
}

static bool is_all_nan(nb_tensor *x)
{
    double v[64];
    bool all = nb_read(x, NB_F64, v) == NB_OK;
    for (int64_t i = 0; all && i < nb_elements(x); i++)
        all = isnan(v[i]);
    return all;
}

/* Equations */

static void test_solve_takes_a_vector_or_a_matrix(void **s)
{
    (void)s;
    form_holds("solve([[2., 0.], [1., 4.]], [2., 9.]) = [1., 2.]");
    form_holds("solve([[2., 0.], [1., 4.]], [[2.], [9.]]) = [[1.], [2.]]");
    form_holds("solve([[[2., 0.], [0., 4.]], [[1., 0.], [0., 1.]]], [2., 4.]) "
               "= [[1., 1.], [2., 4.]]");
    form_holds("solve([[2., 0.], [0., 4.]], [[[2.], [4.]], [[4.], [0.]]]) = "
               "[[[1.], [1.]], [[2.], [0.]]]");
    form_holds("solve([[0., 1.], [1., 0.]], [3., 5.]) = [5., 3.]");
}

static void test_every_form_of_solve_derives(void **s)
{
    (void)s;
    form_derives("solve([[2., 0.], [1., 4.]], [2., 9.]) = 0");
    form_derives("solve([[[2., 0.], [0., 4.]], [[1., 0.], [0., 1.]]], [2., "
                 "4.]) = 0");
    form_derives("solve([[2., 0.], [0., 4.]], [[[2.], [4.]], [[4.], [0.]]]) = "
                 "0");
    form_derives("triangular_solve([[2., 3.], [1., 4.]], [2., 9.], "
                 "upper=True) = 0");
    form_derives("triangular_solve([[2., 3.], [1., 4.]], [2., 9.], "
                 "transpose=True, unit=True) = 0");
}

static void test_solve_needs_a_row_for_every_equation(void **s)
{
    (void)s;
    form_fails("solve([[1., 2.]], [1.])", NB_EVALUE,
               "solve: shape (1, 2): the last two axes must make a square");
    form_fails("solve([1., 2.], [1.])", NB_EVALUE, "solve: rank 1");
    form_fails("solve([[1., 0.], [0., 1.]], [1., 2., 3.])", NB_EVALUE,
               "shapes (2, 2) and (3,) do not fit");
    form_fails("solve([[1., 0.], [0., 1.]], 1.)", NB_EVALUE, "(2, 2) and ()");
    form_fails("triangular_solve([[1.]], [[1.], [2.]])", NB_EVALUE,
               "triangular_solve: shapes (1, 1) and (2, 1)");
}

static void test_a_triangle_is_read_and_nothing_else(void **s)
{
    (void)s;
    form_holds("triangular_solve([[2., 99.], [1., 4.]], [2., 9.]) = [1., 2.]");
    form_holds("triangular_solve([[2., 1.], [99., 4.]], [4., 8.], upper=True) "
               "= [1., 2.]");
    form_holds("triangular_solve([[2., 99.], [1., 4.]], [4., 8.], "
               "transpose=True) = [1., 2.]");
    form_holds("triangular_solve([[99., 99.], [3., 99.]], [1., 5.], "
               "unit=True) = [1., 2.]");
}

static void test_a_singular_matrix_gives_infinities_and_nans(void **s)
{
    nb_tensor *zero = nb_zeros(2, L(2, 2), NB_F64), *out[2];
    double v[4];
    (void)s;
    assert_int_equal(nb_read(nb_inv(zero), NB_F64, v), NB_OK);
    for (int i = 0; i < 4; i++)
        assert_false(isfinite(v[i]));
    assert_true(nb_item(nb_det(zero)) == 0);
    assert_int_equal(nb_slogdet(zero, out), NB_OK);
    assert_true(nb_item(out[0]) == 0);
    assert_true(nb_item(out[1]) == -INFINITY);
}

static void test_determinants_have_a_sign(void **s)
{
    (void)s;
    form_holds("det([[0., 1.], [1., 0.]]) = -1.");
    form_holds("slogdet([[0., 2.], [2., 0.]]) = -1., 1.3862943611198906");
    form_holds("det([[[1., 0.], [0., 2.]], [[2., 0.], [0., 2.]]]) = [2., 4.]");
}

/* The cofactors, where there is no inverse to multiply them by. */
static void test_a_determinant_moves_at_a_singular_matrix(void **s)
{
    double zero[] = {1, 2, 2, 4}, v[4], none[4] = {0};
    nb_tensor *x = given(NB_F64, 2, L(2, 2), zero), *fresh, *cx = NULL;
    nb_tensor *ct = nb_scalar_float(1, NB_F64), *y;
    (void)s;
    uint64_t bit = nb_walk_begin(1, &x, &fresh);
    y = nb_det(fresh);
    assert_true(nb_walk_pull(bit, 1, &fresh, 1, &y, &ct, &cx));
    nb_walk_end(bit);
    is_near(cx, given(NB_F64, 2, L(2, 2), (double[]){4, -2, -2, 1}), 1e-12);
    x = nb_cofactor(given(NB_F64, 2, L(2, 2), none));
    assert_int_equal(nb_read(x, NB_F64, v), NB_OK);
    assert_memory_equal(v, none, sizeof v);
}

/* Factorisations */

static void factors_multiply_out(nb_dtype d, int64_t m, int64_t n, double tol)
{
    nb_tensor *x = some(d, 3, L(2, m, n)), *f[3];
    int64_t k = m < n ? m : n;
    for (int complete = 0; complete < 2; complete++) {
        int64_t inner = complete ? m : k;
        const char *mode = complete ? "complete" : "reduced";
        assert_int_equal(nb_qr(x, mode, f), NB_OK);
        has_shape(f[0], 3, L(2, m, inner));
        has_shape(f[1], 3, L(2, inner, n));
        is_near(nb_matmul(f[0], f[1]), x, tol);
        is_near(nb_triu(f[1], 0), f[1], 0);
        is_near(nb_inner(f[0], f[0]),
                nb_broadcast_to(nb_unit(x, inner), 3, L(2, inner, inner)), tol);
    }
    assert_int_equal(nb_svd(x, true, f), NB_OK);
    has_shape(f[0], 3, L(2, m, m));
    has_shape(f[1], 2, L(2, k));
    has_shape(f[2], 3, L(2, n, n));
    assert_int_equal(nb_svd(x, false, f), NB_OK);
    has_shape(f[0], 3, L(2, m, k));
    has_shape(f[2], 3, L(2, k, n));
    is_near(nb_matmul(nb_mul(f[0], nb_columns(f[1])), f[2]), x, tol);
    is_near(nb_svdvals(x), f[1], tol);
    nb_tensor *p = nb_pinv(x, NULL);
    has_shape(p, 3, L(2, n, m));
    is_near(nb_matmul(nb_matmul(x, p), x), x, 10 * tol);
}

static void test_factors_multiply_out(void **s)
{
    static const int64_t size[] = {1, 3, 4};
    (void)s;
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++) {
            factors_multiply_out(NB_F64, size[i], size[j], 1e-12);
            factors_multiply_out(NB_F32, size[i], size[j], 1e-5);
        }
}

static void test_empty_matrices_have_factors(void **s)
{
    nb_tensor *x = nb_zeros(3, L(2, 0, 3), NB_F64), *f[3];
    (void)s;
    assert_int_equal(nb_svd(x, true, f), NB_OK);
    has_shape(f[0], 3, L(2, 0, 0));
    has_shape(f[1], 2, L(2, 0));
    is_near(f[2], nb_broadcast_to(nb_unit(x, 3), 3, L(2, 3, 3)), 0);
    has_shape(nb_pinv(x, NULL), 3, L(2, 3, 0));
    assert_true(nb_item(nb_det(nb_zeros(2, L(0, 0), NB_F64))) == 1);
    has_shape(nb_inv(nb_zeros(3, L(0, 2, 2), NB_F64)), 3, L(0, 2, 2));
    assert_true(nb_item(nb_matrix_rank(nb_zeros(2, L(0, 3), NB_F32), NULL)) ==
                0);
}

static void test_symmetric_means_half_of_both_triangles(void **s)
{
    (void)s;
    form_holds("cholesky([[4., 0.], [4., 10.]]) = [[2., 0.], [1., 3.]]");
    form_holds("eigvalsh([[5., 4.], [0., 2.]]) = [1., 6.]");
}

static void test_what_is_not_positive_definite_has_no_root(void **s)
{
    nb_tensor *x = given(NB_F64, 2, L(2, 2), (double[]){1, 2, 2, 1});
    (void)s;
    assert_true(is_all_nan(nb_cholesky(x, false)));
    assert_true(is_all_nan(nb_cholesky(x, true)));
    assert_false(nb_failed());
}

static void test_every_form_of_factorisation_derives(void **s)
{
    (void)s;
    form_derives("cholesky([[[2., 0.], [0., 2.]], [[2., 0.], [0., 2.]]]) = 0");
    form_derives("qr([[[1., 2.], [3., 4.]], [[1., 2.], [3., 4.]]], "
                 "mode=\"complete\") = 0");
    form_derives("qr([[1., 2., 3.], [3., 4., 6.]]) = 0");
    form_derives("svd([[1., 2., 3.], [3., 4., 5.]], full_matrices=False) = 0");
    form_derives("svd([[1., 2.], [3., 4.]], full_matrices=True) = 0");
    form_derives("eigh([[[2., 0.], [0., 2.]], [[2., 0.], [0., 2.]]]) = 0");
    form_derives("pinv([[1., 2., 3.], [3., 4., 5.]]) = 0");
}

/* What an op of several results says when it is asked to move. */
static void does_not_move(nb_op *op, nb_value v, int64_t m, int64_t n,
                          const char *why)
{
    nb_tensor *x = some(NB_F64, 2, L(m, n)), *u = x, *fresh, *out[3], *uy[3];
    uint64_t bit = nb_walk_begin(1, &x, &fresh);
    int count = 3;
    assert_int_equal(nb_op_call(op, 1, &fresh, 1, &v, &count, out), NB_OK);
    assert_false(nb_walk_push(bit, 1, &fresh, &u, count, out, uy));
    nb_walk_end(bit);
    assert_int_equal(nb_error_code(), NB_ERUNTIME);
    assert_non_null(strstr(nb_error_message(), why));
    nb_error_clear();
}

static void test_vectors_that_are_any_have_no_derivative(void **s)
{
    nb_value yes = NB_V_INT(true);
    nb_value complete = NB_V_TEXT("complete");
    (void)s;
    does_not_move(&nb_op_svd, yes, 3, 2, "full_matrices=False is needed");
    does_not_move(&nb_op_qr, complete, 3, 2, "\"complete\"");
}

/* Singular values have one even then. */
static void test_singular_values_move_in_any_case(void **s)
{
    nb_tensor *x = some(NB_F64, 2, L(3, 2)), *fresh, *out[3], *uy[2];
    (void)s;
    uint64_t bit = nb_walk_begin(1, &x, &fresh);
    assert_int_equal(nb_svd(fresh, true, out), NB_OK);
    nb_tensor *y[] = {out[1], nb_svdvals(fresh)};
    assert_true(nb_walk_push(bit, 1, &fresh, &x, 2, y, uy));
    nb_walk_end(bit);
    is_near(uy[0], out[1], 1e-12); /* homogeneous: s(x + t x) = (1 + t) s */
    is_near(uy[1], out[1], 1e-12);
}

/* Of a rank-deficient matrix too, while its rank stays. */
static void test_the_pseudo_inverse_cuts_small_values(void **s)
{
    double half = 0.5;
    nb_tensor *x = given(NB_F64, 2, L(2, 2), (double[]){4, 0, 0, 1});
    nb_tensor *cut = given(NB_F64, 2, L(2, 2), (double[]){0.25, 0, 0, 0});
    (void)s;
    form_holds("pinv([[1., 2.], [2., 4.]]) = [[0.04, 0.08], [0.08, 0.16]]");
    is_near(nb_pinv(x, &half), cut, 1e-15);
    assert_true(nb_item(nb_matrix_rank(x, &half)) == 1);
    assert_true(nb_item(nb_matrix_rank(x, NULL)) == 2);
}

static void test_nan_comes_out_as_nan(void **s)
{
    nb_tensor *x = given(NB_F64, 2, L(2, 2), (double[]){1, NAN, NAN, 1});
    nb_tensor *f[3];
    (void)s;
    assert_true(is_all_nan(nb_svdvals(x)));
    assert_true(is_all_nan(nb_eigvalsh(x)));
    assert_true(is_all_nan(nb_pinv(x, NULL)));
    assert_int_equal(nb_eigh(x, f), NB_OK);
    assert_true(is_all_nan(f[1]));
}

/* Norms, powers and cross products */

static void test_vector_norms(void **s)
{
    double v[3];
    nb_tensor *x = given(NB_F64, 2, L(1, 3), (double[]){3, -4, 0});
    (void)s;
    form_holds("vector_norm([[3., 4.], [0., 12.]]) = 13.");
    form_holds("vector_norm([[3., 4.], [0., 12.]], axis=0) = "
               "[3., 12.649110640673518]");
    form_holds("vector_norm([3., -4.], ord=3.0) = 4.497941445275415");
    form_holds("vector_norm([3., 0., -4.], ord=0.0) = 2.");
    form_holds("vector_norm([3, -4], axis=()) = [3., 4.]");
    form_holds("vector_norm(-2.) = 2.");
    assert_true(nb_item(nb_vector_norm(x, -1, NULL, false, INFINITY)) == 4);
    assert_true(nb_item(nb_vector_norm(x, -1, NULL, false, -INFINITY)) == 0);
    has_shape(nb_vector_norm(x, 1, L(-1), true, 2), 2, L(1, 1));
    has_shape(nb_vector_norm(x, -1, NULL, true, 2), 2, L(1, 1));
    assert_int_equal(nb_read(nb_vector_norm(x, 1, L(0), false, 2), NB_F64, v),
                     NB_OK);
    assert_true(v[1] == 4);
    form_derives("vector_norm([[[1., 2.], [3., 4.]]], axis=(2, 0), ord=3.0) = "
                 "0");
}

static void test_matrix_norms(void **s)
{
    (void)s;
    form_holds("matrix_norm([[3., 0.], [0., -4.]]) = 5.");
    form_holds("matrix_norm([[3., 0.], [0., -4.]], ord=\"nuc\") = 7.");
    form_holds("matrix_norm([[3., 0.], [0., -4.]], ord=\"2\") = 4.");
    form_holds("matrix_norm([[3., 0.], [0., -4.]], ord=\"-2\") = 3.");
    form_holds("matrix_norm([[3., 1.], [1., -4.]], ord=\"1\") = 5.");
    form_holds("matrix_norm([[3., 2.], [0., -4.]], ord=\"-1\") = 3.");
    form_holds("matrix_norm([[3., 2.], [0., -4.]], ord=\"inf\") = 5.");
    form_holds("matrix_norm([[3., 2.], [0., -4.]], ord=\"-inf\") = 4.");
    form_holds("matrix_norm([[[3., 0.], [0., 4.]]], keepdims=True) = [[[5.]]]");
    form_fails("matrix_norm([[1.]], ord=\"3\")", NB_EVALUE, "ord \"3\"");
    form_fails("matrix_norm([1.])", NB_EVALUE, "rank 1");
    form_derives("matrix_norm([[1., 2., 3.], [4., 5., 6.]], ord=\"2\") = 0");
}

static void test_matrix_powers(void **s)
{
    (void)s;
    form_holds("matrix_power([[1, 1], [0, 1]], n=5) = [[1, 5], [0, 1]]");
    form_holds("matrix_power([[1, 1], [0, 1]], n=1) = [[1, 1], [0, 1]]");
    form_holds("matrix_power([[[2, 1], [0, 3]]], n=0) = [[[1, 0], [0, 1]]]");
    form_holds("matrix_power([[2., 0.], [0., 4.]], n=-2) = "
               "[[0.25, 0.], [0., 0.0625]]");
    form_fails("matrix_power([[1, 2]], n=2)", NB_EVALUE, "square");
    form_derives("matrix_power([[2., 0.], [0., 4.]], n=5) = 0");
}

static void test_cross_products(void **s)
{
    (void)s;
    form_holds("cross([1, 0, 0], [0, 1, 0]) = [0, 0, 1]");
    form_holds("cross([[1, 0, 0], [0, 2, 0]], [0, 1, 1]) = "
               "[[0, -1, 1], [2, 0, 0]]");
    form_fails("cross([1, 2], [3, 4])", NB_EVALUE, "must have size 3");
    form_fails("cross([1, 2, 3], [3, 4, 5], axis=1)", NB_EAXIS, "axis 1");
}

/* Types */

static void test_half_precision_is_refused(void **s)
{
    nb_tensor *x = some(NB_F16, 2, L(2, 2));
    (void)s;
    assert_null(nb_inv(x));
    assert_int_equal(nb_error_code(), NB_ETYPE);
    assert_string_equal(nb_error_message(), "inv: does not take float16: "
                                            "float32 or float64 needed");
    nb_error_clear();
    assert_null(nb_svdvals(nb_cast(x, NB_BF16)));
    assert_int_equal(nb_error_code(), NB_ETYPE);
}

static void test_integers_become_the_default_float(void **s)
{
    nb_tensor *x = given(NB_I64, 2, L(2, 2), L(2, 0, 0, 4));
    (void)s;
    assert_int_equal(nb_dtype_of(nb_inv(x)), NB_F32);
    assert_true(nb_item(nb_det(x)) == 8);
    assert_int_equal(nb_dtype_of(nb_matrix_rank(x, NULL)), NB_I64);
}

static void test_any_strides_are_read(void **s)
{
    nb_tensor *x = some(NB_F64, 3, L(3, 2, 3)), *b = some(NB_F64, 2, L(2, 3));
    nb_tensor *y = nb_permute(x, 3, L(1, 2, 0)), *turned = nb_turn(b);
    (void)s;
    is_near(nb_matmul(nb_inv(y), y),
            nb_broadcast_to(nb_unit(x, 3), 3, L(2, 3, 3)), 1e-9);
    is_near(nb_matmul(y, nb_solve(y, turned)),
            nb_broadcast_to(turned, 3, L(2, 3, 2)), 1e-9);
    is_near(nb_triangular_solve(y, turned, true, false, false),
            nb_solve(nb_triu(y, 0), turned), 1e-9);
}

static void test_running_out_of_memory_is_an_error(void **s)
{
    (void)s;
    form_survives("solve([[2., 0.], [1., 4.]], [2., 9.]) = 0");
    form_survives("det([[2., 0.], [1., 4.]]) = 0");
    form_survives("slogdet([[2., 0.], [1., 4.]]) = 0");
    form_survives("triangular_solve([[2., 3.], [1., 4.]], [2., 9.]) = 0");
    form_survives("cholesky([[2., 0.], [0., 2.]], upper=True) = 0");
    form_survives("qr([[1., 2.], [3., 4.], [5., 6.]]) = 0");
    form_survives("eigh([[2., 0.], [0., 2.]]) = 0");
    form_survives("svd([[1., 2., 3.], [3., 4., 5.]], full_matrices=False) = "
                  "0");
    form_survives("pinv([[1., 2., 3.], [3., 4., 5.]]) = 0");
    form_survives("vector_norm([[1., 2.], [3., 4.]], axis=(0,)) = 0");
    form_survives("matrix_norm([[1., 2.], [3., 4.]], ord=\"nuc\") = 0");
    form_survives("matrix_power([[2., 0.], [0., 4.]], n=-3) = 0");
    form_survives("cross([1., 2., 3.], [4., 5., 6.]) = 0");
}

#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, open_scope, close_scope)

int main(void)
{
    there_open();
    const struct CMUnitTest tests[] = {
        TEST(test_solve_takes_a_vector_or_a_matrix),
        TEST(test_every_form_of_solve_derives),
        TEST(test_solve_needs_a_row_for_every_equation),
        TEST(test_a_triangle_is_read_and_nothing_else),
        TEST(test_a_singular_matrix_gives_infinities_and_nans),
        TEST(test_determinants_have_a_sign),
        TEST(test_a_determinant_moves_at_a_singular_matrix),
        TEST(test_factors_multiply_out),
        TEST(test_empty_matrices_have_factors),
        TEST(test_symmetric_means_half_of_both_triangles),
        TEST(test_what_is_not_positive_definite_has_no_root),
        TEST(test_every_form_of_factorisation_derives),
        TEST(test_vectors_that_are_any_have_no_derivative),
        TEST(test_singular_values_move_in_any_case),
        TEST(test_the_pseudo_inverse_cuts_small_values),
        TEST(test_nan_comes_out_as_nan),
        TEST(test_vector_norms),
        TEST(test_matrix_norms),
        TEST(test_matrix_powers),
        TEST(test_cross_products),
        TEST(test_half_precision_is_refused),
        TEST(test_integers_become_the_default_float),
        TEST(test_any_strides_are_read),
        TEST(test_running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
