/* pass_dead.c - lines that no result needs and that have no effect are gone.
 * Inputs stay: callers count on them. */
#include "lower/passes.h"
#include "lower/rewrite.h"

typedef struct needs {
    bool *line; /* as numbered before */
    int next;
} needs;

static bool visit(nb_rewrite *r, void *ctx)
{
    needs *n = ctx;
    if (!n->line[n->next++]) r->is = NB_GOES;
    return true;
}

bool nb_pass_dead(nb_graph *g)
{
    needs n = {.line = nb_alloc_zero((size_t)g->n + 1), .next = g->nx};
    if (!n.line) return false;
    for (int i = 0; i < g->ny; i++)
        n.line[g->result[i]] = true;
    for (int k = 0; k < g->n; k++)
        if (g->line[k].op && g->line[k].op->effect) n.line[k] = true;
    for (int k = g->n - 1; k >= 0; k--)
        for (int i = 0; n.line[k] && i < g->line[k].nin; i++)
            n.line[g->line[k].in[i]] = true;
    bool ok = nb_graph_rewrite(g, visit, &n);
    nb_free(n.line);
    return ok;
}
