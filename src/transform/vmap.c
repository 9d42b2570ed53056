/* vmap.c - mapping a function over an axis: hide it on the way in, show it on
 * the way out. */
#include "transform/func.h"

#include "core/lanes.h"
#include "shard/layout/spec.h"

#include <string.h>

/* Numbers of a vmap: nin, nout, size in two halves, then the axes; before them
 * pointers in two halves: the names, which are interned, and the mesh. */
enum {
    NIN,
    NOUT,
    SIZE,
    NAME = SIZE + 2,
    SPMD = NAME + 2,
    MESH = SPMD + 2,
    AXES = MESH + 2
};

static int64_t join(const int32_t *half)
{
    return (int64_t)((uint64_t)(uint32_t)half[0] | (uint64_t)(uint32_t)half[1]
                                                       << 32);
}

static void cut(int64_t whole, int *half)
{
    half[0] = (int)(uint32_t)whole;
    half[1] = (int)(uint32_t)((uint64_t)whole >> 32);
}

static const void *pointer(const nb_made *m, int at)
{
    return (const void *)(intptr_t)join(m->argument + at);
}

static int axis_at(int n, const int32_t *axes, int i)
{
    return n == 0 ? 0 : axes[i < n ? i : n - 1];
}

static bool agree(const nb_tensor *x, int axis, int i, int64_t *size)
{
    int rank = nb_rank(x);
    if (axis < -rank || axis >= rank)
        return nb_fail(NB_EVALUE,
                       "vmap: argument %d has rank %d, no axis %d to map", i,
                       rank, axis);
    int64_t n = nb_size(x, axis);
    if (*size >= 0 && n != *size)
        return nb_fail(NB_EVALUE,
                       "vmap: argument %d has %lld lanes, others %lld", i,
                       (long long)n, (long long)*size);
    *size = n;
    return true;
}

static bool lanes(const nb_made *m, int nx, nb_tensor *const *x, int64_t *size)
{
    *size = join(m->argument + SIZE);
    if (*size == 0) *size = -1; /* not said */
    for (int i = 0; i < nx; i++) {
        int axis = axis_at(m->argument[NIN], m->argument + AXES, i);
        if (axis == NB_UNMAPPED) continue;
        if (!agree(x[i], axis, i, size)) return false;
    }
    return *size >= 0 ||
           nb_fail(NB_EVALUE,
                   "vmap: no argument is mapped and no axis_size is given");
}

static bool show(const nb_made *m, int ny, nb_tensor **y, int id, int64_t size)
{
    const int32_t *axes = m->argument + AXES + m->argument[NIN];
    for (int k = 0; k < ny; k++) {
        int axis = axis_at(m->argument[NOUT], axes, k), rank = nb_rank(y[k]);
        if (axis == NB_UNMAPPED && nb_lane_has(y[k], id))
            return nb_fail(NB_EVALUE,
                           "vmap: result %d differs from lane to lane, its "
                           "out_axes must be an axis",
                           k);
        if (axis != NB_UNMAPPED && (axis < -rank - 1 || axis > rank))
            return nb_fail(NB_EVALUE,
                           "vmap: result %d has rank %d, no place for an axis "
                           "%d",
                           k, rank, axis);
        y[k] = nb_lane_show(y[k], axis, id, size);
        if (!y[k]) return false;
    }
    return true;
}

bool nb_spmd_mesh(const nb_mesh *m, const char *axis, int n,
                  nb_tensor *const *x, const nb_mesh **found)
{
    for (int i = 0; !m && i < n; i++)
        if (x[i]->sharding) m = nb_spec_mesh(x[i]->sharding);
    *found = m;
    return !m || nb_mesh_axis_find(m, axis) >= 0 ||
           nb_fail(NB_EVALUE, "vmap: mesh @%s has no axis '%s'",
                   nb_mesh_name(m), axis);
}

/* The mesh whose axis the lanes lie on; none is no error. */
static bool mesh_of(const nb_made *m, int nx, nb_tensor *const *x,
                    const nb_mesh **mesh)
{
    const char *axis = pointer(m, SPMD);
    *mesh = NULL;
    return !axis || nb_spmd_mesh(pointer(m, MESH), axis, nx, x, mesh);
}

static int begin(const nb_made *m, int64_t size)
{
    const char *name = pointer(m, NAME), *spmd = pointer(m, SPMD);
    int id = nb_lane_begin(size, name);
    if (!id || !spmd || nb_lane_also(spmd)) return id;
    nb_lane_end();
    return 0;
}

/* The axis of an argument that is mapped, on the mesh, and hidden. */
static nb_tensor *enter(const nb_made *m, const nb_mesh *mesh, nb_tensor *x,
                        int axis, int id)
{
    if (axis == NB_UNMAPPED) return x;
    if (mesh) x = nb_reshard_dim(x, axis, mesh, pointer(m, SPMD));
    return nb_lane_hide(x, axis, id);
}

