/* linalg.c - linear algebra that is made of other ops: norms, powers, ranks and
 * cross products; and what the files of the family share. */
#include "ops/linalg.h"

#include "core/convert.h"
#include "ops/view.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Shared */

static bool check_types(const nb_call *c)
{
    for (int i = 0; i < c->nin; i++) {
        nb_dtype d = nb_dtype_of(c->in[i]);
        if (d != NB_F32 && d != NB_F64)
            return nb_fail(NB_ETYPE,
                           "%s: does not take %s: float32 or float64 needed",
                           c->op->name, nb_dtype_name(d));
    }
    return true;
}

bool nb_check_matrix(nb_call *c)
{
    if (RANK(0) < 2)
        return nb_fail(NB_EVALUE, "%s: rank %d: matrices have at least 2",
                       c->op->name, RANK(0));
    return check_types(c);
}

bool nb_check_square(nb_call *c)
{
    nb_shape s = nb_tensor_shape(c->in[0]);
    if (!nb_check_matrix(c)) return false;
    return SIZE(0, -2) == SIZE(0, -1) ||
           nb_fail(NB_EVALUE,
                   "%s: shape %s: the last two axes must make a square matrix",
                   c->op->name, nb_shape_text(&s));
}

static void pack(const nb_view *v, char *to)
{
    bool matrix = v->rank > 1;
    int64_t item = (int64_t)nb_dtype_size(v->dtype);
    int64_t rows = matrix ? v->size[0] : 1, n = v->size[v->rank - 1];
    for (int64_t i = 0; i < rows; i++)
        nb_convert(to + i * n * item, v->dtype, 1,
                   v->data + (matrix ? i * v->stride[0] : 0) * item, v->dtype,
                   v->stride[v->rank - 1], n);
}

static bool is_packed(const nb_view *v)
{
    int64_t step = 1;
    for (int d = v->rank - 1; d >= 0; d--) {
        if (v->size[d] != 1 && v->stride[d] != step) return false;
        step *= v->size[d];
    }
    return true;
}

static void *room_for(const nb_view *v)
{
    int64_t n = 1;
    for (int d = 0; d < v->rank; d++)
        n *= v->size[d];
    return nb_alloc((size_t)n * nb_dtype_size(v->dtype));
}

bool nb_packed_open(nb_packed *p, const nb_view *v)
{
    *p = (nb_packed){.data = v->data};
    if (is_packed(v)) return true;
    p->data = p->own = room_for(v);
    if (p->own) pack(v, p->own);
    return p->own;
}

void nb_packed_close(nb_packed *p)
{
    nb_free(p->own);
}

/* Halves are added, so that nothing overflows; what is symmetric stays as it
 * is, to the last bit. */
void *nb_packed_symmetric(const nb_view *v)
{
    int64_t n = v->size[0];
    char *a = room_for(v);
    size_t item = nb_dtype_size(v->dtype);
    if (!a) return NULL;
    pack(v, a);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) {
            char *p = a + (size_t)(i * n + j) * item;
            char *q = a + (size_t)(j * n + i) * item;
            double x = nb_read_f64(p, v->dtype), y = nb_read_f64(q, v->dtype);
            if (x == y) continue;
            nb_write_f64(p, v->dtype, x / 2 + y / 2);
            nb_write_f64(q, v->dtype, x / 2 + y / 2);
        }
    return a;
}

nb_tensor *nb_columns(nb_tensor *s)
{
    return nb_unsqueeze(s, -2);
}

nb_tensor *nb_rows(nb_tensor *s)
{
    return nb_unsqueeze(s, -1);
}

nb_tensor *nb_unit(nb_tensor *x, int64_t n)
{
    return x ? nb_eye(n, n, 0, nb_dtype_of(x)) : NULL;
}

nb_tensor *nb_inner(nb_tensor *x, nb_tensor *y)
{
    return nb_contract(x, y, "... k m, ... k n -> ... m n");
}

nb_tensor *nb_across(nb_tensor *x, nb_tensor *y)
{
    return nb_contract(x, y, "... m k, ... n k -> ... m n");
}

