/* scan.c - running totals along an axis, and differences.
 *
 * Kernels see the scanned axis as dim 0 and what is behind it.  Operands are
 * packed into n rows of m in a wide dtype, and the m lines are scanned side by
 * side; most often m is 1. */
#include "ops/reduce.h"

#include "base/half.h"
#include "base/pool.h"
#include "core/convert.h"
#include "ops/view.h"

#include <string.h>

bool nb_view_is_packed(const nb_view *v)
{
    int64_t step = 1;
    for (int d = v->rank - 1; d >= 0; d--) {
        if (v->size[d] != 1 && v->stride[d] != step) return false;
        step *= v->size[d];
    }
    return true;
}

int64_t nb_view_count(const nb_view *v)
{
    int64_t n = 1;
    for (int d = 0; d < v->rank; d++)
        n *= v->size[d];
    return n;
}

void nb_view_pack(const nb_view *v, nb_dtype d, void *to)
{
    int64_t at[NB_MAX_RANK] = {0}, count = nb_view_count(v);
    int64_t item = (int64_t)nb_dtype_size(v->dtype);
    int last = v->rank - 1, k = 0;
    bool flat = nb_view_is_packed(v);
    int64_t n = flat ? count : v->size[last];
    const char *from = v->data;
    char *p = to;
    if (count == 0) return;
    for (;;) {
        nb_convert(p, d, 1, from, v->dtype, flat ? 1 : v->stride[last], n);
        p += n * (int64_t)nb_dtype_size(d);
        for (k = flat ? -1 : last - 1; k >= 0; k--) {
            bool on = ++at[k] < v->size[k];
            from += v->stride[k] * item * (on ? 1 : 1 - v->size[k]);
            if (on) break;
            at[k] = 0;
        }
        if (k < 0) return;
    }
}

/* Packed operands of one dtype: factors, if any, what is added up or
 * multiplied, and totals, which may take its place. */
typedef struct scan {
    const void *f, *x;
    void *y;
    int64_t n, m;
    int64_t from, to; /* lines of the m */
    bool reverse;
} scan;
typedef void loop(const scan *s);

#define SCAN(name, T, next)                                     \
    static void name(const scan *s)                             \
    {                                                           \
        const T *x = s->x, *f = s->f;                           \
        int64_t m = s->m, step = s->reverse ? -m : m;           \
        int64_t at = s->reverse ? (s->n - 1) * m : 0;           \
        T *y = s->y, total = x[at];                             \
        (void)f;                                                \
        for (int64_t j = s->from; j < s->to; j++)               \
            y[at + j] = x[at + j];                              \
        for (int64_t i = 1; m == 1 && i < s->n; i++) {          \
            at += step;                                         \
            y[at] = total = next(total, x[at], f[at]);          \
        }                                                       \
        for (int64_t i = 1; m > 1 && i < s->n; i++) {           \
            const T *old = y + at;                              \
            at += step;                                         \
            for (int64_t j = s->from; j < s->to; j++)           \
                y[at + j] = next(old[j], x[at + j], f[at + j]); \
        }                                                       \
    }
#define SUM(total, x, f)    ((total) + (x))
#define PROD(total, x, f)   ((total) * (x))
#define LINEAR(total, x, f) ((f) * (total) + (x))
SCAN(sum_int, uint64_t, SUM)
SCAN(sum_f32, float, SUM)
SCAN(sum_f64, double, SUM)
SCAN(prod_int, uint64_t, PROD)
SCAN(prod_f32, float, PROD)
SCAN(prod_f64, double, PROD)
SCAN(linear_f32, float, LINEAR)
SCAN(linear_f64, double, LINEAR)

typedef struct scanner {
    loop *integer, *f32, *f64;
    double start; /* the total of nothing */
} scanner;

typedef struct job {
    loop *loop;
    const scan *all;
} job;

enum { LINES = 512 };

