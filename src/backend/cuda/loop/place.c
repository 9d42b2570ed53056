/* place.c - where slots lie: in the memory of the block as long as there
 * is room, else in that of the card.  What is left goes to copies of memory that
 * is read in every turn and not held in registers. */
#include "backend/cuda/loop/solo.h"

static bool fits(const nb_solo *s, int64_t bytes)
{
    return s->shared + bytes <= (int64_t)s->shared_most;
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + NB_SOLO_ALIGN - 1) / NB_SOLO_ALIGN * NB_SOLO_ALIGN;
}

static void place(nb_solo *s, nb_solo_slot *slot)
{
    int64_t bytes = aligned(slot->bytes) * (slot->loop >= 0 ? 2 : 1);
    bool room = fits(s, bytes);
    slot->space = room ? NB_SOLO_SHARED : NB_SOLO_WORK;
    slot->at = room ? s->shared : s->work;
    if (room)
        s->shared += bytes;
    else
        s->work += bytes;
}

static void stage(nb_solo *s, nb_solo_slot *slot)
{
    bool is = slot->space == NB_SOLO_GIVEN && slot->constant && slot->bytes;
    if (!is || !fits(s, aligned(slot->bytes))) return;
    slot->staged = true;
    place(s, slot);
}

/* Slots that items inside of loops read, and do not hold. */
static void stage_all(nb_solo *s, const nb_solo_list *l, bool inside)
{
    for (int k = 0; k < l->n; k++) {
        const nb_solo_item *i = &l->item[k];
        bool loops = inside || i->kind == NB_SOLO_LOOP;
        stage_all(s, &i->first, loops);
        stage_all(s, &i->second, loops);
        for (int v = 0; inside && i->nest && v < i->nest->n; v++) {
            const nb_nest_value *x = &i->nest->value[v];
            if (!nb_nest_reads(x) || (i->held && i->held[v])) continue;
            if (i->block[x->buffer].nmoves) continue;
            stage(s, &s->slot[i->block[x->buffer].slot]);
        }
    }
}

void nb_solo_place(nb_solo *s)
{
    for (int k = 0; k < s->nslots; k++)
        if (s->slot[k].space == NB_SOLO_SHARED && s->slot[k].used)
            place(s, &s->slot[k]);
    stage_all(s, &s->list, false);
}

bool nb_solo_is_aligned(const nb_solo *s, const nb_solo_at *at, int64_t bytes)
{
    const nb_solo_slot *slot = &s->slot[at->slot];
    bool is = slot->space != NB_SOLO_GIVEN && at->from % bytes == 0;
    for (int k = 0; is && k < at->nmoves; k++)
        is = at->move[k].bytes % bytes == 0;
    return is;
}
