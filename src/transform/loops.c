/* loops.c - loops and branches made of others: map, fori, switch, and the
 * associative scan, which is slices and concatenations. */
#include "transform/branch.h"
#include "transform/passes.h"

#include "ops/ops.h"

nb_status nb_map(nb_func *f, int nxs, nb_tensor *const *xs, int *ny,
                 nb_tensor **y)
{
    if (nxs < 1)
        return NB_STATUS(nb_fail(NB_EVALUE, "map: nothing to map over"));
    return nb_scan(f, 0, NULL, nxs, xs, 0, false, ny, y);
}

/* fori */

typedef struct counted {
    nb_func *body;
    nb_tensor *upper;
    int n;
} counted;

/* (i, state...) -> (i + 1, state...) */
static nb_status count_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    const counted *c = ctx;
    int n = *ny - 1;
    bool ok = nb_run(c->body, nx, x, &n, y + 1);
    if (ok && n != c->n)
        ok =
            nb_fail(NB_EVALUE, "fori: %d states, the body returns %d", c->n, n);
    for (int k = 1; ok && k < nx; k++)
        ok = (y[k] = nb_strong(y[k], x[k])) &&
             nb_carry_check("fori: state", k - 1, x[k], y[k]);
    y[0] = nb_add(x[0], nb_count(1));
    *ny = nx;
    return NB_STATUS(ok);
}

static nb_status count_test(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    const counted *c = ctx;
    (void)nx;
    y[0] = nb_less(x[0], c->upper);
    *ny = 1;
    return NB_STATUS(y[0]);
}

/* A bound in dtype d: an integer scalar. */
static nb_tensor *bound(nb_tensor *x, nb_dtype d)
{
    if (!x) return NULL;
    if (!nb_dtype_is_integer((nb_dtype)x->dtype) || nb_elements(x) != 1)
        return nb_fail(
            NB_ETYPE, "fori: a bound is an integer scalar, not %lld of %s",
            (long long)nb_elements(x), nb_dtype_name((nb_dtype)x->dtype));
    return nb_cast(nb_reshape(x, 0, NULL), d);
}

/* The bounds in dtype d; as numbers if both are at hand, so that turns can be
 * counted. */
static bool bounds(nb_tensor **lower, nb_tensor **upper, nb_dtype d)
{
    int64_t from, to, turns;
    bool known = nb_known_whole(*lower, &from) && nb_known_whole(*upper, &to);
    if (!(*lower = bound(*lower, d)) || !(*upper = bound(*upper, d)))
        return false;
    if (!known) return true;
    if (to > from && __builtin_sub_overflow(to, from, &turns))
        return nb_fail(NB_EOVERFLOW, "fori: too many turns from %lld to %lld",
                       (long long)from, (long long)to);
    return (*lower = nb_number_like(from, *lower)) &&
           (*upper = nb_number_like(to, *upper));
}

nb_status nb_fori(nb_tensor *lower, nb_tensor *upper, nb_func *body, int n,
                  nb_tensor *const *init, nb_tensor **y)
{
    counted c = {.body = body, .n = n};
    nb_list state = {0};
    nb_tensor **out = nb_array(n + 1);
    bool open = out && lower && upper && body && nb_scope_open() == NB_OK;
    nb_dtype d =
        open ? nb_dtype_common(2, (nb_tensor *[]){lower, upper}) : NB_NOTYPE;
    bool ok = d && bounds(&lower, &upper, d) && nb_list_add(&state, lower);
    c.upper = upper;
    for (int k = 0; ok && k < n; k++)
        ok = nb_list_add(&state, nb_strong(init[k], NULL));
    ok =
        ok && nb_while(nb_func_new(count_test, &c), nb_func_new(count_body, &c),
                       n + 1, state.at, out) == NB_OK;
    for (int k = 0; ok && k < n; k++)
        y[k] = out[1 + k];
    if (open) nb_scope_close(ok ? n : 0, y);
    nb_list_free(&state);
    nb_free(out);
    return NB_STATUS(ok);
}

