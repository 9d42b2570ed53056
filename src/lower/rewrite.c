/* rewrite.c - changing the lines of a graph in place. */
#include "lower/rewrite.h"

#include "core/convert.h"
#include "core/lanes.h"

#include <string.h>

static void settle(nb_rewrite *r, int *to)
{
    if (r->is == NB_STAYS) {
        *to = r->at++;
        return;
    }
    nb_line_free(nb_rewrite_line(r));
    *to = r->is;
}

/* Lines that were not reached move up to the others. */
static void close_gap(nb_rewrite *r)
{
    nb_graph *g = r->graph;
    size_t left = (size_t)(r->end - r->read);
    if (left)
        memmove(g->line + r->at, g->line + r->read, left * sizeof *g->line);
    g->n = r->at + (int)left;
}

bool nb_graph_rewrite(nb_graph *g, nb_visit *visit, void *ctx)
{
    nb_rewrite r = {.graph = g, .end = g->n};
    int n = g->n, *to = nb_alloc((size_t)(n + 1) * sizeof *to);
    bool ok = to;
    for (int k = 0; ok && k < n; k++, r.read++) {
        if (r.at != r.read) g->line[r.at] = g->line[r.read];
        nb_line *l = nb_rewrite_line(&r);
        for (int i = 0; i < l->nin; i++)
            l->in[i] = to[l->in[i]];
        r.is = NB_STAYS;
        ok = k < g->nx || visit(&r, ctx);
        settle(&r, &to[k]);
    }
    close_gap(&r);
    for (int i = 0; ok && i < g->ny; i++)
        g->result[i] = to[g->result[i]];
    nb_free(to);
    return ok;
}

static bool make_room(nb_rewrite *r)
{
    nb_graph *g = r->graph;
    int more = 16 + r->end / 8;
    if (r->at < r->read) return true;
    if (!nb_grow(&g->line, &g->room, r->end + more, sizeof *g->line))
        return false;
    memmove(g->line + r->read + 1 + more, g->line + r->read + 1,
            (size_t)(r->end - r->read - 1) * sizeof *g->line);
    r->read += more;
    r->end += more;
    return true;
}

int nb_rewrite_insert(nb_rewrite *r, nb_line l)
{
    nb_line *line;
    if (!make_room(r)) {
        nb_free(l.in), nb_free(l.attr);
        return -1;
    }
    line = nb_rewrite_line(r);
    line[1] = line[0];
    line[0] = l;
    nb_op_use(l.op);
    nb_keep(l.captured);
    return r->at++;
}

int nb_rewrite_number(nb_rewrite *r, nb_dtype dtype, int64_t bits)
{
    return nb_rewrite_insert(
        r, (nb_line){.kind = NB_LINE_NUMBER, .dtype = dtype, .number = bits});
}

int nb_rewrite_copy(nb_rewrite *r, int k, const int *in)
{
    nb_line l = r->graph->line[k];
    if (!nb_line_own(&l)) return -1;
    if (l.nin) memcpy(l.in, in, (size_t)l.nin * sizeof *in);
    return nb_rewrite_insert(r, l);
}

/* An op with programs of its own in the place of the line's. */
static bool copy_programs(nb_line *l)
{
    nb_op *was = l->op, *op = nb_op_holding(was, was->nout);
    if (!op) return false;
    l->op = op;
    op->effect = was->effect;
    nb_op_leave(was);
    for (int k = 0; k < 2; k++)
        if (was->region[k] &&
            !(op->region[k] = nb_graph_copy_whole(was->region[k])))
            return false;
    return true;
}

nb_graph *nb_graph_copy_whole(const nb_graph *g)
{
    nb_graph *to = nb_graph_copy(g);
    bool ok = to;
    for (int k = 0; ok && k < g->n; k++)
        if (to->line[k].op && to->line[k].op->region[0])
            ok = copy_programs(&to->line[k]);
    if (ok) return to;
    nb_graph_free(to);
    return NULL;
}

bool nb_line_alike(const nb_line *a, const nb_line *b)
{
    bool same = !a->multi && !b->multi && nb_line_same(a, b) &&
                a->shape.nlanes == b->shape.nlanes;
    for (int l = 0; same && l < a->shape.nlanes; l++) {
        nb_lane x = a->shape.lane[l], y = b->shape.lane[l];
        same =
            x.id == y.id && x.thin == y.thin && nb_extent_same(x.size, y.size);
    }
    return same;
}

bool nb_line_views(const nb_line *l)
{
    return l->kind == NB_LINE_CALL && l->nin == 1 &&
           (l->op->view || l->op->dim_of);
}

int nb_line_uniform(const nb_graph *g, int k)
{
    while (nb_line_views(&g->line[k]))
        k = g->line[k].in[0];
    return g->line[k].kind == NB_LINE_NUMBER ? k : -1;
}

static bool casts_float(const nb_graph *g, const nb_line *l)
{
    return l->kind == NB_LINE_CALL && l->op == &nb_op_cast &&
           nb_dtype_is_float(l->dtype) &&
           nb_dtype_is_float(g->line[l->in[0]].dtype);
}

bool nb_line_repeats(const nb_graph *g, int k, double *value)
{
    const nb_line *l = &g->line[k];
    bool number = l->kind == NB_LINE_NUMBER, cast = casts_float(g, l);
    if (number) *value = nb_read_f64(&l->number, l->dtype);
    if (number || (!cast && !nb_line_views(l))) return number;
    if (!nb_line_repeats(g, l->in[0], value)) return false;
    int64_t bits = 0;
    if (cast) {
        nb_write_f64(&bits, l->dtype, *value);
        *value = nb_read_f64(&bits, l->dtype);
    }
    return true;
}

nb_scalar nb_line_scalar(const nb_line *l)
{
    bool is = l->kind == NB_LINE_CALL && !l->nattr && !l->op->body &&
              l->op->static_sig && l->op->static_sig->pointwise;
    return is ? l->op->scalar : NB_S_none;
}
