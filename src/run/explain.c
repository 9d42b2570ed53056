/* explain.c - the collectives of a program, with their reasons.
 *
 * The rows are the moves of a program that is to be run, in its order, and one
 * more for each reduction that results leave pending. */
#include "run/explain.h"

#include "run/recording.h"
#include "run/spmd.h"
#include "shard/decide/factors.h"
#include "shard/decide/region.h"
#include "shard/graph/reason.h"

#include <string.h>

struct nb_explanation {
    nb_explain_row *row; /* its texts are ours, but for the kind */
    int n, room, moves;
    bool priced; /* the mesh has costs of its own */
};

static void row_free(nb_explain_row *r)
{
    const char *text[] = {r->axes, r->from,   r->to,     r->of,         r->rule,
                          r->op,   r->source, r->reason, r->alternative};
    for (size_t i = 0; i < sizeof text / sizeof text[0]; i++)
        nb_free((char *)text[i]);
}

void nb_explanation_drop(nb_explanation *e)
{
    if (!e) return;
    for (int i = 0; i < e->n; i++)
        row_free(&e->row[i]);
    nb_free(e->row);
    nb_free(e);
}

/* Making rows */

static char *finish(nb_text *t)
{
    char *text = t->failed ? NULL : nb_copy_text(nb_text_get(t));
    nb_text_free(t);
    return text;
}

static char *axes_text(const nb_hop *h)
{
    nb_text t = {0};
    char name[64];
    for (int i = 0; i < h->axes.n; i++) {
        nb_axis_text(h->from->mesh, h->axes.at[i], name, sizeof name);
        nb_text_add(&t, "%s%s", i ? "," : "", name);
    }
    return finish(&t);
}

/* Who made the value of a line. */
static char *maker_text(const nb_graph *g, int line)
{
    nb_text t = {0};
    const nb_line *l = &g->line[line];
    if (l->op == &nb_op_part) l = &g->line[l->in[0]];
    if (l->op)
        nb_text_add(&t, "%s", l->op->name);
    else
        nb_text_add(&t, l->kind == NB_LINE_INPUT ? "input %d" : "constant",
                    line);
    return finish(&t);
}

static char *user_text(const nb_occasion *o)
{
    nb_text t = {0};
    if (o->user < 0)
        nb_text_add(&t, "result %d", o->operand);
    else
        nb_text_add(&t, "%s", o->g->line[o->user].op->name);
    if (o->within) nb_text_add(&t, " in %s", o->within->name);
    return finish(&t);
}

static char *rule_text(const nb_occasion *o)
{
    int k = nb_reason_line(o);
    const nb_sig *sig = k >= 0 && o->g->line[k].kind == NB_LINE_CALL
                            ? nb_call_of(o->node[k]).sig
                            : NULL;
    return nb_copy_text(sig ? sig->text : "");
}

static char *reason_text(const nb_occasion *o)
{
    nb_text t = {0};
    if (!nb_reason_write(&t, o) && o->user >= 0)
        nb_text_add(&t, "%s takes it so", o->g->line[o->user].op->name);
    return finish(&t);
}

static char *cheaper_text(const nb_occasion *o, int64_t *bytes)
{
    nb_text t = {0};
    *bytes = nb_cheaper_write(&t, o);
    return finish(&t);
}

static nb_explain_row *row_new(nb_explanation *e)
{
    if (!nb_grow(&e->row, &e->room, e->n + 1, sizeof *e->row)) return NULL;
    nb_explain_row *r = &e->row[e->n++];
    memset(r, 0, sizeof *r);
    return r;
}

