/* pass_attention.c - on a card attention is one step, and one back: the matrix
 * of scores is never stored.
 *
 * What is found (attention_match.h) stands where the first of its ends stood;
 * lines that only led to those ends are dead then.
 * Programs come here differentiated, so derivatives of any order are right;
 * those that need more than a first derivative keep their scores. */
#include "lower/attention.h"
#include "lower/attention_join.h"
#include "lower/attention_match.h"
#include "lower/passes.h"
#include "lower/plan.h"
#include "lower/rewrite.h"

#include <string.h>

enum { INPUTS = 6, RESULTS = 3 };

typedef struct fused {
    nb_attention_found found;
    int part[RESULTS], back[RESULTS]; /* lines of the results of the two */
} fused;

typedef struct fusing {
    const nb_graph *was;
    fused *all;
    int n, room;
    int *to; /* by line as it was: what it is now, -1: nothing yet */
    int next;
} fusing;

/* Rules */

static void write_side(nb_text *t, const nb_attention_found *f,
                       const nb_attention_side *x, char own)
{
    for (int d = 0; d < x->rank; d++) {
        int r = x->role[d];
        char name = r == NB_OWN ? own
                    : r == f->t ? 't'
                    : r == f->s ? 's'
                                : (char)('A' + r);
        nb_text_add(t, " %c", name);
    }
}

/* The scores without their keys. */
static void write_sums(nb_text *t, const nb_attention_found *f)
{
    for (int d = 0; d < f->rank; d++)
        if (d != f->s)
            nb_text_add(t, d == f->t ? " t" : " %c", (char)('A' + d));
}

/* As x is if it is wanted, else as y is. */
static const nb_attention_side *either(const nb_attention_side *x,
                                       const nb_attention_side *y)
{
    return x->line >= 0 ? x : y;
}

/* o, as it will be if nobody has it: as q with the columns of v. */
static void write_o(nb_text *t, const nb_attention_found *f)
{
    write_side(t, f, either(&f->o, &f->q), 'e');
}

static void write_reads(nb_text *t, const nb_attention_found *f)
{
    write_side(t, f, &f->q, 'd');
    nb_text_add(t, ",");
    write_side(t, f, &f->k, 'd');
    nb_text_add(t, ",");
    write_side(t, f, &f->v, 'e');
}

static void write_rule(nb_text *t, const nb_attention_found *f)
{
    write_reads(t, f);
    nb_text_add(t, " ->");
    write_o(t, f);
    nb_text_add(t, ",");
    write_sums(t, f);
}

static void write_back_rule(nb_text *t, const nb_attention_found *f)
{
    write_reads(t, f);
    nb_text_add(t, ",");
    write_o(t, f);
    nb_text_add(t, ",");
    write_sums(t, f);
    nb_text_add(t, ",");
    write_side(t, f, &f->g, 'e');
    nb_text_add(t, " ->");
    write_side(t, f, either(&f->dq, &f->q), 'd');
    nb_text_add(t, ",");
    write_side(t, f, either(&f->dk, &f->k), 'd');
    nb_text_add(t, ",");
    write_side(t, f, either(&f->dv, &f->v), 'e');
}

/* Lines */

/* A node of the line's type; lanes are called by their numbers in the graph. */
static nb_tensor *stand_in(const nb_line *l)
{
    return nb_leaf_on(l->device, nb_node_new(NULL, NULL, l->dtype, &l->shape, 0,
                                             NULL, 0, NULL));
}

/* What the results of a call are like, lent. */
static bool find_types(const nb_graph *g, nb_op *op, const words *w, int nin,
                       const int *in, nb_tensor **y)
{
    nb_tensor *x[INPUTS];
    nb_results r = {.room = RESULTS, .out = y};
    for (int i = 0; i < nin; i++)
        if (!(x[i] = stand_in(&g->line[in[i]]))) return false;
    return nb_record_many(op, nin, x, w->n, w->at, &r);
}

static int insert_line(nb_rewrite *r, nb_op *op, const words *w, int nin,
                       const int *in, const nb_tensor *type)
{
    const nb_line *here = nb_rewrite_line(r);
    nb_line l = {.kind = NB_LINE_CALL,
                 .dtype = (nb_dtype)type->dtype,
                 .shape = nb_tensor_shape(type),
                 .multi = op->nout > 1,
                 .device = here->device,
                 .op = op,
                 .nin = nin,
                 .nattr = w->n,
                 .in = nb_alloc((size_t)nin * sizeof *in),
                 .attr = nb_alloc((size_t)w->n * sizeof *w->at),
                 .source = here->source,
                 .source_line = here->source_line,
                 .direction = here->direction};
    if (!l.in || !l.attr) {
        nb_free(l.in), nb_free(l.attr);
        return -1;
    }
    memcpy(l.in, in, (size_t)nin * sizeof *in);
    memcpy(l.attr, w->at, (size_t)w->n * sizeof *w->at);
    return nb_rewrite_insert(r, l);
}

