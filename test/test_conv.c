/* test_conv.c - what the laws do not say of convolution and pooling: forms of
 * arguments, groups and spacing by example, every dtype, shapes, ties, texts of
 * refusals. */
#include "ops/conv.h"
#include "support/forms.h"
#include "support/sample.h"
#include "support/sentence.h"
#include "support/there.h"
#include "transform/derive.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define L(...) ((int64_t[]){__VA_ARGS__})

static nb_tensor *some(int rank, const int64_t *size)
{
    return draw_like(nb_zeros(rank, size, NB_F64), -2, 2);
}

/* Arguments */

#define IMAGE "[[[[1], [2], [3]], [[4], [5], [6]], [[7], [8], [9]]]]"
#define ONES  "[[[[1]], [[1]]], [[[1]], [[1]]]]"

static void test_a_number_stands_for_a_pair(void **s)
{
    (void)s;
    form_holds("conv2d(" IMAGE ", " ONES ") = "
               "[[[[12], [16]], [[24], [28]]]]");
    form_holds("conv2d(" IMAGE ", " ONES ", stride=2) = [[[[12]]]]");
    form_holds("conv2d(" IMAGE ", " ONES ", dilation=2) = [[[[20]]]]");
    form_holds("conv2d(" IMAGE ", " ONES ", padding=1, stride=3) = "
               "[[[[1], [3]], [[7], [9]]]]");
}

static void test_padding_is_one_two_or_four_numbers(void **s)
{
    (void)s;
    form_holds("conv2d(" IMAGE ", " ONES ", stride=2, padding=(1, 0)) = "
               "[[[[3]], [[24]]]]");
    form_holds("conv2d(" IMAGE ", " ONES ", stride=2, padding=(0, 1, 1, 0)) = "
               "[[[[5], [16]], [[7], [17]]]]");
    form_holds("conv1d([[[1], [2], [3]]], [[[1]], [[10]]], padding=(1, 0)) = "
               "[[[10], [21], [32]]]");
    form_fails("conv2d(" IMAGE ", " ONES ", padding=(1, 1, 1))", NB_EVALUE,
               "padding has 3 values, 1, 2 or 4 are needed");
    form_fails("conv2d(" IMAGE ", " ONES ", stride=(1, 1, 1))", NB_EVALUE,
               "stride has 3 values, 1 or 2 are needed");
}

static void test_layouts_have_one_name(void **s)
{
    (void)s;
    form_holds("conv2d(" IMAGE ", " ONES ", stride=2, input_layout=\"NHWC\", "
               "filter_layout=\"HWIO\") = [[[[12]]]]");
    form_fails("conv2d(" IMAGE ", " ONES ", input_layout=\"NCHW\")", NB_EVALUE,
               "input_layout \"NCHW\"");
    form_fails("conv2d_transpose(" IMAGE ", " ONES ", filter_layout=\"OIHW\")",
               NB_EVALUE, "filter_layout \"OIHW\"");
    form_holds("conv1d([[[1]]], [[[2]]], input_layout=\"NWC\", "
               "filter_layout=\"WIO\") = [[[2]]]");
    form_fails("conv3d([[[[[1]]]]], [[[[[1]]]]], input_layout=\"NHWC\")",
               NB_EVALUE, "\"NDHWC\"");
}

static void test_refusals_say_what_callers_look_for(void **s)
{
    (void)s;
    form_fails("conv2d(" IMAGE ", " ONES ", stride=(1, 0))", NB_EVALUE,
               "stride values must be > 0");
    form_fails("conv2d(" IMAGE ", " ONES ", dilation=0)", NB_EVALUE,
               "dilation values must be > 0");
    form_fails("conv2d(" IMAGE ", " ONES ", padding=-1)", NB_EVALUE,
               "padding values must be >= 0");
    form_fails("conv2d(" IMAGE ", [[[[1], [1]]]])", NB_EVALUE,
               "Input channels");
    form_fails("conv2d_transpose(" IMAGE ", [[[[1, 1]]]])", NB_EVALUE,
               "Input channels");
    form_fails("conv2d(" IMAGE ", " ONES ", [1, 2])", NB_EVALUE, "bias size");
    form_fails("conv2d(" IMAGE ", " ONES ", [[1]])", NB_EVALUE, "bias size");
    form_fails("conv2d(" IMAGE ", " ONES ", groups=2)", NB_EVALUE, "divisible");
    form_fails("conv2d(" IMAGE ", " ONES ", groups=0)", NB_EVALUE,
               "groups must be > 0");
    form_fails("conv2d_transpose(" IMAGE ", " ONES
               ", stride=2, output_paddings=2)",
               NB_EVALUE, "output_paddings must be below the stride");
    form_fails("conv2d_transpose(" IMAGE ", " ONES ", output_paddings=-1)",
               NB_EVALUE, "output_paddings values must be >= 0");
    form_fails("avg_pool2d(" IMAGE ", kernel_size=(0, 1))", NB_EVALUE,
               "kernel_size values must be > 0");
    form_fails("max_pool2d(" IMAGE ", kernel_size=2, stride=0)", NB_EVALUE,
               "stride values must be > 0");
    form_fails("max_pool2d(" IMAGE ", kernel_size=2, padding=-1)", NB_EVALUE,
               "padding values must be >= 0");
    form_fails("max_pool2d(" IMAGE ", kernel_size=2, dilation=0)", NB_EVALUE,
               "dilation values must be > 0");
}