static void run_lines(void *ctx, int64_t chunk)
{
    const job *j = ctx;
    scan s = *j->all;
    s.from = chunk * LINES;
    s.to = s.from + LINES < s.m ? s.from + LINES : s.m;
    j->loop(&s);
}

/* Lines side by side are several threads' if there are many. */
static void run(const scanner *by, const scan *s, nb_dtype d)
{
    loop *f = d == NB_F64 ? by->f64 : d == NB_F32 ? by->f32 : by->integer;
    nb_parallel_if((double)s->n * (double)s->m / 2, (s->m + LINES - 1) / LINES,
                   run_lines, &(job){f, s});
}

/* Totals of what is before: every row moves up by one. */
static void delay(const scanner *by, const scan *s, nb_dtype d)
{
    size_t row = (size_t)s->m * nb_dtype_size(d);
    size_t rest = (size_t)(s->n - 1) * row;
    char *y = s->y, *later = y + row;
    memmove(s->reverse ? y : later, s->reverse ? later : y, rest);
    nb_convert(s->reverse ? y + rest : y, d, 1, &by->start, NB_F64, 0, s->m);
}

/* The elements of v as rows of dtype d: where they are if they lie so, else
 * brought to `to`. */
static const void *rows(const nb_view *v, nb_dtype d, void *to)
{
    if (v->dtype == d && nb_view_is_packed(v)) return v->data;
    nb_view_pack(v, d, to);
    return to;
}

static bool scan_kernel(const nb_kernel *k, const scanner *by)
{
    const nb_view *x = &k->view[k->nin - 1], *y = &k->view[k->nin];
    bool half = nb_dtype_is_half(y->dtype);
    nb_dtype d = half ? NB_F32 : y->dtype;
    int64_t count = nb_view_count(y);
    size_t bytes = (size_t)count * nb_dtype_size(d);
    if (count == 0) return true;
    char *to = half ? nb_alloc(bytes) : y->data;
    char *factors = k->nin > 1 ? nb_alloc(bytes) : NULL;
    bool ok = to && (k->nin == 1 || factors);
    if (ok) {
        scan s = {.y = to, .n = y->size[0], .m = count / y->size[0]};
        s.reverse = nb_arg_int(k->call, 2);
        s.x = rows(x, d, to);
        s.f = factors ? rows(&k->view[0], d, factors) : s.x;
        run(by, &s, d);
        if (nb_arg_int(k->call, 1)) delay(by, &s, d);
    }
    if (ok && half) nb_convert(y->data, y->dtype, 1, to, d, 1, count);
    if (half) nb_free(to);
    nb_free(factors);
    return ok;
}

static bool scan_sign(const nb_call *c, nb_text *t)
{
    int axis = (int)nb_arg_int(c, 0);
    for (int i = 0; i < c->nin; i++) {
        if (i > 0) nb_text_add(t, ", ");
        nb_sign_axes(t, axis, RANK(0));
    }
    nb_text_add(t, " -> ");
    nb_sign_axes(t, axis, RANK(0));
    return nb_text_add(t, "; scan{%c}", 'a' + axis);
}

/* On blocks: each is scanned by itself, and what the blocks before it come to
 * goes before the whole of it. */

/* The numbers of the blocks, along the axis. */
static nb_tensor *numbers(const nb_blocks *b, int axis, int rank)
{
    int64_t size[NB_MAX_RANK];
    for (int d = 0; d < rank; d++)
        size[d] = d == axis ? b->parts : 1;
    return nb_reshape(nb_arange_int(0, b->parts, 1, NB_I64), rank, size);
}

static nb_tensor *total(nb_tensor *x, bool sum, int64_t axis)
{
    return sum ? nb_reduce_sum(x, 1, &axis, true) : nb_prod(x, 1, &axis, true);
}

