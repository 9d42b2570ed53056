/* pass_pick.c - elements are picked before they are computed with, where they
 * are few: pick(f(a, b), i) is f(pick(a, i), pick(b, i)).
 *
 * What has one element along the picked axis has the same for every index, and
 * is left as it is.  So the log-softmax of which one element a row is wanted is
 * never stored. */
#include "lower/passes.h"
#include "lower/rewrite.h"

#include <string.h>

enum { FEWER = 8, MAX_LINES = 32 };

typedef struct picking {
    nb_rewrite *r;
    int index;     /* the line that says which */
    nb_line model; /* the line of the pick, which lends what it holds */
    int left;      /* lines that may still be made */
    bool failed;
} picking;

static nb_line *line(const picking *p, int k)
{
    return &p->r->graph->line[k];
}

static double elements(const nb_line *l)
{
    double n = 1;
    for (int d = 0; d < l->shape.rank; d++)
        n *= (double)nb_extent_get(l->shape.size[d]);
    for (int d = 0; d < l->shape.nlanes; d++)
        n *= (double)nb_extent_get(nb_lane_stored(l->shape.lane[d]));
    return n;
}

static bool is_pointwise(const nb_line *l)
{
    return l->kind == NB_LINE_CALL && !l->multi && l->nin &&
           (l->op->scalar || l->op->body) && !l->op->effect &&
           l->op->static_sig && l->op->static_sig->pointwise;
}

static bool same_lanes(const nb_line *a, const nb_line *b)
{
    nb_line x = *a, y = *b;
    x.dtype = y.dtype;
    x.shape.rank = y.shape.rank = 0;
    return nb_line_alike(&x, &y);
}

static bool same_shape(const nb_line *a, const nb_line *b)
{
    nb_line x = *a;
    x.dtype = b->dtype;
    return nb_line_alike(&x, b);
}

/* One element along the last axis, all others as t has them. */
static bool is_thin(const nb_line *x, const nb_line *t)
{
    int last = t->shape.rank - 1;
    nb_line y = *x;
    if (x->shape.rank != t->shape.rank || !nb_extent_is(x->shape.size[last], 1))
        return false;
    y.shape.size[last] = t->shape.size[last];
    return same_shape(&y, t);
}

/* Whether every operand of call k can be picked from, or need not be. */
static bool goes_through(const picking *p, int k)
{
    const nb_line *t = line(p, k);
    bool any = false;
    if (!is_pointwise(t) || elements(&p->model) * FEWER > elements(t))
        return false;
    for (int i = 0; i < t->nin; i++) {
        const nb_line *x = line(p, t->in[i]);
        if (nb_line_uniform(p->r->graph, t->in[i]) >= 0) continue;
        if (same_shape(x, t))
            any = true;
        else if (!is_thin(x, t))
            return false;
    }
    return any;
}

static nb_line copied(picking *p, const nb_line *from)
{
    nb_line l = *from;
    size_t attr = (size_t)l.nattr * sizeof *l.attr;
    l.in = nb_alloc((size_t)(l.nin + 1) * sizeof *l.in);
    l.attr = nb_alloc(attr + 1);
    p->failed = p->failed || !l.in || !l.attr;
    if (l.attr && attr) memcpy(l.attr, from->attr, attr);
    return l;
}

static int insert(picking *p, nb_line l)
{
    if (p->failed) {
        nb_free(l.in), nb_free(l.attr);
        return 0;
    }
    int k = nb_rewrite_insert(p->r, l);
    p->failed = k < 0;
    return p->failed ? 0 : k;
}

/* The line that is picked from line k: a new one, which is a pick, or the call
 * of what is picked. */
static int picked(picking *p, int k)
{
    int in[NB_MAX_SCALAR_IN];
    if (p->failed) return 0;
    p->left--;
    bool through = p->left > 0 && line(p, k)->nin <= NB_MAX_SCALAR_IN &&
                   goes_through(p, k);
    for (int i = 0; through && i < line(p, k)->nin; i++) {
        int x = line(p, k)->in[i], number = nb_line_uniform(p->r->graph, x);
        in[i] = number >= 0                          ? number
                : same_shape(line(p, x), line(p, k)) ? picked(p, x)
                                                     : x;
    }
    nb_line l = copied(p, through ? line(p, k) : &p->model);
    l.shape = p->model.shape;
    l.dtype = line(p, k)->dtype;
    for (int i = 0; !p->failed && i < l.nin; i++)
        l.in[i] = through ? in[i] : i ? p->index : k;
    return insert(p, l);
}

static bool visit(nb_rewrite *r, void *ctx)
{
    const nb_line *l = nb_rewrite_line(r);
    (void)ctx;
    if (l->kind != NB_LINE_CALL || !l->op->picks) return true;
    picking p = {.r = r, .index = l->in[1], .model = *l, .left = MAX_LINES};
    int table = l->in[0];
    if (!same_lanes(l, line(&p, table)) || !goes_through(&p, table))
        return true;
    r->is = picked(&p, table);
    return !p.failed;
}

bool nb_pass_pick(nb_graph *g)
{
    return nb_graph_rewrite(g, visit, NULL);
}
