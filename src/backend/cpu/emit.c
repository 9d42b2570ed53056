/* emit.c - writing the code of a nest.
 *
 * A unit: for each pass, first what no loop changes, then the loops over the
 * inner axes.  What varies along the vector axis is written once a vector that
 * is at work at a time (a copy); all else once. */
#include "backend/cpu/emit.h"

#include "backend/cpu/emit_point.h"
#include "backend/cpu/scalar.h"

#include <string.h>

typedef struct emitter {
    nb_ir *ir;
    const nb_nest *x;
    nb_walk w;
    nb_v buffers, scratch, from, to;
    nb_v *buffer;               /* by number */
    nb_v *base;                 /* by value: where a unit's access begins */
    nb_v i[NB_MAX_NEST_AXES];   /* the point; of the vector axis, its start */
    nb_v *value[NB_MAX_COPIES]; /* by value */
    int lanes, copies;          /* now: tails have fewer */
    const nb_v *mask;           /* of the one copy of a tail */
    nb_v *total;                /* accumulators: copies of each reduction */
    nb_v *single;               /* of a tail without masks, one number each */
    int *reduce, nreduce;       /* those of the pass */
    nb_v tile_from, tile_to;    /* of the tiled axis in the unit */
    nb_v *param;                /* of a nest for any sizes */
    nb_v kept_bytes;            /* that one kept value takes */
} emitter;

static nb_v i64(int64_t n)
{
    return nb_ir_int(NB_IR_I64, n);
}

static nb_v plus(emitter *e, nb_v a, nb_v b)
{
    if (!a.id && a.bits == 0 && a.lanes == 1) return b;
    if (!b.id && b.bits == 0 && b.lanes == 1) return a;
    return nb_ir_op2(e->ir, "add nsw", a, b);
}

static nb_v times(emitter *e, nb_v a, nb_v n)
{
    if (!n.id && n.bits == 0) return i64(0);
    if (!n.id && n.bits == 1) return a;
    return nb_ir_op2(e->ir, "mul nsw", a, n);
}

/* A number of the nest: known now, or a parameter. */
static nb_v number(const emitter *e, int slot)
{
    if (nb_nest_varies(e->x, slot)) return e->param[e->x->param[slot]];
    return i64(*nb_nest_number(e->x, slot));
}

static nb_v size_of(const emitter *e, int a)
{
    return number(e, a);
}

/* The same where code differs by it: -1 is any size. */
static int64_t known_size(const emitter *e, int a)
{
    return nb_nest_varies(e->x, a) ? -1 : e->x->size[a];
}

/* i times the stride of value k along an axis. */
static nb_v stepped(emitter *e, nb_v i, int k, int a)
{
    return times(e, i, number(e, nb_slot_stride(k, a)));
}

static nb_irt memory_type(nb_dtype d)
{
    return nb_irt_in_memory(d);
}

/* How far axis a goes in this unit. */
static nb_v bound_of(emitter *e, int a)
{
    nb_v size = size_of(e, a);
    if (!e->x->cut || a != e->x->cut) return size;
    nb_v left = nb_ir_op2(e->ir, "sub", number(e, NB_SLOT_CUT),
                          times(e, e->i[0], size));
    nb_v more = nb_ir_compare(e->ir, "icmp sgt", left, size);
    nb_v none = nb_ir_compare(e->ir, "icmp slt", left, i64(0));
    return nb_ir_select(e->ir, none, i64(0),
                        nb_ir_select(e->ir, more, size, left));
}

/* The index of a vector's first element beyond its unit's base. */
static nb_v index_of(emitter *e, int k, int copy)
{
    const nb_walk *w = &e->w;
    const nb_nest_value *v = &e->x->value[k];
    nb_v at = i64(0);
    for (int j = 0; j < w->nloops; j++)
        if (w->loop[j] != w->vector)
            at = plus(e, at, stepped(e, e->i[w->loop[j]], k, w->loop[j]));
    if (w->vector < 0 || !v->stride[w->vector]) return at;
    nb_v start = plus(e, e->i[w->vector], i64((int64_t)copy * e->lanes));
    return plus(e, at, stepped(e, start, k, w->vector));
}

/* What each lane lies beyond the first. */
static nb_v each_lane(emitter *e, int k)
{
    return nb_ir_op2(e->ir, "mul nsw", nb_ir_iota(e->ir, NB_IR_I64, e->lanes),
                     number(e, nb_slot_stride(k, e->w.vector)));
}

