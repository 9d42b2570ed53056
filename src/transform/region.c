/* region.c - recording a function into a program, its shapes, and the
 * derivatives of one run of it. */
#include "transform/region.h"

#include "core/debug.h"
#include "core/joints.h"
#include "core/lanes.h"
#include "nabla/device.h"
#include "ops/ops.h"
#include "transform/closed.h"
#include "transform/derive.h"
#include "transform/outside.h"

#include <string.h>

bool nb_list_add(nb_list *l, nb_tensor *x)
{
    if (!x || !nb_grow(&l->at, &l->room, l->n + 1, sizeof *l->at)) return false;
    l->at[l->n++] = x;
    return true;
}

void nb_list_free(nb_list *l)
{
    nb_free(l->at);
    *l = (nb_list){0};
}

nb_tensor *nb_stand_in(nb_dtype dtype, const nb_shape *shape)
{
    return nb_node_new(NULL, NULL, dtype, shape, 0, NULL, 0, NULL);
}

nb_tensor *nb_stand_in_on(int device, nb_dtype dtype, const nb_shape *shape)
{
    nb_tensor *x = nb_stand_in(dtype, shape);
    if (x) x->device = (uint8_t)device;
    return x;
}

void nb_region_free(nb_region *r)
{
    nb_graph_free(r->graph);
    for (int i = 0; i < r->ncaptured; i++)
        nb_drop(r->captured[i]);
    nb_free(r->captured);
    *r = (nb_region){0};
}

nb_tensor *nb_strong(nb_tensor *x, nb_tensor *like)
{
    if (!x || !nb_is_weak(x)) return x;
    nb_dtype d = nb_dtype_common(like ? 2 : 1, (nb_tensor *[]){x, like});
    return d ? nb_as(x, d) : NULL;
}

/* What y needs that is neither a stand-in nor recorded since: nodes older than
 * the call, data made inside, and moves of both from another device. */
typedef struct search {
    nb_region *r;
    const nb_list *x;
    nb_tensor **stack;
    int depth, room, captured_room;
    uint64_t since;
    bool *seen; /* of nodes since, by serial */
    const nb_saving *saving;
    nb_list saved;
} search;

static bool capture(search *s, nb_tensor *x)
{
    nb_region *r = s->r;
    for (int i = 0; i < r->ncaptured; i++)
        if (r->captured[i] == x) return true;
    if (!nb_grow(&r->captured, &s->captured_room, r->ncaptured + 1,
                 sizeof *r->captured))
        return false;
    r->captured[r->ncaptured++] = nb_keep(x);
    return true;
}

static bool look(search *s, nb_tensor *x)
{
    for (int i = 0; i < s->x->n; i++)
        if (s->x->at[i] == x) return true;
    bool number = !x->op && !x->buffer && nb_tensor_done(x);
    if (number && x->serial >= s->since) return true; /* stands as itself */
    if (!x->op || x->serial < s->since) return capture(s, x);
    if (s->seen[x->serial - s->since]) return true;
    bool moved;
    s->seen[x->serial - s->since] = true;
    if (!nb_outside_moved(x, s->x, s->since, &moved)) return false;
    if (moved) return capture(s, x);
    if (!nb_grow(&s->stack, &s->room, s->depth + 1, sizeof *s->stack))
        return false;
    s->stack[s->depth++] = x;
    bool save = s->saving && s->saving->asked(s->saving->ctx, x);
    return !save || nb_list_add(&s->saved, x);
}

static bool find_captured(search *s, int ny, nb_tensor *const *y)
{
    nb_shape none = {0};
    nb_tensor *last = nb_stand_in(NB_BOOL, &none); /* newer than all */
    s->seen = last ? nb_alloc_zero(last->serial - s->since) : NULL;
    bool ok = s->seen;
    for (int i = 0; ok && i < ny; i++)
        ok = look(s, y[i]);
    while (ok && s->depth) {
        nb_tensor *node = s->stack[--s->depth];
        for (int i = 0; ok && i < node->nin; i++)
            ok = look(s, nb_tensor_in(node)[i]);
    }
    nb_free(s->stack);
    nb_free(s->seen);
    return ok;
}

