/* collective.c - collectives by the names of axes: of lanes that are open, or
 * of the mesh. */
#include "nabla/collective.h"

#include "core/lanes.h"
#include "nabla/nabla.h"
#include "ops/ops.h"
#include "shard/decide/place.h"
#include "shard/plan/plan.h"
#include "shard/talk/between.h"
#include "shard/talk/blocks.h"
#include "shard/talk/seen.h"

#include <string.h>

/* What the names of a collective stand for. */
typedef struct axes {
    int nlanes;
    nb_lane lane[NB_MAX_LANES];
    const nb_mesh *mesh; /* NULL: x lies on none */
    nb_cut mesh_axes;    /* full ones */
    int64_t count;       /* product of all sizes */
} axes;

static const nb_mesh *mesh_of(const nb_tensor *x)
{
    return x->sharding ? ((const nb_spec *)x->sharding)->mesh : NULL;
}

static bool any_open(void)
{
    int n;
    nb_lanes_open(&n);
    return n;
}

static bool add_lane(axes *a, const char *who, const nb_lane *lane,
                     const char *name)
{
    for (int k = 0; k < a->nlanes; k++)
        if (a->lane[k].id == lane->id)
            return nb_fail(NB_EVALUE, "%s: axis '%s' is named twice", who,
                           name);
    a->lane[a->nlanes++] = *lane;
    a->count *= nb_extent_get(lane->size);
    return true;
}

static bool add_axis(axes *a, const char *who, const char *name)
{
    int k = a->mesh ? nb_mesh_axis_find(a->mesh, name) : -1;
    if (k < 0 && a->mesh)
        return nb_fail(NB_EVALUE, "%s: mesh @%s has no axis '%s'", who,
                       a->mesh->name, name);
    if (k < 0)
        return nb_fail(NB_EVALUE,
                       "%s: no open vmap has an axis named '%s', and the "
                       "tensor lies on no mesh",
                       who, name);
    nb_axis full = nb_axis_full(a->mesh, k);
    for (int i = 0; i < a->mesh_axes.n; i++)
        if (a->mesh_axes.at[i].axis == k)
            return nb_fail(NB_EVALUE, "%s: axis '%s' is named twice", who,
                           name);
    a->mesh_axes.at[a->mesh_axes.n++] = full;
    a->count *= full.size;
    return true;
}

static bool named(axes *a, const char *who, const nb_tensor *x, int n,
                  const char *const *names)
{
    *a = (axes){.mesh = mesh_of(x), .count = 1};
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        const nb_lane *lane = nb_lane_find(names[i]);
        ok = lane ? add_lane(a, who, lane, names[i])
                  : add_axis(a, who, names[i]);
    }
    return ok;
}

/* Those that something is pending on, else all that no vmap around holds. */
static void usual(axes *a, const nb_tensor *x)
{
    const nb_spec *s = x->sharding;
    *a = (axes){.mesh = mesh_of(x), .count = 1};
    for (int k = 0; s && k < a->mesh->naxes; k++) {
        nb_axis full = nb_axis_full(a->mesh, k);
        if (s->partial.n ? nb_cut_has(&s->partial, full)
                         : !nb_lane_find(a->mesh->axis[k]))
            a->mesh_axes.at[a->mesh_axes.n++] = full;
    }
    a->count = nb_cut_count(&a->mesh_axes);
}

static bool axes_of(axes *a, const char *who, const nb_tensor *x, int n,
                    const char *const *names)
{
    if (n >= 0) return named(a, who, x, n, names);
    usual(a, x);
    return true;
}

/* An axis of a shard_map has its name twice: it is that of the mesh too. */
static bool is_manual(const char *name)
{
    int n;
    nb_lanes_open(&n);
    while (n-- > 0) {
        const char **both = nb_lane_names(n);
        for (int i = 0; i < 2; i++)
            if (both[i] && !strcmp(both[i], name)) return both[0] == both[1];
    }
    return false;
}

/* A value that no device differs in counts once a device where devices add up,
 * which is seldom meant. */
