/* steps.c - the steps of a plan, and their nests. */
#include "lower/steps.h"

#include "core/convert.h"
#include "lower/ends.h"
#include "lower/gemm.h"
#include "lower/look.h"
#include "lower/repeat.h"
#include "lower/split.h"

#include <string.h>

/* The dtype that the instructions of a call compute in. */
static nb_dtype compute_type(const nb_call *c, const nb_tensor *y)
{
    int i = 0;
    if (c->op->in == NB_IN_BOOL) return NB_BOOL;
    if (c->op->out != NB_OUT_BOOL && c->op->out != NB_OUT_I64)
        return nb_wide((nb_dtype)y->dtype);
    while (i < c->nin - 1 && (c->op->index | c->op->mask) >> i & 1)
        i++;
    return nb_wide((nb_dtype)c->in[i]->dtype);
}

/* The buffer of the step that is the block of a root line. */
static int buffer_of(nb_maker *m, int root)
{
    nb_step *s = m->step;
    for (int b = 0; b < s->nbuffers; b++)
        if (s->buffer[b] == root) return b;
    int *more = nb_resize(s->buffer, (size_t)(s->nbuffers + 1) * sizeof *more);
    if (!more) return -1;
    s->buffer = more;
    s->buffer[s->nbuffers] = root;
    m->nest->nbuffers = s->nbuffers + 1;
    return s->nbuffers++;
}

int nb_maker_add(nb_maker *m, nb_nest_value v)
{
    return nb_nest_add(m->nest, v) ? m->nest->n - 1 : -1;
}

bool nb_maker_access(nb_maker *m, int k, const int *axis, nb_nest_value *v)
{
    const nb_place *at = &m->f->plan->place[k];
    const nb_tensor *x = m->f->plan->node[k];
    v->stored = (nb_dtype)x->dtype;
    v->dtype = nb_wide(v->stored);
    v->offset = at->offset;
    for (int d = 0; d < x->nlanes + x->rank; d++)
        if (axis[d] >= 0) v->stride[axis[d]] += at->stride[d];
    for (int a = 0; a < m->nest->naxes; a++)
        if (v->stride[a]) v->axes |= 1u << a;
    return (v->buffer = buffer_of(m, at->root)) >= 0;
}

/* Where line k stores its points: packed, by the dims that they have. */
static bool result_access(nb_maker *m, int k, const int *axis, nb_nest_value *v)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    if (!nb_line_flattens(m->f->plan, k)) return nb_maker_access(m, k, axis, v);
    const nb_tensor *x = nb_points_of(m->f->plan, k);
    int n = nb_tensor_strides(x, size, stride);
    nb_packed_strides(n, size, stride);
    v->stored = (nb_dtype)x->dtype;
    v->dtype = nb_wide(v->stored);
    for (int d = 0; d < n; d++)
        if (axis[d] >= 0) v->stride[axis[d]] += stride[d];
    for (int a = 0; a < m->nest->naxes; a++)
        if (v->stride[a]) v->axes |= 1u << a;
    return (v->buffer = buffer_of(m, k)) >= 0;
}

static bool same_access(const nb_nest_value *a, const nb_nest_value *b)
{
    return a->kind == b->kind && a->buffer == b->buffer &&
           a->offset == b->offset && a->stored == b->stored &&
           !memcmp(a->stride, b->stride, sizeof a->stride);
}

int nb_maker_load(nb_maker *m, nb_nest_value v)
{
    for (int i = 0; i < m->nest->n; i++)
        if (same_access(&m->nest->value[i], &v)) return i;
    return nb_maker_add(m, v);
}

static int load(nb_maker *m, int k, const int *axis)
{
    nb_nest_value v = {.kind = NB_NEST_LOAD};
    return nb_maker_access(m, k, axis, &v) ? nb_maker_load(m, v) : -1;
}

