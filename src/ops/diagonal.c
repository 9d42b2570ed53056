/* diagonal.c - diagonals of matrices.
 *
 * Diagonal number k of a matrix is where column - row = k. */
#include "ops/view.h"

/* diagonal */

static bool diagonal_check(nb_call *c)
{
    return nb_arg_int(c, 1) != nb_arg_int(c, 2) ||
           nb_fail(NB_EVALUE, "diagonal: axis1 and axis2 are both %lld",
                   (long long)nb_arg_int(c, 1));
}

static bool diagonal_sign(const nb_call *c, nb_text *t)
{
    int64_t rows = nb_arg_int(c, 1), columns = nb_arg_int(c, 2);
    for (int d = 0; d < RANK(0); d++)
        nb_text_add(t, d == rows || d == columns ? " 1" : " %c", 'a' + d);
    nb_text_add(t, " ->");
    for (int d = 0; d < RANK(0); d++)
        if (d != rows && d != columns) nb_text_add(t, " %c", 'a' + d);
    return nb_text_add(t, " 1");
}

/* Beyond the corners all diagonals are alike: empty. */
static int64_t within(int64_t k, int64_t rows, int64_t columns)
{
    return k < -rows ? -rows : k > columns ? columns : k;
}

/* Row and column of its first element. */
static void corner(const nb_call *c, int64_t *row, int64_t *column)
{
    int64_t k = within(nb_arg_int(c, 0), SIZE(0, nb_arg_int(c, 1)),
                       SIZE(0, nb_arg_int(c, 2)));
    *row = k < 0 ? -k : 0;
    *column = k < 0 ? 0 : k;
}

static bool diagonal_infer(const nb_call *c, int k, nb_shape *out,
                           nb_dtype *dtype)
{
    int64_t row, column;
    (void)k, (void)dtype;
    corner(c, &row, &column);
    int64_t rows = SIZE(0, nb_arg_int(c, 1)) - row;
    int64_t columns = SIZE(0, nb_arg_int(c, 2)) - column;
    int64_t n = rows < columns ? rows : columns;
    out->size[out->rank - 1] = nb_extent_of(n > 0 ? n : 0);
    return true;
}

static bool diagonal_view(const nb_call *c, const nb_layout *in, nb_layout *out)
{
    int64_t rows = nb_arg_int(c, 1), columns = nb_arg_int(c, 2), row, column;
    int n = 0;
    for (int d = 0; d < in->rank; d++)
        if (d != rows && d != columns) out->stride[n++] = in->stride[d];
    out->stride[n] = in->stride[rows] + in->stride[columns];
    corner(c, &row, &column);
    if (out->size[n])
        out->offset = row * in->stride[rows] + column * in->stride[columns];
    return true;
}

static nb_tensor *on_diagonal(int64_t rows, int64_t columns, int64_t k);

/* Element (i, i + k) of the matrix is number i + k of a row vector that holds
 * the diagonal from column max(k, 0) on; all others are zero. */
static nb_tensor *diagonal_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    int rank = nb_rank(ct) + 1;
    int64_t rows = nb_arg_int(c, 1), columns = nb_arg_int(c, 2), row, column;
    int64_t size[NB_MAX_RANK];
    (void)i;
    corner(c, &row, &column);
    if (!ct || nb_size(ct, -1) == 0) return nb_fill_like(c->in[0], 0);
    nb_window w = nb_window_of(ct);
    w.start[rank - 2] = column;
    w.size[rank - 2] = SIZE(0, columns);
    nb_tensor *line = nb_embed(ct, w.start, w.size, w.step);
    nb_sizes(line, size);
    size[rank - 1] = size[rank - 2];
    size[rank - 2] = SIZE(0, rows);
    nb_tensor *all = nb_broadcast_to(nb_unsqueeze(line, -2), rank, size);
    nb_tensor *mask =
        on_diagonal(SIZE(0, rows), SIZE(0, columns), nb_arg_int(c, 0));
    return nb_moveaxis(nb_where(mask, all, nb_num(0)), 2, (int64_t[]){-2, -1},
                       (int64_t[]){rows, columns});
}

