/* linalg_factor.c - factorisations: cholesky, qr, eigh, svd and what follows
 * straight from them.
 *
 * Where a matrix is taken for symmetric, it is (x + x^T) / 2 that is
 * factorised, so that derivatives with respect to x are symmetric too.
 * Derivatives of eigenvectors and singular vectors exist where the values are
 * distinct; elsewhere they are infinite or NaN. */
#include "ops/linalg.h"

#include "base/blas.h"
#include "base/lapack.h"
#include "core/convert.h"

#include <float.h>
#include <math.h>
#include <string.h>

static nb_tensor *symmetric(nb_tensor *u)
{
    return nb_mul(nb_num(0.5), nb_add(u, nb_turn(u)));
}

/* x^T y. */
static nb_tensor *inner(nb_tensor *x, nb_tensor *y)
{
    return nb_contract(x, y, "... k m, ... k n -> ... m n");
}

/* x y^T. */
static nb_tensor *across(nb_tensor *x, nb_tensor *y)
{
    return nb_contract(x, y, "... m k, ... n k -> ... m n");
}

static bool apply_many(nb_op *op, nb_tensor *x, nb_value *v, int n,
                       nb_tensor **out, void *caller)
{
    nb_results r = {.room = op->nout, .out = out};
    return nb_apply_many(op, 1, &x, n, v, &r, caller);
}

/* cholesky */

static void turn_square(const nb_view *v)
{
    int64_t n = v->size[0];
    size_t item = nb_dtype_size(v->dtype);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++) {
            char *a = v->data + (size_t)(i * n + j) * item, keep[8];
            char *b = v->data + (size_t)(j * n + i) * item;
            memcpy(keep, a, item);
            memcpy(a, b, item);
            memcpy(b, keep, item);
        }
}

static bool cholesky_kernel(const nb_kernel *k)
{
    const nb_view *l = &k->view[1];
    void *a = nb_packed_symmetric(&k->view[0]);
    bool ok = a && nb_lapack_cholesky(l->dtype, l->size[0], a, l->data, NULL);
    if (ok && nb_arg_int(k->call, 0)) turn_square(l);
    nb_free(a);
    return ok;
}

/* a = l l^T gives l^-1 da l^-T = l^-1 dl + (l^-1 dl)^T, and l^-1 dl is lower
 * triangular: the lower half of the left side, with half its diagonal. */
static nb_tensor *cholesky_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    bool upper = nb_arg_int(c, 0);
    nb_tensor *l = upper ? nb_turn(c->out) : c->out;
    nb_tensor *w = nb_inv_triangle(l, false, false);
    nb_tensor *m = across(nb_matmul(w, symmetric(u)), w);
    nb_tensor *half = nb_mul(nb_num(0.5), nb_unit(l, SIZE(0, -1)));
    (void)k, (void)i;
    m = nb_mul(nb_tril(m, 0), nb_sub(nb_num(1), half));
    nb_tensor *dl = nb_matmul(l, m);
    return upper ? nb_turn(dl) : dl;
}

nb_op nb_op_cholesky = {
    .name = "cholesky",
    .doc =
        "The lower triangular l with x = l l^T, or, if upper, its transpose, "
        "for symmetric positive definite x (the last two axes; what is "
        "factorised is (x + x^T) / 2).  A matrix that is not positive "
        "definite gives NaNs.",
    .example = "cholesky([[4.0, 2.0], [2.0, 10.0]], upper=True) = "
               "[[2.0, 1.0], [0.0, 3.0]]",
    .params = "x, *, upper:bool=False",
    .sig = "... m n -> ... m n; replicate{m n}",
    .check = nb_check_square,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .kernel = cholesky_kernel,
    .jvp = cholesky_jvp,
    .shapes = "p",
};

nb_tensor *nb_cholesky(nb_tensor *x, bool upper)
{
    return CALL1(cholesky, x, NB_V_INT(upper));
}

/* qr */

static bool is_complete(const nb_call *c)
{
    return !strcmp(nb_arg_text(c, 0), "complete");
}

static int64_t least(const nb_call *c)
{
    int64_t m = SIZE(0, -2), n = SIZE(0, -1);
    return m < n ? m : n;
}

static bool qr_check(nb_call *c)
{
    const char *mode = nb_arg_text(c, 0);
    if (!nb_check_matrix(c)) return false;
    return (mode && (!strcmp(mode, "reduced") || !strcmp(mode, "complete"))) ||
           nb_fail(NB_EVALUE,
                   "qr: mode \"%s\" is neither \"reduced\" nor \"complete\"",
                   mode ? mode : "None");
}

