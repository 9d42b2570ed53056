/* spmd_region.c - ops that hold programs, on one device.
 *
 * A program that runs once is recorded in the place of its call.  Those of loops
 * and branches become those of a device, with their moves inside them.  All
 * else runs on whole values, and knows nothing of meshes. */
#include "core/lanes.h"
#include "lower/rewrite.h"
#include "run/move.h"
#include "run/spmd_localiser.h"
#include "shard/decide/factors.h"
#include "shard/decide/region.h"

#include <string.h>

static bool record_inside(nb_localiser *m, const nb_call *c,
                          const nb_decision *d, const nb_inside *b,
                          nb_tensor *const *in, nb_tensor **out)
{
    nb_localiser sub;
    bool ok = nb_localiser_begin(&sub, b->graph, b->node, &b->lay, m->position);
    sub.given = in;
    sub.root = m->root;
    sub.token = m->token;
    ok = ok && nb_localiser_lines(&sub);
    for (int k = 0; ok && k < b->graph->ny; k++)
        ok = (out[k] = nb_localiser_value(&sub, b->graph->result[k],
                                          nb_inside_result(c, d, b, k)));
    m->token = sub.token;
    nb_localiser_end(&sub);
    return ok;
}

/* Programs of a device */

/* One of them in the making.  Moves of a run come after those of the run before
 * and moves of a turn after those of the turn before: tokens are carries. */
typedef struct local {
    const nb_inside *b;
    nb_tensor **given; /* stand-ins for its inputs */
    nb_tensor *token[NB_MAX_STRANDS], *last[NB_MAX_STRANDS];
    nb_tensor **result;
    nb_list number; /* inputs after all others */
    int64_t *value; /* of them */
    int room;
} local;

static void local_free(local *l)
{
    nb_free(l->given);
    nb_free(l->result);
    nb_free(l->value);
    nb_list_free(&l->number);
}

/* What a device has of an input: in its lanes, but for thin ones. */
static nb_tensor *stand_in(const nb_localiser *m, const nb_tensor *global,
                           const nb_spec *spec)
{
    int64_t size[NB_MAX_DIMS];
    nb_box b;
    nb_shape s = {.rank = global->rank};
    nb_stored_sizes(global, size);
    nb_spec_box(spec, size, m->position, &b);
    for (int l = 0; l < global->nlanes; l++) {
        nb_lane lane = nb_tensor_lane(global)[l];
        lane.size = nb_extent_of(b.size[l]);
        if (!lane.thin) s.lane[s.nlanes++] = lane;
    }
    for (int d = 0; d < global->rank; d++)
        s.size[d] = nb_extent_of(b.size[global->nlanes + d]);
    return nb_stand_in_on(m->device, (nb_dtype)global->dtype, &s);
}

static bool local_begin(local *l, const nb_localiser *m, const nb_inside *b)
{
    const nb_graph *g = b->graph;
    nb_shape none = {.rank = 1};
    *l = (local){.b = b};
    l->given = nb_alloc((size_t)(g->nx + 1) * sizeof *l->given);
    l->result = nb_alloc((size_t)(g->ny + 1) * sizeof *l->result);
    bool ok = l->given && l->result;
    for (int i = 0; ok && i < g->nx; i++)
        ok = (l->given[i] = stand_in(m, b->node[i], b->in[i]));
    for (int t = 0; ok && t < b->j.nstrands; t++)
        ok = (l->token[t] = nb_stand_in_on(m->device, NB_U8, &none));
    return ok;
}

static bool add_numbers(local *l, const nb_localiser *sub)
{
    bool ok = true;
    for (int i = 0; ok && i < sub->nnumbers; i++) {
        ok = nb_grow(&l->value, &l->room, l->number.n + 1, sizeof *l->value);
        if (ok) l->value[l->number.n] = sub->number[i];
        ok = ok && nb_list_add(&l->number, sub->at_number.at[i]);
    }
    return ok;
}