static bool check_varying(const char *who, const nb_tensor *x, int n,
                          const char *const *names)
{
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        const nb_lane *lane = nb_lane_find(names[i]);
        if (!lane || !is_manual(names[i]) || nb_lane_has(x, lane->id)) continue;
        ok = nb_warn("%s: no device along '%s' differs in the value, which is "
                     "counted %lld times: pvary says that this is meant",
                     who, names[i], (long long)nb_extent_get(lane->size));
    }
    return ok;
}

nb_tensor *nb_pvary(nb_tensor *x, int n, const char *const *names)
{
    for (int i = 0; x && i < n; i++) {
        const nb_lane *lane = nb_lane_named(names[i]);
        if (!lane) return NULL;
        if (nb_lane_has(x, lane->id)) continue;
        x = nb_hide(nb_show(x, 0, *lane), 0, lane->id);
    }
    return x;
}

static nb_tensor *reduce(const char *who, nb_tensor *x, nb_reduce kind,
                         const axes *a)
{
    if (!nb_blocks_check(who, x, &a->mesh_axes)) return NULL;
    for (int k = 0; k < a->nlanes; k++)
        x = nb_lanes_reduce(x, a->lane[k], kind);
    if (!x || !a->mesh_axes.n) return x;
    return nb_lay_settled(nb_blocks_reduce(x, &a->mesh_axes, kind),
                          &a->mesh_axes);
}

nb_tensor *nb_all_reduce(nb_tensor *x, const char *kind, int n,
                         const char *const *names)
{
    axes a;
    nb_reduce how;
    if (!x) return NULL;
    if (!nb_kind_find(kind, strlen(kind), &how) || how > NB_PROD)
        return nb_fail(
            NB_EVALUE,
            "all_reduce: reduce_op '%s' is not sum, max, min or prod", kind);
    if (!axes_of(&a, "all_reduce", x, n, names)) return NULL;
    bool adds = how == NB_SUM || how == NB_PROD;
    if (adds && !check_varying("all_reduce", x, n, names)) return NULL;
    return reduce("all_reduce", x, how, &a);
}

nb_tensor *nb_pmean(nb_tensor *x, int n, const char *const *names)
{
    axes a;
    if (!x || !axes_of(&a, "pmean", x, n, names)) return NULL;
    x = reduce("pmean", x, NB_SUM, &a);
    return a.count == 1 ? x : nb_div(x, nb_num((double)a.count));
}

nb_tensor *nb_gather_all_axes(nb_tensor *x)
{
    nb_spec s = {0};
    const nb_spec *was = x ? x->sharding : NULL;
    nb_lane lane[NB_MAX_LANES];
    int n = 0;
    if (!was) return x;
    for (int l = 0; l < x->nlanes; l++)
        if (was->dim[l].axes.n) lane[n++] = nb_tensor_lane(x)[l];
    for (int k = 0; k < n; k++)
        x = nb_show(x, 0, lane[k]);
    if (!x) return NULL;
    s.mesh = was->mesh;
    s.rank = x->rank;
    x = nb_lay_as(x, &s);
    for (int k = n - 1; k >= 0; k--)
        x = nb_hide(x, 0, lane[k].id);
    return x;
}

/* Dims that lose all axes, or one of the mesh. */
static nb_tensor *gather_dims(nb_tensor *x, int d, const axes *a)
{
    nb_spec s;
    if (!nb_seen(x, &s)) return x;
    for (int k = 0; k < s.rank; k++) {
        nb_cut *l = &s.dim[k].axes;
        if (d != NB_ALL_DIMS && k != d) continue;
        if (a->mesh_axes.n)
            nb_cut_take(l, &a->mesh_axes);
        else
            l->n = 0;
        if (!l->n && !s.dim[k].open) s.dim[k].priority = 0;
    }
    return nb_lay_as(x, &s);
}

nb_tensor *nb_all_gather(nb_tensor *x, int axis, const char *name, bool tiled)
{
    axes a;
    int d = axis;
    if (!x || !named(&a, "all_gather", x, name ? 1 : 0, &name)) return NULL;
    if (d != NB_ALL_DIMS || a.nlanes)
        d = nb_dim_find("all_gather", x->rank + (a.nlanes && !tiled), axis);
    if (d == -1) return NULL;
    return a.nlanes ? nb_lanes_gather(x, a.lane[0], d, tiled)
                    : gather_dims(x, d, &a);
}