/* switch: halves of the branches, until there is one */

typedef struct range {
    nb_tensor *index;
    nb_func *const *branch;
    int from, to;
} range;

static nb_status choose(void *ctx, int nx, nb_tensor *const *x, int *ny,
                        nb_tensor **y)
{
    const range *r = ctx;
    int middle = (r->from + r->to) / 2;
    if (r->to - r->from == 1)
        return nb_func_call(r->branch[r->from], nx, x, ny, y);
    range low = {r->index, r->branch, r->from, middle};
    range high = {r->index, r->branch, middle, r->to};
    nb_branch b = {.who = "switch",
                   .pred = nb_less(r->index, nb_count(middle)),
                   .yes = nb_func_new(choose, &low),
                   .no = nb_func_new(choose, &high),
                   .nx = nx,
                   .x = x};
    return nb_branch_record(b, ny, y);
}

/* An index that can be compared with the number of any branch. */
static nb_tensor *wide(nb_tensor *index)
{
    return index->dtype == NB_U64 ? index : nb_cast(index, NB_I64);
}

nb_status nb_switch(nb_tensor *index, int n, nb_func *const *branch, int nx,
                    nb_tensor *const *x, int *ny, nb_tensor **y)
{
    range all = {.branch = branch, .to = n};
    bool ok = index;
    for (int i = 0; ok && i < n; i++)
        ok = branch[i];
    if (ok && n < 1) ok = nb_fail(NB_EVALUE, "switch: no branches");
    if (ok && !nb_dtype_is_integer((nb_dtype)index->dtype))
        ok = nb_fail(NB_ETYPE, "switch: the index is an integer, not %s",
                     nb_dtype_name((nb_dtype)index->dtype));
    if (ok && nb_elements(index) != 1)
        ok = nb_fail(NB_EVALUE,
                     "switch: the index is a scalar, not of %lld elements",
                     (long long)nb_elements(index));
    bool open = ok && nb_scope_open() == NB_OK;
    ok = open && (all.index = wide(index)) &&
         choose(&all, nx, x, ny, y) == NB_OK;
    if (!ok) *ny = 0;
    if (open) nb_scope_close(*ny, y);
    return NB_STATUS(ok);
}

/* Associative scan.  Pairs are combined and scanned, which gives every second
 * result; those between are one more element combined with the result before:
 *
 *     x0 x1 x2 x3 x4  ->  x01 x23  ->  x01 x0123  ->  x0 x01 x012 x0123 x01234
 */
typedef struct along {
    nb_func *combine;
    int n;
    int64_t axis; /* may be negative: tensors may differ in rank */
} along;

static int axis_of(const along *a, const nb_tensor *x)
{
    return (int)(a->axis < 0 ? a->axis + nb_rank(x) : a->axis);
}

/* Elements start, start + step, ... along the axis, count of them. */
static nb_tensor *pick(const along *a, nb_tensor *x, int64_t start,
                       int64_t count, int64_t step)
{
    int64_t from[NB_MAX_RANK] = {0}, size[NB_MAX_RANK], by[NB_MAX_RANK];
    int axis = axis_of(a, x);
    if (!x) return NULL;
    for (int d = 0; d < nb_rank(x); d++) {
        size[d] = d == axis ? count : nb_size(x, d);
        by[d] = d == axis ? step : 1;
    }
    from[axis] = start;
    return nb_slice(x, from, size, by);
}

/* even[0] odd[0] even[1] odd[1] ...; even may have one more. */
static nb_tensor *interleave(const along *a, nb_tensor *even, nb_tensor *odd)
{
    int axis = axis_of(a, odd);
    int64_t size[NB_MAX_RANK], n = nb_size(odd, axis);
    int64_t more = nb_size(even, axis) - n;
    nb_tensor *pair[] = {pick(a, even, 0, n, 1), odd};
    nb_sizes(odd, size);
    size[axis] = 2 * n;
    nb_tensor *both =
        nb_reshape(nb_stack(2, pair, axis + 1), nb_rank(odd), size);
    if (!even || !more) return both;
    nb_tensor *ends[] = {both, pick(a, even, n, 1, 1)};
    return nb_concatenate(2, ends, axis);
}