static bool record_run(nb_localiser *m, const nb_call *c, const nb_decision *d,
                       local *l, int run)
{
    const nb_inside *b = l->b;
    int strand = run - (b->j.nruns - b->j.nstrands);
    bool *needed = nb_inside_lines(b, run);
    nb_localiser sub;
    bool ok = nb_localiser_begin(&sub, b->graph, b->node, &b->lay, m->position);
    if (strand < 0) strand = 0;
    sub.given = l->given;
    sub.needed = needed;
    sub.token = l->token[strand];
    ok = ok && needed && nb_localiser_lines(&sub);
    for (int k = 0; ok && k < b->graph->ny; k++)
        if (b->j.run[k] == run)
            ok = (l->result[k] = nb_localiser_value(
                      &sub, b->graph->result[k], nb_inside_result(c, d, b, k)));
    l->last[strand] = sub.token;
    ok = ok && add_numbers(l, &sub);
    nb_localiser_end(&sub);
    nb_free(needed);
    return ok;
}

/* All of n tensors, and before place at[t] of them more[t]: places ascend. */
static bool weave(nb_list *to, int n, nb_tensor *const *x, int nmore,
                  const int *at, nb_tensor *const *more)
{
    bool ok = true;
    for (int i = 0, t = 0; ok && i <= n; i++) {
        for (; ok && t < nmore && at[t] == i; t++)
            ok = nb_list_add(to, more[t]);
        if (ok && i < n) ok = nb_list_add(to, x[i]);
    }
    return ok;
}

static nb_graph *local_graph(const local *l)
{
    const nb_joints *j = &l->b->j;
    nb_list in = {0}, out = {0};
    nb_graph *g = NULL;
    int from[NB_MAX_STRANDS], to[NB_MAX_STRANDS];
    for (int t = 0; t < j->nstrands; t++) {
        from[t] = j->strand[t].in;
        to[t] = j->strand[t].out;
    }
    bool ok = weave(&in, j->nx, l->given, j->nstrands, from, l->token);
    for (int i = 0; ok && i < l->number.n; i++)
        ok = nb_list_add(&in, l->number.at[i]);
    ok = ok && weave(&out, j->ny, l->result, j->nstrands, to, l->last) &&
         nb_graph_of(in.n, in.at, out.n, out.at, &g) == NB_OK;
    nb_list_free(&in);
    nb_list_free(&out);
    return ok ? g : NULL;
}

static bool local_make(nb_localiser *m, const nb_call *c, const nb_decision *d,
                       const nb_inside *b, local *l, nb_graph **to)
{
    bool ok = local_begin(l, m, b);
    for (int run = 0; ok && run < b->j.nruns; run++)
        ok = record_run(m, c, d, l, run);
    return ok && (*to = local_graph(l));
}

/* The call */

enum { PROGRAMS = 2 };

typedef struct holder {
    int n;
    nb_inside inside[PROGRAMS];
    local local[PROGRAMS];
} holder;

/* Inputs of the call, a token before each strand, numbers where a program has
 * what it closes over. */
static bool call_inputs(nb_localiser *m, const nb_call *c, const holder *h,
                        nb_tensor *const *in, nb_list *all)
{
    const nb_joints *j = &h->inside[0].j;
    bool ok = true;
    for (int i = 0, t = 0; ok && i <= c->nin; i++) {
        for (; ok && t < j->nstrands && j->strand[t].call_in == i; t++)
            ok = nb_list_add(all, m->token);
        for (int r = 0; r < h->n; r++)
            for (int k = 0;
                 ok && h->inside[r].j.more == i && k < h->local[r].number.n;
                 k++)
                ok = nb_list_add(all,
                                 nb_localiser_number(m, h->local[r].value[k]));
        if (ok && i < c->nin) ok = nb_list_add(all, in[i]);
    }
    return ok;
}

static void call_results(nb_localiser *m, const nb_call *c, const holder *h,
                         nb_tensor *const *y, nb_tensor **out)
{
    const nb_joints *j = &h->inside[0].j;
    for (int k = 0, t = 0; k <= c->op->nout; k++) {
        for (; t < j->nstrands && j->strand[t].call_out == k; t++)
            m->token = *y++;
        if (k < c->op->nout) out[k] = *y++;
    }
}

