/* sites.c - programs as values and sites.
 *
 * A program inside an op is read where the op is called, as if it stood there
 * once: its inputs are those of the call, its results those of the call, and
 * what a loop carries is one value at either end of the body. */
#include "shard/graph/spread.h"

#include "shard/decide/place.h"
#include "shard/decide/region.h"
#include "shard/decide/work.h"

#include <string.h>

/* A program while it is read. */
typedef struct reader {
    nb_spreader *p;
    const nb_graph *g;
    nb_tensor *const *node;
    int base; /* the value of line 0 */
    bool inner;
} reader;

static bool read_lines(const reader *r);

void nb_spreader_free(nb_spreader *p)
{
    for (int k = 0; k < p->nsites; k++)
        nb_free(p->site[k]);
    nb_free(p->site);
    nb_free(p->value);
    nb_free(p->uses);
    nb_free(p->first);
    nb_free(p->by);
}

/* Values */

static bool spreads(const nb_line *l)
{
    return l->kind == NB_LINE_CALL && !l->multi && l->op != &nb_op_part &&
           !l->op->release && !l->op->effect;
}

/* A value of so many dims, all of them open and empty; -1: failed. */
static int value_new(nb_spreader *p, int rank)
{
    if (!nb_grow(&p->value, &p->value_room, p->nvalues + 1, sizeof *p->value))
        return -1;
    nb_spec *v = &p->value[p->nvalues];
    memset(v, 0, sizeof *v);
    v->mesh = p->mesh;
    v->rank = rank;
    for (int d = 0; d < rank; d++)
        v->dim[d].open = true;
    return p->nvalues++;
}

/* What is given, or what was said of it: closed, but for what was left open. */
static void fix(nb_spec *v, const nb_spec *is, bool said)
{
    for (int d = 0; d < v->rank; d++)
        v->dim[d].open = said && is->dim[d].open;
    if (!is) return;
    v->replicated = is->replicated;
    v->partial = is->partial;
    v->kind = is->kind;
    for (int d = 0; d < v->rank; d++) {
        v->dim[d].axes = is->dim[d].axes;
        if (v->dim[d].axes.n) v->dim[d].priority = is->dim[d].priority;
    }
}

/* Inputs lie as they do; those of a program inside as its call has them. */
static bool add_value(const reader *r, int k)
{
    const nb_line *l = &r->g->line[k];
    nb_tensor *x = r->node[k];
    int at = value_new(r->p, l->multi ? 0 : x->nlanes + x->rank);
    if (at < 0 || l->multi) return at >= 0;
    if (l->kind == NB_LINE_CALL && l->op->places) {
        nb_call c = nb_call_of(x);
        const nb_spec *said = nb_call_target(&c);
        bool here = said && said->mesh == r->p->mesh;
        if (here) fix(&r->p->value[at], said, true);
        return said;
    }
    if (l->kind != NB_LINE_CALL && !(r->inner && l->kind == NB_LINE_INPUT))
        fix(&r->p->value[at], x->sharding, false);
    return true;
}

/* Sites */

static nb_crossing *site_new(const nb_factors *f)
{
    int n = f->nin + f->nout, dims = 0;
    for (int t = 0; t < n; t++)
        dims += f->tensor[t].rank;
    size_t tensors = (size_t)n, factors = (size_t)f->n, all = (size_t)dims;
    nb_crossing *s = nb_alloc(sizeof *s + tensors * sizeof *s->tensor +
                              (factors + all) * sizeof *s->size +
                              all * sizeof(nb_dim) + 2 * factors);
    if (!s) return NULL;
    *s = (nb_crossing){.n = n, .nin = f->nin, .nfactors = f->n};
    s->tensor = (nb_party *)(s + 1);
    s->size = (int64_t *)(s->tensor + n);
    nb_dim *dim = (nb_dim *)(s->size + f->n + dims);
    s->kind = (uint8_t *)(dim + dims);
    s->reduced = (bool *)(s->kind + f->n);
    memcpy(s->size, f->size, factors * sizeof *s->size);
    memcpy(s->reduced, f->reduced, factors * sizeof *s->reduced);
    int64_t *size = s->size + f->n;
    for (int t = 0; t < n; t++) {
        const nb_factored *x = &f->tensor[t];
        s->tensor[t] = (nb_party){.rank = x->rank, .size = size, .dim = dim};
        memcpy(size, x->size, (size_t)x->rank * sizeof *size);
        memcpy(dim, x->dim, (size_t)x->rank * sizeof *dim);
        size += x->rank;
        dim += x->rank;
    }
    return s;
}

static int64_t elements(const nb_party *x)
{
    int64_t n = 1;
    for (int d = 0; d < x->rank; d++)
        n *= x->size[d];
    return n;
}

/* Takes the site. */
static bool add_site(nb_spreader *p, nb_crossing *s)
{
    if (s && nb_grow(&p->site, &p->site_room, p->nsites + 1, sizeof *p->site))
        return p->site[p->nsites++] = s, true;
    nb_free(s);
    return false;
}

