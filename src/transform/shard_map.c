/* shard_map.c - a function on a mesh.
 *
 * Along a manual axis the function sees blocks: a dim that is split on it is
 * (devices, block), and the devices are the lanes of a vmap that lie on the
 * axis.  A value that no lane differs in is the same on all of them. */
#include "nabla/collective.h"

#include "shard/talk/seen.h"
#include "transform/func.h"

#include <string.h>

struct nb_manual {
    const nb_mesh *mesh;
    nb_cut axes; /* full ones */
    int id[NB_MESH_AXES];
    bool trusting;
};

static bool add(nb_manual *m, const char *name)
{
    int k = nb_mesh_axis_find(m->mesh, name);
    if (k < 0)
        return nb_fail(NB_EVALUE, "shard_map: mesh @%s has no axis '%s'",
                       m->mesh->name, name);
    for (int i = 0; i < m->axes.n; i++)
        if (m->axes.at[i].axis == k)
            return nb_fail(NB_EVALUE, "shard_map: axis '%s' is named twice",
                           name);
    if (nb_lane_find(name))
        return nb_fail(NB_EVALUE,
                       "shard_map: axis '%s' is that of a vmap or shard_map "
                       "around",
                       name);
    m->axes.at[m->axes.n++] = nb_axis_full(m->mesh, k);
    return true;
}

static bool begin(nb_manual *m, int n, const char *const *axes)
{
    int open = 0;
    for (int i = 0; i < n; i++)
        if (!add(m, axes[i])) return false;
    for (; open < n; open++) {
        m->id[open] = nb_lane_begin(m->axes.at[open].size, axes[open]);
        if (!m->id[open]) break;
        if (nb_lane_also(axes[open])) continue;
        nb_lane_end();
        break;
    }
    if (open == n) return true;
    while (open--)
        nb_lane_end();
    return false;
}

nb_manual *nb_manual_begin(const nb_mesh *mesh, int n, const char *const *axes)
{
    nb_manual *m = mesh ? nb_alloc_zero(sizeof *m) : NULL;
    if (!m) return NULL;
    m->mesh = mesh;
    if (begin(m, n, axes)) return m;
    nb_free(m);
    return NULL;
}

void nb_manual_trust(nb_manual *m)
{
    m->trusting = true;
}

void nb_manual_end(nb_manual *m)
{
    for (int i = 0; m && i < m->axes.n; i++)
        nb_lane_end();
}

void nb_manual_drop(nb_manual *m)
{
    nb_free(m);
}

/* Number of the manual axis that a is, -1: it is none of them. */
static int manual_at(const nb_manual *m, nb_axis a)
{
    for (int i = 0; i < m->axes.n; i++)
        if (m->axes.at[i].axis == a.axis) return i;
    return -1;
}

/* How many axes of a dim's list are manual: the first ones. */
static int count(const nb_manual *m, const nb_spec *s, int d)
{
    int n = 0;
    while (n < s->dim[d].axes.n && manual_at(m, s->dim[d].axes.at[n]) >= 0)
        n++;
    return n;
}

static bool check_dim(const nb_manual *m, const nb_spec *s, int d)
{
    const nb_cut *l = &s->dim[d].axes;
    for (int i = 0; i < l->n; i++) {
        int k = manual_at(m, l->at[i]);
        const char *name = m->mesh->axis[l->at[i].axis];
        if (k < 0 && nb_lane_find(name))
            return nb_fail(NB_EVALUE,
                           "shard_map: axis '%s' is that of a vmap or "
                           "shard_map around, a spec inside cannot name it",
                           name);
        if (k >= 0 && !nb_axis_equal(m->axes.at[k], l->at[i]))
            return nb_fail(NB_EVALUE,
                           "shard_map: a part of the manual axis '%s' splits "
                           "dim %d",
                           name, d);
        if (k >= 0 && i >= count(m, s, d))
            return nb_fail(NB_EVALUE,
                           "shard_map: manual axes must come first in a dim, "
                           "'%s' in dim %d does not",
                           name, d);
    }
    return true;
}

