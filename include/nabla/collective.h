/* nabla/collective.h - values that meet: those of devices along mesh axes, and
 * those of lanes along the axis of a vmap.
 *
 * A collective names an axis.  If a vmap of that name is open (axis_name or
 * spmd_axis_name; or a shard_map, whose manual axes are such), every lane has a
 * value of its own, of the shape that it sees, and the collective is algebra
 * over the lanes.  Else the name is an axis of the mesh that the tensor lies
 * on, and what meets are blocks: a tensor of 8 elements that is split on an axis
 * of size 2 has two blocks of 4, and their sum has 4 elements.  A tensor that
 * is not split on the axis counts once a device.  Where no axis is named, a
 * tensor that lies on no mesh is on one device.
 *
 * All are made of ordinary ops, and have derivatives and lanes as those do. */
#ifndef NABLA_COLLECTIVE_H
#define NABLA_COLLECTIVE_H

#include "nabla/shard.h"
#include "nabla/transform.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Without a name: the dim (NB_ALL_DIMS: every dim) is whole on each device, the
 * same value.  With that of a mesh axis: the dim is not split on it.  With that
 * of a vmap: the values of all lanes, one behind the other along the axis if
 * tiled, else along a new one; no lane differs in that. */
#define NB_ALL_DIMS INT32_MIN
NB_API nb_tensor *nb_all_gather(nb_tensor *x, int axis, const char *name,
                                bool tiled);

/* The same value, all of it on each device. */
NB_API nb_tensor *nb_gather_all_axes(nb_tensor *x);

/* The sum ("sum"), "max", "min" or "prod" over the n axes named; n < 0: over
 * those that a reduction is pending on, which settles it, or if there are none
 * over all devices.  A value that no device differs in along a manual axis is
 * counted as often as there are devices, with a warning where that matters. */
NB_API nb_tensor *nb_all_reduce(nb_tensor *x, const char *kind, int n,
                                const char *const *names);

/* x as a value that may differ along the n axes named, of vmaps or manual. */
NB_API nb_tensor *nb_pvary(nb_tensor *x, int n, const char *const *names);

/* The sum, divided by how many were added up. */
NB_API nb_tensor *nb_pmean(nb_tensor *x, int n, const char *const *names);

/* The sum, of which each device or lane gets its block along the axis.  Without
 * a name: over the axes that split it; if there are none, as nb_all_reduce. */
NB_API nb_tensor *nb_reduce_scatter(nb_tensor *x, int axis, const char *name);

/* Of a value that is the same for all, each lane its block along the axis. */
NB_API nb_tensor *nb_pscatter(nb_tensor *x, int axis, const char *name);

/* Each gets its block along `split` of all values, one behind the other along
 * `concat`.  Of a tensor on a mesh the value is the same: what split the one dim
 * splits the other.  Not tiled, for lanes only: split has as many elements as
 * there are lanes and goes, concat is new. */
NB_API nb_tensor *nb_all_to_all(nb_tensor *x, int split, int concat,
                                const char *name, bool tiled);

/* Of each pair the second gets the value of the first; who is no second gets
 * zero.  Without a name: along the innermost vmap that has one, else among the
 * devices of the mesh, by position. */
NB_API nb_tensor *nb_ppermute(nb_tensor *x, int n, const int64_t (*pairs)[2],
                              const char *name);

/* The value that one lane has, for all. */
NB_API nb_tensor *nb_pbroadcast(nb_tensor *x, int64_t root, const char *name);

/* Where one is along the axis, int32: of no dims in a vmap of that name, else a
 * vector over the axis of the mesh, split on it. */
NB_API nb_tensor *nb_axis_index(const nb_mesh *m, const char *name);

/* x, all of it on each device of m (NULL: of x's own mesh).  To a derivative,
 * nb_distributed_broadcast is as many values as there are devices: what flows
 * back is added up.  root is a position; every device has the value already. */
NB_API nb_tensor *nb_distributed_broadcast(nb_tensor *x, const nb_mesh *m);
NB_API nb_tensor *nb_broadcast_on_mesh(nb_tensor *x, const nb_mesh *m,
                                       int root);

/* x with a dim split on an axis, before what splits it already, and no other:
 * what a vmap with an spmd_axis_name does to its arguments and results. */
NB_API nb_tensor *nb_reshard_dim(nb_tensor *x, int dim, const nb_mesh *m,
                                 const char *axis);

/* The mesh it does so on: m, else the first that one of n arguments lies on, else
 * NULL.  False if the mesh lacks the axis. */
NB_API bool nb_spmd_mesh(const nb_mesh *m, const char *axis, int n,
                         nb_tensor *const *x, const nb_mesh **found);

/* f on a mesh: argument i is laid out as in_specs[i] says (NULL: as it lies; the
 * last entry also stands for those beyond it), results likewise.
 *
 * With manual axes f sees, along these, blocks: a dim that an in_spec splits on
 * them has the size of a block, and values differ from device to device, which
 * talk by collectives that name the axes.  Specs inside must not name them.  In
 * a spec manual axes come first in a dim and divide it.  A result is put
 * together as its out_spec says; along a manual axis that this leaves out it
 * must not differ, unless `unsafe` says that the first device's will do. */
typedef struct nb_shard_map_options {
    int nin, nout; /* entries */
    const nb_spec *const *in_specs;
    const nb_spec *const *out_specs;
    int nmanual;
    const char *const *manual;
    bool unsafe;
} nb_shard_map_options;
NB_API nb_func *nb_shard_map(nb_func *f, const nb_mesh *m,
                             const nb_shard_map_options *options);

/* The pieces, for bindings: begin, let the arguments in, call, end, let the
 * results out, drop.  NULL specs: no dim is split on a manual axis.  One that
 * trusts is unsafe. */
typedef struct nb_manual nb_manual;
NB_API nb_manual *nb_manual_begin(const nb_mesh *m, int n,
                                  const char *const *axes);
NB_API void nb_manual_trust(nb_manual *m);
NB_API nb_tensor *nb_manual_in(nb_manual *m, nb_tensor *x, const nb_spec *spec);
NB_API void nb_manual_end(nb_manual *m);
NB_API nb_tensor *nb_manual_out(nb_manual *m, nb_tensor *y,
                                const nb_spec *spec);
NB_API void nb_manual_drop(nb_manual *m);

#ifdef __cplusplus
}
#endif
#endif
