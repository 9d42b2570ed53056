/* spmd_region.c - ops that hold programs, on one device.
 *
 * A program that runs once is recorded in the place of its call.  The body of a
 * loop becomes that of a device, with the moves of a turn inside it.  All else
 * runs on whole values, and knows nothing of meshes. */
#include "core/lanes.h"
#include "lower/rewrite.h"
#include "run/move.h"
#include "run/spmd_localiser.h"
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
                                          nb_inside_result(c, d, k)));
    m->token = sub.token;
    nb_localiser_end(&sub);
    return ok;
}

/* Moves of a turn come after those of the turn before, so the token is a carry,
 * the last. */
static bool insert(nb_list *to, const nb_list *from, int at, nb_tensor *x)
{
    bool ok = true;
    for (int i = 0; ok && i <= from->n; i++) {
        if (i == at) ok = nb_list_add(to, x);
        if (ok && i < from->n) ok = nb_list_add(to, from->at[i]);
    }
    return ok;
}

static nb_graph *turn_of(nb_localiser *sub, const nb_call *c,
                         const nb_decision *d, const nb_inside *b, int carries)
{
    nb_list in = {0}, out = {0};
    nb_graph *g = NULL;
    nb_shape none = {.rank = 1};
    nb_tensor *token = nb_stand_in(NB_U8, &none);
    sub->token = token;
    bool ok = token && nb_localiser_lines(sub) &&
              insert(&in, &sub->in, carries, token);
    for (int i = 0; ok && i < sub->nnumbers; i++)
        ok = nb_list_add(&in, sub->at_number.at[i]);
    for (int k = 0; ok && k < b->graph->ny; k++)
        ok = nb_list_add(&sub->out,
                         nb_localiser_value(sub, b->graph->result[k],
                                            nb_inside_result(c, d, k)));
    ok = ok && insert(&out, &sub->out, carries, sub->token) &&
         nb_graph_of(in.n, in.at, out.n, out.at, &g) == NB_OK;
    nb_list_free(&in);
    nb_list_free(&out);
    return ok ? g : NULL;
}

static bool record_loop(nb_localiser *m, const nb_call *c, nb_op *op,
                        const nb_localiser *sub, const nb_turns *t,
                        nb_tensor *const *in, nb_tensor **out)
{
    nb_list all = {0}, given = {0};
    int64_t attr[NB_MAX_WORDS];
    int n = c->op->nout + 1;
    nb_tensor **y = nb_array(n);
    nb_results r = {.room = n, .out = y};
    bool ok = y;
    for (int i = 0; ok && i < c->nin; i++)
        ok = nb_list_add(&given, in[i]);
    ok = ok && insert(&all, &given, t->carries, m->token);
    for (int i = 0; ok && i < sub->nnumbers; i++)
        ok = nb_list_add(&all, nb_localiser_number(m, sub->number[i]));
    memcpy(attr, c->attr, (size_t)c->nattr * sizeof *attr);
    attr[0]++; /* carries */
    ok = ok && nb_record_many(op, all.n, all.at, c->nattr, attr, &r);
    for (int k = 0; ok && k < c->op->nout; k++)
        out[k] = y[k + (k >= t->carries)];
    if (ok) m->token = y[t->carries];
    nb_list_free(&all);
    nb_list_free(&given);
    nb_free(y);
    return ok;
}

static bool loop(nb_localiser *m, const nb_call *c, const nb_decision *d,
                 const nb_inside *b, nb_tensor *const *in, nb_tensor **out)
{
    nb_turns t;
    nb_localiser sub;
    nb_op *op = nb_op_holding((nb_op *)c->op, c->op->nout + 1);
    bool ok = c->op->repeats(c, &t) &&
              nb_localiser_begin(&sub, b->graph, b->node, &b->lay, m->position);
    if (!ok) return nb_op_leave(op), false;
    if (op) op->region[0] = turn_of(&sub, c, d, b, t.carries);
    ok = op && op->region[0] && record_loop(m, c, op, &sub, &t, in, out);
    nb_localiser_end(&sub);
    nb_op_leave(op);
    return ok;
}

/* On whole values */

static void forget_meshes(nb_graph *g)
{
    for (int k = 0; k < g->n; k++) {
        nb_line *l = &g->line[k];
        l->sharding = NULL;
        if (l->op && l->op->places) {
            l->op = &nb_op_alias;
            l->nattr = 0;
        }
        for (int i = 0; l->op && i < 2; i++)
            if (l->op->region[i]) forget_meshes(l->op->region[i]);
    }
}

static bool whole(const nb_call *c, nb_tensor *const *in, nb_tensor **out)
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
        if (ok) forget_meshes(op->region[k]);
    }
    ok = ok && nb_record_many(op, c->nin, in, c->nattr, c->attr, &r);
    nb_op_leave(op);
    return ok;
}

/* Whether values inside are split; then `b` is how. */
static bool open_body(const nb_call *c, const nb_decision *d, nb_inside *b,
                      bool *ok)
{
    const nb_spec **in = nb_alloc((size_t)(c->nin + 1) * sizeof *in);
    bool opens = in && d && c->op->result && nb_inside_inputs(c, d, in);
    *ok = in && (!opens || nb_inside_lay(c->op->region[0], d->mesh, in, b));
    nb_free(in);
    return opens && *ok;
}

bool nb_localiser_call_many(nb_localiser *m, int line, const nb_call *c,
                            const nb_decision *d, nb_tensor **in)
{
    nb_inside b;
    bool ok;
    nb_tensor **out = nb_alloc((size_t)(c->op->nout + 1) * sizeof *out);
    m->part[line] = out;
    if (!out) return false;
    if (d && nb_call_hands_on(c)) {
        memcpy(out, in, (size_t)c->op->nout * sizeof *out);
        return true;
    }
    if (!open_body(c, d, &b, &ok)) return ok && whole(c, in, out);
    ok = c->op->inlines ? record_inside(m, c, d, &b, in, out)
                        : loop(m, c, d, &b, in, out);
    nb_inside_free(&b);
    return ok;
}
