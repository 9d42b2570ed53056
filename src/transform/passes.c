/* passes.c - a loop of several passes: recording and running it. */
#include "transform/passes.h"

#include "transform/forms.h"
#include "transform/turns.h"

#include "core/debug.h"
#include "core/joints.h"
#include "core/lanes.h"
#include "ops/ops.h"

#include <limits.h>
#include <string.h>

nb_passes nb_passes_of(const nb_call *c)
{
    nb_passes p = {0};
    int n;
    const int64_t *states = nb_arg_list(c, 0, &p.n);
    const int64_t *kept = nb_arg_list(c, 1, &n);
    for (int i = 0; i < p.n; i++) {
        p.pass[i].states = (int)states[i];
        p.pass[i].kept = (int)kept[i];
        p.pass[i].state = p.states;
        p.pass[i].keep = p.kept;
        p.states += p.pass[i].states;
        p.kept += p.pass[i].kept;
    }
    return p;
}

/* The inputs of the program, of which the op lacks those that are kept. */
static nb_tensor **inputs_of(const nb_call *c, const nb_passes *p)
{
    nb_tensor **in = nb_array(c->nin + p->kept);
    for (int i = 0; in && i < c->nin + p->kept; i++)
        in[i] = i < p->states             ? c->in[i]
                : i < p->states + p->kept ? nb_absent
                                          : c->in[i - p->kept];
    return in;
}

nb_shape *nb_passes_shapes(const nb_call *c)
{
    const nb_graph *g = c->op->region[0];
    nb_passes p = nb_passes_of(c);
    int n = p.states + p.kept;
    nb_shape *shape = nb_alloc((size_t)(n + 1) * sizeof *shape);
    nb_tensor **in = shape ? inputs_of(c, &p) : NULL;
    for (int i = 0; in && i < n; i++)
        shape[i] = nb_region_shape(g, in, &g->line[i]);
    if (!in) nb_free(shape);
    nb_free(in);
    return in ? shape : NULL;
}

static bool result(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    const nb_graph *g = c->op->region[0];
    nb_passes p = nb_passes_of(c);
    nb_tensor **in = inputs_of(c, &p);
    if (!in) return false;
    *out = nb_region_shape(g, in, &g->line[k]);
    *dtype = g->line[k].dtype;
    nb_free(in);
    return true;
}

/* Running */

typedef struct run {
    const nb_call *c;
    nb_passes p;
    nb_shape *shape;       /* of states and of what is kept */
    nb_tensor **in, **out; /* of the program; states in `in` are kept */
    nb_replay *test, *pass[NB_MAX_PASSES];
    int64_t turns;
    nb_tensor **kept; /* kept, turn by turn */
    int room;
} run;

static nb_replay *replay_of(const run *r, int pass)
{
    int n = r->p.states, states = r->p.pass[pass].states;
    int kept = r->p.pass[pass].kept;
    nb_tensor **y = nb_array(states + kept);
    if (!y) return NULL;
    for (int k = 0; k < states; k++)
        y[k] = r->out[r->p.pass[pass].state + k];
    for (int k = 0; k < kept; k++)
        y[states + k] = r->out[n + 1 + r->p.pass[pass].keep + k];
    nb_replay *p = nb_replay_new(n + r->p.kept, r->in, states + kept, y);
    nb_free(y);
    return p;
}

/* The program on stand-ins for what changes and on what does not. */
static bool prepare(run *r)
{
    const nb_call *c = r->c;
    const nb_graph *g = c->op->region[0];
    int n = r->p.states + r->p.kept;
    bool ok = true;
    for (int i = 0; ok && i < n; i++)
        ok = (r->in[i] = nb_stand_in_on(g->line[i].device, g->line[i].dtype,
                                        &r->shape[i]));
    for (int i = n; ok && i < g->nx; i++) {
        nb_shape s = nb_tensor_shape(c->in[i - r->p.kept]);
        ok = (r->in[i] = nb_leaf_of(c->in[i - r->p.kept], &s));
    }
    ok = ok && nb_graph_run(g, g->nx, r->in, r->out) == NB_OK &&
         (r->test = nb_replay_new(n, r->in, 1, r->out + r->p.states));
    for (int p = 0; ok && p < r->p.n; p++)
        ok = (r->pass[p] = replay_of(r, p));
    return ok;
}

