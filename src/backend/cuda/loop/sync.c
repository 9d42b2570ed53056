/* sync.c - where the threads of the block wait for each other.
 *
 * Memory that was written since the last wait is not read or written, and what
 * was read is not written, before the next.  The turn of a loop follows the one
 * before it, halves changed, so its list is gone through twice. */
#include "backend/cuda/loop/solo.h"

#include <string.h>

typedef struct touch {
    int slot;
    bool next, writes;
} touch;

typedef struct pending {
    touch *at;
    int n, room;
    bool failed;
} pending;

static bool matters(const nb_solo *s, int slot)
{
    return !s->slot[slot].constant && s->slot[slot].space != NB_SOLO_ALIKE;
}

static bool meets(const pending *p, const touch *t)
{
    for (int k = 0; k < p->n; k++)
        if (p->at[k].slot == t->slot && p->at[k].next == t->next &&
            (p->at[k].writes || t->writes))
            return true;
    return false;
}

static void add(pending *p, touch t)
{
    for (int k = 0; k < p->n; k++)
        if (!memcmp(&p->at[k], &t, sizeof t)) return;
    if (nb_grow(&p->at, &p->room, p->n + 1, sizeof t))
        p->at[p->n++] = t;
    else
        p->failed = true;
}

static void add_all(pending *p, const pending *more)
{
    for (int k = 0; k < more->n; k++)
        add(p, more->at[k]);
    p->failed = p->failed || more->failed;
}

static touch touch_of(const nb_solo_at *at, bool writes)
{
    touch t;
    memset(&t, 0, sizeof t);
    t.slot = at->slot;
    t.next = at->next;
    t.writes = writes;
    return t;
}

/* What a nest touches. */
static void touches(const nb_solo *s, const nb_solo_item *i, pending *to)
{
    for (int k = 0; k < i->nest->n; k++) {
        const nb_nest_value *v = &i->nest->value[k];
        if (!nb_nest_in_memory(v)) continue;
        const nb_solo_at *at = &i->block[v->buffer];
        if (matters(s, at->slot))
            add(to, touch_of(at, v->kind == NB_NEST_STORE));
    }
}

/* Something that touches these begins; true if it has to wait. */
static bool begin(pending *p, const pending *now)
{
    bool waits = false;
    for (int k = 0; k < now->n; k++)
        waits = waits || meets(p, &now->at[k]);
    if (waits) p->n = 0;
    add_all(p, now);
    return waits;
}

static bool read_flag(const nb_solo *s, const nb_solo_at *flag, pending *p)
{
    pending now = {0};
    if (matters(s, flag->slot)) add(&now, touch_of(flag, false));
    bool waits = begin(p, &now);
    nb_free(now.at);
    return waits;
}

static void change_halves(const nb_solo *s, int loop, pending *p)
{
    for (int k = 0; k < p->n; k++)
        if (s->slot[p->at[k].slot].loop == loop) p->at[k].next ^= true;
}

static void go_through(const nb_solo *s, nb_solo_list *l, pending *p);

/* All wait before the first turn, so that no turn has to because of what was
 * before. */
static void loop(const nb_solo *s, nb_solo_item *i, pending *p)
{
    bool open = i->length < 0;
    i->waits = i->waits || p->n;
    p->n = 0;
    for (int turn = 0; turn < 2; turn++) {
        go_through(s, &i->first, p);
        if (open && read_flag(s, &i->flag, p)) i->waits_flag = true;
        go_through(s, &i->second, p);
        change_halves(s, i->loop, p);
    }
    go_through(s, &i->first, p);
    if (open && read_flag(s, &i->flag, p)) i->waits_flag = true;
}

static void branch(const nb_solo *s, nb_solo_item *i, pending *p)
{
    pending other = {0};
    if (read_flag(s, &i->flag, p)) i->waits = true;
    add_all(&other, p);
    go_through(s, &i->first, p);
    go_through(s, &i->second, &other);
    add_all(p, &other);
    nb_free(other.at);
}

/* Teams of the whole block meet in memory of their own. */
static bool is_whole_block(const nb_solo *s, const nb_solo_item *i)
{
    return i->w.team > 32 && i->w.team == s->threads;
}

static void go_through(const nb_solo *s, nb_solo_list *l, pending *p)
{
    for (int k = 0; k < l->n; k++) {
        nb_solo_item *i = &l->item[k];
        pending now = {0};
        if (i->kind == NB_SOLO_LOOP) loop(s, i, p);
        if (i->kind == NB_SOLO_BRANCH) branch(s, i, p);
        if (i->kind != NB_SOLO_NEST) continue;
        touches(s, i, &now);
        if (i->waits || is_whole_block(s, i)) {
            i->waits = true;
            p->n = 0;
        }
        if (begin(p, &now)) i->waits = true;
        nb_free(now.at);
    }
}

bool nb_solo_sync(nb_solo *s)
{
    pending p = {0};
    go_through(s, &s->list, &p);
    nb_free(p.at);
    return !p.failed;
}
