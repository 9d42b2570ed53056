/* index_local.c - indices into tables of which every device has a block.
 *
 * Each device looks after the indices that name an element of its own: reading
 * gives zero for the others, so that a sum over the devices has them all, and
 * writing passes over them. */
#include "ops/index.h"

#include <string.h>

nb_tensor *nb_index_into(const nb_blocks *b, nb_tensor *index,
                         const nb_index_axis *a, bool clamp)
{
    nb_tensor *zero = nb_count(0);
    if (nb_dtype_of(index) == NB_U64)
        index = nb_minimum(index, nb_count(INT64_MAX));
    nb_tensor *i = nb_cast(index, NB_I64);
    i = nb_where(nb_less(i, zero), nb_add(i, nb_count(a->whole)), i);
    if (clamp) i = nb_maximum(nb_minimum(i, nb_count(a->whole - 1)), zero);
    if (a->size < a->whole) i = nb_sub(i, b->number(b, a->start));
    nb_tensor *here = nb_logical_and(nb_greater_equal(i, zero),
                                     nb_less(i, nb_count(a->size)));
    return nb_where(here, i, nb_count(a->size));
}

nb_index_axis nb_index_axis_of(const nb_call *c, const nb_blocks *b, int axis)
{
    int d = c->in[0]->nlanes + axis;
    return (nb_index_axis){SIZE(0, axis), b->from[0].start[d],
                           b->from[0].size[d]};
}

/* The indices of a call for its block of the table, which are not held in
 * range any more: what is out of it is another device's. */
static nb_pick pick_local(const nb_call *c, const nb_blocks *b,
                          nb_tensor **index)
{
    nb_pick p = nb_pick_of(c);
    bool split = false;
    memcpy(index, b->in + c->nin - p.n, (size_t)p.n * sizeof *index);
    p.index = index;
    for (int k = 0; k < p.n; k++) {
        nb_index_axis a = nb_index_axis_of(c, b, (int)p.axes[k]);
        split = split || a.size < a.whole;
    }
    for (int k = 0; split && k < p.n; k++) {
        nb_index_axis a = nb_index_axis_of(c, b, (int)p.axes[k]);
        index[k] = nb_index_into(b, index[k], &a, p.clamp);
    }
    if (split) p.clamp = false;
    return p;
}

nb_tensor *nb_index_local(const nb_call *c, const nb_blocks *b)
{
    nb_tensor *index[NB_MAX_RANK];
    nb_pick p = pick_local(c, b, index);
    return nb_index(b->in[0], &p);
}

nb_tensor *nb_place_local(const nb_call *c, const nb_blocks *b)
{
    nb_tensor *index[NB_MAX_RANK];
    nb_pick p = pick_local(c, b, index);
    return nb_place((nb_op *)c->op, b->in[0], b->in[1], &p);
}
