/* settle.c - pending blocks become blocks of another layout in one step.
 *
 * In a first round every device receives the addends of what it adds up, in a
 * second one the sums that others have added up for it; who does what is
 * settled by shard/plan/settle.h.  Pieces are packed one after another, before
 * and after, so that what one device adds up of a piece lies in one run. */
#include "comm/step.h"

#include "base/memory.h"
#include "comm/memory.h"
#include "shard/plan/settle.h"

typedef struct settle {
    nb_task *t;
    nb_settling s;
    int nsend, nrecv, send_room, recv_room;
    nb_message *send, *recv;
    const void **seen;
    char **in, **sum; /* by piece: what is here of it; the sum, or what is
                          * added up of it here; NULL: nothing */
    nb_buffer *room[2];
    char *packed, *came; /* in them: in, sum; addends of others */
} settle;

static const nb_party *me(const settle *x)
{
    return &x->s.party[x->t->index];
}

static int64_t share(const settle *x, int k, int i)
{
    return x->s.share[(size_t)k * (size_t)x->s.n + (size_t)i];
}

static size_t span(const settle *x, int64_t count)
{
    return ((size_t)count * x->t->item + 63) / 64 * 64;
}

/* What comes first of a piece's sum here: all of it, or this device's share. */
static int64_t sum_start(const settle *x, int k)
{
    bool all = me(x)->wants == x->s.piece[k].wants;
    return all ? 0 : nb_settling_start(&x->s, k, x->t->index);
}

static bool post(nb_message **list, int *n, int *room, nb_message m)
{
    if (!nb_grow(list, room, *n + 1, sizeof **list)) return false;
    (*list)[(*n)++] = m;
    return true;
}

/* To or from member i; `first` elements into data. */
static nb_message message(const settle *x, int i, char *data, int64_t first,
                          int64_t count)
{
    size_t item = x->t->item;
    return (nb_message){x->t->member[i], data + (size_t)first * item,
                        (size_t)count * item};
}

/* Places of all pieces, behind one another; first without memory. */
static size_t place(settle *x)
{
    size_t used = 0;
    for (int k = 0; k < x->s.npieces; k++) {
        const nb_piece *p = &x->s.piece[k];
        int64_t mine = share(x, k, x->t->index);
        bool has = me(x)->has == p->has, wants = me(x)->wants == p->wants;
        if (has && x->packed) x->in[k] = x->packed + used;
        if (has) used += span(x, p->count);
        if ((wants || mine) && x->packed) x->sum[k] = x->packed + used;
        if (wants || mine) used += span(x, wants ? p->count : mine);
    }
    return used;
}

static size_t addend_bytes(const settle *x)
{
    size_t used = 0;
    for (int k = 0; k < x->s.npieces; k++)
        used += span(x, share(x, k, x->t->index)) * (size_t)x->s.naddends;
    return used;
}

static bool make_room(settle *x)
{
    size_t pieces = (size_t)x->s.npieces + 1;
    x->in = nb_alloc_zero(2 * pieces * sizeof *x->in);
    x->seen = nb_alloc((size_t)x->s.naddends * sizeof *x->seen);
    if (!x->in || !x->seen) return false;
    x->sum = x->in + pieces;
    x->room[0] = nb_buffer_on(x->t->on, place(x) + 1);
    x->room[1] = nb_buffer_on(x->t->on, addend_bytes(x) + 1);
    if (!x->room[0] || !x->room[1]) return false;
    x->packed = x->room[0]->data;
    x->came = x->room[1]->data;
    place(x);
    return true;
}

static void free_room(settle *x)
{
    nb_buffer_drop(x->room[0]);
    nb_buffer_drop(x->room[1]);
    nb_free(x->in);
    nb_free(x->seen);
    nb_free(x->send);
    nb_free(x->recv);
    nb_settling_close(&x->s);
}

static bool pack(settle *x)
{
    nb_task *t = x->t;
    bool ok = true;
    for (int k = 0; ok && k < x->s.npieces; k++) {
        const nb_box *box = &x->s.piece[k].box;
        if (x->in[k]) ok = nb_task_copy(t, box, &t->from, t->in, box, x->in[k]);
    }
    return ok;
}