/* Combines a count of elements of x with as many of y, each from a start on, a
 * step apart. */
typedef struct row {
    nb_tensor *const *x;
    int64_t start, step;
} row;

static bool combine(const along *a, row x, row y, int64_t count, nb_tensor **z)
{
    nb_tensor **in = nb_array(2 * a->n);
    int n = a->n;
    bool ok = in;
    for (int k = 0; ok && k < a->n; k++) {
        in[k] = pick(a, x.x[k], x.start, count, x.step);
        in[a->n + k] = pick(a, y.x[k], y.start, count, y.step);
    }
    ok = ok && nb_run(a->combine, 2 * a->n, in, &n, z);
    if (ok && n != a->n)
        ok = nb_fail(NB_EVALUE,
                     "associative_scan: combine returns %d tensors for %d", n,
                     a->n);
    for (int k = 0; ok && k < a->n; k++)
        ok =
            nb_carry_check("associative_scan: combined tensor", k, in[k], z[k]);
    nb_free(in);
    return ok;
}

static bool scan(const along *a, int64_t length, nb_tensor *const *x,
                 nb_tensor **y)
{
    for (int k = 0; k < a->n; k++)
        y[k] = x[k];
    if (length < 2) return true;
    nb_tensor **odd = nb_array(a->n), **even = nb_array(a->n);
    int64_t half = length / 2, between = (length - 1) / 2;
    bool ok = odd && even &&
              combine(a, (row){x, 0, 2}, (row){x, 1, 2}, half, even) &&
              scan(a, half, even, odd) &&
              combine(a, (row){odd, 0, 1}, (row){x, 2, 2}, between, even);
    for (int k = 0; ok && k < a->n; k++) {
        nb_tensor *all[] = {pick(a, x[k], 0, 1, 1), even[k]};
        nb_tensor *first = nb_concatenate(2, all, axis_of(a, x[k]));
        ok = (y[k] = interleave(a, first, odd[k]));
    }
    nb_free(odd), nb_free(even);
    return ok;
}

/* All of one length along the axis. */
static bool aligned(int n, nb_tensor *const *x, int64_t axis, int64_t *length)
{
    for (int k = 0; k < n; k++) {
        int rank = nb_rank(x[k]);
        int64_t d = axis < 0 ? axis + rank : axis;
        if (!x[k]) return false;
        if (d < 0 || d >= rank)
            return nb_fail(NB_EAXIS,
                           "associative_scan: axis %lld is out of range for "
                           "rank %d",
                           (long long)axis, rank);
        int64_t size = nb_size(x[k], (int)d);
        if (k && size != *length)
            return nb_fail(NB_EVALUE,
                           "associative_scan: tensor %d has length %lld, not "
                           "%lld",
                           k, (long long)size, (long long)*length);
        *length = size;
    }
    return true;
}

static nb_tensor *turned(const along *a, nb_tensor *x)
{
    return nb_flip(x, 1, (int64_t[]){axis_of(a, x)});
}

nb_status nb_associative_scan(nb_func *f, int n, nb_tensor *const *x,
                              int64_t axis, bool reverse, nb_tensor **y)
{
    along a = {f, n, axis};
    int64_t length = 0;
    nb_tensor **in = nb_array(n);
    bool ok = in && f;
    if (ok && n < 1) ok = nb_fail(NB_EVALUE, "associative_scan: no tensors");
    bool open = ok && aligned(n, x, axis, &length) && nb_scope_open() == NB_OK;
    ok = open;
    for (int k = 0; ok && k < n; k++)
        ok = (in[k] = reverse ? turned(&a, x[k]) : x[k]);
    ok = ok && scan(&a, length, in, y);
    for (int k = 0; ok && reverse && k < n; k++)
        ok = (y[k] = turned(&a, y[k]));
    if (open) nb_scope_close(ok ? n : 0, y);
    nb_free(in);
    return NB_STATUS(ok);
}
