/* walk.c - how the threads of the block share out each nest, and what they
 * have in registers from beginning to end: single numbers, which every thread
 * has, and what each of them loads of memory that nobody writes. */
#include "backend/cuda/loop/solo.h"

#include "base/error.h"

#include <string.h>

enum {
    WARP = 32,
    MOST_THREADS = 512,
    EACH = 40,         /* points of a turn that a thread should have */
    REGISTERS = 65536, /* of a block */
    MOST_REGISTERS = 255,
    OTHERS = 60,      /* registers of a thread for all else */
    MOST_ROUNDS = 16, /* that are unrolled, and points in all */
    MOST_POINTS = 160
};

/* Points that a nest goes through, once for every two accesses to memory. */
static double points_of(const nb_nest *x)
{
    double points = (double)nb_nest_points(x), units = (double)nb_nest_units(x);
    double all = 0;
    for (int k = 0; k < x->n; k++)
        if (nb_nest_in_memory(&x->value[k]))
            all += (x->value[k].axes & x->inner ? points : units) / 2;
    return all;
}

/* Of all nests that are inside of a loop, or if there is none of all. */
static double points_inside(const nb_solo_list *l, bool inside)
{
    double all = 0;
    for (int k = 0; k < l->n; k++) {
        const nb_solo_item *i = &l->item[k];
        bool loops = inside || i->kind == NB_SOLO_LOOP;
        if (inside && i->nest) all += points_of(i->nest);
        all += points_inside(&i->first, loops);
        all += points_inside(&i->second, loops);
    }
    return all;
}

static void count_threads(nb_solo *s)
{
    double points = points_inside(&s->list, !s->nloops);
    s->threads = WARP;
    while (s->threads < MOST_THREADS && points > s->threads * EACH)
        s->threads *= 2;
}

/* Single numbers */

static bool is_one(const nb_solo *s, const nb_solo_at *at,
                   const nb_nest_value *v)
{
    const nb_solo_slot *slot = &s->slot[at->slot];
    bool one = v->kind != NB_NEST_PICK && v->offset == 0 && at->from == 0 &&
               at->nmoves == 0;
    for (int a = 0; one && a < NB_MAX_NEST_AXES; a++)
        one = v->stride[a] == 0;
    return one && nb_dtype_size(slot->dtype) == nb_dtype_size(v->stored);
}

static void not_alike(nb_solo *s, int slot)
{
    if (s->slot[slot].space == NB_SOLO_ALIKE)
        s->slot[slot].space = NB_SOLO_SHARED;
}

static bool check_alike(void *ctx, nb_solo_item *i)
{
    nb_solo *s = ctx;
    for (int k = 0; i->kind == NB_SOLO_NEST && k < i->nest->n; k++) {
        const nb_nest_value *v = &i->nest->value[k];
        if (!nb_nest_in_memory(v)) continue;
        const nb_solo_at *at = &i->block[v->buffer];
        bool ok = is_one(s, at, v) &&
                  (v->kind != NB_NEST_STORE || nb_nest_units(i->nest) == 1);
        if (!ok) not_alike(s, at->slot);
    }
    for (int k = 0; k < i->naheads; k++)
        not_alike(s, i->ahead[k].to.slot);
    return true;
}

/* The dtype of a slot is that of the first access to it. */
static bool find_dtypes(void *ctx, nb_solo_item *i)
{
    nb_solo *s = ctx;
    if (i->kind != NB_SOLO_NEST) s->slot[i->flag.slot].used = true;
    for (int k = 0; k < i->naheads; k++)
        s->slot[i->ahead[k].to.slot].used = true;
    for (int k = 0; i->kind == NB_SOLO_NEST && k < i->nest->n; k++) {
        const nb_nest_value *v = &i->nest->value[k];
        if (!nb_nest_in_memory(v)) continue;
        nb_solo_slot *slot = &s->slot[i->block[v->buffer].slot];
        slot->used = true;
        bool small =
            slot->bytes <= NB_SOLO_ALIGN && slot->space == NB_SOLO_SHARED;
        if (!small) continue;
        slot->space = NB_SOLO_ALIKE;
        if (!slot->number) slot->dtype = v->stored;
    }
    return true;
}

/* Held loads */

static int registers(const nb_nest_value *v)
{
    return nb_dtype_size(v->stored) > 4 ? 2 : 1;
}

/* How often a thread comes to value k, if that is known. */
static int times(const nb_solo_item *i, int k)
{
    int points = i->w.inside[k] ? i->w.turns * i->w.lanes : 1;
    return i->rounds * points;
}

static bool walk_nest(const nb_solo *s, nb_solo_item *i, unsigned how)
{
    if (i->walked) nb_cuda_walk_free(&i->w);
    i->walked = true;
    i->rounds = 0;
    if (!nb_cuda_walk_block(&i->w, i->nest, s->threads, how)) return false;
    int64_t rounds = (i->w.total + i->w.units - 1) / i->w.units;
    bool known = !i->nest->inner || i->w.turns;
    int64_t points = rounds * (i->w.turns ? i->w.turns : 1) * i->w.lanes;
    if (known && rounds <= MOST_ROUNDS && points <= MOST_POINTS)
        i->rounds = (int)rounds;
    return true;
}