static void test_ranks_and_results_must_fit(void **s)
{
    (void)s;
    form_fails("conv2d([[[1]]], [[[[1]]]])", NB_EVALUE,
               "shapes (1, 1, 1) and (1, 1, 1, 1): x and filter must have "
               "rank 4");
    form_fails("conv1d([[[1]]], [[1]])", NB_EVALUE, "rank 3");
    form_fails("max_pool2d([[[1.]]], kernel_size=1)", NB_EVALUE, "rank 4");
    form_fails("conv2d(" IMAGE ", " ONES ", dilation=3)", NB_EVALUE,
               "spatial axis 0 of size 3 gives 0 places");
    form_fails("conv2d_transpose([[[[1]]]], [[[[1]]]], padding=1)", NB_EVALUE,
               "gives -1 places");
    form_fails("max_pool2d(" IMAGE ", kernel_size=4)", NB_EVALUE,
               "gives 0 places");
    form_fails("conv1d([[[1]]], [[[1]]], padding=(9223372036854775807,))",
               NB_EVALUE, "places");
    form_fails("conv1d_transpose([[[1], [1]]], [[[1]]], "
               "stride=(9223372036854775807,))",
               NB_EVALUE, "places");
}

/* Values */

static void test_groups_keep_to_themselves(void **s)
{
    (void)s;
    form_holds("conv1d([[[1, 10], [2, 20]]], [[[1, 3]], [[2, 4]]], groups=2) "
               "= [[[5, 110]]]");
    form_holds("conv1d([[[1, 10], [2, 20]]], [[[1, 2, 3, 4]]], groups=2) = "
               "[[[1, 2, 30, 40], [2, 4, 60, 80]]]");
    form_holds("conv1d_transpose([[[1, 10]]], [[[1, 3]], [[2, 4]]], groups=2) "
               "= [[[1, 30], [2, 40]]]");
}

static void test_a_transposed_convolution_spreads(void **s)
{
    (void)s;
    form_holds("conv1d_transpose([[[1], [2]]], [[[1]], [[10]], [[100]]]) = "
               "[[[1], [12], [120], [200]]]");
    form_holds("conv1d_transpose([[[1], [2]]], [[[1]], [[10]]], stride=3, "
               "output_paddings=1) = [[[1], [10], [0], [2], [20], [0]]]");
    form_holds("conv1d_transpose([[[1], [2]]], [[[1]], [[10]]], dilation=2, "
               "padding=(1, 0)) = [[[2], [10], [20]]]");
}

/* <conv(x), y> = <x, conv_transpose(y)>. */
static void test_it_is_the_adjoint_of_a_convolution(void **s)
{
    nb_conv how = {.stride = {2, 3},
                   .dilation = {1, 2},
                   .padding = {{1, 0}, {2, 1}},
                   .output_padding = {1, 2},
                   .groups = 2};
    nb_tensor *x = some(4, L(2, 6, 8, 4)), *f = some(4, L(2, 2, 2, 6));
    nb_tensor *y = nb_conv2d(x, f, &how);
    (void)s;
    has_shape(y, 4, L(2, 3, 3, 6));
    nb_tensor *z = some(4, L(2, 3, 3, 6));
    nb_tensor *back = nb_conv2d_transpose(z, f, &how);
    has_shape(back, 4, L(2, 6, 8, 4));
    assert_true(fabs(dot(y, z) - dot(x, back)) < 1e-10);
}