/* The axes of a scatter: as named; those that split the dim; the usual. */
static bool scatter_axes(axes *a, const nb_tensor *x, int d, const char *name)
{
    nb_spec s;
    if (name) return named(a, "reduce_scatter", x, 1, &name);
    usual(a, x);
    if (!nb_seen(x, &s) || !s.dim[d].axes.n) return true;
    a->mesh_axes = s.dim[d].axes;
    a->count = nb_cut_count(&a->mesh_axes);
    return true;
}

/* The size of dim d of x, reduced over the axes, must be divisible too. */
static bool scatter_check(const nb_tensor *x, int d, const axes *a)
{
    nb_spec s;
    int64_t n = a->count;
    if (!nb_blocks_check("reduce_scatter", x, &a->mesh_axes)) return false;
    for (int i = 0; nb_seen(x, &s) && i < s.dim[d].axes.n; i++)
        if (nb_cut_has(&a->mesh_axes, s.dim[d].axes.at[i]))
            n *= s.dim[d].axes.at[i].size;
    return nb_dim_check("reduce_scatter", x, d, n);
}

/* The list of axes that dim d is split on afterwards: what else splits it, then
 * those of the scatter. */
static nb_tensor *scatter_dim(nb_tensor *x, int d, const nb_cut *over)
{
    nb_spec s;
    if (!x || !nb_seen(x, &s)) return x;
    nb_cut l = s.dim[d].axes;
    nb_cut_take(&l, over);
    for (int i = 0; i < over->n; i++)
        nb_cut_add(&l, over->at[i]);
    return nb_lay_dim(x, d, &l);
}

nb_tensor *nb_reduce_scatter(nb_tensor *x, int axis, const char *name)
{
    axes a;
    int d = x ? nb_dim_find("reduce_scatter", x->rank, axis) : -1;
    if (d < 0 || !scatter_axes(&a, x, d, name) || !scatter_check(x, d, &a))
        return NULL;
    if (name && !check_varying("reduce_scatter", x, 1, &name)) return NULL;
    if (a.nlanes) return nb_lanes_scatter(x, a.lane[0], d, true);
    return scatter_dim(nb_blocks_reduce(x, &a.mesh_axes, NB_SUM), d,
                       &a.mesh_axes);
}

nb_tensor *nb_pscatter(nb_tensor *x, int axis, const char *name)
{
    int d = x ? nb_dim_find("pscatter", x->rank, axis) : -1;
    const nb_lane *lane = d < 0 ? NULL : nb_lane_named(name);
    if (!lane || !nb_dim_check("pscatter", x, d, nb_extent_get(lane->size)))
        return NULL;
    if (nb_lane_has(x, lane->id))
        return nb_fail(NB_EVALUE,
                       "pscatter: the value differs along '%s' already: "
                       "reduce_scatter adds up, all_gather puts together",
                       name);
    return nb_lanes_scatter(x, *lane, d, false);
}

/* What splits concat, of the axes, splits `split`, within what does already. */
static nb_tensor *exchange_dims(nb_tensor *x, int split, int concat,
                                const axes *a)
{
    nb_spec s;
    if (!nb_seen(x, &s)) return x;
    nb_cut moved = {0}, *to = &s.dim[split].axes;
    for (int i = 0; i < s.dim[concat].axes.n; i++) {
        nb_axis k = s.dim[concat].axes.at[i];
        if (!a->mesh_axes.n || nb_cut_has(&a->mesh_axes, k))
            moved.at[moved.n++] = k;
    }
    if (split != concat)
        for (int i = 0; i < moved.n; i++)
            nb_cut_add(to, moved.at[i]);
    if (!nb_dim_check("all_to_all", x, split, nb_cut_count(to))) return NULL;
    if (split == concat) return x;
    nb_cut_take(&s.dim[concat].axes, &moved);
    if (!s.dim[concat].open) s.dim[concat].priority = 0;
    return nb_lay_as(x, &s);
}