static nb_v from_memory(emitter *e, nb_v x, nb_dtype d)
{
    if (d != NB_BOOL) return x;
    return nb_ir_compare(e->ir, "icmp ne", x, nb_ir_int(NB_IR_I8, 0));
}

/* A vector that ends at `at`, and runs down from there. */
static nb_v low_end(emitter *e, nb_v at, nb_dtype d)
{
    return nb_ir_at(e->ir, at, memory_type(d), i64(1 - e->lanes));
}

static nb_v load_back(emitter *e, nb_v at, nb_dtype d)
{
    nb_v mask = e->mask ? nb_ir_reverse(e->ir, *e->mask) : i64(0);
    nb_v x = nb_emit_load(e->ir, low_end(e, at, d), d, e->lanes,
                          e->mask ? &mask : NULL);
    return nb_ir_reverse(e->ir, x);
}

static void store_back(emitter *e, nb_v at, nb_dtype d, nb_v x)
{
    nb_v mask = e->mask ? nb_ir_reverse(e->ir, *e->mask) : i64(0);
    nb_emit_store(e->ir, low_end(e, at, d), d, nb_ir_reverse(e->ir, x),
                  e->mask ? &mask : NULL);
}

static nb_v emit_load(emitter *e, int k, int copy)
{
    const nb_nest_value *v = &e->x->value[k];
    int64_t stride = e->w.vector < 0 ? 0 : v->stride[e->w.vector];
    nb_irt type = memory_type(v->stored);
    nb_v at = nb_ir_at(e->ir, e->base[k], type, index_of(e, k, copy)), x;
    if (stride == 0)
        x = nb_emit_load(e->ir, at, v->stored, 1, NULL);
    else if (stride == 1 || e->lanes == 1)
        x = nb_emit_load(e->ir, at, v->stored, e->lanes, e->mask);
    else if (stride == -1)
        x = load_back(e, at, v->stored);
    else
        x = from_memory(e,
                        nb_ir_gather(e->ir, at, type, each_lane(e, k), e->mask),
                        v->stored);
    return nb_emit_convert(e->ir, x, v->stored, v->dtype);
}

static nb_v get(emitter *e, int k, int copy)
{
    return e->value[nb_walk_is_vector(&e->w, k) ? copy : 0][k];
}

static void emit_store(emitter *e, int k, int copy)
{
    const nb_nest_value *v = &e->x->value[k];
    int64_t stride = e->w.vector < 0 ? 0 : v->stride[e->w.vector];
    nb_irt type = memory_type(v->stored);
    nb_v x = get(e, v->arg[0], copy);
    x = nb_emit_convert(e->ir, x, e->x->value[v->arg[0]].dtype, v->stored);
    nb_v at = nb_ir_at(e->ir, e->base[k], type, index_of(e, k, copy));
    if (stride == 0) {
        nb_emit_store(e->ir, at, v->stored, x, NULL);
        return;
    }
    x = nb_ir_splat(e->ir, x, e->lanes);
    if (e->w.past[k] && !e->mask && e->lanes == e->w.lanes) {
        nb_ir_store_past(e->ir, at, x);
        return;
    }
    if (stride == 1 || e->lanes == 1) {
        nb_emit_store(e->ir, at, v->stored, x, e->mask);
        return;
    }
    if (stride == -1) {
        store_back(e, at, v->stored, x);
        return;
    }
    if (v->stored == NB_BOOL) x = nb_ir_cast(e->ir, "zext", x, NB_IR_I8);
    nb_ir_scatter(e->ir, at, each_lane(e, k), x, e->mask);
}

static nb_v constant(const nb_nest_value *v)
{
    if (v->dtype == NB_F32) {
        float f;
        memcpy(&f, &v->bits, sizeof f);
        return nb_ir_float(NB_IR_F32, f);
    }
    if (v->dtype == NB_F64) {
        double f;
        memcpy(&f, &v->bits, sizeof f);
        return nb_ir_float(NB_IR_F64, f);
    }
    return nb_ir_int(nb_irt_of(v->dtype),
                     v->dtype == NB_BOOL ? v->bits & 1 : v->bits);
}

/* Where a kept value of this vector lies in scratch: its points in the order
 * of the loops. */
static nb_v kept_at(emitter *e, int k, int copy)
{
    const nb_walk *w = &e->w;
    nb_v step = i64(1), at = i64(0);
    for (int j = w->nloops - 1; j >= 0; j--) {
        nb_v i = e->i[w->loop[j]];
        if (w->loop[j] == w->vector)
            i = plus(e, i, i64((int64_t)copy * e->lanes));
        at = plus(e, times(e, i, step), at);
        step = times(e, size_of(e, w->loop[j]), step);
    }
    nb_v room = nb_ir_at(e->ir, e->scratch, NB_IR_I8,
                         times(e, e->kept_bytes, i64(w->at[k])));
    return nb_ir_at(e->ir, room, memory_type(e->x->value[k].dtype), at);
}

