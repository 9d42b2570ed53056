/* random_pick.c - choices drawn: yes or no, integers, categories, orders. */
#include "ops/random.h"

#include "core/convert.h"
#include "ops/view.h"

/* random_bernoulli */

/* A number that is at hand is looked at. */
static bool check_probability(nb_tensor *p)
{
    if (p->rank || p->nlanes || !nb_tensor_done(p)) return true;
    double value = nb_item(p);
    return (value >= 0 && value <= 1) ||
           nb_fail(NB_EVALUE,
                   "random_bernoulli: p is %g: a probability is from 0 to 1",
                   value);
}

static nb_tensor *bernoulli(const nb_call *c)
{
    int64_t own[NB_MAX_RANK];
    nb_extents s;
    nb_tensor *p = c->nin > 1 ? c->in[1] : nb_scalar_float(0.5, NB_F64);
    if (!p || !nb_draw_sizes(c, 0, &s) || !check_probability(p)) return NULL;
    if (s.n < 0) {
        nb_sizes(p, own);
        s = (nb_extents){nb_rank(p), own};
    }
    nb_tensor *bound = nb_mul(nb_cast(p, NB_F64), nb_num(0x1p32));
    nb_tensor *w =
        nb_cast(nb_draw_bits(c->in[0], s, NB_U32, 0, NB_FIRST), NB_F64);
    return nb_less(w, nb_broadcast_to(bound, s.n, s.at));
}

COMPOSE(bernoulli, bernoulli(c))

nb_op nb_op_random_bernoulli = {
    .name = "random_bernoulli",
    .doc = "True with probability p (one half if it is not given) and else "
           "False, in the shape of p or in one that p broadcasts to.",
    .example = "random_bernoulli([3, 9], [[0.25], [0.75]], shape=(2, 3)) = "
               "[[False, True, False], [True, False, True]]",
    .params = "key, p=None, shape:ints=None",
    .check = nb_key_check,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = bernoulli_compose,
    .domain = {0, 1},
};

nb_tensor *nb_random_bernoulli(nb_tensor *key, nb_tensor *p, int rank,
                               const int64_t *shape)
{
    nb_value v = nb_shape_value(rank, shape);
    return nb_apply(&nb_op_random_bernoulli, 2, (nb_tensor *[]){key, p}, 1, &v,
                    NB_CALLER);
}

/* random_randint */

static bool holds(nb_dtype d, int64_t x)
{
    uint64_t to;
    nb_write_i64(&to, d, x);
    return nb_read_i64(&to, d) == x && (x >= 0 || !nb_dtype_is_unsigned(d));
}

/* In uint64 all is modulo 2^64, so the distance is right for any bounds. */
static nb_tensor *randint(const nb_call *c)
{
    nb_extents s;
    int64_t low = nb_arg_int(c, 1), high = nb_arg_int(c, 2);
    int64_t given = nb_arg_int(c, 3);
    nb_dtype d = given == NB_NONE ? NB_I64 : (nb_dtype)given;
    if (!nb_draw_shape(c, 0, &s)) return NULL;
    if (!nb_dtype_is_integer(d))
        return nb_fail(NB_ETYPE,
                       "random_randint: dtype is %s: an integer "
                       "dtype is needed",
                       nb_dtype_name(d));
    if (low >= high || !holds(d, low) || !holds(d, high - 1))
        return nb_fail(NB_EVALUE,
                       "random_randint: from %lld to below %lld in %s: low is "
                       "less than high and the dtype holds what is between",
                       (long long)low, (long long)high, nb_dtype_name(d));
    nb_tensor *w = nb_draw_bits(c->in[0], s, NB_U64,
                                (uint64_t)high - (uint64_t)low, NB_FIRST);
    return nb_cast(nb_add(nb_cast(w, NB_I64), nb_count(low)), d);
}

COMPOSE(randint, randint(c))

nb_op nb_op_random_randint = {
    .name = "random_randint",
    .doc = "Integers from low to below high, all equally likely.",
    .example = "random_randint([3, 9], shape=(2, 3), low=-5, high=5, "
               "dtype=int16) = [[-1, -2, 2], [-5, -1, -4]]",
    .params = "key, shape:ints, low:int, high:int, dtype:dtype=int64",
    .check = nb_key_check,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = randint_compose,
};

nb_tensor *nb_random_randint(nb_tensor *key, int rank, const int64_t *shape,
                             int64_t low, int64_t high, nb_dtype dtype)
{
    nb_value v[] = {nb_shape_value(rank, shape), NB_V_INT(low), NB_V_INT(high),
                    NB_V_INT(dtype ? dtype : NB_I64)};
    return nb_apply(&nb_op_random_randint, 1, &key, 4, v, NB_CALLER);
}

/* random_categorical */

