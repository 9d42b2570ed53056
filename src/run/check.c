/* check.c - is compiled code right?
 *
 * Results are compared with those of the ops run one by one.  Where they are
 * further apart than rounding usually brings them, every step is looked at by
 * itself: its ops are run on the very values that the step reads, and what it
 * writes is compared with that.  How far rounding may go is measured: the ops
 * run again with each value changed in its last digits.  What a step has written
 * must still be there when others read it.  If no step differs beyond that, the
 * passes are looked at in the same way; if none of them does either, the
 * difference was rounding that grew from step to step. */
#include "run/check.h"

#include "core/convert.h"
#include "core/debug.h"
#include "lower/gemm.h"
#include "lower/passes.h"
#include "lower/rewrite.h"
#include "ops/print.h"
#include "transform/region.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 2 };

static _Thread_local bool plain;

bool nb_runs_plainly(void)
{
    return plain || nb_debug_flags;
}

/* The switch: -1 until the environment was asked. */
static atomic_int wanted = -1;

void nb_check_set(bool on)
{
    wanted = on;
}

bool nb_check_get(void)
{
    int on = atomic_load_explicit(&wanted, memory_order_relaxed), unknown = -1;
    if (on >= 0) return on;
    const char *text = getenv("NABLA_CHECK");
    on = text && *text && strcmp(text, "0") != 0;
    return atomic_compare_exchange_strong(&wanted, &unknown, on) ? on : unknown;
}

/* Running op by op */

static bool record_all(const nb_graph *g, nb_tensor *const *x,
                       nb_tensor **value)
{
    int id[NB_MAX_GRAPH_LANES + 1];
    nb_graph_match(g, x, id);
    for (int k = 0; k < g->n; k++) {
        value[k] = k < g->nx ? x[k] : nb_line_record(&g->line[k], value, id);
        if (!value[k]) return false;
    }
    return true;
}

/* Nothing but results and effects is held while they are computed. */
static bool record_needed(const nb_graph *g, nb_tensor *const *x,
                          nb_tensor **need, int *n)
{
    nb_tensor **value = nb_array(g->n);
    bool ok = value && record_all(g, x, value);
    *n = 0;
    for (int k = 0; ok && k < g->n; k++)
        if (g->line[k].op && g->line[k].op->effect) need[(*n)++] = value[k];
    for (int i = 0; ok && i < g->ny; i++)
        need[(*n)++] = value[g->result[i]];
    nb_free(value);
    return ok;
}

bool nb_graph_run_plainly(const nb_graph *g, nb_tensor *const *x, nb_tensor **y)
{
    nb_tensor **need = nb_array(g->n + g->ny);
    int n = 0;
    bool ok = need && nb_scope_open() == NB_OK;
    if (ok) {
        ok = record_needed(g, x, need, &n);
        nb_scope_close(ok ? n : 0, need);
    }
    ok = ok && nb_realize_now(n, need);
    for (int i = 0; ok && i < g->ny; i++)
        y[i] = need[n - g->ny + i];
    nb_free(need);
    return ok;
}

/* The same for comparing: nothing is compiled or printed. */
static bool reference(const nb_graph *g, nb_tensor *const *x, nb_tensor **y)
{
    bool was = plain, quiet = nb_print_quiet;
    plain = nb_print_quiet = true;
    bool ok = nb_graph_run_plainly(g, x, y);
    plain = was;
    nb_print_quiet = quiet;
    return ok;
}

static nb_tensor *copy_in(nb_tensor *x, const nb_shape *s)
{
    nb_dtype d = (nb_dtype)x->dtype;
    int64_t n;
    nb_shape_count(s, &n);
    nb_buffer *b = nb_buffer_new((size_t)n * nb_dtype_size(d));
    nb_tensor *y = b ? nb_leaf_new(d, s, b, b->data, NULL) : NULL;
    nb_buffer_drop(b);
    if (!y) return NULL;
    nb_shape own = nb_tensor_shape(x); /* lanes may have other names there */
    return nb_copy_into(y->data, &own, x) ? y : NULL;
}

/* Comparing */