/* The index of a vector's first element. */
static nb_v whole_index(emitter *e, int k, int copy)
{
    const nb_nest_value *v = &e->x->value[k];
    nb_v at = number(e, nb_slot_offset(k));
    for (int a = 0; a < e->x->naxes; a++) {
        if (!v->stride[a]) continue;
        nb_v i = e->i[a];
        if (a == e->w.vector) i = plus(e, i, i64((int64_t)copy * e->lanes));
        at = plus(e, at, stepped(e, i, k, a));
    }
    return at;
}

static nb_v vector_stride(const emitter *e, int k)
{
    return e->w.vector < 0 ? i64(0) : number(e, nb_slot_stride(k, e->w.vector));
}

static nb_v emit_pick(emitter *e, int k, int copy)
{
    const nb_nest_value *v = &e->x->value[k];
    bool vector = nb_walk_is_vector(&e->w, k);
    nb_v at = index_of(e, k, copy);
    nb_picked p = {.at =
                       nb_ir_at(e->ir, e->base[k], memory_type(v->stored), at),
                   .by = get(e, v->arg[0], copy),
                   .when = get(e, v->arg[1], copy),
                   .buffer = e->buffer[v->buffer],
                   .stride = vector_stride(e, k),
                   .lanes = vector ? e->lanes : 1,
                   .mask = vector ? e->mask : NULL};
    return nb_emit_convert(e->ir, nb_emit_pick(e->ir, &p, v->stored), v->stored,
                           v->dtype);
}

/* Whether vectors of words hold whole blocks: their numbers run along the
 * vector axis from a multiple of `per` on. */
static bool has_whole_blocks(const emitter *e, const nb_nest_value *v)
{
    const nb_nest_value *n = &e->x->value[v->arg[0]];
    int per = v->dtype == NB_U64 ? 2 : 4;
    if (n->kind != NB_NEST_INDEX || e->w.vector < 0) return false;
    if (n->stride[e->w.vector] != 1 || e->mask || e->copies % 2) return false;
    if (e->lanes % per || n->offset % per) return false;
    if (nb_nest_varies(e->x, nb_slot_offset(v->arg[0]))) return false;
    for (int a = 0; a < e->x->naxes; a++)
        if (a != e->w.vector &&
            (n->stride[a] % per ||
             nb_nest_varies(e->x, nb_slot_stride(v->arg[0], a))))
            return false;
    return !nb_walk_is_vector(&e->w, v->arg[1]) &&
           !nb_walk_is_vector(&e->w, v->arg[2]);
}

/* Two copies at a time where that is less work. */
static nb_v emit_word(emitter *e, int k, int copy)
{
    const nb_nest_value *v = &e->x->value[k];
    nb_v y[2], first;
    nb_stream s = {{get(e, v->arg[1], copy), get(e, v->arg[2], copy)}, v->bits};
    if (e->x->value[v->arg[0]].dtype == NB_U64)
        return nb_emit_block(e->ir, &s, get(e, v->arg[0], copy));
    if (!has_whole_blocks(e, v))
        return nb_emit_word(e->ir, &s, v->dtype, get(e, v->arg[0], copy));
    if (copy % 2) return e->value[copy][k];
    first = whole_index(e, v->arg[0], copy);
    nb_emit_words(e->ir, &s, v->dtype, first, e->lanes, y);
    e->value[copy + 1][k] = y[1];
    return y[0];
}

/* Which of the pass's totals value k is. */
static nb_v *total_of(emitter *e, int k, int copy)
{
    int r = 0;
    while (e->reduce[r] != k)
        r++;
    return &e->total[r * e->w.copies + copy];
}

/* Side by side, each line has its total; along the vectors of a row one goes
 * from lane to lane and on to the next vector. */
static nb_v emit_scan(emitter *e, int k, int copy)
{
    const nb_nest_value *v = &e->x->value[k];
    bool along = e->w.form == NB_FORM_ROW;
    nb_v *total = total_of(e, k, along ? 0 : copy), was = *total;
    nb_v x = get(e, v->arg[0], copy);
    if (!along) {
        *total = nb_emit_combine(e->ir, v->reduce, v->dtype, was, x);
        return v->bits ? was : *total;
    }
    x = nb_ir_splat(e->ir, x, e->lanes);
    nb_scanned s = {v->reduce, v->dtype, v->bits, e->mask};
    return nb_emit_scan(e->ir, &s, x, total);
}