/* Addend a of what this device adds up of piece k, behind those before. */
static char *addend_at(const settle *x, char *came, int k, int a)
{
    return came + span(x, share(x, k, x->t->index)) * (size_t)a;
}

static bool post_addends(settle *x)
{
    int own = x->t->index;
    char *came = x->came;
    for (int k = 0; k < x->s.npieces; k++) {
        int64_t mine = share(x, k, own);
        for (int i = 0; x->in[k] && i < x->s.n; i++)
            if (i != own && share(x, k, i) &&
                nb_settling_server(&x->s, k, me(x)->addend, i) == own &&
                !post(&x->send, &x->nsend, &x->send_room,
                      message(x, i, x->in[k], nb_settling_start(&x->s, k, i),
                              share(x, k, i))))
                return false;
        for (int a = 0; mine && a < x->s.naddends; a++) {
            int i = nb_settling_server(&x->s, k, a, own);
            if (i != own &&
                !post(&x->recv, &x->nrecv, &x->recv_room,
                      message(x, i, addend_at(x, came, k, a), 0, mine)))
                return false;
        }
        came = addend_at(x, came, k, x->s.naddends);
    }
    return true;
}

static bool combine(settle *x)
{
    nb_task *t = x->t;
    char *came = x->came;
    bool ok = true;
    for (int k = 0; ok && k < x->s.npieces; k++) {
        int64_t mine = share(x, k, t->index);
        int64_t start = nb_settling_start(&x->s, k, t->index);
        for (int a = 0; mine && a < x->s.naddends; a++)
            x->seen[a] = nb_settling_server(&x->s, k, a, t->index) == t->index
                             ? x->in[k] + (size_t)start * t->item
                             : addend_at(x, came, k, a);
        if (mine)
            ok = nb_blocks_combine(
                t->on, t->dtype, t->step->from->kind, x->s.naddends, x->seen,
                mine, x->sum[k] + (size_t)(start - sum_start(x, k)) * t->item);
        came = addend_at(x, came, k, x->s.naddends);
    }
    return ok;
}

static bool post_sums(settle *x)
{
    int own = x->t->index;
    x->nsend = x->nrecv = 0;
    for (int k = 0; k < x->s.npieces; k++) {
        int64_t start = nb_settling_start(&x->s, k, own) - sum_start(x, k);
        int64_t wants = x->s.piece[k].wants, mine = share(x, k, own);
        for (int i = 0; i < x->s.n; i++) {
            if (i == own) continue;
            if (mine && x->s.party[i].wants == wants &&
                !post(&x->send, &x->nsend, &x->send_room,
                      message(x, i, x->sum[k], start, mine)))
                return false;
            if (me(x)->wants == wants && share(x, k, i) &&
                !post(&x->recv, &x->nrecv, &x->recv_room,
                      message(x, i, x->sum[k], nb_settling_start(&x->s, k, i),
                              share(x, k, i))))
                return false;
        }
    }
    return true;
}

static bool unpack(settle *x)
{
    nb_task *t = x->t;
    bool ok = true;
    for (int k = 0; ok && k < x->s.npieces; k++) {
        const nb_piece *p = &x->s.piece[k];
        if (me(x)->wants == p->wants)
            ok = nb_task_copy(t, &p->box, &p->box, x->sum[k], &t->into, t->out);
    }
    return ok;
}

static bool round_of(settle *x)
{
    nb_post p = {x->nsend, x->nrecv, x->send, x->recv, NULL};
    return nb_task_exchange(x->t, &p);
}

bool nb_step_reduce_exchange(nb_task *t)
{
    settle x = {.t = t};
    if (!nb_settling_open(&x.s, t->step, t->size,
                          nb_task_position(t, t->step->from, t->me->position),
                          true))
        return false;
    bool ok = make_room(&x) && pack(&x) && post_addends(&x) && round_of(&x) &&
              combine(&x) && post_sums(&x) && round_of(&x) && unpack(&x);
    free_room(&x);
    return ok;
}
