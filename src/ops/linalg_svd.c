/* linalg_svd.c - singular values: svd, svdvals, and what is made by them, the
 * pseudo-inverse and cofactors.
 *
 * Derivatives of singular vectors exist where the values are distinct and not
 * zero; elsewhere they are infinite or NaN. */
#include "ops/linalg.h"

#include "base/blas.h"
#include "base/lapack.h"
#include "core/convert.h"

#include <float.h>

static bool svd_sign(const nb_call *c, nb_text *t)
{
    bool full = nb_arg_int(c, 0);
    long long k = nb_least(c);
    return nb_text_add(t,
                       "... m n -> ... m p, ... k, ... q n; "
                       "replicate{m n p k q}, p=%lld, k=%lld, q=%lld",
                       full ? (long long)SIZE(0, -2) : k, k,
                       full ? (long long)SIZE(0, -1) : k);
}

static bool svd_kernel(const nb_kernel *k)
{
    const nb_view *v = &k->view[0];
    nb_packed a;
    if (!nb_packed_open(&a, v)) return false;
    bool ok = nb_lapack_svd(v->dtype, v->size[0], v->size[1],
                            nb_arg_int(k->call, 0), a.data, k->view[1].data,
                            k->view[2].data, k->view[3].data, NULL);
    nb_packed_close(&a);
    return ok;
}

/* What of b is orthogonal to the columns of q, divided by s: how singular
 * vectors leave the space that they span. */
static nb_tensor *outside(nb_tensor *q, nb_tensor *b, nb_tensor *s)
{
    return nb_div(nb_sub(b, nb_matmul(q, nb_inner(q, b))), nb_columns(s));
}

/* a = u s v^T: with m = u^T da v, ds is m's diagonal, and u^T du and v^T dv are
 * the antisymmetric solutions of m = (u^T du) s + ds - s (v^T dv). */
static nb_tensor *svd_moves(nb_tensor *const *f, int k, nb_tensor *da)
{
    nb_tensor *u = f[0], *s = f[1], *v = nb_turn(f[2]);
    nb_tensor *m = nb_inner(u, nb_matmul(da, v));
    if (k == 1) return nb_diagonal(m, 0, -2, -1);
    nb_tensor *scaled = nb_mul(m, k == 0 ? nb_columns(s) : nb_rows(s));
    nb_tensor *in =
        nb_mul(nb_gaps(nb_mul(s, s)), nb_add(scaled, nb_turn(scaled)));
    nb_tensor *moves = nb_matmul(k == 0 ? u : v, in);
    if (!moves) return NULL;
    if (k == 0 && nb_size(u, -2) > nb_size(u, -1))
        moves = nb_add(moves, outside(u, nb_matmul(da, v), s));
    if (k == 2 && nb_size(v, -2) > nb_size(v, -1))
        moves = nb_add(moves, outside(v, nb_inner(da, u), s));
    return k == 0 ? moves : nb_turn(moves);
}

static nb_tensor *svd_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    nb_tensor *f[3];
    bool square = SIZE(0, -2) == SIZE(0, -1);
    (void)i;
    if (nb_arg_int(c, 0) && !square && k != 1)
        return nb_fail(NB_ERUNTIME,
                       "svd: the vectors that full_matrices=True adds for a "
                       "matrix of %lld x %lld have no derivative, "
                       "full_matrices=False is needed",
                       (long long)SIZE(0, -2), (long long)SIZE(0, -1));
    if (nb_svd(c->in[0], false, f) != NB_OK) return NULL;
    return svd_moves(f, k, u);
}

nb_op nb_op_svd = {
    .name = "svd",
    .doc = "u, s, vh with x = u diag(s) vh: orthonormal columns u, falling "
           "singular values s, orthonormal rows vh.  For x of m x n and k the "
           "smaller, they are m x m, k, n x n, or m x k, k, k x n unless "
           "full_matrices.  Signs of vectors are any; their derivative needs "
           "distinct values and full_matrices=False (or a square x).",
    .example = "svd([[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]], "
               "full_matrices=False) = [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], "
               "[3.0, 2.0], [[1.0, 0.0], [0.0, 1.0]]",
    .params = "x, *, full_matrices:bool=True",
    .check = nb_check_matrix,
    .sign = svd_sign,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .nout = 3,
    .kernel = svd_kernel,
    .jvp = svd_jvp,
    .shapes = "d",
};

