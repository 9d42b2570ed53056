/* jacobian.c - all partial derivatives at once: one walk mapped over a basis.
 *
 * The basis is one hidden axis, whatever the ranks.  Where the whole would need
 * more memory than the budget it is taken in pieces, each computed before the
 * next is recorded. */
#include "transform/derive.h"
#include "transform/func.h"
#include "transform/need.h"
#include "transform/region.h"

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

/* The basis is of one tensor of a side; for each of the other side there is a
 * block. */
typedef struct sweep {
    nb_tape *tape;
    bool back;
    int k, nfrom, nto;
    nb_tensor *const *from, *const *to;
    int lane; /* of the last piece */
} sweep;

/* Rows from .. from + n - 1 of the identity, each of the shape of x. */
static nb_tensor *basis(nb_tensor *x, int64_t from, int64_t n)
{
    int64_t shape[NB_MAX_RANK + 1] = {n};
    int was = nb_device_enter(x->device);
    nb_tensor *rows = nb_eye(n, nb_elements(x), from, (nb_dtype)nb_dtype_of(x));
    nb_device_enter(was);
    if (nb_rank(x) == NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "jacobian: rank %d is too large",
                       NB_MAX_RANK);
    nb_sizes(x, shape + 1);
    return nb_reshape(rows, nb_rank(x) + 1, shape);
}

/* Some rows of every block, as (n, elements of the other side). */
static bool piece(sweep *s, int64_t from, int64_t n, nb_tensor **rows)
{
    nb_tensor **in = nb_array(s->nfrom), **out = nb_array(s->nto);
    int id = in &&out ? s->lane = nb_lane_begin(n, NULL) : 0;
    bool ok = id && (in[s->k] = nb_hide(basis(s->from[s->k], from, n), 0, id));
    ok = ok && (s->back ? nb_tape_pull(s->tape, in, out)
                        : nb_tape_push(s->tape, in, out)) == NB_OK;
    if (id) nb_lane_end();
    for (int j = 0; ok && j < s->nto; j++) {
        int64_t flat[] = {n, nb_elements(s->to[j])};
        nb_tensor *g = nb_or_zeros(out[j], s->to[j]);
        ok = (rows[j] = nb_reshape(nb_lane_show(g, 0, id, n), 2, flat));
    }
    nb_free(in), nb_free(out);
    return ok;
}

/* A piece that outlives what is recorded on the way to it: as it is computed,
 * all that goes. */
static bool piece_alone(sweep *s, int64_t from, int64_t n, nb_tensor **rows)
{
    if (nb_scope_open() != NB_OK) return false;
    bool ok = piece(s, from, n, rows);
    nb_scope_close(ok ? s->nto : 0, rows);
    for (int j = 0; ok && j < s->nto; j++)
        ok = rows[j];
    return ok;
}

/* Bytes of all blocks. */
static double result_bytes(const sweep *s)
{
    double n = 0;
    for (int j = 0; j < s->nto; j++)
        n += (double)nb_elements(s->to[j]) *
             (double)nb_dtype_size(nb_dtype_of(s->to[j]));
    return n * (double)nb_elements(s->from[s->k]);
}

/* How many rows at a time, given what m of them need: a quarter more, because
 * that much of a block may be unused.  Where the result alone fills the budget
 * a quarter of that is for the workings, or it would take for ever. */
static int64_t rows_that_fit(const sweep *s, const nb_need *need, int64_t m)
{
    double most = (double)budget, row = 1.25 * need->lane / (double)m;
    double room = most - 1.25 * (need->other + result_bytes(s));
    if (room < most / 4) room = most / 4;
    double rows = row > 0 ? room / row : 1e9;
    return rows < 1 ? 1 : rows > 1e9 ? (int64_t)1e9 : (int64_t)rows;
}

/* The whole is recorded for what it says, or one row if the sizes of the whole
 * are beyond counting.  What cannot be computed yet is not cut. */
static bool try_whole(sweep *s, int64_t total, int64_t *at_once,
                      nb_tensor **rows)
{
    nb_need need;
    int64_t m = total;
    bool ok = piece_alone(s, 0, m, rows);
    if (!ok && nb_error_code() == NB_EOVERFLOW) {
        nb_error_clear();
        ok = piece_alone(s, 0, m = 1, rows);
    }
    ok = ok && nb_need_find(&need, s->lane, s->nto, rows);
    if (ok) *at_once = need.known && m ? rows_that_fit(s, &need, m) : m;
    return ok;
}

