/* partial.c - which pending reductions an op carries through to its result.
 *
 * A sum over devices may be taken after a linear op as well as before it; a
 * maximum after an op that only moves elements or never falls, and as a minimum
 * after one that never rises.  Anything else needs the reduced value. */
#include "shard/decide/partial.h"

static bool is_fixed(const nb_op *op, int t)
{
    return t < 32 && (op->fixed | op->index | op->mask) >> t & 1;
}

static bool only_moves(const nb_op *op)
{
    return op->view || op->dim_of || op->in_order;
}

/* Rounding must come after adding up. */
static bool widens(const nb_call *c)
{
    static const uint8_t bits[NB_NDTYPES] = {
        [NB_F16] = 11, [NB_BF16] = 8, [NB_F32] = 24, [NB_F64] = 53};
    if (!c->out || c->op->scalar != NB_S_copy || c->nin != 1) return true;
    nb_dtype from = (nb_dtype)c->in[0]->dtype, to = (nb_dtype)c->out->dtype;
    if (from == to) return true;
    if (nb_dtype_is_float(from))
        return bits[to] >= bits[from] && !(from == NB_BF16 && to == NB_F16);
    return nb_dtype_is_integer(from) && nb_dtype_is_integer(to) &&
           nb_dtype_size(to) >= nb_dtype_size(from);
}

/* Numbers without a sign, and the least with one, have no negative. */
static bool keeps_order(const nb_call *c)
{
    return c->nin == 1 && c->op->rises &&
           (c->op->rises > 0 || nb_dtype_is_float((nb_dtype)c->in[0]->dtype));
}

static bool is_extreme(nb_reduce kind)
{
    return kind == NB_MAX || kind == NB_MIN;
}

nb_reduce nb_call_turns(const nb_call *c, nb_reduce kind)
{
    if (c->op->rises >= 0 || !is_extreme(kind)) return kind;
    return kind == NB_MAX ? NB_MIN : NB_MAX;
}

/* The greater of two of which all have a part: of each by itself. */
static bool is_same_choice(const nb_op *op, nb_reduce kind)
{
    return (op->scalar == NB_S_max && kind == NB_MAX) ||
           (op->scalar == NB_S_min && kind == NB_MIN);
}

static bool has(const nb_work *w, int t, nb_axis a, nb_reduce kind)
{
    const nb_spec *s = w->from[t];
    if (s->kind != kind) return false;
    for (int i = 0; i < s->partial.n; i++)
        if (nb_axis_equal(s->partial.at[i], a)) return true;
    return false;
}

static bool is_wanted(const nb_work *w, nb_axis a)
{
    for (int i = 0; i < w->pending.n; i++)
        if (nb_axis_equal(w->pending.at[i], a)) return true;
    return false;
}

/* Linear in all that is not fixed, together: all must carry, or be made to. */
static bool all_carry(const nb_work *w, nb_axis a, nb_reduce kind)
{
    bool wanted = kind == NB_SUM && is_wanted(w, a);
    for (int t = 0; t < w->f->nin; t++)
        if (has(w, t, a, kind) ? is_fixed(w->call->op, t)
                               : !wanted && !is_fixed(w->call->op, t))
            return false;
    return true;
}

/* Linear in some, each by itself: the operand with most to reduce keeps it. */
static int largest(const nb_work *w, nb_axis a, nb_reduce kind, unsigned of)
{
    int best = -1;
    int64_t most = -1;
    for (int t = 0; t < w->f->nin; t++) {
        int64_t n = nb_spec_elements(w->from[t], w->f->tensor[t].size);
        for (int u = 0; u < t; u++) /* reduced for one, it is for both */
            if (w->call->in[t] == w->call->in[u]) return -1;
        if (!has(w, t, a, kind) || n <= most) continue;
        if (t >= 32 || !(of >> t & 1)) return -1;
        best = t;
        most = n;
    }
    return best;
}

/* Whether operand t keeps axis a pending, that is not used by the op. */
static bool carries(const nb_work *w, int t, nb_axis a, nb_reduce kind)
{
    const nb_op *op = w->call->op;
    if (only_moves(op)) return t == 0;
    if (op->reduce == kind && kind != NB_SUM && w->f->nin == 1) return true;
    if (is_extreme(kind) && keeps_order(w->call)) return true;
    if (is_same_choice(op, kind)) return all_carry(w, a, kind);
    if (kind != NB_SUM) return false;
    if (op->kind == NB_LINEAR) return all_carry(w, a, kind) && widens(w->call);
    if (op->kind == NB_MULTILINEAR) return largest(w, a, kind, ~0u) == t;
    return largest(w, a, kind, op->linear | op->carries) == t;
}

