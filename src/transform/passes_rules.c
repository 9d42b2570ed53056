/* passes_rules.c - derivatives of a loop of several passes: loops of passes.
 *
 * Forward, every state and every value that is kept goes together with its
 * tangent.  Backward, the passes run once more and keep their states too; then
 * as many passes the other way, the last first, carry cotangents: of the
 * states, and summed up of what is closed over.  A pass that reads what an
 * earlier one kept finds cotangents of it, which it keeps for that one. */
#include "transform/passes.h"

#include "ops/ops.h"

/* What a differentiated pass closes over. */
typedef struct around {
    const nb_call *c;
    const nb_graph *g;
    nb_passes p;
    nb_tensor *const *u; /* tangents of the op's inputs */
    const bool *moves;   /* lines of the program */
    nb_shape *shape;     /* of states and of what is kept */
} around;

typedef struct one {
    const around *a;
    int pass;
} one;

/* Inputs of the program for a run of one pass: states of other passes and what
 * the pass cannot see are there for their types only. */
static nb_tensor **inputs(const around *a)
{
    nb_tensor **in = nb_array(a->g->nx);
    int n = a->p.states + a->p.kept;
    bool ok = in;
    for (int i = 0; ok && i < a->g->nx; i++) {
        in[i] = i < n ? nb_stand_in_on(a->g->line[i].device,
                                       a->g->line[i].dtype, &a->shape[i])
                      : a->c->in[i - a->p.kept];
        ok = in[i];
    }
    if (!ok) nb_free(in);
    return ok ? in : NULL;
}

/* The numbers of a pass's results; their shapes. */
static int *results(const around *a, int pass)
{
    int n = a->p.pass[pass].states, m = a->p.pass[pass].kept;
    int *which = nb_alloc((size_t)(n + m + 1) * sizeof *which);
    for (int k = 0; which && k < n + m; k++)
        which[k] = k < n ? a->p.pass[pass].state + k
                         : a->p.states + 1 + a->p.pass[pass].keep + k - n;
    return which;
}

/* The input that a result becomes: a state, or a value kept. */
static int fed(const nb_passes *p, int result)
{
    return result < p->states ? result : result - 1;
}

/* Lines that move if those inputs of the op do. */
static bool *moving(const around *a, const bool *on)
{
    const nb_graph *g = a->g;
    int n = a->p.states, m = n + a->p.kept;
    bool *all = nb_alloc_zero((size_t)(g->nx + 1)), *moves = NULL;
    int *feeds = nb_alloc((size_t)(g->ny + 1) * sizeof *feeds);
    for (int i = 0; all && i < g->nx; i++)
        all[i] = i < n ? on[i] : i >= m && on[i - a->p.kept];
    for (int k = 0; feeds && k < g->ny; k++)
        feeds[k] = k == n ? -1 : fed(&a->p, k);
    if (all && feeds) moves = nb_region_moves(g, all, feeds);
    nb_free(all), nb_free(feeds);
    return moves;
}

/* The test once more, on the states of the first pass. */
static nb_status test_again(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    const around *a = ctx;
    nb_tensor **in = inputs(a), **out = nb_array(a->g->ny);
    (void)nx;
    for (int k = 0; in && k < a->p.pass[0].states; k++)
        in[k] = x[k];
    bool ok = in && out && nb_graph_run(a->g, a->g->nx, in, out) == NB_OK;
    if (ok) y[0] = out[a->p.states];
    *ny = 1;
    nb_free(in), nb_free(out);
    return NB_STATUS(ok);
}

static void free_passes(int n, nb_pass *pass)
{
    for (int p = 0; p < n; p++)
        nb_list_free(&pass[p].init);
}

/* Forward */

/* Values of n inputs from `first` on, then tangents of those that move. */
static nb_tensor *const *take(const around *a, int first, int n,
                              nb_tensor *const *x, nb_tensor **in,
                              nb_tensor **u)
{
    for (int i = first; i < first + n; i++)
        in[i] = *x++;
    for (int i = first; i < first + n; i++)
        if (a->moves[i]) u[i] = *x++;
    return x;
}