bool nb_apply_parts(nb_op *op, nb_tensor *x, nb_value *v, int n,
                    nb_tensor **out, void *caller)
{
    nb_results r = {.room = op->nout, .out = out};
    return nb_apply_many(op, 1, &x, n, v, &r, caller);
}

nb_tensor *nb_gaps(nb_tensor *d)
{
    nb_tensor *one = nb_unit(d, nb_size(d, -1));
    nb_tensor *gap = nb_sub(nb_columns(d), nb_rows(d));
    return nb_div(nb_sub(nb_num(1), one), nb_add(gap, one));
}

int64_t nb_least(const nb_call *c)
{
    int64_t m = SIZE(0, -2), n = SIZE(0, -1);
    return m < n ? m : n;
}

/* Norms */

/* x with the axes over which a norm runs flattened into one, the last, and the
 * shape of the result. */
typedef struct span {
    nb_tensor *x;
    int rank;
    int64_t size[NB_MAX_RANK];
} span;

static bool is_in(int64_t axis, int n, const int64_t *axes)
{
    for (int k = 0; k < n; k++)
        if (axes[k] == axis) return true;
    return n < 0;
}

static span flattened(const nb_call *c, int n, const int64_t *axes, bool keep)
{
    span s = {0};
    int64_t order[NB_MAX_RANK], flat[NB_MAX_RANK + 1], length = 1;
    int kept = 0, last = RANK(0);
    for (int d = RANK(0) - 1; d >= 0; d--)
        if (is_in(d, n, axes)) order[--last] = d;
    for (int d = 0; d < RANK(0); d++) {
        bool gone = is_in(d, n, axes);
        if (gone) length *= SIZE(0, d);
        if (!gone || keep) s.size[s.rank++] = gone ? 1 : SIZE(0, d);
        if (gone) continue;
        order[kept] = d;
        flat[kept++] = SIZE(0, d);
    }
    flat[kept] = length;
    s.x = c->in[0];
    if (n >= 0) s.x = nb_permute(s.x, RANK(0), order);
    s.x = nb_reshape(s.x, kept + 1, flat);
    return s;
}

static bool vector_norm_compose(const nb_call *c, nb_results *r)
{
    int n;
    double ord = nb_arg_float(c, 2);
    const int64_t *axes = nb_arg_list(c, 0, &n);
    span s = flattened(c, n, axes, nb_arg_int(c, 1));
    nb_tensor *y = nb_norm(s.x, &ord, 1, (int64_t[]){-1}, false);
    return nb_results_add(r, nb_reshape(y, s.rank, s.size));
}

nb_op nb_op_vector_norm = {
    .name = "vector_norm",
    .doc = "(sum |x|^ord)^(1/ord) over axes, all of them if none are given; "
           "for inf and -inf the largest and smallest |x|, for 0 the count of "
           "what is not zero.",
    .example = "vector_norm([[[3.0, 4.0], [0.0, 12.0]], [[1.0, 0.0], "
               "[0.0, 0.0]]], axis=(0, 2), keepdims=True, ord=1.0) = "
               "[[[8.0], [12.0]]]",
    .params = "x, *, axis:axes=None, keepdims:bool=False, ord:float=2",
    .kind = NB_COMPOSITE,
    .in = NB_IN_FLOAT,
    .compose = vector_norm_compose,
};

nb_tensor *nb_vector_norm(nb_tensor *x, int n, const int64_t *axes,
                          bool keepdims, double ord)
{
    nb_value none = NB_V_NONE, some = NB_V_LIST(n, axes);
    return CALL1(vector_norm, x, n < 0 ? none : some, NB_V_INT(keepdims),
                 NB_V_FLOAT(ord));
}

static const int64_t last_two[] = {-2, -1};

/* Norms by singular values: their sum, the largest, the smallest. */
static nb_tensor *spectral_norm(const nb_call *c, char kind)
{
    nb_tensor *s = nb_svdvals(c->in[0]);
    const int64_t *last = &last_two[1];
    s = kind == 'n'   ? nb_reduce_sum(s, 1, last, false)
        : kind == '2' ? nb_reduce_max(s, 1, last, false)
                      : nb_reduce_min(s, 1, last, false);
    if (!nb_arg_int(c, 0)) return s;
    return nb_unsqueeze(nb_unsqueeze(s, -1), -1);
}