nb_status nb_svd(nb_tensor *x, bool full_matrices, nb_tensor **out)
{
    nb_value v[] = {NB_V_INT(full_matrices)};
    return NB_STATUS(nb_apply_parts(&nb_op_svd, x, v, 1, out, NB_CALLER));
}

static bool svdvals_sign(const nb_call *c, nb_text *t)
{
    return nb_text_add(t, "... m n -> ... k; replicate{m n k}, k=%lld",
                       (long long)nb_least(c));
}

static bool svdvals_kernel(const nb_kernel *k)
{
    const nb_view *v = &k->view[0];
    nb_packed a;
    if (!nb_packed_open(&a, v)) return false;
    bool ok = nb_lapack_svd(v->dtype, v->size[0], v->size[1], false, a.data,
                            NULL, k->view[1].data, NULL, NULL);
    nb_packed_close(&a);
    return ok;
}

static nb_tensor *svdvals_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    nb_tensor *f[3];
    (void)k, (void)i;
    return nb_svd(c->in[0], false, f) == NB_OK ? svd_moves(f, 1, u) : NULL;
}

nb_op nb_op_svdvals = {
    .name = "svdvals",
    .doc = "Singular values of a matrix, the last two axes, falling.",
    .example = "svdvals([[3.0, 0.0, 0.0], [0.0, -4.0, 0.0]]) = [4.0, 3.0]",
    .params = "x",
    .check = nb_check_matrix,
    .sign = svdvals_sign,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .kernel = svdvals_kernel,
    .jvp = svdvals_jvp,
    .shapes = "d",
};

/* pinv */

static void scale_row(nb_dtype d, int64_t n, double by, char *row)
{
    size_t item = nb_dtype_size(d);
    for (int64_t j = 0; j < n; j++) {
        char *at = row + (size_t)j * item;
        nb_write_f64(at, d, nb_read_f64(at, d) * by);
    }
}

/* Rows of vt divided by s, or zeroed where s is no more than the cut. */
static void divide_rows(nb_dtype d, int64_t k, int64_t n, const char *s,
                        double rtol, char *vt)
{
    size_t item = nb_dtype_size(d);
    double top = k ? nb_read_f64(s, d) : 0;
    for (int64_t i = 0; i < k; i++) {
        double x = nb_read_f64(s + (size_t)i * item, d);
        double by = x > rtol * top ? 1 / x : x == x ? 0 : x;
        scale_row(d, n, by, vt + (size_t)(i * n) * item);
    }
}

static double cut_of(const nb_call *c, nb_dtype d, int64_t m, int64_t n)
{
    double eps = d == NB_F32 ? FLT_EPSILON : DBL_EPSILON;
    return nb_arg_int(c, 0) == NB_NONE ? (double)(m > n ? m : n) * eps
                                       : nb_arg_float(c, 0);
}

static bool pinv_kernel(const nb_kernel *k)
{
    const nb_view *v = &k->view[0];
    nb_dtype d = v->dtype;
    int64_t m = v->size[0], n = v->size[1], r = m < n ? m : n;
    size_t item = nb_dtype_size(d);
    nb_packed a;
    char *u = nb_alloc((size_t)(m * r + r + r * n) * item);
    char *s = u + (size_t)(m * r) * item, *vt = s + (size_t)r * item;
    bool ok = u && nb_packed_open(&a, v);
    if (ok) {
        ok = nb_lapack_svd(d, m, n, false, a.data, u, s, vt, NULL);
        nb_packed_close(&a);
    }
    if (ok) {
        divide_rows(d, r, n, s, cut_of(k->call, d, m, n), vt);
        ok = nb_gemm(d, n, m, r, vt, 1, n, u, 1, r, k->view[1].data, m);
    }
    nb_free(u);
    return ok;
}

/* Of constant rank: dp = -p da p + p p^T da^T (1 - a p) + (1 - p a) da^T p^T p
 * (Golub and Pereyra). */
static nb_tensor *pinv_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    nb_tensor *a = c->in[0], *p = c->out, *ut = nb_turn(u);
    nb_tensor *left = nb_sub(nb_unit(a, SIZE(0, -2)), nb_matmul(a, p));
    nb_tensor *right = nb_sub(nb_unit(a, SIZE(0, -1)), nb_matmul(p, a));
    nb_tensor *t = nb_neg(nb_matmul(nb_matmul(p, u), p));
    (void)k, (void)i;
    t = nb_add(t, nb_matmul(nb_matmul(nb_across(p, p), ut), left));
    return nb_add(t, nb_matmul(nb_matmul(right, ut), nb_inner(p, p)));
}

