/* view.c - other looks at the same elements: order of axes, repetition, shape.
 *
 * These three are the primitives; shape.c has what is made of them. */
#include "ops/view.h"

#include "core/reshape_rule.h"
#include "ops/copy.h"

#include <string.h>

nb_tensor *nb_same(nb_tensor *x)
{
    return nb_lend(nb_keep(x));
}

bool nb_arg_dtype(const nb_call *c, int k, nb_dtype none, nb_dtype *d)
{
    int64_t given = nb_arg_int(c, k);
    *d = given == NB_NONE ? none : (nb_dtype)given;
    return given == NB_NONE || (given > NB_NOTYPE && given < NB_NDTYPES) ||
           nb_fail(NB_ETYPE, "%s: %lld is not a dtype", c->op->name,
                   (long long)given);
}

nb_status nb_apply_list(nb_op *op, int nin, nb_tensor *const *in, int nval,
                        const nb_value *val, nb_results *r, void *caller)
{
    bool ok = nb_apply_many(op, nin, in, nval, val, r, caller);
    if (!ok) r->n = 0;
    return NB_STATUS(ok);
}

const char *nb_sizes_text(int rank, const int64_t *size)
{
    nb_shape s = {.rank = rank < NB_MAX_RANK ? rank : NB_MAX_RANK};
    for (int d = 0; d < s.rank; d++)
        s.size[d] = nb_extent_of(size[d]);
    return nb_shape_text(&s);
}

static bool has_sizes(const nb_tensor *x, int rank, const int64_t *size)
{
    bool same = x && x->rank == rank && !(x->flags & NB_WEAK);
    for (int d = 0; same && d < rank; d++)
        same = nb_size(x, d) == size[d];
    return same;
}

/* permute */

/* That no axis stands twice was seen when they were counted from the front. */
static bool permute_check(nb_call *c)
{
    int n;
    nb_arg_list(c, 0, &n);
    return n == RANK(0) ||
           nb_fail(NB_EVALUE,
                   "permute: an order of %d axes for rank %d: every axis is "
                   "needed once",
                   n < 0 ? 0 : n, RANK(0));
}

static bool permute_sign(const nb_call *c, nb_text *t)
{
    int n;
    const int64_t *order = nb_arg_list(c, 0, &n);
    for (int d = 0; d < n; d++)
        nb_text_add(t, "%c ", 'a' + d);
    nb_text_add(t, "->");
    for (int d = 0; d < n; d++)
        nb_text_add(t, " %c", 'a' + (int)order[d]);
    return true;
}

static bool permute_view(const nb_call *c, const nb_layout *in, nb_layout *out)
{
    int n;
    const int64_t *order = nb_arg_list(c, 0, &n);
    for (int d = 0; d < n; d++)
        out->stride[d] = in->stride[order[d]];
    return true;
}

static nb_tensor *permute_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    int n;
    const int64_t *order = nb_arg_list(c, 0, &n);
    int64_t inverse[NB_MAX_RANK];
    (void)i;
    for (int d = 0; d < n; d++)
        inverse[order[d]] = d;
    return nb_permute(ct, n, inverse);
}

nb_op nb_op_permute = {
    .name = "permute",
    .doc = "The axes of x in another order: axis k of the result is axis "
           "order[k] of x.",
    .example = "permute([[[1, 2, 3], [4, 5, 6]]], order=(2, 0, 1)) = "
               "[[[1, 4]], [[2, 5]], [[3, 6]]]",
    .params = "x, order:axes",
    .check = permute_check,
    .sign = permute_sign,
    .kind = NB_LINEAR,
    .view = permute_view,
    .transpose = permute_transpose,
};

nb_tensor *nb_permute(nb_tensor *x, int n, const int64_t *order)
{
    nb_value v[] = {NB_V_LIST(n, order)};
    return nb_apply(&nb_op_permute, 1, &x, 1, v, NB_CALLER);
}

/* broadcast_to */

