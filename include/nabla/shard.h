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
 * x:(2)4 is a part of axis x, seen as [2, 4, rest]: the 4 in the middle.
 *
 * A position is the number of a device in its mesh, row-major. */
#ifndef NABLA_SHARD_H
#define NABLA_SHARD_H

#include "nabla/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct nb_mesh nb_mesh;
typedef struct nb_spec nb_spec;

/* A mesh of naxes axes, row-major; devices NULL: 0, 1, 2, ... */
NB_API const nb_mesh *nb_mesh_new(const char *name, int naxes,
                                  const char *const *axis, const int *size,
                                  const int *devices);

/* How layouts follow from call to call; 0 of nb_mesh_new. */
enum {
    /* A dim that an op must have whole, or of which it picks elements, is
     * gathered; else its axes go to another dim of the tensor where they can,
     * and devices pick what they have. */
    NB_MESH_GATHER = 1,
    /* What is whole and is added to what is pending becomes pending too, on one
     * device the value, on others nothing: the sum is taken later.  Else it is
     * taken before. */
    NB_MESH_MASK = 2
};

/* The mesh like m that has these rules, a sum of the above: another one than m,
 * unless it has them.  The text of a mesh does not tell them. */
NB_API const nb_mesh *nb_mesh_with(const nb_mesh *m, int rules);

/* The mesh like m whose devices are these, by position: 0 the CPU, 1 + k card k
 * (nabla/device.h); several may be one card.  Of many processes each has its own
 * devices in mind.  NULL: as if nothing had been said, which is so of
 * nb_mesh_new.  Then devices are cards if there are enough: of one process device
 * i is card i, and each process of a machine has its own.  If there are not, they
 * are simulated: all on the card that was the default device when the mesh was
 * made (a card a process), or on the CPU. */
NB_API const nb_mesh *nb_mesh_on(const nb_mesh *m, const int *device);

/* What the device at a position is; -1 if there is none. */
NB_API int nb_mesh_place(const nb_mesh *m, int position);

NB_API const char *nb_mesh_name(const nb_mesh *m);
NB_API int nb_mesh_axes(const nb_mesh *m);
NB_API const char *nb_mesh_axis_name(const nb_mesh *m, int k);
NB_API int nb_mesh_axis_size(const nb_mesh *m, int k);
NB_API int nb_mesh_axis_find(const nb_mesh *m, const char *axis); /* or -1 */
NB_API int nb_mesh_devices(const nb_mesh *m);
NB_API int nb_mesh_device(const nb_mesh *m, int position);
NB_API int nb_mesh_position(const nb_mesh *m, int device); /* or -1 */
NB_API int nb_mesh_coordinate(const nb_mesh *m, int position,
                              int axis); /* or -1 */

/* What a message and a byte cost along an axis, in seconds. */
NB_API nb_status nb_mesh_set_cost(const nb_mesh *m, int axis, double message,
                                  double byte);

/* Its text, "@pod = <["dp"=2, "tp"=4]>", with ", device_ids=[...]" before the
 * end where they are not 0, 1, 2, ...; yours, nb_text_release.  And the mesh of
 * such a text. */
NB_API char *nb_mesh_text(const nb_mesh *m);
NB_API const nb_mesh *nb_mesh_parse(const char *text);

/* Axis number `axis` of a mesh seen as [pre, size, rest], of which the middle;
 * all of it: pre is 1 and size its own. */
typedef struct nb_axis {
    uint8_t axis;
    uint16_t pre, size;
} nb_axis;

/* "x" or "x:(2)4", read and written; writing is like snprintf. */
NB_API nb_status nb_axis_parse(const nb_mesh *m, const char *text, nb_axis *a);
NB_API int nb_axis_text(const nb_mesh *m, nb_axis a, char *text, size_t room);

/* Where a position is along it; -1 if the mesh has no such part or position. */
NB_API int nb_axis_coordinate(const nb_mesh *m, nb_axis a, int position);

/* What a spec says, as plain data: axes are texts as above. */
typedef struct nb_dim_parts {
    int naxes;
    const char *const *axis;
    bool open;
    int priority; /* 0 to 255 */
} nb_dim_parts;

typedef struct nb_spec_parts {
    int rank;
    const nb_dim_parts *dim;
    int nreplicated, npartial;
    const char *const *replicated, *const *partial;
    const char *kind; /* "sum", "max", "min", "prod", "and", "or"; NULL: sum */
} nb_spec_parts;

/* A spec in its one form: axes of size one are dropped, parts of an axis that
 * are neighbours are merged, sets are in the order of the mesh, the kind of an
 * empty partial is sum.  NB_EVALUE if an axis is unknown or used twice, in part
 * or whole, or if a dim that is closed and empty has a priority. */