static void test_every_form_of_convolution_derives(void **s)
{
    (void)s;
    form_derives("conv2d([[[[1., 2., 3.], [1., 2., 3.], [0., 0., 0.]], [[1., "
                 "2., 3.], [1., 2., 3.], [0., 0., 0.]]]], [[[[1., 1., 1.]], "
                 "[[2., 2., 2.]]]], [1., 2., 3.], groups=3, padding=(1, 0, 0, "
                 "2), stride=(2, 1), dilation=(1, 2)) = 0");
    form_derives("conv2d([[[[1., 2.], [1., 2.]]], [[[1., 2.], [1., 2.]]]], "
                 "[[[[1., 2., 3.], [1., 2., 3.]]]]) = 0");
    form_derives("conv3d([[[[[1., 2.], [1., 2.]], [[1., 2.], [1., 2.]]]]], "
                 "[[[[[1., 2.]], [[1., 2.]]]]], groups=2, padding=(0, 1, 1, "
                 "0, 0, 1), stride=(1, 2, 1)) = 0");
    form_derives("conv2d_transpose([[[[1., 2.], [3., 4.]]]], [[[[1., 2.]], "
                 "[[1., 2.]]], [[[1., 2.]], [[1., 2.]]]], [1., 2.], groups=2, "
                 "stride=(3, 2), padding=(1, 0, 0, 1), output_paddings=(2, "
                 "1), dilation=(2, 1)) = 0");
}

/* Rows are made in blocks; here there are several, and the last is short. */
static void test_large_images_are_cut_into_blocks(void **s)
{
    nb_tensor *x = some(4, L(2, 70, 40, 3)), *f = some(4, L(5, 5, 3, 2));
    nb_tensor *y = nb_conv2d(x, f, NULL), *sum = NULL;
    (void)s;
    has_shape(y, 4, L(2, 66, 36, 2));
    for (int64_t i = 0; i < 5; i++)
        for (int64_t j = 0; j < 5; j++) {
            nb_tensor *part =
                nb_slice_tensor(x, L(0, i, j, 0), L(2, 66, 36, 3));
            nb_tensor *w = nb_slice_tensor(f, L(i, j, 0, 0), L(1, 1, 3, 2));
            nb_tensor *t = nb_matmul(part, nb_reshape(w, 2, L(3, 2)));
            sum = sum ? nb_add(sum, t) : t;
        }
    assert_true(near(y, sum, 1e-12));
}

static void test_every_number_convolves_in_itself(void **s)
{
    double image[] = {1, 2, 3, 4, 5, 6}, taps[] = {1, 2, 3, 4}, v[4];
    (void)s;
    for (nb_dtype d = NB_I8; d < NB_NDTYPES; d++) {
        nb_tensor *x = nb_cast(given(NB_F64, 3, L(1, 3, 2), image), d);
        nb_tensor *f = nb_cast(given(NB_F64, 3, L(2, 2, 1), taps), d);
        nb_tensor *y = nb_conv1d(x, f, NULL);
        assert_int_equal(nb_dtype_of(y), d);
        assert_int_equal(nb_read(y, NB_F64, v), NB_OK);
        assert_true(v[0] == 30 && v[1] == 50);
        nb_tensor *deep =
            nb_conv1d(x, nb_reshape(f, 3, L(2, 1, 2)), &(nb_conv){.groups = 2});
        assert_int_equal(nb_read(deep, NB_F64, v), NB_OK);
        assert_true(v[0] == 10 && v[1] == 20 && v[2] == 18 && v[3] == 32);
    }
}

static void test_no_images_give_no_images(void **s)
{
    nb_tensor *x = nb_zeros(4, L(0, 3, 3, 2), NB_F32);
    nb_tensor *f = nb_zeros(4, L(2, 2, 2, 5), NB_F32);
    nb_tensor *none = nb_zeros(4, L(1, 3, 3, 0), NB_F32);
    (void)s;
    has_shape(nb_conv2d(x, f, NULL), 4, L(0, 2, 2, 5));
    nb_tensor *y = nb_conv2d(none, nb_zeros(4, L(2, 2, 0, 1), NB_F32), NULL);
    has_shape(y, 4, L(1, 2, 2, 1));
    assert_true(nb_item(nb_reduce_sum(y, -1, NULL, false)) == 0);
    nb_tensor *m = nb_max_pool2d(x, &(nb_pool){.kernel_size = {2, 2}});
    has_shape(m, 4, L(0, 1, 1, 2));
}

/* Pools */

static void test_pools_step_by_their_size(void **s)
{
    (void)s;
    form_holds("max_pool2d(" IMAGE ", kernel_size=2) = [[[[5]]]]");
    form_holds("max_pool2d(" IMAGE ", kernel_size=2, stride=1) = "
               "[[[[5], [6]], [[8], [9]]]]");
    form_holds("avg_pool2d(" IMAGE ", kernel_size=(1, 3)) = "
               "[[[[2.]], [[5.]], [[8.]]]]");
    form_holds("max_pool2d(" IMAGE ", kernel_size=2, dilation=2) = [[[[9]]]]");
}

