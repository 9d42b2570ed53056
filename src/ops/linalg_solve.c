/* linalg_solve.c - linear equations: solve, inv, det and triangles.
 *
 * Values come from an LU factorisation or from substitution.  A solution is
 * linear in the right side, and moves with the matrix by another solution. */
#include "ops/linalg.h"

#include "base/lapack.h"
#include "core/convert.h"

#include <math.h>
#include <string.h>

/* LU factors of one matrix. */
typedef struct factors {
    nb_dtype dtype;
    int64_t n;
    void *lu;
    int32_t *perm;
    int sign;
} factors;

static void factors_close(factors *f)
{
    nb_free(f->lu);
    nb_free(f->perm);
}

static bool factors_open(factors *f, const nb_view *v)
{
    nb_packed a;
    int64_t n = v->size[0];
    *f = (factors){.dtype = v->dtype, .n = n};
    f->lu = nb_alloc((size_t)(n * n) * nb_dtype_size(v->dtype));
    f->perm = nb_alloc((size_t)n * sizeof *f->perm);
    bool ok = f->lu && f->perm && nb_packed_open(&a, v);
    if (ok) {
        ok = nb_lapack_lu(v->dtype, n, n, a.data, f->lu, f->perm, &f->sign);
        nb_packed_close(&a);
    }
    if (!ok) factors_close(f);
    return ok;
}

/* x = a^-1 x, where x holds the rows of b in the order of perm. */
static bool substitute(const factors *f, int64_t columns, void *x)
{
    nb_triangle lower = {.unit = true}, upper = {.upper = true};
    return nb_lapack_solve(f->dtype, lower, f->n, columns, f->lu, x, x) &&
           nb_lapack_solve(f->dtype, upper, f->n, columns, f->lu, x, x);
}

/* Equations need one right side a row, and say so before a kernel runs. */
static bool solve_check(nb_call *c)
{
    if (!nb_check_square(c)) return false;
    nb_shape a = nb_tensor_shape(c->in[0]), b = nb_tensor_shape(c->in[1]);
    if (RANK(1) >= 1 && SIZE(1, RANK(1) == 1 ? 0 : -2) == SIZE(0, -1))
        return true;
    return nb_fail(NB_EVALUE,
                   "%s: shapes %s and %s do not fit: b needs a row for every "
                   "equation (... i j, ... j k -> ... i k)",
                   c->op->name, nb_shape_text(&a), nb_shape_text(&b));
}

static bool solve_sign(const nb_call *c, nb_text *t)
{
    return nb_text_add(t, RANK(1) == 1
                              ? "... i j, j -> ... i; replicate{i j}"
                              : "... i j, ... j k -> ... i k; replicate{i j}");
}

static bool solve_kernel(const nb_kernel *k)
{
    const nb_view *b = &k->view[1], *x = &k->view[2];
    int64_t columns = b->rank > 1 ? b->size[1] : 1;
    int64_t step = b->rank > 1 ? b->stride[1] : 1;
    int64_t item = (int64_t)nb_dtype_size(b->dtype);
    factors f;
    if (!factors_open(&f, &k->view[0])) return false;
    for (int64_t i = 0; i < f.n; i++)
        nb_convert(x->data + i * columns * item, b->dtype, 1,
                   b->data + f.perm[i] * b->stride[0] * item, b->dtype, step,
                   columns);
    bool ok = substitute(&f, columns, x->data);
    factors_close(&f);
    return ok;
}

/* w y, where y is a vector if b is one. */
static nb_tensor *times(const nb_call *c, nb_tensor *w, nb_tensor *y)
{
    return RANK(1) == 1 ? nb_contract(w, y, "... i j, ... j -> ... i")
                        : nb_matmul(w, y);
}

/* Right sides that are vectors, but batched, as matrices of one column. */
static bool as_columns(const nb_call *c, nb_tensor **b)
{
    bool vectors = RANK(1) == 1 && nb_rank(*b) > 1;
    if (vectors) *b = nb_unsqueeze(*b, -1);
    return vectors;
}

static nb_tensor *solved(const nb_call *c, nb_tensor *a, nb_tensor *b)
{
    bool vectors = as_columns(c, &b);
    nb_tensor *x = nb_solve(a, b);
    return vectors ? nb_squeeze(x, 1, (int64_t[]){-1}) : x;
}

/* a x = b gives a dx = -da x when a moves; and b* = a^-T x*. */
JVP(solve, solved(c, c->in[0], nb_neg(times(c, u, c->out))))
TRANSPOSE(solve, solved(c, nb_turn(c->in[0]), ct))

nb_op nb_op_solve = {
    .name = "solve",
    .doc = "The x of a x = b, for square a and b a vector or a matrix of right "
           "sides; leading axes broadcast.  A singular a gives infinities and "
           "NaNs.",
    .example = "solve([[2.0, 0.0], [1.0, 4.0]], [[2.0, 4.0, 0.0], "
               "[9.0, 6.0, 4.0]]) = [[1.0, 2.0, 0.0], [2.0, 1.0, 1.0]]",
    .params = "a, b",
    .check = solve_check,
    .sign = solve_sign,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .kernel = solve_kernel,
    .linear = 2,
    .jvp = solve_jvp,
    .transpose = solve_transpose,
    .shapes = "i.",
};

