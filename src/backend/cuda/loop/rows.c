/* rows.c - programs that go row by row, shared out to blocks.
 *
 * Where the first axis of what is carried counts rows, and every nest makes a
 * row of what it writes from the same row of what it reads and from what has no
 * rows, no block needs rows of another's.  Each then has its own rows alone in
 * its memory, and finds them further on in what is given. */
#include "backend/cuda/loop/solo.h"

#include <limits.h>

enum { CYCLES = 2048 }; /* of a turn, that are worth a block */

typedef struct finder {
    nb_solo *s;
    int64_t rows, blocks;
    int64_t *row; /* bytes, by slot; 0: it has none */
    int *turns;   /* read ahead, by loop */
    bool fits, more;
} finder;

static bool touches_rows(const finder *f, const nb_solo_item *i)
{
    for (int b = 0; b < i->nest->nbuffers; b++)
        if (f->row[i->block[b].slot]) return true;
    return false;
}

/* Whether an access stays in the row that axis 0 counts. */
static bool stays(const nb_nest *x, const nb_nest_value *v)
{
    int64_t last = v->offset;
    for (int a = 1; a < x->naxes; a++) {
        if (v->stride[a] < 0) return false;
        last += (x->size[a] - 1) * v->stride[a];
    }
    return v->offset >= 0 && last < v->stride[0];
}

static bool moves_inside(const nb_solo_at *at)
{
    for (int k = 0; k < at->nmoves; k++)
        if (!at->move[k].ring) return true;
    return false;
}

static bool access_fits(finder *f, const nb_solo_item *i,
                        const nb_nest_value *v)
{
    const nb_solo_at *at = &i->block[v->buffer];
    const nb_solo_slot *slot = &f->s->slot[at->slot];
    int64_t *row = &f->row[at->slot];
    int64_t is = v->stride[0] * (int64_t)nb_dtype_size(v->stored);
    bool given = slot->space == NB_SOLO_GIVEN;
    if (is == 0) return !*row && v->kind != NB_NEST_STORE;
    if (is < 0 || v->kind == NB_NEST_PICK || (*row && *row != is)) return false;
    if (!given && (!stays(i->nest, v) || at->from || moves_inside(at)))
        return false;
    f->more = f->more || !*row;
    *row = is;
    return true;
}

static bool find_in_nest(void *ctx, nb_solo_item *i)
{
    finder *f = ctx;
    for (int k = 0; k < i->naheads; k++) {
        int64_t to = f->row[i->ahead[k].to.slot];
        int64_t *from = &f->row[i->ahead[k].from.slot];
        if (*from && *from != to) f->fits = false;
        *from = to;
    }
    if (i->kind != NB_SOLO_NEST || !touches_rows(f, i)) return f->fits;
    f->fits = f->fits && nb_nest_lead(i->nest, f->rows) && i->nest->lead == 1;
    for (int k = 0; f->fits && k < i->nest->n; k++) {
        const nb_nest_value *v = &i->nest->value[k];
        if (v->kind == NB_NEST_INDEX) f->fits = v->stride[0] == 0;
        if (nb_nest_in_memory(v)) f->fits = access_fits(f, i, v);
    }
    return f->fits;
}

/* A slot is its rows and nothing else; a ring, those of its turns. */
static bool slots_fit(const finder *f)
{
    for (int k = 0; k < f->s->nslots; k++) {
        const nb_solo_slot *slot = &f->s->slot[k];
        if (!f->row[k] || slot->space == NB_SOLO_GIVEN) continue;
        if (slot->ring ? slot->bytes % (f->rows * f->row[k])
                       : slot->bytes != f->rows * f->row[k])
            return false;
    }
    return true;
}

static bool find(finder *f)
{
    const nb_solo *s = f->s;
    f->fits = true;
    f->row[s->rows_slot] = s->slot[s->rows_slot].bytes / f->rows;
    do
        f->more = false;
    while (nb_solo_each(&f->s->list, find_in_nest, f) && f->more);
    return f->fits && slots_fit(f);
}

/* Sharing out */

