/* steps.h - the nest of a group in the making: what steps.c and points.c share.
 *
 * Functions that give a value of the nest give -1 if memory ran out. */
#ifndef NB_LOWER_STEPS_H
#define NB_LOWER_STEPS_H

#include "base/half.h"
#include "lower/fuse.h"

typedef struct nb_maker {
    nb_fusion *f;
    int group;
    nb_nest *nest;
    nb_step *step;
    int *value; /* by line: the value of the nest that it is, -1: none */
} nb_maker;

int nb_maker_add(nb_maker *m, nb_nest_value v);
/* An access to line k, whose dims lie along those axes. */
bool nb_maker_access(nb_maker *m, int k, const int *axis, nb_nest_value *v);
int nb_maker_load(nb_maker *m, nb_nest_value v);
int nb_maker_number(nb_maker *m, nb_dtype d, const void *from, nb_dtype is);
int nb_maker_convert(nb_maker *m, int x, nb_dtype to);
/* The value of operand i of line c, in the dtype wanted. */
int nb_maker_operand(nb_maker *m, int c, int i, nb_dtype want);

/* The work at a point of line k, whose op says what that is (points.c). */
int nb_maker_point(nb_maker *m, int k);

/* What an element of that dtype is in registers. */
static inline nb_dtype nb_wide(nb_dtype d)
{
    return nb_dtype_is_half(d) ? NB_F32 : d;
}

#endif