/* inv */

static void put_unit(nb_dtype d, int64_t n, const int32_t *perm, void *to)
{
    size_t item = nb_dtype_size(d);
    memset(to, 0, (size_t)(n * n) * item);
    for (int64_t i = 0; i < n; i++)
        nb_write_f64((char *)to + (size_t)(i * n + (perm ? perm[i] : i)) * item,
                     d, 1);
}

static bool inv_kernel(const nb_kernel *k)
{
    factors f;
    if (!factors_open(&f, &k->view[0])) return false;
    put_unit(f.dtype, f.n, f.perm, k->view[1].data);
    bool ok = substitute(&f, f.n, k->view[1].data);
    factors_close(&f);
    return ok;
}

/* w = a^-1: w a = 1 gives dw a + w da = 0. */
JVP(inv, nb_neg(nb_matmul(nb_matmul(c->out, u), c->out)))

nb_op nb_op_inv = {
    .name = "inv",
    .doc = "Inverse of a square matrix, the last two axes; a singular one "
           "gives infinities and NaNs.",
    .example = "inv([[2.0, 0.0], [1.0, 4.0]]) = [[0.5, 0.0], [-0.125, 0.25]]",
    .sig = "... m n -> ... n m; replicate{m n}",
    .check = nb_check_square,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .kernel = inv_kernel,
    .jvp = inv_jvp,
    .shapes = "i",
};

/* det and slogdet */

static double diagonal_at(const factors *f, int64_t i)
{
    size_t item = nb_dtype_size(f->dtype);
    return nb_read_f64((char *)f->lu + (size_t)(i * f->n + i) * item, f->dtype);
}

static bool det_kernel(const nb_kernel *k)
{
    factors f;
    if (!factors_open(&f, &k->view[0])) return false;
    double det = f.sign;
    for (int64_t i = 0; i < f.n; i++)
        det *= diagonal_at(&f, i);
    nb_write_f64(k->view[1].data, f.dtype, det);
    factors_close(&f);
    return true;
}

/* tr(a^-1 u): how log |det a| moves. */
static nb_tensor *log_det_moves(const nb_call *c, nb_tensor *u)
{
    return nb_contract(nb_inv(c->in[0]), u, "... i j, ... j i -> ...");
}

/* d det a = sum of cof a times da, also where a has no inverse. */
JVP(det, nb_contract(nb_cofactor(c->in[0]), u, "... i j, ... i j -> ..."))

nb_op nb_op_det = {
    .name = "det",
    .doc = "Determinant of a square matrix, the last two axes.",
    .example = "det([[2.0, 1.0, 0.0], [1.0, 4.0, 0.0], [0.0, 0.0, 3.0]]) = "
               "21.0",
    .sig = "... m n -> ...; replicate{m n}",
    .check = nb_check_square,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .kernel = det_kernel,
    .jvp = det_jvp,
    .shapes = "i",
};

static bool slogdet_kernel(const nb_kernel *k)
{
    factors f;
    if (!factors_open(&f, &k->view[0])) return false;
    double sign = f.sign, log_abs = 0;
    for (int64_t i = 0; i < f.n; i++) {
        double x = diagonal_at(&f, i);
        sign *= x > 0 ? 1 : x < 0 ? -1 : x;
        log_abs += log(fabs(x));
    }
    nb_write_f64(k->view[1].data, f.dtype, sign);
    nb_write_f64(k->view[2].data, f.dtype, log_abs);
    factors_close(&f);
    return true;
}

static nb_tensor *slogdet_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    nb_tensor *moves = log_det_moves(c, u);
    (void)i;
    return k == 1 ? moves : nb_fill_like(moves, 0);
}

nb_op nb_op_slogdet = {
    .name = "slogdet",
    .doc = "Sign of the determinant and logarithm of its absolute value; 0 and "
           "-inf for a singular matrix.",
    .example = "slogdet([[2.0, 1.0], [1.0, 4.0]]) = 1.0, 1.9459101490553132",
    .sig = "... m n -> ..., ...; replicate{m n}",
    .check = nb_check_square,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .nout = 2,
    .kernel = slogdet_kernel,
    .jvp = slogdet_jvp,
    .shapes = "i",
};

nb_status nb_slogdet(nb_tensor *x, nb_tensor **out)
{
    nb_results r = {.room = 2, .out = out};
    return NB_STATUS(
        nb_apply_many(&nb_op_slogdet, 1, &x, 0, NULL, &r, NB_CALLER));
}

/* Triangles */

nb_tensor *nb_triangle_of(nb_tensor *x, bool upper, bool unit)
{
    return upper ? nb_triu(x, unit) : nb_tril(x, -(int64_t)unit);
}

