/* steps.c - see steps.h. */
#include "support/steps.h"

#include "base/error.h"
#include "base/half.h"
#include "core/tensor.h"
#include "shard/plan/settle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

unsigned draw_below(unsigned *seed, unsigned n)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (unsigned)((uint64_t)(*seed >> 8) * n >> 24);
}

void put_number(nb_dtype d, void *data, int64_t i, double v)
{
    int64_t n = (int64_t)v;
    switch (d) {
    case NB_BOOL: ((uint8_t *)data)[i] = v != 0; return;
    case NB_I8: ((int8_t *)data)[i] = (int8_t)n; return;
    case NB_U8: ((uint8_t *)data)[i] = (uint8_t)n; return;
    case NB_I16: ((int16_t *)data)[i] = (int16_t)n; return;
    case NB_U16: ((uint16_t *)data)[i] = (uint16_t)n; return;
    case NB_I32: ((int32_t *)data)[i] = (int32_t)n; return;
    case NB_U32: ((uint32_t *)data)[i] = (uint32_t)n; return;
    case NB_I64: ((int64_t *)data)[i] = n; return;
    case NB_U64: ((uint64_t *)data)[i] = (uint64_t)n; return;
    case NB_F16: ((uint16_t *)data)[i] = nb_f64_to_f16(v); return;
    case NB_BF16: ((uint16_t *)data)[i] = nb_f64_to_bf16(v); return;
    case NB_F32: ((float *)data)[i] = (float)v; return;
    default: ((double *)data)[i] = v;
    }
}

double get_number(nb_dtype d, const void *data, int64_t i)
{
    switch (d) {
    case NB_BOOL:
    case NB_U8: return ((const uint8_t *)data)[i];
    case NB_I8: return ((const int8_t *)data)[i];
    case NB_I16: return ((const int16_t *)data)[i];
    case NB_U16: return ((const uint16_t *)data)[i];
    case NB_I32: return ((const int32_t *)data)[i];
    case NB_U32: return ((const uint32_t *)data)[i];
    case NB_I64: return (double)((const int64_t *)data)[i];
    case NB_U64: return (double)((const uint64_t *)data)[i];
    case NB_F16: return nb_f16_to_f32(((const uint16_t *)data)[i]);
    case NB_BF16: return nb_bf16_to_f32(((const uint16_t *)data)[i]);
    case NB_F32: return ((const float *)data)[i];
    default: return ((const double *)data)[i];
    }
}

/* From -2 to 2, not below 0 where there are no signs. */
static double value(const step_case *c, int64_t pending, int64_t i)
{
    unsigned seed = c->seed ^ (unsigned)(i * 40503 + pending * 9176113);
    int v;
    draw_below(&seed, 2);
    draw_below(&seed, 2);
    v = (int)draw_below(&seed, 5) - 2;
    if (c->dtype == NB_BOOL) return v > 0;
    return nb_dtype_is_unsigned(c->dtype) && v < 0 ? -v : v;
}

static double fold(nb_dtype d, nb_reduce kind, double a, double b)
{
    bool of_bools = d == NB_BOOL;
    switch (kind) {
    case NB_SUM: return of_bools ? a || b : a + b;
    case NB_PROD: return of_bools ? a && b : a * b;
    case NB_MAX: return a > b ? a : b;
    case NB_MIN: return a < b ? a : b;
    case NB_AND: return a && b;
    default: return a || b;
    }
}

/* Drawing specs: every axis goes to a dim, or is pending, or is idle; halves of
 * it may go to different places. */

