/* forms.c - the ops that hold programs, by name: what a listing may say. */
#include "transform/forms.h"

nb_op *const nb_forms[] = {&nb_form_checkpoint, &nb_form_cond, &nb_form_scan,
                           &nb_form_while, NULL};
