/* reduce.c - reductions over axes.
 *
 * The signature names the axes from the first reduced one to the last of all
 * by letters: "... a b c -> ... a c" reduces b, "... a 1 c" keeps its place.
 * Attributes begin with the axes, None for all. */
#include "ops/reduce.h"

#include "base/half.h"

void nb_sign_axes(nb_text *t, int first, int rank)
{
    nb_text_add(t, "...");
    for (int d = first; d < rank; d++)
        nb_text_add(t, " %c", 'a' + d);
}

nb_tensor *nb_widen(nb_tensor *x)
{
    nb_dtype d = nb_dtype_of(x);
    return nb_cast(x, nb_dtype_is_half(d) ? NB_F32 : d);
}

static bool is_reduced(const nb_call *c, int axis)
{
    int n;
    const int64_t *axes = nb_arg_list(c, 0, &n);
    bool is = n < 0;
    for (int k = 0; k < n; k++)
        is = is || axes[k] == axis;
    return is;
}

static int64_t reduced_count(const nb_call *c)
{
    int64_t n = 1;
    for (int d = 0; d < RANK(0); d++)
        if (is_reduced(c, d)) n *= SIZE(0, d);
    return n;
}

static bool reduce_sign(const nb_call *c, nb_text *t)
{
    static const char *const kinds[] = {"", "max", "min", "prod", "and", "or"};
    int rank = RANK(0), first = rank;
    bool keep = nb_arg_int(c, 1);
    for (int d = rank - 1; d >= 0; d--)
        if (is_reduced(c, d)) first = d;
    nb_sign_axes(t, first, rank);
    nb_text_add(t, " -> ...");
    for (int d = first; d < rank; d++) {
        if (!is_reduced(c, d))
            nb_text_add(t, " %c", 'a' + d);
        else if (keep)
            nb_text_add(t, " 1");
    }
    if (c->op->reduce == NB_SUM || first == rank) return true;
    nb_text_add(t, "; %s{", kinds[c->op->reduce]);
    for (int d = first; d < rank; d++)
        if (is_reduced(c, d)) nb_text_add(t, " %c", 'a' + d);
    return nb_text_add(t, "}");
}

nb_tensor *nb_unreduce(const nb_call *c, nb_tensor *t)
{
    int64_t one[NB_MAX_RANK], whole[NB_MAX_RANK];
    int rank = RANK(0);
    for (int d = 0; d < rank; d++) {
        whole[d] = SIZE(0, d);
        one[d] = is_reduced(c, d) ? 1 : whole[d];
    }
    return nb_broadcast_to(nb_reshape(t, rank, one), rank, whole);
}

/* x reduced over the same axes as c by `by`. */
typedef nb_tensor *reduction(nb_tensor *x, int n, const int64_t *axes,
                             bool keepdims);

static nb_tensor *over(const nb_call *c, reduction *by, nb_tensor *x, bool keep)
{
    int n;
    const int64_t *axes = nb_arg_list(c, 0, &n);
    return by(x, n, axes, keep);
}

/* Sums and products */

/* Attribute 2 is the dtype to add up or multiply in. */
static bool dtype_infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    int64_t d = nb_arg_int(c, 2);
    (void)k, (void)out;
    if (d == NB_NONE) return true;
    if (d <= NB_NOTYPE || d >= NB_NDTYPES)
        return nb_fail(NB_ETYPE, "%s: %lld is not a dtype", c->op->name,
                       (long long)d);
    *dtype = (nb_dtype)d;
    return true;
}

#define P_TOTAL P_REDUCE ", *, dtype:dtype=None"

/* y = sum x: every x moves y by as much as itself. */
TRANSPOSE(sum, nb_unreduce(c, nb_cast(ct, nb_dtype_of(c->in[0]))))

nb_op nb_op_reduce_sum = {
    .name = "reduce_sum",
    .doc = "Sum over axes, all of them if none are given; of nothing, 0.  "
           "Integers narrower than 64 bits are added up in 64, 16-bit floats "
           "in float32; or all in dtype, if it is given, which the result "
           "then has.",
    .example = "reduce_sum([[1, 2, 3], [4, 5, 6]], axis=(1,), keepdims=True) "
               "= [[6], [15]]",
    .params = P_TOTAL,
    .sign = reduce_sign,
    .infer = dtype_infer,
    .kind = NB_LINEAR,
    .out = NB_OUT_SUM,
    .scalar = NB_S_copy,
    .transpose = sum_transpose,
};

/* For each element of x the product of the others: of those before and behind
 * it in its line along the first axis, of the other lines along the second, and
 * so on.  Nothing is divided, so zeros do no harm.  NULL: no axis is reduced.*/
