/* ends_sum.c - a product of which the slope of a gelu is taken sums its runs, too.
 *
 * That is the gradient of the bias before the gelu.  A nest that loads nothing
 * but the product and sums it over all runs, and of the sums wants no more than
 * the bits of the product's dtype, reads the sums of the product instead, or is
 * gone if it only stores them. */
#include "lower/ends_parts.h"

#include <string.h>

/* A nest after the product: the load, its sum, the axis along a run. */
typedef struct summing {
    nb_plan *p;
    int s, t; /* steps */
    int64_t run;
    int load, sum, axis;
} summing;

static nb_nest *nest_of(const summing *x)
{
    return x->p->step[x->t].nest;
}

static int block_of(const summing *x)
{
    const nb_step *s = &x->p->step[x->s];
    return s->buffer[s->gemm->c.buffer];
}

/* One axis along a run and one from run to run, over all of the product. */
static bool goes_over_runs(summing *x)
{
    const nb_nest *n = nest_of(x);
    const nb_gemm *g = x->p->step[x->s].gemm;
    const nb_nest_value *l = &n->value[x->load];
    if (n->naxes != 2 || n->param || n->cut_size || n->lead) return false;
    if (n->inner != 1 && n->inner != 2) return false;
    x->axis = n->inner == 1;
    return !l->offset && n->size[x->axis] == x->run &&
           l->stride[x->axis] == 1 && l->stride[!x->axis] == x->run &&
           n->size[!x->axis] == g->m * g->n / x->run;
}

/* What takes part besides: conversions and stores of the sum, along the run. */
static bool may_stay(const summing *x, const nb_nest_value *v)
{
    nb_dtype d = x->p->step[x->s].gemm->c.dtype;
    bool stores = v->kind == NB_NEST_STORE, of_sum = v->arg[0] == x->sum;
    if (!stores && v->kind != NB_NEST_CONVERT) return false;
    if (v->arg[0] == x->load) return false;
    return !of_sum || (stores ? v->stored : v->dtype) == d;
}

static bool is_summing(summing *x)
{
    const nb_nest *n = nest_of(x);
    x->load = x->sum = -1;
    for (int v = 0; v < n->n; v++) {
        const nb_nest_value *k = &n->value[v];
        bool product = k->kind == NB_NEST_LOAD &&
                       x->p->step[x->t].buffer[k->buffer] == block_of(x);
        bool sum = k->kind == NB_NEST_REDUCE && k->reduce == NB_SUM &&
                   k->dtype == NB_F32 && x->load >= 0 && k->arg[0] == x->load;
        if (product && x->load < 0)
            x->load = v;
        else if (sum && x->sum < 0)
            x->sum = v;
        else if (!may_stay(x, k))
            return false;
    }
    return x->sum >= 0 && goes_over_runs(x);
}

/* Where the nest does no more than to store the sums as they are: the buffer, -1
 * if it does. */
static int only_store(const summing *x)
{
    const nb_nest *n = nest_of(x);
    const nb_nest_value *last = &n->value[n->n - 1];
    nb_dtype d = x->p->step[x->s].gemm->c.dtype;
    int stores = 0;
    for (int v = 0; v < n->n; v++)
        stores += n->value[v].kind == NB_NEST_STORE;
    bool plain = stores == 1 && last->kind == NB_NEST_STORE &&
                 last->stored == d && !last->offset &&
                 last->stride[x->axis] == 1;
    return plain ? x->p->step[x->t].buffer[last->buffer] : -1;
}

/* The product's sums are read where the nest summed. */
static void read_sums(const summing *x, int block)
{
    nb_step *t = &x->p->step[x->t];
    nb_nest *n = t->nest;
    nb_nest_value *sum = &n->value[x->sum], load = n->value[x->load];
    t->buffer[load.buffer] = block;
    load.axes = 1;
    load.dtype = sum->dtype;
    *sum = load;
    for (int v = 0; v < n->n; v++) {
        nb_nest_value *k = &n->value[v];
        k->axes = k->axes != 0;
        k->stride[0] = k->stride[x->axis];
        k->stride[1] = 0;
    }
    n->size[0] = x->run;
    n->naxes = 1;
    n->inner = 0;
    memmove(&n->value[x->load], &n->value[x->load + 1],
            (size_t)(--n->n - x->load) * sizeof *n->value);
    for (int v = x->load; v < n->n; v++)
        for (int i = 0; i < nb_nest_args(&n->value[v]); i++)
            n->value[v].arg[i] -= n->value[v].arg[i] > x->load;
}

/* Lines that the nest made are then of the product's step. */
static void join_groups(const summing *x)
{
    nb_plan *p = x->p;
    int from = p->group[p->step[x->t].line], to = p->group[p->step[x->s].line];
    for (int k = 0; from >= 0 && to >= 0 && k < p->graph->n; k++)
        if (p->group[k] == from) p->group[k] = to;
}

static bool take(summing *x, nb_gemm *g)
{
    nb_plan *p = x->p;
    nb_step *s = &p->step[x->s];
    size_t n = (size_t)s->nbuffers;
    int64_t bytes = x->run * (int64_t)nb_dtype_size(g->c.dtype);
    int *buffer = nb_alloc((n + 1) * sizeof *buffer), block = only_store(x);
    bool gone = block >= 0;
    if (buffer && !gone) block = nb_plan_extra(p, bytes);
    if (!buffer || block < 0) return nb_free(buffer), false;
    memcpy(buffer, s->buffer, n * sizeof *buffer);
    buffer[n] = block;
    nb_free(s->buffer);
    s->buffer = buffer;
    s->nbuffers++;
    *s->gemm = *g;
    if (!gone) return read_sums(x, block), true;
    join_groups(x);
    nb_plan_remove_step(p, x->t);
    return true;
}

bool nb_ending_sum(nb_plan *p, int s)
{
    const nb_step *step = &p->step[s];
    nb_gemm g = *step->gemm;
    summing x = {.p = p, .s = s};
    if (g.end != NB_END_GELU_SLOPE || g.nouter || !nb_gemm_runs(&g, &x.run))
        return true;
    g.sum = (nb_gemm_beside){.dtype = g.c.dtype, .buffer = step->nbuffers};
    for (x.t = s + 1; x.t < p->nsteps; x.t++)
        if (p->step[x.t].nest && is_summing(&x))
            return !nb_card_multiplies(p->device, &g) || take(&x, &g);
    return true;
}
