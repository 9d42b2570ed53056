/* fuse.c - which lines share a nest.
 *
 * Lines are taken from the last to the first.  A line joins the nest of its
 * consumers if its points are that nest's: all of them, or those of the outer
 * axes.  A reduction makes the axes that it sums inner ones.  Nothing is ever
 * computed twice: a line that others need too is stored by the one nest that
 * computes it; but on a card, where a launch costs more than a row of numbers,
 * what is cheap and needed in one nest alone is made there, once a unit.  A line
 * whose other consumers lead back into the nest would have
 * to run before itself, and stays out. */
#include "lower/fuse.h"

#include "lower/passes.h"

#include <string.h>

enum { FEW_UNITS = 64, MANY_POINTS = 1 << 14, CHEAP = 8 /* cycles */ };

bool nb_uses_of(nb_fusion *f)
{
    const nb_graph *g = f->plan->graph;
    int total = 0, dim[NB_MAX_DIMS];
    for (int k = 0; k < g->n; k++)
        total += g->line[k].nin;
    f->first = nb_alloc_zero((size_t)(g->n + 2) * sizeof *f->first);
    f->use = nb_alloc((size_t)(total + 1) * sizeof *f->use);
    int *at = nb_alloc_zero((size_t)(g->n + 2) * sizeof *at);
    bool ok = f->first && f->use && at;
    for (int round = 0; ok && round < 2; round++) {
        for (int k = 0; k < g->n; k++)
            for (int i = 0; i < g->line[k].nin; i++) {
                int from = g->line[k].in[i];
                if (f->seen_through[k]) continue;
                from = nb_line_behind(f->plan, from, dim);
                if (round)
                    f->use[f->first[from] + at[from]++] = (nb_use){k, i};
                else
                    f->first[from + 1]++;
            }
        for (int k = 0; !round && k < g->n; k++)
            f->first[k + 1] += f->first[k];
    }
    nb_free(at);
    return ok;
}

bool nb_line_is_stored(const nb_fusion *f, int k)
{
    for (int u = f->first[k]; u < f->first[k + 1]; u++)
        if (f->plan->group[f->use[u].line] != f->plan->group[k]) return true;
    return f->handed_out[k];
}

/* The last line that can lead into nest g, from lines after k: no nest lies on
 * both sides of it. */
static int horizon(const nb_fusion *f, int k, int g)
{
    int last = f->nest[g].top;
    for (int i = k + 1; i <= last; i++) {
        int of = f->plan->group[i];
        if (of >= 0 && f->nest[of].top > last) last = f->nest[of].top;
    }
    return last;
}

static void visit(nb_fusion *f, int k, int last, int *depth)
{
    if (k > last || f->visited[k] == f->stamp) return;
    f->visited[k] = f->stamp;
    f->stack[(*depth)++] = k;
}

/* Whether a user of line k that is not in nest g leads into it, by way of any
 * lines. */
static bool leads_into(nb_fusion *f, int k, int g)
{
    int depth = 0, last = horizon(f, k, g);
    f->stamp++;
    for (int u = f->first[k]; u < f->first[k + 1]; u++)
        if (f->plan->group[f->use[u].line] != g)
            visit(f, f->use[u].line, last, &depth);
    while (depth) {
        int at = f->stack[--depth], of = f->plan->group[at];
        if (of == g) return true;
        if (of >= 0 && f->nest[of].seen == f->stamp) continue;
        if (of >= 0) f->nest[of].seen = f->stamp;
        int next = of >= 0 ? f->nest[of].head : at;
        for (; next >= 0; next = of >= 0 ? f->next[next] : -1)
            for (int u = f->first[next]; u < f->first[next + 1]; u++)
                visit(f, f->use[u].line, last, &depth);
    }
    return false;
}

/* What is read at other points than where it is needed has to be in memory. */
static bool is_read_elsewhere(const nb_fusion *f, int c, int i)
{
    return f->point[c] && nb_point_elsewhere(f->point[c]) >> i & 1;
}

/* The group axis of each dim of line k, as its consumers in nest g see it; false
 * if they differ. */