/* A call with these results, whose values are told. */
static bool add_call(const reader *r, const nb_line *l, const nb_call *c,
                     int nout, nb_tensor *const *out, const int *value)
{
    nb_factors f;
    if (!nb_factors_of(&f, c, nout, out)) return false;
    nb_work w = {.call = c, .mesh = r->p->mesh, .f = &f};
    nb_crossing *s = site_new(&f);
    for (int i = 0; s && i < s->n; i++)
        s->tensor[i].value =
            i < l->nin ? r->base + l->in[i] : value[i - l->nin];
    if (s) s->passes = true;
    for (int k = 0; s && k < f.n; k++) {
        s->kind[k] = (uint8_t)nb_work_kind(&w, k);
        s->passes = s->passes && f.kind[k] == NB_PASS && !f.reduced[k];
    }
    if (s)
        s->repeats = s->nin == 1 && nout == 1 &&
                     elements(&s->tensor[1]) > elements(&s->tensor[0]);
    nb_factors_free(&f);
    return add_site(r->p, s);
}

/* Two values are one, as far as they have dims in common: lanes by their ids,
 * visible ones counted from the last. */
static bool tie(nb_spreader *p, int a, const nb_shape *x, int b,
                const nb_shape *y)
{
    nb_factors f = {.nin = 1, .nout = 1, .tensor = f.few};
    const nb_shape *of[] = {x, y};
    for (int t = 0; t < 2; t++) {
        nb_factored *to = &f.few[t];
        memset(to, 0, sizeof *to);
        to->rank = of[t]->nlanes + of[t]->rank;
        for (int d = 0; d < to->rank; d++)
            to->size[d] = d >= of[t]->nlanes
                              ? nb_extent_get(of[t]->size[d - of[t]->nlanes])
                          : of[t]->lane[d].thin
                              ? 1
                              : nb_extent_get(of[t]->lane[d].size);
    }
    for (int d = 0; d < f.few[0].rank; d++) {
        int at = d < x->nlanes ? nb_shape_find_lane(y, x->lane[d].id)
                               : d - f.few[0].rank + f.few[1].rank;
        if (at < 0 || (d >= x->nlanes && at < y->nlanes) ||
            f.few[0].size[d] != f.few[1].size[at])
            continue;
        f.few[0].dim[d] = f.few[1].dim[at] =
            (nb_dim){.n = 1, .factor = {(int16_t)f.n}};
        f.size[f.n++] = f.few[0].size[d];
    }
    nb_crossing *s = site_new(&f);
    if (!s) return false;
    memset(s->kind, NB_PASS, (size_t)f.n);
    s->passes = true;
    s->tensor[0].value = a;
    s->tensor[1].value = b;
    return add_site(p, s);
}

/* Calls with several results */

typedef struct many {
    nb_call c;
    int n;
    nb_tensor **part; /* nodes of the results */
    int *value;
} many;

static bool many_begin(const reader *r, int k, many *m)
{
    nb_tensor *all = r->node[k];
    m->c = nb_call_of(all);
    m->n = m->c.op->nout;
    m->part = nb_alloc((size_t)(m->n + 1) * sizeof *m->part);
    m->value = nb_alloc((size_t)(m->n + 1) * sizeof *m->value);
    bool ok = m->part && m->value;
    for (int64_t i = 0; ok && i < m->n; i++) {
        nb_shape shape;
        nb_dtype dtype;
        m->value[i] = -1;
        ok = nb_call_infer(&m->c, (int)i, &shape, &dtype) &&
             (m->part[i] = nb_node_new(&nb_op_part, NULL, dtype, &shape, 1,
                                       &all, 1, &i));
    }
    for (int j = k + 1; ok && j < r->g->n; j++) {
        const nb_line *l = &r->g->line[j];
        if (l->op == &nb_op_part && l->in[0] == k)
            m->value[l->attr[0]] = r->base + j;
    }
    for (int i = 0; ok && i < m->n; i++) /* nobody needs it */
        if (m->value[i] < 0)
            ok = (m->value[i] = value_new(r->p, m->part[i]->nlanes +
                                                    m->part[i]->rank)) >= 0;
    return ok;
}

static void many_end(many *m)
{
    nb_free(m->part);
    nb_free(m->value);
}

static bool read_inputs(const reader *r, const nb_line *l, const many *m,
                        const nb_inside *b, int base)
{
    bool ok = true;
    for (int i = 0; ok && i < b->j.nx; i++) {
        int from = b->j.from[i];
        if (from < 0) continue;
        nb_shape s = nb_tensor_shape(m->c.in[from]);
        ok = tie(r->p, r->base + l->in[from], &s, base + i, &b->j.shape[i]);
    }
    return ok;
}

