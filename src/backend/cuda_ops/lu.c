/* lu.c - factors of square matrices on a card, with rows exchanged, and what is
 * made by them: solutions, inverses, determinants. */
#include "backend/cuda_ops/mats.h"

enum { PANEL = 32, COLUMNS = 32, THIN = 8 };
enum { LU, ORDER, PIVOT, SIGN };

/* As in lu.cu. */
typedef struct panel {
    int64_t n, first, width, inside;
} panel;

static bool factor_panel(const nb_mats_run *r, nb_mats a, panel *p,
                         nb_mats_lu f)
{
    int64_t m = p->n - p->first;
    size_t shared = p->inside ? (size_t)(m * p->width) * r->j->item : 0;
    void *args[] = {&a, p, &f.order, &f.pivot, &f.sign};
    return nb_mats_launch(r, NB_K_lu_panel, r->j->count,
                          nb_mats_threads(m, 1024), shared, args);
}

static bool exchange_rows(const nb_mats_run *r, nb_mats a, panel *p,
                          nb_mats_lu f)
{
    int64_t w = p->width, tiles = (p->n - w + COLUMNS - 1) / COLUMNS;
    size_t shared = (size_t)(2 * w * (COLUMNS + 1) + w * (w + 1)) * r->j->item;
    void *args[] = {&a, p, &f.pivot, &tiles};
    return nb_mats_launch(r, NB_K_lu_rows, r->j->count * tiles, 256, shared,
                          args);
}

bool nb_mats_factor(const nb_mats_run *r, nb_mats a, int64_t n, nb_mats_lu f)
{
    bool ok = true;
    panel p = {.n = n};
    if (n == 0) return factor_panel(r, a, &p, f); /* of no rows, in order */
    for (; ok && p.first < n; p.first += p.width) {
        int64_t fits = nb_mats_fit(r->j, n - p.first, PANEL), k = p.first;
        p.inside = fits >= THIN || fits >= n - k;
        p.width = p.inside ? fits : THIN;
        if (p.width > n - k) p.width = n - k;
        int64_t next = k + p.width, left = n - next;
        ok = factor_panel(r, a, &p, f) &&
             (p.width == n || exchange_rows(r, a, &p, f));
        if (!ok || left == 0) continue;
        ok = nb_mats_multiply(
            r, nb_mats_from(r, a, next, k), nb_mats_from(r, a, k, next),
            nb_mats_from(r, a, next, next), (nb_mats_size){left, left, p.width},
            NB_MATS_LESS);
    }
    return ok;
}

static void plan(nb_mats_job *j)
{
    int64_t n = j->in[0].rows;
    nb_mats_room(j, n * n);
    nb_mats_ints(j, n);
    nb_mats_ints(j, n);
    nb_mats_ints(j, 1);
    if (nb_mats_fit(j, n, PANEL) >= n)
        j->kernels &= ~(NB_K(lu_rows) | NB_K(mats_multiply));
}

static nb_mats_lu factors(const nb_mats_run *r)
{
    return (nb_mats_lu){nb_mats_at(r, ORDER), nb_mats_at(r, PIVOT),
                        nb_mats_at(r, SIGN)};
}

static nb_mats factored(const nb_mats_run *r, bool *ok)
{
    int64_t n = r->j->in[0].rows;
    nb_mats a = nb_mats_packed(nb_mats_at(r, LU), n, n);
    *ok = nb_mats_load(r, 0, false, a, NULL) &&
          nb_mats_factor(r, a, n, factors(r));
    return a;
}

static bool solve_both(const nb_mats_run *r, nb_mats a, nb_mats x, int64_t cols)
{
    int64_t n = r->j->in[0].rows;
    return nb_mats_solve(r, a, false, true, x, n, cols) &&
           nb_mats_solve(r, a, true, false, x, n, cols);
}

static bool solve_steps(const nb_mats_run *r)
{
    bool ok;
    int64_t n = r->j->in[0].rows, cols = r->j->in[1].cols;
    nb_mats a = factored(r, &ok), x = nb_mats_packed(r->out[0], n, cols);
    return ok && nb_mats_load(r, 1, false, x, nb_mats_at(r, ORDER)) &&
           solve_both(r, a, x, cols);
}

static bool inv_steps(const nb_mats_run *r)
{
    bool ok;
    int64_t n = r->j->in[0].rows;
    nb_mats a = factored(r, &ok), x = nb_mats_packed(r->out[0], n, n);
    return ok && nb_mats_unit(r, x, n, n, nb_mats_at(r, ORDER)) &&
           solve_both(r, a, x, n);
}

/* flag: the logarithm, too. */
static bool det_steps(const nb_mats_run *r)
{
    bool ok;
    int64_t n = r->j->in[0].rows;
    nb_mats a = factored(r, &ok);
    char *sign = nb_mats_at(r, SIGN), *det = r->out[0];
    char *size = r->j->flag[0] ? r->out[1] : NULL;
    void *args[] = {&a, &n, &sign, &det, &size};
    return ok && nb_mats_launch(r, NB_K_lu_det, r->j->count, 32, 0, args);
}

static const nb_mats_op solve = {NB_K(mats_load) | NB_K_LU | NB_K_SOLVE, plan,
                                 solve_steps};
static const nb_mats_op inv = {
    NB_K(mats_load) | NB_K(mats_unit) | NB_K_LU | NB_K_SOLVE, plan, inv_steps};
static const nb_mats_op det = {NB_K(mats_load) | NB_K_LU | NB_K(lu_det), plan,
                               det_steps};

static bool make_solve(nb_card *card, const nb_call *c, nb_tensor *y,
                       nb_card_job **job)
{
    (void)y;
    return nb_mats_make(card, c, &solve, NULL, 0, job);
}

static bool make_inv(nb_card *card, const nb_call *c, nb_tensor *y,
                     nb_card_job **job)
{
    (void)y;
    return nb_mats_make(card, c, &inv, NULL, 0, job);
}

static bool make_det(nb_card *card, const nb_call *c, nb_tensor *y,
                     nb_card_job **job)
{
    bool flag[3] = {c->op->nout > 1};
    (void)y;
    return nb_mats_make(card, c, &det, flag, 0, job);
}

const nb_card_maker nb_card_solve = {"solve", make_solve};
const nb_card_maker nb_card_inv = {"inv", make_inv};
const nb_card_maker nb_card_det = {"det", make_det};
const nb_card_maker nb_card_slogdet = {"slogdet", make_det};
