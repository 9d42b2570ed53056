/* parts.c - a tensor cut along an axis: windows that follow each other. */
#include "ops/view.h"

static bool some_parts(const nb_call *c, const char *name)
{
    int64_t n = nb_arg_int(c, 0);
    return n > 0 || nb_fail(NB_EVALUE, "%s: %s is %lld: at least 1 is needed",
                            c->op->name, name, (long long)n);
}

static bool split_compose(const nb_call *c, nb_results *r)
{
    if (!some_parts(c, "num_splits")) return false;
    int axis = (int)nb_arg_int(c, 1);
    int64_t n = nb_arg_int(c, 0), size = SIZE(0, axis);
    if (size % n)
        return nb_fail(NB_EVALUE,
                       "split: axis %d of size %lld does not split into %lld "
                       "equal parts",
                       axis, (long long)size, (long long)n);
    for (int64_t k = 0; k < n; k++)
        if (!nb_results_add(
                r, nb_narrow(c->in[0], axis, k * (size / n), size / n)))
            return false;
    return true;
}

nb_op nb_op_split = {
    .name = "split",
    .doc = "x cut along an axis into equal parts.",
    .example = "split([[1, 2, 3, 4], [5, 6, 7, 8]], num_splits=2, axis=1) = "
               "[[1, 2], [5, 6]], [[3, 4], [7, 8]]",
    .params = "x, num_splits:int, axis:axis=0",
    .nout = -1,
    .kind = NB_COMPOSITE,
    .compose = split_compose,
};

/* The first size % n parts are one longer; after `size` parts the others are
 * empty. */
static bool chunk_compose(const nb_call *c, nb_results *r)
{
    if (!some_parts(c, "chunks")) return false;
    int axis = (int)nb_arg_int(c, 1);
    int64_t n = nb_arg_int(c, 0), size = SIZE(0, axis), at = 0;
    for (int64_t k = 0; k < n && k < size; k++) {
        int64_t part = size / n + (k < size % n);
        if (!nb_results_add(r, nb_narrow(c->in[0], axis, at, part)))
            return false;
        at += part;
    }
    return true;
}

nb_op nb_op_chunk = {
    .name = "chunk",
    .doc = "x cut along an axis into a number of parts, the first of which "
           "are one longer if it does not divide the size; empty parts are "
           "left out.",
    .example = "chunk([[1, 2, 3], [4, 5, 6]], chunks=2, axis=1) = "
               "[[1, 2], [4, 5]], [[3], [6]]",
    .params = "x, chunks:int, axis:axis=0",
    .nout = -1,
    .kind = NB_COMPOSITE,
    .compose = chunk_compose,
};

static bool unbind_compose(const nb_call *c, nb_results *r)
{
    int64_t axis = nb_arg_int(c, 0);
    for (int64_t k = 0; k < SIZE(0, axis); k++) {
        nb_tensor *row = nb_narrow(c->in[0], (int)axis, k, 1);
        if (!nb_results_add(r, nb_squeeze(row, 1, &axis))) return false;
    }
    return true;
}

nb_op nb_op_unbind = {
    .name = "unbind",
    .doc = "The elements of x along an axis, each without that axis.",
    .example = "unbind([[1, 2, 3], [4, 5, 6]], axis=1) = "
               "[1, 4], [2, 5], [3, 6]",
    .params = "x, axis:axis=0",
    .nout = -1,
    .kind = NB_COMPOSITE,
    .compose = unbind_compose,
};

nb_status nb_split(nb_tensor *x, int num_splits, int64_t axis, nb_tensor **out)
{
    nb_value v[] = {NB_V_INT(num_splits), NB_V_INT(axis)};
    nb_results r = {.room = num_splits, .out = out};
    return nb_apply_list(&nb_op_split, 1, &x, 2, v, &r, NB_CALLER);
}

nb_status nb_chunk(nb_tensor *x, int chunks, int64_t axis, int *n,
                   nb_tensor **out)
{
    nb_value v[] = {NB_V_INT(chunks), NB_V_INT(axis)};
    nb_results r = {.room = chunks, .out = out};
    nb_status status = nb_apply_list(&nb_op_chunk, 1, &x, 2, v, &r, NB_CALLER);
    *n = r.n;
    return status;
}

nb_status nb_unbind(nb_tensor *x, int64_t axis, nb_tensor **out)
{
    nb_value v[] = {NB_V_INT(axis)};
    nb_results r = {.room = (int)nb_size(x, (int)axis), .out = out};
    return nb_apply_list(&nb_op_unbind, 1, &x, 1, v, &r, NB_CALLER);
}