static bool seen_as(nb_fusion *f, int k, int g, int *axis)
{
    int n = f->plan->node[k]->nlanes + f->plan->node[k]->rank;
    bool any = false, set[NB_MAX_DIMS] = {false};
    for (int d = 0; d < n; d++)
        axis[d] = -1;
    for (int u = f->first[k]; u < f->first[k + 1]; u++) {
        int c = f->use[u].line, dim[NB_MAX_DIMS], mine[NB_MAX_DIMS];
        if (f->plan->group[c] != g) continue;
        if (is_read_elsewhere(f, c, f->use[u].operand)) return false;
        int v = f->plan->graph->line[c].in[f->use[u].operand];
        nb_line_behind(f->plan, v, dim);
        nb_operand_axes(f, c, f->use[u].operand, mine);
        int nv = f->plan->node[v]->nlanes + f->plan->node[v]->rank;
        for (int d = 0; d < nv; d++) {
            if (dim[d] < 0) continue;
            if (set[dim[d]] && axis[dim[d]] != mine[d]) return false;
            axis[dim[d]] = mine[d];
            set[dim[d]] = true;
        }
        any = true;
    }
    return any;
}

/* Whether the last dim is one along which memory runs, too. */
static bool has_rows(const nb_plan *p, int k)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    int d = nb_tensor_strides(p->node[k], size, stride) - 1;
    while (d >= 0 && size[d] == 1)
        d--;
    return d < 0 || p->place[k].stride[d] == 1;
}

/* Not of one line, nor where a few long ones would keep all else from being
 * shared by threads. */
bool nb_line_totals(const nb_plan *p, int k, int *dim)
{
    const nb_line *l = &p->graph->line[k];
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS], units = 1;
    if (l->kind != NB_LINE_CALL || l->multi || !l->op->totals) return false;
    nb_call c = nb_call_of(p->node[k]);
    int n = nb_tensor_strides(p->node[k], size, stride);
    *dim = p->node[k]->nlanes + (int)nb_arg_int(&c, 0);
    for (int d = 0; d < n; d++)
        if (d != *dim) units *= size[d];
    bool few = units < FEW_UNITS && size[*dim] > MANY_POINTS;
    return size[*dim] > 1 && units > 0 && !few;
}

bool nb_line_flattens(const nb_plan *p, int k)
{
    const nb_line *l = &p->graph->line[k];
    bool is = l->kind == NB_LINE_CALL && l->op->in_order && l->nin == 1 &&
              !nb_line_looks(p, k);
    return is && has_rows(p, l->in[0]);
}

const nb_tensor *nb_points_of(const nb_plan *p, int k)
{
    return p->node[nb_line_flattens(p, k) ? p->graph->line[k].in[0] : k];
}

void nb_operand_axes(const nb_fusion *f, int c, int i, int *axis)
{
    const nb_axes *a = f->axes[c];
    const nb_operand *o = &a->operand[i];
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    const nb_tensor *v = i < a->nin
                             ? f->plan->node[f->plan->graph->line[c].in[i]]
                             : nb_points_of(f->plan, c);
    nb_tensor_strides(v, size, stride);
    for (int d = 0; d < o->ndims; d++)
        axis[d] = o->axis[d] < 0 || size[d] == 1 ? -1 : f->to[c][o->axis[d]];
}

static int64_t points(const nb_fused *n, unsigned mask)
{
    int64_t total = 1;
    for (int a = 0; a < n->naxes; a++)
        if (mask >> a & 1) total *= n->size[a];
    return total;
}

static bool is_reduced(const nb_axes *a, int axis)
{
    const nb_operand *o = &a->operand[a->nin];
    for (int d = 0; d < o->ndims; d++)
        if (o->axis[d] == axis) return false;
    return nb_extent_get(a->size[axis]) != 1;
}

bool nb_axes_reduce(const nb_axes *a)
{
    for (int x = 0; x < a->naxes; x++)
        if (is_reduced(a, x)) return true;
    return false;
}

/* Gives the axes that line k reduces to inner axes of the nest of the same
 * extents, in order; new ones where `fresh`. */
static bool match_reduced(nb_fused *n, const nb_axes *a, int8_t *to,
                          unsigned free_axes, bool fresh)
{
    for (int x = 0; x < a->naxes; x++) {
        if (!is_reduced(a, x)) continue;
        int64_t size = nb_extent_get(a->size[x]);
        int at = -1;
        for (int c = n->naxes - 1; !fresh && c >= 0; c--)
            if (free_axes >> c & 1 && n->size[c] == size) at = c;
        if (fresh && n->naxes < NB_MAX_NEST_AXES) {
            at = n->naxes++;
            n->size[at] = size;
        }
        if (at < 0) return false;
        free_axes &= ~(1u << at);
        to[x] = (int8_t)at;
    }
    return !free_axes || fresh;
}

