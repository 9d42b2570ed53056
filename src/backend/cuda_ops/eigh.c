/* eigh.c - eigenvalues and eigenvectors of symmetric matrices on a card. */
#include "backend/cuda_ops/mats.h"

enum { WORK, VECTORS, ORDER, SIGNS, STATE };

static void plan(nb_mats_job *j)
{
    int64_t n = j->in[0].rows;
    nb_mats_room(j, n * n);
    nb_mats_room(j, n > NB_ROTATION_BLOCK ? n * n : 0);
    nb_mats_ints(j, n);
    nb_mats_room(j, n);
    nb_rotation_rooms(j, n);
    if (n <= NB_ROTATION_BLOCK)
        j->kernels = NB_K(mats_load) | NB_K(eigh_block);
    else
        j->kernels &= ~NB_K(eigh_block);
}

/* flag: vectors are wanted. */
static nb_mats wanted(const nb_mats_run *r)
{
    int64_t n = r->j->in[0].rows;
    return r->j->flag[0] ? nb_mats_packed(r->out[1], n, n) : (nb_mats){0};
}

static bool by_block(const nb_mats_run *r, nb_mats a)
{
    int64_t n = r->j->in[0].rows, half = (n + 1) / 2;
    char *values = r->out[0];
    nb_mats vectors = wanted(r);
    void *args[] = {&a, &n, &values, &vectors};
    return nb_mats_launch(r, NB_K_eigh_block, r->j->count,
                          nb_mats_threads(half * half, 1024),
                          nb_rotation_shared(r), args);
}

static bool turn(const nb_mats_run *r, nb_rotation *t, void *ctx)
{
    nb_mats *x = ctx; /* the matrix, and how it was turned */
    int64_t pairs = t->blocks / 2;
    void *args[] = {&x[0],     &t->n,     &t->blocks, &t->round,
                    &t->sweep, &t->state, &t->turns,  &t->idle};
    return nb_mats_launch(r, NB_K_eigh_solve, r->j->count * pairs, 1024,
                          nb_rotation_shared(r), args) &&
           nb_mats_launch(r, NB_K_eigh_turn, r->j->count * pairs * pairs, 256,
                          nb_rotation_shared(r), args) &&
           (!x[1].at || nb_rotation_rows(r, t, x[1], t->n));
}

static bool store(const nb_mats_run *r, nb_mats a, nb_mats turns,
                  nb_rotation *t)
{
    int64_t n = t->n, count = r->j->count;
    char *values = r->out[0], *order = nb_mats_at(r, ORDER);
    char *signs = nb_mats_at(r, SIGNS);
    nb_mats vectors = wanted(r);
    void *args[] = {&a,     &turns, &n,      &count,  &t->state,
                    &order, &signs, &values, &vectors};
    return nb_rotation_order(r, a.at, n, true, false, order) &&
           (!turns.at || nb_rotation_signs(r, turns, n, n, signs)) &&
           nb_mats_spread(r, NB_K_eigh_store, count * (vectors.at ? n * n : n),
                          args);
}

static bool steps(const nb_mats_run *r)
{
    int64_t n = r->j->in[0].rows;
    nb_mats a = nb_mats_packed(nb_mats_at(r, WORK), n, n), turns = {0};
    if (n == 0) return true;
    if (!nb_mats_load(r, 0, true, a, NULL)) return false;
    if (n <= NB_ROTATION_BLOCK) return by_block(r, a);
    nb_rotation t = nb_rotation_at(r, n, STATE);
    if (r->j->flag[0]) turns = nb_mats_packed(nb_mats_at(r, VECTORS), n, n);
    return nb_rotation_begin(r, &t, a, n) &&
           (!turns.at || nb_mats_unit(r, turns, n, n, NULL)) &&
           nb_rotation_run(r, &t, turn, (nb_mats[]){a, turns}) &&
           store(r, a, turns, &t);
}

static const nb_mats_op eigh = {
    NB_K(mats_load) | NB_K(mats_unit) | NB_K(jacobi_begin) | NB_K(jacobi_rows) |
        NB_K(jacobi_order) | NB_K(jacobi_signs) | NB_K(eigh_block) |
        NB_K(eigh_solve) | NB_K(eigh_turn) | NB_K(eigh_store),
    plan, steps};

static bool make(nb_card *card, const nb_call *c, nb_tensor *y,
                 nb_card_job **job)
{
    bool flag[3] = {c->op->nout > 1};
    (void)y;
    return nb_mats_make(card, c, &eigh, flag, 0, job);
}

const nb_card_maker nb_card_eigh = {"eigh", make};
const nb_card_maker nb_card_eigvalsh = {"eigvalsh", make};
