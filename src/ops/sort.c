/* sort.c - order along an axis: sorting, the largest, searching.
 *
 * Elements of every dtype are compared as 64-bit keys.  NaN is greater than
 * everything, as in NumPy. */
#include "ops/reduce.h"

#include "core/convert.h"
#include "ops/index.h"
#include "ops/view.h"

#include <string.h>

#define TOP ((uint64_t)1 << 63)

/* Signed numbers are moved up by half the range.  The bits of positive floats
 * are ordered as they are, those of negative ones the other way round. */
static uint64_t float_key(double x)
{
    uint64_t bits;
    double plain = x + 0.0; /* -0 + 0 is 0 */
    memcpy(&bits, &plain, sizeof bits);
    bits = bits & TOP ? ~bits : bits | TOP;
    return x != x ? UINT64_MAX : bits;
}

/* From elements, already int64 or float64, to keys in place. */
static void turn(uint64_t *key, nb_dtype d, int64_t n)
{
    bool real = nb_dtype_is_float(d);
    uint64_t up = nb_dtype_is_unsigned(d) || d == NB_BOOL ? 0 : TOP;
    for (int64_t i = 0; real && i < n; i++) {
        double v;
        memcpy(&v, &key[i], sizeof v);
        key[i] = float_key(v);
    }
    for (int64_t i = 0; !real && i < n; i++)
        key[i] ^= up;
}

static nb_dtype wide(nb_dtype d)
{
    return nb_dtype_is_float(d) ? NB_F64 : NB_I64;
}

void nb_order_keys(uint64_t *key, const void *x, nb_dtype d, int64_t stride,
                   int64_t n)
{
    nb_convert(key, wide(d), 1, x, d, stride, n);
    turn(key, d, n);
}

void nb_view_keys(const nb_view *v, uint64_t *key)
{
    nb_view_pack(v, wide(v->dtype), key);
    turn(key, v->dtype, nb_view_count(v));
}

/* Insertion sort, for short runs. */
static void insert(nb_ranked *x, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        nb_ranked r = x[i];
        int64_t j = i;
        for (; j > 0 && x[j - 1].key > r.key; j--)
            x[j] = x[j - 1];
        x[j] = r;
    }
}

/* Merges two sorted runs; of equals those of the first come first. */
static void merge(nb_ranked *to, const nb_ranked *a, int64_t na,
                  const nb_ranked *b, int64_t nb)
{
    const nb_ranked *a_end = a + na, *b_end = b + nb;
    while (a < a_end && b < b_end) {
        bool second = b->key < a->key;
        *to++ = second ? *b : *a;
        a += !second;
        b += second;
    }
    memcpy(to, a, (size_t)(a_end - a) * sizeof *a);
    memcpy(to + (a_end - a), b, (size_t)(b_end - b) * sizeof *b);
}

nb_ranked *nb_order_sort(nb_ranked *x, nb_ranked *room, int64_t n)
{
    enum { RUN = 16 };
    for (int64_t i = 0; i < n; i += RUN)
        insert(x + i, n - i < RUN ? n - i : RUN);
    for (int64_t run = RUN; run < n; run *= 2) {
        for (int64_t i = 0; i < n; i += 2 * run) {
            int64_t na = n - i < run ? n - i : run;
            int64_t rest = n - i - na, nb = rest < run ? rest : run;
            merge(room + i, x + i, na, x + i + na, nb);
        }
        nb_ranked *sorted = room;
        room = x;
        x = sorted;
    }
    return x;
}

/* Lines */

bool nb_lines_start(nb_lines *l, const nb_view *view, int n)
{
    *l = (nb_lines){.n = n, .view = view};
    for (int v = 0; v < n; v++)
        l->at[v] = view[v].data;
    for (int d = 1; d < view[0].rank; d++)
        if (view[0].size[d] == 0) return false;
    return true;
}

/* Dims are counted from the last, where the views agree. */
bool nb_lines_next(nb_lines *l)
{
    const nb_view *x = l->view;
    for (int d = 1; d < x->rank; d++) {
        int64_t size = x->size[x->rank - d];
        bool on = ++l->index[d] < size;
        for (int v = 0; v < l->n; v++) {
            int64_t item = (int64_t)nb_dtype_size(x[v].dtype);
            l->at[v] += x[v].stride[x[v].rank - d] * item * (on ? 1 : 1 - size);
        }
        if (on) return true;
        l->index[d] = 0;
    }
    return false;
}

/* argsort */

static void write_order(const nb_ranked *sorted, int64_t n, char *to,
                        int64_t stride)
{
    int64_t *y = (int64_t *)to;
    for (int64_t i = 0; i < n; i++)
        y[i * stride] = sorted[i].index;
}