int nb_maker_number(nb_maker *m, nb_dtype d, const void *from, nb_dtype is)
{
    nb_nest_value v = {.kind = NB_NEST_CONST, .dtype = d};
    nb_convert(&v.bits, d, 1, from, is, 1, 1);
    for (int i = 0; i < m->nest->n; i++) {
        const nb_nest_value *x = &m->nest->value[i];
        if (x->kind == v.kind && x->dtype == d && x->bits == v.bits) return i;
    }
    return nb_maker_add(m, v);
}

int nb_maker_convert(nb_maker *m, int x, nb_dtype to)
{
    if (x < 0) return -1;
    const nb_nest_value *from = &m->nest->value[x];
    if (from->dtype == to) return x;
    if (from->kind == NB_NEST_CONST) {
        int64_t bits = from->bits;
        return nb_maker_number(m, to, &bits, from->dtype);
    }
    return nb_maker_add(m, (nb_nest_value){.kind = NB_NEST_CONVERT,
                                           .dtype = to,
                                           .compute = from->dtype,
                                           .arg = {x, x, x},
                                           .axes = from->axes});
}

int nb_maker_operand(nb_maker *m, int c, int i, nb_dtype want)
{
    const nb_graph *g = m->f->plan->graph;
    int k = g->line[c].in[i], dim[NB_MAX_DIMS], axis[NB_MAX_DIMS];
    int base = nb_line_behind(m->f->plan, k, dim);
    if (m->f->plan->group[base] == m->group)
        return nb_maker_convert(m, m->value[base], want);
    if (g->line[base].kind == NB_LINE_NUMBER) {
        int64_t bits = g->line[base].number;
        return nb_maker_number(m, want, &bits, g->line[base].dtype);
    }
    nb_operand_axes(m->f, c, i, axis);
    return nb_maker_convert(m, load(m, k, axis), want);
}

static int instruction(nb_maker *m, const nb_instr *x, nb_dtype compute,
                       const int *v)
{
    if (x->scalar == NB_S_none)
        return nb_maker_number(m, compute, &x->value, NB_F64);
    /* Instructions of one operand name others that are not there. */
    int a = v[x->arg[0]], b = v[x->arg[1]], c = v[x->arg[2]];
    if (b < 0) b = a;
    if (c < 0) c = b;
    nb_nest_value i = {.kind = NB_NEST_SCALAR,
                       .dtype = x->is_bool ? NB_BOOL : compute,
                       .compute = compute,
                       .scalar = x->scalar,
                       .arg = {a, b, c}};
    i.axes = m->nest->value[a].axes | m->nest->value[b].axes |
             m->nest->value[c].axes;
    return nb_maker_add(m, i);
}

static int totals(nb_maker *m, int k)
{
    nb_call c = nb_call_of(m->f->plan->node[k]);
    nb_dtype d = nb_wide((nb_dtype)m->f->plan->node[k]->dtype);
    int x = nb_maker_operand(m, k, 0, d);
    if (x < 0) return -1;
    nb_nest_value v = {.kind = NB_NEST_SCAN,
                       .dtype = d,
                       .compute = d,
                       .reduce = c.op->reduce,
                       .arg = {x, x, x},
                       .bits = nb_arg_int(&c, 1),
                       .axes = m->nest->value[x].axes | m->nest->inner};
    return nb_maker_add(m, v);
}

