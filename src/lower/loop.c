/* loop.c - from an aligned call to a merged loop nest. */
#include "lower/loop.h"

#include <string.h>

/* Strides of operand t along all axes, summed where a dim repeats an axis. */
static void along(const nb_axes *a, int t, const int64_t *size,
                  const int64_t *stride, const int64_t *extent, int64_t *to)
{
    const nb_operand *o = &a->operand[t];
    memset(to, 0, (size_t)a->naxes * sizeof *to);
    for (int d = 0; d < o->ndims; d++) {
        int axis = o->axis[d];
        if (axis >= 0 && !(size[d] == 1 && extent[axis] != 1))
            to[axis] += stride[d];
    }
}

static void add_axis(nb_loop *l, int64_t size, bool reduced,
                     const int64_t *stride)
{
    int k = l->naxes - 1;
    bool merge = k >= 0 && l->reduced[k] == reduced;
    for (int t = 0; merge && t < l->nops; t++)
        merge = l->stride[t][k] == stride[t] * size;
    if (!merge) k = l->naxes++;
    for (int t = 0; t < l->nops; t++)
        l->stride[t][k] = stride[t];
    l->size[k] = merge ? l->size[k] * size : size;
    l->reduced[k] = reduced;
}

static bool in_result(const nb_axes *a, int axis)
{
    const nb_operand *o = &a->operand[a->nin];
    for (int d = 0; d < o->ndims; d++)
        if (o->axis[d] == axis) return true;
    return false;
}

/* The order of the loops: as the first input that has the axis stores them if
 * something is reduced, so that memory is walked in order; as the result does
 * otherwise. */
static int order(const nb_axes *a, bool reduces, int16_t *axes)
{
    bool seen[NB_MAX_AXES] = {false};
    int n = 0;
    for (int k = 0; k <= a->nin; k++) {
        int t = reduces ? k : (a->nin + k) % (a->nin + 1);
        const nb_operand *o = &a->operand[t];
        for (int d = 0; d < o->ndims; d++) {
            if (o->axis[d] < 0 || seen[o->axis[d]]) continue;
            seen[o->axis[d]] = true;
            axes[n++] = o->axis[d];
        }
    }
    return n;
}

static void nest(nb_loop *l, const nb_axes *a, const nb_tensor *y,
                 nb_tensor *const *in)
{
    int64_t along_t[NB_MAX_LOOP_OPERANDS][NB_MAX_AXES];
    int64_t extent[NB_MAX_AXES], size[NB_MAX_DIMS], stride[NB_MAX_DIMS];
    int16_t axes[NB_MAX_AXES];
    bool reduces = false;
    for (int k = 0; k < a->naxes; k++)
        extent[k] = nb_extent_get(a->size[k]);
    for (int t = 0; t < l->nops; t++) {
        nb_tensor_strides(t < a->nin ? in[t] : y, size, stride);
        along(a, t, size, stride, extent, along_t[t]);
        for (int d = 0; t < a->nin && d < a->operand[t].ndims; d++)
            reduces = reduces || (a->operand[t].axis[d] >= 0 &&
                                  !in_result(a, a->operand[t].axis[d]));
    }
    int n = order(a, reduces, axes);
    for (int k = 0; k < n; k++) {
        int64_t step[NB_MAX_LOOP_OPERANDS];
        l->empty = l->empty || extent[axes[k]] == 0;
        if (extent[axes[k]] == 1) continue;
        for (int t = 0; t < l->nops; t++)
            step[t] = along_t[t][axes[k]];
        add_axis(l, extent[axes[k]], !in_result(a, axes[k]), step);
    }
}

bool nb_loop_build(nb_loop *l, const nb_call *c, const nb_tensor *y)
{
    nb_axes a;
    l->naxes = 0;
    l->empty = false;
    l->nops = c->nin + 1;
    if (!nb_axes_align(&a, c->op, c->sig, c->nin, c->in)) return false;
    nest(l, &a, y, c->in);
    nb_axes_free(&a);
    return true;
}