nb_op nb_op_diagonal = {
    .name = "diagonal",
    .doc = "The elements of x on a diagonal of the matrices that axis1 (rows) "
           "and axis2 (columns) make, along a new last axis: where column - "
           "row = offset.",
    .example = "diagonal([[1, 2, 3], [4, 5, 6]], offset=1) = [2, 6]",
    .params = "x, offset:int=0, axis1:axis=-2, axis2:axis=-1",
    .check = diagonal_check,
    .sign = diagonal_sign,
    .infer = diagonal_infer,
    .kind = NB_LINEAR,
    .view = diagonal_view,
    .transpose = diagonal_transpose,
};

nb_tensor *nb_diagonal(nb_tensor *x, int64_t offset, int64_t axis1,
                       int64_t axis2)
{
    nb_value v[] = {NB_V_INT(offset), NB_V_INT(axis1), NB_V_INT(axis2)};
    return nb_apply(&nb_op_diagonal, 1, &x, 3, v, NB_CALLER);
}

/* Masks over a matrix: the number of the diagonal that begins each row, as a
 * column, against the number of each column. */

static nb_tensor *row_starts(int64_t rows, int64_t columns, int64_t k)
{
    nb_tensor *i = nb_iota(rows, NB_I64);
    return nb_unsqueeze(nb_add(i, nb_count(within(k, rows, columns))), 1);
}

static nb_tensor *on_diagonal(int64_t rows, int64_t columns, int64_t k)
{
    return nb_equal(row_starts(rows, columns, k), nb_iota(columns, NB_I64));
}

static bool matrix_check(nb_call *c)
{
    return RANK(0) >= 2 ||
           nb_fail(NB_EVALUE, "%s: rank %d: matrices have at least 2",
                   c->op->name, RANK(0));
}

static bool triangle_compose(const nb_call *c, nb_results *r)
{
    int64_t rows = SIZE(0, -2), columns = SIZE(0, -1), k = nb_arg_int(c, 0);
    nb_tensor *start = row_starts(rows, columns, k);
    nb_tensor *column = nb_iota(columns, NB_I64);
    nb_tensor *mask = c->op == &nb_op_triu ? nb_greater_equal(column, start)
                                           : nb_less_equal(column, start);
    nb_tensor *zero = nb_scalar_int(0, nb_dtype_of(c->in[0]));
    return nb_results_add(r, nb_where(mask, c->in[0], zero));
}

nb_op nb_op_triu = {
    .name = "triu",
    .doc = "The matrices of the last two axes with zeros below diagonal k.",
    .example = "triu([[1, 2, 3], [4, 5, 6]], k=1) = [[0, 2, 3], [0, 0, 6]]",
    .params = P_DIAG,
    .check = matrix_check,
    .kind = NB_COMPOSITE,
    .compose = triangle_compose,
};

nb_op nb_op_tril = {
    .name = "tril",
    .doc = "The matrices of the last two axes with zeros above diagonal k.",
    .example = "tril([[1, 2, 3], [4, 5, 6]], k=-1) = [[0, 0, 0], [4, 0, 0]]",
    .params = P_DIAG,
    .check = matrix_check,
    .kind = NB_COMPOSITE,
    .compose = triangle_compose,
};

/* eye */

static bool eye_compose(const nb_call *c, nb_results *r)
{
    int64_t rows = nb_arg_int(c, 0), columns = nb_arg_int(c, 1);
    nb_dtype d;
    if (!nb_arg_dtype(c, 3, nb_default_float(), &d)) return false;
    if (columns == NB_NONE) columns = rows;
    if (rows < 0 || columns < 0)
        return nb_fail(NB_EVALUE, "eye: %lld rows and %lld columns",
                       (long long)rows, (long long)columns);
    return nb_results_add(
        r, nb_cast(on_diagonal(rows, columns, nb_arg_int(c, 2)), d));
}

nb_op nb_op_eye = {
    .name = "eye",
    .doc = "A matrix of zeros with ones on diagonal k; square if n_cols is "
           "not given.",
    .example = "eye(n_rows=2, n_cols=3, k=1) = [[0, 1, 0], [0, 0, 1]]",
    .params = "n_rows:int, n_cols:int=None, *, k:int=0, dtype:dtype=None",
    .kind = NB_COMPOSITE,
    .compose = eye_compose,
};

nb_tensor *nb_eye(int64_t rows, int64_t columns, int64_t k, nb_dtype dtype)
{
    nb_value none = NB_V_NONE, given = NB_V_INT(dtype);
    nb_value v[] = {NB_V_INT(rows), NB_V_INT(columns), NB_V_INT(k),
                    dtype ? given : none};
    return nb_apply(&nb_op_eye, 0, NULL, 4, v, NB_CALLER);
}