static bool add_hop(nb_explanation *e, const nb_occasion *o, const nb_hop *h)
{
    bool failed = nb_failed();
    nb_explain_row *r = row_new(e);
    const nb_reshard_plan *p = o->plan;
    nb_dtype dtype = o->g->line[o->line].dtype;
    if (!r) return false;
    r->kind = nb_hop_name(h->kind);
    r->bytes = h->bytes;
    r->seconds = h->seconds;
    r->bound = o->reach ? p->bytes : p->bound;
    r->move = e->moves;
    r->times = o->times;
    r->reading = o->reading;
    r->axes = axes_text(h);
    r->from = nb_spec_type_text(h->from, dtype, p->size);
    r->to = nb_spec_type_text(h->into, dtype, p->size);
    r->of = maker_text(o->g, o->line);
    r->rule = rule_text(o);
    r->op = user_text(o);
    r->source =
        nb_copy_text(nb_graph_source(o->g, o->user < 0 ? o->line : o->user));
    r->reason = reason_text(o);
    r->alternative = cheaper_text(o, &r->cheaper);
    return r->axes && r->from && r->to && r->of && r->rule && r->op &&
           r->source && r->reason && r->alternative && nb_failed() == failed;
}

static bool add_move(nb_explanation *e, const nb_occasion *o)
{
    bool ok = true;
    int before = e->n;
    for (int k = 0; ok && k < o->plan->n; k++)
        if (nb_hop_talks(&o->plan->step[k]))
            ok = add_hop(e, o, &o->plan->step[k]);
    e->moves += e->n > before;
    return ok;
}

static bool moved(void *ctx, const nb_occasion *o)
{
    return add_move(ctx, o);
}

/* A result that is pending is reduced when somebody uses it. */
static bool add_reading(nb_explanation *e, nb_occasion o, int i)
{
    int64_t size[NB_MAX_DIMS];
    int line = o.g->result[i];
    const nb_spec *from = o.lay->spec[line];
    for (int k = 0; k < i; k++)
        if (o.g->result[k] == line) return true;
    if (!from->partial.n) return true;
    nb_stored_sizes(o.node[line], size);
    const nb_spec *into = nb_spec_settled(from);
    o.line = line;
    o.user = -1;
    o.operand = i;
    o.reading = true;
    o.plan =
        into ? nb_reshard_find(from, into, size,
                               (int)nb_dtype_size(o.g->line[line].dtype), NULL)
             : NULL;
    return o.plan && add_move(e, &o);
}

static bool explain(void *ctx, const nb_graph *g, nb_tensor *const *node,
                    const nb_layouts *lay)
{
    nb_explanation *e = ctx;
    nb_occasion o = {.g = g, .node = node, .lay = lay, .times = 1};
    const nb_mesh *m = lay->mesh;
    for (int k = 0; k < m->naxes; k++)
        e->priced = e->priced || m->byte[k] != 1 || m->message[k] != 0;
    bool ok = nb_layouts_watch(g, node, lay, &(nb_watcher){moved, e, 1});
    for (int i = 0; ok && i < g->ny; i++)
        ok = add_reading(e, o, i);
    return ok;
}

nb_explanation *nb_graph_explain(const nb_graph *g, bool whole)
{
    nb_explanation *e = nb_alloc_zero(sizeof *e);
    bool ok =
        e && (!nb_graph_is_sharded(g) || nb_spmd_layouts(g, whole, explain, e));
    if (ok) return e;
    nb_explanation_drop(e);
    return NULL;
}

/* Looking at them */

int nb_explanation_rows(const nb_explanation *e)
{
    return e ? e->n : 0;
}

bool nb_explanation_row(const nb_explanation *e, int k, nb_explain_row *row)
{
    if (!e || k < 0 || k >= e->n) return false;
    *row = e->row[k];
    return true;
}

int64_t nb_explanation_total(const nb_explanation *e, const char *kind,
                             int *calls)
{
    int64_t bytes = 0;
    int n = 0;
    for (int i = 0; e && i < e->n; i++) {
        if (kind && strcmp(kind, e->row[i].kind)) continue;
        bytes += e->row[i].bytes * e->row[i].times;
        n += (int)e->row[i].times;
    }
    if (calls) *calls = n;
    return bytes;
}

/* total 12288 bytes: 1 all_gather (6144), 2 all_reduce (6144) */
static void write_totals(nb_text *t, const nb_explanation *e)
{
    nb_text_add(t, "total %lld bytes",
                (long long)nb_explanation_total(e, NULL, NULL));
    for (int k = 0, said = 0; k <= NB_HOP_EXCHANGE; k++) {
        int calls;
        const char *kind = nb_hop_name((nb_hop_kind)k);
        int64_t bytes = nb_explanation_total(e, kind, &calls);
        if (!calls) continue;
        nb_text_add(t, "%s %d %s (%lld)", said++ ? "," : ":", calls, kind,
                    (long long)bytes);
    }
    nb_text_add(t, "\n");
}