static nb_tensor *others(const nb_call *c, nb_tensor *x)
{
    nb_tensor *product = NULL;
    for (int64_t d = 0; x && d < RANK(0); d++) {
        if (!is_reduced(c, (int)d)) continue;
        nb_tensor *before = nb_cumprod(x, d, true, false);
        nb_tensor *line = nb_mul(before, nb_cumprod(x, d, true, true));
        if (!line) return NULL;
        product = product ? nb_mul(product, line) : line;
        x = nb_prod(x, 1, &d, true);
    }
    return x ? product : NULL;
}

/* y = prod x: x_i moves y by the product of the others. */
static nb_tensor *prod_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    nb_dtype d = nb_dtype_of(c->out);
    bool some = false;
    (void)k, (void)i;
    for (int axis = 0; axis < RANK(0); axis++)
        some = some || is_reduced(c, axis);
    u = nb_cast(u, d);
    if (!some) return u;
    u = nb_mul(others(c, nb_cast(c->in[0], d)), u);
    return over(c, nb_reduce_sum, u, nb_arg_int(c, 1));
}

nb_op nb_op_prod = {
    .name = "prod",
    .doc = "Product over axes, all of them if none are given; of nothing, 1.  "
           "Integers narrower than 64 bits are multiplied in 64, 16-bit "
           "floats in float32; or all in dtype, if it is given, which the "
           "result then has.",
    .example = "prod([[1, 2, 3], [4, 5, 6]], axis=(0,)) = [4, 10, 18]",
    .params = P_TOTAL,
    .sign = reduce_sign,
    .infer = dtype_infer,
    .kind = NB_RULE,
    .out = NB_OUT_SUM,
    .scalar = NB_S_copy,
    .reduce = NB_PROD,
    .jvp = prod_jvp,
};

/* Extremes */

/* max of nothing has no value. */
static bool some_check(nb_call *c)
{
    for (int d = 0; d < RANK(0); d++)
        if (is_reduced(c, d) && SIZE(0, d) == 0)
            return nb_fail(NB_EVALUE,
                           "%s: axis %d has no elements, and nothing has no "
                           "extremum",
                           c->op->name, d);
    return true;
}

/* y = max x moves with every x that equals it. */
PARTIAL(extreme, nb_cast(nb_equal(c->in[0], nb_unreduce(c, c->out)),
                         nb_dtype_of(c->out)))

nb_op nb_op_reduce_max = {
    .name = "reduce_max",
    .doc = "Largest element over axes, all of them if none are given.  NaN "
           "wins.  Every element that equals the maximum gets the whole "
           "derivative.",
    .example = "reduce_max([[1, 5, 2], [3, 4, 6]], axis=(0,)) = [3, 5, 6]",
    .params = P_REDUCE,
    .check = some_check,
    .sign = reduce_sign,
    .kind = NB_POINTWISE,
    .scalar = NB_S_copy,
    .reduce = NB_MAX,
    .partial = extreme_partial,
};

nb_op nb_op_reduce_min = {
    .name = "reduce_min",
    .doc = "Smallest element over axes, all of them if none are given.  NaN "
           "wins.  Every element that equals the minimum gets the whole "
           "derivative.",
    .example = "reduce_min([[1, 5, 2], [3, 4, 6]], axis=(1,)) = [1, 3]",
    .params = P_REDUCE,
    .check = some_check,
    .sign = reduce_sign,
    .kind = NB_POINTWISE,
    .scalar = NB_S_copy,
    .reduce = NB_MIN,
    .partial = extreme_partial,
};

static bool minmax_compose(const nb_call *c, nb_results *r)
{
    return nb_results_add(r, nb_reduce_min(c->in[0], -1, NULL, false)) &&
           nb_results_add(r, nb_reduce_max(c->in[0], -1, NULL, false));
}

nb_op nb_op_minmax = {
    .name = "minmax",
    .doc = "The smallest and the largest of all elements.",
    .example = "minmax([[3, 1], [2, 5]]) = 1, 5",
    .params = "x",
    .kind = NB_COMPOSITE,
    .nout = 2,
    .compose = minmax_compose,
};

nb_status nb_minmax(nb_tensor *x, nb_tensor **out)
{
    nb_results r = {.room = 2, .out = out};
    return NB_STATUS(
        nb_apply_many(&nb_op_minmax, 1, &x, 0, NULL, &r, NB_CALLER));
}

/* Truth */

nb_op nb_op_all = {
    .name = "all",
    .doc = "Whether all elements over axes are true, that is not zero; of "
           "nothing, True.",
    .example = "all([[True, False], [True, True]], axis=(1,)) = [False, True]",
    .params = P_REDUCE,
    .sign = reduce_sign,
    .kind = NB_CONSTANT,
    .in = NB_IN_BOOL,
    .out = NB_OUT_BOOL,
    .scalar = NB_S_copy,
    .reduce = NB_AND,
};