static bool graph_of(nb_region *r, const nb_list *x, int ny,
                     nb_tensor *const *y)
{
    nb_tensor **all = nb_array(x->n + r->ncaptured);
    if (!all) return false;
    for (int i = 0; i < x->n + r->ncaptured; i++)
        all[i] = i < x->n ? x->at[i] : r->captured[i - x->n];
    nb_graph_free(r->graph);
    r->graph = NULL;
    nb_status s = nb_graph_of(x->n + r->ncaptured, all, ny, y, &r->graph);
    nb_free(all);
    return s == NB_OK;
}

static bool input_has(const nb_graph *g, int lane)
{
    for (int i = 0; i < g->nx; i++)
        if (nb_shape_find_lane(&g->line[i].shape, lane) >= 0) return true;
    return false;
}

/* Lanes of results that no input has, as where the body asks for its lane's
 * number: an input that nobody reads has them, or a later run of the graph
 * could not tell what they are. */
static bool add_witness(search *s, int ny, nb_tensor *const *y)
{
    const nb_graph *g = s->r->graph;
    nb_tensor *w = NULL;
    for (int k = 0; k < ny; k++)
        for (int l = 0; l < g->line[g->result[k]].shape.nlanes; l++) {
            nb_lane lane = g->line[g->result[k]].shape.lane[l];
            if (input_has(g, lane.id)) continue;
            lane.id = g->lane_id[lane.id - 1];
            w = nb_spread(w ? w : nb_scalar_int(0, NB_I32), lane);
            if (!w) return false;
        }
    return !w || (capture(s, w) && graph_of(s->r, s->x, ny, y));
}

/* f(x) with results that are no bare numbers, the first nc in the dtype of the
 * carries that they become; *since is the serial of the first node that it
 * could have made.  They come after the effects of f; of an f without results
 * the last effect is in y[0], though *ny is 0.  Once: the program has no
 * derivatives but those taken inside f. */
static bool call(nb_func *f, bool once, int nc, const nb_list *x, int *ny,
                 nb_tensor **y, uint64_t *since)
{
    nb_shape none = {0};
    nb_tensor *first = nb_stand_in(NB_BOOL, &none);
    nb_effects effects;
    nb_closed closed;
    nb_effects_open(&effects);
    nb_closed_record(&closed, once ? &(nb_list){0} : x);
    bool ok = first && nb_run(f, x->n, x->at, ny, y);
    nb_closed_close(&closed);
    *since = first ? first->serial : 0;
    for (int k = 0; ok && k < *ny; k++)
        ok = (y[k] = nb_strong(y[k], k < nc ? x->at[k] : NULL)) &&
             (y[k] = nb_effects_tie(y[k]));
    if (!*ny) y[0] = effects.n ? nb_give(nb_keep(effects.pending[0])) : NULL;
    nb_effects_close(&effects);
    return ok;
}

/* Results, then what is saved. */
static nb_tensor **all_results(const search *s, int ny, nb_tensor *const *y)
{
    nb_tensor **all = nb_array(ny + s->saved.n);
    for (int k = 0; all && k < ny + s->saved.n; k++)
        all[k] = k < ny ? y[k] : s->saved.at[k - ny];
    return all;
}

static bool finish(nb_region *r, const nb_list *x, int ny, nb_tensor *const *y,
                   uint64_t since, const nb_saving *saving)
{
    search s = {.r = r, .x = x, .since = since, .saving = saving};
    nb_tensor **all = NULL;
    bool ok = find_captured(&s, ny, y) && (all = all_results(&s, ny, y));
    ny += s.saved.n;
    ok = ok && graph_of(r, x, ny, all) && add_witness(&s, ny, all);
    nb_list_free(&s.saved);
    nb_free(all);
    if (!ok) nb_region_free(r);
    return ok;
}

