/* card_batch.c - steps of a program that are launched together.
 *
 * Of a batch those share a launch whose kernels for several have the same text,
 * as many as the arguments of a kernel hold.  The first of them launches for
 * all; what is like no other is a kernel of its own. */
#include "run/card_parts.h"

#include <limits.h>
#include <string.h>

enum { ARGUMENTS = 4096 }; /* bytes that every driver takes */

/* A launch in the making, at step s. */
typedef struct leader {
    int step;
    int64_t blocks;
    nb_text text;
} leader;

static bool joins(const nb_exec *e, const leader *l, const nb_text *text,
                  int64_t blocks)
{
    const nb_card_step *k = &e->on_card[l->step];
    return k->nwith < k->how.members && l->blocks + blocks <= INT_MAX &&
           !strcmp(nb_text_get(&l->text), nb_text_get(text));
}

/* Step s goes with the leaders there are, or leads. */
static bool place(nb_exec *e, int s, leader *all, int *n, int most)
{
    nb_card_step *k = &e->on_card[s];
    const nb_nest *x = e->plan->step[s].nest;
    nb_text text = {0};
    int i = 0;
    nb_text_add(&text, "%s", NB_CARD_JOINS);
    if (!nb_print_nests(&text, x, "kernel", ARGUMENTS, &k->how))
        return nb_text_free(&text), false;
    int64_t blocks = k->how.members ? nb_printed_blocks(&k->how, x) : 0;
    while (i < *n && !joins(e, &all[i], &text, blocks))
        i++;
    if (i < *n) {
        k->follows = true;
        nb_text_free(&text);
    } else {
        all[(*n)++] = (leader){.step = s, .text = text};
        k->with = nb_alloc((size_t)most * sizeof *k->with);
        if (!k->with) return false;
    }
    nb_card_step *first = &e->on_card[all[i].step];
    first->with[first->nwith++] = s;
    all[i].blocks += blocks;
    return true;
}

/* What members have for good: their numbers, and where their blocks begin. */
static bool find_arguments(nb_exec *e, const leader *l)
{
    nb_card_step *k = &e->on_card[l->step];
    const nb_nest *x = e->plan->step[l->step].nest;
    size_t each = nb_member_bytes(x);
    k->args = nb_alloc_zero(nb_members_bytes(&k->how, x));
    if (!k->args) return false;
    unsigned *first = (unsigned *)(k->args + (size_t)k->how.members * each);
    k->blocks = 0;
    for (int i = 0; i < k->how.members; i++) {
        first[i] = UINT_MAX;
        if (i >= k->nwith) continue;
        x = e->plan->step[k->with[i]].nest;
        int64_t *number = (int64_t *)(k->args + i * each) + x->nbuffers;
        number[NB_MEMBER_TOTAL] = nb_printed_units(&k->how, x);
        number[NB_MEMBER_CUT] = x->cut_size;
        first[i] = (unsigned)k->blocks;
        k->blocks += nb_printed_blocks(&k->how, x);
    }
    return true;
}

static bool finish(nb_exec *e, leader *l, nb_card_texts *to)
{
    nb_card_step *k = &e->on_card[l->step];
    if (k->nwith == 1) {
        k->nwith = 0;
        return nb_card_print_nest(e, l->step, to);
    }
    to->text[to->n] = l->text;
    l->text = (nb_text){0};
    to->step[to->n++] = l->step;
    return find_arguments(e, l);
}

bool nb_card_print_batch(nb_exec *e, int s, nb_card_texts *to)
{
    nb_life with = nb_plan_with(e->plan, s);
    int most = with.last - with.first + 1, n = 0;
    leader *all = nb_alloc_zero((size_t)most * sizeof *all);
    bool ok = all;
    for (int t = with.first; ok && t <= with.last; t++)
        ok = place(e, t, all, &n, most);
    for (int i = 0; ok && i < n; i++)
        ok = finish(e, &all[i], to);
    for (int i = 0; i < n; i++)
        nb_text_free(&all[i].text);
    nb_free(all);
    return ok;
}