static nb_tensor *exchange_lanes(nb_tensor *x, int split, int concat,
                                 nb_lane lane, bool tiled)
{
    int64_t n = nb_extent_get(lane.size);
    if (tiled && !nb_dim_check("all_to_all", x, split, n)) return NULL;
    if (!tiled && nb_size(x, split) != n)
        return nb_fail(NB_EVALUE,
                       "all_to_all: dim %d has %lld elements for %lld lanes",
                       split, (long long)nb_size(x, split), (long long)n);
    return nb_lanes_exchange(x, lane, split, concat, tiled);
}

nb_tensor *nb_all_to_all(nb_tensor *x, int split, int concat, const char *name,
                         bool tiled)
{
    axes a;
    if (!x || !named(&a, "all_to_all", x, name ? 1 : 0, &name)) return NULL;
    split = nb_dim_find("all_to_all", x->rank, split);
    concat = split < 0 ? -1 : nb_dim_find("all_to_all", x->rank, concat);
    if (concat < 0) return NULL;
    if (a.nlanes) return exchange_lanes(x, split, concat, a.lane[0], tiled);
    if (tiled) return exchange_dims(x, split, concat, &a);
    return nb_fail(NB_EVALUE,
                   "all_to_all: tiled is for axes of a mesh, not tiled for "
                   "those of a vmap");
}

/* ppermute */

/* The innermost vmap that has a name. */
static const nb_lane *any_named(void)
{
    int n;
    const nb_lane *all = nb_lanes_open(&n);
    while (n-- > 0)
        if (nb_lane_names(n)[0] || nb_lane_names(n)[1]) return &all[n];
    return NULL;
}

static nb_tensor *permute_lanes(nb_tensor *x, nb_lane lane, int n,
                                const int64_t (*pairs)[2])
{
    int64_t *from =
        nb_pairs_from("ppermute", "lane", n, pairs, nb_extent_get(lane.size));
    nb_tensor *y = from ? nb_lanes_permute(x, lane, from) : NULL;
    nb_free(from);
    return y;
}

/* From places along one axis to positions of the mesh. */
static int64_t *everywhere(const nb_mesh *m, int axis, int64_t *along)
{
    int64_t *from = along ? nb_alloc((size_t)m->ndevices * sizeof *from) : NULL;
    for (int p = 0; from && p < m->ndevices; p++) {
        int at = nb_mesh_coordinate(m, p, axis);
        from[p] = along[at] < 0 ? -1 : p + (along[at] - at) * m->stride[axis];
    }
    nb_free(along);
    return from;
}

static int64_t *positions(const axes *a, int n, const int64_t (*pairs)[2])
{
    if (!a->mesh) return nb_pairs_from("ppermute", "device", n, pairs, 1);
    if (!a->mesh_axes.n)
        return nb_pairs_from("ppermute", "device", n, pairs, a->mesh->ndevices);
    nb_axis along = a->mesh_axes.at[0];
    return everywhere(
        a->mesh, along.axis,
        nb_pairs_from("ppermute", "device", n, pairs, along.size));
}

nb_tensor *nb_ppermute(nb_tensor *x, int n, const int64_t (*pairs)[2],
                       const char *name)
{
    axes a;
    const nb_lane *lane = name ? NULL : any_named();
    if (!x || !named(&a, "ppermute", x, name ? 1 : 0, &name)) return NULL;
    if (lane || a.nlanes)
        return permute_lanes(x, lane ? *lane : a.lane[0], n, pairs);
    int64_t *from = positions(&a, n, pairs);
    nb_tensor *y =
        from ? nb_blocks_permute(nb_lay_settled(x, &a.mesh_axes), from) : NULL;
    nb_free(from);
    return y;
}

/* One for all */