bool nb_region_record_saving(nb_region *r, nb_func *f, nb_list *x,
                             const nb_saving *saving, int *ny)
{
    nb_tensor **y = nb_array(NB_MAX_RESULTS);
    uint64_t since;
    *ny = NB_MAX_RESULTS;
    bool once = r->once;
    *r = (nb_region){0};
    bool ok = y && call(f, once, 0, x, ny, y, &since);
    bool effect = ok && !*ny && y[0] && !saving;
    ok = ok && finish(r, x, *ny + effect, y, since, saving);
    if (ok && effect) r->graph->ny = 0; /* a line that nobody needs */
    nb_free(y);
    return ok;
}

bool nb_region_record(nb_region *r, nb_func *f, nb_list *x)
{
    int ny;
    return nb_region_record_saving(r, f, x, NULL, &ny);
}

/* Loops */

bool nb_carry_check(const char *who, int k, const nb_tensor *was,
                    const nb_tensor *is)
{
    bool same = was->dtype == is->dtype && was->rank == is->rank;
    for (int d = 0; same && d < is->rank; d++)
        same = nb_extent_same(nb_tensor_size(was)[d], nb_tensor_size(is)[d]);
    if (same) return true;
    nb_shape a = nb_tensor_shape(was), b = nb_tensor_shape(is);
    return nb_fail(NB_EVALUE, "%s %d is %s%s and comes back as %s%s", who, k,
                   nb_dtype_brief((nb_dtype)was->dtype), nb_shape_text(&a),
                   nb_dtype_brief((nb_dtype)is->dtype), nb_shape_text(&b));
}

/* A carry that comes back on a card has to be there from the first; one that
 * is there and comes back on the CPU is moved. */
static bool brought(nb_tensor *was, nb_tensor **is, bool *again)
{
    if (was->device == (*is)->device) return true;
    if (was->device) return (*is = nb_to_device(*is, was->device));
    was->device = (*is)->device;
    return *again = true;
}

/* Calls f on stand-ins for carries of these shapes; *again if they come back
 * with more lanes, by which the shapes are widened. */
static bool try_loop(nb_region *r, const char *who, nb_func *f, int nc,
                     nb_shape *shape, nb_list *x, bool *again)
{
    int ny = NB_MAX_RESULTS + 4 * nc; /* derivatives add to each carry */
    nb_tensor **y = nb_array(ny);
    uint64_t since;
    bool ok = y;
    *again = false;
    for (int k = 0; ok && k < nc; k++)
        ok = (x->at[k] = nb_stand_in_on(x->at[k]->device,
                                        (nb_dtype)x->at[k]->dtype, &shape[k]));
    ok = ok && call(f, false, nc, x, &ny, y, &since);
    if (ok && ny < nc)
        ok = nb_fail(NB_EVALUE, "%s %d does not come back: %d results for %d",
                     who, ny, ny, nc);
    for (int k = 0; ok && k < nc; k++) {
        nb_shape out = nb_tensor_shape(y[k]);
        ok = nb_carry_check(who, k, x->at[k], y[k]) &&
             brought(x->at[k], &y[k], again);
        *again = nb_lanes_widen(&shape[k], &out) || *again;
    }
    ok = ok && (*again || finish(r, x, ny, y, since, NULL));
    nb_free(y);
    return ok;
}

bool nb_region_loop(nb_region *r, const char *who, nb_func *f, int nc,
                    nb_tensor *const *init, nb_list *x)
{
    nb_shape *shape = nb_alloc((size_t)(nc + 1) * sizeof *shape);
    nb_list all = {0};
    bool ok = shape, again = true;
    *r = (nb_region){0};
    for (int k = 0; ok && k < nc; k++) {
        shape[k] = nb_tensor_shape(init[k]);
        ok = nb_list_add(&all, init[k]);
    }
    for (int i = 0; ok && i < x->n; i++)
        ok = nb_list_add(&all, x->at[i]);
    nb_list_free(x);
    *x = all;
    while (ok && again) {
        x->n = all.n; /* without what an earlier call added */
        ok = try_loop(r, who, f, nc, shape, x, &again);
    }
    nb_free(shape);
    return ok;
}

/* Ops */

void nb_op_without_params(nb_op *op)
{
    static nb_params none;
    op->parsed = &none;
    op->ready = true;
    op->uses = 1;
}

/* An effect happens now, or when what is being recorded runs. */
static bool happen(nb_tensor *y)
{
    return nb_effects_pending() ? nb_effects_are(y) : nb_realize_now(1, &y);
}

