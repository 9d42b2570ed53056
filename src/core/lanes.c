/* lanes.c - cast, alias, and the three ops that move lanes.
 *
 * hide and show are each other's transposes.  Attributes of the three: the
 * visible axis, then the lane's id and size. */
#include "core/lanes.h"

#include "nabla/nabla.h"

#include <string.h>

static nb_tensor *same_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    (void)c, (void)i;
    return ct;
}

static bool same_view(const nb_call *c, const nb_layout *in, nb_layout *out)
{
    (void)c;
    memcpy(out->stride, in->stride, sizeof out->stride);
    return true;
}

nb_op nb_op_alias = {
    .name = "alias",
    .doc = "The same value as a node of its own: where a differentiation "
           "begins.",
    .example = "alias([1, 2]) = [1, 2]",
    .params = "x",
    .sig = "... -> ...",
    .kind = NB_LINEAR,
    .view = same_view,
    .transpose = same_transpose,
};

nb_tensor *nb_alias(nb_tensor *x)
{
    return nb_apply(&nb_op_alias, 1, &x, 0, NULL, NB_CALLER);
}

nb_op nb_op_detach = {
    .name = "detach",
    .doc = "The same value, through which nothing is differentiated.",
    .example = "detach([1, 2]) = [1, 2]",
    .params = "x",
    .sig = "... -> ...",
    .kind = NB_CONSTANT,
    .view = same_view,
};

static bool again_shape(const nb_call *c, nb_shape *out)
{
    *out = nb_tensor_shape(c->in[0]);
    return true;
}

nb_op nb_op_again = {
    .name = "again",
    .doc = "The first input, once all of them are there, to compute from it "
           "what was computed before: equal calls of it are not one.",
    .params = "inputs:tensors",
    .kind = NB_LINEAR,
    .shape = again_shape,
    .view = same_view,
};

nb_op nb_op_after = {
    .name = "after",
    .doc = "The first input, once the second is there, which has an effect.",
    .params = "x, effect",
    .kind = NB_LINEAR,
    .fixed = 2,
    .shape = again_shape,
    .view = same_view,
    .transpose = same_transpose,
};

/* cast */

static bool cast_infer(const nb_call *c, int k, nb_shape *out, nb_dtype *dtype)
{
    int64_t d = nb_arg_int(c, 0);
    (void)k, (void)out;
    if (d == NB_NONE) return true;
    if (d <= NB_NOTYPE || d >= NB_NDTYPES)
        return nb_fail(NB_ETYPE, "cast: %lld is not a dtype", (long long)d);
    *dtype = (nb_dtype)d;
    return true;
}

static nb_tensor *cast_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    (void)i;
    return nb_as(ct, (nb_dtype)c->in[0]->dtype);
}

nb_op nb_op_cast = {
    .name = "cast",
    .doc = "x in another dtype.  Floats to integers truncate and saturate, "
           "NaN becomes 0; anything but zero becomes True.",
    .example = "cast([1.5, -2.5], dtype=int64) = [1, -2]",
    .params = "x, dtype:dtype=None",
    .sig = "... -> ...",
    .kind = NB_LINEAR,
    .infer = cast_infer,
    .scalar = NB_S_copy,
    .transpose = cast_transpose,
};

nb_tensor *nb_cast(nb_tensor *x, nb_dtype dtype)
{
    if (!x || !dtype) return x;
    if (x->dtype == dtype && !(x->flags & NB_WEAK)) return x;
    if (x->flags & NB_WEAK) return nb_as(x, dtype);
    return nb_apply(&nb_op_cast, 1, &x, 1, &(nb_value)NB_V_INT(dtype),
                    NB_CALLER);
}

/* Lanes */

static int find_lane(const nb_tensor *x, int64_t id)
{
    for (int l = 0; l < x->nlanes; l++)
        if (nb_tensor_lane(x)[l].id == id) return l;
    return -1;
}

/* Stored dim of the input for one of the result's lanes other than `id`. */
static int same_lane(const nb_call *c, const nb_tensor *y, int d)
{
    return find_lane(c->in[0], nb_tensor_lane(y)[d].id);
}

static bool hide_shape(const nb_call *c, nb_shape *out)
{
    int axis = (int)c->attr[0];
    *out = nb_tensor_shape(c->in[0]);
    nb_lane lane = {.id = (int32_t)c->attr[1], .size = out->size[axis]};
    memmove(out->size + axis, out->size + axis + 1,
            (size_t)(--out->rank - axis) * sizeof out->size[0]);
    return nb_shape_add_lane(out, lane);
}

static int hide_dim(const nb_call *c, const nb_tensor *y, int d)
{
    int axis = (int)c->attr[0], lanes = c->in[0]->nlanes;
    int from = d < y->nlanes ? same_lane(c, y, d) : -1;
    if (d >= y->nlanes) return lanes + d - y->nlanes + (d - y->nlanes >= axis);
    return from >= 0 ? from : lanes + axis;
}