/* The axis argument of an op whose first tensor is the key. */
static bool settle_axis(const nb_call *c, int k, int rank, int *axis)
{
    int64_t given = nb_arg_int(c, k);
    *axis = (int)(given < 0 ? given + rank : given);
    return (given >= -rank && given < rank) ||
           nb_fail(NB_EAXIS, "%s: axis %lld is out of range for rank %d",
                   c->op->name, (long long)given, rank);
}

/* The index of the greatest logit plus Gumbel noise, -log(-log u). */
static nb_tensor *categorical(const nb_call *c)
{
    int64_t full[NB_MAX_RANK + 1];
    nb_extents s;
    int axis, rank = RANK(1);
    if (!nb_draw_sizes(c, 1, &s) || !settle_axis(c, 0, rank, &axis))
        return NULL;
    if (SIZE(1, axis) == 0)
        return nb_fail(NB_EVALUE,
                       "random_categorical: axis %d has size 0: "
                       "nothing to choose from",
                       axis);
    int lead = s.n < 0 ? 0 : s.n + 1 - rank;
    if (lead < 0 || rank + lead > NB_MAX_RANK)
        return nb_fail(NB_EVALUE,
                       "random_categorical: a shape of rank %d for logits of "
                       "rank %d: from %d to %d is needed",
                       s.n, rank, rank - 1, NB_MAX_RANK - 1);
    axis += lead;
    for (int d = 0, k = 0; d < rank + lead; d++) {
        if (d == axis || s.n < 0)
            full[d] = SIZE(1, d - lead);
        else
            full[d] = s.at[k++];
    }
    nb_extents all = {rank + lead, full};
    nb_tensor *logits = nb_cast(c->in[1], NB_F64);
    nb_tensor *u = nb_draw_open(c->in[0], all, true, NB_FIRST);
    nb_tensor *noise = nb_neg(nb_log(nb_neg(nb_log(u))));
    return nb_argmax(nb_add(nb_broadcast_to(logits, all.n, full), noise), axis,
                     false);
}

COMPOSE(categorical, categorical(c))

nb_op nb_op_random_categorical = {
    .name = "random_categorical",
    .doc = "Indices along an axis of logits, each with a probability in "
           "proportion to the exponential of its logit: one for every other "
           "index of logits, or as many as the shape, to which these "
           "broadcast, has.",
    .example = "random_categorical([3, 9], [[0.5, 1.5, -1.0], "
               "[2.0, 0.0, 1.0]], axis=0, shape=(2, 3)) = "
               "[[0, 0, 0], [1, 0, 1]]",
    .params = "key, logits, axis:int=-1, shape:ints=None",
    .check = nb_key_check,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = categorical_compose,
};

nb_tensor *nb_random_categorical(nb_tensor *key, nb_tensor *logits,
                                 int64_t axis, int rank, const int64_t *shape)
{
    nb_value v[] = {NB_V_INT(axis), nb_shape_value(rank, shape)};
    return nb_apply(&nb_op_random_categorical, 2, (nb_tensor *[]){key, logits},
                    2, v, NB_CALLER);
}

/* random_permutation */

/* The order in which random words sort. */
static nb_tensor *order(nb_tensor *key, int64_t n)
{
    nb_tensor *w = nb_draw_bits(key, (nb_extents){1, &n}, NB_U64, 0, NB_FIRST);
    return nb_argsort(w, 0, false, true);
}

static nb_tensor *permutation(const nb_call *c)
{
    nb_tensor *x = c->in[1];
    nb_dtype d = (nb_dtype)x->dtype;
    int axis;
    int64_t n;
    if (RANK(1) > 0)
        return settle_axis(c, 0, RANK(1), &axis)
                   ? nb_gather(x, order(c->in[0], SIZE(1, axis)), axis)
                   : NULL;
    if (!nb_dtype_is_integer(d))
        return nb_fail(NB_ETYPE,
                       "random_permutation: a number of dtype %s: "
                       "an integer or a tensor with axes is needed",
                       nb_dtype_name(d));
    if (nb_read(x, NB_I64, &n) != NB_OK) return NULL;
    if (n < 0)
        return nb_fail(NB_EVALUE, "random_permutation: of %lld numbers",
                       (long long)n);
    return order(c->in[0], n);
}

COMPOSE(permutation, permutation(c))

nb_op nb_op_random_permutation = {
    .name = "random_permutation",
    .doc = "x with its slices along an axis in random order; an integer n "
           "stands for the numbers from 0 to n - 1.",
    .example = "random_permutation([3, 9], [[1, 2, 3, 4], [5, 6, 7, 8]], "
               "axis=1) = [[4, 2, 1, 3], [8, 6, 5, 7]]",
    .params = "key, x, axis:int=0",
    .check = nb_key_check,
    .kind = NB_COMPOSITE,
    .fixed = 1,
    .compose = permutation_compose,
};

nb_tensor *nb_random_permutation(nb_tensor *key, nb_tensor *x, int64_t axis)
{
    return nb_apply(&nb_op_random_permutation, 2, (nb_tensor *[]){key, x}, 1,
                    &(nb_value)NB_V_INT(axis), NB_CALLER);
}
