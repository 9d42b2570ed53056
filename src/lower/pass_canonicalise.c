/* pass_canonicalise.c - one form of what can be written in several.
 *
 * Gone are copies to the dtype that is there already, views that look at
 * everything as it is (detach is one), and views that undo the view before.  A
 * shape given to what has just been given another is given at once.  A number
 * that is moved to a device is one there. */
#include "core/lanes.h"
#include "lower/look.h"
#include "lower/passes.h"
#include "lower/rewrite.h"

#include <string.h>

/* A node of the line's type; lanes are called by their numbers in the graph. */
static nb_tensor *stand_in(const nb_line *l)
{
    return nb_leaf_on(l->device, nb_node_new(NULL, NULL, l->dtype, &l->shape, 0,
                                             NULL, 0, NULL));
}

/* *x becomes what view l makes of it, *stride where its dims lie.  *same if it
 * is known to begin where x does. */
static bool look(const nb_line *l, nb_tensor **x, int64_t *stride, bool *same)
{
    int64_t from[NB_MAX_DIMS], offset = 0;
    nb_tensor *y = nb_record(l->op, 1, x, l->nattr, l->attr);
    if (!y) return false;
    nb_call c = nb_call_of(y);
    memcpy(from, stride, sizeof from);
    *same = *same && nb_look(&c, y, from, stride, &offset) && !offset;
    *x = y;
    return true;
}

/* Whether the view, of another if that is given, is `base` itself. */
static bool is_base(const nb_line *base, const nb_line *between,
                    const nb_line *view, bool *same)
{
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS] = {0}, tag[NB_MAX_DIMS];
    nb_tensor *x = stand_in(base);
    if (!x) return false;
    int n = nb_tensor_strides(x, size, stride);
    nb_look_tags(n, tag);
    memcpy(stride, tag, (size_t)n * sizeof *tag);
    *same = true;
    if ((between && !look(between, &x, stride, same)) ||
        !look(view, &x, stride, same))
        return false;
    for (int d = 0; d < n; d++)
        *same = *same && (size[d] == 1 || stride[d] == tag[d]);
    return true;
}

static bool copies(const nb_line *l, const nb_line *from)
{
    return l->op->scalar == NB_S_copy && !l->op->body && l->nin == 1 &&
           l->op->static_sig && l->op->static_sig->pointwise &&
           nb_line_alike(l, from);
}

static void number_there(nb_line *l, const nb_line *from)
{
    nb_line there = *from;
    there.device = l->device;
    nb_line_free(l);
    *l = there;
}

static bool visit(nb_rewrite *r, void *ctx)
{
    nb_line *l = nb_rewrite_line(r), *line = r->graph->line;
    bool same = false;
    (void)ctx;
    if (l->kind != NB_LINE_CALL || l->nin != 1) return true;
    if (l->op->lands && line[l->in[0]].kind == NB_LINE_NUMBER)
        return number_there(l, &line[l->in[0]]), true;
    bool there = l->op->lands && line[l->in[0]].device == l->device;
    if (there || copies(l, &line[l->in[0]])) r->is = l->in[0];
    if (!nb_line_views(l) || l->op == &nb_op_again) return true;
    if (l->op->absorbs && line[l->in[0]].op == l->op)
        l->in[0] = line[l->in[0]].in[0];
    int from = l->in[0];
    if (nb_line_alike(l, &line[from])) {
        if (!is_base(&line[from], NULL, l, &same)) return false;
        if (same) r->is = from;
    }
    if (same || !nb_line_views(&line[from]) || line[from].op == &nb_op_again)
        return true;
    int base = line[from].in[0];
    if (!nb_line_alike(l, &line[base])) return true;
    if (!is_base(&line[base], &line[from], l, &same)) return false;
    if (same) r->is = base;
    return true;
}

bool nb_pass_canonicalise(nb_graph *g)
{
    if (nb_scope_open() != NB_OK) return false;
    bool ok = nb_graph_rewrite(g, visit, NULL);
    nb_scope_close(0, NULL);
    return ok;
}