static bool show_shape(const nb_call *c, nb_shape *out)
{
    int axis = (int)c->attr[0];
    *out = nb_tensor_shape(c->in[0]);
    int l = nb_shape_find_lane(out, (int)c->attr[1]);
    if (l < 0) return nb_fail(NB_EVALUE, "show: there is no such lane");
    if (out->rank == NB_MAX_RANK)
        return nb_fail(NB_EVALUE, "show: rank is %d already", NB_MAX_RANK);
    nb_extent size = out->lane[l].size;
    memmove(out->lane + l, out->lane + l + 1,
            (size_t)(--out->nlanes - l) * sizeof out->lane[0]);
    memmove(out->size + axis + 1, out->size + axis,
            (size_t)(out->rank++ - axis) * sizeof out->size[0]);
    out->size[axis] = size;
    return true;
}

static int show_dim(const nb_call *c, const nb_tensor *y, int d)
{
    int axis = (int)c->attr[0], lanes = c->in[0]->nlanes, v = d - y->nlanes;
    if (v < 0) return same_lane(c, y, d);
    if (v != axis) return lanes + v - (v > axis);
    int l = find_lane(c->in[0], c->attr[1]);
    return nb_tensor_lane(c->in[0])[l].thin ? -1 : l;
}

static bool spread_shape(const nb_call *c, nb_shape *out)
{
    nb_lane lane = {.id = (int32_t)c->attr[1],
                    .size = nb_extent_of(c->attr[2]),
                    .thin = true};
    *out = nb_tensor_shape(c->in[0]);
    return nb_shape_add_lane(out, lane);
}

static int spread_dim(const nb_call *c, const nb_tensor *y, int d)
{
    if (d < y->nlanes) return same_lane(c, y, d);
    return c->in[0]->nlanes + d - y->nlanes;
}

static nb_lane lane_of(const nb_call *c)
{
    return (nb_lane){.id = (int32_t)c->attr[1],
                     .size = nb_extent_of(c->attr[2])};
}

static nb_tensor *hide_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    (void)i;
    return nb_show(ct, (int)c->attr[0], lane_of(c));
}

static nb_tensor *show_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    (void)i;
    return nb_hide(ct, (int)c->attr[0], (int)c->attr[1]);
}

/* What a text may get wrong. */
static bool lane_check(nb_call *c)
{
    const nb_tensor *x = c->in[0];
    bool hide = c->op == &nb_op_hide, show = c->op == &nb_op_show;
    int64_t axis = c->attr[0], size = c->attr[2];
    int at = find_lane(x, c->attr[1]);
    bool ok = axis >= 0 && size >= 0 && (show ? at >= 0 : at < 0) &&
              axis < x->rank + !hide;
    if (ok && hide) ok = nb_extent_is(nb_tensor_size(x)[axis], size);
    if (ok && show) ok = nb_extent_is(nb_tensor_lane(x)[at].size, size);
    return ok || nb_fail(NB_EVALUE, "%s: no such axis", c->op->name);
}

nb_op nb_op_hide = {
    .name = "hide",
    .doc = "A visible axis becomes a hidden one.",
    .params = "x, axis:int, id:int, size:int",
    .check = lane_check,
    .kind = NB_LINEAR,
    .shape = hide_shape,
    .dim_of = hide_dim,
    .transpose = hide_transpose,
};

nb_op nb_op_show = {
    .name = "show",
    .doc = "A hidden axis becomes a visible one.",
    .params = "x, axis:int, id:int, size:int",
    .check = lane_check,
    .kind = NB_LINEAR,
    .shape = show_shape,
    .dim_of = show_dim,
    .transpose = show_transpose,
};

nb_op nb_op_spread = {
    .name = "spread",
    .doc = "The same value in every lane of a hidden axis.",
    .params = "x, axis:int, id:int, size:int",
    .check = lane_check,
    .kind = NB_LINEAR,
    .shape = spread_shape,
    .dim_of = spread_dim,
    .transpose = same_transpose,
};

static nb_tensor *move(nb_op *op, nb_tensor *x, int axis, int id, nb_extent n)
{
    return nb_record(op, 1, &x, 3, (int64_t[]){axis, id, nb_extent_get(n)});
}

nb_tensor *nb_hide(nb_tensor *x, int axis, int id)
{
    if (!x) return NULL;
    if (axis < 0) axis += x->rank;
    if (axis < 0 || axis >= x->rank)
        return nb_fail(NB_EAXIS, "hide: axis %d is out of range for rank %d",
                       axis, x->rank);
    if (find_lane(x, id) >= 0)
        return nb_fail(NB_EVALUE, "hide: lane %d is hidden already", id);
    return move(&nb_op_hide, x, axis, id, nb_tensor_size(x)[axis]);
}

nb_tensor *nb_spread(nb_tensor *x, nb_lane lane)
{
    if (!x || find_lane(x, lane.id) >= 0) return x;
    return move(&nb_op_spread, x, 0, lane.id, lane.size);
}

nb_tensor *nb_show(nb_tensor *x, int axis, nb_lane lane)
{
    x = nb_spread(x, lane);
    if (!x) return NULL;
    if (axis < 0) axis += x->rank + 1;
    if (axis < 0 || axis > x->rank)
        return nb_fail(NB_EAXIS, "show: axis %d is out of range for rank %d",
                       axis, x->rank);
    return move(&nb_op_show, x, axis, lane.id, lane.size);
}
