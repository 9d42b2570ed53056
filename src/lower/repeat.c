/* repeat.c - a loop over steps as one nest: the steps are its inner axis, what
 * is carried stays in registers.
 *
 * The program of the loop is planned by itself.  If it is one nest without
 * inner axes, and each point reads of a carry only what the same point wrote,
 * then loads of carries become carries, loads of xs and stores of ys step
 * along, and all else is loaded as before. */
#include "lower/repeat.h"

#include "lower/passes.h"
#include "lower/rewrite.h"

#include <string.h>

typedef struct maker {
    const nb_plan *p; /* of the call */
    int line;
    nb_turns r;
    nb_plan *body;
    const nb_nest *from;
    nb_nest *to;
    int *value; /* of the new nest, by value of the old */
    int *buffer, nbuffers, room;
    bool fits, failed;
} maker;

static const nb_line *call_of(const maker *m)
{
    return &m->p->graph->line[m->line];
}

static int add(maker *m, nb_nest_value v)
{
    if (nb_nest_add(m->to, v)) return m->to->n - 1;
    m->failed = true;
    return 0;
}

static int buffer_of(maker *m, int root)
{
    for (int b = 0; b < m->nbuffers; b++)
        if (m->buffer[b] == root) return b;
    if (!nb_grow(&m->buffer, &m->room, m->nbuffers + 1, sizeof *m->buffer)) {
        m->failed = true;
        return 0;
    }
    m->buffer[m->nbuffers] = root;
    return m->nbuffers++;
}

/* The line of the program whose block a load or store of it uses. */
static int block_of(const maker *m, const nb_nest_value *v)
{
    return m->body->step[0].buffer[v->buffer];
}

static int steps_axis(const maker *m)
{
    return m->from->naxes;
}

/* Operands of the call lie where its plan says: packed, or as a look with the
 * dims of the program's input behind those of `skip` axes. */
static bool is_packed(const maker *m, int k)
{
    const nb_tensor *x = m->p->node[k];
    const nb_place *at = &m->p->place[k];
    int64_t size[NB_MAX_DIMS], unused[NB_MAX_DIMS], step = 1;
    for (int d = nb_tensor_strides(x, size, unused) - 1; d >= 0; d--) {
        if (size[d] != 1 && at->stride[d] != step) return false;
        step *= size[d];
    }
    return true;
}

/* The load v of the program's input i, from the operand of the call. */
static nb_nest_value from_operand(maker *m, const nb_nest_value *v, int i)
{
    nb_nest_value l = *v;
    int k = call_of(m)->in[i];
    m->fits = m->fits && is_packed(m, k);
    l.buffer = buffer_of(m, m->p->place[k].root);
    l.offset += m->p->place[k].offset;
    return l;
}

/* Elements of a line of the program. */
static int64_t elements(const maker *m, int k)
{
    return m->body->bytes[k] /
           (int64_t)nb_dtype_size(m->body->graph->line[k].dtype);
}

/* Makes an access step along, `size` elements at a time. */
static void step_along(const maker *m, nb_nest_value *v, int64_t size)
{
    v->stride[steps_axis(m)] = m->r.reverse ? -size : size;
    if (m->r.reverse) v->offset += (m->r.length - 1) * size;
    v->axes |= 1u << steps_axis(m);
}

/* A pick reads other points: of what is carried they may have gone on. */
static void add_pick(maker *m, int j)
{
    const nb_nest_value *v = &m->from->value[j];
    int i = block_of(m, v);
    bool input = m->body->graph->line[i].kind == NB_LINE_INPUT;
    m->fits = m->fits && input && i >= m->r.carries;
    if (!m->fits) return;
    nb_nest_value p = from_operand(m, v, i);
    if (i < m->r.carries + m->r.xs) step_along(m, &p, elements(m, i));
    for (int a = 0; a < nb_nest_args(v); a++) {
        p.arg[a] = m->value[v->arg[a]];
        p.axes |= m->to->value[p.arg[a]].axes;
    }
    m->value[j] = add(m, p);
}