nb_op nb_op_any = {
    .name = "any",
    .doc = "Whether any element over axes is true, that is not zero; of "
           "nothing, False.",
    .example = "any([[True, False], [False, False]], axis=(1,)) = "
               "[True, False]",
    .params = P_REDUCE,
    .sign = reduce_sign,
    .kind = NB_CONSTANT,
    .in = NB_IN_BOOL,
    .out = NB_OUT_BOOL,
    .scalar = NB_S_copy,
    .reduce = NB_OR,
};

/* As bools the elements add up to an int64. */
COMPOSE(count, over(c, nb_reduce_sum, c->in[0], nb_arg_int(c, 1)))

nb_op nb_op_count_nonzero = {
    .name = "count_nonzero",
    .doc = "How many elements over axes are not zero, as int64; NaN is not.",
    .example = "count_nonzero([[0, 2, 3], [0, 0, 6]], axis=(1,)) = [2, 1]",
    .params = P_REDUCE,
    .kind = NB_COMPOSITE,
    .in = NB_IN_BOOL,
    .compose = count_compose,
};

/* Moments */

static nb_tensor *mean_of(const nb_call *c, nb_tensor *x, bool keep)
{
    return nb_div(over(c, nb_reduce_sum, x, keep),
                  nb_num((double)reduced_count(c)));
}

/* What was computed wide, in the dtype of the input. */
static nb_tensor *narrow(const nb_call *c, nb_tensor *y)
{
    return nb_cast(y, nb_dtype_of(c->in[0]));
}

COMPOSE(mean, narrow(c, mean_of(c, nb_widen(c->in[0]), nb_arg_int(c, 1))))

nb_op nb_op_mean = {
    .name = "mean",
    .doc = "Arithmetic mean over axes, all of them if none are given; of "
           "integers, in the default float; of nothing, NaN.",
    .example = "mean([[1.0, 2.0, 3.0], [3.0, 5.0, 7.0]], axis=(1,)) = "
               "[2.0, 5.0]",
    .params = P_REDUCE,
    .kind = NB_COMPOSITE,
    .in = NB_IN_FLOAT,
    .compose = mean_compose,
};

/* Squared distances from the mean, added up and divided by count - correction,
 * in wide dtype. */
static nb_tensor *variance(const nb_call *c)
{
    double count = (double)reduced_count(c) - nb_arg_float(c, 1);
    nb_tensor *x = nb_widen(c->in[0]);
    nb_tensor *d = nb_sub(x, mean_of(c, x, true));
    nb_tensor *sum = over(c, nb_reduce_sum, nb_mul(d, d), nb_arg_int(c, 2));
    return nb_div(sum, nb_num(count > 0 ? count : 0));
}

#define P_MOMENT "x, axis:axes=None, correction:float=0.0, keepdims:bool=False"

COMPOSE(var, narrow(c, variance(c)))

nb_op nb_op_var = {
    .name = "var",
    .doc = "Variance over axes, all of them if none are given: the mean "
           "squared distance from the mean, divided by the count less "
           "correction.",
    .example = "var([[1.0, 2.0, 3.0], [3.0, 5.0, 10.0]], axis=(1,), "
               "correction=1.0) = [1.0, 13.0]",
    .params = P_MOMENT,
    .kind = NB_COMPOSITE,
    .in = NB_IN_FLOAT,
    .compose = var_compose,
};

COMPOSE(std, narrow(c, nb_sqrt(variance(c))))

nb_op nb_op_std = {
    .name = "std",
    .doc = "Standard deviation over axes, all of them if none are given: the "
           "square root of the variance.",
    .example = "std([[1.0, 3.0], [3.0, 9.0]], axis=(1,)) = [1.0, 3.0]",
    .params = P_MOMENT,
    .kind = NB_COMPOSITE,
    .in = NB_IN_FLOAT,
    .compose = std_compose,
    .shapes = "d", /* not smooth where all are equal */
};

static nb_tensor *moment(nb_op *op, nb_tensor *x, int n, const int64_t *axes,
                         double correction, bool keepdims, void *caller)
{
    nb_value all = NB_V_NONE, some = NB_V_LIST(n, axes);
    nb_value v[] = {n < 0 ? all : some, NB_V_FLOAT(correction),
                    NB_V_INT(keepdims)};
    return nb_apply(op, 1, &x, 3, v, caller);
}

nb_tensor *nb_var(nb_tensor *x, int n, const int64_t *axes, double correction,
                  bool keepdims)
{
    return moment(&nb_op_var, x, n, axes, correction, keepdims, NB_CALLER);
}

nb_tensor *nb_std(nb_tensor *x, int n, const int64_t *axes, double correction,
                  bool keepdims)
{
    return moment(&nb_op_std, x, n, axes, correction, keepdims, NB_CALLER);
}