static bool record_call(nb_localiser *m, const nb_call *c, const holder *h,
                        nb_op *op, nb_tensor *const *in, nb_tensor **out)
{
    nb_list all = {0};
    int64_t attr[NB_MAX_WORDS];
    int more[PROGRAMS] = {h->local[0].number.n, h->local[1].number.n};
    nb_tensor **y = nb_array(op->nout);
    nb_results r = {.room = op->nout, .out = y};
    memcpy(attr, c->attr, (size_t)c->nattr * sizeof *attr);
    c->op->widen(c, more, attr);
    bool ok = y && call_inputs(m, c, h, in, &all) &&
              nb_record_many(op, all.n, all.at, c->nattr, attr, &r);
    if (ok) call_results(m, c, h, y, out);
    nb_list_free(&all);
    nb_free(y);
    return ok;
}

static bool hold(nb_localiser *m, const nb_call *c, const nb_decision *d,
                 holder *h, nb_tensor *const *in, nb_tensor **out)
{
    nb_op *op =
        nb_op_holding((nb_op *)c->op, c->op->nout + h->inside[0].j.nstrands);
    bool ok = op;
    for (int r = 0; ok && r < h->n; r++)
        ok = local_make(m, c, d, &h->inside[r], &h->local[r], &op->region[r]);
    ok = ok && record_call(m, c, h, op, in, out);
    for (int r = 0; r < h->n; r++)
        local_free(&h->local[r]);
    nb_op_leave(op);
    return ok;
}

static bool split(nb_localiser *m, const nb_call *c, const nb_decision *d,
                  nb_tensor *const *in, nb_tensor **out)
{
    holder h = {0};
    bool ok = true;
    for (; ok && h.n < PROGRAMS && c->op->region[h.n]; h.n += ok)
        ok = nb_inside_of(c, d, h.n, &h.inside[h.n]);
    if (ok)
        ok = c->op->inlines ? record_inside(m, c, d, &h.inside[0], in, out)
                            : hold(m, c, d, &h, in, out);
    for (int r = 0; r < h.n; r++)
        nb_inside_free(&h.inside[r]);
    return ok;
}

/* On whole values */

static void forget_meshes(nb_graph *g, int device)
{
    for (int k = 0; k < g->n; k++) {
        nb_line *l = &g->line[k];
        l->sharding = NULL;
        l->device = (uint8_t)device;
        if (l->op && (l->op->places || l->op->lands)) {
            l->op = &nb_op_alias;
            l->nattr = 0;
        }
        for (int i = 0; l->op && i < 2; i++)
            if (l->op->region[i]) forget_meshes(l->op->region[i], device);
    }
}

static bool whole(const nb_localiser *m, const nb_call *c, nb_tensor *const *in,
                  nb_tensor **out)
{
    nb_results r = {.room = c->op->nout, .out = out};
    if (!c->op->region[0])
        return nb_record_many((nb_op *)c->op, c->nin, in, c->nattr, c->attr,
                              &r);
    nb_op *op = nb_op_holding((nb_op *)c->op, c->op->nout);
    bool ok = op;
    for (int k = 0; ok && k < 2 && c->op->region[k]; k++) {
        op->region[k] = nb_graph_copy_whole(c->op->region[k]);
        ok = op->region[k];
        if (ok) forget_meshes(op->region[k], m->device);
    }
    ok = ok && nb_record_many(op, c->nin, in, c->nattr, c->attr, &r);
    nb_op_leave(op);
    return ok;
}

bool nb_localiser_call_many(nb_localiser *m, int line, const nb_call *c,
                            const nb_decision *d, nb_tensor **in)
{
    nb_tensor **out = nb_alloc((size_t)(c->op->nout + 1) * sizeof *out);
    m->part[line] = out;
    if (!out) return false;
    if (d && nb_call_hands_on(c)) {
        memcpy(out, in, (size_t)c->op->nout * sizeof *out);
        return true;
    }
    return d && d->opens ? split(m, c, d, in, out) : whole(m, c, in, out);
}