static bool begin(run *r)
{
    bool ok = nb_scope_open() == NB_OK;
    if (!ok) return false;
    ok = prepare(r);
    for (int k = 0; k < r->p.states; k++)
        r->in[k] = ok ? nb_keep(nb_leaf_of(r->c->in[k], &r->shape[k])) : NULL;
    for (int k = 0; ok && k < r->p.states; k++)
        ok = r->in[k];
    nb_scope_close(0, NULL);
    return ok;
}

/* Places for what turn t keeps. */
static bool make_room(run *r, int64_t t)
{
    int64_t n = (t + 1) * r->p.kept;
    if (n > INT_MAX)
        return nb_fail(NB_EMEMORY, "while: %lld turns are too many to keep",
                       (long long)t);
    if (!nb_grow(&r->kept, &r->room, (int)n, sizeof *r->kept)) return false;
    for (int64_t i = n - r->p.kept; i < n; i++)
        r->kept[i] = NULL;
    r->turns = t + 1;
    return true;
}

/* Turn t of a pass, within a scope. */
static bool turn(run *r, int pass, int64_t t)
{
    int n = r->p.states, first = r->p.pass[pass].state;
    int states = r->p.pass[pass].states, keep = r->p.pass[pass].keep;
    nb_tensor **y = r->out, **kept = r->kept + t * r->p.kept;
    for (int k = 0; k < keep; k++)
        r->in[n + k] = kept[k];
    if (!nb_replay_run(r->pass[pass], r->in, y)) return false;
    for (int k = 0; k < states; k++)
        if (!(y[k] = nb_settled(y[k], &r->shape[first + k]))) return false;
    for (int k = 0; k < r->p.pass[pass].kept; k++) {
        nb_tensor *x = nb_settled(y[states + k], &r->shape[n + keep + k]);
        if (!(kept[keep + k] = nb_keep(x))) return false;
    }
    for (int k = 0; k < states; k++)
        nb_keep(y[k]);
    for (int k = 0; k < states; k++) {
        nb_drop(r->in[first + k]);
        r->in[first + k] = y[k];
    }
    return true;
}

/* One more turn of the first pass if the test holds. */
static bool next(run *r, bool *on)
{
    nb_tensor *y;
    if (!nb_replay_run(r->test, r->in, &y)) return false;
    if (nb_differs(y))
        return nb_fail(NB_ERUNTIME, "while: the test differs from lane to "
                                    "lane, which it did not when recorded");
    char held;
    if (!nb_bytes_read(y->device, &held, y->data, 1)) return false;
    *on = held;
    return !*on || (make_room(r, r->turns) && turn(r, 0, r->turns - 1));
}

static bool all_passes(run *r)
{
    bool ok = true, on = true;
    while (ok && on) {
        ok = nb_scope_open() == NB_OK;
        if (!ok) break;
        ok = next(r, &on);
        nb_scope_close(0, NULL);
    }
    for (int pass = 1; ok && pass < r->p.n; pass++)
        for (int64_t i = 0; ok && i < r->turns; i++) {
            ok = nb_scope_open() == NB_OK;
            if (!ok) break;
            ok = turn(r, pass, pass % 2 ? r->turns - 1 - i : i);
            nb_scope_close(0, NULL);
        }
    return ok;
}

static void end(run *r)
{
    for (int k = 0; r->in && k < r->p.states; k++)
        nb_drop(r->in[k]);
    for (int64_t i = 0; i < r->turns * r->p.kept; i++)
        nb_drop(r->kept[i]);
    nb_replay_free(r->test);
    for (int p = 0; p < r->p.n; p++)
        nb_replay_free(r->pass[p]);
    nb_free(r->kept), nb_free(r->shape), nb_free(r->in), nb_free(r->out);
}

static bool execute(const nb_call *c, char *const *to)
{
    const nb_graph *g = c->op->region[0];
    run r = {.c = c, .p = nb_passes_of(c), .shape = nb_passes_shapes(c)};
    bool done = false, ok = r.shape && nb_passes_turns(c, r.shape, to, &done);
    if (ok && !done)
        ok = (r.in = nb_array(g->nx)) && (r.out = nb_array(g->ny)) &&
             begin(&r) && all_passes(&r);
    for (int k = 0; ok && !done && k < r.p.states; k++)
        ok = nb_copy_into(to[k], &r.shape[k], r.in[k]);
    end(&r);
    return ok;
}

/* What a text may get wrong: the lists of numbers, then types.  Results of the
 * program: states, the test, what is kept. */
