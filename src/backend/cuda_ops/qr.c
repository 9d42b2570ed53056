/* qr.c - orthogonal and triangular factors on a card, by reflections. */
#include "backend/cuda_ops/mats.h"

#include <string.h>

enum { WIDE = NB_MATS_WIDE, THIN = 4, COLUMNS = 16 };
enum { WORK, PRODUCTS };

/* As in qr.cu. */
typedef struct panel {
    int64_t m, n, first, width, inside;
} panel;

/* Both ways through a matrix meet the same panels. */
static panel panel_at(const nb_mats_run *r, int64_t m, int64_t n, int64_t first)
{
    int64_t left = (m < n ? m : n) - first;
    int64_t fits = nb_mats_fit(r->j, m - first, WIDE);
    bool inside = fits >= THIN || fits >= left;
    int64_t width = inside ? fits : WIDE;
    return (panel){m, n, first, width < left ? width : left, inside};
}

/* Applies the reflections of a panel to columns of x, or their transpose. */
static bool apply(const nb_mats_run *r, nb_mats a, nb_mats t, const panel *p,
                  bool turned, nb_mats x, int64_t cols, char *skip)
{
    nb_mats v = nb_mats_from(r, a, p->first, p->first);
    int64_t m = p->m - p->first, tiles = (cols + COLUMNS - 1) / COLUMNS;
    int w = (int)p->width, turn = turned;
    t = nb_mats_from(r, t, p->first, 0);
    void *args[] = {&v, &t, &x, &m, &w, &turn, &cols, &tiles, &skip};
    return nb_mats_launch(r, NB_K_qr_apply, r->j->count * tiles, 256, 0, args);
}

bool nb_mats_reflect(const nb_mats_run *r, nb_mats a, int64_t m, int64_t n,
                     nb_mats t, char *skip)
{
    int64_t k = m < n ? m : n;
    bool ok = true;
    panel p;
    for (int64_t at = 0; ok && at < k; at += p.width) {
        p = panel_at(r, m, n, at);
        int64_t rows = m - at, left = n - at - p.width;
        size_t shared = p.inside ? (size_t)(rows * p.width) * r->j->item : 0;
        void *args[] = {&a, &p, &t, &skip};
        ok = nb_mats_launch(r, NB_K_qr_panel, r->j->count,
                            nb_mats_threads(rows * 2, 1024), shared, args);
        if (ok && left > 0)
            ok = apply(r, a, t, &p, true, nb_mats_from(r, a, at, at + p.width),
                       left, skip);
    }
    return ok;
}

/* The last panel first: what is before it is unit still. */
static bool apply_back(const nb_mats_run *r, nb_mats a, int64_t m, int64_t n,
                       nb_mats t, nb_mats q, int64_t cols, int64_t at,
                       char *skip)
{
    panel p = panel_at(r, m, n, at);
    int64_t k = m < n ? m : n, next = at + p.width;
    if (next < k && !apply_back(r, a, m, n, t, q, cols, next, skip))
        return false;
    return apply(r, a, t, &p, false, nb_mats_from(r, q, at, at), cols - at,
                 skip);
}

bool nb_mats_reflected(const nb_mats_run *r, nb_mats a, int64_t m, int64_t n,
                       nb_mats t, nb_mats q, int64_t cols, char *skip)
{
    return nb_mats_unit(r, q, m, cols, NULL) &&
           (m == 0 || n == 0 || apply_back(r, a, m, n, t, q, cols, 0, skip));
}

static void plan(nb_mats_job *j)
{
    int64_t m = j->in[0].rows, n = j->in[0].cols;
    nb_mats_room(j, m * n);
    nb_mats_room(j, (m < n ? m : n) * WIDE);
}

/* flag: q is complete. */
static bool steps(const nb_mats_run *r)
{
    int64_t m = r->j->in[0].rows, n = r->j->in[0].cols;
    int64_t cols = r->j->flag[0] || m < n ? m : n, count = r->j->count;
    nb_mats a = nb_mats_packed(nb_mats_at(r, WORK), m, n);
    nb_mats t = nb_mats_packed(nb_mats_at(r, PRODUCTS), m < n ? m : n, WIDE);
    nb_mats q = nb_mats_packed(r->out[0], m, cols);
    nb_mats upper = nb_mats_packed(r->out[1], cols, n);
    void *args[] = {&a, &upper, &cols, &n, &count};
    return nb_mats_load(r, 0, false, a, NULL) &&
           nb_mats_reflect(r, a, m, n, t, NULL) &&
           nb_mats_reflected(r, a, m, n, t, q, cols, NULL) &&
           nb_mats_spread(r, NB_K_mats_triangle, count * cols * n, args);
}

static const nb_mats_op qr = {NB_K(mats_load) | NB_K(mats_triangle) | NB_K_QR,
                              plan, steps};

static bool make(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **job)
{
    bool flag[3] = {!strcmp(nb_arg_text(c, 0), "complete")};
    (void)y;
    return nb_mats_make(card, c, &qr, flag, 0, job);
}

const nb_card_maker nb_card_qr = {"qr", make};
