/* shape.h - extents, lanes and shapes.
 *
 * An extent is how long an axis is.  Today every extent is a number; a negative
 * code is kept for a linear expression in symbols, so code outside this module
 * asks and combines extents through these functions and never looks inside.
 *
 * A lane is a hidden axis, keyed by the id of the vmap that made it.  It is
 * thin when nothing varies along it: it has `size` lanes logically and one is
 * stored and computed.  Stored order of a tensor: lanes by ascending id (outer
 * vmaps first), then visible axes, row-major.
 *
 * "One" and "thin" are facts about code, not about values: only the literal
 * extent one broadcasts. */
#ifndef NB_CORE_SHAPE_H
#define NB_CORE_SHAPE_H

#include "base/text.h"
#include "nabla/dtype.h"

enum {
    NB_MAX_RANK = 16,
    NB_MAX_LANES = 16,
    NB_MAX_DIMS = NB_MAX_RANK + NB_MAX_LANES
};

typedef struct nb_extent {
    int64_t code;
} nb_extent;

static inline nb_extent nb_extent_of(int64_t n)
{
    return (nb_extent){n};
}

/* The number it is.  Calls for it where a number is needed: execution. */
static inline int64_t nb_extent_get(nb_extent e)
{
    return e.code;
}

static inline bool nb_extent_is(nb_extent e, int64_t n)
{
    return e.code == n;
}

static inline bool nb_extent_same(nb_extent a, nb_extent b)
{
    return a.code == b.code;
}

static inline nb_extent nb_extent_add(nb_extent e, int64_t n)
{
    return (nb_extent){e.code + n};
}

/* False, without an error, if the product does not fit. */
bool nb_extent_mul(nb_extent *product, nb_extent a, nb_extent b);

typedef struct nb_lane {
    nb_extent size;
    int32_t id;
    bool thin;
} nb_lane;

typedef struct nb_shape {
    int rank, nlanes;
    nb_extent size[NB_MAX_RANK];
    nb_lane lane[NB_MAX_LANES];
} nb_shape;

/* A part of a tensor: a range of each stored dim. */
typedef struct nb_box {
    int64_t start[NB_MAX_DIMS], size[NB_MAX_DIMS];
} nb_box;

/* Elements stored, and bytes of them: false with NB_EOVERFLOW if too many.
 * `who` begins the message. */
bool nb_shape_count(const nb_shape *s, int64_t *count);
bool nb_shape_check(const nb_shape *s, nb_dtype d, const char *who);

int nb_shape_find_lane(const nb_shape *s, int id); /* or -1 */
bool nb_shape_add_lane(nb_shape *s, nb_lane lane); /* nothing if it has it */
nb_extent nb_lane_stored(nb_lane lane);            /* one if it is thin */

/* Visible sizes as "(2, 3)", as messages quote them; and "2,3" or
 * "5 | 2,3" with hidden sizes, as listings do. */
void nb_shape_print(nb_text *t, const nb_shape *s);
void nb_shape_list(nb_text *t, const nb_shape *s);

/* A short-lived text of a shape for a message; four may be alive at once. */
const char *nb_shape_text(const nb_shape *s);

#endif
