/* moves.c - what can be done with a layout in one step. */
#include "shard/plan/deal.h"
#include "shard/plan/settle.h"

#include <string.h>

typedef struct mover {
    const nb_reshard_task *task;
    const nb_deal *from;
    const nb_hop *last;
    bool directed;
    nb_move_visit *visit;
    void *ctx;
} mover;

static bool emit(mover *m, nb_hop_kind kind, int dim, int to,
                 const nb_cut *axes, const nb_deal *next)
{
    nb_hop move = {.kind = kind,
                   .dim = dim < 0 ? -1 : m->task->dim[dim],
                   .to = to < 0 ? -1 : m->task->dim[to],
                   .axes = *axes};
    return m->visit(m->ctx, next, &move);
}

/* The atoms as a list; false if it would be too long to write. */
static bool list(const nb_reshard_task *t, const uint8_t *atom, int n,
                 nb_cut *l)
{
    l->n = 0;
    for (int i = 0; i < n; i++)
        if (!nb_cut_add(l, t->atom[atom[i]])) return false;
    return true;
}

static bool list_bits(const nb_reshard_task *t, uint16_t bits, nb_cut *l)
{
    uint8_t atom[NB_ATOMS];
    int n = 0;
    for (int k = 0; k < t->natoms; k++)
        if (bits >> k & 1) atom[n++] = (uint8_t)k;
    return list(t, atom, n, l);
}

static bool belongs(const mover *m, const uint8_t *atom, int n, int d)
{
    for (int i = 0; m->directed && i < n; i++)
        if (m->task->home[atom[i]] != d) return false;
    return true;
}

/* Slices of several dims go in the order of these, whatever comes of it is the
 * same. */
static bool is_late(const mover *m, int d)
{
    return m->last && m->last->kind == NB_HOP_SLICE &&
           m->task->dim[d] < m->last->dim && !m->task->options.memory;
}

static bool slices(mover *m)
{
    uint16_t used = nb_deal_used(m->from);
    for (int k = 0; k < m->task->natoms; k++) {
        uint8_t atom = (uint8_t)k;
        nb_cut axes = {1, {m->task->atom[k]}};
        if (used >> k & 1) continue;
        for (int d = 0; d < m->task->ndims; d++) {
            nb_deal next = *m->from;
            if (is_late(m, d) || !belongs(m, &atom, 1, d)) continue;
            nb_deal_add(&next, d, &atom, 1);
            if (!emit(m, NB_HOP_SLICE, d, -1, &axes, &next)) return false;
        }
    }
    return true;
}

/* What can be done with the last k atoms of a dim. */
static bool suffix(mover *m, int d, int k)
{
    const uint8_t *atom = m->from->at + nb_deal_first(m->from, d + 1) - k;
    nb_deal cut = *m->from;
    nb_cut axes;
    uint16_t bits = 0;
    if (!list(m->task, atom, k, &axes)) return true;
    nb_deal_cut(&cut, d, k);
    if (!emit(m, NB_HOP_ALL_GATHER, d, -1, &axes, &cut)) return false;
    for (int e = 0; e < m->task->ndims; e++) {
        nb_deal next = cut;
        if (axes.n > 1 && !m->task->options.wide) break;
        if (e == d || !belongs(m, atom, k, e)) continue;
        nb_deal_add(&next, e, atom, k);
        if (!emit(m, NB_HOP_ALL_TO_ALL, d, e, &axes, &next)) return false;
    }
    for (int i = 0; i < k; i++)
        bits |= (uint16_t)(1 << atom[i]);
    if ((bits & m->task->goal.pending) != bits) return true;
    if (m->from->pending && !m->from->turned) return true;
    cut.pending |= bits;
    cut.turned = 1;
    return emit(m, NB_HOP_UNREDUCE, d, -1, &axes, &cut);
}

static bool suffixes(mover *m)
{
    for (int d = 0; d < m->task->ndims; d++)
        for (int k = 1; k <= m->from->n[d]; k++)
            if (!suffix(m, d, k)) return false;
    return true;
}

/* All ways to append some of the pending atoms to a dim. */
static bool scatter(mover *m, int d, uint8_t *atom, int n)
{
    uint16_t taken = 0;
    for (int i = 0; i < n; i++)
        taken |= (uint16_t)(1 << atom[i]);
    nb_cut axes;
    if (n && list(m->task, atom, n, &axes)) {
        nb_deal next = *m->from;
        nb_deal_add(&next, d, atom, n);
        next.pending &= (uint16_t)~taken;
        if (!emit(m, NB_HOP_REDUCE_SCATTER, d, -1, &axes, &next)) return false;
    }
    for (int k = 0; k < m->task->natoms; k++) {
        atom[n] = (uint8_t)k;
        if (!(m->from->pending & ~taken & 1 << k)) continue;
        if (!belongs(m, atom + n, 1, d)) continue;
        if (!scatter(m, d, atom, n + 1)) return false;
    }
    return true;
}