NB_API const nb_spec *nb_spec_new(const nb_mesh *m, const nb_spec_parts *parts);

/* The spec of a text, in either form; the error says where it is wrong. */
NB_API const nb_spec *nb_spec_parse(const nb_mesh *m, const char *text);

/* The long form, which is read back as the same spec; and the type of a tensor
 * of these sizes that lies so, "f32[32@dp, 256@(x,y)]{P:tp}".  Yours,
 * nb_text_release. */
NB_API char *nb_spec_text(const nb_spec *s);
NB_API char *nb_spec_type_text(const nb_spec *s, nb_dtype dtype,
                               const int64_t *sizes);

/* The lists of axes of a spec: those of a dim, by its number, and these. */
enum { NB_SPEC_PARTIAL = -1, NB_SPEC_REPLICATED = -2 };

NB_API const nb_mesh *nb_spec_mesh(const nb_spec *s);
NB_API int nb_spec_rank(const nb_spec *s);
NB_API int nb_spec_axes(const nb_spec *s, int list); /* how many */
NB_API nb_axis nb_spec_axis(const nb_spec *s, int list, int k);
NB_API int64_t nb_spec_shards(const nb_spec *s,
                              int list); /* product of sizes */
NB_API bool nb_spec_is_open(const nb_spec *s, int dim);
NB_API int nb_spec_priority(const nb_spec *s, int dim);
NB_API const char *nb_spec_kind(const nb_spec *s);

/* Whether every device has all of the tensor, nothing pending. */
NB_API bool nb_spec_is_whole(const nb_spec *s);

/* Whether data lies the same under both: dims and what is pending.  What is
 * open, priorities and replicated say nothing about that. */
NB_API bool nb_spec_same_layout(const nb_spec *a, const nb_spec *b);

/* The spec for a tensor of these sizes: NB_EVALUE if the rank is another; a dim
 * of size 0 or 1 cannot be split, so axes there are dropped. */
NB_API const nb_spec *nb_spec_fit(const nb_spec *s, int rank,
                                  const int64_t *sizes);

/* What the device at a position has of a tensor of these sizes: block i of n of
 * d elements is [floor(i d / n), floor((i + 1) d / n)).  starts may be NULL. */
NB_API nb_status nb_spec_local_sizes(const nb_spec *s, const int64_t *sizes,
                                     int position, int64_t *starts,
                                     int64_t *local);

/* The other way: the sizes of the tensor from those of its blocks, by position,
 * rank of them each; NB_EVALUE if no tensor has such blocks. */
NB_API nb_status nb_spec_global_sizes(const nb_spec *s, const int64_t *locals,
                                      int64_t *sizes);

/* x laid out so, wherever it lies now: the same value, and the identity to
 * derivatives.  The spec is about visible dims, hidden axes keep what they have
 * of axes that it does not use; or, with as many dims more, about hidden axes
 * too, the oldest first.  On a mesh, results of ops lie as their operands
 * suggest, and what has to move moves by itself. */
NB_API nb_tensor *nb_reshard(nb_tensor *x, const nb_spec *spec);

/* x, which is to lie so where all of a program is laid out at once: closed dims
 * exactly, open ones rather so, in functions that are compiled on tensors of a
 * mesh and in those that nb_auto_shard lays out.  Elsewhere it says nothing. */
NB_API nb_tensor *nb_constrain(nb_tensor *x, const nb_spec *spec);

/* y, of the visible shape of x, laid out as x is, nothing pending; y itself if x
 * lies on no mesh. */
NB_API nb_tensor *nb_reshard_like(nb_tensor *y, const nb_tensor *x);

/* How x lies, hidden axes first; NULL: on no mesh. */
NB_API const nb_spec *nb_sharding(const nb_tensor *x);

/* What the op that made x, such as reshard, was told to lay it out as; NULL: it
 * was another.  And that of line k of a recorded program. */
NB_API const nb_spec *nb_target_of(const nb_tensor *x);
NB_API const nb_spec *nb_graph_target(const nb_graph *g, int k);

/* The block of x, realised, that the device at a position has, as a tensor of
 * its own, hidden axes shown; NULL with an error if another process has it. */
NB_API nb_tensor *nb_shard_at(nb_tensor *x, int position);

/* Whether this process has the device at a position. */
NB_API bool nb_mesh_is_here(const nb_mesh *m, int position);

/* A picture of which devices have which block of a tensor of these sizes, which
 * lies so: as "text", in a frame of lines, or as "svg".  Of a tensor of rank
 * three or more one block of the leading dims is shown, the first, and a line
 * below says so.  Yours, nb_text_release. */
NB_API char *nb_sharding_picture(const nb_spec *s, int rank,
                                 const int64_t *sizes, const char *format);

#ifdef __cplusplus
}
#endif
#endif
