/* checkpoint.c - functions whose inside is not kept: it runs again where a
 * derivative needs it.
 *
 * The function is recorded into a program, which one op runs.  The derivatives
 * of this op are such ops again, of programs that run the first one on a tape
 * and walk through that: whatever an inside needs goes before the op is done.
 *
 * A policy may name values inside that are kept.  They are results of the op
 * behind the function's own, and inputs of the programs of its derivatives,
 * which leave out what leads to them.
 *
 * Inputs: arguments, then what the function closes over. */
#include "transform/forms.h"
#include "transform/region.h"

#include "core/lanes.h"
#include "ops/ops.h"

/* Results of the function itself; a bit for each of the first that is saved. */
enum { OWN, ALSO, NATTR, NBITS = 63 };

static bool result(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    const nb_graph *g = c->op->region[0];
    const nb_line *line = nb_region_result(g, k);
    *out = nb_region_shape(g, c->in, line);
    *dtype = line->dtype;
    return true;
}

/* Inputs without history, so that nodes forget theirs as they are computed. */
static bool run_program(const nb_call *c, const nb_shape *shape,
                        char *const *to)
{
    const nb_graph *g = c->op->region[0];
    nb_tensor **in = nb_array(g->nx), **y = nb_array(g->ny);
    bool ok = in && y;
    for (int i = 0; ok && i < g->nx; i++) {
        nb_shape s = nb_tensor_shape(c->in[i]);
        ok = (in[i] = nb_leaf_of(c->in[i], &s));
    }
    ok = ok && nb_region_run(g, g->nx, in, y);
    for (int k = 0; ok && k < g->ny; k++)
        ok = nb_copy_into(to[k], &shape[k], y[k]);
    nb_free(in), nb_free(y);
    return ok;
}

static bool execute(const nb_call *c, char *const *to)
{
    nb_shape *shape = nb_call_shapes(c);
    bool open = shape && nb_scope_open() == NB_OK;
    bool ok = open && run_program(c, shape, to);
    if (open) nb_scope_close(0, NULL);
    nb_free(shape);
    return ok;
}

static bool push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy);
static bool pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx);

/* What a text may get wrong: the types of the program. */
static bool check(nb_call *c)
{
    const nb_graph *g = c->op->region[0];
    bool ok = g->nx == c->nin && g->ny == c->op->nout && c->attr[OWN] >= 0 &&
              c->attr[OWN] <= g->ny;
    for (int i = 0; ok && i < c->nin; i++)
        ok = nb_line_takes(&g->line[i], c->in[i], 0);
    return ok ||
           nb_fail(NB_EVALUE, "checkpoint: the body does not fit the inputs");
}

nb_op nb_form_checkpoint = {
    .name = "checkpoint",
    .params = "inputs:tensors, results:int, saved:int",
    .region_name = {"body"},
    .check = check,
    .result = result,
    .execute = execute,
    .anywhere = true,
    .push = push,
    .pull = pull,
    .inlines = true,
};

static bool apply(nb_region *r, nb_list *in, int own, int64_t also,
                  nb_tensor **y)
{
    int64_t attr[NATTR] = {own, also};
    nb_results results = {.room = r->graph->ny, .out = y};
    return nb_region_apply(&nb_form_checkpoint, r, NULL, in, NATTR, attr,
                           &results);
}

/* Derivatives */

typedef struct derivative {
    const nb_call *c;
    nb_tensor *const *u;   /* tangents of inputs, or */
    nb_tensor *const *ct;  /* cotangents of results */
    const nb_shape *shape; /* of results */
    const bool *on;        /* inputs that something flows back to */
    nb_tensor **saved;     /* results that need not be computed, or NULL */
    nb_list inside, in;    /* of the program: what they are there; kept */
    nb_tensor **out;       /* where there is something; room in `to` */
} derivative;

static bool same_lanes(const nb_tensor *a, const nb_tensor *b)
{
    bool same = a->nlanes == b->nlanes;
    for (int l = 0; same && l < a->nlanes; l++)
        same = nb_tensor_lane(a)[l].id == nb_tensor_lane(b)[l].id &&
               nb_tensor_lane(a)[l].thin == nb_tensor_lane(b)[l].thin;
    return same;
}

