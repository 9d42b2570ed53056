/* view.c - other looks at the same elements: order of axes, repetition, shape.
 */
#include "ops/ops.h"

#include <string.h>

/* permute */

static bool permute_check(nb_call *c)
{
    int n;
    unsigned seen = 0;
    int64_t *order = (int64_t *)nb_arg_list(c, 0, &n);
    if (n != RANK(0))
        return nb_fail(NB_EVALUE, "permute: %d axes for rank %d", n, RANK(0));
    for (int d = 0; d < n; d++)
        seen |= 1u << order[d];
    return seen == (1u << n) - 1 ||
           nb_fail(NB_EVALUE, "permute: not an order of all axes");
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

static bool permute_view(const nb_call *c, const nb_layout *in,
                         nb_layout *out)
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
    .example = "permute([[1, 2], [3, 4]], order=(1, 0)) = [[1, 3], [2, 4]]",
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
    nb_shape s = nb_tensor_shape(c->in[0]), to = {.rank = n};
    for (int d = 0; d < n && d < NB_MAX_RANK; d++)
        to.size[d] = nb_extent_of(shape[d]);
    to.rank = n < NB_MAX_RANK ? n : NB_MAX_RANK;
    return nb_fail(NB_EVALUE, "broadcast_to: shape %s does not broadcast to %s",
                   nb_shape_text(&s), nb_shape_text(&to));
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

static bool shape_infer(const nb_call *c, int k, nb_shape *out,
                        nb_dtype *dtype)
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
    .example = "broadcast_to([1, 2], shape=(2, 2)) = [[1, 2], [1, 2]]",
    .params = "x, shape:ints",
    .check = broadcast_check,
    .sign = broadcast_sign,
    .infer = shape_infer,
    .kind = NB_LINEAR,
    .view = broadcast_view,
    .transpose = broadcast_transpose,
};

nb_tensor *nb_broadcast_to(nb_tensor *x, int rank, const int64_t *shape)
{
    nb_value v[] = {NB_V_LIST(rank, shape)};
    return nb_apply(&nb_op_broadcast_to, 1, &x, 1, v, NB_CALLER);
}

/* reshape */

static bool reshape_check(nb_call *c)
{
    int n, open = -1;
    int64_t *shape = (int64_t *)nb_arg_list(c, 0, &n), rest = 1;
    int64_t count = nb_elements(c->in[0]);
    nb_shape from = nb_tensor_shape(c->in[0]), to = {.rank = n};
    if (n > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "reshape: rank %d is above %d", n,
                       NB_MAX_RANK);
    for (int d = 0; d < n; d++) {
        to.size[d] = nb_extent_of(shape[d]);
        if (shape[d] == -1 && open >= 0)
            return nb_fail(NB_EVALUE, "reshape: -1 stands twice in %s",
                           nb_shape_text(&to));
        if (shape[d] == -1)
            open = d;
        else if (shape[d] < 0 ||
                 __builtin_mul_overflow(rest, shape[d], &rest))
            return nb_fail(NB_EVALUE, "reshape: size %lld of axis %d",
                           (long long)shape[d], d);
    }
    if (open >= 0) shape[open] = rest > 0 ? count / rest : 0;
    if (open >= 0) rest *= shape[open];
    return rest == count ||
           nb_fail(NB_EVALUE,
                   "reshape: shape %s of %lld elements does not fit %s",
                   nb_shape_text(&from), (long long)count,
                   nb_shape_text(&to));
}

static int64_t common(int64_t a, int64_t b)
{
    while (b) {
        int64_t r = a % b;
        a = b;
        b = r;
    }
    return a;
}

/* Cuts both shapes into the coarsest factors that make up the dims of both:
 * (2, 4, 32) -> (8, 32) is "a b c -> (a b) c".  Where the two share no more
 * factors before the products meet again, the rest of those dims is whole. */
static void put_factor(nb_text *t, char name, int *open)
{
    nb_text_add(t, *open ? " %c" : "%c", name);
    ++*open;
}

static void close_dim(nb_text *to, nb_text *dim, int *n)
{
    if (*n == 0)
        nb_text_add(to, " 1");
    else
        nb_text_add(to, *n > 1 ? " (%s)" : " %s", nb_text_get(dim));
    nb_text_free(dim);
    *n = 0;
}