/* Where a call of them is: with those on a card, or, if all are numbers, where
 * things are made now. */
static int device_among(const nb_list *in)
{
    bool numbers = true;
    for (int i = 0; i < in->n; i++) {
        if (in->at[i]->device) return in->at[i]->device;
        numbers = numbers && nb_tensor_is_number(in->at[i]);
    }
    return numbers ? nb_device_in_force() : 0;
}

/* To programs on a card numbers are inputs, too. */
static bool bring_numbers(nb_list *in)
{
    int device = device_among(in);
    bool ok = true;
    for (int i = 0; ok && i < in->n; i++)
        if (in->at[i]->device != device)
            ok = (in->at[i] = nb_to_device(in->at[i], device));
    return ok;
}

/* Whether the line computes with what was moved to the CPU on purpose. */
static bool left_card(const nb_graph *g, const nb_line *l)
{
    for (int i = 0; i < l->nin; i++) {
        const nb_line *from = &g->line[l->in[i]];
        if (from->kind != NB_LINE_NUMBER && !from->device) return true;
    }
    return false;
}

/* What was recorded of numbers on the CPU happens where they were brought. */
static void bring_lines(nb_graph *g, int device)
{
    for (int k = 0; k < g->n; k++) {
        nb_line *l = &g->line[k];
        if (l->kind == NB_LINE_NUMBER || l->device) continue;
        if (l->op && (l->op->lands || left_card(g, l))) continue;
        l->device = device;
        for (int r = 0; l->op && r < 2; r++)
            if (l->op->region[r]) bring_lines(l->op->region[r], device);
    }
}

bool nb_region_apply(nb_op *form, nb_region *r, nb_region *other, nb_list *in,
                     int nattr, const int64_t *attr, nb_results *results)
{
    nb_region *all[] = {r, other};
    nb_op *op = nb_op_holding(form, results->room);
    bool ok = op;
    for (int k = 0; ok && k < 2 && all[k]; k++) {
        for (int i = 0; ok && i < all[k]->ncaptured; i++)
            ok = nb_list_add(in, all[k]->captured[i]);
        op->region[k] = all[k]->graph;
        op->effect = op->effect || nb_graph_has_effect(op->region[k]);
        all[k]->graph = NULL;
    }
    ok =
        ok && nb_settle_devices(form->name, in->n, in->at) && bring_numbers(in);
    int device = ok ? device_among(in) : 0;
    for (int k = 0; device && k < 2; k++)
        if (op->region[k]) bring_lines(op->region[k], device);
    bool effect = ok && op->effect && in->n && !nb_direction();
    if (effect) ok = (in->at[0] = nb_effects_tie(in->at[0]));
    ok = ok && nb_record_many(op, in->n, in->at, nattr, attr, results);
    if (ok && effect && results->n) ok = happen(results->out[0]);
    nb_op_leave(op);
    return ok;
}

/* Shapes */

const nb_line *nb_region_result(const nb_graph *g, int k)
{
    return &g->line[g->result[k]];
}

static nb_tensor absent;
nb_tensor *const nb_absent = &absent;

/* Whether the line of an input was recorded with this lane of it. */
static bool foreseen(const nb_shape *line, const int *id, nb_lane lane)
{
    for (int l = 0; l < line->nlanes; l++)
        if (id[line->lane[l].id] == lane.id)
            return lane.thin || !line->lane[l].thin;
    return false;
}

nb_shape nb_region_shape(const nb_graph *g, nb_tensor *const *x,
                         const nb_line *line)
{
    int id[NB_MAX_GRAPH_LANES + 1];
    nb_shape s = {.rank = line->shape.rank}, more = {0};
    nb_graph_match(g, x, id);
    memcpy(s.size, line->shape.size, sizeof s.size);
    for (int l = 0; l < line->shape.nlanes; l++) {
        nb_lane lane = line->shape.lane[l];
        lane.id = id[lane.id];
        nb_shape_add_lane(&s, lane);
    }
    for (int i = 0; i < g->nx; i++)
        for (int l = 0; l < x[i]->nlanes; l++) {
            nb_lane lane = nb_tensor_lane(x[i])[l];
            if (foreseen(&g->line[i].shape, id, lane)) continue;
            more.nlanes = 1;
            more.lane[0] = lane;
            nb_lanes_widen(&s, &more);
        }
    return s;
}