/* ord as a number; NaN for one that is none of the matrix norms. */
static double number_of(const char *ord)
{
    static const double known[] = {1, -1, 2, -2, INFINITY, -INFINITY};
    char *end;
    double p = strtod(ord, &end);
    for (int k = 0; end != ord && !*end && k < 6; k++)
        if (p == known[k]) return p;
    return NAN;
}

static bool matrix_norm_compose(const nb_call *c, nb_results *r)
{
    const char *ord = nb_arg_text(c, 1);
    bool keep = nb_arg_int(c, 0);
    double p = number_of(ord);
    if (!strcmp(ord, "fro"))
        return nb_results_add(r, nb_norm(c->in[0], NULL, 2, last_two, keep));
    if (!strcmp(ord, "nuc")) return nb_results_add(r, spectral_norm(c, 'n'));
    if (fabs(p) == 2)
        return nb_results_add(r, spectral_norm(c, p > 0 ? '2' : 'm'));
    if (!isnan(p))
        return nb_results_add(r, nb_norm(c->in[0], &p, 2, last_two, keep));
    return nb_fail(NB_EVALUE,
                   "matrix_norm: ord \"%s\" is none of fro, nuc, 1, -1, 2, "
                   "-2, inf, -inf",
                   ord);
}

nb_op nb_op_matrix_norm = {
    .name = "matrix_norm",
    .doc = "Norm of the matrices of the last two axes: \"fro\" the root of the "
           "sum of squares, \"nuc\" the sum of singular values, 2 and -2 the "
           "largest and smallest of them, 1 and -1 the largest and smallest "
           "sum of a column's absolute values, inf and -inf of a row's.",
    .example = "matrix_norm([[3.0, 0.0, 0.0], [0.0, -4.0, 0.0]], "
               "keepdims=True, ord=\"nuc\") = [[7.0]]",
    .params = "x, *, keepdims:bool=False, ord:text=\"fro\"",
    .check = nb_check_matrix,
    .kind = NB_COMPOSITE,
    .in = NB_IN_FLOAT,
    .compose = matrix_norm_compose,
    .shapes = "d",
};

nb_tensor *nb_matrix_norm(nb_tensor *x, bool keepdims, const char *ord)
{
    return CALL1(matrix_norm, x, NB_V_INT(keepdims), NB_V_TEXT(ord));
}

/* matrix_rank */

static bool matrix_rank_compose(const nb_call *c, nb_results *r)
{
    const int64_t *last = &last_two[1];
    nb_tensor *s = nb_svdvals(c->in[0]), *least = nb_num(0);
    double rtol = nb_arg_float(c, 0);
    int64_t m = SIZE(0, -2), n = SIZE(0, -1);
    if (nb_arg_int(c, 0) == NB_NONE)
        rtol = (double)(m > n ? m : n) *
               (nb_dtype_of(c->in[0]) == NB_F32 ? FLT_EPSILON : DBL_EPSILON);
    if (m && n) least = nb_mul(nb_reduce_max(s, 1, last, true), nb_num(rtol));
    return nb_results_add(r,
                          nb_reduce_sum(nb_greater(s, least), 1, last, false));
}

nb_op nb_op_matrix_rank = {
    .name = "matrix_rank",
    .doc = "How many singular values of a matrix, the last two axes, are above "
           "rtol times the largest; rtol is by default the larger extent times "
           "the dtype's epsilon.",
    .example = "matrix_rank([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]) = 1",
    .params = "x, *, rtol:float=None",
    .check = nb_check_matrix,
    .kind = NB_COMPOSITE,
    .in = NB_IN_FLOAT,
    .compose = matrix_rank_compose,
};

nb_tensor *nb_matrix_rank(nb_tensor *x, const double *rtol)
{
    nb_value none = NB_V_NONE, some = NB_V_FLOAT(rtol ? *rtol : 0);
    return CALL1(matrix_rank, x, rtol ? some : none);
}

/* matrix_power */

