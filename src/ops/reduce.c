/* reduce.c - reductions over axes.
 *
 * The signature names the axes from the first reduced one to the last of all
 * by letters: "... a b c -> ... a c" reduces b, "... a 1 c" keeps its place. */
#include "ops/ops.h"

void nb_sign_axes(nb_text *t, int first, int rank)
{
    nb_text_add(t, "...");
    for (int d = first; d < rank; d++)
        nb_text_add(t, " %c", 'a' + d);
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

/* y = sum x: every x moves y by as much as itself. */
TRANSPOSE(sum, nb_unreduce(c, ct))

nb_op nb_op_reduce_sum = {
    .name = "reduce_sum",
    .doc = "Sum over axes, all of them if none are given.  Integers narrower "
           "than 64 bits are added up in 64.",
    .example = "reduce_sum([[1, 2], [3, 4]], axis=(1,)) = [3, 7]",
    .params = P_REDUCE,
    .sign = reduce_sign,
    .kind = NB_LINEAR,
    .out = NB_OUT_SUM,
    .scalar = NB_S_copy,
    .transpose = sum_transpose,
};

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
PARTIAL(max, nb_cast(nb_equal(c->in[0], nb_unreduce(c, c->out)),
                     nb_dtype_of(c->out)))

nb_op nb_op_reduce_max = {
    .name = "reduce_max",
    .doc = "Largest element over axes, all of them if none are given.  NaN "
           "wins.  Every element that equals the maximum gets the whole "
           "derivative.",
    .example = "reduce_max([[1, 5], [3, 4]], axis=(0,)) = [3, 5]",
    .params = P_REDUCE,
    .check = some_check,
    .sign = reduce_sign,
    .kind = NB_POINTWISE,
    .scalar = NB_S_copy,
    .reduce = NB_MAX,
    .partial = max_partial,
};

static int64_t reduced_count(const nb_call *c)
{
    int64_t n = 1;
    for (int d = 0; d < RANK(0); d++)
        if (is_reduced(c, d)) n *= SIZE(0, d);
    return n;
}

static nb_tensor *sum_as(const nb_call *c)
{
    int n;
    const int64_t *axes = nb_arg_list(c, 0, &n);
    return nb_reduce_sum(c->in[0], n, axes, nb_arg_int(c, 1));
}

COMPOSE(mean, nb_div(sum_as(c), nb_num((double)reduced_count(c))))

nb_op nb_op_mean = {
    .name = "mean",
    .doc = "Arithmetic mean over axes, all of them if none are given; of "
           "integers, in the default float.",
    .example = "mean([[1.0, 2.0], [3.0, 5.0]]) = 2.75",
    .params = P_REDUCE,
    .kind = NB_COMPOSITE,
    .in = NB_IN_FLOAT,
    .compose = mean_compose,
};
