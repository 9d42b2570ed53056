/* jacobi.c - what eigenvalues and singular values have in common on a card:
 * blocks of rows meet, round after round, and are turned. */
#include "backend/cuda_ops/mats.h"

enum { FLAG, NUMBER, TURNS, IDLE };

size_t nb_rotation_shared(const nb_mats_run *r)
{
    return 2 * NB_ROTATION_BLOCK * (NB_ROTATION_BLOCK + 1) * r->j->item;
}

/* Of 32 rows, an even number of them. */
int nb_rotation_blocks(int64_t n)
{
    return (int)((n + NB_ROTATION_BLOCK - 1) / NB_ROTATION_BLOCK) * 2;
}

void nb_rotation_rooms(nb_mats_job *j, int64_t n)
{
    int64_t pairs = n > NB_ROTATION_BLOCK ? nb_rotation_blocks(n) / 2 : 0;
    nb_mats_ints(j, NB_ROTATION_FLAGS);
    nb_mats_room(j, 2);
    nb_mats_room(j, pairs * NB_ROTATION_BLOCK * NB_ROTATION_BLOCK);
    nb_mats_ints(j, pairs);
}

nb_rotation nb_rotation_at(const nb_mats_run *r, int64_t n, int first)
{
    return (nb_rotation){
        .n = n,
        .blocks = nb_rotation_blocks(n),
        .state = {nb_mats_at(r, first + FLAG), nb_mats_at(r, first + NUMBER)},
        .turns = nb_mats_at(r, first + TURNS),
        .idle = nb_mats_at(r, first + IDLE)};
}

bool nb_rotation_begin(const nb_mats_run *r, const nb_rotation *t, nb_mats w,
                       int64_t cols)
{
    nb_rotation_state s = t->state;
    int64_t n = t->n;
    void *args[] = {&w, &n, &cols, &s};
    return nb_mats_launch(r, NB_K_jacobi_begin, r->j->count,
                          nb_mats_threads(n * cols, 1024), 0, args);
}

bool nb_rotation_rows(const nb_mats_run *r, const nb_rotation *t, nb_mats x,
                      int64_t cols)
{
    nb_rotation k = *t;
    int64_t tiles = (cols + NB_ROTATION_BLOCK - 1) / NB_ROTATION_BLOCK;
    void *args[] = {&x,       &k.n,     &cols,    &k.blocks, &k.round,
                    &k.sweep, &k.state, &k.turns, &k.idle,   &tiles};
    return nb_mats_launch(r, NB_K_jacobi_rows,
                          r->j->count * (k.blocks / 2) * tiles, 256,
                          nb_rotation_shared(r), args);
}

bool nb_rotation_order(const nb_mats_run *r, char *values, int64_t n,
                       bool diagonal, bool falling, char *order)
{
    int64_t count = r->j->count;
    int64_t step = diagonal ? n + 1 : 1, each = diagonal ? n * n : n;
    int falls = falling;
    void *args[] = {&values, &step, &each, &n, &count, &falls, &order};
    return nb_mats_spread(r, NB_K_jacobi_order, count * n, args);
}

bool nb_rotation_signs(const nb_mats_run *r, nb_mats x, int64_t n, int64_t cols,
                       char *signs)
{
    int64_t count = r->j->count;
    void *args[] = {&x, &n, &cols, &count, &signs};
    return nb_mats_spread(r, NB_K_jacobi_signs, count * n * 32, args);
}

bool nb_rotation_run(const nb_mats_run *r, nb_rotation *t,
                     nb_rotation_round *round, void *ctx)
{
    bool ok = true;
    for (t->sweep = 0; ok && t->sweep < NB_ROTATION_SWEEPS; t->sweep++)
        for (t->round = 0; ok && t->round < t->blocks - 1; t->round++)
            ok = round(r, t, ctx);
    return ok;
}