static bool inv_triangle_kernel(const nb_kernel *k)
{
    const nb_view *v = &k->view[0];
    nb_packed a;
    nb_triangle t = {.upper = nb_arg_int(k->call, 0),
                     .unit = nb_arg_int(k->call, 1)};
    char *to = k->view[1].data;
    if (!nb_packed_open(&a, v)) return false;
    put_unit(v->dtype, v->size[0], NULL, to);
    bool ok =
        nb_lapack_solve(v->dtype, t, v->size[0], v->size[0], a.data, to, to);
    nb_packed_close(&a);
    return ok;
}

/* As for inv, of the triangle that is read. */
static nb_tensor *inv_triangle_jvp(const nb_call *c, int k, int i, nb_tensor *u)
{
    (void)k, (void)i;
    u = nb_triangle_of(u, nb_arg_int(c, 0), nb_arg_int(c, 1));
    return nb_neg(nb_matmul(nb_matmul(c->out, u), c->out));
}

nb_op nb_op_inv_triangle = {
    .name = "inv_triangle",
    .doc = "Inverse of the triangular matrix that is the lower triangle of x, "
           "or the upper one, with ones on the diagonal if unit.",
    .example = "inv_triangle([[2.0, 7.0], [1.0, 4.0]]) = [[0.5, 0.0], "
               "[-0.125, 0.25]]",
    .params = "x, upper:bool=False, unit:bool=False",
    .sig = "... m n -> ... n m; replicate{m n}",
    .check = nb_check_square,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .kernel = inv_triangle_kernel,
    .jvp = inv_triangle_jvp,
    .shapes = "i",
};

nb_tensor *nb_inv_triangle(nb_tensor *x, bool upper, bool unit)
{
    return CALL1(inv_triangle, x, NB_V_INT(upper), NB_V_INT(unit));
}

static bool triangular_solve_kernel(const nb_kernel *k)
{
    const nb_view *v = &k->view[0], *b = &k->view[1];
    nb_packed a, rhs;
    nb_triangle t = {.upper = nb_arg_int(k->call, 0),
                     .transposed = nb_arg_int(k->call, 1),
                     .unit = nb_arg_int(k->call, 2)};
    if (!nb_packed_open(&a, v)) return false;
    bool ok = nb_packed_open(&rhs, b);
    if (ok) {
        ok = nb_lapack_solve(v->dtype, t, v->size[0],
                             b->rank > 1 ? b->size[1] : 1, a.data, rhs.data,
                             k->view[2].data);
        nb_packed_close(&rhs);
    }
    nb_packed_close(&a);
    return ok;
}

static nb_tensor *triangle_solved(const nb_call *c, bool transpose,
                                  nb_tensor *b)
{
    bool vectors = as_columns(c, &b);
    nb_tensor *x = nb_triangular_solve(c->in[0], b, nb_arg_int(c, 0), transpose,
                                       nb_arg_int(c, 2));
    return vectors ? nb_squeeze(x, 1, (int64_t[]){-1}) : x;
}

/* As for solve, of the triangle that is read. */
static nb_tensor *triangular_solve_jvp(const nb_call *c, int k, int i,
                                       nb_tensor *u)
{
    bool turned = nb_arg_int(c, 1);
    (void)k, (void)i;
    u = nb_triangle_of(u, nb_arg_int(c, 0), nb_arg_int(c, 2));
    u = times(c, turned ? nb_turn(u) : u, c->out);
    return triangle_solved(c, turned, nb_neg(u));
}

TRANSPOSE(triangular_solve, triangle_solved(c, !nb_arg_int(c, 1), ct))

nb_op nb_op_triangular_solve = {
    .name = "triangular_solve",
    .doc = "The x of a x = b, or of a^T x = b if transpose, where a is lower "
           "triangular, or upper; the other triangle is not read, nor the "
           "diagonal if unit, which is then ones.",
    .example = "triangular_solve([[2.0, 3.0], [1.0, 4.0]], [[2.0, 4.0, 0.0], "
               "[4.0, 8.0, 4.0]], upper=True, transpose=True) = "
               "[[1.0, 2.0, 0.0], [0.25, 0.5, 1.0]]",
    .params = "a, b, *, upper:bool=False, transpose:bool=False, "
              "unit:bool=False",
    .check = solve_check,
    .sign = solve_sign,
    .kind = NB_RULE,
    .in = NB_IN_FLOAT,
    .kernel = triangular_solve_kernel,
    .linear = 2,
    .jvp = triangular_solve_jvp,
    .transpose = triangular_solve_transpose,
    .shapes = "i.",
};

nb_tensor *nb_triangular_solve(nb_tensor *a, nb_tensor *b, bool upper,
                               bool transpose, bool unit)
{
    nb_tensor *in[] = {a, b};
    nb_value v[] = {NB_V_INT(upper), NB_V_INT(transpose), NB_V_INT(unit)};
    return nb_apply(&nb_op_triangular_solve, 2, in, 3, v, NB_CALLER);
}
