/* forms.h - the ops that hold programs: copied at each call, with its own. */
#ifndef NB_TRANSFORM_FORMS_H
#define NB_TRANSFORM_FORMS_H

#include "core/graph.h"

extern nb_op nb_form_checkpoint, nb_form_cond, nb_form_scan, nb_form_while;

#endif