static bool is_constant(const nb_solo *s, const nb_solo_item *i, int k)
{
    const nb_nest_value *v = &i->nest->value[k];
    if (v->kind != NB_NEST_LOAD) return false;
    const nb_solo_at *at = &i->block[v->buffer];
    return s->slot[at->slot].constant && at->nmoves == 0 &&
           s->slot[at->slot].space == NB_SOLO_GIVEN;
}

/* Those that there are registers for. */
static void hold_some(nb_solo *s, nb_solo_item *i)
{
    for (int k = 0; k < i->nest->n; k++) {
        int n = times(i, k) * registers(&i->nest->value[k]);
        i->held[k] = is_constant(s, i, k) && n && n <= s->registers;
        if (i->held[k]) s->registers -= n;
    }
}

/* Rows of a matrix, or the like, that are read again in every turn. */
static bool reads_rows(const nb_solo *s, const nb_solo_item *i)
{
    for (int k = 0; k < i->nest->n; k++) {
        const nb_nest_value *v = &i->nest->value[k];
        bool along = false;
        if (!is_constant(s, i, k) || (i->held && i->held[k])) continue;
        for (int a = 0; a < i->nest->naxes; a++)
            along = along || (i->nest->inner >> a & 1 && v->stride[a] == 1);
        if (along && v->axes & ~i->nest->inner) return true;
    }
    return false;
}

static bool hold(nb_solo *s, nb_solo_item *i)
{
    int left = s->registers;
    if (i->kind != NB_SOLO_NEST) return true;
    if (!(i->held = nb_alloc_zero((size_t)i->nest->n + 1))) return false;
    if (i->rounds) hold_some(s, i);
    if (!reads_rows(s, i)) return true;
    s->registers = left;
    i->how |= NB_WALK_WARPS;
    if (!walk_nest(s, i, i->how)) return false;
    memset(i->held, 0, (size_t)i->nest->n);
    if (i->rounds) hold_some(s, i);
    return true;
}

/* Of nests inside of loops. */
static bool hold_all(nb_solo *s, nb_solo_list *l, bool inside)
{
    for (int k = 0; k < l->n; k++) {
        nb_solo_item *i = &l->item[k];
        bool loops = inside || i->kind == NB_SOLO_LOOP;
        if ((inside && !hold(s, i)) || !hold_all(s, &i->first, loops) ||
            !hold_all(s, &i->second, loops))
            return false;
    }
    return true;
}

static bool walk(void *ctx, nb_solo_item *i)
{
    i->how = NB_WALK_VECTORS;
    return i->kind != NB_SOLO_NEST || walk_nest(ctx, i, i->how);
}

bool nb_solo_walk(nb_solo *s)
{
    nb_solo_each(&s->list, find_dtypes, s);
    nb_solo_each(&s->list, check_alike, s);
    count_threads(s);
    int most = REGISTERS / s->threads;
    s->registers = (most < MOST_REGISTERS ? most : MOST_REGISTERS) - OTHERS;
    return nb_solo_each(&s->list, walk, s) && hold_all(s, &s->list, false);
}

/* Vectors lie at multiples of their size, or there are none. */
static bool check_vectors(void *ctx, nb_solo_item *i)
{
    nb_solo *s = ctx;
    bool ok = true;
    if (i->kind != NB_SOLO_NEST || i->w.lanes == 1) return true;
    for (int k = 0; ok && k < i->nest->n; k++) {
        const nb_nest_value *v = &i->nest->value[k];
        if (!nb_cuda_is_vector(&i->w, v) || (i->held && i->held[k])) continue;
        int64_t bytes = (int64_t)nb_dtype_size(v->stored) * i->w.lanes;
        ok = nb_solo_is_aligned(s, &i->block[v->buffer],
                                bytes < 16 ? bytes : 16);
    }
    if (ok) return true;
    i->how &= ~(unsigned)NB_WALK_VECTORS;
    if (!walk_nest(s, i, i->how)) return false;
    if (!i->rounds && i->held) {
        nb_free(i->held);
        i->held = NULL;
    }
    return true;
}

static bool find_all(void *ctx, nb_solo_item *i)
{
    nb_solo *s = ctx;
    if (i->kind != NB_SOLO_NEST) return true;
    if (!(i->all = nb_alloc_zero((size_t)i->nest->n + 1))) return false;
    for (int k = 0; k < i->nest->n; k++) {
        const nb_nest_value *v = &i->nest->value[k];
        i->all[k] = v->kind == NB_NEST_STORE &&
                    s->slot[i->block[v->buffer].slot].space == NB_SOLO_ALIKE;
    }
    return true;
}

bool nb_solo_settle(nb_solo *s)
{
    return nb_solo_each(&s->list, check_vectors, s) &&
           nb_solo_each(&s->list, find_all, s);
}