bool nb_attention_insert(nb_rewrite *r, nb_op *op, const words *w, int nin,
                         const int *in, int *part)
{
    nb_tensor *y[RESULTS];
    if (!find_types(r->graph, op, w, nin, in, y)) return false;
    int call = insert_line(r, op, w, nin, in, y[0]);
    if (op->nout <= 1) return part[0] = call, call >= 0;
    for (int k = 0; call >= 0 && k < op->nout; k++) {
        words which = {.n = 1, .at = {k}};
        part[k] = insert_line(r, &nb_op_part, &which, 1, &call, y[k]);
        if (part[k] < 0) call = -1;
    }
    return call >= 0;
}

static bool insert(nb_rewrite *r, nb_op *op, const nb_attention_found *f,
                   int nin, const int *in, int *part)
{
    nb_text rule = {0};
    words w;
    (op == &nb_op_attention ? write_rule : write_back_rule)(&rule, f);
    bool ok = !rule.failed &&
              nb_attention_attr(op, nb_text_get(&rule), f->scale, f->ahead, &w);
    nb_text_free(&rule);
    if (!ok || nb_scope_open() != NB_OK) return false;
    ok = nb_attention_insert(r, op, &w, nin, in, part);
    nb_scope_close(0, NULL);
    return ok;
}

/* What line k is now, moved before the line looked at if it comes later; -1 if
 * memory ran out. */
static int bring(nb_rewrite *r, fusing *u, int k)
{
    if (u->to[k] >= 0) return u->to[k];
    nb_line l = u->was->line[k];
    for (int i = 0; i < l.nin; i++)
        if (bring(r, u, l.in[i]) < 0) return -1;
    if (!nb_line_own(&l)) return -1;
    for (int i = 0; i < l.nin; i++)
        l.in[i] = u->to[l.in[i]];
    return u->to[k] = nb_rewrite_insert(r, l);
}

static bool bring_all(nb_rewrite *r, fusing *u, int n,
                      const nb_attention_side *const *x, int *in)
{
    for (int i = 0; i < n; i++)
        if ((in[i] = bring(r, u, x[i]->line)) < 0) return false;
    return true;
}

static void becomes(fusing *u, const nb_attention_side *end, int line)
{
    if (end->line >= 0) u->to[end->line] = line;
}

/* The calls that stand at line k as it was. */
static bool fuse_at(nb_rewrite *r, fusing *u, fused *a, int k)
{
    const nb_attention_found *f = &a->found;
    const nb_attention_side *reads[] = {&f->q, &f->k, &f->v, &f->g};
    int in[INPUTS];
    if (k == f->at) {
        if (!bring_all(r, u, 3, reads, in) ||
            !insert(r, &nb_op_attention, f, 3, in, a->part))
            return false;
        becomes(u, &f->o, a->part[0]);
    }
    if (k == f->back_at) {
        if (!bring_all(r, u, 3, reads, in) ||
            !bring_all(r, u, 1, reads + 3, in + 5))
            return false;
        in[3] = a->part[0], in[4] = a->part[1];
        if (!insert(r, &nb_op_attention_back, f, 6, in, a->back)) return false;
        becomes(u, &f->dq, a->back[0]);
        becomes(u, &f->dk, a->back[1]);
        becomes(u, &f->dv, a->back[2]);
    }
    return true;
}

static bool visit(nb_rewrite *r, void *ctx)
{
    fusing *u = ctx;
    int k = u->next++;
    for (int i = 0; i < u->n; i++)
        if (!fuse_at(r, u, &u->all[i], k)) return false;
    if (u->to[k] >= 0)
        r->is = u->to[k];
    else
        u->to[k] = r->at;
    return true;
}

/* All that there are. */

static bool find_all(const nb_graph *g, nb_tensor *const *node, fusing *u)
{
    nb_attention_lines l;
    if (!nb_attention_lines_open(&l, g, node)) return false;
    bool ok = true;
    for (int k = g->nx; ok && k < g->n; k++) {
        fused a = {0};
        if (nb_line_scalar(&g->line[k]) != NB_S_exp ||
            !nb_attention_find(&l, k, &a.found))
            continue;
        ok = nb_grow(&u->all, &u->room, u->n + 1, sizeof *u->all);
        if (ok) u->all[u->n++] = a;
    }
    nb_attention_lines_close(&l);
    return ok;
}

static bool rewrite(nb_graph *g, fusing *u)
{
    u->to = nb_alloc((size_t)(g->n + 1) * sizeof *u->to);
    if (!u->to) return false;
    for (int k = 0; k < g->n; k++)
        u->to[k] = k < g->nx ? k : -1;
    u->next = g->nx;
    return nb_graph_rewrite(g, visit, u) && nb_pass_dead(g) &&
           nb_attention_join(g) && nb_pass_dead(g);
}

bool nb_attention_fuse(nb_graph *g)
{
    nb_plan *p = nb_plan_draft(g);
    fusing u = {.was = p ? p->graph : NULL};
    bool ok = p && find_all(p->graph, p->node, &u);
    if (ok && u.n) ok = rewrite(g, &u);
    nb_plan_free(p);
    nb_free(u.all), nb_free(u.to);
    return ok;
}

static bool may_have_one(const nb_graph *g)
{
    bool card = false, exp = false;
    for (int k = 0; k < g->n; k++) {
        card = card || g->line[k].device;
        exp = exp || nb_line_scalar(&g->line[k]) == NB_S_exp;
    }
    return card && exp;
}

bool nb_pass_attention(nb_graph *g)
{
    return !may_have_one(g) || nb_attention_fuse(g);
}
