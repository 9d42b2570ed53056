/* program.c - a program inside an op, planned for one block.
 *
 * Its blocks get places: inputs where the call has them, or in slots of the
 * loop; results where they are wanted, if they can be written there, else they
 * are copied behind the rest. */
#include "backend/cuda/loop/build.h"

#include "core/graph.h"
#include "lower/passes.h"

#include <string.h>

/* Bytes of temporaries up to which each has its own slot. */
enum { APART_BYTES = 1 << 15 };

/* Results of a program that one of its runs makes, on inputs of the joints'
 * shapes. */
static nb_graph *graph_of(const nb_solo *s, const nb_call *c, int region,
                          const nb_joints *j, int run)
{
    const nb_graph *g = c->op->region[region];
    nb_tensor **node = nb_alloc_zero((size_t)(g->n + 1) * sizeof *node);
    nb_tensor **y = nb_alloc_zero((size_t)(g->ny + 1) * sizeof *y);
    nb_graph *made = NULL;
    int ny = 0;
    bool ok = node && y && nb_joints_nodes(c, region, j, s->device, node);
    for (int k = 0; ok && k < g->ny; k++)
        if (j->run[k] == run) y[ny++] = node[g->result[k]];
    if (ok && nb_graph_of(g->nx, node, ny, y, &made) != NB_OK) made = NULL;
    nb_free(node), nb_free(y);
    return made;
}

bool nb_solo_joints(nb_solo *s, const nb_call *c, int region, nb_joints *j)
{
    if (!nb_joints_of(c, region, j)) return nb_solo_unfit(s), false;
    for (int i = 0; s->nlanes && i < j->nx; i++)
        j->shape[i].nlanes = 0;
    return true;
}

bool nb_solo_result(const nb_solo *s, const nb_call *c, int k, nb_shape *shape,
                    nb_dtype *d)
{
    if (!c->op->result(c, k, shape, d)) return false;
    if (s->nlanes) shape->nlanes = 0;
    return true;
}

nb_plan *nb_solo_plan(const nb_solo *s, const nb_call *c, int region,
                      const nb_joints *j, int run)
{
    if (nb_scope_open() != NB_OK) return NULL;
    nb_graph *g = graph_of(s, c, region, j, run);
    nb_scope_close(0, NULL);
    if (g && !nb_lower_graph(g)) return nb_graph_free(g), NULL;
    return g ? nb_plan_new_alone(g, s->device) : NULL;
}

/* A program in the making: its plan, and where its blocks are. */
typedef struct part {
    nb_solo *s;
    const nb_plan *p;
    const nb_solo_value *in, *out;
    nb_solo_at *at; /* by block */
    bool *there;    /* by result: it is written where it belongs */
    nb_solo_list *list;
} part;

static bool is_read(const nb_plan *p, int block)
{
    for (int s = 0; s < p->nsteps; s++) {
        const nb_step *step = &p->step[s];
        const nb_line *l = &p->graph->line[step->line];
        for (int k = 0; step->nest && k < step->nest->n; k++) {
            const nb_nest_value *v = &step->nest->value[k];
            if (nb_nest_reads(v) && step->buffer[v->buffer] == block)
                return true;
        }
        for (int i = 0; !step->nest && i < l->nin; i++)
            if (p->place[l->in[i]].root == block) return true;
    }
    return false;
}

static nb_solo_value line_value(const part *q, int k)
{
    const nb_place *at = &q->p->place[k];
    nb_dtype d = q->p->graph->line[k].dtype;
    nb_solo_value v = {.at = q->at[at->root], .dtype = d};
    v.at.from += at->offset * (int64_t)nb_dtype_size(d);
    v.n = nb_tensor_strides(q->p->node[k], v.size, v.stride);
    memcpy(v.stride, at->stride, (size_t)v.n * sizeof *v.stride);
    return v;
}

/* Whether both lie without gaps, and point by point alike: a result that is the
 * same in all lanes may have to be written in each. */
static bool lie_alike(const nb_solo_value *a, const nb_solo_value *b)
{
    bool same = a->n == b->n && nb_solo_is_packed(a) && nb_solo_is_packed(b);
    for (int d = 0; same && d < a->n; d++)
        same = a->size[d] == b->size[d];
    return same;
}

/* The place of a result's block is where the result belongs, if it lies there
 * as it does in the plan; but memory of the card's is not read again. */
