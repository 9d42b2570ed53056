/* build.h - what makes the list of things that one block does: values at
 * places, the nests of programs and copies between them. */
#ifndef NB_CUDA_SOLO_BUILD_H
#define NB_CUDA_SOLO_BUILD_H

#include "backend/cuda/loop/solo.h"
#include "lower/plan.h"

/* A value at a place: the dims of its shape, lanes first, by strides. */
typedef struct nb_solo_value {
    nb_solo_at at;
    nb_dtype dtype;
    int n;
    int64_t size[NB_MAX_DIMS], stride[NB_MAX_DIMS]; /* elements */
} nb_solo_value;

/* There is something that a block cannot do; true, for it is no error. */
bool nb_solo_unfit(nb_solo *s);

/* A slot of its own, with halves if a loop is said, or else -1; one that is
 * given. */
bool nb_solo_memory(nb_solo *s, int64_t bytes, int loop, nb_solo_at *at);
bool nb_solo_given(nb_solo *s, bool constant, nb_solo_at *at);

/* The same, so many bytes on; moving on with the turns of a loop. */
nb_solo_at nb_solo_further(nb_solo_at at, int64_t bytes);
nb_solo_at nb_solo_moving(nb_solo *s, nb_solo_at at, const nb_solo_item *loop,
                          int64_t bytes, int ring);

int64_t nb_solo_item_bytes(const nb_solo_value *v);
int64_t nb_solo_bytes(const nb_solo_value *v); /* if it is packed */
bool nb_solo_is_packed(const nb_solo_value *v);
nb_solo_value nb_solo_packed(nb_solo_at at, nb_dtype d, const nb_shape *s);
nb_solo_value nb_solo_of_tensor(nb_solo_at at, const nb_tensor *x);
nb_solo_value nb_solo_without(nb_solo_value v, int d); /* that dim */
/* v, which is x, in the shape of another: lanes that x lacks or has thin are
 * repeated. */
nb_solo_value nb_solo_spread(nb_solo_value v, const nb_tensor *x,
                             const nb_shape *to);

/* Lists.  A nest is taken, also where that fails. */
nb_solo_item *nb_solo_add(nb_solo_list *l, nb_solo_item i);
bool nb_solo_add_nest(nb_solo *s, nb_solo_list *to, nb_nest *x,
                      const nb_solo_at *block);
bool nb_solo_add_copy(nb_solo *s, nb_solo_list *list, const nb_solo_value *from,
                      const nb_solo_value *to);
/* v itself if it is packed, else a copy of it that is. */
bool nb_solo_settle_value(nb_solo *s, nb_solo_list *list, nb_solo_value v,
                          nb_solo_value *is);
void nb_solo_list_free(nb_solo_list *l);

/* How a program meets the call; the shape of a result.  Both without the lanes
 * that blocks share out. */
bool nb_solo_joints(nb_solo *s, const nb_call *c, int region, nb_joints *j);
bool nb_solo_result(const nb_solo *s, const nb_call *c, int k, nb_shape *shape,
                    nb_dtype *d);

/* The plan of those results of a program that one of its runs makes. */
nb_plan *nb_solo_plan(const nb_solo *s, const nb_call *c, int region,
                      const nb_joints *j, int run);
/* Its steps, from values to values; the plan is taken, NULL means that there
 * was none. */
bool nb_solo_add_plan(nb_solo *s, nb_plan *p, const nb_solo_value *in,
                      const nb_solo_value *out, nb_solo_list *to);
/* A call of an op that holds programs. */
bool nb_solo_add_call(nb_solo *s, const nb_call *c, const nb_solo_value *in,
                      const nb_solo_value *out, nb_solo_list *to);

#endif
