/* verify.c - a program over devices held against the same program on none.
 *
 * Both are what was recorded, so they have the same lines: the first line that
 * differs is the op that is wrong.  Blocks are compared one by one, since
 * devices that should have the same may not.  A process compares those that it
 * has, and after each line all agree on what was found, so that they report the
 * same. */
#include "comm/comm.h"
#include "comm/remote.h"
#include "nabla/distributed.h"
#include "nabla/explain.h"
#include "nabla/random.h"
#include "run/recording.h"
#include "run/shards.h"
#include "run/spmd.h"
#include "shard/decide/factors.h"
#include "shard/decide/place.h"
#include "shard/decide/region.h"
#include "transform/region.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct verifier {
    nb_graph *g;
    nb_tensor **in;    /* inputs of the program */
    nb_tensor **plain; /* by line: what it should be */
    double *greatest;  /* by line: of the finite elements of that */
    double *scale;     /* by line: of what rounding came by */
    int *line, n;      /* those that are compared */
    double tolerance;
    nb_verify_report *to;
} verifier;

/* On no device */

static nb_tensor *gathered(nb_tensor *x)
{
    return x && x->sharding ? nb_gatherer(x) : x;
}

static bool replay(verifier *v)
{
    const nb_graph *g = v->g;
    int id[NB_MAX_GRAPH_LANES + 1];
    bool ok = true;
    for (int k = 0; ok && k < g->nx; k++)
        ok = (v->plain[k] = gathered(v->in[k]));
    if (ok) nb_graph_match(g, v->plain, id);
    for (int k = g->nx; ok && k < g->n; k++) {
        const nb_line *l = &g->line[k];
        v->plain[k] = l->captured ? gathered(l->captured)
                      : l->op && l->op->places
                          ? v->plain[l->in[0]]
                          : nb_line_record(l, v->plain, id);
        ok = v->plain[k];
    }
    return ok;
}

static double *values_of(nb_tensor *x, int64_t *n)
{
    nb_tensor *stored = nb_stored_leaf(x);
    *n = stored ? nb_elements(stored) : 0;
    double *v = stored ? nb_alloc((size_t)(*n + 1) * sizeof *v) : NULL;
    if (v && nb_read(stored, NB_F64, v) == NB_OK) return v;
    nb_free(v);
    return NULL;
}

static bool measure(verifier *v, int line)
{
    int64_t n;
    double *x = values_of(v->plain[line], &n);
    for (int64_t i = 0; x && i < n; i++)
        if (isfinite(x[i]) && fabs(x[i]) > v->greatest[line])
            v->greatest[line] = fabs(x[i]);
    nb_free(x);
    return x;
}

/* Rounding is as large as the numbers that a value is made of; where those
 * cancelled out, also as those that they were made of. */
static double scale_of(const verifier *v, int line)
{
    const nb_line *l = &v->g->line[line];
    double most = v->greatest[line];
    for (int i = 0; i < l->nin; i++) {
        int k = l->in[i];
        bool cancelled = v->greatest[k] < 1e-3 * v->scale[k];
        double of = cancelled ? v->scale[k] : v->greatest[k];
        if (of > most) most = of;
    }
    return most;
}

static bool run_plain(verifier *v)
{
    nb_tensor **y = nb_alloc((size_t)(v->n + 1) * sizeof *y);
    bool ok = y && replay(v);
    for (int i = 0; ok && i < v->n; i++)
        y[i] = v->plain[v->line[i]];
    ok = ok && nb_realize_now(v->n, y);
    for (int k = 0; ok && k < v->g->n; k++) {
        if (!v->g->line[k].multi) ok = measure(v, k);
        v->scale[k] = scale_of(v, k);
    }
    nb_free(y);
    return ok;
}

/* Over devices */

/* What is pending is reduced, so that blocks have values. */
static bool settle(int n, nb_tensor **y)
{
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        const nb_spec *s = y[i]->sharding;
        if (!s || !s->partial.n) continue;
        ok = (y[i] = nb_lay(y[i], nb_spec_settled(s)));
    }
    return ok && nb_realize_now(n, y);
}

/* By how much a line may differ. */
static double slack(const verifier *v, int line)
{
    static const double usual[NB_NDTYPES] = {
        [NB_F16] = 2e-2, [NB_BF16] = 1e-1, [NB_F32] = 1e-4, [NB_F64] = 1e-10};
    nb_dtype dtype = v->g->line[line].dtype;
    double tolerance = v->tolerance > 0 ? v->tolerance : usual[dtype];
    return nb_dtype_is_float(dtype) ? v->scale[line] * tolerance : 0;
}