static bool place_result(part *q, int k)
{
    const nb_plan *p = q->p;
    const nb_graph *g = p->graph;
    for (int i = 0; i < g->ny; i++) {
        if (g->result[i] != k || p->place[k].root != k) continue;
        const nb_solo_value *to = &q->out[i];
        bool far = q->s->slot[to->at.slot].space == NB_SOLO_GIVEN;
        q->at[k] = to->at;
        nb_solo_value is = line_value(q, k);
        if (!lie_alike(&is, to) || (far && is_read(p, k))) continue;
        return q->there[i] = true;
    }
    return nb_solo_memory(q->s, p->bytes[k], -1, &q->at[k]);
}

static bool place_number(part *q, int k)
{
    const nb_line *l = &q->p->graph->line[k];
    bool ok = nb_solo_memory(q->s, q->p->bytes[k], -1, &q->at[k]);
    if (!ok) return false;
    nb_solo_slot *slot = &q->s->slot[q->at[k].slot];
    slot->number = slot->constant = true;
    slot->dtype = l->dtype;
    slot->bits = l->number;
    return true;
}

/* Temporaries share the arena of the plan where they are many bytes. */
static bool place_arena(part *q)
{
    const nb_plan *p = q->p;
    int64_t all = 0;
    nb_solo_at arena;
    for (int k = 0; k < nb_plan_blocks(p); k++)
        if (p->home[k] == NB_HOME_ARENA) all += p->bytes[k];
    bool apart = all <= APART_BYTES;
    bool ok = apart || nb_solo_memory(q->s, p->arena, -1, &arena);
    for (int k = 0; ok && k < nb_plan_blocks(p); k++) {
        if (p->home[k] != NB_HOME_ARENA) continue;
        if (apart)
            ok = nb_solo_memory(q->s, p->bytes[k], -1, &q->at[k]);
        else
            q->at[k] = nb_solo_further(arena, p->at[k]);
    }
    return ok;
}

/* Data that the program holds itself is given, if it is there. */
static bool place_captured(part *q, int k)
{
    nb_solo *s = q->s;
    nb_tensor *x = q->p->graph->line[k].captured;
    if (!nb_realize_now(1, &x)) return false;
    if (x->device != s->device || !nb_tensor_is_packed(x) ||
        (x->nlanes && s->nlanes))
        return nb_solo_unfit(s);
    if (!nb_grow(&s->captured, &s->captured_room, s->ncaptured + 1,
                 sizeof *s->captured) ||
        !nb_solo_given(s, true, &q->at[k]))
        return false;
    s->slot[q->at[k].slot].bytes = q->p->bytes[k];
    s->slot[q->at[k].slot].dtype = (nb_dtype)x->dtype;
    s->captured[s->ncaptured++] = nb_keep(x);
    return true;
}

static bool place_blocks(part *q)
{
    const nb_plan *p = q->p;
    bool ok = place_arena(q);
    for (int k = 0; ok && k < nb_plan_blocks(p); k++) {
        nb_line_kind kind =
            k < p->graph->n ? p->graph->line[k].kind : NB_LINE_CALL;
        if (p->home[k] == NB_HOME_GIVEN && kind == NB_LINE_INPUT)
            q->at[k] = q->in[k].at;
        else if (p->home[k] == NB_HOME_GIVEN && kind == NB_LINE_NUMBER)
            ok = place_number(q, k);
        else if (p->home[k] == NB_HOME_GIVEN)
            ok = place_captured(q, k);
        else if (p->home[k] == NB_HOME_TILE)
            nb_solo_unfit(q->s);
        else if (p->home[k] == NB_HOME_RESULT)
            ok = place_result(q, k);
    }
    return ok;
}

static bool build_nest(part *q, const nb_step *step)
{
    nb_solo_at *block = nb_alloc((size_t)(step->nbuffers + 1) * sizeof *block);
    for (int b = 0; block && b < step->nbuffers; b++)
        block[b] = q->at[step->buffer[b]];
    bool ok = block &&
              nb_solo_add_nest(q->s, q->list, nb_nest_copy(step->nest), block);
    nb_free(block);
    return ok;
}

static bool holds_programs(const nb_op *op)
{
    return op->region[0] && op->join;
}