static bool power_check(nb_call *c)
{
    nb_shape s = nb_tensor_shape(c->in[0]);
    return (RANK(0) >= 2 && SIZE(0, -2) == SIZE(0, -1)) ||
           nb_fail(NB_EVALUE,
                   "matrix_power: shape %s: the last two axes must make a "
                   "square matrix",
                   nb_shape_text(&s));
}

/* By squaring. */
static bool matrix_power_compose(const nb_call *c, nb_results *r)
{
    int64_t n = nb_arg_int(c, 0), size[NB_MAX_RANK];
    nb_tensor *x = c->in[0], *y = NULL;
    nb_sizes(x, size);
    if (n == 0)
        return nb_results_add(
            r, nb_broadcast_to(nb_unit(x, SIZE(0, -1)), RANK(0), size));
    if (n < 0) x = nb_inv(x);
    for (uint64_t k = n < 0 ? -(uint64_t)n : (uint64_t)n; k; k /= 2) {
        if (k % 2 && !(y = y ? nb_matmul(y, x) : x)) return false;
        if (k > 1) x = nb_matmul(x, x);
    }
    return nb_results_add(r, nb_same(y));
}

nb_op nb_op_matrix_power = {
    .name = "matrix_power",
    .doc =
        "The n-th power of a square matrix, the last two axes; its inverse's "
        "if n is negative.",
    .example = "matrix_power([[2.0, 1.0], [0.0, 1.0]], n=-3) = "
               "[[0.125, -0.875], [0.0, 1.0]]",
    .params = "x, n:int",
    .check = power_check,
    .kind = NB_COMPOSITE,
    .compose = matrix_power_compose,
    .shapes = "i",
};

nb_tensor *nb_matrix_power(nb_tensor *x, int64_t n)
{
    return CALL1(matrix_power, x, NB_V_INT(n));
}

/* cross */

static nb_tensor *rolled(nb_tensor *x, int64_t by)
{
    return nb_roll(x, 1, &by, (int64_t[]){-1});
}

/* Component k is x_(k+1) y_(k+2) - x_(k+2) y_(k+1), counted round. */
static bool cross_compose(const nb_call *c, nb_results *r)
{
    int64_t axis = nb_arg_int(c, 0), last = -1;
    nb_tensor *x = c->in[0], *y = c->in[1];
    nb_shape a = nb_tensor_shape(x), b = nb_tensor_shape(y);
    for (int i = 0; i < 2; i++)
        if (axis < -RANK(i) || axis >= RANK(i))
            return nb_fail(NB_EAXIS,
                           "cross: axis %lld is out of range for rank %d",
                           (long long)axis, RANK(i));
    if (SIZE(0, axis) != 3 || SIZE(1, axis) != 3)
        return nb_fail(NB_EVALUE,
                       "cross: shapes %s and %s: axis %lld must have size 3",
                       nb_shape_text(&a), nb_shape_text(&b), (long long)axis);
    x = nb_moveaxis(x, 1, &axis, &last);
    y = nb_moveaxis(y, 1, &axis, &last);
    nb_tensor *z = nb_sub(nb_mul(rolled(x, -1), rolled(y, -2)),
                          nb_mul(rolled(x, -2), rolled(y, -1)));
    return nb_results_add(r, nb_moveaxis(z, 1, &last, &axis));
}

nb_op nb_op_cross = {
    .name = "cross",
    .doc = "Vector product of vectors of three along an axis; other axes "
           "broadcast.",
    .example = "cross([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], "
               "[1.0, 0.0], [0.0, 2.0]], axis=0) = [[0.0, 2.0], [0.0, 0.0], "
               "[1.0, 0.0]]",
    .params = "x, y, axis:int=-1",
    .kind = NB_COMPOSITE,
    .in = NB_IN_NUMBER,
    .compose = cross_compose,
};

nb_tensor *nb_cross(nb_tensor *x, nb_tensor *y, int64_t axis)
{
    nb_tensor *in[] = {x, y};
    nb_value v[] = {NB_V_INT(axis)};
    return nb_apply(&nb_op_cross, 2, in, 1, v, NB_CALLER);
}