/* c0  all_reduce  tp  24576 B  relu <- matmul  mlp.c:12 */
static void write_head(nb_text *t, const nb_explanation *e, int k, int wide)
{
    const nb_explain_row *r = &e->row[k];
    nb_text_add(t, "c%-3d %-14s %-*s %10lld B", k, r->kind, wide, r->axes,
                (long long)r->bytes);
    if (e->priced) nb_text_add(t, "  %.3g s", r->seconds);
    if (r->times != 1) nb_text_add(t, " x %lld", (long long)r->times);
    nb_text_add(t, "  %s <- %s", r->op, r->of);
    if (*r->source) nb_text_add(t, "  %s", r->source);
    nb_text_add(t, "\n");
}

static void write_row(nb_text *t, const nb_explanation *e, int k, int wide)
{
    const nb_explain_row *r = &e->row[k];
    bool first = !k || e->row[k - 1].move != r->move;
    write_head(t, e, k, wide);
    nb_text_add(t, "     %s -> %s", r->from, r->to);
    if (first) nb_text_add(t, "; bound %lld", (long long)r->bound);
    nb_text_add(t, "\n");
    if (!first) return;
    nb_text_add(t, "     %s", r->reason);
    if (*r->rule) nb_text_add(t, " (%s)", r->rule);
    nb_text_add(t, "\n");
    if (*r->alternative)
        nb_text_add(t, "     %s: %lld\n", r->alternative,
                    (long long)r->cheaper);
}

char *nb_explanation_text(const nb_explanation *e)
{
    if (!e) return NB_STATUS(false), NULL;
    nb_text t = {0};
    int wide = 1;
    for (int k = 0; k < e->n; k++)
        if ((int)strlen(e->row[k].axes) > wide)
            wide = (int)strlen(e->row[k].axes);
    for (int k = 0; k < e->n; k++)
        write_row(&t, e, k, wide);
    write_totals(&t, e);
    return finish(&t);
}

/* Budgets */

bool nb_explanation_within(const nb_explanation *e, const char *who,
                           int64_t max)
{
    int64_t total = nb_explanation_total(e, NULL, NULL);
    int worst = 0;
    if (!max || total <= (max < 0 ? 0 : max)) return true;
    for (int k = 0; k < e->n; k++)
        if (e->row[k].bytes * e->row[k].times >
            e->row[worst].bytes * e->row[worst].times)
            worst = k;
    const nb_explain_row *r = &e->row[worst];
    return nb_fail(NB_EVALUE,
                   "%s: %lld bytes are communicated, max_collective_bytes is "
                   "%lld; the most by c%d %s %s, %lld bytes, for %s%s%s: %s",
                   who, (long long)total, (long long)(max < 0 ? 0 : max), worst,
                   r->kind, r->axes, (long long)r->bytes, r->op,
                   *r->source ? " at " : "", r->source, r->reason);
}

static nb_explanation *explain_call(nb_func *f, int nx, nb_tensor *const *x,
                                    bool whole)
{
    nb_recording r;
    nb_explanation *e = NULL;
    if (!f || nb_scope_open() != NB_OK) return NULL;
    if (nb_recording_make(&r, f, nx, x, NULL)) {
        e = nb_graph_explain(r.graph, whole);
        nb_recording_free(&r);
    }
    nb_scope_close(0, NULL);
    return e;
}

nb_status nb_explain(nb_func *f, int nx, nb_tensor *const *x,
                     const nb_explain_options *options, nb_explanation **out)
{
    nb_explanation *e = explain_call(f, nx, x, !options || !options->eager);
    bool ok =
        e && (!options || nb_explanation_within(e, "explain",
                                                options->max_collective_bytes));
    if (ok)
        *out = e;
    else
        nb_explanation_drop(e);
    return NB_STATUS(ok);
}