static bool check_spec(const nb_manual *m, const nb_spec *s, int rank)
{
    if (s->mesh != m->mesh)
        return nb_fail(NB_EVALUE, "shard_map: a spec on mesh @%s, not on @%s",
                       s->mesh->name, m->mesh->name);
    if (s->rank != rank)
        return nb_fail(NB_EVALUE,
                       "shard_map: a spec of %d dims for a tensor of %d dims",
                       s->rank, rank);
    for (int i = 0; i < m->axes.n; i++)
        if (nb_cut_has(&s->partial, m->axes.at[i]) ||
            nb_cut_has(&s->replicated, m->axes.at[i]))
            return nb_fail(NB_EVALUE,
                           "shard_map: the manual axis '%s' can only split "
                           "dims",
                           m->mesh->axis[m->axes.at[i].axis]);
    for (int d = 0; d < s->rank; d++)
        if (!check_dim(m, s, d)) return false;
    return true;
}

/* Dim d, of the manual axes a[0] .. a[n-1] and the rest, without the former. */
static nb_tensor *enter_dim(const nb_manual *m, nb_tensor *x, int d,
                            const nb_axis *a, int n)
{
    for (int i = 0; i < n; i++)
        x = nb_dim_cut(x, d + i, a[i].size);
    for (int i = 0; i < n; i++) {
        nb_cut one = {.n = 1, .at = {a[i]}};
        x = nb_lay_dim(x, d, &one);
        x = nb_lane_hide(x, d, m->id[manual_at(m, a[i])]);
    }
    return x;
}

nb_tensor *nb_manual_in(nb_manual *m, nb_tensor *x, const nb_spec *s)
{
    if (!m || !x) return NULL;
    if (!s) s = nb_spec_whole(m->mesh, x->rank, true);
    if (!s || !check_spec(m, s, x->rank)) return NULL;
    for (int d = 0; d < s->rank; d++) {
        int64_t blocks = 1;
        for (int i = 0; i < count(m, s, d); i++)
            blocks *= s->dim[d].axes.at[i].size;
        if (!nb_dim_check("shard_map", x, d, blocks)) return NULL;
    }
    x = nb_lay_as(x, s);
    for (int d = 0; d < s->rank; d++)
        x = enter_dim(m, x, d, s->dim[d].axes.at, count(m, s, d));
    return x;
}

/* Manual axes that y varies along must be named by its spec. */
static bool check_varying(const nb_manual *m, const nb_tensor *y,
                          const nb_spec *s)
{
    for (int k = 0; !m->trusting && k < m->axes.n; k++) {
        bool named = false;
        for (int d = 0; d < s->rank; d++)
            named = named || nb_cut_has(&s->dim[d].axes, m->axes.at[k]);
        if (named || m->axes.at[k].size == 1 || !nb_lane_has(y, m->id[k]))
            continue;
        return nb_fail(NB_EVALUE,
                       "shard_map: out_specs omits an axis along which the "
                       "value varies, '%s'",
                       m->mesh->axis[m->axes.at[k].axis]);
    }
    return true;
}

/* The lanes of the manual axes of dim d in front of it, and all of them one.
 * The innermost goes first. */
static nb_tensor *leave_dim(const nb_manual *m, nb_tensor *y, int d,
                            const nb_axis *a, int n)
{
    for (int i = n - 1; i >= 0; i--)
        y = nb_dim_fold(
            nb_lane_show(y, d, m->id[manual_at(m, a[i])], a[i].size), d);
    return y;
}

static nb_tensor *leave(const nb_manual *m, nb_tensor *y, const nb_spec *s)
{
    for (int d = 0; y && d < s->rank; d++)
        y = leave_dim(m, y, d, s->dim[d].axes.at, count(m, s, d));
    for (int k = 0; y && k < m->axes.n; k++)
        y = nb_lane_show(y, NB_UNMAPPED, m->id[k], m->axes.at[k].size);
    return y;
}

nb_tensor *nb_manual_out(nb_manual *m, nb_tensor *y, const nb_spec *s)
{
    const nb_spec *given = s;
    if (!m || !y) return NULL;
    if (!s) s = nb_spec_whole(m->mesh, y->rank, true);
    if (!s || !check_spec(m, s, y->rank) || !check_varying(m, y, s))
        return NULL;
    y = leave(m, y, s);
    return y && given ? nb_lay_as(y, s) : y;
}