bool nb_region_join(const nb_graph *g, const nb_call *c, nb_joints *j)
{
    nb_tensor **x = nb_array(g->nx);
    if (!x) return false;
    for (int i = 0; i < g->nx; i++)
        x[i] = j->from[i] < 0 ? nb_absent : c->in[j->from[i]];
    for (int k = 0; k < g->ny; k++)
        if (j->feeds[k] >= 0)
            j->shape[j->feeds[k]] =
                nb_region_shape(g, x, &g->line[j->feeds[k]]);
    nb_free(x);
    return true;
}

nb_shape *nb_call_shapes(const nb_call *c)
{
    nb_shape *all = nb_alloc((size_t)(c->op->nout + 1) * sizeof *all);
    bool ok = all;
    for (int k = 0; ok && k < c->op->nout; k++) {
        nb_dtype d;
        ok = c->op->result(c, k, &all[k], &d);
    }
    if (!ok) nb_free(all);
    return ok ? all : NULL;
}

bool nb_lanes_widen(nb_shape *a, const nb_shape *b)
{
    bool changed = false;
    for (int l = 0; l < b->nlanes; l++) {
        int at = nb_shape_find_lane(a, b->lane[l].id);
        if (at < 0) {
            changed = nb_shape_add_lane(a, b->lane[l]) || changed;
        } else if (a->lane[at].thin && !b->lane[l].thin) {
            a->lane[at].thin = false;
            changed = true;
        }
    }
    return changed;
}

nb_tensor *nb_spread_over(nb_tensor *x, const nb_shape *s)
{
    for (int l = 0; l < s->nlanes; l++)
        x = nb_spread(x, s->lane[l]);
    return x;
}

bool nb_spread_back(const nb_tensor *x, const nb_shape *s, nb_tensor **ct)
{
    nb_shape own = nb_tensor_shape(x);
    if (!*ct) return true;
    for (int l = 0; l < s->nlanes; l++)
        if (nb_shape_find_lane(&own, s->lane[l].id) < 0)
            *ct = nb_reduce_sum(nb_show(*ct, 0, s->lane[l]), 1, (int64_t[]){0},
                                false);
    return *ct;
}

bool nb_differs(const nb_tensor *x)
{
    for (int l = 0; l < x->nlanes; l++)
        if (!nb_tensor_lane(x)[l].thin) return true;
    return false;
}

/* Derivatives of one turn */

static bool is_real(nb_dtype d)
{
    return nb_dtype_is_float(d);
}

bool *nb_call_moved(const nb_call *c, nb_tensor *const *u, bool *any)
{
    bool *on = nb_alloc((size_t)(c->nin + 1));
    *any = false;
    for (int i = 0; on && i < c->nin; i++)
        *any = (on[i] = u[i]) || *any;
    return on;
}

/* Nodes say which walks they lie on; of one that lies on none nobody asks. */
bool *nb_call_wanted(const nb_call *c, bool *any)
{
    bool *on = nb_alloc((size_t)(c->nin + 1));
    *any = false;
    for (int i = 0; on && i < c->nin; i++) {
        on[i] = is_real((nb_dtype)c->in[i]->dtype) && c->in[i]->trace;
        *any = on[i] || *any;
    }
    return on;
}

bool *nb_region_moves(const nb_graph *g, const bool *on, const int *feeds)
{
    bool *moves = nb_alloc_zero((size_t)(g->n + 1)), again = moves;
    if (moves) memcpy(moves, on, (size_t)g->nx);
    while (again) {
        again = false;
        for (int k = g->nx; k < g->n; k++)
            for (int i = 0; i < g->line[k].nin && !moves[k]; i++)
                moves[k] = moves[g->line[k].in[i]] &&
                           (g->line[k].multi || is_real(g->line[k].dtype));
        for (int k = 0; feeds && k < g->ny; k++)
            if (feeds[k] >= 0 && moves[g->result[k]] && !moves[feeds[k]])
                again = moves[feeds[k]] = true;
    }
    return moves;
}

