/* points.c - the code of a point as values of a nest.
 *
 * Where an input is read elsewhere, each of its axes adds its stride times a
 * place.  Places that follow from the point by strides are part of a load; the
 * others are computed, and the load becomes a pick. */
#include "lower/steps.h"

#include <math.h>

typedef struct point {
    nb_maker *m;
    int line;
    const nb_point *p;
    int axis[NB_MAX_DIMS];   /* of the nest, by dim of the result */
    int value[NB_MAX_POINT]; /* NONE until it is needed */
} point;
enum { NONE = -2 };

static int value(point *q, int k);

static const nb_point_value *code(const point *q, int k)
{
    return &q->p->value[k];
}

/* In registers. */
static nb_dtype type(const nb_point_value *c)
{
    return nb_wide(c->dtype);
}

static nb_tensor *node(const point *q, int k)
{
    return q->m->f->plan->node[k];
}

static int result_axis(const point *q, int d)
{
    return q->axis[node(q, q->line)->nlanes + d];
}

static int scalar(point *q, nb_scalar s, nb_dtype compute, const int *arg)
{
    const nb_nest_value *of = q->m->nest->value;
    if (arg[0] < 0 || arg[1] < 0 || arg[2] < 0) return -1;
    nb_nest_value v = {.kind = NB_NEST_SCALAR,
                       .dtype = nb_scalar_is_test(s) ? NB_BOOL : compute,
                       .compute = compute,
                       .scalar = s,
                       .arg = {arg[0], arg[1], arg[2]}};
    v.axes = of[arg[0]].axes | of[arg[1]].axes | of[arg[2]].axes;
    return nb_maker_add(q->m, v);
}

/* 32 bits where they hold it: vectors are longer. */
static nb_dtype index_type(const point *q, const nb_nest_value *v)
{
    const nb_nest *x = q->m->nest;
    double low = (double)v->offset, high = low;
    if (q->m->f->plan->any_size) return NB_I64;
    for (int a = 0; a < x->naxes; a++) {
        double far = (double)v->stride[a] * (double)(x->size[a] - 1);
        low += far < 0 ? far : 0;
        high += far > 0 ? far : 0;
    }
    return low >= INT32_MIN && high <= INT32_MAX ? NB_I32 : NB_I64;
}

static int place(point *q, const nb_point_value *c)
{
    nb_nest_value v = {.kind = NB_NEST_INDEX, .offset = c->number};
    for (int d = 0; d < q->p->rank; d++) {
        int a = result_axis(q, d);
        if (a >= 0) v.stride[a] += c->step[d];
    }
    for (int a = 0; a < q->m->nest->naxes; a++)
        if (v.stride[a]) v.axes |= 1u << a;
    v.dtype = index_type(q, &v);
    return nb_maker_add(q->m, v);
}

/* Offsets within line k are computed in 32 bits if those hold them all. */
static nb_dtype offset_type(const nb_plan *p, int k)
{
    int64_t size[NB_MAX_DIMS], unused[NB_MAX_DIMS];
    double most = 0;
    for (int d = nb_tensor_strides(p->node[k], size, unused) - 1; d >= 0; d--)
        most += fabs((double)p->place[k].stride[d] * (double)size[d]);
    return most <= INT32_MAX && !p->any_size ? NB_I32 : NB_I64;
}

/* x + stride times value k of the code, in dtype d; without an x, -1. */
static int further(point *q, int x, int k, int64_t stride, nb_dtype d)
{
    nb_maker *m = q->m;
    int by = nb_maker_convert(m, value(q, k), d);
    if (stride != 1) {
        int step = nb_maker_number(m, d, &stride, NB_I64);
        by = scalar(q, NB_S_mul, d, (int[]){by, step, step});
    }
    return x < 0 ? by : scalar(q, NB_S_add, d, (int[]){x, by, by});
}

/* Adds a place along an axis of that stride to an access. */
static void step_along(const point *q, const nb_point_value *at, int64_t stride,
                       nb_nest_value *v)
{
    v->offset += at->number * stride;
    for (int d = 0; at->kind == NB_AT_PLACE && d < q->p->rank; d++)
        if (result_axis(q, d) >= 0)
            v->stride[result_axis(q, d)] += at->step[d] * stride;
}

/* Where the axes of the input are: into the access, and what is computed into
 * *by, -1 if that is nothing. */
static bool follow(point *q, const nb_point_value *c, nb_nest_value *v, int *by)
{
    const nb_plan *p = q->m->f->plan;
    int k = p->graph->line[q->line].in[c->input], lanes = p->node[k]->nlanes;
    nb_dtype d = offset_type(p, k);
    *by = -1;
    for (int a = 0; a < p->node[k]->rank; a++) {
        const nb_point_value *at = code(q, c->at[a]);
        int64_t stride = p->place[k].stride[lanes + a];
        if (stride == 0) continue;
        if (at->kind == NB_AT_NUMBER || at->kind == NB_AT_PLACE) {
            step_along(q, at, stride, v);
            continue;
        }
        if ((*by = further(q, *by, c->at[a], stride, d)) < 0) return false;
    }
    for (int a = 0; a < q->m->nest->naxes; a++)
        if (v->stride[a]) v->axes |= 1u << a;
    return true;
}

