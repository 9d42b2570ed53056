/* index_place.c - placing elements by index tensors where several may meet:
 * the last stays, or the least, the largest, the product.
 *
 * Adding is in index.c, as reading's transpose. */
#include "ops/index.h"

/* Who wrote before.  Points are numbered in row-major order. */

static bool prior_check(nb_call *c)
{
    int n;
    nb_arg_list(c, 0, &n);
    return n == c->nin ||
           nb_fail(NB_EVALUE, "index_prior: %d sizes for %d index tensors", n,
                   c->nin);
}

static bool prior_sign(const nb_call *c, nb_text *t)
{
    for (int k = 0; k < c->nin; k++) {
        nb_text_add(t, k ? "," : "");
        nb_sign_points(t, c->in[0]);
    }
    nb_text_add(t, " ->");
    nb_sign_points(t, c->in[0]);
    if (RANK(0) == 0) return true;
    nb_text_add(t, "; replicate{");
    nb_sign_points(t, c->in[0]);
    return nb_text_add(t, "}");
}

static bool prior_kernel(const nb_kernel *k)
{
    int n;
    const int64_t *size = nb_arg_list(k->call, 0, &n);
    return nb_index_link(k, size, nb_arg_int(k->call, 1));
}

nb_op nb_op_index_prior = {
    .name = "index_prior",
    .doc = "For every point of index tensors into axes of the given sizes, the "
           "number of the last point before it, in row-major order, that "
           "names the same element; the number of points if there is none.",
    .example = "index_prior(([[0, 1], [0, -2], [1, 0]],), sizes=(2,)) = "
               "[[6, 6], [0, 2], [1, 3]]",
    .params = "tensors:tensors, sizes:ints, clamp:bool=False",
    .check = prior_check,
    .sign = prior_sign,
    .kind = NB_CONSTANT,
    .out = NB_OUT_I64,
    .index = ~0u,
    .kernel = prior_kernel,
};

/* In one row, as numbers of points. */
static nb_tensor *prior(const nb_call *c, const nb_pick *p)
{
    int64_t size[NB_MAX_RANK];
    for (int k = 0; k < p->n; k++)
        size[k] = SIZE(0, p->axes[k]);
    nb_value v[] = {NB_V_LIST(p->n, size), NB_V_INT(p->clamp)};
    nb_tensor *y =
        nb_apply(&nb_op_index_prior, p->n, p->index, 2, v, NB_CALLER);
    return nb_reshape(y, 1, (int64_t[]){-1});
}

/* A value for each point, shaped to run beside the list. */
static nb_tensor *beside(nb_tensor *x, const nb_call *c, const nb_pick *p)
{
    int64_t size[NB_MAX_RANK];
    int rank = p->index[0]->rank, after = RANK(0) - p->n - (int)p->at;
    nb_sizes(p->index[0], size);
    for (int d = 0; d < after; d++)
        size[rank + d] = 1;
    return nb_reshape(x, rank + after, size);
}

/* Nobody writes after the last: those that are prior to none. */
static nb_tensor *is_last(const nb_call *c, const nb_pick *p)
{
    nb_tensor *before = prior(c, p);
    nb_tensor *yes = nb_fill_like(before, 1), *no = nb_fill_like(before, 0);
    nb_pick all = {.n = 1, .index = &before, .axes = (int64_t[]){0}};
    return beside(nb_place(&nb_op_index_set, nb_cast(yes, NB_BOOL),
                           nb_cast(no, NB_BOOL), &all),
                  c, p);
}

/* y is x but for places written, which move with the last to write them. */
static nb_tensor *set_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    nb_pick p = nb_pick_of(c);
    if (i == 0)
        return nb_place(&nb_op_index_set, ct, nb_fill_like(c->in[1], 0), &p);
    return nb_where(is_last(c, &p), nb_index(ct, &p), nb_num(0));
}

PLACE_KERNEL(set_kernel, NB_PUT_SET)

nb_op nb_op_index_set = {
    .name = "index_set",
    .doc = "The first tensor with the second in the places that the indices, "
           "as in index, say; of several for one place the last in row-major "
           "order stays.",
    .example = "index_set(([[1, 2, 3], [4, 5, 6]], "
               "[[10, 20, 30, 40], [50, 60, 70, 80]], [0, -1, 0, 3]), "
               "axes=(1,), at=1) = [[30, 2, 20], [70, 5, 60]]",
    PLACES,
    .kind = NB_LINEAR,
    .kernel = set_kernel,
    .transpose = set_transpose,
};