bool nb_call_carries(const nb_call *c, int t)
{
    const nb_op *op = c->op;
    if (only_moves(op)) return t == 0;
    if (op->kind == NB_LINEAR) return !is_fixed(op, t) && widens(c);
    if (op->kind == NB_MULTILINEAR) return true;
    return t < 32 && (op->linear | op->carries) >> t & 1;
}

static bool is_used(const nb_work *w, nb_axis a)
{
    for (int k = 0; k < w->f->n; k++)
        if (nb_cut_has(&w->axes[k], a)) return true;
    return false;
}

/* One kind a tensor: that of what the op itself leaves pending, else that of
 * the first operand. */
static nb_reduce kind_of(const nb_work *w)
{
    const nb_factors *f = w->f;
    for (int k = 0; k < f->n; k++)
        if (f->reduced[k] && w->axes[k].n) return (nb_reduce)f->reduce[k];
    for (int t = 0; t < f->nin; t++)
        if (w->from[t]->partial.n) return w->from[t]->kind;
    return NB_SUM;
}

static bool add(nb_cut *l, nb_axis a)
{
    for (int i = 0; i < l->n; i++)
        if (nb_axis_equal(l->at[i], a)) return true;
    if (l->n == NB_MESH_AXES)
        return nb_fail(NB_EVALUE, "sharding: more than %d axes are pending",
                       NB_MESH_AXES);
    l->at[l->n++] = a;
    return true;
}

/* Another operand carries a part of it, or it a part of that: one of them must
 * be reduced. */
static bool clashes(const nb_cut *l, nb_axis a)
{
    for (int i = 0; i < l->n; i++)
        if (nb_axis_overlap(l->at[i], a) && !nb_axis_equal(l->at[i], a))
            return true;
    return false;
}

/* Where devices have parts of a sum, what is added to it is added once: an
 * operand without the factor is there on one of them. */
static bool counted_once(const nb_work *w, int t, int k)
{
    const nb_op *op = w->call->op;
    return op->kind == NB_LINEAR && w->f->nin > 1 && w->f->reduced[k] &&
           w->f->reduce[k] == NB_SUM && !is_fixed(op, t) &&
           !nb_factored_has(&w->f->tensor[t], k);
}

/* What one operand carries by wish all have a part of: one has it all. */
static bool lift(const nb_work *w, nb_cut *operand, const nb_cut *result,
                 nb_reduce kind)
{
    const nb_op *op = w->call->op;
    bool ok = true;
    if (!w->pending.n || op->kind != NB_LINEAR || kind != NB_SUM) return true;
    for (int i = 0; i < result->n; i++)
        for (int t = 0; ok && t < w->f->nin; t++)
            if (is_wanted(w, result->at[i]) && !is_fixed(op, t))
                ok = add(&operand[t], result->at[i]);
    return ok;
}

bool nb_work_partials(const nb_work *w, nb_cut *operand, nb_cut *result,
                      nb_reduce *kind)
{
    const nb_factors *f = w->f;
    bool ok = true;
    result->n = 0;
    *kind = kind_of(w);
    for (int t = 0; t < f->nin; t++) {
        const nb_cut *p = &w->from[t]->partial;
        operand[t].n = 0;
        for (int i = 0; ok && i < p->n; i++)
            if (w->from[t]->kind == *kind && !is_used(w, p->at[i]) &&
                carries(w, t, p->at[i], *kind) && !clashes(result, p->at[i]))
                ok = add(&operand[t], p->at[i]) && add(result, p->at[i]);
        for (int k = 0; ok && k < f->n; k++)
            for (int i = 0; ok && counted_once(w, t, k) && i < w->axes[k].n;
                 i++)
                ok = add(&operand[t], w->axes[k].at[i]);
    }
    ok = ok && lift(w, operand, result, *kind);
    for (int k = 0; ok && k < f->n; k++)
        for (int i = 0; ok && f->reduced[k] && i < w->axes[k].n; i++)
            ok = add(result, w->axes[k].at[i]);
    return ok;
}