static bool all_there(int n, nb_tensor *const *x)
{
    for (int i = 0; i < n; i++)
        if (!x[i]) return false;
    return true;
}

/* All rows, if they fit; else nothing of them is left but their number. */
static bool rows_at_once(sweep *s, int64_t total, int64_t *at_once,
                         nb_tensor **rows)
{
    if (nb_scope_open() != NB_OK) return false;
    bool ok = try_whole(s, total, at_once, rows);
    int n = ok && *at_once >= total ? s->nto : 0;
    nb_scope_close(n, rows);
    return ok && all_there(n, rows);
}

/* Blocks */

static bool is_traced(const nb_tensor *x)
{
    return x->trace & (nb_traces_open() | NB_TRACE_KEPT);
}

static bool block_shape(const sweep *s, int j, nb_shape *shape)
{
    const nb_tensor *y = s->back ? s->from[s->k] : s->to[j];
    const nb_tensor *x = s->back ? s->to[j] : s->from[s->k];
    int r = y->rank;
    if (r + x->rank > NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "jacobian: rank %d is above %d", r + x->rank,
                       NB_MAX_RANK);
    shape->rank = r + x->rank;
    memcpy(shape->size, nb_tensor_size(y), (size_t)r * sizeof *shape->size);
    memcpy(shape->size + r, nb_tensor_size(x),
           (size_t)x->rank * sizeof *shape->size);
    return true;
}

static nb_tensor *shaped(const sweep *s, int j, nb_tensor *rows)
{
    nb_shape shape;
    int64_t size[NB_MAX_RANK];
    if (!rows || !block_shape(s, j, &shape)) return NULL;
    if (!s->back) rows = nb_permute(rows, 2, (int64_t[]){1, 0});
    for (int d = 0; d < shape.rank; d++)
        size[d] = nb_extent_get(shape.size[d]);
    return nb_reshape(rows, shape.rank, size);
}

/* A block of its own, in the lanes of some rows of it. */
static nb_tensor *room_for(const sweep *s, int j, const nb_tensor *rows)
{
    nb_shape shape = nb_tensor_shape(rows);
    nb_dtype d = (nb_dtype)rows->dtype;
    int64_t n;
    if (!block_shape(s, j, &shape) || !nb_shape_check(&shape, d, "jacobian"))
        return NULL;
    nb_shape_count(&shape, &n);
    nb_buffer *b = nb_buffer_on(rows->device, (size_t)n * nb_dtype_size(d));
    nb_tensor *y =
        b ? nb_leaf_on(rows->device, nb_leaf_new(d, &shape, b, b->data, NULL))
          : NULL;
    nb_buffer_drop(b);
    return y;
}

/* Puts rows where they belong: they are (lanes, n, m), the block (lanes, total,
 * m) or (lanes, m, total). */
static bool put(const sweep *s, nb_tensor *block, int64_t from, nb_tensor *rows)
{
    nb_shape shape = nb_tensor_shape(rows);
    int64_t total = nb_elements(s->from[s->k]), m = nb_size(rows, 1);
    int64_t step[NB_MAX_DIMS], next = total * m;
    for (int l = shape.nlanes - 1; l >= 0; l--) {
        step[l] = next;
        next *= nb_extent_get(nb_lane_stored(shape.lane[l]));
    }
    step[shape.nlanes] = s->back ? m : 1;
    step[shape.nlanes + 1] = s->back ? 1 : total;
    int64_t at = from * step[shape.nlanes];
    int64_t item = (int64_t)nb_dtype_size(nb_dtype_of(rows));
    return nb_copy_steps(block->data + at * item, step, &shape, rows);
}

/* One piece, computed unless values are missing.  Where nobody differentiates it
 * further it goes to where it belongs, and the first makes room for all. */
static bool take(sweep *s, int64_t from, int64_t n, nb_tensor **rows,
                 bool *copies, nb_tensor **block)
{
    nb_need need;
    bool ok = piece_alone(s, from, n, rows) &&
              nb_need_find(&need, s->lane, s->nto, rows);
    if (ok && need.known) ok = nb_realize_now(s->nto, rows);
    for (int j = 0; ok && from == 0 && j < s->nto; j++)
        *copies = *copies && need.known && !is_traced(rows[j]);
    for (int j = 0; ok && *copies && j < s->nto; j++) {
        if (from == 0) ok = (block[j] = room_for(s, j, rows[j]));
        ok = ok && put(s, block[j], from, rows[j]);
    }
    return ok;
}

