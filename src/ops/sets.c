/* sets.c - what depends on the values: which elements there are, and where.
 *
 * The shapes of these results are not known before the data is, so x is
 * computed at the call.  Unique values are picked from x, and so are
 * differentiated as picking is. */
#include "ops/reduce.h"

#define BY_THE_DATA ": the shape of the result depends on the data"
#define DATA_DEPENDENT \
    "batch" BY_THE_DATA "; mapped" BY_THE_DATA "; listing" BY_THE_DATA

/* The elements of x in dtype d, allocated. */
static void *elements(const nb_call *c, nb_dtype d)
{
    nb_tensor *x = c->in[0];
    size_t bytes = (size_t)nb_elements(x) * nb_dtype_size(d);
    if (nb_hidden(x))
        return nb_fail(NB_EVALUE,
                       "%s: x is mapped, but the shape of the result depends "
                       "on the data and would differ from lane to lane",
                       c->op->name);
    void *data = nb_alloc(bytes + 1);
    if (data && nb_read(x, d, data) != NB_OK) {
        nb_free(data);
        return NULL;
    }
    return data;
}

/* What was found, where x is. */
static nb_tensor *beside(const nb_tensor *x, int rank, const int64_t *size,
                         const int64_t *found)
{
    return nb_on_at_once(nb_constant(NB_I64, rank, size, found),
                         nb_device_of(x));
}

/* nonzero */

/* Coordinates of the n elements that are true: a row for each axis. */
static void coordinates(nb_tensor *x, const uint8_t *truth, int64_t *to,
                        int64_t n)
{
    int64_t at[NB_MAX_RANK] = {0}, size[NB_MAX_RANK], count = nb_elements(x);
    int rank = nb_rank(x);
    nb_sizes(x, size);
    for (int64_t i = 0; i < count; i++) {
        if (truth[i]) {
            for (int d = 0; d < rank; d++)
                to[d * n] = at[d];
            to++;
        }
        for (int d = rank - 1; d >= 0 && ++at[d] == size[d]; d--)
            at[d] = 0;
    }
}

static bool nonzero_compose(const nb_call *c, nb_results *r)
{
    nb_tensor *x = c->in[0];
    int64_t n = 0;
    if (RANK(0) == 0)
        return nb_fail(NB_EVALUE, "nonzero: x has rank 0, at least 1 is "
                                  "needed");
    uint8_t *truth = elements(c, NB_BOOL);
    for (int64_t i = 0; truth && i < nb_elements(x); i++)
        n += truth[i];
    int64_t *at = nb_alloc((size_t)(n * RANK(0) + 1) * sizeof *at);
    bool ok = truth && at;
    if (ok) coordinates(x, truth, at, n);
    for (int d = 0; ok && d < RANK(0); d++)
        ok = nb_results_add(r, beside(x, 1, &n, at + d * n));
    nb_free(truth);
    nb_free(at);
    return ok;
}

nb_op nb_op_nonzero = {
    .name = "nonzero",
    .doc = "Where elements are not zero: for each axis the int64 coordinates "
           "along it, in row-major order.  Computes x at once.",
    .example = "nonzero([[0, 2, 3], [4, 0, 0]]) = [0, 0, 1], [1, 2, 0]",
    .params = "x",
    .kind = NB_COMPOSITE,
    .nout = -1,
    .compose = nonzero_compose,
    .exempt = DATA_DEPENDENT,
};

/* Unique values */

/* Elements that are equal form a group; groups are sorted.  `first` is the
 * index of each group's first element, `count` its size, `group` the number of
 * the group of each element. */
typedef struct groups {
    int64_t n;
    int64_t *first, *count, *group;
} groups;

static void groups_free(groups *g)
{
    nb_free(g->first);
    nb_free(g->count);
    nb_free(g->group);
}

/* NaN equals nothing, itself included. */
static void divide(groups *g, const nb_ranked *sorted, int64_t n, bool real)
{
    for (int64_t i = 0; i < n; i++) {
        bool nan = real && sorted[i].key == UINT64_MAX;
        if (i == 0 || nan || sorted[i].key != sorted[i - 1].key) {
            g->first[g->n] = sorted[i].index;
            g->count[g->n++] = 0;
        }
        g->count[g->n - 1]++;
        g->group[sorted[i].index] = g->n - 1;
    }
}

static bool group(const nb_call *c, groups *g)
{
    nb_dtype d = nb_dtype_of(c->in[0]);
    int64_t n = nb_elements(c->in[0]);
    size_t room = (size_t)n + 1;
    void *x = elements(c, d);
    uint64_t *key = nb_alloc(room * sizeof *key);
    nb_ranked *a = nb_alloc(2 * room * sizeof *a);
    *g = (groups){.first = nb_alloc(room * sizeof *g->first),
                  .count = nb_alloc(room * sizeof *g->count),
                  .group = nb_alloc(room * sizeof *g->group)};
    bool ok = x && key && a && g->first && g->count && g->group;
    if (ok) {
        nb_order_keys(key, x, d, 1, n);
        for (int64_t i = 0; i < n; i++)
            a[i] = (nb_ranked){key[i], i};
        divide(g, nb_order_sort(a, a + n, n), n, nb_dtype_is_float(d));
    }
    nb_free(x);
    nb_free(key);
    nb_free(a);
    if (!ok) groups_free(g);
    return ok;
}