static nb_v compute(emitter *e, int k, int copy)
{
    const nb_nest_value *v = &e->x->value[k];
    if (v->kind == NB_NEST_LOAD) return emit_load(e, k, copy);
    if (v->kind == NB_NEST_PICK) return emit_pick(e, k, copy);
    if (v->kind == NB_NEST_WORD) return emit_word(e, k, copy);
    if (v->kind == NB_NEST_SCAN) return emit_scan(e, k, copy);
    if (v->kind == NB_NEST_INDEX)
        return nb_emit_index(e->ir, whole_index(e, k, copy),
                             vector_stride(e, k), e->lanes, v->dtype);
    nb_v a = get(e, v->arg[0], copy);
    if (v->kind == NB_NEST_CONVERT)
        return nb_emit_convert(e->ir, a, v->compute, v->dtype);
    return nb_emit_scalar(e->ir, v->scalar, v->compute, a,
                          get(e, v->arg[1], copy), get(e, v->arg[2], copy));
}

/* Writes value k in pass q, for all copies. */
static void emit_value(emitter *e, int k, int q)
{
    const nb_nest_value *v = &e->x->value[k];
    bool vector = nb_walk_is_vector(&e->w, k);
    if (v->kind == NB_NEST_CONST || v->kind == NB_NEST_REDUCE ||
        v->kind == NB_NEST_CARRY || v->kind == NB_NEST_LAST)
        return;
    for (int c = 0; c < (vector ? e->copies : 1); c++) {
        if (e->w.kept[k] >= 0 && e->w.kept[k] < q) {
            e->value[c][k] = nb_emit_load(e->ir, kept_at(e, k, c), v->dtype,
                                          e->lanes, e->mask);
            continue;
        }
        e->value[c][k] = compute(e, k, c);
        if (e->w.kept[k] == q)
            nb_emit_store(e->ir, kept_at(e, k, c), v->dtype, e->value[c][k],
                          e->mask);
    }
}

/* Adds this point's value of reduction r to its totals. */
static void accumulate(emitter *e, int r)
{
    int k = e->reduce[r], arg = e->x->value[k].arg[0];
    const nb_nest_value *v = &e->x->value[k];
    bool folds = e->w.form == NB_FORM_ROW;
    for (int c = 0; c < e->copies; c++) {
        bool carried = v->kind == NB_NEST_CARRY;
        if (v->kind == NB_NEST_SCAN) break; /* it has done so itself */
        nb_v x = get(e, carried ? v->next : arg, c);
        nb_v *to = folds && e->lanes == 1 && e->w.lanes > 1
                       ? &e->single[r]
                       : &e->total[r * e->w.copies + c];
        x = nb_ir_splat(e->ir, x, to->lanes);
        if (carried) {
            *to = x;
            continue;
        }
        if (e->mask && folds)
            x = nb_ir_select(e->ir, *e->mask, x,
                             nb_emit_neutral(v->reduce, v->dtype));
        *to = nb_emit_combine(e->ir, v->reduce, v->dtype, *to, x);
    }
}

static bool is_store(const emitter *e, int k)
{
    return e->x->value[k].kind == NB_NEST_STORE;
}

/* Within the loop that carries them, the values carried are what it has. */
static void show_carries(emitter *e)
{
    for (int r = 0; r < e->nreduce; r++) {
        int k = e->reduce[r];
        if (e->x->value[k].kind != NB_NEST_CARRY) continue;
        for (int c = 0; c < e->w.copies; c++)
            e->value[c][k] = e->total[r * e->w.copies + c];
    }
}

/* What pass q does at a level, between the loops around it and within it. */
static void emit_level(emitter *e, int q, int level)
{
    const nb_walk *w = &e->w;
    for (int k = 0; k < e->x->n; k++) {
        bool here = level ? w->needed[q][k] && w->level[k] == level
                          : w->level[k] == 0 && w->ready[k] == q;
        if (!here) continue;
        if (!is_store(e, k)) {
            emit_value(e, k, q);
            continue;
        }
        bool wide = w->vector >= 0 && e->x->value[k].stride[w->vector];
        for (int c = 0; c < (wide ? e->copies : 1); c++)
            emit_store(e, k, c);
    }
    for (int r = 0; level == w->nloops && r < e->nreduce; r++)
        accumulate(e, r);
}