static bool qr_sign(const nb_call *c, nb_text *t)
{
    int64_t inner_size = is_complete(c) ? SIZE(0, -2) : least(c);
    return nb_text_add(t, "... m n -> ... m k, ... k n; replicate{m n}, k=%lld",
                       (long long)inner_size);
}

static bool qr_kernel(const nb_kernel *k)
{
    const nb_view *v = &k->view[0];
    nb_packed a;
    if (!nb_packed_open(&a, v)) return false;
    bool ok =
        nb_lapack_qr(v->dtype, v->size[0], v->size[1], is_complete(k->call),
                     a.data, k->view[1].data, k->view[2].data);
    nb_packed_close(&a);
    return ok;
}

/* Q and R are square together with their product's columns: a = q r gives
 * q^T da r^-1 = q^T dq + dr r^-1, the first term antisymmetric, the second
 * upper triangular; what of da r^-1 is orthogonal to q is dq's too. */
static nb_tensor *qr_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    nb_tensor *out[2];
    const char *mode = nb_arg_text(c, 0);
    int64_t m = SIZE(0, -2), n = SIZE(0, -1);
    (void)i;
    if (m < n || (m > n && is_complete(c)))
        return nb_fail(NB_ERUNTIME,
                       "qr: no derivative of mode \"%s\" for a matrix of %lld "
                       "x %lld: needed is \"reduced\" and at least as many "
                       "rows as columns",
                       mode, (long long)m, (long long)n);
    if (nb_qr(c->in[0], mode, out) != NB_OK) return NULL;
    nb_tensor *q = out[0], *r = out[1];
    nb_tensor *b = nb_matmul(u, nb_inv_triangle(r, true, false));
    nb_tensor *a = inner(q, b), *low = nb_tril(a, -1);
    nb_tensor *turn = nb_sub(low, nb_turn(low));
    if (k == 1) return nb_matmul(nb_sub(a, turn), r);
    return nb_add(nb_matmul(q, nb_sub(turn, a)), b);
}

nb_op nb_op_qr = {
    .name = "qr",
    .doc = "q with orthonormal columns and upper triangular r, x = q r; for x "
           "of m x n and mode \"reduced\" they are m x k and k x n with k the "
           "smaller of m and n, for mode \"complete\" m x m and m x n.  The "
           "signs of r's diagonal are any.  The derivative needs mode "
           "\"reduced\" and m >= n, and x of full rank.",
    .example = "qr([[-3.0, 0.0], [0.0, -2.0], [0.0, 0.0]]) = [[1.0, 0.0], "
               "[0.0, 1.0], [0.0, 0.0]], [[-3.0, 0.0], [0.0, -2.0]]",
    .params = "x, *, mode:text=\"reduced\"",
    .check = qr_check,
    .sign = qr_sign,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .nout = 2,
    .kernel = qr_kernel,
    .jvp = qr_jvp,
};

nb_status nb_qr(nb_tensor *x, const char *mode, nb_tensor **out)
{
    nb_value v[] = {NB_V_TEXT(mode)};
    return NB_STATUS(apply_many(&nb_op_qr, x, v, 1, out, NB_CALLER));
}

/* eigh */

/* 1 / (d_j - d_i) off the diagonal, 0 on it. */
static nb_tensor *gaps(nb_tensor *d)
{
    nb_tensor *one = nb_unit(d, nb_size(d, -1));
    nb_tensor *gap = nb_sub(nb_columns(d), nb_rows(d));
    return nb_div(nb_sub(nb_num(1), one), nb_add(gap, one));
}

static bool eigh_sign(const nb_call *c, nb_text *t)
{
    return nb_text_add(t, "... m n -> ... m, ... m k; replicate{m n}, k=%lld",
                       (long long)SIZE(0, -1));
}

static bool eigh_kernel(const nb_kernel *k)
{
    const nb_view *v = &k->view[0];
    void *a = nb_packed_symmetric(v);
    void *vectors = k->nout > 1 ? k->view[2].data : NULL;
    bool ok = a && nb_lapack_eigh(v->dtype, v->size[0], a, k->view[1].data,
                                  vectors, NULL);
    nb_free(a);
    return ok;
}

/* a v = v w, v^T v = 1: with m = v^T da v, dw is m's diagonal and v^T dv is m
 * off it, divided by the gaps w_j - w_i. */
