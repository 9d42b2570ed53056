/* nabla/shard.h - tensors over many devices: meshes and how tensors lie on
 * them.
 *
 * A mesh arranges devices along named axes.  A spec says, for each dim of a
 * tensor, which mesh axes split it, major to minor, and over which axes a
 * reduction is still pending.  Both are values: two of the same contents are
 * the same pointer, and they live as long as the process.
 *
 * A spec is written "[dp, ., (x y)]": dim 0 is split on dp, dim 1 is whole,
 * dim 2 is split on x and, within that, on y.  After the dims may stand P{t}
 * (a sum over t is pending; Pmax{t}, Pmin{t}, Pprod, Pand, Por) and R{w} (never
 * to be split over w); ? after a dim leaves it open to more axes, pN gives it a
 * priority, 0 the strongest.  The long form, which prints, is
 *
 *     sharding<@pod, [{"dp"}, {}, {"x","y"}], partial={"t"}:max>
 *
 * x:(2)4 is a part of axis x, seen as [2, 4, rest]: the 4 in the middle. */
#ifndef NABLA_SHARD_H
#define NABLA_SHARD_H

#include "nabla/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nb_mesh nb_mesh;
typedef struct nb_spec nb_spec;

/* A mesh of naxes axes, row-major; devices NULL: 0, 1, 2, ... */
NB_API const nb_mesh *nb_mesh_new(const char *name, int naxes,
                                  const char *const *axis, const int *size,
                                  const int *devices);

NB_API const char *nb_mesh_name(const nb_mesh *m);
NB_API int nb_mesh_axes(const nb_mesh *m);
NB_API const char *nb_mesh_axis_name(const nb_mesh *m, int k);
NB_API int nb_mesh_axis_size(const nb_mesh *m, int k);
NB_API int nb_mesh_axis_find(const nb_mesh *m, const char *axis); /* or -1 */
NB_API int nb_mesh_devices(const nb_mesh *m);
NB_API int nb_mesh_device(const nb_mesh *m, int position);
NB_API int nb_mesh_position(const nb_mesh *m, int device); /* or -1 */
NB_API int nb_mesh_coordinate(const nb_mesh *m, int position, int axis);

/* What a message and a byte cost along an axis, in seconds. */
NB_API nb_status nb_mesh_set_cost(const nb_mesh *m, int axis, double message,
                                  double byte);

#ifdef __cplusplus
}
#endif
#endif
