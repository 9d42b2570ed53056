/* cost.c - the arithmetic of a recorded program, counted from its signatures.
 *
 * At each point of a call's axes: one operation an instruction of its body that
 * computes, and one more to reduce.  A view costs nothing, a kernel one an
 * element of its largest operand. */
#include "core/axes.h"
#include "core/graph.h"

static double points(const nb_call *c)
{
    nb_axes a;
    double n = 1;
    if (!nb_axes_align(&a, c->op, c->sig, c->nin, c->in)) return 0;
    for (int k = 0; k < a.naxes; k++)
        if (!nb_extent_is(a.size[k], -1)) n *= (double)nb_extent_get(a.size[k]);
    nb_axes_free(&a);
    return n;
}

static double elements(const nb_tensor *x)
{
    nb_shape s = nb_tensor_shape(x);
    int64_t n;
    nb_shape_count(&s, &n);
    return (double)n;
}

static double body_cost(const nb_call *c)
{
    nb_gen g;
    double n = 0;
    nb_gen_body(&g, c);
    for (int k = 0; k < g.n; k++)
        n += g.code[k].scalar != NB_S_none && g.code[k].scalar != NB_S_copy;
    for (int f = 0; f < c->sig->nfactors; f++)
        if (!c->sig->factor[f].in_result) return n + 1;
    return n;
}

double nb_call_flops(nb_tensor *y)
{
    nb_call c = nb_call_of(y);
    double most = elements(y);
    if (c.op && c.op->cost) return c.op->cost(&c);
    if (!c.op || c.op->view || c.op->dim_of || !c.sig) return 0;
    if (c.op->scalar || c.op->body) return points(&c) * body_cost(&c);
    for (int i = 0; i < c.nin; i++)
        if (elements(c.in[i]) > most) most = elements(c.in[i]);
    return most;
}