static bool give(const around *a, int n, const int *which,
                 nb_tensor *const *out, nb_tensor *const *uy, nb_results *y)
{
    bool ok = true;
    for (int k = 0; ok && k < n; k++)
        ok = nb_results_add(y, out[k]);
    for (int k = 0; ok && k < n; k++)
        if (a->moves[fed(&a->p, which[k])])
            ok = nb_results_add(y, nb_or_zeros(uy[k], out[k]));
    return ok;
}

/* (states, tangents; kept, tangents of each earlier pass) -> the same */
static nb_status push_pass(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const one *o = ctx;
    const around *a = o->a;
    int n = a->p.pass[o->pass].states, m = a->p.pass[o->pass].kept;
    int *which = results(a, o->pass);
    nb_tensor **in = inputs(a), **u = nb_array(a->g->nx);
    nb_tensor **out = nb_array(n + m), **uy = nb_array(n + m);
    nb_results all = {.room = *ny, .out = y};
    bool ok = which && in && u && out && uy;
    (void)nx;
    if (ok) x = take(a, a->p.pass[o->pass].state, n, x, in, u);
    for (int q = 0; ok && q < o->pass; q++)
        x = take(a, a->p.states + a->p.pass[q].keep, a->p.pass[q].kept, x, in,
                 u);
    for (int i = a->p.states + a->p.kept; ok && i < a->g->nx; i++)
        u[i] = a->u[i - a->p.kept];
    ok = ok && nb_region_push(a->g, in, u, n + m, which, out, uy) &&
         give(a, n, which, out, uy, &all) &&
         give(a, m, which + n, out + n, uy + n, &all);
    *ny = all.n;
    nb_free(which), nb_free(in), nb_free(u), nb_free(out), nb_free(uy);
    return NB_STATUS(ok);
}

static bool push_all(around *a, nb_tensor **uy)
{
    nb_pass pass[NB_MAX_PASSES] = {{0}};
    one each[NB_MAX_PASSES];
    nb_tensor **y = nb_array(2 * a->p.states), *const *at = y;
    nb_results r = {.room = 2 * a->p.states, .out = y};
    bool ok = y;
    for (int p = 0; ok && p < a->p.n; p++) {
        int first = a->p.pass[p].state, end = first + a->p.pass[p].states;
        each[p] = (one){a, p};
        pass[p].body = nb_func_new(push_pass, &each[p]);
        for (int k = first; ok && k < end; k++)
            ok = nb_list_add(&pass[p].init, a->c->in[k]);
        for (int k = first; ok && k < end; k++)
            if (a->moves[k])
                ok = nb_list_add(&pass[p].init,
                                 nb_or_zeros(a->u[k], a->c->in[k]));
    }
    ok = ok && nb_passes_record(nb_func_new(test_again, a), a->p.n, pass, &r);
    for (int p = 0; ok && p < a->p.n; p++) {
        int first = a->p.pass[p].state, end = first + a->p.pass[p].states;
        at += end - first;
        for (int k = first; k < end; k++)
            uy[k] = a->moves[k] ? *at++ : NULL;
    }
    free_passes(a->p.n, pass);
    nb_free(y);
    return ok;
}

bool nb_passes_push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    around a = {.c = c,
                .g = c->op->region[0],
                .p = nb_passes_of(c),
                .u = u,
                .shape = nb_passes_shapes(c)};
    bool any, *on = nb_call_moved(c, u, &any), *moves = NULL;
    bool ok = a.shape && on && (moves = moving(&a, on));
    a.moves = moves;
    ok = ok && (!any || push_all(&a, uy));
    nb_free(on), nb_free(moves), nb_free(a.shape);
    return ok;
}

/* Backward */

/* What the passes that run once more keep: values, and states as they came. */
static nb_tensor *const *take_kept(const around *a, int npasses,
                                   nb_tensor *const *x, nb_tensor **kept,
                                   nb_tensor **state)
{
    for (int q = 0; q < npasses; q++) {
        for (int k = 0; k < a->p.pass[q].kept; k++)
            kept[a->p.pass[q].keep + k] = *x++;
        for (int k = 0; k < a->p.pass[q].states; k++, x++)
            if (state) state[a->p.pass[q].state + k] = *x;
    }
    return x;
}

