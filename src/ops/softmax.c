/* softmax.c - exponentials added up without overflow.
 *
 * e^x is taken of x - m, m the largest x along the axes: no term is above 1 and
 * one is 1.  The results do not depend on m, so it is held still when they are
 * differentiated. */
#include "ops/reduce.h"

static bool is_empty(nb_tensor *x)
{
    return nb_elements(x) == 0;
}

/* The largest x over axes; 0 where that is infinite, or inf - inf would come
 * up, and where there is none. */
static nb_tensor *peak(nb_tensor *x, int n, const int64_t *axes)
{
    if (!x || is_empty(x)) return nb_num(0);
    nb_tensor *m = nb_detach(nb_reduce_max(x, n, axes, true));
    return nb_where(nb_is_inf(m), nb_num(0), m);
}

static nb_tensor *narrow(const nb_call *c, nb_tensor *y)
{
    return nb_cast(y, nb_dtype_of(c->in[0]));
}

/* log sum e^x = m + log sum e^(x - m) */
static nb_tensor *log_sum(const nb_call *c)
{
    int n;
    const int64_t *axes = nb_arg_list(c, 0, &n);
    bool keep = nb_arg_int(c, 1);
    nb_tensor *x = nb_widen(c->in[0]), *m = peak(x, n, axes);
    nb_tensor *sum = nb_reduce_sum(nb_exp(nb_sub(x, m)), n, axes, keep);
    /* The sum of one element is that element: m without its axes. */
    if (!keep && nb_rank(m)) m = nb_reduce_sum(m, n, axes, false);
    return nb_add(nb_log(sum), m);
}

COMPOSE(logsumexp, narrow(c, log_sum(c)))

nb_op nb_op_logsumexp = {
    .name = "logsumexp",
    .doc = "Logarithm of the sum of exponentials over axes, all of them if "
           "none are given, without overflow; of nothing, -inf.",
    .example = "logsumexp([[0.0, 0.0, 0.0], [1000.0, 0.0, 0.0]], axis=(1,)) = "
               "[1.0986122886681098, 1000.0]",
    .params = P_REDUCE,
    .kind = NB_COMPOSITE,
    .in = NB_IN_FLOAT,
    .compose = logsumexp_compose,
};

static nb_tensor *softmax_of(const nb_call *c)
{
    int64_t axis = nb_arg_int(c, 0);
    nb_tensor *x = nb_widen(c->in[0]);
    nb_tensor *e = nb_exp(nb_sub(x, peak(x, 1, &axis)));
    return nb_div(e, nb_reduce_sum(e, 1, &axis, true));
}

COMPOSE(softmax, narrow(c, softmax_of(c)))

nb_op nb_op_softmax = {
    .name = "softmax",
    .doc = "Exponentials divided by their sum along an axis.",
    .example = "softmax([[0.0, 0.0], [0.0, 1.0986122886681098]], axis=1) = "
               "[[0.5, 0.5], [0.25, 0.75]]",
    .params = P_AXIS,
    .kind = NB_COMPOSITE,
    .in = NB_IN_FLOAT,
    .compose = softmax_compose,
};

static nb_tensor *logsoftmax_of(const nb_call *c)
{
    int64_t axis = nb_arg_int(c, 0);
    nb_tensor *x = nb_widen(c->in[0]);
    x = nb_sub(x, peak(x, 1, &axis));
    return nb_sub(x, nb_log(nb_reduce_sum(nb_exp(x), 1, &axis, true)));
}

COMPOSE(logsoftmax, narrow(c, logsoftmax_of(c)))

nb_op nb_op_logsoftmax = {
    .name = "logsoftmax",
    .doc = "Logarithm of softmax along an axis, without overflow.",
    .example = "logsoftmax([[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]], axis=0) = "
               "[[-1.0986122886681098, -0.5514447139320511], "
               "[-1.0986122886681098, -1.5514447139320511], "
               "[-1.0986122886681098, -1.5514447139320511]]",
    .params = P_AXIS,
    .kind = NB_COMPOSITE,
    .in = NB_IN_FLOAT,
    .compose = logsoftmax_compose,
};