static nb_tensor *values_of(const nb_call *c, const groups *g)
{
    nb_tensor *row = nb_reshape(c->in[0], 1, (int64_t[]){-1});
    return nb_gather(row, beside(row, 1, &g->n, g->first), 0);
}

static nb_tensor *inverse_of(const nb_call *c, const groups *g)
{
    int64_t size[NB_MAX_RANK];
    nb_sizes(c->in[0], size);
    return beside(c->in[0], RANK(0), size, g->group);
}

/* Values, and those of the three further results that the op has. */
static bool unique(const nb_call *c, nb_results *r, bool indices, bool inverse,
                   bool counts)
{
    groups g;
    if (!group(c, &g)) return false;
    bool ok = nb_results_add(r, values_of(c, &g));
    if (ok && indices)
        ok = nb_results_add(r, beside(c->in[0], 1, &g.n, g.first));
    if (ok && inverse) ok = nb_results_add(r, inverse_of(c, &g));
    if (ok && counts)
        ok = nb_results_add(r, beside(c->in[0], 1, &g.n, g.count));
    groups_free(&g);
    return ok;
}

static bool unique_values_compose(const nb_call *c, nb_results *r)
{
    return unique(c, r, false, false, false);
}

static bool unique_counts_compose(const nb_call *c, nb_results *r)
{
    return unique(c, r, false, false, true);
}

static bool unique_inverse_compose(const nb_call *c, nb_results *r)
{
    return unique(c, r, false, true, false);
}

static bool unique_all_compose(const nb_call *c, nb_results *r)
{
    return unique(c, r, true, true, true);
}

nb_op nb_op_unique_values = {
    .name = "unique_values",
    .doc = "The values in x, each once, sorted.  Every NaN is a value of its "
           "own.  Computes x at once.",
    .example = "unique_values([[2, 1], [2, 3]]) = [1, 2, 3]",
    .params = "x",
    .kind = NB_COMPOSITE,
    .compose = unique_values_compose,
    .shapes = "d",
    .exempt = DATA_DEPENDENT,
};

nb_op nb_op_unique_counts = {
    .name = "unique_counts",
    .doc = "The values in x, each once, sorted, and how often each occurs.  "
           "Every NaN is a value of its own.  Computes x at once.",
    .example = "unique_counts([[2, 1], [2, 3]]) = [1, 2, 3], [1, 2, 1]",
    .params = "x",
    .kind = NB_COMPOSITE,
    .nout = 2,
    .compose = unique_counts_compose,
    .shapes = "d",
    .exempt = DATA_DEPENDENT,
};

nb_op nb_op_unique_inverse = {
    .name = "unique_inverse",
    .doc = "The values in x, each once, sorted, and for each element of x the "
           "index of its value.  Every NaN is a value of its own.  Computes x "
           "at once.",
    .example = "unique_inverse([[2, 1], [2, 3]]) = [1, 2, 3], "
               "[[1, 0], [1, 2]]",
    .params = "x",
    .kind = NB_COMPOSITE,
    .nout = 2,
    .compose = unique_inverse_compose,
    .shapes = "d",
    .exempt = DATA_DEPENDENT,
};

nb_op nb_op_unique_all = {
    .name = "unique_all",
    .doc = "The values in x, each once, sorted; the index of the first of each "
           "in the flattened x; for each element of x the index of its value; "
           "and how often each value occurs.  Every NaN is a value of its own. "
           " Computes x at once.",
    .example = "unique_all([[2, 1], [2, 3]]) = [1, 2, 3], [1, 0, 3], "
               "[[1, 0], [1, 2]], [1, 2, 1]",
    .params = "x",
    .kind = NB_COMPOSITE,
    .nout = 4,
    .compose = unique_all_compose,
    .shapes = "d",
    .exempt = DATA_DEPENDENT,
};

static nb_status several(nb_op *op, nb_tensor *x, int room, nb_tensor **out,
                         void *caller)
{
    nb_results r = {.room = room, .out = out};
    return NB_STATUS(nb_apply_many(op, 1, &x, 0, NULL, &r, caller));
}

nb_status nb_nonzero(nb_tensor *x, nb_tensor **out)
{
    return several(&nb_op_nonzero, x, nb_rank(x), out, NB_CALLER);
}

nb_status nb_unique_counts(nb_tensor *x, nb_tensor **out)
{
    return several(&nb_op_unique_counts, x, 2, out, NB_CALLER);
}

nb_status nb_unique_inverse(nb_tensor *x, nb_tensor **out)
{
    return several(&nb_op_unique_inverse, x, 2, out, NB_CALLER);
}

nb_status nb_unique_all(nb_tensor *x, nb_tensor **out)
{
    return several(&nb_op_unique_all, x, 4, out, NB_CALLER);
}