/* y are the results of the run inside.  One that was saved in more lanes than
 * it has here is computed again. */
static bool use_saved(derivative *d, nb_tensor *const *y)
{
    for (int k = 0; k < d->c->op->nout; k++) {
        if (!d->saved[k] || !same_lanes(d->saved[k], y[k])) continue;
        if (!nb_list_add(&d->in, d->saved[k])) return false;
        if (!nb_list_add(&d->inside, y[k])) return false;
        nb_keep(y[k]);
    }
    return true;
}

/* Gives what there is of n tensors, and remembers which. */
static bool give(derivative *d, int n, nb_tensor *const *from, int *ny,
                 nb_tensor **y)
{
    nb_results all = {.room = *ny, .out = y};
    bool ok = true;
    for (int k = 0; ok && k < n; k++)
        if ((d->out[k] = from[k])) ok = nb_results_add(&all, from[k]);
    *ny = all.n;
    return ok;
}

static nb_status push_again(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    derivative *d = ctx;
    const nb_call *c = d->c;
    const nb_graph *g = c->op->region[0];
    nb_tensor **inside = nb_array(g->ny), **uy = nb_array(g->ny);
    (void)nx, (void)x;
    bool ok = inside && uy &&
              nb_region_push(g, c->in, d->u, g->ny, NULL, inside, uy) &&
              use_saved(d, inside) && give(d, g->ny, uy, ny, y);
    nb_free(inside), nb_free(uy);
    return NB_STATUS(ok);
}

static nb_status pull_again(void *ctx, int nx, nb_tensor *const *x, int *ny,
                            nb_tensor **y)
{
    derivative *d = ctx;
    const nb_call *c = d->c;
    const nb_graph *g = c->op->region[0];
    nb_tensor **inside = nb_array(g->ny), **cx = nb_array(g->nx);
    (void)nx, (void)x;
    bool ok =
        inside && cx &&
        nb_region_pull_all(g, c->in, d->on, d->shape, d->ct, inside, cx) &&
        use_saved(d, inside) && give(d, g->nx, cx, ny, y);
    nb_free(inside), nb_free(cx);
    return NB_STATUS(ok);
}

/* Result k of the call, anew. */
static nb_tensor *part(const nb_call *c, int k)
{
    nb_shape s;
    nb_dtype d;
    return result(c, k, &s, &d) ? nb_part_new(c->out, k, d, &s) : NULL;
}

static nb_tensor **saved_by(const nb_call *c)
{
    nb_tensor **all = nb_array(c->op->nout);
    for (int k = 0; all && k < c->op->nout; k++) {
        bool is = k >= c->attr[OWN] || (k < NBITS && c->attr[ALSO] >> k & 1);
        if (is && !(all[k] = part(c, k))) return nb_free(all), NULL;
    }
    return all;
}

/* The op of the program that body records; its results, of n that there could
 * be, to where they belong. */
static bool derive(derivative *d, nb_body *body, int n, nb_tensor **to)
{
    nb_region r = {0};
    nb_tensor **y = nb_array(n);
    d->out = nb_array(n);
    d->saved = saved_by(d->c);
    bool ok = y && d->out && d->saved &&
              nb_region_record(&r, nb_func_new(body, d), &d->inside);
    ok = ok && (!r.graph->ny || apply(&r, &d->in, r.graph->ny, 0, y));
    for (int k = 0, at = 0; ok && k < n; k++)
        if (d->out[k]) to[k] = y[at++];
    for (int k = 0; k < d->inside.n; k++)
        nb_drop(d->inside.at[k]);
    nb_list_free(&d->inside), nb_list_free(&d->in);
    nb_region_free(&r);
    nb_free(y), nb_free(d->out), nb_free(d->saved);
    return ok;
}

static bool push(const nb_call *c, nb_tensor *const *u, nb_tensor **uy)
{
    derivative d = {.c = c, .u = u};
    return derive(&d, push_again, c->op->nout, uy);
}

static bool pull(const nb_call *c, nb_tensor *const *ct, nb_tensor **cx)
{
    bool any, *on = nb_call_wanted(c, &any);
    nb_shape *shape = nb_call_shapes(c);
    derivative d = {.c = c, .ct = ct, .shape = shape, .on = on};
    bool ok = on && shape && (!any || derive(&d, pull_again, c->nin, cx));
    nb_free(on), nb_free(shape);
    return ok;
}

