/* between.c - talking between lanes: ordinary ops of what is shown.
 *
 * Where the lanes of a value lie on mesh axes, those of the result lie on the
 * same, so that a lane is always at home on its device. */
#include "shard/talk/between.h"

#include "core/lanes.h"
#include "nabla/nabla.h"
#include "ops/view.h"
#include "shard/talk/seen.h"

/* The mesh axes that the lanes of x lie on. */
static nb_cut home(const nb_tensor *x, nb_lane lane)
{
    const nb_spec *s = x->sharding;
    for (int l = 0; s && l < x->nlanes; l++)
        if (nb_tensor_lane(x)[l].id == lane.id) return s->dim[l].axes;
    return (nb_cut){0};
}

/* Visible dim d becomes the lane, at home. */
static nb_tensor *enter(nb_tensor *x, int d, nb_lane lane, const nb_cut *at)
{
    return nb_hide(at->n ? nb_lay_dim(x, d, at) : x, d, lane.id);
}

nb_tensor *nb_dim_reduce(nb_tensor *x, int d, nb_reduce kind)
{
    int64_t axis = d;
    if (!x) return NULL;
    nb_dtype was = (nb_dtype)x->dtype;
    nb_tensor *y = kind == NB_MAX    ? nb_reduce_max(x, 1, &axis, false)
                   : kind == NB_MIN  ? nb_reduce_min(x, 1, &axis, false)
                   : kind == NB_PROD ? nb_prod(x, 1, &axis, false)
                                     : nb_reduce_sum(x, 1, &axis, false);
    return was == NB_BOOL ? y : nb_cast(y, was);
}

nb_tensor *nb_lanes_reduce(nb_tensor *x, nb_lane lane, nb_reduce kind)
{
    return nb_dim_reduce(nb_show(x, 0, lane), 0, kind);
}

nb_tensor *nb_lanes_gather(nb_tensor *x, nb_lane lane, int axis, bool tiled)
{
    nb_tensor *y = nb_lay_dim(nb_show(x, axis, lane), axis, &(nb_cut){0});
    return tiled ? nb_dim_fold(y, axis) : y;
}

nb_tensor *nb_lanes_scatter(nb_tensor *x, nb_lane lane, int axis, bool sum)
{
    nb_cut at = home(x, lane);
    nb_tensor *y = sum ? nb_lanes_reduce(x, lane, NB_SUM) : x;
    return enter(nb_dim_cut(y, axis, nb_extent_get(lane.size)), axis, lane,
                 &at);
}

/* Lanes i and blocks j: what was at (i, j) will be at (j, i).  With a place for
 * blocks at dim `split`, the lanes are shown before dim `concat` of what is
 * left, then the blocks become the lanes. */
nb_tensor *nb_lanes_exchange(nb_tensor *x, nb_lane lane, int split, int concat,
                             bool tiled)
{
    nb_cut at = home(x, lane);
    int to = concat + (concat > split || (tiled && concat == split));
    nb_tensor *y = tiled ? nb_dim_cut(x, split, nb_extent_get(lane.size)) : x;
    y = nb_show(y, to, lane);
    y = enter(y, split + (to <= split), lane, &at);
    return tiled ? nb_dim_fold(y, concat) : y;
}

nb_tensor *nb_lanes_permute(nb_tensor *x, nb_lane lane, const int64_t *from)
{
    nb_cut at = home(x, lane);
    int n = (int)nb_extent_get(lane.size);
    return enter(nb_select(nb_show(x, 0, lane), 0, n, from), 0, lane, &at);
}

nb_tensor *nb_lanes_get(nb_tensor *x, nb_lane lane, int64_t which)
{
    return nb_get(nb_show(x, 0, lane), 1, (nb_key[]){NB_AT(which)});
}

int64_t *nb_pairs_from(const char *who, const char *noun, int n,
                       const int64_t (*pairs)[2], int64_t size)
{
    int64_t *from = nb_alloc((size_t)(size + 1) * sizeof *from);
    bool ok = from;
    for (int64_t i = 0; ok && i < size; i++)
        from[i] = -1;
    for (int k = 0; ok && k < n; k++) {
        int64_t src = pairs[k][0], dst = pairs[k][1];
        ok = src >= 0 && src < size && dst >= 0 && dst < size;
        if (!ok)
            nb_fail(NB_EVALUE, "%s: pair (%lld, %lld) of %lld %ss", who,
                    (long long)src, (long long)dst, (long long)size, noun);
        else if (from[dst] >= 0)
            ok = nb_fail(NB_EVALUE, "%s: %s %lld is a target twice", who, noun,
                         (long long)dst);
        else
            from[dst] = src;
    }
    if (ok) return from;
    nb_free(from);
    return NULL;
}

/* By name */

static const nb_lane *open_lane(const char *name)
{
    int n;
    const nb_lane *all = nb_lanes_open(&n);
    if (name) return nb_lane_named(name);
    return n ? &all[n - 1] : nb_fail(NB_EVALUE, "no vmap is open");
}

static nb_tensor *over(nb_tensor *x, const char *name, nb_reduce kind)
{
    const nb_lane *lane = open_lane(name);
    return lane ? nb_lanes_reduce(x, *lane, kind) : NULL;
}

nb_tensor *nb_lane_sum(nb_tensor *x, const char *name)
{
    return over(x, name, NB_SUM);
}

nb_tensor *nb_lane_mean(nb_tensor *x, const char *name)
{
    const nb_lane *lane = open_lane(name);
    return lane ? nb_mean(nb_show(x, 0, *lane), 1, (int64_t[]){0}, false)
                : NULL;
}

nb_tensor *nb_lane_max(nb_tensor *x, const char *name)
{
    return over(x, name, NB_MAX);
}

nb_tensor *nb_lane_min(nb_tensor *x, const char *name)
{
    return over(x, name, NB_MIN);
}

nb_tensor *nb_lane_index(const char *name)
{
    const nb_lane *lane = open_lane(name);
    if (!lane) return NULL;
    return nb_hide(nb_iota(nb_extent_get(lane->size), NB_I32), 0, lane->id);
}

nb_tensor *nb_lane_permute(nb_tensor *x, const char *name, int n,
                           const int64_t (*pairs)[2])
{
    const nb_lane *lane = open_lane(name);
    if (!lane || !x) return NULL;
    int64_t *from =
        nb_pairs_from("permute", "lane", n, pairs, nb_extent_get(lane->size));
    nb_tensor *y = from ? nb_lanes_permute(x, *lane, from) : NULL;
    nb_free(from);
    return y;
}