/* y moves with every one of x and the updates that equals it. */
static nb_tensor *extreme_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    nb_pick p = nb_pick_of(c);
    (void)k;
    if (i == 0) return nb_where(nb_equal(c->in[0], c->out), u, nb_num(0));
    nb_tensor *wins = nb_equal(c->in[1], nb_index(c->out, &p));
    return nb_place(&nb_op_index_add, nb_fill_like(c->in[0], 0),
                    nb_where(wins, u, nb_num(0)), &p);
}

PLACE_KERNEL(min_kernel, NB_PUT_MIN)

nb_op nb_op_index_min = {
    .name = "index_min",
    .doc = "The first tensor with each element replaced by the smallest of it "
           "and all elements of the second that the indices, as in index, "
           "place there.  Every one that equals the result gets the whole "
           "derivative.",
    .example = "index_min(([[1, 2], [3, 4], [5, 6]], "
               "[[4, -2], [3, 9], [0, 1]], [2, 2, 0]), axes=(0,)) = "
               "[[0, 1], [3, 4], [3, -2]]",
    PLACES,
    .kind = NB_RULE,
    .kernel = min_kernel,
    .jvp = extreme_jvp,
};

PLACE_KERNEL(max_kernel, NB_PUT_MAX)

nb_op nb_op_index_max = {
    .name = "index_max",
    .doc = "The same as index_min with the largest.",
    .example = "index_max(([[1, 2], [3, 4], [5, 6]], "
               "[[4, -2], [7, 9], [0, 3]], [2, 2, 0]), axes=(0,)) = "
               "[[1, 3], [3, 4], [7, 9]]",
    PLACES,
    .kind = NB_RULE,
    .kernel = max_kernel,
    .jvp = extreme_jvp,
};

/* v and its tangent u, one row of points: v becomes the product of all points
 * up to each that name the same element, by jumping to prior ones 1, 2, 4 ...
 * at a time: (v w)' = v' w + v w'.  No division, so zeros are like all else. */
static nb_tensor *product_tangent(nb_tensor *before, nb_tensor *v, nb_tensor *u,
                                  int64_t at, int after)
{
    int64_t n = nb_size(before, 0), beside_it[NB_MAX_RANK] = {n};
    if (!before) return NULL;
    for (int d = 1; d <= after; d++)
        beside_it[d] = 1;
    for (int64_t jump = 1; jump < n && u; jump *= 2) {
        nb_pick p = {.n = 1, .index = &before, .axes = &at, .at = at};
        nb_pick self = {.n = 1, .index = &before, .axes = (int64_t[]){0}};
        nb_tensor *none =
            nb_reshape(nb_equal(before, nb_count(n)), after + 1, beside_it);
        nb_tensor *w = nb_where(none, nb_num(1), nb_index(v, &p));
        u = nb_add(nb_mul(u, w), nb_mul(v, nb_index(u, &p)));
        if (2 * jump >= n) break; /* nobody jumps further */
        v = nb_mul(v, w);
        before = nb_where(nb_equal(before, nb_count(n)), before,
                          nb_index(before, &self));
    }
    return u;
}

/* y = x times the product of what is placed.  The last to be placed somewhere
 * has seen all the others. */
static nb_tensor *mul_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    int64_t row[NB_MAX_RANK];
    nb_pick p = nb_pick_of(c);
    nb_tensor *x = c->in[0], *list = c->in[1];
    (void)k;
    if (i == 0)
        return nb_mul(u,
                      nb_place(&nb_op_index_mul, nb_fill_like(x, 1), list, &p));
    int rank = p.index[0]->rank, kept = RANK(0) - p.n, at = (int)p.at;
    for (int d = 0; d < kept; d++)
        row[d < at ? d : d + 1] = nb_size(list, d < at ? d : d + rank);
    row[at] = nb_elements(p.index[0]);
    nb_tensor *moved =
        product_tangent(prior(c, &p), nb_reshape(list, kept + 1, row),
                        nb_reshape(u, kept + 1, row), at, kept - at);
    int64_t size[NB_MAX_RANK];
    nb_sizes(list, size);
    return nb_mul(x, nb_place(&nb_op_index_set, nb_fill_like(x, 0),
                              nb_reshape(moved, nb_rank(list), size), &p));
}

PLACE_KERNEL(mul_kernel, NB_PUT_MUL)

nb_op nb_op_index_mul = {
    .name = "index_mul",
    .doc = "The first tensor with each element multiplied by all elements of "
           "the second that the indices, as in index, place there.",
    .example = "index_mul(([[1, 2], [3, 4], [5, 6]], "
               "[[2, 3], [5, 7], [4, 1], [2, 2], [3, 3]], [2, 2, 0, 3, -1]), "
               "axes=(0,)) = [[4, 2], [3, 4], [150, 378]]",
    PLACES,
    .kind = NB_RULE,
    .kernel = mul_kernel,
    .jvp = mul_jvp,
};
