/* jacobian.c - all partial derivatives at once: one walk mapped over a basis.
 *
 * The basis is one hidden axis, whatever the ranks; where the whole would need
 * more memory than the budget it is taken in pieces, which are joined. */
#include "transform/func.h"

#include "core/lanes.h"
#include "ops/ops.h"

#include <stdatomic.h>
#include <string.h>

static atomic_size_t budget = (size_t)1 << 30;

void nb_jacobian_budget_set(size_t bytes)
{
    budget = bytes ? bytes : 1;
}

size_t nb_jacobian_budget(void)
{
    return budget;
}

/* Rows from .. from + n - 1 of the identity, each of the shape of x. */
static nb_tensor *basis(nb_tensor *x, int64_t from, int64_t n)
{
    int64_t shape[NB_MAX_RANK + 1] = {n};
    nb_tensor *rows = nb_eye(n, nb_elements(x), from, (nb_dtype)nb_dtype_of(x));
    if (nb_rank(x) == NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "jacobian: rank %d is too large",
                       NB_MAX_RANK);
    nb_sizes(x, shape + 1);
    return nb_reshape(rows, nb_rank(x) + 1, shape);
}

/* One piece: the walk with the basis of `of` hidden, as (n, elements of the
 * other side). */
typedef struct sweep {
    nb_tape *tape;
    nb_tensor *x, *y;
    bool back;
} sweep;

static nb_tensor *piece(const sweep *s, int64_t from, int64_t n)
{
    nb_tensor *of = s->back ? s->y : s->x, *to = s->back ? s->x : s->y;
    int id = nb_lane_begin(n, NULL);
    if (!id) return NULL;
    nb_tensor *row = nb_hide(basis(of, from, n), 0, id), *g = NULL;
    bool ok = row && (s->back ? nb_tape_pull(s->tape, &row, &g)
                              : nb_tape_push(s->tape, &row, &g)) == NB_OK;
    nb_lane_end();
    if (!ok) return NULL;
    int64_t flat[] = {n, nb_elements(to)};
    return nb_reshape(nb_lane_show(nb_or_zeros(g, to), 0, id, n), 2, flat);
}

/* How many rows of the basis at a time: a row costs about the other side, and
 * a few times what the function holds in between, which is taken as the larger
 * of the two sides. */
static int64_t rows_at_once(const sweep *s)
{
    int64_t a = nb_elements(s->x), b = nb_elements(s->y);
    double row = 8.0 * (double)(a > b ? a : b) *
                 (double)nb_dtype_size(nb_dtype_of(s->y));
    double rows = row > 0 ? (double)budget / row : 1e18;
    return rows < 1 ? 1 : rows > 1e9 ? (int64_t)1e9 : (int64_t)rows;
}

static nb_tensor *all_rows(const sweep *s)
{
    int64_t total = nb_elements(s->back ? s->y : s->x);
    int64_t at_once = rows_at_once(s);
    int n = (int)((total + at_once - 1) / at_once);
    if (n <= 1) return piece(s, 0, total);
    nb_tensor **part = nb_array(n), *all = NULL;
    bool ok = part;
    for (int k = 0; ok && k < n; k++) {
        int64_t from = k * at_once;
        int64_t rows = total - from < at_once ? total - from : at_once;
        /* computed now, so that one piece's workings go before the next's */
        ok = nb_scope_open() == NB_OK;
        if (!ok) break;
        part[k] = piece(s, from, rows);
        ok = part[k] && nb_realize(part[k]) == NB_OK;
        nb_scope_close(ok, &part[k]);
        ok = ok && part[k];
    }
    if (ok) all = nb_concatenate(n, part, 0);
    nb_free(part);
    return all;
}

static nb_tensor *shaped(const sweep *s, nb_tensor *rows)
{
    int64_t shape[2 * NB_MAX_RANK];
    int r = nb_rank(s->y);
    if (!s->back) rows = nb_permute(rows, 2, (int64_t[]){1, 0});
    if (r + nb_rank(s->x) > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "jacobian: rank %d is above %d",
                       r + nb_rank(s->x), NB_MAX_RANK);
    nb_sizes(s->y, shape);
    nb_sizes(s->x, shape + r);
    return nb_reshape(rows, r + nb_rank(s->x), shape);
}

static bool jacobian(const nb_made *m, int nx, nb_tensor *const *x,
                     nb_tensor **out, bool back)
{
    int arg = m->argument[0], ny = NB_MAX_RESULTS;
    nb_tensor **in = nb_array(nx), **y = nb_array(ny), *fresh;
    sweep s = {.back = back};
    bool ok = in && y;
    if (ok && (arg < 0 || arg >= nx))
        ok = nb_fail(NB_EVALUE, "jacobian: no argument %d: the function has %d",
                     arg, nx);
    for (int i = 0; ok && i < nx; i++)
        in[i] = x[i];
    ok = ok && (s.tape = nb_tape_open(1, &x[arg], &fresh));
    if (ok) in[arg] = fresh;
    ok = ok && nb_run(m->of, nx, in, &ny, y);
    if (ok && ny == 0) ok = nb_fail(NB_ETYPE, "jacobian: no result");
    ok = ok && nb_tape_close(s.tape, 1, y) == NB_OK;
    if (ok) {
        s.x = x[arg];
        s.y = y[0];
        nb_tensor *rows = all_rows(&s);
        *out = rows ? shaped(&s, rows) : NULL;
        ok = *out;
    }
    nb_tape_drop(s.tape);
    nb_free(in);
    nb_free(y);
    return ok;
}

static nb_status jacrev_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    *ny = 1;
    return NB_STATUS(jacobian(ctx, nx, x, y, true));
}

static nb_status jacfwd_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    *ny = 1;
    return NB_STATUS(jacobian(ctx, nx, x, y, false));
}

nb_func *nb_jacrev(nb_func *f, int argument)
{
    return nb_func_made(f, jacrev_body, 1, &argument);
}

nb_func *nb_jacfwd(nb_func *f, int argument)
{
    return nb_func_made(f, jacfwd_body, 1, &argument);
}

nb_func *nb_hessian(nb_func *f, int argument)
{
    return nb_jacfwd(nb_jacrev(f, argument), argument);
}