static bool reductions(mover *m)
{
    uint16_t pending = m->from->pending;
    uint8_t atom[NB_ATOMS + 1];
    if (!pending || m->from->turned) return true;
    for (int d = 0; d < m->task->ndims; d++)
        if (!scatter(m, d, atom, 0)) return false;
    for (uint16_t bits = pending; bits; bits = (bits - 1) & pending) {
        nb_deal next = *m->from;
        nb_cut axes;
        next.pending &= (uint16_t)~bits;
        if (list_bits(m->task, bits, &axes) &&
            !emit(m, NB_HOP_ALL_REDUCE, -1, -1, &axes, &next))
            return false;
    }
    return true;
}

static bool unreduce(mover *m)
{
    uint16_t bits = m->task->goal.pending & (uint16_t)~nb_deal_used(m->from);
    nb_deal next = *m->from;
    nb_cut axes;
    if (!bits || (m->from->pending && !m->from->turned)) return true;
    next.pending |= bits;
    next.turned = 1;
    return !list_bits(m->task, bits, &axes) ||
           emit(m, NB_HOP_UNREDUCE, -1, -1, &axes, &next);
}

/* Number of blocks that are counted within one of the i-th atom of a dim. */
static int64_t stride(const nb_reshard_task *t, const nb_deal *l, int d, int i)
{
    const uint8_t *at = l->at + nb_deal_first(l, d);
    int64_t n = 1;
    while (++i < l->n[d])
        n *= t->atom[at[i]].size;
    return n;
}

/* Atoms of a that are not in the same dim with the same stride in b: those on
 * which the block of a device depends otherwise. */
static uint16_t changed(const nb_reshard_task *t, const nb_deal *a,
                        const nb_deal *b, int *dim)
{
    uint16_t bits = 0;
    for (int d = 0; d < t->ndims; d++)
        for (int i = 0; i < a->n[d]; i++) {
            uint8_t k = a->at[nb_deal_first(a, d) + i];
            bool same = false;
            for (int j = 0; j < b->n[d]; j++)
                same |= b->at[nb_deal_first(b, d) + j] == k &&
                        stride(t, a, d, i) == stride(t, b, d, j);
            if (same) continue;
            bits |= (uint16_t)(1 << k);
            *dim = *dim == -1 || *dim == d ? d : -2;
        }
    return bits;
}

static bool permuted(mover *m, const nb_deal *next)
{
    int dim = -1;
    uint16_t bits = changed(m->task, m->from, next, &dim);
    nb_cut axes;
    bits |= changed(m->task, next, m->from, &dim);
    return !bits || !list_bits(m->task, bits, &axes) ||
           emit(m, NB_HOP_PERMUTE, dim < 0 ? -1 : dim, -1, &axes, next);
}

/* Whether one of the two lists of the dim begins with the other. */
static bool leads_home(const nb_reshard_task *t, const nb_deal *l, int d)
{
    int n = l->n[d] < t->goal.n[d] ? l->n[d] : t->goal.n[d];
    return memcmp(l->at + nb_deal_first(l, d),
                  t->goal.at + nb_deal_first(&t->goal, d), (size_t)n) == 0;
}

/* Fills dims from d on, with `left` blocks still to be made in d, by all atoms
 * that are not in `used`. */
static bool fill(mover *m, nb_deal *next, int d, int64_t left, uint16_t used)
{
    if (d == m->task->ndims) return permuted(m, next);
    if (left == 1) {
        if (m->directed && !leads_home(m->task, next, d)) return true;
        int64_t n = 1;
        if (d + 1 < m->task->ndims && m->from->n[d + 1])
            n = stride(m->task, m->from, d + 1, -1);
        return fill(m, next, d + 1, n, used);
    }
    for (int k = 0; k < m->task->natoms; k++) {
        uint8_t atom = (uint8_t)k;
        int size = m->task->atom[k].size;
        if (used >> k & 1 || left % size) continue;
        nb_deal more = *next;
        nb_deal_add(&more, d, &atom, 1);
        if (!fill(m, &more, d, left / size, used | (uint16_t)(1 << k)))
            return false;
    }
    return true;
}

static bool permutations(mover *m)
{
    nb_deal next = {{0}, {0}, m->from->pending, m->from->turned};
    if (!m->task->ndims) return true;
    if (m->last && m->last->kind == NB_HOP_PERMUTE) return true;
    int64_t n = m->from->n[0] ? stride(m->task, m->from, 0, -1) : 1;
    return fill(m, &next, 0, n, m->from->pending);
}

/* Straight to the goal. */
static bool exchange(mover *m)
{
    const nb_reshard_task *t = m->task;
    nb_cut all;
    if (!t->options.exchange || t->goal.pending || m->from->turned ||
        !nb_reshard_all_axes(t, &all))
        return true;
    if (!m->from->pending)
        return emit(m, NB_HOP_EXCHANGE, -1, -1, &all, &t->goal);
    return nb_cut_count(&all) > NB_SETTLING_DEVICES ||
           emit(m, NB_HOP_REDUCE_EXCHANGE, -1, -1, &all, &t->goal);
}

bool nb_deal_moves(const nb_reshard_task *t, const nb_deal *l,
                   const nb_hop *last, bool directed, nb_move_visit *visit,
                   void *ctx)
{
    mover m = {t, l, last, directed, visit, ctx};
    return slices(&m) && suffixes(&m) && permutations(&m) && reductions(&m) &&
           unreduce(&m) && exchange(&m);
}
