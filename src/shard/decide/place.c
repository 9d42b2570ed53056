/* place.c - how results lie, said at the call; and reshard, which says it
 * itself. */
#include "shard/decide/place.h"

#include "core/lanes.h"
#include "shard/decide/factors.h"
#include "shard/decide/resolve.h"
#include "shard/plan/plan.h"

#include <string.h>

bool nb_same_view(const nb_call *c, const nb_layout *in, nb_layout *out)
{
    (void)c;
    memcpy(out->stride, in->stride, sizeof out->stride);
    return true;
}

/* Wherever a value lies, it is the same value: so are its derivatives. */
static nb_tensor *same_transpose(const nb_call *c, int i, nb_tensor *ct)
{
    (void)c, (void)i;
    return ct;
}

nb_op nb_op_reshard = {
    .name = "reshard",
    .doc = "The same value, laid out over devices another way.",
    .params = "x, spec:int",
    .sig = "... -> ...",
    .kind = NB_LINEAR,
    .places = true,
    .view = nb_same_view,
    .transpose = same_transpose,
};

nb_op nb_op_constrain = {
    .name = "constrain",
    .doc = "The same value, which is to lie so where a solver decides.",
    .params = "x, spec:int",
    .sig = "... -> ...",
    .kind = NB_LINEAR,
    .places = true,
    .asks = true,
    .view = nb_same_view,
    .transpose = same_transpose,
};

static bool has_axis(const nb_spec *s, nb_axis a)
{
    bool found = nb_cut_has(&s->partial, a) || nb_cut_has(&s->replicated, a);
    for (int d = 0; d < s->rank; d++)
        found = found || nb_cut_has(&s->dim[d].axes, a);
    return found;
}

/* Lanes keep the axes that the spec does not use itself. */
static const nb_spec *with_lanes(const nb_tensor *x, const nb_spec *visible)
{
    const nb_spec *was = x->sharding;
    nb_spec s;
    if (!x->nlanes) return visible;
    memset(&s, 0, sizeof s);
    s.mesh = visible->mesh;
    s.rank = x->nlanes + x->rank;
    s.replicated = visible->replicated;
    s.partial = visible->partial;
    s.kind = visible->kind;
    for (int d = 0; d < x->rank; d++)
        s.dim[x->nlanes + d] = visible->dim[d];
    for (int l = 0; l < x->nlanes; l++) {
        const nb_cut *a = was ? &was->dim[l].axes : NULL;
        for (int i = 0; a && was->mesh == s.mesh && i < a->n; i++)
            if (!has_axis(visible, a->at[i]))
                nb_cut_add(&s.dim[l].axes, a->at[i]);
    }
    return nb_spec_intern(&s);
}

/* All of what x will lie as: a spec may be about its lanes too. */
static const nb_spec *target(const nb_tensor *x, const nb_spec *s)
{
    return s->rank == x->rank ? with_lanes(x, s) : s;
}

const nb_spec *nb_call_target(const nb_call *c)
{
    return target(c->in[0], (const nb_spec *)(intptr_t)c->attr[0]);
}

/* A tensor on a mesh is said to be where the first of its devices here is. */
static void be_there(nb_tensor *y, const nb_spec *s)
{
    y->device = (uint8_t)nb_mesh_home(s->mesh);
}

static bool place_results(const nb_call *c, int n, nb_tensor *const *y)
{
    nb_call call = *c;
    if (c->op->lands) return true; /* all of it goes to one device */
    if (c->op->places) {
        y[0]->sharding = c->op->asks ? c->in[0]->sharding : nb_call_target(c);
        if (y[0]->sharding) be_there(y[0], y[0]->sharding);
        return y[0]->sharding;
    }
    call.out = n ? y[0] : NULL;
    const nb_decision *d = nb_decide(&call, n, y);
    for (int k = 0; d && k < n; k++) {
        y[k]->sharding = d->give[k];
        be_there(y[k], d->give[k]);
    }
    if (d && n && y[0]->op == &nb_op_part) nb_tensor_in(y[0])[0]->sharding = d;
    return d;
}

