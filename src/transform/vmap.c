/* vmap.c - mapping a function over an axis: hide it on the way in, show it on
 * the way out.  And talking between lanes: an ordinary op of what is shown. */
#include "transform/func.h"

#include "core/lanes.h"

#include <string.h>

/* Numbers of a vmap: nin, nout, size in two halves, then the axes; the name is
 * interned behind them in two halves. */
enum { NIN, NOUT, SIZE_LO, SIZE_HI, NAME_LO, NAME_HI, AXES };

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
    *size = join(m->argument + SIZE_LO);
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

static nb_status vmap_body(void *ctx, int nx, nb_tensor *const *x, int *ny,
                           nb_tensor **y)
{
    const nb_made *m = ctx;
    int64_t size;
    nb_tensor **in = nb_array(nx);
    bool ok = in && lanes(m, nx, x, &size);
    int id = ok ? nb_lane_begin(
                      size, (const char *)(intptr_t)join(m->argument + NAME_LO))
                : 0;
    ok = id;
    for (int i = 0; ok && i < nx; i++) {
        int axis = axis_at(m->argument[NIN], m->argument + AXES, i);
        in[i] = axis == NB_UNMAPPED ? x[i] : nb_lane_hide(x[i], axis, id);
        ok = in[i];
    }
    ok = ok && nb_run(m->of, nx, in, ny, y);
    if (id) nb_lane_end();
    ok = ok && show(m, *ny, y, id, size);
    nb_free(in);
    return NB_STATUS(ok);
}

nb_func *nb_vmap(nb_func *f, const nb_vmap_options *o)
{
    static const nb_vmap_options none;
    if (!o) o = &none;
    int n = AXES + o->nin + o->nout;
    int *number = nb_alloc_zero((size_t)n * sizeof *number);
    const char *name =
        o->axis_name ? nb_intern(o->axis_name, strlen(o->axis_name)) : NULL;
    if (!number || (o->axis_name && !name)) return nb_free(number), NULL;
    number[NIN] = o->nin;
    number[NOUT] = o->nout;
    cut(o->axis_size, number + SIZE_LO);
    cut((int64_t)(intptr_t)name, number + NAME_LO);
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

/* Between lanes */

static const nb_lane *open_lane(const char *name)
{
    int n;
    const nb_lane *all = nb_lanes_open(&n);
    if (name) return nb_lane_named(name);
    return n ? &all[n - 1] : nb_fail(NB_EVALUE, "no vmap is open");
}

typedef nb_tensor *reduction(nb_tensor *x, int n, const int64_t *axes,
                             bool keepdims);

static nb_tensor *over_lanes(nb_tensor *x, const char *name, reduction *f)
{
    const nb_lane *lane = open_lane(name);
    return lane ? f(nb_show(x, 0, *lane), 1, (int64_t[]){0}, false) : NULL;
}

nb_tensor *nb_lane_sum(nb_tensor *x, const char *name)
{
    return over_lanes(x, name, nb_reduce_sum);
}

nb_tensor *nb_lane_mean(nb_tensor *x, const char *name)
{
    return over_lanes(x, name, nb_mean);
}

nb_tensor *nb_lane_max(nb_tensor *x, const char *name)
{
    return over_lanes(x, name, nb_reduce_max);
}

nb_tensor *nb_lane_min(nb_tensor *x, const char *name)
{
    return over_lanes(x, name, nb_reduce_min);
}

nb_tensor *nb_lane_index(const char *name)
{
    const nb_lane *lane = open_lane(name);
    if (!lane) return NULL;
    return nb_hide(nb_iota(nb_extent_get(lane->size), NB_I32), 0, lane->id);
}

/* Lane dst takes the value of lane src; lanes that no pair names get zero. */
nb_tensor *nb_lane_permute(nb_tensor *x, const char *name, int n,
                           const int64_t (*pairs)[2])
{
    const nb_lane *lane = open_lane(name);
    if (!lane || !x) return NULL;
    int64_t size = nb_extent_get(lane->size);
    int64_t *from = nb_alloc((size_t)(size + 1) * sizeof *from);
    bool ok = from;
    for (int64_t i = 0; ok && i < size; i++)
        from[i] = size; /* a row of zeros behind the last */
    for (int k = 0; ok && k < n; k++) {
        int64_t src = pairs[k][0], dst = pairs[k][1];
        ok = src >= 0 && src < size && dst >= 0 && dst < size;
        if (!ok)
            nb_fail(NB_EVALUE, "permute: pair (%lld, %lld) of %lld lanes",
                    (long long)src, (long long)dst, (long long)size);
        else if (from[dst] != size)
            ok = nb_fail(NB_EVALUE, "permute: lane %lld is a target twice",
                         (long long)dst);
        else
            from[dst] = src;
    }
    int64_t padding[2 * NB_MAX_RANK] = {0, 1};
    nb_tensor *index = ok ? nb_constant(NB_I64, 1, &size, from) : NULL;
    nb_tensor *rows = ok ? nb_pad(nb_show(x, 0, *lane), padding, 0) : NULL;
    nb_free(from);
    return nb_hide(nb_gather(rows, index, 0), 0, lane->id);
}
