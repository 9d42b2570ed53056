/* spmd_local.c - from a program on whole tensors to that of one device.
 *
 * A value of a line may be there in several layouts; it is moved to another at
 * most once, from the nearest.  Inside, lanes are lanes, but for thin ones, which every device
 * leaves out: nothing varies along them. */
#include "run/spmd_localiser.h"

#include "core/lanes.h"
#include "nabla/view.h"
#include "run/move.h"
#include "shard/decide/factors.h"
#include "shard/decide/place.h"
#include "transform/region.h"

#include <string.h>

static nb_box box_of(const nb_localiser *m, const nb_spec *s,
                     const nb_tensor *global)
{
    int64_t size[NB_MAX_DIMS];
    nb_box b;
    nb_stored_sizes(global, size);
    nb_spec_box(s, size, m->position, &b);
    return b;
}

/* x, whose lanes are those of the global tensor that are not thin, with all
 * stored dims visible; and back. */
static nb_tensor *to_stored(nb_tensor *x, const nb_tensor *global)
{
    for (int l = global->nlanes - 1; l >= 0 && x; l--) {
        nb_lane lane = nb_tensor_lane(global)[l];
        int at = -1;
        for (int k = 0; k < x->nlanes; k++)
            if (nb_tensor_lane(x)[k].id == lane.id) at = k;
        x = lane.thin || at < 0 ? nb_unsqueeze(x, 0)
                                : nb_show(x, 0, nb_tensor_lane(x)[at]);
    }
    return x;
}

static nb_tensor *from_stored(nb_tensor *x, const nb_tensor *global)
{
    for (int l = 0; l < global->nlanes && x; l++) {
        nb_lane lane = nb_tensor_lane(global)[l];
        x = lane.thin ? nb_squeeze(x, 1, (int64_t[]){0})
                      : nb_hide(x, 0, lane.id);
    }
    return x;
}

static bool add_variant(nb_localiser *m, int line, const nb_spec *spec,
                        nb_tensor *x)
{
    return x && nb_variants_add(&m->there, line, spec, x);
}

/* Through the steps of a plan, with all stored dims visible. */
static nb_tensor *follow(nb_localiser *m, nb_tensor *x,
                         const nb_reshard_plan *p)
{
    for (int k = 0; k < p->n && x; k++) {
        nb_box to;
        nb_spec_box(p->step[k].into, p->size, m->position, &to);
        x = nb_move(x, p, k, &to, &m->token);
    }
    return x;
}

nb_tensor *nb_localiser_value(nb_localiser *m, int line, const nb_spec *want)
{
    const nb_tensor *global = m->node[line];
    const nb_variant *v = want ? nb_variants_find(&m->there, line, want) : NULL;
    if (v || !want) return v ? v->x : NULL;
    const nb_reshard_plan *p =
        nb_variants_plan(&m->there, line, global, want, &v);
    nb_tensor *x = p ? follow(m, to_stored(v->x, global), p) : NULL;
    x = x ? from_stored(x, global) : NULL;
    return add_variant(m, line, want, x) ? x : NULL;
}

/* Calls */

static nb_tensor *move_lane(const nb_call *c, nb_tensor *const *in,
                            const nb_box *to)
{
    int axis = (int)c->attr[0], id = (int)c->attr[1];
    if (c->op == &nb_op_spread) return in[0];
    if (c->op == &nb_op_hide) return nb_hide(in[0], axis, id);
    int64_t n = to->size[c->out->nlanes + axis];
    return nb_show(in[0], axis, (nb_lane){.id = id, .size = nb_extent_of(n)});
}

/* The attributes of the call on blocks: a shape among them is the block's. */
static int local_attr(const nb_call *c, const nb_box *to, int64_t *attr)
{
    memcpy(attr, c->attr, (size_t)c->nattr * sizeof *attr);
    if (!c->op->sized) return c->nattr;
    nb_call local = *c;
    local.attr = attr;
    int64_t *list = nb_arg_words(&local, c->op->sized - 1);
    for (int d = 0; d < c->out->rank; d++)
        list[1 + d] = to->size[c->out->nlanes + d];
    return c->nattr;
}

nb_tensor *nb_localiser_number(nb_localiser *of, int64_t n)
{
    nb_localiser *m = of->root;
    nb_shape scalar = {0};
    nb_tensor *x = nb_stand_in_on(of->device, NB_I64, &scalar);
    if (!x || !nb_grow(&m->number, &m->room, m->nnumbers + 1, sizeof n) ||
        !nb_list_add(&m->at_number, x))
        return NULL;
    m->number[m->nnumbers++] = n;
    return x;
}