static nb_spec draw_spec(const nb_mesh *m, int rank, bool pending,
                         unsigned *seed)
{
    nb_spec s = {.mesh = m, .rank = rank};
    int first = (int)draw_below(seed, (unsigned)m->naxes);
    for (int k = 0; k < m->naxes; k++) {
        nb_axis a = nb_axis_full(m, (first + k) % m->naxes);
        int parts = a.size == 4 && draw_below(seed, 3) == 0 ? 2 : 1;
        a.size = (uint16_t)(a.size / parts);
        for (int p = 0; p < parts; p++, a.pre = (uint16_t)(a.pre * a.size)) {
            int to = (int)draw_below(seed, (unsigned)rank + 2);
            if (to < rank)
                nb_cut_add(&s.dim[to].axes, a);
            else if (to == rank && pending)
                nb_cut_add(&s.partial, a);
        }
    }
    if (s.partial.n) s.kind = (nb_reduce)draw_below(seed, 6);
    return s;
}

/* Takes the last axis of a list. */
static nb_axis pop(nb_cut *l)
{
    return l->at[--l->n];
}

static bool make_gather(nb_hop *s, nb_spec *from, nb_spec *into, unsigned *seed)
{
    int d = (int)draw_below(seed, (unsigned)from->rank);
    if (!from->dim[d].axes.n) return false;
    nb_axis a = pop(&into->dim[d].axes);
    s->axes = (nb_cut){1, {a}};
    s->dim = d;
    if (s->kind == NB_HOP_ALL_GATHER) return true;
    int e = (int)draw_below(seed, (unsigned)from->rank);
    s->to = e;
    return e != d && nb_cut_add(&into->dim[e].axes, a);
}

static bool make_reduction(nb_hop *s, nb_spec *from, nb_spec *into,
                           unsigned *seed)
{
    int d = (int)draw_below(seed, (unsigned)from->rank);
    if (!from->partial.n) return false;
    nb_axis a = pop(&into->partial);
    if (s->kind == NB_HOP_ALL_REDUCE && draw_below(seed, 2) == 0) {
        s->axes = from->partial;
        into->partial.n = 0;
        return true;
    }
    s->axes = (nb_cut){1, {a}};
    s->dim = d;
    return s->kind == NB_HOP_ALL_REDUCE || nb_cut_add(&into->dim[d].axes, a);
}

/* An axis of neither dims nor what is pending: sliced, or made pending. */
static bool make_split(nb_hop *s, nb_spec *from, nb_spec *into, unsigned *seed)
{
    int d = (int)draw_below(seed, (unsigned)from->rank);
    for (int k = 0; k < from->mesh->naxes; k++) {
        nb_axis a = nb_axis_full(from->mesh, k);
        bool used = nb_cut_has(&from->partial, a);
        for (int i = 0; i < from->rank; i++)
            used |= nb_cut_has(&from->dim[i].axes, a);
        if (used || a.size == 1) continue;
        s->axes = (nb_cut){1, {a}};
        if (s->kind == NB_HOP_SLICE) return nb_cut_add(&into->dim[d].axes, a);
        if (from->partial.n) continue;
        into->kind = (nb_reduce)draw_below(seed, 6);
        return nb_cut_add(&into->partial, a);
    }
    return false;
}

static bool make_step(nb_hop *s, nb_spec *from, nb_spec *into, unsigned *seed)
{
    *into = *from;
    switch (s->kind) {
    case NB_HOP_ALL_GATHER:
    case NB_HOP_ALL_TO_ALL: return make_gather(s, from, into, seed);
    case NB_HOP_REDUCE_SCATTER:
    case NB_HOP_ALL_REDUCE: return make_reduction(s, from, into, seed);
    case NB_HOP_SLICE:
    case NB_HOP_UNREDUCE: return make_split(s, from, into, seed);
    default:
        if (!from->partial.n != (s->kind != NB_HOP_REDUCE_EXCHANGE))
            return false;
        *into = draw_spec(from->mesh, from->rank, false, seed);
        for (int k = 0; k < from->mesh->naxes; k++)
            nb_cut_add(&s->axes, nb_axis_full(from->mesh, k));
        return true;
    }
}