static nb_tensor *eigh_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    nb_tensor *out[2];
    (void)i;
    if (nb_eigh(c->in[0], out) != NB_OK) return NULL;
    nb_tensor *v = out[1], *m = inner(v, nb_matmul(symmetric(u), v));
    return k == 0 ? nb_diagonal(m, 0, -2, -1)
                  : nb_matmul(v, nb_mul(gaps(out[0]), m));
}

nb_op nb_op_eigh = {
    .name = "eigh",
    .doc = "Eigenvalues of a symmetric matrix (the last two axes; of (x + x^T) "
           "/ 2), rising, and orthonormal eigenvectors as columns, whose signs "
           "are any.",
    .example = "eigh([[2.0, 0.0], [0.0, 3.0]]) = [2.0, 3.0], [[1.0, 0.0], "
               "[0.0, 1.0]]",
    .params = "x",
    .check = nb_check_square,
    .sign = eigh_sign,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .nout = 2,
    .kernel = eigh_kernel,
    .jvp = eigh_jvp,
    .shapes = "s",
};

nb_status nb_eigh(nb_tensor *x, nb_tensor **out)
{
    return NB_STATUS(apply_many(&nb_op_eigh, x, NULL, 0, out, NB_CALLER));
}

JVP(eigvalsh, eigh_jvp(c, 0, i, u))

nb_op nb_op_eigvalsh = {
    .name = "eigvalsh",
    .doc = "Eigenvalues of a symmetric matrix (the last two axes; of (x + x^T) "
           "/ 2), rising.",
    .example = "eigvalsh([[5.0, 2.0], [2.0, 2.0]]) = [1.0, 6.0]",
    .sig = "... m n -> ... m; replicate{m n}",
    .check = nb_check_square,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .kernel = eigh_kernel,
    .jvp = eigvalsh_jvp,
    .shapes = "s",
};

/* svd */

static bool svd_sign(const nb_call *c, nb_text *t)
{
    bool full = nb_arg_int(c, 0);
    long long k = least(c);
    return nb_text_add(t,
                       "... m n -> ... m p, ... k, ... q n; replicate{m n}, "
                       "p=%lld, k=%lld, q=%lld",
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
    return nb_div(nb_sub(b, nb_matmul(q, inner(q, b))), nb_columns(s));
}

/* a = u s v^T: with m = u^T da v, ds is m's diagonal, and u^T du and v^T dv are
 * the antisymmetric solutions of m = (u^T du) s + ds - s (v^T dv). */
static nb_tensor *svd_moves(nb_tensor *const *f, int k, nb_tensor *da)
{
    nb_tensor *u = f[0], *s = f[1], *v = nb_turn(f[2]);
    nb_tensor *m = inner(u, nb_matmul(da, v));
    if (k == 1) return nb_diagonal(m, 0, -2, -1);
    nb_tensor *scaled = nb_mul(m, k == 0 ? nb_columns(s) : nb_rows(s));
    nb_tensor *in = nb_mul(gaps(nb_mul(s, s)), nb_add(scaled, nb_turn(scaled)));
    nb_tensor *moves = nb_matmul(k == 0 ? u : v, in);
    if (!moves) return NULL;
    if (k == 0 && nb_size(u, -2) > nb_size(u, -1))
        moves = nb_add(moves, outside(u, nb_matmul(da, v), s));
    if (k == 2 && nb_size(v, -2) > nb_size(v, -1))
        moves = nb_add(moves, outside(v, inner(da, u), s));
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
    return NB_STATUS(apply_many(&nb_op_svd, x, v, 1, out, NB_CALLER));
}

static bool svdvals_sign(const nb_call *c, nb_text *t)
{
    return nb_text_add(t, "... m n -> ... k; replicate{m n}, k=%lld",
                       (long long)least(c));
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

/* Rows of vt divided by s, or zeroed where s is no more than the cut. */
static void divide_rows(nb_dtype d, int64_t k, int64_t n, const char *s,
                        double rtol, char *vt)
{
    size_t item = nb_dtype_size(d);
    double top = k ? nb_read_f64(s, d) : 0;
    for (int64_t i = 0; i < k; i++) {
        double x = nb_read_f64(s + (size_t)i * item, d);
        double by = x > rtol * top ? 1 / x : x == x ? 0 : x;
        for (int64_t j = 0; j < n; j++) {
            char *at = vt + (size_t)(i * n + j) * item;
            nb_write_f64(at, d, nb_read_f64(at, d) * by);
        }
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
    t = nb_add(t, nb_matmul(nb_matmul(across(p, p), ut), left));
    return nb_add(t, nb_matmul(nb_matmul(right, ut), inner(p, p)));
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
