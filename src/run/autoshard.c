/* autoshard.c - from a function to a choice of layouts, and from that to a
 * function that follows it. */
#include "nabla/autoshard.h"

#include "base/text.h"
#include "nabla/random.h"
#include "run/recording.h"
#include "shard/decide/factors.h"
#include "shard/decide/partial.h"
#include "shard/decide/place.h"
#include "shard/solve/model.h"
#include "transform/region.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

struct nb_auto_plan {
    atomic_int refs;
    nb_recording of;
    int nx;
    const nb_spec **spec;  /* by line: how it lies where it is made; or NULL */
    const nb_spec ***need; /* by line and operand; or NULL */
    const nb_spec **result;
    double cost, bound;
    int64_t memory;
    char *text;
};

nb_auto_plan *nb_auto_plan_keep(nb_auto_plan *p)
{
    if (p) atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
    return p;
}

void nb_auto_plan_drop(nb_auto_plan *p)
{
    if (!p || atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int k = 0; p->need && k < p->of.graph->n; k++)
        nb_free(p->need[k]);
    nb_recording_free(&p->of);
    nb_free(p->spec);
    nb_free(p->need);
    nb_free(p->result);
    nb_free(p->text);
    nb_free(p);
}

/* The model of a program */

typedef struct modeller {
    const nb_graph *g;
    nb_tensor **node;
    const nb_mesh *mesh;
    nb_model *m;
    int *value;  /* by line: of its first result; -1: none */
    int *result; /* values, by result */
    int nx;
} modeller;

static const char *name_of(const modeller *b, int k)
{
    const nb_line *l = &b->g->line[k];
    char text[32];
    if (l->kind == NB_LINE_CALL) return l->op->name;
    snprintf(text, sizeof text, "%s %d", k < b->nx ? "argument" : "value", k);
    return nb_intern(text, strlen(text));
}

static bool add_input(modeller *b, int k)
{
    const nb_tensor *x = b->node[k];
    int64_t size[NB_MAX_DIMS];
    nb_model_tensor t = {.name = name_of(b, k), .size = size};
    t.item = (int)nb_dtype_size((nb_dtype)x->dtype);
    t.rank = nb_stored_sizes(x, size);
    t.spec = x->sharding;
    return t.name && (b->value[k] = nb_model_input(b->m, &t)) >= 0;
}

/* The solver splits dims that are passed on and those that are picked from;
 * what else an op can do in parts stays whole. */
static void restrict_factors(nb_factors *f, const nb_call *c,
                             const nb_mesh *mesh)
{
    nb_work w = {.call = c, .mesh = mesh, .f = f};
    for (int k = 0; k < f->n; k++) {
        nb_factor_kind kind = nb_work_kind(&w, k);
        bool given = c->op->sized || (!c->nin && c->op->local);
        for (int t = 0; t < f->nin; t++)
            given = given || nb_factored_has(&f->tensor[t], k);
        if ((kind != NB_PASS && kind != NB_MASK) || !given)
            f->kind[k] = NB_REPLICATE;
    }
}

static void set_carry(nb_model_op *op, const nb_call *c)
{
    bool moves = c->op->view || c->op->dim_of || c->op->in_order;
    for (int t = 0; t < c->nin && t < 64; t++)
        if (nb_call_carries(c, t)) op->carriers |= 1ull << t;
    op->carry = !op->carriers                        ? NB_CARRY_NONE
                : c->op->kind == NB_LINEAR && !moves ? NB_CARRY_ALL
                                                     : NB_CARRY_ONE;
}

/* Of those that multiply and add up, every device does a part. */
static bool is_contraction(const nb_factors *f, const nb_call *c)
{
    bool reduced = false;
    for (int k = 0; k < f->n; k++)
        reduced = reduced || f->reduced[k];
    return c->op->kind == NB_MULTILINEAR && reduced;
}

/* What the program says of a value, or NULL. */
static const nb_spec *said_of(const modeller *b, const nb_call *c)
{
    const nb_spec *s = c->op->places ? nb_call_target(c) : NULL;
    return s && s->mesh == b->mesh && !s->partial.n ? s : NULL;
}