/* The function */

typedef struct map {
    nb_func *of;
    const nb_mesh *mesh;
    int nin, nout, nmanual;
    bool unsafe;
    const char *manual[NB_MESH_AXES];
    const nb_spec *spec[];
} map;

static void release(void *ctx)
{
    map *m = ctx;
    nb_func_drop(m->of);
    nb_free(m);
}

static const nb_spec *spec_at(int n, const nb_spec *const *specs, int i)
{
    return n == 0 ? NULL : specs[i < n ? i : n - 1];
}

static nb_status placed_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    const map *m = ctx;
    nb_tensor **in = nb_array(nx);
    bool ok = in;
    for (int i = 0; ok && i < nx; i++) {
        const nb_spec *s = spec_at(m->nin, m->spec, i);
        ok = (in[i] = s ? nb_reshard(x[i], s) : x[i]) != NULL;
    }
    ok = ok && nb_run(m->of, nx, in, ny, y);
    for (int k = 0; ok && k < *ny; k++) {
        const nb_spec *s = spec_at(m->nout, m->spec + m->nin, k);
        if (s) ok = (y[k] = nb_reshard(y[k], s)) != NULL;
    }
    nb_free(in);
    return NB_STATUS(ok);
}

static nb_status manual_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                             nb_tensor **y)
{
    const map *m = ctx;
    nb_tensor **in = nb_array(nx);
    nb_manual *manual =
        in ? nb_manual_begin(m->mesh, m->nmanual, m->manual) : NULL;
    bool ok = manual;
    if (ok && m->unsafe) nb_manual_trust(manual);
    for (int i = 0; ok && i < nx; i++) {
        const nb_spec *s = spec_at(m->nin, m->spec, i);
        ok = (in[i] = nb_manual_in(manual, x[i], s)) != NULL;
    }
    ok = ok && nb_run(m->of, nx, in, ny, y);
    nb_manual_end(manual);
    for (int k = 0; ok && k < *ny; k++) {
        const nb_spec *s = spec_at(m->nout, m->spec + m->nin, k);
        ok = (y[k] = nb_manual_out(manual, y[k], s)) != NULL;
    }
    nb_manual_drop(manual);
    nb_free(in);
    return NB_STATUS(ok);
}

static bool check(const nb_mesh *mesh, const nb_shard_map_options *o)
{
    if (!mesh) return nb_fail(NB_EVALUE, "shard_map: needs a mesh");
    if (o->nmanual > NB_MESH_AXES)
        return nb_fail(NB_EVALUE, "shard_map: %d manual axes", o->nmanual);
    if (o->nmanual && !o->nout)
        return nb_fail(NB_EVALUE, "shard_map: manual axes need out_specs");
    return true;
}

nb_func *nb_shard_map(nb_func *f, const nb_mesh *mesh,
                      const nb_shard_map_options *o)
{
    static const nb_shard_map_options none;
    if (!o) o = &none;
    if (!f || !check(mesh, o)) return NULL;
    size_t n = (size_t)(o->nin + o->nout);
    map *m = nb_alloc_zero(sizeof *m + n * sizeof m->spec[0]);
    if (!m) return NULL;
    m->mesh = mesh;
    m->nin = o->nin;
    m->nout = o->nout;
    m->nmanual = o->nmanual;
    m->unsafe = o->unsafe;
    for (int i = 0; i < o->nin; i++)
        m->spec[i] = o->in_specs[i];
    for (int k = 0; k < o->nout; k++)
        m->spec[o->nin + k] = o->out_specs[k];
    for (int i = 0; i < o->nmanual; i++) {
        m->manual[i] = nb_intern(o->manual[i], strlen(o->manual[i]));
        if (!m->manual[i]) return nb_free(m), NULL;
    }
    m->of = nb_func_keep(f);
    nb_body *body = o->nmanual ? manual_body : placed_body;
    return nb_func_named(nb_func_owning(body, m, release), "shard_map");
}