/* The body of the vector loop from e->i on, with so many lanes and copies. */
static void emit_vector(emitter *e, int q, int lanes, int copies,
                        const nb_v *mask)
{
    int was_lanes = e->lanes, was_copies = e->copies;
    e->lanes = lanes;
    e->copies = copies;
    e->mask = mask;
    emit_level(e, q, e->w.nloops);
    e->lanes = was_lanes;
    e->copies = was_copies;
    e->mask = NULL;
}

static int carries(const emitter *e)
{
    return e->nreduce * (e->w.copies + 1);
}

static nb_v lanes_below(emitter *e, nb_v from, nb_v end)
{
    nb_v at = plus(e, from, nb_ir_iota(e->ir, NB_IR_I64, e->w.lanes));
    return nb_ir_compare(e->ir, "icmp slt", at, end);
}

/* The last elements, fewer than a vector: masked, or one by one. */
static void emit_tail(emitter *e, int q, nb_v start, nb_v end)
{
    int a = e->w.vector;
    nb_ir_loop l;
    bool mask = e->w.masks && e->w.lanes > 1;
    nb_v step = i64(mask ? e->w.lanes : 1);
    e->i[a] = nb_ir_for(e->ir, &l, start, end, step, carries(e), e->total);
    if (mask) {
        nb_v on = lanes_below(e, e->i[a], end);
        emit_vector(e, q, e->w.lanes, 1, &on);
    } else {
        emit_vector(e, q, 1, 1, NULL);
    }
    nb_ir_next(e->ir, &l);
}

/* Whole steps from start on; returns where they end. */
static nb_v emit_steps(emitter *e, int q, nb_v start, nb_v end, int copies)
{
    int a = e->w.vector;
    int64_t step = (int64_t)copies * e->w.lanes;
    nb_ir_loop l;
    nb_v n = nb_ir_op2(e->ir, "sub", end, start);
    nb_v whole = nb_ir_op2(e->ir, "and", n, i64(-step));
    nb_v stop = plus(e, start, whole);
    e->i[a] =
        nb_ir_for(e->ir, &l, start, stop, i64(step), carries(e), e->total);
    emit_vector(e, q, e->w.lanes, copies, NULL);
    nb_ir_next(e->ir, &l);
    return stop;
}

/* The vector loop over start..end; `even` if whole vectors fill it. */
static void emit_row(emitter *e, int q, nb_v start, nb_v end, int64_t extent)
{
    const nb_walk *w = &e->w;
    int64_t big = (int64_t)w->copies * w->lanes;
    nb_v at = start;
    if (extent < 0 || extent >= big) at = emit_steps(e, q, at, end, w->copies);
    bool rest = extent < 0 || extent % big >= w->lanes;
    if (w->copies > 1 && rest) at = emit_steps(e, q, at, end, 1);
    if (w->lanes > 1 && (extent < 0 || extent % w->lanes))
        emit_tail(e, q, at, end);
}

static void emit_loops(emitter *e, int q, nb_v start, nb_v end, int64_t extent)
{
    const nb_walk *w = &e->w;
    bool folds = w->form != NB_FORM_COLUMN && w->vector >= 0;
    int plain = w->nloops - folds;
    nb_ir_loop l[NB_MAX_NEST_AXES];
    for (int j = 0; j < plain; j++) {
        int a = w->loop[j];
        bool tiled = a == w->tile;
        e->i[a] = nb_ir_for(e->ir, &l[j], tiled ? e->tile_from : i64(0),
                            tiled ? e->tile_to : bound_of(e, a), i64(1),
                            carries(e), e->total);
        show_carries(e);
        emit_level(e, q, j + 1);
    }
    if (folds) emit_row(e, q, start, end, extent);
    for (int j = plain - 1; j >= 0; j--)
        nb_ir_next(e->ir, &l[j]);
}

/* Whether value k has totals in the loops of pass q. */
static bool is_totalled(const emitter *e, int k, int q)
{
    const nb_nest_value *v = &e->x->value[k];
    bool kept = e->w.kept[k] >= 0 && e->w.kept[k] < q;
    if (v->kind == NB_NEST_SCAN) return e->w.needed[q][k] && !kept;
    return (v->kind == NB_NEST_REDUCE || v->kind == NB_NEST_CARRY) &&
           e->w.ready[v->arg[0]] == q;
}