static bool add_op(modeller *b, int k, const nb_call *c, int nout,
                   nb_tensor *const *out)
{
    const nb_line *l = &b->g->line[k];
    nb_factors f;
    if (!nb_factors_of(&f, c, nout, out)) return false;
    int *word = nb_alloc((size_t)(c->nin + nout + 1) * sizeof *word);
    nb_model_op op = {.name = name_of(b, k), .factors = &f, .operand = word};
    op.item = word ? word + c->nin : NULL;
    for (int i = 0; word && i < c->nin; i++)
        word[i] = b->value[l->in[i]];
    for (int i = 0; word && i < nout; i++)
        word[c->nin + i] = (int)nb_dtype_size((nb_dtype)out[i]->dtype);
    if (word) {
        restrict_factors(&f, c, b->mesh);
        op.said = said_of(b, c);
        if (!c->op->release && nout == 1 && !op.said) set_carry(&op, c);
        op.spread = is_contraction(&f, c);
        b->value[k] = nb_model_add(b->m, &op);
    }
    nb_factors_free(&f);
    nb_free(word);
    return word && b->value[k] >= 0;
}

static bool add_many(modeller *b, int k)
{
    nb_tensor *all = b->node[k];
    nb_call c = nb_call_of(all);
    int n = c.op->nout;
    nb_tensor **part = nb_alloc((size_t)(n + 1) * sizeof *part);
    bool ok = part;
    for (int64_t i = 0; ok && i < n; i++) {
        nb_shape shape;
        nb_dtype dtype;
        ok = nb_call_infer(&c, (int)i, &shape, &dtype) &&
             (part[i] = nb_node_new(&nb_op_part, NULL, dtype, &shape, 1, &all,
                                    1, &i));
    }
    ok = ok && add_op(b, k, &c, n, part);
    nb_free(part);
    return ok;
}

static bool add_line(modeller *b, int k)
{
    const nb_line *l = &b->g->line[k];
    if (l->kind != NB_LINE_CALL) return add_input(b, k);
    if (l->multi) return add_many(b, k);
    if (l->op == &nb_op_part) {
        b->value[k] = b->value[l->in[0]] + (int)l->attr[0];
        return true;
    }
    nb_call c = nb_call_of(b->node[k]);
    if (!add_op(b, k, &c, 1, &b->node[k])) return false;
    if (!l->op->places) return true;
    const nb_spec *said = said_of(b, &c);
    return said ? nb_model_prefer(b->m, b->value[k], said)
                : nb_model_want(b->m, b->value[k], nb_call_target(&c));
}

/* A result is the value with nothing pending. */
static bool add_result(modeller *b, int i)
{
    nb_tensor *x = b->node[b->g->result[i]];
    nb_factors f = {.nin = 1, .nout = 1, .tensor = f.few};
    int operand = b->value[b->g->result[i]];
    int item = (int)nb_dtype_size((nb_dtype)x->dtype);
    nb_model_op op = {.name = "result", .factors = &f, .operand = &operand};
    op.item = &item;
    for (int t = 0; t < 2; t++)
        f.few[t].rank = nb_stored_sizes(x, f.few[t].size);
    f.n = f.few[0].rank;
    for (int d = 0; d < f.n; d++) {
        f.size[d] = f.few[0].size[d];
        for (int t = 0; t < 2; t++)
            f.few[t].dim[d] = (nb_dim){.n = 1, .factor = {(int16_t)d}};
    }
    return (b->result[i] = nb_model_add(b->m, &op)) >= 0;
}

static bool add_aliases(modeller *b, const nb_auto_options *o)
{
    for (int i = 0; o && i < o->naliases; i++) {
        nb_auto_alias a = o->alias[i];
        if (a.result < 0 || a.result >= b->g->ny || a.argument < 0 ||
            a.argument >= b->nx)
            return nb_fail(NB_EVALUE,
                           "auto_shard: result %d is to be argument %d; there "
                           "are %d results and %d arguments",
                           a.result, a.argument, b->g->ny, b->nx);
        if (!nb_line_same(&b->g->line[b->g->result[a.result]],
                          &b->g->line[a.argument]))
            return nb_fail(NB_EVALUE,
                           "auto_shard: result %d is not of the type of "
                           "argument %d",
                           a.result, a.argument);
        if (!nb_model_alias(b->m, b->result[a.result], b->value[a.argument]))
            return false;
    }
    return true;
}