static nb_tensor *number(const nb_blocks *b, int64_t n)
{
    return nb_localiser_number(b->ctx, n);
}

static nb_tensor *beside(const nb_blocks *b, int t, nb_tensor *x)
{
    nb_localiser *m = b->ctx;
    const nb_reshard_plan *p = m->decision->share[t];
    const nb_tensor *global = t < m->call->nin ? m->call->in[t] : m->call->out;
    x = x ? follow(m, to_stored(x, global), p) : NULL;
    return x ? from_stored(x, global) : NULL;
}

/* Which part of a scanned dim the device has. */
static void set_part(const nb_localiser *m, nb_blocks *b)
{
    const nb_decision *d = m->decision;
    const nb_reshard_plan *p = NULL;
    b->parts = 1;
    for (int t = 0; d && !p && t < d->nin + d->nout; t++)
        p = d->share[t];
    for (int k = 0; p && k < p->from->rank; k++) {
        const nb_cut *cut = &p->from->dim[k].axes;
        if (nb_cut_equal(cut, &p->into->dim[k].axes)) continue;
        b->parts = nb_cut_count(cut);
        b->part = nb_cut_index(m->mesh, cut, m->position);
    }
}

static nb_tensor *call_one(nb_localiser *m, const nb_call *c, nb_tensor **in,
                           const nb_box *from, const nb_box *to)
{
    int64_t attr[NB_MAX_WORDS];
    nb_blocks b = {.in = in, .from = from, .to = to, .number = number};
    b.beside = beside;
    b.ctx = m;
    set_part(m, &b);
    if (c->op->dim_of) return move_lane(c, in, to);
    if (c->op->local) return c->op->local(c, &b);
    int n = local_attr(c, to, attr);
    return nb_record((nb_op *)c->op, c->nin, in, n, attr);
}

/* The parts of input i, which lies as it should, that the blocks of the result
 * reach for. */
static nb_tensor *fetch(nb_localiser *m, const nb_call *c, int i, nb_tensor *x,
                        const nb_reshard_plan *p, nb_box *from)
{
    nb_hop_box(&p->step[0], p->size, m->position, from);
    x = nb_move(to_stored(x, c->in[i]), p, 0, from, &m->token);
    return from_stored(x, c->in[i]);
}

/* Inputs as the call wants them on this device, and what of them that is. */
static bool operands(nb_localiser *m, int line, const nb_call *c,
                     const nb_decision *d, nb_tensor **in, nb_box *from)
{
    const nb_line *l = &m->g->line[line];
    bool ok = true;
    for (int i = 0; ok && i < c->nin; i++) {
        const nb_spec *s = d ? d->need[i] : m->lay->spec[l->in[i]];
        in[i] = !s  ? NULL
                : d ? nb_localiser_value(m, l->in[i], s)
                    : m->there.of[l->in[i]]->x;
        ok = in[i];
        if (ok && !l->multi) from[i] = box_of(m, s, c->in[i]);
        if (!ok || !d || !d->reach[i]) continue;
        ok = (in[i] = fetch(m, c, i, in[i], d->reach[i], &from[i]));
    }
    return ok;
}

/* The result, in the layout that the op gives it. */
static bool compute(nb_localiser *m, int line, const nb_call *c,
                    const nb_decision *d, nb_tensor **in, nb_box *from)
{
    if (!operands(m, line, c, d, in, from)) return false;
    if (m->g->line[line].multi)
        return nb_localiser_call_many(m, line, c, d, in);
    const nb_spec *give = d ? d->give[0] : m->lay->spec[line];
    nb_box to = box_of(m, give, c->out);
    m->call = c;
    m->decision = d;
    m->line = line;
    return add_variant(m, line, give, call_one(m, c, in, from, &to));
}

static const nb_spec *part_spec(const nb_localiser *m, int line, int64_t k)
{
    return m->lay->decision[line]->give[k];
}

