/* lanes.h - the ops that core itself needs: cast and alias, again, which holds a
 * recomputation apart, after, which waits for an effect, and hide, show and spread, which alone touch lanes. */
#ifndef NB_CORE_LANES_H
#define NB_CORE_LANES_H

#include "core/apply.h"

nb_tensor *nb_alias(nb_tensor *x);

/* Visible axis becomes lane id; lane becomes visible axis `axis` of the result,
 * spread first if x lacks it; x with a thin lane, itself if it has it. */
nb_tensor *nb_hide(nb_tensor *x, int axis, int id);
nb_tensor *nb_show(nb_tensor *x, int axis, nb_lane lane);
nb_tensor *nb_spread(nb_tensor *x, nb_lane lane);

extern nb_op nb_op_to_device; /* nabla/device.h */
extern nb_op nb_op_detach, nb_op_cast, nb_op_alias, nb_op_hide, nb_op_show,
    nb_op_spread, nb_op_again, nb_op_after;

#endif