static bool build(modeller *b, const nb_auto_options *o)
{
    enum { TIMES = 4 };
    bool ok = true;
    for (int k = 0; ok && k < b->g->n; k++)
        ok = add_line(b, k);
    for (int i = 0; ok && i < b->g->ny; i++)
        ok = add_result(b, i);
    int64_t budget = o && o->memory_budget > 0 ? o->memory_budget : -1;
    return ok && add_aliases(b, o) && nb_model_tie_repeats(b->m) >= 0 &&
           nb_model_count_live(b->m, TIMES, budget) && nb_model_solve(b->m);
}

/* The choice */

static bool too_much(const nb_solution *s, const nb_auto_options *o)
{
    int64_t least = s->least ? s->least[0] : 0;
    return nb_fail(NB_EVALUE,
                   "auto_shard: nothing %sfits %lld bytes on a device; %lld "
                   "are needed",
                   s->proved ? "" : "that was found ",
                   (long long)o->memory_budget, (long long)least);
}

static bool read_choice(nb_auto_plan *p, const modeller *b)
{
    const nb_graph *g = b->g;
    size_t n = (size_t)(g->n + g->ny + 1);
    p->spec = nb_alloc_zero(n * sizeof *p->spec);
    p->need = nb_alloc_zero(n * sizeof *p->need);
    p->result = nb_alloc_zero(n * sizeof *p->result);
    if (!p->spec || !p->need || !p->result) return false;
    for (int k = 0; k < g->n; k++) {
        const nb_line *l = &g->line[k];
        if (!l->multi) p->spec[k] = nb_model_spec(b->m, b->value[k]);
        if (l->kind != NB_LINE_CALL || l->op == &nb_op_part) continue;
        p->need[k] = nb_alloc((size_t)(l->nin + 1) * sizeof *p->need[k]);
        if (!p->need[k]) return false;
        for (int i = 0; i < l->nin; i++)
            p->need[k][i] = nb_model_need(b->m, b->value[k], i);
    }
    for (int i = 0; i < g->ny; i++)
        p->result[i] = nb_model_spec(b->m, b->result[i]);
    return true;
}

static bool read_solution(nb_auto_plan *p, const modeller *b,
                          const nb_auto_options *o)
{
    enum { TIMES = 4 };
    const nb_solution *s = nb_model_solution(b->m);
    nb_text t = {0};
    if (!s->feasible) return too_much(s, o);
    p->cost = s->cost;
    p->bound = s->bound;
    for (int r = 0; s->bytes && r < TIMES; r++)
        if (s->bytes[r] > p->memory) p->memory = s->bytes[r];
    bool ok =
        nb_model_print(b->m, &t) && (p->text = nb_copy_text(nb_text_get(&t)));
    nb_text_free(&t);
    return ok && read_choice(p, b);
}

static bool choose(nb_auto_plan *p, const nb_mesh *mesh,
                   const nb_auto_options *o)
{
    const nb_graph *g = p->of.graph;
    size_t n = (size_t)(g->n + g->ny + 1);
    modeller b = {.g = g, .mesh = mesh, .nx = p->nx};
    b.node = nb_alloc(n * sizeof *b.node);
    b.value = nb_alloc(n * sizeof *b.value);
    b.result = nb_alloc(n * sizeof *b.result);
    b.m = nb_model_new(mesh, NULL);
    bool ok = b.node && b.value && b.result && b.m &&
              nb_graph_nodes(g, b.node) && build(&b, o) &&
              read_solution(p, &b, o);
    nb_model_free(b.m);
    nb_free(b.node);
    nb_free(b.value);
    nb_free(b.result);
    return ok;
}

nb_status nb_auto_shard(nb_func *f, const nb_mesh *m, int nx,
                        nb_tensor *const *x, const nb_auto_options *o,
                        nb_auto_plan **out)
{
    nb_auto_plan *p = f && m ? nb_alloc_zero(sizeof *p) : NULL;
    bool ok = p && nb_scope_open() == NB_OK;
    if (ok) {
        p->refs = 1;
        p->nx = nx;
        ok = nb_recording_make(&p->of, f, nx, x, NULL) && choose(p, m, o);
        nb_scope_close(0, NULL);
    }
    if (ok)
        *out = p;
    else if (p)
        nb_auto_plan_drop(p);
    return NB_STATUS(ok);
}

int nb_auto_plan_arguments(const nb_auto_plan *p)
{
    return p->nx;
}

int nb_auto_plan_results(const nb_auto_plan *p)
{
    return p->of.graph->ny;
}