static nb_tensor *totals_local(const nb_call *c, const nb_blocks *b)
{
    int64_t axis = nb_arg_int(c, 0);
    bool exclusive = nb_arg_int(c, 1), reverse = nb_arg_int(c, 2);
    bool sum = c->op->reduce == NB_SUM, split = b->parts > 1;
    nb_tensor *x = split ? nb_widen(b->in[0]) : b->in[0];
    nb_tensor *y = sum ? nb_cumsum(x, axis, exclusive, reverse)
                       : nb_cumprod(x, axis, exclusive, reverse);
    if (!split || !y) return y;
    nb_tensor *own = nb_cast(total(x, sum, axis), nb_dtype_of(y));
    nb_tensor *all = b->beside(b, 1, own), *j = numbers(b, (int)axis, RANK(0));
    nb_tensor *me = b->number(b, b->part);
    nb_tensor *before = reverse ? nb_greater(j, me) : nb_less(j, me);
    all = total(nb_where(before, all, nb_count(sum ? 0 : 1)), sum, axis);
    y = sum ? nb_add(y, all) : nb_mul(y, all);
    return nb_cast(y, nb_dtype_of(c->out));
}

/* cumsum */

static bool cumsum_kernel(const nb_kernel *k)
{
    return scan_kernel(k, &(scanner){sum_int, sum_f32, sum_f64, 0});
}

/* y_i = sum_(j <= i) x_j: x_j* is the sum of y_i* for i >= j, from the end. */
TRANSPOSE(cumsum,
          nb_cumsum(ct, nb_arg_int(c, 0), nb_arg_int(c, 1), !nb_arg_int(c, 2)))

nb_op nb_op_cumsum = {
    .name = "cumsum",
    .doc = "Running sum along an axis, from the end if reverse; exclusive: of "
           "what is before each element, without it.  Integers narrower than "
           "64 bits are added up in 64, 16-bit floats in float32.",
    .example = "cumsum([[1, 2, 3], [4, 5, 6]], axis=1, exclusive=True) = "
               "[[0, 1, 3], [0, 4, 9]]",
    .params = P_SCAN,
    .sign = scan_sign,
    .kind = NB_LINEAR,
    .out = NB_OUT_SUM,
    .totals = true,
    .reduce = NB_SUM,
    .kernel = cumsum_kernel,
    .transpose = cumsum_transpose,
    .splits = 1u << NB_SCAN,
    .shares = 1u << 1,
    .local = totals_local,
};

/* linear_scan: y = L b, where L depends on a */

static nb_tensor *earlier(nb_tensor *x, int axis, int64_t by, bool reverse)
{
    return nb_narrow(x, axis, reverse ? by : 0, nb_size(x, axis) - by);
}

static nb_tensor *later(nb_tensor *x, int axis, int64_t by, bool reverse)
{
    return nb_narrow(x, axis, reverse ? 0 : by, nb_size(x, axis) - by);
}

/* x with zeros before it, so that it comes later. */
static nb_tensor *delayed(nb_tensor *x, int axis, int64_t by, bool reverse)
{
    int64_t start[NB_MAX_RANK] = {0}, size[NB_MAX_RANK], step[NB_MAX_RANK];
    if (!x) return NULL;
    nb_sizes(x, size);
    for (int d = 0; d < nb_rank(x); d++)
        step[d] = 1;
    start[axis] = reverse ? 0 : by;
    size[axis] += by;
    return nb_embed(x, start, size, step);
}

/* x one place earlier, in the order of the scan; zero comes last. */
static nb_tensor *advanced(nb_tensor *x, int axis, bool reverse)
{
    if (!x || nb_size(x, axis) == 0) return x;
    return delayed(later(x, axis, 1, reverse), axis, 1, !reverse);
}

/* y_i = a_i y_(i-1) + b_i moves by u_i y_(i-1) with a, beside what y_(i-1)
 * moves: that is again a scan with the factors a. */
