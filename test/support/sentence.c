/* sentence.c - what tests of one sentence each have in common. */
#include "support/sentence.h"

#include "support/there.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

int open_scope(void **state)
{
    (void)state;
    return nb_scope_open();
}

int close_scope(void **state)
{
    (void)state;
    nb_scope_close(0, NULL);
    nb_error_clear();
    return nodes_left() != 0;
}

void has_shape(nb_tensor *x, int rank, const int64_t *size)
{
    if (!x) fail_msg("%s", nb_error_message());
    assert_int_equal(nb_rank(x), rank);
    for (int d = 0; d < rank; d++)
        assert_int_equal(nb_size(x, d), size[d]);
}

void refused(nb_tensor *x, nb_status code, const char *says)
{
    assert_null(x);
    assert_int_equal(nb_error_code(), code);
    if (!strstr(nb_error_message(), says))
        fail_msg("\"%s\" does not say \"%s\"", nb_error_message(), says);
    nb_error_clear();
}

nb_tensor *vector(nb_dtype d, int n, const double *v)
{
    return nb_cast(given(NB_F64, 1, (int64_t[]){n}, v), d);
}

static bool is_close(double x, double expected, double error)
{
    if (isnan(expected)) return isnan(x);
    return x == expected || fabs(x - expected) <= error * fabs(expected);
}

void is_near(nb_tensor *x, nb_dtype d, double error, int n,
             const double *expected)
{
    enum { MOST = 64 };
    double got[MOST];
    if (!x) fail_msg("%s", nb_error_message());
    assert_int_equal(nb_dtype_of(x), d);
    assert_int_equal(nb_elements(x), n);
    assert_true(n <= MOST);
    assert_int_equal(nb_read(x, NB_F64, got), NB_OK);
    for (int i = 0; i < n; i++)
        if (!is_close(got[i], expected[i], error))
            fail_msg("element %d is %.17g, not %.17g", i, got[i], expected[i]);
}