/* With running totals along axis s the nest walks that in order. */
static bool fits_totals(const nb_fusion *f, int k, unsigned mask, int s,
                        nb_fused *n)
{
    nb_call c = nb_call_of(f->plan->node[k]);
    bool back = nb_arg_int(&c, 2);
    unsigned all = n->outer | n->inner, in = 1u << s;
    if (mask != all || (n->inner && n->inner != in)) return false;
    if (n->scans && n->back != back) return false;
    n->inner = in;
    n->outer = all & ~in;
    n->scans = true;
    n->back = back;
    return true;
}

/* Whether line k, whose dims lie along those axes, fits nest n; if so *n is
 * what the nest becomes, and to[] what the axes of k are.  `again`: the inner
 * axes are walked again after k; `repeats`: it may be computed more than
 * once. */
static bool fits(const nb_fusion *f, int k, const int *axis, bool again,
                 bool repeats, nb_fused *n, int8_t *to)
{
    const nb_axes *a = f->axes[k];
    const nb_operand *o = &a->operand[a->nin];
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    unsigned mask = 0, all = n->outer | n->inner;
    memset(to, -1, NB_MAX_AXES);
    nb_tensor_strides(f->plan->node[k], size, stride);
    for (int d = 0; d < o->ndims; d++) {
        if (size[d] == 1) continue;
        if (axis[d] < 0 || o->axis[d] < 0 || mask >> axis[d] & 1) return false;
        if (n->size[axis[d]] != size[d]) return false;
        mask |= 1u << axis[d];
        to[o->axis[d]] = (int8_t)axis[d];
    }
    int dim;
    if (nb_line_totals(f->plan, k, &dim))
        return fits_totals(f, k, mask, axis[dim], n);
    bool splits = !n->inner && mask != n->outer;
    unsigned rest = all & ~mask;
    bool few = points(n, mask) < FEW_UNITS && points(n, rest) > MANY_POINTS;
    if (splits && (mask & ~n->outer)) return false;
    if (!nb_axes_reduce(a)) {
        bool rows = splits && !few && rest >> (n->naxes - 1) & 1;
        if (mask != all && mask != n->outer && !rows) return repeats;
        if (mask != all && splits) n->outer = mask, n->inner = rest;
        return true;
    }
    if (!splits && mask != n->outer) return false;
    if (n->inner && few && again) return false;
    if (splits && few) return false;
    bool fresh = !splits && !n->inner;
    if (!match_reduced(n, a, to, splits ? rest : n->inner, fresh)) return false;
    n->outer = mask;
    n->inner = ((1u << n->naxes) - 1) & ~mask;
    return true;
}

static bool keep_axes(nb_fusion *f, int k, int g, const int8_t *to)
{
    f->to[k] = nb_alloc(NB_MAX_AXES);
    if (!f->to[k]) return false;
    memcpy(f->to[k], to, NB_MAX_AXES);
    f->plan->group[k] = g;
    f->next[k] = f->nest[g].head;
    f->nest[g].head = k;
    f->nest[g].lines++;
    return true;
}

/* Whether a line of nest g that uses k has all its points. */
static bool is_walked_again(const nb_fusion *f, int k, int g)
{
    for (int u = f->first[k]; u < f->first[k + 1]; u++) {
        int c = f->use[u].line;
        if (f->plan->group[c] != g) continue;
        for (int a = 0; a < f->axes[c]->naxes; a++)
            if (f->to[c][a] >= 0 && f->nest[g].inner >> f->to[c][a] & 1)
                return true;
    }
    return false;
}

/* A number that other nests wait for too: they need not wait for this one. */
static bool is_shared_number(const nb_fusion *f, int k, int g)
{
    if (!f->number[k] || f->nest[g].outer + f->nest[g].inner == 0) return false;
    for (int u = f->first[k]; u < f->first[k + 1]; u++)
        if (f->plan->group[f->use[u].line] != g) return true;
    return false;
}

/* Whether nest g alone needs line k, on a card, and little makes it. */
static bool may_repeat(const nb_fusion *f, int k, int g)
{
    const nb_op *op = f->plan->graph->line[k].op;
    int cycles = 0;
    nb_gen body;
    if (!f->plan->device || f->handed_out[k] || f->point[k]) return false;
    if (op->totals || op->effect || nb_axes_reduce(f->axes[k])) return false;
    for (int u = f->first[k]; u < f->first[k + 1]; u++)
        if (f->plan->group[f->use[u].line] != g) return false;
    nb_call c = nb_call_of(f->plan->node[k]);
    nb_gen_body(&body, &c);
    for (int i = 0; i < body.n; i++)
        cycles += nb_scalar_cost(body.code[i].scalar);
    return cycles <= CHEAP;
}

