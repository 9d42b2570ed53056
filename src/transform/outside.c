/* outside.c - moves, inside a function, of what it closes over.
 *
 * A tensor of another device can be no input of a loop or a branch; moved it can.
 * The move is the same at every turn if nothing that it is made of changes or
 * has an effect, and it can stand before the loop if its lanes do: each has to
 * be one of something older. */
#include "transform/outside.h"

#include "core/lanes.h"

typedef struct search {
    const nb_list *stand_ins;
    uint64_t since;
    const nb_tensor *move;
    nb_list stack;
    bool *seen;               /* of nodes since, by serial */
    bool older[NB_MAX_LANES]; /* lanes of the move that something older has */
    bool free;                /* of stand-ins */
} search;

static bool is_stand_in(const search *s, const nb_tensor *x)
{
    for (int i = 0; i < s->stand_ins->n; i++)
        if (s->stand_ins->at[i] == x) return true;
    return false;
}

static void meet_older(search *s, const nb_tensor *x)
{
    nb_shape shape = nb_tensor_shape(x);
    for (int l = 0; l < s->move->nlanes; l++)
        if (nb_shape_find_lane(&shape, nb_tensor_lane(s->move)[l].id) >= 0)
            s->older[l] = true;
}

static bool meet(search *s, nb_tensor *x)
{
    if (nb_tensor_is_number(x)) return true;
    if (is_stand_in(s, x) || (x->op && x->op->effect)) s->free = false;
    if (!s->free) return true;
    if (x->serial < s->since || (!x->op && nb_tensor_done(x)))
        return meet_older(s, x), true;
    if (!x->op) return s->free = false, true;
    if (s->seen[x->serial - s->since]) return true;
    s->seen[x->serial - s->since] = true;
    return nb_list_add(&s->stack, x);
}

static bool lanes_are_older(const search *s)
{
    for (int l = 0; l < s->move->nlanes; l++)
        if (!s->older[l]) return false;
    return true;
}

bool nb_outside_moved(nb_tensor *x, const nb_list *stand_ins, uint64_t since,
                      bool *moved)
{
    *moved = false;
    if (x->op != &nb_op_to_device) return true;
    search s = {.stand_ins = stand_ins,
                .since = since,
                .move = x,
                .seen = nb_alloc_zero(x->serial - since + 1),
                .free = true};
    bool ok = s.seen && meet(&s, x);
    while (ok && s.free && s.stack.n) {
        nb_tensor *node = s.stack.at[--s.stack.n];
        for (int i = 0; ok && s.free && i < node->nin; i++)
            ok = meet(&s, nb_tensor_in(node)[i]);
    }
    *moved = ok && s.free && lanes_are_older(&s);
    nb_list_free(&s.stack);
    nb_free(s.seen);
    return ok;
}