static bool fits(const nb_call *c, const nb_graph *g, const nb_passes *p)
{
    int n = p->states;
    const nb_line *test = g->ny > n ? nb_region_result(g, n) : NULL;
    bool ok = test && test->dtype == NB_BOOL && test->shape.rank == 0 &&
              n <= c->nin && g->nx == c->nin + p->kept &&
              g->ny == n + 1 + p->kept && c->op->nout == n;
    for (int i = 0; ok && i < c->nin; i++)
        ok = nb_line_takes(&g->line[i < n ? i : i + p->kept], c->in[i], 0);
    for (int k = 0; ok && k < n; k++)
        ok = nb_line_same(&g->line[k], nb_region_result(g, k));
    for (int k = 0; ok && k < p->kept; k++)
        ok = nb_line_same(&g->line[n + k], nb_region_result(g, n + 1 + k));
    return ok;
}

static bool check(nb_call *c)
{
    int n, m;
    const int64_t *states = nb_arg_list(c, 0, &n);
    const int64_t *kept = nb_arg_list(c, 1, &m);
    int64_t room = c->op->region[0]->nx;
    bool ok = n == m && n >= 1 && n <= NB_MAX_PASSES;
    for (int i = 0; ok && i < n; i++) {
        ok = states[i] >= 0 && states[i] <= room && kept[i] >= 0 &&
             kept[i] <= room - states[i];
        if (ok) room -= states[i] + kept[i];
    }
    if (ok) {
        nb_passes p = nb_passes_of(c);
        ok = fits(c, c->op->region[0], &p);
    }
    return ok || nb_fail(NB_EVALUE, "while_loop: the program does not fit the "
                                    "inputs: states, a test, what is kept");
}

/* Run 0 is the test, the others are the passes. */
static bool join(const nb_call *c, int region, nb_joints *j)
{
    nb_passes p = nb_passes_of(c);
    int n = p.states;
    j->turns = -1;
    j->nruns = 1 + p.n;
    j->nstrands = p.n;
    for (int i = n; i < j->nx; i++)
        j->from[i] = i < n + p.kept ? -1 : i - p.kept;
    for (int k = 0; k < j->ny; k++) {
        j->to[k] = k < n ? k : -1;
        j->feeds[k] = k < n ? k : k - 1;
    }
    j->feeds[n] = -1;
    for (int q = 0; q < p.n; q++) {
        int first = p.pass[q].state, end = first + p.pass[q].states;
        j->strand[q] = (nb_strand){end, end, end, end};
        for (int k = first; k < end; k++)
            j->run[k] = 1 + q;
        for (int k = 0; k < p.pass[q].kept; k++)
            j->run[n + 1 + p.pass[q].keep + k] = 1 + q;
    }
    return nb_region_join(c->op->region[region], c, j);
}

static void widen(const nb_call *c, const int *more, int64_t *attr)
{
    (void)c, (void)more;
    for (int64_t i = 0; i < attr[0]; i++)
        attr[1 + i]++;
}

/* Recording */

nb_op nb_form_while = {
    .name = "while_loop",
    .params = "inputs:tensors, states:ints, kept:ints",
    .region_name = {"body"},
    .check = check,
    .result = result,
    .execute = execute,
    .anywhere = true,
    .prepare = nb_passes_prepare,
    .needs = nb_passes_needs,
    .join = join,
    .widen = widen,
    .push = nb_passes_push,
    .pull = nb_passes_pull,
};

/* What the program is recorded from. */
typedef struct turns {
    nb_func *test;
    int n;
    const nb_pass *pass;
    nb_list *x;    /* the stand-ins; those for what is kept are added */
    nb_list *made; /* these, kept: the call that makes them has a scope */
    int64_t *kept; /* how many, by pass */
} turns;

/* f(x), its results after its own effects and no others: test and bodies run
 * apart.  The first results are states. */
static bool run_tied(nb_func *f, int states, const nb_list *x, int *ny,
                     nb_tensor **y)
{
    nb_effects effects;
    nb_effects_open(&effects);
    bool ok = nb_run(f, x->n, x->at, ny, y);
    for (int k = 0; ok && effects.n && k < *ny; k++)
        ok = (y[k] = nb_strong(y[k], k < states ? x->at[k] : NULL)) &&
             (y[k] = nb_effects_tie(y[k]));
    nb_effects_close(&effects);
    return ok;
}