static void add_load(maker *m, int j)
{
    const nb_nest_value *v = &m->from->value[j];
    int i = block_of(m, v);
    const nb_line *input = &m->body->graph->line[i];
    if (input->kind == NB_LINE_INPUT) {
        nb_nest_value l = from_operand(m, v, i);
        if (i >= m->r.carries && i < m->r.carries + m->r.xs)
            step_along(m, &l, elements(m, i));
        m->value[j] = add(m, l);
        if (i >= m->r.carries) return;
        nb_nest_value c = {.kind = NB_NEST_CARRY,
                           .dtype = v->dtype,
                           .arg = {m->value[j], m->value[j], m->value[j]},
                           .next = -1,
                           .buffer = i,
                           .axes = l.axes | 1u << steps_axis(m)};
        m->fits = m->fits && v->offset == 0;
        m->value[j] = add(m, c);
        return;
    }
    m->fits = false; /* data that the program holds itself */
}

/* The load of input i in the program's nest; -1: none. */
static int load_of(const maker *m, int i)
{
    int found = -1;
    for (int j = 0; j < m->from->n; j++) {
        const nb_nest_value *v = &m->from->value[j];
        if (v->kind != NB_NEST_LOAD || block_of(m, v) != i) continue;
        /* Read in two ways, or elsewhere. */
        if (found >= 0 || v->kind == NB_NEST_PICK) return -2;
        found = j;
    }
    return found;
}

static int store_of(const maker *m, int root)
{
    for (int j = 0; j < m->from->n; j++)
        if (m->from->value[j].kind == NB_NEST_STORE &&
            block_of(m, &m->from->value[j]) == root)
            return j;
    return -1;
}

/* The old value that result r is, as an access tells where its points lie: a
 * store, or the load of an input that is handed on. */
static int result_access(const maker *m, int r)
{
    int k = m->body->graph->result[r];
    const nb_place *at = &m->body->place[k];
    if (at->root != k || at->offset) return -1;
    return m->body->graph->line[k].kind == NB_LINE_INPUT ? load_of(m, k)
                                                         : store_of(m, k);
}

static int result_value(const maker *m, int access)
{
    const nb_nest_value *v = &m->from->value[access];
    return m->value[v->kind == NB_NEST_STORE ? v->arg[0] : access];
}

static bool same_points(const nb_nest_value *a, const nb_nest_value *b)
{
    return a->offset == b->offset &&
           !memcmp(a->stride, b->stride, sizeof a->stride);
}

/* Result r to its place in the block of the call. */
static void add_store(maker *m, int r, int access, int value)
{
    const nb_nest_value *from = &m->from->value[access];
    nb_dtype d = m->body->graph->line[m->body->graph->result[r]].dtype;
    nb_nest_value s = {.kind = NB_NEST_STORE,
                       .stored = d,
                       .dtype = from->dtype,
                       .arg = {value, value, value}};
    memcpy(s.stride, from->stride, sizeof s.stride);
    for (int a = 0; a < m->from->naxes; a++)
        if (s.stride[a]) s.axes |= 1u << a;
    s.buffer = buffer_of(m, m->line);
    s.offset = m->p->parts[m->line][r] / (int64_t)nb_dtype_size(d);
    if (r >= m->r.carries)
        step_along(m, &s, elements(m, m->body->graph->result[r]));
    add(m, s);
}

static void add_carry_result(maker *m, int r)
{
    int access = result_access(m, r), in = load_of(m, r);
    if (access < 0 || in == -2) {
        m->fits = false;
        return;
    }
    int next = result_value(m, access), last = next;
    if (in >= 0) {
        nb_nest_value *c = &m->to->value[m->value[in]];
        m->fits = m->fits && c->dtype == m->to->value[next].dtype &&
                  same_points(&m->from->value[in], &m->from->value[access]);
        c->next = next;
        nb_nest_value l = {.kind = NB_NEST_LAST,
                           .dtype = c->dtype,
                           .arg = {m->value[in], m->value[in], m->value[in]},
                           .axes = c->axes & ~m->to->inner};
        last = add(m, l);
    } else {
        m->fits = false; /* written and never read: rare */
    }
    add_store(m, r, access, last);
}