/* The work of line k at a point; its value before any reduction. */
static int body(nb_maker *m, int k)
{
    if (m->f->point[k]) return nb_maker_point(m, k);
    int dim;
    if (nb_line_totals(m->f->plan, k, &dim)) return totals(m, k);
    if (nb_line_flattens(m->f->plan, k))
        return nb_maker_operand(m, k, 0,
                                nb_wide((nb_dtype)m->f->plan->node[k]->dtype));
    nb_call c = nb_call_of(m->f->plan->node[k]);
    nb_gen g;
    nb_val result = nb_gen_body(&g, &c);
    nb_dtype compute = compute_type(&c, m->f->plan->node[k]);
    int v[NB_MAX_SCALAR_IN + NB_MAX_CODE];
    for (int i = 0; i < NB_MAX_SCALAR_IN; i++)
        v[i] = -1;
    bool copies = c.op->scalar == NB_S_copy;
    bool sums = nb_axes_reduce(m->f->axes[k]);
    for (int i = 0; i < c.nin; i++) {
        nb_dtype is = (nb_dtype)c.in[i]->dtype;
        /* What is cast is rounded once: not to float32 on its way to less;
         * but terms of a sum are as wide as the sum is. */
        bool own = copies && !sums && nb_dtype_size(is) >= 4;
        nb_dtype want = g.in_bool[i] ? NB_BOOL : own ? is : compute;
        if ((v[i] = nb_maker_operand(m, k, i, want)) < 0) return -1;
    }
    for (int i = 0; !copies && i < g.n; i++) {
        v[NB_MAX_SCALAR_IN + i] = instruction(m, &g.code[i], compute, v);
        if (v[NB_MAX_SCALAR_IN + i] < 0) return -1;
    }
    return copies ? v[0] : v[result.id];
}

static bool add_line(nb_maker *m, int k)
{
    const nb_fusion *f = m->f;
    const nb_tensor *y = f->plan->node[k];
    nb_call c = nb_call_of(f->plan->node[k]);
    int x = body(m, k), axis[NB_MAX_DIMS];
    if (x < 0) return false;
    if (nb_axes_reduce(f->axes[k])) {
        const nb_nest_value *v = &m->nest->value[x];
        nb_nest_value r = {.kind = NB_NEST_REDUCE,
                           .dtype = v->dtype,
                           .compute = v->dtype,
                           .reduce = c.op->reduce,
                           .arg = {x, x, x},
                           .axes = v->axes & ~m->nest->inner};
        if ((x = nb_maker_add(m, r)) < 0) return false;
    }
    /* A cast to a narrow float rounds; other results keep what they have. */
    nb_dtype d = (nb_dtype)y->dtype;
    if (nb_wide(d) != d && c.op->scalar == NB_S_copy)
        x = nb_maker_convert(m, nb_maker_convert(m, x, d), nb_wide(d));
    else
        x = nb_maker_convert(m, x, nb_wide(d));
    if (x < 0) return false;
    m->value[k] = x;
    if (!nb_line_is_stored(f, k)) return true;
    nb_nest_value s = {.kind = NB_NEST_STORE, .arg = {x, x, x}};
    nb_operand_axes(f, k, f->axes[k]->nin, axis);
    return result_access(m, k, axis, &s) && nb_maker_add(m, s) >= 0;
}

static bool make_nest(nb_maker *m, nb_step *s)
{
    const nb_fused *n = &m->f->nest[m->group];
    m->step = s;
    s->nest = m->nest = nb_alloc_zero(sizeof *m->nest);
    if (!s->nest) return false;
    s->nest->naxes = n->naxes;
    memcpy(s->nest->size, n->size, sizeof n->size);
    s->nest->inner = n->inner;
    for (int k = n->head; k >= 0; k = m->f->next[k]) {
        if (!add_line(m, k)) return false;
        s->line = k;
    }
    if (n->scans && n->back)
        nb_nest_mirror(s->nest, __builtin_ctz(s->nest->inner));
    nb_nest_merge(s->nest);
    return true;
}

int nb_plan_extra(nb_plan *p, int64_t bytes)
{
    if (!nb_grow(&p->extra, &p->extra_room, p->nextra + 1, sizeof *p->extra))
        return -1;
    p->extra[p->nextra] = bytes;
    return p->graph->n + p->nextra++;
}

/* Leaves out the blocks of a step that its nest does not touch: they are free
 * before it. */
static void prune(nb_step *s)
{
    int to[2 * NB_MAX_SPLIT_VALUES], n = 0;
    memset(to, -1, sizeof to);
    for (int k = 0; k < s->nest->n; k++)
        if (nb_nest_in_memory(&s->nest->value[k]))
            to[s->nest->value[k].buffer] = 0;
    for (int b = 0; b < s->nbuffers; b++) {
        if (to[b] < 0) continue;
        to[b] = n;
        s->buffer[n++] = s->buffer[b];
    }
    for (int k = 0; k < s->nest->n; k++)
        if (nb_nest_in_memory(&s->nest->value[k]))
            s->nest->value[k].buffer = to[s->nest->value[k].buffer];
    s->nbuffers = s->nest->nbuffers = n;
}