static void test_padding_counts_in_a_mean_not_in_a_maximum(void **s)
{
    (void)s;
    form_holds("avg_pool2d([[[[-4.]]]], kernel_size=2, stride=2, padding=1) = "
               "[[[[-1.]]]]");
    form_holds("max_pool2d([[[[-4.]]]], kernel_size=2, stride=2, padding=1) = "
               "[[[[-4.]]]]");
    form_holds("max_pool2d([[[[-4.]]]], kernel_size=1, stride=1, "
               "padding=(1, 0, 0, 0)) = [[[[-inf]], [[-4.]]]]");
}

/* Everything that equals the maximum gets the whole of its cotangent. */
static void test_ties_share_nothing(void **s)
{
    nb_tensor *x = given(NB_F64, 4, L(1, 1, 4, 1), (double[]){1, 3, 3, 2});
    nb_tensor *ct = given(NB_F64, 4, L(1, 1, 3, 1), (double[]){1, 10, 100});
    nb_pool how = {.kernel_size = {1, 2}, .stride = {1, 1}};
    nb_tensor *fresh, *cx = NULL;
    double v[4];
    (void)s;
    uint64_t bit = nb_walk_begin(1, &x, &fresh);
    nb_tensor *y = nb_max_pool2d(fresh, &how);
    assert_true(nb_walk_pull(bit, 1, &fresh, 1, &y, &ct, &cx));
    nb_walk_end(bit);
    assert_int_equal(nb_read(cx, NB_F64, v), NB_OK);
    assert_true(v[0] == 0 && v[1] == 11 && v[2] == 110 && v[3] == 0);
}

static void test_every_form_of_pool_derives(void **s)
{
    (void)s;
    form_derives("max_pool2d([[[[1., 2.], [5., 4.]], [[1., 2.], [7., 0.]], "
                 "[[3., 2.], [7., 8.]]]], kernel_size=(2, 1), stride=1, "
                 "padding=(1, 0), dilation=(2, 1)) = 0");
    form_derives("avg_pool2d([[[[1., 2.], [5., 4.]], [[1., 2.], [7., 0.]], "
                 "[[3., 2.], [7., 8.]]]], kernel_size=2, stride=(1, 2), "
                 "padding=(0, 1, 2, 0)) = 0");
}

/* What a window sees is the image itself. */
static void test_windows_are_a_view(void **s)
{
    nb_tensor *x = some(3, L(1, 5, 2)), *out[1];
    nb_value v[] = {NB_V_LIST(1, L(3)), NB_V_LIST(1, L(1)), NB_V_LIST(1, L(1))};
    int64_t stride[4];
    int n = 1;
    (void)s;
    assert_int_equal(nb_op_call(&nb_op_windows, 1, &x, 3, v, &n, out), NB_OK);
    has_shape(out[0], 4, L(1, 3, 3, 2));
    assert_ptr_equal(nb_device_data(out[0], stride), nb_device_data(x, NULL));
    assert_int_equal(stride[1], 2);
    assert_int_equal(stride[2], 2);
    form_fails("fold([[[[1.], [2.]]]], size=(9,), stride=(1,), "
               "dilation=(1,))",
               NB_EVALUE, "do not make an image of size 9");
}

static void test_running_out_of_memory_is_an_error(void **s)
{
    (void)s;
    form_survives("conv1d([[[1., 2.], [3., 4.]]], [[[1., 1.]], [[1., 1.]]], "
                  "[1., 2.], groups=2, padding=1) = 0");
    form_survives("conv1d_transpose([[[1.], [3.]]], [[[1.]], [[1.]]], "
                  "stride=2) = 0");
    form_survives("max_pool2d([[[[1.], [2.]]]], kernel_size=(1, 2), "
                  "padding=(0, 1)) = 0");
    form_survives("avg_pool2d([[[[1.], [2.]]]], kernel_size=(1, 2)) = 0");
}

#define TEST(name) \
    cmocka_unit_test_setup_teardown(name, open_scope, close_scope)

int main(void)
{
    there_open();
    const struct CMUnitTest tests[] = {
        TEST(test_a_number_stands_for_a_pair),
        TEST(test_padding_is_one_two_or_four_numbers),
        TEST(test_layouts_have_one_name),
        TEST(test_refusals_say_what_callers_look_for),
        TEST(test_ranks_and_results_must_fit),
        TEST(test_groups_keep_to_themselves),
        TEST(test_a_transposed_convolution_spreads),
        TEST(test_it_is_the_adjoint_of_a_convolution),
        TEST(test_every_form_of_convolution_derives),
        TEST(test_large_images_are_cut_into_blocks),
        TEST(test_every_number_convolves_in_itself),
        TEST(test_no_images_give_no_images),
        TEST(test_pools_step_by_their_size),
        TEST(test_padding_counts_in_a_mean_not_in_a_maximum),
        TEST(test_ties_share_nothing),
        TEST(test_every_form_of_pool_derives),
        TEST(test_windows_are_a_view),
        TEST(test_running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