nb_op nb_op_pinv = {
    .name = "pinv",
    .doc = "Pseudo-inverse (Moore and Penrose) of a matrix, the last two axes. "
           " Singular values up to rtol times the largest count as zero; rtol "
           "is by default the larger extent times the dtype's epsilon.",
    .example = "pinv([[2.0, 0.0], [0.0, 4.0], [0.0, 0.0]]) = "
               "[[0.5, 0.0, 0.0], [0.0, 0.25, 0.0]]",
    .params = "x, *, rtol:float=None",
    .sig = "... m n -> ... n m; replicate{m n}",
    .check = nb_check_matrix,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .kernel = pinv_kernel,
    .jvp = pinv_jvp,
    .shapes = "d",
};

nb_tensor *nb_pinv(nb_tensor *x, const double *rtol)
{
    nb_value none = NB_V_NONE, some = NB_V_FLOAT(rtol ? *rtol : 0);
    return CALL1(pinv, x, rtol ? some : none);
}

/* cofactor */

/* Row i of vt times the product of all s but s_i, and times a sign. */
static void weigh_rows(nb_dtype d, int64_t n, const char *s, double sign,
                       char *vt)
{
    size_t item = nb_dtype_size(d);
    for (int64_t i = 0; i < n; i++) {
        double by = sign;
        for (int64_t j = 0; j < n; j++)
            if (j != i) by *= nb_read_f64(s + (size_t)j * item, d);
        scale_row(d, n, by, vt + (size_t)(i * n) * item);
    }
}

/* The determinant of an orthogonal matrix: 1 or -1. */
static bool parity(nb_dtype d, int64_t n, const void *q, void *lu,
                   int32_t *perm, double *det)
{
    int sign;
    size_t item = nb_dtype_size(d);
    if (!nb_lapack_lu(d, n, n, q, lu, perm, &sign)) return false;
    for (int64_t i = 0; i < n; i++)
        if (nb_read_f64((char *)lu + (size_t)(i * n + i) * item, d) < 0)
            sign = -sign;
    *det *= sign;
    return true;
}

/* a = u s v^T has the cofactors det(u) det(v) u cof(s) v^T, and those of a
 * diagonal matrix are products of all its elements but one. */
static bool cofactor_kernel(const nb_kernel *k)
{
    const nb_view *v = &k->view[0];
    nb_dtype d = v->dtype;
    int64_t n = v->size[0];
    size_t item = nb_dtype_size(d), bytes = (size_t)(n * n) * item;
    double sign = 1;
    nb_packed a;
    char *u = nb_alloc(3 * bytes + (size_t)n * (item + sizeof(int32_t)));
    if (!u || !nb_packed_open(&a, v)) return nb_free(u), false;
    char *vt = u + bytes, *lu = vt + bytes, *s = lu + bytes;
    int32_t *perm = (int32_t *)(s + (size_t)n * item);
    bool ok = nb_lapack_svd(d, n, n, true, a.data, u, s, vt, NULL) &&
              parity(d, n, u, lu, perm, &sign) &&
              parity(d, n, vt, lu, perm, &sign);
    if (ok) weigh_rows(d, n, s, sign, vt);
    ok = ok && nb_gemm(d, n, n, n, u, n, 1, vt, n, 1, k->view[1].data, n);
    nb_packed_close(&a);
    nb_free(u);
    return ok;
}

/* c = det(a) w^T with w = a^-1 gives dc = tr(da w) c - (da w)^T c. */
static nb_tensor *cofactor_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    nb_tensor *w = nb_matmul(u, nb_inv(c->in[0]));
    (void)k, (void)i;
    nb_tensor *t = nb_rows(nb_rows(nb_trace(w, 0)));
    return nb_sub(nb_mul(t, c->out), nb_inner(w, c->out));
}

nb_op nb_op_cofactor = {
    .name = "cofactor",
    .doc = "Cofactors of a square matrix, the last two axes: the derivative of "
           "its determinant.  Their own derivative needs an inverse.",
    .example = "cofactor([[1.0, 2.0], [3.0, 4.0]]) = [[4.0, -3.0], "
               "[-2.0, 1.0]]",
    .sig = "... m n -> ... m n; replicate{m n}",
    .check = nb_check_square,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .kernel = cofactor_kernel,
    .jvp = cofactor_jvp,
    .shapes = "i",
};

nb_tensor *nb_cofactor(nb_tensor *x)
{
    return nb_apply(&nb_op_cofactor, 1, &x, 0, NULL, NB_CALLER);
}