static bool spread_out(const nb_made *m, const nb_mesh *mesh, int ny,
                       nb_tensor **y)
{
    const int32_t *axes = m->argument + AXES + m->argument[NIN];
    for (int k = 0; mesh && k < ny; k++) {
        int axis = axis_at(m->argument[NOUT], axes, k);
        if (axis == NB_UNMAPPED) continue;
        y[k] = nb_reshard_dim(y[k], axis, mesh, pointer(m, SPMD));
        if (!y[k]) return false;
    }
    return true;
}

static nb_status vmap_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const nb_made *m = ctx;
    int64_t size;
    const nb_mesh *mesh;
    nb_tensor **in = nb_array(nx);
    bool ok = in && lanes(m, nx, x, &size) && mesh_of(m, nx, x, &mesh);
    int id = ok ? begin(m, size) : 0;
    ok = id;
    for (int i = 0; ok && i < nx; i++) {
        int axis = axis_at(m->argument[NIN], m->argument + AXES, i);
        ok = (in[i] = enter(m, mesh, x[i], axis, id)) != NULL;
    }
    ok = ok && nb_run(m->of, nx, in, ny, y);
    if (id) nb_lane_end();
    ok = ok && show(m, *ny, y, id, size) && spread_out(m, mesh, *ny, y);
    nb_free(in);
    return NB_STATUS(ok);
}

static bool set_name(const char *name, int *half)
{
    const char *kept = name ? nb_intern(name, strlen(name)) : NULL;
    cut((int64_t)(intptr_t)kept, half);
    return kept || !name;
}

nb_func *nb_vmap(nb_func *f, const nb_vmap_options *o)
{
    static const nb_vmap_options none;
    if (!o) o = &none;
    int n = AXES + o->nin + o->nout;
    int *number = nb_alloc_zero((size_t)n * sizeof *number);
    if (!number || !set_name(o->axis_name, number + NAME) ||
        !set_name(o->spmd_axis_name, number + SPMD))
        return nb_free(number), NULL;
    number[NIN] = o->nin;
    number[NOUT] = o->nout;
    cut(o->axis_size, number + SIZE);
    cut((int64_t)(intptr_t)o->mesh, number + MESH);
    for (int i = 0; i < o->nin; i++)
        number[AXES + i] = o->in_axes[i];
    for (int i = 0; i < o->nout; i++)
        number[AXES + o->nin + i] = o->out_axes[i];
    nb_func *g = nb_func_named(nb_func_made(f, vmap_body, n, number), "vmap");
    nb_free(number);
    return g;
}

/* By hand */

int nb_lane_begin(int64_t size, const char *name)
{
    if (size < 0)
        return nb_fail(NB_EVALUE, "vmap: %lld lanes", (long long)size), 0;
    const char *kept = name ? nb_intern(name, strlen(name)) : NULL;
    return name && !kept ? 0 : nb_lane_open(nb_extent_of(size), kept);
}

bool nb_lane_also(const char *name)
{
    int n;
    nb_lanes_open(&n);
    if (!n) return nb_fail(NB_EVALUE, "no vmap is open");
    return (nb_lane_names(n - 1)[1] = nb_intern(name, strlen(name)));
}

bool nb_lane_at(int k, nb_open_lane *out)
{
    int n;
    const nb_lane *all = nb_lanes_open(&n);
    if (k < 0 || k >= n) return false;
    *out = (nb_open_lane){.id = all[k].id,
                          .size = nb_extent_get(all[k].size),
                          .name = {nb_lane_names(k)[0], nb_lane_names(k)[1]}};
    return true;
}

void nb_lane_end(void)
{
    nb_lane_close();
}

nb_tensor *nb_lane_hide(nb_tensor *x, int axis, int lane)
{
    return nb_hide(x, axis, lane);
}

/* Unmapped: a value that is the same in all lanes, once. */
nb_tensor *nb_lane_show(nb_tensor *x, int axis, int id, int64_t size)
{
    nb_lane lane = {.id = id, .size = nb_extent_of(size)};
    if (axis != NB_UNMAPPED) return nb_show(x, axis, lane);
    for (int l = 0; x && l < x->nlanes; l++)
        if (nb_tensor_lane(x)[l].id == id)
            return nb_get(nb_show(x, 0, lane), 1, (nb_key[]){NB_AT(0)});
    return x;
}

bool nb_lane_has(const nb_tensor *x, int lane)
{
    for (int l = 0; x && l < x->nlanes; l++)
        if (nb_tensor_lane(x)[l].id == lane && !nb_tensor_lane(x)[l].thin)
            return true;
    return false;
}