/* A run of the graph with some inputs on tape. */
typedef struct taped {
    nb_tape *tape;
    nb_tensor **in, **fresh; /* all inputs; those on tape */
    nb_tensor **all, **y;    /* all results; those asked for */
} taped;

static void taped_free(taped *t)
{
    nb_tape_drop(t->tape);
    nb_free(t->in), nb_free(t->fresh), nb_free(t->all), nb_free(t->y);
}

static bool tape(taped *t, const nb_graph *g, nb_tensor *const *in,
                 const bool *on, int n, const int *which)
{
    int m = 0;
    *t = (taped){.in = nb_array(g->nx),
                 .fresh = nb_array(g->nx),
                 .all = nb_array(g->ny),
                 .y = nb_array(n)};
    bool ok = t->in && t->fresh && t->all && t->y;
    for (int i = 0; ok && i < g->nx; i++)
        if (on[i]) t->in[m++] = in[i];
    ok = ok && (t->tape = nb_tape_open_inner(m, t->in, t->fresh));
    for (int i = 0, k = 0; ok && i < g->nx; i++)
        t->in[i] = on[i] ? t->fresh[k++] : in[i];
    ok = ok && nb_graph_run(g, g->nx, t->in, t->all) == NB_OK;
    for (int k = 0; ok && k < n; k++)
        t->y[k] = t->all[which ? which[k] : k];
    return ok;
}

bool nb_region_push(const nb_graph *g, nb_tensor *const *in,
                    nb_tensor *const *u, int n, const int *which, nb_tensor **y,
                    nb_tensor **uy)
{
    taped t = {0};
    bool *on = nb_alloc((size_t)(g->nx + 1));
    nb_tensor **some = nb_array(g->nx);
    int m = 0;
    bool ok = on && some;
    for (int i = 0; ok && i < g->nx; i++)
        if ((on[i] = u[i])) some[m++] = u[i];
    ok = ok && tape(&t, g, in, on, n, which) &&
         nb_tape_close(t.tape, n, t.y) == NB_OK &&
         nb_tape_push(t.tape, some, uy) == NB_OK;
    for (int k = 0; ok && k < n; k++)
        y[k] = t.y[k];
    taped_free(&t);
    nb_free(on), nb_free(some);
    return ok;
}

/* A result that lacks some of its lanes is the same in all of them: spread, so
 * that walking back sums over them.  all: every result, or NULL. */
static bool pull(const nb_graph *g, nb_tensor *const *in, const bool *on, int n,
                 const int *which, const nb_shape *lanes, nb_tensor *const *ct,
                 nb_tensor **all, nb_tensor **cx)
{
    taped t = {0};
    nb_tensor **some = nb_array(g->nx);
    bool ok = some && tape(&t, g, in, on, n, which);
    for (int k = 0; ok && k < n; k++)
        ok = (t.y[k] = nb_spread_over(t.y[k], &lanes[k]));
    ok = ok && nb_tape_close(t.tape, n, t.y) == NB_OK &&
         nb_tape_pull(t.tape, ct, some) == NB_OK;
    for (int i = 0, k = 0; ok && i < g->nx; i++)
        cx[i] = on[i] ? some[k++] : NULL;
    for (int k = 0; ok && all && k < g->ny; k++)
        all[k] = t.all[k];
    taped_free(&t);
    nb_free(some);
    return ok;
}

bool nb_region_pull(const nb_graph *g, nb_tensor *const *in, const bool *on,
                    int n, const int *which, const nb_shape *lanes,
                    nb_tensor *const *ct, nb_tensor **cx)
{
    return pull(g, in, on, n, which, lanes, ct, NULL, cx);
}

bool nb_region_pull_all(const nb_graph *g, nb_tensor *const *in, const bool *on,
                        const nb_shape *lanes, nb_tensor *const *ct,
                        nb_tensor **y, nb_tensor **cx)
{
    return pull(g, in, on, g->ny, NULL, lanes, ct, y, cx);
}
