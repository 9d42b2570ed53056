/* triangle.c - triangular equations on a card, and the inverse of a triangle. */
#include "backend/cuda_ops/mats.h"

enum { PANEL = 64, COLUMNS = 32 };

/* From the last row back to the first. */
static nb_mats backwards(const nb_mats_run *r, nb_mats m, int64_t rows,
                         bool both)
{
    m = nb_mats_from(r, m, rows - 1, both ? rows - 1 : 0);
    m.row = -m.row;
    if (both) m.col = -m.col;
    return m;
}

bool nb_mats_solve(const nb_mats_run *r, nb_mats t, bool upper, bool unit,
                   nb_mats x, int64_t n, int64_t cols)
{
    int64_t tiles = (cols + COLUMNS - 1) / COLUMNS;
    size_t shared = (PANEL * (PANEL + 1) + PANEL * (COLUMNS + 1)) * r->j->item;
    bool ok = true;
    int one = unit;
    if (n == 0 || cols == 0) return true;
    if (upper) {
        t = backwards(r, t, n, true);
        x = backwards(r, x, n, false);
    }
    for (int64_t k = 0; ok && k < n; k += PANEL) {
        int64_t left = n - k - PANEL;
        void *args[] = {&t, &x, &n, &cols, &k, &one, &tiles};
        ok = nb_mats_launch(r, NB_K_triangle_solve, r->j->count * tiles,
                            4 * COLUMNS, shared, args);
        if (!ok || left <= 0) break;
        ok = nb_mats_multiply(r, nb_mats_from(r, t, k + PANEL, k),
                              nb_mats_from(r, x, k, 0),
                              nb_mats_from(r, x, k + PANEL, 0),
                              (nb_mats_size){left, cols, PANEL}, NB_MATS_LESS);
    }
    return ok;
}

static void plan(nb_mats_job *j)
{
    int64_t n = j->in[0].rows;
    nb_mats_room(j, n * n);
    if (n <= PANEL) j->kernels &= ~NB_K(mats_multiply);
}

/* flags: upper, unit, transposed. */
static bool solve_steps(const nb_mats_run *r)
{
    const bool *flag = r->j->flag;
    int64_t n = r->j->in[0].rows, cols = r->j->in[1].cols;
    nb_mats a = nb_mats_packed(nb_mats_at(r, 0), n, n);
    nb_mats x = nb_mats_packed(r->out[0], n, cols);
    if (flag[2]) a = nb_mats_turned(a);
    return nb_mats_load(r, 0, false, flag[2] ? nb_mats_turned(a) : a, NULL) &&
           nb_mats_load(r, 1, false, x, NULL) &&
           nb_mats_solve(r, a, flag[0] != flag[2], flag[1], x, n, cols);
}

static bool inv_steps(const nb_mats_run *r)
{
    int64_t n = r->j->in[0].rows;
    nb_mats a = nb_mats_packed(nb_mats_at(r, 0), n, n);
    nb_mats x = nb_mats_packed(r->out[0], n, n);
    return nb_mats_load(r, 0, false, a, NULL) &&
           nb_mats_unit(r, x, n, n, NULL) &&
           nb_mats_solve(r, a, r->j->flag[0], r->j->flag[1], x, n, n);
}

static const nb_mats_op solve = {NB_K(mats_load) | NB_K_SOLVE, plan,
                                 solve_steps};
static const nb_mats_op inv = {NB_K(mats_load) | NB_K(mats_unit) | NB_K_SOLVE,
                               plan, inv_steps};

static bool make_solve(nb_card *card, const nb_call *c, nb_tensor *y,
                       nb_card_job **job)
{
    bool flag[3] = {nb_arg_int(c, 0), nb_arg_int(c, 2), nb_arg_int(c, 1)};
    (void)y;
    return nb_mats_make(card, c, &solve, flag, 0, job);
}

static bool make_inv(nb_card *card, const nb_call *c, nb_tensor *y,
                     nb_card_job **job)
{
    bool flag[3] = {nb_arg_int(c, 0), nb_arg_int(c, 1)};
    (void)y;
    return nb_mats_make(card, c, &inv, flag, 0, job);
}

const nb_card_maker nb_card_triangular_solve = {"triangular_solve", make_solve};
const nb_card_maker nb_card_inv_triangle = {"inv_triangle", make_inv};