static void add_values(maker *m)
{
    for (int j = 0; j < m->from->n && m->fits && !m->failed; j++) {
        const nb_nest_value *v = &m->from->value[j];
        if (v->kind == NB_NEST_STORE) continue;
        if (nb_nest_reads(v)) {
            (v->kind == NB_NEST_LOAD ? add_load : add_pick)(m, j);
            continue;
        }
        nb_nest_value n = *v;
        if (v->kind != NB_NEST_INDEX) n.axes = 0;
        for (int i = 0; i < nb_nest_args(v); i++) {
            n.arg[i] = m->value[v->arg[i]];
            n.axes |= m->to->value[n.arg[i]].axes;
        }
        m->value[j] = add(m, n);
    }
}

static void make(maker *m)
{
    m->to->naxes = m->from->naxes + 1;
    memcpy(m->to->size, m->from->size, sizeof m->to->size);
    m->to->size[steps_axis(m)] = m->r.length;
    m->to->inner = 1u << steps_axis(m);
    add_values(m);
    for (int r = 0; r < m->body->graph->ny && m->fits && !m->failed; r++) {
        if (r < m->r.carries) {
            add_carry_result(m, r);
            continue;
        }
        int access = result_access(m, r);
        m->fits = m->fits && access >= 0;
        if (m->fits) add_store(m, r, access, result_value(m, access));
    }
    m->to->nbuffers = m->nbuffers;
    for (int j = 0; j < m->to->n; j++)
        if (m->to->value[j].kind == NB_NEST_CARRY)
            m->fits = m->fits && m->to->value[j].next >= 0;
}

/* The program as it was recorded, if the call's inputs have no more lanes. */
static bool is_alike(const nb_plan *p, int k, const nb_graph *g,
                     const nb_turns *r)
{
    const nb_line *l = &p->graph->line[k];
    bool alike = l->nin == g->nx && r->length > 0;
    for (int i = 0; alike && i < l->nin; i++) {
        const nb_tensor *x = p->node[l->in[i]];
        alike = x->nlanes == 0 && g->line[i].shape.nlanes == 0;
    }
    return alike;
}

static bool one_nest(const nb_plan *p)
{
    return p->nsteps == 1 && p->step[0].nest && !p->step[0].nest->inner &&
           p->step[0].nest->naxes < NB_MAX_NEST_AXES;
}

static bool build(maker *m)
{
    m->from = m->body->step[0].nest;
    m->to = nb_alloc_zero(sizeof *m->to);
    m->value = nb_alloc((size_t)(m->from->n + 1) * sizeof *m->value);
    m->fits = true;
    if (m->to && m->value) make(m);
    nb_free(m->value);
    return m->to && m->value && !m->failed;
}

bool nb_repeat_nest(const nb_plan *p, int k, nb_nest **nest, int **buffer)
{
    const nb_line *l = &p->graph->line[k];
    maker m = {.p = p, .line = k};
    nb_call c = nb_call_of(p->node[k]);
    *nest = NULL;
    *buffer = NULL;
    if (!l->op->repeats || !l->op->repeats(&c, &m.r) ||
        !is_alike(p, k, l->op->region[0], &m.r))
        return true;
    nb_graph *g = nb_graph_copy(l->op->region[0]);
    if (g && !nb_lower_graph(g)) return nb_graph_free(g), false;
    m.body = g ? nb_plan_new(g) : NULL;
    if (!m.body) return false;
    bool ok = !one_nest(m.body) || build(&m);
    if (ok && m.fits) {
        *nest = m.to;
        *buffer = m.buffer;
    } else {
        nb_nest_free(m.to);
        nb_free(m.buffer);
    }
    nb_plan_free(m.body);
    return ok;
}