static bool call(nb_localiser *m, int line)
{
    const nb_line *l = &m->g->line[line];
    const nb_spec *spec = m->lay->spec[line];
    nb_call c = nb_call_of(m->node[line]);
    if (c.op == &nb_op_part)
        return add_variant(m, line,
                           m->lay->decision[l->in[0]]
                               ? part_spec(m, l->in[0], c.attr[0])
                               : spec,
                           m->part[l->in[0]][c.attr[0]]);
    if (c.op->places || c.op->lands) /* all that a device has is there */
        return add_variant(m, line, spec,
                           nb_localiser_value(m, l->in[0], spec));
    const nb_decision *d = m->lay->decision[line];
    size_t n = (size_t)c.nin + 1;
    nb_tensor **in = nb_alloc(n * sizeof *in);
    nb_box *from = nb_alloc(n * sizeof *from);
    bool ok = in && from && compute(m, line, &c, d, in, from);
    nb_free(in);
    nb_free(from);
    return ok;
}

/* A number in an expression: every device has it. */
static bool constant(nb_localiser *m, int line)
{
    return add_variant(m, line, m->lay->spec[line],
                       nb_line_number(&m->g->line[line]));
}

static bool input(nb_localiser *m, int line)
{
    if (m->given)
        return add_variant(m, line, m->lay->spec[line], m->given[line]);
    const nb_spec *s = m->lay->spec[line];
    const nb_tensor *global = m->node[line];
    nb_box b = box_of(m, s, global);
    nb_shape shape = {.rank = s->rank};
    for (int d = 0; d < s->rank && d < NB_MAX_RANK; d++)
        shape.size[d] = nb_extent_of(b.size[d]);
    nb_tensor *x = nb_stand_in_on(m->device, (nb_dtype)global->dtype, &shape);
    return nb_list_add(&m->in, x) &&
           add_variant(m, line, s, from_stored(x, global));
}

bool nb_localiser_lines(nb_localiser *m)
{
    const nb_graph *g = m->g;
    bool ok = true;
    for (int k = 0; ok && k < g->n; k++) {
        const nb_line *l = &g->line[k];
        if (m->needed && !m->needed[k]) continue;
        if (l->kind == NB_LINE_INPUT || l->kind == NB_LINE_CAPTURED)
            ok = input(m, k);
        else if (l->kind == NB_LINE_NUMBER)
            ok = constant(m, k);
        else
            ok = call(m, k);
    }
    return ok;
}

bool nb_localiser_begin(nb_localiser *m, const nb_graph *g,
                        nb_tensor *const *node, const nb_layouts *lay,
                        int position)
{
    size_t n = (size_t)(g->n + 1);
    *m = (nb_localiser){.g = g, .node = node, .lay = lay, .mesh = lay->mesh};
    m->position = position;
    m->device = nb_mesh_place(lay->mesh, position);
    m->root = m;
    m->part = nb_alloc_zero(n * sizeof *m->part);
    return m->part && nb_variants_init(&m->there, g->n);
}

void nb_localiser_end(nb_localiser *m)
{
    for (int k = 0; m->part && k < m->g->n; k++)
        nb_free(m->part[k]);
    nb_variants_free(&m->there);
    nb_free(m->part);
    nb_free(m->number);
    nb_list_free(&m->in);
    nb_list_free(&m->out);
    nb_list_free(&m->at_number);
}

static nb_graph *finish(nb_localiser *m)
{
    nb_graph *out = NULL;
    const nb_graph *g = m->g;
    bool ok = true;
    for (int i = 0; ok && i < g->ny; i++) {
        int k = g->result[i];
        nb_tensor *y = nb_localiser_value(m, k, m->lay->spec[k]);
        ok = y && nb_list_add(&m->out, to_stored(y, m->node[k]));
    }
    for (int i = 0; ok && i < m->nnumbers; i++)
        ok = nb_list_add(&m->in, m->at_number.at[i]);
    ok = ok && nb_list_add(&m->out, m->token) &&
         nb_graph_of(m->in.n, m->in.at, m->out.n, m->out.at, &out) == NB_OK;
    return ok ? out : NULL;
}

bool nb_spmd_local(const nb_graph *g, nb_tensor *const *node,
                   const nb_layouts *lay, int position, nb_local *to)
{
    nb_localiser m;
    *to = (nb_local){0};
    bool ok = nb_localiser_begin(&m, g, node, lay, position);
    int was = nb_device_enter(m.device); /* what is made of nothing */
    ok = ok && (m.token = nb_token_new()) && nb_localiser_lines(&m) &&
         (to->graph = finish(&m));
    nb_device_enter(was);
    if (ok) {
        to->number = m.number;
        to->nnumbers = m.nnumbers;
        m.number = NULL;
    }
    nb_localiser_end(&m);
    return ok;
}