static bool join(const sweep *s, int n, nb_tensor *const *part,
                 nb_tensor **block)
{
    nb_tensor **column = nb_array(n);
    bool ok = column;
    for (int j = 0; ok && j < s->nto; j++) {
        for (int p = 0; p < n; p++)
            column[p] = part[p * s->nto + j];
        ok = (block[j] = shaped(s, j, nb_concatenate(n, column, 0)));
    }
    nb_free(column);
    return ok;
}

static bool in_pieces(sweep *s, int64_t total, int64_t at_once,
                      nb_tensor **block)
{
    int n = (int)((total + at_once - 1) / at_once);
    nb_tensor **part = nb_array(n * s->nto);
    bool ok = part, copies = true;
    for (int p = 0; ok && p < n && (ok = nb_scope_open() == NB_OK); p++) {
        int64_t from = p * at_once, left = total - from;
        nb_tensor **rows = part + p * s->nto;
        ok = take(s, from, left < at_once ? left : at_once, rows, &copies,
                  block);
        nb_tensor **kept = copies ? block : rows;
        int nkept = ok && (p == 0 || !copies) ? s->nto : 0;
        nb_scope_close(nkept, kept);
        ok = ok && all_there(nkept, kept);
    }
    ok = ok && (copies || join(s, n, part, block));
    nb_free(part);
    return ok;
}

static bool all_blocks(sweep *s, int64_t at_once, nb_tensor **block)
{
    int64_t total = nb_elements(s->from[s->k]);
    nb_tensor **rows = nb_array(s->nto);
    bool ok = rows;
    if (ok && at_once <= 0)
        ok = rows_at_once(s, total, &at_once, rows);
    else if (ok && at_once >= total)
        ok = piece_alone(s, 0, total, rows);
    if (ok && at_once < total)
        ok = in_pieces(s, total, at_once, block);
    else
        for (int j = 0; ok && j < s->nto; j++)
            ok = (block[j] = shaped(s, j, rows[j]));
    nb_free(rows);
    return ok;
}

nb_status nb_tape_jacobian(nb_tape *t, bool back, int k, int64_t rows,
                           nb_tensor **blocks)
{
    sweep s = {.tape = t, .back = back, .k = k};
    nb_tensor *const *x, *const *y;
    if (!nb_tape_is_closed(t)) return NB_STATUS(false);
    int nx = nb_tape_inputs(t, &x), ny = nb_tape_results(t, &y);
    s.from = back ? y : x;
    s.to = back ? x : y;
    s.nfrom = back ? ny : nx;
    s.nto = back ? nx : ny;
    if (k < 0 || k >= s.nfrom)
        return NB_STATUS(nb_fail(NB_EVALUE,
                                 "jacobian: the tape has %d %s, none "
                                 "is %d",
                                 s.nfrom, back ? "results" : "arguments", k));
    return NB_STATUS(all_blocks(&s, rows, blocks));
}

static bool jacobian(const nb_made *m, int nx, nb_tensor *const *x,
                     nb_tensor **out, bool back)
{
    int arg = m->argument[0], ny = NB_MAX_RESULTS;
    nb_tensor **in = nb_array(nx), **y = nb_array(ny), *fresh;
    nb_tape *tape = NULL;
    bool ok = in && y;
    if (ok && (arg < 0 || arg >= nx))
        ok = nb_fail(NB_EVALUE, "jacobian: no argument %d: the function has %d",
                     arg, nx);
    for (int i = 0; ok && i < nx; i++)
        in[i] = x[i];
    ok = ok && (tape = nb_tape_open(1, &x[arg], &fresh));
    if (ok) in[arg] = fresh;
    ok = ok && nb_run(m->of, nx, in, &ny, y);
    if (ok && ny == 0) ok = nb_fail(NB_ETYPE, "jacobian: no result");
    ok = ok && nb_tape_close(tape, 1, y) == NB_OK &&
         nb_tape_jacobian(tape, back, 0, 0, out) == NB_OK;
    nb_tape_drop(tape);
    nb_free(in), nb_free(y);
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
    return nb_func_named(nb_func_made(f, jacrev_body, 1, &argument), "jacrev");
}

nb_func *nb_jacfwd(nb_func *f, int argument)
{
    return nb_func_named(nb_func_made(f, jacfwd_body, 1, &argument), "jacfwd");
}

nb_func *nb_hessian(nb_func *f, int argument)
{
    return nb_jacfwd(nb_jacrev(f, argument), argument);
}