/* Elements of a tensor in row-major order, as doubles. */
typedef struct elements {
    const nb_tensor *x;
    int n;
    int64_t left, size[NB_MAX_DIMS], stride[NB_MAX_DIMS], at[NB_MAX_DIMS];
} elements;

static elements elements_of(const nb_tensor *x)
{
    elements e = {.x = x, .left = 1};
    e.n = nb_tensor_strides(x, e.size, e.stride);
    for (int d = 0; d < e.n; d++)
        e.left *= e.size[d];
    return e;
}

static double next(elements *e)
{
    nb_dtype t = (nb_dtype)e->x->dtype;
    int64_t o = 0;
    for (int d = 0; d < e->n; d++)
        o += e->at[d] * e->stride[d];
    for (int d = e->n - 1; d >= 0 && ++e->at[d] == e->size[d]; d--)
        e->at[d] = 0;
    e->left--;
    return nb_read_f64(e->x->data + o * (int64_t)nb_dtype_size(t), t);
}

static double tolerance(nb_dtype d)
{
    switch (d) {
    case NB_F64: return 1e-9;
    case NB_F32: return 1e-4;
    case NB_F16: return 2e-2;
    case NB_BF16: return 1e-1;
    default: return 0;
    }
}

static double largest(const nb_tensor *x)
{
    double most = 0;
    for (elements e = elements_of(x); e.left > 0;) {
        double v = fabs(next(&e));
        if (isfinite(v) && v > most) most = v;
    }
    return most;
}

/* The element that is furthest out. */
typedef struct difference {
    double by, got, want;
    int64_t at;
    bool found;
} difference;