static void start_totals(emitter *e, int q)
{
    e->nreduce = 0;
    for (int k = 0; k < e->x->n; k++)
        if (is_totalled(e, k, q)) e->reduce[e->nreduce++] = k;
    e->single = e->total + e->nreduce * e->w.copies;
    for (int r = 0; r < e->nreduce; r++) {
        const nb_nest_value *v = &e->x->value[e->reduce[r]];
        bool carried = v->kind == NB_NEST_CARRY;
        nb_v none = carried ? nb_emit_const(v->dtype, 0)
                            : nb_emit_neutral(v->reduce, v->dtype);
        bool row = e->w.form == NB_FORM_ROW;
        bool vector = row ? v->kind != NB_NEST_SCAN
                          : nb_walk_is_vector(&e->w, e->reduce[r]);
        e->single[r] = none;
        for (int c = 0; c < e->w.copies; c++)
            e->total[r * e->w.copies + c] =
                nb_ir_splat(e->ir, carried ? get(e, v->arg[0], c) : none,
                            vector ? e->lanes : 1);
    }
}

/* After the loop, `last` of a carry is what it ended as. */
static void show_last(emitter *e, int carry)
{
    for (int k = 0; k < e->x->n; k++)
        if (e->x->value[k].kind == NB_NEST_LAST &&
            e->x->value[k].arg[0] == carry)
            for (int c = 0; c < e->w.copies; c++)
                e->value[c][k] = e->value[c][carry];
}

/* A row's totals become one number, pairs first, so that the order is fixed. */
static void end_totals(emitter *e)
{
    int copies = e->w.copies;
    for (int r = 0; r < e->nreduce; r++) {
        int k = e->reduce[r];
        const nb_nest_value *v = &e->x->value[k];
        nb_v *t = e->total + r * copies;
        if (v->kind == NB_NEST_SCAN) continue;
        if (e->w.form == NB_FORM_COLUMN) {
            for (int c = 0; c < copies; c++)
                e->value[c][k] = t[c];
            show_last(e, k);
            continue;
        }
        for (int n = copies; n > 1; n /= 2)
            for (int c = 0; c < n / 2; c++)
                t[c] = nb_emit_combine(e->ir, v->reduce, v->dtype, t[c],
                                       t[c + n / 2]);
        nb_v all = nb_emit_fold(e->ir, v->reduce, v->dtype, t[0]);
        if (e->w.lanes > 1 && !e->w.masks)
            all =
                nb_emit_combine(e->ir, v->reduce, v->dtype, all, e->single[r]);
        e->value[0][k] = all;
    }
}

static bool has_loops(const emitter *e, int q)
{
    for (int k = 0; k < e->x->n; k++)
        if (e->w.needed[q][k]) return true;
    return false;
}

static void emit_passes(emitter *e, nb_v start, nb_v end, int64_t extent)
{
    for (int q = 0; q < e->w.npasses; q++) {
        emit_level(e, q, 0);
        if (!has_loops(e, q)) continue;
        start_totals(e, q);
        emit_loops(e, q, start, end, extent);
        end_totals(e);
        e->nreduce = 0;
    }
}

/* Units */

static bool is_outer(const emitter *e, int a)
{
    return !(e->x->inner >> a & 1);
}

static bool has_blocks(const emitter *e)
{
    return e->w.form != NB_FORM_ROW && e->w.vector >= 0;
}

/* n / by, rounded up. */
static nb_v pieces(emitter *e, nb_v n, int64_t by)
{
    if (!n.id) return i64((n.bits + by - 1) / by);
    return nb_ir_op2(e->ir, "udiv", plus(e, n, i64(by - 1)), i64(by));
}

static nb_v place_tile(emitter *e, nb_v u)
{
    nb_v size = size_of(e, e->w.tile), tiles = pieces(e, size, NB_TILE);
    nb_v t = nb_ir_op2(e->ir, "urem", u, tiles);
    e->tile_from = times(e, t, i64(NB_TILE));
    nb_v to = plus(e, e->tile_from, i64(NB_TILE));
    nb_v over = nb_ir_compare(e->ir, "icmp sgt", to, size);
    e->tile_to = nb_ir_select(e->ir, over, size, to);
    return nb_ir_op2(e->ir, "udiv", u, tiles);
}

static bool is_placed(const emitter *e, int a)
{
    return is_outer(e, a) && a != e->w.vector && a != e->w.tile;
}

