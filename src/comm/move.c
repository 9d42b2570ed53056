/* move.c - steps that reduce nothing: blocks of one layout become blocks of
 * another.
 *
 * The blocks of `from` cut the tensor into disjoint parts.  A device needs,
 * from each that its new block meets and that is not its own, what the two have
 * in common.  Within a group several devices may have the same block; those
 * that need it ask them in turn, so that everybody knows who serves whom. */
#include "comm/step.h"

#include "base/memory.h"
#include "comm/box.h"
#include "core/tensor.h"

/* A device of the group: the block that it has, by a number, and boxes. */
typedef struct party {
    int64_t block;
    nb_box from, into;
} party;

typedef struct moves {
    nb_task *t;
    party *at;
    int nsend, nrecv;
    nb_message *send, *recv; /* data NULL: where the box says, packed */
    nb_box *send_box, *recv_box;
    nb_buffer *room;
    char *packed; /* in it */
    size_t bytes;
    int64_t covered; /* elements of the new block that come from somewhere */
} moves;

static bool needs(const moves *m, int who, int block_owner, nb_box *part)
{
    const party *a = &m->at[who], *b = &m->at[block_owner];
    return a->block != b->block &&
           nb_box_meet(m->t->rank, &a->into, &b->from, part);
}

/* How many before i in the group have that block, or need it. */
static int owners(const moves *m, int64_t block, int i)
{
    int n = 0;
    for (int k = 0; k < i; k++)
        n += m->at[k].block == block;
    return n;
}

static int seekers(const moves *m, int owner, int i)
{
    nb_box part;
    int n = 0;
    for (int k = 0; k < i; k++)
        n += needs(m, k, owner, &part);
    return n;
}

static void plan_sends(moves *m)
{
    nb_task *t = m->t;
    int64_t block = m->at[t->index].block;
    int mine = owners(m, block, t->index), all = owners(m, block, t->n);
    for (int i = 0, turn = 0; i < t->n; i++) {
        nb_box *part = &m->send_box[m->nsend];
        if (!needs(m, i, t->index, part) || turn++ % all != mine) continue;
        size_t bytes = (size_t)nb_box_count(t->rank, part) * t->item;
        m->send[m->nsend++] = (nb_message){t->member[i], NULL, bytes};
    }
}

/* The owner of that block whose turn it is, after the first one, at i. */
static int server(const moves *m, int i)
{
    int64_t block = m->at[i].block;
    int turn = seekers(m, i, m->t->index) % owners(m, block, m->t->n);
    for (;; i++)
        if (m->at[i].block == block && turn-- == 0) return i;
}

static void plan_receives(moves *m)
{
    nb_task *t = m->t;
    for (int i = 0; i < t->n; i++) {
        nb_box *part = &m->recv_box[m->nrecv];
        if (!needs(m, t->index, i, part) || owners(m, m->at[i].block, i))
            continue;
        int64_t count = nb_box_count(t->rank, part);
        m->covered += count;
        m->recv[m->nrecv++] = (nb_message){t->member[server(m, i)], NULL,
                                           (size_t)count * t->item};
    }
}

/* Messages that lie in one piece go from and to where they are; the others get
 * a place each. */
static void place(const moves *m, nb_message *msg, const nb_box *part,
                  const nb_box *whole, const void *data, size_t *used)
{
    int64_t at;
    if (nb_box_is_run(m->t->rank, part, whole, &at)) {
        msg->data = (char *)data + (size_t)at * m->t->item;
        return;
    }
    if (m->packed) msg->data = m->packed + *used;
    *used += (msg->bytes + 63) / 64 * 64;
}

static size_t place_all(moves *m)
{
    nb_task *t = m->t;
    size_t used = 0;
    for (int i = 0; i < m->nsend; i++)
        place(m, &m->send[i], &m->send_box[i], &t->from, t->in, &used);
    for (int i = 0; i < m->nrecv; i++)
        place(m, &m->recv[i], &m->recv_box[i], &t->into, t->out, &used);
    return used;
}

static bool is_packed(const moves *m, const nb_message *msg)
{
    const char *p = msg->data;
    return m->packed && p >= m->packed && p < m->packed + m->bytes;
}

static bool pack(moves *m)
{
    nb_task *t = m->t;
    bool ok = true;
    for (int i = 0; ok && i < m->nsend; i++) {
        const nb_box *part = &m->send_box[i];
        if (is_packed(m, &m->send[i]))
            ok = nb_task_copy(t, part, &t->from, t->in, part, m->send[i].data);
    }
    return ok;
}

static bool unpack(moves *m)
{
    nb_task *t = m->t;
    bool ok = true;
    for (int i = 0; ok && i < m->nrecv; i++) {
        const nb_box *part = &m->recv_box[i];
        if (is_packed(m, &m->recv[i]))
            ok = nb_task_copy(t, part, part, m->recv[i].data, &t->into, t->out);
    }
    return ok;
}

/* What was here already. */
static bool keep_own(moves *m)
{
    nb_task *t = m->t;
    nb_box part;
    if (!nb_box_meet(t->rank, &t->from, &t->into, &part)) return true;
    m->covered += nb_box_count(t->rank, &part);
    return nb_task_copy(t, &part, &t->from, t->in, &t->into, t->out);
}

static bool communicate(moves *m)
{
    nb_task *t = m->t;
    nb_post post = {m->nsend, m->nrecv, m->send, m->recv, NULL};
    m->bytes = place_all(m);
    if (m->bytes) {
        m->room = nb_buffer_on(t->on, m->bytes);
        if (!m->room) return false;
        m->packed = m->room->data;
        place_all(m);
    }
    return pack(m) && nb_task_exchange(t, &post) && unpack(m);
}

static bool move(moves *m)
{
    nb_task *t = m->t;
    for (int i = 0; i < t->n; i++) {
        party *p = &m->at[i];
        const nb_spec *from = t->step->from;
        p->block = nb_spec_block(from, nb_task_position(t, from, t->member[i]));
        nb_task_box(t, from, t->member[i], &p->from);
        nb_hop_box(t->step, t->size,
                   nb_task_position(t, t->step->into, t->member[i]), &p->into);
    }
    plan_sends(m);
    plan_receives(m);
    if (!keep_own(m)) return false;
    if (m->covered != t->wanted)
        return nb_fail(NB_ERUNTIME,
                       "%s: %lld elements of device %d are on no device of its "
                       "group",
                       t->round.name, (long long)(t->wanted - m->covered),
                       t->me->position);
    return communicate(m);
}

bool nb_step_move(nb_task *t)
{
    size_t n = (size_t)t->n;
    moves m = {.t = t, .at = nb_alloc(n * sizeof(party))};
    m.send = nb_alloc(2 * n * sizeof(nb_message));
    m.send_box = nb_alloc(2 * n * sizeof(nb_box));
    bool ok = m.at && m.send && m.send_box;
    if (ok) {
        m.recv = m.send + n;
        m.recv_box = m.send_box + n;
        ok = move(&m);
    }
    nb_buffer_drop(m.room);
    nb_free(m.at);
    nb_free(m.send);
    nb_free(m.send_box);
    return ok;
}
