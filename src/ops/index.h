/* index.h - what the families of indexing share, and rules of others may use.
 *
 * Two operands meet in every op here: the table, which has the axes that are
 * picked from, and the list, which has the axes of the indices in their place.
 * Reading goes from table to list, writing the other way. */
#ifndef NB_OPS_INDEX_H
#define NB_OPS_INDEX_H

#include "core/point.h"
#include "ops/ops.h"

/* Which elements: n index tensors of one shape for n axes of the table.  In
 * the list their axes stand together, before axis `at` of those that are left.
 * Indices out of range name the nearest element if `clamp`, else none: they
 * read zero and write nothing. */
typedef struct nb_pick {
    int n;
    nb_tensor *const *index;
    const int64_t *axes;
    int64_t at;
    bool clamp;
} nb_pick;

/* The list of what is picked from the table x. */
nb_tensor *nb_index(nb_tensor *x, const nb_pick *p);

/* The table x with the list u placed into it; op is one of nb_op_index_set,
 * _add, _mul, _min, _max. */
nb_tensor *nb_place(nb_op *op, nb_tensor *x, nb_tensor *u, const nb_pick *p);

/* x with `updates` added along an axis, each where its index says, or at the
 * nearest place: nb_take_along_axis transposed. */
nb_tensor *nb_put_along_axis_add(nb_tensor *x, nb_tensor *indices,
                                 nb_tensor *updates, int64_t axis);

/* x with u in place of the elements start, start + step, ... of each axis, as
 * many as u has. */
nb_tensor *nb_update(nb_tensor *x, nb_tensor *u, const int64_t *start,
                     const int64_t *step);

/* What the calls of index and of those that place have in common: arguments,
 * their meaning, their check; the signature of placing; and capitals for the
 * axes of an index tensor in a signature. */
#define P_INDEX "tensors:tensors, axes:axes, at:int=0, clamp:bool=False"
nb_pick nb_pick_of(const nb_call *c);
bool nb_index_check(nb_call *c);
bool nb_place_sign(const nb_call *c, nb_text *t);
void nb_sign_points(nb_text *t, const nb_tensor *index);

/* What index input i says of an axis of n elements, where a point is: the
 * nearest that there is; *when also asks that it was in range, if not `clamp`. */
nb_val nb_index_at(nb_point *p, int i, int64_t n, bool clamp, nb_val *when);

/* An axis of a table of which a device has `size` places from `start` on.
 * Indices into all of it, as int64, become those into the block; its size where
 * they name none of it. */
typedef struct nb_index_axis {
    int64_t whole, start, size;
} nb_index_axis;
nb_index_axis nb_index_axis_of(const nb_call *c, const nb_blocks *b, int axis);
nb_tensor *nb_index_into(const nb_blocks *b, nb_tensor *index,
                         const nb_index_axis *a, bool clamp);

/* Calls on blocks. */
nb_tensor *nb_index_local(const nb_call *c, const nb_blocks *b);
nb_tensor *nb_place_local(const nb_call *c, const nb_blocks *b);

typedef enum nb_combine {
    NB_PUT_SET,
    NB_PUT_ADD,
    NB_PUT_MUL,
    NB_PUT_MIN,
    NB_PUT_MAX
} nb_combine;

/* The loops, with operands in order: table, index tensors, list; table, list,
 * index tensors, new table; index tensors into axes of the given sizes,
 * numbers of the points before them.  Of p they need axes, place and clamp. */
bool nb_index_read(const nb_kernel *k, const nb_pick *p);
bool nb_index_write(const nb_kernel *k, const nb_pick *p, nb_combine how);
bool nb_index_link(const nb_kernel *k, const int64_t *size, bool clamp);

/* What the descriptors of all ops that place have in common. */
#define PLACES                                                         \
    .params = P_INDEX, .check = nb_index_check, .sign = nb_place_sign, \
    .in = NB_IN_COMMON, .index = ~3u, .splits = 1u << NB_MASK,         \
    .local = nb_place_local

/* The kernel of one, by the way it combines. */
#define PLACE_KERNEL(name, how)            \
    static bool name(const nb_kernel *k)   \
    {                                      \
        nb_pick p = nb_pick_of(k->call);   \
        return nb_index_write(k, &p, how); \
    }

#endif