/* (states; kept, states of each earlier pass) -> (states; kept, states) */
static nb_status again_pass(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    const one *o = ctx;
    const around *a = o->a;
    int n = a->p.pass[o->pass].states, m = a->p.pass[o->pass].kept;
    int *which = results(a, o->pass);
    nb_tensor **in = inputs(a), **out = nb_array(a->g->ny);
    bool ok = which && in && out;
    (void)nx;
    for (int k = 0; ok && k < n; k++)
        in[a->p.pass[o->pass].state + k] = x[k];
    if (ok) take_kept(a, o->pass, x + n, in + a->p.states, NULL);
    if (ok && 2 * n + m > *ny)
        ok = nb_fail(NB_EVALUE, "while: more than %d values to keep", *ny);
    ok = ok && nb_graph_run(a->g, a->g->nx, in, out) == NB_OK;
    for (int k = 0; ok && k < n + m; k++)
        y[k] = out[which[k]];
    for (int k = 0; ok && k < n; k++)
        y[n + m + k] = x[k];
    *ny = 2 * n + m;
    nb_free(which), nb_free(in), nb_free(out);
    return NB_STATUS(ok);
}

/* One run back through a pass: what it is given, what it finds. */
typedef struct back {
    nb_tensor **in, **cx;  /* inputs of the program, their cotangents */
    nb_tensor **ct, **sum; /* of the pass's results; by input, summed so far */
    bool *on;
    int *which;
    nb_shape *lanes;
} back;

static void back_free(back *b)
{
    nb_free(b->in), nb_free(b->cx), nb_free(b->ct), nb_free(b->sum);
    nb_free(b->on), nb_free(b->which), nb_free(b->lanes);
}

static bool back_new(const around *a, int pass, back *b)
{
    int n = a->p.pass[pass].states + a->p.pass[pass].kept, nx = a->g->nx;
    *b = (back){.in = inputs(a),
                .cx = nb_array(nx),
                .ct = nb_array(n),
                .sum = nb_array(nx),
                .on = nb_alloc_zero((size_t)(nx + 1)),
                .which = results(a, pass),
                .lanes = nb_alloc((size_t)(n + 1) * sizeof *b->lanes)};
    if (!b->in || !b->cx || !b->ct || !b->sum || !b->on || !b->which ||
        !b->lanes)
        return false;
    for (int k = 0; k < n; k++)
        b->lanes[k] = a->shape[fed(&a->p, b->which[k])];
    for (int i = 0; i < nx; i++) {
        int k = i - a->p.states, s = i - a->p.pass[pass].state;
        bool own = i < a->p.states ? s >= 0 && s < a->p.pass[pass].states
                   : k < a->p.kept ? k < a->p.pass[pass].keep
                                   : true;
        b->on[i] = own && a->moves[i];
    }
    return true;
}

/* x: cotangents of the pass's states, sums for what is closed over; what the
 * passes kept when run again; cotangents that passes walked back before this
 * one found of what was kept. */
static bool back_take(const around *a, int pass, nb_tensor *const *x, back *b)
{
    int states = a->p.pass[pass].states, first = a->p.states;
    nb_tensor **old = nb_array(a->p.states);
    bool ok = old;
    for (int k = 0; k < states; k++)
        b->ct[k] = a->moves[a->p.pass[pass].state + k] ? *x++ : NULL;
    for (int i = first + a->p.kept; i < a->g->nx; i++)
        b->sum[i] = a->moves[i] ? *x++ : NULL;
    if (ok) x = take_kept(a, a->p.n, x, b->in + first, old);
    for (int k = 0; ok && k < states; k++)
        b->in[a->p.pass[pass].state + k] = old[a->p.pass[pass].state + k];
    for (int q = a->p.n - 1; ok && q > pass; q--)
        for (int k = 0; ok && k < a->p.pass[q].keep; k++) {
            int at = k - a->p.pass[pass].keep;
            if (!a->moves[first + k]) continue;
            nb_tensor *g = *x++;
            if (at < 0 || at >= a->p.pass[pass].kept) continue;
            nb_tensor **to = &b->ct[states + at];
            ok = (*to = *to ? nb_add(*to, g) : g);
        }
    nb_free(old);
    return ok;
}