step_case step_draw(const nb_mesh *m, unsigned *seed)
{
    for (;;) {
        step_case c = {.seed = *seed};
        nb_spec from, into;
        int rank = 1 + (int)draw_below(seed, 3);
        c.step.kind = (nb_hop_kind)draw_below(seed, NB_HOP_EXCHANGE + 1);
        c.dtype = (nb_dtype)(1 + draw_below(seed, NB_NDTYPES - 1));
        for (int d = 0; d < rank; d++)
            c.size[d] = (int64_t)draw_below(seed, 11);
        from = draw_spec(m, rank, true, seed);
        if (!make_step(&c.step, &from, &into, seed)) continue;
        c.step.from = nb_spec_intern(&from);
        c.step.into = nb_spec_intern(&into);
        if (c.step.from && c.step.into) return c;
        nb_error_clear(); /* halves of axes that do not go together */
    }
}

/* The place in the whole tensor of element i of a box. */
static int64_t place(const step_case *c, const nb_box *b, int64_t i)
{
    int64_t at = 0, step = 1;
    for (int d = c->step.from->rank - 1; d >= 0; d--) {
        at += (b->start[d] + i % b->size[d]) * step;
        i /= b->size[d];
        step *= c->size[d];
    }
    return at;
}

static int64_t count_of(const step_case *c, const nb_box *b)
{
    int64_t n = 1;
    for (int d = 0; d < c->step.from->rank; d++)
        n *= b->size[d];
    return n;
}

/* What position should have of element `at` after the step. */
static double expected(const step_case *c, int position, int64_t at)
{
    const nb_hop *s = &c->step;
    const nb_mesh *m = s->from->mesh;
    const nb_cut *pending = &s->from->partial;
    int member[64];
    if (s->kind == NB_HOP_UNREDUCE &&
        nb_cut_index(m, &s->axes, position) != 0) {
        static const double one[] = {[NB_PROD] = 1, [NB_AND] = 1, [NB_OR] = 0};
        return s->into->kind == NB_MAX || s->into->kind == NB_MIN
                   ? NAN
                   : one[s->into->kind];
    }
    bool settles = s->kind == NB_HOP_REDUCE_EXCHANGE;
    if (s->kind != NB_HOP_ALL_REDUCE && s->kind != NB_HOP_REDUCE_SCATTER &&
        !settles)
        return value(c, nb_cut_index(m, pending, position), at);
    int n = nb_cut_group(m, settles ? pending : &s->axes, position, member);
    double sum = value(c, nb_cut_index(m, pending, member[0]), at);
    for (int i = 1; i < n; i++)
        sum = fold(c->dtype, s->from->kind, sum,
                   value(c, nb_cut_index(m, pending, member[i]), at));
    return sum;
}

/* Rounds of every device, also where one stands for "does not matter". */
static bool check(const step_case *c, int position, const nb_box *b,
                  const void *out)
{
    uint64_t bytes = nb_dtype_size(c->dtype);
    for (int64_t i = 0; i < count_of(c, b); i++) {
        char want[8];
        double v = expected(c, position, place(c, b, i));
        if (v != v) continue;
        put_number(c->dtype, want, 0, v);
        if (get_number(c->dtype, want, 0) != get_number(c->dtype, out, i))
            return false;
    }
    /* What lies behind the block was not touched. */
    for (uint64_t i = 0; i < 8; i++)
        if (((const char *)out)[(uint64_t)count_of(c, b) * bytes + i] != 77)
            return false;
    return true;
}

/* On the memory of what the device is. */
static bool run(nb_device *me, const step_case *c, size_t nin, size_t nout,
                char *in, char *out)
{
    if (!me->on) return nb_hop_run(me, &c->step, c->dtype, c->size, in, out);
    nb_buffer *x = nb_buffer_on(me->on, nin + 1);
    nb_buffer *y = nb_buffer_on(me->on, nout);
    bool ok = x && y && nb_on_card.write(me->on, x->data, in, nin) &&
              nb_on_card.write(me->on, y->data, out, nout) &&
              nb_hop_run(me, &c->step, c->dtype, c->size, x->data, y->data) &&
              nb_on_card.read(me->on, out, y->data, nout);
    nb_buffer_drop(x);
    nb_buffer_drop(y);
    return ok;
}