/* The point of unit u, and where its accesses begin; returns the block. */
static nb_v place_unit(emitter *e, nb_v u)
{
    nb_v block = i64(0);
    if (has_blocks(e)) {
        nb_v n = pieces(e, size_of(e, e->w.vector), e->w.block);
        block = nb_ir_op2(e->ir, "urem", u, n);
        u = nb_ir_op2(e->ir, "udiv", u, n);
    }
    if (e->w.tile >= 0) u = place_tile(e, u);
    for (int a = e->x->naxes - 1; a >= 0; a--) {
        if (!is_placed(e, a)) continue;
        e->i[a] = nb_ir_op2(e->ir, "urem", u, size_of(e, a));
        u = nb_ir_op2(e->ir, "udiv", u, size_of(e, a));
    }
    for (int k = 0; k < e->x->n; k++) {
        const nb_nest_value *v = &e->x->value[k];
        if (!nb_nest_in_memory(v)) continue;
        nb_v at = number(e, nb_slot_offset(k));
        for (int a = 0; a < e->x->naxes; a++)
            if (is_placed(e, a)) at = plus(e, at, stepped(e, e->i[a], k, a));
        e->base[k] =
            nb_ir_at(e->ir, e->buffer[v->buffer], memory_type(v->stored), at);
    }
    return block;
}

/* Columns from start on: a whole block at once, or what is left of one. */
static void emit_columns(emitter *e, nb_v start)
{
    int64_t n = known_size(e, e->w.vector), copies = e->w.copies;
    nb_v end = size_of(e, e->w.vector), full = plus(e, start, i64(e->w.block));
    nb_ir_if f;
    nb_ir_loop l;
    if (n < 0 || n >= e->w.block) {
        nb_ir_when(e->ir, &f, nb_ir_compare(e->ir, "icmp sle", full, end));
        e->i[e->w.vector] = start;
        emit_passes(e, i64(0), i64(0), 0);
        nb_ir_fi(e->ir, &f);
    }
    if (n >= 0 && n % e->w.block == 0) return;
    nb_ir_when(e->ir, &f, nb_ir_compare(e->ir, "icmp sgt", full, end));
    nb_v step = i64(e->w.masks ? e->lanes : 1);
    e->i[e->w.vector] = nb_ir_for(e->ir, &l, start, end, step, 0, NULL);
    int was_lanes = e->lanes;
    nb_v on;
    e->copies = e->w.copies = 1;
    if (e->w.masks && e->lanes > 1) {
        on = lanes_below(e, e->i[e->w.vector], end);
        e->mask = &on;
    } else {
        e->lanes = 1;
    }
    emit_passes(e, i64(0), i64(0), 0);
    e->mask = NULL;
    e->lanes = was_lanes;
    e->copies = e->w.copies = (int)copies;
    nb_ir_next(e->ir, &l);
    nb_ir_fi(e->ir, &f);
}

static void emit_unit(emitter *e, nb_v u)
{
    nb_v block = place_unit(e, u), start = i64(0);
    int a = e->w.vector;
    if (a >= 0 && has_blocks(e)) start = times(e, block, i64(e->w.block));
    int64_t n = a < 0 ? 1 : known_size(e, a);
    if (e->w.form == NB_FORM_COLUMN && a >= 0) {
        emit_columns(e, start);
    } else if (e->w.form == NB_FORM_ROW || a < 0) {
        bool cut = e->x->cut && a == e->x->cut;
        emit_passes(e, start, a < 0 ? i64(1) : bound_of(e, a), cut ? -1 : n);
    } else if (n >= 0 && n <= e->w.block) {
        emit_passes(e, i64(0), i64(n), n);
    } else {
        nb_v end = plus(e, start, i64(e->w.block)), all = size_of(e, a);
        end = nb_ir_select(e->ir, nb_ir_compare(e->ir, "icmp slt", end, all),
                           end, all);
        int64_t step = (int64_t)e->w.copies * e->w.lanes;
        emit_passes(e, start, end, n < 0 || n % step ? -1 : step);
    }
}

static bool make_room(emitter *e)
{
    size_t n = (size_t)e->x->n + 1;
    bool ok = nb_walk_plan(&e->w, e->x);
    e->buffer = nb_alloc_zero((size_t)(e->x->nbuffers + 1) * sizeof(nb_v));
    e->base = nb_alloc_zero(n * sizeof(nb_v));
    e->reduce = nb_alloc(n * sizeof *e->reduce);
    e->total = nb_alloc_zero(n * (NB_MAX_COPIES + 1) * sizeof(nb_v));
    e->param = nb_alloc_zero((size_t)(e->x->nparams + 1) * sizeof(nb_v));
    ok = ok && e->buffer && e->base && e->reduce && e->total && e->param;
    for (int c = 0; c < NB_MAX_COPIES; c++) {
        e->value[c] = nb_alloc_zero(n * sizeof(nb_v));
        ok = ok && e->value[c];
    }
    for (int k = 0; ok && k < e->x->n; k++)
        for (int c = 0; c < NB_MAX_COPIES; c++)
            if (e->x->value[k].kind == NB_NEST_CONST)
                e->value[c][k] = constant(&e->x->value[k]);
    return ok;
}

