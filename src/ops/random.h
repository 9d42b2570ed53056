/* random.h - what draws are made of.
 *
 * Words come in streams of a key: NB_FIRST and NB_SECOND are drawn from,
 * NB_KEYS gives keys. */
#ifndef NB_OPS_RANDOM_H
#define NB_OPS_RANDOM_H

#include "ops/ops.h"

enum { NB_FIRST, NB_SECOND, NB_KEYS };

/* A shape that was asked for. */
typedef struct nb_extents {
    int n;
    const int64_t *at;
} nb_extents;

/* Where the keys of this thread come from while it is set: a function that is
 * being recorded has them as inputs. */
extern _Thread_local nb_tensor *(*nb_key_source)(void);

/* Whether the first input is a key. */
bool nb_key_check(nb_call *c);

/* Attribute k as a shape; None gives n < 0, or no axes. */
bool nb_draw_sizes(const nb_call *c, int k, nb_extents *s);
bool nb_draw_shape(const nb_call *c, int k, nb_extents *s);

static inline nb_value nb_shape_value(int rank, const int64_t *shape)
{
    nb_value none = NB_V_NONE, given = NB_V_LIST(rank, shape);
    return rank < 0 ? none : given;
}

/* Random words of dtype d: uint32, or uint64 below `below` if it is not 0. */
nb_tensor *nb_draw_bits(nb_tensor *key, nb_extents s, nb_dtype d,
                        uint64_t below, int64_t stream);

/* Numbers in (0, 1), symmetric about one half, in float64: the middles of 2^52
 * equal parts if `wide`, else of 2^32. */
nb_tensor *nb_draw_open(nb_tensor *key, nb_extents s, bool wide,
                        int64_t stream);

#endif