/* Splits the last step, if that is of use. */
static bool split_last(nb_plan *p)
{
    int64_t bytes[NB_MAX_SPLIT_VALUES];
    nb_nest *first, *second;
    nb_step *s = &p->step[p->nsteps - 1];
    int was = s->nbuffers;
    if (p->alone || !nb_nest_splits(s->nest, p->any_size, p->device))
        return true;
    if (!nb_nest_split(s->nest, p->any_size, p->device, &first, &second, bytes))
        return false;
    nb_nest_free(s->nest);
    s->nest = first;
    nb_step t = {.line = s->line, .nest = second, .nbuffers = first->nbuffers};
    size_t n = (size_t)first->nbuffers * sizeof *t.buffer;
    int *buffer = nb_resize(s->buffer, n);
    if (buffer) s->buffer = buffer;
    t.buffer = nb_alloc(n);
    bool ok = buffer && t.buffer &&
              nb_grow(&p->step, &p->room, p->nsteps + 1, sizeof t);
    for (int b = was; ok && b < first->nbuffers; b++)
        ok = (buffer[b] = nb_plan_extra(p, bytes[b - was])) >= 0;
    if (!ok) {
        nb_nest_free(second);
        nb_free(t.buffer);
        return false;
    }
    p->step[p->nsteps - 1].nbuffers = first->nbuffers;
    memcpy(t.buffer, buffer, n);
    p->step[p->nsteps++] = t;
    prune(&p->step[p->nsteps - 2]);
    prune(&p->step[p->nsteps - 1]);
    return true;
}

/* The step of the unit that line k is in. */
static bool add_step(nb_fusion *f, int k, int *value)
{
    nb_plan *p = f->plan;
    nb_step turns = {.line = k};
    if (p->library && p->library[k]) return nb_gemm_steps(p, k);
    if (p->graph->line[k].multi) {
        if (!nb_repeat_nest(p, k, &turns.nest, &turns.buffer)) return false;
        if (turns.nest) turns.nbuffers = turns.nest->nbuffers;
    }
    if (!nb_grow(&p->step, &p->room, p->nsteps + 1, sizeof *p->step)) {
        nb_nest_free(turns.nest);
        nb_free(turns.buffer);
        return false;
    }
    nb_step *s = &p->step[p->nsteps++];
    *s = turns;
    nb_maker m = {.f = f, .group = p->group[k], .value = value};
    return m.group < 0 || make_nest(&m, s);
}

/* The steps again, with long sums in two. */
static bool split_all(nb_plan *p)
{
    nb_step *whole = p->step;
    int n = p->nsteps, s = 0;
    bool ok = true;
    p->step = NULL;
    p->nsteps = p->room = 0;
    for (; ok && s < n; s++) {
        ok = nb_grow(&p->step, &p->room, p->nsteps + 1, sizeof *whole);
        if (!ok) break;
        p->step[p->nsteps++] = whole[s];
        ok = !whole[s].nest || split_last(p);
    }
    for (; s < n; s++)
        nb_step_free(&whole[s]);
    nb_free(whole);
    return ok;
}

bool nb_plan_steps(nb_fusion *f)
{
    size_t n = (size_t)f->plan->graph->n + 1;
    int *value = nb_alloc(n * sizeof *value), units = 0;
    int *order = nb_alloc(n * sizeof *order);
    bool ok = value && order && nb_plan_schedule(f, order, &units);
    for (int i = 0; ok && i < units; i++)
        ok = add_step(f, order[i], value);
    nb_free(value);
    nb_free(order);
    return ok && nb_plan_ends(f->plan) && nb_plan_share(f->plan) &&
           split_all(f->plan);
}