/* Whether line k takes a few elements of a block that others read, too.  It
 * stays out of nests that wait for those: then they can write over the block. */
static bool picks_few(const nb_fusion *f, int k)
{
    const nb_line *line = f->plan->graph->line;
    int64_t few, many;
    for (int i = 0; i < line[k].nin; i++) {
        int from = f->plan->place[line[k].in[i]].root;
        if (!is_read_elsewhere(f, k, i) || line[from].kind != NB_LINE_CALL)
            continue;
        bool known = nb_shape_count(&line[k].shape, &few) &&
                     nb_shape_count(&line[from].shape, &many);
        if (known && many / NB_FEW_OF >= few &&
            f->first[from + 1] - f->first[from] > 1)
            return true;
    }
    return false;
}

/* Tries to put line k into nest g. */
static bool joins(nb_fusion *f, int k, int g, bool *done)
{
    int axis[NB_MAX_DIMS];
    int8_t to[NB_MAX_AXES];
    nb_fused n = f->nest[g];
    if (n.lines >= NB_MAX_NEST_LINES || is_shared_number(f, k, g) ||
        !seen_as(f, k, g, axis) ||
        !fits(f, k, axis, is_walked_again(f, k, g), may_repeat(f, k, g), &n,
              to))
        return true;
    if (leads_into(f, k, g)) return true;
    f->nest[g] = n;
    *done = true;
    return keep_axes(f, k, g, to);
}

/* A nest of its own for line k: its dims, then what it reduces. */
static bool begins(nb_fusion *f, int k)
{
    const nb_axes *a = f->axes[k];
    const nb_operand *o = &a->operand[a->nin];
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    nb_fused n = {.head = -1, .top = k};
    int8_t to[NB_MAX_AXES];
    memset(to, -1, sizeof to);
    nb_tensor_strides(nb_points_of(f->plan, k), size, stride);
    for (int d = 0; d < o->ndims; d++) {
        if (size[d] == 1 || o->axis[d] < 0) continue;
        if (n.naxes == NB_MAX_NEST_AXES || to[o->axis[d]] >= 0) return true;
        to[o->axis[d]] = (int8_t)n.naxes;
        n.size[n.naxes++] = size[d];
    }
    n.outer = (1u << n.naxes) - 1;
    if (!match_reduced(&n, a, to, 0, true)) return true;
    n.inner = ((1u << n.naxes) - 1) & ~n.outer;
    int dim;
    if (nb_line_totals(f->plan, k, &dim) &&
        !fits_totals(f, k, n.outer, to[o->axis[dim]], &n))
        return true;
    if (!nb_grow(&f->nest, &f->room, f->n + 1, sizeof n)) return false;
    f->nest[f->n] = n;
    return keep_axes(f, k, f->n++, to);
}

/* Inputs that are read elsewhere run along no axis but lanes; none is reduced,
 * so those that do not reach the result are no axes. */
static void point_axes(nb_axes *a, const nb_point *p)
{
    uint64_t elsewhere = nb_point_elsewhere(p);
    for (int i = 0; i < a->nin; i++) {
        nb_operand *o = &a->operand[i];
        for (int d = 0; d < o->ndims; d++)
            if (elsewhere >> i & 1 && o->axis[d] >= a->nlanes) o->axis[d] = -1;
    }
    for (int x = 0; x < a->naxes; x++)
        if (is_reduced(a, x)) a->size[x] = nb_extent_of(1);
}

/* Dims of the input are axes, and those of the result. */
static void flat_axes(nb_axes *a, const nb_tensor *x)
{
    *a = (nb_axes){.nin = 1, .nout = 1, .naxes = x->nlanes + x->rank};
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    a->operand = a->few;
    a->few[0].ndims = nb_tensor_strides(x, size, stride);
    for (int d = 0; d < a->naxes; d++) {
        a->size[d] = nb_extent_of(size[d]);
        a->few[0].axis[d] = (int16_t)d;
    }
    a->few[1] = a->few[0];
}

