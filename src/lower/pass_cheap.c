/* pass_cheap.c - what is cheap is computed again rather than stored.
 *
 * The graph is fused as it will be later.  A line that a nest stores for others
 * is computed again in these if it is pointwise, if little work makes it of
 * what is in memory anyway, and if that means less traffic: no nest then reads
 * more than it did, but for a sixteenth, and the line is not written.  Sums,
 * products and calls are not repeated.
 *
 * The gradient of gelu needs seven functions of x, all as large as x: x is
 * kept. */
#include "lower/fuse.h"
#include "lower/passes.h"
#include "lower/rewrite.h"

enum {
    CHEAP = 8, /* cycles a vector */
    DEAR = 40, /* of large arrays, which caches do not hold */
    LARGE = 1 << 18,
    MAX_NESTS = 4,
    MAX_FOUND = 32
};

/* What a nest will compute again, or read more. */
typedef struct extra {
    int nest, line;
    bool computed;
    int is; /* the line written for it, -1: not yet */
    int next;
} extra;

typedef struct again {
    nb_plan *plan;
    nb_fusion f;
    bool *gone; /* by line: it is not stored any more */
    int *head;  /* by nest: extras */
    int *lines; /* by nest, with those */
    extra *extra;
    int n, room;
    int *mark, stamp; /* by line */
    int *is;          /* by line: what it is in the graph being written */
    int at;           /* the line that is being written */
    bool failed;
} again;

/* What it takes to have a line in a nest. */
typedef struct price {
    int nest, cost, found;
    int64_t points, read, written; /* bytes */
} price;

static int64_t count(const again *a, int k)
{
    nb_shape s = nb_tensor_shape(a->plan->node[k]);
    int64_t n = 0;
    nb_shape_count(&s, &n);
    return n;
}

static int64_t bytes(const again *a, int k)
{
    return count(a, k) * (int64_t)nb_dtype_size(a->plan->graph->line[k].dtype);
}

static bool is_pointwise(const again *a, int k)
{
    const nb_op *op = a->plan->graph->line[k].op;
    return a->f.axes[k] && !a->f.point[k] && !nb_axes_reduce(a->f.axes[k]) &&
           !op->totals && !op->effect;
}

static int cost(const again *a, int k)
{
    nb_call c = nb_call_of(a->plan->node[k]);
    nb_gen g;
    int cycles = 0;
    nb_gen_body(&g, &c);
    for (int i = 0; i < g.n; i++)
        cycles += nb_scalar_cost(g.code[i].scalar);
    return cycles ? cycles : 1;
}

static int find(const again *a, int nest, int k)
{
    int e = a->head[nest];
    while (e >= 0 && a->extra[e].line != k)
        e = a->extra[e].next;
    return e;
}

/* Whether the nest has line k at hand. */
static bool has(const again *a, int nest, int k)
{
    const nb_fusion *f = &a->f;
    if (find(a, nest, k) >= 0) return true;
    if (a->gone[k]) return false;
    for (int u = f->first[k]; u < f->first[k + 1]; u++)
        if (a->plan->group[f->use[u].line] == nest) return true;
    return false;
}

static void add_extra(again *a, int nest, int k, bool computed)
{
    extra e = {.nest = nest, .line = k, .computed = computed, .is = -1};
    if (nb_grow(&a->extra, &a->room, a->n + 1, sizeof e))
        a->extra[a->n++] = e;
    else
        a->failed = true;
}

static bool is_dear(const price *p)
{
    return p->cost > DEAR || p->found > MAX_FOUND;
}

static void add_inputs(again *a, int k, price *p);

/* Adds what line k costs in the nest, and what it is made of. */
static void add_price(again *a, int k, price *p)
{
    bool loops = a->f.axes[k];
    if (a->plan->graph->line[k].kind == NB_LINE_NUMBER || is_dear(p) ||
        a->mark[k] == a->stamp || has(a, p->nest, k))
        return;
    a->mark[k] = a->stamp;
    bool stored = !loops || (!a->gone[k] && nb_line_is_stored(&a->f, k));
    bool computed = !stored && is_pointwise(a, k) && count(a, k) == p->points;
    add_extra(a, p->nest, k, computed);
    if (computed) {
        p->cost += cost(a, k);
        p->found++;
        add_inputs(a, k, p);
        return;
    }
    p->read += bytes(a, k);
    if (!stored) p->written += bytes(a, k);
}

static void add_inputs(again *a, int k, price *p)
{
    const nb_line *l = &a->plan->graph->line[k];
    int dim[NB_MAX_DIMS];
    for (int i = 0; i < l->nin; i++)
        add_price(a, nb_line_behind(a->plan, l->in[i], dim), p);
}

/* The nests that read line k; 0 if others do too, or too many. */
static int readers(const again *a, int k, int *nest)
{
    const nb_fusion *f = &a->f;
    int n = 0;
    for (int u = f->first[k]; u < f->first[k + 1]; u++) {
        int g = a->plan->group[f->use[u].line], at = 0;
        if (g < 0) return 0;
        while (at < n && nest[at] != g)
            at++;
        if (g == a->plan->group[k] || at < n) continue;
        if (n == MAX_NESTS) return 0;
        nest[n++] = g;
    }
    return n;
}

static int64_t points(const nb_fused *n)
{
    int64_t total = 1;
    for (int i = 0; i < n->naxes; i++)
        total *= n->size[i];
    return total;
}