static bool read_results(const reader *r, const many *m, const nb_inside *b,
                         int base)
{
    bool ok = true;
    for (int k = 0; ok && k < b->j.ny; k++) {
        int line = b->graph->result[k], at = b->j.feeds[k], to = b->j.to[k];
        nb_shape s = nb_tensor_shape(b->node[line]);
        if (at >= 0)
            ok = tie(r->p, base + line, &s, base + at, &b->j.shape[at]);
        if (!ok || to < 0) continue;
        nb_shape y = nb_tensor_shape(m->part[to]);
        ok = tie(r->p, base + line, &s, m->value[to], &y);
    }
    return ok;
}

static bool read_program(const reader *r, const nb_line *l, const many *m,
                         int region)
{
    nb_inside b;
    if (!nb_inside_open(&m->c, region, &b)) return false;
    reader sub = {.p = r->p, .g = b.graph, .node = b.node, .inner = true};
    sub.base = r->p->nvalues;
    bool ok = nb_inside_nodes(&b);
    for (int k = 0; ok && k < b.graph->n; k++)
        ok = add_value(&sub, k);
    ok = ok && read_inputs(r, l, m, &b, sub.base) && read_lines(&sub) &&
         read_results(r, m, &b, sub.base);
    nb_inside_free(&b);
    return ok;
}

static bool read_held(const reader *r, const nb_line *l, const many *m)
{
    const nb_op *op = m->c.op;
    bool ok = true;
    for (int k = 0; ok && nb_call_hands_on(&m->c) && k < m->n; k++) {
        nb_shape x = nb_tensor_shape(m->c.in[k]);
        nb_shape y = nb_tensor_shape(m->part[k]);
        ok = tie(r->p, r->base + l->in[k], &x, m->value[k], &y);
    }
    for (int k = 0; ok && (op->join || op->inlines) && k < 2; k++)
        if (op->region[k]) ok = read_program(r, l, m, k);
    return ok;
}

static bool read_many(const reader *r, int k)
{
    const nb_line *l = &r->g->line[k];
    many m = {0};
    bool ok = many_begin(r, k, &m);
    if (ok)
        ok = m.c.op->result
                 ? read_held(r, l, &m)
                 : l->op->effect || add_call(r, l, &m.c, m.n, m.part, m.value);
    many_end(&m);
    return ok;
}

static bool read_lines(const reader *r)
{
    bool ok = true;
    for (int k = 0; ok && k < r->g->n; k++) {
        const nb_line *l = &r->g->line[k];
        nb_tensor *y = r->node[k];
        int value = r->base + k;
        if (l->multi) {
            ok = read_many(r, k);
        } else if (spreads(l)) {
            nb_call c = nb_call_of(y);
            ok = add_call(r, l, &c, 1, &y, &value);
        }
    }
    return ok;
}

/* Who has which value */

static bool list_sites(nb_spreader *p)
{
    size_t n = (size_t)p->nvalues + 2;
    int total = 0;
    p->first = nb_alloc_zero(n * sizeof *p->first);
    if (!p->first) return false;
    for (int k = 0; k < p->nsites; k++)
        for (int t = 0; t < p->site[k]->n; t++) {
            p->first[p->site[k]->tensor[t].value + 1]++;
            if (t < p->site[k]->nin) p->uses[p->site[k]->tensor[t].value]++;
            total++;
        }
    for (int v = 0; v <= p->nvalues; v++)
        p->first[v + 1] += p->first[v];
    p->by = nb_alloc((size_t)(total + 1) * sizeof *p->by);
    /* Filled from the back, `first` moves to where they begin. */
    for (int k = p->nsites - 1; p->by && k >= 0; k--)
        for (int t = 0; t < p->site[k]->n; t++)
            p->by[--p->first[p->site[k]->tensor[t].value + 1]] = k;
    memmove(p->first, p->first + 1, (n - 1) * sizeof *p->first);
    if (p->by) p->first[p->nvalues] = total;
    return p->by;
}

static void mark_single(nb_spreader *p)
{
    for (int k = 0; k < p->nsites; k++) {
        nb_crossing *s = p->site[k];
        s->single = true;
        for (int t = 0; t < s->nin; t++)
            s->single = s->single && p->uses[s->tensor[t].value] == 1;
    }
}

bool nb_spreader_read(nb_spreader *p, const nb_graph *g, nb_tensor *const *node)
{
    reader r = {.p = p, .g = g, .node = node};
    bool ok = true;
    for (int k = 0; ok && k < g->n; k++)
        ok = add_value(&r, k);
    ok = ok && read_lines(&r);
    if (ok) {
        p->uses = nb_alloc_zero((size_t)(p->nvalues + 1) * sizeof *p->uses);
        ok = p->uses;
    }
    for (int i = 0; ok && i < g->ny; i++)
        p->uses[g->result[i]]++;
    ok = ok && list_sites(p);
    if (ok) mark_single(p);
    return ok;
}