nb_tensor *nb_pbroadcast(nb_tensor *x, int64_t root, const char *name)
{
    const nb_lane *lane = x ? nb_lane_named(name) : NULL;
    if (!lane) return NULL;
    if (root < 0 || root >= nb_extent_get(lane->size))
        return nb_fail(NB_EVALUE, "pbroadcast: no lane %lld of %lld",
                       (long long)root, (long long)nb_extent_get(lane->size));
    return nb_lane_has(x, lane->id) ? nb_lanes_get(x, *lane, root) : x;
}

static const nb_spec *on_axis(const char *who, const nb_mesh *m,
                              const char *name)
{
    nb_spec s = {.mesh = m, .rank = 1};
    int k = nb_mesh_axis_find(m, name);
    if (k < 0)
        return nb_fail(NB_EVALUE, "%s: mesh @%s has no axis '%s'", who, m->name,
                       name);
    nb_cut_add(&s.dim[0].axes, nb_axis_full(m, k));
    return nb_spec_intern(&s);
}

nb_tensor *nb_axis_index(const nb_mesh *m, const char *name)
{
    if (!name && any_open()) return nb_lane_index(NULL);
    if (!name)
        return nb_fail(NB_EVALUE, "axis_index: needs the name of an axis");
    if (!m || nb_lane_find(name)) return nb_lane_index(name);
    const nb_spec *s = on_axis("axis_index", m, name);
    if (!s) return NULL;
    return nb_lay(nb_iota(m->size[nb_mesh_axis_find(m, name)], NB_I32), s);
}

static nb_tensor *added_up(const nb_call *c, int i, nb_tensor *ct)
{
    const nb_spec *s = (const nb_spec *)(intptr_t)c->attr[0];
    (void)i;
    return nb_mul(ct, nb_num(s->mesh->ndevices));
}

nb_op nb_op_distributed_broadcast = {
    .name = "distributed_broadcast",
    .doc = "The value on every device, each of which counts to derivatives.",
    .params = "x, spec:int",
    .sig = "... -> ...",
    .kind = NB_LINEAR,
    .places = true,
    .view = nb_same_view,
    .transpose = added_up,
};

nb_tensor *nb_distributed_broadcast(nb_tensor *x, const nb_mesh *m)
{
    const nb_mesh *own = x ? mesh_of(x) : NULL;
    if (!m) m = own;
    if (!x || !m) return x;
    if (own && !nb_mesh_meets(own, m)) return NULL;
    const nb_spec *s = nb_spec_whole(m, x->rank, false);
    if (!s) return NULL;
    return nb_apply(&nb_op_distributed_broadcast, 1, &x, 1,
                    &(nb_value)NB_V_INT((intptr_t)s), NB_CALLER);
}

nb_tensor *nb_broadcast_on_mesh(nb_tensor *x, const nb_mesh *m, int root)
{
    if (x && !m) m = mesh_of(x);
    if (!x || !m) return x;
    if (root < 0 || root >= m->ndevices)
        return nb_fail(NB_EVALUE, "broadcast: mesh @%s has no device %d",
                       m->name, root);
    return nb_lay(x, nb_spec_whole(m, x->rank, false));
}

nb_tensor *nb_reshard_dim(nb_tensor *x, int dim, const nb_mesh *m,
                          const char *name)
{
    nb_spec s = {0};
    if (!x || !m) return NULL;
    const nb_spec *axis = on_axis("reshard", m, name);
    int d = axis ? nb_dim_find("reshard", x->rank, dim) : -1;
    if (d < 0) return NULL;
    if (mesh_of(x) == m)
        nb_seen(x, &s);
    else
        s = (nb_spec){.mesh = m, .rank = x->rank};
    nb_cut l = axis->dim[0].axes;
    const nb_cut *was = &s.dim[d].axes;
    if (nb_cut_prefix(&l, was)) return x;
    for (int k = 0; k < s.rank; k++)
        nb_cut_take(&s.dim[k].axes, &axis->dim[0].axes);
    nb_cut_take(&s.partial, &l);
    nb_cut_take(&s.replicated, &l);
    for (int i = 0; i < was->n; i++)
        nb_cut_add(&l, was->at[i]);
    s.dim[d].axes = l;
    return nb_size(x, d) > 1 ? nb_lay_as(x, &s) : x;
}