static bool equal(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* How far the samples are from what they are of. */
static double spread(double want, double other)
{
    if (equal(want, other)) return 0;
    double by = fabs(want - other);
    return isfinite(by) ? by : INFINITY;
}

/* noise: the reference with its values changed a little, SAMPLES of it, or NULL;
 * floor: the part of the largest value that no element is held to. */
static difference compare(const nb_tensor *got, const nb_tensor *want,
                          nb_tensor *const *noise, double floor)
{
    difference worst = {0};
    elements a = elements_of(got), b = elements_of(want), s[SAMPLES];
    double rate = tolerance((nb_dtype)want->dtype), most = 0;
    if (rate > 0) most = largest(want) * floor;
    for (int i = 0; noise && i < SAMPLES; i++)
        s[i] = elements_of(noise[i]);
    for (int64_t at = 0; b.left > 0; at++) {
        double x = next(&a), y = next(&b), by = spread(y, x);
        double bound = rate * (isfinite(y) ? fabs(y) + most : 0);
        for (int i = 0; noise && i < SAMPLES; i++)
            bound += 32 * spread(y, next(&s[i]));
        if (by <= bound || (worst.found && by <= worst.by)) continue;
        worst = (difference){by, x, y, at, true};
    }
    return worst;
}

static void add_type(nb_text *t, const nb_graph *g, int k)
{
    char *type = nb_graph_type_text(g, k);
    nb_text_add(t, "%s", type ? type : "?");
    nb_free(type);
}

/* "add(f32[3], f32[3]) -> f32[3]" */
static void add_call(nb_text *t, const nb_graph *g, int k)
{
    int call = g->line[k].op == &nb_op_part ? g->line[k].in[0] : k;
    nb_text_add(t, "%s(", g->line[call].op->name);
    for (int i = 0; i < g->line[call].nin; i++) {
        if (i) nb_text_add(t, ", ");
        add_type(t, g, g->line[call].in[i]);
    }
    nb_text_add(t, ") -> ");
    add_type(t, g, k);
    const char *source =
        nb_source_text(g->line[call].source, g->line[call].source_line);
    if (*source) nb_text_add(t, " at %s", source);
}

static void add_difference(nb_text *t, const difference *d)
{
    nb_text_add(t, ": element %lld is %.9g, not %.9g, the difference is %.3g",
                (long long)d->at, d->got, d->want, d->by);
}

/* Lines of a graph, run one by one: those that are on. */
typedef struct lines {
    const nb_graph *g;
    const int *id;
    bool *on;
    nb_tensor **given; /* by line: what is not on and is needed */
    nb_tensor **value;
    nb_tensor **noise[SAMPLES];
} lines;

static uint64_t turn(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 27;
}

/* A few units in the last place, up or down. */
static void disturb(nb_tensor *x, uint64_t seed)
{
    static const double unit[NB_NDTYPES] = {[NB_F64] = 0x1p-50,
                                            [NB_F32] = 0x1p-21,
                                            [NB_F16] = 0x1p-10,
                                            [NB_BF16] = 0x1p-7};
    nb_dtype d = (nb_dtype)x->dtype;
    nb_shape s = nb_tensor_shape(x);
    int64_t n = 0, item = (int64_t)nb_dtype_size(d);
    if (!nb_dtype_is_float(d)) return;
    nb_shape_count(&s, &n);
    for (int64_t i = 0; i < n; i++) {
        double up = turn(seed + (uint64_t)i) >> 40 & 1 ? unit[d] : -unit[d];
        double v = nb_read_f64(x->data + i * item, d);
        nb_write_f64(x->data + i * item, d, v + v * up);
    }
}

static bool is_fresh(const nb_line *l)
{
    return l->kind == NB_LINE_CALL && !l->multi && l->op != &nb_op_part &&
           !l->op->view && !l->op->dim_of;
}

static bool run_lines(lines *p, nb_tensor **value, uint64_t seed)
{
    for (int k = 0; k < p->g->n; k++) {
        const nb_line *l = &p->g->line[k];
        bool own = seed && (p->on[k] ? is_fresh(l) : p->given[k] != NULL);
        if (p->on[k])
            value[k] = nb_line_record(l, value, p->id);
        else if (p->given[k] && own) {
            nb_shape s = nb_tensor_shape(p->given[k]);
            value[k] = copy_in(p->given[k], &s);
        } else
            value[k] = p->given[k];
        if (!value[k] && (p->on[k] || p->given[k])) return false;
        if (p->on[k] && !nb_realize_now(1, &value[k])) return false;
        if (own) disturb(value[k], turn(seed) + (uint64_t)k);
    }
    return true;
}

static bool run_all(lines *p, nb_tensor **value, uint64_t seed)
{
    bool was = plain, quiet = nb_print_quiet;
    plain = nb_print_quiet = true;
    bool ok = run_lines(p, value, seed);
    plain = was;
    nb_print_quiet = quiet;
    return ok;
}

static bool lines_new(lines *p, const nb_graph *g, const int *id)
{
    *p = (lines){.g = g, .id = id};
    p->on = nb_alloc_zero((size_t)g->n + 1);
    p->given = nb_alloc_zero((size_t)(g->n + 1) * sizeof *p->given);
    p->value = nb_alloc_zero((size_t)(g->n + 1) * sizeof *p->value);
    return p->on && p->given && p->value;
}

static void lines_free(lines *p)
{
    nb_free(p->on), nb_free(p->given), nb_free(p->value);
    for (int i = 0; i < SAMPLES; i++)
        nb_free(p->noise[i]);
    *p = (lines){0};
}

/* Runs them with noise, if that has not been done. */
static bool add_noise(lines *p)
{
    for (int i = 0; i < SAMPLES; i++) {
        if (p->noise[i]) continue;
        p->noise[i] =
            nb_alloc_zero((size_t)(p->g->n + 1) * sizeof *p->noise[i]);
        if (!p->noise[i] || !run_all(p, p->noise[i], (uint64_t)i + 1))
            return false;
    }
    return true;
}

/* Whether a value of line k differs from the reference beyond rounding. */
static bool differs(lines *p, int k, const nb_tensor *got, difference *d)
{
    *d = compare(got, p->value[k], NULL, 1e-2);
    if (!d->found) return true;
    if (!add_noise(p)) return false;
    nb_tensor *noise[SAMPLES];
    for (int i = 0; i < SAMPLES; i++)
        noise[i] = p->noise[i][k];
    *d = compare(got, p->value[k], noise, 1e-2);
    return true;
}

/* One step */

typedef struct checker {
    const nb_plan *plan;
    int id[NB_MAX_GRAPH_LANES + 1]; /* as the plan's nodes have them */
    lines lines;                    /* of the step, or of the steps of a nest */
    nb_tensor **written; /* by line: what steps stored, for as long as needed */
    int step;
} checker;

static int group_of(const nb_plan *p, int s)
{
    const nb_step *step = &p->step[s];
    return step->nest || step->gemm ? p->group[step->line] : -1;
}

static bool is_together(const nb_plan *p, int s, int t)
{
    return t >= 0 && t < p->nsteps &&
           (p->step[s].line == p->step[t].line ||
            (group_of(p, s) >= 0 && group_of(p, s) == group_of(p, t)));
}

/* The lines that the step computes, and those that look at them. */
static void choose(checker *c, int s)
{
    const nb_plan *p = c->plan;
    int group = group_of(p, s), line = p->step[s].line;
    for (int k = 0; k < p->graph->n; k++) {
        const nb_line *l = &p->graph->line[k];
        bool own = group >= 0 ? p->group[k] == group : k == line;
        bool looks = l->kind == NB_LINE_CALL && nb_line_looks(p, k);
        c->lines.on[k] = own || (looks && c->lines.on[l->in[0]]);
    }
}

/* The line that was stored and has the memory of line k. */
static int stored_as(const checker *c, int k)
{
    int root = c->plan->place[k].root;
    return c->plan->graph->line[root].multi ? k : root;
}

/* Whether line k, which is to be read, still is as it was written. */
static bool is_intact(checker *c, int k, nb_run_value *value, void *run)
{
    const nb_graph *g = c->plan->graph;
    int at = stored_as(c, k);
    nb_text t = {0};
    if (!c->written[at]) return true;
    nb_tensor *x = value(run, at);
    if (!x) return false;
    elements a = elements_of(x), b = elements_of(c->written[at]);
    bool same = true;
    while (same && b.left > 0)
        same = equal(next(&a), next(&b));
    if (same) return true;
    add_call(&t, g, at);
    nb_fail(NB_ERUNTIME,
            "check: the memory of %s is used by others before step %d of %d, "
            "which reads it",
            nb_text_get(&t), c->step + 1, c->plan->nsteps);
    nb_text_free(&t);
    return false;
}

static bool give(checker *c, nb_run_value *value, void *run)
{
    const nb_graph *g = c->plan->graph;
    for (int k = 0; k < g->n; k++)
        for (int i = 0; c->lines.on[k] && i < g->line[k].nin; i++) {
            int in = g->line[k].in[i];
            nb_shape s = nb_tensor_shape(c->plan->node[in]);
            if (c->lines.on[in] || c->lines.given[in] || g->line[in].multi)
                continue;
            if (!is_intact(c, in, value, run)) return false;
            nb_tensor *x = value(run, in);
            if (!x || !(c->lines.given[in] = copy_in(x, &s))) return false;
        }
    return true;
}

static bool before_step(checker *c, int s, nb_run_value *value, void *run)
{
    if (is_together(c->plan, s, s - 1)) return true;
    c->step = s;
    if (!lines_new(&c->lines, c->plan->graph, c->id)) return false;
    choose(c, s);
    return give(c, value, run) && run_all(&c->lines, c->lines.value, 0);
}

static void add_nests(nb_text *t, const nb_plan *p, int first)
{
    for (int s = first; s < p->nsteps; s++) {
        if (s != first && !is_together(p, first, s)) break;
        nb_text_add(t, "\nstep %d of %d: ", s + 1, p->nsteps);
        if (p->step[s].nest)
            nb_nest_print(p->step[s].nest, t);
        else
            nb_text_add(t, "a call");
    }
}

/* Code for line k alone, from the same values. */
static bool run_alone(checker *c, int k, nb_tensor **y)
{
    const lines *p = &c->lines;
    nb_tensor **value = nb_array(p->g->n), **x = nb_array(p->g->n);
    nb_graph *g = NULL;
    nb_exec *e = NULL;
    int n = 0;
    bool ok = value && x;
    for (int i = 0; ok && i <= k; i++) {
        value[i] = p->given[i];
        if (p->given[i]) x[n++] = p->given[i];
        if (p->on[i])
            ok = (value[i] = nb_line_record(&p->g->line[i], value, c->id));
    }
    ok = ok && nb_graph_of(n, x, 1, &value[k], &g) == NB_OK &&
         (e = nb_exec_new(g)) && nb_exec_run_watched(e, x, y, NULL);
    nb_exec_drop(e);
    nb_free(value), nb_free(x);
    return ok;
}

/* The first line of the nest that differs by itself; -1 if none does, and they
 * do only together. */
static bool blame(checker *c, int *line, difference *d)
{
    *line = -1;
    for (int k = 0; k < c->plan->graph->n && *line < 0; k++) {
        nb_tensor *y;
        difference own;
        if (!c->lines.on[k] || !is_fresh(&c->plan->graph->line[k])) continue;
        if (!run_alone(c, k, &y) || !differs(&c->lines, k, y, &own))
            return false;
        if (!own.found) continue;
        *line = k;
        *d = own;
    }
    return true;
}

static bool report(checker *c, int k, difference d)
{
    const nb_plan *p = c->plan;
    nb_text t = {0};
    int line = -1;
    if (p->step[c->step].nest && !blame(c, &line, &d)) return false;
    add_call(&t, p->graph, line < 0 ? k : line);
    add_difference(&t, &d);
    if (p->step[c->step].nest && line < 0)
        nb_text_add(&t, "; each op of the step is right by itself");
    add_nests(&t, p, c->step);
    nb_fail(NB_ERUNTIME, "check: compiled code differs from its ops in %s",
            nb_text_get(&t));
    nb_text_free(&t);
    return false;
}

static bool writes(const nb_step *s, int k)
{
    const nb_gemm *g = s->gemm;
    bool keeps = g && g->end == NB_END_GELU && g->kept.buffer >= 0;
    if (g)
        return s->buffer[g->c.buffer] == k ||
               (keeps && s->buffer[g->kept.buffer] == k);
    for (int v = 0; v < s->nest->n; v++) {
        const nb_nest_value *store = &s->nest->value[v];
        if (store->kind == NB_NEST_STORE && s->buffer[store->buffer] == k)
            return true;
    }
    return false;
}

/* Whether the steps of the nest, or the step, store line k. */
static bool is_stored(const checker *c, int k)
{
    const nb_plan *p = c->plan;
    const nb_line *l = &p->graph->line[k];
    if (!c->lines.on[k] || l->multi) return false;
    if (group_of(p, c->step) < 0)
        return k == p->step[c->step].line || l->op == &nb_op_part;
    for (int s = c->step; is_together(p, c->step, s); s++)
        if (writes(&p->step[s], k)) return true;
    return false;
}

static bool after_step(checker *c, int s, nb_run_value *value, void *run)
{
    bool ok = true;
    if (is_together(c->plan, s, s + 1)) return true;
    for (int k = 0; ok && k < c->plan->graph->n; k++) {
        difference d;
        if (!is_stored(c, k)) continue;
        nb_tensor *x = value(run, k);
        nb_shape shape = nb_tensor_shape(c->plan->node[k]);
        ok = x && differs(&c->lines, k, x, &d) &&
             (!d.found || report(c, k, d)) &&
             (c->written[k] = copy_in(x, &shape));
    }
    lines_free(&c->lines);
    for (int i = 0; ok && s == c->plan->nsteps - 1 && i < c->plan->graph->ny;
         i++)
        ok = is_intact(c, c->plan->graph->result[i], value, run);
    return ok;
}

static bool on_step(void *ctx, int s, bool after, nb_run_value *value,
                    void *run)
{
    return (after ? after_step : before_step)(ctx, s, value, run);
}

static bool check_steps(nb_exec *e, nb_tensor *const *x)
{
    checker c = {.plan = nb_exec_plan(e)};
    const nb_graph *g = c.plan->graph;
    nb_tensor **y = nb_array(g->ny);
    c.written = nb_alloc_zero((size_t)(g->n + 1) * sizeof *c.written);
    for (int k = 0; k < g->n; k++)
        for (int l = 0; l < g->line[k].shape.nlanes; l++)
            c.id[g->line[k].shape.lane[l].id] =
                nb_tensor_lane(c.plan->node[k])[l].id;
    bool quiet = nb_print_quiet;
    nb_print_quiet = true;
    bool ok = y && c.written &&
              nb_exec_run_watched(e, x, y, &(nb_run_watch){on_step, &c});
    nb_print_quiet = quiet;
    lines_free(&c.lines);
    nb_free(c.written);
    nb_free(y);
    return ok;
}

/* Passes */

/* Whether results of g are those of the recorded program. */
static bool same_results(lines *p, const nb_graph *g, nb_tensor *const *x,
                         difference *d)
{
    nb_tensor **y = nb_array(g->ny);
    bool ok = y && reference(g, x, y);
    *d = (difference){0};
    for (int i = 0; ok && !d->found && i < g->ny; i++)
        ok = differs(p, p->g->result[i], y[i], d);
    nb_free(y);
    return ok;
}

static bool check_pass(lines *p, const char *name, nb_tensor *const *x)
{
    difference d;
    nb_text t = {0};
    nb_graph *g = nb_graph_copy(p->g);
    bool ok = g && nb_lower_until(g, name) && same_results(p, g, x, &d);
    nb_graph_free(g);
    if (!ok || !d.found) return ok;
    add_difference(&t, &d);
    nb_fail(NB_ERUNTIME, "check: pass %s changes what is computed%s", name,
            nb_text_get(&t));
    nb_text_free(&t);
    return false;
}

static bool check_passes(const nb_graph *recorded, nb_tensor *const *x)
{
    int id[NB_MAX_GRAPH_LANES + 1];
    lines p;
    nb_graph_match(recorded, x, id);
    bool ok = lines_new(&p, recorded, id);
    for (int k = 0; ok && k < recorded->n; k++) {
        p.on[k] = k >= recorded->nx;
        if (!p.on[k]) p.given[k] = x[k];
    }
    ok = ok && run_all(&p, p.value, 0);
    for (const nb_pass *pass = nb_passes; ok && pass->name; pass++)
        if (pass->run && nb_pass_is_on(pass->name))
            ok = check_pass(&p, pass->name, x);
    lines_free(&p);
    return ok;
}

/* All of it */

static bool look_closer(nb_exec *e, const nb_graph *recorded,
                        nb_tensor *const *x)
{
    bool ok = nb_scope_open() == NB_OK;
    if (!ok) return false;
    ok = check_steps(e, x) && (!recorded || check_passes(recorded, x));
    nb_scope_close(0, NULL);
    return ok;
}

/* Inputs may be donated: what they were is kept for a closer look. */
static bool keep_inputs(int n, nb_tensor *const *x, nb_tensor **to)
{
    for (int i = 0; i < n; i++) {
        nb_shape s = nb_tensor_shape(x[i]);
        if (!(to[i] = copy_in(x[i], &s))) return false;
    }
    return true;
}

bool nb_check_run(nb_exec *e, const nb_graph *recorded, nb_tensor *const *x,
                  nb_tensor **y)
{
    const nb_graph *g = nb_exec_plan(e)->graph;
    nb_tensor **in = nb_array(g->nx), **want = nb_array(g->ny);
    bool open = in && want && nb_scope_open() == NB_OK, same = true;
    bool ok = open && keep_inputs(g->nx, x, in) &&
              reference(recorded ? recorded : g, in, want) &&
              nb_exec_run_watched(e, x, y, NULL);
    for (int i = 0; ok && same && i < g->ny; i++)
        same = !compare(y[i], want[i], NULL, 0.1).found;
    if (ok && !same) ok = look_closer(e, recorded, in);
    if (open) nb_scope_close(ok ? g->ny : 0, y);
    nb_free(in), nb_free(want);
    return ok;
}
