/* search.c - places: of extremes, and of values in a sorted row. */
#include "ops/reduce.h"

#include "base/half.h"
#include "core/convert.h"

#include <string.h>

/* argmax and argmin */

enum { BLOCK = 64 };

/* Whether anything in a whole block goes beyond the best so far; NaN does.  No
 * result is fed into the next comparison, so compilers vectorise it. */
#define BEYOND(NAME, T)                                                        \
    static bool beyond_##NAME(const void *block, const void *best, bool least) \
    {                                                                          \
        const T *x = block, b = *(const T *)best;                              \
        int hits = 0;                                                          \
        for (int i = 0; i < BLOCK; i++)                                        \
            hits |= least ? !(x[i] >= b) : !(x[i] <= b);                       \
        return hits;                                                           \
    }
#define DTYPE(NAME, name, brief, type, bytes, class) BEYOND(NAME, type)
#include "nabla/dtypes.def"

static bool (*const beyond[NB_NDTYPES])(const void *, const void *, bool) = {
#define DTYPE(NAME, name, brief, type, bytes, class) \
    [NB_##NAME] = beyond_##NAME,
#include "nabla/dtypes.def"
};

/* The search along one line. */
typedef struct search {
    nb_dtype dtype;
    bool least;
    int64_t place;
    uint64_t key;     /* of the best so far, turned round for the least; */
    const char *best; /* where it is */
} search;

/* Keys of m elements, numbered from `from`, against the best. */
static void search_keys(search *s, const char *x, int64_t stride, int64_t from,
                        int64_t m)
{
    uint64_t key[BLOCK];
    bool real = nb_dtype_is_float(s->dtype);
    int64_t step = stride * (int64_t)nb_dtype_size(s->dtype);
    nb_order_keys(key, x, s->dtype, stride, m);
    for (int64_t i = 0; i < m; i++) {
        bool nan = real && key[i] == UINT64_MAX;
        uint64_t k = s->least && !nan ? ~key[i] : key[i];
        if (s->best && k <= s->key) continue;
        s->key = k;
        s->place = from + i;
        s->best = x + i * step;
    }
}

/* The place of the first best element of a line.  A block that lies together
 * and does not go beyond the best is passed over. */
static int64_t best_place(const nb_view *x, const char *at, bool least)
{
    search s = {.dtype = x->dtype, .least = least};
    bool half = nb_dtype_is_half(x->dtype);
    bool together = x->stride[0] == 1 && !half;
    bool real = nb_dtype_is_float(x->dtype);
    int64_t n = x->size[0];
    int64_t step = x->stride[0] * (int64_t)nb_dtype_size(x->dtype);
    for (int64_t from = 0; from < n; from += BLOCK) {
        int64_t m = n - from < BLOCK ? n - from : BLOCK;
        const char *block = at + from * step;
        if (real && from && s.key == UINT64_MAX) break; /* NaN */
        if (together && from && m == BLOCK &&
            !beyond[x->dtype](block, s.best, least))
            continue;
        search_keys(&s, block, x->stride[0], from, m);
    }
    return s.place;
}

static bool arg_kernel(const nb_kernel *k)
{
    nb_lines l;
    bool least = nb_arg_int(k->call, 1);
    if (!nb_lines_start(&l, k->view, 2)) return true;
    do
        *(int64_t *)l.at[1] = best_place(&k->view[0], l.at[0], least);
    while (nb_lines_next(&l));
    return true;
}

static bool arg_sign(const nb_call *c, nb_text *t)
{
    int axis = (int)nb_arg_int(c, 0);
    nb_sign_axes(t, axis, RANK(0));
    nb_text_add(t, " -> ");
    nb_sign_axes(t, axis + 1, RANK(0));
    return nb_text_add(t, "; scan{%c}", 'a' + axis);
}

/* In no fewer than four bytes. */
static nb_tensor *told(nb_tensor *x)
{
    nb_dtype d = nb_dtype_of(x);
    bool narrow = nb_dtype_size(d) < 4 && !nb_dtype_is_float(d);
    return narrow ? nb_cast(x, NB_I32) : nb_widen(x);
}

/* On blocks: of what each finds in its own, the best is somebody's, who says
 * where it is. */
static nb_tensor *arg_local(const nb_call *c, const nb_blocks *b)
{
    int64_t axis = nb_arg_int(c, 0), least = nb_arg_int(c, 1);
    nb_tensor *x = b->in[0];
    nb_tensor *at = CALL1(arg_extreme, x, NB_V_INT(axis), NB_V_INT(least));
    if (b->parts < 2 || !at) return at;
    nb_tensor *best = nb_take_along_axis(x, nb_unsqueeze(at, axis), axis);
    best = b->beside(b, 0, best ? told(best) : NULL);
    nb_tensor *whose =
        CALL1(arg_extreme, best, NB_V_INT(axis), NB_V_INT(least));
    int64_t start = b->from[0].start[c->in[0]->nlanes + axis];
    return nb_where(nb_equal(whose, b->number(b, b->part)),
                    nb_add(at, b->number(b, start)), nb_count(0));
}

nb_op nb_op_arg_extreme = {
    .name = "arg_extreme",
    .doc = "Index of the first largest element along an axis, or of the "
           "smallest.  NaN is either.",
    .example = "arg_extreme([[3, 1, 3], [5, 6, 4]], axis=1, least=True) = "
               "[1, 2]",
    .params = "x, axis:axis, least:bool",
    .sign = arg_sign,
    .kind = NB_CONSTANT,
    .out = NB_OUT_I64,
    .kernel = arg_kernel,
    .splits = 1u << NB_SCAN,
    .shares = 1u << 0,
    .local = arg_local,
};

_Static_assert(NB_FLAT == NB_NONE, "the public name of no axis");

/* Without an axis the tensor is one row. */
static nb_tensor *arg_of(const nb_call *c, bool least)
{
    int64_t axis = nb_arg_int(c, 0), size[NB_MAX_RANK];
    bool all = axis == NB_NONE;
    nb_tensor *x = c->in[0];
    if (all ? nb_elements(x) == 0 : SIZE(0, axis) == 0)
        return nb_fail(NB_EVALUE,
                       "%s: no elements, and nothing has no extremum",
                       c->op->name);
    if (all) {
        x = nb_reshape(x, 1, (int64_t[]){-1});
        axis = 0;
    }
    nb_tensor *y = CALL1(arg_extreme, x, NB_V_INT(axis), NB_V_INT(least));
    if (!nb_arg_int(c, 1)) return y;
    for (int d = 0; d < RANK(0); d++)
        size[d] = all || d == axis ? 1 : SIZE(0, d);
    return nb_reshape(y, RANK(0), size);
}

COMPOSE(argmax, arg_of(c, false))

nb_op nb_op_argmax = {
    .name = "argmax",
    .doc = "Index of the largest element along an axis, as int64; with axis "
           "None, in the flattened tensor.  The first of equals, or of NaN if "
           "there are any.",
    .example = "argmax([[3, 1, 3], [5, 6, 4]], axis=1, keepdims=True) = "
               "[[0], [1]]",
    .params = P_ARG,
    .kind = NB_COMPOSITE,
    .compose = argmax_compose,
};

COMPOSE(argmin, arg_of(c, true))

nb_op nb_op_argmin = {
    .name = "argmin",
    .doc = "Index of the smallest element along an axis, as int64; with axis "
           "None, in the flattened tensor.  The first of equals, or of NaN if "
           "there are any.",
    .example = "argmin([[3, 1, 3], [5, 6, 1]], axis=0) = [0, 0, 1]",
    .params = P_ARG,
    .kind = NB_COMPOSITE,
    .compose = argmin_compose,
};

/* searchsorted */

/* A sorted row: its keys, if it pays to compute them all. */
typedef struct row {
    const nb_view *x, *sorter; /* sorter may be NULL */
    uint64_t *key;
    bool right;
} row;

/* As all indices: negative ones count from the end, and those out of range
 * name the nearest element. */
static int64_t sorted_place(const row *r, int64_t i)
{
    const nb_view *s = r->sorter;
    int64_t step = s->stride[0] * (int64_t)nb_dtype_size(s->dtype);
    int64_t n = r->x->size[0], at = nb_read_i64(s->data + i * step, s->dtype);
    if (at < 0) at += n;
    return at < 0 ? 0 : at >= n ? n - 1 : at;
}

static uint64_t key_at(const row *r, int64_t i)
{
    uint64_t key;
    int64_t item = (int64_t)nb_dtype_size(r->x->dtype);
    if (r->key) return r->key[i];
    if (r->sorter) i = sorted_place(r, i);
    nb_order_keys(&key, r->x->data + i * r->x->stride[0] * item, r->x->dtype, 1,
                  1);
    return key;
}

/* How many of the row stand before v: those below it, and from the right also
 * its equals. */
static int64_t place_of(const row *r, uint64_t v)
{
    int64_t lo = 0, hi = r->x->size[0];
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        uint64_t key = key_at(r, mid);
        if (key < v || (r->right && key == v))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool searchsorted_kernel(const nb_kernel *k)
{
    const nb_view *v = &k->view[1], *y = &k->view[k->nin];
    row r = {.x = &k->view[0], .right = *nb_arg_text(k->call, 0) == 'r'};
    int64_t n = r.x->size[0], count = nb_view_count(v);
    int64_t *to = (int64_t *)y->data;
    bool all = n / 16 < count;
    if (k->nin > 2) r.sorter = &k->view[2];
    uint64_t *value = nb_alloc((size_t)count * sizeof *value + 1);
    uint64_t *key = all ? nb_alloc((size_t)n * sizeof *key + 1) : NULL;
    bool ok = value && (!all || key);
    for (int64_t i = 0; ok && all && i < n; i++)
        key[i] = key_at(&r, i);
    r.key = key;
    if (ok) nb_view_keys(v, value);
    for (int64_t i = 0; ok && i < count; i++)
        to[i] = place_of(&r, value[i]);
    nb_free(value);
    nb_free(key);
    return ok;
}

static bool searchsorted_check(nb_call *c)
{
    const char *side = nb_arg_text(c, 0);
    return (side && (!strcmp(side, "left") || !strcmp(side, "right"))) ||
           nb_fail(NB_EVALUE,
                   "searchsorted: side is \"%s\", not \"left\" or \"right\"",
                   side ? side : "None");
}

static bool searchsorted_sign(const nb_call *c, nb_text *t)
{
    nb_text_add(t, "row,");
    for (int d = 0; d < RANK(1); d++)
        nb_text_add(t, " %c", 'a' + d);
    nb_text_add(t, c->nin > 2 ? ", row ->" : " ->");
    for (int d = 0; d < RANK(1); d++)
        nb_text_add(t, " %c", 'a' + d);
    return nb_text_add(t, "; replicate{row}");
}

nb_op nb_op_searchsorted = {
    .name = "searchsorted",
    .doc = "Where the elements of x2 belong in the sorted row x1, as int64: "
           "how many of the row are below them (\"left\") or not above them "
           "(\"right\").  sorter holds the indices that sort x1, if it is not "
           "sorted itself.",
    .example = "searchsorted([1, 3, 3, 5], [[3, 0], [6, 4]], side=\"right\") = "
               "[[3, 0], [4, 3]]",
    .params = "x1, x2, side:text=\"left\", sorter=None",
    .check = searchsorted_check,
    .sign = searchsorted_sign,
    .kind = NB_CONSTANT,
    .in = NB_IN_COMMON,
    .out = NB_OUT_I64,
    .index = 4,
    .kernel = searchsorted_kernel,
};

nb_tensor *nb_searchsorted(nb_tensor *x1, nb_tensor *x2, const char *side,
                           nb_tensor *sorter)
{
    nb_tensor *in[] = {x1, x2, sorter};
    nb_value v[] = {NB_V_TEXT(side)};
    return nb_apply(&nb_op_searchsorted, sorter ? 3 : 2, in, 1, v, NB_CALLER);
}