static bool reshape_sign(const nb_call *c, nb_text *t)
{
    int n, d[2] = {0, 0}, open[2] = {0, 0}, letter = 0;
    const int64_t *shape = nb_arg_list(c, 0, &n);
    int64_t rest[2] = {1, 1};
    int rank[2] = {RANK(0), n};
    nb_text dim[2] = {{0}, {0}}, right = {0};
    nb_text *side[2] = {t, &right};
    bool whole = nb_elements(c->in[0]) == 0;
    int64_t size[2][NB_MAX_RANK];
    nb_sizes(c->in[0], size[0]);
    memcpy(size[1], shape, (size_t)n * sizeof *shape);
    while (!whole && (d[0] < rank[0] || d[1] < rank[1])) {
        for (int s = 0; s < 2; s++)
            if (rest[s] == 1 && d[s] < rank[s]) rest[s] = size[s][d[s]];
        int64_t g = common(rest[0], rest[1]);
        if (g == 1 && rest[0] != 1 && rest[1] != 1) {
            whole = true; /* no shared factor: nothing may be split here */
            break;
        }
        for (int s = 0; s < 2; s++) {
            if (g > 1) put_factor(&dim[s], (char)('a' + letter), &open[s]);
            rest[s] /= g;
            if (rest[s] == 1 && d[s] < rank[s]) {
                close_dim(side[s], &dim[s], &open[s]);
                d[s]++;
            }
        }
        letter += g > 1;
    }
    if (whole || letter > 20) {
        t->n = right.n = 0;
        nb_text_free(&dim[0]);
        nb_text_free(&dim[1]);
        for (int k = 0; k < rank[0]; k++)
            nb_text_add(t, " 1");
        for (int k = 0; k < rank[1]; k++)
            nb_text_add(&right, " 1");
    }
    nb_text_add(t, " ->%s", right.n ? nb_text_get(&right) : "");
    nb_text_free(&right);
    return true;
}

/* Whether the elements can stay where they are: a run of input dims that one
 * step walks through may be cut anew.  False: they must be copied. */
static bool reshape_view(const nb_call *c, const nb_layout *in,
                         nb_layout *out)
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
static bool reshape_kernel(const nb_kernel *k);

nb_op nb_op_reshape = {
    .name = "reshape",
    .doc = "The elements of x, in row-major order, in another shape; one size "
           "may be -1 and follows from the others.",
    .example = "reshape([[1, 2], [3, 4]], shape=(4,)) = [1, 2, 3, 4]",
    .params = "x, shape:ints",
    .check = reshape_check,
    .sign = reshape_sign,
    .infer = shape_infer,
    .kind = NB_LINEAR,
    .view = reshape_view,
    .kernel = reshape_kernel,
    .transpose = reshape_transpose,
};

static bool reshape_kernel(const nb_kernel *k)
{
    const nb_view *x = &k->view[0], *y = &k->view[1];
    size_t item = nb_dtype_size(x->dtype);
    int64_t at[NB_MAX_RANK] = {0}, n = 1;
    for (int d = 0; d < x->rank; d++)
        n *= x->size[d];
    for (int64_t i = 0; i < n; i++) {
        int64_t o = 0;
        for (int d = 0; d < x->rank; d++)
            o += at[d] * x->stride[d];
        memcpy(y->data + (size_t)i * item, x->data + o * (int64_t)item, item);
        for (int d = x->rank - 1; d >= 0 && ++at[d] == x->size[d]; d--)
            at[d] = 0;
    }
    return true;
}

nb_tensor *nb_reshape(nb_tensor *x, int rank, const int64_t *shape)
{
    nb_value v[] = {NB_V_LIST(rank, shape)};
    return nb_apply(&nb_op_reshape, 1, &x, 1, v, NB_CALLER);
}

nb_tensor *nb_fill_like(nb_tensor *x, double value)
{
    int64_t size[NB_MAX_RANK];
    if (!x) return NULL;
    nb_sizes(x, size);
    return nb_broadcast_to(nb_scalar_float(value, nb_dtype_of(x)), x->rank,
                           size);
}