static bool shrink(void *ctx, nb_solo_item *i)
{
    finder *f = ctx;
    for (int k = 0; k < i->naheads; k++)
        if (f->row[i->ahead[k].to.slot]) i->ahead[k].bytes /= f->blocks;
    if (i->kind != NB_SOLO_NEST || !touches_rows(f, i)) return true;
    i->nest->size[0] /= f->blocks;
    i->cycles /= (double)f->blocks;
    return true;
}

/* Rings of less bytes a turn have room for more turns. */
static bool count_turns(void *ctx, nb_solo_item *i)
{
    finder *f = ctx;
    int most = i->naheads ? INT_MAX : 0;
    for (int k = 0; k < i->naheads; k++) {
        int n = nb_solo_ring_turns(i->ahead[k].bytes, i->length);
        if (n < most) most = n;
    }
    for (int k = 0; k < i->naheads; k++) {
        i->ahead[k].turns = most;
        f->s->slot[i->ahead[k].to.slot].bytes = 2 * most * i->ahead[k].bytes;
    }
    if (i->kind == NB_SOLO_LOOP) f->turns[i->loop] = most;
    return true;
}

static bool set_rings(void *ctx, nb_solo_item *i)
{
    finder *f = ctx;
    if (i->kind != NB_SOLO_NEST) return true;
    for (int b = 0; b < i->nest->nbuffers; b++) {
        nb_solo_at *at = &i->block[b];
        for (int k = 0; k < at->nmoves; k++) {
            if (!at->move[k].ring) continue;
            at->move[k].ring = 2 * f->turns[at->move[k].loop];
            if (f->row[at->slot]) at->move[k].bytes /= f->blocks;
        }
    }
    return true;
}

static void share_out(finder *f)
{
    nb_solo *s = f->s;
    s->lane[s->nlanes] = f->blocks;
    for (int k = 0; k < s->nslots; k++) {
        nb_solo_slot *slot = &s->slot[k];
        if (!f->row[k]) continue;
        if (slot->space == NB_SOLO_GIVEN) {
            slot->lane[s->nlanes] = f->rows / f->blocks * f->row[k];
            slot->bytes = 0; /* it is not in one piece any more */
        } else {
            slot->bytes /= f->blocks;
        }
    }
    s->nlanes++;
    nb_solo_each(&s->list, shrink, f);
    nb_solo_each(&s->list, count_turns, f);
    nb_solo_each(&s->list, set_rings, f);
}

static bool settle(void *ctx, nb_solo_item *i)
{
    (void)ctx;
    if (i->kind != NB_SOLO_NEST) return true;
    i->nest->lead = 0;
    nb_nest_merge(i->nest);
    return true;
}

static double cycles_of(const nb_solo_list *l, bool inside)
{
    double all = 0;
    for (int k = 0; k < l->n; k++) {
        const nb_solo_item *i = &l->item[k];
        bool loops = inside || i->kind == NB_SOLO_LOOP;
        all += (inside ? i->cycles : 0) + cycles_of(&i->first, loops) +
               cycles_of(&i->second, loops);
    }
    return all;
}

/* The most that divide the rows, of those that have something to do. */
static int64_t blocks_for(const nb_solo *s, int processors)
{
    double worth = cycles_of(&s->list, false) / CYCLES;
    int64_t most = processors / nb_solo_blocks(s), n = s->rows;
    if (worth < (double)most) most = (int64_t)worth;
    while (n > 1 && (n > most || s->rows % n))
        n--;
    return n;
}

bool nb_solo_share_rows(nb_solo *s, int processors)
{
    finder f = {.s = s, .rows = s->rows};
    if (s->rows < 2 || s->nlanes == NB_SOLO_LANES) return true;
    f.blocks = blocks_for(s, processors);
    if (f.blocks < 2) return true;
    f.row = nb_alloc_zero((size_t)(s->nslots + 1) * sizeof *f.row);
    f.turns = nb_alloc_zero((size_t)(s->nloops + 1) * sizeof *f.turns);
    bool ok = f.row && f.turns;
    if (ok && find(&f)) share_out(&f);
    if (ok) nb_solo_each(&s->list, settle, NULL);
    nb_free(f.row), nb_free(f.turns);
    return ok;
}