static bool take(nb_fusion *f, int k)
{
    bool done = false;
    int tried[8], ntried = 0;
    nb_call c = nb_call_of(f->plan->node[k]);
    nb_axes *a = nb_alloc(sizeof *a);
    if (!a) return false;
    if (nb_line_flattens(f->plan, k)) {
        flat_axes(f->axes[k] = a, c.in[0]);
        return begins(f, k);
    }
    if (!nb_axes_align(a, c.op, c.sig, c.nin, c.in)) return nb_free(a), false;
    f->axes[k] = a;
    if (f->point[k]) point_axes(a, f->point[k]);
    if (f->alone || picks_few(f, k)) return begins(f, k);
    for (int u = f->first[k]; !done && u < f->first[k + 1]; u++) {
        int g = f->plan->group[f->use[u].line];
        bool again = g < 0;
        for (int t = 0; t < ntried; t++)
            again = again || tried[t] == g;
        if (again || ntried == 8) continue;
        tried[ntried++] = g;
        if (!joins(f, k, g, &done)) return false;
    }
    return done || begins(f, k);
}

/* Whether line k is one element, made of such. */
static bool is_number(const nb_fusion *f, int k)
{
    const nb_line *l = &f->plan->graph->line[k];
    nb_shape s = nb_tensor_shape(f->plan->node[k]);
    int64_t n;
    if (!nb_shape_count(&s, &n) || n != 1) return false;
    for (int i = 0; i < l->nin; i++)
        if (!f->number[l->in[i]]) return false;
    return true;
}

bool nb_fusion_init(nb_fusion *f, nb_plan *p)
{
    size_t n = (size_t)p->graph->n + 1;
    int dim[NB_MAX_DIMS];
    *f = (nb_fusion){.plan = p};
    f->axes = nb_alloc_zero(n * sizeof *f->axes);
    f->to = nb_alloc_zero(n * sizeof *f->to);
    f->point = nb_alloc_zero(n * sizeof *f->point);
    f->next = nb_alloc(n * sizeof *f->next);
    f->visited = nb_alloc_zero(n * sizeof *f->visited);
    f->stack = nb_alloc(n * sizeof *f->stack);
    f->seen_through = nb_alloc_zero(n);
    f->handed_out = nb_alloc_zero(n);
    f->number = nb_alloc_zero(n);
    f->alone = !nb_pass_is_on("fuse");
    p->group = nb_alloc(n * sizeof *p->group);
    if (!f->axes || !f->to || !f->point || !f->next || !f->visited ||
        !f->stack || !f->seen_through || !f->handed_out || !f->number ||
        !p->group)
        return false;
    for (int k = 0; k < p->graph->n; k++) {
        p->group[k] = -1;
        f->seen_through[k] =
            nb_line_looks(p, k) && nb_line_behind(p, k, dim) != k;
        f->number[k] = is_number(f, k);
    }
    for (int i = 0; i < p->graph->ny; i++)
        f->handed_out[nb_line_behind(p, p->graph->result[i], dim)] = true;
    return nb_uses_of(f);
}

void nb_fusion_free(nb_fusion *f)
{
    for (int k = 0; f->axes && k < f->plan->graph->n; k++) {
        if (f->axes[k]) nb_axes_free(f->axes[k]);
        nb_free(f->axes[k]);
        if (f->to) nb_free(f->to[k]);
        if (f->point) nb_free(f->point[k]);
    }
    nb_free(f->axes), nb_free(f->to), nb_free(f->point), nb_free(f->next);
    nb_free(f->visited), nb_free(f->stack), nb_free(f->seen_through);
    nb_free(f->handed_out), nb_free(f->number), nb_free(f->first);
    nb_free(f->use), nb_free(f->nest);
}

/* Whether line k is a loop: also a copy, or what its op says of a point. */
static bool loops(nb_fusion *f, int k, bool *is)
{
    const nb_plan *p = f->plan;
    const nb_line *l = &p->graph->line[k];
    *is = nb_line_loops(p, k);
    if (*is || p->no_code || l->kind != NB_LINE_CALL || l->multi) return true;
    int dim;
    *is = nb_line_flattens(p, k) || nb_line_totals(p, k, &dim);
    if (*is || !l->op->point || nb_line_looks(p, k)) return true;
    nb_call c = nb_call_of(p->node[k]);
    if (c.nin > 64) return true;
    bool ok = nb_point_of(&c, p->node[k], &f->point[k]);
    *is = f->point[k];
    return ok;
}

bool nb_fusion_run(nb_fusion *f)
{
    for (int k = f->plan->graph->n - 1; k >= 0; k--) {
        bool is;
        if (!loops(f, k, &is) || (is && !take(f, k))) return false;
    }
    return true;
}

bool nb_plan_fuse(nb_plan *p)
{
    nb_fusion f;
    bool ok = nb_fusion_init(&f, p) && nb_fusion_run(&f) && nb_plan_steps(&f);
    nb_fusion_free(&f);
    return ok;
}