static nb_tensor *linear_scan_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    int64_t axis = nb_arg_int(c, 0);
    bool exclusive = nb_arg_int(c, 1), reverse = nb_arg_int(c, 2);
    (void)k, (void)i;
    nb_tensor *before = nb_linear_scan(c->in[0], c->in[1], axis, true, reverse);
    return nb_linear_scan(c->in[0], nb_mul(u, before), axis, exclusive,
                          reverse);
}

/* b_i* = y_i* + a_(i+1) b_(i+1)*: the scan from the other end, each factor one
 * place earlier. */
static nb_tensor *linear_scan_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    int axis = (int)nb_arg_int(c, 0);
    bool exclusive = nb_arg_int(c, 1), reverse = nb_arg_int(c, 2);
    (void)i;
    if (exclusive) ct = advanced(ct, axis, reverse);
    return nb_linear_scan(advanced(c->in[0], axis, reverse), ct, axis, false,
                          !reverse);
}

static bool linear_scan_kernel(const nb_kernel *k)
{
    return scan_kernel(k, &(scanner){NULL, linear_f32, linear_f64, 0});
}

/* What comes into a block: a scan of what the blocks before it make of nothing,
 * with the products of their factors.  The axis is counted in a, which may have
 * fewer or more before it than the result. */
static nb_tensor *carried(const nb_call *c, const nb_blocks *b, nb_tensor *a,
                          nb_tensor *end)
{
    int64_t axis = nb_arg_int(c, 0), rank = c->out->rank;
    int64_t at = axis + rank - RANK(0);
    nb_tensor *factor = b->beside(b, 0, total(a, false, axis));
    end = b->beside(b, 2, end);
    nb_tensor *all = nb_linear_scan(factor, end, axis, true, nb_arg_int(c, 2));
    nb_tensor *j = numbers(b, (int)at, (int)rank);
    nb_tensor *mine = nb_equal(j, b->number(b, b->part));
    return total(nb_where(mine, all, nb_count(0)), true, at);
}

/* The last of a block, in the order of the scan. */
static nb_tensor *end_of(const nb_call *c, nb_tensor *y)
{
    int axis = (int)nb_arg_int(c, 0) + c->out->rank - RANK(0);
    if (!y) return NULL;
    return nb_narrow(y, axis, nb_arg_int(c, 2) ? 0 : nb_size(y, axis) - 1, 1);
}

/* y_i = local y_i + a_i ... a_1 y_0, where y_0 comes from the block before. */
static nb_tensor *linear_scan_local(const nb_call *c, const nb_blocks *b)
{
    int64_t axis = nb_arg_int(c, 0);
    bool exclusive = nb_arg_int(c, 1), reverse = nb_arg_int(c, 2);
    nb_tensor *a = b->in[0], *x = b->in[1], *y, *all;
    if (b->parts < 2) return nb_linear_scan(a, x, axis, exclusive, reverse);
    a = nb_widen(a);
    x = nb_widen(x);
    y = all = nb_linear_scan(a, x, axis, exclusive, reverse);
    if (exclusive) all = nb_linear_scan(a, x, axis, false, reverse);
    nb_tensor *in = carried(c, b, a, end_of(c, all));
    nb_tensor *more = nb_mul(nb_cumprod(a, axis, exclusive, reverse), in);
    nb_tensor *first =
        nb_equal(b->number(b, b->part), nb_count(reverse ? b->parts - 1 : 0));
    y = nb_where(first, y, nb_add(y, more)); /* the first factor is not used */
    return nb_cast(y, nb_dtype_of(c->out));
}

nb_op nb_op_linear_scan = {
    .name = "linear_scan",
    .doc = "y_i = a_i y_(i-1) + b_i along an axis, from the end if reverse; "
           "exclusive: y_(i-1) in the place of y_i.",
    .example = "linear_scan([[2, 3, 4], [5, 6, 7]], [[1, 1, 2], [1, 1, 1]], "
               "axis=1) = [[1, 4, 18], [1, 7, 50]]",
    .params = "a, b, axis:axis=-1, exclusive:bool=False, reverse:bool=False",
    .sign = scan_sign,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .kernel = linear_scan_kernel,
    .linear = 2,
    .jvp = linear_scan_jvp,
    .transpose = linear_scan_transpose,
    .splits = 1u << NB_SCAN,
    .shares = 1u << 0 | 1u << 2,
    .local = linear_scan_local,
};