/* A call of an op that holds programs itself. */
static bool build_inner(part *q, int k)
{
    const nb_plan *p = q->p;
    const nb_line *l = &p->graph->line[k];
    nb_call c = nb_call_of(p->node[k]);
    int nout = l->multi ? l->op->nout : 1;
    if (!holds_programs(l->op)) return nb_solo_unfit(q->s);
    nb_tensor **x = nb_alloc((size_t)(l->nin + 1) * sizeof *x);
    nb_solo_value *in = nb_alloc((size_t)(l->nin + nout + 1) * sizeof *in);
    bool ok = x && in && nb_scope_open() == NB_OK;
    bool open = ok;
    for (int i = 0; ok && i < l->nin; i++) {
        in[i] = line_value(q, l->in[i]);
        ok = (x[i] = nb_line_laid_out(p, l->in[i]));
    }
    c.in = x;
    for (int i = 0; ok && i < nout; i++) {
        nb_shape shape;
        nb_dtype d;
        ok = nb_solo_result(q->s, &c, i, &shape, &d);
        if (ok)
            in[l->nin + i] = nb_solo_packed(
                nb_solo_further(q->at[k], l->multi ? p->parts[k][i] : 0), d,
                &shape);
    }
    ok = ok && nb_solo_add_call(q->s, &c, in, in + l->nin, q->list);
    if (open) nb_scope_close(0, NULL);
    nb_free(x), nb_free(in);
    return ok;
}

static bool build_steps(part *q)
{
    const nb_plan *p = q->p;
    bool ok = true;
    for (int s = 0; ok && q->s->fits && s < p->nsteps; s++)
        ok = p->step[s].nest ? build_nest(q, &p->step[s])
                             : build_inner(q, p->step[s].line);
    return ok;
}

static bool is_same(const nb_solo_at *a, const nb_solo_at *b)
{
    bool same = a->slot == b->slot && a->next == b->next &&
                a->from == b->from && a->nmoves == b->nmoves;
    for (int m = 0; same && m < a->nmoves; m++)
        same = a->move[m].loop == b->move[m].loop &&
               a->move[m].bytes == b->move[m].bytes &&
               a->move[m].ring == b->move[m].ring;
    return same;
}

/* The store of block k, which lies as it does in the plan, and its nest. */
static nb_nest_value *store_of(const part *q, int k, nb_solo_item **in)
{
    for (int n = q->list->n - 1; n >= 0; n--) {
        nb_solo_item *i = &q->list->item[n];
        for (int v = 0; i->nest && v < i->nest->n; v++) {
            nb_nest_value *x = &i->nest->value[v];
            if (x->kind != NB_NEST_STORE ||
                !is_same(&i->block[x->buffer], &q->at[k]))
                continue;
            *in = i;
            return x;
        }
    }
    return NULL;
}

/* A result that is another's too is stored twice, by whoever computes it. */
static bool store_again(part *q, int i)
{
    int k = q->p->graph->result[i];
    nb_solo_item *in;
    nb_solo_value is = line_value(q, k);
    if (q->p->place[k].root != k || !lie_alike(&is, &q->out[i])) return true;
    const nb_nest_value *v = store_of(q, k, &in);
    if (!v) return true;
    nb_nest_value twice = *v;
    size_t n = (size_t)in->nest->nbuffers + 1;
    nb_solo_at *block = nb_resize(in->block, (n + 1) * sizeof *block);
    if (!block) return false;
    in->block = block;
    block[n - 1] = q->out[i].at;
    twice.buffer = in->nest->nbuffers++;
    if (!nb_nest_add(in->nest, twice)) return false;
    return q->there[i] = true;
}

static bool build_results(part *q)
{
    const nb_graph *g = q->p->graph;
    bool ok = true;
    for (int i = 0; ok && q->s->fits && i < g->ny; i++) {
        if (!q->there[i]) ok = store_again(q, i);
        if (!ok || q->there[i]) continue;
        nb_solo_value is = line_value(q, g->result[i]);
        ok = nb_solo_add_copy(q->s, q->list, &is, &q->out[i]);
    }
    return ok;
}

/* Frees the plan; NULL means that there was none. */
static bool has_lanes(const nb_graph *g)
{
    for (int k = 0; k < g->n; k++)
        if (g->line[k].shape.nlanes) return true;
    return false;
}

bool nb_solo_add_plan(nb_solo *s, nb_plan *p, const nb_solo_value *in,
                      const nb_solo_value *out, nb_solo_list *to)
{
    if (!p) return false;
    if (s->nlanes && has_lanes(p->graph))
        return nb_plan_free(p), nb_solo_unfit(s);
    size_t n = (size_t)nb_plan_blocks(p) + 1;
    part q = {.s = s,
              .p = p,
              .in = in,
              .out = out,
              .at = nb_alloc_zero(n * sizeof *q.at),
              .there = nb_alloc_zero((size_t)p->graph->ny + 1),
              .list = to};
    bool ok = q.at && q.there && place_blocks(&q) && build_steps(&q) &&
              build_results(&q);
    nb_free(q.at), nb_free(q.there);
    nb_plan_free(p);
    return ok;
}