/* A block, and what it should be. */
typedef struct comparison {
    int line, rank, device;
    int64_t size[NB_MAX_DIMS];
    nb_box box;
    const double *value, *block;
    double slack;
} comparison;

/* Where element k of the block is in the whole. */
static int64_t place_of(const comparison *c, int64_t k, int64_t *place)
{
    int64_t at = 0, stride = 1;
    for (int d = c->rank - 1; d >= 0; d--) {
        place[d] = c->box.start[d] + k % c->box.size[d];
        at += place[d] * stride;
        k /= c->box.size[d];
        stride *= c->size[d];
    }
    return at;
}

static double difference(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b))) return 0;
    double d = fabs(a - b);
    return isnan(d) ? INFINITY : d;
}

/* Notes the worst element if it is beyond what may be. */
static void compare(verifier *v, const comparison *c)
{
    nb_verify_report *r = v->to;
    int64_t place[NB_MAX_DIMS], count = 1;
    double worst = 0, most = v->greatest[c->line];
    for (int d = 0; d < c->rank; d++)
        count *= c->box.size[d];
    for (int64_t k = 0; k < count; k++) {
        double value = c->value[place_of(c, k, place)];
        double d = difference(c->block[k], value);
        if (d <= worst) continue;
        worst = d;
        if (d <= c->slack || (r->differs && d <= fabs(r->found - r->value)))
            continue;
        r->differs = true;
        r->device = c->device;
        r->rank = c->rank;
        r->found = c->block[k];
        r->value = value;
        memcpy(r->place, place, (size_t)c->rank * sizeof place[0]);
    }
    if (most > 0 && worst / most > r->error) r->error = worst / most;
}

static bool compare_block(verifier *v, comparison *c, nb_tensor *block)
{
    int64_t n;
    double *x = values_of(block, &n);
    c->block = x;
    if (x) compare(v, c);
    nb_free(x);
    return x;
}

static bool compare_line(verifier *v, int line, nb_tensor *y)
{
    int64_t n;
    const nb_spec *s = y->sharding;
    comparison c = {.line = line, .device = -1, .slack = slack(v, line)};
    double *value = values_of(v->plain[line], &n);
    c.rank = nb_stored_sizes(y, c.size);
    c.value = value;
    memcpy(c.box.size, c.size, sizeof c.box.size);
    bool ok = value && (s || compare_block(v, &c, y));
    for (int p = 0; ok && s && p < s->mesh->ndevices; p++) {
        nb_tensor *block = nb_shards_of(y)->at[p];
        if (!block) continue; /* another process has it */
        c.device = p;
        nb_spec_box(s, c.size, p, &c.box);
        ok = compare_block(v, &c, block);
    }
    nb_free(value);
    v->to->compared++;
    return ok;
}

/* The worst that any process has found of a line. */
static void take_worst(nb_verify_report *r, int n, const nb_verify_report *of)
{
    double error = 0, worst = -1;
    for (int k = 0; k < n; k++) {
        double d = difference(of[k].found, of[k].value);
        if (of[k].error > error) error = of[k].error;
        if (!of[k].differs || d <= worst) continue;
        worst = d;
        *r = of[k];
    }
    r->error = error;
}

static bool agree(nb_verify_report *r)
{
    int n = nb_distributed_size();
    if (n == 1) return true;
    nb_verify_report *all = nb_alloc((size_t)n * sizeof *all);
    bool ok = nb_ranks_gather(r, sizeof *r, all);
    if (ok) take_worst(r, n, all);
    nb_free(all);
    return ok;
}

/* Saying what differs */

static void write_type(nb_text *t, const verifier *v, int line,
                       const nb_spec *s)
{
    int64_t size[NB_MAX_DIMS];
    nb_stored_sizes(v->plain[line], size);
    char *type = s ? nb_spec_type_text(s, v->g->line[line].dtype, size) : NULL;
    nb_text_add(t, "%s", type ? type : "...");
    nb_text_release(type);
}

typedef struct telling {
    const verifier *v;
    int line;
    nb_text *to;
} telling;

/* "f32[4@dp, 8], f32[8, 4@tp] -> f32[4@dp, 4@tp]" */
static bool write_call(void *ctx, const nb_graph *g, nb_tensor *const *node,
                       const nb_layouts *lay)
{
    const telling *t = ctx;
    const nb_line *l = &g->line[t->line];
    const nb_decision *d = lay->decision[t->line];
    (void)node;
    for (int i = 0; i < l->nin; i++) {
        nb_text_add(t->to, i ? ", " : "");
        if (!g->line[l->in[i]].multi)
            write_type(t->to, t->v, l->in[i],
                       d ? d->need[i] : lay->spec[l->in[i]]);
    }
    nb_text_add(t->to, " -> ");
    write_type(t->to, t->v, t->line, d ? d->give[0] : lay->spec[t->line]);
    return true;
}

