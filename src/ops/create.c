/* create.c - constants of any shape: one number, repeated, which takes no
 * memory. */
#include "ops/view.h"

/* full, zeros, ones, empty */

static bool shape_check(nb_call *c)
{
    int n;
    const int64_t *shape = nb_arg_list(c, 0, &n);
    if (n < 0 || n > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "%s: rank %d is not in 0 to %d", c->op->name,
                       n, NB_MAX_RANK);
    for (int d = 0; d < n; d++)
        if (shape[d] < 0)
            return nb_fail(NB_EVALUE, "%s: axis %d of %s is negative",
                           c->op->name, d, nb_sizes_text(n, shape));
    return true;
}

static bool full_compose(const nb_call *c, nb_results *r)
{
    int n;
    const int64_t *shape = nb_arg_list(c, 0, &n);
    nb_dtype d;
    if (!nb_arg_dtype(c, 1, NB_NOTYPE, &d)) return false;
    return nb_results_add(r, nb_broadcast_to(nb_cast(c->in[0], d), n, shape));
}

nb_op nb_op_full = {
    .name = "full",
    .doc = "A tensor of the given shape with one value everywhere; the value "
           "may also be a tensor that broadcasts to the shape.",
    .example = "full(7.0, shape=(2, 3)) = "
               "[[7.0, 7.0, 7.0], [7.0, 7.0, 7.0]]",
    .params = "shape:ints, value, *, dtype:dtype=None",
    .check = shape_check,
    .kind = NB_COMPOSITE,
    .compose = full_compose,
};

nb_tensor *nb_full(int rank, const int64_t *shape, nb_tensor *value,
                   nb_dtype dtype)
{
    nb_value none = NB_V_NONE, given = NB_V_INT(dtype);
    nb_value v[] = {NB_V_LIST(rank, shape), dtype ? given : none};
    if (dtype && nb_is_weak(value)) value = nb_as(value, dtype);
    return nb_apply(&nb_op_full, 1, &value, 2, v, NB_CALLER);
}

static nb_tensor *constant(const nb_call *c, int64_t value)
{
    int n;
    const int64_t *shape = nb_arg_list(c, 0, &n);
    nb_dtype d;
    if (!nb_arg_dtype(c, 1, nb_default_float(), &d)) return NULL;
    return nb_broadcast_to(nb_scalar_int(value, d), n, shape);
}

COMPOSE(zeros, constant(c, 0))
COMPOSE(ones, constant(c, 1))

nb_op nb_op_zeros = {
    .name = "zeros",
    .doc = "Zeros of the given shape; of the default float if no dtype is "
           "given.",
    .example = "zeros(shape=(2, 3), dtype=int32) = [[0, 0, 0], [0, 0, 0]]",
    .params = "shape:ints, *, dtype:dtype=None",
    .check = shape_check,
    .kind = NB_COMPOSITE,
    .compose = zeros_compose,
};

nb_op nb_op_ones = {
    .name = "ones",
    .doc = "Ones of the given shape; of the default float if no dtype is "
           "given.",
    .example = "ones(shape=(2, 3)) = [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]",
    .params = "shape:ints, *, dtype:dtype=None",
    .check = shape_check,
    .kind = NB_COMPOSITE,
    .compose = ones_compose,
};

nb_op nb_op_empty = {
    .name = "empty",
    .doc = "Zeros of the given shape: for programs that do not care.",
    .example = "empty(shape=(3,), dtype=bool) = [False, False, False]",
    .params = "shape:ints, *, dtype:dtype=None",
    .check = shape_check,
    .kind = NB_COMPOSITE,
    .compose = zeros_compose,
};

static nb_tensor *of_shape(nb_op *op, int rank, const int64_t *shape,
                           nb_dtype dtype, void *caller)
{
    nb_value none = NB_V_NONE, given = NB_V_INT(dtype);
    nb_value v[] = {NB_V_LIST(rank, shape), dtype ? given : none};
    return nb_apply(op, 0, NULL, 2, v, caller);
}

nb_tensor *nb_zeros(int rank, const int64_t *shape, nb_dtype dtype)
{
    return of_shape(&nb_op_zeros, rank, shape, dtype, NB_CALLER);
}

nb_tensor *nb_ones(int rank, const int64_t *shape, nb_dtype dtype)
{
    return of_shape(&nb_op_ones, rank, shape, dtype, NB_CALLER);
}

nb_tensor *nb_empty(int rank, const int64_t *shape, nb_dtype dtype)
{
    return of_shape(&nb_op_empty, rank, shape, dtype, NB_CALLER);
}

/* full_like, zeros_like, ones_like, empty_like */

/* A value in the shape of x, and in all its lanes. */
static nb_tensor *repeated_like(nb_tensor *x, nb_tensor *value)
{
    int64_t size[NB_MAX_RANK];
    int device = nb_device_enter(x->device);
    nb_sizes(x, size);
    nb_tensor *y = nb_broadcast_to(value, x->rank, size);
    for (int l = 0; y && l < x->nlanes; l++)
        y = nb_spread(y, nb_tensor_lane(x)[l]);
    nb_device_enter(device);
    return nb_laid_like(y, x);
}