static void sort_line(const nb_lines *l, bool descending, uint64_t *key,
                      nb_ranked *a)
{
    const nb_view *x = &l->view[0], *y = &l->view[1];
    int64_t n = x->size[0];
    nb_order_keys(key, l->at[0], x->dtype, x->stride[0], n);
    for (int64_t i = 0; i < n; i++)
        a[i] = (nb_ranked){descending ? ~key[i] : key[i], i};
    write_order(nb_order_sort(a, a + n, n), n, l->at[1], y->stride[0]);
}

static bool argsort_kernel(const nb_kernel *k)
{
    nb_lines l;
    bool descending = nb_arg_int(k->call, 1);
    size_t n = (size_t)k->view[0].size[0];
    if (!nb_lines_start(&l, k->view, 2) || n == 0) return true;
    uint64_t *key = nb_alloc(n * sizeof *key);
    nb_ranked *a = nb_alloc(2 * n * sizeof *a);
    bool ok = key && a;
    if (ok) do
            sort_line(&l, descending, key, a);
        while (nb_lines_next(&l));
    nb_free(key);
    nb_free(a);
    return ok;
}

/* The axis is needed whole. */
static bool whole_sign(const nb_call *c, nb_text *t)
{
    int axis = (int)nb_arg_int(c, 0);
    nb_sign_axes(t, axis, RANK(0));
    nb_text_add(t, " -> ");
    nb_sign_axes(t, axis, RANK(0));
    return nb_text_add(t, "; replicate{%c}", 'a' + axis);
}

nb_op nb_op_argsort = {
    .name = "argsort",
    .doc = "Indices that sort x along an axis, as int64.  Equal elements stay "
           "in order, also if descending.  NaN is the greatest.",
    .example = "argsort([[3, 1, 2], [5, 6, 5]], axis=1) = "
               "[[1, 2, 0], [0, 2, 1]]",
    .params = P_SORT,
    .sign = whole_sign,
    .kind = NB_CONSTANT,
    .out = NB_OUT_I64,
    .kernel = argsort_kernel,
};

/* sort and topk pick by argsort, and so are differentiated as picking is. */

COMPOSE(sort, nb_take_along_axis(c->in[0],
                                 nb_argsort(c->in[0], nb_arg_int(c, 0),
                                            nb_arg_int(c, 1), true),
                                 nb_arg_int(c, 0)))

nb_op nb_op_sort = {
    .name = "sort",
    .doc = "x sorted along an axis.  Equal elements stay in order, also if "
           "descending.  NaN is the greatest.",
    .example = "sort([[3, 1, 2], [5, 6, 4]], axis=1, descending=True) = "
               "[[3, 2, 1], [6, 5, 4]]",
    .params = P_SORT,
    .kind = NB_COMPOSITE,
    .compose = sort_compose,
    .shapes = "d",
};

static bool topk_compose(const nb_call *c, nb_results *r)
{
    int64_t k = nb_arg_int(c, 0), axis = nb_arg_int(c, 1);
    bool largest = nb_arg_int(c, 2);
    nb_tensor *x = c->in[0];
    if (k < 0 || k > SIZE(0, axis))
        return nb_fail(NB_EVALUE,
                       "topk: k is %lld, axis %lld has %lld elements",
                       (long long)k, (long long)axis, (long long)SIZE(0, axis));
    nb_tensor *order = nb_argsort(x, axis, largest, true);
    nb_tensor *best = nb_narrow(order, (int)axis, 0, k);
    return nb_results_add(r, nb_take_along_axis(x, best, axis)) &&
           nb_results_add(r, best);
}

nb_op nb_op_topk = {
    .name = "topk",
    .doc = "The k largest elements along an axis, or the smallest, sorted from "
           "the most extreme on, and their int64 indices.  Of equals the first "
           "comes first.  NaN is the greatest.",
    .example = "topk([[3, 1, 2], [5, 6, 4]], k=2, axis=1) = "
               "[[3, 2], [6, 5]], [[0, 2], [1, 0]]",
    .params = "x, k:int, axis:axis=-1, largest:bool=True",
    .kind = NB_COMPOSITE,
    .nout = 2,
    .compose = topk_compose,
    .shapes = "d",
};

nb_status nb_topk(nb_tensor *x, int64_t k, int64_t axis, bool largest,
                  nb_tensor **out)
{
    nb_results r = {.room = 2, .out = out};
    nb_value v[] = {NB_V_INT(k), NB_V_INT(axis), NB_V_INT(largest)};
    return NB_STATUS(nb_apply_many(&nb_op_topk, 1, &x, 3, v, &r, NB_CALLER));
}