static nb_tensor *test_tied(nb_func *f, int nx, nb_tensor *const *x)
{
    nb_effects effects;
    nb_effects_open(&effects);
    nb_tensor *y = nb_effects_tie(nb_func_call1(f, nx, x));
    nb_effects_close(&effects);
    return y;
}

/* One pass, whose states begin at `state` of nx: they go to y, what it keeps is
 * added to the results. */
static bool one_pass(const turns *t, int pass, int state, int nx, nb_tensor **y,
                     nb_results *kept)
{
    int states = t->pass[pass].init.n, n = kept->room;
    nb_tensor **out = nb_array(n);
    nb_list in = {0};
    bool ok = out;
    for (int k = 0; ok && k < states; k++)
        ok = nb_list_add(&in, t->x->at[state + k]);
    for (int k = nx; ok && k < t->x->n; k++)
        ok = nb_list_add(&in, t->x->at[k]);
    ok = ok && run_tied(t->pass[pass].body, states, &in, &n, out);
    if (ok && n < states)
        ok = nb_fail(NB_EVALUE, "while: %d states, the body returns %d", states,
                     n);
    for (int k = 0; ok && k < states; k++)
        y[state + k] = out[k];
    for (int k = states; ok && k < n; k++) {
        nb_shape s = nb_tensor_shape(out[k]);
        nb_tensor *later =
            nb_stand_in_on(out[k]->device, (nb_dtype)out[k]->dtype, &s);
        ok = nb_results_add(kept, out[k]) && nb_list_add(t->made, later);
        if (ok) nb_keep(later);
        ok = ok && nb_list_add(t->x, later);
    }
    t->kept[pass] = n - states;
    nb_list_free(&in);
    nb_free(out);
    return ok;
}

/* The program: (all states) -> (all states, test, all that is kept). */
static nb_status program(void *ctx, int nx, nb_tensor *const *x, int *ny,
                         nb_tensor **y)
{
    const turns *t = ctx;
    nb_results kept = {.room = *ny - nx - 1, .out = y + nx + 1};
    bool ok = (y[nx] = test_tied(t->test, t->pass[0].init.n, x));
    for (int p = 0, state = 0; ok && p < t->n; p++) {
        ok = one_pass(t, p, state, nx, y, &kept);
        state += t->pass[p].init.n;
    }
    *ny = nx + 1 + kept.n;
    return NB_STATUS(ok);
}

static bool record(turns *t, const nb_list *init, int64_t *attr, nb_results *r)
{
    nb_region region = {0};
    nb_list x = {0}, in = {0}, made = {0};
    t->x = &x;
    t->made = &made;
    bool ok = nb_region_loop(&region, "while: state", nb_func_new(program, t),
                             init->n, init->at, &x);
    for (int k = 0; ok && k < init->n; k++) {
        nb_shape s = nb_tensor_shape(x.at[k]);
        ok = nb_list_add(&in, nb_spread_over(init->at[k], &s));
    }
    bool counted = false;
    if (ok && t->n == 1)
        ok = nb_counted_record(&region, in.n, in.at, r, &counted);
    if (ok && !counted)
        ok = nb_region_apply(&nb_form_while, &region, NULL, &in, 2 * t->n + 2,
                             attr, r);
    nb_region_free(&region);
    for (int i = 0; i < made.n; i++)
        nb_drop(made.at[i]);
    nb_list_free(&x), nb_list_free(&in), nb_list_free(&made);
    return ok;
}

bool nb_passes_record(nb_func *test, int n, nb_pass *pass, nb_results *r)
{
    int64_t attr[2 * NB_MAX_PASSES + 2] = {0};
    nb_list init = {0};
    if (n > NB_MAX_PASSES)
        return nb_fail(NB_EVALUE, "while: walked back through more than five "
                                  "times over");
    turns t = {.test = test, .n = n, .pass = pass, .kept = attr + n + 2};
    bool ok = true;
    attr[0] = attr[n + 1] = n;
    for (int p = 0; p < n; p++) {
        attr[1 + p] = pass[p].init.n;
        for (int k = 0; ok && k < pass[p].init.n; k++)
            ok = nb_list_add(&init, pass[p].init.at[k]);
    }
    if (ok && init.n > r->room)
        ok = nb_fail(NB_EVALUE, "while: %d results, room for %d", init.n,
                     r->room);
    r->room = init.n;
    ok = ok && record(&t, &init, attr, r);
    nb_list_free(&init);
    return ok;
}