bool step_holds(nb_device *me, const step_case *c)
{
    const nb_hop *s = &c->step;
    nb_box from, into;
    nb_spec_box(s->from, c->size, me->position, &from);
    nb_spec_box(s->into, c->size, me->position, &into);
    size_t item = nb_dtype_size(c->dtype);
    char *in = malloc((size_t)count_of(c, &from) * item + 8);
    char *out = malloc((size_t)count_of(c, &into) * item + 8);
    memset(out, 77, (size_t)count_of(c, &into) * item + 8);
    int64_t pending = nb_cut_index(me->mesh, &s->from->partial, me->position);
    for (int64_t i = 0; i < count_of(c, &from); i++)
        put_number(c->dtype, in, i, value(c, pending, place(c, &from, i)));
    bool ok = run(me, c, (size_t)count_of(c, &from) * item,
                  (size_t)count_of(c, &into) * item + 8, in, out) &&
              check(c, me->position, &into, out);
    free(in);
    free(out);
    return ok;
}

/* Part i of an all_reduce, then all others. */
static int64_t all_reduce_count(int64_t count, int64_t n, int64_t i)
{
    int64_t part =
        nb_block_start(count, n, i + 1) - nb_block_start(count, n, i);
    return part * (n - 1) + count - part;
}

/* Elements of `into`, and of those the ones in `from` already. */
static int64_t box_count(int rank, const nb_box *from, const nb_box *into)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++) {
        int64_t lo = from->start[d], hi = lo + from->size[d];
        int64_t end = into->start[d] + into->size[d];
        if (into->start[d] > lo) lo = into->start[d];
        if (end < hi) hi = end;
        n *= hi > lo ? hi - lo : 0;
    }
    return n;
}

/* Addends that are not here of what is added up here, and what others add up of
 * what is wanted. */
static int64_t settled_count(const nb_hop *h, const int64_t *size, int p)
{
    nb_settling x;
    int64_t got = 0;
    int me = 0;
    if (!nb_settling_open(&x, h, size, p, true)) return -1;
    while (x.party[me].position != p)
        me++;
    for (int k = 0; k < x.npieces; k++) {
        int64_t mine = x.share[k * x.n + me];
        got += mine * (x.naddends - (x.party[me].has == x.piece[k].has));
        if (x.party[me].wants == x.piece[k].wants)
            got += x.piece[k].count - mine;
    }
    nb_settling_close(&x);
    return got;
}

int64_t hop_bytes(const nb_hop *h, const int64_t *size, int item, int position)
{
    const nb_mesh *m = h->from->mesh;
    int rank = h->from->rank;
    int64_t n = nb_cut_count(&h->axes);
    nb_box from, into, whole = {0};
    memcpy(whole.size, size, (size_t)rank * sizeof *size);
    nb_spec_box(h->from, size, position, &from);
    nb_hop_box(h, size, nb_mesh_position(h->into->mesh, m->device[position]),
               &into);
    /* What is reached for beyond the ends is zero and comes from nobody. */
    int64_t count = box_count(rank, &whole, &into);
    switch (h->kind) {
    case NB_HOP_UNREDUCE: return 0;
    case NB_HOP_REDUCE_EXCHANGE: return settled_count(h, size, position) * item;
    case NB_HOP_REDUCE_SCATTER: return count * (n - 1) * item;
    case NB_HOP_ALL_REDUCE:
        n = all_reduce_count(count, n, nb_cut_index(m, &h->axes, position));
        return n * item;
    default: return (count - box_count(rank, &from, &into)) * item;
    }
}

int64_t step_bytes(const step_case *c)
{
    int64_t most = 0;
    int item = (int)nb_dtype_size(c->dtype);
    for (int p = 0; p < c->step.from->mesh->ndevices; p++) {
        int64_t bytes = hop_bytes(&c->step, c->size, item, p);
        if (bytes > most) most = bytes;
    }
    return most;
}
