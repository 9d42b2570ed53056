/* nabla/index.h - picking elements by index, and placing them.
 *
 * An index tensor holds integers of any dtype.  Negative ones count from the
 * end; those that are out of range even so read the nearest element and write
 * nothing.  Nothing here changes a tensor: what "writes" returns a new one.
 *
 * nb_get and nb_set take what NumPy takes between brackets, one nb_key for
 * each item; x[1, ..., ::-1] is
 *
 *     nb_get(x, 3, (nb_key[]){NB_AT(1), NB_REST, NB_RANGE(NB_OPEN, NB_OPEN, -1)})
 */
#ifndef NABLA_INDEX_H
#define NABLA_INDEX_H

#include "nabla/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The slices of x along an axis that the indices name: the shape of x with
 * that axis replaced by the shape of indices. */
NB_API nb_tensor *nb_gather(nb_tensor *x, nb_tensor *indices, int64_t axis);

/* x with `updates`, which broadcast to the shape of such a gather and take x's
 * dtype, in the places that the indices name.  Of several for one place the
 * last in row-major order stays. */
NB_API nb_tensor *nb_scatter(nb_tensor *x, nb_tensor *indices,
                             nb_tensor *updates, int64_t axis);

/* One element for each of the indices, which say where along the axis; along
 * the others x and indices, of the same rank, broadcast. */
NB_API nb_tensor *nb_take_along_axis(nb_tensor *x, nb_tensor *indices,
                                     int64_t axis);

/* x with `update`, broadcast to `size` and in x's dtype, in the block of that
 * size which begins at `start`: rank numbers each, starts may be negative. */
NB_API nb_tensor *nb_slice_update(nb_tensor *x, nb_tensor *update,
                                  const int64_t *start, const int64_t *size);

/* One item of a key. */
typedef enum nb_key_kind {
    NB_KEY_INT,      /* the element `at` of an axis, which goes */
    NB_KEY_SLICE,    /* start:stop:step of an axis, clamped as in Python */
    NB_KEY_NEWAXIS,  /* a new axis of size one */
    NB_KEY_ELLIPSIS, /* all axes that no other item speaks for */
    NB_KEY_TENSOR    /* an index tensor, or a bool mask over rank-many axes */
} nb_key_kind;

#define NB_OPEN INT64_MIN /* a part of a slice that is left out */

typedef struct nb_key {
    nb_key_kind kind;
    int64_t at;
    int64_t start, stop, step;
    nb_tensor *tensor;
    bool checked; /* its values are at hand: out of range is an error,
                   and it goes where x is */
} nb_key;

#define NB_AT(i) ((nb_key){.kind = NB_KEY_INT, .at = (i)})
#define NB_RANGE(from, to, by) \
    ((nb_key){                 \
        .kind = NB_KEY_SLICE, .start = (from), .stop = (to), .step = (by)})
#define NB_ALL     NB_RANGE(NB_OPEN, NB_OPEN, NB_OPEN)
#define NB_NEWAXIS ((nb_key){.kind = NB_KEY_NEWAXIS})
#define NB_REST    ((nb_key){.kind = NB_KEY_ELLIPSIS})
#define NB_PICK(t) ((nb_key){.kind = NB_KEY_TENSOR, .tensor = (t)})

/* x[key], shaped as in NumPy: tensors in the key broadcast with each other, and
 * their axes stand where the first of them stood, or in front if something
 * other than integers is between them.  Without tensors it is a view.  A mask
 * is computed at once, as the shape depends on it. */
NB_API nb_tensor *nb_get(nb_tensor *x, int n, const nb_key *key);

/* x with x[key] = value, which broadcasts to the shape of x[key] and takes x's
 * dtype.  mode is "set" (or NULL), "add", "mul", "min" or "max": what becomes
 * of an old value and all new ones for it; "set" keeps the last in row-major
 * order.  A mask is not computed if the value does not run along what it picks,
 * a number for one. */
NB_API nb_tensor *nb_set(nb_tensor *x, int n, const nb_key *key,
                         nb_tensor *value, const char *mode);

#ifdef __cplusplus
}
#endif
#endif
