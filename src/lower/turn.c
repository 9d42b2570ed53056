/* turn.c - products that are written in the order in which they are read.
 *
 * A product that is only looked at with its dims in another order lies in that
 * order, as far as its matrices have rows or columns without gaps then: heads
 * of an attention are put side by side this way, and the gradient of a table
 * that was transposed is the table's. */
#include "lower/turn.h"

#include "core/axes.h"
#include "lower/look.h"

int *nb_lines_only(const nb_graph *g)
{
    enum { NONE = -1, MANY = -2 };
    int *only = nb_alloc((size_t)(g->n + 1) * sizeof *only);
    for (int k = 0; only && k < g->n; k++) {
        const nb_line *l = &g->line[k];
        only[k] = NONE;
        for (int i = 0; i < l->nin; i++)
            only[l->in[i]] = only[l->in[i]] == NONE ? k : MANY;
    }
    for (int i = 0; only && i < g->ny; i++)
        only[g->result[i]] = MANY;
    return only;
}

/* Whether the dim of a product's result runs along one operand: it is a row or
 * a column of its matrices, and not what there are many of these along. */
static bool runs_along_one(const nb_call *c, int dim, bool *one)
{
    nb_axes a;
    int found = 0;
    if (!nb_axes_align(&a, c->op, c->sig, c->nin, c->in)) return false;
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < a.operand[i].ndims; d++)
            found += a.operand[i].axis[d] == a.operand[2].axis[dim];
    *one = found == 1;
    nb_axes_free(&a);
    return true;
}

static int64_t count(const nb_tensor *x)
{
    nb_shape s = nb_tensor_shape(x);
    int64_t n = 0;
    nb_shape_count(&s, &n);
    return n;
}

static bool is_turnable(const nb_plan *p, int k)
{
    const nb_line *l = &p->graph->line[k];
    nb_call c = nb_call_of(p->node[k]);
    return !l->op->kernel && !l->op->execute && c.sig &&
           nb_call_is_product(&c, p->node[k]) &&
           (p->device || l->dtype == NB_F32 || l->dtype == NB_F64);
}

bool nb_line_turn(const nb_plan *p, int k, int only, int64_t *stride)
{
    int64_t size[NB_MAX_DIMS], step[NB_MAX_DIMS], unused[NB_MAX_DIMS];
    int dim[NB_MAX_DIMS], last = -1;
    bool one = false;
    if (only < 0 || !is_turnable(p, k)) return true;
    nb_call c = nb_call_of(p->node[k]), look = nb_call_of(p->node[only]);
    if (count(p->node[only]) != count(p->node[k]) || /* it is cut, repeated */
        !nb_look_moves(&look, p->node[only], dim))
        return true;
    int n = nb_tensor_strides(p->node[only], size, unused);
    nb_packed_strides(n, size, step);
    for (int d = 0; d < n; d++)
        if (dim[d] >= 0) last = dim[d];
    if (last < 0) return true;
    if (!runs_along_one(&c, last, &one)) return false;
    for (int d = 0; one && d < n; d++)
        if (dim[d] >= 0) stride[dim[d]] = step[d];
    return true;
}
