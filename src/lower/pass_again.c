/* pass_again.c - again(x, ...) is x, and so is after(x, effect).
 *
 * It kept equal calls before and behind it from becoming one.  Lines stay in
 * the order that it asked for. */
#include "core/lanes.h"
#include "lower/passes.h"
#include "lower/rewrite.h"

static bool visit(nb_rewrite *r, void *ctx)
{
    const nb_line *l = nb_rewrite_line(r);
    (void)ctx;
    if (l->op == &nb_op_again || l->op == &nb_op_after) r->is = l->in[0];
    return true;
}

bool nb_pass_again(nb_graph *g)
{
    return nb_graph_rewrite(g, visit, NULL);
}
