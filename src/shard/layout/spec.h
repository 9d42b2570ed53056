/* spec.h - how a tensor lies on a mesh.
 *
 * A spec speaks of stored dims: lanes by ascending id, then visible ones.  It
 * is a plain value while it is being made; nb_spec_intern checks it, writes it
 * in its one form and gives the one pointer that stands for it. */
#ifndef NB_SHARD_LAYOUT_SPEC_H
#define NB_SHARD_LAYOUT_SPEC_H

#include "core/shape.h"
#include "core/signature.h"
#include "shard/layout/mesh.h"

/* A list of them, major to minor; as a set, in mesh order, by pre. */
typedef struct nb_cut {
    uint8_t n;
    nb_axis at[NB_MESH_AXES];
} nb_cut;

typedef struct nb_dim_spec {
    nb_cut axes;
    bool open;
    uint8_t priority; /* 0 is the strongest */
} nb_dim_spec;

struct nb_spec {
    const nb_spec *next; /* of those with the same hash */
    const nb_mesh *mesh;
    uint64_t hash;
    int rank; /* stored dims */
    nb_reduce kind;
    nb_cut replicated; /* may never split this tensor */
    nb_cut partial;    /* a reduction over these is pending */
    nb_dim_spec dim[NB_MAX_DIMS];
};

#define NB_NO_PRIORITY "dim %d is closed and empty, it cannot have a priority"

/* The spec in its one form, as nb_spec_new says it. */
const nb_spec *nb_spec_intern(const nb_spec *draft);

/* One to be changed; one that is interned cannot be assigned, it ends with its
 * last dim. */
nb_spec nb_spec_draft(const nb_spec *s);

/* The same of what says how data lies alone: no dim is open or has a priority,
 * no axis is kept out.  As a spec; and as one with nothing pending. */
nb_spec nb_spec_bare(const nb_spec *s);
const nb_spec *nb_spec_layout(const nb_spec *s);
const nb_spec *nb_spec_settled(const nb_spec *s);

/* Nothing split, nothing pending, all dims closed (or open). */
const nb_spec *nb_spec_whole(const nb_mesh *m, int rank, bool open);

/* text.c: "@dp", "@(x,y)" or nothing, and "{P:tp}", "{Pmax:(t,u)}" or nothing,
 * as they stand in types. */
void nb_spec_write_dim(nb_text *t, const nb_spec *s, int dim);
void nb_spec_write_partial(nb_text *t, const nb_spec *s);
/* "<dp, *>", and "(<dp, *> | partial={'tp'})", as it stands behind types of
 * printed tensors; the first dims are hidden: left of a bar, the last of them
 * first. */
void nb_spec_write_dims(nb_text *t, const nb_spec *s, int hidden);
void nb_spec_write_layout(nb_text *t, const nb_spec *s, int hidden);
const char *nb_kind_name(nb_reduce kind);
bool nb_kind_find(const char *name, size_t n, nb_reduce *kind);

/* axis.c */
nb_axis nb_axis_full(const nb_mesh *m, int axis);
bool nb_axis_equal(nb_axis a, nb_axis b);
bool nb_axis_overlap(nb_axis a, nb_axis b);
bool nb_axis_fits(nb_axis a, nb_axis b); /* may both be in use at once */
/* Axes that a spec uses so far.  Those of a mesh have at most 16 parts and 8 of
 * size one. */
typedef struct nb_uses {
    int n;
    nb_axis at[32];
    char why[200]; /* the last was refused */
} nb_uses;
bool nb_axis_use(const nb_mesh *m, nb_uses *u, nb_axis a);
int64_t nb_cut_count(const nb_cut *l); /* product of the sizes */
bool nb_cut_equal(const nb_cut *a, const nb_cut *b);
bool nb_cut_has(const nb_cut *l, nb_axis a); /* overlaps one of them */
/* a is the beginning of b, its last axis perhaps in part. */
bool nb_cut_prefix(const nb_cut *a, const nb_cut *b);
/* What both begin with. */
nb_cut nb_cut_common(const nb_cut *a, const nb_cut *b);
bool nb_cut_add(nb_cut *l, nb_axis a); /* merges; false if full */
/* Number of the block that a position has of a dim split so. */
int64_t nb_cut_index(const nb_mesh *m, const nb_cut *l, int position);
/* Positions that agree with this one outside of l, in the order of l; returns
 * how many, at most ndevices. */
int nb_cut_group(const nb_mesh *m, const nb_cut *l, int position, int *member);

/* block.c: block i of n of d elements is [floor(i d / n), floor((i+1) d / n)). */
static inline int64_t nb_block_start(int64_t d, int64_t n, int64_t i)
{
    return (int64_t)((__int128)i * d / n);
}

/* What a position has of a tensor of these stored sizes: rank of each. */
void nb_spec_box(const nb_spec *s, const int64_t *size, int position,
                 nb_box *box);
/* The number of that part among all that there are. */
int64_t nb_spec_block(const nb_spec *s, int position);
/* Elements of a box; what two have in common, false if nothing. */
int64_t nb_box_count(int rank, const nb_box *b);
bool nb_box_meet(int rank, const nb_box *a, const nb_box *b, nb_box *common);
/* The most elements that a position has. */
int64_t nb_spec_elements(const nb_spec *s, const int64_t *size);

#endif