const nb_spec *nb_auto_plan_argument(const nb_auto_plan *p, int i)
{
    return i >= 0 && i < p->nx ? p->spec[i] : NULL;
}

const nb_spec *nb_auto_plan_result(const nb_auto_plan *p, int i)
{
    return i >= 0 && i < p->of.graph->ny ? p->result[i] : NULL;
}

double nb_auto_plan_cost(const nb_auto_plan *p)
{
    return p->cost;
}

double nb_auto_plan_bound(const nb_auto_plan *p)
{
    return p->bound;
}

int64_t nb_auto_plan_memory(const nb_auto_plan *p)
{
    return p->memory;
}

char *nb_auto_plan_text(const nb_auto_plan *p)
{
    return nb_copy_text(p->text);
}

/* Following it */

static nb_tensor *moved(nb_tensor *x, const nb_spec *to)
{
    const nb_spec *is = x ? x->sharding : NULL;
    if (!x || !to || (is && nb_spec_same_layout(is, to)) ||
        (!is && nb_spec_is_whole(to)))
        return x;
    return nb_lay(x, to);
}

static nb_tensor *follow_line(const nb_auto_plan *p, int k, nb_tensor **value,
                              const int *id)
{
    nb_line l = p->of.graph->line[k];
    if (!l.nin || l.op == &nb_op_part) return nb_line_record(&l, value, id);
    nb_tensor **in = nb_array(l.nin), *y = NULL;
    int *at = nb_alloc((size_t)l.nin * sizeof *at);
    bool ok = in && at;
    for (int i = 0; ok && i < l.nin; i++) {
        at[i] = i;
        ok = (in[i] = moved(value[l.in[i]], p->need[k][i]));
    }
    l.in = at;
    if (ok) y = nb_line_record(&l, in, id);
    nb_free(at);
    nb_free(in);
    return y && !l.multi ? moved(y, p->spec[k]) : y;
}

static bool follow(const nb_auto_plan *p, nb_tensor *const *x,
                   nb_tensor **value, nb_tensor **y)
{
    const nb_graph *g = p->of.graph;
    int id[NB_MAX_GRAPH_LANES + 1], n = 0;
    bool ok = true;
    for (; n < p->nx; n++)
        value[n] = x[n];
    for (int i = 0; ok && i < p->of.nkeys; i++)
        ok = (value[n++] = nb_next_key());
    for (int i = 0; i < p->of.ncaptured; i++)
        value[n++] = p->of.captured[i];
    if (!ok) return false;
    nb_graph_match(g, value, id);
    for (int k = 0; ok && k < g->n; k++) {
        value[k] = k < g->nx ? moved(value[k], p->spec[k])
                             : follow_line(p, k, value, id);
        ok = value[k];
    }
    for (int i = 0; ok && i < g->ny; i++) {
        y[i] = moved(value[g->result[i]], p->result[i]);
        if (y[i] && y[i]->sharding) y[i] = nb_pin(y[i], p->result[i]);
        ok = y[i];
    }
    return ok;
}

static bool check(const nb_auto_plan *p, int nx, nb_tensor *const *x)
{
    if (nx != p->nx)
        return nb_fail(NB_EVALUE,
                       "auto_shard: the plan is for %d arguments, "
                       "not %d",
                       p->nx, nx);
    for (int i = 0; i < nx; i++)
        if (!x[i] || !nb_line_takes(&p->of.graph->line[i], x[i], 0))
            return nb_fail(NB_EVALUE,
                           "auto_shard: argument %d is of another type than "
                           "the plan is for",
                           i);
    return true;
}

static nb_status follow_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    const nb_auto_plan *p = ctx;
    const nb_graph *g = p->of.graph;
    if (!check(p, nx, x)) return nb_error_code();
    if (*ny < g->ny)
        return NB_STATUS(nb_fail(
            NB_EVALUE, "auto_shard: %d results, room for %d", g->ny, *ny));
    nb_tensor **value = nb_array(g->n + 1);
    bool ok = value && follow(p, x, value, y);
    nb_free(value);
    *ny = g->ny;
    return NB_STATUS(ok);
}

static void let_go(void *ctx)
{
    nb_auto_plan_drop(ctx);
}

nb_func *nb_auto_plan_apply(nb_auto_plan *p)
{
    return nb_func_owning(follow_body, nb_auto_plan_keep(p), let_go);
}