static int pick(point *q, nb_nest_value v, int by, int when)
{
    nb_maker *m = q->m;
    int64_t none = 0, always = 1;
    v.kind = NB_NEST_PICK;
    v.arg[0] = by < 0 ? nb_maker_number(m, NB_I64, &none, NB_I64) : by;
    v.arg[1] = when < 0 ? nb_maker_number(m, NB_BOOL, &always, NB_I64) : when;
    if (v.arg[0] < 0 || v.arg[1] < 0) return -1;
    v.axes |= m->nest->value[v.arg[0]].axes | m->nest->value[v.arg[1]].axes;
    return nb_maker_add(m, v);
}

/* A number that is the same everywhere needs no memory. */
static int repeated(point *q, const nb_point_value *c, const nb_line *number)
{
    nb_maker *m = q->m;
    int64_t bits = number->number, zero = 0;
    int x = nb_maker_number(m, type(c), &bits, number->dtype);
    if (c->when < 0) return x;
    int none = nb_maker_number(m, type(c), &zero, NB_I64);
    return scalar(q, NB_S_select, type(c), (int[]){value(q, c->when), x, none});
}

static int read_elsewhere(point *q, const nb_point_value *c)
{
    nb_maker *m = q->m;
    const nb_plan *p = m->f->plan;
    int k = p->graph->line[q->line].in[c->input], by;
    int axis[NB_MAX_DIMS], dim[NB_MAX_DIMS];
    const nb_line *base = &p->graph->line[nb_line_behind(p, k, dim)];
    if (base->kind == NB_LINE_NUMBER) return repeated(q, c, base);
    nb_nest_value v = {.kind = NB_NEST_LOAD};
    nb_operand_axes(m->f, q->line, c->input, axis);
    if (!nb_maker_access(m, k, axis, &v) || !follow(q, c, &v, &by)) return -1;
    int when = c->when < 0 ? -1 : value(q, c->when);
    if (c->when >= 0 && when < 0) return -1;
    int x = by < 0 && when < 0 ? nb_maker_load(m, v) : pick(q, v, by, when);
    return nb_maker_convert(m, x, type(c));
}

static int word(point *q, const nb_point_value *c)
{
    nb_nest_value v = {
        .kind = NB_NEST_WORD, .dtype = type(c), .bits = c->number};
    for (int i = 0; i < 3; i++) {
        v.arg[i] = value(q, c->arg[i]);
        if (v.arg[i] < 0) return -1;
        v.axes |= q->m->nest->value[v.arg[i]].axes;
    }
    return nb_maker_add(q->m, v);
}

/* Places and numbers that 32 bits hold, and so do tests of them and quotients:
 * vectors are longer, division is faster. */
static bool are_narrow(point *q, const nb_point_value *c)
{
    bool fits = nb_scalar_is_test(c->scalar) || c->scalar == NB_S_quot ||
                c->scalar == NB_S_mod;
    if (!fits) return false;
    for (int i = 0; i < 3; i++) {
        int x = value(q, c->arg[i]);
        if (x < 0) return false;
        const nb_nest_value *v = &q->m->nest->value[x];
        bool number = v->kind == NB_NEST_CONST && v->dtype == NB_I64 &&
                      v->bits == (int32_t)v->bits;
        if (!number && v->dtype != NB_I32) return false;
    }
    return true;
}

static int instruction(point *q, const nb_point_value *c)
{
    nb_dtype compute = type(code(q, c->arg[2]));
    int arg[3];
    if (compute == NB_I64 && are_narrow(q, c)) compute = NB_I32;
    for (int i = 0; i < 3; i++) {
        nb_dtype d = type(code(q, c->arg[i]));
        if (d == NB_I64) d = compute;
        arg[i] = nb_maker_convert(q->m, value(q, c->arg[i]), d);
    }
    return scalar(q, c->scalar, compute, arg);
}

static int one(point *q, int k)
{
    const nb_point_value *c = code(q, k);
    switch (c->kind) {
    case NB_AT_NUMBER:
        return nb_maker_number(q->m, type(c), &c->number, NB_I64);
    case NB_AT_PLACE: return place(q, c);
    case NB_AT_READ:
        return c->elsewhere
                   ? read_elsewhere(q, c)
                   : nb_maker_operand(q->m, q->line, c->input, type(c));
    case NB_AT_CONVERT:
        return nb_maker_convert(q->m, value(q, c->arg[0]), type(c));
    case NB_AT_WORD: return word(q, c);
    default: return instruction(q, c);
    }
}

static int value(point *q, int k)
{
    if (q->value[k] == NONE) q->value[k] = one(q, k);
    return q->value[k];
}

int nb_maker_point(nb_maker *m, int k)
{
    const nb_fusion *f = m->f;
    point q = {.m = m, .line = k, .p = f->point[k]};
    nb_operand_axes(f, k, f->axes[k]->nin, q.axis);
    for (int i = 0; i < q.p->n; i++)
        q.value[i] = NONE;
    return value(&q, q.p->result.id);
}
