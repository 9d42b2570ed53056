/* quickstart.c - a line through noisy points, by least squares: random numbers
 * from a key, lazy ops, linear algebra. */
#include <nabla/nabla.h>
#include <stdio.h>

enum { N = 50 };

static nb_tensor *transposed(nb_tensor *x)
{
    return nb_swap_axes(x, 0, 1);
}

int main(void)
{
    /* What ops return is lent by the scope and goes with it. */
    nb_scope_open();

    /* Points (x, 2 x - 1) with noise; a key gives the same numbers everywhere.
     */
    nb_tensor *noise =
        nb_random_normal(nb_random_key(7), 1, (int64_t[]){N}, 0, 0.1, NB_F32);
    nb_tensor *x = nb_linspace(0, 1, N, true, NB_F32);
    nb_tensor *y = nb_add(nb_sub(nb_mul(x, nb_num(2)), nb_num(1)), noise);

    /* Every op is recorded; an error anywhere makes the end NULL. */
    nb_tensor *ones = nb_ones(1, (int64_t[]){N}, NB_F32);
    nb_tensor *a = nb_stack(2, (nb_tensor *[]){x, ones}, 1);
    nb_tensor *at = transposed(a);
    nb_tensor *line = nb_solve(nb_matmul(at, a), nb_matmul(at, y));
    printf("recorded: rank %d, computed: %d\n", nb_rank(line),
           nb_is_realized(line));

    /* Asking for values computes what they need. */
    double slope = nb_item(nb_get(line, 1, (nb_key[]){NB_AT(0)}));
    double offset = nb_item(nb_get(line, 1, (nb_key[]){NB_AT(1)}));
    printf("y = %.3f x + %.3f\n", slope, offset);

    nb_tensor *error = nb_abs(nb_sub(y, nb_matmul(a, line)));
    printf("largest error: %.3f\n",
           nb_item(nb_reduce_max(error, -1, NULL, false)));

    nb_status status = nb_error_code();
    if (status != NB_OK) fprintf(stderr, "%s\n", nb_error_message());
    nb_scope_close(0, NULL);
    return status != NB_OK;
}