static void release(emitter *e)
{
    nb_walk_free(&e->w);
    nb_free(e->buffer), nb_free(e->base), nb_free(e->reduce);
    nb_free(e->total), nb_free(e->param);
    for (int c = 0; c < NB_MAX_COPIES; c++)
        nb_free(e->value[c]);
}

static void describe(const emitter *e, nb_emitted *out)
{
    double cycles = 0;
    for (int k = 0; k < e->x->n; k++) {
        const nb_nest_value *v = &e->x->value[k];
        cycles += nb_nest_cost(v);
    }
    *out = (nb_emitted){.vector = e->w.vector,
                        .tile = e->w.tile,
                        .block = has_blocks(e) ? e->w.block : 0,
                        .kept = e->w.nkept,
                        .kept_size = e->w.kept_size,
                        .point_cycles = cycles / e->w.lanes};
    nb_emitted_measure(out, e->x);
}

static int64_t kept_bytes(const nb_nest *x, int64_t item)
{
    int64_t n = item;
    for (int a = 0; a < x->naxes; a++)
        if (x->inner >> a & 1) n *= x->size[a];
    return (n + 63) / 64 * 64;
}

void nb_emitted_measure(nb_emitted *e, const nb_nest *x)
{
    double points = 1;
    e->units = 1;
    for (int a = 0; a < x->naxes; a++) {
        int64_t n = x->size[a];
        if (a == e->vector && e->block) {
            e->units *= (n + e->block - 1) / e->block;
            points *= (double)(n < e->block ? n : e->block);
        } else if (a == e->tile) {
            e->units *= (n + NB_TILE - 1) / NB_TILE;
            points *= NB_TILE;
        } else if (x->inner >> a & 1) {
            points *= (double)n;
        } else {
            e->units *= n;
        }
    }
    e->cycles = 20 + points * e->point_cycles;
    e->scratch = e->kept * kept_bytes(x, e->kept_size);
}

/* Parameters, which stand after the buffers. */
static void load_params(emitter *e, nb_v buffers)
{
    int n = e->x->nparams;
    e->kept_bytes = i64(kept_bytes(e->x, e->w.kept_size));
    if (!e->x->param) return;
    nb_v at = nb_ir_at(e->ir, buffers, NB_IR_PTR, i64(e->x->nbuffers));
    nb_v list = nb_ir_load(e->ir, at, NB_IR_PTR, 1, NULL);
    for (int i = 0; i <= n; i++) {
        nb_v x = nb_ir_load(e->ir, nb_ir_at(e->ir, list, NB_IR_I64, i64(i)),
                            NB_IR_I64, 1, NULL);
        *(i < n ? &e->param[i] : &e->kept_bytes) = x;
    }
    for (int k = 0; k < e->x->n; k++) {
        if (!nb_nest_varies(e->x, nb_slot_bits(k))) continue;
        nb_irt type = nb_irt_of(e->x->value[k].dtype);
        nb_v x = number(e, nb_slot_bits(k));
        if (type != NB_IR_I64) x = nb_ir_cast(e->ir, "trunc", x, type);
        for (int c = 0; c < NB_MAX_COPIES; c++)
            e->value[c][k] = x;
    }
}

static void emit_function(emitter *e, const char *name)
{
    static const nb_irt types[] = {NB_IR_PTR, NB_IR_PTR, NB_IR_I64, NB_IR_I64};
    nb_v argument[4];
    nb_ir_loop l;
    nb_ir_begin(e->ir, name, 4, types, argument);
    e->scratch = argument[1];
    for (int b = 0; b < e->x->nbuffers; b++)
        e->buffer[b] =
            nb_ir_load(e->ir, nb_ir_at(e->ir, argument[0], NB_IR_PTR, i64(b)),
                       NB_IR_PTR, 1, NULL);
    load_params(e, argument[0]);
    nb_v u = nb_ir_for(e->ir, &l, argument[2], argument[3], i64(1), 0, NULL);
    emit_unit(e, u);
    nb_ir_next(e->ir, &l);
    nb_ir_end(e->ir);
}

bool nb_emit_nest(nb_ir *ir, const nb_nest *x, const char *name,
                  nb_emitted *out)
{
    emitter e = {.ir = ir, .x = x};
    bool ok = make_room(&e);
    if (ok) {
        e.lanes = e.w.lanes;
        e.copies = e.w.copies;
        emit_function(&e, name);
        describe(&e, out);
    }
    release(&e);
    return ok;
}
