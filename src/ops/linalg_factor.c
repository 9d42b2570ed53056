/* linalg_factor.c - factorisations: cholesky, qr, eigh.
 *
 * Where a matrix is taken for symmetric, it is (x + x^T) / 2 that is
 * factorised, so that derivatives with respect to x are symmetric too.
 * Derivatives of eigenvectors exist where the values are distinct; elsewhere
 * they are infinite or NaN. */
#include "ops/linalg.h"

#include "base/lapack.h"
#include "ops/view.h"

#include <string.h>

static nb_tensor *symmetric(nb_tensor *u)
{
    return nb_mul(nb_num(0.5), nb_add(u, nb_turn(u)));
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
    nb_tensor *m = nb_across(nb_matmul(w, symmetric(u)), w);
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

static bool qr_check(nb_call *c)
{
    const char *mode = nb_arg_text(c, 0);
    if (!nb_check_matrix(c)) return false;
    return !strcmp(mode, "reduced") || !strcmp(mode, "complete") ||
           nb_fail(NB_EVALUE,
                   "qr: mode \"%s\" is neither \"reduced\" nor \"complete\"",
                   mode);
}

static bool qr_sign(const nb_call *c, nb_text *t)
{
    int64_t inner_size = is_complete(c) ? SIZE(0, -2) : nb_least(c);
    return nb_text_add(t,
                       "... m n -> ... m k, ... k n; replicate{m n k}, k=%lld",
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

/* The first columns of x, as many as it has rows or all. */
static nb_tensor *square_part(const nb_call *c, nb_tensor *x)
{
    return x ? nb_narrow(x, nb_rank(x) - 1, 0, nb_least(c)) : NULL;
}

/* Of the columns that determine q, where r is square: a = q r gives q^T da r^-1
 * = q^T dq + dr r^-1, the first term antisymmetric, the second upper
 * triangular; what of da r^-1 is orthogonal to q is dq's too.  Of all columns,
 * dr = q^T da - (q^T dq) r. */
static nb_tensor *qr_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    nb_tensor *out[2];
    int64_t m = SIZE(0, -2), n = SIZE(0, -1);
    (void)i;
    if (m > n && is_complete(c))
        return nb_fail(NB_ERUNTIME,
                       "qr: the columns that mode \"complete\" adds for a "
                       "matrix of %lld x %lld have no derivative, mode "
                       "\"reduced\" is needed",
                       (long long)m, (long long)n);
    if (nb_qr(c->in[0], nb_arg_text(c, 0), out) != NB_OK) return NULL;
    nb_tensor *q = out[0], *r = out[1];
    nb_tensor *w = nb_inv_triangle(square_part(c, r), true, false);
    nb_tensor *b = nb_matmul(square_part(c, u), w);
    nb_tensor *a = nb_inner(q, b), *low = nb_tril(a, -1);
    nb_tensor *turn = nb_sub(low, nb_turn(low));
    if (k == 1) return nb_triu(nb_sub(nb_inner(q, u), nb_matmul(turn, r)), 0);
    return nb_add(nb_matmul(q, nb_sub(turn, a)), b);
}

nb_op nb_op_qr = {
    .name = "qr",
    .doc = "q with orthonormal columns and upper triangular r, x = q r; for x "
           "of m x n and mode \"reduced\" they are m x k and k x n with k the "
           "smaller of m and n, for mode \"complete\" m x m and m x n.  The "
           "signs of r's diagonal are any.  The derivative needs x of full "
           "rank, and mode \"reduced\" if m > n.",
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
    return NB_STATUS(nb_apply_parts(&nb_op_qr, x, v, 1, out, NB_CALLER));
}

/* eigh */

static bool eigh_sign(const nb_call *c, nb_text *t)
{
    return nb_text_add(t, "... m n -> ... m, ... m k; replicate{m n k}, k=%lld",
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
    nb_tensor *v = out[1], *m = nb_inner(v, nb_matmul(symmetric(u), v));
    return k == 0 ? nb_diagonal(m, 0, -2, -1)
                  : nb_matmul(v, nb_mul(nb_gaps(out[0]), m));
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
    return NB_STATUS(nb_apply_parts(&nb_op_eigh, x, NULL, 0, out, NB_CALLER));
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