static nb_tensor *constant_like(const nb_call *c, int64_t value)
{
    nb_dtype d;
    if (!nb_arg_dtype(c, 0, nb_dtype_of(c->in[0]), &d)) return NULL;
    return repeated_like(c->in[0], nb_scalar_int(value, d));
}

static nb_tensor *value_like(const nb_call *c)
{
    nb_dtype d;
    if (!nb_arg_dtype(c, 0, nb_dtype_of(c->in[0]), &d)) return NULL;
    return repeated_like(c->in[0], nb_cast(c->in[1], d));
}

COMPOSE(full_like, value_like(c))
COMPOSE(zeros_like, constant_like(c, 0))
COMPOSE(ones_like, constant_like(c, 1))

nb_op nb_op_full_like = {
    .name = "full_like",
    .doc = "One value everywhere, in the shape, hidden axes and dtype of x.",
    .example = "full_like([[1, 2], [3, 4]], 7) = [[7, 7], [7, 7]]",
    .params = "x, value, *, dtype:dtype=None",
    .kind = NB_COMPOSITE,
    .compose = full_like_compose,
};

nb_op nb_op_zeros_like = {
    .name = "zeros_like",
    .doc = "Zeros in the shape, hidden axes and dtype of x.",
    .example = "zeros_like([[1, 2, 3]]) = [[0, 0, 0]]",
    .params = "x, *, dtype:dtype=None",
    .kind = NB_COMPOSITE,
    .compose = zeros_like_compose,
};

nb_op nb_op_ones_like = {
    .name = "ones_like",
    .doc = "Ones in the shape, hidden axes and dtype of x.",
    .example = "ones_like([[1.5, 2.5, 3.5]]) = [[1.0, 1.0, 1.0]]",
    .params = "x, *, dtype:dtype=None",
    .kind = NB_COMPOSITE,
    .compose = ones_like_compose,
};

nb_op nb_op_empty_like = {
    .name = "empty_like",
    .doc = "Zeros in the shape, hidden axes and dtype of x: for programs "
           "that do not care.",
    .example = "empty_like([[1, 2, 3]]) = [[0, 0, 0]]",
    .params = "x, *, dtype:dtype=None",
    .kind = NB_COMPOSITE,
    .compose = zeros_like_compose,
};

nb_tensor *nb_full_like(nb_tensor *x, nb_tensor *value)
{
    if (x && nb_is_weak(value)) value = nb_as(value, nb_dtype_of(x));
    nb_tensor *in[] = {x, value};
    return nb_apply(&nb_op_full_like, 2, in, 0, NULL, NB_CALLER);
}

nb_tensor *nb_fill_like(nb_tensor *x, double value)
{
    int64_t size[NB_MAX_RANK];
    if (!x) return NULL;
    nb_sizes(x, size);
    int device = nb_device_enter(x->device);
    nb_tensor *y =
        nb_broadcast_to(nb_scalar_float(value, nb_dtype_of(x)), x->rank, size);
    nb_device_enter(device);
    return y;
}

/* one_hot */

/* In 64 bits, so that classes beyond a narrow index dtype do not wrap. */
static bool one_hot_compose(const nb_call *c, nb_results *r)
{
    int64_t n = nb_arg_int(c, 0), axis = nb_arg_int(c, 2);
    int64_t size[NB_MAX_RANK + 1];
    nb_dtype d;
    if (!nb_arg_dtype(c, 1, nb_default_float(), &d)) return false;
    if (n < 0)
        return nb_fail(NB_EVALUE,
                       "one_hot: num_classes is %lld: at least 0 "
                       "is needed",
                       (long long)n);
    for (int k = 0; k <= RANK(0); k++)
        size[k] = k == axis ? n : 1;
    nb_tensor *index = nb_unsqueeze(nb_cast(c->in[0], NB_I64), axis);
    nb_tensor *class = nb_reshape(nb_iota(n, NB_I64), RANK(0) + 1, size);
    return nb_results_add(r, nb_cast(nb_equal(index, class), d));
}

nb_op nb_op_one_hot = {
    .name = "one_hot",
    .doc = "Along a new axis of num_classes places, one at the place that the "
           "index says and zero elsewhere; zeros only for an index outside.",
    .example = "one_hot([0, 2], num_classes=3) = "
               "[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]",
    .params = "indices, num_classes:int, dtype:dtype=None, axis:newaxis=-1",
    .index = 1,
    .kind = NB_COMPOSITE,
    .compose = one_hot_compose,
};

nb_tensor *nb_one_hot(nb_tensor *indices, int64_t num_classes, nb_dtype dtype,
                      int64_t axis)
{
    nb_value none = NB_V_NONE, given = NB_V_INT(dtype);
    nb_value v[] = {NB_V_INT(num_classes), dtype ? given : none,
                    NB_V_INT(axis)};
    return nb_apply(&nb_op_one_hot, 1, &indices, 3, v, NB_CALLER);
}
