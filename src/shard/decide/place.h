/* place.h - putting a tensor on a mesh. */
#ifndef NB_SHARD_DECIDE_PLACE_H
#define NB_SHARD_DECIDE_PLACE_H

#include "core/apply.h"
#include "shard/layout/spec.h"

extern nb_op nb_op_reshard, nb_op_constrain;

/* x as the spec says of its visible dims; its lanes stay as they are, but for
 * axes that the spec uses.  Or of all stored dims, by its rank. */
nb_tensor *nb_lay(nb_tensor *x, const nb_spec *spec);

/* Whether programs can run over a mesh here; false with an error.  run/ sets it. */
extern bool (*const nb_mesh_checker)(const nb_mesh *m);

/* The same, and a program that is laid out as a whole keeps to it, also if x
 * lies so already. */
nb_tensor *nb_pin(nb_tensor *x, const nb_spec *spec);

/* How an op that places, or asks for it, wants its result to lie: of all its
 * stored dims. */
const nb_spec *nb_call_target(const nb_call *c);

/* The view of an op that only places: all of the same. */
bool nb_same_view(const nb_call *c, const nb_layout *in, nb_layout *out);

#endif