static bool broadcast_check(nb_call *c)
{
    int n;
    const int64_t *shape = nb_arg_list(c, 0, &n);
    int lead = n - RANK(0);
    bool fits = lead >= 0 && n <= NB_MAX_RANK;
    for (int d = 0; fits && d < n; d++)
        fits = shape[d] >= 0 && (d < lead || SIZE(0, d - lead) == shape[d] ||
                                 SIZE(0, d - lead) == 1);
    if (fits) return true;
    nb_shape s = nb_tensor_shape(c->in[0]);
    return nb_fail(NB_EVALUE,
                   "broadcast_to: shape %s does not broadcast to %s%s",
                   nb_shape_text(&s), nb_sizes_text(n, shape),
                   n > NB_MAX_RANK ? ", whose rank is above 16" : "");
}

/* A dim that stays is a letter, one that is repeated is 1 -> ?. */
static bool broadcast_sign(const nb_call *c, nb_text *t)
{
    int n;
    const int64_t *shape = nb_arg_list(c, 0, &n);
    int lead = n - RANK(0);
    for (int d = lead; d < n; d++)
        nb_text_add(t, SIZE(0, d - lead) == shape[d] ? "%c " : "1 ", 'a' + d);
    nb_text_add(t, "->");
    for (int d = 0; d < n; d++) {
        bool same = d >= lead && SIZE(0, d - lead) == shape[d];
        nb_text_add(t, same ? " %c" : " ?", 'a' + d);
    }
    return true;
}

static bool shape_infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    int n;
    const int64_t *shape = nb_arg_list(c, 0, &n);
    (void)k, (void)dtype;
    for (int d = 0; d < n; d++)
        out->size[d] = nb_extent_of(shape[d]);
    return true;
}

static bool broadcast_view(const nb_call *c, const nb_layout *in,
                           nb_layout *out)
{
    int lead = out->rank - in->rank;
    (void)c;
    for (int d = 0; d < out->rank; d++)
        out->stride[d] = d < lead || in->size[d - lead] != out->size[d]
                             ? 0
                             : in->stride[d - lead];
    return true;
}

/* What was repeated is added up. */
static nb_tensor *broadcast_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    int64_t axes[NB_MAX_RANK], size[NB_MAX_RANK];
    int lead = nb_rank(ct) - RANK(0), n = 0;
    (void)i;
    for (int d = 0; d < nb_rank(ct); d++)
        if (d < lead || SIZE(0, d - lead) != nb_size(ct, d)) axes[n++] = d;
    nb_sizes(c->in[0], size);
    return nb_reshape(nb_reduce_sum(ct, n, axes, false), RANK(0), size);
}

nb_op nb_op_broadcast_to = {
    .name = "broadcast_to",
    .doc = "x repeated to a shape that it broadcasts to.",
    .example = "broadcast_to([[1], [2]], shape=(2, 2, 3)) = "
               "[[[1, 1, 1], [2, 2, 2]], [[1, 1, 1], [2, 2, 2]]]",
    .params = "x, shape:ints",
    .sized = 1,
    .check = broadcast_check,
    .sign = broadcast_sign,
    .infer = shape_infer,
    .kind = NB_LINEAR,
    .view = broadcast_view,
    .absorbs = true,
    .transpose = broadcast_transpose,
};

nb_tensor *nb_broadcast_to(nb_tensor *x, int rank, const int64_t *shape)
{
    nb_value v[] = {NB_V_LIST(rank, shape)};
    if (has_sizes(x, rank, shape)) return nb_same(x);
    return nb_apply(&nb_op_broadcast_to, 1, &x, 1, v, NB_CALLER);
}

/* reshape */

/* The size that stands for -1, from the product of the others. */
static bool reshape_open(nb_call *c, int64_t *size, int64_t others)
{
    int n;
    const int64_t *shape = nb_arg_list(c, 0, &n);
    int64_t count = nb_elements(c->in[0]);
    if (others == 0)
        return nb_fail(NB_EVALUE,
                       "reshape: any size could stand for -1 in %s: the "
                       "others make no elements",
                       nb_sizes_text(n, shape));
    if (count % others == 0) *size = count / others;
    return true;
}