/* Whether the nest can have line k again; what for stands behind a->n. */
static bool is_worth(again *a, int k, price *p)
{
    int64_t size = bytes(a, k);
    p->points = count(a, k);
    p->cost = cost(a, k);
    p->found = 1;
    a->stamp++;
    if (points(&a->f.nest[p->nest]) != p->points) return false;
    add_extra(a, p->nest, k, true);
    add_inputs(a, k, p);
    return p->cost <= (size >= LARGE ? DEAR : CHEAP) && p->found <= MAX_FOUND &&
           p->read <= size + size / 16 &&
           a->lines[p->nest] + p->found <= NB_MAX_NEST_LINES;
}

static void commit(again *a, int from)
{
    for (int e = from; e < a->n; e++) {
        extra *x = &a->extra[e];
        x->next = a->head[x->nest];
        a->head[x->nest] = e;
        if (x->computed) a->lines[x->nest]++;
    }
}

/* On a card what is made of a product that nothing else needs takes the place
 * of that in memory (ends.h). */
static bool replaces_product(const again *a, int k)
{
    const nb_line *l = &a->plan->graph->line[k];
    int dim[NB_MAX_DIMS];
    for (int i = 0; a->plan->device && i < l->nin; i++) {
        int x = nb_line_behind(a->plan, l->in[i], dim);
        if (a->plan->library[x] && bytes(a, x) == bytes(a, k) &&
            a->f.first[x + 1] - a->f.first[x] == 1)
            return true;
    }
    return false;
}

static void choose(again *a, int k)
{
    int nest[MAX_NESTS], from = a->n, n;
    int64_t traffic = bytes(a, k);
    if (!is_pointwise(a, k) || a->f.handed_out[k] || !traffic) return;
    if (replaces_product(a, k)) return;
    n = readers(a, k, nest);
    bool worth = n > 0;
    for (int i = 0; worth && i < n; i++) {
        price p = {.nest = nest[i]};
        worth = is_worth(a, k, &p);
        traffic += bytes(a, k) - p.read - p.written;
    }
    a->gone[k] = worth && traffic > 0;
    if (a->gone[k])
        commit(a, from);
    else
        a->n = from;
}

/* Writing */

static int copied(again *a, nb_rewrite *r, int nest, int k);

static int write_again(again *a, nb_rewrite *r, int nest, int k)
{
    const nb_line *from = &a->plan->graph->line[k];
    int in[NB_MAX_SCALAR_IN];
    for (int i = 0; i < from->nin; i++)
        if ((in[i] = copied(a, r, nest, from->in[i])) < 0) return -1;
    return nb_rewrite_copy(r, a->is[k], in);
}

/* What line k is to a nest: itself, or what is computed again for that nest,
 * also behind a look. */
static int copied(again *a, nb_rewrite *r, int nest, int k)
{
    int e = find(a, nest, k), dim[NB_MAX_DIMS];
    if (e >= 0 && a->extra[e].is >= 0) return a->extra[e].is;
    int behind = nb_line_behind(a->plan, k, dim);
    int of = behind == k ? e : find(a, nest, behind);
    if (of < 0 || !a->extra[of].computed ||
        a->plan->graph->line[k].nin > NB_MAX_SCALAR_IN)
        return a->is[k];
    int is = write_again(a, r, nest, k);
    if (e >= 0) a->extra[e].is = is;
    return is;
}

static bool visit(nb_rewrite *r, void *ctx)
{
    again *a = ctx;
    int k = a->at++, nest = a->plan->group[k];
    const nb_line *l = &a->plan->graph->line[k];
    for (int i = 0; nest >= 0 && i < l->nin; i++) {
        int in = copied(a, r, nest, l->in[i]);
        if (in < 0) return false;
        nb_rewrite_line(r)->in[i] = in;
    }
    a->is[k] = r->at;
    return true;
}

static bool make_room(again *a)
{
    size_t n = (size_t)a->plan->graph->n + 1, nests = (size_t)a->f.n + 1;
    a->gone = nb_alloc_zero(n);
    a->mark = nb_alloc_zero(n * sizeof *a->mark);
    a->is = nb_alloc(n * sizeof *a->is);
    a->head = nb_alloc(nests * sizeof *a->head);
    a->lines = nb_alloc(nests * sizeof *a->lines);
    if (!a->gone || !a->mark || !a->is || !a->head || !a->lines) return false;
    for (int k = 0; k < a->plan->graph->nx; k++)
        a->is[k] = k;
    for (int i = 0; i < a->f.n; i++) {
        a->head[i] = -1;
        a->lines[i] = a->f.nest[i].lines;
    }
    return true;
}

static bool run(again *a, nb_graph *g)
{
    bool ok =
        nb_fusion_init(&a->f, a->plan) && nb_fusion_run(&a->f) && make_room(a);
    for (int k = 0; ok && k < g->n; k++)
        choose(a, k);
    ok = ok && !a->failed;
    a->at = g->nx;
    if (ok && a->n) ok = nb_graph_rewrite(g, visit, a) && nb_pass_dead(g);
    nb_fusion_free(&a->f);
    nb_free(a->gone), nb_free(a->mark), nb_free(a->is), nb_free(a->head);
    nb_free(a->lines), nb_free(a->extra);
    return ok;
}

bool nb_pass_cheap(nb_graph *g)
{
    if (!nb_pass_is_on("fuse") || !nb_pass_is_on("code")) return true;
    again a = {.plan = nb_plan_draft(g)};
    bool ok = a.plan && run(&a, g);
    nb_plan_free(a.plan);
    return ok;
}
