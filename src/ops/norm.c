/* norm.c - norms of vectors, and those of matrices that need no singular
 * values. */
#include "ops/reduce.h"

#include <math.h>

/* The axes of a call; n < 0 stands for all. */
typedef struct span {
    int n;
    const int64_t *axes;
    bool keep;
} span;

/* s^(1/p), with derivative 0 where s is 0: at the origin a norm has a kink, and
 * of its slopes there 0 is the one in the middle. */
static nb_tensor *root(nb_tensor *s, double p)
{
    nb_tensor *some = nb_not_equal(s, nb_num(0));
    nb_tensor *safe = nb_where(some, s, nb_num(1));
    safe = p == 2 ? nb_sqrt(safe) : nb_pow(safe, nb_num(1 / p));
    return nb_where(some, safe, nb_num(0));
}

static nb_tensor *vector_norm(nb_tensor *x, double p, span s)
{
    if (p == 0)
        return nb_reduce_sum(
            nb_cast(nb_not_equal(x, nb_num(0)), nb_dtype_of(x)), s.n, s.axes,
            s.keep);
    if (p == 2)
        return root(nb_reduce_sum(nb_mul(x, x), s.n, s.axes, s.keep), 2);
    x = nb_abs(x);
    if (isinf(p))
        return p > 0 ? nb_reduce_max(x, s.n, s.axes, s.keep)
                     : nb_reduce_min(x, s.n, s.axes, s.keep);
    if (p == 1) return nb_reduce_sum(x, s.n, s.axes, s.keep);
    nb_tensor *sum = nb_reduce_sum(nb_pow(x, nb_num(p)), s.n, s.axes, s.keep);
    return p > 0 ? root(sum, p) : nb_pow(sum, nb_num(1 / p));
}

/* Sums of absolute values along columns (1) or rows (inf), then the extreme of
 * these. */
static nb_tensor *matrix_norm(nb_tensor *x, double p, span s)
{
    static const int64_t both[] = {0, 1};
    const int64_t *axes = s.n < 0 ? both : s.axes;
    if (fabs(p) == 2)
        return nb_fail(NB_EVALUE,
                       "norm: ord %g over two axes needs singular values, "
                       "which linalg.matrix_norm computes",
                       p);
    if (fabs(p) != 1 && !isinf(p))
        return nb_fail(NB_EVALUE,
                       "norm: ord %g over two axes is not a matrix norm: 1, "
                       "-1, inf or -inf",
                       p);
    bool rows = isinf(p);
    nb_tensor *sum = nb_reduce_sum(nb_abs(x), 1, &axes[rows], true);
    return p > 0 ? nb_reduce_max(sum, 2, axes, s.keep)
                 : nb_reduce_min(sum, 2, axes, s.keep);
}

static nb_tensor *norm_of(const nb_call *c)
{
    span s = {.keep = nb_arg_int(c, 2)};
    nb_tensor *x = nb_widen(c->in[0]);
    s.axes = nb_arg_list(c, 1, &s.n);
    int naxes = s.n < 0 ? RANK(0) : s.n;
    if (nb_arg_int(c, 0) == NB_NONE) return vector_norm(x, 2, s);
    if (naxes > 2)
        return nb_fail(NB_EVALUE,
                       "norm: ord %g over %d axes: over one it is a vector "
                       "norm, over two a matrix norm",
                       nb_arg_float(c, 0), naxes);
    return naxes == 2 ? matrix_norm(x, nb_arg_float(c, 0), s)
                      : vector_norm(x, nb_arg_float(c, 0), s);
}

COMPOSE(norm, nb_cast(norm_of(c), nb_dtype_of(c->in[0])))

nb_op nb_op_norm = {
    .name = "norm",
    .doc = "Without ord the square root of the sum of squares over axes, all "
           "of them if none are given.  With ord p over one axis the vector "
           "norm (sum |x|^p)^(1/p), for inf and -inf the largest and smallest "
           "|x|, for 0 the count of what is not zero; over two axes the "
           "matrix norm for 1, -1, inf, -inf.",
    .example = "norm([[3.0, 4.0, 12.0], [0.0, -2.0, 0.0]], axis=(1,)) = "
               "[13.0, 2.0]",
    .params = "x, ord:float=None, axis:axes=None, keepdims:bool=False",
    .kind = NB_COMPOSITE,
    .in = NB_IN_FLOAT,
    .compose = norm_compose,
};

nb_tensor *nb_norm(nb_tensor *x, const double *ord, int n, const int64_t *axes,
                   bool keepdims)
{
    nb_value none = NB_V_NONE, some = NB_V_LIST(n, axes);
    nb_value power = NB_V_FLOAT(ord ? *ord : 0);
    nb_value v[] = {ord ? power : none, n < 0 ? none : some,
                    NB_V_INT(keepdims)};
    return nb_apply(&nb_op_norm, 1, &x, 3, v, NB_CALLER);
}