nb_tensor *nb_linear_scan(nb_tensor *a, nb_tensor *b, int64_t axis,
                          bool exclusive, bool reverse)
{
    nb_tensor *in[] = {a, b};
    nb_value v[] = {NB_V_INT(axis), NB_V_INT(exclusive), NB_V_INT(reverse)};
    return nb_apply(&nb_op_linear_scan, 2, in, 3, v, NB_CALLER);
}

/* cumprod */

static bool cumprod_kernel(const nb_kernel *k)
{
    return scan_kernel(k, &(scanner){prod_int, prod_f32, prod_f64, 1});
}

/* y_i = x_i y_(i-1) moves by x_i dy_(i-1) + u_i y_(i-1).  Nothing is divided,
 * so zeros do no harm. */
static nb_tensor *cumprod_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    int64_t axis = nb_arg_int(c, 0);
    bool exclusive = nb_arg_int(c, 1), reverse = nb_arg_int(c, 2);
    nb_tensor *before = nb_cumprod(c->in[0], axis, true, reverse);
    (void)k, (void)i;
    return nb_linear_scan(c->in[0], nb_mul(u, before), axis, exclusive,
                          reverse);
}

nb_op nb_op_cumprod = {
    .name = "cumprod",
    .doc = "Running product along an axis, from the end if reverse; exclusive: "
           "of what is before each element, without it.  Integers narrower "
           "than 64 bits are multiplied in 64, 16-bit floats in float32.",
    .example = "cumprod([[1, 2, 3], [4, 5, 6]], axis=0, reverse=True) = "
               "[[4, 10, 18], [4, 5, 6]]",
    .params = P_SCAN,
    .sign = scan_sign,
    .kind = NB_RULE,
    .out = NB_OUT_SUM,
    .totals = true,
    .reduce = NB_PROD,
    .kernel = cumprod_kernel,
    .jvp = cumprod_jvp,
    .splits = 1u << NB_SCAN,
    .shares = 1u << 1,
    .local = totals_local,
};

/* diff */

static nb_tensor *diff_of(const nb_call *c)
{
    int axis = (int)nb_arg_int(c, 0);
    int64_t n = nb_arg_int(c, 1);
    nb_tensor *x = c->in[0];
    if (n < 0)
        return nb_fail(NB_EVALUE, "diff: n is %lld, not 0 or more",
                       (long long)n);
    for (; x && n > 0 && nb_size(x, axis) > 0; n--) {
        nb_tensor *a = earlier(x, axis, 1, false);
        nb_tensor *b = later(x, axis, 1, false);
        x = nb_dtype_of(x) == NB_BOOL ? nb_not_equal(b, a) : nb_sub(b, a);
    }
    return x;
}

COMPOSE(diff, diff_of(c))

nb_op nb_op_diff = {
    .name = "diff",
    .doc = "Differences of neighbours along an axis, taken n times; of bools, "
           "whether they differ.",
    .example = "diff([[1, 2, 4, 7], [1, 1, 2, 2]], axis=1, n=2) = "
               "[[1, 1], [1, -1]]",
    .params = "x, axis:axis=-1, n:int=1",
    .kind = NB_COMPOSITE,
    .compose = diff_compose,
};

nb_tensor *nb_diff(nb_tensor *x, int64_t axis, int64_t n)
{
    nb_value v[] = {NB_V_INT(axis), NB_V_INT(n)};
    return nb_apply(&nb_op_diff, 1, &x, 2, v, NB_CALLER);
}