static bool back_give(const around *a, int pass, const back *b, nb_results *y)
{
    int state = a->p.pass[pass].state, first = a->p.states;
    bool ok = true;
    for (int i = state; ok && i < state + a->p.pass[pass].states; i++)
        if (a->moves[i])
            ok = nb_results_add(y, nb_or_zeros(b->cx[i], b->in[i]));
    for (int i = first + a->p.kept; ok && i < a->g->nx; i++)
        if (a->moves[i])
            ok = nb_results_add(y, b->cx[i] ? nb_add(b->sum[i], b->cx[i])
                                            : b->sum[i]);
    for (int i = first; ok && i < first + a->p.pass[pass].keep; i++)
        if (a->moves[i])
            ok = nb_results_add(y, nb_or_zeros(b->cx[i], b->in[i]));
    return ok;
}

static nb_status pull_pass(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const one *o = ctx;
    const around *a = o->a;
    int n = a->p.pass[o->pass].states + a->p.pass[o->pass].kept;
    nb_results all = {.room = *ny, .out = y};
    back b = {0};
    (void)nx;
    bool ok =
        back_new(a, o->pass, &b) && back_take(a, o->pass, x, &b) &&
        nb_region_pull(a->g, b.in, b.on, n, b.which, b.lanes, b.ct, b.cx) &&
        back_give(a, o->pass, &b, &all);
    *ny = all.n;
    back_free(&b);
    return NB_STATUS(ok);
}

/* Cotangents of the last states, sums that begin at zero. */
static bool pull_init(const around *a, int pass, nb_tensor *const *ct,
                      nb_list *init)
{
    int first = a->p.pass[pass].state, end = first + a->p.pass[pass].states;
    bool ok = true;
    for (int k = first; ok && k < end; k++)
        if (a->moves[k])
            ok = nb_list_add(init, nb_or_zeros(ct[k], a->c->in[k]));
    for (int i = a->p.states; ok && i < a->c->nin; i++)
        if (a->moves[i + a->p.kept])
            ok = nb_list_add(init, nb_or_zeros(NULL, a->c->in[i]));
    return ok;
}

/* The last results of passes walked back, in their order: the last first. */
static bool pull_results(const around *a, nb_tensor *const *y, nb_tensor **cx)
{
    bool ok = true;
    for (int p = a->p.n - 1; ok && p >= 0; p--) {
        int first = a->p.pass[p].state, end = first + a->p.pass[p].states;
        for (int k = first; ok && k < end; k++) {
            cx[k] = a->moves[k] ? *y++ : NULL;
            ok = nb_spread_back(a->c->in[k], &a->shape[k], &cx[k]);
        }
        for (int i = a->p.states; ok && i < a->c->nin; i++) {
            if (!a->moves[i + a->p.kept]) continue;
            ok = (cx[i] = cx[i] ? nb_add(cx[i], *y) : *y);
            y++;
        }
    }
    return ok;
}

static bool pull_all(around *a, nb_tensor *const *ct, nb_tensor **cx)
{
    nb_pass pass[2 * NB_MAX_PASSES] = {{0}};
    one each[2 * NB_MAX_PASSES];
    int n = a->p.n, room = a->p.states * 2 + n * a->c->nin;
    nb_tensor **y = nb_array(room);
    nb_results r = {.room = room, .out = y};
    bool ok = y;
    for (int p = 0; ok && p < 2 * n; p++) {
        each[p] = (one){a, p < n ? p : 2 * n - 1 - p};
        pass[p].body = nb_func_new(p < n ? again_pass : pull_pass, &each[p]);
        int first = a->p.pass[each[p].pass].state;
        for (int k = 0; p < n && ok && k < a->p.pass[p].states; k++)
            ok = nb_list_add(&pass[p].init, a->c->in[first + k]);
        if (p >= n) ok = pull_init(a, each[p].pass, ct, &pass[p].init);
    }
    ok = ok && nb_passes_record(nb_func_new(test_again, a), 2 * n, pass, &r) &&
         pull_results(a, y + a->p.states, cx);
    free_passes(2 * n, pass);
    nb_free(y);
    return ok;
}

bool nb_passes_pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    around a = {.c = c,
                .g = c->op->region[0],
                .p = nb_passes_of(c),
                .shape = nb_passes_shapes(c)};
    bool any, *on = nb_call_wanted(c, &any), *moves = NULL;
    bool ok = a.shape && on && (moves = moving(&a, on));
    a.moves = moves;
    ok = ok && (!any || pull_all(&a, ct, cx));
    nb_free(on), nb_free(moves), nb_free(a.shape);
    return ok;
}