static const void *part_sharding(const nb_tensor *all, int k)
{
    return ((const nb_decision *)all->sharding)->give[k];
}

bool (*const nb_sharder)(const nb_call *c, int n,
                         nb_tensor *const *y) = place_results;
const void *(*const nb_part_sharding)(const nb_tensor *all,
                                      int k) = part_sharding;

/* Of the visible dims of x: what is pending is not asked of others. */
static nb_tensor *lay_like(nb_tensor *y, const nb_tensor *x)
{
    const nb_spec *of = x->sharding, *own = y->sharding;
    nb_spec s;
    if (own && y->nlanes == x->nlanes && nb_spec_same_layout(own, of)) return y;
    memset(&s, 0, sizeof s);
    s.mesh = of->mesh;
    s.rank = x->rank;
    for (int d = 0; d < x->rank; d++)
        s.dim[d].axes = of->dim[x->nlanes + d].axes;
    return nb_lay(y, nb_spec_intern(&s));
}

nb_tensor *(*const nb_layer)(nb_tensor *y, const nb_tensor *x) = lay_like;

const nb_spec *nb_sharding(const nb_tensor *x)
{
    return x ? x->sharding : NULL;
}

/* An axis that a vmap around lies on is not there inside it. */
static bool is_free(const nb_spec *s)
{
    int n;
    nb_lanes_open(&n);
    for (int k = 0; k < n; k++) {
        const char *name = nb_lane_names(k)[1];
        int axis = name ? nb_mesh_axis_find(s->mesh, name) : -1;
        if (axis >= 0 && has_axis(s, nb_axis_full(s->mesh, axis)))
            return nb_fail(NB_EVALUE,
                           "reshard: axis '%s' is that of a vmap or shard_map "
                           "around, a spec inside cannot name it",
                           name);
    }
    return true;
}

nb_tensor *nb_reshard_like(nb_tensor *y, const nb_tensor *x)
{
    return x ? nb_laid_like(y, x) : NULL;
}

/* Whether the spec is about hidden axes too. */
static bool is_stored(const nb_tensor *x, const nb_spec *s)
{
    return x->nlanes && s->rank == x->nlanes + x->rank;
}

/* The spec as it is for x. */
static const nb_spec *fit(const nb_tensor *x, const nb_spec *spec)
{
    int64_t size[NB_MAX_DIMS];
    if (!x || !spec || !is_free(spec)) return NULL;
    int n = nb_stored_sizes(x, size), skip = is_stored(x, spec) ? 0 : x->nlanes;
    return nb_spec_fit(spec, n - skip, size + skip);
}

nb_tensor *nb_reshard(nb_tensor *x, const nb_spec *spec)
{
    return nb_lay(x, fit(x, spec));
}

nb_tensor *nb_constrain(nb_tensor *x, const nb_spec *spec)
{
    spec = fit(x, spec);
    if (!spec) return NULL;
    if (spec->partial.n)
        return nb_fail(NB_EVALUE, "constrain: a reduction is pending in the "
                                  "sharding, a constraint says how a value "
                                  "lies");
    return nb_apply(&nb_op_constrain, 1, &x, 1,
                    &(nb_value)NB_V_INT((intptr_t)spec), NB_CALLER);
}

nb_tensor *nb_pin(nb_tensor *x, const nb_spec *spec)
{
    return nb_apply(&nb_op_reshard, 1, &x, 1,
                    &(nb_value)NB_V_INT((intptr_t)spec), NB_CALLER);
}

nb_tensor *nb_lay(nb_tensor *x, const nb_spec *spec)
{
    if (!x || !spec) return NULL;
    if (spec->rank != x->rank && !is_stored(x, spec))
        return nb_fail(NB_EVALUE,
                       "reshard: the sharding has %d dims, the tensor %d",
                       spec->rank, x->rank);
    const nb_spec *was = x->sharding;
    if (was && !nb_mesh_meets(was->mesh, spec->mesh)) return NULL;
    if (!was && !nb_mesh_checker(spec->mesh)) return NULL;
    return was && was == target(x, spec) ? x : nb_pin(x, spec);
}