/* Calling */

typedef struct plan {
    nb_func *f; /* kept */
    nb_checkpoint_options options;
} plan;

static bool is_contraction(const nb_tensor *x)
{
    bool summed = false;
    for (int f = 0; x->sig && f < x->sig->nfactors; f++)
        summed = summed || (!x->sig->factor[f].in_result &&
                            x->sig->factor[f].reduce == NB_SUM);
    return summed && x->op->kind == NB_MULTILINEAR && x->nin > 1;
}

/* Views and what has several results, which are asked about one by one, cost
 * nothing themselves. */
static bool asked(void *ctx, nb_tensor *x)
{
    const plan *p = ctx;
    if (x->flags & NB_MULTI || x->op->view || x->op->dim_of) return false;
    const nb_op *op = x->op == &nb_op_part ? nb_tensor_in(x)[0]->op : x->op;
    nb_op_info info = {
        .name = op->name, .contraction = is_contraction(x), .value = x};
    return p->options.save(p->options.ctx, &info);
}

bool nb_save_contractions(void *ctx, const nb_op_info *info)
{
    (void)ctx;
    return info->contraction;
}

bool nb_save_everything(void *ctx, const nb_op_info *info)
{
    (void)ctx, (void)info;
    return true;
}

/* Takes what is saved and a result as well out of the list of the former; the
 * bits of those. */
static int64_t merge(nb_graph *g, int own)
{
    int64_t also = 0;
    int n = own;
    for (int k = own; k < g->ny; k++) {
        int j = 0;
        while (j < own && j < NBITS && g->result[j] != g->result[k])
            j++;
        if (j < own && j < NBITS)
            also |= (int64_t)1 << j;
        else
            g->result[n++] = g->result[k];
    }
    g->ny = n;
    return also;
}

/* f on aliases of x, which have its values.  They are on a trace of their own:
 * what f computes to look at it stays a part of the program. */
static bool record(const plan *p, int nx, nb_tensor *const *x, nb_region *r,
                   nb_list *in, int *own)
{
    nb_saving saving = {asked, (void *)p};
    nb_list inside = {0};
    uint64_t bit = nb_trace_open();
    bool ok = bit;
    for (int i = 0; ok && i < nx; i++) {
        ok = nb_list_add(in, nb_strong(x[i], NULL)) &&
             nb_list_add(&inside, nb_alias(in->at[i]));
        if (ok) inside.at[i]->trace |= bit;
    }
    ok = ok && nb_region_record_saving(r, p->f, &inside,
                                       p->options.save ? &saving : NULL, own);
    if (bit) nb_trace_close(bit);
    nb_list_free(&inside);
    return ok;
}

static bool run(const plan *p, int nx, nb_tensor *const *x, int *ny,
                nb_tensor **y)
{
    nb_region r = {0};
    nb_list in = {0};
    nb_tensor **all = NULL;
    int own = 0, room = *ny;
    bool ok = record(p, nx, x, &r, &in, &own);
    if (ok && own > room)
        ok = nb_fail(NB_EVALUE, "checkpoint: %d results, room for %d", own,
                     room);
    ok = ok && (all = nb_array(r.graph->ny));
    int64_t also = ok ? merge(r.graph, own) : 0;
    ok = ok && (!own || apply(&r, &in, own, also, all));
    for (int k = 0; ok && k < own; k++)
        y[k] = all[k];
    *ny = ok ? own : 0;
    nb_region_free(&r);
    nb_list_free(&in);
    nb_free(all);
    return ok;
}

static nb_status body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                      nb_tensor **y)
{
    return NB_STATUS(run(ctx, nx, x, ny, y));
}

static void plan_free(void *ctx)
{
    plan *p = ctx;
    nb_func_drop(p->f);
    nb_free(p);
}

nb_func *nb_checkpoint(nb_func *f, const nb_checkpoint_options *options)
{
    plan *p = f ? nb_alloc_zero(sizeof *p) : NULL;
    if (!p) return NULL;
    p->f = nb_func_keep(f);
    if (options) p->options = *options;
    return nb_func_named(nb_func_owning(body, p, plan_free), "checkpoint");
}
