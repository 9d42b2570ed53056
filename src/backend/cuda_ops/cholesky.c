/* cholesky.c - factors of positive definite matrices on a card. */
#include "backend/cuda_ops/mats.h"

enum { PANEL = 64 };
enum { WORK, FAILED };

static void plan(nb_mats_job *j)
{
    int64_t n = j->in[0].rows;
    nb_mats_room(j, n * n);
    nb_mats_ints(j, 1);
}

static bool factor_panel(const nb_mats_run *r, nb_mats w, nb_mats l, int64_t k)
{
    int64_t n = r->j->in[0].rows, tiles = (n - k + PANEL - 1) / PANEL;
    int64_t threads = nb_mats_threads(4 * n, 256);
    size_t shared = (2 * PANEL * (PANEL + 1) + 3 * PANEL) * r->j->item;
    char *failed = nb_mats_at(r, FAILED);
    void *args[] = {&w, &l, &n, &k, &tiles, &failed};
    return nb_mats_launch(r, NB_K_cholesky_panel, r->j->count * tiles, threads,
                          shared, args);
}

static bool close(const nb_mats_run *r, nb_mats l)
{
    int64_t n = r->j->in[0].rows, count = r->j->count;
    char *failed = nb_mats_at(r, FAILED);
    void *args[] = {&l, &n, &count, &failed};
    return nb_mats_spread(r, NB_K_cholesky_close, count * n * n, args);
}

/* flag: the upper one. */
static bool steps(const nb_mats_run *r)
{
    int64_t n = r->j->in[0].rows;
    nb_mats w = nb_mats_packed(nb_mats_at(r, WORK), n, n);
    nb_mats l = nb_mats_packed(r->out[0], n, n);
    if (n == 0) return true;
    if (r->j->flag[0]) l = nb_mats_turned(l);
    bool ok = nb_mats_load(r, 0, true, w, NULL);
    for (int64_t k = 0; ok && k < n; k += PANEL) {
        int64_t next = k + PANEL, left = n - next;
        nb_mats below = nb_mats_from(r, l, next, k);
        ok = factor_panel(r, w, l, k);
        if (ok && left > 0)
            ok = nb_mats_multiply(
                r, below, nb_mats_turned(below), nb_mats_from(r, w, next, next),
                (nb_mats_size){left, left, PANEL}, NB_MATS_LESS_LOWER);
    }
    return ok && close(r, l);
}

static const nb_mats_op cholesky = {NB_K(mats_load) | NB_K(mats_multiply) |
                                        NB_K(cholesky_panel) |
                                        NB_K(cholesky_close),
                                    plan, steps};

static bool make(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **job)
{
    bool flag[3] = {nb_arg_int(c, 0)};
    (void)y;
    return nb_mats_make(card, c, &cholesky, flag, 0, job);
}

const nb_card_maker nb_card_cholesky = {"cholesky", make};