static bool tell(const verifier *v, int line, bool whole)
{
    nb_verify_report *r = v->to;
    nb_text call = {0}, place = {0};
    telling t = {v, line, &call};
    const nb_line *l = &v->g->line[line];
    const char *op =
        l->op == &nb_op_part ? v->g->line[l->in[0]].op->name : l->op->name;
    nb_spmd_layouts(v->g, whole, write_call, &t);
    for (int d = 0; d < r->rank; d++)
        nb_text_add(&place, "%s%lld", d ? ", " : "", (long long)r->place[d]);
    snprintf(r->op, sizeof r->op, "%s", op);
    snprintf(r->source, sizeof r->source, "%s", nb_graph_source(v->g, line));
    snprintf(r->call, sizeof r->call, "%s", nb_text_get(&call));
    nb_fail(NB_ERUNTIME,
            "verify: %s%s%s has %.9g on device %d, not %.9g, at [%s] (%s)", op,
            *r->source ? " at " : "", r->source, r->found, r->device, r->value,
            nb_text_get(&place), r->call);
    nb_text_free(&call);
    nb_text_free(&place);
    return false;
}

/* The program laid out from call to call, or as a whole. */
static bool run_over(verifier *v, bool whole)
{
    nb_tensor **y = nb_alloc((size_t)(v->n + 1) * sizeof *y);
    nb_spmd *s = y ? nb_spmd_inside(v->g, whole, v->n, v->line) : NULL;
    bool ok = s && nb_spmd_run(s, v->in, y) && settle(v->n, y);
    for (int i = 0; ok && i < v->n; i++) {
        ok = compare_line(v, v->line[i], y[i]) && agree(v->to);
        if (ok && v->to->differs) ok = tell(v, v->line[i], whole);
    }
    nb_spmd_drop(s);
    nb_free(y);
    return ok;
}

static bool choose_lines(verifier *v)
{
    size_t n = (size_t)(v->g->n + 1);
    v->plain = nb_alloc_zero(n * sizeof *v->plain);
    v->greatest = nb_alloc_zero(n * sizeof *v->greatest);
    v->scale = nb_alloc_zero(n * sizeof *v->scale);
    v->line = nb_alloc(n * sizeof *v->line);
    if (!v->plain || !v->greatest || !v->scale || !v->line) return false;
    for (int k = 0; k < v->g->n; k++)
        if (v->g->line[k].kind == NB_LINE_CALL && !v->g->line[k].multi)
            v->line[v->n++] = k;
    return true;
}

/* All inputs of the program: what it draws is drawn once. */
static bool gather_inputs(verifier *v, const nb_recording *r, int nx,
                          nb_tensor *const *x)
{
    int n = 0;
    v->in = nb_alloc((size_t)(v->g->nx + 1) * sizeof *v->in);
    bool ok = v->in;
    for (int i = 0; ok && i < nx; i++)
        v->in[n++] = x[i];
    for (int i = 0; ok && i < r->nkeys; i++)
        ok = (v->in[n++] = nb_next_key());
    for (int i = 0; ok && i < r->ncaptured; i++)
        v->in[n++] = r->captured[i];
    return ok && nb_realize_now(v->g->nx, v->in);
}

static bool verify(verifier *v, const nb_recording *r, int nx,
                   nb_tensor *const *x)
{
    v->g = r->graph;
    if (!nb_graph_is_sharded(v->g)) return true;
    bool ok = choose_lines(v) && gather_inputs(v, r, nx, x) && run_plain(v) &&
              run_over(v, false) && run_over(v, true);
    nb_free(v->in);
    nb_free(v->plain);
    nb_free(v->greatest);
    nb_free(v->scale);
    nb_free(v->line);
    return ok;
}

nb_status nb_verify(nb_func *f, int nx, nb_tensor *const *x, double tolerance,
                    nb_verify_report *report)
{
    nb_recording r;
    nb_verify_report own;
    verifier v = {.tolerance = tolerance, .to = report ? report : &own};
    memset(v.to, 0, sizeof *v.to);
    if (!(tolerance >= 0))
        return NB_STATUS(nb_fail(
            NB_EVALUE, "verify: a tolerance of %g is below zero", tolerance));
    bool ok = f && nb_scope_open() == NB_OK;
    if (!ok) return NB_STATUS(false);
    ok = nb_recording_make(&r, f, nx, x, NULL);
    if (ok) {
        ok = verify(&v, &r, nx, x);
        nb_recording_free(&r);
    }
    nb_scope_close(0, NULL);
    return NB_STATUS(ok);
}