static bool reshape_check(nb_call *c)
{
    int n, open = -1;
    nb_arg_list(c, 0, &n);
    int64_t *shape = nb_arg_words(c, 0) + 1, rest = 1;
    nb_shape from = nb_tensor_shape(c->in[0]);
    if (n < 0 || n > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "reshape: rank %d is not in 0 to %d", n,
                       NB_MAX_RANK);
    for (int d = 0; d < n; d++) {
        if (shape[d] == -1 && open >= 0)
            return nb_fail(NB_EVALUE, "reshape: -1 stands twice in %s",
                           nb_sizes_text(n, shape));
        if (shape[d] == -1)
            open = d;
        else if (shape[d] < 0 || __builtin_mul_overflow(rest, shape[d], &rest))
            return nb_fail(NB_EVALUE, "reshape: axis %d of %s has no size", d,
                           nb_sizes_text(n, shape));
    }
    if (open >= 0 && !reshape_open(c, &shape[open], rest)) return false;
    if (open >= 0) rest *= shape[open];
    return rest == nb_elements(c->in[0]) ||
           nb_fail(NB_EVALUE,
                   "reshape: shape %s of %lld elements does not fit %s",
                   nb_shape_text(&from), (long long)nb_elements(c->in[0]),
                   nb_sizes_text(n, shape));
}

static bool reshape_sign(const nb_call *c, nb_text *t)
{
    int64_t size[NB_MAX_RANK];
    int n;
    const int64_t *shape = nb_arg_list(c, 0, &n);
    nb_sizes(c->in[0], size);
    return nb_reshape_rule(t, RANK(0), size, n, shape);
}

/* Whether the elements can stay where they are: a run of input dims that one
 * step walks through may be cut anew.  False: they must be copied. */
static bool reshape_view(const nb_call *c, const nb_layout *in, nb_layout *out)
{
    int i = 0, o = 0;
    (void)c;
    for (int d = 0; d < out->rank; d++)
        out->stride[d] = 0;
    for (int d = 0; d < in->rank; d++)
        if (in->size[d] == 0) return true;
    while (i < in->rank || o < out->rank) {
        int64_t a = 1, b = 1;
        int i0 = i, o0 = o;
        if (i < in->rank) a = in->size[i++];
        if (o < out->rank) b = out->size[o++];
        while (a != b)
            if (a < b)
                a *= in->size[i++];
            else
                b *= out->size[o++];
        int last = i - 1;
        while (last > i0 && in->size[last] == 1)
            last--;
        int64_t step = i > i0 ? in->stride[last] : 0, run = step;
        for (int d = last; d >= i0; d--) {
            if (in->size[d] == 1) continue;
            if (in->stride[d] != run) return false;
            run *= in->size[d];
        }
        for (int d = o - 1; d >= o0; d--) {
            out->stride[d] = step;
            step *= out->size[d];
        }
    }
    return true;
}

static nb_tensor *reshape_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    int64_t size[NB_MAX_RANK];
    (void)i;
    nb_sizes(c->in[0], size);
    return nb_reshape(ct, RANK(0), size);
}

/* Copies in row-major order what no view can show. */
static bool reshape_kernel(const nb_kernel *k)
{
    const nb_view *x = &k->view[0], *y = &k->view[1];
    int64_t row[NB_MAX_RANK];
    nb_row_major(x->rank, x->size, row);
    nb_copy(nb_dtype_size(x->dtype), x->rank, x->size, (nb_side){y->data, row},
            (nb_side){x->data, x->stride});
    return true;
}

nb_op nb_op_reshape = {
    .name = "reshape",
    .doc = "The elements of x, in row-major order, in another shape; one size "
           "may be -1 and follows from the others.",
    .example = "reshape([[1, 2, 3], [4, 5, 6]], shape=(3, -1)) = "
               "[[1, 2], [3, 4], [5, 6]]",
    .params = "x, shape:ints",
    .sized = 1,
    .check = reshape_check,
    .sign = reshape_sign,
    .infer = shape_infer,
    .kind = NB_LINEAR,
    .view = reshape_view,
    .absorbs = true,
    .in_order = true,
    .kernel = reshape_kernel,
    .transpose = reshape_transpose,
};

nb_tensor *nb_reshape(nb_tensor *x, int rank, const int64_t *shape)
{
    nb_value v[] = {NB_V_LIST(rank, shape)};
    if (has_sizes(x, rank, shape)) return nb_same(x);
    return nb_apply(&nb_op_reshape, 1, &x, 1, v, NB_CALLER);
}
